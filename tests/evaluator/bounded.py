"""Arrays of the language's dtypes that carry a bound of their own error, for tests that must not guess a tolerance.

A `Num` holds what an exact reading of the program gives (rounded after every operation) and, element by element, how far a right implementation may be
from it: 0 where IEEE arithmetic leaves no choice, a few units in the last place after exp and its like, n roundings of the absolute sum after a sum of n
terms (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), the error carried through by first differences after that. The bound is inf where
nothing can be said: a comparison that the error may turn round, memory that was never written, a number that may or may not overflow.

Nothing here comes from the compiler: NumPy, ml_dtypes and the language's rules only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

FLOATS = {"f64": (53, 11), "f32": (24, 8), "f16": (11, 5), "bf16": (8, 8), "f8e4m3": (4, 4), "f8e5m2": (3, 5)}  # bits of precision, of exponent
SIGNED, UNSIGNED = ("i8", "i16", "i32", "i64"), ("u8", "u16", "u32", "u64")
NUMPY: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "bool_": np.bool_,
}  # fmt: skip
UNIT = {name: 2.0 ** -bits for name, (bits, _) in FLOATS.items()}  # largest relative error of one rounding
LARGEST = {name: float(ml_dtypes.finfo(NUMPY[name]).max) for name in FLOATS}
SMALLEST = {name: float(ml_dtypes.finfo(NUMPY[name]).smallest_subnormal) for name in FLOATS}
ULPS = {"f64": 8.0, "f32": 6.0, "f16": 1.0, "bf16": 1.0}  # of exp and its like: what they promise, one more for the reference


class Refused(Exception):
    """The program is not one of the language: a compiler that accepted it is wrong."""


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_int(dtype: str) -> bool:
    return dtype in SIGNED or dtype in UNSIGNED


def bits(dtype: str) -> int:
    return 1 if dtype == "bool_" else int(dtype.strip("fiub").split("e")[0]) if not dtype.startswith("f8") else 8


@dataclass
class Num:
    """val: floats as float64 (holding values of the dtype), others in NumPy's dtype. err: float64 of the same shape. lens: for each axis the length
    that the program states for it, None when it is a symbolic dim; the valid part, val.shape, may be shorter."""

    dtype: str
    val: Array
    err: Array
    lens: tuple[int | None, ...] = ()

    @property
    def rank(self) -> int:
        return self.val.ndim


def exact(dtype: str, values: Any, lens: tuple[int | None, ...] | None = None) -> Num:
    """Given values, without error."""
    array = np.asarray(values)
    val = array.astype(np.float64) if is_float(dtype) else array.astype(NUMPY[dtype])
    return Num(dtype, val, np.zeros(val.shape), tuple(val.shape) if lens is None else lens)


def native(x: Num) -> Array:
    """The values as an array of the dtype."""
    return rounded(x.val, x.dtype).astype(NUMPY[x.dtype]) if is_float(x.dtype) else x.val


def rounded(x: Array, dtype: str) -> Array:
    """float64 rounded to what a float dtype holds, narrow ones by way of f32, as they are computed."""
    if dtype == "f64":
        return x
    x = x.astype(np.float32)
    return (x if dtype == "f32" else x.astype(NUMPY[dtype])).astype(np.float64)


def literal(value: int | float | bool, dtype: str) -> Num:
    """A number written in the program, as one of a dtype."""
    if is_float(dtype):
        return Num(dtype, rounded(np.asarray(float(value)), dtype), np.zeros(()))
    if isinstance(value, float) or (dtype == "bool_") != isinstance(value, bool):
        raise Refused(f"{value!r} as {dtype}")
    info = None if dtype == "bool_" else np.iinfo(NUMPY[dtype])
    if info and not info.min <= value <= info.max:
        raise Refused(f"{value} as {dtype}")
    return exact(dtype, value)


def promote(a: str, b: str) -> str:
    """The dtype where two meet."""
    if a == b:
        return a
    if "bool_" in (a, b):
        return b if a == "bool_" else a
    if is_float(a) or is_float(b):
        if not (is_float(a) and is_float(b)):
            return a if is_float(a) else b
        if 8 in (bits(a), bits(b)):
            raise Refused(f"{a} with {b}")
        return "f32" if bits(a) == bits(b) == 16 else max(a, b, key=bits)
    if (a in SIGNED) == (b in SIGNED):
        return max(a, b, key=bits)
    signed, unsigned = (a, b) if a in SIGNED else (b, a)
    if bits(signed) > bits(unsigned):
        return signed
    if unsigned == "u64":
        raise Refused(f"{a} with {b}")
    return f"i{2 * bits(unsigned)}"


def acc_type(dtype: str) -> str:
    """Where sums of a dtype are accumulated."""
    if is_float(dtype):
        return "f64" if dtype == "f64" else "f32"
    if dtype in ("u8", "u16", "u32"):
        return "u32"
    return dtype if dtype in ("i64", "u64") else "i32"


def _sure(err: Array) -> Array:
    return np.where(np.isnan(err), np.inf, err)


def made(dtype: str, raw: Array, err: Array, lens: tuple[int | None, ...]) -> Num:
    """A float result from its value before rounding and the error that its operands bring in."""
    val = rounded(raw, dtype)
    err = _sure(np.broadcast_to(err, raw.shape))
    inexact = err > 0
    finite = np.isfinite(raw)
    size = np.where(finite, np.abs(raw), 0.0)
    err = np.where(inexact, err + 2 * UNIT[dtype] * size + SMALLEST[dtype], 0.0)
    top = LARGEST[dtype]
    over = finite & (size - err > top * (1 + 2 * UNIT[dtype]))
    maybe = finite & inexact & (size + err > top) & ~over
    # An infinity or a NaN that came out of inexact operands comes out of their neighbours too, or `err` is inf already.
    err = np.where(maybe, np.inf, np.where(over | (~finite & np.isfinite(err)), 0.0, err))
    return Num(dtype, val, _sure(err), lens)


def _apart(mid: Array, *others: Array) -> Array:
    """How far the results for neighbouring arguments are from the one in the middle."""
    out = np.zeros(mid.shape)
    for o in others:
        same = (o == mid) | (np.isnan(o) & np.isnan(mid))
        out = np.maximum(out, np.where(same, 0.0, _sure(np.abs(o - mid))))
    return out


# -- elementwise


def _high(f: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """f in extended precision."""
    return lambda x: np.asarray(f(np.asarray(x, np.longdouble)), np.float64)


_MONOTONE: dict[str, Callable[[Array], Array]] = {
    "exp": _high(np.exp), "exp2": _high(np.exp2), "log": _high(np.log), "log2": _high(np.log2), "tanh": _high(np.tanh),
    "erf": lambda x: np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64),
}  # fmt: skip
_STEPS: dict[str, Callable[[Array], Array]] = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "abs": np.abs, "neg": np.negative}


def unary(name: str, x: Num) -> Num:
    d = x.dtype
    if not is_float(d):
        return _unary_int(name, x)
    if bits(d) == 8:
        raise Refused(f"{name} of {d}")
    v, e = x.val, x.err
    if name in ("isnan", "isinf"):
        test = np.isnan(v) if name == "isnan" else np.isinf(v)
        return Num("bool_", test, np.where(np.isinf(e), np.inf, 0.0), x.lens)
    if name in _STEPS:
        f = _STEPS[name]
        return made(d, f(v), _apart(f(v), f(v - e), f(v + e)), x.lens)
    if name == "sqrt":
        return made(d, np.sqrt(v), _apart(np.sqrt(v), np.sqrt(v - e), np.sqrt(v + e)), x.lens)
    if name == "rsqrt":
        raw = _high(lambda t: 1 / np.sqrt(t))(v)
        err = np.where(v == 0, np.inf, _apart(raw, *(_high(lambda t: 1 / np.sqrt(t))(v + s * e) for s in (-1, 1))))
    elif name in ("sin", "cos"):
        raw = _high(getattr(np, name))(v)
        err = np.where(np.isnan(raw), _apart(v, v - e, v + e), np.minimum(e, np.where(np.isinf(e), np.inf, 2.0)))
    else:
        f = _MONOTONE[name]
        raw = f(v)
        err = _apart(raw, f(v - e), f(v + e))
    slack = ULPS[d] * 2 * UNIT[d] * np.abs(raw) + 4 * SMALLEST[d]
    # Values that IEEE leaves no choice about: NaN, infinities of infinities, f(0).
    free = np.isfinite(raw) & ~((v == 0) & (raw == 0))
    # Whether the largest numbers overflow is inside the promised error.
    edge = np.isfinite(raw) & (np.abs(raw) * (1 + ULPS[d] * 4 * UNIT[d]) > LARGEST[d]) & (np.abs(raw) < LARGEST[d] * (1 + ULPS[d] * 4 * UNIT[d]))
    return made(d, raw, np.where(edge, np.inf, err + np.where(free, slack, 0.0)), x.lens)


def _unary_int(name: str, x: Num) -> Num:
    if x.dtype == "bool_" and name != "invert":
        raise Refused(f"{name} of bool_")
    if name in ("floor", "ceil", "round"):
        return x
    f = {"neg": np.negative, "abs": np.abs, "invert": np.invert}.get(name)
    if f is None:
        raise Refused(f"{name} of {x.dtype}")
    return Num(x.dtype, np.asarray(f(x.val)), x.err, x.lens)


def _int_pow(a: Array, b: Array) -> Array:
    return np.asarray(np.power(a, b))


def _shift(a: Array, b: Array, left: bool) -> Array:
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    count = np.where(inside, b, 0).astype(a.dtype)
    if left:
        return np.where(inside, np.left_shift(a, count), np.zeros_like(a))
    return np.where(inside, np.right_shift(a, count), np.where(a < 0, -1, 0).astype(a.dtype))


_INT: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.remainder, "&": np.bitwise_and, "|": np.bitwise_or,
    "^": np.bitwise_xor, "min": np.minimum, "max": np.maximum, "**": _int_pow, "<<": lambda a, b: _shift(a, b, True),
    ">>": lambda a, b: _shift(a, b, False),
}  # fmt: skip
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


def binary(op: str, a: Num, b: Num) -> Num:
    """Both operands of one dtype, of shapes that NumPy broadcasts; the lens are the caller's to set."""
    d = a.dtype
    if not is_float(d):
        if op == "/" or (d == "bool_" and op not in ("&", "|", "^")):
            raise Refused(f"{op} of {d}")
        return Num(d, np.asarray(_INT[op](a.val, b.val)), _worst(a, b), ())
    if op in ("&", "|", "^", "<<", ">>") or bits(d) == 8:
        raise Refused(f"{op} of {d}")
    x, y, ex, ey = np.broadcast_arrays(a.val, b.val, a.err, b.err)
    if op in ("+", "-"):
        return made(d, x + y if op == "+" else x - y, ex + ey, ())
    if op == "*":
        return made(d, x * y, _carried(ex, y) + _carried(ey, x) + _carried(ex, ey), ())
    if op == "/":
        q = x / y
        room = np.abs(y) - ey
        err = np.where((ex == 0) & (ey == 0), 0.0, np.where(room > 0, (ex + _carried(ey, q)) / room, np.inf))
        # The sign of a zero is not part of what we promise, so neither is that of what it divides.
        return made(d, q, np.where((y == 0) & ~np.isnan(x) & (x != 0), np.inf, err), ())
    if op in ("min", "max"):
        return made(d, (np.minimum if op == "min" else np.maximum)(x, y), np.maximum(ex, ey), ())
    if op == "//":
        q = made(d, x / y, binary("/", a, b).err, ())
        lo, hi = np.floor(q.val - q.err), np.floor(q.val + q.err)
        certain = np.isfinite(x) & np.isfinite(y) & (lo == hi)
        # Python's floor of the true quotient and the floor of the rounded one differ at whole numbers.
        near = np.abs(q.val - np.rint(q.val)) <= 4 * UNIT[d] * np.abs(q.val)
        return made(d, np.floor(q.val), np.where(certain & (~near | (x == y * q.val)), 0.0, np.inf), ())
    if op == "%":
        q = x / y
        whole = np.abs(q - np.rint(q)) <= 16 * UNIT[d] * np.maximum(np.abs(q), 1) + (ex + ey * np.abs(q)) / np.abs(y)
        certain = np.isfinite(x) & np.isfinite(y) & ~whole & np.isfinite(q)
        err = ex + ey * np.abs(np.floor(q)) + 8 * UNIT[d] * (np.abs(x) + np.abs(y * np.floor(q)))
        return made(d, np.remainder(x, y), np.where(certain, err, np.inf), ())
    if op == "**":
        raw = _power(x, y)
        slack = (2 * ULPS[d] + 4 * np.abs(np.log2(np.maximum(np.abs(raw), SMALLEST[d])))) * UNIT[d] * np.abs(raw) + 4 * SMALLEST[d]
        around = _apart(raw, *(_power(x + s * ex, y + t * ey) for s in (-1, 1) for t in (-1, 1)))
        certain = np.isfinite(x) & np.isfinite(y) & (x != 0)
        return made(d, raw, np.where(certain, around + np.where(np.isfinite(raw), slack, 0.0), np.inf), ())
    raise AssertionError(op)


def _power(x: Array, y: Array) -> Array:
    return np.asarray(np.power(np.asarray(x, np.longdouble), np.asarray(y, np.longdouble)), np.float64)


def _carried(err: Array, factor: Array) -> Array:
    """err * |factor|, where no error stays none whatever the factor."""
    return np.where(err == 0, 0.0, _sure(err * np.abs(factor)))


def _worst(*xs: Num) -> Array:
    return np.maximum.reduce(np.broadcast_arrays(*(np.where(x.err > 0, np.inf, 0.0) for x in xs)))


def fma(a: Num, b: Num, c: Num) -> Num:
    x, y, z, ex, ey, ez = np.broadcast_arrays(a.val, b.val, c.val, a.err, b.err, c.err)
    raw = x * y + z
    # Exact for narrow types but for the last bit of a float64; f64 itself is off by that bit.
    err = _carried(ex, y) + _carried(ey, x) + _carried(ex, ey) + ez
    slack = 4 * UNIT[a.dtype] * (np.abs(x * y) + np.abs(z))
    return made(a.dtype, raw, err + np.where(np.isfinite(raw), slack, 0.0), ())


def compare(op: str, a: Num, b: Num) -> Num:
    f = _COMPARE[op]
    if not is_float(a.dtype):
        return Num("bool_", np.asarray(f(a.val, b.val)), _worst(a, b), ())
    x, y, e = np.broadcast_arrays(a.val, b.val, a.err + b.err)
    certain = (e == 0) | ((np.isnan(x) | np.isnan(y)) & np.isfinite(e)) | (np.abs(x - y) > e)
    return Num("bool_", np.asarray(f(x, y)), np.where(certain, 0.0, np.inf), ())


def where(c: Num, a: Num, b: Num) -> Num:
    """a and b of one dtype."""
    err = np.where(c.err > 0, np.inf, np.where(c.val, a.err, b.err))
    return Num(a.dtype, np.where(c.val, a.val, b.val), err, ())


def cast(x: Num, dtype: str) -> Num:
    if x.dtype == dtype:
        return x
    v, e = x.val, x.err
    if is_float(dtype):
        if is_float(x.dtype):
            out = made(dtype, v, e, x.lens)
            if x.dtype == "f64" and dtype != "f32":  # rounded once, or by way of f32
                once = v.astype(np.float16 if dtype == "f16" else NUMPY[dtype]).astype(np.float64)
                out.err = np.maximum(out.err, _apart(out.val, once))
            return out
        if dtype in ("f64", "f32"):
            out = v.astype(NUMPY[dtype]).astype(np.float64)
        else:
            out = rounded(v.astype(np.float64), dtype)
            once = v.astype(np.float64).astype(NUMPY[dtype]).astype(np.float64)
            e = np.maximum(e, _apart(out, once))
        return Num(dtype, out, e, x.lens)
    if is_float(x.dtype):
        if dtype == "bool_":
            return Num(dtype, v != 0, compare("!=", x, Num(x.dtype, np.zeros(()), np.zeros(()))).err, x.lens)
        lo, mid, hi = (_saturate(t, dtype) for t in (v - e, v, v + e))
        return Num(dtype, mid, np.where((lo == mid) & (hi == mid), 0.0, np.inf), x.lens)
    return Num(dtype, v.astype(NUMPY[dtype]), e, x.lens)


def _saturate(v: Array, dtype: str) -> Array:
    info = np.iinfo(NUMPY[dtype])
    flat = [0 if t != t else min(max(int(t) if abs(t) != math.inf else (info.max if t > 0 else info.min), info.min), info.max) for t in v.ravel().tolist()]
    return np.array(flat, NUMPY[dtype]).reshape(v.shape)


def reinterpret(x: Num, dtype: str) -> Num:
    source = native(x)
    val = np.ascontiguousarray(source).reshape(source.shape).view(NUMPY[dtype])
    err = np.where(x.err > 0, np.inf, 0.0)
    if is_float(x.dtype):
        err = np.where(np.isnan(x.val) | (x.val == 0), np.inf, err)  # payloads and the sign of zero are not promised
    return Num(dtype, val.astype(np.float64) if is_float(dtype) else val, err, x.lens)


# -- along axes


def _magnitude(x: Array) -> Array:
    """|x| of the finite elements."""
    return np.where(np.isfinite(x), np.abs(x), 0.0)


def reduce(kind: str, x: Num, axes: tuple[int, ...]) -> Num:
    """sum prod max min any all over axes, dropped from the result. Sums are in x's dtype."""
    lens = tuple(n for i, n in enumerate(x.lens) if i not in axes)
    v, d = x.val, x.dtype
    count = math.prod(v.shape[a] for a in axes)
    if kind in ("any", "all"):
        x = cast(x, "bool_")
        return Num("bool_", getattr(np, kind)(x.val, axis=axes), x.err.max(axis=axes, initial=0.0), lens)
    if kind in ("max", "min"):
        largest = kind == "max"
        f = np.max if largest else np.min
        if is_float(d):
            start: Any = -np.inf if largest else np.inf
        else:
            info = np.iinfo(NUMPY[d])
            start = info.min if largest else info.max
        return Num(d, np.asarray(f(v, axis=axes, initial=start)), x.err.max(axis=axes, initial=0.0), lens)
    if not is_float(d):
        f = np.sum if kind == "sum" else np.prod
        return Num(d, np.asarray(f(v, axis=axes, dtype=NUMPY[d])), x.err.max(axis=axes, initial=0.0), lens)
    if kind == "sum":
        raw, size = v.sum(axis=axes), _magnitude(v).sum(axis=axes)
        slack = count * UNIT[d] * size if count > 1 else np.zeros(raw.shape)
        err = x.err.sum(axis=axes) + slack
        over = size + err > LARGEST[d]  # in some order, before an infinity comes or after
        return made(d, raw, np.where(over, np.inf, err), lens)
    raw = np.prod(v, axis=axes)
    top = np.prod(np.abs(v) + x.err, axis=axes)
    # Some order of the factors may leave the range on the way.
    with np.errstate(all="ignore"):
        logs = np.abs(np.log2(np.maximum(np.abs(v), SMALLEST[d]))).sum(axis=axes)
    risky = logs > np.log2(LARGEST[d]) - 2
    err = np.where(x.err.max(axis=axes, initial=0.0) > 0, _sure(top - np.abs(raw)), 0.0) + (2 * count * UNIT[d] * np.abs(raw) if count > 1 else 0.0)
    return made(d, raw, np.where(np.isfinite(v).all(axis=axes) & ~(risky & (count > 1)), err, np.inf if count > 1 else err), lens)


def arg_reduce(kind: str, x: Num, axis: int, dtype: str) -> Num:
    lens = tuple(n for i, n in enumerate(x.lens) if i != axis)
    shape = tuple(n for i, n in enumerate(x.val.shape) if i != axis)
    if x.val.shape[axis] == 0:
        return Num(dtype, np.zeros(shape, NUMPY[dtype]), np.zeros(shape), lens)
    val = (np.argmax if kind == "max" else np.argmin)(x.val, axis=axis)
    best = np.take_along_axis(x.val, np.expand_dims(val, axis), axis)
    room = np.take_along_axis(x.err, np.expand_dims(val, axis), axis) + x.err
    with np.errstate(all="ignore"):
        gap = np.abs(x.val.astype(np.float64) - best.astype(np.float64))
    rivals = (room > 0) & ~(gap > room)
    rivals &= np.arange(x.val.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.rank)]) != np.expand_dims(val, axis)
    unsure = np.where(np.isnan(best) & np.isfinite(x.err.max(axis=axis, keepdims=True)), False, rivals)
    err = np.where(unsure.any(axis=axis) | np.isinf(x.err).any(axis=axis), np.inf, 0.0)
    return Num(dtype, np.asarray(val).astype(NUMPY[dtype]), np.asarray(err), lens)


def cumsum(x: Num, axis: int, exclusive: bool) -> Num:
    v, d = x.val, x.dtype
    sums = np.cumsum(v, axis=axis, dtype=v.dtype)
    errs = np.cumsum(x.err, axis=axis)
    size = np.cumsum(_magnitude(v), axis=axis) if is_float(d) else None

    def shifted(t: Array) -> Array:
        if not exclusive:
            return t
        out = np.zeros_like(t)
        to, frm = [slice(None)] * t.ndim, [slice(None)] * t.ndim
        to[axis], frm[axis] = slice(1, None), slice(0, -1)
        out[tuple(to)] = t[tuple(frm)]
        return out

    sums, errs = shifted(sums), shifted(errs)
    if size is None:
        return Num(d, sums, np.where(errs > 0, np.inf, 0.0), x.lens)
    size = shifted(size)
    n = np.arange(v.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.rank)])
    slack = np.where(n > 0, (n + 1) * UNIT[d] * size, 0.0)
    over = (n > 0) & (size + errs + slack > LARGEST[d])
    return made(d, sums, np.where(over, np.inf, errs + slack), x.lens)


def _pairs(rows: Array, columns: Array) -> Array:
    """For each element of a product: whether something holds in its row or its column."""
    return rows.max(axis=-1, keepdims=True, initial=False) | columns.max(axis=-2, keepdims=True, initial=False)


def matmul(a: Num, b: Num, acc: Num | None, lens: tuple[int | None, ...]) -> Num:
    """acc + a @ b in the dtype of all three; equal leading axes."""
    d, k = a.dtype, a.val.shape[-1]
    if not is_float(d):
        raw = np.matmul(a.val, b.val).astype(NUMPY[d])
        unsure = _pairs(a.err > 0, b.err > 0)
        err = np.where(unsure, np.inf, 0.0)
        out = Num(d, raw, err, lens)
        return out if acc is None else Num(d, raw + acc.val, np.maximum(err, acc.err), lens)
    raw = np.matmul(a.val, b.val)
    ea, eb = np.minimum(a.err, 1e300), np.minimum(b.err, 1e300)
    va, vb = _magnitude(a.val), _magnitude(b.val)
    size = np.matmul(va, vb)
    err = np.matmul(ea, vb) + np.matmul(va, eb) + np.matmul(ea, eb)
    start = np.zeros(raw.shape) if acc is None else acc.val
    err = err + (0.0 if acc is None else acc.err)
    size = size + _magnitude(start)
    err = np.where(err > 1e290, np.inf, err + 2 * (k + 4) * (UNIT[d] * size + SMALLEST[d]) * (k > 0))
    # An error in a factor of an infinity or NaN decides about signs.
    hot = _pairs(~np.isfinite(a.val), ~np.isfinite(b.val))
    inexact = _pairs(a.err > 0, b.err > 0)
    err = np.where(hot & inexact, np.inf, err)
    over = size + err > LARGEST[d]
    return made(d, raw + start, np.where(over, np.inf, err), lens)
