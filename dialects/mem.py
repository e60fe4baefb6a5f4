"""mem: buffers in memory spaces and structured ops in destination-passing style. Operands called `dst`, `outs` or `acc` are written, all others read.
A buffer is a view: extents, strides and the address of its first element. Structured ops (copy, fill, map, reduce, ...) work on the whole view;
views of one op must have equal extents where their axes correspond. At this level there are no tile values.

`vector` on a structured op is the choice of the pass vectorize: (axis, lanes, unroll)."""

from __future__ import annotations

from typing import Any

from tilelang.dialects.contract import MemContract
from tilelang.dialects.tile import REDUCTIONS, access_attrs
from tilelang.ir.core import Block, Dialect, Operation, Region, Value, VerifyError, attr, operand, operands, region, result
from tilelang.ir.types import BufferType, Type, element_of, index, token


class _Mem(Operation):
    """Base: evaluation of every op is the function of the same name in runtime.structured."""

    __slots__ = ()

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import structured

        return structured.evaluate(self, frame, args)


class Alloc(_Mem, name="mem.alloc"):
    """Fresh memory, contents undefined, alive to the end of the block of code that holds the op. sizes: the `?` extents.
    name: what the user called it, for messages. stack: small and of fixed size, on the stack (chosen by plan-memory)."""

    __slots__ = ()
    sizes = operands()
    name_ = attr(str, "")
    stack = attr(bool, False)
    out = result()

    @classmethod
    def of(cls, type: BufferType, sizes: list[Value] | tuple[Value, ...] = (), name: str = "") -> Alloc:
        return cls([list(sizes)], [type], {"name_": name} if name else {})


class Dim(_Mem, name="mem.dim", pure=True):
    """The extent of an axis."""

    __slots__ = ()
    buffer = operand()
    axis = attr(int)
    out = result()

    @classmethod
    def of(cls, buffer: Value, axis: int) -> Dim:
        return cls([buffer], [index], {"axis": axis})


class Subview(_Mem, name="mem.subview", pure=True):
    """Part of a buffer (offsets, sizes, dropped, steps as in tile.load), sharing its memory. In bounds."""

    __slots__ = ()
    buffer = operand()
    offsets = operands()
    sizes = operands()
    dropped = attr(tuple, ())
    steps = attr(tuple, ())
    out = result()

    @classmethod
    def of(
        cls, buffer: Value, offsets: list[Value], sizes: list[Value], type: BufferType, dropped: tuple[int, ...] = (), steps: tuple[int, ...] = ()
    ) -> Subview:
        return cls([buffer, offsets, sizes], [type], access_attrs(dropped, steps))

    def verify_(self) -> None:
        source, out = self.buffer.type, self.out.type
        if not isinstance(source, BufferType) or not isinstance(out, BufferType):
            return
        steps = self.steps or (1,) * len(source.shape)
        strides = source.strides or row_major_strides(source)
        taken = [(s, step) for axis, (s, step) in enumerate(zip(strides, steps)) if axis not in self.dropped]
        for axis, ((s, step), mine) in enumerate(zip(taken, out.strides or row_major_strides(out))):
            if isinstance(s, int) and isinstance(mine, int) and mine != s * step and out.shape[axis] != 1:
                raise VerifyError(self, f"axis {axis} of {out} has a stride of {mine}, in {source} it is {s * step}")


class Permute(_Mem, name="mem.permute", pure=True):
    """The same memory with axes in another order: axis i of the result is axis perm[i]."""

    __slots__ = ()
    buffer = operand()
    perm = attr(tuple)
    out = result()

    @classmethod
    def of(cls, buffer: Value, perm: tuple[int, ...]) -> Permute:
        t = buffer.type
        assert isinstance(t, BufferType)
        strides = t.strides if t.strides is not None else row_major_strides(t)
        new = BufferType(tuple(t.shape[p] for p in perm), t.element, t.space, tuple(strides[p] for p in perm))
        return cls([buffer], [new], {"perm": tuple(perm)})


class ReshapeView(_Mem, name="mem.reshape", pure=True):
    """The same contiguous row-major memory under another shape. sizes: the `?` extents of the result."""

    __slots__ = ()
    buffer = operand()
    sizes = operands()
    out = result()

    @classmethod
    def of(cls, buffer: Value, sizes: list[Value], type: BufferType) -> ReshapeView:
        return cls([buffer, sizes], [type])


class Load(_Mem, name="mem.load"):
    """One element."""

    __slots__ = ()
    buffer = operand()
    indices = operands()
    out = result()

    @classmethod
    def of(cls, buffer: Value, indices: list[Value]) -> Load:
        return cls([buffer, indices], [element_of(buffer.type)])


class Store(_Mem, name="mem.store"):
    """Writes one element."""

    __slots__ = ()
    value = operand()
    dst = operand()
    indices = operands()

    @classmethod
    def of(cls, value: Value, dst: Value, indices: list[Value]) -> Store:
        return cls([value, dst, indices])


class Fill(_Mem, name="mem.fill"):
    """Sets every element."""

    __slots__ = ()
    value = operand()
    dst = operand()
    vector = attr(tuple, ())

    @classmethod
    def of(cls, value: Value, dst: Value) -> Fill:
        return cls([value, dst])


class Iota(_Mem, name="mem.iota"):
    """dst[r] = start + step * r."""

    __slots__ = ()
    start = operand()
    dst = operand()
    step = attr(int, 1)
    vector = attr(tuple, ())

    @classmethod
    def of(cls, start: Value, dst: Value, step: int = 1) -> Iota:
        return cls([start, dst], (), {"step": step} if step != 1 else {})


class Copy(_Mem, name="mem.copy"):
    """dst = src. src and dst must not overlap, unless they are the same view."""

    __slots__ = ()
    src = operand()
    dst = operand()
    vector = attr(tuple, ())

    @classmethod
    def of(cls, src: Value, dst: Value) -> Copy:
        return cls([src, dst])


class CopyPadded(_Mem, name="mem.copy_padded"):
    """dst[r] = src[offsets + r * steps], or `pad` where that lies outside src (offsets may be negative). dropped axes of src as in tile.load."""

    __slots__ = ()
    src = operand()
    offsets = operands()
    pad = operand()
    dst = operand()
    dropped = attr(tuple, ())
    steps = attr(tuple, ())
    vector = attr(tuple, ())

    @classmethod
    def of(cls, src: Value, offsets: list[Value], pad: Value, dst: Value, dropped: tuple[int, ...] = (), steps: tuple[int, ...] = ()) -> CopyPadded:
        return cls([src, offsets, pad, dst], (), access_attrs(dropped, steps))


class CopyAsync(_Mem, name="mem.copy_async"):
    """Starts dst = src; the token tells completion. dst must not be touched before the wait."""

    __slots__ = ()
    src = operand()
    dst = operand()
    out = result()

    @classmethod
    def of(cls, src: Value, dst: Value) -> CopyAsync:
        return cls([src, dst], [token])


class Wait(_Mem, name="mem.wait"):
    """Waits for the copies of the tokens."""

    __slots__ = ()
    tokens = operands()

    @classmethod
    def of(cls, *tokens: Value) -> Wait:
        return cls([tokens])


class Map(_Mem, name="mem.map"):
    """Elementwise: for every element of the outs (all of one shape) the region gets one scalar an `in` and yields one scalar an `out`.
    maps[i]: for each out axis the axis of ins[i] to read, or -1; a scalar in has all -1. An out may be the same view as an in with the identity map."""

    __slots__ = ()
    ins = operands()
    outs = operands()
    maps = attr(tuple)
    vector = attr(tuple, ())
    body = region()

    @classmethod
    def of(cls, ins: list[Value], outs: list[Value], maps: tuple[tuple[int, ...], ...]) -> Map:
        block = Block([element_of(v.type) for v in ins])
        return cls([ins, outs], (), {"maps": tuple(maps)}, [Region([block])])

    def verify_(self) -> None:
        if len(self.maps) != len(self.ins) or not self.outs:
            raise VerifyError(self, "needs a map for every input, and at least one output")
        rank = len(rank_shape(self.outs[0].type))
        if any(len(m) != rank for m in self.maps) or any(len(rank_shape(o.type)) != rank for o in self.outs):
            raise VerifyError(self, f"every map and output needs {rank} axes")


class Reduce(_Mem, name="mem.reduce"):
    """dst = reduction of src over axes (dst has the other axes; rank 0 when all). kind as tile.reduce. The region, if not empty, is applied to each
    element first: it gets one scalar an entry of `src` and yields the number to reduce (a fused producer); maps as in map, over the axes of
    the iteration space (the axes of srcs[0])."""

    __slots__ = ()
    srcs = operands()
    dst = operand()
    kind = attr(str)
    axes = attr(tuple)
    maps = attr(tuple, ())
    vector = attr(tuple, ())
    body = region()

    @classmethod
    def of(cls, kind: str, src: Value, dst: Value, axes: tuple[int, ...]) -> Reduce:
        return cls([[src], dst], (), {"kind": kind, "axes": tuple(axes)}, [Region([Block()])])

    def verify_(self) -> None:
        if self.kind not in REDUCTIONS:
            raise VerifyError(self, f"kind '{self.kind}' is none of {', '.join(REDUCTIONS)}")


class ArgReduce(_Mem, name="mem.arg_reduce"):
    """dst = index of the first largest or smallest element along axis (see tile.arg_reduce)."""

    __slots__ = ()
    src = operand()
    dst = operand()
    kind = attr(str)
    axis = attr(int)

    @classmethod
    def of(cls, kind: str, src: Value, dst: Value, axis: int) -> ArgReduce:
        return cls([src, dst], (), {"kind": kind, "axis": axis})


class Scan(_Mem, name="mem.scan"):
    """dst = cumulative reduction of src along axis (see tile.scan); dst may be src."""

    __slots__ = ()
    src = operand()
    dst = operand()
    kind = attr(str)
    axis = attr(int)
    exclusive = attr(bool, False)

    @classmethod
    def of(cls, kind: str, src: Value, dst: Value, axis: int, exclusive: bool = False) -> Scan:
        return cls([src, dst], (), {"kind": kind, "axis": axis, **({"exclusive": True} if exclusive else {})})


class Matmul(_Mem, name="mem.matmul"):
    """acc += lhs @ rhs (acc's type decides the arithmetic; see tile.matmul). register_tile: (rows, columns) of acc held in registers, cache_blocks:
    (rows, depth) of lhs held in caches; chosen by block, () = not yet."""

    __slots__ = ()
    lhs = operand()
    rhs = operand()
    acc = operand()
    register_tile = attr(tuple, ())
    cache_blocks = attr(tuple, ())

    @classmethod
    def of(cls, lhs: Value, rhs: Value, acc: Value) -> Matmul:
        return cls([lhs, rhs, acc])


class Gather(_Mem, name="mem.gather"):
    """dst = src at indices (see tile.gather: indexed axes, offsets of the other axes, dropped, steps). Checked."""

    __slots__ = ()
    src = operand()
    indices = operands()
    offsets = operands()
    dst = operand()
    indexed = attr(tuple)
    dropped = attr(tuple, ())
    steps = attr(tuple, ())

    @classmethod
    def of(
        cls, src: Value, indices: list[Value], offsets: list[Value], dst: Value, indexed: tuple[int, ...],
        dropped: tuple[int, ...] = (), steps: tuple[int, ...] = (),
    ) -> Gather:  # fmt: skip
        return cls([src, indices, offsets, dst], (), {"indexed": indexed, **access_attrs(dropped, steps)})


class Scatter(_Mem, name="mem.scatter"):
    """dst at indices = src, in row-major order of src (see tile.scatter). Checked."""

    __slots__ = ()
    src = operand()
    dst = operand()
    indices = operands()
    offsets = operands()
    indexed = attr(tuple)
    dropped = attr(tuple, ())
    steps = attr(tuple, ())

    @classmethod
    def of(
        cls, src: Value, dst: Value, indices: list[Value], offsets: list[Value], indexed: tuple[int, ...],
        dropped: tuple[int, ...] = (), steps: tuple[int, ...] = (),
    ) -> Scatter:  # fmt: skip
        return cls([src, dst, indices, offsets], (), {"indexed": indexed, **access_attrs(dropped, steps)})


class AtomicRmw(_Mem, name="mem.atomic_rmw"):
    """dst[...] = kind(dst[...], src), atomically an element; with indices as scatter, without as a store at offsets. src may be a scalar."""

    __slots__ = ()
    src = operand()
    dst = operand()
    indices = operands()
    offsets = operands()
    kind = attr(str)
    indexed = attr(tuple, ())
    dropped = attr(tuple, ())
    steps = attr(tuple, ())

    @classmethod
    def of(
        cls, kind: str, src: Value, dst: Value, indices: list[Value], offsets: list[Value], indexed: tuple[int, ...] = (),
        dropped: tuple[int, ...] = (), steps: tuple[int, ...] = (),
    ) -> AtomicRmw:  # fmt: skip
        attrs = {"kind": kind, **({"indexed": indexed} if indexed else {}), **access_attrs(dropped, steps)}
        return cls([src, dst, indices, offsets], (), attrs)


class TakeAlong(_Mem, name="mem.take_along"):
    """dst = numpy.take_along_axis(src, indices, axis). Checked."""

    __slots__ = ()
    src = operand()
    indices = operand()
    dst = operand()
    axis = attr(int)

    @classmethod
    def of(cls, src: Value, indices: Value, dst: Value, axis: int) -> TakeAlong:
        return cls([src, indices, dst], (), {"axis": axis})


def rank_shape(type: Type) -> tuple[Any, ...]:
    assert isinstance(type, BufferType)
    return type.shape


def row_major_strides(type: BufferType) -> tuple[Any, ...]:
    """Strides of a contiguous buffer as far as they are static, DYN elsewhere."""
    from tilelang.ir.types import DYN

    strides: list[Any] = []
    step: int | None = 1
    for d in reversed(type.shape):
        strides.append(DYN if step is None else step)
        step = step * d if step is not None and isinstance(d, int) else None
    return tuple(reversed(strides))


VIEWS = (Dim, Subview, Permute, ReshapeView)
STRUCTURED = (Fill, Iota, Copy, CopyPadded, Map, Reduce, ArgReduce, Scan, Matmul, MemContract, Gather, Scatter, AtomicRmw, TakeAlong)

DIALECT = Dialect("mem", [Alloc, *VIEWS, Load, Store, CopyAsync, Wait, *STRUCTURED], "buffers and structured ops in destination-passing style")
