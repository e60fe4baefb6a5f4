"""infer-layout: records how the operands of contractions lie in memory while they are multiplied, from the choice of block.

The accumulator is row-major. A packed operand lies in panels: of as many columns as the register tile for rhs, so that a step over K reads consecutive
elements, and row-major blocks of `cache_blocks` for lhs, whose rows are read side by side. Layouts are texts of tilelang.ir.layout, in the attributes
layout.acc, layout.lhs and layout.rhs; bufferize hands them on. Only static extents have a layout: where K is not known it is that of one block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import tile
from tilelang.dialects.contract import Contract
from tilelang.ir.core import Module
from tilelang.ir.layout import panel, row_major
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import dim_bound, shape_of
from tilelang.passes.block import depth_of


@register
@dataclass(frozen=True)
class InferLayout(Pass):
    """Records layouts of accumulators and packed operands of contractions."""

    name: ClassVar[str] = "infer-layout"
    before: ClassVar[str] = "tile"

    def run(self, module: Module, ctx: PassContext) -> None:
        for op in module.walk():
            if isinstance(op, (tile.Matmul, Contract)) and op.register_tile and op.cache_blocks:
                _annotate(op)


def _annotate(op: tile.Matmul | Contract) -> None:
    rows, columns = op.attrs["register_tile"]
    height, depth = op.attrs["cache_blocks"]
    m, n = (dim_bound(d) for d in shape_of(op.acc.type)[-2:])
    k = dim_bound(shape_of(op.lhs.type)[-1]) if isinstance(op, tile.Matmul) else dim_bound(depth_of(op))
    k = depth if k is None else min(k, depth)
    if m is not None and n is not None:
        op.attrs["layout.acc"] = str(row_major((m, n)))
        op.attrs["layout.rhs"] = str(panel((k, n), columns, 1))
        op.attrs["layout.lhs"] = str(row_major((min(-(-m // rows) * rows, height), k)))
