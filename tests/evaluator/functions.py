"""The functions of the language, for the evaluator: name -> f(program, *argument nodes, **argument nodes)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.evaluator import bounded as bd
from tests.evaluator import places as ev
from tests.evaluator.bounded import Num, Refused

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _function(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(names, f))
        return f

    return register


def _values(f: Callable[..., Any]) -> Callable[..., Any]:
    """f on the values of its arguments instead of their nodes."""
    return lambda p, *args, **kw: f(p, *(p.eval(a) for a in args), **{k: p.eval(v) for k, v in kw.items()})


def _value(p: Any, x: Any) -> Num:
    """An operand as a Num: literals are f32 or index integers."""
    return p.number(x, p.common(x))


# -- creation


def _shape(p: Any, items: tuple[Any, ...]) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    shape, lens = [], []
    for item in items:
        if isinstance(item, ev.Range):
            shape.append(item.extent)
            lens.append(item.by)
        else:
            n = p.int(item)
            shape.append(max(int(n), 0))
            lens.append(int(n) if type(n) is int else None)
    return tuple(shape), tuple(lens)


def _full(p: Any, dtype: str, *items: Any, value: Any) -> Num:
    shape, lens = _shape(p, items)
    x = p.convert(value, str(dtype))
    return Num(x.dtype, np.broadcast_to(x.val, shape), np.broadcast_to(x.err, shape), lens)


FUNCTIONS["tune"] = _values(lambda p, first, *others: first)
FUNCTIONS["full"] = _values(_full)
FUNCTIONS["zeros"] = _values(lambda p, dtype, *items: _full(p, dtype, *items, value=0))
FUNCTIONS["ones"] = _values(lambda p, dtype, *items: _full(p, dtype, *items, value=1))


@_function("empty")
@_values
def _empty(p: Any, dtype: str, *items: Any) -> ev.Tensor:
    shape, lens = _shape(p, items)
    val = np.zeros(shape, np.float64 if bd.is_float(dtype) else bd.NUMPY[dtype])
    return ev.Tensor(str(dtype), val, np.full(shape, np.inf), lens)


@_function("shared", "accumulator", "local")
@_values
def _buffer(p: Any, first: Any, *items: Any) -> ev.Tensor:
    made = _empty_buffer(p, first, items) if isinstance(first, ev.Dtype) else ev.full(first)
    val = np.array(made.val)
    return ev.Tensor(made.dtype, val, np.array(np.broadcast_to(made.err, val.shape)), made.lens, False)


def _empty_buffer(p: Any, dtype: str, items: tuple[Any, ...]) -> Num:
    made = _full(p, dtype, *items, value=0)
    return Num(made.dtype, made.val, np.full(made.val.shape, np.inf), made.lens)


@_function("iota")
@_values
def _iota(p: Any, r: Any, dtype: str = "i32") -> Num:
    if isinstance(r, ev.Range):
        values, length = r.start + r.step * np.arange(r.extent), r.by
    else:
        n = p.int(r)
        values, length = np.arange(n), int(n) if type(n) is int else None
    return Num(str(dtype), values.astype(bd.NUMPY[dtype]), np.zeros(len(values)), (length,))


@_function("len")
@_values
def _len(p: Any, x: Any) -> Any:
    return ev.Idx(x.extent) if isinstance(x, ev.Range) else len(x)


@_function("cdiv")
@_values
def _cdiv(p: Any, a: Any, b: Any) -> Any:
    made = -(-p.int(a) // p.int(b))
    return ev.Idx(made) if isinstance(a, ev.Idx) or isinstance(b, ev.Idx) else made


# -- memory


@_function("load")
def _load(p: Any, place: Any, pad: Any = None) -> Num:
    if pad is None:
        return p.place(place).read()
    found = p.place(place, padded=True)
    return found.read(p.number(p.eval(pad), found.tensor.dtype))


def _atomic(kind: str) -> Callable[..., None]:
    def f(p: Any, place: Any, value: Any) -> None:
        found = p.place(place)
        found.atomic(kind, p.stored(p.eval(value), found.tensor.dtype))

    return f


for _kind in ("add", "max", "min"):
    FUNCTIONS[f"atomic_{_kind}"] = _atomic(_kind)


@_function("copy")
def _copy(p: Any, source: Any, target: Any) -> None:
    """Where the source ends before the target, the rest of the target becomes 0."""
    to, value = p.place(target), p.number(x := p.eval(source), x.dtype)
    if value.rank == len(to.shape) and any(n < m for n, m in zip(value.val.shape, to.shape)):
        widths = [(0, max(m - n, 0)) for n, m in zip(value.val.shape, to.shape)]
        value = Num(value.dtype, np.pad(value.val, widths), np.pad(value.err, widths), value.lens)
    to.write(p.stored(value, to.tensor.dtype))


@_function("fill")
def _fill(p: Any, buffer: Any, value: Any) -> None:
    to = p.place(buffer)
    to.write(p.convert(p.eval(value), to.tensor.dtype))


@_function("gemm")
def _gemm(p: Any, a: Any, b: Any, acc: Any, transpose_a: Any = None, transpose_b: Any = None) -> None:
    x, y = (p.number(v := p.eval(n), v.dtype) for n in (a, b))
    x, y = (ev.transposed(v, (1, 0)) if t is not None and p.eval(t) else v for v, t in ((x, transpose_a), (y, transpose_b)))
    to = p.place(acc)
    to.write(p.matmul(x, y, to.read(), to.tensor.dtype))


@_function("print", "breakpoint")
def _ignored(p: Any, *args: Any) -> None:
    for a in args:
        p.eval(a)


# -- types


@_function("cast")
@_values
def _cast(p: Any, x: Any, dtype: str) -> Num:
    return p.convert(x, str(dtype))


@_function("reinterpret")
@_values
def _reinterpret(p: Any, x: Any, dtype: str) -> Num:
    return bd.reinterpret(ev.full(x), str(dtype))


@_function("acc_type")
@_values
def _acc_type(p: Any, dtype: str) -> ev.Dtype:
    return ev.Dtype(bd.acc_type(dtype))


# -- elementwise


def _elementwise(name: str) -> Callable[..., Any]:
    @_values
    def f(p: Any, x: Any) -> Any:
        if name == "abs" and isinstance(x, int) and not isinstance(x, bool):
            return type(x)(abs(x))
        x = _value(p, x)
        if name != "abs" and not bd.is_float(x.dtype):
            raise Refused(f"{name} of {x.dtype}")
        return x if name == "abs" and (x.dtype == "bool_" or x.dtype in bd.UNSIGNED) else bd.unary(name, x)

    return f


for _name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "floor", "ceil", "round", "abs", "isnan", "isinf"):
    FUNCTIONS[_name] = _elementwise(_name)


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _erf(x: Any) -> Any:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(np.asarray(x, np.float64)), np.float64)


def _zero_below(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """f, whose limit at -inf is 0."""
    return lambda x: np.where(x == -np.inf, 0.0, f(x))


_GELU = {
    "none": _zero_below(lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2),
    "tanh": _zero_below(lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
}


def _formula(p: Any, x: Any, f: Callable[[Any], Any]) -> Num:
    """A function made of several operations, computed in f32 at least and rounded once."""
    x = p.number(x, p.common(x, 0.0) if not isinstance(x, Num) else x.dtype)
    if not bd.is_float(x.dtype) or bd.bits(x.dtype) == 8:
        raise Refused(f"a float function of {x.dtype}")
    wide = "f64" if x.dtype == "f64" else "f32"
    raw = np.asarray(f(x.val))
    near = bd._apart(raw, np.asarray(f(x.val - x.err)), np.asarray(f(x.val + x.err)))
    # The functions have slopes of at most 1.2, and no operation inside makes more than |x| or 1 of its rounding error.
    slack = np.where(np.isfinite(raw), 24 * bd.UNIT[wide] * (np.abs(raw) + np.minimum(np.abs(x.val), 16)) + 8 * bd.SMALLEST[wide], 0.0)
    return bd.made(x.dtype, raw, near + np.where(x.val == 0, 0.0, slack) + np.where((x.val == 0) & (raw != 0), slack, 0.0), x.lens)


FUNCTIONS["sigmoid"] = _values(lambda p, x: _formula(p, x, _sigmoid))
FUNCTIONS["silu"] = _values(lambda p, x: _formula(p, x, _zero_below(lambda t: t * _sigmoid(t))))
FUNCTIONS["relu"] = _values(lambda p, x: _minmax(p, (x, 0), "max"))
FUNCTIONS["gelu"] = _values(lambda p, x, approximate="none": _formula(p, x, _GELU[approximate]))


def _minmax(p: Any, values: tuple[Any, ...], kind: str) -> Any:
    if all(isinstance(v, int) for v in values):
        best = (max if kind == "max" else min)(values)
        return ev.Idx(best) if any(isinstance(v, ev.Idx) for v in values) else best
    if all(isinstance(v, (int, float)) and not isinstance(v, ev.Idx) for v in values):
        return float("nan") if any(v != v for v in values) else (max if kind == "max" else min)(values)
    nums, lens = p.together(values)
    out = nums[0]
    for n in nums[1:]:
        out = bd.binary(kind, out, n)
    out.lens = lens
    return out


def _max_or_reduce(kind: str) -> Callable[..., Any]:
    @_values
    def f(p: Any, *values: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if len(values) == 1:
            return _reduce(p, kind, values[0], axis, keepdims)
        return _minmax(p, values, kind)

    return f


FUNCTIONS["max"] = _max_or_reduce("max")
FUNCTIONS["min"] = _max_or_reduce("min")
FUNCTIONS["clamp"] = _values(lambda p, x, lo, hi: _minmax(p, (_minmax(p, (x, lo), "max"), hi), "min"))


@_function("where")
@_values
def _where(p: Any, c: Any, a: Any, b: Any) -> Num:
    dtype = p.common(a, b)
    (cond, x, y), lens = ev.aligned([p.number(c, "bool_"), p.number(a, dtype), p.number(b, dtype)])
    out = bd.where(cond, x, y)
    out.lens = lens
    return out


@_function("fma")
@_values
def _fma(p: Any, a: Any, b: Any, c: Any) -> Num:
    nums, lens = p.together((a, b, c))
    out = bd.fma(*nums)
    out.lens = lens
    return out


# -- along axes


def _reduce(p: Any, kind: str, x: Any, axis: Any, keepdims: bool, dtype: str | None = None) -> Num:
    x = ev.full(x)
    axes = tuple(range(x.rank)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(a % x.rank for a in axes)
    if kind in ("sum", "prod", "mean"):
        to = dtype or bd.acc_type(x.dtype)
        x = bd.cast(x, to if kind != "mean" or bd.is_float(to) else "f32")
    out = _mean(x, axes) if kind == "mean" else bd.reduce(kind, x, axes)
    if keepdims:
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.val.shape))
        out = Num(out.dtype, out.val.reshape(shape), out.err.reshape(shape), tuple(1 if i in axes else n for i, n in enumerate(x.lens)))
    return out


def _mean(x: Num, axes: tuple[int, ...]) -> Num:
    total = bd.reduce("sum", x, axes)
    count = math.prod(x.val.shape[a] for a in axes)
    raw = total.val / count if count else np.full(total.val.shape, np.nan)
    slack = 3 * bd.UNIT[x.dtype] * np.abs(raw) if count > 1 else np.zeros(raw.shape)
    return bd.made(x.dtype, np.asarray(raw), total.err / max(count, 1) + np.where(np.isfinite(raw), slack, 0.0), total.lens)


def _reduction(kind: str) -> Callable[..., Any]:
    return _values(lambda p, x, axis=None, keepdims=False, dtype=None: _reduce(p, kind, x, axis, keepdims, None if dtype is None else str(dtype)))


for _kind in ("sum", "prod", "mean", "any", "all"):
    FUNCTIONS[_kind] = _reduction(_kind)


def _arg(kind: str) -> Callable[..., Any]:
    @_values
    def f(p: Any, x: Any, axis: Any = None, dtype: str = "i32") -> Num:
        x = ev.full(x)
        if axis is None:
            x = Num(x.dtype, x.val.reshape(-1), x.err.reshape(-1), (None,))
            axis = 0
        return bd.arg_reduce(kind, x, axis % x.rank, str(dtype))

    return f


FUNCTIONS["argmax"], FUNCTIONS["argmin"] = _arg("max"), _arg("min")


@_function("cumsum")
@_values
def _cumsum(p: Any, x: Any, axis: int, exclusive: bool = False) -> Num:
    x = ev.full(x)
    return bd.cumsum(bd.cast(x, bd.acc_type(x.dtype)), axis % x.rank, exclusive)


@_function("matmul")
@_values
def _matmul(p: Any, a: Any, b: Any, acc: Any = None, dtype: Any = None) -> Num:
    return p.matmul(a, b, acc, None if dtype is None else str(dtype))


# -- shape


@_function("transpose")
@_values
def _transpose(p: Any, x: Any, *axes: int) -> Num:
    x = ev.full(x)
    return ev.transposed(x, tuple(a % x.rank for a in axes) or tuple(reversed(range(x.rank))))


@_function("reshape")
@_values
def _reshape(p: Any, x: Any, *items: Any) -> Num:
    x = ev.full(x)
    shape, lens = _shape(p, items)
    if math.prod(shape) != x.val.size:
        raise Refused("a reshape to another number of elements")
    return Num(x.dtype, x.val.reshape(shape), x.err.reshape(shape), lens)


@_function("broadcast")
@_values
def _broadcast(p: Any, x: Any, *items: Any) -> Num:
    shape, lens = _shape(p, items)
    return ev.fit(ev.full(x), lens, shape)


@_function("expand")
@_values
def _expand(p: Any, x: Any, axis: int) -> Num:
    x = ev.full(x)
    at = axis % (x.rank + 1)
    return Num(x.dtype, np.expand_dims(x.val, at), np.expand_dims(x.err, at), (*x.lens[:at], 1, *x.lens[at:]))


@_function("gather")
@_values
def _gather(p: Any, x: Any, index: Any, axis: int) -> Num:
    x, index = ev.full(x), ev.full(index)
    if (index.err > 0).any():
        raise ev.Unsure
    i, axis = index.val.astype(np.int64), axis % x.rank
    if ((i < 0) | (i >= x.val.shape[axis])).any():
        raise ev.Stop("run-out-of-bounds")
    shape = [n if a == axis else min(n, m) for a, (n, m) in enumerate(zip(i.shape, x.val.shape))]
    i = i[tuple(slice(0, n) for n in shape)]
    source = tuple(slice(None) if a == axis else slice(0, n) for a, n in enumerate(shape))
    return Num(x.dtype, np.take_along_axis(x.val[source], i, axis), np.take_along_axis(x.err[source], i, axis), index.lens)
