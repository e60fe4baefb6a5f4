"""sin and cos: x = n * pi / 2 + r with |r| <= pi / 4 in the manner of Cody and Waite, a polynomial for the quadrant n mod 4.

The subtraction is good for |x| up to LIMIT. Vectors that hold larger numbers, infinity or NaN take a slow path: each lane by the C library, f32 in f64,
which is right for every number."""

from __future__ import annotations

from tilelang.dialects import arith, loop, vec
from tilelang.ir.core import Builder, Value
from tilelang.ir.types import VectorType, f32, f64, i32
from tilelang.passes.math.build import MathBuilder

TWO_OVER_PI = 0.6366197723675814
LIMIT = {32: 1.0e5, 64: 1.0e6}
# pi / 2 in parts of 33 bits, so that n times each but the last is exact in f64.
SHORT = (1.5707963267341256, 6.077100506506192e-11)
LONG = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2; errors 2**-37 and 2**-33, 2**-68 and 2**-64
SIN = {
    32: (-0.1666666716337204, 0.008333329111337662, -0.00019839327433146536, 2.7182411486137426e-06),
    64: (-0.16666666666666666, 0.008333333333333323, -0.00019841269841255007, 2.755731921415642e-06, -2.505210490223789e-08, 1.6058365383972417e-10,
         -7.57863397563219e-13),
}  # fmt: skip
COS = {
    32: (0.04166664555668831, -0.001388736185617745, 2.4437740648863837e-05),
    64: (0.0416666666666666, -0.0013888888888874003, 2.4801587289401316e-05, -2.7557314327667743e-07, 2.0875719759505673e-09, -1.1359458187150984e-11),
}  # fmt: skip


def sine(m: MathBuilder, x: Value, quarter: int) -> Value:
    """sin(x + quarter * pi / 2) for |x| up to the limit."""
    r, lost, n = (_reduced_single if m.single else _reduced)(m, x)
    z = m.mul(r, r)
    s = m.add(r, m.fma(m.mul(z, r), m.horner(z, SIN[m.bits]), lost))
    half = m.mul(z, 0.5)
    c = m.sub(1.0, half)
    # What 1 - half lost, and the change of cos by `lost`.
    rest = m.sub(m.sub(m.sub(1.0, c), half), m.mul(r, lost))
    c = m.add(c, m.fma(m.mul(z, z), m.horner(z, COS[m.bits]), rest))
    if quarter:
        n = m.int_op(arith.Add, n, quarter)
    odd = m(arith.Cmp.of("ne", m.int_op(arith.And, n, 1), m.whole(0)))
    sign = m.int_op(arith.Shl, m.int_op(arith.Shr, n, 1), m.bits - 1)
    y = m.from_bits(m.int_op(arith.Xor, m.to_bits(m.select(odd, c, s)), sign))
    return y if quarter else m.select(m.cmp("eq", x, 0.0), x, y)  # sin(-0.0) is -0.0


def _reduced_single(m: MathBuilder, x: Value) -> tuple[Value, Value, Value]:
    """(r, what r lost, n), the subtraction in f64."""
    x = m(arith.Cast.of(x, f64))
    wide = MathBuilder(m.at, x, m.target)
    near, n = wide.nearest(x, TWO_OVER_PI)
    exact = wide.fma(near, -SHORT[1], wide.fma(near, -SHORT[0], x))
    r = m(arith.Cast.of(exact, f32))
    lost = m(arith.Cast.of(wide.sub(exact, m(arith.Cast.of(r, f64))), f32))
    return r, lost, m(arith.Cast.of(n, i32))


def _reduced(m: MathBuilder, x: Value) -> tuple[Value, Value, Value]:
    """(r, what r lost, n)"""
    near, n = m.nearest(x, TWO_OVER_PI)
    r = m.sub(x, m.mul(near, LONG[0]))
    lost: Value | None = None
    for part in LONG[1:]:
        r, more = _difference(m, r, m.mul(near, part))
        lost = more if lost is None else m.add(lost, more)
    assert lost is not None
    return r, lost, n


def _difference(m: MathBuilder, a: Value, b: Value) -> tuple[Value, Value]:
    """(a - b rounded, what that lost), whichever is larger (Knuth's two-sum)."""
    d = m.sub(a, b)
    v = m.sub(d, a)
    return d, m.sub(m.sub(a, m.sub(d, v)), m.add(b, v))


def sin(m: MathBuilder, x: Value) -> Value:
    return _guarded(m, x, 0)


def cos(m: MathBuilder, x: Value) -> Value:
    return _guarded(m, x, 1)


def _guarded(m: MathBuilder, x: Value, quarter: int) -> Value:
    """The fast path where all lanes are below the limit, else the library lane by lane."""
    small = m.cmp("le", m.abs(x), LIMIT[m.bits])
    lanes = x.type.lanes if isinstance(x.type, VectorType) else 0
    if lanes:
        small = m(vec.Reduce.of("all", small))
    choice = loop.If.of(small, [x.type])
    m.at.insert(choice)
    fast = MathBuilder(Builder(choice.then.block, span=m.at.span), x, m.target)
    fast.at.insert(loop.Yield.of(sine(fast, x, quarter)))
    slow = Builder(choice.orelse.block, span=m.at.span)
    y = x
    for lane in range(lanes) if lanes else (None,):
        one = slow(vec.Extract.of(x, lane)) if lane is not None else x
        one = _library(slow, one, quarter)
        y = slow(vec.Insert.of(one, y, lane)) if lane is not None else one
    slow.insert(loop.Yield.of(y))
    return choice.results[0]


def _library(b: Builder, x: Value, quarter: int) -> Value:
    """On one f64, which the emitter turns into a call."""
    wide = x if x.type is f64 else b(arith.Cast.of(x, f64))
    y = b((arith.Cos if quarter else arith.Sin).of(wide))
    return y if x.type is f64 else b(arith.Cast.of(y, x.type))  # pyright: ignore[reportArgumentType]


