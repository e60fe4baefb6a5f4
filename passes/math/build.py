"""What the functions are written with: arithmetic on values of one float type, scalar or vector, and on its bits."""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.dialects import arith
from tilelang.ir.core import Builder, Operation, Value
from tilelang.ir.types import Scalar, Type, element_of, i32, i64, with_element
from tilelang.target import Target

MANTISSA = {32: 23, 64: 52}


class MathBuilder:
    """Arithmetic on values like `x` (f32 or f64; any lanes). Numbers may stand where values do."""

    def __init__(self, at: Builder, x: Value, target: Target) -> None:
        self.at = at
        self.target = target
        self.type: Type = x.type
        self.element: Scalar = element_of(x.type)
        self.int: Scalar = i32 if self.element.bits == 32 else i64
        self.bits = self.element.bits
        self.mantissa = MANTISSA[self.bits]
        self.single = self.bits == 32
        # Without the instruction arith.fma would be a call of a library function for every lane.
        self.has_fma = bool(target.isa & {"fma", "avx512f", "neon"})

    def __call__(self, op: Operation) -> Value:
        return self.at(op)

    def of(self, number: float) -> Value:
        return self.at(arith.Constant.of(number, self.type))

    def whole(self, number: int) -> Value:
        return self.at(arith.Constant.of(number, with_element(self.type, self.int)))

    def value(self, x: Value | float) -> Value:
        return x if isinstance(x, Value) else self.of(x)

    # -- floats

    def add(self, a: Value | float, b: Value | float) -> Value:
        return self.at(arith.Add.of(self.value(a), self.value(b)))

    def sub(self, a: Value | float, b: Value | float) -> Value:
        return self.at(arith.Sub.of(self.value(a), self.value(b)))

    def mul(self, a: Value | float, b: Value | float) -> Value:
        return self.at(arith.Mul.of(self.value(a), self.value(b)))

    def div(self, a: Value | float, b: Value | float) -> Value:
        return self.at(arith.Div.of(self.value(a), self.value(b)))

    def neg(self, a: Value) -> Value:
        return self.at(arith.Neg.of(a))

    def abs(self, a: Value) -> Value:
        return self.at(arith.Abs.of(a))

    def fma(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        """a * b + c, rounded once where that is an instruction, twice where it is not."""
        if self.has_fma:
            return self.at(arith.Fma.of(self.value(a), self.value(b), self.value(c)))
        return self.add(self.mul(a, b), c)

    def horner(self, x: Value, coefficients: Sequence[float]) -> Value:
        """coefficients[0] + coefficients[1] * x + ..."""
        total = self.of(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total

    def two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """(a + b rounded, what that lost) for |a| >= |b| or a = 0 (Dekker, 1971)."""
        s = self.add(a, b)
        return s, self.sub(b, self.sub(s, a))

    def two_product(self, a: Value, b: Value) -> tuple[Value, Value]:
        """(a * b rounded, what that lost), by a fused product, else by Dekker's with Veltkamp's splitting (1971)."""
        p = self.mul(a, b)
        if self.has_fma:
            return p, self.at(arith.Fma.of(a, b, self.neg(p)))
        (ah, al), (bh, bl) = self._halves(a), self._halves(b)
        rest = self.add(self.sub(self.mul(ah, bh), p), self.add(self.mul(ah, bl), self.mul(al, bh)))
        return p, self.add(rest, self.mul(al, bl))

    def _halves(self, a: Value) -> tuple[Value, Value]:
        t = self.mul(a, 2.0 ** ((self.mantissa + 2) // 2) + 1.0)
        high = self.sub(t, self.sub(t, a))
        return high, self.sub(a, high)

    # -- choices

    def cmp(self, predicate: str, a: Value, b: Value | float) -> Value:
        return self.at(arith.Cmp.of(predicate, a, self.value(b)))

    def select(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        return self.at(arith.Select.of(condition, self.value(a), self.value(b)))

    def both(self, a: Value, b: Value) -> Value:
        return self.at(arith.And.of(a, b))

    def either(self, a: Value, b: Value) -> Value:
        return self.at(arith.Or.of(a, b))

    def no(self, a: Value) -> Value:
        return self.at(arith.Not.of(a))

    def at_least(self, x: Value, low: float) -> Value:
        """max(x, low), but NaN stays NaN."""
        return self.select(self.cmp("lt", x, low), low, x)

    def at_most(self, x: Value, high: float) -> Value:
        return self.select(self.cmp("gt", x, high), high, x)

    # -- bits

    def to_bits(self, x: Value) -> Value:
        return self.at(arith.Bitcast.of(x, self.int))

    def from_bits(self, n: Value) -> Value:
        return self.at(arith.Bitcast.of(n, self.element))

    def int_op(self, cls: type[arith.Binary], a: Value, b: Value | int) -> Value:
        return self.at(cls.of(a, self.whole(b) if isinstance(b, int) else b))

    def copysign(self, size: Value, sign: Value) -> Value:
        """|size| is given; the sign bit of `sign`."""
        bit = self.int_op(arith.And, self.to_bits(sign), -(1 << self.bits - 1))
        return self.from_bits(self.int_op(arith.Or, self.to_bits(size), bit))

    def to_float(self, n: Value) -> Value:
        """A whole number as a float."""
        return self.at(arith.Cast.of(n, self.element))

    def power_of_two(self, n: Value) -> Value:
        """2**n of whole numbers in the range of the normal numbers."""
        biased = self.int_op(arith.Add, n, (1 << self.bits - self.mantissa - 2) - 1)
        return self.from_bits(self.int_op(arith.Shl, biased, self.mantissa))

    def scale(self, x: Value, n: Value) -> Value:
        """x * 2**n, where x is about 1 and n may leave the range of the exponents once: in two steps, so that only the last one rounds."""
        half = self.int_op(arith.Shr, n, 1)
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(self.int_op(arith.Sub, n, half)))

    def nearest(self, x: Value, factor: float = 1.0) -> tuple[Value, Value]:
        """(n as a float, n as a whole number) for n = x * factor rounded to nearest, |n| below 2**22 (f32) or 2**51: adding 1.5 * 2**23 (2**52)
        leaves the whole number in the lowest bits of the sum."""
        magic = 1.5 * 2.0**self.mantissa
        shifted = self.fma(x, factor, magic) if factor != 1.0 else self.add(x, magic)
        n = self.int_op(arith.Sub, self.to_bits(shifted), _bits_of(magic, self.bits))
        return self.sub(shifted, magic), n


def _bits_of(x: float, bits: int) -> int:
    import struct

    return struct.unpack("<i" if bits == 32 else "<q", struct.pack("<f" if bits == 32 else "<d", x))[0]


