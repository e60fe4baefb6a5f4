"""mem.copy_padded: the part inside the source is copied; where that is less than the whole, the destination is filled before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelang.dialects import mem
from tilelang.passes.vec_lowering.builder import Index, VecBuilder, View, static, subview
from tilelang.passes.vec_lowering.elementwise import elementwise

if TYPE_CHECKING:
    from tilelang.passes.lower_to_vec import Lowering

FAR = 1 << 61


def copy_padded(op: mem.CopyPadded, ctx: Lowering) -> None:
    b, src, dst, pad = ctx.b, ctx.view(op.src), ctx.view(op.dst), ctx.value(op.pad)
    if not dst.rank:  # one element: as a row of one
        dst = View(dst.ptr, dst.offset, (1,), (1,), (), dst.name)
    starts: list[Index] = []  # in the source, of the part inside it
    firsts: list[Index] = []  # in the destination, of the same part
    sizes: list[Index] = []
    gate: Index = 1  # 0 when a dropped axis is outside
    counts = iter(dst.dims)
    for a, given in enumerate(op.offsets):
        # What starts so far outside has nothing inside, and the arithmetic on it does not wrap.
        offset, dropped = b.max(-FAR, b.min(ctx.index(given), FAR)), a in op.dropped
        step = op.steps[a] if op.steps and not dropped else 1
        first, size = _inside(b, offset, step, src.dims[a], 1 if dropped else next(counts))
        starts.append(b.add(offset, b.mul(first, step)))
        if dropped:
            gate = b.mul(gate, size)
        else:
            firsts.append(first)
            sizes.append(size)
    if len(op.dropped) == src.rank:
        firsts, sizes = [0], [1]
    sizes[0] = b.mul(sizes[0], gate)
    covered, total = b.product(sizes), b.product(dst.dims)
    if static(covered) is None or static(covered) != static(total):
        with b.when(b.cmp("ne", covered, total)):
            elementwise(ctx, op, dst.dims, [pad], [dst], lambda args, lanes: args)
    inside = subview(b, dst, firsts, sizes)
    if len(op.dropped) == src.rank:
        part = View(src.ptr, b.at(src, starts), tuple(sizes), (1,), (), src.name)
    else:
        part = subview(b, src, starts, sizes, op.dropped, op.steps)
    elementwise(ctx, op, sizes, [(part, range(part.rank))], [inside], lambda args, lanes: args)


def _inside(b: VecBuilder, offset: Index, step: int, length: Index, count: Index) -> tuple[Index, Index]:
    """(first, number) of the r in [0, count) with 0 <= offset + r * step < length."""
    if step > 0:
        below, above = b.sub(0, offset), b.sub(length, offset)
    else:
        below, above = b.add(b.sub(offset, length), 1), b.add(offset, 1)
    first = b.max(0, b.ceildiv(below, abs(step)))
    return first, b.max(0, b.sub(b.min(count, b.ceildiv(above, abs(step))), first))
