"""expand-math: elementary functions become additions, multiplications and bit operations; arithmetic on narrow floats becomes arithmetic on f32.

After it there is no call of a library function in vector code. sqrt, fma, abs and, where the target has them, floor, ceil and round stay: they are
instructions. Accuracy: f32 within 2 units in the last place (erf and tanh 4), f64 within 4; NaN, infinities, denormals and -0.0 as in C's functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import arith
from tilelang.ir.core import Builder, Module, Operation, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import Scalar, element_of, f32, f64, with_element
from tilelang.passes.math import error_function, exponential, logarithm, rounding, trigonometric
from tilelang.passes.math.build import MathBuilder
from tilelang.target import Target


def _rsqrt(m: MathBuilder, x: Value) -> Value:
    return m.div(1.0, m(arith.Sqrt.of(x)))


FUNCTIONS: dict[type[Operation], Callable[..., Value]] = {
    arith.Exp: exponential.exp, arith.Exp2: exponential.exp2, arith.Tanh: exponential.tanh, arith.Log: logarithm.log, arith.Log2: logarithm.log2,
    arith.Pow: logarithm.pow, arith.Erf: error_function.erf, arith.Sin: trigonometric.sin, arith.Cos: trigonometric.cos, arith.Rsqrt: _rsqrt,
}  # fmt: skip
# Only where the target has no instruction for rounding to whole numbers.
ROUNDING: dict[type[Operation], Callable[..., Value]] = {
    arith.Floor: rounding.floor, arith.Ceil: rounding.ceil, arith.Round: rounding.round_even, arith.FloorDiv: rounding.floordiv, arith.Mod: rounding.mod,
}  # fmt: skip
# On narrow floats these only move or change bits.
_BITS = (arith.Constant, arith.Select, arith.Bitcast, arith.Cast, arith.Neg, arith.Abs)


@register
@dataclass(frozen=True)
class ExpandMath(Pass):
    """Expands elementary functions, and arithmetic on f16, bf16 and f8."""

    name: ClassVar[str] = "expand-math"
    before: ClassVar[str] = "vec"

    def run(self, module: Module, ctx: PassContext) -> None:
        for op in [op for op in module.walk() if op.name.startswith("arith.")]:
            if is_narrow(element_of(op.operands[0].type) if op.operands else None) and not isinstance(op, _BITS):
                op = _widened(op)
            expand(op, ctx.target)


def is_narrow(element: Scalar | None) -> bool:
    return element is not None and element.is_float and element.bits < 32


def expand(op: Operation, target: Target) -> None:
    """Replaces the op by its expansion, if it has one."""
    function = FUNCTIONS.get(type(op))
    if function is None:
        function = ROUNDING.get(type(op))
        if function is None or not element_of(op.operands[0].type).is_float:
            return
        if rounding.native(MathBuilder(Builder.at(op), op.operands[0], target)):
            return
    m = MathBuilder(Builder.at(op), op.operands[0], target)
    result = function(m, *op.operands)
    if result.hint is None:
        result.hint = op.results[0].hint
    op.replace_by(result)


def _widened(op: Operation) -> Operation:
    """The op on f32 (fma on f64, which holds the product exactly), its result rounded; returns the new op."""
    narrow, out = element_of(op.operands[0].type), op.results[0]
    wide = f64 if isinstance(op, arith.Fma) else f32
    b = Builder.at(op)
    same = element_of(out.type) is narrow  # a comparison gives a bool
    operands = [b(arith.Cast.of(v, wide)) for v in op.operands]
    new = type(op)(operands, [with_element(out.type, wide) if same else out.type], op.attrs, span=op.span)
    result = b(new)
    if same:
        result = b(arith.Cast.of(result, narrow))
    result.hint = out.hint
    op.replace_by(result)
    return new
