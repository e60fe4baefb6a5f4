"""Check mode: runs a tile-level function in the interpreter with shadow state beside the memory, and finds

- check-bounds: an access outside a buffer or tile (it is clipped, and the run goes on);
- check-uninitialised: a read of fresh memory that was never written, and results returned with such elements;
- check-race: two grid blocks touch one element, at least one of them writes, and not both by atomics;
- check-pipeline: a load in a pipelined loop of what an earlier iteration, at most stages - 1 before, stored: loading ahead would change the result;
- check-overflow (where asked): integer arithmetic that wraps.

Method: for each element of each buffer the run notes whether it was written, which blocks wrote, read and updated it since the grid began (for readers
and atomics two different blocks are enough to decide every conflict), and in which iteration of a pipelined loop it was stored. The result does not
depend on the order in which blocks run, so one run in order finds every race that the data can show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tilelang.diagnostics import Diagnostic, Note, Span, make
from tilelang.dialects.func import Func
from tilelang.ir.core import Module, Operation
from tilelang.ir.types import element_of
from tilelang.runtime.arrays import identity
from tilelang.runtime.failure import KernelError, assertion, block_text, out_of_bounds, position_note
from tilelang.runtime.interp import Interpreter
from tilelang.runtime.memory import BufferValue, Root
from tilelang.runtime.numerics import dtype_of, poison

_WRITE, _READ, _ATOMIC = 0, 1, 2
_VERB = {_WRITE: "writes", _READ: "reads", _ATOMIC: "updates"}
_RIVALS = {_WRITE: (_WRITE, _READ, _ATOMIC), _READ: (_WRITE, _ATOMIC), _ATOMIC: (_WRITE, _READ)}
_NOBODY = -1


class _Shadow:
    """What is known about the elements of one buffer."""

    __slots__ = ("root", "written", "private", "epoch", "blocks", "ops", "iterations")

    def __init__(self, root: Root, private: int) -> None:
        self.root = root
        self.written = np.full(int(np.prod(root.shape)), not root.fresh)
        self.private = private  # the grid run in which it was allocated, by one block for itself; 0 = outside any
        self.epoch = 0
        # For each kind of access two different blocks that made one, and the number of the op that did.
        self.blocks: list[list[Any]] = []
        self.ops: list[list[Any]] = []
        # Pipelined loop that is running -> for each element the iteration and the op that stored it.
        self.iterations: dict[_Loop, tuple[Any, Any]] = {}

    def begin(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.epoch = epoch
            n = self.written.size
            self.blocks = [[np.full(n, _NOBODY, np.int32) for _ in range(2)] for _ in range(3)]
            self.ops = [[np.zeros(n, np.int32) for _ in range(2)] for _ in range(3)]


class _Loop:
    """A pipelined loop that is running."""

    __slots__ = ("op", "stages", "iteration", "touched")

    def __init__(self, op: Any) -> None:
        self.op = op
        self.stages = max(op.stages, 2)  # the result must not depend on the number of stages, so one that is not given counts as two
        self.iteration = 0
        self.touched: list[_Shadow] = []


class Hooks:
    """Watches a run of the interpreter. `reports`: what was found, each kind of defect once for each op (and buffer)."""

    def __init__(self, overflow: bool = False, max_reports: int = 20) -> None:
        self.overflow = overflow
        self.max_reports = max_reports
        self.reports: list[Diagnostic] = []
        self.position: Callable[[], tuple[tuple[str, int], ...]] = tuple
        self._seen: set[Any] = set()
        self._epoch = 0  # counts grids; 0 before the first
        self._in_grid = False
        self._blocks: list[tuple[tuple[str, int], ...]] = []
        self._op_numbers: dict[Operation, int] = {}
        self._ops: list[Operation] = []
        self._loops: list[_Loop] = []
        self._results: list[BufferValue] = []

    # -- reports

    def _report(self, key: Any, diagnostic: Callable[[], Diagnostic]) -> None:
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self.reports) < self.max_reports:
            self.reports.append(diagnostic())

    def _notes(self) -> list[Note]:
        position = self.position()
        return [position_note(position)] if position else []

    # -- called by the interpreter

    def parameter(self, buf: BufferValue, param: Any, role: str) -> None:
        buf.root.shadow = _Shadow(buf.root, 0)
        if role == "out":
            buf.array[...] = poison(buf.array.shape, element_of(param.type))
            self._results.append(buf)

    def allocated(self, buf: BufferValue) -> None:
        buf.root.shadow = _Shadow(buf.root, self._epoch if self._in_grid else 0)

    def grid(self, op: Any, frame: Any) -> None:
        """A grid begins, or ends when op is None."""
        self._in_grid = op is not None
        self._epoch += 1
        self._blocks = []

    def iterations(self, op: Any, frame: Any, numbers: range) -> Iterable[int]:
        return self._pipelined(op, numbers) if op.pipelined or op.stages > 1 else numbers

    def _pipelined(self, op: Any, numbers: range) -> Iterator[int]:
        loop = _Loop(op)
        self._loops.append(loop)
        try:
            for loop.iteration, i in enumerate(numbers):
                yield i
        finally:
            self._loops.remove(loop)
            for shadow in loop.touched:
                shadow.iterations.pop(loop, None)

    def failed(self, op: Any, frame: Any, values: Sequence[Any]) -> bool:
        """A failed bounds check is reported and the run goes on; any other assert ends it."""
        if op.slug != "run-out-of-bounds":
            return False
        self._report(("bounds", _place(op)), lambda: assertion("check-bounds", op.message, op.span, values, self._notes()))
        return True

    def out_of_bounds(self, op: Any, frame: Any, what: str, axis: int, index: int, length: int) -> bool:
        def diagnostic() -> Diagnostic:
            return out_of_bounds("check-bounds", op.span, what, axis, int(index), length, self._notes())

        self._report(("bounds", _place(op)), diagnostic)
        return length > 0  # nothing to clip to: the run ends

    def read(self, op: Any, frame: Any, buf: BufferValue, ids: Any) -> None:
        ids = np.ravel(ids)
        self._initialised(op, buf, ids)
        self._race(op, buf, ids, _READ)
        if self._loops and buf.root.space == "global":
            self._hazard(op, buf, ids)

    def write(self, op: Any, frame: Any, buf: BufferValue, ids: Any) -> None:
        ids = np.ravel(ids)
        buf.root.shadow.written[ids] = True
        self._race(op, buf, ids, _WRITE)
        self._stored(op, buf, ids)

    def atomic(self, op: Any, frame: Any, buf: BufferValue, ids: Any) -> None:
        ids = np.ravel(ids)
        self._initialised(op, buf, ids)
        self._race(op, buf, ids, _ATOMIC)
        self._stored(op, buf, ids)

    # -- uninitialised reads

    def _initialised(self, op: Any, buf: BufferValue, ids: Any) -> None:
        written = buf.root.shadow.written
        missing = ~written[ids]
        if missing.any():
            where = _index(buf, ids[missing][0])
            self._report(
                ("uninitialised", op, buf.root.name),
                lambda: make("check-uninitialised", op.span, self._notes(), what=buf.name, index=where),
            )
            written[ids] = True  # one report for one defect

    # -- races

    def _block(self) -> int:
        position = self.position()
        if not self._blocks or self._blocks[-1] is not position:
            self._blocks.append(position)
        return len(self._blocks) - 1

    def _number(self, op: Any) -> int:
        number = self._op_numbers.get(op)
        if number is None:
            number = self._op_numbers[op] = len(self._ops)
            self._ops.append(op)
        return number

    def _race(self, op: Any, buf: BufferValue, ids: Any, kind: int) -> None:
        shadow: _Shadow = buf.root.shadow
        if not self._in_grid or shadow.private == self._epoch:
            return
        shadow.begin(self._epoch)
        block = self._block()
        for rival in _RIVALS[kind]:
            for slot in range(2):
                others = shadow.blocks[rival][slot][ids]
                bad = (others != _NOBODY) & (others != block)
                if bad.any():
                    k = int(np.argmax(bad))
                    self._conflict(op, buf, int(ids[k]), kind, block, rival, int(others[k]), self._ops[shadow.ops[rival][slot][ids[k]]])
        first, second = shadow.blocks[kind]
        number = self._number(op)
        new = ids[first[ids] == _NOBODY]
        first[new] = block
        shadow.ops[kind][0][new] = number
        other = ids[(first[ids] != block) & (second[ids] == _NOBODY)]
        second[other] = block
        shadow.ops[kind][1][other] = number

    def _conflict(self, op: Any, buf: BufferValue, at: int, kind: int, block: int, rival: int, other: int, other_op: Any) -> None:
        def diagnostic() -> Diagnostic:
            here, there = block_text(self._blocks[block]), block_text(self._blocks[other])
            notes = [Note(f"block {there} {_VERB[rival]} it here", other_op.span), Note(f"block {here} {_VERB[kind]} it")]
            return make("check-race", op.span, notes, first=there, second=here, what=buf.name, index=_index(buf, at))

        self._report(("race", frozenset((op, other_op)), buf.root.name), diagnostic)

    # -- pipelines

    def _stored(self, op: Any, buf: BufferValue, ids: Any) -> None:
        shadow: _Shadow = buf.root.shadow
        if buf.root.space != "global":
            return
        for loop in self._loops:
            entry = shadow.iterations.get(loop)
            if entry is None:
                n = shadow.written.size
                entry = shadow.iterations[loop] = (np.full(n, -1, np.int64), np.zeros(n, np.int32))
                loop.touched.append(shadow)
            entry[0][ids] = loop.iteration
            entry[1][ids] = self._number(op)

    def _hazard(self, op: Any, buf: BufferValue, ids: Any) -> None:
        """A load of global memory in a pipelined loop that an earlier iteration, near enough to overlap, stored to. Buffers of the block itself are
        not loaded ahead: the pipeline renames them or leaves them in order."""
        for loop in self._loops:
            entry = buf.root.shadow.iterations.get(loop)
            if entry is None:
                continue
            stored = entry[0][ids]
            bad = (stored >= 0) & (stored < loop.iteration) & (loop.iteration - stored < loop.stages)
            if bad.any():
                k = int(np.argmax(bad))
                store = self._ops[entry[1][ids[k]]]

                def diagnostic(loop: _Loop = loop, k: int = k, stored: Any = stored, store: Any = store) -> Diagnostic:
                    notes = [Note("stored here", store.span), Note(f"the loop has {loop.stages} stages", loop.op.span), *self._notes()]
                    return make(
                        "check-pipeline", op.span, notes, what=buf.name, index=_index(buf, int(ids[k])), first=int(stored[k]), second=loop.iteration
                    )

                self._report(("pipeline", op, store), diagnostic)

    # -- overflow

    def kernel(self, op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel of an arith op, watched where integers may wrap."""
        wide = _WIDE.get(op.name)
        element = element_of(op.results[0].type)
        if not self.overflow or wide is None or element.kind not in ("int", "uint"):
            return kernel

        def watched(*args: Any) -> Any:
            out = kernel(*args)
            # Python integers for 64 bits, else int64, which holds every sum and product of 32 bits.
            kind = object if element.bits == 64 else np.int64 if element.kind == "int" or op.name != "arith.mul" else object
            true = wide(*(np.asarray(a).astype(kind) for a in args))
            self._overflowed(op, element, true, np.asarray(out))
            return out

        return watched

    def function(self, op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        """`evaluate` of an op, watched where integers may wrap."""
        if not self.overflow or op.name.partition(".")[2] not in ("reduce", "scan") or op.attrs.get("kind") not in ("sum", "prod"):
            return function
        if not op.results or element_of(op.results[0].type).kind not in ("int", "uint"):
            return function
        element = element_of(op.results[0].type)
        combine: Any = np.add if op.kind == "sum" else np.multiply

        def watched(frame: Any, *args: Any) -> Any:
            out = function(frame, *args)
            x = np.asarray(args[0]).astype(object)
            start = int(identity(op.kind, element))
            if op.name.endswith("scan"):
                true = combine.accumulate(x, op.axis) if x.size else x
                out_all = combine.accumulate(np.asarray(args[0]), op.axis, dtype=dtype_of(element)) if x.size else x
                self._overflowed(op, element, true, np.asarray(out_all))
            else:
                self._overflowed(op, element, combine.reduce(x, tuple(op.axes), initial=start), np.asarray(out))
            return out

        return watched

    def _overflowed(self, op: Any, element: Any, true: Any, out: Any) -> None:
        if getattr(true, "dtype", None) != np.int64:
            true = np.asarray(true, object)  # without a dtype NumPy would take 2**63 for a u64, which equals a wrapped i64
        bad = np.atleast_1d(true != out.astype(true.dtype))
        if bad.any():
            value = np.broadcast_to(np.atleast_1d(true), bad.shape).ravel()[int(np.argmax(bad))]
            what = f"{_NAMES.get(op.name, op.attrs.get('kind', 'it'))} of {element} values"
            self._report(("overflow", op), lambda: make("check-overflow", op.span, self._notes(), what=what, dtype=element, value=int(value)))

    # -- the end of the run

    def finish(self, func: Func) -> None:
        """Results must have been written everywhere."""
        for buf in self._results:
            written = buf.root.shadow.written
            missing = int(np.count_nonzero(~written))
            if missing:
                text = f"{buf.name} is returned with {missing} of {written.size} elements never written, the first at {_index(buf, int(np.argmin(written)))}"
                self._report(("unwritten", buf.root.name), lambda text=text: Diagnostic("check-uninitialised", text, func.span))


_WIDE: dict[str, Callable[..., Any]] = {
    "arith.add": lambda a, b: a + b, "arith.sub": lambda a, b: a - b, "arith.mul": lambda a, b: a * b, "arith.neg": lambda a: -a,
}  # fmt: skip
_NAMES = {"arith.add": "the sum", "arith.sub": "the difference", "arith.mul": "the product", "arith.neg": "the negation"}


def _place(op: Any) -> Any:
    """An access and the assert that the frontend puts before it come from one place."""
    span: Span | None = op.span
    return (span.source, span.start, span.end) if span is not None else op


def _index(buf: BufferValue, at: Any) -> str:
    return "[" + ", ".join(str(int(i)) for i in np.unravel_index(int(at), buf.root.shape)) + "]" if buf.root.shape else "[]"


def check(module: Module, name: str, args: Sequence[Any], overflow: bool = False, max_reports: int = 20) -> list[Diagnostic]:
    """Runs function `name` of a tile-level module and returns what check mode found, in the order in which it showed; empty when all is well.

    args: as for Interpreter.run; results are written to them, fresh elements being NaN (integers: bytes a5) until written. A failed assert of the
    program is the last of the reports. overflow: also reports integer arithmetic that wraps."""
    hooks = Hooks(overflow, max_reports)
    interp = Interpreter(module, hooks=hooks)
    hooks.position = lambda: interp.position
    try:
        interp.run(name, args)
    except KernelError as error:
        if error.diagnostics[0].slug != "run-out-of-bounds":  # else it was reported as check-bounds
            hooks.reports += error.diagnostics
        return hooks.reports
    hooks.finish(next(f for f in module.body.block if isinstance(f, Func) and f.sym_name == name))
    return hooks.reports
