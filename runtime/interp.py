"""The interpreter of every IR level: it defines what a program means, and every pass is checked against it.

    Interpreter(module).run("softmax", [x, out])

Values: `index` scalars are Python ints, other scalars NumPy scalars; tiles, tensors and vectors are ndarrays; buffers are memory.BufferValue around
an ndarray, written in place; vec pointers are registers.Pointer. Each op has an `evaluate` beside its dialect; arith and vec ops are prepared once
a block instead, since at the vec level the cost of an op is the interpreter's own.

exact: every float type is a float64 throughout, so that two modules differ in rounding only by about 1e-16 an operation: a difference above 1e-11
is a bug and no reordering."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilelang.diagnostics import CompilerBug, Note
from tilelang.dialects.func import Func
from tilelang.ir.core import Block, Module, Operation, Region, Value, VerifyError
from tilelang.ir.types import BufferType, PtrType, Scalar, TensorType, Type, index
from tilelang.runtime import numerics, registers
from tilelang.runtime.failure import KernelError, assertion, out_of_bounds, position_note
from tilelang.runtime.memory import BufferValue
from tilelang.runtime.registers import Pointer

# How a step of a plan is carried out: a prepared kernel of two, one or n operands; an evaluation with one, no or a tuple of results.
_TWO, _ONE, _MANY, _EVALUATE, _EFFECT, _TUPLE = range(6)
_BUGS = (ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError, AssertionError, NotImplementedError, StopIteration, VerifyError)


class RunLimit(Exception):
    """A run took more block executions than its limit."""


class _Plan:
    """A block made ready to run: slots of its arguments, steps (how, function, operand slots, result slots, op), slots of what it yields."""

    __slots__ = ("args", "steps", "yields")

    def __init__(self, args: list[int], steps: list[tuple[int, Any, Any, Any, Operation]], yields: tuple[int, ...]) -> None:
        self.args = args
        self.steps = steps
        self.yields = yields


class _Code:
    """A function made ready to run. Every value has a slot; a frame is a list of them, and constants are in the list from the start."""

    def __init__(self, func: Func, interp: Interpreter) -> None:
        self.func = func
        self.interp = interp
        self.slots: dict[Value, int] = {}
        self.template: list[Any] = []
        self.plans: dict[Region, _Plan] = {}
        self.elementwise: dict[Region, _Plan] = {}
        for op in func.walk():
            for region in op.regions:
                for block in region.blocks:
                    for arg in block.args:
                        self._slot(arg, None)
            for r in op.results:
                self._slot(r, numerics.constant(op.attrs["value"], r.type, interp.exact) if op.name == "arith.constant" else None)

    def _slot(self, value: Value, content: Any) -> None:
        self.slots[value] = len(self.template)
        self.template.append(content)

    def plan(self, block: Block, arrays: bool) -> _Plan:
        op: Any
        slots = self.slots
        steps: list[tuple[int, Any, Any, Any, Operation]] = []
        for op in block:
            if op.terminator or op.name == "arith.constant":
                continue
            ins = tuple(slots[v] for v in op.operands)
            outs = tuple(slots[r] for r in op.results)
            prefix = op.name.partition(".")[0]
            if prefix == "arith":
                kernel = numerics.kernel(op, self.interp.exact, arrays)
                if self.interp.hooks is not None:
                    kernel = self.interp.hooks.kernel(op, kernel)
                how = _TWO if len(ins) == 2 else _ONE if len(ins) == 1 else _MANY
                steps.append((how, kernel, ins[0] if how == _ONE else ins, outs[0], op))
                continue
            how = _TUPLE if op.variadic_results else _EVALUATE if len(outs) == 1 else _EFFECT if not outs else _TUPLE
            function = registers.prepare(op, self.interp.exact) if prefix == "vec" else op.evaluate
            if self.interp.hooks is not None:
                function = self.interp.hooks.function(op, function)
            steps.append((how, function, ins, outs[0] if how == _EVALUATE else outs, op))
        end = block.terminator
        return _Plan([slots[a] for a in block.args], steps, tuple(slots[v] for v in end.operands) if end is not None else ())


class Frame:
    """One run of a function: what `evaluate` of an op gets to know and may ask for."""

    __slots__ = ("interp", "code", "exact", "hooks", "env")

    def __init__(self, interp: Interpreter, code: _Code) -> None:
        self.interp = interp
        self.code = code
        self.exact = interp.exact
        self.hooks = interp.hooks
        self.env: list[Any] = code.template.copy()

    @property
    def position(self) -> tuple[tuple[str, int], ...]:
        """Names and values of the grid indices of the running block."""
        return self.interp.position

    def run(self, region: Region, args: Iterable[Any]) -> tuple[Any, ...]:
        """Runs a region; returns what its terminator yields."""
        plan = self.code.plans.get(region)
        if plan is None:
            plan = self.code.plans[region] = self.code.plan(region.block, False)
        return self._execute(plan, args)

    def run_elementwise(self, region: Region, args: Iterable[Any]) -> tuple[Any, ...]:
        """Runs a region of scalar arithmetic on whole arrays that broadcast together."""
        plan = self.code.elementwise.get(region)
        if plan is None:
            plan = self.code.elementwise[region] = self.code.plan(region.block, True)
        return self._execute(plan, args)

    def _execute(self, plan: _Plan, args: Iterable[Any]) -> tuple[Any, ...]:
        env = self.env
        interp = self.interp
        interp.runs += 1
        if interp.runs > interp.limit:
            raise RunLimit
        for slot, value in zip(plan.args, args):
            env[slot] = value
        op: Operation | None = None
        try:
            for how, function, ins, out, op in plan.steps:  # noqa: B007 (the handler reads op)
                if how == 0:
                    env[out] = function(env[ins[0]], env[ins[1]])
                elif how == 1:
                    env[out] = function(env[ins])
                elif how == 3:
                    env[out] = function(self, *[env[i] for i in ins])
                elif how == 4:
                    function(self, *[env[i] for i in ins])
                elif how == 2:
                    env[out] = function(*[env[i] for i in ins])
                else:
                    for slot, value in zip(out, function(self, *[env[i] for i in ins])):
                        env[slot] = value
        except _BUGS as error:
            assert op is not None
            raise CompilerBug(f"'{op.name}' cannot be interpreted: {error}", op=_text(op), span=op.span) from error
        return tuple([env[slot] for slot in plan.yields])

    def scalar(self, value: Any, element: Scalar) -> Any:
        return numerics.scalar(value, element, self.exact)

    def call(self, name: str, args: Sequence[Any]) -> tuple[Any, ...]:
        return self.interp.call(name, args)

    def iterations(self, op: Operation, numbers: range) -> Iterable[int]:
        """The iterations of a loop.for; hooks may watch them."""
        return numbers if self.hooks is None else self.hooks.iterations(op, self, numbers)

    def run_parallel(self, op: Any, args: Sequence[Any]) -> None:
        """All iterations of a loop.parallel, in order, or shuffled when the interpreter has a seed."""
        n = len(args) // 3
        axes = [range(int(a), int(b), int(c)) for a, b, c in zip(args[:n], args[n : 2 * n], args[2 * n :])]
        points: Iterable[tuple[int, ...]] = itertools.product(*axes)
        shuffle = self.interp.shuffle
        if shuffle is not None:
            points = list(points)
            shuffle.shuffle(points)
        if not op.grid:
            for p in points:
                self.run(op.body, p)
            return
        names = [a.hint or f"i{k}" for k, a in enumerate(op.ivs)]
        outer = self.interp.position
        if self.hooks is not None:
            self.hooks.grid(op, self)
        for p in points:
            self.interp.position = (*outer, *zip(names, p))
            self.run(op.body, p)
        self.interp.position = outer
        if self.hooks is not None:
            self.hooks.grid(None, self)

    def launch(self, op: Any, callee: str, count: int, captured: Sequence[Any]) -> None:
        """vec.launch: calls the outlined grid body on the blocks 0 to count, in a few chunks."""
        step = max(1, -(-count // 4))
        begins = list(range(0, count, step))
        if self.interp.shuffle is not None:
            self.interp.shuffle.shuffle(begins)
        outer = self.interp.position
        for begin in begins:
            self.interp.position = (*outer, ("blocks from", begin))
            self.call(callee, (begin, min(begin + step, count), *captured))
        self.interp.position = outer

    def notes(self) -> list[Note]:
        return [position_note(self.position)] if self.position else []

    def failed(self, op: Any, values: Sequence[Any]) -> None:
        """A loop.assert that does not hold."""
        if self.hooks is None or not self.hooks.failed(op, self, values):
            raise KernelError(assertion(op.slug, op.message, op.span, values, self.notes()))

    def out_of_bounds(self, op: Operation, what: str, axis: int, index: int, length: int) -> None:
        """An access of `index` on an axis of `length` elements. Returns only when hooks take it over."""
        if self.hooks is None or not self.hooks.out_of_bounds(op, self, what, axis, index, length):
            raise KernelError(out_of_bounds("run-out-of-bounds", op.span, what, axis, int(index), length, self.notes()))

    def print(self, op: Any, values: Sequence[Any]) -> None:
        rest = iter(values)
        print(*[next(rest) if part is None else part for part in op.parts], sep="")

    def breakpoint(self, op: Any, values: Sequence[Any]) -> None:
        """Calls sys.breakpointhook in a Python frame whose variables are those of the kernel; index ranges are Python's ranges."""
        names = {n: v.array if isinstance(v, BufferValue) else v for n, v in zip(op.names, values)}
        for name in [n.removesuffix(".start") for n in names if n.endswith(".start")]:
            names[name] = range(names.pop(f"{name}.start"), names.pop(f"{name}.stop"))
        where = str(op.span) if op.span is not None else "kernel"
        exec(compile("__import__('sys').breakpointhook()", f"<{where}>", "exec"), {"__name__": "kernel", **names})


class Interpreter:
    """Runs functions of a module as it is now (a later change of the module is not seen).

    exact: floats are float64 throughout. seed: runs parallel iterations in an order shuffled by it. hooks: see check.Hooks. limit: RunLimit is raised
    when more blocks than this are executed (each iteration of a loop is one); `runs` counts them."""

    def __init__(self, module: Module, exact: bool = False, hooks: Any = None, seed: int | None = None, limit: int | None = None) -> None:
        self.module = module
        self.exact = exact
        self.hooks = hooks
        self.runs = 0
        self.limit = limit if limit is not None else sys.maxsize
        self.shuffle = random.Random(seed) if seed is not None else None
        self.position: tuple[tuple[str, int], ...] = ()
        self._functions = {op.sym_name: op for op in module.body.block if isinstance(op, Func)}
        self._codes: dict[str, _Code] = {}

    def run(self, name: str, args: Sequence[Any]) -> tuple[Any, ...]:
        """Runs a function and returns its results. args: an ndarray a buffer or tensor (of its dtype, any strides; buffers are written in place), a number
        a scalar. At the vec level an ndarray stands for a pointer and the dims and strides after it.
        KernelError when the kernel stops, CompilerBug when an op cannot be evaluated, TypeError for arguments that do not fit."""
        func = self._functions[name]
        back: list[tuple[Any, Any]] = []
        values = list(self._bind(func, list(args), back))
        self.position = ()
        results = self.call(name, values)
        for target, copy in back:
            with np.errstate(all="ignore"):
                target[...] = copy.astype(target.dtype)
        return results

    def call(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Runs a function on values as they are inside the interpreter."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = _Code(self._functions[name], self)
        with np.errstate(all="ignore"):
            return Frame(self, code).run(code.func.body, values)

    def _bind(self, func: Func, args: list[Any], back: list[tuple[Any, Any]]) -> Iterable[Any]:
        params = iter(zip(func.args, func.roles))
        for arg in args:
            param, role = next(params, (None, ""))
            if param is None:
                raise TypeError(f"'{func.sym_name}' got more arguments than parameters")
            kind, name = param.type, param.hint or ""
            if isinstance(kind, Scalar):
                yield int(arg) if kind is index else numerics.scalar(arg, kind, self.exact)
            elif isinstance(arg, (Pointer, BufferValue)):
                yield arg
            else:
                array = self._array(np.asarray(arg), kind, name, role, back)
                if isinstance(kind, TensorType):
                    yield array
                elif isinstance(kind, BufferType):
                    if array.ndim != len(kind.shape):
                        raise TypeError(f"'{name}' has {len(kind.shape)} axes, its argument {array.ndim}")
                    buffer = BufferValue.of(array, name, kind.space, role == "out", ids=self.hooks is not None)
                    if self.hooks is not None:
                        self.hooks.parameter(buffer, param, role)
                    yield buffer
                else:
                    pointer, strides = Pointer.of(array, name)
                    yield pointer
                    yield from array.shape
                    yield from strides
                    for _ in range(2 * array.ndim):
                        next(params)
        if next(params, None) is not None:
            raise TypeError(f"'{func.sym_name}' got fewer arguments than parameters")

    def _array(self, array: Any, kind: Type, name: str, role: str, back: list[tuple[Any, Any]]) -> Any:
        element = kind.element if isinstance(kind, (TensorType, BufferType, PtrType)) else None
        if element is None:
            raise TypeError(f"'{name}' is a {kind}, its argument an array")
        want = numerics.dtype_of(element, self.exact)
        if array.dtype == want:
            return array
        if want == np.bool_ and array.dtype == np.uint8:
            return array.view(np.bool_)
        if self.exact and element.is_float and array.dtype == numerics.dtype_of(element):
            copy = array.astype(want)
            if role in ("out", "inout") and not isinstance(kind, TensorType):
                back.append((array, copy))
            return copy
        raise TypeError(f"'{name}' is of {element}, its argument an array of {array.dtype}")


def _text(op: Operation) -> str:
    from tilelang.ir.text import print_op

    try:
        return print_op(op).splitlines()[0]
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError):
        return op.name  # the op may be too broken to print, which must not hide the error


def __getattr__(name: str) -> Any:
    if name in ("equivalent", "InterpretEach"):
        from tilelang.runtime import compare

        return getattr(compare, name)
    raise AttributeError(name)
