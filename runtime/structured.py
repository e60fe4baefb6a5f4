"""Evaluation of the ops of mem: buffers and structured ops in destination-passing style. One function an op, named like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.ir.types import Scalar, element_of, index
from tilelang.runtime import arrays, numerics
from tilelang.runtime.arrays import extents, groups
from tilelang.runtime.memory import BufferValue, Token, box, check_indices, note, point, read_lattice, update, write_lattice

Array = Any


def _read(op: Any, frame: Any, buf: BufferValue) -> Array:
    note(frame, "read", op, buf, ...)
    return buf.array


def _write(op: Any, frame: Any, buf: BufferValue, value: Any) -> None:
    note(frame, "write", op, buf, ...)
    buf.array[...] = value


def _same_shape(op: Any, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    if a != b:
        raise ValueError(f"views of shapes {a} and {b} where they must be equal")


def alloc(op: Any, frame: Any, args: tuple[Any, ...]) -> BufferValue:
    kind = op.out.type
    array = numerics.poison(extents(kind, args), kind.element, frame.exact)
    buf = BufferValue.of(array, op.name_ or op.out.hint or "", kind.space, True, ids=frame.hooks is not None)
    if frame.hooks is not None:
        frame.hooks.allocated(buf)
    return buf


def dim(op: Any, frame: Any, args: tuple[Any, ...]) -> int:
    return args[0].array.shape[op.axis]


def subview(op: Any, frame: Any, args: tuple[Any, ...]) -> BufferValue:
    (buf,), offsets, sizes = groups(op, args)
    shape = extents(op.out.type, sizes)
    key, _ = box(op, frame, buf.name, buf.array.shape, offsets, shape, op.dropped, op.steps)
    if key is None:
        return BufferValue(np.empty(shape, buf.array.dtype), buf.root, None if buf.ids is None else np.empty(shape, np.int64))
    return buf.view(lambda a: a[(*key, ...)])


def permute(op: Any, frame: Any, args: tuple[Any, ...]) -> BufferValue:
    return args[0].view(lambda a: a.transpose(op.perm))


def reshape(op: Any, frame: Any, args: tuple[Any, ...]) -> BufferValue:
    shape = extents(op.out.type, args[1:])

    def change(a: Array) -> Array:
        new = a.reshape(shape)
        if a.size and not np.may_share_memory(new, a):
            raise ValueError(f"memory of shape {a.shape} and strides {a.strides} is not contiguous")
        return new

    return args[0].view(change)


def load(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    buf = args[0]
    key = point(op, frame, buf.name, buf.array.shape, args[1:])
    note(frame, "read", op, buf, key)
    x = buf.array[key]
    return int(x) if op.out.type is index else x


def store(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    value, buf = args[0], args[1]
    key = point(op, frame, buf.name, buf.array.shape, args[2:])
    note(frame, "write", op, buf, key)
    buf.array[key] = value


def fill(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    _write(op, frame, args[1], args[0])


def iota(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    start, dst = args
    numbers = int(start) + op.step * np.arange(dst.array.shape[0], dtype=np.int64)
    _write(op, frame, dst, numerics.cast(numbers, Scalar("i64"), element_of(op.dst.type), frame.exact))


def copy(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    src, dst = args
    _same_shape(op, src.array.shape, dst.array.shape)
    _write(op, frame, dst, _read(op, frame, src))


def copy_padded(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    (src,), offsets, (pad,), (dst,) = groups(op, args)
    key, inside = box(op, frame, src.name, src.array.shape, offsets, dst.array.shape, op.dropped, op.steps, pad=True)
    out = np.full(dst.array.shape, pad, dst.array.dtype)
    if key is not None:
        note(frame, "read", op, src, key)
        out[... if inside is None else inside] = src.array[key]
    _write(op, frame, dst, out)


def copy_async(op: Any, frame: Any, args: tuple[Any, ...]) -> Token:
    src, dst = args
    _same_shape(op, src.array.shape, dst.array.shape)
    data = _read(op, frame, src).copy()
    _write(op, frame, dst, numerics.poison(dst.array.shape, element_of(op.dst.type), frame.exact))
    return Token(dst, data)


def wait(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    for t in args:
        t.complete()


def map_(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    ins, outs = groups(op, args)
    values = [_read(op, frame, x) if isinstance(x, BufferValue) else x for x in ins]
    for dst, value in zip(outs, arrays.map_region(frame, op.body, values, op.maps, outs[0].array.shape, frame.exact)):
        _write(op, frame, dst, value)


def reduce(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    srcs, (dst,) = groups(op, args)
    values = [_read(op, frame, x) if isinstance(x, BufferValue) else x for x in srcs]
    x, element = values[0], element_of(op.srcs[0].type)
    if op.body.block.first is not None:
        shape = x.shape
        maps = op.maps or (tuple(range(len(shape))),)
        (x,) = arrays.map_region(frame, op.body, values, maps, shape, frame.exact)
        element = element_of(op.body.block.last.operands[0].type)
    _write(op, frame, dst, arrays.reduce(x, op.kind, op.axes, element, frame.exact))


def arg_reduce(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    _write(op, frame, args[1], arrays.arg_reduce(_read(op, frame, args[0]), op.kind, op.axis, element_of(op.src.type)))


def scan(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    x = _read(op, frame, args[0])
    _write(op, frame, args[1], arrays.scan(x, op.kind, op.axis, op.exclusive, element_of(op.src.type), frame.exact))


def matmul(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    a, b, acc = (_read(op, frame, x) for x in args)
    _write(op, frame, args[2], arrays.multiply_add(op, a, b, acc, frame.exact))


def gather(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    (src,), indices, offsets, (dst,) = groups(op, args)
    shape = dst.array.shape
    tiles = [_read(op, frame, i) if isinstance(i, BufferValue) else i for i in indices]
    value = read_lattice(op, frame, src, tiles, offsets, lambda before, rank: (*shape[:before], *shape[before + rank :]))
    _write(op, frame, dst, value)


def scatter(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    (src,), (dst,), indices, offsets = groups(op, args)
    tiles = [_read(op, frame, i) if isinstance(i, BufferValue) else i for i in indices]
    write_lattice(op, frame, dst, tiles, offsets, _read(op, frame, src) if isinstance(src, BufferValue) else src)


def atomic_rmw(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    (src,), (dst,), indices, offsets = groups(op, args)
    tiles = [_read(op, frame, i) if isinstance(i, BufferValue) else i for i in indices]
    update(op, frame, dst, tiles, offsets, _read(op, frame, src) if isinstance(src, BufferValue) else src)


def take_along(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    src, indices, dst = args
    x = _read(op, frame, src)
    where, _ = check_indices(op, frame, src.name, op.axis, x.shape[op.axis], _read(op, frame, indices))
    _write(op, frame, dst, np.take_along_axis(x, where, op.axis))


_OPS: dict[str, Callable[..., Any]] = {
    f.__name__.rstrip("_"): f
    for f in (
        alloc, dim, subview, permute, reshape, load, store, fill, iota, copy, copy_padded, copy_async, wait, map_, reduce, arg_reduce, scan,
        matmul, gather, scatter, atomic_rmw, take_along,
    )
}  # fmt: skip


def evaluate(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    """Evaluates one op of mem."""
    return _OPS[op.name.partition(".")[2]](op, frame, args)
