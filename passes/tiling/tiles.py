"""Tiles of tensor values, made on demand: a tile of an elementwise result is computed from tiles of its operands, and so on up to what is in memory.

A range says which part of an axis is wanted; views (broadcast, transpose, slice, fill, iota) only change the ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelang.dialects import arith, loop, mem, tensor, tile
from tilelang.ir.core import Builder, Operation, Value, VerifyError
from tilelang.ir.types import DYN, Dim, Dyn, Scalar, TensorType, TileType, Type, element_of, shape_of
from tilelang.passes.buffering.index import Index
from tilelang.passes.fuse import source_axes

if TYPE_CHECKING:
    from tilelang.passes.tile import Lowering


@dataclass(frozen=True)
class Range:
    """Elements offset, offset + step, ... of an axis; dim: how many, as the type of the tile says; size: their number where dim is not static."""

    offset: Value
    dim: Dim
    size: Value | None = None
    step: int = 1

    @property
    def count(self) -> int | Value:
        return self.size if self.size is not None else self.dim if isinstance(self.dim, int) else 0


Ranges = tuple[Range, ...]


class Tiles:
    """Makes tiles at one place of the new function. known: tiles made before, at this place or around it."""

    def __init__(self, lowering: Lowering, build: Builder, known: dict[tuple[Value, Ranges], Value] | None = None) -> None:
        self.lowering = lowering
        self.build = build
        self.ix = Index(build)
        self.known = dict(known or {})

    def inside(self, build: Builder) -> Tiles:
        """For the body of a loop at this place."""
        build.span = self.build.span
        return Tiles(self.lowering, build, self.known)

    def whole(self, value: Value, axis: int) -> Range:
        """All of an axis."""
        extent = self.lowering.extent(value, axis)
        return Range(self.ix(0), extent) if isinstance(extent, int) else Range(self.ix(0), DYN, extent)

    def block(self, start: Value, extent: int | Value, by: int) -> Range:
        """The block of at most `by` elements from `start`, clipped at the end of the axis."""
        if by == 1 or (isinstance(extent, int) and extent % by == 0):
            return Range(start, by)
        size = self.ix.min(self.ix(by), self.ix.sub(self.ix(extent), start))
        size.hint = size.hint or "size"
        return Range(start, Dyn("", by), size)

    def of(self, value: Value, ranges: Ranges) -> Value:
        """The tile of `value` at `ranges`; a scalar when it has no axes."""
        if not isinstance(value.type, TensorType):
            return self.lowering.scalars.get(value, value)
        key = (value, ranges)
        if key not in self.known:
            buffer = self.lowering.buffers.get(value)
            self.known[key] = self.load(buffer, ranges) if buffer is not None else self.compute(value, ranges)
        return self.known[key]

    def load(self, buffer: Value, ranges: Ranges) -> Value:
        if not ranges:
            return self.build(mem.Load.of(buffer, []))
        steps = tuple(r.step for r in ranges)
        type = _tile_type(ranges, element_of(buffer.type))
        return self.build(tile.Load.of(buffer, [r.offset for r in ranges], _sizes(ranges), type, steps=steps))

    def store(self, value: Value, buffer: Value, ranges: Ranges) -> None:
        if ranges:
            self.build.insert(tile.Store.of(value, buffer, [r.offset for r in ranges]))
        else:
            self.build.insert(mem.Store.of(value, buffer, []))

    def compute(self, value: Value, ranges: Ranges) -> Value:
        """The tile from its operands, also when the value itself is in memory."""
        op = value.op
        element = element_of(value.type)
        self.build.span = op.span if op is not None else self.build.span
        if isinstance(op, arith.Constant):
            return self.splat(self.build(arith.Constant.of(op.attrs["value"], element)), ranges)
        if isinstance(op, tensor.Fill):
            return self.splat(self.of(op.value, ()), ranges)
        if isinstance(op, tensor.Iota):
            return self._iota(op, ranges)
        if isinstance(op, tensor.Broadcast):
            return self._broadcast(op, ranges)
        if isinstance(op, tensor.Transpose):
            inner = tuple(ranges[op.perm.index(i)] for i in range(len(ranges)))
            return self.build(tile.Transpose.of(self.of(op.x, inner), op.perm))
        if isinstance(op, tensor.Slice):
            return self._slice(op, ranges)
        if isinstance(op, tensor.Reshape):
            return self._reshape(op, ranges)
        if isinstance(op, tensor.Matmul):
            return self.matmul(op, ranges)
        if isinstance(op, tensor.Reduce):
            return self._reduce(op, ranges)
        if isinstance(op, (tensor.ArgReduce, tensor.Scan)):
            inner = list(ranges)
            if isinstance(op, tensor.Scan):
                inner[op.axis] = self.whole(op.x, op.axis)
                return self.build(tile.Scan.of(op.kind, self.of(op.x, tuple(inner)), op.axis, op.exclusive))
            inner.insert(op.axis, self.whole(op.x, op.axis))
            return self.build(tile.ArgReduce.of(op.kind, self.of(op.x, tuple(inner)), op.axis, element))
        if op is None or not isinstance(op, arith.ELEMENTWISE):
            raise VerifyError(op or next(value.users), "has no rule in the pass tile")
        args = [self.of(v, ranges) for v in op.operands]
        result = self.build(type(op)(args, [_type(ranges, element)], op.attrs))
        result.hint = value.hint
        return result

    def splat(self, scalar: Value, ranges: Ranges) -> Value:
        return self.build(tile.Fill.of(scalar, _sizes(ranges), _type(ranges, scalar.type))) if ranges else scalar

    def _iota(self, op: tensor.Iota, ranges: Ranges) -> Value:
        (r,) = ranges
        start = self.ix.add(self.of(op.start, ()), self.ix.mul(r.offset, self.ix(op.step)))
        return self.build(tile.Iota.of(start, _sizes(ranges), _type(ranges, element_of(op.out.type)), op.step * r.step))

    def _broadcast(self, op: tensor.Broadcast, ranges: Ranges) -> Value:
        source, target = shape_of(op.x.type), shape_of(op.out.type)
        inner = tuple(Range(self.ix(0), 1) if s == 1 and target[d] != 1 else ranges[d] for s, d in zip(source, op.dims))
        x = self.of(op.x, inner)
        if not inner:
            return self.splat(x, ranges)
        return self.build(tile.Broadcast.of(x, op.dims, _sizes(ranges), _type(ranges, element_of(x.type))))

    def _slice(self, op: tensor.Slice, ranges: Ranges) -> Value:
        inner: list[Range] = []
        kept = iter(ranges)
        steps = op.steps or (1,) * len(op.offsets)
        for axis, (offset, step) in enumerate(zip(op.offsets, steps)):
            start = self.of(offset, ())
            if axis in op.dropped:
                inner.append(Range(start, 1))
            else:
                r = next(kept)
                inner.append(Range(self.ix.add(start, self.ix.mul(r.offset, self.ix(step))), r.dim, r.size, r.step * step))
        buffer = self.lowering.buffers.get(op.x)
        element = element_of(op.x.type)
        if buffer is not None and ranges:
            offsets, kept_steps = [r.offset for r in inner], tuple(r.step for r in inner)
            return self.build(tile.Load.of(buffer, offsets, _sizes(ranges), _tile_type(ranges, element), dropped=op.dropped, steps=kept_steps))
        if buffer is not None:
            return self.build(mem.Load.of(buffer, [r.offset for r in inner]))
        x = self.of(op.x, tuple(inner))
        if not op.dropped:
            return x
        zeros = [self.ix(0)] * len(inner)
        if not ranges:
            return self.build(tile.Extract.of(x, zeros))
        return self.build(tile.Slice.of(x, zeros, _sizes(ranges), _type(ranges, element), op.dropped))

    def _reshape(self, op: tensor.Reshape, ranges: Ranges) -> Value:
        """Only those that add axes of length 1; the others are views of memory."""
        axes = source_axes(op)
        assert axes is not None
        x = self.of(op.x, tuple(r for r, a in zip(ranges, axes) if a >= 0))
        if all(a < 0 for a in axes):
            return self.splat(x, ranges)
        return self.build(tile.Reshape.of(x, _sizes(ranges), _type(ranges, element_of(x.type))))

    def matmul(self, op: tensor.Matmul, ranges: Ranges) -> Value:
        """A loop over blocks of the contracted axis, with the accumulator carried."""
        acc = self.of(op.acc, ranges)
        extent, by = self.lowering.extent(op.lhs, len(ranges) - 1), self.lowering.sizes.k

        def step(tiles: Tiles, k: Range, acc: Value) -> Value:
            lhs = tiles.of(op.lhs, (*ranges[:-1], k))
            rhs = tiles.of(op.rhs, (*ranges[:-2], k, ranges[-1]))
            return tiles.build(tile.Matmul.of(lhs, rhs, acc))

        if isinstance(extent, int) and extent <= by:
            return step(self, self.whole(op.lhs, len(ranges) - 1), acc)
        acc.hint = acc.hint or "acc"
        nest = self.build.insert(loop.For.of(self.ix(0), self.ix(extent), self.ix(by), [acc], pipelined=True, hint="k"))
        inner = self.inside(Builder(nest.body.block))
        inner.build.insert(loop.Yield.of(step(inner, inner.block(nest.iv, extent, by), nest.carried[0])))
        return nest.results[0]

    def _reduce(self, op: tensor.Reduce, ranges: Ranges) -> Value:
        """Loops over blocks of the reduced axes, with the partial result carried."""
        rank = len(shape_of(op.x.type))
        element = element_of(op.x.type)
        blocks = dict(zip(op.axes, self.lowering.sizes.reduced(op)))
        looped = [a for a in op.axes if not isinstance(e := self.lowering.extent(op.x, a), int) or e > blocks[a]]
        found: dict[int, Range] = {a: self.whole(op.x, a) for a in op.axes if a not in looped}
        kept = iter(ranges)
        found.update({a: next(kept) for a in range(rank) if a not in op.axes})

        def nest(tiles: Tiles, todo: Sequence[int], acc: Value | None) -> Value:
            if not todo:
                x = tiles.of(op.x, tuple(found[a] for a in range(rank)))
                part = tiles.build(tile.Reduce.of(op.kind, x, op.axes))
                return part if acc is None else tiles.build(_COMBINE[op.kind].of(acc, part))
            axis, *rest = todo
            extent = self.lowering.extent(op.x, axis)
            assert acc is not None
            for_ = tiles.build.insert(loop.For.of(tiles.ix(0), tiles.ix(extent), tiles.ix(blocks[axis]), [acc]))
            inner = tiles.inside(Builder(for_.body.block))
            found[axis] = inner.block(for_.iv, extent, blocks[axis])
            inner.build.insert(loop.Yield.of(nest(inner, rest, for_.carried[0])))
            return for_.results[0]

        if not looped:
            return nest(self, [], None)
        start = self.splat(self.build(arith.Constant.of(identity(op.kind, element), element)), ranges)
        start.hint = op.kind
        return nest(self, looped, start)


_COMBINE: dict[str, type[arith.Binary]] = {
    "sum": arith.Add, "prod": arith.Mul, "max": arith.Max, "min": arith.Min, "any": arith.Or, "all": arith.And,
}  # fmt: skip


def identity(kind: str, element: Scalar) -> int | float | bool:
    """What the reduction of nothing is."""
    if kind in ("sum", "prod", "any", "all"):
        return {"sum": 0, "prod": 1, "any": False, "all": True}[kind]
    if element.is_float:
        return float("-inf") if kind == "max" else float("inf")
    if element.kind == "bool":
        return kind == "min"
    low = -(1 << (element.bits - 1)) if element.is_signed else 0
    high = (1 << (element.bits - (1 if element.is_signed else 0))) - 1
    return low if kind == "max" else high


def _sizes(ranges: Ranges) -> list[Value]:
    return [r.size for r in ranges if r.size is not None]


def _tile_type(ranges: Ranges, element: Scalar) -> TileType:
    return TileType(tuple(r.dim for r in ranges), element)


def _type(ranges: Ranges, element: Type) -> Type:
    assert isinstance(element, Scalar)
    return _tile_type(ranges, element) if ranges else element


def is_heavy(op: Operation | None) -> bool:
    """Whether the result is computed by a grid of its own."""
    if isinstance(op, tensor.Reshape):
        return source_axes(op) is None
    return isinstance(op, (tensor.Matmul, tensor.Reduce, tensor.ArgReduce, tensor.Scan))
