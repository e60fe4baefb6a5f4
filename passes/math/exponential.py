"""exp, exp2 and tanh.

exp: x = n * ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts of which the first times n is exact (Cody and Waite, Software Manual for the Elementary
Functions, 1980); a polynomial for e**r; then the exponent."""

from __future__ import annotations

from tilelang.ir.core import Value
from tilelang.passes.math.build import MathBuilder

LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has so few bits that its product with n is exact.
LN2 = {32: (0.693359375, -0.00021219444), 64: (0.693145751953125, 1.4286068203094172e-06)}
# (e**r - 1 - r) / r**2 on |r| <= ln 2 / 2; error of e**r - 1: 2**-26, 2**-55
TAIL = {
    32: (0.5, 0.1666654348373413, 0.04166628420352936, 0.008366571739315987, 0.0013946427498012781),
    64: (0.5000000000000006, 0.16666666666666685, 0.0416666666665741, 0.008333333333314659, 0.0013888888932255617, 0.00019841269902894326,
         2.48015045699694e-05, 2.755722806853566e-06, 2.762628369344133e-07, 2.5114438838410817e-08),
}  # fmt: skip
# (2**r - 1) / r on |r| <= 1/2; error of 2**r - 1: 2**-29, 2**-58
EXP2 = {
    32: (0.6931471824645996, 0.24022650718688965, 0.055503278970718384, 0.009618003852665424, 0.0013400234747678041, 0.00015476279077120125),
    64: (0.6931471805599453, 0.24022650695910133, 0.05550410866482174, 0.009618129107593399, 0.0013333558146379164, 0.0001540353045800571,
         1.5252733867433184e-05, 1.321543484975454e-06, 1.017804650212405e-07, 7.073855055821952e-09, 4.4573815711022507e-10),
}  # fmt: skip
# Beyond these the result is 0 or infinity whatever x.
EXP_RANGE = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
EXP2_RANGE = {32: (-151.0, 129.0), 64: (-1076.0, 1025.0)}


def reduce(m: MathBuilder, x: Value) -> tuple[Value, Value]:
    """(r, n) with x = n * ln 2 + r."""
    near, n = m.nearest(x, LOG2_E)
    high, low = LN2[m.bits]
    return m.fma(near, -low, m.fma(near, -high, x)), n


def exp_minus_1(m: MathBuilder, r: Value) -> Value:
    """e**r - 1 for |r| <= ln 2 / 2."""
    return m.fma(m.mul(r, r), m.horner(r, TAIL[m.bits]), r)


def exp(m: MathBuilder, x: Value) -> Value:
    low, high = EXP_RANGE[m.bits]
    r, n = reduce(m, m.at_most(m.at_least(x, low), high))
    return m.scale(m.add(exp_minus_1(m, r), 1.0), n)


def exp_in_range(m: MathBuilder, x: Value) -> Value:
    """e**x where neither x nor the result is near the ends of the range."""
    r, n = reduce(m, x)
    return m.mul(m.add(exp_minus_1(m, r), 1.0), m.power_of_two(n))


def exp2(m: MathBuilder, x: Value) -> Value:
    low, high = EXP2_RANGE[m.bits]
    x = m.at_most(m.at_least(x, low), high)
    near, n = m.nearest(x)
    r = m.sub(x, near)
    return m.scale(m.fma(r, m.horner(r, EXP2[m.bits]), 1.0), n)


def tanh(m: MathBuilder, x: Value) -> Value:
    """t / (t + 2) with t = e**(2|x|) - 1, which loses nothing near 0; 1 from where it rounds to it."""
    size = m.at_most(m.abs(x), 10.0 if m.single else 20.0)
    r, n = reduce(m, m.add(size, size))
    power = m.power_of_two(n)
    t = m.fma(exp_minus_1(m, r), power, m.sub(power, 1.0))
    return m.copysign(m.div(t, m.add(t, 2.0)), x)
