"""loop: structured control flow shared by all levels. Every region is one block ended by loop.yield (or loop.condition)."""

from __future__ import annotations

from typing import Any

from tilelang.ir.core import Block, Dialect, Operation, Region, Value, VerifyError, attr, operand, operands, region
from tilelang.ir.types import Type, bool_, index


class Yield(Operation, name="loop.yield", terminator=True):
    """Ends a region; the operands are the values it gives to the op around it."""

    __slots__ = ()
    values = operands()

    @classmethod
    def of(cls, *values: Value) -> Yield:
        return cls([values])

    def evaluate(self, frame: Any, *args: Any) -> Any:
        return args


class For(Operation, name="loop.for", variadic_results=True):
    """for iv in range(lower, upper, step) with carried values; step > 0. Body arguments: iv, then the carried values.

    stages: > 1 where the user asked for a software pipeline; the meaning stays serial.
    pipelined: the loop was written as `pipelined(...)`."""

    __slots__ = ()
    lower = operand()
    upper = operand()
    step = operand()
    inits = operands()
    stages = attr(int, 1)
    pipelined = attr(bool, False)
    unroll = attr(int, 1)
    body = region()

    @classmethod
    def of(cls, lower: Value, upper: Value, step: Value, inits: list[Value] | tuple[Value, ...] = (), stages: int = 1, pipelined: bool = False, hint: str | None = None) -> For:
        block = Block([index, *(v.type for v in inits)], [hint, *(v.hint for v in inits)])
        attrs: dict[str, Any] = {}
        if stages != 1:
            attrs["stages"] = stages
        if pipelined:
            attrs["pipelined"] = True
        return cls([lower, upper, step, list(inits)], [v.type for v in inits], attrs, [Region([block])])

    @property
    def iv(self) -> Value:
        return self.body.block.args[0]

    @property
    def carried(self) -> list[Value]:
        """Block arguments of the carried values."""
        return self.body.block.args[1:]

    def verify_(self) -> None:
        block = self.body.block
        if [a.type for a in block.args] != [index, *(v.type for v in self.inits)]:
            raise VerifyError(self, "body arguments must be the index and the carried values")
        _check_yield(self, self.body, [r.type for r in self.results])
        if [v.type for v in self.inits] != [r.type for r in self.results]:
            raise VerifyError(self, f"results are {[str(r.type) for r in self.results]}, initial values {[str(v.type) for v in self.inits]}")

    def evaluate(self, frame: Any, *args: Any) -> Any:
        lower, upper, step, *values = args
        for i in frame.iterations(self, range(int(lower), int(upper), int(step))):
            values = frame.run(self.body, (i, *values))
        return tuple(values)


class Parallel(Operation, name="loop.parallel"):
    """Independent iterations over a box: ivs from lowers to uppers by steps. grid: blocks of the kernel's grid, spread over threads."""

    __slots__ = ()
    lowers = operands()
    uppers = operands()
    steps = operands()
    grid = attr(bool, False)
    body = region()

    @classmethod
    def of(cls, lowers: list[Value], uppers: list[Value], steps: list[Value], grid: bool = False, hints: list[str | None] | None = None) -> Parallel:
        block = Block([index] * len(lowers), hints or [])
        return cls([lowers, uppers, steps], (), {"grid": True} if grid else {}, [Region([block])])

    @property
    def ivs(self) -> list[Value]:
        return self.body.block.args

    def verify_(self) -> None:
        n = len(self.lowers)
        if not (n == len(self.uppers) == len(self.steps) == len(self.body.block.args)):
            raise VerifyError(self, "needs as many lower bounds as upper bounds, steps and body arguments")
        _check_yield(self, self.body, [])

    def evaluate(self, frame: Any, *args: Any) -> Any:
        frame.run_parallel(self, args)


class If(Operation, name="loop.if", variadic_results=True):
    """Runs one of two regions; each yields the results."""

    __slots__ = ()
    condition = operand()
    then = region()
    orelse = region()

    @classmethod
    def of(cls, condition: Value, types: list[Type] | tuple[Type, ...] = ()) -> If:
        return cls([condition], types, {}, [Region([Block()]), Region([Block()])])

    def verify_(self) -> None:
        if self.condition.type is not bool_:
            raise VerifyError(self, f"condition must be bool, it is {self.condition.type}")
        for r in self.regions:
            _check_yield(self, r, [r.type for r in self.results])

    def evaluate(self, frame: Any, *args: Any) -> Any:
        return tuple(frame.run(self.then if args[0] else self.orelse, ()))


class While(Operation, name="loop.while", variadic_results=True):
    """Runs `before`, which ends in loop.condition(c, values...); while c holds, `body` gets the values and yields the next arguments of `before`.
    The results are the values given with the condition that ended the loop."""

    __slots__ = ()
    inits = operands()
    before = region()
    body = region()

    @classmethod
    def of(cls, inits: list[Value], types: list[Type] | None = None) -> While:
        types = [v.type for v in inits] if types is None else types
        hints = [v.hint for v in inits]
        return cls([inits], types, {}, [Region([Block([v.type for v in inits], hints)]), Region([Block(types, hints)])])

    def verify_(self) -> None:
        if [a.type for a in self.before.block.args] != [v.type for v in self.inits]:
            raise VerifyError(self, "arguments of 'before' must have the types of the initial values")
        condition = self.before.block.last
        if not isinstance(condition, Condition):
            raise VerifyError(self, "'before' must end in loop.condition")
        types = [r.type for r in self.results]
        if [v.type for v in condition.values] != types or [a.type for a in self.body.block.args] != types:
            raise VerifyError(self, "the values of loop.condition, the arguments of 'body' and the results must have the same types")
        _check_yield(self, self.body, [v.type for v in self.inits])

    def evaluate(self, frame: Any, *args: Any) -> Any:
        values = args
        while True:
            go, *values = frame.run(self.before, values)
            if not go:
                return tuple(values)
            values = frame.run(self.body, values)


class Condition(Operation, name="loop.condition", terminator=True):
    """Ends the `before` region of loop.while."""

    __slots__ = ()
    condition = operand()
    values = operands()

    @classmethod
    def of(cls, condition: Value, *values: Value) -> Condition:
        return cls([condition, values])

    def evaluate(self, frame: Any, *args: Any) -> Any:
        return args


class Assert(Operation, name="loop.assert"):
    """Stops the kernel when the condition is false. slug and message say what the user is told; the op's span is the place.
    values: shown with the message (indices, extents)."""

    __slots__ = ()
    condition = operand()
    values = operands()
    slug = attr(str, "run-assert")
    message = attr(str)

    @classmethod
    def of(cls, condition: Value, message: str, slug: str = "run-assert", values: list[Value] | tuple[Value, ...] = ()) -> Assert:
        attrs = {"message": message} if slug == "run-assert" else {"slug": slug, "message": message}
        return cls([condition, list(values)], (), attrs)

    def verify_(self) -> None:
        if self.condition.type is not bool_:
            raise VerifyError(self, f"condition must be bool, it is {self.condition.type}")

    def evaluate(self, frame: Any, *args: Any) -> Any:
        if not args[0]:
            frame.failed(self, args[1:])


class Print(Operation, name="loop.print"):
    """Prints values, in interpret and check mode; nothing in compiled code. parts: text, or None for the next value."""

    __slots__ = ()
    values = operands()
    parts = attr(tuple)

    @classmethod
    def of(cls, parts: tuple[str | None, ...], values: list[Value]) -> Print:
        return cls([values], (), {"parts": parts})

    def evaluate(self, frame: Any, *args: Any) -> Any:
        frame.print(self, args)


class Breakpoint(Operation, name="loop.breakpoint"):
    """Stops in the debugger, in interpret and check mode; nothing in compiled code. The values are the live variables, named by
    `names`; an index range i is two of them, i.start and i.stop."""

    __slots__ = ()
    values = operands()
    names = attr(tuple)

    @classmethod
    def of(cls, names: tuple[str, ...], values: list[Value]) -> Breakpoint:
        return cls([values], (), {"names": names})

    def evaluate(self, frame: Any, *args: Any) -> Any:
        frame.breakpoint(self, args)


def _check_yield(op: Operation, region: Region, types: list[Type]) -> None:
    last = region.block.last
    if not isinstance(last, Yield):
        raise VerifyError(op, "a region must end in loop.yield")
    found = [v.type for v in last.values]
    if found != types:
        raise VerifyError(op, f"yields ({', '.join(map(str, found))}), expected ({', '.join(map(str, types))})")


DIALECT = Dialect("loop", [For, Parallel, If, While, Condition, Yield, Assert, Print, Breakpoint], "structured control flow")
