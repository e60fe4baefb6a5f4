"""Index arithmetic that folds what is constant while it is built."""

from __future__ import annotations

from tilelang.dialects import arith
from tilelang.dialects.arith import constant_value
from tilelang.ir.core import Builder, Operation, Value


class Index:
    """Builds index values at one place: `ix.mul(ix(4), n)`."""

    def __init__(self, build: Builder) -> None:
        self.build = build
        self._constants: dict[int, Value] = {}

    def __call__(self, value: int | Value) -> Value:
        if isinstance(value, Value):
            return value
        if value not in self._constants:
            self._constants[value] = self.build(arith.index_constant(value))
        return self._constants[value]

    def _fold(self, op: type[Operation], a: Value, b: Value, result: int | None) -> Value:
        return self(result) if result is not None else self.build(op([a, b], [a.type]))

    def add(self, a: Value, b: Value) -> Value:
        x, y = constant_value(a), constant_value(b)
        if x == 0 or y == 0:
            return b if x == 0 else a
        return self._fold(arith.Add, a, b, None if x is None or y is None else x + y)

    def sub(self, a: Value, b: Value) -> Value:
        x, y = constant_value(a), constant_value(b)
        if y == 0:
            return a
        return self._fold(arith.Sub, a, b, 0 if a is b else None if x is None or y is None else x - y)

    def mul(self, a: Value, b: Value) -> Value:
        x, y = constant_value(a), constant_value(b)
        if x == 1 or y == 1:
            return b if x == 1 else a
        zero = 0 if x == 0 or y == 0 else None
        return self._fold(arith.Mul, a, b, zero if x is None or y is None else x * y)

    def floordiv(self, a: Value, b: Value) -> Value:
        x, y = constant_value(a), constant_value(b)
        if y == 1:
            return a
        return self._fold(arith.FloorDiv, a, b, None if x is None or not y else x // y)

    def mod(self, a: Value, b: Value) -> Value:
        x, y = constant_value(a), constant_value(b)
        return self._fold(arith.Mod, a, b, 0 if y == 1 else None if x is None or not y else x % y)

    def min(self, a: Value, b: Value) -> Value:
        x, y = constant_value(a), constant_value(b)
        if a is b:
            return a
        return self._fold(arith.Min, a, b, None if x is None or y is None else min(x, y))

    def max(self, a: Value, b: Value) -> Value:
        x, y = constant_value(a), constant_value(b)
        if a is b:
            return a
        return self._fold(arith.Max, a, b, None if x is None or y is None else max(x, y))

    def ceildiv(self, a: Value, b: Value) -> Value:
        """For b > 0."""
        if constant_value(b) == 1:
            return a
        return self.floordiv(self.add(a, self.sub(b, self(1))), b)

    def trips(self, lower: Value, upper: Value, step: Value) -> Value:
        """How often range(lower, upper, step) runs; an extent (a dim of a buffer) is never negative."""
        count = self.ceildiv(self.sub(upper, lower), step)
        return count if constant_value(lower) == 0 and _is_extent(upper) else self.max(count, self(0))


def _is_extent(value: Value) -> bool:
    from tilelang.dialects import mem

    return isinstance(value.op, mem.Dim)
