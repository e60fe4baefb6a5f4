"""mem.map, fill and iota (copies go through it too): one value an element, no element of the result depends on another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilelang.dialects import mem
from tilelang.ir.core import Operation, Value
from tilelang.ir.types import Scalar, element_of
from tilelang.passes.vec_lowering.builder import Index, View
from tilelang.passes.vec_lowering.space import Access, Space, choose_vector, evaluate_region, fit_lanes
from tilelang.passes.vectorize import plan

if TYPE_CHECKING:
    from tilelang.passes.lower_to_vec import Lowering

# From the values of the inputs, in every lane, to those of the outputs.
Compute = Callable[[list[Value], int], Sequence[Value]]


def elementwise(
    ctx: Lowering, op: Operation, dims: Sequence[Index], ins: Sequence[tuple[View, Sequence[int]] | Value], outs: Sequence[View], compute: Compute
) -> None:
    """outs = compute(ins) for every element of a box. ins: views with the axes that the box runs along them (as for Access.of), and scalars."""
    b = ctx.b
    axis, lanes, unroll = plan(op, ctx.target)
    reads = [Access.of(x[0], x[1], dims) for x in ins if not isinstance(x, Value)]
    space = Space(dims, [*reads, *(Access.of(v, range(len(dims)), dims) for v in outs)], axis if axis >= 0 else None)
    space.simplify(b)
    choose_vector(space, len(outs))
    a = space.vector
    n = space.dims[a] if a is not None else 1
    lanes = fit_lanes(lanes, n) if a is not None else 0

    def row(bases: list[Index], _: list[Value]) -> list[Value]:
        steps = [x.strides[a] if a is not None else 0 for x in space.accesses]
        # What does not vary along the row is read once, before it.
        fixed = [b.splat(b.load(x.view, at), lanes) if step == 0 else None for x, at, step in zip(space.accesses[: len(reads)], bases, steps)]
        scalars = [b.splat(x, lanes) if isinstance(x, Value) else None for x in ins]

        def body(i: Index, mask: Value | None, _: list[Value]) -> list[Value]:
            places = [b.add(at, b.mul(i, step)) for at, step in zip(bases, steps)]
            loaded = [
                f if f is not None else b.load_lanes(x.view, at, step, lanes, mask)
                for f, x, at, step in zip(fixed, space.accesses, places, steps)
            ]
            rest = iter(loaded)
            values = compute([s if s is not None else next(rest) for s in scalars], lanes)
            for value, x, at, step in zip(values, space.accesses[len(reads) :], places[len(reads) :], steps[len(reads) :]):
                b.store_lanes(value, x.view, at, step, lanes, mask)
            return []

        b.strip(n, lanes, unroll if lanes else 1, body, hint="v")
        return []

    space.walk(b, [x for x in space.axes if x != a], space.bases(), row)


def map_(op: mem.Map, ctx: Lowering) -> None:
    ins = [ctx.value(v) if isinstance(v.type, Scalar) else (ctx.view(v), m) for v, m in zip(op.ins, op.maps)]
    outs = [ctx.view(v) for v in op.outs]
    elementwise(ctx, op, outs[0].dims, ins, outs, lambda args, lanes: evaluate_region(ctx.b, op.body, args, lanes, ctx.value))


def fill(op: mem.Fill, ctx: Lowering) -> None:
    dst, value = ctx.view(op.dst), ctx.value(op.value)
    elementwise(ctx, op, dst.dims, [value], [dst], lambda args, lanes: args)


def iota(op: mem.Iota, ctx: Lowering) -> None:
    """start + step * r, computed in index and cast, as the numbers may wrap in the element type."""
    b, dst, start = ctx.b, ctx.view(op.dst), ctx.index(op.start)
    element, n = element_of(op.dst.type), dst.dims[0]
    _, lanes, unroll = plan(op, ctx.target)
    lanes = fit_lanes(min(lanes, ctx.target.lanes(64)) if lanes else 0, n)

    def body(i: Index, mask: Value | None, _: list[Value]) -> list[Value]:
        first = b.add(start, b.mul(i, op.step))
        numbers = b.lane_offsets(first, op.step, lanes) if lanes else b.value(first)
        b.store_lanes(b.cast(numbers, element), dst, b.add(dst.offset, b.mul(i, dst.strides[0])), dst.strides[0], lanes, mask)
        return []

    b.strip(n, lanes, min(unroll, 2) if lanes else 1, body, hint="v")


def load(op: mem.Load, ctx: Lowering) -> None:
    view = ctx.view(op.buffer)
    ctx.define(op.out, ctx.b.load(view, ctx.b.at(view, [ctx.index(i) for i in op.indices]), hint=op.out.hint))


def store(op: mem.Store, ctx: Lowering) -> None:
    view = ctx.view(op.dst)
    ctx.b.store(ctx.value(op.value), view, ctx.b.at(view, [ctx.index(i) for i in op.indices]))


