"""What arithmetic means, in NumPy: one function an op and element type. The interpreter, constant folding and the tests all use these.

Integers wrap; x // 0 and x % 0 are 0 on integers; shifts beyond the width give 0, or -1 for a negative value shifted right; float -> int casts
truncate, saturate and turn NaN into 0; min and max propagate NaN. f16, bf16 and f8 are computed in f32 and rounded after every op.

In exact mode every float type is a float64, so that results of two modules differ by the order of operations only in the last bits of a float64.
Values: `index` scalars are Python ints, other scalars NumPy scalars, everything with a shape an ndarray. Callers hold np.errstate(all="ignore")."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tilelang.ir.core import Operation
from tilelang.ir.types import Scalar, Type, element_of, index, shape_of

Kernel = Callable[..., Any]

_NATIVE = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8,
    "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8, "bool": np.bool_, "index": np.int64,
}  # fmt: skip
_ML = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
TRUE, FALSE = np.bool_(True), np.bool_(False)


@cache
def dtype_of(element: Scalar, exact: bool = False) -> np.dtype[Any]:
    """The NumPy dtype of an element type; float64 for every float in exact mode."""
    if exact and element.is_float:
        return _F64
    native = _NATIVE.get(element.name)
    if native is not None:
        return np.dtype(native)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, _ML[element.name]))


def is_narrow(element: Scalar) -> bool:
    """Float types that are computed in f32."""
    return element.is_float and element.bits < 32


def scalar(value: Any, element: Scalar, exact: bool = False) -> Any:
    """A number as a value of the element type: a Python int for index, else a NumPy scalar. Integers wrap."""
    if element is index:
        return wrap_index(int(value))
    dtype = dtype_of(element)
    if element.is_integer:
        value = int(value) & ((1 << element.bits) - 1)
        return np.array(value, f"u{dtype.itemsize}").view(dtype)[()]
    number = np.float32(value).astype(dtype) if is_narrow(element) else dtype.type(value)
    # In exact mode too the number is what the type can hold: it is the program's constant.
    return np.float64(number) if exact and element.is_float else number


def poison(shape: tuple[int, ...], element: Scalar, exact: bool = False) -> np.ndarray[Any, Any]:
    """Fresh memory: NaN in floats, the byte a5 in integers, true in bools."""
    dtype = dtype_of(element, exact)
    if element.is_float:
        return np.full(shape, np.nan, dtype)
    if element.kind == "bool":
        return np.ones(shape, dtype)
    return np.full(shape, np.frombuffer(b"\xa5" * dtype.itemsize, dtype)[0], dtype)


def wrap_index(x: int) -> int:
    return x if -0x8000000000000000 <= x <= 0x7FFFFFFFFFFFFFFF else (x + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


# -- casts


def cast(x: Any, source: Scalar, target: Scalar, exact: bool = False) -> Any:
    """x of element type `source` as `target` (arith.cast)."""
    return _caster(source, target, exact)(x)


@cache
def _caster(source: Scalar, target: Scalar, exact: bool) -> Kernel:
    dtype = dtype_of(target, exact)
    if source is index:
        inner = _caster(Scalar("i64"), target, exact) if target is not index else None
        return (lambda x: x) if inner is None else lambda x: inner(np.int64(x) if type(x) is int else x)
    if target is index:
        inner = _caster(source, Scalar("i64"), exact)

        def to_index(x: Any) -> Any:
            y = inner(x)
            return y if np.ndim(y) else int(y)

        return to_index
    if source is target or (exact and source.is_float and target.is_float):
        return lambda x: x
    if source.is_float and target.is_integer:
        return _saturating(target, dtype)
    if target.kind == "bool":
        return lambda x: np.not_equal(x, 0) if not source.is_float else np.not_equal(_wide(x), 0)
    return lambda x: x.astype(dtype)


def _wide(x: Any) -> Any:
    """A narrow float as float32; float32 and float64 as they are."""
    return x if x.dtype.itemsize >= 4 else x.astype(_F32)


def _saturating(target: Scalar, dtype: np.dtype[Any]) -> Kernel:
    info = np.iinfo(dtype)
    if target.bits < 64:
        # float64 holds every integer of up to 32 bits, so clipping there is exact.
        lo, hi = float(info.min), float(info.max)

        def clip(x: Any) -> Any:
            y = x.astype(_F64)
            return np.clip(np.where(y == y, y, 0.0), lo, hi).astype(dtype)[()]

        return clip
    top, bottom = float(info.max), float(info.min)  # info.max rounds up to a power of two

    def clip64(x: Any) -> Any:
        y = x.astype(_F64)
        inside = (y < top) & (y > bottom)
        return np.where(inside, np.where(inside, y, 0.0).astype(dtype), np.where(y >= top, info.max, np.where(y <= bottom, info.min, 0)).astype(dtype))[()]

    return clip64


def bitcast(x: Any, source: Scalar, target: Scalar, exact: bool = False) -> Any:
    """The bits of x (as they are in the type `source`) read as `target`."""
    if exact and source.is_float:
        x = np.asarray(x).astype(dtype_of(source))
    bits = np.ascontiguousarray(np.asarray(x, dtype_of(source))).reshape(np.shape(x)).view(dtype_of(target))
    if exact and target.is_float:
        bits = bits.astype(_F64)
    return bits if bits.ndim else int(bits) if target is index else bits[()]


# -- elementwise tables, by kind of element type

_math_erf = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Any) -> Any:
    return np.asarray(_math_erf(np.asarray(x, _F64)), _F64).astype(x.dtype)[()]


def _rsqrt(x: Any) -> Any:
    return np.reciprocal(np.sqrt(x))


def _float_floordiv(a: Any, b: Any) -> Any:
    return np.floor(np.divide(a, b))


def _float_mod(a: Any, b: Any) -> Any:
    return a - b * np.floor(np.divide(a, b))


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded once. f32 through float64, whose product is exact; f64 by error-free transformations (Dekker's product, Knuth's sum:
    Muller et al., Handbook of Floating-Point Arithmetic, 4.3-4.4), at most one unit in the last place off in rare ties."""
    if a.dtype == _F32:
        return (a.astype(_F64) * b.astype(_F64) + c.astype(_F64)).astype(_F32)
    p = a * b
    a_hi, a_lo = _split(a)
    b_hi, b_lo = _split(b)
    p_err = ((a_hi * b_hi - p) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo
    s = p + c
    t = s - p
    s_err = (p - (s - t)) + (c - t)
    r = s + (p_err + s_err)
    return np.where(np.isfinite(r), r, s)[()]


def _split(x: Any) -> tuple[Any, Any]:
    t = x * 134217729.0  # 2**27 + 1
    hi = t - (t - x)
    return hi, x - hi


_COMPARE: dict[str, Kernel] = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}

_FLOAT: dict[str, Kernel] = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "rsqrt": _rsqrt,
    "tanh": np.tanh, "erf": _erf, "sin": np.sin, "cos": np.cos, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": _float_floordiv, "mod": _float_mod, "pow": np.power,
    "min": np.minimum, "max": np.maximum, "fma": fma,
}  # fmt: skip

_INT: dict[str, Kernel] = {
    "neg": np.negative, "abs": np.abs, "not": np.invert, "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "mod": np.remainder, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip

_BOOL: dict[str, Kernel] = {
    "neg": lambda x: x, "abs": lambda x: x, "not": np.logical_not, "add": np.logical_or, "sub": np.logical_xor, "mul": np.logical_and,
    "floordiv": np.logical_and, "mod": lambda a, b: np.logical_and(a, False), "min": np.logical_and, "max": np.logical_or,
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip

# Scalars of type index are Python ints: loop counters and addresses are most of the work at the vec level.
_INDEX: dict[str, Kernel] = {
    "neg": lambda x: wrap_index(-x), "abs": lambda x: wrap_index(abs(x)), "not": lambda x: ~x,
    "add": lambda a, b: r if -0x4000000000000000 < (r := a + b) < 0x4000000000000000 else wrap_index(r),
    "sub": lambda a, b: r if -0x4000000000000000 < (r := a - b) < 0x4000000000000000 else wrap_index(r),
    "mul": lambda a, b: r if -0x4000000000000000 < (r := a * b) < 0x4000000000000000 else wrap_index(r),
    "floordiv": lambda a, b: wrap_index(a // b) if b else 0, "mod": lambda a, b: a % b if b else 0,
    "min": lambda a, b: a if a < b else b, "max": lambda a, b: a if a > b else b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: wrap_index(a << b) if 0 <= b < 64 else 0, "shr": lambda a, b: a >> (b if 0 <= b < 64 else 63),
}  # fmt: skip

_INDEX_COMPARE: dict[str, Kernel] = {
    "eq": lambda a, b: TRUE if a == b else FALSE, "ne": lambda a, b: TRUE if a != b else FALSE, "lt": lambda a, b: TRUE if a < b else FALSE,
    "le": lambda a, b: TRUE if a <= b else FALSE, "gt": lambda a, b: TRUE if a > b else FALSE, "ge": lambda a, b: TRUE if a >= b else FALSE,
}  # fmt: skip


def _rounded(f: Kernel, dtype: np.dtype[Any]) -> Kernel:
    """f on float32, its result rounded to a narrow float type."""
    return lambda *args: f(*(x.astype(_F32) for x in args)).astype(dtype)


def _widened(f: Kernel) -> Kernel:
    return lambda a, b: f(a.astype(_F32), b.astype(_F32))


def _select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def apply_kernel(name: str, element: Scalar, exact: bool = False, arrays: bool = True) -> Kernel:
    """The function of arith op `name` (without its prefix, not cmp, select or a cast) on values of an element type.
    arrays: arguments may be ndarrays; else they are scalars."""
    if element is index and not arrays:
        return _INDEX[name]
    if element.is_float:
        if name == "fma" and exact:
            return lambda a, b, c: a * b + c  # exact mode compares far more loosely than one rounding
        f = _FLOAT[name]
        if not is_narrow(element) or exact:
            return f
        if name == "fma":
            # One rounding: float64 holds the exact product of narrow floats.
            dtype = dtype_of(element)
            return lambda a, b, c: (a.astype(_F64) * b.astype(_F64) + c.astype(_F64)).astype(dtype)
        return _rounded(f, dtype_of(element))
    return (_BOOL if element.kind == "bool" else _INT)[name]


def constant(value: Any, type: Type, exact: bool = False) -> Any:
    """The value of an arith.constant. A shape with extents unknown before run time stays a scalar, which broadcasts."""
    element = element_of(type)
    dims = shape_of(type)
    shape = tuple(d for d in dims if isinstance(d, int))
    number = scalar(value, element, exact)
    if not shape or len(shape) < len(dims):
        return number
    out = np.full(shape, number, dtype_of(element, exact))
    out.flags.writeable = False  # one array serves every run of the op
    return out


def kernel(op: Operation, exact: bool = False, arrays: bool = False) -> Kernel:
    """A function that computes the arith op from its operands' values. arrays: scalars of the op may be arrays (the region of a map)."""
    name = op.name[6:]
    if name == "constant":
        value = constant(op.attrs["value"], op.results[0].type, exact)
        return lambda: value
    type = op.operands[0].type
    element = element_of(type)
    plain = isinstance(type, Scalar) and not arrays
    if name == "cmp":
        predicate = op.attrs["predicate"]
        if element is index and plain:
            return _INDEX_COMPARE[predicate]
        f = _COMPARE[predicate]
        return _widened(f) if is_narrow(element) and not exact else f
    if name == "select":
        if isinstance(type, Scalar) and not arrays:
            return _select
        return lambda c, a, b: np.where(c, a, b)[()]
    if name == "cast":
        return _caster(element, element_of(op.results[0].type), exact)
    if name == "bitcast":
        target = element_of(op.results[0].type)
        return lambda x: bitcast(x, element, target, exact)
    return apply_kernel(name, element, exact, not plain)


def elementwise(op: Operation, frame: Any, args: tuple[Any, ...]) -> Any:
    """Evaluates one arith op."""
    return kernel(op, frame.exact)(*args)
