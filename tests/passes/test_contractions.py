"""Matrix products in source programs, through the whole pipeline: how many are raised, and that nothing changes what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilelang
from tests.passes.test_promote import source
from tilelang.dialects import mem, tile
from tilelang.ir.core import Module
from tilelang.ir.passes import PassContext, PassManager, get_pass, parse_pipeline
from tilelang.ir.types import Scalar
from tilelang.passes.pipelines import cpu_pipeline
from tilelang.runtime.interp import equivalent
from tilelang.runtime.numerics import dtype_of
from tilelang.target import get_target

HEAD = 'M, N, K = dims("M N K")\n'


@dataclass
class Program:
    name: str
    raised: int
    left: int  # products of tiles that stay in loops
    text: str


def kernel(body: str, parameters: str = "a: f32[M, K], b: f32[K, N]", setup: str = "acc = zeros(f32, 16, 16)", end: str = "c[i, j] = acc") -> str:
    lines = "".join(f"            {line}\n" for line in body.strip().splitlines())
    start = "".join(f"        {line}\n" for line in setup.splitlines())
    stop = "".join(f"        {line}\n" for line in end.splitlines())
    loops = "    for i, j in grid(M, N, by=(16, 16)):\n"
    return (
        f"{HEAD}def f({parameters}) -> f32[M, N]:\n    c = empty(f32, M, N)\n{loops}{start}        for k in pipelined(K, by=16):\n{lines}{stop}    return c\n"
    )


PROGRAMS = [
    Program("plain", 1, 0, kernel("acc += a[i, k] @ b[k, j]")),
    Program("transposed operands", 1, 0, kernel("acc += a[k, i].T @ b[j, k].T", "a: f32[K, M], b: f32[N, K]")),
    Program("narrow floats", 1, 0, kernel("acc += a[i, k] @ b[k, j]", "a: bf16[M, K], b: f16[K, N]")),
    Program("integers", 1, 0, kernel("acc += a[i, k] @ b[k, j]", "a: i8[M, K], b: u8[K, N]", "acc = zeros(i32, 16, 16)", "c[i, j] = cast(acc, f32)")),
    Program("scaled operand, rounded", 1, 0, kernel("acc += cast(a[i, k] * s, bf16) @ b[k, j]", "a: f32[M, K], b: bf16[K, N], s: f32")),
    Program("dequantised", 1, 0, kernel("acc += a[i, k] @ (cast(b[k, j], f32) * s)", "a: f32[M, K], b: i8[K, N], s: f32")),
    Program("scaled product, subtracted", 1, 0, kernel("acc -= (a[i, k] @ b[k, j]) * s", "a: f32[M, K], b: f32[K, N], s: f32")),
    Program("two products, one accumulator", 2, 0, kernel("acc += a[i, k] @ b[k, j]\nacc += d[i, k] @ b[k, j]", "a: f32[M, K], d: f32[M, K], b: f32[K, N]")),
    Program(
        "two accumulators", 2, 0,
        kernel("x += a[i, k] @ b[k, j]\ny += a[i, k] @ d[k, j]", "a: f32[M, K], b: f32[K, N], d: f32[K, N]", "x = zeros(f32, 16, 16)\ny = zeros(f32, 16, 16)", "c[i, j] = x * y"),
    ),
    Program(
        "beside another reduction", 1, 0,
        kernel("acc += a[i, k] @ b[k, j]\ntop = max(top, max(a[i, k], axis=1))", setup="acc = zeros(f32, 16, 16)\ntop = full(f32, i, value=-inf)", end="c[i, j] = acc - top[:, None]"),
    ),
    Program("scaled by what changes along K", 0, 1, kernel("acc += (a[i, k] * s[k]) @ b[k, j]", "a: f32[M, K], b: f32[K, N], s: f32[K]")),
    Program("rescaled accumulator", 0, 1, kernel("acc = acc * 0.5 + a[i, k] @ b[k, j]")),
    Program(
        "serial loops over blocks", 1, 0,
        f"""{HEAD}
def f(a: f32[M, K], b: f32[K, N]) -> f32[M, N]:
    c = empty(f32, M, N)
    for i, j in grid(M, N, by=(32, 8)):
        acc = zeros(f32, 32, 8)
        for k in range(K, by=8):
            acc = a[i, k] @ b[k, j] + acc
        c[i, j] = acc
    return c
""",
    ),
    Program(
        "explicit buffers", 1, 0,
        f"""{HEAD}
def f(a: f16[M, K], b: f32[K, N], s: f32) -> f32[M, N]:
    c = empty(f32, M, N)
    for i, j in grid(M, N, by=(32, 16)):
        left = shared(f16, 32, 8)
        right = shared(f32, 8, 16)
        acc = accumulator(f32, 32, 16)
        fill(acc, 0)
        for k in pipelined(K, by=8, stages=3):
            copy(a[i, k], left)
            copy(b[k, j], right)
            gemm(left, right, acc)
        for r, q in parallel(32, 16):
            acc[r, q] = max(acc[r, q] * s, 0.0)
        copy(acc, c[i, j])
    return c
""",
    ),
    Program("whole tensors", 2, 0, f"{HEAD}def f(a: f32[M, K], b: f32[K, N], d: f32[N, K]) -> f32[M, K]:\n    return (a @ b + 1.0) @ d\n"),
]  # fmt: skip


def products(module: Module, kind: type) -> int:
    return sum(isinstance(op, kind) for op in module.walk())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("target", ["znver5", "haswell"])
def test_pipeline(program: Program, target: str) -> None:
    module = source(program.text)
    ctx = PassContext(get_target("cpu", cpu=target))
    before = module.clone()
    shapes = [{"M": 37, "N": 21, "K": 45}, {"M": 1, "N": 1, "K": 1}, {"M": 16, "N": 50, "K": 0}, {"M": 0, "N": 3, "K": 5}]
    compared = {"raise", "bufferize", "microkernel", "lower-to-vec"}
    for step in parse_pipeline(cpu_pipeline()):
        cls = get_pass(step.name)
        if module.level not in ((cls.before,) if isinstance(cls.before, str) else cls.before) and cls.before:
            continue
        PassManager([step]).run(module, ctx)
        if step.name == "raise":
            assert (products(module, tile.Contract), products(module, tile.Matmul)) == (program.raised, program.left)
        if step.name in compared:
            assert equivalent(before, module, shapes=shapes) == [], step.name
    assert not products(module, mem.Matmul)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_native(program: Program) -> None:
    run = tilelang.load_text(program.text).f
    rng = np.random.default_rng(3)
    for sizes in ({"M": 37, "N": 21, "K": 45}, {"M": 130, "N": 70, "K": 300}, {"M": 1, "N": 1, "K": 1}, {"M": 5, "N": 3, "K": 0}):
        args: list[Any] = []
        for p in run.signature.params:
            shape = tuple(d.evaluate(sizes) for d in p.dims)
            assert isinstance(p.dtype, Scalar)
            if p.dtype.is_float:
                args.append(np.asarray(rng.standard_normal(shape), dtype_of(p.dtype)) if p.dims else 0.75)
            else:
                args.append(rng.integers(0, 5, shape).astype(dtype_of(p.dtype)))
        got, want = run(*args), run(*args, mode="interpret")
        # Operands that are rounded to bf16 are the same in both; sums are of up to 300 products of normal numbers.
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)
