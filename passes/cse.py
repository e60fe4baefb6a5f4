"""cse: one op for equal pure ops, where one stands before the other in the same region or one around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.dialects import tile
from tilelang.ir.core import Block, Module, Operation
from tilelang.ir.passes import Pass, PassContext, register

Key = tuple[Any, ...]


@register
@dataclass(frozen=True)
class Cse(Pass):
    """Replaces a pure op without regions by an equal one that dominates it."""

    name: ClassVar[str] = "cse"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in module.body.block:
            eliminate(function)


def eliminate(function: Operation) -> int:
    """Removes repeated ops from a function; how many."""
    known: dict[Key, Operation] = {}
    return sum(_block(b, known) for r in function.regions for b in r.blocks)


def _block(block: Block, known: dict[Key, Operation]) -> int:
    added: list[Key] = []
    removed = 0
    for op in block:
        if op.regions:
            removed += sum(_block(b, known) for r in op.regions for b in r.blocks)
        elif op.pure and not isinstance(op, tile.Fill):
            # Two fills may become two accumulators, and a fill is cheaper to make again than to copy.
            key = key_of(op)
            same = known.get(key)
            if same is None:
                known[key] = op
                added.append(key)
            else:
                op.replace_by(*same.results)
                removed += 1
    # What a region computes is not known behind it.
    for key in added:
        del known[key]
    return removed


def key_of(op: Operation) -> Key:
    """Equal for ops that compute the same: class, operands, result types and attributes, with the order of commuting operands ignored."""
    operands = sorted(op.operands, key=id) if op.commutative else op.operands
    attrs = tuple((k, _exact(op.attrs[k])) for k in sorted(op.attrs))
    return type(op), tuple(operands), op.segments, tuple([r.type for r in op.results]), attrs


def _exact(value: Any) -> Any:
    """An attribute as part of a key: 1, 1.0 and True differ, as do 0.0 and -0.0; NaN equals itself."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (type(value), repr(value)) if isinstance(value, (bool, int, float)) else value
