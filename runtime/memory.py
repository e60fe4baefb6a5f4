"""Memory in the interpreter: buffers as views of ndarrays, checked accesses, and the memory ops of tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tilelang.ir.types import element_of, index, shape_of
from tilelang.runtime.arrays import as_value, extents, groups
from tilelang.runtime.numerics import apply_kernel, poison

Array = Any
UFUNC: dict[str, Any] = {"add": np.add, "max": np.maximum, "min": np.minimum}


class Root:
    """The identity of a piece of memory: what all views of one buffer share. `shadow` belongs to the hooks of the run."""

    __slots__ = ("name", "shape", "space", "fresh", "shadow")

    def __init__(self, name: str, shape: tuple[int, ...], space: str, fresh: bool) -> None:
        self.name = name
        self.shape = shape
        self.space = space
        self.fresh = fresh  # contents undefined until written
        self.shadow: Any = None


class BufferValue:
    """A view of memory: an ndarray that shares it. ids: the number of each element within the root, where hooks want to know (else None)."""

    __slots__ = ("array", "root", "ids")

    def __init__(self, array: Array, root: Root, ids: Array | None = None) -> None:
        self.array = array
        self.root = root
        self.ids = ids

    @classmethod
    def of(cls, array: Array, name: str = "", space: str = "global", fresh: bool = False, ids: bool = False) -> BufferValue:
        numbers = np.arange(array.size).reshape(array.shape) if ids else None
        return cls(array, Root(name, array.shape, space, fresh), numbers)

    @property
    def name(self) -> str:
        return f"'{self.root.name}'" if self.root.name else "the buffer"

    def view(self, change: Callable[[Array], Array]) -> BufferValue:
        """The view that `change` makes of this one; it must not copy."""
        return BufferValue(change(self.array), self.root, None if self.ids is None else change(self.ids))

    def __repr__(self) -> str:
        return repr(self.array)


class Token:
    """A copy under way: `dst` gets `data` when the token is waited for, so that a missing wait shows."""

    __slots__ = ("dst", "data")

    def __init__(self, dst: BufferValue, data: Array) -> None:
        self.dst = dst
        self.data = data

    def complete(self) -> None:
        self.dst.array[...] = self.data


# -- accesses. `frame.out_of_bounds` raises; in check mode it reports and returns, and the access is clipped.


def box(
    op: Any, frame: Any, what: str, shape: Sequence[int], offsets: Sequence[int], counts: Iterable[int], dropped: Sequence[int],
    steps: Sequence[int], pad: bool = False,
) -> tuple[tuple[Any, ...] | None, tuple[slice, ...] | None]:  # fmt: skip
    """The subscript of `counts` elements an axis (dropped axes have one index). Returns the subscript, None when it selects nothing; and None when
    all of it is inside `shape`, else the part of the result that is. Elements outside are an error unless pad."""
    counts = tuple(counts)
    if 0 in counts:
        return None, None
    key: list[Any] = []
    inside: list[slice] = []
    partial = nothing = False
    rest = iter(counts)
    for axis, (length, offset) in enumerate(zip(shape, offsets)):
        if axis in dropped:
            if not 0 <= offset < length:
                if not pad:
                    frame.out_of_bounds(op, what, axis, offset, length)
                nothing = True
            key.append(offset)
            continue
        n = next(rest)
        step = steps[axis] if steps else 1
        last = offset + (n - 1) * step
        lo, hi = (offset, last) if step > 0 else (last, offset)
        first, stop = 0, n
        if lo < 0 or hi >= length:
            if not pad:
                frame.out_of_bounds(op, what, axis, lo if lo < 0 else hi, length)
            partial = True
            # The r with 0 <= offset + r * step < length.
            below, above = (-offset, length - offset) if step > 0 else (offset - length + 1, offset + 1)
            first, stop = max(0, -(-below // abs(step))), min(n, -(-above // abs(step)))
            nothing = nothing or stop <= first
        end = offset + (stop - 1) * step + (1 if step > 0 else -1)
        key.append(slice(offset + first * step, end if end >= 0 else None, step))
        inside.append(slice(first, stop))
    return None if nothing else tuple(key), tuple(inside) if partial or nothing else None


def point(op: Any, frame: Any, what: str, shape: Sequence[int], indices: Sequence[int]) -> tuple[int, ...]:
    """The subscript of one element, checked."""
    for axis, (i, length) in enumerate(zip(indices, shape)):
        if not 0 <= i < length:
            frame.out_of_bounds(op, what, axis, int(i), length)
            return tuple(min(max(int(i), 0), n - 1) for i, n in zip(indices, shape))
    return tuple(indices)


def check_indices(op: Any, frame: Any, what: str, axis: int, length: int, indices: Array) -> tuple[Array, Array | None]:
    """Index tile as int64, checked against the length of the axis. Where check mode goes on: clipped, and which ones were inside (else None)."""
    indices = np.asarray(indices).astype(np.int64)
    outside = (indices < 0) | (indices >= length)
    if outside.any():
        frame.out_of_bounds(op, what, axis, int(indices[outside].ravel()[0]), length)
        return np.clip(indices, 0, length - 1), ~outside
    return indices, None


def pick(x: Array, key: tuple[Any, ...] | None, inside: tuple[slice, ...] | None, filler: Callable[[], Array]) -> Array:
    """x[key] where all of it is inside; else the filler with the inside part set."""
    if key is not None and inside is None:
        return x[key]
    out = filler()
    if key is not None:
        out[inside] = x[key]
    return out


def lattice(
    op: Any, frame: Any, buf: BufferValue, indices: Sequence[Array], offsets: Sequence[int], counts: Callable[[int, int], Iterable[int]]
) -> tuple[tuple[Any, ...], tuple[int, ...], Array | None]:
    """Subscripts, one an axis of the buffer, for an access at index tiles of shape S (gather, scatter, atomics), and the shape of the result: the kept
    axes before the first indexed one, S, the other kept axes. counts(n, rank of S): the extents of the kept axes of which n stand before S.
    Last, None or which elements of the result are inside the buffer, where check mode goes on."""
    shape = buf.array.shape
    tiles = [np.asarray(i) for i in indices]
    inner = tiles[0].shape
    kept = [a for a in range(len(shape)) if a not in op.indexed and a not in op.dropped]
    before = sum(a < min(op.indexed) for a in kept)
    sizes = tuple(counts(before, len(inner)))
    full = (*sizes[:before], *inner, *sizes[before:])
    empty = 0 in full
    rank = len(full)
    subscripts: list[Any] = []
    valid: Array | None = None
    others = iter(offsets)
    for axis, length in enumerate(shape):
        if axis in op.indexed:
            tile = tiles[op.indexed.index(axis)]
            i: Any = tile.reshape((1,) * before + inner + (1,) * (len(kept) - before))
        elif axis in op.dropped:
            i = np.full((1,) * rank, next(others))
        else:
            n = kept.index(axis)
            at = n if n < before else n + len(inner)
            i = (next(others) + (op.steps[axis] if op.steps else 1) * np.arange(full[at])).reshape([-1 if a == at else 1 for a in range(rank)])
        if not empty:
            i, inside = check_indices(op, frame, buf.name, axis, length, i)
            valid = inside if valid is None else valid if inside is None else valid & inside
        subscripts.append(i)
    return tuple(subscripts), full, valid


def flat(subscripts: tuple[Any, ...], shape: tuple[int, ...], valid: Array | None, value: Any) -> tuple[tuple[Array, ...], Array]:
    """Subscripts and values as one-axis arrays in row-major order of the result: NumPy assigns those in order, so that of equal ones the last wins."""
    parts = [np.broadcast_to(s, shape).ravel() for s in (*subscripts, value)]
    if valid is not None:
        chosen = np.broadcast_to(valid, shape).ravel()
        parts = [p[chosen] for p in parts]
    return tuple(parts[:-1]), parts[-1]


def note(frame: Any, what: str, op: Any, buf: BufferValue, key: Any) -> None:
    """Tells the hooks of the run, if any, about a read, write or atomic access of buf[key]."""
    if buf.ids is not None:
        getattr(frame.hooks, what)(op, frame, buf, buf.ids if key is ... else buf.ids[key])


# -- ops of tile


def load(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    (buf,), offsets, sizes, pad, tokens = groups(op, args)
    for t in tokens:
        t.complete()
    kind = op.out.type
    shape = extents(kind, sizes)
    key, inside = box(op, frame, buf.name, buf.array.shape, offsets, shape, op.dropped, op.steps, bool(pad))
    if key is not None:
        note(frame, "read", op, buf, key)

    def filler() -> Array:
        return np.full(shape, pad[0], buf.array.dtype) if pad else poison(shape, element_of(kind), frame.exact)

    x = pick(buf.array, key, inside, filler)
    if not shape:
        return int(x) if kind is index else x if isinstance(x, np.generic) else x.copy()[()]
    return np.array(x)  # a copy: tile values do not change with memory


def store(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    (value,), (buf,), offsets = groups(op, args)
    write_box(op, frame, buf, offsets, value)


def write_box(op: Any, frame: Any, buf: BufferValue, offsets: Sequence[int], value: Any) -> None:
    shape = np.shape(value)
    key, inside = box(op, frame, buf.name, buf.array.shape, offsets, shape, op.dropped, op.steps)
    if key is None:
        return
    note(frame, "write", op, buf, key)
    buf.array[key] = value if inside is None else value[inside]


def gather(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    (buf,), indices, offsets, sizes = groups(op, args)

    def counts(before: int, rank: int) -> Iterable[int]:
        dims = shape_of(op.out.type)
        rest = iter(sizes)
        return [d if isinstance(d, int) else int(next(rest)) for d in (*dims[:before], *dims[before + rank :])]

    return as_value(read_lattice(op, frame, buf, indices, offsets, counts), op.out.type)


def read_lattice(op: Any, frame: Any, buf: BufferValue, indices: Any, offsets: Any, counts: Callable[[int, int], Iterable[int]]) -> Array:
    subscripts, shape, _ = lattice(op, frame, buf, indices, offsets, counts)
    if 0 in shape:
        return np.zeros(shape, buf.array.dtype)
    note(frame, "read", op, buf, subscripts)
    return buf.array[subscripts]


def of_value(value: Any) -> Callable[[int, int], Iterable[int]]:
    """Extents of the kept axes of a scatter or atomic: those of the value that do not come from the index tiles."""
    shape = np.shape(value)
    return lambda before, rank: (*shape[:before], *shape[before + rank :])


def scatter(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    (value,), (buf,), indices, offsets = groups(op, args)
    write_lattice(op, frame, buf, indices, offsets, value)


def write_lattice(op: Any, frame: Any, buf: BufferValue, indices: Any, offsets: Any, value: Any) -> None:
    subscripts, shape, valid = lattice(op, frame, buf, indices, offsets, of_value(value))
    if 0 in shape:
        return
    key, values = flat(subscripts, shape, valid, np.asarray(value, buf.array.dtype))
    note(frame, "write", op, buf, key)
    buf.array[key] = values


def atomic_rmw(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    (value,), (buf,), indices, offsets = groups(op, args)
    update(op, frame, buf, indices, offsets, value)


def update(op: Any, frame: Any, buf: BufferValue, indices: Any, offsets: Any, value: Any) -> None:
    """buf[...] = kind(buf[...], value), one element after the other."""
    array = buf.array
    if not indices:
        key, inside = box(op, frame, buf.name, array.shape, offsets, np.shape(value), op.dropped, op.steps)
        if key is not None:
            note(frame, "atomic", op, buf, key)
            combine = apply_kernel(op.kind, element_of(op.value.type if hasattr(op, "value") else op.src.type), frame.exact)
            array[key] = combine(array[key], value if inside is None else value[inside])
        return
    subscripts, shape, valid = lattice(op, frame, buf, indices, offsets, of_value(value))
    if 0 in shape:
        return
    where, values = flat(subscripts, shape, valid, np.asarray(value, array.dtype))
    note(frame, "atomic", op, buf, where)
    UFUNC[op.kind].at(array, where, values)
