"""insert-sync: flags between pipes and barriers inside them, so that instructions that touch the same memory run in program order.

Two instructions conflict when they touch overlapping local memory, or the same global memory in one block of the grid (blocks are independent), and one of
them writes. First every conflict gets a synchronisation of its own, at the level of the innermost block that holds both:

- on one pipe, a barrier before the second;
- on two pipes, a flag: set behind the first, waited for before the second;
- where the first is in an earlier iteration of a loop than the second, a flag that goes round: waited for before the second, set behind the first, set
  once before the outermost loop and waited for once behind it, so that sets and waits alternate for any number of iterations;
- a flag may not be set again before it was waited for, so each flag gets one in the opposite direction round the loop.

Then those that the others imply are taken away again, one after the other. The question is put to a run of the function with few iterations, in
which every pipe has a vector clock: what it knows of the other pipes when it starts its next instruction. Three iterations are enough, since what a pipe
knows only grows: an instruction that is ordered behind the last iteration is ordered behind all earlier ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import ClassVar, NoReturn

from tilelang.dialects import arith, ascend, func, loop
from tilelang.ir.core import Block, Builder, Module, Operation
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import element_of

_MANY = 3  # iterations that stand for any number of at least as many
_RUNS = 64  # with more combinations of iterations than this it would take too long


@dataclass(eq=False)
class _Sync:
    """A synchronisation. kind: barrier (before `second`), forward or round (the flag from `first` to `second`)."""

    kind: str
    src: str
    dst: str
    first: Operation
    second: Operation
    outermost: Operation | None = None  # of round

    @property
    def key(self) -> tuple[object, ...]:
        if self.kind == "barrier":
            return self.kind, self.src, self.second
        return self.kind, self.src, self.dst, self.first, self.second


@register
@dataclass(frozen=True)
class InsertSync(Pass):
    """Puts set_flag, wait_flag and pipe_barrier between instructions that depend on each other."""

    name: ClassVar[str] = "insert-sync"
    before: ClassVar[str] = "ascend"
    after: ClassVar[str] = "ascend"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            if any(isinstance(op, ascend.SYNC) for op in function.walk()):
                continue  # somebody did it by hand
            try:
                _Inserter(function, ctx).run()
            except _Refused:
                continue


class _Refused(Exception):
    """An error was reported."""


class _Inserter:
    def __init__(self, function: func.Func, ctx: PassContext) -> None:
        self.function, self.ctx = function, ctx
        self.code = [op for op in function.walk() if isinstance(op, ascend.Instruction)]
        self.order = {op: i for i, op in enumerate(self.code)}
        self.loops = [op for op in function.walk() if isinstance(op, loop.For)]
        self.syncs: dict[tuple[object, ...], _Sync] = {}

    def run(self) -> None:
        for op in self.function.walk():
            inside = isinstance(op, (loop.If, loop.While, loop.Parallel, func.Call))
            if inside and (isinstance(op, func.Call) or any(isinstance(x, ascend.Instruction) for x in op.walk())):
                self.refuse(op, f"'{op.name}' around instructions", "synchronisation goes through straight code and for loops only")
        self.conflicts = [[self.conflict(a, b) for a in self.code] for b in self.code]
        for second in self.code:
            for first in self.code:
                if self.conflicts[self.order[second]][self.order[first]]:
                    self.propose(first, second)
        for sync in list(self.syncs.values()):
            self.propose_return(sync)
        kept = self.prune(list(self.syncs.values()))
        self.emit(kept)

    def refuse(self, op: Operation, what: str, why: str) -> NoReturn:
        self.ctx.diagnostics.error("ascend-unsupported", op.span or self.function.span, what=what, why=why)
        raise _Refused

    # -- conflicts

    def conflict(self, a: ascend.Instruction, b: ascend.Instruction) -> str:
        """'local' or 'global' memory in which two instructions conflict, else ''."""
        found = ""
        for x, y in product(a.accesses(), b.accesses()):
            if not (x.writes or y.writes):
                continue
            space = ascend.buffer_type(x.buffer).space
            if space != ascend.buffer_type(y.buffer).space:
                continue
            if space == "global":
                found = found or ("global" if x.buffer is y.buffer else "")
            elif _bytes(x)[0] < _bytes(y)[1] and _bytes(y)[0] < _bytes(x)[1]:
                return "local"
        return found

    # -- proposals

    def add(self, sync: _Sync) -> None:
        self.syncs.setdefault(sync.key, sync)

    def propose(self, first: ascend.Instruction, second: ascend.Instruction) -> None:
        where = self.conflicts[self.order[second]][self.order[first]]
        if self.order[first] < self.order[second]:
            block = _common(first, second)
            self.between(first, second, block)
        # In the innermost loop around both: there the flag is waited for and set in turn over the iterations of all loops.
        loops = _loops(second)
        around = next((x for x in loops if x.is_ancestor_of(first)), None)
        if around is None or (where == "global" and _is_grid(around)):
            return
        a, b = first.ancestor_in(around.body.block), second.ancestor_in(around.body.block)
        assert a is not None and b is not None
        if a is not b and _stands_before(a, b):
            return  # what orders them in one iteration orders them over several
        if first.pipe == second.pipe:
            self.add(_Sync("barrier", first.pipe, first.pipe, a, b))
        else:
            self.add(_Sync("round", first.pipe, second.pipe, a, b, loops[-1]))

    def between(self, first: ascend.Instruction, second: ascend.Instruction, block: Block) -> None:
        a, b = first.ancestor_in(block), second.ancestor_in(block)
        assert a is not None and b is not None
        if a is b:
            return
        if first.pipe == second.pipe:
            self.add(_Sync("barrier", first.pipe, first.pipe, a, b))
        else:
            self.add(_Sync("forward", first.pipe, second.pipe, a, b))

    def propose_return(self, sync: _Sync) -> None:
        """What keeps a flag from being set twice: the opposite direction, round the loop or through the iteration."""
        loops = _loops(sync.second)
        if sync.kind == "forward" and loops:
            self.add(_Sync("round", sync.dst, sync.src, sync.second, sync.first, loops[-1]))
        elif sync.kind == "round":
            self.add(_Sync("forward", sync.dst, sync.src, sync.second, sync.first))

    # -- runs

    def prune(self, syncs: list[_Sync]) -> list[_Sync]:
        """Takes away what the rest implies; flags of the longest reach first."""
        counts = self.iterations()
        if not all(self.ordered(syncs, c) for c in counts):
            raise AssertionError("the synchronisations that were proposed do not order all conflicts")
        rank = {"round": 0, "forward": 1, "barrier": 2}
        for sync in sorted(syncs, key=lambda s: (rank[s.kind], -self.reach(s))):
            rest = [s for s in syncs if s is not sync]
            if all(self.ordered(rest, c) for c in counts):
                syncs = rest
        return syncs

    def reach(self, sync: _Sync) -> int:
        place = {op: i for i, op in enumerate(self.function.walk())}
        return abs(place[sync.second] - place[sync.first])

    def iterations(self) -> list[dict[Operation, int]]:
        """How often each loop may run, as combinations of few iterations."""
        options: list[tuple[int, ...]] = []
        for op in self.loops:
            lower, upper, step = (arith.constant_value(v) for v in (op.lower, op.upper, op.step))
            if lower is None or upper is None or step is None:
                options.append(tuple(range(_MANY + 1)))
            else:
                options.append((min(_MANY, max(0, -(-(int(upper) - int(lower)) // int(step)))),))
        if prod(map(len, options)) > _RUNS:
            self.refuse(self.loops[-1], f"a kernel with {len(self.loops)} loops", "too many of them have bounds that are not constants")
        return [dict(zip(self.loops, counts)) for counts in product(*options)]

    def ordered(self, syncs: list[_Sync], counts: dict[Operation, int]) -> bool:
        """Whether a run with these synchronisations orders all conflicts, and uses every flag as it must be used."""
        clocks = _Clocks()
        places = _Places(syncs)
        latest: dict[int, tuple[int, int, int]] = {}  # instruction -> its pipe, its time, its grid block when it last ran
        for block, op, what, sync in self.steps(self.function.body.block, places, counts, 0):
            if sync is not None:
                if not clocks.sync(what, sync):
                    return False
                continue
            assert isinstance(op, ascend.Instruction)
            at, pipe = self.order[op], ascend.PIPES.index(op.pipe)
            for other, where in enumerate(self.conflicts[at]):
                if where and other in latest:
                    p, time, b = latest[other]
                    if clocks.known[pipe][p] < time and (where == "local" or b == block):
                        return False
            clocks.times[pipe] += 1
            latest[at] = pipe, clocks.times[pipe], block
        return not clocks.flags

    def steps(self, block: Block, places: _Places, counts: dict[Operation, int], number: int) -> Iterator[tuple[int, Operation, str, _Sync | None]]:
        """The steps of a run: the number of the grid block, the op, and the synchronisation there."""
        for op in block:
            for what, sync in places.before.get(op, ()):
                yield number, op, what, sync
            if isinstance(op, loop.For):
                for i in range(counts[op]):
                    yield from self.steps(op.body.block, places, counts, i if _is_grid(op) else number)
            elif isinstance(op, ascend.Instruction):
                yield number, op, "", None
            for what, sync in places.after.get(op, ()):
                yield number, op, what, sync

    # -- the result

    def emit(self, syncs: list[_Sync]) -> None:
        ids: dict[_Sync, int] = {}
        used: dict[tuple[str, str], int] = {}
        place = {op: i for i, op in enumerate(self.function.walk())}
        for sync in sorted(syncs, key=lambda s: (place[s.first], place[s.second])):
            if sync.kind == "barrier":
                continue
            pair = sync.src, sync.dst
            ids[sync] = used.get(pair, 0)
            used[pair] = ids[sync] + 1
            if ids[sync] >= ascend.EVENTS:
                self.refuse(sync.second, f"a block with more than {ascend.EVENTS} dependences from pipe {sync.src} to pipe {sync.dst}", "there are no more events")
        places = _Places(syncs)
        for op, steps in places.before.items():
            build = Builder.at(op)
            for what, sync in steps:
                build.insert(_made(what, sync, ids))
        for op, steps in places.after.items():
            build = Builder(op.parent, op.next, op.span) if op.parent is not None else Builder.at(op)
            for what, sync in steps:
                build.insert(_made(what, sync, ids))


class _Clocks:
    """What each pipe knows: the time up to which another pipe's instructions are complete before its own next one starts."""

    def __init__(self) -> None:
        n = len(ascend.PIPES)
        self.known = [[0] * n for _ in range(n)]
        self.times = [0] * n
        self.flags: dict[_Sync, list[int]] = {}
        self.waited: dict[_Sync, int] = {}

    def sync(self, what: str, sync: _Sync) -> bool:
        """Carries out a synchronisation. False when a flag is not set, or may be set twice."""
        src, dst = ascend.PIPES.index(sync.src), ascend.PIPES.index(sync.dst)
        if what == "barrier":
            self.known[src][src] = self.times[src]
        elif what == "set":
            if sync in self.flags or self.known[src][dst] < self.waited.get(sync, 0):
                return False
            self.flags[sync] = [*self.known[src]]
            self.flags[sync][src] = self.times[src]
        else:
            if sync not in self.flags:
                return False
            self.known[dst] = [max(a, b) for a, b in zip(self.known[dst], self.flags.pop(sync))]
            self.times[dst] += 1
            self.waited[sync] = self.times[dst]
        return True


@dataclass
class _Places:
    """The synchronisations before and behind each op, in order: waits before barriers before sets."""

    syncs: list[_Sync]
    before: dict[Operation, list[tuple[str, _Sync]]] = field(default_factory=dict)
    after: dict[Operation, list[tuple[str, _Sync]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = ("wait", "barrier", "set")
        for sync in self.syncs:
            if sync.kind == "barrier":
                self.before.setdefault(sync.second, []).append(("barrier", sync))
                continue
            self.before.setdefault(sync.second, []).append(("wait", sync))
            self.after.setdefault(sync.first, []).append(("set", sync))
            if sync.outermost is not None:
                self.before.setdefault(sync.outermost, []).append(("set", sync))
                self.after.setdefault(sync.outermost, []).append(("wait", sync))
        for steps in (*self.before.values(), *self.after.values()):
            steps.sort(key=lambda s: order.index(s[0]))


def _made(what: str, sync: _Sync, ids: dict[_Sync, int]) -> Operation:
    if what == "barrier":
        return ascend.PipeBarrier.of(sync.src)
    return (ascend.SetFlag if what == "set" else ascend.WaitFlag).of(sync.src, sync.dst, ids[sync])


def _bytes(access: ascend.Access) -> tuple[int, int]:
    """The bytes of a space that an access touches."""
    alloc = access.buffer.op
    assert isinstance(alloc, ascend.Alloc)
    width = element_of(access.buffer.type).bytes
    return alloc.address + access.first * width, alloc.address + access.stop * width


def _loops(op: Operation) -> list[loop.For]:
    """The loops around an op, inner ones first."""
    found: list[loop.For] = []
    around = op.parent_op
    while around is not None:
        if isinstance(around, loop.For):
            found.append(around)
        around = around.parent_op
    return found


def _common(a: Operation, b: Operation) -> Block:
    """The innermost block that holds both."""
    block = b.parent
    while block is not None and a.ancestor_in(block) is None:
        around = block.parent_op
        block = around.parent if around is not None else None
    assert block is not None
    return block


def _is_grid(op: loop.For) -> bool:
    """Whether a loop goes over the blocks of the grid: a step of all cores."""
    return isinstance(op.step.op, ascend.BlockNum)


def _stands_before(a: Operation, b: Operation) -> bool:
    op: Operation | None = a
    while op is not None and op is not b:
        op = op.next
    return op is b
