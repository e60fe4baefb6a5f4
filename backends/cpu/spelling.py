"""How types, constants and names are written in LLVM IR.

Floats narrower than 32 bits are integers of their width: arithmetic on them happens in f32 (passes.expand_math), so all that is left is moving
them and converting them, and integers are good code for that on every target. A bool is i1 in registers, one byte in memory.
"""

from __future__ import annotations

import functools
import re
import struct

from tilelang.ir.types import PtrType, Scalar, Type, VectorType

_FLOATS = {"f64": "double", "f32": "float"}


def is_narrow(element: Scalar) -> bool:
    """A float kept as an integer of its width."""
    return element.is_float and element.bits < 32


def scalar_type(element: Scalar, memory: bool = False) -> str:
    if memory and element.kind == "bool":
        return "i8"
    return _FLOATS.get(element.name) or f"i{element.bits}"


def type_text(type: Type, memory: bool = False) -> str:
    """The LLVM type of a value, or of its image in memory. TypeError for types that have no place at the vec level."""
    if isinstance(type, Scalar):
        return scalar_type(type, memory)
    if isinstance(type, VectorType):
        return f"<{type.lanes} x {scalar_type(type.element, memory)}>"
    if isinstance(type, PtrType):
        return "ptr"
    raise TypeError(f"{type} does not exist at the vec level")


def suffix(text: str) -> str:
    """The part of an intrinsic's name that stands for a type: `<16 x float>` is v16f32."""
    vector = re.fullmatch(r"<(\d+) x (\w+)>", text)
    if vector:
        return f"v{vector[1]}{suffix(vector[2])}"
    return {"double": "f64", "float": "f32", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(text, text)


def lane_type(text: str, lanes: int) -> str:
    """`text` for one lane, a vector of it otherwise."""
    return f"<{lanes} x {text}>" if lanes else text


def lanes_of(type: Type) -> int:
    """Lanes of a vector type, 0 of a scalar."""
    return type.lanes if isinstance(type, VectorType) else 0


def splat(lanes: int, element: str, number: str) -> str:
    """A constant in every lane (no lanes: the number itself)."""
    if not lanes:
        return number
    return "zeroinitializer" if number == "0" else f"splat ({element} {number})"


def float_text(value: float, bits: int) -> str:
    """A float constant by its bits, as LLVM wants it: the double that equals it, also for a 32-bit float."""
    if value != value:
        return "0x7FF8000000000000"
    if bits == 32:
        value = struct.unpack("<f", _to_f32(value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _to_f32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


@functools.cache
def narrow_bits(value: float, name: str) -> int:
    """The bits of a number in a narrow float type, as an unsigned integer."""
    import numpy as np

    from tilelang.runtime.numerics import dtype_of

    element = Scalar(name)
    with np.errstate(all="ignore"):
        array = np.array([value], np.float64).astype(np.float32).astype(dtype_of(element))
    return int(array.view(f"u{element.bytes}")[0])


def constant_text(value: float | int | bool, element: Scalar) -> str:
    """One number of the element type."""
    if element.kind == "bool":
        return "true" if value else "false"
    if is_narrow(element):
        return str(signed(narrow_bits(float(value), element.name), element.bits))
    if element.is_float:
        return float_text(float(value), element.bits)
    return str(signed(int(value), element.bits))


def signed(value: int, bits: int) -> int:
    """The number with the same lowest bits in two's complement."""
    half = 1 << bits - 1
    return (value + half & (1 << bits) - 1) - half


def identifier(text: str) -> str:
    """`text` with what may not stand in an LLVM name replaced."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return f"v{name}" if name[:1].isdigit() else name
