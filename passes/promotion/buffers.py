"""Buffers to values: memory that is only written as a whole becomes the tile last written to it (mem2reg on structured control flow).

A buffer is promoted when it is local to its block, of static extents, and all its uses are loads (of any part), and stores of all of it, outside of element
loops and while loops. A loop carries the value when an iteration may read what an earlier one, or the code before, has written, or when it is read behind
the loop; an `if` gives it when it is read behind. Reading memory that nothing has written gives anything: here zeros."""

from __future__ import annotations

from tilelang.dialects import arith, func, loop, mem, tile
from tilelang.ir.core import Block, Builder, Operation, Region, Value
from tilelang.ir.types import BufferType, Scalar, TileType, element_of, shape_of
from tilelang.passes.promotion.elements import is_whole

_SPACES = ("shared", "accumulator", "local")


def promote(function: func.Func) -> list[str]:
    """Promotes what can be; the names of the buffers that are gone."""
    candidates = [op.out for op in function.walk() if isinstance(op, mem.Alloc) and _is_candidate(op)]
    # Values carried by a loop stand in the order of the names of variables.
    candidates.sort(key=lambda b: b.op.name_ if isinstance(b.op, mem.Alloc) else "")
    if not candidates:
        return []
    flow = _Flow(candidates)
    carried = {op: flow.carried(op) for op in function.walk() if isinstance(op, (loop.For, loop.If))}
    _Promoter(set(candidates), carried).block(function.body.block, {})
    names: list[str] = []
    for buffer in candidates:
        assert isinstance(buffer.op, mem.Alloc)
        names.append(buffer.op.name_ or buffer.hint or "")
        buffer.op.erase()
    return names


def _is_candidate(alloc: mem.Alloc) -> bool:
    type = alloc.out.type
    assert isinstance(type, BufferType)
    if type.space not in _SPACES or type.strides is not None or not all(isinstance(d, int) for d in type.shape):
        return False
    return all(_is_plain(user, alloc) for user in alloc.out.users)


def _is_plain(op: Operation, alloc: mem.Alloc) -> bool:
    """Whether a use can be one of a value."""
    if isinstance(op, tile.Load):
        return op.pad is None and not op.tokens and not any(s < 0 for s in op.steps)
    if isinstance(op, mem.Load):
        return True
    if not isinstance(op, tile.Store) or op.value is alloc.out or not is_whole(op):
        return False
    around = op.parent_op
    while around is not None and around is not alloc.parent_op:
        if not isinstance(around, (loop.For, loop.If)):
            return False
        around = around.parent_op
    return True


class _Flow:
    """Which buffers are read before they are written, and where."""

    def __init__(self, candidates: list[Value]) -> None:
        self.candidates = candidates
        self._exposed: dict[tuple[Block, Value], bool] = {}

    def carried(self, op: loop.For | loop.If) -> list[Value]:
        """The buffers whose values a loop or an if hands on."""
        written = {inner.buffer for inner in op.walk() if isinstance(inner, tile.Store)}
        scope = [b for b in self.candidates if b in written and not _is_inside(b, op)]
        if isinstance(op, loop.If):
            return [b for b in scope if self.live_after(op, b)]
        return [b for b in scope if self.live_after(op, b) or self.exposed(op.body.block, b)]

    def exposed(self, block: Block, buffer: Value) -> bool:
        """Whether the block may read what was in the buffer before it."""
        key = block, buffer
        if key not in self._exposed:
            self._exposed[key] = self.before(block.first, block, buffer, False)
        return self._exposed[key]

    def before(self, first: Operation | None, block: Block, buffer: Value, live: bool) -> bool:
        """Whether the buffer's contents matter before `first`, when they do (`live`) at the end of the block."""
        op = block.last
        while op is not None:
            live = self.through(op, buffer, live)
            if op is first:
                break
            op = op.prev
        return live

    def through(self, op: Operation, buffer: Value, live: bool) -> bool:
        if op is buffer.op:
            return False
        if isinstance(op, tile.Store) and op.buffer is buffer:
            return False
        if not op.regions:
            return live or buffer in op.operands
        if isinstance(op, loop.If):
            return any(self.before(r.block.first, r.block, buffer, live) for r in op.regions)
        return live or any(self.exposed(r.block, buffer) for r in op.regions)

    def live_after(self, op: Operation, buffer: Value) -> bool:
        """Whether what the buffer holds after `op` may be read."""
        block = op.parent
        assert block is not None and buffer.op is not None
        live = False
        if block is not buffer.op.parent:
            around = block.parent_op
            assert around is not None
            live = self.live_after(around, buffer) or (not isinstance(around, loop.If) and self.exposed(block, buffer))
        return self.before(op.next, block, buffer, live) if op.next is not None else live


def _is_inside(buffer: Value, op: Operation) -> bool:
    return buffer.op is not None and op.is_ancestor_of(buffer.op)


class _Promoter:
    """Walks the program in order. now: the tile that each buffer holds, None when nothing was written yet."""

    def __init__(self, candidates: set[Value], carried: dict[loop.For | loop.If, list[Value]]) -> None:
        self.candidates = candidates
        self.carried = carried

    def block(self, block: Block, now: dict[Value, Value | None]) -> None:
        for op in list(block):
            if isinstance(op, tile.Store) and op.buffer in self.candidates:
                now[op.buffer] = op.value
                if op.value.hint is None:
                    op.value.hint = op.buffer.hint
                op.erase()
            elif isinstance(op, (tile.Load, mem.Load)) and op.buffer in self.candidates:
                self.read(op, now)
            elif isinstance(op, loop.For):
                self.for_(op, now)
            elif isinstance(op, loop.If):
                self.if_(op, now)
            else:
                for region in op.regions:
                    self.block(region.block, dict(now))

    def value(self, buffer: Value, now: dict[Value, Value | None], build: Builder) -> Value:
        found = now.get(buffer)
        if found is None:
            type = buffer.type
            assert isinstance(type, BufferType)
            zero = build(arith.Constant.of(0, type.element))
            found = now[buffer] = build(tile.Fill.of(zero, [], TileType(type.shape, type.element)))
        return found

    def read(self, op: tile.Load | mem.Load, now: dict[Value, Value | None]) -> None:
        build = Builder.at(op)
        x = self.value(op.buffer, now, build)
        if isinstance(op, mem.Load):
            new = build(tile.Extract.of(x, list(op.indices)))
        elif is_whole(op):
            new = x
        elif isinstance(op.out.type, Scalar):
            new = build(tile.Extract.of(x, list(op.offsets)))
        else:
            new = build(tile.Slice.of(x, list(op.offsets), list(op.sizes), op.out.type, op.dropped, op.steps))
        op.replace_by(new)

    def for_(self, op: loop.For, now: dict[Value, Value | None]) -> None:
        buffers = self.carried[op]
        written = _written(op, self.candidates)
        if buffers:
            build = Builder.at(op)
            inits = [self.value(b, now, build) for b in buffers]
            new = loop.For.of(op.lower, op.upper, op.step, [*op.inits, *inits])
            new.attrs.update(op.attrs)
            new.span = op.span
            build.insert(new)
            block = new.body.block
            _take(op.body.block, block)
            for arg, buffer in zip(block.args[1 + len(op.inits) :], buffers):
                arg.hint = buffer.hint
            for old, result in zip(op.results, new.results):
                result.hint = old.hint
                old.replace_by(result)
            op.erase()
            op = new
        inside = {b: v for b, v in now.items() if b not in written}
        count = len(buffers)
        inside.update(zip(buffers, op.carried[len(op.carried) - count :]))
        self.block(op.body.block, inside)
        self.end(op.body, buffers, inside)
        self.after(op, buffers, written, now)

    def if_(self, op: loop.If, now: dict[Value, Value | None]) -> None:
        buffers = self.carried[op]
        written = _written(op, self.candidates)
        if buffers:
            build = Builder.at(op)
            new = loop.If.of(op.condition, [*(r.type for r in op.results), *(_tile_type(b) for b in buffers)])
            new.span = op.span
            # What one branch leaves as it is must be there.
            for b in buffers:
                self.value(b, now, build)
            build.insert(new)
            for old_region, region in zip(op.regions, new.regions):
                _take(old_region.block, region.block)
            for old, result in zip(op.results, new.results):
                result.hint = old.hint
                old.replace_by(result)
            op.erase()
            op = new
        for region in op.regions:
            inside = dict(now)
            self.block(region.block, inside)
            self.end(region, buffers, inside)
        self.after(op, buffers, written, now)

    def end(self, region: Region, buffers: list[Value], now: dict[Value, Value | None]) -> None:
        last = region.block.last
        assert isinstance(last, loop.Yield)
        build = Builder.at(last)
        if buffers:
            last.set_operands([[*last.values, *(self.value(b, now, build) for b in buffers)]])

    def after(self, op: loop.For | loop.If, buffers: list[Value], written: set[Value], now: dict[Value, Value | None]) -> None:
        for b in written:
            now[b] = None
        results = op.results[len(op.results) - len(buffers) :]
        for b, result in zip(buffers, results):
            result.hint = b.hint
            now[b] = result


def _tile_type(buffer: Value) -> TileType:
    return TileType(shape_of(buffer.type), element_of(buffer.type))


def _written(op: Operation, candidates: set[Value]) -> set[Value]:
    return {inner.buffer for inner in op.walk() if isinstance(inner, tile.Store) and inner.buffer in candidates}


def _take(source: Block, target: Block) -> None:
    """Moves the ops of a block, whose arguments become the first ones of the other."""
    for old, new in zip(source.args, target.args):
        new.hint = old.hint
        old.replace_by(new)
    for op in list(source):
        target.append(op.detach())


