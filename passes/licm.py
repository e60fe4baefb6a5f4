"""licm: moves pure ops out of loops that they do not depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import loop, mem, tile
from tilelang.ir.core import Block, Module, Operation, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import Scalar, TensorType, TileType

# In bounds only where the program reaches them: an assertion may stand before.
INDEXED = (tile.Extract, tile.Slice, tile.TakeAlong, mem.Subview)
# Cheaper to make again in each trip than to keep: in place they become the buffer that the trip works on.
MATERIALIZED = (tile.Fill, tile.Iota, tile.Broadcast)


@register
@dataclass(frozen=True)
class Licm(Pass):
    """Moves invariant pure ops before loop.for, loop.while and loop.parallel; out of a grid only scalars, which every block can share."""

    name: ClassVar[str] = "licm"

    def run(self, module: Module, ctx: PassContext) -> None:
        hoist_all(module)


def hoist_all(root: Operation) -> int:
    """Hoists from all loops inside, inner ones first; how many ops moved."""
    return sum(hoist(op) for op in list(root.walk(reverse=True)) if isinstance(op, (loop.For, loop.While, loop.Parallel)))


def hoist(around: Operation) -> int:
    """Moves invariant ops of a loop before it; how many."""
    grid = isinstance(around, loop.Parallel) and around.grid
    moved = 0
    for region in around.regions:
        block = region.block
        for op in block:
            if op.pure and not isinstance(op, INDEXED) and not _stays(op, grid) and _is_invariant(op, block, around):
                assert around.parent is not None
                around.parent.insert_before(around, op.detach())
                moved += 1
    return moved


def _stays(op: Operation, grid: bool) -> bool:
    if grid:
        return not all(isinstance(r.type, Scalar) for r in op.results)
    return isinstance(op, MATERIALIZED) and isinstance(op.results[0].type, (TileType, TensorType))


def _is_invariant(op: Operation, block: Block, around: Operation) -> bool:
    """Whether an op of a block of a loop uses only values from outside the loop."""
    for v in op.operands:
        if v.block is block:
            return False
    return not op.regions or all(_outside(v, around) for v in reads(op))


def reads(op: Operation) -> list[Value]:
    """The values that an op uses, those that its regions use from outside included."""
    found = list(op.operands)
    if op.regions:
        found += [v for inner in op.walk() if inner is not op for v in inner.operands if _outside(v, op)]
    return found


def _outside(value: Value, op: Operation) -> bool:
    """Whether a value is defined outside the regions of an op."""
    block = value.block
    return block is None or not op.is_ancestor_of(block.parent_op)
