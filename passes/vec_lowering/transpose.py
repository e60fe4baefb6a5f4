"""Copies between views that are contiguous along different axes: square blocks are turned in registers.

A block of L x L elements is read as L vectors and passes log2(L) stages; the stage of distance d exchanges the off-diagonal d x d blocks of every pair of
rows d apart (Eklundh, A Fast Computer Method for Matrix Transposing, 1972). What does not fill a block is copied by strided accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelang.dialects import mem, vec
from tilelang.ir.core import Value
from tilelang.ir.types import bool_
from tilelang.passes.vec_lowering.builder import Index, VecBuilder, View, static, subview
from tilelang.passes.vec_lowering.elementwise import elementwise
from tilelang.passes.vec_lowering.space import Access, Space

if TYPE_CHECKING:
    from tilelang.passes.lower_to_vec import Lowering

_MOST = 16  # rows that fit the registers


def copy(op: mem.Copy | mem.CopyAsync, ctx: Lowering) -> None:
    src, dst = ctx.view(op.src), ctx.view(op.dst)
    axes = _turned(src, dst)
    side = min(_MOST, ctx.target.lanes(dst.element.bytes * 8))
    if axes is None or side < 4 or dst.element is bool_ or any((static(dst.dims[a]) or side) < side for a in axes):
        elementwise(ctx, op, dst.dims, [(src, range(dst.rank))], [dst], lambda args, lanes: args)
        return
    b, (row, column) = ctx.b, axes
    full = {a: b.sub(dst.dims[a], b.mod(dst.dims[a], side)) for a in axes}
    sizes: list[Index] = [full.get(a, d) for a, d in enumerate(dst.dims)]
    _blocks(b, subview(b, src, [0] * src.rank, sizes), subview(b, dst, [0] * dst.rank, sizes), row, column, side)
    for edge, other in ((column, None), (row, column)):
        offsets: list[Index] = [0] * dst.rank
        rest = list(dst.dims)
        offsets[edge], rest[edge] = full[edge], b.sub(dst.dims[edge], full[edge])
        if other is not None:
            rest[other] = full[other]
        if rest[edge] != 0:
            parts = [subview(b, v, offsets, rest) for v in (src, dst)]
            elementwise(ctx, op, rest, [(parts[0], range(dst.rank))], [parts[1]], lambda args, lanes: args)


def _turned(src: View, dst: View) -> tuple[int, int] | None:
    """(the axis that is contiguous in src, the one that is in dst) when they differ and neither view has both."""
    wide = [a for a in range(dst.rank) if static(dst.dims[a]) != 1]
    units = [[a for a in wide if static(v.strides[a]) == 1] for v in (src, dst)]
    if len(units[0]) != 1 or len(units[1]) != 1 or units[0] == units[1]:
        return None
    return units[0][0], units[1][0]


def _blocks(b: VecBuilder, src: View, dst: View, row: int, column: int, side: int) -> None:
    """Full blocks. Along `row` src is contiguous, along `column` dst is."""
    dims = dst.dims
    space = Space(dims, [Access.of(v, range(dst.rank), dims) for v in (src, dst)], None)

    def plane(bases: list[Index], _: list[Value]) -> list[Value]:
        with b.loop(0, dims[row], side, hint="r") as r, b.loop(0, dims[column], side, hint="c") as c:
            start = b.add(b.add(bases[0], b.mul(c.iv, src.strides[column])), r.iv)
            rows = [b.load(src, b.add(start, b.mul(src.strides[column], k)), side) for k in range(side)]
            end = b.add(b.add(bases[1], b.mul(r.iv, dst.strides[row])), c.iv)
            for k, turned in enumerate(_turn(b, rows)):
                b.store(turned, dst, b.add(end, b.mul(dst.strides[row], k)))
        return []

    space.walk(b, [a for a in range(dst.rank) if a not in (row, column)], space.bases(), plane)


def _turn(b: VecBuilder, rows: list[Value]) -> list[Value]:
    n, rows, distance = len(rows), list(rows), 1
    while distance < n:
        upper = tuple(k if not k & distance else n + k - distance for k in range(n))
        lower = tuple(k + distance if not k & distance else n + k for k in range(n))
        for i in range(n):
            if not i & distance:
                pair = rows[i], rows[i + distance]
                rows[i], rows[i + distance] = b(vec.Shuffle.of(*pair, upper)), b(vec.Shuffle.of(*pair, lower))
        distance *= 2
    return rows
