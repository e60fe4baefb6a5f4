"""The interpreter on tile- and tensor-level IR, against NumPy."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.diagnostics import CompilerBug
from tilelang.dialects import load_all
from tilelang.ir.parser import parse_module
from tilelang.ir.verify import verify
from tilelang.runtime.failure import KernelError
from tilelang.runtime.interp import Interpreter

load_all()
rng = np.random.default_rng(7)


def run(params: str, body: str, *args: Any, level: str = "tile", results: str = "", **options: Any) -> tuple[Any, ...]:
    module = parse_module(f'builtin.module {{level = "{level}"}} {{\n  func.func @f({params}){results} {{\n{body}\n  }}\n}}')
    verify(module)
    return Interpreter(module, **options).run("f", list(args))


GRID = """
    %M = mem.dim %x {axis = 0} : index
    %N = mem.dim %x {axis = 1} : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c8 = arith.constant 8 : index
    loop.parallel (%i) = (%c0) to (%M) step (%c8) {grid} {
      %rest = arith.sub %M, %i : index
      %n = arith.min %rest, %c8 : index
      BODY
    }
"""
XY = "%x: buffer<f32[M, N], global, strides [?, ?]> in, %y: buffer<f32[M, N], global, strides [?, ?]> out"
LOAD = "%t = tile.load %x offsets(%i, %c0) sizes(%n, %N) : tile<f32[?8, ?]>\n"


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("exact", [False, True])
def test_softmax_by_blocks_on_any_strides(exact: bool, seed: int | None) -> None:
    body = GRID.replace("BODY", LOAD + """
      %m = tile.reduce max %t {axes = [1]} : tile<f32[?8]>
      %mb = tile.broadcast %m sizes(%n, %N) {dims = [0]} : tile<f32[?8, ?]>
      %d = arith.sub %t, %mb : tile<f32[?8, ?]>
      %e = arith.exp %d : tile<f32[?8, ?]>
      %s = tile.reduce sum %e {axes = [1]} : tile<f32[?8]>
      %sb = tile.broadcast %s sizes(%n, %N) {dims = [0]} : tile<f32[?8, ?]>
      %q = arith.div %e, %sb : tile<f32[?8, ?]>
      tile.store %q, %y offsets(%i, %c0)""")  # fmt: skip
    for m, n in ((21, 13), (8, 1), (1, 5), (0, 4)):
        x = rng.standard_normal((n, 2 * m)).astype(np.float32).T[::-2] if m else np.zeros((0, n), np.float32)
        y = np.full((m, n), np.nan, np.float32)
        run(XY, body, x, y, exact=exact, seed=seed)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True)) if n and m else x
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True) if m else e, rtol=1e-6)


def test_tiles_do_not_change_with_memory() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c0) : tile<i32[4]>
    %u = arith.add %t, %t : tile<i32[4]>
    tile.store %u, %x offsets(%c0)
    tile.store %t, %y offsets(%c0)"""
    x, y = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    run("%x: buffer<i32[4], global> inout, %y: buffer<i32[4], global> out", body, x, y)
    assert x.tolist() == [0, 2, 4, 6] and y.tolist() == [0, 1, 2, 3]


def test_padded_strided_and_dropped_access() -> None:
    body = """
    %cm1 = arith.constant -1 : index
    %c1 = arith.constant 1 : index
    %c9 = arith.constant 9 : index
    %pad = arith.constant 7.0 : f32
    %t = tile.load %x offsets(%cm1, %c1) pad(%pad) {steps = [2, 1]} : tile<f32[4, 3]>
    tile.store %t, %y offsets(%c1, %c1)
    %r = tile.load %x offsets(%c9, %c1) pad(%pad) {dropped = [0]} : tile<f32[3]>
    %s = tile.load %x offsets(%c1, %c1) {dropped = [0, 1]} : f32
    tile.store %s, %z offsets(%c1) {dropped = [0]}
    %k = tile.slice %t offsets(%c1, %c1) {dropped = [1], steps = [2, 1]} : tile<f32[2]>
    %c2 = arith.constant 2 : index
    tile.store %k, %z offsets(%c2)
    %w = tile.extract %r indices(%c1) : f32
    %c0 = arith.constant 0 : index
    tile.store %w, %z offsets(%c0) {dropped = [0]}"""
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    y, z = np.zeros((6, 6), np.float32), np.zeros(4, np.float32)
    run("%x: buffer<f32[5, 4], global> in, %y: buffer<f32[6, 6], global> inout, %z: buffer<f32[4], global> inout", body, x, y, z)
    big = np.full((20, 20), 7, np.float32)
    big[8:13, 8:12] = x
    t = big[7:15:2, 9:12]
    want = np.zeros((6, 6), np.float32)
    want[1:5, 1:4] = t
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(z, [7, x[1, 1], t[1, 1], t[3, 1]])


def test_gather_scatter_and_take_along() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %i = tile.load %idx offsets(%c0, %c0) : tile<i32[2, 3]>
    %g = tile.gather %x indices(%i) offsets(%c0, %c1) {indexed = [1], dropped = [2]} : tile<f32[3, 2, 3]>
    tile.store %g, %y offsets(%c0, %c0, %c0)
    %row = tile.slice %i offsets(%c0, %c0) {dropped = [0]} : tile<i32[3]>
    %v = tile.load %x offsets(%c0, %c0, %c0) {dropped = [0, 2]} : tile<f32[4]>
    %v3 = tile.slice %v offsets(%c1) : tile<f32[3]>
    tile.scatter %v3, %z indices(%row) {indexed = [0]}
    %ta = tile.take_along %v, %row {axis = 0} : tile<f32[3]>
    tile.store %ta, %w offsets(%c0)"""
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    idx = np.array([[2, 0, 2], [3, 3, 1]], np.int32)
    y, z, w = np.zeros((3, 2, 3), np.float32), np.zeros(4, np.float32), np.zeros(3, np.float32)
    params = (
        "%x: buffer<f32[3, 4, 5], global> in, %idx: buffer<i32[2, 3], global> in, %y: buffer<f32[3, 2, 3], global> out, "
        "%z: buffer<f32[4], global> inout, %w: buffer<f32[3], global> out"
    )
    run(params, body, x, idx, y, z, w)
    np.testing.assert_array_equal(y, x[:, idx, 1])
    v = x[0, :, 0]
    np.testing.assert_array_equal(z, [v[2], 0, v[3], 0])  # of the two writes to 2 the last wins
    np.testing.assert_array_equal(w, v[idx[0]])


def test_scatter_order_with_many_equal_indices() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %i = tile.load %idx offsets(%c0, %c0) : tile<i64[40, 50]>
    %v = tile.load %x offsets(%c0, %c0) : tile<i32[40, 50]>
    tile.scatter %v, %z indices(%i) {indexed = [0]}"""
    idx = rng.integers(0, 7, (50, 40)).T  # not row-major in memory
    x = np.arange(2000, dtype=np.int32).reshape(40, 50)
    z = np.zeros(7, np.int32)
    run("%x: buffer<i32[40, 50], global> in, %idx: buffer<i64[40, 50], global, strides [?, ?]> in, %z: buffer<i32[7], global> inout", body, x, idx, z)
    want = np.zeros(7, np.int32)
    for i, v in zip(idx.ravel().tolist(), x.ravel().tolist()):
        want[i] = v
    assert z.tolist() == want.tolist()


@pytest.mark.parametrize("dtype", ["i32", "f32", "f16", "bf16", "u8"])
@pytest.mark.parametrize("kind", ["add", "max", "min"])
def test_atomics(kind: str, dtype: str) -> None:
    body = f"""
    %c0 = arith.constant 0 : index
    %i = tile.load %idx offsets(%c0) : tile<i32[6]>
    %v = tile.load %x offsets(%c0) : tile<{dtype}[6]>
    tile.atomic_rmw %v, %z indices(%i) {{kind = "{kind}", indexed = [0]}}
    tile.atomic_rmw %v, %z offsets(%c0) {{kind = "{kind}"}}"""
    np_dtype = np.dtype({"i32": np.int32, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "u8": np.uint8}[dtype])
    idx = np.array([5, 0, 5, 5, 1, 0], np.int32)
    x = np.array([1, 2, 3, 4, 5, 6]).astype(np_dtype)
    z = np.array([3, 3, 3, 3, 3, 3]).astype(np_dtype)
    run(f"%x: buffer<{dtype}[6], global> in, %idx: buffer<i32[6], global> in, %z: buffer<{dtype}[6], global> inout", body, x, idx, z)
    f = {"add": lambda a, b: a + b, "max": max, "min": min}[kind]
    want = [3.0] * 6
    for i, v in [*zip(idx.tolist(), [1, 2, 3, 4, 5, 6]), *enumerate([1, 2, 3, 4, 5, 6])]:
        want[i] = f(want[i], v)
    assert z.astype(np.float64).tolist() == want


def test_atomic_max_propagates_nan() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %v = tile.load %x offsets(%c0) : tile<f32[2]>
    tile.atomic_rmw %v, %z offsets(%c0) {kind = "max"}"""
    z = np.array([1, np.nan], np.float32)
    run("%x: buffer<f32[2], global> in, %z: buffer<f32[2], global> inout", body, np.array([np.nan, 5], np.float32), z)
    assert np.isnan(z).all()


TENSOR = "%x: tensor<{t}[M, N]> in"


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32", "u8", "i64"])
def test_reductions(kind: str, dtype: str) -> None:
    np_dtype = np.dtype({"f32": "f4", "f64": "f8", "f16": "f2", "i32": "i4", "u8": "u1", "i64": "i8"}[dtype])
    f = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[kind]
    for shape in ((5, 7), (1, 1), (3, 0), (0, 3)):
        x = (rng.standard_normal(shape) * 1.5).astype(np_dtype)
        body = f"""
    %r = tensor.reduce {kind} %x {{axes = [1]}} : tensor<{dtype}[M]>
    %a = tensor.reduce {kind} %x {{axes = [0, 1]}} : tensor<{dtype}[]>
    func.return %r, %a"""
        r, a = run(TENSOR.format(t=dtype), body, x, level="tensor", results=f" -> (tensor<{dtype}[M]>, tensor<{dtype}[]>)")
        assert r.dtype == np_dtype and np.shape(a) == ()
        if 0 in shape:
            info = np.finfo(np_dtype) if np_dtype.kind == "f" else np.iinfo(np_dtype)
            empty = {"sum": 0, "prod": 1, "max": -np.inf if np_dtype.kind == "f" else info.min, "min": np.inf if np_dtype.kind == "f" else info.max}[kind]
            assert (np.asarray(r) == empty).all() and a == empty
        else:
            wide = x.astype(np.float64) if np_dtype.kind == "f" else x
            np.testing.assert_allclose(r.astype(np.float64), f(wide, axis=1).astype(np_dtype).astype(np.float64), rtol=2e-3)
            np.testing.assert_allclose(float(a), float(f(wide).astype(np_dtype)), rtol=5e-3, atol=1e-5)


def test_arg_reductions_take_the_first_and_nan() -> None:
    x = np.array([[1, 3, 3, 0], [np.nan, 1, np.nan, 9], [2, 2, 2, 2]], np.float32)
    body = """
    %a = tensor.arg_reduce %x {kind = "max", axis = 1} : tensor<i32[M]>
    %b = tensor.arg_reduce %x {kind = "min", axis = 1} : tensor<i64[M]>
    func.return %a, %b"""
    a, b = run(TENSOR.format(t="f32"), body, x, level="tensor", results=" -> (tensor<i32[M]>, tensor<i64[M]>)")
    assert a.tolist() == [1, 0, 0] and b.tolist() == [3, 0, 0] and a.dtype == np.int32
    a, b = run(TENSOR.format(t="f32"), body, np.zeros((2, 0), np.float32), level="tensor", results=" -> (tensor<i32[M]>, tensor<i64[M]>)")
    assert a.tolist() == [0, 0]


def test_scans() -> None:
    x = rng.integers(-5, 5, (3, 6)).astype(np.int32)
    body = """
    %a = tensor.scan %x {kind = "sum", axis = 1} : tensor<i32[M, N]>
    %b = tensor.scan %x {kind = "sum", axis = 1, exclusive} : tensor<i32[M, N]>
    %c = tensor.scan %x {kind = "max", axis = 0, exclusive} : tensor<i32[M, N]>
    func.return %a, %b, %c"""
    a, b, c = run(TENSOR.format(t="i32"), body, x, level="tensor", results=" -> (tensor<i32[M, N]>, tensor<i32[M, N]>, tensor<i32[M, N]>)")
    np.testing.assert_array_equal(a, np.cumsum(x, 1))
    np.testing.assert_array_equal(b, np.cumsum(x, 1) - x)
    np.testing.assert_array_equal(c, np.vstack([np.full((1, 6), -(2**31)), np.maximum.accumulate(x, 0)[:-1]]))


@pytest.mark.parametrize(("a", "b", "acc"), [("f32", "f32", "f32"), ("f16", "f16", "f32"), ("i8", "u8", "i32"), ("i32", "i32", "i32"), ("bf16", "bf16", "bf16")])
def test_matmul(a: str, b: str, acc: str) -> None:
    from tilelang.ir.types import Scalar
    from tilelang.runtime.numerics import dtype_of

    body = f"%r = tensor.matmul %x, %w, %acc : tensor<{acc}[2, M, N]>\nfunc.return %r"
    da, db, dacc = (dtype_of(Scalar(t)) for t in (a, b, acc))
    big = 2**31 - 1 if a == "i32" else 100
    x, w, c = ((rng.integers(0, big, s) if t[0] in "iu" else rng.standard_normal(s)).astype(d) for s, d, t in
               (((2, 4, 6), da, a), ((2, 6, 5), db, b), ((2, 4, 5), dacc, acc)))  # fmt: skip
    params = f"%x: tensor<{a}[2, M, K]> in, %w: tensor<{b}[2, K, N]> in, %acc: tensor<{acc}[2, M, N]> in"
    (r,) = run(params, body, x, w, c, level="tensor", results=f" -> (tensor<{acc}[2, M, N]>)")
    if acc == "i32":
        want = (x.astype(object) @ w.astype(object) + c.astype(object) + 2**31) % 2**32 - 2**31
        assert (r == want.astype(np.int64)).all()
    else:
        np.testing.assert_allclose(r.astype(np.float64), x.astype(np.float64) @ w.astype(np.float64) + c.astype(np.float64), rtol=2e-2 if acc == "bf16" else 1e-3, atol=2e-2 if acc == "bf16" else 1e-5)
    assert r.dtype == dacc


def test_map_runs_its_region_on_whole_arrays() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c0, %c0) : tile<f32[3, 4]>
    %k = tile.iota %c0 {step = 2} : tile<i64[3]>
    %h = arith.constant 0.5 : f32
    %p, %q = tile.map ins(%t, %k, %h) {maps = [[1, 0], [-1, 0], [-1, -1]]} {
      ^(%a: f32, %b: i64, %c: f32):
      %f = arith.cast %b : f32
      %m = arith.mul %a, %f : f32
      %s = arith.add %m, %c : f32
      %g = arith.cmp gt %a, %c : bool
      %r = arith.select %g, %s, %c : f32
      loop.yield %r, %b
    } : tile<f32[4, 3]>, tile<i64[4, 3]>
    tile.store %p, %y offsets(%c0, %c0)
    tile.store %q, %z offsets(%c0, %c0)"""
    x = rng.standard_normal((3, 4)).astype(np.float32)
    y, z = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.int64)
    run("%x: buffer<f32[3, 4], global> in, %y: buffer<f32[4, 3], global> out, %z: buffer<i64[4, 3], global> out", body, x, y, z)
    k = np.arange(0, 6, 2)
    np.testing.assert_allclose(y, np.where(x.T > 0.5, x.T * k + 0.5, 0.5), rtol=1e-6)
    np.testing.assert_array_equal(z, np.broadcast_to(k, (4, 3)))


def test_reshape_transpose_fill() -> None:
    body = """
    %t = tensor.transpose %x {perm = [1, 0]} : tensor<f32[N, M]>
    %c4 = arith.constant 4 : index
    %c3 = arith.constant 3 : index
    %r = tensor.reshape %t sizes(%c4, %c3) : tensor<f32[A, B]>
    func.return %r"""
    x = rng.standard_normal((2, 6)).astype(np.float32)
    (r,) = run(TENSOR.format(t="f32"), body, x, level="tensor", results=" -> (tensor<f32[A, B]>)")
    np.testing.assert_array_equal(r, x.T.reshape(4, 3))


# -- control flow


def test_loops_ifs_and_whiles() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %s = loop.for %i = %c0 to %n step %c3 carry(%a = %c0) {
      %odd = arith.and %i, %c1 : index
      %is = arith.cmp eq %odd, %c1 : bool
      %v = loop.if %is {
        loop.yield %i
      } else {
        loop.yield %c1
      } : index
      %b = arith.add %a, %v : index
      loop.yield %b
    } : index
    %c, %steps = loop.while %n, %c0 {
      ^(%m: index, %k: index):
      %more = arith.cmp gt %m, %c1 : bool
      loop.condition %more values(%m, %k)
    } body {
      ^(%m1: index, %k1: index):
      %half = arith.floordiv %m1, %c3 : index
      %k2 = arith.add %k1, %c1 : index
      loop.yield %half, %k2
    } : index, index
    %s64 = arith.cast %s : i64
    %k64 = arith.cast %steps : i64
    tile.store %s64, %y offsets(%c0) {dropped = [0]}
    tile.store %k64, %y offsets(%c1) {dropped = [0]}"""
    for n in (0, 1, 14, 100):
        y = np.zeros(2, np.int64)
        run("%n: index scalar, %y: buffer<i64[2], global> out", body, n, y)
        steps, m = 0, n
        while m > 1:
            m, steps = m // 3, steps + 1
        assert y.tolist() == [sum(i if i % 2 else 1 for i in range(0, n, 3)), steps]


def test_print_and_breakpoint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c0) : tile<f32[2]>
    loop.print %t, %n {parts = ["t = ", none, " ", none]}
    loop.breakpoint %t, %n {names = ["t", "n"]}"""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.update(sys._getframe(1).f_globals))
    x = np.array([1, 2.5], np.float32)
    run("%x: buffer<f32[2], global> in, %n: index scalar", body, x, 3)
    assert capsys.readouterr().out == "t = [1.  2.5] 3\n"
    assert seen["n"] == 3 and seen["t"].tolist() == [1, 2.5]


# -- failures


def test_a_failed_assert_names_values_and_grid_position() -> None:
    body = GRID.replace("BODY", """
      %ok = arith.cmp lt %i, %c8 : bool
      loop.assert %ok values(%i) {message = "i is {0}, which is too large"}""")  # fmt: skip
    with pytest.raises(KernelError) as caught:
        run(XY, body, np.zeros((20, 2), np.float32), np.zeros((20, 2), np.float32))
    (d,) = caught.value.diagnostics
    assert d.slug == "run-assert" and d.message == "assertion failed: i is 8, which is too large"
    assert d.notes[0].message == "in the grid block (i=8)"


@pytest.mark.parametrize(
    ("body", "index", "axis"),
    [
        ("%t = tile.load %x offsets(%n, %c0) : tile<f32[2, 3]>", 5, 0),
        ("%t = tile.load %x offsets(%c0, %m) : tile<f32[2, 3]>", -1, 1),
        ("%t = tile.load %x offsets(%n, %c9) {dropped = [0, 1]} : f32", 9, 1),
        ("%t = tile.load %x offsets(%c0, %c0) : tile<f32[2, 3]>\ntile.store %t, %x offsets(%n, %c0)", 5, 0),
        ("%i = tile.iota %m : tile<i32[3]>\n%t = tile.gather %x indices(%i) offsets(%c0) {indexed = [1], dropped = [0]} : tile<f32[3]>", -1, 1),
        ("%i = tile.iota %n : tile<i32[3]>\n%t = tile.gather %x indices(%i) offsets(%c0) {indexed = [0], dropped = [1]} : tile<f32[3]>", 5, 0),
        ("%t = mem.load %x indices(%c9, %c0) : f32", 9, 0),
        ("%t = mem.subview %x offsets(%c0, %c0) sizes() : buffer<f32[6, 2], global, strides [4, 1]>", 5, 0),
    ],
)
def test_access_outside_a_buffer_stops_the_kernel(body: str, index: int, axis: int) -> None:
    head = "%c0 = arith.constant 0 : index\n%c9 = arith.constant 9 : index\n%n = arith.constant 4 : index\n%m = arith.constant -1 : index\n"
    with pytest.raises(KernelError) as caught:
        run("%x: buffer<f32[5, 4], global> inout", head + body.replace("sizes()", ""), np.zeros((5, 4), np.float32))
    (d,) = caught.value.diagnostics
    assert d.slug == "run-out-of-bounds"
    assert d.message == f"index {index} is outside axis {axis} of 'x', which has length {[5, 4][axis]}"


def test_empty_accesses_are_never_outside() -> None:
    body = """
    %c9 = arith.constant 9 : index
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c9, %c9) sizes(%c0, %c0) : tile<f32[?, ?]>
    tile.store %t, %x offsets(%c9, %c9)"""
    run("%x: buffer<f32[5, 4], global> inout", body, np.zeros((5, 4), np.float32))


def test_arguments_are_checked() -> None:
    body = "%c0 = arith.constant 0 : index"
    for args in ([np.zeros(3)], [np.zeros((2, 2), np.float32)], [], [np.zeros(2, np.float32), 1]):
        with pytest.raises(TypeError):
            run("%x: buffer<f32[M], global> in", body, *args)


def test_an_op_that_cannot_be_evaluated_is_a_compiler_bug() -> None:
    module = parse_module("""builtin.module {level = "tile"} {
  func.func @f(%x: buffer<f32[4], global> in) {
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c0) : tile<f32[4]>
    %u = tile.reshape %t : tile<f32[3]>
  }
}""")
    with pytest.raises(CompilerBug, match=r"'tile.reshape' cannot be interpreted"):
        Interpreter(module).run("f", [np.zeros(4, np.float32)])


def test_an_extent_above_the_bound_of_its_type_is_a_compiler_bug() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c0) sizes(%n) : tile<f32[?4]>"""
    run("%x: buffer<f32[8], global> in, %n: index scalar", body, np.zeros(8, np.float32), 4)
    for n in (5, -1):
        with pytest.raises(CompilerBug, match=r"an extent of"):
            run("%x: buffer<f32[8], global> in, %n: index scalar", body, np.zeros(8, np.float32), n)
