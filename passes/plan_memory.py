"""plan-memory: where local memory goes, and which buffers share it.

Buffers of one block of code whose lives do not overlap get the same memory (linear scan). A buffer lives from its first to its last use, and
through the whole of a loop around them, unless every iteration writes it before it reads it. Of two such buffers of
similar size, the later becomes a view of the earlier. Small buffers of fixed size are marked `stack`, up to `stack` bytes a function; all others
come from the heap of the worker when their block of code starts.

A buffer that the user placed and that is larger than its memory space is an error: every buffer that lives there is named, with its size, and the
tunables whose values made it so large. On a CPU all spaces are memory and the second-level cache bounds each of them: registers hold
a part of an accumulator at a time."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from tilelang.diagnostics import Note
from tilelang.dialects import func, loop, mem
from tilelang.dialects.arith import index_constant
from tilelang.ir.core import Block, Builder, Module, Operation, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import BufferType, dim_bound
from tilelang.passes.buffering import views

ALIGNMENT = 64  # bytes; of every allocation


@register
@dataclass(frozen=True)
class PlanMemory(Pass):
    """Shares the memory of local buffers and puts small ones on the stack. stack: bytes of stack for one function."""

    name: ClassVar[str] = "plan-memory"
    before: ClassVar[str] = "mem"
    stack: int = 64 * 1024

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            check_capacity(function, ctx)
            room = self.stack
            order = {op: i for i, op in enumerate(function.walk())}
            for block in {op.parent: None for op in function.walk() if isinstance(op, mem.Alloc) and op.parent is not None}:
                share(block, order)
                for op in block:
                    if isinstance(op, mem.Alloc) and not op.sizes and _is_local(op) and (size := _rounded(op)) <= room:
                        op.stack = True
                        room -= size
        ctx.diagnostics.raise_if_errors()


def size_of(alloc: mem.Alloc) -> int | None:
    """Bytes of an allocation, None when they are only known at run time."""
    type = views.buffer_type(alloc.out)
    bounds = [dim_bound(d) for d in type.shape]
    if any(b is None for b in bounds):
        return None
    return prod(b for b in bounds if b is not None) * type.element.bytes


def _rounded(alloc: mem.Alloc) -> int:
    return -(-(size_of(alloc) or 0) // ALIGNMENT) * ALIGNMENT


def _is_local(alloc: mem.Alloc) -> bool:
    return views.buffer_type(alloc.out).space != "global"


def share(block: Block, order: dict[Operation, int]) -> None:
    """Gives the memory of buffers whose lives are over to later ones. order: numbers of all ops, outer before inner."""
    lives: list[tuple[int, int, mem.Alloc]] = []
    for op in block:
        if isinstance(op, mem.Alloc) and not op.sizes and size_of(op) is not None and _is_local(op) and (life := _life(op, order)):
            lives.append((*life, op))
    free: list[mem.Alloc] = []
    active: list[tuple[int, mem.Alloc]] = []
    for first, last, op in sorted(lives, key=lambda life: life[:2]):
        free += [owner for end, owner in active if end < first]
        active = [(end, owner) for end, owner in active if end >= first]
        # A small buffer in a large one would only lose its place on the stack.
        fitting = [a for a in free if (size_of(op) or 0) <= (size_of(a) or 0) <= 4 * (size_of(op) or 0) and _kind(a) == _kind(op)]
        if not fitting:
            active.append((last, op))
            continue
        owner = min(fitting, key=lambda a: size_of(a) or 0)
        free.remove(owner)
        active.append((last, owner))
        _become_view(op, owner)


def _life(alloc: mem.Alloc, order: dict[Operation, int]) -> tuple[int, int] | None:
    """First and last number of the ops during which the memory is needed."""
    uses = _uses(alloc, order)
    block = alloc.parent
    if not uses or block is None:
        return None
    while True:
        tops = {op.ancestor_in(block): None for op in uses}
        only = next(iter(tops))
        assert only is not None
        inner = [r.block for r in only.regions if uses[0].ancestor_in(r.block) is not None]
        if len(tops) > 1 or not inner or any(op.ancestor_in(inner[0]) is None for op in uses):
            break
        # Within one region of an op: in a loop the memory must be written anew each time. What the user placed may last.
        first = uses[0].ancestor_in(inner[0])
        if not isinstance(only, loop.If) and (first is not uses[0] or alloc.name_ or any(views.root(v) is alloc.out for v in views.read(uses[0]))):
            break
        block = inner[0]
    ends = [op for op in tops if op is not None]
    return order[ends[0]], max(order[inner_op] for inner_op in ends[-1].walk())


def _kind(alloc: mem.Alloc) -> tuple[str, str]:
    type = views.buffer_type(alloc.out)
    return type.space, type.element.name


def _uses(alloc: mem.Alloc, order: dict[Operation, int]) -> list[Operation]:
    """Ops that read or write the buffer or a view of it, in program order."""
    found: dict[Operation, None] = {}
    todo: list[Value] = [alloc.out]
    for value in todo:
        for user in value.users:
            if isinstance(user, views.VIEW_OPS):
                todo.append(user.results[0])
            elif not isinstance(user, mem.Dim):
                found[user] = None
    return sorted(found, key=order.__getitem__)


def _become_view(op: mem.Alloc, owner: mem.Alloc) -> None:
    """Replaces an allocation by the first bytes of another one, which comes before it."""
    mine, theirs = views.buffer_type(op.out), views.buffer_type(owner.out)
    assert op.parent is not None
    if not _precedes(owner, op):
        op.parent.insert_before(op, owner.detach())
    build = Builder.at(op)
    view = owner.out
    if mine.shape != theirs.shape:
        count, room = prod(d for d in mine.shape if isinstance(d, int)), prod(d for d in theirs.shape if isinstance(d, int))
        if len(theirs.shape) != 1:
            view = build(mem.ReshapeView.of(view, [], BufferType((room,), theirs.element, theirs.space)))
        if count != room:
            view = views.subview(build, view, [build(index_constant(0))], [], (count,))
        if mine.shape != (count,):
            view = build(mem.ReshapeView.of(view, [], BufferType(mine.shape, mine.element, mine.space)))
    op.replace_by(view)


def _precedes(a: Operation, b: Operation) -> bool:
    at: Operation | None = a
    while at is not None and at is not b:
        at = at.next
    return at is b


# -- capacity


def check_capacity(function: func.Func, ctx: PassContext) -> None:
    """Reports every buffer of the user that is larger than the space it lives in."""
    placed = [op for op in function.walk() if isinstance(op, mem.Alloc) and op.name_ and size_of(op) is not None]
    for op in placed:
        space, size = views.buffer_type(op.out).space, size_of(op) or 0
        if space == "global" or space not in ctx.target.spaces:
            continue
        limit = "shared" if ctx.target.kind == "cpu" else space
        if ctx.target.fits(limit, size):
            continue
        others = [a for a in placed if a is not op and views.buffer_type(a.out).space == space]
        notes = [Note(f"'{a.name_}' ({_shape(a)}) takes {size_of(a)} bytes of {space} too", a.span) for a in others]
        ctx.diagnostics.error(
            "buffer-too-large", op.span, notes, _remedy(function, op),
            what=f"'{op.name_}' ({_shape(op)})", needed=size, space=space, capacity=ctx.target.space(limit).capacity,
        )  # fmt: skip


def _shape(alloc: mem.Alloc) -> str:
    type = views.buffer_type(alloc.out)
    return f"{type.element}[{', '.join(str(dim_bound(d)) for d in type.shape)}]"


def _remedy(function: func.Func, alloc: mem.Alloc) -> str | None:
    """Which tunables to lower: those whose value is a factor of an extent of the buffer."""
    extents = [b for d in views.buffer_type(alloc.out).shape if (b := dim_bound(d)) is not None and b > 1]
    tunables: tuple[tuple[str, Any], ...] = function.attrs.get("tunables", ())
    knobs = [(name, v) for name, v in tunables if isinstance(v, int) and not isinstance(v, bool) and v > 1]
    found = [(name, v) for name, v in knobs if any(e % v == 0 for e in extents)]
    if not found:
        return "make an extent of the buffer smaller"
    return "lower " + " or ".join(f"{name} (it is {v})" for name, v in found)
