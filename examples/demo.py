"""Compiles and runs every example on real input and prints its error against float64 and its speed: python -m examples.demo [--quick]."""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import tilelang
from tilelang.runtime.threads import thread_count
from tilelang.target import host_target

HERE = Path(__file__).parent
rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def ints(low: int, high: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
    return rng.integers(low, high, shape).astype(dtype)


def workloads(n: int) -> dict[str, tuple[tuple[Any, ...], float, float]]:
    """Arguments, floating-point or integer operations, and bytes that must move, for each example."""
    mm, sq = 2.0 * n**3, 4.0 * n * n
    head, seq = 64, n // 2
    q = [floats(1, 8, seq, head) for _ in range(3)]
    x4, w4 = floats(1, 64, 56, 56), floats(64, 64, 3, 3)
    return {
        "matmul": ((floats(n, n), floats(n, n)), mm, 3 * sq),
        "elementwise": ((floats(n, n), floats(n, n), 0.5), 12.0 * n * n, 3 * sq),
        "linear": ((floats(n, n), floats(n, n), floats(n)), mm, 3 * sq),
        "matmul_int8": ((ints(-128, 128, n, n, dtype=np.int8), ints(-128, 128, n, n, dtype=np.int8)), mm, 1.5 * sq),
        "batched_matmul": ((floats(8, n // 4, n // 4), floats(8, n // 4, n // 4)), mm / 8, 1.5 * sq),
        "softmax": ((floats(n, n),), 5.0 * n * n, 2 * sq),
        "layernorm": ((floats(n, n), floats(n), floats(n)), 8.0 * n * n, 2 * sq),
        "rmsnorm": ((floats(n, n), floats(n)), 4.0 * n * n, 2 * sq),
        "sums": ((floats(n, n),), 2.0 * n * n, 2 * sq),
        "transpose": ((floats(n, n),), 0.0, 2 * sq),
        "embedding": ((ints(0, n, n), floats(n, n)), 0.0, 2 * sq),
        "conv2d": ((x4, w4), 2.0 * 64 * 64 * 9 * 56 * 56, 4.0 * (2 * x4.size + w4.size)),
        "flash_attention": (tuple(q), 4.0 * 8 * seq * seq * head, 16.0 * q[0].size),
        "prefix_sum": ((floats(n, n),), 1.0 * n * n, 2 * sq),
        "histogram": ((ints(0, 64, n * n),), 0.0, sq),
        "splitk_matmul": ((floats(64, 64 * n), floats(64 * n, 64)), 2.0 * 64 * 64 * 64 * n, 8.0 * 64 * 64 * n),
        "mlp": ((floats(n // 2, n), floats(n, n) / n**0.5, floats(n), floats(n, n // 2) / n**0.5, floats(n // 2)), 1.5 * mm / 2, 3.5 * sq),
    }


def arguments(args: tuple[Any, ...]) -> str:
    """Shapes and dtypes, in short: those of neighbours that are equal once, with how many there are."""
    texts = [f"{np.dtype(a.dtype).name}[{', '.join(map(str, a.shape))}]" if isinstance(a, np.ndarray) else str(a) for a in args]
    return ", ".join(f"{n} x {text}" if n > 1 else text for text, n in ((t, len(list(same))) for t, same in itertools.groupby(texts)))


def error(result: Any, expected: Any) -> float:
    """The largest |result - expected| / max(1, |expected|)."""
    results, references = (x if isinstance(x, tuple) else (x,) for x in (result, expected))
    worst = 0.0
    for got, want in zip(results, references):
        want = want.astype(np.float64)
        worst = max(worst, float(np.max(np.abs(got.astype(np.float64) - want) / np.maximum(1.0, np.abs(want)), initial=0.0)))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer repeats")
    quick = parser.parse_args().quick
    n, repeats = (256, 5) if quick else (1024, 10)
    target = host_target()
    print(f"{target.llvm_cpu}, {target.cores} cores, {target.vector_bytes * 8}-bit vectors, {thread_count()} threads\n")
    print(f"{'example':18}{'compile ms':>11}{'run ms':>9}{'GFLOP/s':>9}{'GB/s':>7}{'error':>10}   arguments")
    worst = 0.0
    for name, (args, flops, moved) in workloads(n).items():
        kernel = getattr(tilelang.load(HERE / f"{name}.tile"), name)
        start = time.perf_counter()
        result = kernel(*args)  # the first call compiles
        compiled = time.perf_counter() - start
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            result = kernel(*args)
            times.append(time.perf_counter() - start)
        t = statistics.median(times)
        expected = importlib.import_module(f"examples.{name}").reference(*args)
        e = error(result, expected)
        worst = max(worst, e)
        rate = f"{flops / t / 1e9:9.1f}" if flops else f"{'-':>9}"
        print(f"{name:18}{compiled * 1e3:11.0f}{t * 1e3:9.2f}{rate}{moved / t / 1e9:7.1f}{e:10.1e}   {arguments(args)}", flush=True)
    print("\ncompile: the first call. run: median, output allocation included. GFLOP/s and GB/s: from the operations and bytes that the mathematics")
    print("needs, not counted by hardware. error: largest |result - float64 result| / max(1, |float64 result|)")
    if worst < 1e-3:
        print(f"all is well: every error is below {1e-3:g}")
    else:
        raise SystemExit(f"an example is wrong: error {worst:.3g}")


if __name__ == "__main__":
    main()
