"""Structure and memory at the vec level: native code against the interpreter, on IR text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilelang.backends.cpu.compile import assembly_of
from tilelang.backends.cpu.emit import emit
from tilelang.ir.parser import parse_module
from tilelang.ir.verify import verify
from tilelang.runtime.interp import Interpreter
from tilelang.runtime.registers import Pointer
from tilelang.target import get_target, host_target

CASES: dict[str, tuple[str, list[Any]]] = {
    "sum with a masked tail": (
        """func.func @f(%x: ptr<f32> in, %n: index scalar, %out: ptr<f32> out) {
          %c0 = arith.constant 0 : index
          %c16 = arith.constant 16 : index
          %z = arith.constant 0.0 : vector<16xf32>
          %s = loop.for %i = %c0 to %n step %c16 carry(%a = %z) {
            %left = arith.sub %n, %i : index
            %m = vec.mask %left : vector<16xbool>
            %v = vec.load %x, %i mask(%m) : vector<16xf32>
            %b = arith.add %a, %v : vector<16xf32>
            loop.yield %b
          } : vector<16xf32>
          %t = vec.reduce sum %s : f32
          vec.store %t, %out, %c0
        }""",
        [np.arange(37, dtype=np.float32), 37, np.zeros(1, np.float32)],
    ),
    "nothing to do": (
        """func.func @f(%n: index scalar, %out: ptr<i64> out) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %five = arith.constant 5 : i64
          %s, %t = loop.for %i = %c0 to %n step %c1 carry(%a = %five, %b = %five) {
            loop.yield %b, %a
          } : i64, i64
          vec.store %s, %out, %c0
        }""",
        [0, np.zeros(1, np.int64)],
    ),
    "swapped carried values": (
        """func.func @f(%n: index scalar, %out: ptr<i64> out) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %x = arith.constant 5 : i64
          %y = arith.constant 7 : i64
          %s, %t = loop.for %i = %c0 to %n step %c1 carry(%a = %x, %b = %y) {
            %c = arith.add %a, %b : i64
            loop.yield %b, %c
          } : i64, i64
          vec.store %s, %out, %c0
          vec.store %t, %out, %c1
        }""",
        [9, np.zeros(2, np.int64)],
    ),
    "loops in loops, a branch inside": (
        """func.func @f(%n: index scalar, %out: ptr<i64> inout) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %c3 = arith.constant 3 : index
          %z = arith.constant 0 : i64
          %s = loop.for %i = %c0 to %n step %c1 carry(%a = %z) {
            %in = loop.for %j = %c0 to %i step %c1 carry(%b = %a) {
              %r = arith.mod %j, %c3 : index
              %odd = arith.cmp eq %r, %c1 : bool
              %v = loop.if %odd {
                %w = arith.cast %j : i64
                %q = arith.add %b, %w : i64
                loop.yield %q
              } else {
                loop.yield %b
              } : i64
              loop.if %odd {
                vec.store %v, %out, %j
              }
              loop.yield %v
            } : i64
            loop.yield %in
          } : i64
          vec.store %s, %out, %c0
        }""",
        [11, np.zeros(12, np.int64)],
    ),
    "while": (
        """func.func @f(%n: index scalar, %out: ptr<i64> out) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %c2 = arith.constant 2 : index
          %c3 = arith.constant 3 : index
          %steps, %last = loop.while %c0, %n {
            ^(%a: index, %x: index):
            %more = arith.cmp ne %x, %c1 : bool
            loop.condition %more values(%a, %x)
          } body {
            ^(%a1: index, %x1: index):
            %odd = arith.mod %x1, %c2 : index
            %is = arith.cmp eq %odd, %c1 : bool
            %next = loop.if %is {
              %t = arith.mul %x1, %c3 : index
              %u = arith.add %t, %c1 : index
              loop.yield %u
            } else {
              %h = arith.floordiv %x1, %c2 : index
              loop.yield %h
            } : index
            %b = arith.add %a1, %c1 : index
            loop.yield %b, %next
          } : index, index
          %r = arith.cast %steps : i64
          vec.store %r, %out, %c0
        }""",
        [27, np.zeros(1, np.int64)],
    ),
    "lanes": (
        """func.func @f(%x: ptr<i32> in, %out: ptr<i32> out) {
          %c0 = arith.constant 0 : index
          %c8 = arith.constant 8 : index
          %c16 = arith.constant 16 : index
          %c24 = arith.constant 24 : index
          %v = vec.load %x, %c0 : vector<8xi32>
          %e = vec.extract %v {lane = 5} : i32
          %w = vec.insert %e, %v {lane = 0} : vector<8xi32>
          %s = vec.shuffle %v, %w {lanes = [0, 8, 1, 9, 2, 10, 3, 11]} : vector<8xi32>
          %i = vec.iota : vector<8xi32>
          %p = vec.splat %e : vector<8xi32>
          %q = arith.mul %i, %p : vector<8xi32>
          vec.store %s, %out, %c0
          vec.store %q, %out, %c8
          %max = vec.reduce max %v : i32
          %prod = vec.reduce prod %v : i32
          vec.store %max, %out, %c16
          vec.store %prod, %out, %c24
          vec.prefetch %x, %c16 {locality = 1}
        }""",
        [np.arange(3, 11, dtype=np.int32), np.zeros(32, np.int32)],
    ),
    "gather and scatter under masks": (
        """func.func @f(%x: ptr<f64> in, %n: index scalar, %out: ptr<f64> inout) {
          %c3 = arith.constant 3 : vector<8xindex>
          %c2 = arith.constant 2 : vector<8xindex>
          %i = vec.iota : vector<8xindex>
          %at = arith.mul %i, %c3 : vector<8xindex>
          %to = arith.floordiv %i, %c2 : vector<8xindex>
          %m = vec.mask %n : vector<8xbool>
          %v = vec.gather %x, %at mask(%m) : vector<8xf64>
          %c1 = arith.constant 1 : vector<8xindex>
          %all = vec.gather %x, %i : vector<8xf64>
          vec.scatter %v, %out, %to mask(%m)
          %far = arith.add %i, %c2 : vector<8xindex>
          %further = arith.add %far, %c3 : vector<8xindex>
          vec.scatter %all, %out, %further
        }""",
        [np.arange(24.0), 6, np.full(16, -1.0)],
    ),
    "bools are bytes": (
        """func.func @f(%x: ptr<bool> in, %n: index scalar, %out: ptr<bool> out) {
          %c0 = arith.constant 0 : index
          %c16 = arith.constant 16 : index
          %m = vec.mask %n : vector<16xbool>
          %v = vec.load %x, %c0 : vector<16xbool>
          %w = vec.load %x, %c0 mask(%m) : vector<16xbool>
          %y = arith.not %v : vector<16xbool>
          vec.store %y, %out, %c0
          vec.store %w, %out, %c16 mask(%m)
          %any = vec.reduce any %w : bool
          %all = vec.reduce all %v : bool
          %s = vec.load %x, %n : bool
          %c32 = arith.constant 32 : index
          %c33 = arith.constant 33 : index
          %c34 = arith.constant 34 : index
          vec.store %any, %out, %c32
          vec.store %all, %out, %c33
          vec.store %s, %out, %c34
        }""",
        [np.arange(16) % 3 == 1, 5, np.zeros(35, np.bool_)],
    ),
    "atomics": (
        """func.func @f(%i: ptr<u8> inout, %x: ptr<f32> inout, %h: ptr<f16> inout, %nan: ptr<f32> in) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %c2 = arith.constant 2 : index
          %c3 = arith.constant 3 : index
          %a = arith.constant 200 : u8
          %b = arith.constant 2.5 : f32
          %c = arith.constant 0.1 : f16
          %v = vec.load %nan, %c0 : f32
          vec.atomic_rmw add %a, %i, %c0
          vec.atomic_rmw max %a, %i, %c1
          vec.atomic_rmw min %a, %i, %c2
          vec.atomic_rmw add %b, %x, %c0
          vec.atomic_rmw max %b, %x, %c1
          vec.atomic_rmw min %b, %x, %c2
          vec.atomic_rmw max %v, %x, %c3
          vec.atomic_rmw max %b, %x, %c3
          vec.atomic_rmw add %c, %h, %c1
        }""",
        [np.array([100, 100, 100], np.uint8), np.array([1, 2, 3, 4], np.float32), np.array([1, 2], np.float16), np.array([np.nan], np.float32)],
    ),
    "functions with results": (
        """func.func @g(%x: f32 scalar, %y: i8 scalar) -> (f32, i8) {
          %a = arith.neg %x : f32
          %b = arith.neg %y : i8
          func.return %a, %b
        }
        func.func @f(%x: f32 scalar, %y: i8 scalar, %out: ptr<f32> out, %to: ptr<i8> out) {
          %c0 = arith.constant 0 : index
          %p, %q = func.call @g(%x, %y) : f32, i8
          vec.store %p, %out, %c0
          vec.store %q, %to, %c0
        }""",
        [1.25, -7, np.zeros(1, np.float32), np.zeros(1, np.int8)],
    ),
    "scratch memory": (
        """func.func @f(%n: index scalar, %out: ptr<f32> out) {
          %c0 = arith.constant 0 : index
          %c4 = arith.constant 4 : index
          %one = arith.constant 1.5 : f32
          %stack = vec.alloc %c4 {stack} : ptr<f32>
          %heap = vec.alloc %n : ptr<f32>
          vec.store %one, %stack, %c0
          %last = arith.sub %n, %c4 : index
          %v = vec.load %stack, %c0 : f32
          vec.store %v, %heap, %last
          %w = vec.load %heap, %last : f32
          vec.store %w, %out, %c0
          vec.free %heap
        }""",
        [1000, np.zeros(1, np.float32)],
    ),
    "a grid": (
        """func.func @g(%begin: index scalar, %end: index scalar, %x: ptr<f32> in, %scale: f32 scalar, %flag: bool scalar, %out: ptr<f32> out) {
          %c1 = arith.constant 1 : index
          loop.for %i = %begin to %end step %c1 {
            %v = vec.load %x, %i : f32
            %s = arith.mul %v, %scale : f32
            %w = arith.select %flag, %s, %v : f32
            vec.store %w, %out, %i
          }
        }
        func.func @f(%x: ptr<f32> in, %n: index scalar, %scale: f32 scalar, %flag: bool scalar, %out: ptr<f32> out) {
          vec.launch %n captured(%x, %scale, %flag, %out) {callee = "g"}
        }""",
        [np.arange(100, dtype=np.float32), 100, 2.0, True, np.zeros(100, np.float32)],
    ),
    "dot products": (
        """func.func @f(%a: ptr<bf16> in, %u: ptr<u8> in, %s: ptr<i8> in, %out: ptr<f32> out, %to: ptr<i32> out) {
          %c0 = arith.constant 0 : index
          %c16 = arith.constant 16 : index
          %x = vec.load %a, %c0 : vector<32xbf16>
          %one = arith.constant 1.0 : vector<16xf32>
          %d = vec.dot %x, %x, %one : vector<16xf32>
          vec.store %d, %out, %c0
          %p = vec.load %u, %c0 : vector<64xu8>
          %q = vec.load %s, %c0 : vector<64xi8>
          %two = arith.constant 2 : vector<16xi32>
          %e = vec.dot %p, %q, %two : vector<16xi32>
          %g = vec.dot %q, %q, %e : vector<16xi32>
          vec.store %e, %to, %c0
          vec.store %g, %to, %c16
        }""",
        ["bf16", np.arange(192, 256, dtype=np.uint8), np.arange(-64, 0, dtype=np.int8), np.zeros(16, np.float32), np.zeros(32, np.int32)],
    ),
}


def arguments(values: list[Any]) -> list[Any]:
    """Fresh copies; 'bf16' stands for 32 small numbers of that type."""
    import ml_dtypes

    out = [np.arange(32, dtype=np.float32).astype(ml_dtypes.bfloat16) if isinstance(v, str) else v for v in values]
    return [v.copy() if isinstance(v, np.ndarray) else v for v in out]


HOST_CPUS = ("host", "x86-64", "haswell", "x86-64-v4") if host_target().triple.startswith("x86") else ("host",)


@pytest.mark.parametrize("cpu", HOST_CPUS)
@pytest.mark.parametrize("case", CASES)
def test_native_equals_interpreter(native: Any, case: str, cpu: str) -> None:
    text, values = CASES[case]
    module = parse_module(f'builtin.module {{level = "vec"}} {{\n{text}\n}}')
    verify(module)
    before, got, want = arguments(values), arguments(values), arguments(values)
    Interpreter(module).run("f", [Pointer(v) if isinstance(v, np.ndarray) else v for v in want])
    assert native(module, *got, target=get_target("cpu", cpu=cpu), threads=2)[0] is None
    changed = False
    for a, b, c in zip(got, want, before):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            changed |= a.tobytes() != c.tobytes()
    assert changed


@pytest.mark.parametrize("cpu", ["x86-64", "haswell", "znver4", "znver5", "neoverse-v1", "apple-m1"])
def test_every_target_accepts_the_ir(cpu: str) -> None:
    for text, _ in CASES.values():
        module = parse_module(f'builtin.module {{level = "vec"}} {{\n{text}\n}}')
        assert "kernel" in assembly_of(module, get_target("cpu", cpu=cpu))


FAILING = """builtin.module {level = "vec"} {
  func.func @g(%begin: index scalar, %end: index scalar, %limit: index scalar, %x: f32 scalar) {
    %c1 = arith.constant 1 : index
    %room = vec.alloc %end : ptr<f32>
    loop.for %i = %begin to %end step %c1 {
      %more = vec.alloc %end : ptr<f32>
      %ok = arith.cmp lt %i, %limit : bool
      loop.assert %ok values(%i, %x, %limit) {slug = "run-out-of-bounds", message = "too far"}
      vec.free %more
    }
    vec.free %room
  }
  func.func @f(%n: index scalar, %limit: index scalar, %x: f32 scalar, %out: ptr<i8> out) {
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i8
    vec.launch %n captured(%limit, %x) {callee = "g"}
    vec.store %one, %out, %c0
  }
}"""


@pytest.mark.parametrize("threads", [1, 2])
def test_failed_assert(native: Any, threads: int) -> None:
    module, out = parse_module(FAILING), np.zeros(1, np.int8)
    assert native(module, 10, 10, 0.5, out, threads=threads)[0] is None and out[0] == 1
    out[0] = 0
    for _ in range(20):
        error, slots = native(module, 1000, 700, 0.5, out, threads=threads)
        assert error is not None and (error.slug, error.message, error.types) == ("run-out-of-bounds", "too far", ("index", "f32", "index"))
        assert 700 <= slots[0] < 1000 and slots[2] == 700 and slots[3:] == [0] * 5
        assert np.array(slots[1], np.uint64).view(np.float64) == 0.5
        assert out[0] == 0
        assert error.span is not None and error.span.line == 8


def test_memory_is_given_back_when_an_assert_fails() -> None:
    text = emit(parse_module(FAILING), host_target()).text
    (body,) = [part for part in text.split("\ndefine ") if '@"tl.g"(' in part.split("{")[0]]
    failed = body.split("\nfail.")[-1]
    frees = [line.split("%")[1].rstrip(")") for line in failed.splitlines() if "@tl_free" in line]
    assert frees == ["more", "room"]


def test_no_memory(native: Any) -> None:
    module = parse_module("""builtin.module {level = "vec"} {
      func.func @f(%n: index scalar) {
        %big = vec.alloc %n : ptr<f64>
        vec.free %big
      }
    }""")
    assert native(module, 1 << 58)[0].slug == "run-out-of-memory"
    assert native(module, 8)[0] is None


def test_several_entries_have_symbols_of_their_own() -> None:
    module = parse_module("""builtin.module {level = "vec"} {
      func.func @first(%n: index scalar) {
      }
      func.func @second(%n: index scalar) {
      }
    }""")
    assert emit(module, host_target()).symbols == {"first": "kernel_first", "second": "kernel_second"}
