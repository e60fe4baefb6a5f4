"""`equivalent` tells modules that compute the same from those that do not, across levels."""

from __future__ import annotations

import numpy as np
import pytest

from tilelang.diagnostics import CompilerBug
from tilelang.dialects import load_all
from tilelang.ir.core import Module
from tilelang.ir.parser import parse_module
from tilelang.runtime.cases import make_cases
from tilelang.runtime.interp import InterpretEach, equivalent

load_all()

TENSOR = """builtin.module {level = "tensor"} {
  func.func @scale(%x: tensor<f32[M, N]> in, %s: f32 scalar) -> tensor<f32[M, N]> {
    %t = tensor.fill %s sizes(%M, %N) : tensor<f32[M, N]>
    %r = arith.mul %x, %t : tensor<f32[M, N]>
    func.return %r
  }
}""".replace("%t = tensor.fill", "%M = tensor.dim %x {axis = 0} : index\n    %N = tensor.dim %x {axis = 1} : index\n    %t = tensor.fill")

TILE = """builtin.module {level = "tile"} {
  func.func @scale(%x: buffer<f32[M, N], global, strides [?, ?]> in, %s: f32 scalar, %out: buffer<f32[M, N], global, strides [?, ?]> out) {
    %M = mem.dim %x {axis = 0} : index
    %N = mem.dim %x {axis = 1} : index
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    loop.parallel (%i) = (%c0) to (%M) step (%c16) {grid} {
      %rest = arith.sub %M, %i : index
      %n = arith.min %rest, %c16 : index
      %t = tile.load %x offsets(%i, %c0) sizes(%n, %N) : tile<f32[?16, ?]>
      %f = tile.fill %s sizes(%n, %N) : tile<f32[?16, ?]>
      %r = arith.mul %t, %f : tile<f32[?16, ?]>
      tile.store %r, %out offsets(%i, %c0)
    }
  }
}"""

VEC = """builtin.module {level = "vec"} {
  func.func @scale(%x: ptr<f32> in, %xd0: index scalar, %xd1: index scalar, %xs0: index scalar, %xs1: index scalar, %s: f32 scalar, \
%out: ptr<f32> out, %od0: index scalar, %od1: index scalar, %os0: index scalar, %os1: index scalar) {
    vec.launch %xd0 captured(%x, %xd1, %xs0, %xs1, %s, %out, %os0, %os1) {callee = "scale_grid0"}
  }
  func.func @scale_grid0(%begin: index scalar, %end: index scalar, %x: ptr<f32> in, %n: index scalar, %xs0: index scalar, %xs1: index scalar, \
%s: f32 scalar, %out: ptr<f32> out, %os0: index scalar, %os1: index scalar) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    loop.for %i = %begin to %end step %c1 {
      loop.for %j = %c0 to %n step %c1 {
        %a = arith.mul %i, %xs0 : index
        %b = arith.mul %j, %xs1 : index
        %o = arith.add %a, %b : index
        %v = vec.load %x, %o : f32
        %w = arith.mul %v, %s : f32
        %c = arith.mul %i, %os0 : index
        %d = arith.mul %j, %os1 : index
        %p = arith.add %c, %d : index
        vec.store %w, %out, %p
      }
    }
  }
}"""


@pytest.mark.parametrize(("before", "after"), [(TENSOR, TENSOR), (TENSOR, TILE), (TENSOR, VEC), (TILE, TILE), (TILE, VEC), (VEC, VEC)])
def test_one_function_at_three_levels(before: str, after: str) -> None:
    assert equivalent(parse_module(before), parse_module(after)) == []


def change(text: str, old: str, new: str) -> tuple[Module, Module]:
    assert old in text
    return parse_module(text), parse_module(text.replace(old, new))


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (TILE, "arith.mul %t, %f", "arith.add %t, %f"),
        (TILE, "arith.min %rest, %c16", "arith.max %rest, %c16"),
        (TILE, "step (%c16)", "step (%c17)"),
        (TILE, "tile.fill %s sizes", "tile.fill %z sizes"),
        (VEC, "%d = arith.mul %j, %os1", "%d = arith.mul %j, %xs1"),
        (VEC, "loop.for %j = %c0", "loop.for %j = %c1"),
        (TENSOR, "arith.mul %x, %t", "arith.mul %t, %t"),
    ],
)
def test_faults_are_found(text: str, old: str, new: str) -> None:
    base = text.replace("%c0 = arith", "%c17 = arith.constant 17 : index\n%z = arith.constant 1.0 : f32\n%c0 = arith") if text == TILE else text
    found = equivalent(*change(base, old, new))
    if text == VEC and "os1" in old:
        # The strides of both are equal in data made for bare pointers: only data made from the tile level tells them apart.
        found = equivalent(parse_module(TILE), parse_module(text.replace(old, "%d = arith.mul %j, %c1")))
    assert found and all(f.startswith("scale: ") for f in found)


SUM = """builtin.module {level = "tile"} {
  func.func @f(%x: buffer<T[N], global> in, %out: buffer<T[1], global> out) {
    %N = mem.dim %x {axis = 0} : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %z = arith.constant 0.0 : T
    BODY
    tile.store %s, %out offsets(%c0) {dropped = [0]}
  }
}"""
WHOLE = "%t = tile.load %x offsets(%c0) sizes(%N) : tile<T[?]>\n%s = tile.reduce sum %t {axes = [0]} : T"
BACKWARDS = """%s = loop.for %i = %c0 to %N step %c1 carry(%a = %z) {
      %j = arith.sub %N, %i : index
      %k = arith.sub %j, %c1 : index
      %v = tile.load %x offsets(%k) {dropped = [0]} : T
      %b = arith.add %a, %v : T
      loop.yield %b
    } : T"""


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
def test_another_order_of_a_sum_is_no_difference(dtype: str) -> None:
    a, b = (parse_module(SUM.replace("BODY", body).replace("T", dtype)) for body in (WHOLE, BACKWARDS))
    assert equivalent(a, b) == []
    wrong = parse_module(SUM.replace("BODY", BACKWARDS.replace("%k = arith.sub %j, %c1", "%k = arith.sub %i, %c0").replace("= %c0 to", "= %c1 to")).replace("T", dtype))
    assert any("exact" in d for d in equivalent(a, wrong))


def test_integers_must_be_equal() -> None:
    text = """builtin.module {level = "tile"} {
  func.func @f(%x: buffer<i32[N], global> inout) {
    %N = mem.dim %x {axis = 0} : index
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c0) sizes(%N) : tile<i32[?]>
    %two = tile.fill %c2 sizes(%N) : tile<i32[?]>
    %r = arith.floordiv %t, %two : tile<i32[?]>
    tile.store %r, %x offsets(%c0)
  }
}""".replace("%t = tile.load", "%c2 = arith.constant 2 : i32\n%t = tile.load")
    a, b = parse_module(text), parse_module(text.replace("arith.floordiv", "arith.shr").replace("constant 2", "constant 1"))
    assert equivalent(a, b) == []
    b = parse_module(text.replace("arith.floordiv", "arith.shr"))
    assert "differs in" in equivalent(a, b)[0]


def test_writes_between_the_rows_are_found() -> None:
    def body(n: str) -> str:
        return f"""builtin.module {{level = "tile"}} {{
  func.func @f(%x: buffer<f32[M, N], global, strides [?, 1]> inout, %n: f32 scalar) {{
    %N = mem.dim %x {{axis = 1}} : index
    %c0 = arith.constant 0 : index
    {n}
  }}
}}"""

    a = parse_module(body(""))
    b = parse_module(body("%v = tile.fill %n sizes(%N) : tile<f32[?]>\ntile.store %v, %x offsets(%c0, %c0) {dropped = [0]}"))
    assert equivalent(a, a.clone()) == [] and equivalent(a, b)


def test_a_stop_is_part_of_the_meaning() -> None:
    text = """builtin.module {level = "tile"} {
  func.func @f(%n: i32 scalar, %x: buffer<f32[M], global> in) {
    %M = mem.dim %x {axis = 0} : index
    %c3 = arith.constant 12 : index
    %ok = arith.cmp lt %M, %c3 : bool
    loop.assert %ok {message = "too long"}
  }
}"""
    a, b = parse_module(text), parse_module(text.replace("cmp lt", "cmp le"))
    assert equivalent(a, a.clone()) == []
    assert equivalent(a, b, shapes=[{"M": 12}])[0].startswith("f: exact: stops with run-assert before, runs to the end after (M=12")


def test_index_data_stays_in_range() -> None:
    module = parse_module("""builtin.module {level = "tile"} {
  func.func @f(%x: buffer<f32[M, 3], global> in, %i: buffer<i32[N], global> in, %out: buffer<f32[N], global> out) {
    %N = mem.dim %i {axis = 0} : index
    %c0 = arith.constant 0 : index
    %k = tile.load %i offsets(%c0) sizes(%N) : tile<i32[?]>
    %g = tile.gather %x indices(%k) offsets(%c0) {indexed = [1], dropped = [0]} : tile<f32[?]>
    tile.store %g, %out offsets(%c0)
  }
}""")
    cases = make_cases(module, module.body.block.first)  # pyright: ignore[reportArgumentType]
    assert all(item.memory.min() >= 0 and item.memory.max() < 3 for c in cases for name, item in c.items if name == "i" and c.label != "M=0, N=0")
    wrong = module.clone()
    for op in wrong.walk():
        if op.name == "arith.constant":
            op.attrs["value"] = 1
    assert equivalent(module, wrong)


def test_facts_hold_in_the_data() -> None:
    text = TILE.replace("%out: buffer<f32[M, N], global, strides [?, ?]> out)", '%out: buffer<f32[M, N], global, strides [?, ?]> out) {facts = ["M % 16 == 0", "N >= 5"]}')
    module = parse_module(text)
    for case in make_cases(module, module.body.block.first):  # pyright: ignore[reportArgumentType]
        m, n = case.items[0][1].shape
        assert m % 16 == 0 and n >= 5


def test_interpret_each_follows_a_pipeline_down() -> None:
    each = InterpretEach()
    steps = [parse_module(t) for t in (TENSOR, TILE, VEC)]
    each(steps[0], steps[1], "tile")
    each(steps[1], steps[2], "lower")
    broken = parse_module(VEC.replace("%d = arith.mul %j, %os1", "%d = arith.mul %j, %xs0"))
    with pytest.raises(CompilerBug, match="the pass changes a result") as caught:
        each(steps[2], broken, "cleanup")
    assert caught.value.pass_name == "cleanup"
    recording = InterpretEach({"scale": [np.ones((3, 4), np.float32), 2.0]}, record=True)
    recording(steps[0], steps[1], "tile")
    assert recording.differences == []
    recording(steps[1], parse_module(TILE.replace("arith.mul %t", "arith.sub %t")), "fuse")
    assert recording.differences[0][0] == "fuse" and "the given arguments" in recording.differences[0][1]


def test_polynomials_for_exp_are_compared_in_their_own_type() -> None:
    """An expansion is right to a few units in the last place of f32 only, and 1e-11 would refuse it."""
    text = """builtin.module {level = "tile"} {
  func.func @f(%x: buffer<f32[M], global> inout) {
    %M = mem.dim %x {axis = 0} : index
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c0) sizes(%M) : tile<f32[?]>
    %r = arith.exp %t : tile<f32[?]>
    tile.store %r, %x offsets(%c0)
  }
}"""
    a, b = parse_module(text), parse_module(text.replace("%r = arith.exp %t", "%l = arith.constant LOG2E : f32\n%f = tile.fill %l sizes(%M) : tile<f32[?]>\n%u = arith.mul %t, %f : tile<f32[?]>\n%r = arith.exp2 %u").replace("LOG2E", "1.4426950216293335"))
    # exp is gone and exp2 has come: compared in f32.
    assert equivalent(a, b) == []
    assert equivalent(a, parse_module(text.replace("arith.exp ", "arith.exp2 ")))


def test_results_beside_out_buffers_in_any_order() -> None:
    text = """builtin.module {level = "tile"} {
  func.func @f(%out: buffer<f32[4], global> out, %n: i32 scalar, %x: buffer<f32[4], global> in) -> (i32) {
    %c0 = arith.constant 0 : index
    %t = tile.load %x offsets(%c0) : tile<f32[4]>
    tile.store %t, %out offsets(%c0)
    %r = arith.add %n, %n : i32
    func.return %r
  }
}"""
    assert equivalent(parse_module(text), parse_module(text)) == []
    assert "result 1 differs" in equivalent(*change(text, "arith.add", "arith.sub"))[0]
    assert "result 0 differs" in equivalent(*change(text, "tile.store %t", "%u = arith.add %t, %t : tile<f32[4]>\ntile.store %u"))[0]
