"""canonicalize: every value in its simplest form. The rewrites are in passes/folding, by dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ir.core import Module
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.rewrite import Patterns, rewrite_greedily
from tilelang.passes.folding import arithmetic, control, registers, shapes

PATTERNS = Patterns("canonicalize")
for _part in (arithmetic, control, shapes, registers):
    PATTERNS.include(_part.patterns)


@register
@dataclass(frozen=True)
class Canonicalize(Pass):
    """Folds constants, applies the laws of arithmetic, resolves known control flow, joins chains of shape ops; drops dead pure ops."""

    name: ClassVar[str] = "canonicalize"

    def run(self, module: Module, ctx: PassContext) -> None:
        rewrite_greedily(module, PATTERNS)
