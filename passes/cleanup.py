"""cleanup: canonicalize, cse, licm and dce until nothing changes; the last step at the vec level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ir.core import Module, Operation
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.rewrite import Patterns, rewrite_greedily
from tilelang.passes import cse, dce, licm
from tilelang.passes.canonicalize import PATTERNS as EARLY
from tilelang.passes.folding.arithmetic import late

PATTERNS = Patterns("cleanup")
PATTERNS.include(EARLY)
PATTERNS.include(late)


@register
@dataclass(frozen=True)
class Cleanup(Pass):
    """Runs canonicalize, cse, licm and dce again and again, until a round changes nothing or `rounds` are over."""

    name: ClassVar[str] = "cleanup"
    rounds: int = 8

    def run(self, module: Module, ctx: PassContext) -> None:
        rewrite_greedily(module, PATTERNS)
        for _ in range(self.rounds):
            # What was moved out of loops first meets all that is equal to it, and what is merged afterwards can move no further.
            touched: list[Operation] = []
            removed = 0
            for function in module.body.block:
                licm.hoist_all(function)
                touched += cse.eliminate(function)
                removed += dce.eliminate(function)
            if removed:
                changed = rewrite_greedily(module, PATTERNS)
            else:
                # All other ops are as the rewrites have left them.
                changed = rewrite_greedily(module, PATTERNS, start=touched)
            if not changed and not removed:
                return
