"""lower-to-vec: buffers become pointers, structured ops become loops over explicit vectors, grids become functions of their own.

Each function is translated op by op into a new body (vec_lowering/builder.py says what buffers become). Buffer parameters turn into a pointer, the
dims and the strides. A `loop.parallel {grid}` turns into `@name_grid0(begin, end, captured...)`, which runs the flat block numbers begin to end, and a
vec.launch. Memory from mem.alloc lives to the end of the region that holds it; what is not on the stack is freed there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tilelang.dialects import arith, dist, func, loop, mem, vec
from tilelang.ir.core import Block, Module, Operation, Region, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import BufferType, Dyn, PtrType, Scalar, Type, dim_bound, index
from tilelang.passes.vec_lowering.builder import Index, VecBuilder, View, dims_of, is_dense, row_major, subview, unsupported

if TYPE_CHECKING:
    from tilelang.target import Target


@register
@dataclass(frozen=True)
class LowerToVec(Pass):
    """Lowers mem to vec: pointers, loops and explicit vectors."""

    name: ClassVar[str] = "lower-to-vec"
    before: ClassVar[str] = "mem"
    after: ClassVar[str] = "vec"

    def run(self, module: Module, ctx: PassContext) -> None:
        for old in func.functions(module):
            talks = next((op for op in old.walk() if type(op) in dist.DIALECT.members), None)
            if talks is not None:
                ctx.diagnostics.error("needs-ranks", talks.span, what=f"'{old.sym_name}'")
        ctx.diagnostics.raise_if_errors()
        for old in func.functions(module):
            created = Lowering(old, ctx.target).run()
            for new in created:
                module.body.block.insert_before(old, new)
            old.erase()
        module.attrs["level"] = "vec"


class Lowering:
    """The translation of one function. b: inserts the new ops. view(v), value(v): what an old value has become."""

    def __init__(self, old: func.Func, target: Target) -> None:
        self.old = old
        self.target = target
        self.new = func.Func.of(old.sym_name, [], old.results_, old.span)
        self.new.attrs.update({k: v for k, v in old.attrs.items() if k not in ("roles", "sym_name")})
        self.b = VecBuilder(self.new.body.block, target, old.span)
        self.values: dict[Value, Value] = {}
        self.views: dict[Value, View] = {}
        self.grids: list[func.Func] = []
        self.roles: dict[Value, str] = {}
        self._heap: list[Value] = []  # of the region being translated

    def run(self) -> list[func.Func]:
        """The new functions: grids, then the function itself."""
        roles: list[str] = []
        for arg, role in zip(self.old.args, self.old.roles):
            roles += self._parameter(arg, role)
        self.new.attrs["roles"] = tuple(roles)
        self.block(self.old.body.block)
        return [*self.grids, self.new]

    def _parameter(self, arg: Value, role: str) -> list[str]:
        block = self.new.body.block
        if not isinstance(arg.type, BufferType):
            self.values[arg] = block.add_arg(arg.type, arg.hint)
            return [role]
        t, name = arg.type, arg.hint or "buffer"
        ptr = block.add_arg(PtrType(t.element, t.space), arg.hint)
        self.roles[ptr] = role
        given = [block.add_arg(index, f"{name}_{what}{i}") for what in ("dim", "stride") for i in range(len(t.shape))]
        dims: tuple[Index, ...] = tuple(d if isinstance(d, int) else given[i] for i, d in enumerate(t.shape))
        if t.strides is None:
            self.views[arg] = self._contiguous(ptr, dims, name, t.layout)
        else:
            strides = tuple(s if isinstance(s, int) else given[len(dims) + i] for i, s in enumerate(t.strides))
            self.views[arg] = View(ptr, 0, dims, strides, _dense(dims, strides), name, t.layout)
        return [role, *("scalar",) * len(given)]

    def _contiguous(self, ptr: Value, dims: tuple[Index, ...], name: str, layout: str | None = None) -> View:
        return View(ptr, 0, dims, row_major(self.b, dims), (True,) * max(0, len(dims) - 1), name, layout)

    # -- what values have become

    def value(self, v: Value) -> Value:
        """The new value of a scalar. Constants are made anew where they are used."""
        found = self.values.get(v)
        if found is None:
            assert isinstance(v.op, arith.Constant), f"{v} is used before it is translated"
            return self.b.const(v.op.value, v.type)  # pyright: ignore[reportArgumentType]
        return found

    def index(self, v: Value) -> Index:
        """The value of an index operand, as a number where it is known."""
        known = arith.constant_value(v)
        return known if isinstance(known, int) else self.value(v)

    def view(self, v: Value) -> View:
        return self.views[v]

    def define(self, old: Value, new: Value) -> None:
        self.values[old] = new
        if new.hint is None:
            new.hint = old.hint

    # -- ops

    def block(self, block: Block) -> tuple[Value, ...]:
        """Translates the ops of a block at the current place, frees its memory, and returns the new values of what it yields."""
        outer, self._heap = self._heap, []
        given: tuple[Value, ...] = ()
        end: Operation | None = None
        for op in block:
            self.b.span = op.span
            if op.terminator:
                given, end = tuple(self.value(v) for v in op.operands), op
            else:
                self.op(op)
        for ptr in reversed(self._heap):
            self.b.insert(vec.Free.of(ptr))
        self._heap = outer
        if isinstance(end, (func.Return, loop.Condition)):
            self.b.insert(type(end).of(*given))
        return given

    def op(self, op: Operation) -> None:
        if isinstance(op, arith.Constant):
            return
        handler = _handlers().get(type(op))
        if handler is not None:
            handler(op, self)
            return
        if isinstance(op, (loop.Print, loop.Breakpoint)):
            return  # compiled code has none
        if op.regions or any(not isinstance(v.type, Scalar) for v in [*op.operands, *op.results]):
            raise unsupported(op, "it has no lowering")
        new = type(op)([self.value(v) for v in op.operands], [r.type for r in op.results], op.attrs, span=op.span, segments=op.segments)
        self.b.insert(new)
        for a, c in zip(op.results, new.results):
            self.define(a, c)

    def region(self, old: Region, new: Block, args: list[tuple[Value, Value]]) -> None:
        """Translates a region into a new block, ended by a yield. args: (old, new) block arguments."""
        self.values.update(args)
        outer, self.b.block = self.b.block, new
        given = self.block(old.block)
        if not (new.last is not None and new.last.terminator):
            self.b.insert(loop.Yield.of(*given))
        self.b.block = outer


def _dense(dims: tuple[Index, ...], strides: tuple[Index, ...]) -> tuple[bool, ...]:
    return tuple(is_dense(strides[i], dims[i + 1], strides[i + 1]) for i in range(len(dims) - 1))


# -- control flow


def _for(op: loop.For, ctx: Lowering) -> None:
    new = loop.For.of(ctx.value(op.lower), ctx.value(op.upper), ctx.value(op.step), [ctx.value(v) for v in op.inits], hint=op.iv.hint)
    if op.unroll != 1:
        new.unroll = op.unroll
    ctx.b.insert(new)
    ctx.region(op.body, new.body.block, list(zip(op.body.block.args, new.body.block.args)))
    _results(op, new, ctx)


def _if(op: loop.If, ctx: Lowering) -> None:
    new = loop.If.of(ctx.value(op.condition), [r.type for r in op.results])
    ctx.b.insert(new)
    ctx.region(op.then, new.then.block, [])
    ctx.region(op.orelse, new.orelse.block, [])
    _results(op, new, ctx)


def _while(op: loop.While, ctx: Lowering) -> None:
    new = loop.While.of([ctx.value(v) for v in op.inits], [r.type for r in op.results])
    ctx.b.insert(new)
    ctx.region(op.before, new.before.block, list(zip(op.before.block.args, new.before.block.args)))
    ctx.region(op.body, new.body.block, list(zip(op.body.block.args, new.body.block.args)))
    _results(op, new, ctx)


def _results(old: Operation, new: Operation, ctx: Lowering) -> None:
    for a, c in zip(old.results, new.results):
        ctx.define(a, c)
        c.hint = a.hint


def _parallel(op: loop.Parallel, ctx: Lowering) -> None:
    if op.grid:
        _grid(op, ctx)
        return
    _nest(op, ctx, list(range(len(op.ivs))))


def _nest(op: loop.Parallel, ctx: Lowering, axes: list[int]) -> None:
    """Independent iterations, run one after the other."""
    if not axes:
        ctx.block(op.body.block)
        return
    a, b = axes[0], ctx.b
    new = loop.For.of(ctx.value(op.lowers[a]), ctx.value(op.uppers[a]), ctx.value(op.steps[a]), hint=op.ivs[a].hint)
    b.insert(new)
    ctx.values[op.ivs[a]] = new.iv
    outer, b.block = b.block, new.body.block
    _nest(op, ctx, axes[1:])
    b.insert(loop.Yield.of())
    b.block = outer


def _grid(op: loop.Parallel, ctx: Lowering) -> None:
    """The body in a function over flat block numbers, the last axis fastest; launched from here."""
    b = ctx.b
    lowers, uppers, steps = ([ctx.index(v) for v in group] for group in (op.lowers, op.uppers, op.steps))
    counts = [b.max(0, b.div(b.add(b.sub(u, low), b.sub(s, 1)), s)) for low, u, s in zip(lowers, uppers, steps)]
    total = b.value(b.product(counts))
    name = f"{ctx.old.sym_name}_grid{len(ctx.grids)}"
    body = func.Func.of(name, [("begin", index, "scalar"), ("end", index, "scalar")], span=op.span)
    ctx.grids.append(body)
    outer, b.block = b.block, body.body.block
    begin, end = body.args
    each = loop.For.of(begin, end, b.value(1), hint="block")
    b.insert(each)
    b.block = each.body.block
    rest: Index = each.iv
    for a in reversed(range(len(counts))):
        at = b.mod(rest, counts[a]) if a else rest
        rest = b.div(rest, counts[a]) if a else rest
        ctx.values[op.ivs[a]] = b.value(b.add(lowers[a], b.mul(at, steps[a])))
        ctx.values[op.ivs[a]].hint = ctx.values[op.ivs[a]].hint or op.ivs[a].hint
    ctx.block(op.body.block)
    b.insert(loop.Yield.of())
    b.block = body.body.block
    b.insert(func.Return.of())
    b.block = outer
    b.insert(vec.Launch.of(name, total, _capture(body, ctx)))


def _capture(body: func.Func, ctx: Lowering) -> list[Value]:
    """Makes parameters of what the function uses from outside; constants are copied into it. Returns the values to pass."""
    inside = {r for op in body.walk() for r in op.results} | {a for op in body.walk() for reg in op.regions for a in reg.block.args}
    inner: dict[Value, Value] = {}
    passed: list[Value] = []
    roles: list[str] = list(body.roles)
    copies: list[Operation] = []
    for op in body.walk():
        for i, v in enumerate(op.operands):
            if v in inside:
                continue
            if v not in inner:
                if isinstance(v.op, arith.Constant):
                    copies.append(v.op.clone())
                    inner[v] = copies[-1].results[0]
                else:
                    inner[v] = body.body.block.add_arg(v.type, v.hint)
                    passed.append(v)
                    roles.append(ctx.roles.get(v, "inout") if isinstance(v.type, PtrType) else "scalar")
            op.set_operand(i, inner[v])
    for copy in reversed(copies):
        body.body.block.insert_before(body.body.block.first, copy)
    body.attrs["roles"] = tuple(roles)
    return passed


# -- buffers


def _alloc(op: mem.Alloc, ctx: Lowering) -> None:
    t, b = op.out.type, ctx.b
    assert isinstance(t, BufferType)
    name = op.name_ or op.out.hint or ""
    dims = dims_of(t, [ctx.index(v) for v in op.sizes])
    # Room for the bound where there is one: such memory can be on the stack.
    room = b.room([bound if (bound := dim_bound(d)) is not None else n for d, n in zip(t.shape, dims)])
    stack = bool(op.attrs.get("stack")) and isinstance(room, int)
    ptr = b(vec.Alloc.of(b.value(room), PtrType(t.element, t.space), stack), op.out.hint or op.name_ or None)
    if not stack:
        ctx._heap.append(ptr)
    ctx.views[op.out] = ctx._contiguous(ptr, dims, name, t.layout)


def _dim(op: mem.Dim, ctx: Lowering) -> None:
    ctx.values[op.out] = ctx.b.value(ctx.view(op.buffer).dims[op.axis])


def _subview(op: mem.Subview, ctx: Lowering) -> None:
    t, source = op.out.type, ctx.view(op.buffer)
    dims = tuple(ctx.index(next_size) if isinstance(d, Dyn) else d for d, next_size in _with_sizes(t, op.sizes))
    ctx.views[op.out] = subview(ctx.b, source, [ctx.index(o) for o in op.offsets], dims, op.dropped, op.steps)


def _with_sizes(t: Type, sizes: tuple[Value, ...]) -> list[tuple[Any, Any]]:
    """(dim of the type, its size operand or None)"""
    rest = iter(sizes)
    assert isinstance(t, BufferType)
    return [(d, next(rest) if isinstance(d, Dyn) else None) for d in t.shape]


def _permute(op: mem.Permute, ctx: Lowering) -> None:
    v = ctx.view(op.buffer)
    dims, strides = tuple(v.dims[p] for p in op.perm), tuple(v.strides[p] for p in op.perm)
    kept = tuple(
        (op.perm[i + 1] == op.perm[i] + 1 and v.dense[op.perm[i]]) or is_dense(strides[i], dims[i + 1], strides[i + 1]) for i in range(len(dims) - 1)
    )
    ctx.views[op.out] = View(v.ptr, v.offset, dims, strides, kept, v.name, v.layout)


def _reshape(op: mem.ReshapeView, ctx: Lowering) -> None:
    v, t = ctx.view(op.buffer), op.out.type
    new = ctx._contiguous(v.ptr, tuple(ctx.index(s) if isinstance(d, Dyn) else d for d, s in _with_sizes(t, op.sizes)), v.name)
    ctx.views[op.out] = View(v.ptr, v.offset, new.dims, new.strides, new.dense, v.name)


def _wait(op: mem.Wait, ctx: Lowering) -> None:
    """Copies that were started are done when the next op begins: nothing to wait for."""


def _matmul(op: mem.Matmul, ctx: Lowering) -> None:
    from tilelang.passes.vec_lowering import matmul

    matmul.lower(op, ctx)


Handler = Callable[[Any, Lowering], None]
_table: dict[type[Operation], Handler] = {}


def _handlers() -> dict[type[Operation], Handler]:
    """op class -> function(op, lowering)."""
    if not _table:
        from tilelang.passes.vec_lowering import elementwise, indexed, padded, reduce, scan, transpose

        _table.update({
            loop.For: _for, loop.If: _if, loop.While: _while, loop.Parallel: _parallel, mem.Alloc: _alloc, mem.Dim: _dim, mem.Subview: _subview,
            mem.Permute: _permute, mem.ReshapeView: _reshape, mem.Wait: _wait, mem.Matmul: _matmul, mem.Map: elementwise.map_,
            mem.Copy: transpose.copy, mem.CopyAsync: transpose.copy, mem.Fill: elementwise.fill, mem.Iota: elementwise.iota,
            mem.Load: elementwise.load, mem.Store: elementwise.store, mem.CopyPadded: padded.copy_padded, mem.Reduce: reduce.reduce,
            mem.ArgReduce: reduce.arg_reduce, mem.Scan: scan.scan, mem.Gather: indexed.gather, mem.Scatter: indexed.scatter,
            mem.AtomicRmw: indexed.atomic_rmw, mem.TakeAlong: indexed.take_along,
        })  # fmt: skip
    return _table


