"""bufferize: from tile values to buffers, in destination-passing style.

Every tile gets a buffer: a view of the program's memory where it is loaded and nothing overwrites that memory while the tile is needed, else local
memory. An op writes its result, in this order of preference, where its only use stores it; where a loop or an `if` around it wants it; over an
operand that ends there; into new memory. A tile carried by a loop has one buffer for the whole loop, and a copy is made at the end of the
body only where its producer could not write there. The choice is in buffering/placement.py, extents are in buffering/extents.py,
carried values in buffering/control.py. Copies come first where any doubt is left; nothing is ever recomputed from memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.dialects import arith, dist, func, loop, mem, tile
from tilelang.dialects.contract import is_empty
from tilelang.ir.core import Block, Builder, Module, Operation, Region, Value, VerifyError
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import DYN, BufferType, Dim, Dyn, Scalar, TileType, dim_bound, element_of, shape_of
from tilelang.passes.buffering import control, views
from tilelang.passes.buffering.extents import Extent, Extents, carry_extents, is_tile
from tilelang.passes.buffering.index import Index
from tilelang.passes.buffering.placement import Placement


@register
@dataclass(frozen=True)
class Bufferize(Pass):
    """Gives every tile value a buffer; ops then write into buffers."""

    name: ClassVar[str] = "bufferize"
    before: ClassVar[str] = "tile"
    after: ClassVar[str] = "mem"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            bufferize(function)
        module.attrs["level"] = "mem"


def bufferize(function: func.Func) -> None:
    """Rewrites one function in place."""
    _separate_fills(function)
    _sink_producers(function)
    extents = Extents()
    carry_extents(function, extents)
    bufferizer = Bufferizer(function, extents)
    bufferizer.block(function.body.block)
    for finish in bufferizer.finish:
        finish()
    for op in bufferizer.dead[::-1]:
        op.erase()


def _separate_fills(function: func.Func) -> None:
    """Gives every accumulator that starts from a fill a fill of its own: cheaper than a copy of a shared one."""
    for op in list(function.walk()):
        for i, v in enumerate(op.operands):
            fill = v.op
            accumulates = isinstance(op, (loop.For, loop.While)) or (isinstance(op, tile.Matmul) and i == 2) or (isinstance(op, tile.Contract) and i == 0)
            if accumulates and len(v.uses) > 1 and isinstance(fill, (tile.Fill, arith.Constant)) and is_tile(v):
                op.set_operand(i, Builder.at(op)(fill.clone()))


class Bufferizer:
    """Works through the blocks in program order. Tile ops stay until the end, since the questions about liveness are asked of them."""

    def __init__(self, function: func.Func, extents: Extents) -> None:
        self.extents = extents
        self.place = Placement(function, extents)
        self.dead: list[Operation] = []
        self.finish: list[Callable[[], None]] = []  # takes the tiles off the loops, at the end

    def block(self, block: Block) -> None:
        for op in list(block):
            self.op(op)

    def op(self, op: Operation) -> None:
        if isinstance(op, (loop.Yield, loop.Condition)):
            return  # the loop around it sees to these
        rule = _RULES.get(type(op))
        if rule is not None:
            rule(self, op, Builder.at(op))
            return
        if isinstance(op, loop.For):
            control.for_(self, op)
        elif isinstance(op, loop.While):
            control.while_(self, op)
        elif isinstance(op, loop.If):
            control.if_(self, op)
        elif isinstance(op, arith.ELEMENTWISE):
            if is_tile(op.results[0]):
                self.map(op, Builder.at(op))
        else:
            for region in op.regions:
                self.block(region.block)
            for i, v in enumerate(op.operands):
                if is_tile(v):
                    if not isinstance(op, (loop.Print, loop.Breakpoint)):
                        raise VerifyError(op, "has a tile operand that bufferize has no rule for")
                    op.set_operand(i, self.place.of[v])

    # -- elementwise

    def scalar_in(self, value: Value, build: Builder) -> Value | None:
        """The number in every element of a tile that is a fill or a constant."""
        if isinstance(value.op, tile.Fill):
            return value.op.value
        if isinstance(value.op, arith.Constant):
            return build(arith.Constant.of(value.op.attrs["value"], element_of(value.type)))
        return None

    def parts(self, op: Operation, build: Builder) -> _Parts:
        """The inputs of an elementwise op or a tile.map, as those of a mem.map."""
        rank = len(shape_of(op.results[0].type))
        identity = tuple(range(rank))
        reads = zip(op.ins, op.maps) if isinstance(op, tile.Map) else ((v, identity) for v in op.operands)
        found = _Parts([], [], [])
        by_map: dict[Value, set[tuple[int, ...]]] = {}
        for v, axes in reads:
            scalar = v if not is_tile(v) else self.scalar_in(v, build)
            found.ins.append(scalar if scalar is not None else self.place.of[v])
            found.maps.append((-1,) * rank if scalar is not None else axes)
            if scalar is None:
                by_map.setdefault(v, set()).add(axes)
        found.in_place += [v for v, axes in by_map.items() if axes == {identity}]
        return found

    def map(self, op: Operation, build: Builder) -> None:
        if folds_into_reduce(op):
            return  # see reduce
        parts = self.parts(op, build)
        targets: list[Value] = []
        for out in op.results:
            taken = [self.place.storage[o] for o in op.results[: len(targets)]]
            targets.append(self.place.choose(out, op, build, parts.in_place, taken))
        new = build.insert(mem.Map.of(parts.ins, targets, tuple(parts.maps)))
        _fill_region(op, new.body.block)
        self.dead.append(op)

    def broadcast(self, op: tile.Broadcast, build: Builder) -> None:
        rank = len(shape_of(op.out.type))
        source = shape_of(op.x.type)
        axis_of = [-1] * rank
        for axis, d in enumerate(op.dims):
            # An axis of length 1 that is repeated is read at 0: it is dropped from the view.
            if source[axis] != 1 or shape_of(op.out.type)[d] == 1:
                axis_of[d] = axis
        repeated = [axis for axis, d in enumerate(op.dims) if axis_of[d] == -1]
        scalar = self.scalar_in(op.x, build)
        view = scalar if scalar is not None else self.place.of[op.x]
        if scalar is not None:
            axis_of = [-1] * rank
        elif repeated:
            kept = [axis for axis in range(len(source)) if axis not in repeated]
            axis_of = [kept.index(a) if a >= 0 else -1 for a in axis_of]
            sizes = self.extents.sizes(op.x)
            view = views.subview(build, view, [self.place.zero] * len(source), sizes, [source[a] for a in kept], repeated)
        dst = self.place.choose(op.out, op, build)
        new = build.insert(mem.Map.of([view], [dst], (tuple(axis_of),)))
        new.body.block.append(loop.Yield.of(new.body.block.args[0]))
        self.dead.append(op)

    # -- values without operands

    def fill(self, op: Operation, build: Builder) -> None:
        out = op.results[0]
        if not is_tile(out):
            return
        # Elementwise users read the number itself.
        if not all(_reads_number(user) for user in out.users):
            value = self.scalar_in(out, build)
            assert value is not None
            build.insert(mem.Fill.of(value, self.place.choose(out, op, build)))
        self.dead.append(op)

    def iota(self, op: tile.Iota, build: Builder) -> None:
        build.insert(mem.Iota.of(op.start, self.place.choose(op.out, op, build), op.step))
        self.dead.append(op)

    # -- memory

    def load(self, op: tile.Load, build: Builder) -> None:
        if op.tokens:
            build.insert(mem.Wait.of(*op.tokens))
        shape = shape_of(op.out.type)
        if isinstance(op.out.type, Scalar):
            assert op.pad is None
            op.out.replace_by(build(mem.Load.of(op.buffer, list(op.offsets))))
        elif op.pad is not None:
            dst = self.place.choose(op.out, op, build)
            build.insert(mem.CopyPadded.of(op.buffer, list(op.offsets), op.pad, dst, op.dropped, op.steps))
        else:
            view = views.subview(build, op.buffer, op.offsets, op.sizes, shape, op.dropped, op.steps)
            if self.place.clobbered(op):
                build.insert(mem.Copy.of(view, self.place.choose(op.out, op, build)))
            else:
                self.place.record(op.out, view, self.place.external(op.buffer))
        self.dead.append(op)

    def store(self, op: tile.Store, build: Builder) -> None:
        self.dead.append(op)
        if op in self.place.stored:
            return
        if not is_tile(op.value):
            build.insert(mem.Store.of(op.value, op.buffer, list(op.offsets)))
            return
        view = views.subview(build, op.buffer, op.offsets, self.extents.sizes(op.value), shape_of(op.value.type), op.dropped, op.steps)
        build.insert(mem.Copy.of(self.place.of[op.value], view))

    def put(self, op: dist.Put, build: Builder) -> None:
        if is_tile(op.value):
            op.set_operand(0, self.place.of[op.value])

    def gather(self, op: tile.Gather, build: Builder) -> None:
        dst = self.place.choose(op.out, op, build)
        indices = [self.place.of[i] for i in op.indices]
        build.insert(mem.Gather.of(op.buffer, indices, list(op.offsets), dst, op.indexed, op.dropped, op.steps))
        self.dead.append(op)

    def scatter(self, op: tile.Scatter, build: Builder) -> None:
        indices = [self.place.of[i] for i in op.indices]
        source = self.place.of[op.value]
        build.insert(mem.Scatter.of(source, op.buffer, indices, list(op.offsets), op.indexed, op.dropped, op.steps))
        self.dead.append(op)

    def atomic(self, op: tile.AtomicRmw, build: Builder) -> None:
        indices = [self.place.of[i] for i in op.indices]
        source = self.place.of[op.value] if is_tile(op.value) else op.value
        build.insert(mem.AtomicRmw.of(op.kind, source, op.buffer, indices, list(op.offsets), op.indexed, op.dropped, op.steps))
        self.dead.append(op)

    # -- views

    def slice(self, op: tile.Slice, build: Builder) -> None:
        source = self.place.of[op.x]
        if isinstance(op.out.type, Scalar):
            op.out.replace_by(build(mem.Load.of(source, list(op.offsets))))
        else:
            view = views.subview(build, source, op.offsets, op.sizes, shape_of(op.out.type), op.dropped, op.steps)
            self.place.record(op.out, view, self.place.storage[op.x])
        self.dead.append(op)

    def transpose(self, op: tile.Transpose, build: Builder) -> None:
        view = build(mem.Permute.of(self.place.of[op.x], op.perm))
        self.place.record(op.out, view, self.place.storage[op.x])
        self.dead.append(op)

    def reshape(self, op: tile.Reshape, build: Builder) -> None:
        source = self.place.of[op.x]
        type = views.buffer_type(source)
        shape, element = shape_of(op.out.type), element_of(op.out.type)
        if views.is_contiguous(type):
            view = build(mem.ReshapeView.of(source, list(op.sizes), BufferType(shape, element, type.space)))
            self.place.record(op.out, view, self.place.storage[op.x])
        else:
            # Contiguous memory, filled through a view that has the shape of the source.
            alloc = mem.Alloc.of(BufferType(shape, element, "local"), list(op.sizes))
            alloc.out.hint, alloc.span = op.out.hint, op.span
            self.place.place_alloc(alloc, op)
            dst = build(mem.ReshapeView.of(alloc.out, self.extents.sizes(op.x), BufferType(type.shape, element, "local")))
            build.insert(mem.Copy.of(source, dst))
            self.place.record(op.out, alloc.out, self.place.external(alloc.out))
        self.dead.append(op)

    # -- computation

    def extract(self, op: tile.Extract, build: Builder) -> None:
        op.out.replace_by(build(mem.Load.of(self.place.of[op.x], list(op.indices))))
        self.dead.append(op)

    def matmul(self, op: tile.Matmul, build: Builder) -> None:
        acc = self._accumulator(op, op.acc, op.out, build)
        new = build.insert(mem.Matmul.of(self.place.of[op.lhs], self.place.of[op.rhs], acc))
        new.attrs.update(op.attrs)
        self.dead.append(op)

    def _accumulator(self, op: Operation, acc: Value, out: Value, build: Builder) -> Value:
        """The buffer that a product is added to: the accumulator's own when it ends here, else a copy of it."""
        buffer, storage = self.place.of[acc], self.place.storage[acc]
        clash = list(op.operands).count(acc) > 1 or any(self.place.storage.get(v) is storage for v in op.operands if v is not acc)
        if op in self.place.accumulated or (self.place.is_free(storage, op) and not clash):
            self.place.record(out, buffer, storage)
            return buffer
        dst = self.place.choose(out, op, build)
        build.insert(mem.Copy.of(buffer, dst))
        return dst

    def contract(self, op: tile.Contract, build: Builder) -> None:
        """The product on views of its operands, the axes in the order of matmul; then the epilogue, if there is one, as a map."""
        lhs, rhs, letters = op.letters
        extents = dict(zip(letters, zip(shape_of(op.acc.type), self.extents.of(op.acc))))
        depth = arith.constant_value(op.depth)
        extents["k"] = (DYN, op.depth) if depth is None else (int(depth), int(depth))
        for x in op.padded:
            extents[x] = _clipped(build, op, x, extents[x])
        batch = letters[:-2]
        a = _operand(build, op.lhs, op.lhs_offsets, lhs, batch + "mk", extents)
        b = _operand(build, op.rhs, op.rhs_offsets, rhs, batch + "kn", extents)
        if is_empty(op.epilogue):
            acc = self._accumulator(op, op.acc, op.out, build)
        else:
            acc, _ = self.place.fresh(op.out, build, op)
            zero = build(arith.Constant.of(0, element_of(op.acc.type)))
            build.insert(mem.Fill.of(zero, acc))
        part = acc
        if op.padded:
            sizes = [size for x in letters if isinstance(size := extents[x][1], Value)]
            part = views.subview(build, acc, [self.place.zero] * len(letters), sizes, [extents[x][0] for x in letters])
        if is_empty(op.prologue_lhs) and is_empty(op.prologue_rhs):
            new: Operation = mem.Matmul.of(a, b, part)
        else:
            new = mem.MemContract.of(a, b, part, op.prologue_lhs.clone({}), op.prologue_rhs.clone({}))
        new.attrs.update({k: v for k, v in op.attrs.items() if k not in ("maps", "padded")})
        build.insert(new)
        if not is_empty(op.epilogue):
            scalar = self.scalar_in(op.acc, build)
            dst = self.place.choose(op.out, op, build, [] if scalar is not None else [op.acc])
            identity = tuple(range(len(letters)))
            start = (self.place.of[op.acc], identity) if scalar is None else (scalar, (-1,) * len(letters))
            end = build.insert(mem.Map.of([acc, start[0]], [dst], (identity, start[1])))
            mapping = dict(zip(op.epilogue.block.args, end.body.block.args))
            for inner in op.epilogue.block:
                end.body.block.append(inner.clone(mapping))
        self.dead.append(op)

    def _reduced(self, op: Operation, build: Builder, make: Callable[[Value], Operation], reader: Operation | None = None) -> None:
        """A reduction to a tile, or through memory of rank 0 to a scalar. reader: the op whose operands are read, if it is another."""
        out = op.results[0]
        if is_tile(out):
            build.insert(make(self.place.choose(out, op, build, reader=reader)))
        else:
            assert isinstance(out.type, Scalar)
            storage = self.place.allocate(TileType((), out.type), [], op, out.hint)
            build.insert(make(storage.buffer))
            out.replace_by(build(mem.Load.of(storage.buffer, [])))
        self.dead.append(op)

    def reduce(self, op: tile.Reduce, build: Builder) -> None:
        producer = op.x.op
        if producer is None or not folds_into_reduce(producer):
            self._reduced(op, build, lambda dst: mem.Reduce.of(op.kind, self.place.of[op.x], dst, op.axes))
            return
        # The first source spans the space of the reduction.
        parts = self.parts(producer, build)
        identity = tuple(range(len(shape_of(op.x.type))))
        first = next(i for i, m in enumerate(parts.maps) if m == identity)
        order = [first, *(i for i in range(len(parts.ins)) if i != first)]

        def make(dst: Value) -> Operation:
            attrs = {"kind": op.kind, "axes": op.axes, "maps": tuple(parts.maps[i] for i in order)}
            block = Block([element_of(parts.ins[i].type) for i in order])
            args = [block.args[order.index(i)] for i in range(len(order))]
            _fill_region(producer, block, args)
            return mem.Reduce([[parts.ins[i] for i in order], dst], (), attrs, [Region([block])])

        self._reduced(op, build, make, producer)
        self.dead.insert(-1, producer)

    def arg_reduce(self, op: tile.ArgReduce, build: Builder) -> None:
        self._reduced(op, build, lambda dst: mem.ArgReduce.of(op.kind, self.place.of[op.x], dst, op.axis))

    def scan(self, op: tile.Scan, build: Builder) -> None:
        dst = self.place.choose(op.out, op, build, [op.x])
        build.insert(mem.Scan.of(op.kind, self.place.of[op.x], dst, op.axis, op.exclusive))
        self.dead.append(op)

    def take_along(self, op: tile.TakeAlong, build: Builder) -> None:
        dst = self.place.choose(op.out, op, build)
        build.insert(mem.TakeAlong.of(self.place.of[op.x], self.place.of[op.indices], dst, op.axis))
        self.dead.append(op)


@dataclass
class _Parts:
    """Inputs of a map: buffers and scalars, how each is read, and the tiles that are read element by element only."""

    ins: list[Value]
    maps: list[tuple[int, ...]]
    in_place: list[Value]


def _fill_region(op: Operation, block: Block, args: list[Value] | None = None) -> None:
    """What an elementwise op or a tile.map does to one element. args: the block's arguments in the order of the op's inputs."""
    args = args or block.args
    if isinstance(op, tile.Map):
        mapping = dict(zip(op.body.block.args, args))
        for inner in op.body.block:
            block.append(inner.clone(mapping))
    else:
        body = Builder(block, span=op.span)
        body.insert(loop.Yield.of(body(type(op)(args, [element_of(op.results[0].type)], op.attrs))))


def folds_into_reduce(op: Operation) -> bool:
    """Whether the only use of an elementwise result is the reduction right behind it (see _sink_producers), so that it needs no memory."""
    return len(op.results) == 1 and len(op.results[0].uses) == 1 and isinstance(op.next, tile.Reduce) and op.next.x is op.results[0] and _spans(op)


def _spans(op: Operation) -> bool:
    """Whether an input in memory has the axes of the result."""
    if isinstance(op, tile.Map):
        rank = len(shape_of(op.results[0].type))
        return any(m == tuple(range(rank)) and _in_memory(v) for v, m in zip(op.ins, op.maps))
    return isinstance(op, arith.ELEMENTWISE) and any(map(_in_memory, op.operands))


def _in_memory(value: Value) -> bool:
    return is_tile(value) and not isinstance(value.op, (tile.Fill, arith.Constant))


def _sink_producers(function: func.Func) -> None:
    """Moves elementwise ops that only a reduction needs in front of it."""
    for op in list(function.walk()):
        producer = op.x.op if isinstance(op, tile.Reduce) else None
        if producer is None or producer.parent is not op.parent or len(producer.results) != 1 or len(producer.results[0].uses) != 1:
            continue
        between, at = [], producer.next
        while at is not None and at is not op:
            between.append(at)
            at = at.next
        # Not past a store: what the producer reads might have to be copied then.
        if _spans(producer) and not any(views.written(inner) for b in between for inner in b.walk()):
            assert op.parent is not None
            op.parent.insert_before(op, producer.detach())


def _reads_number(user: Operation) -> bool:
    """Whether a user of a fill takes the number and needs no memory."""
    if isinstance(user, tile.Contract):
        return not is_empty(user.epilogue)
    return isinstance(user, (*arith.ELEMENTWISE, tile.Map, tile.Broadcast))


def _clipped(build: Builder, op: tile.Contract, letter: str, extent: tuple[Dim, Extent]) -> tuple[Dim, Extent]:
    """The part of an extent of a contraction for which there are elements in its operands."""
    ix = Index(build)
    dim, size = extent
    assert isinstance(size, (int, Value))
    left = ix(size)
    for buffer, offsets, letters in ((op.lhs, op.lhs_offsets, op.letters[0]), (op.rhs, op.rhs_offsets, op.letters[1])):
        axis = letters.find(letter)
        if axis >= 0:
            length = shape_of(buffer.type)[axis]
            end = ix(length) if isinstance(length, int) else build(mem.Dim.of(buffer, axis))
            left = ix.min(left, ix.sub(end, offsets[axis]))
    left = ix.max(left, ix(0))
    known = arith.constant_value(left)
    return (Dyn("", dim_bound(dim)), left) if known is None else (int(known), int(known))


def _operand(
    build: Builder, buffer: Value, offsets: tuple[Value, ...], letters: str, order: str, extents: dict[str, tuple[Dim, Extent]]
) -> Value:  # fmt: skip
    """The part of an operand of a contraction that is read, with its axes in `order`."""
    kept = [x for x in letters if x != "-"]
    sizes = [size for x in kept if isinstance(size := extents[x][1], Value)]
    dropped = [i for i, x in enumerate(letters) if x == "-"]
    view = views.subview(build, buffer, offsets, sizes, [extents[x][0] for x in kept], dropped)
    perm = tuple(kept.index(x) for x in order)
    return view if perm == tuple(range(len(perm))) else build(mem.Permute.of(view, perm))


_RULES: dict[type[Operation], Callable[[Bufferizer, Any, Builder], None]] = {
    arith.Constant: Bufferizer.fill,
    tile.Fill: Bufferizer.fill,
    tile.Iota: Bufferizer.iota,
    tile.Load: Bufferizer.load,
    tile.Store: Bufferizer.store,
    dist.Put: Bufferizer.put,
    tile.Gather: Bufferizer.gather,
    tile.Scatter: Bufferizer.scatter,
    tile.AtomicRmw: Bufferizer.atomic,
    tile.Map: Bufferizer.map,
    tile.Broadcast: Bufferizer.broadcast,
    tile.Slice: Bufferizer.slice,
    tile.Transpose: Bufferizer.transpose,
    tile.Reshape: Bufferizer.reshape,
    tile.Extract: Bufferizer.extract,
    tile.Matmul: Bufferizer.matmul,
    tile.Contract: Bufferizer.contract,
    tile.Reduce: Bufferizer.reduce,
    tile.ArgReduce: Bufferizer.arg_reduce,
    tile.Scan: Bufferizer.scan,
    tile.TakeAlong: Bufferizer.take_along,
}
