"""Evaluation of the value ops of tile and tensor: every value is an ndarray of exactly its valid extents, so nothing here knows of padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tilelang.ir.core import Operation
from tilelang.ir.types import Scalar, Type, element_of, index, shape_of
from tilelang.runtime.numerics import cast, dtype_of, is_narrow, poison, scalar

Array = Any
_F32 = np.dtype(np.float32)


def groups(op: Operation, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The values of each declared operand, in order: a tuple even where one is declared."""
    out: list[tuple[Any, ...]] = []
    at = 0
    for n in op.segments or (1,) * len(args):
        out.append(args[at : at + n])
        at += n
    return out


def extents(type: Type, sizes: Iterable[Any]) -> tuple[int, ...]:
    """The shape of a type whose run-time extents are `sizes`, in order. ValueError when one is negative or above the bound that the type gives it,
    for which compiled code has no room."""
    rest = iter(sizes)
    out: list[int] = []
    for d in shape_of(type):
        n = d if isinstance(d, int) else int(next(rest))
        if not isinstance(d, int) and not 0 <= n <= (n if d.bound is None else d.bound):
            raise ValueError(f"an extent of {n} where {type} has {d}")
        out.append(n)
    return tuple(out)


def as_value(x: Any, type: Type) -> Any:
    """A result in the form of its type: a Python int for index scalars, a NumPy scalar for the others, else an array."""
    if not isinstance(type, Scalar):
        return x
    return int(x) if type is index else x[()]


# -- numerics on whole arrays, shared with the mem and vec levels


def identity(kind: str, element: Scalar, exact: bool = False) -> Any:
    """What a reduction over nothing gives."""
    if kind in ("max", "min"):
        if element.is_float:
            number: Any = float("-inf") if kind == "max" else float("inf")
            if element.name == "f8e4m3" and not exact:  # has no infinity
                number = -448.0 if kind == "max" else 448.0
        elif element.kind == "bool":
            number = kind == "min"
        else:
            info = np.iinfo(dtype_of(element))
            number = info.min if kind == "max" else info.max
    else:
        number = kind in ("prod", "all")
    return np.asarray(scalar(number, element, exact))[()]


_REDUCE: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all,
}  # fmt: skip
_SCAN: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def reduce(x: Array, kind: str, axes: tuple[int, ...], element: Scalar, exact: bool = False) -> Any:
    """Reduction of x over axes in its element type; narrow floats are summed in f32 and rounded once."""
    x = np.asarray(x)
    axes = tuple(a % x.ndim for a in axes) if x.ndim else ()
    if any(x.shape[a] == 0 for a in axes):
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        return np.full(shape, identity(kind, element, exact), x.dtype)[()]
    if not axes:
        return x
    if kind in ("any", "all"):
        return _REDUCE[kind](x, axis=axes).astype(x.dtype)
    if element.kind == "bool":
        return _REDUCE["any" if kind in ("sum", "max") else "all"](x, axis=axes)
    if is_narrow(element) and not exact:
        return _REDUCE[kind](x.astype(_F32), axis=axes).astype(x.dtype)
    if kind in ("max", "min"):
        return _REDUCE[kind](x, axis=axes)
    return _REDUCE[kind](x, axis=axes, dtype=x.dtype)


def arg_reduce(x: Array, kind: str, axis: int, element: Scalar) -> Array:
    """Index of the first largest or smallest element, the first NaN before all; 0 on an empty axis. int64."""
    if x.shape[axis] == 0:
        return np.zeros(x.shape[:axis] + x.shape[axis + 1 :], np.int64)
    if is_narrow(element):
        x = x.astype(np.float64)
    return np.asarray(np.argmax(x, axis) if kind == "max" else np.argmin(x, axis))


def scan(x: Array, kind: str, axis: int, exclusive: bool, element: Scalar, exact: bool = False) -> Array:
    """Cumulative reduction along axis; narrow floats are accumulated in f32 and rounded once an element."""
    work = x.astype(_F32) if is_narrow(element) and not exact else x
    out = _SCAN[kind].accumulate(work, axis, dtype=work.dtype).astype(x.dtype)
    if not exclusive:
        return out
    shifted = np.full(x.shape, identity(kind, element, exact), x.dtype)
    if x.shape[axis] > 1:
        here: list[Any] = [slice(None)] * x.ndim
        before = list(here)
        here[axis], before[axis] = slice(1, None), slice(None, -1)
        shifted[tuple(here)] = out[tuple(before)]
    return shifted


def matmul(a: Array, b: Array, a_element: Scalar, b_element: Scalar, acc: Scalar, exact: bool = False) -> Array:
    """a @ b over the last two axes in acc's element type: narrow floats in f32, rounded once; integers wrap."""
    if acc.is_float:
        dtype = dtype_of(acc, exact)
        work = _F32 if is_narrow(acc) and not exact else dtype
        return np.matmul(a.astype(work), b.astype(work)).astype(dtype)
    if acc.kind == "bool":
        return np.matmul(a.astype(bool), b.astype(bool))
    small = all(t.bits <= 16 and not t.is_float for t in (a_element, b_element))
    if small and a.shape[-1] < 1 << 21:
        # Products below 2**32 and fewer than 2**21 of them: a float64 sum is exact, and much faster than NumPy's integer loops.
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(dtype_of(acc))
    wide = np.uint64 if acc.kind == "uint" else np.int64
    return np.matmul(cast(a, a_element, acc).astype(wide), cast(b, b_element, acc).astype(wide)).astype(dtype_of(acc))


def multiply_add(op: Any, a: Array, b: Array, acc: Array, exact: bool = False) -> Array:
    """acc + a @ b in acc's element type, for a matmul op of any level."""
    element = element_of(op.acc.type)
    product = matmul(a, b, element_of(op.lhs.type), element_of(op.rhs.type), element, exact)
    if element.kind == "bool":
        return np.logical_or(acc, product)
    if is_narrow(element) and not exact:
        return (acc.astype(_F32) + product.astype(_F32)).astype(acc.dtype)
    return acc + product


def spread(x: Any, axes: Sequence[int]) -> Array:
    """x with one axis an entry of `axes`: its own axis of that number, or a new one of length 1 for -1."""
    x = np.asarray(x)
    kept = [a for a in axes if a >= 0]
    return x.transpose(kept)[tuple(slice(None) if a >= 0 else None for a in axes)]


def map_region(frame: Any, region: Any, ins: Sequence[Any], maps: Sequence[Sequence[int]], shape: tuple[int, ...], exact: bool) -> list[Array]:
    """Runs an elementwise region on whole arrays; what it yields is broadcast to `shape`."""
    args = [spread(x, m) if np.ndim(x) else x for x, m in zip(ins, maps)]
    types = [v.type for v in region.block.last.operands]
    return [np.broadcast_to(np.asarray(y, dtype_of(t, exact)), shape) for y, t in zip(frame.run_elementwise(region, args), types)]


# -- ops


def fill(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    return np.full(extents(op.out.type, args[1:]), args[0], dtype_of(element_of(op.out.type), frame.exact))


def iota(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    (n,) = extents(op.out.type, args[1:])
    element = element_of(op.out.type)
    return cast(int(args[0]) + op.step * np.arange(n, dtype=np.int64), Scalar("i64"), element, frame.exact)


def broadcast(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    x = np.asarray(args[0])
    shape = extents(op.out.type, args[1:])
    axes = [-1] * len(shape)
    for i, d in enumerate(op.dims):
        axes[d] = i
    return np.broadcast_to(spread(x, axes), shape)


def reshape(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    return as_value(np.asarray(args[0]).reshape(extents(op.out.type, args[1:])), op.out.type)


def transpose(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    return np.asarray(args[0]).transpose(op.perm)


def slice_(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    from tilelang.runtime.memory import box, pick

    (x,), offsets, sizes = groups(op, args)
    kind = op.out.type
    shape = extents(kind, sizes)
    key, inside = box(op, frame, "the tile", x.shape, offsets, shape, op.dropped, op.steps)
    return as_value(pick(x, key, inside, lambda: poison(shape, element_of(kind), frame.exact)), kind)


def extract(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    from tilelang.runtime.memory import point

    x = np.asarray(args[0])
    return as_value(x[point(op, frame, "the tile", x.shape, args[1:])], op.out.type)


def matmul_(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    a, b, acc = args
    return multiply_add(op, a, b, acc, frame.exact)


def reduce_(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    return as_value(reduce(args[0], op.kind, op.axes, element_of(op.x.type), frame.exact), op.out.type)


def arg_reduce_(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    element = element_of(op.out.type)
    return as_value(cast(arg_reduce(args[0], op.kind, op.axis, element_of(op.x.type)), Scalar("i64"), element, frame.exact), op.out.type)


def scan_(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    return scan(args[0], op.kind, op.axis, op.exclusive, element_of(op.x.type), frame.exact)


def take_along(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    from tilelang.runtime.memory import check_indices

    x, indices = args
    where, _ = check_indices(op, frame, "the tile", op.axis, x.shape[op.axis], indices)
    return np.take_along_axis(x, where, op.axis)


def map_(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    ins, sizes = groups(op, args)
    shape = extents(op.results[0].type, sizes)
    return tuple(map_region(frame, op.body, ins, op.maps, shape, frame.exact))


_OPS: dict[str, Callable[..., Any]] = {
    "fill": fill, "iota": iota, "broadcast": broadcast, "reshape": reshape, "transpose": transpose, "slice": slice_, "extract": extract,
    "matmul": matmul_, "reduce": reduce_, "arg_reduce": arg_reduce_, "scan": scan_, "take_along": take_along, "map": map_,
}  # fmt: skip


def evaluate(op: Operation, frame: Any, args: tuple[Any, ...]) -> Any:
    """Evaluates one value op of tile or tensor."""
    return _OPS[op.name.partition(".")[2]](op, frame, args)
