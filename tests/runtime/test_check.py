"""Check mode on IR: each kind of defect is found where it is, and nothing is found where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilelang.diagnostics import Diagnostic
from tilelang.dialects import load_all
from tilelang.ir.parser import parse_module
from tilelang.ir.verify import verify
from tilelang.runtime.check import check

load_all()
HEAD = "".join(f"    %c{n} = arith.constant {n} : index\n" for n in (0, 1, 2, 3, 4, 8, 16)) + "    %one = arith.constant 1 : i32\n    %onef = arith.constant 1.0 : f32\n"
X = "%x: buffer<f32[16], global> inout"


def run(params: str, body: str, *args: Any, **options: Any) -> list[Diagnostic]:
    module = parse_module(f'builtin.module {{level = "tile"}} {{\n  func.func @f({params}) {{\n{HEAD}{body}\n  }}\n}}')
    verify(module)
    return check(module, "f", list(args), **options)


def grid(body: str, stop: str = "%c16", step: str = "%c4") -> str:
    return f"    loop.parallel (%i) = (%c0) to ({stop}) step ({step}) {{grid}} {{\n{body}\n    }}\n"


def slugs(found: list[Diagnostic]) -> list[str]:
    return [d.slug for d in found]


# -- bounds


def test_a_load_outside_is_clipped_and_reported_once() -> None:
    body = grid("""
      %t = tile.load %x offsets(%i) : tile<f32[8]>
      %h = tile.slice %t offsets(%c0) : tile<f32[4]>
      tile.store %h, %y offsets(%i)""")  # fmt: skip
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    found = run(X + ", %y: buffer<f32[16], global> out", body, x, y)
    assert slugs(found) == ["check-bounds"]
    assert found[0].message == "access outside 'x': index 19 of axis 0, length 16"
    assert found[0].notes[0].message == "in the grid block (i=12)"
    assert y.tolist() == x.tolist()


def test_stores_outside_write_the_part_inside() -> None:
    body = """
    %t = tile.fill %onef : tile<f32[8]>
    tile.store %t, %x offsets(%n)"""
    x = np.zeros(16, np.float32)
    found = run("%n: index scalar, " + X, body, 12, x)
    assert slugs(found) == ["check-bounds"] and x.tolist() == [0] * 12 + [1] * 4
    x = np.zeros(16, np.float32)
    found = run("%n: index scalar, " + X, body, -3, x)
    assert found[0].message == "access outside 'x': index -3 of axis 0, length 16" and x.tolist() == [1] * 5 + [0] * 11


def test_scatter_outside_writes_the_rest() -> None:
    body = """
    %i = tile.load %k offsets(%c0) : tile<i32[4]>
    %v = tile.fill %onef : tile<f32[4]>
    tile.scatter %v, %x indices(%i) {indexed = [0]}
    tile.atomic_rmw %v, %x indices(%i) {kind = "add", indexed = [0]}"""
    x = np.zeros(16, np.float32)
    found = run("%k: buffer<i32[4], global> in, " + X, body, np.array([3, 99, -1, 5], np.int32), x)
    assert slugs(found) == ["check-bounds"] * 2 and x[[3, 5]].tolist() == [2, 2] and x.sum() == 4


def test_nothing_to_clip_to_ends_the_run() -> None:
    found = run("%x: buffer<f32[M], global> inout", "%v = mem.load %x indices(%c0) : f32\nmem.store %v, %x indices(%c0)", np.zeros(0, np.float32))
    assert slugs(found) == ["check-bounds"]


# -- uninitialised


def test_reads_of_fresh_memory() -> None:
    body = """
    %b = mem.alloc {name_ = "tmp"} : buffer<f32[4, 4], local>
    %z = tile.fill %onef : tile<f32[2, 4]>
    tile.store %z, %b offsets(%c1, %c0)
    %ok = tile.load %b offsets(%c1, %c0) : tile<f32[2, 4]>
    %t = tile.load %b offsets(%c1, %c2) : tile<f32[3, 2]>"""
    found = run(X, body, np.zeros(16, np.float32))
    assert slugs(found) == ["check-uninitialised"]
    assert found[0].message == "'tmp' is read at [3, 2] before anything was written there"


def test_results_that_are_not_written() -> None:
    y = np.zeros((2, 3), np.float32)
    body = "%z = tile.fill %onef : tile<f32[2, 2]>\ntile.store %z, %y offsets(%c0, %c0)"
    found = run("%y: buffer<f32[2, 3], global> out", body, y)
    assert found[0].message == "'y' is returned with 2 of 6 elements never written, the first at [0, 2]"
    assert np.isnan(y[:, 2]).all()


def test_memory_of_a_block_is_fresh_in_every_block() -> None:
    body = grid("""
      %b = mem.alloc {name_ = "s"} : buffer<f32[4], shared>
      %first = arith.cmp eq %i, %c0 : bool
      loop.if %first {
        %z = tile.fill %onef : tile<f32[4]>
        tile.store %z, %b offsets(%c0)
      }
      %t = tile.load %b offsets(%c0) : tile<f32[4]>
      tile.store %t, %x offsets(%i)""")  # fmt: skip
    found = run(X, body, np.zeros(16, np.float32))
    assert slugs(found) == ["check-uninitialised"] and found[0].notes[0].message == "in the grid block (i=4)"


# -- races


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        ("%t = tile.fill %onef : tile<f32[5]>\ntile.store %t, %x offsets(%i)", "(i=0)", "(i=4)"),
        ("%t = tile.load %x offsets(%c8) : tile<f32[4]>\ntile.store %t, %x offsets(%i)", "(i=0)", "(i=8)"),
        ("%t = tile.fill %onef : tile<f32[4]>\ntile.store %t, %x offsets(%i)\n%u = tile.load %x offsets(%c0) : tile<f32[4]>", "(i=0)", "(i=4)"),
        ('tile.atomic_rmw %onef, %x offsets(%c0) {kind = "add", dropped = [0]}\n%u = tile.load %x offsets(%i) : tile<f32[4]>', "(i=0)", "(i=4)"),
        ('mem.store %onef, %x indices(%c1)', "(i=0)", "(i=4)"),
    ],
)  # fmt: skip
def test_two_blocks_at_one_element(body: str, first: str, second: str) -> None:
    extent = "%c8" if "[5]" in body else "%c16"
    found = run(X, grid(body, extent), np.zeros(16, np.float32))
    assert set(slugs(found)) == {"check-race"}
    assert f"blocks {first} and {second} both access 'x'" in found[0].message
    assert found[0].notes[0].message.startswith(f"block {first} ")


@pytest.mark.parametrize(
    "body",
    [
        "%t = tile.load %x offsets(%i) : tile<f32[4]>\ntile.store %t, %x offsets(%i)",
        'tile.atomic_rmw %onef, %x offsets(%c0) {kind = "add", dropped = [0]}',
        "%t = tile.load %x offsets(%c0) : tile<f32[16]>",
        "%b = mem.alloc : buffer<f32[4], shared>\n%t = tile.fill %onef : tile<f32[4]>\ntile.store %t, %b offsets(%c0)\n%u = tile.load %b offsets(%c0) : tile<f32[4]>",
    ],
)
def test_blocks_that_do_not_meet(body: str) -> None:
    assert run(X, grid(body), np.zeros(16, np.float32)) == []


def test_a_later_grid_may_read_what_an_earlier_one_wrote() -> None:
    write = "%t = tile.fill %onef : tile<f32[4]>\ntile.store %t, %x offsets(%i)"
    assert run(X, grid(write) + grid("%t = tile.load %x offsets(%c0) : tile<f32[16]>"), np.zeros(16, np.float32)) == []


# -- pipelines


def pipeline(body: str, stages: int = 3) -> str:
    return f"    loop.for %k = %c0 to %c16 step %c4 {{stages = {stages}, pipelined}} {{\n{body}\n    }}"


def test_a_load_of_what_the_iteration_before_stored() -> None:
    body = pipeline("""
      %p = arith.sub %k, %c4 : index
      %o = arith.max %p, %c0 : index
      %t = tile.load %x offsets(%o) : tile<f32[4]>
      %u = arith.add %t, %t : tile<f32[4]>
      tile.store %u, %x offsets(%k)""")  # fmt: skip
    found = run(X, body, np.zeros(16, np.float32))
    assert slugs(found) == ["check-pipeline"]
    assert found[0].message == "iteration 1 reads 'x' at [0], which iteration 0 of the same pipelined loop writes"
    assert found[0].notes[1].message == "the loop has 3 stages"


@pytest.mark.parametrize(("distance", "stages", "bad"), [(1, 2, True), (2, 2, False), (2, 3, True), (3, 3, False), (1, 1, True), (0, 4, False)])
def test_distance_against_stages(distance: int, stages: int, bad: bool) -> None:
    body = pipeline("""
      %w = arith.add %k, %c16 : index
      tile.store %s, %x offsets(%w) {dropped = [0]}
      %r = arith.sub %w, %n : index
      %t = tile.load %x offsets(%r) {dropped = [0]} : f32""", stages)  # fmt: skip
    found = run("%n: index scalar, %s: f32 scalar, %x: buffer<f32[32], global> inout", body, 4 * distance, 1.0, np.zeros(32, np.float32))
    assert slugs(found) == ["check-pipeline"] * bad


def test_accumulators_and_other_grids_are_no_hazard() -> None:
    body = """
    %acc = mem.alloc : buffer<f32[4], accumulator>
    %z = tile.fill %onef : tile<f32[4]>
    tile.store %z, %acc offsets(%c0)
""" + pipeline("""
      %t = tile.load %x offsets(%k) : tile<f32[4]>
      %a = tile.load %acc offsets(%c0) : tile<f32[4]>
      %u = arith.add %t, %a : tile<f32[4]>
      tile.store %u, %acc offsets(%c0)
      tile.store %u, %x offsets(%k)""")  # fmt: skip
    assert run(X, body, np.zeros(16, np.float32)) == []


# -- overflow


@pytest.mark.parametrize(
    ("dtype", "op", "a", "b", "value"),
    [
        ("i32", "arith.add", 2**31 - 1, 1, 2**31), ("i32", "arith.mul", -(2**20), 2**20, -(2**40)), ("u8", "arith.sub", 3, 5, -2),
        ("i64", "arith.add", 2**63 - 1, 1, 2**63), ("u64", "arith.mul", 2**40, 2**40, 2**80), ("u32", "arith.mul", 2**31, 4, 2**33),
    ],
)  # fmt: skip
def test_integer_overflow_is_reported_where_asked(dtype: str, op: str, a: int, b: int, value: int) -> None:
    body = f"%r = {op} %a, %b : {dtype}"
    params = f"%a: {dtype} scalar, %b: {dtype} scalar"
    (d,) = run(params, body, a, b, overflow=True)
    assert d.slug == "check-overflow" and d.message.endswith(f"overflows {dtype}: {value}")
    assert run(params, body, a, b) == []
    assert run(params, body, 3, 2, overflow=True) == []


def test_overflow_of_a_sum() -> None:
    body = """
    %t = tile.load %x offsets(%c0) : tile<i32[4]>
    %s = tile.reduce sum %t {axes = [0]} : i32
    %n = arith.neg %t : tile<i32[4]>"""
    found = run("%x: buffer<i32[4], global> in", body, np.array([2**30, 2**30, 2**30, -(2**31)], np.int32), overflow=True)
    assert [d.message for d in found] == ["the negation of i32 values overflows i32: 2147483648"]
    found = run("%x: buffer<i32[4], global> in", body, np.full(4, 2**30, np.int32), overflow=True)
    assert [d.message for d in found] == ["sum of i32 values overflows i32: 4294967296"]


# -- the rest


def test_reports_are_limited_and_an_assert_ends_the_run() -> None:
    loads = "\n".join(f"%t{k} = tile.load %x offsets(%c16) {{dropped = [0]}} : f32" for k in range(30))
    assert len(run(X, loads, np.zeros(16, np.float32), max_reports=7)) == 7
    body = '%no = arith.cmp lt %c1, %c0 : bool\nloop.assert %no {message = "never"}\n%t = tile.load %x offsets(%c16) {dropped = [0]} : f32'
    found = run(X, body, np.zeros(16, np.float32))
    assert slugs(found) == ["run-assert"]
    found = run(X, '%no = arith.cmp lt %c1, %c0 : bool\nloop.assert %no {slug = "run-out-of-bounds", message = "index 9"}', np.zeros(16, np.float32))
    assert [(d.slug, d.message) for d in found] == [("check-bounds", "index 9")]
