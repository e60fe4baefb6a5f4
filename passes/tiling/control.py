"""Loops and branches that carry whole tensors: each carried tensor has memory of its own, written at the end of each region.

The extents of a carried tensor are those of its initial value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilelang.dialects import loop
from tilelang.ir.core import Block, Builder, Operation, Value
from tilelang.ir.types import TensorType
from tilelang.passes.buffering import views

if TYPE_CHECKING:
    from tilelang.passes.tile import Lowering


def is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def has_tensors(op: Operation) -> bool:
    """Whether the op gives, carries or computes with tensors."""
    return any(is_tensor(v) for inner in op.walk() for v in (*inner.operands, *inner.results))


def lower(low: Lowering, op: loop.For | loop.If | loop.While) -> None:
    if isinstance(op, loop.For):
        _for(low, op)
    elif isinstance(op, loop.If):
        _if(low, op)
    else:
        _while(low, op)


def _for(low: Lowering, op: loop.For) -> None:
    places = _start(low, op.inits, op.carried)
    lower, upper, step = (low.scalars[v] for v in (op.lower, op.upper, op.step))
    new = low.build.insert(loop.For.of(lower, upper, step, _scalars(low, op.inits), hint=op.iv.hint))
    new.attrs.update(op.attrs)
    low.scalars[op.iv] = new.iv
    low.scalars.update(zip(_others(op.carried), new.carried))
    _region(low, op.body.block, new.body.block, places)
    _results(low, op, new, places)


def _if(low: Lowering, op: loop.If) -> None:
    places = [low.scratch(v) for v in op.results if is_tensor(v)]
    new = low.build.insert(loop.If.of(low.scalars[op.condition], [v.type for v in _others(op.results)]))
    for old, region in zip(op.regions, new.regions):
        _region(low, old.block, region.block, places)
    _results(low, op, new, places)


def _while(low: Lowering, op: loop.While) -> None:
    carried = _start(low, op.inits, op.before.block.args)
    given = [low.scratch(v) for v in op.results if is_tensor(v)]
    new = low.build.insert(loop.While.of(_scalars(low, op.inits), [v.type for v in _others(op.results)]))
    low.scalars.update(zip(_others(op.before.block.args), new.before.block.args))
    _region(low, op.before.block, new.before.block, given)
    _name(low, op.body.block.args, given)
    low.scalars.update(zip(_others(op.body.block.args), new.body.block.args))
    _region(low, op.body.block, new.body.block, carried)
    _results(low, op, new, given)


def _start(low: Lowering, inits: Sequence[Value], args: Sequence[Value]) -> list[Value]:
    """Memory for the carried tensors, with their initial values in it."""
    tensors = [v for v in inits if is_tensor(v)]
    places = [low.scratch(v) for v in tensors]
    for value, place in zip(tensors, places):
        low.copy(value, place)
    _name(low, args, places)
    return places


def _name(low: Lowering, values: Sequence[Value], places: Sequence[Value]) -> None:
    low.buffers.update(zip([v for v in values if is_tensor(v)], places))


def _results(low: Lowering, op: Operation, new: Operation, places: Sequence[Value]) -> None:
    _name(low, op.results, places)
    low.scalars.update(zip(_others(op.results), new.results))


def _region(low: Lowering, old: Block, new: Block, places: Sequence[Value]) -> None:
    """The contents of a region; at its end the tensors go to their places, all at once."""
    outer, low.build = low.build, Builder(new, span=low.build.span)
    low.block(old)
    end = old.last
    assert isinstance(end, (loop.Yield, loop.Condition))
    moves = [(v, p) for v, p in zip([v for v in end.values if is_tensor(v)], places) if low.buffers.get(v) is not p]
    written = {views.root(p) for _, p in moves}
    for value, _ in moves:
        if value in low.buffers and views.root(low.buffers[value]) in written:
            spare = low.scratch(value)
            low.copy(value, spare)
            low.buffers[value] = spare
    for value, place in moves:
        low.copy(value, place)
    scalars = _scalars(low, end.values)
    low.build.insert(loop.Yield.of(*scalars) if isinstance(end, loop.Yield) else loop.Condition.of(low.scalars[end.condition], *scalars))
    low.build = outer


def _others(values: Sequence[Value]) -> list[Value]:
    return [v for v in values if not is_tensor(v)]


def _scalars(low: Lowering, values: Sequence[Value]) -> list[Value]:
    return [low.scalars[v] for v in _others(values)]
