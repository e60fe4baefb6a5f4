"""log, log2 and pow.

log: x = m * 2**e with m in [sqrt(1/2), sqrt(2)), f = m - 1. f32 takes a polynomial in f; f64 takes s = f / (2 + f) and the series of 2 atanh(s), as in
Ng's log of fdlibm (Sun Microsystems, 1993), with a fit of our own. Denormals are scaled into the normal range before."""

from __future__ import annotations

from tilelang.dialects import arith
from tilelang.ir.core import Value
from tilelang.ir.types import f32, f64
from tilelang.passes.math import exponential
from tilelang.passes.math.build import MathBuilder
from tilelang.passes.math.rounding import floor

LOG2_E = exponential.LOG2_E
# (log(1 + f) - f + f**2 / 2) / f**3; error of the logarithm: 2**-30
TAIL = (0.3333331048488617, -0.24999986588954926, 0.20002217590808868, -0.16669248044490814, 0.14218801259994507, -0.12384457886219025,
        0.11872143298387527, -0.11788942664861679, 0.06916088610887527)  # fmt: skip
# (2 atanh(s) - 2 s) / s**3 in s**2; error 2**-58 of the logarithm
ATANH = (0.6666666666666735, 0.3999999999941132, 0.2857142874322007, 0.22222198479851626, 0.18183569557870008, 0.15313907532908688, 0.14797467741295162)
# (2 atanh(s) - 2 s - 2/3 s**3) / s**5 in s**2; error 2**-72 of the logarithm
ATANH_LONG = (0.3999999999999998, 0.285714285714452, 0.22222222217513854, 0.18181818873154101, 0.15384556673900215, 0.13336325105257657,
              0.11674660761985846, 0.11990338954237001)  # fmt: skip
_TINY = {32: 1.1754943508222875e-38, 64: 2.2250738585072014e-308}  # the least normal number
_SQRT_HALF = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}


def split(m: MathBuilder, x: Value) -> tuple[Value, Value]:
    """(f, e as a float) with x = (1 + f) * 2**e for positive finite x."""
    small = m.cmp("lt", x, _TINY[m.bits])
    shift = float(m.mantissa + 2)
    bits = m.to_bits(m.select(small, m.mul(x, 2.0**shift), x))
    e = m.int_op(arith.Shr, m.int_op(arith.Sub, bits, _SQRT_HALF[m.bits]), m.mantissa)
    one = m.from_bits(m.int_op(arith.Sub, bits, m.int_op(arith.Shl, e, m.mantissa)))
    return m.sub(one, 1.0), m.sub(m.to_float(e), m.select(small, shift, 0.0))


def special(m: MathBuilder, x: Value, y: Value) -> Value:
    """y, the logarithm of positive finite x, with the values at 0, infinity, NaN and below 0 put in."""
    y = m.select(m.cmp("eq", x, float("inf")), x, y)
    y = m.select(m.cmp("eq", x, 0.0), float("-inf"), y)
    return m.select(m.cmp("ge", x, 0.0), y, float("nan"))


def tail(m: MathBuilder, f: Value) -> Value:
    """log(1 + f) - f"""
    if m.single:
        square = m.mul(f, f)
        return m.fma(m.mul(square, f), m.horner(f, TAIL), m.mul(square, -0.5))
    s = m.div(f, m.add(f, 2.0))
    z = m.mul(s, s)
    half = m.mul(m.mul(f, f), 0.5)
    return m.sub(m.mul(s, m.fma(z, m.horner(z, ATANH), half)), half)


def log(m: MathBuilder, x: Value) -> Value:
    f, e = split(m, x)
    high, low = exponential.LN2[m.bits]
    rest = m.fma(e, low, tail(m, f))
    return special(m, x, m.fma(e, high, m.add(f, rest)))


def log2(m: MathBuilder, x: Value) -> Value:
    """e + (f + tail) * log2(e)"""
    f, e = split(m, x)
    rest = tail(m, f)
    more = LOG2_E - 1.0
    # 1.44 f = f + 0.44 f: the largest term needs no product.
    small = m.fma(rest, more, m.mul(f, more))
    return special(m, x, m.add(e, m.add(f, m.add(rest, small))))


def pow(m: MathBuilder, x: Value, y: Value) -> Value:
    """e**(y log|x|); f32 in f64 throughout, f64 with the logarithm and the product in two parts each."""
    size = m.abs(x)
    if m.single:
        wide = MathBuilder(m.at, m(arith.Cast.of(size, f64)), m.target)
        f, e = split(wide, m(arith.Cast.of(size, f64)))
        logarithm = wide.fma(e, 0.6931471805599453, wide.add(f, tail(wide, f)))
        product = wide.mul(m(arith.Cast.of(y, f64)), logarithm)
        # Clipped where f32 has overflowed or vanished long before.
        power = m(arith.Cast.of(exponential.exp_in_range(wide, wide.at_most(wide.at_least(product, -200.0), 200.0)), f32))
    else:
        power = _long_pow(m, size, y)
    return _pow_special(m, x, size, y, power)


def _long_pow(m: MathBuilder, size: Value, y: Value) -> Value:
    """The logarithm as an unevaluated sum of two f64, exact to about 2**-65; y times that likewise; then exp."""
    f, e = split(m, size)
    d = m.add(f, 2.0)
    d_low = m.sub(f, m.sub(d, 2.0))
    s = m.div(f, d)
    p, p_low = m.two_product(s, d)
    s_low = m.div(m.sub(m.sub(m.sub(f, p), p_low), m.mul(s, d_low)), d)
    # 2 s + 2/3 s**3 in two parts each, the rest of the series in one.
    z, z_low = m.two_product(s, s)
    cube, cube_low = m.two_product(s, z)
    third, third_low = m.two_product(cube, m.of(2.0 / 3.0))
    third_low = m.add(third_low, m.mul(m.add(cube_low, m.mul(s, z_low)), 2.0 / 3.0))
    third_low = m.fma(cube, 3.700743415417188e-17, third_low)  # 2/3 less its f64
    rest = m.add(m.mul(m.mul(cube, z), m.horner(z, ATANH_LONG)), m.mul(m.add(s_low, s_low), m.add(z, 1.0)))
    high, low = m.two_sum(m.add(s, s), third)
    low = m.add(low, m.add(third_low, rest))
    ln2, ln2_low = exponential.LN2[64]
    high, more = m.two_sum(m.mul(e, ln2), high)
    high, low = m.two_sum(high, m.add(more, m.fma(e, ln2_low, low)))
    product, lost = m.two_product(y, high)
    lost = m.fma(y, low, lost)
    lost = m.select(m.cmp("lt", m.abs(product), 2000.0), lost, 0.0)
    r, n = exponential.reduce(m, m.at_most(m.at_least(product, -746.0), 710.0))
    t = exponential.exp_minus_1(m, r)
    return m.scale(m.add(m.fma(lost, m.add(t, 1.0), t), 1.0), n)


def _pow_special(m: MathBuilder, x: Value, size: Value, y: Value, power: Value) -> Value:
    """The values of C's pow (ISO C, annex F.9.4.4) where an operand is 0, 1, infinite, negative or NaN."""
    infinity = float("inf")
    ends = m.either(m.either(m.cmp("eq", size, 0.0), m.cmp("eq", size, infinity)), m.cmp("eq", m.abs(y), infinity))
    grows = m(arith.Xor.of(m.cmp("gt", size, 1.0), m.cmp("lt", y, 0.0)))
    power = m.select(ends, m.select(grows, infinity, 0.0), power)
    power = m.select(m.cmp("eq", size, 1.0), 1.0, power)
    whole = m.cmp("eq", floor(m, y), y)
    half = m.mul(y, 0.5)
    odd = m.both(whole, m.cmp("ne", floor(m, half), half))
    power = m.select(odd, m.copysign(power, x), power)
    undefined = m.both(m.both(m.cmp("lt", x, 0.0), m.no(whole)), m.cmp("ne", size, infinity))
    power = m.select(undefined, float("nan"), power)
    power = m.select(m.either(m.cmp("ne", x, x), m.cmp("ne", y, y)), float("nan"), power)
    return m.select(m.either(m.cmp("eq", y, 0.0), m.cmp("eq", x, 1.0)), 1.0, power)
