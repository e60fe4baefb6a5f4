"""parallelize: grids become one run of block numbers, which threads share out among them; other parallel loops become serial loops.

A grid of any rank becomes a loop.parallel {grid} from 0 to the number of blocks by 1 (row-major order: the last axis is fastest, so that neighbours
in a chunk share rows); its indices are recovered by division. How many blocks a thread takes at a time is decided when the kernel runs, by
the thread pool, which knows the number of threads. A grid that certainly has one block is no loop at all.

A loop.parallel inside a block is an element loop. Where it only loads, computes and stores elements at its own indices (permuted, shifted by
something that does not change in the loop, or without some of them) it becomes a mem.map, which is vectorised; else a nest of loop.for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import arith, func, loop, mem
from tilelang.dialects.arith import constant_value
from tilelang.ir.core import Builder, Module, Operation, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import DYN, Dim
from tilelang.passes.buffering import views
from tilelang.passes.buffering.index import Index


@register
@dataclass(frozen=True)
class Parallelize(Pass):
    """Flattens grids to one axis of blocks; element loops become mem.map or serial loops."""

    name: ClassVar[str] = "parallelize"
    before: ClassVar[str] = "mem"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            for op in list(function.walk(reverse=True)):
                if isinstance(op, loop.Parallel):
                    if op.grid and not _inside_parallel(op):
                        flatten(op)
                    elif not to_map(op):
                        to_loops(op)


def _inside_parallel(op: Operation) -> bool:
    parent = op.parent_op
    return parent is not None and (isinstance(parent, loop.Parallel) or _inside_parallel(parent))


def flatten(op: loop.Parallel) -> None:
    """Makes a grid one axis of block numbers, or plain code when there is certainly one block."""
    build = Builder.at(op)
    ix = Index(build)
    trips = [ix.trips(*bounds) for bounds in zip(op.lowers, op.uppers, op.steps)]
    total = ix(1)
    for n in trips:
        total = ix.mul(total, n)
    if constant_value(total) == 1:
        inline(op, list(op.lowers))
        return
    if len(trips) == 1 and constant_value(op.lowers[0]) == 0 and constant_value(op.steps[0]) == 1:
        return
    flat = loop.Parallel.of([ix(0)], [total], [ix(1)], grid=True, hints=["block"])
    build.insert(flat)
    inner = Index(Builder(flat.body.block, span=op.span))
    rest = flat.ivs[0]
    ivs: list[Value] = []
    for axis in reversed(range(len(trips))):
        # The first axis needs no remainder.
        number = rest if axis == 0 else inner.mod(rest, trips[axis])
        rest = rest if axis == 0 else inner.floordiv(rest, trips[axis])
        ivs.insert(0, inner.add(inner.mul(number, op.steps[axis]), op.lowers[axis]))
    for iv, new in zip(op.ivs, ivs):
        iv.replace_by(new)
    for inner_op in op.body.block:
        flat.body.block.append(inner_op.detach())
    op.erase()


def inline(op: loop.Parallel, ivs: list[Value]) -> None:
    """Puts the body in the place of the loop."""
    for iv, value in zip(op.ivs, ivs):
        iv.replace_by(value)
    assert op.parent is not None
    for inner in op.body.block:
        if not inner.terminator:
            op.parent.insert_before(op, inner.detach())
    op.erase()


def to_loops(op: loop.Parallel) -> None:
    """A nest of serial loops over the same indices, the first axis outermost."""
    build = Builder.at(op)
    ivs: list[Value] = []
    if not op.ivs:
        inline(op, [])
        return
    for lower, upper, step, iv in zip(op.lowers, op.uppers, op.steps, op.ivs):
        nest = build.insert(loop.For.of(lower, upper, step, hint=iv.hint))
        ivs.append(nest.iv)
        build = Builder(nest.body.block, nest.body.block.append(loop.Yield.of()), op.span)
    for iv, value in zip(op.ivs, ivs):
        iv.replace_by(value)
    for inner in op.body.block:
        if not inner.terminator:
            build.insert(inner.detach())
    op.erase()


# -- element loops


@dataclass
class _Access:
    """A load or store of one element: for each axis of the buffer the loop index that runs along it, or None, and what is added to it."""

    op: mem.Load | mem.Store
    buffer: Value
    indices: tuple[Value, ...]
    axes: list[int | None]
    offsets: list[Value | None]

    @property
    def place(self) -> tuple[Value, tuple[Value, ...]]:
        return self.buffer, self.indices

    @property
    def run(self) -> list[int]:
        """The loop index of each axis of the view."""
        return [a for a in self.axes if a is not None]


def to_map(op: loop.Parallel) -> bool:
    """Makes an element loop a mem.map when every access is at its own indices. Leaves it alone, and returns False, when one is not."""
    unit = all(constant_value(lower) == 0 and constant_value(step) == 1 for lower, step in zip(op.lowers, op.steps))
    accesses = _accesses(op) if unit and op.ivs else None
    if accesses is None:
        return False
    loads = [a for a in accesses if isinstance(a.op, mem.Load)]
    stores = [a for a in accesses if isinstance(a.op, mem.Store)]
    if not stores or not _orderly(loads, stores):
        return False
    build = Builder.at(op)
    ix = Index(build)
    # Stores fix the order of the axes: axis i of the map is loop index i.
    outs: dict[tuple[Value, tuple[Value, ...]], Value] = {}
    for a in stores:
        view = _view(op, a, build, ix)
        order = tuple(a.run.index(i) for i in range(len(op.ivs)))
        outs[a.place] = view if order == tuple(range(len(order))) else build(mem.Permute.of(view, order))
    ins: list[Value] = []
    maps: list[tuple[int, ...]] = []
    for a in loads:
        updated = outs.get(a.place)
        ins.append(_view(op, a, build, ix) if updated is None else updated)
        maps.append(tuple(range(len(op.ivs))) if updated is not None else tuple(a.run.index(i) if i in a.run else -1 for i in range(len(op.ivs))))
    new = build.insert(mem.Map.of(ins, list(outs.values()), tuple(maps)))
    for a, arg in zip(loads, new.body.block.args):
        a.op.replace_by(arg)
    values = [a.op.value for a in stores if isinstance(a.op, mem.Store)]
    for a in stores:
        a.op.erase()
    for inner in op.body.block:
        if not inner.terminator:
            if any(v in op.ivs for v in inner.operands):
                inner.erase()  # index arithmetic of an access
            else:
                new.body.block.append(inner.detach())
    new.body.block.append(loop.Yield.of(*values))
    op.erase()
    return True


def _accesses(op: loop.Parallel) -> list[_Access] | None:
    """All accesses of the body, None when there is anything but accesses at loop indices and arithmetic on what they read."""
    found: list[_Access] = []
    body = op.body.block
    for inner in body:
        if isinstance(inner, (mem.Load, mem.Store)):
            runs = [_along(op, v) for v in inner.indices]
            access = _Access(
                inner, inner.buffer if isinstance(inner, mem.Load) else inner.dst, inner.indices,
                [r[0] for r in runs if r is not None], [r[1] for r in runs if r is not None],
            )  # fmt: skip
            if None in runs or len(set(access.run)) != len(access.run) or access.buffer.block is body:
                return None
            if isinstance(inner, mem.Store) and len(access.run) != len(op.ivs):
                return None
            found.append(access)
        elif not inner.terminator and (inner.regions or not inner.pure or not inner.name.startswith("arith.")):
            return None
    # A loop index that is used as a number would have to be made first.
    for user, i in [use for iv in op.ivs for use in iv.uses]:
        shifted = [_is_place(*use) for use in user.results[0].uses] if isinstance(user, arith.Add) and _along(op, user.results[0]) else [False]
        if not (_is_place(user, i) or all(shifted)):
            return None
    return found


def _along(op: loop.Parallel, value: Value) -> tuple[int | None, Value | None] | None:
    """An index as (loop index or None, what is added to it), None when it is neither a loop index, nor one shifted, nor fixed in the loop."""
    if value in op.ivs:
        return value.index, None
    if value.block is not op.body.block:
        return None, value
    if isinstance(value.op, arith.Add):
        for a, b in ((value.op.a, value.op.b), (value.op.b, value.op.a)):
            if a in op.ivs and b.block is not op.body.block:
                return a.index, b
    return None


def _is_place(user: Operation, i: int) -> bool:
    """Whether operand `i` of an op is an index of an access."""
    return isinstance(user, mem.Load) or (isinstance(user, mem.Store) and i > 0)


def _orderly(loads: list[_Access], stores: list[_Access]) -> bool:
    """Whether all loads can come before all stores: of one buffer only the very element that is stored afterwards is read."""
    roots = [views.root(s.buffer) for s in stores]
    if len(set(roots)) != len(roots):
        return False
    for load in loads:
        for store, base in zip(stores, roots):
            if views.root(load.buffer) is base and (load.place != store.place or not _before(load.op, store.op)):
                return False
    return True


def _before(a: Operation, b: Operation) -> bool:
    at: Operation | None = a
    while at is not None and at is not b:
        at = at.next
    return at is b


def _view(op: loop.Parallel, access: _Access, build: Builder, ix: Index) -> Value:
    """What the loop touches of a buffer: its box along loop indices, one element along the others."""
    extents = [op.uppers[a] for a in access.run]
    shape: list[Dim] = [DYN if (n := constant_value(e)) is None else max(0, int(n)) for e in extents]
    if all(o is None for o in access.offsets) and DYN not in shape and list(views.buffer_type(access.buffer).shape) == shape:
        return access.buffer
    dropped = [i for i, a in enumerate(access.axes) if a is None]
    offsets = [ix(0) if o is None else o for o in access.offsets]
    return views.subview(build, access.buffer, offsets, [e for e, d in zip(extents, shape) if d is DYN], shape, dropped)
