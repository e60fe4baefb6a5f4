"""Views of buffers: their types, how to make them, and when two of them are the same or may share memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilelang.dialects import func, mem, tile
from tilelang.ir.core import Builder, Operation, Value
from tilelang.ir.types import DYN, BufferType, Dim

VIEW_OPS = (mem.Subview, mem.Permute, mem.ReshapeView)


def buffer_type(value: Value) -> BufferType:
    """The type of a value that is a buffer."""
    assert isinstance(value.type, BufferType), f"{value.type} is not a buffer"
    return value.type


def strides_of(type: BufferType) -> tuple[Dim, ...]:
    """Strides in elements, DYN where they are not static."""
    return type.strides if type.strides is not None else mem.row_major_strides(type)


def is_contiguous(type: BufferType) -> bool:
    """Whether the elements are known to lie in row-major order without gaps."""
    if type.strides is None:
        return True
    step: int | None = 1
    for dim, stride in zip(reversed(type.shape), reversed(type.strides)):
        if dim == 1:
            continue
        if step is None or stride != step:
            return False
        step = step * dim if isinstance(dim, int) else None
    return True


def view_type(source: BufferType, shape: Sequence[Dim], dropped: Sequence[int] = (), steps: Sequence[int] = ()) -> BufferType:
    """Type of a subview of `source` with this shape."""
    strides: list[Dim] = []
    for axis, stride in enumerate(strides_of(source)):
        step = steps[axis] if steps else 1
        if axis not in dropped:
            strides.append(stride * step if isinstance(stride, int) else stride if step == 1 else DYN)
    whole = all(isinstance(d, int) for d in shape) and tuple(strides) == mem.row_major_strides(BufferType(tuple(shape), source.element))
    return BufferType(tuple(shape), source.element, source.space, None if whole else tuple(strides))


def subview(
    build: Builder, buffer: Value, offsets: Sequence[Value], sizes: Sequence[Value], shape: Sequence[Dim],
    dropped: Sequence[int] = (), steps: Sequence[int] = (),
) -> Value:  # fmt: skip
    """mem.subview of `buffer`; sizes: one for each `?` axis of `shape`."""
    type = view_type(buffer_type(buffer), shape, dropped, steps)
    return build(mem.Subview.of(buffer, list(offsets), list(sizes), type, tuple(dropped), tuple(steps)))


def root(buffer: Value) -> Value:
    """The allocation or parameter that a buffer is a view of. Different roots never share memory: parameters do not overlap, which the
    call checks."""
    while isinstance(buffer.op, VIEW_OPS):
        buffer = buffer.op.operands[0]
    return buffer


def same_view(a: Value, b: Value) -> bool:
    """Whether two views are certainly the same elements in the same order."""
    if a is b:
        return True
    x, y = a.op, b.op
    if not isinstance(x, VIEW_OPS) or type(x) is not type(y) or y is None or x.attrs != y.attrs or a.type is not b.type:
        return False
    if x.segments != y.segments or not same_view(x.operands[0], y.operands[0]):
        return False
    return all(v is w or _same_constant(v, w) for v, w in zip(x.operands[1:], y.operands[1:]))


def _same_constant(a: Value, b: Value) -> bool:
    from tilelang.dialects.arith import constant_value

    value = constant_value(a)
    return value is not None and value == constant_value(b)


def written(op: Operation) -> Iterable[Value]:
    """Buffers that the op itself, not what is inside it, may write."""
    if isinstance(op, (tile.Store, tile.Scatter, tile.AtomicRmw)):
        return (op.buffer,)
    if isinstance(op, mem.Map):
        return op.outs
    if isinstance(op, (mem.Matmul, mem.MemContract)):
        return (op.acc,)
    if isinstance(op, func.Call):
        return [v for v in op.operands if isinstance(v.type, BufferType)]
    dst = getattr(op, "dst", None)
    return (dst,) if isinstance(dst, Value) else ()


def read(op: Operation) -> list[Value]:
    """Buffers that the op itself reads."""
    found = list(touched(op))
    if not isinstance(op, (mem.Matmul, mem.MemContract, mem.AtomicRmw, tile.AtomicRmw, func.Call)):
        for v in written(op):
            # The last operand of that name is the destination; before it the same buffer may be an input.
            del found[len(found) - 1 - found[::-1].index(v)]
    return found


def touched(op: Operation) -> Iterator[Value]:
    """Buffers that the op itself reads or writes; making a view of one or asking for its extent is neither."""
    if not isinstance(op, (*VIEW_OPS, mem.Dim)):
        yield from (v for v in op.operands if isinstance(v.type, BufferType))
