"""Which of our arithmetic ops and types have an equal in upstream MLIR, and how it is spelt. The generic form uses these names, so that
`iree-opt` or `mlir-opt` read it; the parser maps them back. An op counts as equal only when the meaning is the same for every input:
integer division by zero, shifts beyond the width, and float to integer casts are defined here and undefined upstream, so they keep our names."""

from __future__ import annotations

import math
import struct

from tilelang.ir.core import Operation
from tilelang.ir.types import BufferType, PtrType, Scalar, TensorType, TileType, TokenType, Type, VectorType

_SPELT = {"f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2", "bool": "i1", "u8": "ui8", "u16": "ui16", "u32": "ui32", "u64": "ui64"}
SCALARS = {mlir: Scalar(ours) for ours, mlir in _SPELT.items()}
_PREFIX: dict[type[Type], str] = {TileType: "!tile.", BufferType: "!mem.", TensorType: "!tl.", PtrType: "!vec.", TokenType: "!mem."}
_types: dict[Type, str] = {}

_INT = {"add": "addi", "sub": "subi", "mul": "muli", "min": "minsi", "max": "maxsi", "and": "andi", "or": "ori", "xor": "xori"}
_FLOAT = {"add": "addf", "sub": "subf", "mul": "mulf", "div": "divf", "min": "minimumf", "max": "maximumf", "neg": "negf"}
_BOOL = {"and": "andi", "or": "ori", "xor": "xori"}
_MATH = {"abs": "absf", "round": "roundeven", "pow": "powf", "fma": "fma"} | {
    n: n for n in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "floor", "ceil")
}
_NAMES = {
    "float": {k: f"arith.{v}" for k, v in _FLOAT.items()} | {k: f"math.{v}" for k, v in _MATH.items()},
    "int": {k: f"arith.{v}" for k, v in _INT.items()} | {"abs": "math.absi"},
    "bool": {k: f"arith.{v}" for k, v in _BOOL.items()},
}
_NAMES["index"] = _NAMES["int"]
_CASTS = ("extf", "truncf", "sitofp", "uitofp", "extsi", "extui", "trunci", "index_cast")

# upstream name -> our name
OURS: dict[str, str] = {
    **{up: f"arith.{ours}" for table in _NAMES.values() for ours, up in table.items()},
    **{f"arith.{c}": "arith.cast" for c in _CASTS},
    **{f"arith.{n}": f"arith.{n}" for n in ("select", "bitcast", "constant")},
    "arith.cmpi": "arith.cmp",
    "arith.cmpf": "arith.cmp",
}

_CMP_FLOAT = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13}  # ordered, but ne
_CMP_SIGNED = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}
_CMP_UNSIGNED = {"eq": 0, "ne": 1, "lt": 6, "le": 7, "gt": 8, "ge": 9}
_CMP = {"float": _CMP_FLOAT, "int": _CMP_SIGNED, "index": _CMP_SIGNED, "bool": _CMP_UNSIGNED}


def type_text(type: Type) -> str:
    """The type as MLIR spells it: builtin types by their own names, ours behind a dialect that MLIR does not know."""
    text = _types.get(type)
    if text is None:
        if isinstance(type, Scalar):
            text = _SPELT.get(type.name, type.name)
        elif isinstance(type, VectorType):
            text = f"vector<{type.lanes}x{type_text(type.element)}>"
        else:
            text = _PREFIX[type.__class__] + type.text
        _types[type] = text
    return text


def _kind(type: Type) -> str | None:
    """float, int, bool or index for a type that upstream arith accepts, else None."""
    element = type.element if isinstance(type, VectorType) else type
    return element.kind if isinstance(element, Scalar) and element.kind != "uint" else None


def _cast_name(source: Type, target: Type) -> str | None:
    a = source.element if isinstance(source, VectorType) else source
    b = target.element if isinstance(target, VectorType) else target
    if not isinstance(a, Scalar) or not isinstance(b, Scalar):
        return None
    match a.kind, b.kind:
        case "float", "float":
            return "arith.extf" if a.bits < b.bits else "arith.truncf" if a.bits > b.bits else None
        case "int", "float":
            return "arith.sitofp"
        case "bool", "float":
            return "arith.uitofp"
        case "int", "int":
            return "arith.extsi" if a.bits < b.bits else "arith.trunci" if a.bits > b.bits else None
        case "bool", "int":
            return "arith.extui"
        case ("int", "index") | ("index", "int"):
            return "arith.index_cast"
        case _:
            return None


def upstream_name(op: Operation) -> str | None:
    """The name of the op of upstream MLIR that is equal to this one on its operand types, None when there is none."""
    dialect, _, name = op.name.partition(".")
    if dialect != "arith":
        return None
    kinds = [_kind(v.type) for v in op.operands] + [_kind(r.type) for r in op.results]
    if not kinds or None in kinds:
        return None
    kind = kinds[0]
    if name == "cmp":
        return ("arith.cmpf" if kind == "float" else "arith.cmpi") if op.attrs.get("predicate") in _CMP_SIGNED else None
    if name == "cast":
        return _cast_name(op.operands[0].type, op.results[0].type)
    if name == "bitcast":
        return None if kinds[0] in ("index", "bool") or kinds[1] in ("index", "bool") else "arith.bitcast"
    if name == "constant":
        value = op.attrs.get("value")
        fits = type(value) is (float if kind == "float" else bool if kind == "bool" else int)
        return "arith.constant" if fits else None
    return "arith.select" if name == "select" else _NAMES[str(kind)].get(name)


def predicate_number(op: Operation) -> int:
    """Upstream's number of an arith.cmp's predicate."""
    return _CMP[str(_kind(op.operands[0].type))][op.attrs["predicate"]]


def predicate_of(number: object, kind_of: Type) -> str | None:
    """Our predicate for upstream's number on operands of a type, None when there is none of that meaning."""
    table = _CMP.get(str(_kind(kind_of)), {})
    return next((p for p, n in table.items() if n == number), None)


_FLOAT_BITS = {"f64": (64, 52), "f32": (32, 23), "f16": (16, 10), "bf16": (16, 7), "f8e5m2": (8, 2), "f8e4m3": (8, 3)}


def float_text(value: float, element: Scalar, shortest: bool = False) -> str:
    """A float literal that MLIR reads: decimal with a point, hexadecimal bits for infinities and NaN. shortest: without the point where
    Python needs none, `inf` and `nan` (the pretty form)."""
    if math.isfinite(value):
        text = repr(value)
        return text if shortest or "." in text.partition("e")[0] else text.replace("e", ".0e")
    if shortest:
        return repr(value)
    bits, mantissa = _FLOAT_BITS[element.name]
    exponent = ((1 << (bits - 1)) - 1) >> mantissa << mantissa
    number = exponent | (1 << (mantissa - 1)) if math.isnan(value) else exponent
    if element.name == "f8e4m3":
        number = 0x7F  # it has no infinity; all ones is its NaN
    if math.copysign(1.0, value) < 0:
        number |= 1 << (bits - 1)
    return f"0x{number:0{bits // 4}X}"


def float_of_bits(bits: int, element: Scalar) -> float:
    """The float whose bits, in the format of `element`, are given."""
    width, mantissa = _FLOAT_BITS[element.name]
    if width == 64:
        return struct.unpack("<d", struct.pack("<Q", bits & (1 << 64) - 1))[0]
    sign = -1.0 if bits >> (width - 1) & 1 else 1.0
    exponent = bits >> mantissa & (1 << (width - 1 - mantissa)) - 1
    fraction = bits & (1 << mantissa) - 1
    top = (1 << (width - 1 - mantissa)) - 1
    if exponent == top and element.name != "f8e4m3":
        return math.copysign(math.nan if fraction else math.inf, sign)
    if element.name == "f8e4m3" and bits & 0x7F == 0x7F:
        return math.copysign(math.nan, sign)
    bias = top >> 1
    return sign * (math.ldexp(fraction, 1 - bias - mantissa) if exponent == 0 else math.ldexp(fraction | 1 << mantissa, exponent - bias - mantissa))
