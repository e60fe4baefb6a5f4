"""Constants as rewrites see them: a number behind a value, whether it is a scalar, or the same in every element."""

from __future__ import annotations

import math
from typing import Any

from tilelang.dialects import arith, tile, vec
from tilelang.ir.core import Operation, Value
from tilelang.ir.types import Scalar, Type, VectorType, element_of


def splat_value(value: Value) -> Any | None:
    """The Python number when every element of the value is that number, and known: constants, and fills and broadcasts of constants."""
    op = value.op
    while isinstance(op, (tile.Fill, tile.Broadcast, vec.Splat)):
        op = op.operands[0].op
    return op.value if isinstance(op, arith.Constant) else None


def is_number(value: Value, number: int | float) -> bool:
    """Whether every element is known to be exactly this number; the sign of a float zero counts."""
    found = splat_value(value)
    if found is None or isinstance(found, bool):
        return False
    return found == number and math.copysign(1.0, found) == math.copysign(1.0, number)


def is_integral(type: Type) -> bool:
    """Integers and index: arithmetic that wraps, where the laws of rings hold."""
    return element_of(type).is_integer


def can_be_constant(type: Type) -> bool:
    """Types for which a pass may make a new constant; tiles and tensors are filled instead, since their extents may be dynamic."""
    return isinstance(type, (Scalar, VectorType))


def number_range(element: Scalar) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    if element.kind == "uint":
        return 0, (1 << element.bits) - 1
    return -(1 << (element.bits - 1)), (1 << (element.bits - 1)) - 1


def evaluate(op: Operation) -> Any | None:
    """The Python number that an arith op on constants gives, in the arithmetic of its type; None when an operand is no constant, or when the
    result has to be rounded: rounded numbers would hide from the interpreter's exact mode what later passes do, and LLVM computes them anyway."""
    sources: list[arith.Constant] = []
    for v in op.operands:
        source = v.op
        if not isinstance(source, arith.Constant):
            return None
        sources.append(source)
    found = _run(op, sources, exact=False)
    return found if not isinstance(found, float) or _same(found, _run(op, sources, exact=True)) else None


def _run(op: Operation, sources: list[arith.Constant], exact: bool) -> Any:
    import numpy as np

    from tilelang.runtime import numerics

    with np.errstate(all="ignore"):
        values = [numerics.scalar(c.value, element_of(c.out.type), exact) for c in sources]
        if not isinstance(op.results[0].type, Scalar):
            values = [np.asarray(x, numerics.dtype_of(element_of(c.out.type), exact)) for x, c in zip(values, sources)]
        found = numerics.kernel(op, exact)(*values)
    element = element_of(op.results[0].type)
    return float(found) if element.is_float else bool(found) if element.kind == "bool" else int(found)


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
