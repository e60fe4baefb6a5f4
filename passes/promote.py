"""promote: memory that holds whole tiles becomes tile values, so that a program written with buffers meets the same optimiser as one written with values.

First element loops (loop.parallel inside a block) over memory become elementwise arithmetic on tiles: promotion/elements.py. Then every buffer that is
only written as a whole, and only read at known times, becomes values, carried by loops and given by ifs: promotion/buffers.py. What cannot be
proved stays as it is; the later passes accept both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import func, loop
from tilelang.ir.core import Module
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.passes.promotion.buffers import promote
from tilelang.passes.promotion.elements import to_tiles


@register
@dataclass(frozen=True)
class Promote(Pass):
    """Turns buffers of whole tiles, and element loops over them, into tile values."""

    name: ClassVar[str] = "promote"
    before: ClassVar[str] = "tile"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            for op in list(function.walk(reverse=True)):
                if isinstance(op, loop.Parallel) and not op.grid:
                    to_tiles(op)
            for name in promote(function):
                ctx.remark(f"buffer '{name}' became values")
