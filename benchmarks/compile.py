"""How long compiling takes: python -m benchmarks.compile [--json FILE]. CPU time of this process, the best of several runs.

- pipeline: source tree to vec level with verification after each lowering, and at the end, for a kernel that ends at about 1,500 ops; without LLVM
- text: printing and parsing IR, for 1,000 ops, in both forms
- softmax: from source text to the first result, nothing cached; in this process, and in a fresh one without imports
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilelang
from tilelang.driver import lower
from tilelang.ir.parser import parse_module
from tilelang.ir.text import print_module
from tilelang.ir.verify import verify
from tilelang.target import host_target

EXAMPLES = Path(__file__).parents[1] / "examples"


def best(run: Callable[[], Any], repeats: int) -> float:
    """The least CPU time of a run in ms."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append((time.process_time() - start) * 1e3)
    return min(times)


def big_kernel(parts: int) -> str:
    """A kernel with many elementwise steps, reductions and products; it grows with `parts`."""
    lines = ['M, N, K = dims("M N K")', "", "def big(x: f32[M, N], y: f32[M, N], a: f32[M, K], b: f32[K, N]) -> f32[M, N]:", "    out = empty(f32, M, N)"]
    lines += ["    for i, j in grid(M, N, by=(32, 64)):", "        t = x[i, j]", "        acc = zeros(f32, 32, 64)"]
    lines += ["        for k in pipelined(K, by=32):", "            acc += a[i, k] @ b[k, j]", "        t = t + acc"]
    for n in range(parts):
        lines.append(f"        t = exp(t * {0.5 + n / 100}) - max(y[i, j], t)")
        lines.append("        t = t - sum(t, axis=1, keepdims=True)")
    return "\n".join([*lines, "        out[i, j] = t", "    return out", ""])


def pipeline_times(repeats: int) -> dict[str, float]:
    target = host_target()
    parts = 1
    while True:  # the kernel whose vec level has 1,500 ops or a little more
        kernel = tilelang.load_text(big_kernel(parts)).big
        module = lower(kernel.build(), target)
        ops = sum(1 for _ in module.walk())
        if ops >= 1500:
            break
        parts += 1

    def run() -> None:
        verify(lower(kernel.build(), target))

    return {"ops at the vec level": ops, "build, pipeline, verify ms": best(run, repeats)}


def text_times(repeats: int) -> dict[str, float]:
    kernel = tilelang.load(EXAMPLES / "linear.tile").linear
    module = kernel.build(level="vec")
    ops = sum(1 for _ in module.walk())
    out: dict[str, float] = {}
    for form in ("pretty", "generic"):
        text = print_module(module, generic=form == "generic")
        out[f"print 1,000 ops, {form}, ms"] = best(lambda form=form: print_module(module, generic=form == "generic"), repeats) * 1000 / ops
        out[f"parse 1,000 ops, {form}, ms"] = best(lambda text=text: parse_module(text), repeats) * 1000 / ops
    return out


SOFTMAX = """
import sys, time
start = time.process_time()
import numpy as np
numpy = time.process_time()
import tilelang
x = np.ones((8, 64), np.float32)
tilelang.load(sys.argv[1]).softmax(x)
print((time.process_time() - numpy) * 1e3, (time.process_time() - start) * 1e3)
"""


def softmax_times(repeats: int) -> dict[str, float]:
    path = EXAMPLES / "softmax.tile"
    x = np.ones((8, 64), np.float32)
    tilelang.load(path).softmax(x)
    warm = best(lambda: tilelang.load(path).softmax(x), repeats)
    fresh = []
    for _ in range(max(2, repeats // 3)):
        done = subprocess.run([sys.executable, "-c", SOFTMAX, str(path)], capture_output=True, text=True, check=True, cwd=EXAMPLES.parent)
        fresh.append([float(t) for t in done.stdout.split()])
    return {
        "softmax, source to result, ms": warm,
        "softmax in a fresh process, after import numpy, ms": min(f[0] for f in fresh),
        "softmax in a fresh process, all, ms": min(f[1] for f in fresh),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures = {**pipeline_times(args.repeats), **text_times(args.repeats), **softmax_times(args.repeats)}
    for name, value in figures.items():
        print(f"{name:55}{value:10.1f}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
