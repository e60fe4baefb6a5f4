"""The vec level in the interpreter: vectors as one-axis ndarrays, addresses as a one-axis ndarray and a start. An access outside the memory of a pointer,
or after it was freed, stops the run, since compiled code would corrupt memory there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.ir.types import VectorType, element_of, index
from tilelang.runtime.memory import UFUNC
from tilelang.runtime.numerics import apply_kernel, dtype_of, is_narrow, poison

Array = Any
Step = Callable[..., Any]  # (frame, operand values...) -> result


class Pointer:
    """Address of element `base` of the one-axis array `array`, which is all the memory that may be reached through it."""

    __slots__ = ("array", "base", "name")

    def __init__(self, array: Array, base: int = 0, name: str = "") -> None:
        self.array = array
        self.base = base
        self.name = name

    @classmethod
    def of(cls, array: Array, name: str = "") -> tuple[Pointer, tuple[int, ...]]:
        """A pointer to the first element of an ndarray of any strides, and the strides in elements. It reaches from the lowest to the highest
        element of the array. ValueError when the strides are no multiples of the item size."""
        item = array.itemsize
        if any(s % item for s in array.strides):
            raise ValueError(f"strides {array.strides} are not multiples of the element's {item} bytes")
        strides = tuple(s // item for s in array.strides)
        if array.size == 0:
            return cls(np.empty(0, array.dtype), 0, name), strides
        low = sum((n - 1) * s for n, s in zip(array.shape, strides) if s < 0)
        high = sum((n - 1) * s for n, s in zip(array.shape, strides) if s > 0)
        corner = array[tuple(slice(n - 1, None) if s < 0 else slice(0, 1) for n, s in zip(array.shape, strides))] if array.ndim else array
        # As unsigned integers: NumPy does not know all the float types there.
        line = np.lib.stride_tricks.as_strided(corner.view(f"u{item}"), (high - low + 1,), (item,), writeable=array.flags.writeable)
        return cls(line.view(array.dtype), -low, name), strides

    @property
    def what(self) -> str:
        return f"the memory of '{self.name}'" if self.name else "the memory"

    def __repr__(self) -> str:
        return f"<pointer {self.name or '?'} at {self.base} of {self.array.shape[0]} {self.array.dtype}>"


def _outside(op: Any, frame: Any, ptr: Pointer, offset: int) -> None:
    frame.out_of_bounds(op, ptr.what, 0, int(offset), ptr.array.shape[0] - ptr.base)
    raise IndexError(f"offset {offset} is outside {ptr!r}")


def _load(op: Any, exact: bool) -> Step:
    kind = op.out.type
    if not isinstance(kind, VectorType):

        def load_scalar(frame: Any, ptr: Pointer, offset: int, *mask: Any) -> Any:
            at = ptr.base + offset
            if not 0 <= at < ptr.array.shape[0]:
                _outside(op, frame, ptr, offset)
            return ptr.array[at]

        return (lambda *args: int(load_scalar(*args))) if kind is index else load_scalar
    lanes = kind.lanes

    def load_vector(frame: Any, ptr: Pointer, offset: int, mask: Any = None) -> Array:
        at = ptr.base + offset
        array = ptr.array
        if mask is None:
            if at < 0 or at + lanes > array.shape[0]:
                _outside(op, frame, ptr, offset if at < 0 else offset + lanes - 1)
            return array[at : at + lanes].copy()
        where = np.flatnonzero(mask)
        out = np.zeros(lanes, array.dtype)
        if where.size:
            if at + where[0] < 0 or at + where[-1] >= array.shape[0]:
                _outside(op, frame, ptr, offset + (where[0] if at + where[0] < 0 else where[-1]))
            out[where] = array[at + where]
        return out

    return load_vector


def _store(op: Any, exact: bool) -> Step:
    kind = op.value.type
    if not isinstance(kind, VectorType):

        def store_scalar(frame: Any, value: Any, ptr: Pointer, offset: int, *mask: Any) -> None:
            at = ptr.base + offset
            if not 0 <= at < ptr.array.shape[0]:
                _outside(op, frame, ptr, offset)
            ptr.array[at] = value

        return store_scalar
    lanes = kind.lanes

    def store_vector(frame: Any, value: Array, ptr: Pointer, offset: int, mask: Any = None) -> None:
        at = ptr.base + offset
        array = ptr.array
        if mask is None:
            if at < 0 or at + lanes > array.shape[0]:
                _outside(op, frame, ptr, offset if at < 0 else offset + lanes - 1)
            array[at : at + lanes] = value
            return
        where = np.flatnonzero(mask)
        if where.size:
            if at + where[0] < 0 or at + where[-1] >= array.shape[0]:
                _outside(op, frame, ptr, offset + (where[0] if at + where[0] < 0 else where[-1]))
            array[at + where] = value[where]

    return store_vector


def _lanes(op: Any, frame: Any, ptr: Pointer, offsets: Array, mask: Any) -> tuple[Array, Array]:
    """The active lanes, and the places that they reach."""
    where = np.arange(offsets.shape[0]) if mask is None else np.flatnonzero(mask)
    at = ptr.base + offsets[where]
    outside = (at < 0) | (at >= ptr.array.shape[0])
    if outside.any():
        _outside(op, frame, ptr, int(at[outside][0]) - ptr.base)
    return where, at


def _gather(op: Any, exact: bool) -> Step:
    def gather(frame: Any, ptr: Pointer, offsets: Array, mask: Any = None) -> Array:
        where, at = _lanes(op, frame, ptr, offsets, mask)
        out = np.zeros(offsets.shape[0], ptr.array.dtype)
        out[where] = ptr.array[at]
        return out

    return gather


def _scatter(op: Any, exact: bool) -> Step:
    def scatter(frame: Any, value: Array, ptr: Pointer, offsets: Array, mask: Any = None) -> None:
        where, at = _lanes(op, frame, ptr, offsets, mask)
        ptr.array[at] = value[where]

    return scatter


def _atomic_rmw(op: Any, exact: bool) -> Step:
    combine = UFUNC[op.kind]

    def atomic_rmw(frame: Any, value: Any, ptr: Pointer, offset: int) -> None:
        at = ptr.base + offset
        if not 0 <= at < ptr.array.shape[0]:
            _outside(op, frame, ptr, offset)
        combine.at(ptr.array, at, value)

    return atomic_rmw


def _alloc(op: Any, exact: bool) -> Step:
    element, name = op.out.type.element, op.out.hint or ""
    return lambda frame, count: Pointer(poison((max(int(count), 0),), element, exact), 0, name)


def _free(op: Any, exact: bool) -> Step:
    def free(frame: Any, ptr: Pointer) -> None:
        ptr.array = ptr.array[:0]

    return free


def _splat(op: Any, exact: bool) -> Step:
    lanes, dtype = op.out.type.lanes, dtype_of(op.out.type.element, exact)
    return lambda frame, x: np.full(lanes, x, dtype)


def _iota(op: Any, exact: bool) -> Step:
    out = np.arange(op.out.type.lanes).astype(dtype_of(op.out.type.element, exact))
    out.flags.writeable = False
    return lambda frame: out


def _mask(op: Any, exact: bool) -> Step:
    numbers = np.arange(op.out.type.lanes)
    return lambda frame, count: numbers < count


def _extract(op: Any, exact: bool) -> Step:
    lane = op.lane
    return (lambda frame, x: int(x[lane])) if op.out.type is index else lambda frame, x: x[lane]


def _insert(op: Any, exact: bool) -> Step:
    lane = op.lane

    def insert(frame: Any, value: Any, x: Array) -> Array:
        out = x.copy()
        out[lane] = value
        return out

    return insert


def _shuffle(op: Any, exact: bool) -> Step:
    lanes = np.array(op.lanes, np.int64)
    return lambda frame, a, b: np.concatenate((a, b))[lanes]


_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def _reduce(op: Any, exact: bool) -> Step:
    element = element_of(op.x.type)
    name = _COMBINE[op.kind]
    if element.is_float and op.kind in ("any", "all"):
        raise ValueError(f"reduces {op.x.type} by {op.kind}")
    combine = apply_kernel(name, element, exact)

    def reduce(frame: Any, x: Array) -> Any:
        while (n := x.shape[0]) > 1:
            half = n // 2
            folded = combine(x[:half], x[half : 2 * half])
            x = np.concatenate((folded, x[2 * half :])) if n % 2 else folded
        return int(x[0]) if op.out.type is index else x[0]

    return reduce


def _dot(op: Any, exact: bool) -> Step:
    element = element_of(op.acc.type)
    dtype = dtype_of(element, exact)
    group = op.a.type.lanes // op.acc.type.lanes
    wide = np.float64 if element.is_float else np.int64
    floor = np.dtype(np.float32) if is_narrow(element) and not exact else dtype

    def dot(frame: Any, a: Array, b: Array, acc: Array) -> Array:
        products = (a.astype(wide) * b.astype(wide)).reshape(-1, group).sum(1)
        return (acc.astype(floor) + products.astype(floor)).astype(dtype)

    return dot


def _prefetch(op: Any, exact: bool) -> Step:
    return lambda frame, ptr, offset: None


def _launch(op: Any, exact: bool) -> Step:
    callee = op.callee
    return lambda frame, count, *captured: frame.launch(op, callee, int(count), captured)


_OPS: dict[str, Callable[[Any, bool], Step]] = {
    f.__name__[1:]: f
    for f in (
        _alloc, _free, _load, _store, _gather, _scatter, _atomic_rmw, _splat, _iota, _mask, _extract, _insert, _shuffle, _reduce, _dot,
        _prefetch, _launch,
    )
}  # fmt: skip


def prepare(op: Any, exact: bool) -> Step:
    """A function (frame, operand values...) -> result that evaluates the op, with all that is static decided now."""
    return _OPS[op.name[4:]](op, exact)


def evaluate(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    """Evaluates one op of vec."""
    return prepare(op, frame.exact)(frame, *args)
