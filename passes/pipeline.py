"""pipeline: the software pipeline of loops written as `pipelined(..., stages=n)`.

The meaning of such a loop is serial. Stages may overlap when what an iteration writes is not read by the copies of a later one; a loop of
which that is not certain stays serial, and a remark says which buffer is in the way. On a CPU an overlapped iteration would do the same work in
another order: caches and out-of-order execution already fetch ahead, and the buffers of several stages would only take more of the first-level
cache. So every loop leaves this pass with one stage. `pipelined` stays as a mark on the loops that were found independent: their copies may be
hoisted over the iteration before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import func, loop
from tilelang.ir.core import Module
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.passes.buffering import views


@register
@dataclass(frozen=True)
class Pipeline(Pass):
    """Checks that pipelined loops are independent and brings them to one stage, which is best on a CPU."""

    name: ClassVar[str] = "pipeline"
    before: ClassVar[str] = "mem"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            for op in function.walk():
                if isinstance(op, loop.For) and (op.pipelined or op.stages > 1):
                    name = hazard(op)
                    if name is not None:
                        op.pipelined = False
                        ctx.remark(f"the loop stays serial: an iteration may read what an earlier one wrote to '{name}'", op)
                    elif op.stages > 1:
                        ctx.remark(f"{op.stages} stages run as one: the caches of a CPU fetch ahead by themselves", op)
                    op.stages = 1


def hazard(op: loop.For) -> str | None:
    """Name of a buffer from outside the block of the grid that the loop both reads and writes, None when there is none. Local memory that holds
    carried tiles, or that is written anew in every iteration, is no hazard for the copies: they read global memory."""
    inside = [at for inner in op.body.block for at in inner.walk()]
    reads = {views.root(v) for at in inside for v in views.read(at)}
    for at in inside:
        for base in map(views.root, views.written(at)):
            if base in reads and views.buffer_type(base).space == "global":
                return base.hint or "a buffer"
    return None
