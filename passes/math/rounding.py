"""floor, ceil and round to even without an instruction for it (x86 before SSE4.1), and what is made of floor.

Adding and taking away 2**23 (2**52) rounds to a whole number; larger numbers are whole already."""

from __future__ import annotations

from tilelang.dialects import arith
from tilelang.ir.core import Value
from tilelang.passes.math.build import MathBuilder


def native(m: MathBuilder) -> bool:
    return not m.target.triple.startswith("x86_64") or "sse4.1" in m.target.isa


def round_even(m: MathBuilder, x: Value) -> Value:
    if native(m):
        return m(arith.Round.of(x))
    limit = 2.0**m.mantissa
    size = m.abs(x)
    near = m.copysign(m.sub(m.add(size, limit), limit), x)
    return m.select(m.cmp("lt", size, limit), near, x)


def floor(m: MathBuilder, x: Value) -> Value:
    if native(m):
        return m(arith.Floor.of(x))
    near = round_even(m, x)
    # The sign is put back for -0.0 and what rounds to it.
    return m.select(m.cmp("gt", near, x), m.sub(near, 1.0), near)


def ceil(m: MathBuilder, x: Value) -> Value:
    if native(m):
        return m(arith.Ceil.of(x))
    near = round_even(m, x)
    return m.select(m.cmp("lt", near, x), m.copysign(m.abs(m.add(near, 1.0)), x), near)


def floordiv(m: MathBuilder, a: Value, b: Value) -> Value:
    return floor(m, m.div(a, b))


def mod(m: MathBuilder, a: Value, b: Value) -> Value:
    return m.sub(a, m.mul(b, floordiv(m, a, b)))
