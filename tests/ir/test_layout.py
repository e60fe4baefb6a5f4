"""Layouts: the laws of the algebra by enumeration, and the memory formats the backends rely on by their formulas."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilelang.ir.index import parse as parse_expr
from tilelang.ir.index import sym
from tilelang.ir.layout import (
    Layout,
    blocked,
    column_major,
    fractal_nz,
    fractal_zn,
    fractal_zz,
    panel,
    parse,
    row_major,
    strided,
)

extents = st.sampled_from([1, 1, 2, 2, 3, 4, 6])
strides = st.sampled_from([0, 1, 1, 2, 2, 3, 4, 6, 8, 12, 24])


def nested(leaf: st.SearchStrategy[tuple[object, object]]) -> st.SearchStrategy[tuple[object, object]]:
    return st.lists(leaf, min_size=1, max_size=3).map(lambda parts: (tuple(p[0] for p in parts), tuple(p[1] for p in parts)))


layouts = (
    st.recursive(st.tuples(extents, strides), nested, max_leaves=4)
    .map(lambda p: Layout(*p))  # type: ignore[arg-type]
    .filter(lambda layout: layout.size <= 300)
)


@st.composite
def dense_layouts(draw: st.DrawFn) -> Layout:
    """Leaves in any memory order, without gaps."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    stride = {a: prod(shape[b] for b in order[:k]) for k, a in enumerate(order)}
    return Layout(tuple(shape), tuple(stride[a] for a in range(len(shape))))


def table(layout: Layout) -> list[int]:
    return [layout(k) for k in range(layout.size)]


@settings(max_examples=200, deadline=None)
@given(layouts)
def test_one_layout(layout: Layout) -> None:
    values = table(layout)
    assert list(layout.offsets()) == values
    assert parse(str(layout)) == layout
    assert layout.cosize == max(values) + 1
    assert layout.size == len(values) == prod(layout.extents)
    for same in (layout.flatten(), layout.coalesce(), layout.coalesce(by_mode=True)):
        assert table(same) == values
    assert layout.coalesce(by_mode=True).extents == layout.extents
    assert layout.is_injective() == (len(set(values)) == len(values))
    assert layout.is_contiguous() == (sorted(values) == list(range(len(values))))


@settings(max_examples=200, deadline=None)
@given(layouts)
def test_coordinates(layout: Layout) -> None:
    """Leftmost mode fastest, with an index a mode, and with nested coordinates."""
    for k, coord in enumerate(itertools.product(*(range(n) for n in reversed(layout.extents)))):
        coord = coord[::-1]
        assert layout(*coord) == layout(k) == sum(m(c) for m, c in zip(layout.modes, coord))


@settings(max_examples=200, deadline=None)
@given(layouts)
def test_vector_width(layout: Layout) -> None:
    for axis, mode in enumerate(layout.modes):
        width = layout.vector_width(axis)
        values = table(mode)
        assert len(values) % width == 0
        runs = [values[k : k + width] for k in range(0, len(values), width)]
        assert all(run == list(range(run[0], run[0] + width)) for run in runs)
        if len(values) > 1 and width == 1:
            assert values[1] != values[0] + 1
    assert (layout.unit_stride_axis() is None) == all(layout.vector_width(k) == 1 for k in range(layout.rank))


@settings(max_examples=400, deadline=None)
@given(layouts | dense_layouts(), layouts)
def test_compose_is_application_or_refused(a: Layout, b: Layout) -> None:
    try:
        composed = a.compose(b)
    except ValueError as e:
        assert str(e).startswith(f"cannot compose {a} with {b}")
        assert b.cosize > a.size or a.coalesce().rank > 1  # one run of equal steps takes anything inside it
        return
    assert table(composed) == [a(x) for x in table(b)]
    assert composed.size == b.size
    assert composed.extents == b.extents or not isinstance(b.shape, tuple)


@settings(max_examples=200, deadline=None)
@given(layouts, st.integers(1, 200))
def test_complement_fills_the_gaps_once(layout: Layout, size: int) -> None:
    try:
        gaps = layout.complement(size)
    except ValueError:
        values = table(layout)
        steps = sorted((d, s) for s, d in layout.flatten().coalesce()._pairs() if s != 1)
        apart = all(a and d % (a * s) == 0 for (a, s), (d, _) in itertools.pairwise(steps))
        assert len(set(values)) < len(values) or not apart
        return
    assume(layout.size * gaps.size < 3000)
    reached = [x + y for x in table(layout) for y in table(gaps)]
    assert len(set(reached)) == len(reached)
    assert set(range(size)) <= set(reached)
    assert table(gaps) == sorted(table(gaps))


@settings(max_examples=200, deadline=None)
@given(dense_layouts(), layouts)
def test_divide_keeps_every_element(a: Layout, tile: Layout) -> None:
    try:
        tiled = a.divide(tile)
    except ValueError:
        return
    assert tiled.rank == 2
    assert sorted(table(tiled)) == sorted(table(a))
    assert table(tiled.modes[0]) == [a(x) for x in table(tile)]


@settings(max_examples=200, deadline=None)
@given(dense_layouts(), st.sampled_from([2, 3, 4]))
def test_divide_by_a_number_cuts_runs(a: Layout, n: int) -> None:
    assume(a.size % n == 0)
    try:
        tiled = a.divide(n)
    except ValueError:
        assert a.coalesce().rank > 1
        return
    assert [tiled(x, y) for y in range(a.size // n) for x in range(n)] == table(a)


@settings(max_examples=200, deadline=None)
@given(layouts, layouts)
def test_product_repeats(a: Layout, b: Layout) -> None:
    try:
        repeated = a.product(b)
    except ValueError:
        return
    gaps = a.complement(a.size * b.cosize)
    assert table(repeated.modes[0]) == table(a)
    assert table(repeated.modes[1]) == [gaps(x) for x in table(b)]


@settings(max_examples=200, deadline=None)
@given(dense_layouts())
def test_inverse(layout: Layout) -> None:
    inverse = layout.inverse()
    assert [layout(inverse(k)) for k in range(layout.size)] == list(range(layout.size))
    assert [inverse(layout(k)) for k in range(layout.size)] == list(range(layout.size))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_transpose_and_orders(shape: list[int], data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    array = np.arange(prod(shape)).reshape(shape)
    layout = row_major(shape).transpose(perm)
    view = array.transpose(perm)
    for coord in np.ndindex(view.shape):
        assert layout(*coord) == view[coord]
        assert column_major(shape[::-1])(*np.unravel_index(view[coord], shape)[::-1]) == view[coord]
    assert layout == strided(view.shape, [s // array.itemsize for s in view.strides]) or 1 in shape


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([8, 16, 32]))
def test_fractals(rows: int, cols: int, c0: int) -> None:
    """The formulas of the Ascend data formats; r0 is 16."""
    high, wide = -(-rows // 16) * 16, -(-cols // c0) * c0
    nz, zz, zn = fractal_nz(rows, cols, c0), fractal_zz(rows, cols, c0), fractal_zn(cols, rows, c0)
    for y in range(rows):
        for x in range(cols):
            assert nz(y, x) == x // c0 * high * c0 + y * c0 + x % c0
            assert zz(y, x) == y // 16 * 16 * wide + x // c0 * 16 * c0 + y % 16 * c0 + x % c0
            # ZN of K x N (K = cols here): block rows along K, inside a block K is adjacent
            assert zn(x, y) == x // c0 * c0 * high + y // 16 * 16 * c0 + y % 16 * c0 + x % c0
    for layout in (nz, zz, zn):
        assert layout.is_contiguous()
        assert layout.size == high * wide


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(1, 40), st.sampled_from([4, 6, 16]))
def test_panels_are_what_a_packing_loop_writes(k: int, n: int, width: int) -> None:
    b, a = panel((k, n), width, 1), panel((n, k), width, 0)
    position = 0
    for p in range(0, n, width):
        for row in range(k):
            for column in range(p, p + width):
                assert b(row, column) == a(column, row) == position
                position += 1
    assert b.cosize == a.cosize == position
    assert b.vector_width(1) == width or k == 1  # panels one row high are one run


def test_panel_of_three_axes() -> None:
    packed = panel((2, 3, 10), 4, 2)
    assert str(packed) == "(2,3,(4,3)):(12,4,(1,24))"
    assert packed(1, 2, 9) == 12 + 8 + 1 + 48


def test_blocked() -> None:
    layout = blocked((4, 6), (2, 3))
    assert str(layout) == "((2,2),(3,2)):((3,12),(1,6))"
    order = [[layout(y, x) for x in range(6)] for y in range(4)]
    assert order == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11], [12, 13, 14, 18, 19, 20], [15, 16, 17, 21, 22, 23]]
    assert blocked((5, 7), (2, 3)).extents == (6, 9)


def test_examples_of_the_cute_documentation() -> None:
    assert str(parse("(2,(1,6)):(1,(6,2))").coalesce()) == "12:1"
    assert str(parse("(6,2):(8,2)").compose(parse("(4,3):(3,1)"))) == "((2,2),3):((24,2),8)"
    assert str(parse("20:2").compose(parse("(5,4):(4,1)"))) == "(5,4):(8,2)"
    assert str(parse("(10,2):(16,4)").compose(parse("(5,4):(1,5)"))) == "(5,(2,2)):(16,(80,4))"
    assert str(parse("4:1").complement(24)) == "6:4"
    assert str(parse("6:4").complement(24)) == "4:1"
    assert str(parse("(2,2):(1,6)").complement(24)) == "(3,2):(2,12)"
    assert str(parse("(4,2,3):(2,1,8)").divide(parse("4:2"))) == "((2,2),(2,3)):((4,1),(2,8))"
    assert str(parse("(2,2):(4,1)").product(parse("6:1"))) == "((2,2),(2,3)):((4,1),(2,8))"


def test_nested_text() -> None:
    text = "((16,8),(16,4)):((16,256),(1,2048))"
    assert str(parse(text)) == text
    assert parse(text) == fractal_nz(128, 64)
    assert parse("(4,):(1,)").rank == 1


def test_divide_by_mode() -> None:
    tiled = row_major((8, 12)).divide((4, Layout(3, 4)))
    assert str(tiled) == "((4,2),(3,4)):((12,48),(4,1))"
    assert tiled.modes[1].extents == (3, 4)


def test_symbolic_leaves() -> None:
    m, n, i, j = map(sym, "MNij")
    layout = row_major((m, n))
    assert str(layout) == "(M,N):(N,1)"
    assert parse(str(layout)) == layout
    assert layout(i, j) is i * n + j
    assert layout.size is m * n
    assert layout.cosize is m * n
    assert layout.unit_stride_axis() == 1
    assert str(layout.transpose((1, 0))) == "(N,M):(1,N)"
    assert parse("((64,(M + 63) // 64),N):((N,64*N),1)")(i, j) is parse_expr("i % 64 * N + i // 64 * 64 * N + j")
    assert row_major((4, 8))(i) is parse_expr("i % 4 * 8 + i // 4")
    with pytest.raises(ValueError, match=r"inverse|is_contiguous needs constant"):
        layout.inverse()


def test_empty_and_scalar() -> None:
    assert row_major(()).size == row_major(()).cosize == 1
    assert row_major(())() == 0
    empty = row_major((0, 4))
    assert empty.size == empty.cosize == 0
    assert list(empty.offsets()) == []
    assert empty.is_injective()
    assert panel((0, 8), 4, 1).size == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout((2, 3), (1,)), "not nested alike"),
        (lambda: Layout((2, (3,)), (1, 2)), "not nested alike"),
        (lambda: Layout(-2, 1), "negative extent"),
        (lambda: row_major((2, 3))(1, 2, 3), "takes 2 coordinates"),
        (lambda: row_major((2, 3))((1, 1), 2), "nested deeper"),
        (lambda: row_major((2, 3)).transpose((0, 0)), "not a permutation"),
        (lambda: parse("(4,2):(1,10)").compose(parse("(3,2):(1,2)")), "run over extent 4"),
        (lambda: parse("(4,2):(1,10)").compose(parse("3:3")), "3 steps of 3 do not fit extent 4|leave its"),
        (lambda: parse("(6,2):(1,10)").compose(parse("3:4")), "3 steps of 4 do not fit extent 6"),
        (lambda: row_major((2, 3)).compose(Layout(7, 1)), "leave its 6 elements"),
        (lambda: Layout(4, 0).complement(8), "no complement"),
        (lambda: row_major((4, 6)).divide((3, 2)), "does not divide the 4"),
        (lambda: row_major((4, 6)).divide((2,)), "1 tiles for the 2 modes"),
        (lambda: Layout((2, 2), (1, 4)).inverse(), "offsets are not"),
        (lambda: panel((4, 4), 2, 2), "along axis 2"),
        (lambda: blocked((4, 4), (2, 0)), "one positive extent"),
        (lambda: parse("(4,2)"), "expected shape:stride"),
        (lambda: parse("(4,2]:1"), "is not an expression"),
    ],
)
def test_errors(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
