"""The ascend level with pipes that run at the same time. Each core's scalar unit runs the function and issues instructions to the queues of the pipes; then
they are carried out in an order drawn by a seed, which respects flags and barriers and nothing else: of the instructions at the head of a pipe, up to its
next flag or barrier, any may be next. So a program that misses a synchronisation computes something else in some orders, and in every order it is found:

- check-hazard: two instructions on the same memory, at least one writes, nothing orders them; also two cores at one place in global memory;
- check-flag: a wait for a flag that nobody sets (the pipes stand still), a flag set twice, or left over at the end;
- buffer-too-large: local memory outside its space, or two buffers at one address.

Method: every pipe has a vector clock, what it knows of the others when it starts an instruction; for every 32 bytes of local memory, and every element
of global memory, the time of the last read and write of each pipe is kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilelang.diagnostics import Diagnostic, Note, make
from tilelang.dialects import ascend
from tilelang.ir.core import Module
from tilelang.ir.types import BufferType, element_of
from tilelang.runtime import npu
from tilelang.runtime.interp import Interpreter
from tilelang.runtime.memory import BufferValue
from tilelang.runtime.numerics import dtype_of
from tilelang.target import Target, get_target

_UNIT = 32  # bytes of local memory that are watched as one: what addresses are multiples of
_PIPES = ascend.PIPES


def run_pipes(
    module: Module, name: str, args: Sequence[Any], cores: int = 1, seed: int = 0, target: Target | None = None, max_reports: int = 20
) -> list[Diagnostic]:
    """Runs a function of the ascend level on a number of cores, and returns what was found wrong. args as Interpreter.run takes them; arrays are written in
    place. Raises KernelError for an access outside of global memory."""
    return _Machine(module, name, args, cores, seed, target or get_target("ascend910b"), max_reports).run()


@dataclass(eq=False, slots=True)
class _Issued:
    """An instruction in a queue. number: its place in the order of the program."""

    op: Any
    frame: Any
    args: tuple[Any, ...]
    number: int


@dataclass(eq=False)
class _Shadow:
    """The time of the last write and read of each unit of some memory, by the pipe (of all cores) that made it, and the ops."""

    name: str
    space: str
    size: int
    writes: dict[int, Any] = field(default_factory=dict)
    reads: dict[int, Any] = field(default_factory=dict)


class _CoreInterpreter(Interpreter):
    def __init__(self, module: Module, core: _Core) -> None:
        super().__init__(module)
        self.core = core


class _Core:
    """One core: its local memory, its queues, what its pipes know."""

    def __init__(self, machine: _Machine, number: int, count: int) -> None:
        self.machine, self.number, self.count = machine, number, count
        self.queues: dict[str, list[_Issued]] = {p: [] for p in _PIPES}
        self.addresses: dict[int, tuple[int, Any]] = {}  # id of an array -> its address, and the array, so that the id stays its own
        self.ranges: dict[str, list[tuple[int, int, Any]]] = {}
        self.shadows: dict[str, _Shadow] = {}
        self.flags: dict[tuple[str, str, int], tuple[Any, Any]] = {}  # flags that are set: clock, op
        self.known = {p: [0] * len(_PIPES) for p in _PIPES}
        self.times = dict.fromkeys(_PIPES, 0)
        self.issued = 0

    # -- what the scalar unit does

    def allocated(self, op: Any, buffer: BufferValue) -> None:
        space = buffer.root.space
        first, bytes = op.address, buffer.array.nbytes
        capacity = self.machine.target.space(space).capacity
        what = f"'{op.out.hint}'" if op.out.hint else "a buffer"
        if capacity is not None and first + bytes > capacity:
            self.machine.report(("space", op), make("buffer-too-large", op.span, what=what, needed=first + bytes, space=space, capacity=capacity))
        for low, high, other in self.ranges.setdefault(space, []):
            if first < high and low < first + bytes:
                notes = [Note("the other is made here", other.span)]
                self.machine.report(("space", op), Diagnostic("buffer-too-large", f"{what} lies over another buffer of {space}", op.span, tuple(notes)))
        self.ranges[space].append((first, first + bytes, op))
        self.addresses[id(buffer.array)] = first, buffer.array
        shadow = self.shadows.setdefault(space, _Shadow("the memory", space, 0))
        shadow.size = max(shadow.size, -(-(first + bytes) // _UNIT))

    def issue(self, op: Any, frame: Any, args: tuple[Any, ...]) -> None:
        self.queues[op.pipe].append(_Issued(op, frame, args, self.issued))
        self.issued += 1

    # -- what the pipes do

    def ready(self) -> list[tuple[_Core, str, _Issued]]:
        """What may be carried out next."""
        found: list[tuple[_Core, str, _Issued]] = []
        for pipe, queue in self.queues.items():
            if not queue:
                continue
            head = queue[0].op
            if isinstance(head, ascend.WaitFlag):
                if (head.src, head.dst, head.id) in self.flags:
                    found.append((self, pipe, queue[0]))
            elif isinstance(head, ascend.SYNC):
                found.append((self, pipe, queue[0]))
            else:
                for item in queue:
                    if isinstance(item.op, ascend.SYNC):
                        break
                    found.append((self, pipe, item))
        return found

    def execute(self, pipe: str, item: _Issued) -> None:
        self.queues[pipe].remove(item)
        op = item.op
        at = _PIPES.index(pipe)
        if isinstance(op, ascend.PipeBarrier):
            self.known[pipe][at] = self.times[pipe]
        elif isinstance(op, ascend.SetFlag):
            key = op.src, op.dst, op.id
            if key in self.flags:
                notes = [Note("it was set here", self.flags[key][1].span)]
                self.machine.report(("twice", op), make("check-flag", op.span, notes, what=f"{_flag(key)} is set again before anybody waited for it"))
            clock = [*self.known[pipe]]
            clock[at] = self.times[pipe]
            self.flags[key] = clock, op
        elif isinstance(op, ascend.WaitFlag):
            clock, _ = self.flags.pop((op.src, op.dst, op.id))
            self.known[pipe] = [max(a, b) for a, b in zip(self.known[pipe], clock)]
        else:
            self.watch(pipe, item)
            npu.execute(op, item.frame, item.args)

    def watch(self, pipe: str, item: _Issued) -> None:
        op = item.op
        time = self.times[pipe] + 1
        touched: list[tuple[_Shadow, Any, bool]] = []
        for access in op.accesses():
            buffer = item.args[op.operands.index(access.buffer)]
            if ascend.buffer_type(access.buffer).space == "global":
                memory, key = npu.gm_box(op, item.frame, item.args)
                assert memory.ids is not None
                touched.append((self.machine.shadows[memory.root.name], np.ravel(memory.ids[key]), access.writes))
            else:
                first, _ = self.addresses[id(buffer.array)]
                width = buffer.array.itemsize
                units = slice((first + access.first * width) // _UNIT, -(-(first + access.stop * width) // _UNIT))
                touched.append((self.shadows[buffer.root.space], units, access.writes))
        for shadow, units, writes in touched:
            for before in (shadow.writes, shadow.reads) if writes else (shadow.writes,):
                for other, times in before.items():
                    self.compare(pipe, op, shadow, other, int(times[units].max(initial=0)), writes, before is shadow.writes)
        own = self.number * len(_PIPES) + _PIPES.index(pipe)
        self.times[pipe] = time
        self.machine.ops[own, time] = op
        for shadow, units, writes in touched:
            table = shadow.writes if writes else shadow.reads
            if own not in table:
                table[own] = np.zeros(shadow.size, np.int32)
            table[own][units] = time

    def compare(self, pipe: str, op: Any, shadow: _Shadow, other: int, time: int, writes: bool, wrote: bool) -> None:
        core, at = divmod(other, len(_PIPES))
        if time == 0 or (core == self.number and self.known[pipe][at] >= time):
            return
        first = self.machine.ops[other, time]
        names = (f"{_PIPES[at]} of core {core}", f"{pipe} of core {self.number}") if core != self.number else (_PIPES[at], pipe)
        notes = [Note(f"pipe {names[0]} {'writes' if wrote else 'reads'} it here ({first.name})", first.span)]
        report = make(
            "check-hazard", op.span, notes, first=names[0], second=names[1], second_does="writes" if writes else "reads",
            first_does="write" if wrote else "read", what=shadow.name, space=shadow.space,
        )  # fmt: skip
        self.machine.report(("hazard", first, op), report)


class _Machine:
    def __init__(self, module: Module, name: str, args: Sequence[Any], cores: int, seed: int, target: Target, max_reports: int) -> None:
        self.target, self.max_reports = target, max_reports
        self.random = random.Random(seed)
        self.reports: list[Diagnostic] = []
        self.seen: set[Any] = set()
        self.ops: dict[tuple[int, int], Any] = {}  # pipe of a core, time -> instruction
        self.shadows: dict[str, _Shadow] = {}
        self.cores = [_Core(self, i, cores) for i in range(cores)]
        interpreters = [_CoreInterpreter(module, core) for core in self.cores]
        function = interpreters[0]._functions[name]  # pyright: ignore[reportPrivateUsage]
        values = list(args)
        for i, param in enumerate(function.args):
            if isinstance(param.type, BufferType) and i < len(values):
                label = param.hint or str(i)
                values[i] = BufferValue.of(np.asarray(values[i]), label, "global", ids=True)
                if values[i].array.dtype != dtype_of(element_of(param.type)):
                    raise TypeError(f"'{label}' is of {element_of(param.type)}, its argument an array of {values[i].array.dtype}")
                self.shadows[label] = _Shadow(f"'{label}'", "global memory", values[i].array.size)
        for interpreter in interpreters:
            interpreter.run(name, values)

    def report(self, key: Any, diagnostic: Diagnostic) -> None:
        if key not in self.seen and len(self.reports) < self.max_reports:
            self.seen.add(key)
            self.reports.append(diagnostic)

    def run(self) -> list[Diagnostic]:
        # A pipe that is held back for long shows more than one that is a little late.
        weights = {(c.number, p): self.random.choice((1, 1, 20)) for c in self.cores for p in _PIPES}
        with np.errstate(all="ignore"):
            while ready := [item for core in self.cores for item in core.ready()]:
                core, pipe, item = self.random.choices(ready, [weights[c.number, p] for c, p, _ in ready])[0]
                core.execute(pipe, item)
        for core in self.cores:
            waiting = [queue[0].op for queue in core.queues.values() if queue]
            for op in waiting:
                key = op.src, op.dst, op.id
                self.report(("stuck", op), make("check-flag", op.span, what=f"{_flag(key)} is waited for and never set; core {core.number} stands still"))
            if not waiting:
                for key, (_, op) in core.flags.items():
                    self.report(("left", op), make("check-flag", op.span, what=f"{_flag(key)} is set and never waited for"))
        return self.reports


def _flag(key: tuple[str, str, int]) -> str:
    return f"event {key[2]} from pipe {key[0]} to pipe {key[1]}"
