"""vectorize: chooses, for each structured op of mem, the axis that vectors run along, their lanes, and how many of them an iteration handles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import arith, mem
from tilelang.ir.core import Module, Operation, Region, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import BufferType, Scalar, bool_, element_of
from tilelang.passes.vec_lowering.space import best_axis
from tilelang.target import Target

# What an op costs next to an addition: decides how much of a loop is unrolled.
_COSTS: dict[str, int] = {
    "exp": 12, "exp2": 10, "log": 16, "log2": 16, "tanh": 20, "erf": 24, "sin": 20, "cos": 20, "pow": 40, "rsqrt": 6, "sqrt": 4, "div": 4,
    "floordiv": 8, "mod": 8,
}  # fmt: skip

Vector = tuple[int, int, int]
VECTORISED = (mem.Fill, mem.Iota, mem.Copy, mem.CopyPadded, mem.Map, mem.Reduce, mem.ArgReduce, mem.Scan)


@register
@dataclass(frozen=True)
class Vectorize(Pass):
    """Chooses vector axis, lanes and unrolling of structured ops. lanes, unroll: 0 chooses."""

    name: ClassVar[str] = "vectorize"
    before: ClassVar[str] = "mem"
    lanes: int = 0
    unroll: int = 0

    def run(self, module: Module, ctx: PassContext) -> None:
        for op in module.walk():
            if isinstance(op, VECTORISED) and "vector" in type(op).info.attrs and not op.attrs.get("vector"):
                axis, lanes, unroll = plan(op, ctx.target)
                if axis >= 0:
                    op.attrs["vector"] = (axis, self.lanes or lanes, self.unroll or unroll)


def plan(op: Operation, target: Target) -> Vector:
    """(axis, lanes, unroll) of an op: its `vector` attribute, else what is best by the types. axis -1: nothing to vectorise.

    axis counts the axes of the iteration space: those of dst, of the first of outs, or of the first of srcs of a reduction. lanes is an upper bound:
    lowering takes fewer where a run of elements is shorter."""
    chosen = op.attrs.get("vector")
    if chosen:
        return chosen
    dims, written, read = _walks(op)
    axis = best_axis(dims, written, read)
    lanes = target.lanes(lane_bits(op))
    cost = _cost(op)
    unroll = 4 if cost <= 4 else 2
    if isinstance(op, mem.Reduce) and axis in op.axes and cost <= 4:
        unroll = 8  # additions wait for each other: more sums at once
    return (-1, 0, 1) if axis is None else (axis, lanes, unroll)


def lane_bits(op: Operation) -> int:
    """Bits of the widest number that the op computes with; narrow floats compute as f32."""
    regions = [r for r in op.regions if r.blocks and r.block.first is not None]
    computes = bool(regions) or isinstance(op, (mem.Reduce, mem.ArgReduce, mem.Scan))
    elements = [element_of(v.type) for v in op.operands if isinstance(v.type, (BufferType, Scalar)) and not _is_place(op, v)]
    for r in regions:
        elements += [element_of(x.type) for o in r.block for x in o.results]
    if isinstance(op, mem.ArgReduce):
        elements.append(element_of(op.dst.type))
    bits = [32 if computes and e.is_float and e.bits < 32 else e.bytes * 8 for e in elements if e is not bool_]
    return max(bits, default=8)


def _is_place(op: Operation, v: Value) -> bool:
    """Offsets and indices: numbers that are not elements."""
    if isinstance(op, (mem.Gather, mem.Scatter, mem.AtomicRmw, mem.TakeAlong)):
        return v is not op.src and v is not op.dst
    return isinstance(op, (mem.CopyPadded, mem.Iota)) and isinstance(v.type, Scalar)


def _walks(op: Operation) -> tuple[list[int | None], list[list[int | None]], list[list[int | None]]]:
    """(extents, strides of what is written, strides of what is read) along the axes of the iteration space."""
    if isinstance(op, mem.Map):
        rank = len(_strides(op.outs[0]))
        read = [_along(v, m) for v, m in zip(op.ins, op.maps) if isinstance(v.type, BufferType)]
        return _dims(op.outs[0]), [_along(v, range(rank)) for v in op.outs], read
    if isinstance(op, mem.Reduce):
        rank = len(_strides(op.srcs[0]))
        kept = [a for a in range(rank) if a not in op.axes]
        maps = op.maps or (tuple(range(rank)),)
        dst = _along(op.dst, [kept.index(a) if a in kept else -1 for a in range(rank)])
        read = [_along(v, m) for v, m in zip(op.srcs, maps) if isinstance(v.type, BufferType)]
        # Where a reduced axis is contiguous in the source there is nothing to write along it.
        return _dims(op.srcs[0]), [], [*read, *read, dst]
    if isinstance(op, mem.CopyPadded):
        kept = [a for a in range(len(_strides(op.src))) if a not in op.dropped]
        steps = op.steps or (1,) * len(_strides(op.src))
        src = [None if (s := _strides(op.src)[a]) is None else s * steps[a] for a in kept]
        return _dims(op.dst), [_strides(op.dst)], [src]
    if isinstance(op, (mem.Copy, mem.ArgReduce, mem.Scan)):
        if isinstance(op, mem.ArgReduce):
            return _dims(op.src), [], [_strides(op.src)]
        return _dims(op.dst), [_strides(op.dst)], [_strides(op.src)]
    assert isinstance(op, (mem.Fill, mem.Iota)), op.name
    return _dims(op.dst), [_strides(op.dst)], []


def _dims(v: Value) -> list[int | None]:
    assert isinstance(v.type, BufferType)
    return [d if isinstance(d, int) else None for d in v.type.shape]


def _strides(v: Value) -> list[int | None]:
    """Strides of a buffer as far as its type tells."""
    assert isinstance(v.type, BufferType)
    strides = v.type.strides if v.type.strides is not None else mem.row_major_strides(v.type)
    return [s if isinstance(s, int) else None for s in strides]


def _along(v: Value, axes: tuple[int, ...] | list[int] | range) -> list[int | None]:
    strides = _strides(v)
    return [strides[m] if m >= 0 else 0 for m in axes]


def _cost(op: Operation) -> int:
    return sum(map(region_cost, op.regions))


def region_cost(region: Region) -> int:
    """About how many additions a region is worth."""
    ops = region.block if region.blocks else ()
    return sum(_COSTS.get(o.name[6:], 1) for o in ops if o.name.startswith("arith.") and not isinstance(o, arith.Constant))
