"""lower-to-vec: every structured op, on ragged, tiny, empty and strided views; interpreter before and after, and native code, agree."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.native import check_lowering, flatten, lower, run_native
from tilelang.ir.types import Scalar
from tilelang.runtime.failure import KernelError
from tilelang.runtime.interp import Interpreter
from tilelang.runtime.numerics import dtype_of
from tilelang.target import get_target, host_target

LAYOUTS = ("", ", strides [?, 1]", ", strides [?, ?]")


def module(params: str, body: str) -> str:
    return f'builtin.module {{level = "mem"}} {{\n  func.func @f({params}) {{\n{body}\n  }}\n}}'


def array(shape: tuple[int, ...], dtype: str = "f32", layout: str = "", seed: int = 0) -> np.ndarray[Any, Any]:
    """Random numbers; with free strides: every second column of a wider array, rows reversed."""
    rng = np.random.default_rng(seed + sum(shape))
    element = Scalar(dtype)

    def fresh(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if element.is_float:
            return rng.normal(size=shape).astype(np.float32).astype(dtype_of(element))
        if dtype == "bool":
            return rng.random(shape) < 0.5
        info = np.iinfo(dtype_of(element))
        return rng.integers(max(info.min, -100), min(info.max, 100), shape).astype(dtype_of(element))

    if layout == LAYOUTS[1]:
        return fresh((shape[0], shape[1] + 3))[:, : shape[1]]
    if layout == LAYOUTS[2]:
        return fresh((shape[0], 2 * shape[1]))[::-1, ::2]
    return fresh(shape)


SHAPES = [(5, 37), (1, 1), (3, 16), (64, 64), (0, 7), (7, 0), (4, 130), (33, 3)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_map(layout: str, shape: tuple[int, int]) -> None:
    text = module(
        f"%x: buffer<f32[M, N], global{layout}> in, %r: buffer<f32[M], global> in, %c: buffer<f32[N], global> in, %s: f32 scalar, "
        f"%out: buffer<f32[M, N], global{layout}> out, %two: buffer<bool[M, N], global> out",
        """mem.map ins(%x, %r, %c, %s) outs(%out, %two) {maps = [[0, 1], [0, -1], [-1, 0], [-1, -1]]} {
          ^(%a: f32, %b: f32, %d: f32, %e: f32):
          %k = arith.constant 2.0 : f32
          %p = arith.mul %a, %k : f32
          %q = arith.add %p, %b : f32
          %t = arith.sub %q, %d : f32
          %u = arith.max %t, %e : f32
          %g = arith.cmp gt %u, %s : bool
          loop.yield %u, %g
        }""",
    )
    m, n = shape
    check_lowering(text, [array(shape, layout=layout), array((m,)), array((n,)), 0.25, array(shape, layout=layout), array(shape, "bool")])


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i8", "u16", "i64", "bool", "f8e4m3"])
def test_map_in_place_and_casts(dtype: str) -> None:
    for other in ("f32", "i32", "f16"):
        text = module(
            f"%x: buffer<{dtype}[M], global> in, %y: buffer<{other}[M], global> inout",
            f"""mem.map ins(%x, %y) outs(%y) {{maps = [[0], [0]]}} {{
              ^(%a: {dtype}, %b: {other}):
              %c = arith.cast %a : {other}
              %d = arith.add %c, %b : {other}
              loop.yield %d
            }}""",
        )
        for n in (0, 1, 31, 300):
            check_lowering(text, [array((n,), dtype), array((n,), other)])


def test_map_without_axes() -> None:
    text = module(
        "%x: buffer<f32[], global> in, %out: buffer<f32[], global> out",
        """mem.map ins(%x) outs(%out) {maps = [[]]} {
          ^(%a: f32):
          %b = arith.neg %a : f32
          loop.yield %b
        }""",
    )
    check_lowering(text, [np.array(1.5, np.float32), np.zeros((), np.float32)])


@pytest.mark.parametrize("dtype", ["f32", "i8", "bf16", "f64", "bool"])
@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))), ids=str)
def test_copy_of_permuted(perm: tuple[int, ...], dtype: str) -> None:
    dims = ("M", "N", "K")
    text = module(
        f"%x: buffer<{dtype}[M, N, K], global> in, %out: buffer<{dtype}[{', '.join(dims[p] for p in perm)}], global> out",
        f"""%p = mem.permute %x {{perm = [{', '.join(map(str, perm))}]}} : buffer<{dtype}[{', '.join(dims[p] for p in perm)}], global, strides [{', '.join('?' if p != 2 else '1' for p in perm)}]>
        mem.copy %p, %out""",
    )
    for shape in ((3, 5, 18), (1, 33, 20), (16, 16, 16), (2, 0, 3)):
        x = array(shape, dtype)
        (_, out) = check_lowering(text, [x, np.zeros([shape[p] for p in perm], x.dtype)])
        assert (out == x.transpose(perm)).all()


def test_views() -> None:
    text = module(
        "%x: buffer<f32[M, N], global> in, %i: index scalar, %n: index scalar, %out: buffer<f32[M, N], global> inout",
        """%c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %v = mem.subview %x offsets(%c1, %i) sizes(%n) {dropped = [0], steps = [1, 2]} : buffer<f32[?], global, strides [2]>
        %w = mem.subview %out offsets(%c0, %c0) sizes(%n) {dropped = [0]} : buffer<f32[?], global>
        mem.copy %v, %w
        %a = mem.alloc %n : buffer<f32[?, 4], local>
        %b = mem.reshape %a sizes(%n) : buffer<f32[4, ?], local>
        %t = mem.alloc {stack} : buffer<f32[3, 5], local>
        %five = arith.constant 5.0 : f32
        mem.fill %five, %b
        mem.fill %five, %t
        %two = arith.constant 2 : index
        %e = mem.load %a indices(%c1, %two) : f32
        %d = mem.load %t indices(%two, %c1) : f32
        %s = arith.add %e, %d : f32
        mem.store %s, %out indices(%c1, %c1)""",
    )
    check_lowering(text, [array((3, 40)), 3, 17, array((3, 40), seed=1)])


@pytest.mark.parametrize("dtype", ["f32", "i32", "i8", "u8", "f16"])
def test_iota_and_fill(dtype: str) -> None:
    text = module(
        f"%s: index scalar, %v: {dtype} scalar, %a: buffer<i32[N], global> out, %b: buffer<i8[N], global> out, %out: buffer<{dtype}[N, 3], global> out",
        """mem.iota %s, %a
        mem.iota %s, %b {step = -3}
        mem.fill %v, %out""",
    )
    for n in (0, 1, 50):
        check_lowering(text, [-7, 3, np.zeros(n, np.int32), np.zeros(n, np.int8), array((n, 3), dtype)])


KINDS = ("sum", "prod", "max", "min", "any", "all")


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32", "u8", "bool"])
def test_reduce(dtype: str, kind: str, axes: tuple[int, ...]) -> None:
    if kind in ("any", "all") and Scalar(dtype).is_float:
        dtype = "i8"
    kept = [d for a, d in enumerate("MN") if a not in axes]
    for layout in LAYOUTS:
        text = module(
            f"%x: buffer<{dtype}[M, N], global{layout}> in, %out: buffer<{dtype}[{', '.join(kept)}], global> out",
            f"""mem.reduce {kind} srcs(%x) dst(%out) {{axes = [{', '.join(map(str, axes))}]}} {{
            }}""",
        )
        for shape in ((5, 37), (1, 1), (0, 7), (7, 0), (4, 300), (70, 3)):
            x = array(shape, dtype, layout)
            if kind == "prod" and Scalar(dtype).is_float:
                x[...] = (1 + x.astype(np.float32) / 100).astype(x.dtype)
            cpus = ("host", "haswell") if layout == LAYOUTS[0] and shape[1] in (37, 300) else ("host",)
            check_lowering(text, [x, np.zeros([s for a, s in enumerate(shape) if a not in axes], x.dtype)], 2e-3 if dtype == "f16" else 1e-5, cpus)


def test_reduce_propagates_nan_and_keeps_infinity() -> None:
    text = module(
        "%x: buffer<f32[M, N], global> in, %a: buffer<f32[M], global> out, %b: buffer<f32[M], global> out",
        """mem.reduce max srcs(%x) dst(%a) {axes = [1]} {
        }
        mem.reduce min srcs(%x) dst(%b) {axes = [1]} {
        }""",
    )
    x = array((6, 50))
    x[0, 3] = x[1, 49] = x[2, 17] = np.nan
    x[3] = -np.inf
    x[4] = np.inf
    (_, a, b) = check_lowering(text, [x, np.zeros(6, np.float32), np.zeros(6, np.float32)])
    assert np.isnan(a[:3]).all() and np.isnan(b[:3]).all() and a[3] == -np.inf and b[4] == np.inf


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_reduce_with_a_producer(axes: tuple[int, ...]) -> None:
    kept = [d for a, d in enumerate("MN") if a not in axes]
    text = module(
        f"%x: buffer<f16[M, N], global> in, %m: buffer<f32[M], global> in, %s: f32 scalar, %out: buffer<f32[{', '.join(kept)}], global> out",
        f"""mem.reduce sum srcs(%x, %m, %s) dst(%out) {{axes = [{', '.join(map(str, axes))}], maps = [[0, 1], [0, -1], [-1, -1]]}} {{
          ^(%a: f16, %b: f32, %c: f32):
          %d = arith.cast %a : f32
          %e = arith.sub %d, %b : f32
          %g = arith.mul %e, %e : f32
          %h = arith.add %g, %c : f32
          loop.yield %h
        }}""",
    )
    for shape in ((5, 37), (3, 200), (40, 1), (0, 4)):
        check_lowering(text, [array(shape, "f16"), array(shape[:1]), 1.5, np.zeros([s for a, s in enumerate(shape) if a not in axes], np.float32)])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32", "u8", "bool"])
def test_arg_reduce(dtype: str, kind: str, axis: int) -> None:
    for layout, index in itertools.product(LAYOUTS, ("i32", "i64")):
        text = module(
            f"%x: buffer<{dtype}[M, N], global{layout}> in, %out: buffer<{index}[{'MN'[1 - axis]}], global> out",
            f"mem.arg_reduce {kind} %x, %out {{axis = {axis}}}",
        )
        for shape in ((5, 37), (1, 1), (3, 200), (70, 3), (3, 0), (0, 3)):
            x = array(shape, dtype, layout)
            if Scalar(dtype).is_float and x.size > 30:
                x[...] = np.round(x.astype(np.float32)).astype(x.dtype)  # many equal ones
                x[0, 2] = x[1, 2] = np.nan
                x[1, 0] = np.nan
                x[2, :] = -np.inf if kind == "max" else np.inf
            check_lowering(text, [x, np.full(shape[1 - axis], -1, index.replace("i", "int"))], cpus=("host",))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "f16", "u8", "f64"])
def test_scan(dtype: str, kind: str, axis: int) -> None:
    for layout, exclusive in itertools.product(LAYOUTS, ("", ", exclusive")):
        text = module(
            f"%x: buffer<{dtype}[M, N], global{layout}> in, %out: buffer<{dtype}[M, N], global{layout}> out",
            f"mem.scan {kind} %x, %out {{axis = {axis}{exclusive}}}",
        )
        for shape in ((5, 37), (1, 1), (40, 3), (3, 0), (2, 64)):
            x = array(shape, dtype, layout)
            if kind == "prod" and Scalar(dtype).is_float:
                x[...] = (1 + x.astype(np.float32) / 100).astype(x.dtype)
            check_lowering(text, [x, array(shape, dtype, layout)], 2e-3 if dtype == "f16" else 1e-5, cpus=("host",))


def test_scan_in_place() -> None:
    text = module("%x: buffer<f32[M, N], global> inout", "mem.scan sum %x, %x {axis = 1}")
    check_lowering(text, [array((3, 50))], 1e-5)


@pytest.mark.parametrize("offsets", [(0, 0), (-1, -2), (3, 30), (2, -40), (-9, 5), (4, 36)], ids=str)
@pytest.mark.parametrize("steps", ["", ", steps = [1, 3]", ", steps = [-1, 2]"])
def test_copy_padded(offsets: tuple[int, int], steps: str) -> None:
    text = module(
        "%x: buffer<f32[M, N], global, strides [?, 1]> in, %i: index scalar, %j: index scalar, %pad: f32 scalar, %out: buffer<f32[4, P], global> out, "
        "%row: buffer<f32[P], global> out, %one: buffer<f32[], global> out",
        f"""mem.copy_padded %x offsets(%i, %j) pad(%pad) dst(%out) {{vector = []{steps}}}
        mem.copy_padded %x offsets(%i, %j) pad(%pad) dst(%row) {{dropped = [0]}}
        mem.copy_padded %x offsets(%i, %j) pad(%pad) dst(%one) {{dropped = [0, 1]}}""",
    )
    for p in (1, 20, 33):
        check_lowering(text, [array((5, 37), layout=LAYOUTS[1]), *offsets, -3.5, array((4, p)), array((p,)), np.zeros((), np.float32)], cpus=("host",))


def indices(shape: tuple[int, ...], below: int, dtype: str = "i32", seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, max(below, 1), shape).astype(dtype_of(Scalar(dtype)))


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8", "bool", "f64"])
@pytest.mark.parametrize("index", ["i32", "i64"])
def test_gather(dtype: str, index: str) -> None:
    rows = module(
        f"%x: buffer<{dtype}[M, N], global> in, %i: buffer<{index}[P], global> in, %out: buffer<{dtype}[P, N], global> out",
        """%c0 = arith.constant 0 : index
        mem.gather %x indices(%i) offsets(%c0) dst(%out) {indexed = [0]}""",
    )
    columns = module(
        f"%x: buffer<{dtype}[M, N], global> in, %i: buffer<{index}[P, Q], global> in, %out: buffer<{dtype}[M, P, Q], global> out",
        """%c0 = arith.constant 0 : index
        mem.gather %x indices(%i) offsets(%c0) dst(%out) {indexed = [1]}""",
    )
    points = module(
        f"%x: buffer<{dtype}[M, N], global> in, %i: buffer<{index}[P], global> in, %j: buffer<{index}[P], global> in, %out: buffer<{dtype}[P], global> out",
        "mem.gather %x indices(%i, %j) offsets() dst(%out) {indexed = [0, 1]}",
    )
    dropped = module(
        f"%x: buffer<{dtype}[M, N], global> in, %r: index scalar, %i: buffer<{index}[P], global> in, %out: buffer<{dtype}[P], global> out",
        "mem.gather %x indices(%i) offsets(%r) dst(%out) {indexed = [1], dropped = [0]}",
    )
    for p in (0, 1, 37):
        x = array((9, 21), dtype)
        out = array((p, 21), dtype)
        check_lowering(rows, [x, indices((p,), 9, index), out])
        check_lowering(columns, [x, indices((p, 3), 21, index), array((9, p, 3), dtype)], cpus=("host",))
        check_lowering(points, [x, indices((p,), 9, index), indices((p,), 21, index, 1), array((p,), dtype)], cpus=("host",))
        check_lowering(dropped, [x, 4, indices((p,), 21, index), array((p,), dtype)], cpus=("host",))


@pytest.mark.parametrize("dtype", ["f32", "i16", "bool"])
def test_scatter_last_wins(dtype: str) -> None:
    rows = module(
        f"%x: buffer<{dtype}[P, N], global> in, %i: buffer<i32[P], global> in, %out: buffer<{dtype}[M, N], global> inout",
        """%c0 = arith.constant 0 : index
        mem.scatter %x, %out indices(%i) offsets(%c0) {indexed = [0]}""",
    )
    points = module(
        f"%x: buffer<{dtype}[P, Q], global> in, %i: buffer<i32[P, Q], global> in, %out: buffer<{dtype}[M], global> inout, %all: buffer<{dtype}[M], global> inout, %v: {dtype} scalar",
        """mem.scatter %x, %out indices(%i) offsets() {indexed = [0]}
        mem.scatter %v, %all indices(%i) offsets() {indexed = [0]}""",
    )
    for p in (0, 1, 40):
        check_lowering(rows, [array((p, 21), dtype), indices((p,), 5), array((5, 21), dtype, seed=3)])
        check_lowering(points, [array((p, 19), dtype), indices((p, 19), 30), array((30,), dtype, seed=3), array((30,), dtype), 1], cpus=("host",))


@pytest.mark.parametrize("kind", ["add", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8", "f16", "f64"])
def test_atomics(dtype: str, kind: str) -> None:
    text = module(
        f"%x: buffer<{dtype}[P], global> in, %i: buffer<i32[P], global> in, %out: buffer<{dtype}[M], global> inout, %box: buffer<{dtype}[3, P], global> inout, "
        f"%one: {dtype} scalar",
        f"""%c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        mem.atomic_rmw {kind} %x, %out indices(%i) offsets() {{indexed = [0]}}
        mem.atomic_rmw {kind} %one, %out indices(%i) offsets() {{indexed = [0]}}
        mem.atomic_rmw {kind} %x, %box indices() offsets(%c1, %c0) {{dropped = [0]}}""",
    )
    for p in (1, 50):
        check_lowering(text, [array((p,), dtype), indices((p,), 7), array((7,), dtype, seed=2), array((3, p), dtype, seed=4), 2], 1e-2 if dtype == "f16" else 2e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_take_along(axis: int) -> None:
    text = module(
        "%x: buffer<f32[M, N], global> in, %i: buffer<i64[P, Q], global> in, %out: buffer<f32[P, Q], global> out",
        f"mem.take_along %x, %i, %out {{axis = {axis}}}",
    )
    for p, q in ((5, 37), (9, 21), (1, 1), (0, 3)):
        shape = (p, 21) if axis == 0 else (9, q)
        check_lowering(text, [array((9, 21)), indices(shape, (9, 21)[axis], "i64"), array(shape)])


def test_index_outside_stops_with_the_index() -> None:
    text = module(
        "%x: buffer<f32[M], global> in, %i: buffer<i32[P], global> in, %out: buffer<f32[P], global> out",
        "mem.gather %x indices(%i) offsets() dst(%out) {indexed = [0]}",
    )
    for bad, at in ((10, 3), (-1, 36), (2**31 - 1, 16)):
        i = indices((37,), 10)
        i[at] = bad
        before, after = lower(text, host_target())
        args = [array((10,)), i, np.zeros(37, np.float32)]
        error, slots = run_native(after, *flatten(args))
        assert error is not None and error.slug == "run-out-of-bounds"
        assert np.array(slots[:2], np.uint64).astype(np.int64).tolist() == [bad, 10]
        with pytest.raises(KernelError) as lowered:
            Interpreter(after).run("f", args)
        with pytest.raises(KernelError) as original:
            Interpreter(before).run("f", args)
        assert [d.message for d in original.value.diagnostics] == [d.message for d in lowered.value.diagnostics]


def test_grid_of_two_axes_and_captured_values() -> None:
    text = module(
        "%x: buffer<f32[M, N], global, strides [?, 1]> in, %s: f32 scalar, %out: buffer<f32[M, N], global, strides [?, 1]> out",
        """%c0 = arith.constant 0 : index
        %c3 = arith.constant 3 : index
        %c16 = arith.constant 16 : index
        %M = mem.dim %x {axis = 0} : index
        %N = mem.dim %x {axis = 1} : index
        %k = arith.add %s, %s : f32
        loop.parallel (%i, %j) = (%c0, %c0) to (%M, %N) step (%c3, %c16) {grid} {
          %left = arith.sub %M, %i : index
          %m = arith.min %left, %c3 : index
          %right = arith.sub %N, %j : index
          %n = arith.min %right, %c16 : index
          %v = mem.subview %x offsets(%i, %j) sizes(%m, %n) : buffer<f32[?3, ?16], global, strides [?, 1]>
          %o = mem.subview %out offsets(%i, %j) sizes(%m, %n) : buffer<f32[?3, ?16], global, strides [?, 1]>
          %t = mem.alloc %m, %n : buffer<f32[?3, ?16], local>
          mem.copy %v, %t
          mem.map ins(%t, %k) outs(%o) {maps = [[0, 1], [-1, -1]]} {
            ^(%a: f32, %b: f32):
            %c = arith.mul %a, %b : f32
            loop.yield %c
          }
        }""",
    )
    for shape in ((10, 50), (1, 1), (0, 5), (3, 16)):
        check_lowering(text, [array(shape, layout=LAYOUTS[1]), 1.5, array(shape, layout=LAYOUTS[1])])


def test_loops_around_memory() -> None:
    text = module(
        "%x: buffer<f32[M, N], global> in, %out: buffer<f32[N], global> out",
        """%c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %M = mem.dim %x {axis = 0} : index
        %N = mem.dim %x {axis = 1} : index
        %zero = arith.constant 0.0 : f32
        mem.fill %zero, %out
        %last = loop.for %i = %c0 to %M step %c1 carry(%a = %zero) {
          %row = mem.subview %x offsets(%i, %c0) sizes(%N) {dropped = [0]} : buffer<f32[?], global>
          %t = mem.alloc %N : buffer<f32[?], local>
          mem.copy %row, %t
          mem.map ins(%t, %out) outs(%out) {maps = [[0], [0]]} {
            ^(%p: f32, %q: f32):
            %s = arith.add %p, %q : f32
            loop.yield %s
          }
          %sum = mem.alloc {stack} : buffer<f32[], local>
          mem.reduce sum srcs(%t) dst(%sum) {axes = [0]} {
          }
          %v = mem.load %sum : f32
          %b = arith.add %a, %v : f32
          loop.yield %b
        } : f32
        %big = arith.cmp gt %last, %zero : bool
        loop.if %big {
          %e = mem.load %out indices(%c0) : f32
          %f = arith.add %e, %last : f32
          mem.store %f, %out indices(%c0)
        }""",
    )
    check_lowering(text, [np.abs(array((6, 40))), np.zeros(40, np.float32)], 1e-5)


def test_neighbouring_axes_become_one() -> None:
    text = module(
        "%x: buffer<f32[8, 3, 4], global> in, %out: buffer<f32[8, 3, 4], global> out",
        "mem.copy %x, %out",
    )
    _, after = lower(text, get_target("cpu", cpu="znver5"))
    loops = [op for op in after.walk() if op.name == "loop.for"]
    assert len(loops) == 1  # 96 elements: one iteration of four vectors, two more
    stores = [op for op in after.walk() if op.name == "vec.store"]
    assert len(stores) == 5 and all(str(s.operands[0].type) == "vector<16xf32>" for s in stores)
