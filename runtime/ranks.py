"""All ranks of a kernel at once, in the interpreter: every rank runs the module on memory of its own, one at a time, in an order drawn by a seed.
Puts and signals are delivered late, and out of order as far as fences allow it, so that a program which only works by luck does not. It finds

- check-rank-race: two accesses of one element of symmetric memory, at least one a write, that no signal and wait order;
- check-fence: the same, where a signal did follow the put, without a fence between them;
- check-deadlock: nobody can go on, and nothing is under way that could change it;
- what check mode finds on each rank (bounds, uninitialised memory, races between blocks).

Method: vector clocks with a component for each rank's program, and one for each pair of ranks that counts the puts from one to the other. A put is an
event of its pair alone, since it happens when it arrives; a fence makes the puts before it known to what is issued to that peer after it, and a wait
takes over what the signals it saw knew. Races are found whatever the order of arrival was; wrong results, deadlocks and clobbered memory need the order
in which they show, so run several seeds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilelang.diagnostics import Diagnostic, Note, TileError, make
from tilelang.dialects import dist
from tilelang.ir.core import Module
from tilelang.runtime import check
from tilelang.runtime.arrays import groups
from tilelang.runtime.failure import KernelError
from tilelang.runtime.interp import Interpreter
from tilelang.runtime.memory import BufferValue, box, point

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_NOBODY = -1


def run_ranks(module: Module, name: str, args: Sequence[Sequence[Any]], seed: int = 0, max_reports: int = 20) -> list[Diagnostic]:
    """Runs a tile- or mem-level function on len(args) ranks. args: for each rank its arguments, as Interpreter.run takes them; arrays are written in place,
    those of symmetric parameters must have one shape on all ranks. Returns what was found wrong; seed: chooses the order of everything.
    Raises KernelError when a kernel stops, ValueError for shapes that differ between ranks."""
    return _Ranks(module, name, args, seed, max_reports).run()


def evaluate(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    """An op of dist, on the rank whose interpreter runs it."""
    own = frame.interp
    if not isinstance(own, _RankInterpreter):
        raise KernelError(make("needs-ranks", op.span, what=f"'{frame.code.func.sym_name}'"))
    return own.ranks.evaluate(own.rank, op, frame, args)


class _Stop(BaseException):
    """Ends the thread of a rank when the run is over."""


class _RankInterpreter(Interpreter):
    def __init__(self, module: Module, ranks: _Ranks, rank: int, hooks: check.Hooks) -> None:
        super().__init__(module, hooks=hooks, seed=ranks.random.randrange(2**32))
        self.ranks, self.rank = ranks, rank


class _Hooks(check.Hooks):
    """Check mode of one rank; accesses of symmetric memory are watched across ranks."""

    def __init__(self, ranks: _Ranks, rank: int, max_reports: int) -> None:
        super().__init__(max_reports=max_reports)
        self.ranks, self.rank = ranks, rank

    def read(self, op: Any, frame: Any, buf: BufferValue, ids: Any) -> None:
        super().read(op, frame, buf, ids)
        if buf.root.space == dist.SYMMETRIC:
            self.ranks.local(self.rank, op, buf, np.ravel(ids), False)

    def write(self, op: Any, frame: Any, buf: BufferValue, ids: Any) -> None:
        super().write(op, frame, buf, ids)
        if buf.root.space == dist.SYMMETRIC:
            self.ranks.local(self.rank, op, buf, np.ravel(ids), True)

    def atomic(self, op: Any, frame: Any, buf: BufferValue, ids: Any) -> None:
        super().atomic(op, frame, buf, ids)
        if buf.root.space == dist.SYMMETRIC:
            self.ranks.local(self.rank, op, buf, np.ravel(ids), True)


class _Arrived:
    """The token of a wait. The wait is over, so nothing is left to complete."""

    def complete(self) -> None:
        return


@dataclass(eq=False, slots=True)
class _Access:
    """An access of symmetric memory as one event: ordered before whatever knows `time` of `component`."""

    rank: int  # that made it
    op: Any
    verb: str  # reads, writes, puts to, signals in
    component: int
    time: int
    clock: Any  # what was known when it was made; of a put, when it was issued
    issued: int  # of a put: when, in the clock of its rank


@dataclass(eq=False, slots=True)
class _Message:
    """A put or signal under way."""

    peer: int
    access: _Access
    name: str  # of the buffer
    key: Any
    value: Any
    epoch: int  # fences before it
    kind: str  # put, set, add


@dataclass(eq=False)
class _Shadow:
    """For each element of one rank's buffer the last write and the last read, as numbers of accesses; and what the signals in it knew."""

    buffer: BufferValue
    writes: Any
    reads: Any
    words: dict[int, Any] = field(default_factory=dict)


class _Ranks:
    def __init__(self, module: Module, name: str, args: Sequence[Sequence[Any]], seed: int, max_reports: int) -> None:
        self.name, self.max_reports = name, max_reports
        self.world = len(args)
        self.random = random.Random(seed)
        # From a network that delivers at once to one that delivers only when all ranks wait.
        self.eagerness = self.random.choice((0.0, 0.02, 0.2, 0.6))
        self.reports: list[Diagnostic] = []
        self.failure: BaseException | None = None
        n = self.world
        self.clocks = [np.zeros(n + n * n, np.int64) for _ in range(n)]
        self.issued = np.zeros((n, n), np.int64)  # puts
        self.fenced = np.zeros((n, n), np.int64)  # of them, those before the last fence
        self.epochs = np.zeros((n, n), np.int64)
        self.under_way: list[list[list[_Message]]] = [[[] for _ in range(n)] for _ in range(n)]
        self.accesses: list[_Access] = []
        self._seen: set[Any] = set()
        self.waiting: list[Any] = [None] * n  # (op, text, whether it can go on) of a rank that waits
        self.done = [False] * n
        self.hooks = [_Hooks(self, r, max_reports) for r in range(n)]
        self.shadows: list[dict[str, _Shadow]] = [{} for _ in range(n)]
        self.interpreters = [_RankInterpreter(module, self, r, h) for r, h in enumerate(self.hooks)]
        self.args = [self._bind(r, list(a)) for r, a in enumerate(args)]
        self._turn = [threading.Semaphore(0) for _ in range(n)]
        self._end = threading.Semaphore(0)
        self._over = False

    def _bind(self, rank: int, args: list[Any]) -> list[Any]:
        """The arguments of a rank, with its symmetric memory as buffers that the others can reach."""
        function = self.interpreters[rank]._functions[self.name]  # pyright: ignore[reportPrivateUsage]
        for i, (param, role) in enumerate(zip(function.args, function.roles)):
            if not dist.is_symmetric(param) or i >= len(args):
                continue
            name = param.hint or str(i)
            buffer = BufferValue.of(np.asarray(args[i]), name, dist.SYMMETRIC, ids=True)
            self.hooks[rank].parameter(buffer, param, role)
            first = self.shadows[0].get(name)
            if first is not None and first.buffer.array.shape != buffer.array.shape:
                raise ValueError(f"'{name}' has shape {first.buffer.array.shape} on rank 0 and {buffer.array.shape} on rank {rank}")
            self.shadows[rank][name] = _Shadow(buffer, np.full(buffer.array.size, _NOBODY), np.full(buffer.array.size, _NOBODY))
            args[i] = buffer
        return args

    # -- the schedule

    def run(self) -> list[Diagnostic]:
        threads = [threading.Thread(target=self._thread, args=(r,), daemon=True) for r in range(self.world)]
        for t in threads:
            t.start()
        try:
            if self._pass_on():
                self._end.acquire()
        finally:
            self._over = True
            for turn in self._turn:
                turn.release()
            for t in threads:
                t.join()
        if self.failure is not None:
            raise self.failure
        for rank, hooks in enumerate(self.hooks):
            self.reports += [Diagnostic(d.slug, d.message, d.span, (*d.notes, Note(f"on rank {rank}")), d.help, d.severity) for d in hooks.reports]
        return self.reports[: self.max_reports]

    def _next(self) -> int | None:
        """Delivers messages until it is the turn of a rank, and which; None when nobody can go on."""
        while True:
            ready = [r for r in range(self.world) if not self.done[r] and (self.waiting[r] is None or self.waiting[r][2]())]
            if ready and self.random.random() >= self.eagerness:
                return self.random.choice(ready)
            messages = list(self._deliverable())
            if messages:
                self._deliver(self.random.choice(messages))
            elif not ready:
                return None

    def _pass_on(self, own: int = _NOBODY) -> bool:
        """Chooses who runs next and wakes it. False when there is no one to wait for: the rank itself is chosen, or the run is over before it began."""
        rank = self._next()
        if rank is None:
            self._stuck()
            self._end.release()
            return own != _NOBODY
        self.waiting[rank] = None
        if rank == own:
            return False
        self._turn[rank].release()
        return True

    def _stuck(self) -> None:
        stuck = [(r, w) for r, w in enumerate(self.waiting) if not self.done[r]]
        if stuck:
            notes = [Note(f"rank {r} waits here", w[0].span) for r, w in stuck[1:]]
            self.reports.append(make("check-deadlock", stuck[0][1][0].span, notes, waiting=", ".join(f"rank {r} waits for {w[1]}" for r, w in stuck)))

    def _thread(self, rank: int) -> None:
        self._turn[rank].acquire()
        try:
            if not self._over:
                self.interpreters[rank].run(self.name, self.args[rank])
                self.done[rank] = True
                self._pass_on(rank)
        except _Stop:
            pass
        except TileError as error:
            found = [Diagnostic(d.slug, d.message, d.span, (*d.notes, Note(f"on rank {rank}")), d.help, d.severity) for d in error.diagnostics]
            self._fail(KernelError(found))
        except BaseException as error:  # handed to the caller, who runs in another thread
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._end.release()

    def _yield(self, rank: int, waiting: Any = None) -> None:
        """Gives the turn on; returns when the rank is chosen again. The thread that has the turn decides whose is next: one switch a turn."""
        self.waiting[rank] = waiting
        if self._pass_on(rank):
            self._turn[rank].acquire()
        if self._over:
            raise _Stop

    # -- messages

    def _deliverable(self) -> Iterator[_Message]:
        for rows in self.under_way:
            for queue in rows:
                if queue:
                    epoch = queue[0].epoch  # a queue is in order of issue, and so of epochs
                    words: set[Any] = set()
                    for m in queue:
                        if m.epoch != epoch:
                            break
                        if m.kind != "put":
                            if (m.name, m.key) in words:
                                continue
                            words.add((m.name, m.key))
                        yield m

    def _deliver(self, m: _Message) -> None:
        self.under_way[m.access.rank][m.peer].remove(m)
        shadow = self.shadows[m.peer][m.name]
        buffer = shadow.buffer
        assert buffer.ids is not None
        ids = np.ravel(buffer.ids[m.key])
        number = self._number(m.access)
        signal = m.kind != "put"
        self._check(m.peer, shadow, ids, m.access, shadow.writes, signal)
        self._check(m.peer, shadow, ids, m.access, shadow.reads, signal)
        shadow.writes[ids] = number
        if m.kind == "add":
            buffer.array[m.key] += m.value
        else:
            buffer.array[m.key] = m.value
        if signal:
            word = int(ids[0])
            known = shadow.words.get(word)
            shadow.words[word] = m.access.clock if known is None else np.maximum(known, m.access.clock)

    def _number(self, access: _Access) -> int:
        self.accesses.append(access)
        return len(self.accesses) - 1

    def _pair(self, rank: int, peer: int) -> int:
        return self.world + rank * self.world + peer

    def _send(self, rank: int, peer: int, op: Any, name: str, key: Any, value: Any, kind: str) -> None:
        clock = self.clocks[rank]
        clock[rank] += 1
        pair = self._pair(rank, peer)
        known = clock.copy()
        known[pair] = max(known[pair], self.fenced[rank, peer])
        put = kind == "put"
        if put:
            self.issued[rank, peer] += 1
        time = self.issued[rank, peer] if put else clock[rank]
        access = _Access(rank, op, "puts to" if put else "signals in", pair if put else rank, int(time), known, int(clock[rank]))
        self.under_way[rank][peer].append(_Message(peer, access, name, key, value, int(self.epochs[rank, peer]), kind))

    # -- races

    def local(self, rank: int, op: Any, buf: BufferValue, ids: Any, write: bool) -> None:
        """A load or store of a rank in its own symmetric memory."""
        shadow = self.shadows[rank][buf.root.name]
        clock = self.clocks[rank]
        access = _Access(rank, op, "writes" if write else "reads", rank, int(clock[rank]) + 1, clock.copy(), int(clock[rank]) + 1)
        self._check(rank, shadow, ids, access, shadow.writes, False)
        (shadow.writes if write else shadow.reads)[ids] = self._number(access)

    def _check(self, owner: int, shadow: _Shadow, ids: Any, access: _Access, before: Any, signal: bool) -> None:
        """Reports the accesses in `before` of these elements that are not ordered before `access`. Signals do not race with each other."""
        numbers = before[ids]
        for number in np.unique(numbers):
            if number == _NOBODY:
                continue
            other = self.accesses[number]
            own = other.component == access.component == owner  # both by the owner's program
            if own or access.clock[other.component] >= other.time or (signal and other.verb == "signals in"):
                continue
            at = int(ids[int(np.argmax(numbers == number))])
            self._race(owner, shadow, at, other, access)

    def _race(self, owner: int, shadow: _Shadow, at: int, first: _Access, second: _Access) -> None:
        name = shadow.buffer.root.name
        key = frozenset((first.op, second.op)), name
        if key in self._seen or len(self.reports) >= self.max_reports:
            return
        self._seen.add(key)
        shape = shadow.buffer.array.shape
        index = "[" + ", ".join(str(int(i)) for i in np.unravel_index(at, shape)) + "]"
        for put, other in ((first, second), (second, first)):
            # The reader knows that the put was issued, so that a signal followed it; not that it arrived.
            if put.verb == "puts to" and other.verb == "reads" and other.clock[put.rank] >= put.issued:
                notes = [Note(f"rank {other.rank} reads it here", other.op.span)]
                self.reports.append(make("check-fence", put.op.span, notes, reader=other.rank, what=f"'{name}'", index=index, writer=put.rank))
                return
        notes = [Note(f"rank {first.rank} {first.verb} it here", first.op.span)]
        self.reports.append(
            make(
                "check-rank-race", second.op.span, notes, first=first.rank, first_does=first.verb, what=f"'{name}'", owner=owner,
                index=index, second=second.rank, second_does=second.verb,
            )
        )

    # -- ops

    def evaluate(self, rank: int, op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
        if isinstance(op, dist.Rank):
            return rank
        if isinstance(op, dist.World):
            return self.world
        self._yield(rank)
        match op:
            case dist.Put():
                (value,), (buf,), offsets, (peer,) = groups(op, args)
                value = value.array if isinstance(value, BufferValue) else value
                key, inside = box(op, frame, buf.name, buf.array.shape, offsets, np.shape(value), op.dropped, op.steps)
                if key is not None:
                    copied = np.array(value if inside is None else value[inside])
                    self._send(rank, self._peer(rank, op, peer), op, buf.root.name, key, copied, "put")
            case dist.Fence():
                peer = self._peer(rank, op, args[0])
                self.epochs[rank, peer] += 1
                self.fenced[rank, peer] = self.issued[rank, peer]
            case dist.Signal():
                (value,), (buf,), indices, (peer,) = groups(op, args)
                key = point(op, frame, buf.name, buf.array.shape, indices)
                self._send(rank, self._peer(rank, op, peer), op, buf.root.name, tuple(map(int, key)), value, op.kind)
            case dist.Wait():
                return self._wait(rank, op, frame, args)
            case dist.Barrier():
                self._barrier(rank, op)
            case _:
                raise TypeError(f"'{op.name}' is no op of ranks")
        return None

    def _peer(self, rank: int, op: Any, peer: int) -> int:
        if not 0 <= peer < self.world:
            raise KernelError(make("check-no-peer", op.span, rank=rank, peer=int(peer), world=self.world))
        return int(peer)

    def _wait(self, rank: int, op: Any, frame: Any, args: tuple[Any, ...]) -> _Arrived:
        (buf,), indices, (value,) = groups(op, args)
        key = tuple(map(int, point(op, frame, buf.name, buf.array.shape, indices)))
        holds = _COMPARE[op.cmp]
        text = f"{buf.root.name}[{', '.join(map(str, key))}] {_SIGNS[op.cmp]} {value}"
        if not holds(buf.array[key], value):
            self._yield(rank, (op, f"{text} (it is {buf.array[key]})", lambda: holds(buf.array[key], value)))
        known = self.shadows[rank][buf.root.name].words.get(int(buf.ids[key]))
        if known is not None:
            np.maximum(self.clocks[rank], known, out=self.clocks[rank])
        return _Arrived()

    def _barrier(self, rank: int, op: Any) -> None:
        """Ends for all at once: the last that comes waits for what is under way, then it joins the clocks and lets the others go."""
        waiting = self.waiting
        passed = [False]

        def complete() -> bool:
            if passed[0]:
                return True
            here = [w for r, w in enumerate(waiting) if not self.done[r] and w is not None and isinstance(w[0], dist.Barrier)]
            if len(here) < self.world or any(queue for rows in self.under_way for queue in rows):
                return False
            for r in range(self.world):
                self.clocks[r][r] += 1
            joined = np.maximum.reduce(self.clocks)
            for r in range(self.world):
                for p in range(self.world):
                    joined[self._pair(r, p)] = self.issued[r, p]
            for r in range(self.world):
                self.clocks[r][:] = joined
            for w in here:
                w[3][0] = True
            return True

        self._yield(rank, (op, "a barrier", complete, passed))
