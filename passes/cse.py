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


def eliminate(function: Operation) -> list[Operation]:
    """Removes repeated ops from a function; the ops that have other operands now."""
    known: dict[Key, Operation] = {}
    touched: dict[Operation, None] = {}
    for r in function.regions:
        for b in r.blocks:
            _block(b, known, touched)
    return list(touched)


def _block(block: Block, known: dict[Key, Operation], touched: dict[Operation, None]) -> None:
    added: list[Key] = []
    for op in block:
        if op.regions:
            for r in op.regions:
                for b in r.blocks:
                    _block(b, known, touched)
        elif op.pure and not isinstance(op, tile.Fill):
            # Two fills may become two accumulators, and a fill is cheaper to make again than to copy.
            key = key_of(op)
            same = known.get(key)
            if same is None:
                known[key] = op
                added.append(key)
            else:
                for result in op.results:
                    for user, _ in result.uses:
                        touched[user] = None
                touched.pop(op, None)
                op.replace_by(*same.results)
    # What a region computes is not known behind it.
    for key in added:
        del known[key]


def key_of(op: Operation) -> Key:
    """Equal for ops that compute the same: class, operands, result types and attributes, with the order of commuting operands ignored."""
    operands = sorted(op.operands, key=id) if op.commutative else op.operands
    attrs = tuple((k, _exact(op.attrs[k])) for k in sorted(op.attrs)) if op.attrs else ()
    return type(op), tuple(operands), op.segments, tuple([r.type for r in op.results]), attrs


def _exact(value: Any) -> Any:
    """An attribute as part of a key: 1, 1.0 and True differ, as do 0.0 and -0.0; NaN equals itself."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (type(value), repr(value)) if isinstance(value, (bool, int, float)) else value
