"""Tiles carried by loops and given by `if`: one buffer each, written at the end of each region, copied only where the producer could not write there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilelang.dialects import loop, mem
from tilelang.ir.core import Block, Builder, Operation, Value, VerifyError
from tilelang.ir.types import Dyn, TileType
from tilelang.passes.buffering import views
from tilelang.passes.buffering.extents import dynamic, is_tile
from tilelang.passes.buffering.placement import Slot, Storage

if TYPE_CHECKING:
    from tilelang.passes.bufferize import Bufferizer


def for_(b: Bufferizer, op: loop.For) -> None:
    end = _yield(op.body.block)
    taken: list[Storage] = []
    for i, (init, arg, result) in enumerate(zip(op.inits, op.carried, op.results)):
        if is_tile(arg):
            slot = b.place.slots[end, i] = _carried_slot(b, op, init, arg, taken)
            taken.append(slot.storage)
            _record(b, arg, slot, Builder.at_start(op.body.block, op.span))
            _record(b, result, slot, Builder.after(op))
    b.block(op.body.block)
    _end(b, end)

    def finish() -> None:
        op.set_operands([op.lower, op.upper, op.step, _others(op.inits)])
        end.set_operands([_others(end.values)])
        _drop(op.body.block.args)
        _drop(op.results)

    b.finish.append(finish)


def while_(b: Bufferizer, op: loop.While) -> None:
    condition, end = op.before.block.last, _yield(op.body.block)
    assert isinstance(condition, loop.Condition)
    taken: list[Storage] = []
    for i, (init, arg) in enumerate(zip(op.inits, op.before.block.args)):
        if is_tile(arg):
            slot = b.place.slots[end, i] = _carried_slot(b, op, init, arg, taken)
            taken.append(slot.storage)
            _record(b, arg, slot, Builder.at_start(op.before.block, op.span))
    moves: list[tuple[Value, Slot]] = []
    given = list(condition.values)
    for op_in_before in list(op.before.block):
        if op_in_before is not condition:
            b.op(op_in_before)
    for value, arg, result in zip(given, op.body.block.args, op.results):
        if not is_tile(arg):
            continue
        if value in op.before.block.args and given.count(value) == 1 and b.place.slots[end, value.index].view is not None:
            slot = b.place.slots[end, value.index]  # handed on as it is: it stays where it is
        else:
            slot = _new_slot(b, op, result, stable=_stable(b, result, op))
            moves.append((value, slot))
        _record(b, arg, slot, Builder.at_start(op.body.block, op.span))
        _record(b, result, slot, Builder.after(op))
    _move(b, condition, moves)
    b.block(op.body.block)
    _end(b, end)

    def finish() -> None:
        op.set_operands([_others(op.inits)])
        condition.set_operands([condition.condition, _others(given)])
        end.set_operands([_others(end.values)])
        for values in (op.before.block.args, op.body.block.args, op.results):
            _drop(values)

    b.finish.append(finish)


def if_(b: Bufferizer, op: loop.If) -> None:
    ends = [_yield(region.block) for region in op.regions]
    taken: list[Storage] = []
    for i, result in enumerate(op.results):
        if is_tile(result):
            slot = _branch_slot(b, op, result, [end.values[i] for end in ends], taken)
            taken.append(slot.storage)
            for end in ends:
                b.place.slots[end, i] = slot
            _record(b, result, slot, Builder.after(op))
    for end in ends:
        assert end.parent is not None
        b.block(end.parent)
        _end(b, end)

    def finish() -> None:
        for end in ends:
            end.set_operands([_others(end.values)])
        _drop(op.results)

    b.finish.append(finish)


def _branch_slot(b: Bufferizer, op: loop.If, result: Value, given: Sequence[Value], taken: Sequence[Storage]) -> Slot:
    """The buffer of a result of an `if`: that of a value from before which a branch hands on and which ends here, else a new one."""
    stable = _stable(b, result, op)
    for value in given:
        storage = b.place.storage.get(value)
        if stable and storage is not None and storage not in taken and b.place.is_free(storage, op, behind=True):
            return Slot(storage, b.place.of[value])
    return _new_slot(b, op, result, stable)


def _record(b: Bufferizer, value: Value, slot: Slot, build: Builder) -> None:
    view = slot.view
    if view is None:
        assert isinstance(value.type, TileType)
        view = b.place.view(slot.storage, value.type, b.extents.sizes(value), build)
    b.place.record(value, view, slot.storage)


def _stable(b: Bufferizer, value: Value, op: Operation) -> bool:
    """Whether the extents of `value` are known before `op` runs (and are the same all the time)."""
    return all(_owner(size) is not op for size in b.extents.sizes(value))


def _owner(value: Value) -> Operation | None:
    """The op that gives a value, or that has it as an argument of a region."""
    return value.op or (value.block.parent_op if value.block is not None else None)


def _new_slot(b: Bufferizer, op: Operation, value: Value, stable: bool) -> Slot:
    type = value.type
    assert isinstance(type, TileType)
    sizes = b.extents.sizes(value)
    for axis, size in zip(dynamic(value), sizes):
        d = type.shape[axis]
        if isinstance(d, Dyn) and d.bound is None and _owner(size) is op:
            raise VerifyError(op, f"axis {axis} of {type} changes its extent and has no bound, so that no memory can be set aside for it")
    storage = b.place.allocate(type, sizes, op, value.hint)
    return Slot(storage, b.place.view(storage, type, sizes, Builder.at(op)) if stable else None)


def _carried_slot(b: Bufferizer, op: loop.For | loop.While, init: Value, arg: Value, taken: Sequence[Storage]) -> Slot:
    """The buffer of a carried tile: the one of its initial value when that ends here, else a new one that starts as a copy."""
    stable = _stable(b, arg, op)
    source, storage = b.place.of.get(init), b.place.storage.get(init)
    assert source is not None and storage is not None, "an initial value has a buffer"
    if stable and storage not in taken and b.place.is_free(storage, op):
        storage.buffer.hint = arg.hint or storage.buffer.hint
        return Slot(storage, source)
    slot = _new_slot(b, op, arg, stable)
    build = Builder.at(op)
    assert isinstance(arg.type, TileType)
    target = slot.view or b.place.view(slot.storage, arg.type, b.extents.sizes(init), build)
    build.insert(mem.Copy.of(source, target))
    return slot


def _end(b: Bufferizer, end: loop.Yield) -> None:
    """Brings the tiles that a region yields to their places."""
    _move(b, end, [(v, b.place.slots[end, i]) for i, v in enumerate(end.values) if is_tile(v)])


def _move(b: Bufferizer, at: Operation, moves: Sequence[tuple[Value, Slot]]) -> None:
    """Copies values to their slots, all at once: a source in memory that another copy writes is saved first."""
    build = Builder.at(at)
    targets: list[Storage] = [slot.storage for _, slot in moves]
    copies: list[tuple[Value, Value]] = []
    for value, slot in moves:
        source = b.place.of[value]
        assert isinstance(value.type, TileType)
        target = slot.view or b.place.view(slot.storage, value.type, b.extents.sizes(value), build)
        if views.same_view(source, target):
            continue
        if b.place.storage[value] in targets:
            spare, _ = b.place.fresh(value, build, at)
            build.insert(mem.Copy.of(source, spare))
            source = spare
        copies.append((source, target))
    for source, target in copies:
        build.insert(mem.Copy.of(source, target))


def _yield(block: Block) -> loop.Yield:
    end = block.last
    assert isinstance(end, loop.Yield)
    return end


def _others(values: Sequence[Value]) -> list[Value]:
    return [v for v in values if not is_tile(v)]


def _drop(values: list[Value]) -> None:
    """Takes the tiles out of a list of results or arguments."""
    values[:] = _others(values)
    for i, v in enumerate(values):
        v.index = i
