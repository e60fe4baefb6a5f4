"""microkernel and the lowering of its tiles: every kind of operand, by the interpreter after each step, and some of them as native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilelang import driver
from tilelang.dialects import func, mem
from tilelang.ir.core import Builder, Module
from tilelang.ir.passes import PassContext, PassManager, parse_pipeline
from tilelang.ir.text import print_module
from tilelang.ir.types import DYN, BufferType, Dyn, Scalar, bf16, f16, f32, f64, i8, i16, i32, u8
from tilelang.passes.block import choose
from tilelang.runtime.interp import equivalent
from tilelang.target import get_target

M, N, K = Dyn("M"), Dyn("N"), Dyn("K")
LOWER = "canonicalize,cse,plan-memory,vectorize,lower-to-vec"


def product(a: BufferType, b: BufferType, c: BufferType, **attrs: Any) -> Module:
    """c += a @ b, with 'mk', 'kn', 'mn' operands of these types; a or b given as 'km', 'nk' are permuted."""
    f = func.Func.of("f", [("a", a, "in"), ("b", b, "in"), ("c", c, "inout")])
    build = Builder(f.body.block)
    x, y, z = f.args
    rank = len(c.shape)
    swap = (*range(rank - 2), rank - 1, rank - 2)
    if attrs.pop("transpose_a", False):
        x = build(mem.Permute.of(x, swap))
    if attrs.pop("transpose_b", False):
        y = build(mem.Permute.of(y, swap))
    build.insert(mem.Matmul([x, y, z], (), attrs))
    build.insert(func.Return.of())
    return Module.of([f], "mem")


def matrices(m: Any, n: Any, k: Any, element: Scalar = f32, acc: Scalar = f32, **options: Any) -> Module:
    strides = options.pop("strides", None)
    a = (k, m) if options.get("transpose_a") else (m, k)
    b = (n, k) if options.get("transpose_b") else (k, n)
    return product(BufferType(a, element, "global", strides), BufferType(b, element, "global", strides), BufferType((m, n), acc), **options)


def run(module: Module, pipeline: str, target: str = "cpu:znver5") -> Module:
    PassManager(parse_pipeline(pipeline)).run(module, PassContext(get_target(target)))
    return module


def check(module: Module, target: str = "cpu:znver5", shapes: list[dict[str, int]] | None = None) -> None:
    before = module.clone()
    run(module, "microkernel", target)
    tiles = [op for op in module.walk() if isinstance(op, mem.Matmul)]
    assert tiles and all(op.register_tile and not op.cache_blocks for op in tiles)
    assert equivalent(before, module, shapes=shapes) == []
    run(module, LOWER, target)
    assert equivalent(before, module, shapes=shapes) == []


STATIC = [(14, 32, 8), (1, 1, 1), (29, 35, 7), (64, 64, 40), (5, 100, 3), (33, 7, 300)]
SHAPES = [{"M": m, "N": n, "K": k} for m, n, k in [(29, 50, 11), (1, 1, 1), (70, 130, 9), (0, 5, 3), (5, 0, 3), (4, 7, 0), (3, 17, 200)]]


@pytest.mark.parametrize("shape", STATIC, ids=str)
@pytest.mark.parametrize("target", ["cpu:znver5", "cpu:haswell", "cpu:x86-64"])
def test_static_shapes(shape: tuple[int, int, int], target: str) -> None:
    check(matrices(*shape), target)


@pytest.mark.parametrize("target", ["cpu:znver5", "cpu:haswell", "cpu:neoverse-n1"])
def test_symbolic_shapes(target: str) -> None:
    check(matrices(M, N, K), target, SHAPES)


@pytest.mark.parametrize("transposed", [(True, False), (False, True), (True, True)], ids=str)
def test_transposed(transposed: tuple[bool, bool]) -> None:
    check(matrices(29, 67, 20, transpose_a=transposed[0], transpose_b=transposed[1]))
    check(matrices(M, N, K, transpose_a=transposed[0], transpose_b=transposed[1]), shapes=SHAPES[:3])


@pytest.mark.parametrize("strides", [(DYN, DYN), (DYN, 1)], ids=str)
def test_any_strides(strides: tuple[Any, ...]) -> None:
    check(matrices(M, N, K, strides=strides), shapes=SHAPES[:4])


@pytest.mark.parametrize(
    ("element", "acc"), [(f64, f64), (f16, f32), (bf16, f32), (f16, f16), (i8, i32), (u8, i32), (i16, i32), (i32, i32), (bf16, bf16)], ids=str
)
@pytest.mark.parametrize("shape", [(29, 70, 12), (3, 9, 5)], ids=str)
def test_elements(element: Scalar, acc: Scalar, shape: tuple[int, int, int]) -> None:
    check(matrices(*shape, element, acc))


def test_mixed_elements() -> None:
    check(product(BufferType((20, 12), f32), BufferType((12, 70), bf16), BufferType((20, 70), f32)))
    check(product(BufferType((20, 12), u8), BufferType((12, 70), i8), BufferType((20, 70), i32)))


def test_batches() -> None:
    batch = Dyn("B")
    check(product(BufferType((3, 9, 20), f32), BufferType((3, 20, 40), f32), BufferType((3, 9, 40), f32)))
    symbolic = product(BufferType((batch, M, K), f32), BufferType((batch, N, K), f32), BufferType((batch, M, N), f32), transpose_b=True)
    check(symbolic, shapes=[{"B": 2, "M": 17, "N": 40, "K": 9}, {"B": 0, "M": 3, "N": 3, "K": 3}])


@pytest.mark.parametrize("tile", [(4, 32), (14, 32), (6, 64), (1, 16), (8, 48)], ids=str)
@pytest.mark.parametrize("blocks", [(28, 8), (1000, 5)], ids=str)
def test_every_blocking(tile: tuple[int, int], blocks: tuple[int, int]) -> None:
    blocks = (blocks[0] // tile[0] * tile[0], blocks[1])
    check(matrices(61, 75, 19, register_tile=tile, cache_blocks=blocks))
    check(matrices(M, N, K, register_tile=tile, cache_blocks=blocks), shapes=[{"M": 61, "N": 75, "K": 19}])


def test_lowering_without_microkernel() -> None:
    module = matrices(M, N, K, transpose_b=True)
    before = module.clone()
    run(module, LOWER)
    assert equivalent(before, module, shapes=SHAPES) == []


def test_cutting_twice_changes_nothing() -> None:
    module = run(matrices(M, 64, K), "microkernel")
    once = print_module(module)
    assert print_module(run(module, "microkernel")) == once


def test_blocking_fits_registers_and_caches() -> None:
    for name in ("cpu:znver5", "cpu:haswell", "cpu:x86-64", "cpu:neoverse-n1"):
        target = get_target(name)
        for element in (f32, f64, i32):
            for shape in ((64, 64, 64), (M, N, K), (128, 96, 4096), (1, 4096, 4096)):
                found = choose(target, element, *shape)
                vectors = found.columns // target.lanes(element.bits)
                assert found.rows * vectors + vectors + 1 <= target.vector_registers
                assert found.depth * found.columns * element.bytes <= target.l1d
                assert found.height * found.depth * element.bytes <= max(target.l2, found.rows * found.depth * element.bytes)


def test_blocking_follows_the_caches() -> None:
    target = get_target("cpu:znver5")
    small = target.with_(l1d=target.l1d // 3, l2=target.l2 // 8)
    large, less = (choose(t, f32, 512, 512, 2000) for t in (target, small))
    assert less.depth < large.depth
    assert less.height * less.depth < large.height * large.depth


@pytest.mark.parametrize("shape", [(64, 96, 256), (100, 61, 77), (1, 300, 64), (257, 3, 19)], ids=str)
@pytest.mark.parametrize(("element", "acc"), [(f32, f32), (f64, f64), (i8, i32)], ids=str)
def test_native(shape: tuple[int, int, int], element: Scalar, acc: Scalar) -> None:
    from tilelang.backends.cpu.compile import compile_module
    from tilelang.target import host_target

    rng = np.random.default_rng(1)
    m, n, k = shape
    for dims in ((m, n, k), (M, N, K)):
        module = matrices(*dims, element, acc)
        signature = driver.arguments(func.functions(module)[0])
        PassManager(parse_pipeline(f"microkernel,{LOWER},cleanup")).run(module, PassContext(host_target()))
        compiled = compile_module(module, host_target())
        kernel = driver.Compiled("f", signature, compiled.emitted.errors, compiled.emitted.text, compiled.object)
        a, b, c = (
            rng.standard_normal(s).astype(t.name.replace("f", "float")) if t.is_float else rng.integers(-9, 9, s).astype(t.name.replace("i", "int"))
            for s, t in (((m, k), element), ((k, n), element), ((m, n), acc))
        )
        want = c + a.astype(c.dtype) @ b.astype(c.dtype)
        kernel([a, b, c], 1)
        np.testing.assert_allclose(c, want, rtol=1e-4 if acc is f32 else 1e-12, atol=1e-3 if acc is f32 else 1e-12)
