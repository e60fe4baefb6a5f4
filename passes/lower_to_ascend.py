"""lower-to-ascend: from buffers and structured ops to the instructions of one NPU core.

The grid becomes one loop in which a core takes every block_num-th block. Local buffers get addresses: those that products are added to in l0c, all
others in ub. A view of global memory is copied to ub where it is read, and from ub where it is written; operands of a product go through l1, in fractals, to
l0a and l0b. Elementwise regions become one vector instruction an op.

What it takes: static shapes, one grid, elementwise maps, reductions of the last axis, products of f16 or bf16 with extents that are multiples of 16. A kernel
runs on vector cores or on cube cores, not on both; one that needs both, and anything else, is refused (ascend-unsupported)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, NoReturn

from tilelang.dialects import arith, ascend, func, loop, mem
from tilelang.ir.core import Block, Builder, Module, Operation, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import BufferType, Scalar, bool_, element_of, f32, shape_of
from tilelang.target import Target

F = ascend.FRACTAL
_UNARY = {arith.Exp: "exp", arith.Log: "log", arith.Abs: "abs", arith.Sqrt: "sqrt"}
_BINARY = {arith.Add: "add", arith.Sub: "sub", arith.Mul: "mul", arith.Div: "div", arith.Max: "max", arith.Min: "min"}
_SCALAR = {"add": "adds", "mul": "muls", "max": "maxs", "min": "mins"}


@register
@dataclass(frozen=True)
class LowerToAscend(Pass):
    """Lowers mem to ascend: block-persistent cores, local memory at addresses, instructions of the vector and cube units."""

    name: ClassVar[str] = "lower-to-ascend"
    before: ClassVar[str] = "mem"
    after: ClassVar[str] = "ascend"

    def run(self, module: Module, ctx: PassContext) -> None:
        from tilelang.target import get_target

        target = ctx.target if ctx.target.kind == "ascend" else get_target("ascend910b")
        for old in func.functions(module):
            try:
                new = _Lowering(old, target, ctx).run()
            except _Refused:
                continue
            module.body.block.insert_before(old, new)
            old.erase()
        ctx.diagnostics.raise_if_errors()
        module.attrs["level"] = "ascend"


class _Refused(Exception):
    """An error was reported."""


@dataclass(frozen=True)
class _Global:
    """A view of global memory: offsets into all its axes, and the axes that the view keeps."""

    buffer: Value
    role: str
    offsets: tuple[Value, ...]
    shape: tuple[int, ...]
    kept: tuple[int, ...]


class _Lowering:
    def __init__(self, old: func.Func, target: Target, ctx: PassContext) -> None:
        self.old, self.target, self.ctx = old, target, ctx
        self.new = func.Func.of(old.sym_name, [], (), old.span)
        self.new.attrs.update({k: v for k, v in old.attrs.items() if k != "facts"})
        self.top = self.new.body.block
        self.b = Builder(self.top, span=old.span)
        self.values: dict[Value, Value] = {}
        self.views: dict[Value, _Global] = {}
        self.local: dict[Value, Value] = {}  # a buffer of the program, or a view already copied -> local memory
        self.shapes: dict[Value, tuple[int, ...]] = {}
        self.used: dict[str, int] = {}
        self.last_alloc: Operation | None = None
        self.unit: tuple[str, Operation] | None = None
        self.pending: dict[Value, Operation] = {}  # accumulators set to 0, which the next product does by itself
        self.firsts: dict[Value, Value] = {}  # accumulator -> in the loop around: whether this is the first iteration

    def run(self) -> func.Func:
        for arg, role in zip(self.old.args, self.old.roles):
            if isinstance(arg.type, BufferType):
                shape = self.static(arg, self.old)
                if len(shape) == 0:
                    self.refuse(self.old, f"the parameter '{arg.hint}'", "it has no axis")
                value = self.top.add_arg(BufferType(shape, arg.type.element, "global"), arg.hint)
                zero = self.b(arith.index_constant(0))
                self.views[arg] = _Global(value, role, (zero,) * len(shape), shape, tuple(range(len(shape))))
            else:
                self.values[arg] = self.top.add_arg(arg.type, arg.hint)
        self.body()
        return self.new

    def body(self) -> None:
        """All work is done in the blocks of one grid. A function without one is a single block; between two grids, all cores would have to meet."""
        block = self.old.body.block
        grids = [op for op in block if isinstance(op, loop.Parallel)]
        work = [op for op in block if isinstance(op, (loop.For, loop.If, loop.While, *mem.STRUCTURED, mem.Store, mem.CopyAsync))]
        if len(grids) > 1:
            self.refuse(grids[1], "a second grid", "cores do not wait for each other between grids yet")
        if grids and work:
            self.refuse(work[0], "work outside of the grid", "every core would do it")
        if grids or not work:
            self.block(block)
            return
        outer, new = self.b, self.blocks(1)
        self.b = Builder(new.body.block, span=self.old.span)
        for op in block:
            if op is not block.last:
                self.b.span = op.span or self.old.span
                self.op(op)
        self.b.insert(loop.Yield.of())
        self.b = outer
        self.b.insert(func.Return.of())

    # -- errors

    def refuse(self, op: Operation, what: str, why: str) -> NoReturn:
        self.ctx.diagnostics.error("ascend-unsupported", op.span or self.old.span, what=what, why=why)
        raise _Refused

    def static(self, value: Value, op: Operation) -> tuple[int, ...]:
        shape = shape_of(value.type)
        if not all(isinstance(d, int) for d in shape):
            self.refuse(op, f"{value.type}", "its extents must be constants: give the dims when the kernel is built, and blocks that divide them")
        return tuple(d for d in shape if isinstance(d, int))

    def on(self, unit: str, op: Operation) -> None:
        """Says that the kernel uses the vector or the cube unit, which are cores of their own."""
        if self.unit is None:
            self.unit = unit, op
        elif self.unit[0] != unit:
            self.refuse(op, f"a {unit} operation in a kernel with {self.unit[0]} operations", "they run on cores of their own, and kernels are not split yet")

    # -- memory

    def alloc(self, space: str, element: Scalar, size: int, name: str | None, op: Operation) -> Value:
        """Local memory behind what there is already, at the start of the function."""
        room = self.target.space(space)
        bytes = -(-size * element.bytes // room.alignment) * room.alignment
        address = self.used.get(space, 0)
        self.used[space] = address + bytes
        if room.capacity is not None and address + bytes > room.capacity:
            what = f"'{name}'" if name else "a temporary"
            help = "make the tiles of the block smaller"
            self.ctx.diagnostics.error("buffer-too-large", op.span or self.old.span, help=help, what=what, needed=address + bytes, space=space, capacity=room.capacity)
            raise _Refused
        new = ascend.Alloc.of(BufferType((size,), element, space), address)
        new.out.hint, new.span = name, op.span
        self.top.insert_before(self.last_alloc.next if self.last_alloc is not None else self.top.first, new)
        self.last_alloc = new
        return new.out

    def temporary(self, element: Scalar, size: int, op: Operation, name: str | None = None) -> Value:
        return self.alloc("ub", element, size, name, op)

    def box(self, view: _Global, op: Operation) -> tuple[int, int]:
        """Rows and columns of a view, which must be a box of the last two axes."""
        rank = len(shape_of(view.buffer.type))
        if view.kept != tuple(range(rank - len(view.kept), rank)) or len(view.kept) > 2:
            self.refuse(op, "this part of a tensor", "copies take the last one or two axes")
        return (1, view.shape[0]) if len(view.shape) == 1 else (view.shape[0], view.shape[1])

    def copy_in(self, view: _Global, op: Operation, name: str | None) -> Value:
        rows, cols = self.box(view, op)
        self.aligned(view, cols, op)
        dst = self.temporary(element_of(view.buffer.type), rows * cols, op, name)
        self.b.insert(ascend.DataCopy.of(view.buffer, dst, list(view.offsets), rows, cols))
        return dst

    def copy_out(self, src: Value, view: _Global, op: Operation) -> None:
        rows, cols = self.box(view, op)
        self.aligned(view, cols, op)
        self.b.insert(ascend.DataCopy.of(src, view.buffer, list(view.offsets), rows, cols))

    def aligned(self, view: _Global, cols: int, op: Operation) -> None:
        bytes = cols * element_of(view.buffer.type).bytes
        if bytes % 32:
            self.refuse(op, f"a copy of rows of {bytes} bytes", "copies move multiples of 32 bytes; there is no padding yet")

    def in_ub(self, value: Value, op: Operation) -> Value:
        """The local memory that holds what a buffer of the program holds now."""
        known = self.local.get(value)
        if known is not None:
            if ascend.buffer_type(known).space != "ub":
                self.refuse(op, "a vector operation on an accumulator of the cube unit", "they run on cores of their own, and kernels are not split yet")
            return known
        return self.copy_in(self.views[value], op, value.hint)

    # -- ops

    def block(self, block: Block) -> None:
        for op in block:
            before = self.b.span
            self.b.span = op.span or before
            self.op(op)
            self.b.span = before

    def op(self, op: Operation) -> None:
        match op:
            case func.Return():
                self.b.insert(func.Return.of())
            case loop.Parallel():
                self.grid(op)
            case loop.For():
                self.serial(op)
            case loop.Yield():
                self.b.insert(loop.Yield.of(*(self.values[v] for v in op.values)))
            case mem.Alloc():
                self.allocate(op)
            case mem.Subview():
                self.subview(op)
            case mem.Fill():
                self.fill(op)
            case mem.Matmul():
                self.matmul(op)
            case mem.Map():
                self.map(op)
            case mem.Reduce():
                self.reduce(op)
            case mem.Copy():
                self.copy(op)
            case _ if op.name.startswith("arith.") and all(isinstance(v.type, Scalar) for v in (*op.operands, *op.results)):
                self.b.insert(op.clone(self.values))
            case _:
                self.refuse(op, f"'{op.name}'", "there is no instruction for it yet")

    def grid(self, op: loop.Parallel) -> None:
        if not op.grid or op.parent_op is not self.old:
            self.refuse(op, "a parallel loop inside a block", "blocks are the only parallel loop")
        bounds = [[arith.constant_value(v) for v in group] for group in (op.lowers, op.uppers, op.steps)]
        if any(v is None for group in bounds for v in group):
            self.refuse(op, "this grid", "its bounds must be constants: give the dims when the kernel is built")
        counts = [max(0, -(-(int(upper) - int(lower)) // int(step))) for lower, upper, step in zip(*bounds)]  # pyright: ignore[reportArgumentType]
        new = self.blocks(prod(counts))
        outer, self.b = self.b, Builder(new.body.block, span=op.span)
        rest = new.iv
        for axis in reversed(range(len(counts))):
            count = self.b(arith.index_constant(counts[axis]))
            at = rest if axis == 0 else self.b(arith.Mod.of(rest, count))
            rest = rest if axis == 0 else self.b(arith.FloorDiv.of(rest, count))
            scaled = self.b(arith.Mul.of(at, self.values[op.steps[axis]]))
            self.values[op.ivs[axis]] = index = self.b(arith.Add.of(scaled, self.values[op.lowers[axis]]))
            index.hint = op.ivs[axis].hint
        self.block(op.body.block)
        self.b = outer

    def blocks(self, count: int) -> loop.For:
        """The loop over the blocks of this core."""
        start, step = self.b(ascend.BlockIdx.of()), self.b(ascend.BlockNum.of())
        return self.b.insert(loop.For.of(start, self.b(arith.index_constant(count)), step, hint="block"))

    def serial(self, op: loop.For) -> None:
        if op.inits:
            self.refuse(op, "a loop that carries values", "only buffers live across iterations")
        filled = self.accumulators(op)
        new = loop.For.of(self.values[op.lower], self.values[op.upper], self.values[op.step], hint=op.iv.hint)
        self.b.insert(new)
        self.values[op.iv] = new.iv
        outer, self.b = self.b, Builder(new.body.block, span=op.span)
        for acc in filled:
            self.firsts[acc] = self.b(arith.Cmp.of("eq", new.iv, self.values[op.lower]))
        self.block(op.body.block)
        self.b = outer
        for acc in filled:
            self.firsts.pop(acc, None)

    def accumulators(self, op: loop.For) -> list[Value]:
        """Accumulators set to 0 before a loop whose first product may set them instead: it is the only one in the loop, and the loop runs."""
        found: list[Value] = []
        for acc in list(self.pending):
            users = [u for u in op.walk() if acc in u.operands]
            if not users:
                continue
            lower, upper = arith.constant_value(op.lower), arith.constant_value(op.upper)
            if lower is None or upper is None or lower >= upper or len(users) != 1 or not isinstance(users[0], mem.Matmul) or users[0].parent is not op.body.block:
                self.refuse(op, "this loop over products", "it needs constant bounds, one product, and nothing else that uses the accumulator")
            del self.pending[acc]
            found.append(acc)
        return found

    def allocate(self, op: mem.Alloc) -> None:
        shape = self.static(op.out, op)
        element = element_of(op.out.type)
        cube = any(isinstance(u, mem.Matmul) and u.acc is op.out for u in op.out.users)
        if cube and element is not f32:
            self.refuse(op, f"a product summed in {element}", "the cube unit sums in f32")
        self.local[op.out] = self.alloc("l0c" if cube else "ub", element, prod(shape), op.out.hint, op)

    def subview(self, op: mem.Subview) -> None:
        shape = self.static(op.out, op)
        source = self.views.get(op.buffer)
        if source is None or len(source.kept) != len(op.offsets) or any(s != 1 for s in op.steps):
            self.refuse(op, "a part of a local buffer, or every other element", "views are boxes of global memory")
        offsets = list(source.offsets)
        for axis, offset in zip(source.kept, op.offsets):
            if arith.constant_value(offset) != 0:
                start = offsets[axis]
                offsets[axis] = self.values[offset] if arith.constant_value(start) == 0 else self.b(arith.Add.of(start, self.values[offset]))
        kept = tuple(a for i, a in enumerate(source.kept) if i not in op.dropped)
        self.views[op.out] = view = _Global(source.buffer, source.role, tuple(offsets), shape, kept)
        if view.role == "in" and any(not isinstance(u, (mem.Matmul, mem.Subview)) for u in op.out.users):
            self.on("vector", op)
            self.local[op.out] = self.copy_in(view, op, op.out.hint)  # once, for all that read it

    # -- vector unit

    def fill(self, op: mem.Fill) -> None:
        dst = self.local.get(op.dst)
        if dst is not None and ascend.buffer_type(dst).space == "l0c":
            if arith.constant_value(op.value) != 0:
                self.refuse(op, "an accumulator that starts from another number than 0", "the cube unit clears it with the first product")
            self.pending[op.dst] = op
            return
        self.on("vector", op)
        size = prod(self.static(op.dst, op))
        out = dst if dst is not None else self.temporary(element_of(op.dst.type), size, op)
        self.b.insert(ascend.Duplicate.of(out, self.values[op.value], size))
        if dst is None:
            self.copy_out(out, self.views[op.dst], op)

    def copy(self, op: mem.Copy) -> None:
        self.on("vector", op)
        source = self.in_ub(op.src, op)
        dst = self.local.get(op.dst)
        if dst is None:
            self.copy_out(source, self.views[op.dst], op)
            return
        # There is no copy inside ub: adding 0 would lose the sign of a zero, the maximum of a number with itself is the number.
        size = prod(self.static(op.dst, op))
        self.b.insert(ascend.Binary.of("max", dst, source, source, size))

    def map(self, op: mem.Map) -> None:
        if self.fixpipe(op):
            return
        self.on("vector", op)
        shape = self.static(op.outs[0], op)
        spread = [self.spread(v, axes, shape, op) for v, axes in zip(op.ins, op.maps)]
        targets = [self.local.get(out) for out in op.outs]
        results = self.region(op.body.block, spread, prod(shape), op, targets)
        for out, target, value in zip(op.outs, targets, results):
            result = self.materialised(value, element_of(out.type), prod(shape), op)
            if target is None:
                self.copy_out(result, self.views[out], op)
            elif result is not target:
                self.b.insert(ascend.Binary.of("max", target, result, result, prod(shape)))

    def spread(self, value: Value, axes: tuple[int, ...], shape: tuple[int, ...], op: Operation) -> Value:
        """An input of a map as a scalar, or as local memory with all elements of the map."""
        if isinstance(value.type, Scalar):
            return self.values[value]
        source = self.in_ub(value, op)
        if axes == tuple(range(len(shape))):
            return source
        kept = [i for i, a in enumerate(axes) if a >= 0]
        if len(shape) != 2 or len(kept) != 1 or self.static(value, op) != (shape[kept[0]],):
            self.refuse(op, f"a {len(shape)}-axis operation on {value.type}", "rows and columns of two axes can be repeated, nothing else")
        out = self.temporary(element_of(value.type), prod(shape), op)
        self.b.insert(ascend.Broadcast.of(out, source, kept[0], *shape))
        return out

    def region(self, block: Block, args: list[Value], size: int, op: Operation, targets: list[Value | None]) -> list[Value]:
        """The ops of an elementwise region, one instruction each. A value is a scalar or local memory; the last op writes to its target."""
        known: dict[Value, Value] = dict(zip(block.args, args))
        end = block.last
        assert isinstance(end, loop.Yield)
        for inner in block:
            if inner is end:
                break
            self.b.span = inner.span or op.span
            if isinstance(inner, arith.Constant) or all(isinstance(self.known(known, v).type, Scalar) for v in inner.operands):
                clone = inner.clone({v: self.known(known, v) for v in inner.operands})
                self.b.insert(clone)
                known[inner.results[0]] = clone.results[0]
                continue
            known[inner.results[0]] = self.instruction(inner, [self.known(known, v) for v in inner.operands], size, self.target_of(inner, end, targets, known))
        return [self.known(known, v) for v in end.values]

    def known(self, known: dict[Value, Value], v: Value) -> Value:
        return known[v] if v in known else self.values[v]

    def target_of(self, inner: Operation, end: loop.Yield, targets: list[Value | None], known: dict[Value, Value]) -> Value | None:
        """Where the result of an op of a region may be written at once: its only use is the end, and nothing behind it reads that memory."""
        out = inner.results[0]
        if len(out.uses) != 1 or out not in end.values or inner.next is not end:
            return None
        target = targets[end.values.index(out)]
        return target if target is not None and element_of(target.type) is element_of(out.type) else None

    def instruction(self, inner: Operation, args: list[Value], size: int, target: Value | None) -> Value:
        element = element_of(inner.results[0].type)
        if not element.is_float or element.bits > 32 or element.bits < 16 or (element.name == "bf16" and not isinstance(inner, arith.Cast)):
            self.refuse(inner, f"'{inner.name}' on {element}", "the vector unit computes in f16 and f32")
        dst = target if target is not None else self.temporary(element, size, inner, inner.results[0].hint)
        unary, binary = _UNARY.get(type(inner)), _BINARY.get(type(inner))  # pyright: ignore[reportArgumentType]
        if unary is not None:
            self.b.insert(ascend.Unary.of(unary, dst, args[0], size))
        elif isinstance(inner, arith.Cast):
            if not {element_of(args[0].type).name, element.name} <= {"f16", "bf16", "f32"} or (element.bits == element_of(args[0].type).bits == 16):
                self.refuse(inner, f"a cast of {element_of(args[0].type)} to {element}", "casts go between f32 and f16 or bf16")
            self.b.insert(ascend.Cast.of(dst, args[0], size))
        elif isinstance(inner, arith.Neg):
            minus = self.b(arith.Constant.of(-1.0, element))
            self.b.insert(ascend.WithScalar.of("muls", dst, args[0], minus, size))
        elif binary is not None:
            scalar = [isinstance(a.type, Scalar) for a in args]
            if scalar[0] and binary in ("add", "mul", "max", "min"):
                args, scalar = args[::-1], scalar[::-1]
            if scalar[1] and binary in _SCALAR:
                self.b.insert(ascend.WithScalar.of(_SCALAR[binary], dst, args[0], args[1], size))
            else:
                a, b = (self.materialised(a, element, size, inner) for a in args)
                self.b.insert(ascend.Binary.of(binary, dst, a, b, size))
        else:
            self.refuse(inner, f"'{inner.name}'", "there is no vector instruction for it yet")
        return dst

    def materialised(self, value: Value, element: Scalar, size: int, op: Operation) -> Value:
        """A scalar as local memory full of it."""
        if not isinstance(value.type, Scalar):
            return value
        out = self.temporary(element, size, op)
        self.b.insert(ascend.Duplicate.of(out, value, size))
        return out

    def reduce(self, op: mem.Reduce) -> None:
        self.on("vector", op)
        shape = self.static(op.srcs[0], op)
        if op.kind not in ("sum", "max", "min") or op.axes != (len(shape) - 1,) or len(shape) > 2:
            self.refuse(op, f"this reduction ({op.kind} of axes {list(op.axes)} of {len(shape)})", "sum, max and min of the last of at most two axes can be done")
        size = prod(shape)
        if op.body.block.first is None:
            source = self.in_ub(op.srcs[0], op)
        else:
            spread = [self.spread(v, axes, shape, op) for v, axes in zip(op.srcs, op.maps)]
            made, *_ = self.region(op.body.block, spread, size, op, [None])
            source = self.materialised(made, element_of(op.dst.type), size, op)
        element = element_of(op.dst.type)
        if element.name not in ("f16", "f32"):
            self.refuse(op, f"a reduction in {element}", "the vector unit computes in f16 and f32")
        rows, cols = prod(shape[:-1]), prod(shape[-1:])
        dst = self.local.get(op.dst)
        out = dst if dst is not None else self.temporary(element, rows, op)
        self.b.span = op.span or self.b.span
        self.b.insert(ascend.Reduce.of(op.kind, out, source, self.temporary(element, size, op), rows, cols))
        if dst is None:
            self.copy_out(out, self.views[op.dst], op)

    # -- cube unit

    def matmul(self, op: mem.Matmul) -> None:
        self.on("cube", op)
        left, right = self.views.get(op.lhs), self.views.get(op.rhs)
        acc = self.local.get(op.acc)
        if left is None or right is None or acc is None or (op.acc in self.pending and self.pending[op.acc].parent is not op.parent):
            self.refuse(op, "this product", "its operands must be parts of tensors, its sum a buffer of the block")
        (m, k), (_, n) = self.box(left, op), self.box(right, op)
        element = element_of(op.lhs.type)
        if element.name not in ("f16", "bf16") or element_of(op.rhs.type) is not element:
            self.refuse(op, f"a product of {element} and {element_of(op.rhs.type)}", "the cube unit takes f16 or bf16")
        if any(x % F for x in (m, n, k)):
            self.refuse(op, f"a product of {m} x {k} by {k} x {n}", f"extents must be multiples of {F}; there is no padding yet")
        near_a, near_b = (self.alloc("l1", element, size, name, op) for size, name in ((m * k, op.lhs.hint), (k * n, op.rhs.hint)))
        a, b = self.alloc("l0a", element, m * k, op.lhs.hint, op), self.alloc("l0b", element, k * n, op.rhs.hint, op)
        self.b.insert(ascend.DataCopy.of(left.buffer, near_a, list(left.offsets), m, k))
        self.b.insert(ascend.DataCopy.of(right.buffer, near_b, list(right.offsets), k, n))
        for i in range(m // F):  # a row of fractals each
            self.b.insert(ascend.Load2D.of(near_a, a, i * F * F, i * F * k, k // F, m // F))
        for i in range(k // F):
            self.b.insert(ascend.Load2D.of(near_b, b, i * F * F, i * F * n, n // F, k // F, transpose=True))
        self.b.insert(ascend.Mmad.of(acc, a, b, self.first(op), m, n, k))

    def first(self, op: mem.Matmul) -> Value:
        """Whether a product starts its sum: the first after the accumulator was set to 0."""
        if op.acc in self.firsts:
            return self.firsts[op.acc]
        cleared = self.pending.pop(op.acc, None) is not None
        return self.b(arith.Constant.of(cleared, bool_))

    def fixpipe(self, op: mem.Map) -> bool:
        """A map that only converts an accumulator on its way to global memory."""
        source = self.local.get(op.ins[0]) if len(op.ins) == 1 else None
        if source is None or ascend.buffer_type(source).space != "l0c":
            return False
        self.on("cube", op)
        body = [inner for inner in op.body.block if not isinstance(inner, loop.Yield)]
        plain = len(body) <= 1 and all(isinstance(inner, arith.Cast) for inner in body) and len(op.outs) == 1
        view = self.views.get(op.outs[0]) if len(op.outs) == 1 else None
        if not plain or view is None or op.maps[0] != (0, 1) or op.ins[0] in self.pending or element_of(op.outs[0].type).name not in ("f32", "f16", "bf16"):
            self.refuse(op, "arithmetic on the sum of a product", "the cube unit only converts it; kernels are not split into cube and vector parts yet")
        m, n = self.box(view, op)
        self.b.insert(ascend.Fixpipe.of(source, view.buffer, list(view.offsets), m, n))
        return True
