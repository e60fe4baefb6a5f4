"""Element loops to tiles: `for r, c in parallel(R, C)` over scalar loads, arithmetic and stores becomes loads, arithmetic and stores of tiles.

Every value of the body becomes a tile with one axis for each loop index it depends on, and is broadcast only where it meets others; what depends on none
stays a scalar. The loop must have static extents, and each access must read or write, along every axis of the memory, one loop index (times a
constant, plus something that does not change) or none. A store must use all indices, or iterations would write the same element; what is stored in the
loop may be read only at the very element that is stored, as the iterations are then independent."""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.dialects import arith, loop, mem, tile
from tilelang.ir.core import Builder, Operation, Value
from tilelang.ir.expr import Expr, const
from tilelang.ir.types import BufferType, Scalar, TileType, element_of, i64, index, shape_of
from tilelang.passes.affine import Scope
from tilelang.passes.buffering import views


@dataclass(frozen=True)
class _Access:
    """Where an op reads or writes: for each axis of the memory the loop index that moves along it (or None), its factor, and the rest."""

    buffer: Value
    indices: tuple[int | None, ...]
    factors: tuple[int, ...]
    rests: tuple[Expr, ...]


@dataclass(frozen=True)
class _Item:
    """What a value of the body has become: a tile with these loop indices as axes, in order; a scalar when there are none."""

    value: Value
    axes: tuple[int, ...]


class _Stop(Exception):
    """The loop has something that has no form on tiles."""


def to_tiles(op: loop.Parallel) -> bool:
    """Replaces an element loop by ops on tiles; False, and nothing changed, when that cannot be proved to be the same."""
    try:
        plan = _Plan(op)
    except _Stop:
        return False
    plan.emit()
    op.erase()
    return True


class _Plan:
    def __init__(self, op: loop.Parallel) -> None:
        self.op = op
        self.scope = Scope()
        self.lowers = [self.scope.expr(v) for v in op.lowers]
        self.extents: list[int] = []
        for lower, upper, step in zip(op.lowers, op.uppers, op.steps):
            extent = (self.scope.expr(upper) - self.scope.expr(lower)).value
            if extent is None or extent <= 0 or self.scope.expr(step).value != 1:
                raise _Stop
            self.extents.append(extent)
        self.names = [str(self.scope.expr(v)) for v in op.ivs]
        self.accesses: dict[Operation, _Access] = {}
        for inner in op.body.block:
            self._inspect(inner)
        self._check_independence()

    def _inspect(self, op: Operation) -> None:
        if isinstance(op, (mem.Load, mem.Store)):
            self.accesses[op] = self._access(op)
        elif not isinstance(op, (*arith.ELEMENTWISE, arith.Constant, loop.Yield)):
            raise _Stop

    def _access(self, op: mem.Load | mem.Store) -> _Access:
        buffer = op.buffer if isinstance(op, mem.Load) else op.dst
        if self._inside(buffer):
            raise _Stop
        indices: list[int | None] = []
        factors: list[int] = []
        rests: list[Expr] = []
        for value in op.indices:
            e = self.scope.expr(value)
            if not e.is_affine(self.names):
                raise _Stop
            coefficients, rest = e.linear(self.names)
            moving = [(i, coefficients[name].value) for i, name in enumerate(self.names) if name in coefficients and coefficients[name] != const(0)]
            if len(moving) > 1 or any(self._inside(self.scope.values[s]) for s in rest.symbols()):
                raise _Stop
            which, factor = moving[0] if moving else (None, 1)
            if factor is None or factor < 1:
                raise _Stop
            indices.append(which)
            factors.append(factor)
            rests.append(rest if which is None else rest + self.lowers[which] * factor)
        used = [i for i in indices if i is not None]
        if len(set(used)) != len(used) or (isinstance(op, mem.Store) and len(used) != len(self.names)):
            raise _Stop
        return _Access(buffer, tuple(indices), tuple(factors), tuple(rests))

    def _check_independence(self) -> None:
        for store, written in self.accesses.items():
            if isinstance(store, mem.Store):
                root = views.root(written.buffer)
                for other in self.accesses.values():
                    if views.root(other.buffer) is root and other != written:
                        raise _Stop

    def _inside(self, value: Value) -> bool:
        at = value.op if value.op is not None else value.block.parent_op if value.block is not None else None
        return at is None or self.op.is_ancestor_of(at)

    # -- the same on tiles

    def emit(self) -> None:
        self.build = build = Builder.at(self.op)
        self.items: dict[Value, _Item] = {}
        current: dict[Value, _Item] = {}  # what the loop has stored in a buffer
        for op in self.op.body.block:
            build.span = op.span
            if isinstance(op, mem.Load):
                access = self.accesses[op]
                self.items[op.out] = current.get(access.buffer) or self._load(access)
                if self.items[op.out].value.hint is None:
                    self.items[op.out].value.hint = op.out.hint
            elif isinstance(op, mem.Store):
                access = self.accesses[op]
                current[access.buffer] = item = self._item(op.value)
                self._store(item, access)
            elif isinstance(op, arith.Constant):
                self.items[op.out] = _Item(build(op.clone()), ())
            elif not isinstance(op, loop.Yield) and not self._only_index(op):
                self._compute(op)

    def _only_index(self, op: Operation) -> bool:
        """Whether an op only computes where accesses are."""
        result = op.results[0]
        return result.type is index and all(isinstance(u, (mem.Load, mem.Store)) or self._only_index(u) for u in result.users)

    def _item(self, value: Value) -> _Item:
        """What a value has become; an index of the loop becomes a tile of its values."""
        found = self.items.get(value)
        if found is not None:
            return found
        if not self._inside(value):
            return _Item(value, ())
        if value in self.op.ivs:
            i = self.op.ivs.index(value)
            start = self.op.lowers[i]
            made = _Item(self.build(tile.Iota.of(start, [], TileType((self.extents[i],), i64))), (i,))
        else:
            assert value.op is not None
            self._compute(value.op)
            return self.items[value]
        self.items[value] = made
        return made

    def _compute(self, op: Operation) -> None:
        items = [self._item(v) for v in op.operands]
        axes = tuple(sorted({a for item in items for a in item.axes}))
        result = op.results[0]
        element = element_of(result.type)
        if axes:
            operands = [self._lift(item, axes) for item in items]
            type = TileType(tuple(self.extents[a] for a in axes), i64 if element is index else element)
            if isinstance(op, arith.Cast) and operands[0].type is type:
                self.items[result] = _Item(operands[0], axes)
                return
        else:
            operands, type = [item.value for item in items], result.type
        new = self.build(op.__class__(operands, [type], op.attrs))
        new.hint = result.hint
        self.items[result] = _Item(new, axes)

    def _lift(self, item: _Item, axes: tuple[int, ...]) -> Value:
        """The tile with all these axes; a scalar index becomes a number of 64 bits."""
        value = item.value
        if item.axes == axes:
            return value
        if element_of(value.type) is index:
            value = self.build(arith.Cast.of(value, i64))
        type = TileType(tuple(self.extents[a] for a in axes), element_of(value.type))
        if not item.axes:
            return self.build(tile.Fill.of(value, [], type))
        return self.build(tile.Broadcast.of(value, tuple(axes.index(a) for a in item.axes), [], type))

    def _places(self, access: _Access) -> tuple[list[Value], tuple[int, ...], tuple[int, ...]]:
        """Offsets, dropped axes and steps of an access."""
        offsets = [self.scope.build(rest, self.build) for rest in access.rests]
        dropped = tuple(axis for axis, i in enumerate(access.indices) if i is None)
        return offsets, dropped, access.factors

    def _load(self, access: _Access) -> _Item:
        offsets, dropped, steps = self._places(access)
        order = [i for i in access.indices if i is not None]
        element = element_of(access.buffer.type)
        if not order:
            return _Item(self.build(mem.Load.of(access.buffer, offsets)), ())
        type = TileType(tuple(self.extents[i] for i in order), element)
        value = self.build(tile.Load.of(access.buffer, offsets, [], type, dropped=dropped, steps=steps))
        if order != sorted(order):
            value = self.build(tile.Transpose.of(value, tuple(order.index(i) for i in sorted(order))))
        return _Item(value, tuple(sorted(order)))

    def _store(self, item: _Item, access: _Access) -> None:
        value = self._lift(item, tuple(range(len(self.extents))))
        order = [i for i in access.indices if i is not None]
        if order != sorted(order):
            value = self.build(tile.Transpose.of(value, tuple(order)))
        offsets, dropped, steps = self._places(access)
        self.build.insert(tile.Store.of(value, access.buffer, offsets, dropped, steps))


def is_whole(access: tile.Load | tile.Store) -> bool:
    """Whether a load or store touches all of a buffer of static extents."""
    buffer = access.buffer.type
    assert isinstance(buffer, BufferType)
    kind = access.out.type if isinstance(access, tile.Load) else access.value.type
    if isinstance(kind, Scalar) or access.dropped or access.steps or not all(isinstance(d, int) for d in buffer.shape):
        return False
    return shape_of(kind) == buffer.shape and all(arith.constant_value(o) == 0 for o in access.offsets)
