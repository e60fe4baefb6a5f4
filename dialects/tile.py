"""tile: immutable tile values. A tile's extents along `?n` axes are carried by the value: in NumPy terms a tile is an array of exactly its valid size,
so no op ever sees padding. Ops that create extents take them as index operands (`sizes`: one for each `?` axis of the result, in order).

Memory is reached by load, store, gather, scatter and atomic_rmw on buffers. An access names, for each buffer axis, an offset; axes in `dropped` are
read at one index and do not appear in the tile; `steps` are the strides in elements of the other axes (1 when absent). Accesses are in bounds: the
frontend checks them with loop.assert, unless `pad` is given: then elements outside the buffer read as pad."""

from __future__ import annotations

from typing import Any

from tilelang.dialects.contract import Contract
from tilelang.ir.core import Block, Dialect, Operation, Region, Value, VerifyError, attr, operand, operands, optional_operand, region, result
from tilelang.ir.types import Dim, Dyn, Scalar, TensorType, TileType, Type, dim_bound, element_of, index, shape_of

REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")


def dynamic_axes(type: Type) -> list[int]:
    """Axes whose extent is only known at run time."""
    return [i for i, d in enumerate(shape_of(type)) if isinstance(d, Dyn)]


def _check_sizes(op: Operation, sizes: tuple[Value, ...], type: Type) -> None:
    want = len(dynamic_axes(type))
    if len(sizes) != want:
        raise VerifyError(op, f"{type} needs {want} sizes, it has {len(sizes)}")
    if any(s.type is not index for s in sizes):
        raise VerifyError(op, "sizes must be of type index")


class Load(Operation, name="tile.load"):
    """A tile read from a buffer. tokens: what must be complete before the read (asynchronous copies, dist.wait)."""

    __slots__ = ()
    buffer = operand()
    offsets = operands()
    sizes = operands()
    pad = optional_operand()
    tokens = operands()
    dropped = attr(tuple, ())
    steps = attr(tuple, ())
    out = result()

    @classmethod
    def of(
        cls, buffer: Value, offsets: list[Value], sizes: list[Value], type: TileType, pad: Value | None = None,
        dropped: tuple[int, ...] = (), steps: tuple[int, ...] = (), tokens: tuple[Value, ...] = (),
    ) -> Load:  # fmt: skip
        return cls([buffer, offsets, sizes, pad, tokens], [type], access_attrs(dropped, steps))

    def verify_(self) -> None:
        check_access(self, self.buffer.type, self.offsets, self.out.type, self.dropped, self.steps)
        _check_sizes(self, self.sizes, self.out.type)
        if self.pad is not None and self.pad.type is not element_of(self.out.type):
            raise VerifyError(self, f"pads {self.out.type} with {self.pad.type}")

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import memory

        return memory.load(self, frame, args)


class Store(Operation, name="tile.store"):
    """Writes a tile (or a scalar, when all axes are dropped) to a buffer; elements outside are never written: the value is in bounds."""

    __slots__ = ()
    value = operand()
    buffer = operand()
    offsets = operands()
    dropped = attr(tuple, ())
    steps = attr(tuple, ())

    @classmethod
    def of(cls, value: Value, buffer: Value, offsets: list[Value], dropped: tuple[int, ...] = (), steps: tuple[int, ...] = ()) -> Store:
        return cls([value, buffer, offsets], (), access_attrs(dropped, steps))

    def verify_(self) -> None:
        check_access(self, self.buffer.type, self.offsets, self.value.type, self.dropped, self.steps)

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import memory

        return memory.store(self, frame, args)


class Gather(Operation, name="tile.gather"):
    """Reads a buffer at index tiles. indices: one tile an axis listed in `indexed`, all of one shape S (i32 or i64). The other axes are as in load.
    The result's axes: those of S in the place of the first indexed axis, the other kept axes around it. An index outside the buffer stops the kernel
    (run-out-of-bounds). sizes: the `?` axes of the result that do not come from S."""

    __slots__ = ()
    buffer = operand()
    indices = operands()
    offsets = operands()  # one a buffer axis that is not indexed
    sizes = operands()
    indexed = attr(tuple)
    dropped = attr(tuple, ())
    steps = attr(tuple, ())
    out = result()

    @classmethod
    def of(
        cls, buffer: Value, indices: list[Value], offsets: list[Value], sizes: list[Value], indexed: tuple[int, ...], type: TileType,
        dropped: tuple[int, ...] = (), steps: tuple[int, ...] = (),
    ) -> Gather:  # fmt: skip
        return cls([buffer, indices, offsets, sizes], [type], {"indexed": indexed, **access_attrs(dropped, steps)})

    def verify_(self) -> None:
        _check_indexed(self, self.buffer.type, self.indices, self.offsets, self.indexed)

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import memory

        return memory.gather(self, frame, args)


class Scatter(Operation, name="tile.scatter"):
    """Writes a tile to a buffer at index tiles (axes as in gather). Of equal indices the last in row-major order wins."""

    __slots__ = ()
    value = operand()
    buffer = operand()
    indices = operands()
    offsets = operands()
    indexed = attr(tuple)
    dropped = attr(tuple, ())
    steps = attr(tuple, ())

    @classmethod
    def of(
        cls, value: Value, buffer: Value, indices: list[Value], offsets: list[Value], indexed: tuple[int, ...],
        dropped: tuple[int, ...] = (), steps: tuple[int, ...] = (),
    ) -> Scatter:  # fmt: skip
        return cls([value, buffer, indices, offsets], (), {"indexed": indexed, **access_attrs(dropped, steps)})

    def verify_(self) -> None:
        _check_indexed(self, self.buffer.type, self.indices, self.offsets, self.indexed)

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import memory

        return memory.scatter(self, frame, args)


class AtomicRmw(Operation, name="tile.atomic_rmw"):
    """buffer[...] = kind(buffer[...], value), atomically an element; kind: add, max, min. With index tiles as scatter, without as store.
    Float max and min propagate NaN."""

    __slots__ = ()
    value = operand()
    buffer = operand()
    indices = operands()
    offsets = operands()
    kind = attr(str)
    indexed = attr(tuple, ())
    dropped = attr(tuple, ())
    steps = attr(tuple, ())

    @classmethod
    def of(
        cls, kind: str, value: Value, buffer: Value, indices: list[Value], offsets: list[Value], indexed: tuple[int, ...] = (),
        dropped: tuple[int, ...] = (), steps: tuple[int, ...] = (),
    ) -> AtomicRmw:  # fmt: skip
        attrs = {"kind": kind, **({"indexed": indexed} if indexed else {}), **access_attrs(dropped, steps)}
        return cls([value, buffer, indices, offsets], (), attrs)

    def verify_(self) -> None:
        if self.kind not in ("add", "max", "min"):
            raise VerifyError(self, f"kind '{self.kind}' is none of add, max, min")
        if element_of(self.value.type) is not element_of(self.buffer.type):
            raise VerifyError(self, f"updates {self.buffer.type} with {self.value.type}")
        _check_indexed(self, self.buffer.type, self.indices, self.offsets, self.indexed)

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import memory

        return memory.atomic_rmw(self, frame, args)


class Fill(Operation, name="tile.fill", pure=True):
    """A tile with one number in every element."""

    __slots__ = ()
    value = operand()
    sizes = operands()
    out = result()

    @classmethod
    def of(cls, value: Value, sizes: list[Value], type: Type) -> Fill:
        return cls([value, sizes], [type])

    def verify_(self) -> None:
        _check_sizes(self, self.sizes, self.out.type)
        if element_of(self.out.type) is not self.value.type:
            raise VerifyError(self, f"fills {self.out.type} with {self.value.type}")


class Iota(Operation, name="tile.iota", pure=True):
    """A one-axis tile start, start + step, start + 2*step, ... of integers."""

    __slots__ = ()
    start = operand()  # index
    sizes = operands()
    step = attr(int, 1)
    out = result()

    @classmethod
    def of(cls, start: Value, sizes: list[Value], type: Type, step: int = 1) -> Iota:
        return cls([start, sizes], [type], {"step": step} if step != 1 else {})

    def verify_(self) -> None:
        _check_sizes(self, self.sizes, self.out.type)


class Broadcast(Operation, name="tile.broadcast", pure=True):
    """Repeats along new axes and axes of length 1. dims[i]: the result axis of operand axis i (increasing). sizes: all `?` axes of the result."""

    __slots__ = ()
    x = operand()
    sizes = operands()
    dims = attr(tuple)
    out = result()

    @classmethod
    def of(cls, x: Value, dims: tuple[int, ...], sizes: list[Value], type: Type) -> Broadcast:
        return cls([x, sizes], [type], {"dims": tuple(dims)})

    def verify_(self) -> None:
        source, target = shape_of(self.x.type), shape_of(self.out.type)
        _check_sizes(self, self.sizes, self.out.type)
        if len(self.dims) != len(source) or list(self.dims) != sorted(set(self.dims)) or any(d >= len(target) for d in self.dims):
            raise VerifyError(self, f"dims {self.dims} do not map the axes of {self.x.type} into {self.out.type}")
        for d, s in zip(self.dims, source):
            if s != 1 and dim_bound(s) != dim_bound(target[d]):
                raise VerifyError(self, f"axis of extent {s} cannot become {target[d]}")


class Reshape(Operation, name="tile.reshape", pure=True):
    """The same elements in row-major order under another shape. sizes: the `?` axes of the result."""

    __slots__ = ()
    x = operand()
    sizes = operands()
    out = result()

    @classmethod
    def of(cls, x: Value, sizes: list[Value], type: Type) -> Reshape:
        return cls([x, sizes], [type])

    def verify_(self) -> None:
        _check_sizes(self, self.sizes, self.out.type)


class Transpose(Operation, name="tile.transpose", pure=True):
    """Axis i of the result is axis perm[i] of x."""

    __slots__ = ()
    x = operand()
    perm = attr(tuple)
    out = result()

    @classmethod
    def of(cls, x: Value, perm: tuple[int, ...]) -> Transpose:
        shape = shape_of(x.type)
        return cls([x], [like(x.type, tuple(shape[p] for p in perm))], {"perm": tuple(perm)})

    def verify_(self) -> None:
        shape = shape_of(self.x.type)
        if sorted(self.perm) != list(range(len(shape))) or shape_of(self.out.type) != tuple(shape[p] for p in self.perm):
            raise VerifyError(self, f"perm {self.perm} does not turn {self.x.type} into {self.out.type}")


class Slice(Operation, name="tile.slice", pure=True):
    """Part of a tile: offsets, sizes, dropped and steps as in load."""

    __slots__ = ()
    x = operand()
    offsets = operands()
    sizes = operands()
    dropped = attr(tuple, ())
    steps = attr(tuple, ())
    out = result()

    @classmethod
    def of(cls, x: Value, offsets: list[Value], sizes: list[Value], type: Type, dropped: tuple[int, ...] = (), steps: tuple[int, ...] = ()) -> Slice:
        return cls([x, offsets, sizes], [type], access_attrs(dropped, steps))

    def verify_(self) -> None:
        check_access(self, self.x.type, self.offsets, self.out.type, self.dropped, self.steps)
        _check_sizes(self, self.sizes, self.out.type)


class Extract(Operation, name="tile.extract", pure=True):
    """One element of a tile, as a scalar."""

    __slots__ = ()
    x = operand()
    indices = operands()
    out = result()

    @classmethod
    def of(cls, x: Value, indices: list[Value]) -> Extract:
        return cls([x, indices], [element_of(x.type)])

    def verify_(self) -> None:
        if len(self.indices) != len(shape_of(self.x.type)):
            raise VerifyError(self, f"{self.x.type} needs {len(shape_of(self.x.type))} indices, it has {len(self.indices)}")


class Matmul(Operation, name="tile.matmul", pure=True):
    """acc + lhs @ rhs, over the last two axes, equal leading axes; products and sums in acc's element type.
    register_tile, cache_blocks: as mem.matmul, chosen by block."""

    __slots__ = ()
    lhs = operand()
    rhs = operand()
    acc = operand()
    register_tile = attr(tuple, ())
    cache_blocks = attr(tuple, ())
    out = result()

    @classmethod
    def of(cls, lhs: Value, rhs: Value, acc: Value) -> Matmul:
        return cls([lhs, rhs, acc], [acc.type])

    def verify_(self) -> None:
        a, b, c = (shape_of(v.type) for v in (self.lhs, self.rhs, self.acc))
        if len(a) < 2 or len(a) != len(b) or len(a) != len(c):
            raise VerifyError(self, f"needs three tiles of one rank >= 2, not {self.lhs.type}, {self.rhs.type}, {self.acc.type}")
        bounds = [tuple(map(dim_bound, s)) for s in (a, b, c)]
        a, b, c = bounds
        if a[:-2] != b[:-2] or a[:-2] != c[:-2] or a[-1] != b[-2] or a[-2] != c[-2] or b[-1] != c[-1]:
            raise VerifyError(self, f"{self.lhs.type} @ {self.rhs.type} does not give {self.acc.type}")
        if self.out.type is not self.acc.type:
            raise VerifyError(self, f"result {self.out.type} differs from acc {self.acc.type}")


class Reduce(Operation, name="tile.reduce", pure=True):
    """Reduces `axes`; sums and products in the operand's element type (the frontend casts first). All axes: the result is a scalar.
    kind: sum, prod, max, min, any, all. Empty: 0, 1, -inf or the lowest, +inf or the highest, false, true."""

    __slots__ = ()
    x = operand()
    kind = attr(str)
    axes = attr(tuple)
    out = result()

    @classmethod
    def of(cls, kind: str, x: Value, axes: tuple[int, ...]) -> Reduce:
        return cls([x], [reduced_type(x.type, axes)], {"kind": kind, "axes": tuple(axes)})

    def verify_(self) -> None:
        if self.kind not in REDUCTIONS:
            raise VerifyError(self, f"kind '{self.kind}' is none of {', '.join(REDUCTIONS)}")
        if self.out.type is not reduced_type(self.x.type, self.axes):
            raise VerifyError(self, f"reducing axes {self.axes} of {self.x.type} gives {reduced_type(self.x.type, self.axes)}, not {self.out.type}")


class ArgReduce(Operation, name="tile.arg_reduce", pure=True):
    """Index along `axis` of the first largest (kind max) or smallest (min) element, NaN before all; 0 on an empty axis. Result i32 or i64."""

    __slots__ = ()
    x = operand()
    kind = attr(str)
    axis = attr(int)
    out = result()

    @classmethod
    def of(cls, kind: str, x: Value, axis: int, element: Scalar) -> ArgReduce:
        return cls([x], [_with(reduced_type(x.type, (axis,)), element)], {"kind": kind, "axis": axis})

    def verify_(self) -> None:
        if self.kind not in ("max", "min"):
            raise VerifyError(self, f"kind '{self.kind}' is neither max nor min")


class Scan(Operation, name="tile.scan", pure=True):
    """Cumulative reduction along an axis. exclusive: element n combines the elements before n."""

    __slots__ = ()
    x = operand()
    kind = attr(str)
    axis = attr(int)
    exclusive = attr(bool, False)
    out = result()

    @classmethod
    def of(cls, kind: str, x: Value, axis: int, exclusive: bool = False) -> Scan:
        return cls([x], [x.type], {"kind": kind, "axis": axis, **({"exclusive": True} if exclusive else {})})

    def verify_(self) -> None:
        if self.kind not in ("sum", "prod", "max", "min") or self.out.type is not self.x.type:
            raise VerifyError(self, f"scan '{self.kind}' of {self.x.type} to {self.out.type}")


class TakeAlong(Operation, name="tile.take_along", pure=True):
    """out[..., j, ...] = x[..., idx[..., j, ...], ...] along `axis`, as numpy.take_along_axis. An index outside x stops the kernel."""

    __slots__ = ()
    x = operand()
    indices = operand()
    axis = attr(int)
    out = result()

    @classmethod
    def of(cls, x: Value, indices: Value, axis: int) -> TakeAlong:
        return cls([x, indices], [like(indices.type, shape_of(indices.type), element_of(x.type))], {"axis": axis})


class Map(Operation, name="tile.map", pure=True, variadic_results=True):
    """Elementwise region over tiles: one scalar argument an operand, yields one scalar a result. maps[i]: for each axis of the result the axis of
    operand i that it reads, or -1 where the operand does not have it (a scalar operand has all -1). sizes: `?` axes of the results.
    Made by fuse from elementwise ops and broadcasts."""

    __slots__ = ()
    ins = operands()
    sizes = operands()
    maps = attr(tuple)
    body = region()

    @classmethod
    def of(cls, ins: list[Value], maps: tuple[tuple[int, ...], ...], sizes: list[Value], types: list[Type]) -> Map:
        block = Block([element_of(v.type) for v in ins])
        return cls([ins, sizes], types, {"maps": tuple(maps)}, [Region([block])])

    def verify_(self) -> None:
        shapes = {shape_of(r.type) for r in self.results}
        if len(shapes) != 1 or len(self.maps) != len(self.ins):
            raise VerifyError(self, "needs results of one shape and a map for every operand")
        rank = len(next(iter(shapes)))
        if any(len(m) != rank for m in self.maps):
            raise VerifyError(self, f"every map needs {rank} entries")
        _check_sizes(self, self.sizes, self.results[0].type)
        if [a.type for a in self.body.block.args] != [element_of(v.type) for v in self.ins]:
            raise VerifyError(self, "region arguments must be the element types of the operands")


def access_attrs(dropped: tuple[int, ...], steps: tuple[int, ...]) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    if dropped:
        attrs["dropped"] = tuple(dropped)
    if any(s != 1 for s in steps):
        attrs["steps"] = tuple(steps)
    return attrs


def like(type: Type, shape: tuple[Dim, ...], element: Scalar | None = None) -> Type:
    """A tile or tensor type of the same sort with another shape."""
    element = element or element_of(type)
    return TensorType(shape, element) if isinstance(type, TensorType) else TileType(shape, element)


def reduced_type(type: Type, axes: tuple[int, ...]) -> Type:
    shape = tuple(d for i, d in enumerate(shape_of(type)) if i not in axes)
    return like(type, shape) if shape or isinstance(type, TensorType) else element_of(type)


def _with(type: Type, element: Scalar) -> Type:
    return element if isinstance(type, Scalar) else like(type, shape_of(type), element)


def check_access(op: Operation, source: Type, offsets: tuple[Value, ...], tile: Type, dropped: tuple[int, ...], steps: tuple[int, ...]) -> None:
    rank = len(shape_of(source))
    if len(offsets) != rank:
        raise VerifyError(op, f"{source} needs {rank} offsets, it has {len(offsets)}")
    if rank - len(dropped) != len(shape_of(tile)):
        raise VerifyError(op, f"{rank} axes of which {len(dropped)} are dropped do not give {tile}")
    if steps and len(steps) != rank:
        raise VerifyError(op, f"steps {steps} need {rank} entries")
    if element_of(source) is not element_of(tile):
        raise VerifyError(op, f"element types differ: {source} and {tile}")


def _check_indexed(op: Operation, source: Type, indices: tuple[Value, ...], offsets: tuple[Value, ...], indexed: tuple[int, ...]) -> None:
    rank = len(shape_of(source))
    if len(indices) != len(indexed) or len(offsets) != rank - len(indexed):
        raise VerifyError(op, f"{source} with axes {indexed} indexed needs {len(indexed)} index tiles and {rank - len(indexed)} offsets")
    if len({shape_of(i.type) for i in indices}) > 1:
        raise VerifyError(op, "index tiles must have one shape")


MEMORY = (Load, Store, Gather, Scatter, AtomicRmw, Contract)
VALUES = (Fill, Iota, Broadcast, Reshape, Transpose, Slice, Extract, Matmul, Reduce, ArgReduce, Scan, TakeAlong, Map)

DIALECT = Dialect("tile", [*MEMORY, *VALUES], "tile values")


def _evaluate(self: Operation, frame: Any, *args: Any) -> Any:
    from tilelang.runtime import arrays

    return arrays.evaluate(self, frame, args)


for _cls in VALUES:
    _cls.evaluate = _evaluate

