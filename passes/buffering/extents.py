"""Extents of tile (and tensor) values as SSA values: every `?` axis goes back to the sizes given where the tile, or what it was made from, came from.

Tiles carried by a loop, or given by an `if`, normally keep their extents. Where that cannot be seen, `carry_extents` adds the extents to
the carried values, so that they too are SSA values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tilelang.dialects import arith, loop, tile
from tilelang.ir.core import Builder, Operation, Value, VerifyError
from tilelang.ir.types import Dyn, TensorType, TileType, index, shape_of

Phi: TypeAlias = tuple[Value, int]  # the extent of a loop or if value along an axis, to become a value of its own
Extent: TypeAlias = "int | Value | Phi"


def is_tile(value: Value) -> bool:
    return isinstance(value.type, TileType)


def dynamic(value: Value) -> list[int]:
    """The `?` axes of a tile."""
    return [i for i, d in enumerate(shape_of(value.type)) if isinstance(d, Dyn)]


class Extents:
    """Extents of the tiles of one function."""

    def __init__(self) -> None:
        self.phis: dict[Phi, Value | None] = {}
        self.new: set[Phi] = set()

    def of(self, value: Value) -> list[Extent]:
        """One entry an axis."""
        return [d if isinstance(d, int) else self.along(value, i) for i, d in enumerate(shape_of(value.type))]

    def sizes(self, value: Value) -> list[Value]:
        """The extents of the `?` axes, as the `sizes` operands of ops want them."""
        found = [self.along(value, axis) for axis in dynamic(value)]
        assert all(isinstance(e, Value) for e in found)
        return [e for e in found if isinstance(e, Value)]

    def along(self, value: Value, axis: int) -> Extent:
        """The extent of a `?` axis."""
        # A loop, not a recursion: a chain of ops may be thousands long.
        while True:
            dim = shape_of(value.type)[axis]
            if isinstance(dim, int):
                return dim
            key = (value, axis)
            if key in self.phis:
                return self.phis[key] or key
            op = value.op
            if op is None:
                value = _source_of_argument(value)
            elif isinstance(op, (tile.Load, tile.Fill, tile.Iota, tile.Broadcast, tile.Reshape, tile.Slice, tile.Map)):
                return op.sizes[dynamic(value).index(axis)]
            elif isinstance(op, tile.Gather):
                return self._gathered(op, axis)
            elif isinstance(op, tile.Transpose):
                value, axis = op.x, op.perm[axis]
            elif isinstance(op, (tile.Reduce, tile.ArgReduce)):
                gone = op.axes if isinstance(op, tile.Reduce) else (op.axis,)
                value, axis = op.x, [i for i in range(len(shape_of(op.x.type))) if i not in gone][axis]
            elif isinstance(op, (tile.Matmul, tile.Contract)):
                value = op.acc
            elif isinstance(op, tile.TakeAlong):
                value = op.indices
            elif isinstance(op, loop.For):
                value = op.inits[value.index]
            elif isinstance(op, loop.If):
                value = _yielded(op.then.block.last)[value.index]
            elif isinstance(op, loop.While):
                value = _condition(op).values[value.index]
            else:  # elementwise: all tile operands have the extents of the result
                value = next(v for v in op.operands if isinstance(v.type, (TileType, TensorType)))

    def _gathered(self, op: tile.Gather, axis: int) -> Extent:
        rank = len(shape_of(op.buffer.type))
        kept = [i for i in range(rank) if i not in op.indexed and i not in op.dropped]
        before = sum(i < op.indexed[0] for i in kept)
        inner = len(shape_of(op.indices[0].type)) if op.indices else 0
        if before <= axis < before + inner:
            return self.along(op.indices[0], axis - before)
        from_sizes = [i for i in dynamic(op.out) if not before <= i < before + inner]
        return op.sizes[from_sizes.index(axis)]


def carry_extents(func: Operation, extents: Extents) -> None:
    """Adds the extents that change from iteration to iteration, or between the branches of an if, to the values of these ops."""
    regions = [op for op in func.walk() if isinstance(op, (loop.For, loop.If, loop.While)) and any(map(is_tile, _carried_and_results(op)))]
    changed = True
    while changed:
        changed = False
        for op in regions:
            for group in _unstable(op, extents):
                carried = _already_carried(op, group, extents)
                extents.phis.update(zip(group, carried or [None] * len(group)))
                changed = True
    extents.new = {key for key, value in extents.phis.items() if value is None}
    for op in regions:
        _create(op, extents)
    for op in regions:
        _connect(op, extents)


def _carried_and_results(op: Operation) -> Iterator[Value]:
    yield from op.results
    for region in op.regions:
        yield from region.block.args


def _unstable(op: loop.For | loop.If | loop.While, extents: Extents) -> Iterator[list[Phi]]:
    if isinstance(op, loop.For):
        for init, arg, end, result in zip(op.inits, op.carried, _yielded(op.body.block.last), op.results):
            for axis in dynamic(arg):
                if (arg, axis) not in extents.phis and extents.along(end, axis) != extents.along(init, axis):
                    yield [(arg, axis), (result, axis)]
        return
    if isinstance(op, loop.If):
        for a, b, result in zip(_yielded(op.then.block.last), _yielded(op.orelse.block.last), op.results):
            for axis in dynamic(result):
                extent = extents.along(a, axis)
                if (result, axis) not in extents.phis and (extent != extents.along(b, axis) or _inside(extent, op)):
                    yield [(result, axis)]
        return
    for init, arg, end in zip(op.inits, op.before.block.args, _yielded(op.body.block.last)):
        for axis in dynamic(arg):
            if (arg, axis) not in extents.phis and extents.along(end, axis) != extents.along(init, axis):
                yield [(arg, axis)]
    for given, arg, result in zip(_condition(op).values, op.body.block.args, op.results):
        for axis in dynamic(result):
            if (result, axis) not in extents.phis and _inside(extents.along(given, axis), op):
                yield [(arg, axis), (result, axis)]


def _already_carried(op: loop.For | loop.If | loop.While, group: list[Phi], extents: Extents) -> list[Value] | None:
    """The index values that carry these extents, when a pass before has added them."""
    tile_, axis = group[0]
    i = tile_.index - 1 if isinstance(op, loop.For) else tile_.index

    def twins(values: Sequence[Value]) -> set[int]:
        extent = extents.along(values[i], axis)
        same = {extent} if not isinstance(extent, int) else {v for v in values if arith.constant_value(v) == extent and v.type is index}
        return {j for j, v in enumerate(values) if v in same}

    if isinstance(op, loop.For):
        found = twins(op.inits) & twins(_yielded(op.body.block.last))
        lists = [op.carried, op.results]
    elif isinstance(op, loop.If):
        found = twins(_yielded(op.then.block.last)) & twins(_yielded(op.orelse.block.last))
        lists = [op.results]
    elif len(group) == 1:
        found = twins(op.inits) & twins(_yielded(op.body.block.last))
        lists = [op.before.block.args]
    else:
        found = twins(_condition(op).values)
        lists = [op.body.block.args, op.results]
    return [values[min(found)] for values in lists] if found else None


def _inside(extent: Extent, op: Operation) -> bool:
    """Whether the extent is computed in a region of `op`, and so cannot be seen behind it."""
    value = extent[0] if isinstance(extent, tuple) else extent
    if not isinstance(value, Value):
        return False
    if isinstance(extent, tuple) and value.op is op:
        return False
    at = value.op if value.op is not None else value.block.parent_op if value.block is not None else None
    return at is not None and op.is_ancestor_of(at) and value.op is not op


def _phis(values: Iterable[Value], extents: Extents) -> list[Phi]:
    """The phis of these values that are to be made."""
    return [(v, axis) for v in values for axis in dynamic(v) if (v, axis) in extents.new]


def _create(op: loop.For | loop.If | loop.While, extents: Extents) -> None:
    """Makes index values of the phis of `op`."""
    for key in _phis(list(op.results), extents):
        value = Value(index, op, len(op.results), f"{key[0].hint or 'tile'}_extent")
        op.results.append(value)
        extents.phis[key] = value
    for region in op.regions:
        for key in _phis(list(region.block.args), extents):
            extents.phis[key] = region.block.add_arg(index, f"{key[0].hint or 'tile'}_extent")


def _connect(op: loop.For | loop.If | loop.While, extents: Extents) -> None:
    """Gives the phis of `op` to it and to the ends of its regions."""
    results = [(v.index, axis) for v, axis in _phis(op.results, extents)]
    if isinstance(op, loop.For):
        _feed(Builder.at(op), op, [op.lower, op.upper, op.step], op.inits, results, extents)
        _feed_end(op.body.block.last, results, extents)
    elif isinstance(op, loop.If):
        for region in op.regions:
            _feed_end(region.block.last, results, extents)
    else:
        arguments = [(v.index, axis) for v, axis in _phis(op.before.block.args, extents)]
        _feed(Builder.at(op), op, [], op.inits, arguments, extents)
        _feed_end(op.body.block.last, arguments, extents)
        _feed_end(op.before.block.last, results, extents)


def _feed(build: Builder, op: Operation, lead: list[Value], values: tuple[Value, ...], keys: list[tuple[int, int]], extents: Extents) -> None:
    extra: list[Value] = []
    for i, axis in keys:
        extent = extents.along(values[i], axis)
        assert not isinstance(extent, tuple)
        extra.append(build(arith.index_constant(extent)) if isinstance(extent, int) else extent)
    if extra:
        op.set_operands([*lead, [*values, *extra]])


def _feed_end(end: Operation | None, keys: list[tuple[int, int]], extents: Extents) -> None:
    if isinstance(end, loop.Yield):
        _feed(Builder.at(end), end, [], end.values, keys, extents)
    elif isinstance(end, loop.Condition):
        _feed(Builder.at(end), end, [end.condition], end.values, keys, extents)


def _yielded(end: Operation | None) -> tuple[Value, ...]:
    assert isinstance(end, loop.Yield)
    return end.values


def _condition(op: loop.While) -> loop.Condition:
    end = op.before.block.last
    assert isinstance(end, loop.Condition)
    return end


def _source_of_argument(value: Value) -> Value:
    """What a block argument starts as."""
    assert value.block is not None
    op = value.block.parent_op
    if isinstance(op, loop.For):
        return op.inits[value.index - 1]
    if isinstance(op, loop.While):
        return op.inits[value.index] if value.block is op.before.block else _condition(op).values[value.index]
    raise VerifyError(op or next(iter(value.users)), f"a tile cannot be an argument of the block of '{op.name if op else '?'}'")
