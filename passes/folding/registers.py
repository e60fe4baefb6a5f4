"""Rewrites of vec ops: splats, lanes that are known, masks that are all on or all off."""

from __future__ import annotations

from tilelang.dialects import arith, vec
from tilelang.dialects.arith import constant_value
from tilelang.ir.core import Operation, Value
from tilelang.ir.rewrite import Patterns, Rewriter
from tilelang.ir.types import Scalar, VectorType, element_of
from tilelang.passes.folding.constants import splat_value

patterns = Patterns("registers")


def _zero(type: object) -> arith.Constant:
    assert isinstance(type, (Scalar, VectorType))
    return arith.Constant.of(0, type)


@patterns.on(vec.Splat)
def splat_of_constant(op: vec.Splat, rw: Rewriter) -> bool:
    number = constant_value(op.x)
    if number is None:
        return False
    rw.replace_op(op, arith.Constant.of(number, op.out.type))
    return True


@patterns.on(vec.Mask)
def known_mask(op: vec.Mask, rw: Rewriter) -> bool:
    count = constant_value(op.count)
    lanes = op.out.type.lanes  # pyright: ignore[reportAttributeAccessIssue]
    if count is None or 0 < count < lanes:
        return False
    rw.replace_op(op, arith.Constant.of(count > 0, op.out.type))
    return True


@patterns.on(vec.Load, vec.Store, vec.Gather, vec.Scatter)
def full_or_empty_mask(op: Operation, rw: Rewriter) -> bool:
    mask: Value | None = op.mask  # pyright: ignore[reportAttributeAccessIssue]
    known = splat_value(mask) if mask is not None else None
    if known is None:
        return False
    if known:
        rw.set_operands(op, [*op.operands[:-1], None])
    elif op.results:
        rw.replace_op(op, _zero(op.results[0].type))
    else:
        rw.erase(op)
    return True


@patterns.on(vec.Extract)
def extract_known_lane(op: vec.Extract, rw: Rewriter) -> bool:
    source = op.x.op
    if isinstance(source, vec.Splat):
        rw.replace(op, source.x)
    elif isinstance(source, arith.Constant):
        rw.replace_op(op, arith.Constant((), [op.out.type], source.attrs))
    elif isinstance(source, vec.Insert):
        if source.lane == op.lane:
            rw.replace(op, source.value)
        else:
            rw.replace_op(op, vec.Extract.of(source.x, op.lane))
    elif isinstance(source, vec.Iota) and not element_of(op.out.type).is_float:
        rw.replace_op(op, arith.Constant.of(op.lane, op.out.type))
    else:
        return False
    return True


@patterns.on(vec.Shuffle)
def shuffle_in_place(op: vec.Shuffle, rw: Rewriter) -> bool:
    """All lanes of one operand in their order: that operand."""
    for source, first in ((op.a, 0), (op.b, op.a.type.lanes)):  # pyright: ignore[reportAttributeAccessIssue]
        if source.type is op.out.type and op.lanes == tuple(range(first, first + len(op.lanes))):
            rw.replace(op, source)
            return True
    return False
