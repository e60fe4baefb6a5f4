"""Rewrites of ops that move elements around: chains of one kind become one op, fills swallow them, extents are looked up."""

from __future__ import annotations

from typing import Any

from tilelang.dialects import arith, mem, tensor, tile
from tilelang.ir.core import Operation, Value
from tilelang.ir.rewrite import Patterns, Rewriter
from tilelang.ir.types import Dyn, Scalar, Type, index, shape_of

patterns = Patterns("shapes")


def is_static(type: Type) -> bool:
    return not any(isinstance(d, Dyn) for d in shape_of(type))


# -- fills


@patterns.on(tile.Broadcast, tile.Reshape, tile.Slice)
def of_fill(op: Any, rw: Rewriter) -> bool:
    fill = op.x.op
    if not isinstance(fill, tile.Fill) or isinstance(op.out.type, Scalar):
        return False
    rw.replace_op(op, type(fill).of(fill.value, list(op.sizes), op.out.type))
    return True


@patterns.on(tile.Transpose)
def transpose_of_fill(op: tile.Transpose, rw: Rewriter) -> bool:
    fill = op.x.op
    if not isinstance(fill, tile.Fill):
        return False
    sizes = dict(zip(tile.dynamic_axes(op.x.type), fill.sizes))
    rw.replace_op(op, type(fill).of(fill.value, [sizes[p] for p in op.perm if p in sizes], op.out.type))
    return True


@patterns.on(tile.Extract)
def extract_of_fill(op: tile.Extract, rw: Rewriter) -> bool:
    fill = op.x.op
    if not isinstance(fill, tile.Fill):
        return False
    rw.replace(op, fill.value)
    return True


# -- chains


@patterns.on(tile.Broadcast)
def broadcast_chain(op: tile.Broadcast, rw: Rewriter) -> bool:
    if op.out.type is op.x.type and is_static(op.out.type):
        rw.replace(op, op.x)
        return True
    inner = op.x.op
    if not isinstance(inner, tile.Broadcast):
        return False
    rw.replace_op(op, type(op).of(inner.x, tuple(op.dims[d] for d in inner.dims), list(op.sizes), op.out.type))
    return True


@patterns.on(tile.Reshape)
def reshape_chain(op: tile.Reshape, rw: Rewriter) -> bool:
    if op.out.type is op.x.type and len(tile.dynamic_axes(op.out.type)) <= 1:
        # With at most one unknown extent, equal types and equal numbers of elements mean equal extents.
        rw.replace(op, op.x)
        return True
    inner = op.x.op
    if not isinstance(inner, tile.Reshape):
        return False
    rw.replace_op(op, type(op).of(inner.x, list(op.sizes), op.out.type))
    return True


@patterns.on(tile.Transpose)
def transpose_chain(op: tile.Transpose, rw: Rewriter) -> bool:
    if op.perm == tuple(range(len(op.perm))):
        rw.replace(op, op.x)
        return True
    inner = op.x.op
    if not isinstance(inner, tile.Transpose):
        return False
    rw.replace_op(op, type(op).of(inner.x, tuple(inner.perm[p] for p in op.perm)))
    return True


@patterns.on(mem.Permute)
def permute_chain(op: mem.Permute, rw: Rewriter) -> bool:
    inner = op.buffer.op
    if isinstance(inner, mem.Permute):
        rw.replace_op(op, mem.Permute([inner.buffer], [op.out.type], {"perm": tuple(inner.perm[p] for p in op.perm)}))
        return True
    if op.perm == tuple(range(len(op.perm))) and op.out.type is op.buffer.type:
        rw.replace(op, op.buffer)
        return True
    return False


@patterns.on(tile.Reduce)
def reduce_no_axes(op: tile.Reduce, rw: Rewriter) -> bool:
    if op.axes or op.out.type is not op.x.type:
        return False
    rw.replace(op, op.x)
    return True


# -- extents


def _size_of_axis(type: Type, axis: int, sizes: tuple[Value, ...]) -> Value | None:
    """The operand that gives the extent of a `?` axis of a result."""
    axes = tile.dynamic_axes(type)
    return sizes[axes.index(axis)] if axis in axes and len(sizes) == len(axes) else None


def _extent(source: Value, axis: int) -> int | Value | tuple[Value, int] | None:
    """The extent of an axis: a number, a value, or an axis of another buffer or tensor that is as long; None when not known."""
    dim = shape_of(source.type)[axis]
    if isinstance(dim, int):
        return dim
    op = source.op
    if isinstance(op, (mem.Alloc, mem.Subview, mem.ReshapeView, tile.Fill, tile.Broadcast, tile.Reshape, tile.Slice, tile.Iota)):
        return _size_of_axis(source.type, axis, op.sizes)
    if isinstance(op, mem.Permute):
        return op.buffer, op.perm[axis]
    if isinstance(op, tile.Transpose):
        return op.x, op.perm[axis]
    if isinstance(op, (arith.Unary, arith.Binary, arith.Cast, arith.Fma)) and op.operands[0].op is not None:
        return op.operands[0], axis
    return None


@patterns.on(mem.Dim, tensor.DimOp)
def known_extent(op: Operation, rw: Rewriter) -> bool:
    found = _extent(op.operands[0], op.attrs["axis"])
    if found is None:
        return False
    if isinstance(found, int):
        rw.replace_op(op, arith.Constant.of(found, index))
    elif isinstance(found, Value):
        rw.replace(op, found)
    else:
        rw.replace_op(op, type(op)([found[0]], [index], {"axis": found[1]}))
    return True


@patterns.on(tile.Iota)
def iota_of_one(op: tile.Iota, rw: Rewriter) -> bool:
    """A single number is a fill."""
    if shape_of(op.out.type) != (1,):
        return False
    element = op.out.type.element  # pyright: ignore[reportAttributeAccessIssue]
    start = op.start if element is index else rw(arith.Cast.of(op.start, element))
    fill = tensor.Fill if isinstance(op, tensor.Iota) else tile.Fill
    rw.replace_op(op, fill.of(start, [], op.out.type))
    return True
