"""cleanup: canonicalize, cse, licm and dce until nothing changes; the last step at the vec level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ir.core import Module
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
        for _ in range(self.rounds):
            changed = rewrite_greedily(module, PATTERNS)
            for function in module.body.block:
                changed = bool(cse.eliminate(function)) or changed
                changed = bool(licm.hoist_all(function)) or changed
                changed = bool(dce.eliminate(function)) or changed
            if not changed:
                return
