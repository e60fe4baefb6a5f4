"""validate: what the builder checks in source programs, checked in IR, which may come from a file: accesses outside of memory, blocks of the grid that
write the same elements, buffers that are too large, element types that cannot be computed with, loops that cannot end.

Only what is certain is an error: an access that is outside whenever it is reached, a store whose place does not depend on an index of the grid, or
overlaps from one block to the next. What is reached under a condition gives a warning (accesses) or nothing (stores). The rest is checked when the kernel
runs, or by check mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from tilelang.diagnostics import Note
from tilelang.dialects import arith, func, loop, mem, tile
from tilelang.dialects.contract import Contract
from tilelang.ir.core import Module, Operation, Value
from tilelang.ir.expr import Expr, const
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import BufferType, Dyn, Scalar, element_of, shape_of
from tilelang.passes.affine import Scope
from tilelang.passes.buffering import views
from tilelang.passes.plan_memory import check_capacity

# Of an access along one axis: the offset, how many elements, and the distance between them.
Range: TypeAlias = "tuple[int, Expr, Expr, int]"

_STORAGE_ONLY = ("f8e4m3", "f8e5m2")
_COMPUTES = (tile.Reduce, tile.ArgReduce, tile.Scan, tile.AtomicRmw)


@register
@dataclass(frozen=True)
class Validate(Pass):
    """Reports accesses outside of memory, races between blocks, buffers too large, types that cannot be computed with."""

    name: ClassVar[str] = "validate"
    before: ClassVar[str] = "tile"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            scope = Scope()
            scope.assume_of(function)
            checker = _Checker(ctx, scope)
            for op in function.walk():
                checker.op(op)
            check_capacity(function, ctx)


class _Checker:
    def __init__(self, ctx: PassContext, scope: Scope) -> None:
        self.ctx, self.scope = ctx, scope

    def op(self, op: Operation) -> None:
        self.types(op)
        if isinstance(op, (loop.For, loop.Parallel)):
            self.steps(op)
        if isinstance(op, mem.Alloc):
            self.space(op)
        accesses = list(self.accesses(op))
        if accesses and not self.never_runs(op):
            for buffer, ranges in accesses:
                self.bounds(op, buffer, ranges)
            if isinstance(op, (tile.Store, mem.Store)):
                self.race(op, *accesses[0])

    # -- accesses

    def accesses(self, op: Operation) -> Iterator[tuple[Value, list[Range]]]:
        """What an op reads or writes, where that does not depend on data."""
        if isinstance(op, tile.Load) and op.pad is None:
            yield op.buffer, self.box(op.offsets, shape_of(op.out.type), op.sizes, op.dropped, op.steps)
        elif isinstance(op, tile.Store) or (isinstance(op, tile.AtomicRmw) and not op.indexed):
            yield op.buffer, self.box(op.offsets, shape_of(op.value.type), (), op.dropped, op.steps)
        elif isinstance(op, tile.Slice):
            yield op.x, self.box(op.offsets, shape_of(op.out.type), op.sizes, op.dropped, op.steps)
        elif isinstance(op, mem.Subview):
            yield op.buffer, self.box(op.offsets, shape_of(op.out.type), op.sizes, op.dropped, op.steps)
        elif isinstance(op, (mem.Load, mem.Store)):
            yield op.buffer if isinstance(op, mem.Load) else op.dst, self.box(op.indices, (), (), tuple(range(len(op.indices))), ())
        elif isinstance(op, tile.Extract):
            yield op.x, self.box(op.indices, (), (), tuple(range(len(op.indices))), ())
        elif isinstance(op, Contract):
            lhs, rhs, acc = op.letters
            extents = {letter: const(d) for letter, d in zip(acc, shape_of(op.acc.type)) if isinstance(d, int)}
            extents |= {"-": const(1), "k": self.scope.expr(op.depth), **dict.fromkeys(op.padded, const(0))}
            for buffer, offsets, letters in ((op.lhs, op.lhs_offsets, lhs), (op.rhs, op.rhs_offsets, rhs)):
                yield buffer, [(a, self.scope.expr(o), extents.get(x, const(0)), 1) for a, (o, x) in enumerate(zip(offsets, letters))]

    def box(
        self, offsets: tuple[Value, ...], shape: tuple[int | Dyn, ...], sizes: tuple[Value, ...], dropped: tuple[int, ...], steps: tuple[int, ...]
    ) -> list[Range]:
        """A range for each axis; an extent that is not given is taken as 0: there may be no element."""
        given = iter(sizes)
        extents = iter([const(d) if isinstance(d, int) else self.scope.expr(next(given)) if sizes else const(0) for d in shape])
        return [
            (axis, self.scope.expr(o), const(1) if axis in dropped else next(extents), steps[axis] if steps else 1)
            for axis, o in enumerate(offsets)
        ]

    def bounds(self, op: Operation, memory: Value, ranges: list[Range]) -> None:
        facts = self.scope.facts_at(op)
        if not all(facts.prove_ge(extent, 1) for _, _, extent, _ in ranges):
            return  # nothing may be touched
        for axis, start, extent, step in ranges:
            length = self.scope.extent(memory, axis)
            first, last = (start, start + (extent - 1) * step) if step > 0 else (start + (extent - 1) * step, start)
            below, beyond = facts.prove_lt(first, 0), length is not None and facts.prove_ge(last, length)
            if below or beyond:
                report = self.ctx.diagnostics.warning if _is_conditional(op) else self.ctx.diagnostics.error
                index = self.shown(first if below else last)
                report("index-out-of-bounds", op.span, index=index, axis=axis, what=_name(memory), length=self.shown(length))

    def shown(self, e: Expr | None) -> str:
        """An expression in the user's names, where there are such."""
        if e is None:
            return "?"
        text = str(e)
        for name in sorted(e.symbols(), key=len, reverse=True):
            text = text.replace(name, self.scope.values[name].hint or name)
        return text

    def never_runs(self, op: Operation) -> bool:
        """Whether the op stands in a loop without iterations: there everything can be proved."""
        around = op.parent_op
        while around is not None:
            pairs = [(around.lower, around.upper)] if isinstance(around, loop.For) else []
            if isinstance(around, loop.Parallel):
                pairs = list(zip(around.lowers, around.uppers))
            if any(self.scope.facts_at(around).prove_ge(self.scope.expr(lower), self.scope.expr(upper)) for lower, upper in pairs):
                return True
            around = around.parent_op
        return False

    # -- races

    def race(self, op: tile.Store | mem.Store, buffer: Value, ranges: list[Range]) -> None:
        """Reports a store whose place is the same, or overlaps, in different blocks of the grid."""
        grid = _grid_of(op)
        root = views.root(buffer)
        if grid is None or _is_conditional(op) or (root.op is not None and grid.is_ancestor_of(root.op)) or root is not buffer:
            return
        facts = self.scope.facts_at(grid)
        symbols = {name for _, start, _, _ in ranges for name in start.symbols()}
        inside = (self.scope.values[name] for name in symbols)
        if any(grid.is_ancestor_of(v.op) for v in inside if v.op is not None):
            return  # a place that was read or computed in a way that is not understood
        for iv, lower, upper, step in zip(grid.ivs, grid.lowers, grid.uppers, grid.steps):
            name = str(self.scope.expr(iv))
            one_block = facts.prove_ge(self.scope.expr(lower) + self.scope.expr(step), self.scope.expr(upper))
            if one_block:
                continue
            moving = [r for r in ranges if name in r[1].symbols()]
            why = ""
            if not moving:
                why = f"the place does not depend on the grid index '{iv.hint or name}'"
            elif len(moving) == 1:
                _, start, extent, stride = moving[0]
                width, distance = self.scope.expr(step).value, start.coefficient(name).value if start.is_affine([name]) else None
                count = extent.value
                if width is not None and distance is not None and count is not None and abs(stride) == 1 and abs(distance) * width < count:
                    why = f"a block writes {count} elements, the next one starts {abs(distance) * width} further"
            if why:
                notes = [Note("the blocks are those of this grid", grid.span)]
                self.ctx.diagnostics.error("block-race", op.span, notes, who="blocks of the grid", name=_name(buffer).strip("'"), why=why)

    # -- the rest

    def types(self, op: Operation) -> None:
        if isinstance(op, (tile.Matmul, Contract)):
            computed = [op.acc]
        elif isinstance(op, _COMPUTES):
            computed = [op.operands[0]]
        elif isinstance(op, arith.ELEMENTWISE) and not isinstance(op, (arith.Cast, arith.Bitcast, arith.Select)):
            computed = op.operands
        else:
            computed = []
        for value in computed:
            element = element_of(value.type)
            if element.name in _STORAGE_ONLY:
                help = "numbers of 8 bits are for storage: cast them first"
                self.ctx.diagnostics.error("dtype-unsupported", op.span, (), help, what=f"'{op.name}'", dtype=element)
                return
        if isinstance(op, (tile.Matmul, Contract)):
            for value in (op.lhs, op.rhs):
                element = element_of(value.type)
                if element.name not in self.ctx.target.throughput and not _is_plain_integer(element):
                    self.ctx.diagnostics.error("dtype-unsupported", op.span, what=f"a matrix product on {self.ctx.target.name}", dtype=element)

    def steps(self, op: loop.For | loop.Parallel) -> None:
        for step in (op.step,) if isinstance(op, loop.For) else op.steps:
            number = arith.constant_value(step)
            if number is not None and number <= 0:
                self.ctx.diagnostics.error("ir-rule", op.span, what=f"a loop with step {number} does not come to an end; steps are positive")

    def space(self, op: mem.Alloc) -> None:
        type = op.out.type
        assert isinstance(type, BufferType)
        known = {"global", "shared", "accumulator", "local"} | set(self.ctx.target.spaces)
        if type.space not in known:
            what = f"there is no memory '{type.space}' on {self.ctx.target.name}; there are {', '.join(sorted(known))}"
            self.ctx.diagnostics.error("ir-rule", op.span, what=what)


def _is_plain_integer(element: Scalar) -> bool:
    """i16 and the like are widened to 32 bits on any target."""
    return element.is_integer or element.name == "bool"


def _is_conditional(op: Operation) -> bool:
    """Whether it depends on data if the op runs at all."""
    around = op.parent_op
    while around is not None:
        if isinstance(around, (loop.If, loop.While)):
            return True
        around = around.parent_op
    return False


def _grid_of(op: Operation) -> loop.Parallel | None:
    around = op.parent_op
    while around is not None and not (isinstance(around, loop.Parallel) and around.grid):
        around = around.parent_op
    return around


def _name(memory: Value) -> str:
    name = memory.op.name_ if isinstance(memory.op, mem.Alloc) else ""
    name = name or memory.hint or ""
    return f"'{name}'" if name else f"a {memory.type}"
