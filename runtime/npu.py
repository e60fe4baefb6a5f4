"""The instructions of ascend in NumPy. In program order, on one core, unless the interpreter collects them for its pipes (runtime.pipes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dialects import ascend
from tilelang.ir.types import element_of, f32
from tilelang.runtime import numerics
from tilelang.runtime.arrays import groups
from tilelang.runtime.memory import BufferValue, box

F = ascend.FRACTAL


def evaluate(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    core = getattr(frame.interp, "core", None)
    if isinstance(op, ascend.BlockIdx):
        return 0 if core is None else core.number
    if isinstance(op, ascend.BlockNum):
        return 1 if core is None else core.count
    if isinstance(op, ascend.Alloc):
        t = ascend.buffer_type(op.out)
        array = numerics.poison((ascend.size_of(op.out),), t.element, frame.exact)
        buffer = BufferValue.of(array, op.out.hint or t.space, t.space, True)
        if core is not None:
            core.allocated(op, buffer)
        return buffer
    if core is not None:
        core.issue(op, frame, args)
    elif not isinstance(op, ascend.SYNC):
        execute(op, frame, args)
    return None


def execute(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    """Carries out one instruction."""
    _RULES[type(op)](op, frame, args)


def gm_box(op: Any, frame: Any, args: tuple[Any, ...]) -> tuple[BufferValue, Any]:
    """The global memory of a copy, and the subscript of the box that it touches. KernelError when it is outside."""
    (src,), (dst,), offsets = groups(op, args)
    buffer = dst if dst.root.space == "global" else src
    rows, cols = (op.rows, op.cols) if isinstance(op, ascend.DataCopy) else (op.m, op.n)
    shape = buffer.array.shape
    counts = (*(1 for _ in shape[:-2]), rows, cols)[-len(shape) :]
    key, _ = box(op, frame, buffer.name, shape, offsets, counts, (), ())
    return buffer, key


def _data_copy(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    src, dst = args[0], args[1]
    buffer, key = gm_box(op, frame, args)
    n = op.rows * op.cols
    if op.outward:
        part = buffer.array[key]
        part[...] = src.array[:n].reshape(part.shape)
        return
    data = buffer.array[key].reshape(op.rows, op.cols)
    dst.array[:n] = (data if dst.root.space == "ub" else to_nz(data)).ravel()


def to_nz(x: Any) -> Any:
    """A matrix as columns of fractals, rows inside: [column of fractals, row, 16]. Rows need not be multiples of 16 here."""
    rows, cols = x.shape
    return x.reshape(rows, cols // F, F).transpose(1, 0, 2)


def _load_2d(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    src, dst = args[0].array, args[1].array
    for r in range(op.repeat):
        at = op.src_offset + r * op.src_stride * F * F
        fractal = src[at : at + F * F].reshape(F, F)
        to = op.dst_offset + r * F * F
        dst[to : to + F * F] = (fractal.T if op.transpose else fractal).ravel()


def _mmad(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    acc, a, b, init = args
    m, n, k = op.m, op.n, op.k
    wide = numerics.dtype_of(f32, frame.exact)
    left = a.array[: m * k].reshape(m // F, k // F, F, F).transpose(0, 2, 1, 3).reshape(m, k).astype(wide)
    right = b.array[: k * n].reshape(k // F, n // F, F, F).transpose(0, 3, 1, 2).reshape(k, n).astype(wide)
    product = to_nz(left @ right).ravel()
    acc.array[: m * n] = product if init else acc.array[: m * n] + product


def _fixpipe(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    buffer, key = gm_box(op, frame, args)
    m, n = op.m, op.n
    rows = args[0].array[: m * n].reshape(n // F, m, F).transpose(1, 0, 2).reshape(m, n)
    part = buffer.array[key]
    part[...] = numerics.cast(rows, f32, element_of(op.dst.type), frame.exact).reshape(part.shape)


def _kernel(name: str, op: Any, frame: Any) -> Callable[..., Any]:
    return numerics.apply_kernel(name, element_of(op.dst.type), frame.exact)


def _unary(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    dst, src = (x.array[: op.count] for x in args)
    dst[...] = _kernel("max", op, frame)(src, src.dtype.type(0)) if op.kind == "relu" else _kernel(op.kind, op, frame)(src)


def _binary(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    dst, a, b = (x.array[: op.count] for x in args)
    dst[...] = _kernel(op.kind, op, frame)(a, b)


def _with_scalar(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    dst, src, value = args
    dst.array[: op.count] = _kernel(op.kind[:-1], op, frame)(src.array[: op.count], value)


def _duplicate(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    args[0].array[: op.count] = args[1]


def _cast(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    dst, src = args
    dst.array[: op.count] = numerics.cast(src.array[: op.count], element_of(op.src.type), element_of(op.dst.type), frame.exact)


def _reduce(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    dst, src, work = args
    rows = src.array[: op.rows * op.cols].reshape(op.rows, op.cols)
    work.array[: op.rows * op.cols] = numerics.poison((op.rows * op.cols,), element_of(op.work.type), frame.exact)
    dst.array[: op.rows] = {"sum": np.sum, "max": np.max, "min": np.min}[op.kind](rows, axis=1)


def _broadcast(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    dst, src = args
    line = src.array[: (op.rows, op.cols)[op.axis]]
    dst.array[: op.rows * op.cols] = np.broadcast_to(line[:, None] if op.axis == 0 else line, (op.rows, op.cols)).ravel()


_RULES: dict[type, Callable[[Any, Any, tuple[Any, ...]], None]] = {
    ascend.DataCopy: _data_copy, ascend.Load2D: _load_2d, ascend.Mmad: _mmad, ascend.Fixpipe: _fixpipe, ascend.Unary: _unary, ascend.Binary: _binary,
    ascend.WithScalar: _with_scalar, ascend.Duplicate: _duplicate, ascend.Cast: _cast, ascend.Reduce: _reduce, ascend.Broadcast: _broadcast,
}  # fmt: skip
