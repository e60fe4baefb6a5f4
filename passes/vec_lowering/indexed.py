"""mem.gather, scatter, take_along and atomic_rmw: accesses at indices that are data.

Every index is checked before it is used; the first bad one of a vector is then looked for one by one, so that the message can name it. Scatters write
in row-major order of their source: of equal indices the last wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelang.dialects import arith, mem, vec
from tilelang.ir.core import Operation, Value
from tilelang.ir.types import Scalar, VectorType, index
from tilelang.passes.vec_lowering.builder import Index, View, static, subview, unsupported
from tilelang.passes.vec_lowering.space import Access, Space, fit_lanes
from tilelang.passes.vectorize import lane_bits

if TYPE_CHECKING:
    from tilelang.passes.lower_to_vec import Lowering

SLUG = "run-out-of-bounds"


@dataclass(frozen=True)
class _Indexed:
    """An axis of memory that is reached through an index tile."""

    axis: int
    length: Index
    stride: Index


class _Accessor:
    """One structured access. The space is that of the tile; its accesses are: the tile (unless a scalar), then the index tiles, then the memory with
    strides along the axes that run through it without indices."""

    def __init__(
        self, ctx: Lowering, op: Operation, dims: Sequence[Index], tile: View | None, indices: Sequence[tuple[View, Sequence[int]]],
        memory: View, start: Index, along: Sequence[Index], indexed: Sequence[_Indexed], ordered: bool,
    ) -> None:  # fmt: skip
        self.ctx, self.b, self.op, self.memory, self.indexed = ctx, ctx.b, op, memory, indexed
        self.tiles = 1 if tile is not None else 0
        accesses = [Access.of(tile, range(len(dims)), dims)] if tile is not None else []
        accesses += [Access.of(v, axes, dims) for v, axes in indices]
        place = Access(View(memory.ptr, start, (), (), (), memory.name), list(along), [False] * max(0, len(dims) - 1))
        self.space = Space(dims, [*accesses, place], self._vector(dims, accesses, along, ordered))
        self.space.simplify(self.b)
        a = self.space.vector
        self.n: Index = self.space.dims[a] if a is not None else 1
        bits = max(lane_bits(op), 64 if self._varies(a) else 8)
        self.lanes = fit_lanes(ctx.target.lanes(bits), self.n) if a is not None else 0
        self.steps: list[Index] = [x.strides[a] if a is not None else 0 for x in self.space.accesses]

    def _vector(self, dims: Sequence[Index], accesses: Sequence[Access], along: Sequence[Index], ordered: bool) -> int | None:
        """The last axis, which keeps the order of a scatter; else one where tile and memory are contiguous."""
        axes = [a for a in range(len(dims)) if static(dims[a]) != 1]
        if not axes:
            return None
        if not ordered and self.tiles:
            for a in reversed(axes):
                if static(accesses[0].strides[a]) == 1:
                    return a
        return axes[-1]

    def _varies(self, a: int | None) -> bool:
        """Whether an index changes along the vector axis."""
        return a is not None and any(static(x.strides[a]) != 0 for x in self.space.accesses[self.tiles : -1])

    def check(self, i: Value, at: _Indexed, mask: Value | None) -> Value:
        """The index as type index, after making sure that it lies within its axis."""
        b = self.b
        i = b.cast(i, index)
        lanes = i.type.lanes if isinstance(i.type, VectorType) else 0
        inside = self._inside(i, at, lanes)
        if not lanes:
            self._require(inside, i, at)
            return i
        if mask is not None:
            inside = b(arith.Or.of(inside, b(arith.Not.of(mask))))
        with b.when(b(arith.Not.of(b(vec.Reduce.of("all", inside))))):
            for lane in range(lanes):
                self._require(b(vec.Extract.of(inside, lane)), b(vec.Extract.of(i, lane)), at)
        return i

    def _inside(self, i: Value, at: _Indexed, lanes: int) -> Value:
        b = self.b
        low = b(arith.Cmp.of("ge", i, b.splat(b.value(0), lanes)))
        return b(arith.And.of(low, b(arith.Cmp.of("lt", i, b.splat(b.value(at.length), lanes)))))

    def _require(self, inside: Value, i: Value, at: _Indexed) -> None:
        what = f"'{self.memory.name}'" if self.memory.name else "the buffer"
        message = f"index {{0}} is outside axis {at.axis} of {what}, which has length {{1}}"
        self.b.require(inside, message, SLUG, [i, self.b.value(at.length)])

    def run(self, action: str, value: Value | None = None, kind: str = "") -> None:
        """action: read (memory to tile), write or update (tile, or `value`, to memory)."""
        if action == "update":
            self.lanes = 0
        a, space = self.space.vector, self.space
        outer = [x for x in space.axes if x != a]

        def row(bases: list[Index], _: list[Value]) -> list[Value]:
            rows = self._fixed(bases)
            self.b.strip(self.n, self.lanes, 1, lambda i, mask, s: self._one(rows, bases, i, mask, action, value, kind), hint="v")
            return []

        space.walk(self.b, outer, space.bases(), row)

    def _fixed(self, bases: list[Index]) -> list[Index | None]:
        """Contributions of the indices that do not change along the vector axis, read and checked once."""
        b, out = self.b, []
        for at, base, step, access in zip(self.indexed, bases[self.tiles :], self.steps[self.tiles :], self.space.accesses[self.tiles :]):
            # An empty row reads nothing, not even its index.
            once = static(step) == 0 and (static(self.n) or 0) > 0
            out.append(b.mul(self.check(b.load(access.view, base), at, None), at.stride) if once else None)
        return out

    def _one(
        self, fixed: list[Index | None], bases: list[Index], i: Index, mask: Value | None, action: str, value: Value | None, kind: str
    ) -> list[Value]:
        b, lanes = self.b, self.lanes
        places = [b.add(at, b.mul(i, step)) for at, step in zip(bases, self.steps)]
        start, lanes_at = places[-1], None
        for known, at, place, step, access in zip(
            fixed, self.indexed, places[self.tiles :], self.steps[self.tiles :], self.space.accesses[self.tiles :]
        ):
            if known is not None:
                start = b.add(start, known)
                continue
            if static(step) == 0:
                start = b.add(start, b.mul(self.check(b.load(access.view, place), at, None), at.stride))
                continue
            found = self.check(b.load_lanes(access.view, place, step, lanes, mask), at, mask)
            if not lanes:
                start = b.add(start, b.mul(found, at.stride))
                continue
            if static(at.stride) != 1:
                found = b(arith.Mul.of(found, b.splat(b.value(at.stride), lanes)))
            lanes_at = found if lanes_at is None else b(arith.Add.of(lanes_at, found))
        tile = self.space.accesses[0].view if self.tiles else None
        if action == "read":
            assert tile is not None
            b.store_lanes(self._load(start, lanes_at, mask), tile, places[0], self.steps[0], lanes, mask)
            return []
        if tile is not None:
            value = b.load_lanes(tile, places[0], self.steps[0], lanes, mask)
        assert value is not None
        if action == "update":
            b.insert(vec.AtomicRmw.of(kind, value, self.memory.ptr, b.value(start)))
        elif lanes_at is None:
            b.store_lanes(b.splat(value, lanes), self.memory.ptr, start, self.steps[-1], lanes, mask)
        else:
            b.insert(vec.Scatter.of(b.splat(value, lanes), self.memory.ptr, self._offsets(start, lanes_at), mask))
        return []

    def _load(self, start: Index, lanes_at: Value | None, mask: Value | None) -> Value:
        if lanes_at is None:
            return self.b.load_lanes(self.memory.ptr, start, self.steps[-1], self.lanes, mask)
        return self.b(vec.Gather.of(self.memory.ptr, self._offsets(start, lanes_at), mask))

    def _offsets(self, start: Index, lanes_at: Value) -> Value:
        """Scalar start, what runs along the lanes, and the indices."""
        b, step = self.b, self.steps[-1]
        if static(step) == 0 and static(start) == 0:
            return lanes_at
        return b(arith.Add.of(lanes_at, b.lane_offsets(start, step, self.lanes) if static(step) != 0 else b.splat(b.value(start), self.lanes)))


def _at_indices(
    ctx: Lowering, op: mem.Gather | mem.Scatter | mem.AtomicRmw, tile: View | None, memory: View, ordered: bool
) -> _Accessor:
    """The access of a gather, scatter or indexed atomic (axes: see tile.gather)."""
    b = ctx.b
    views = [ctx.view(v) for v in op.indices]
    inner = views[0].rank
    kept = [a for a in range(memory.rank) if a not in op.indexed and a not in op.dropped]
    before = sum(a < min(op.indexed) for a in kept)
    rank = len(kept) + inner
    # Space axes: kept ones before the index tile's, those of the index tile, the other kept ones.
    position = [*range(before), *range(before + inner, rank)]
    dims: list[Index] = list(tile.dims) if tile is not None else []
    if tile is None:
        if kept:
            raise unsupported(op, "a scalar written to a whole axis")
        dims = list(views[0].dims)
    start = memory.offset
    along: list[Index] = [0] * rank
    offsets = iter(op.offsets)
    for a in range(memory.rank):
        if a in op.indexed:
            continue
        start = b.add(start, b.mul(ctx.index(next(offsets)), memory.strides[a]))
        if a in kept:
            along[position[kept.index(a)]] = b.mul(memory.strides[a], op.steps[a] if op.steps else 1)
    axes = [x - before if before <= x < before + inner else -1 for x in range(rank)]
    indexed = [_Indexed(a, memory.dims[a], memory.strides[a]) for a in op.indexed]
    return _Accessor(ctx, op, dims, tile, [(v, axes) for v in views], memory, start, along, indexed, ordered)


def gather(op: mem.Gather, ctx: Lowering) -> None:
    _at_indices(ctx, op, ctx.view(op.dst), ctx.view(op.src), ordered=False).run("read")


def scatter(op: mem.Scatter, ctx: Lowering) -> None:
    tile, value = _tile(ctx, op.src)
    _at_indices(ctx, op, tile, ctx.view(op.dst), ordered=True).run("write", value)


def atomic_rmw(op: mem.AtomicRmw, ctx: Lowering) -> None:
    tile, value = _tile(ctx, op.src)
    memory = ctx.view(op.dst)
    if op.indices:
        _at_indices(ctx, op, tile, memory, ordered=True).run("update", value, op.kind)
        return
    offsets = [ctx.index(o) for o in op.offsets]
    if tile is None:
        ctx.b.insert(vec.AtomicRmw.of(op.kind, ctx.value(op.src), memory.ptr, ctx.b.value(ctx.b.at(memory, offsets))))
        return
    part = subview(ctx.b, memory, offsets, tile.dims, op.dropped, op.steps)
    _Accessor(ctx, op, tile.dims, tile, [], part, part.offset, part.strides, [], ordered=True).run("update", None, op.kind)


def _tile(ctx: Lowering, v: Value) -> tuple[View | None, Value | None]:
    return (None, ctx.value(v)) if isinstance(v.type, Scalar) else (ctx.view(v), None)


def take_along(op: mem.TakeAlong, ctx: Lowering) -> None:
    dst, src, indices = ctx.view(op.dst), ctx.view(op.src), ctx.view(op.indices)
    axis = op.axis % dst.rank
    along: list[Index] = [0 if a == axis else s for a, s in enumerate(src.strides)]
    indexed = [_Indexed(axis, src.dims[axis], src.strides[axis])]
    _Accessor(ctx, op, dst.dims, dst, [(indices, range(dst.rank))], src, src.offset, along, indexed, ordered=False).run("read")


