"""Evaluation of tile.contract and mem.contract: the operands as arrays, then one matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.dialects.contract import is_empty
from tilelang.ir.core import Region
from tilelang.ir.types import Scalar, element_of
from tilelang.runtime import arrays
from tilelang.runtime.memory import box, note
from tilelang.runtime.numerics import is_narrow


def _operand(op: Any, frame: Any, buf: Any, offsets: Any, letters: str, order: str, extents: dict[str, int]) -> Any:
    """The part of a buffer that an operand names, axes in `order`."""
    counts = [extents[x] for x in letters if x != "-"]
    if 0 in counts:
        return np.empty([extents[x] for x in order], buf.array.dtype)
    dropped = tuple(i for i, x in enumerate(letters) if x == "-")
    key, inside = box(op, frame, buf.name, buf.array.shape, offsets, counts, dropped, ())
    assert key is not None and inside is None, "out_of_bounds raises outside check mode"
    note(frame, "read", op, buf, key)
    kept = letters.replace("-", "")
    return buf.array[key].transpose([kept.index(x) for x in order])


def _factor(frame: Any, part: Region, x: Any, element: Scalar) -> tuple[Any, Scalar]:
    if is_empty(part):
        return x, element
    (y,) = frame.run_elementwise(part, [x])
    last = part.block.last
    assert last is not None
    return np.broadcast_to(y, x.shape), element_of(last.operands[0].type)


def contract(op: Any, frame: Any, args: tuple[Any, ...]) -> Any:
    (acc,), (lhs,), (rhs,), (depth,), lhs_offsets, rhs_offsets = arrays.groups(op, args)
    left, right, out = op.letters
    batch = out[:-2]
    extents = dict(zip(out, acc.shape), k=int(depth))
    for buf, offsets, letters in ((lhs, lhs_offsets, left), (rhs, rhs_offsets, right)):
        for length, offset, x in zip(buf.array.shape, offsets, letters):
            if x in op.padded:
                extents[x] = max(0, min(extents[x], length - offset))
    a = _operand(op, frame, lhs, lhs_offsets, left, batch + "mk", extents)
    b = _operand(op, frame, rhs, rhs_offsets, right, batch + "kn", extents)
    element = element_of(op.acc.type)
    a, a_element = _factor(frame, op.prologue_lhs, a, element_of(op.lhs.type))
    b, b_element = _factor(frame, op.prologue_rhs, b, element_of(op.rhs.type))
    product = arrays.matmul(a, b, a_element, b_element, element, frame.exact)
    if op.padded:
        whole = np.zeros(acc.shape, product.dtype)
        whole[tuple(slice(extents[x]) for x in out)] = product
        product = whole
    if not is_empty(op.epilogue):
        (result,) = frame.run_elementwise(op.epilogue, [product, acc])
        return np.broadcast_to(result, acc.shape).copy()
    return _sum(acc, product, element, frame.exact)


def mem_contract(op: Any, frame: Any, args: tuple[Any, ...]) -> None:
    lhs, rhs, acc = args
    for buf in args:
        note(frame, "read", op, buf, ...)
    a, a_element = _factor(frame, op.prologue_lhs, lhs.array, element_of(op.lhs.type))
    b, b_element = _factor(frame, op.prologue_rhs, rhs.array, element_of(op.rhs.type))
    element = element_of(op.acc.type)
    product = arrays.matmul(a, b, a_element, b_element, element, frame.exact)
    note(frame, "write", op, acc, ...)
    acc.array[...] = _sum(acc.array, product, element, frame.exact)


def _sum(acc: Any, product: Any, element: Scalar, exact: bool) -> Any:
    if element.kind == "bool":
        return np.logical_or(acc, product)
    if is_narrow(element) and not exact:
        return (acc.astype(np.float32) + product.astype(np.float32)).astype(acc.dtype)
    return acc + product
