"""The interpreter on mem- and vec-level IR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilelang.diagnostics import CompilerBug
from tilelang.dialects import load_all
from tilelang.ir.parser import parse_module
from tilelang.ir.verify import verify
from tilelang.runtime.failure import KernelError
from tilelang.runtime.interp import Interpreter
from tilelang.runtime.registers import Pointer

load_all()
rng = np.random.default_rng(11)
HEAD = "".join(f"    %c{n} = arith.constant {n} : index\n" for n in (0, 1, 2, 3, 4, 8, 9, 16))


def run(params: str, body: str, *args: Any, level: str = "mem", extra: str = "", **options: Any) -> tuple[Any, ...]:
    module = parse_module(f'builtin.module {{level = "{level}"}} {{\n  func.func @f({params}) {{\n{HEAD}{body}\n  }}\n{extra}\n}}')
    verify(module)
    return Interpreter(module, **options).run("f", list(args))


def test_fresh_memory_is_poisoned_and_private() -> None:
    body = """
    %b = mem.alloc %c3 {name_ = "tmp"} : buffer<f32[?, 2], local>
    %i = mem.alloc : buffer<i32[2], local>
    mem.copy %b, %x
    mem.copy %i, %y"""
    x, y = np.zeros((3, 2), np.float32), np.zeros(2, np.int32)
    run("%x: buffer<f32[3, 2], global> out, %y: buffer<i32[2], global> out", body, x, y)
    assert np.isnan(x).all() and (y.view(np.uint32) == 0xA5A5A5A5).all()


def test_views_share_memory() -> None:
    body = """
    %v = mem.subview %x offsets(%c1, %c0) sizes(%c2) {steps = [2, 1]} : buffer<f32[?2, 4], global, strides [8, 1]>
    %r = mem.subview %x offsets(%c0, %c1) {dropped = [1]} : buffer<f32[4], global, strides [4]>
    %p = mem.permute %v {perm = [1, 0]} : buffer<f32[4, ?2], global, strides [1, 8]>
    %z = arith.constant 0.0 : f32
    %five = arith.constant 5.0 : f32
    mem.fill %z, %p
    mem.fill %five, %r
    %f = mem.reshape %x : buffer<f32[16], global>
    %e = mem.load %f indices(%c8) : f32
    mem.store %e, %f indices(%c0)
    %d = mem.dim %v {axis = 0} : index
    %d32 = arith.cast %d : f32
    mem.store %d32, %x indices(%c0, %c3)"""
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    want = x.copy()
    want[1::2] = 0
    want[:, 1] = 5
    want[0, 0], want[0, 3] = want[2, 0], 2
    run("%x: buffer<f32[4, 4], global> inout", body, x)
    np.testing.assert_array_equal(x, want)


def test_a_reshape_that_would_copy_is_a_bug() -> None:
    body = """
    %p = mem.permute %x {perm = [1, 0]} : buffer<f32[4, 4], global, strides [1, 4]>
    %f = mem.reshape %p : buffer<f32[16], global>"""
    with pytest.raises(CompilerBug, match="not contiguous"):
        run("%x: buffer<f32[4, 4], global> inout", body, np.zeros((4, 4), np.float32))


def test_structured_ops() -> None:
    body = """
    %h = arith.constant 0.5 : f32
    mem.map ins(%x, %w, %h) outs(%y) {maps = [[0, 1], [-1, 0], [-1, -1]]} {
      ^(%a: f32, %b: f32, %c: f32):
      %m = arith.mul %a, %b : f32
      %r = arith.add %m, %c : f32
      loop.yield %r
    }
    mem.reduce srcs(%x, %w) dst(%s) {kind = "sum", axes = [1], maps = [[0, 1], [-1, 0]]} {
      ^(%a: f32, %b: f32):
      %m = arith.mul %a, %b : f32
      loop.yield %m
    }
    mem.arg_reduce %x, %k {kind = "min", axis = 1}
    mem.iota %c3, %n {step = 2}
    mem.scan %s, %s {kind = "max", axis = 0}"""
    x, w = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    y, s, k, n = np.zeros((3, 4), np.float32), np.zeros(3, np.float32), np.zeros(3, np.int32), np.zeros(5, np.uint8)
    # The map reads w along the first axis of a transposed reading: [-1, 0] names axis 0 of w for axis 1 of the result.
    params = (
        "%x: buffer<f32[3, 4], global> in, %w: buffer<f32[4], global> in, %y: buffer<f32[3, 4], global> out, %s: buffer<f32[3], global> out, "
        "%k: buffer<i32[3], global> out, %n: buffer<u8[5], global> out"
    )
    run(params, body, x, w, y, s, k, n)
    np.testing.assert_allclose(y, x * w + np.float32(0.5), rtol=1e-6)
    np.testing.assert_allclose(s, np.maximum.accumulate((x * w).sum(1)), rtol=1e-5)
    assert k.tolist() == x.argmin(1).tolist() and n.tolist() == [3, 5, 7, 9, 11]


def test_matmul_accumulates() -> None:
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((3, 5), (5, 2), (3, 2)))
    want = c + a @ b
    run("%a: buffer<f32[3, 5], global> in, %b: buffer<f32[5, 2], global> in, %c: buffer<f32[3, 2], global> inout", "mem.matmul %a, %b, %c", a, b, c)
    np.testing.assert_allclose(c, want, rtol=1e-6)


def test_copy_padded_and_async() -> None:
    body = """
    %m = arith.constant -1 : index
    %z = arith.constant 9.0 : f32
    mem.copy_padded %x offsets(%m) pad(%z) dst(%y)
    %t = mem.copy_async %x, %w : token
    mem.copy %w, %v
    mem.wait %t
    mem.copy %w, %u"""
    x = np.arange(3, dtype=np.float32)
    y, w, v, u = np.zeros(5, np.float32), *(np.zeros(3, np.float32) for _ in range(3))
    b = "buffer<f32[3], global>"
    run(f"%x: {b} in, %y: buffer<f32[5], global> out, %w: {b} out, %v: {b} out, %u: {b} out", body, x, y, w, v, u)
    assert y.tolist() == [9, 0, 1, 2, 9] and u.tolist() == [0, 1, 2]
    assert np.isnan(v).all()  # read before the wait


def test_gather_scatter_atomics_take_along() -> None:
    body = """
    mem.gather %x indices(%i) offsets(%c0) dst(%g) {indexed = [0]}
    mem.scatter %g, %y indices(%i) offsets(%c0) {indexed = [0]}
    %one = arith.constant 1 : i32
    mem.atomic_rmw %one, %h indices(%s) {kind = "add", indexed = [0]}
    mem.take_along %x, %t, %u {axis = 1}"""
    x = rng.standard_normal((4, 2)).astype(np.float32)
    i, t = np.array([3, 0, 3], np.int32), rng.integers(0, 2, (4, 3))
    g, y, h, u = np.zeros((3, 2), np.float32), np.zeros((4, 2), np.float32), np.zeros(1, np.int32), np.zeros((4, 3), np.float32)
    s = np.array(0, np.int32)
    params = (
        "%x: buffer<f32[4, 2], global> in, %i: buffer<i32[3], global> in, %g: buffer<f32[3, 2], global> out, %y: buffer<f32[4, 2], global> inout, "
        "%s: buffer<i32[], global> in, %h: buffer<i32[1], global> inout, %t: buffer<i64[4, 3], global> in, %u: buffer<f32[4, 3], global> out"
    )
    run(params, body, x, i, g, y, s, h, t, u)
    np.testing.assert_array_equal(g, x[i])
    np.testing.assert_array_equal(y[[3, 0]], x[[3, 0]])
    assert h.tolist() == [1]
    np.testing.assert_array_equal(u, np.take_along_axis(x, t, 1))
    with pytest.raises(KernelError, match="outside axis 0"):
        run(params, body, x, i + 1, g, y, s, h, t, u)


# -- vec level

VEC = "%p: ptr<f32> in, %n: index scalar, %s: index scalar, %q: ptr<f32> out, %n2: index scalar, %s2: index scalar"


@pytest.mark.parametrize("n", [0, 1, 15, 16, 37])
def test_masked_tail(n: int) -> None:
    body = """
    loop.for %i = %c0 to %n step %c16 {
      %rest = arith.sub %n, %i : index
      %m = vec.mask %rest : vector<16xbool>
      %v = vec.load %p, %i mask(%m) : vector<16xf32>
      %w = arith.add %v, %v : vector<16xf32>
      vec.store %w, %q, %i mask(%m)
    }"""
    x, y = rng.standard_normal(n).astype(np.float32), np.zeros(n, np.float32)
    run(VEC, body, x, y, level="vec")
    np.testing.assert_array_equal(y, x * 2)


def test_strides_of_arrays_reach_the_kernel() -> None:
    body = """
    loop.for %i = %c0 to %n step %c1 {
      %o = arith.mul %i, %s : index
      %v = vec.load %p, %o : f32
      %o2 = arith.mul %i, %s2 : index
      vec.store %v, %q, %o2
    }"""
    x = np.arange(20, dtype=np.float32)[::-3]
    y = np.zeros((7, 2), np.float32)[:, 1]
    run(VEC, body, x, y, level="vec")
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "access",
    ["%v = vec.load %p, %c1 : vector<4xf32>", "%v = vec.load %p, %c4 : f32", "%k = vec.splat %c1 : vector<4xf32>", "freed"],
)
def test_memory_errors_stop_the_run(access: str) -> None:
    body = access
    if access.startswith("%k"):
        body = "%one = arith.constant 1.0 : f32\n%k = vec.splat %one : vector<4xf32>\nvec.store %k, %q, %c1"
    elif access == "freed":
        body = "%a = vec.alloc %c4 : ptr<f32>\nvec.free %a\n%v = vec.load %a, %c0 : f32"
    with pytest.raises(KernelError) as caught:
        run(VEC, body, np.zeros(4, np.float32), np.zeros(4, np.float32), level="vec")
    assert caught.value.diagnostics[0].slug == "run-out-of-bounds"


def test_lanes() -> None:
    body = """
    %i = vec.iota : vector<8xindex>
    %two = vec.splat %c2 : vector<8xindex>
    %o = arith.mul %i, %two : vector<8xindex>
    %m = vec.mask %c4 : vector<8xbool>
    %g = vec.gather %p, %o mask(%m) : vector<8xf32>
    %r = vec.reduce %g {kind = "sum"} : f32
    %x = vec.extract %g {lane = 3} : f32
    %h = vec.insert %r, %g {lane = 7} : vector<8xf32>
    %sh = vec.shuffle %h, %h {lanes = [7, 0, 15, 8]} : vector<4xf32>
    vec.store %sh, %q, %c0
    vec.store %x, %q, %c4
    vec.scatter %g, %q, %o mask(%m)
    vec.atomic_rmw %r, %q, %c1 {kind = "add"}
    vec.prefetch %p, %c9"""
    p, q = np.arange(1, 17, dtype=np.float32), np.zeros(8, np.float32)
    run(VEC, body, p, q, level="vec")
    total = 1 + 3 + 5 + 7
    assert q.tolist() == [1, 1 + total, 3, 1, 5, 0, 7, 0]


def test_dot_and_tree_reduction() -> None:
    body = """
    %a = vec.load %p, %c0 : vector<4xbf16>
    %b = vec.load %p, %c4 : vector<4xbf16>
    %acc = vec.load %q, %c0 : vector<2xf32>
    %d = vec.dot %a, %b, %acc : vector<2xf32>
    vec.store %d, %q, %c0"""
    import ml_dtypes

    p, q = np.arange(8).astype(ml_dtypes.bfloat16), np.ones(2, np.float32)
    run("%p: ptr<bf16> in, %n: index scalar, %s: index scalar, %q: ptr<f32> inout, %n2: index scalar, %s2: index scalar", body, p, q, level="vec")
    assert q.tolist() == [1 + 0 * 4 + 1 * 5, 1 + 2 * 6 + 3 * 7]
    for kind, want in (("max", 7.0), ("min", 0.0), ("prod", 0.0), ("sum", 21.0)):
        q = np.zeros(2, np.float32)
        body = f'%v = vec.load %p, %c0 : vector<6xf32>\n%r = vec.reduce %v {{kind = "{kind}"}} : f32\nvec.store %r, %q, %c0'
        run(VEC, body, np.array([0, 1, 2, 4, 7, 7], np.float32), q, level="vec")
        assert q[0] == want


@pytest.mark.parametrize("seed", [None, 5])
def test_launch_runs_every_block_once(seed: int | None) -> None:
    extra = """
  func.func @f_grid0(%begin: index scalar, %end: index scalar, %to: ptr<f32> out) {
    %one = arith.constant 1.0 : f32
    %c1 = arith.constant 1 : index
    loop.for %i = %begin to %end step %c1 {
      vec.atomic_rmw %one, %to, %i {kind = "add"}
    }
  }"""
    q = np.zeros(11, np.float32)
    run(VEC, '%cnt = arith.constant 11 : index\nvec.launch %cnt captured(%q) {callee = "f_grid0"}', q, q, level="vec", extra=extra, seed=seed)
    assert q.tolist() == [1] * 11


def test_pointer_of_negative_strides_reaches_exactly_the_array() -> None:
    base = np.arange(12.0).reshape(3, 4)
    view = base[::-1, 1:3]
    pointer, strides = Pointer.of(view)
    assert strides == (-4, 1) and pointer.array.size == 10
    assert [[pointer.array[pointer.base + i * strides[0] + j] for j in range(2)] for i in range(3)] == view.tolist()
