"""Compile-time arithmetic on Python values, with Python's meaning."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

MAX_INT = 2**64  # beyond this no dtype has the number, and no program needs it
MAX_TEXT = 10_000


class FoldError(Exception):
    """The computation has no value; the message says why."""


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "**": operator.pow,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
PREDICATE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def _number(x: object) -> bool:
    return isinstance(x, (int, float))


def binary(op: str, a: Any, b: Any) -> Any:
    """a op b of compile-time values. FoldError when there is no such value, or it is out of all bounds."""
    if isinstance(a, str) and isinstance(b, str) and op == "+":
        if len(a) + len(b) > MAX_TEXT:
            raise FoldError(f"a string of more than {MAX_TEXT} characters")
        return a + b
    if not (_number(a) and _number(b)):
        raise FoldError(f"'{op}' does not work on {_kind(a)} and {_kind(b)}")
    if op in ("<<", "**") and isinstance(a, int) and isinstance(b, int) and (b > 64 or b < 0) and abs(a) > 1:
        if b < 0 and op == "**":
            return _checked(float(a) ** b)
        raise FoldError(f"{a} {op} {b} is too large")
    try:
        return _checked(_BINARY[op](a, b))
    except ZeroDivisionError:
        raise FoldError(f"{a} {op} {b} divides by zero") from None
    except OverflowError:
        raise FoldError(f"{a} {op} {b} is too large") from None
    except (TypeError, ValueError):
        raise FoldError(f"'{op}' does not work on {a!r} and {b!r}") from None


def _checked(value: Any) -> Any:
    if isinstance(value, complex):
        raise FoldError("the result is a complex number")
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise FoldError(f"the result is beyond {MAX_INT}")
    return value


def compare(op: str, a: Any, b: Any) -> bool:
    if op in ("==", "!="):
        return COMPARE[op](a, b)
    if (_number(a) and _number(b)) or (isinstance(a, str) and isinstance(b, str)):
        return COMPARE[op](a, b)
    raise FoldError(f"'{op}' does not compare {_kind(a)} with {_kind(b)}")


def unary(op: str, a: Any) -> Any:
    if op == "not":
        return not a
    if not _number(a) or (op == "~" and isinstance(a, float)):
        raise FoldError(f"'{op}' does not work on {_kind(a)}")
    return -a if op == "-" else +a if op == "+" else (not a) if isinstance(a, bool) else ~a


def _kind(x: object) -> str:
    if x is None or isinstance(x, bool):
        return str(x)
    return {int: "an integer", float: "a float", str: "a string"}.get(type(x), type(x).__name__)


def _exp(x: float, base: float | None = None) -> float:
    try:
        return math.exp(x) if base is None else math.pow(base, x)
    except OverflowError:
        return math.inf


def _log(x: float, f: Callable[[float], float] = math.log) -> float:
    return math.nan if x < 0 else -math.inf if x == 0 else f(x)


def _sqrt(x: float) -> float:
    return math.nan if x < 0 else math.sqrt(x)


def _rounded(f: Callable[[float], int]) -> Callable[[float], int | float]:
    return lambda x: f(x) if math.isfinite(x) else x


def _trig(f: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: f(x) if math.isfinite(x) else math.nan


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": _exp, "exp2": lambda x: _exp(x, 2.0), "log": _log, "log2": lambda x: _log(x, math.log2), "sqrt": _sqrt,
    "rsqrt": lambda x: math.inf if x == 0 else 1.0 / _sqrt(x), "tanh": math.tanh, "erf": math.erf, "sin": _trig(math.sin), "cos": _trig(math.cos),
    "abs": abs, "floor": _rounded(math.floor), "ceil": _rounded(math.ceil), "round": _rounded(round),
}  # fmt: skip


def minimum(values: list[Any], smallest: bool) -> Any:
    """The least or greatest number, NaN when one is NaN."""
    bad = next((v for v in values if v != v), None)
    return bad if bad is not None else (min if smallest else max)(values)
