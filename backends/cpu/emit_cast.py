"""arith.cast and arith.bitcast to LLVM IR.

Conversions to and from narrow floats are written in integer arithmetic, except f16 where the target converts in hardware. The bf16 instruction
of AVX-512 is not used: it flushes denormals. Rounding a denormal through one float addition: see `_round_small`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilelang.backends.cpu.spelling import float_text, is_narrow, lane_type, lanes_of, scalar_type, signed, splat, type_text
from tilelang.dialects import arith
from tilelang.ir.core import Operation
from tilelang.ir.types import Scalar, element_of, f32, f64

if TYPE_CHECKING:
    from tilelang.backends.cpu.emit import FunctionEmitter


@dataclass(frozen=True)
class _Format:
    """A narrow float: stored mantissa bits, exponent bias, the bits of the largest finite number, of what larger ones become, and of NaN."""

    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int


# Sources: IEEE 754 (f16); Micikevicius et al., FP8 Formats for Deep Learning, 2022 (f8e4m3 has no infinity: 0x7f is NaN).
_FORMATS = {
    "f16": _Format(10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "f8e4m3": _Format(3, 7, 0x7E, 0x7F, 0x7F),
    "f8e5m2": _Format(2, 15, 0x7B, 0x7C, 0x7E),
}


class _Lanes:
    """Shorthand for instructions on i32, f32 and masks of a fixed number of lanes."""

    def __init__(self, e: FunctionEmitter, lanes: int) -> None:
        self.e, self.lanes = e, lanes
        self.i32, self.f32, self.bit = (lane_type(t, lanes) for t in ("i32", "float", "i1"))

    def int(self, value: int, bits: int = 32) -> str:
        return splat(self.lanes, f"i{bits}", str(signed(value, bits)))

    def float(self, value: float) -> str:
        return splat(self.lanes, "float", float_text(value, 32))

    def op(self, name: str, a: str, b: str | int) -> str:
        return self.e.emit(f"{name} {self.i32} {a}, {self.int(b) if isinstance(b, int) else b}")

    def cmp(self, predicate: str, a: str, b: int) -> str:
        return self.e.emit(f"icmp {predicate} {self.i32} {a}, {self.int(b)}")

    def select(self, condition: str, a: str, b: str) -> str:
        return self.e.emit(f"select {self.bit} {condition}, {self.i32} {a}, {self.i32} {b}")

    def as_int(self, x: str) -> str:
        return self.e.emit(f"bitcast {self.f32} {x} to {self.i32}")

    def as_float(self, x: str) -> str:
        return self.e.emit(f"bitcast {self.i32} {x} to {self.f32}")

    def resize(self, how: str, x: str, source: int, target: int) -> str:
        return self.e.emit(f"{how} {lane_type(f'i{source}', self.lanes)} {x} to {lane_type(f'i{target}', self.lanes)}")


def _has_f16(e: FunctionEmitter) -> bool:
    return "f16c" in e.target.isa or not e.target.triple.startswith("x86_64")


def float_to_float(e: FunctionEmitter, x: str, source: Scalar, target: Scalar, lanes: int, hint: str | None = None) -> str:
    """Any float type to any other, rounded once to nearest even."""
    if source is target:
        return x
    a, b = (lane_type(scalar_type(t), lanes) for t in (source, target))
    if not is_narrow(source) and not is_narrow(target):
        return e.emit(f"{'fpext' if target is f64 else 'fptrunc'} {a} {x} to {b}", hint)
    if is_narrow(source):
        wide = _widen(e, x, source, lanes)
        return float_to_float(e, wide, f32, target, lanes, hint)
    if source is f64:
        x = _round_to_odd(e, x, lanes)
    return _narrow(e, x, target, lanes)


def _round_to_odd(e: FunctionEmitter, x: str, lanes: int) -> str:
    """f64 to f32 with the last bit set when inexact, so that rounding again to a type of at most 22 bits is as good as rounding once.

    Method: Boldo and Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, 2008."""
    v, double = _Lanes(e, lanes), lane_type("double", lanes)
    near = e.emit(f"fptrunc {double} {x} to {v.f32}")
    back = e.emit(f"fpext {v.f32} {near} to {double}")
    inexact = e.emit(f"fcmp one {double} {back}, {x}")
    above = e.emit(f"fcmp ogt {double} {e.intrinsic('fabs', double, back)}, {e.intrinsic('fabs', double, x)}")
    truncated = v.op("add", v.as_int(near), e.emit(f"sext {v.bit} {above} to {v.i32}"))
    return v.as_float(v.op("or", truncated, e.emit(f"zext {v.bit} {inexact} to {v.i32}")))


def _narrow(e: FunctionEmitter, x: str, target: Scalar, lanes: int) -> str:
    v = _Lanes(e, lanes)
    if target.name == "f16" and _has_f16(e):
        half = e.emit(f"fptrunc {v.f32} {x} to {lane_type('half', lanes)}")
        return e.emit(f"bitcast {lane_type('half', lanes)} {half} to {lane_type('i16', lanes)}")
    bits = v.as_int(x)
    if target.name == "bf16":
        # The upper half after adding just under half of its last place, or exactly half when it is odd.
        odd = v.op("and", v.op("lshr", bits, 16), 1)
        rounded = v.op("lshr", v.op("add", v.op("add", bits, 0x7FFF), odd), 16)
        quiet = v.op("or", v.op("lshr", bits, 16), 0x40)
        nan = e.emit(f"fcmp uno {v.f32} {x}, {x}")
        return v.resize("trunc", v.select(nan, quiet, rounded), 32, 16)
    f = _FORMATS[target.name]
    drop = 23 - f.mantissa
    sign = v.op("and", v.op("lshr", bits, 32 - target.bits), 1 << target.bits - 1)
    size = v.op("and", bits, 0x7FFFFFFF)
    odd = v.op("and", v.op("lshr", size, drop), 1)
    shifted = v.op("sub", size, (127 - f.bias) << 23)
    normal = v.op("lshr", v.op("add", v.op("add", shifted, (1 << drop - 1) - 1), odd), drop)
    rounded = v.select(v.cmp("ult", size, (128 - f.bias) << 23), _round_small(e, v, size, f), normal)
    rounded = v.select(v.cmp("ugt", rounded, f.largest), v.int(f.overflow), rounded)
    rounded = v.select(v.cmp("ugt", size, 0x7F800000), v.int(f.nan), rounded)
    return v.resize("trunc", v.op("or", rounded, sign), 32, target.bits)


def _round_small(e: FunctionEmitter, v: _Lanes, size: str, f: _Format) -> str:
    """The bits of a number that is denormal in the narrow type: added to a float whose last place is the smallest denormal, it is rounded there."""
    magic = 2.0 ** (1 - f.bias - f.mantissa + 23)
    exponent = (127 + 1 - f.bias - f.mantissa + 23) << 23
    return v.op("sub", v.as_int(e.emit(f"fadd {v.f32} {v.as_float(size)}, {v.float(magic)}")), exponent)


def _widen(e: FunctionEmitter, x: str, source: Scalar, lanes: int) -> str:
    """A narrow float as f32, exactly."""
    v = _Lanes(e, lanes)
    if source.name == "f16" and _has_f16(e):
        half = e.emit(f"bitcast {lane_type('i16', lanes)} {x} to {lane_type('half', lanes)}")
        return e.emit(f"fpext {lane_type('half', lanes)} {half} to {v.f32}")
    bits = v.resize("zext", x, source.bits, 32)
    if source.name == "bf16":
        return v.as_float(v.op("shl", bits, 16))
    f = _FORMATS[source.name]
    sign = v.op("shl", v.op("and", bits, 1 << source.bits - 1), 32 - source.bits)
    size = v.op("and", bits, (1 << source.bits - 1) - 1)
    # With the exponent field in place the number is too small by a power of two, denormals included.
    placed = v.as_float(v.op("shl", size, 23 - f.mantissa))
    scaled = v.as_int(e.emit(f"fmul {v.f32} {placed}, {v.float(2.0 ** (127 - f.bias))}"))
    special = v.op("or", scaled, 0x7FC00000 if f.overflow == f.nan else 0x7F800000)
    return v.as_float(v.op("or", v.select(v.cmp("ugt", size, f.largest), special, scaled), sign))


def float_to_int(e: FunctionEmitter, x: str, source: Scalar, target: Scalar, lanes: int, hint: str | None = None) -> str:
    """Truncates; saturates; NaN is 0. llvm.fptosi.sat means the same, but LLVM 22 splits its vectors into scalars."""
    a, b, bit = lane_type(scalar_type(source), lanes), lane_type(scalar_type(target), lanes), lane_type("i1", lanes)

    def limit(value: float) -> str:
        return splat(lanes, scalar_type(source), float_text(value, source.bits))

    def whole(value: int) -> str:
        return splat(lanes, scalar_type(target), str(signed(value, target.bits)))

    low = -(1 << target.bits - 1) if target.is_signed else 0
    high = (1 << target.bits - 1 if target.is_signed else 1 << target.bits) - 1
    above = e.emit(f"fcmp oge {a} {x}, {limit(float(high + 1))}")
    below = e.emit(f"fcmp olt {a} {x}, {limit(float(low))}")
    outside = e.emit(f"or {bit} {above}, {below}")
    bad = e.emit(f"or {bit} {outside}, {e.emit(f'fcmp uno {a} {x}, {x}')}")
    inside = e.emit(f"select {bit} {bad}, {a} {limit(0.0)}, {a} {x}")
    value = e.emit(f"{'fptosi' if target.is_signed else 'fptoui'} {a} {inside} to {b}")
    value = e.emit(f"select {bit} {above}, {b} {whole(high)}, {b} {value}")
    if low == 0:
        return value  # what lies below was replaced by 0 already
    return e.emit(f"select {bit} {below}, {b} {whole(low)}, {b} {value}", hint)


def cast(e: FunctionEmitter, x: str, source: Scalar, target: Scalar, lanes: int, hint: str | None = None) -> str:
    """The conversion of arith.cast."""
    a, b = (lane_type(scalar_type(t), lanes) for t in (source, target))
    if source is target:
        return x
    if source.is_float:
        if target.is_float:
            return float_to_float(e, x, source, target, lanes, hint)
        if is_narrow(source):
            x, source = _widen(e, x, source, lanes), f32
            a = lane_type("float", lanes)
        if target.kind == "bool":
            return e.emit(f"fcmp une {a} {x}, zeroinitializer", hint)
        return float_to_int(e, x, source, target, lanes, hint)
    if target.is_float:
        # f64 holds 32-bit integers exactly; narrow targets of small integers get there through f32, exact too.
        via = target if not is_narrow(target) else f64 if source.bits > 16 else f32
        value = e.emit(f"{'sitofp' if source.is_signed else 'uitofp'} {a} {x} to {lane_type(scalar_type(via), lanes)}", hint)
        return float_to_float(e, value, via, target, lanes)
    if target.kind == "bool":
        return e.emit(f"icmp ne {a} {x}, {splat(lanes, scalar_type(source), '0')}", hint)
    if source.bits == target.bits:
        return x
    return e.emit(f"{'trunc' if target.bits < source.bits else 'sext' if source.is_signed else 'zext'} {a} {x} to {b}", hint)


def _cast(e: FunctionEmitter, op: arith.Cast) -> None:
    e.names[op.out] = cast(e, e.ref(op.x), element_of(op.x.type), element_of(op.out.type), lanes_of(op.out.type), op.out.hint)


def _bitcast(e: FunctionEmitter, op: arith.Bitcast) -> None:
    if type_text(op.x.type) == type_text(op.out.type):
        e.names[op.out] = e.ref(op.x)
    else:
        e.define(op.out, f"bitcast {e.typed(op.x)} to {type_text(op.out.type)}")


HANDLERS: dict[type[Operation], Callable[[FunctionEmitter, Any], None]] = {arith.Cast: _cast, arith.Bitcast: _bitcast}
