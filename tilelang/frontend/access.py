"""Subscripts: places in tensors and buffers, their bounds, reads and writes of them; subscripts of tiles."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilelang.diagnostics import Note
from tilelang.dialects import dist, mem, tile
from tilelang.frontend import ast
from tilelang.frontend.arithmetic import Arithmetic
from tilelang.frontend.context import Failed, ast_text
from tilelang.frontend.shapes import Operand
from tilelang.frontend.values import POISON, Axis, Buffer, Const, Index, Num, Range, Tile, Unset, Val, dtype_text, tile_type
from tilelang.ir import index as ix
from tilelang.ir.core import Value
from tilelang.ir.types import Dyn, Scalar, bool_, i32, i64


@dataclass(slots=True)
class Entry:
    """One axis of a subscript. kind: 'range' (kept; offset, axis, step), 'scalar' (dropped; offset) or 'tile' (index)."""

    kind: str
    node: ast.Expr
    offset: ix.Expr = field(default_factory=lambda: ix.const(0))
    axis: Axis | None = None
    step: int = 1
    index: Tile | None = None


@dataclass(slots=True)
class Place:
    """A subscript of a buffer. shared: the axes of the index tiles, at position `at` of the axes of the place."""

    buffer: Buffer
    node: ast.Expr
    entries: list[Entry]
    axes: tuple[Axis, ...] = ()
    shared: tuple[Axis, ...] = ()
    at: int = 0
    apart: bool = False  # index tiles with another axis between them: their axes come first, as in NumPy

    @property
    def indexed(self) -> tuple[int, ...]:
        return tuple(i for i, e in enumerate(self.entries) if e.kind == "tile")

    @property
    def dropped(self) -> tuple[int, ...]:
        return tuple(i for i, e in enumerate(self.entries) if e.kind == "scalar")

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(e.step for e in self.entries)

    @property
    def is_element(self) -> bool:
        return all(e.kind == "scalar" for e in self.entries)


def _may_wrap(e: ix.Expr) -> bool:
    """Whether a sum may exceed 64 bits, so that what cannot be negative is negative when the kernel runs. One symbol and a constant do not get so far
    that a check against the end of an axis takes them for inside."""
    terms, constant = ix.linear_form(e)
    return any(not isinstance(atom, ix.Sym) for atom, _ in terms) or sum(abs(k) for _, k in terms) > 1 or abs(constant) >= 1 << 62


RANGE_HELP = "{} is a tile, a value; ranges are places in tensors: parameters, and what empty(...) made at the top"


class Access(Arithmetic):
    grid_id = 0  # the grid loop that is being built, 0 outside

    # -- evaluation of places

    def place(self, node: ast.Expr, padded: bool = False) -> Place:
        """The place that an expression names: x[...], or all of a buffer. padded: may lie outside, ranges keep their full length."""
        base = self.eval(node.base if isinstance(node, ast.Subscript) else node)
        return self.place_in(base, node, padded)

    def place_in(self, base: Val, node: ast.Expr, padded: bool = False) -> Place:
        """The place that a subscript names in what its base is."""
        if not isinstance(base, Buffer):
            self.wrong_type(node, ast_text(node), base, "a place in a tensor or buffer, such as x[i]")
        items = node.items if isinstance(node, ast.Subscript) else []
        rank = len(base.axes)
        if len(items) > rank:
            self.rank_error(node.span, f"the subscript of '{base.name}'", len(items), rank, [self.made(base)])
        entries = [self.entry(base, i, item, padded) for i, item in enumerate(items)]
        entries += [Entry("range", node, axis=axis) for axis in base.axes[len(items) :]]
        return self.complete(Place(base, node, entries))

    def complete(self, place: Place) -> Place:
        """Fills in the axes of a place from its entries."""
        indexed = place.indexed
        if indexed:
            operands: list[Operand] = [(e.node, e.index) for e in place.entries if e.index is not None]
            place.shared = self.meet(operands, place.node, f"the index tiles of '{place.buffer.name}'")
            between = place.entries[indexed[0] : indexed[-1]]
            place.apart = any(e.kind == "range" for e in between)
        axes: list[Axis] = []
        for i, e in enumerate(place.entries):
            if e.kind == "tile" and i == indexed[0]:
                place.at = len(axes)
                axes += place.shared
            elif e.axis is not None:
                axes.append(e.axis)
        if place.apart:
            n = len(place.shared)
            axes = [*place.shared, *axes[: place.at], *axes[place.at + n :]]
        place.axes = tuple(axes)
        return place

    def made(self, buffer: Buffer) -> Note:
        shape = ", ".join(str(d) for d in buffer.dims)
        return Note(f"'{buffer.name}' is {dtype_text(buffer.dtype)}[{shape}]", buffer.span)

    def entry(self, buffer: Buffer, position: int, item: ast.Expr, padded: bool) -> Entry:
        dim = buffer.dims[position]
        if isinstance(item, ast.Slice):
            entry = self.slice_entry(item, buffer.axes[position], f"'{buffer.name}'", position)
            if not padded and not (item.start is None and item.stop is None):
                self.check_bounds(buffer, position, entry, dim)
            return entry
        value = self.eval(item)
        match value:
            case Range():
                axis = Axis.of(value.by)._replace(source=value.source) if padded else value.axis
                entry = Entry("range", item, value.start, axis, value.step)
            case Tile():
                entry = Entry("tile", item, index=self.index_tile(value, item))
                if padded:
                    self.error("wrong-arguments", item.span, function="load", what="does not pad an access by index tiles; clamp the indices")
                return entry
            case Const(value=None):
                self.wrong_type(item, "None", value, "an index or a range: None makes new axes of tiles", "subscript the loaded tile: x[i][:, None]")
            case _:
                entry = Entry("scalar", item, self.to_index(value, item, "an index range, an integer or an integer tile"))
        if not padded:
            self.check_bounds(buffer, position, entry, dim)
        return entry

    def slice_entry(self, item: ast.Slice, axis: Axis, what: str, position: int) -> Entry:
        """The entry of `a:b:c` on an axis. Its length must be known at compile time, unless it is all of the axis."""
        step = self.static_int(item.step, "the step of a slice") if item.step is not None else 1
        if step < 1:
            self.error("wrong-type", item.span, what="the step of the slice", found=str(step), expected="1 or more")
        if item.start is None and item.stop is None and step == 1:
            return Entry("range", item, axis=axis)
        start = self.to_index(self.eval(item.start), item.start) if item.start is not None else ix.const(0)
        stop = self.to_index(self.eval(item.stop), item.stop) if item.stop is not None else axis.extent
        for end, node in ((start, item.start), (stop, item.stop)):
            if node is not None and end.value is not None and end.value < 0:
                help = f"indices count from the front: write {axis.extent + end.value}"
                self.error("index-out-of-bounds", node.span, help=help, index=end.value, axis=position, what=what, length=axis.extent)
        length = self.simplify(stop - start)
        if length.value is None:
            help = "use a loop with by=... and its index range, or ends that differ by a constant"
            self.error("not-constant", item.span, help=help, what="the length of a slice", value=str(length))
        if length.value <= 0:
            self.error("empty-tile", item.span, what=f"the slice of {what}", length=length.value, axis=position)
        return Entry("range", item, start, Axis.of(-(-length.value // step)), step)

    def static_int(self, node: ast.Expr, what: str) -> int:
        value = self.eval(node)
        if isinstance(value, Const) and type(value.value) is int:
            return value.value
        if isinstance(value, (Index, Num)):
            self.error("not-constant", node.span, what=what, value=ast_text(node))
        self.wrong_type(node, what, value, "an integer")

    def index_tile(self, value: Tile, node: ast.Expr) -> Tile:
        if value.dtype is bool_ or not value.dtype.is_integer:
            help = "where(mask, x, 0) chooses by a mask" if value.dtype is bool_ else f"cast it: cast({node.span.text}, i32)"
            self.wrong_type(node, "the index " + ast_text(node), value, "a tile of integers", help)
        small = value.dtype.bits < 32 or value.dtype is i32
        return self.as_dtype(value, i32 if small else i64)

    # -- bounds

    def check_bounds(self, buffer: Buffer, position: int, entry: Entry, dim: ix.Expr) -> None:
        """An access that is outside for sure is an error now; one that may be is checked when the kernel runs."""
        first = entry.offset
        extent = entry.axis.extent if entry.axis is not None else ix.const(1)
        last = first + (extent - 1) * entry.step
        what = f"'{buffer.name}'"
        with self.at(entry.node.span):
            outside = first if self.at_least(-1 - first, 0) else last if self.at_least(last - dim, 0) and self.at_least(extent, 1) else None
            high_open = not self.at_least(dim - 1 - last, 0)
            low_open = not self.at_least(first, 0) or (high_open and _may_wrap(first))
            if outside is not None and (low_open or high_open) and dim.value != 0:  # where all can be proved, the code never runs
                help = f"indices count from 0: the last is {dim - 1}" if outside is first and first.value is not None else None
                self.error("index-out-of-bounds", entry.node.span, [self.made(buffer)], help, index=outside, axis=position, what=what, length=dim)
            message = f"index {{0}} is outside axis {position} of {what}, which has length {{1}}"
            if first is last:
                checks = [first] * low_open + [dim - 1 - last] * high_open
                self.require(checks, "run-out-of-bounds", message, [first, dim])
            else:
                if low_open:
                    self.require([first], "run-out-of-bounds", message, [first, dim])
                if high_open:
                    self.require([dim - 1 - last], "run-out-of-bounds", message, [last, dim])

    # -- reads

    def read(self, place: Place, pad: Value | None = None) -> Val:
        buffer = place.buffer
        with self.at(place.node.span):
            if place.indexed:
                return self.gather(place)
            offsets = [self.value(e.offset) for e in place.entries]
            tokens = self.tokens(buffer)
            if place.is_element and pad is None:
                if tokens:
                    self.insert(mem.Wait.of(*tokens))
                return Num(self.emit(mem.Load.of(buffer.ssa, offsets)), buffer.dtype)
            type = tile_type(place.axes, buffer.dtype)
            load = tile.Load.of(buffer.ssa, offsets, self.sizes(place.axes, type), type, pad, place.dropped, place.steps, tokens)
            loaded = self.emit(load)
            if place.is_element:
                return Num(self.emit(tile.Extract.of(loaded, [])), buffer.dtype)
            return Tile(loaded, buffer.dtype, place.axes)

    def arrived(self, token: Value) -> None:
        """Loads of memory of all ranks that follow in this block, or inside it, depend on a wait; it is behind all waits before it."""
        self.known[-1]["arrived"] = token

    def tokens(self, buffer: Buffer) -> tuple[Value, ...]:
        """What a load of the buffer depends on."""
        if not dist.is_symmetric(buffer.ssa):
            return ()
        return next(((cache["arrived"],) for cache in reversed(self.known) if "arrived" in cache), ())

    def gather(self, place: Place) -> Tile:
        axes = place.axes
        if place.apart:  # the op puts the axes of the index tiles at the first indexed axis
            n = len(place.shared)
            axes = (*axes[n : n + place.at], *place.shared, *axes[n + place.at :])
        type = tile_type(axes, place.buffer.dtype)
        own = [a for i, a in enumerate(axes) if not place.at <= i < place.at + len(place.shared)]
        sizes = [self.value(a.extent) for a in own if isinstance(a.dim, Dyn)]
        indices, offsets = self.index_operands(place)
        tokens = self.tokens(place.buffer)
        if tokens:
            self.insert(mem.Wait.of(*tokens))
        op = tile.Gather.of(place.buffer.ssa, indices, offsets, sizes, place.indexed, type, place.dropped, place.steps)
        made = Tile(self.emit(op), place.buffer.dtype, axes)
        return self.transposed(made, self.front_first(place)) if place.apart else made

    def index_operands(self, place: Place) -> tuple[list[Value], list[Value]]:
        tiles = [e.index for e in place.entries if e.index is not None]
        wide = i64 if any(t.dtype is i64 for t in tiles) else i32
        indices = [self.spread(self.as_dtype(t, wide), place.shared).ssa for t in tiles]
        return indices, [self.value(e.offset) for e in place.entries if e.kind != "tile"]

    def front_first(self, place: Place) -> tuple[int, ...]:
        """The permutation from the op's order of axes to the place's, where the axes of the index tiles come first."""
        n, at = len(place.shared), place.at
        return (*range(at, at + n), *range(at), *range(at + n, len(place.axes)))

    def transposed(self, value: Tile, perm: tuple[int, ...]) -> Tile:
        if perm == tuple(range(value.rank)):
            return value
        return Tile(self.emit(self.ops.Transpose.of(value.ssa, perm)), value.dtype, tuple(value.axes[p] for p in perm))

    def whole(self, buffer: Buffer, node: ast.Expr) -> Tile:
        """A buffer of the user as a value: its full tile."""
        if buffer.is_global:
            colons = ", ".join(":" * len(buffer.axes))
            self.wrong_type(node, ast_text(node), buffer, "a value", f"read a part of it: {buffer.name}[{colons}] is all of it")
        entries = [Entry("range", node, axis=axis) for axis in buffer.axes]
        value = self.read(Place(buffer, node, entries, buffer.axes))
        assert isinstance(value, Tile)
        return value

    # -- writes

    def write(self, place: Place, value: Val, node: ast.Expr) -> None:
        """Stores a value: cast to the element type, repeated along missing axes, cut to the valid elements of the place."""
        buffer = place.buffer
        self.check_writable(place)
        with self.at(place.node.span):
            if place.is_element:
                element = self.store_number(value, buffer, node)
                self.check_race(place)
                offsets = [self.value(e.offset) for e in place.entries]
                self.insert(mem.Store.of(element, buffer.ssa, offsets))
                return
            fitted = self.fitted(place, value, node)
            self.check_race(place)
            if place.indexed:
                indices, offsets = self.index_operands(place)
                self.insert(tile.Scatter.of(fitted.ssa, buffer.ssa, indices, offsets, place.indexed, place.dropped, place.steps))
            else:
                offsets = [self.value(e.offset) for e in place.entries]
                self.insert(tile.Store.of(fitted.ssa, buffer.ssa, offsets, place.dropped, place.steps))

    def store_number(self, value: Val, buffer: Buffer, node: ast.Expr) -> Value:
        if isinstance(value, Tile):
            notes = self.origin(node, value)
            self.rank_error(node.span, f"the value stored to one element of '{buffer.name}'", value.rank, 0, notes)
        self.check_conversion(value, buffer.dtype, node, buffer.name)
        return self.number(value, buffer.dtype, node)

    def check_conversion(self, value: Val, dtype: Scalar, node: ast.Expr, name: str) -> None:
        """Floats do not become integers by being stored, numbers do not become bools."""
        own = value.dtype if isinstance(value, (Num, Tile)) else None
        if own is None or own is dtype:
            return
        if (own.is_float and not dtype.is_float) or dtype is bool_:
            help = f"compare it: {node.span.text} != 0" if dtype is bool_ else f"cast it: cast({node.span.text}, {dtype_text(dtype)})"
            self.wrong_type(node, f"the value stored to '{name}'", value, f"dtype {dtype_text(dtype)}", help)

    def fitted(self, place: Place, value: Val, node: ast.Expr) -> Tile:
        """A value with the axes (in the op's order) and dtype of a place."""
        buffer, axes = place.buffer, place.axes
        if value is POISON or isinstance(value, Unset):
            raise Failed
        self.check_conversion(value, buffer.dtype, node, buffer.name)
        if not isinstance(value, Tile):
            made = self.fill(self.number(value, buffer.dtype, node), axes, buffer.dtype)
        else:
            made = self.spread(self.as_dtype(value, buffer.dtype), self.target_axes(place, value, node))
        if place.apart:
            order = self.front_first(place)
            made = self.transposed(made, tuple(order.index(i) for i in range(len(order))))
        return made

    def target_axes(self, place: Place, value: Tile, node: ast.Expr) -> tuple[Axis, ...]:
        axes, name = place.axes, place.buffer.name
        notes = [*self.origin(node, value), self.made(place.buffer)]
        if value.rank > len(axes):
            self.rank_error(node.span, f"the value stored to '{name}'", value.rank, len(axes), notes)
        operands: list[Operand] = [(node, value)]
        offset = len(axes) - value.rank
        out = list(axes)
        for i, (own, target) in enumerate(zip(value.axes, axes[offset:], strict=True)):
            if target.is_one and not own.is_one:
                self.error("shape-mismatch", node.span, notes, what=f"a value of length {own.text} is stored to an axis of '{name}' of length 1")
            met = self.meet_axes(own, target, i + offset, operands, node, f"the store to '{name}'")
            if met.extent is not target.extent and not self.equal(met.extent, target.extent):
                self.require_equal(met.extent, target.extent, f"the value stored to '{name}' has length {{0}}, the place {{1}}")
            out[i + offset] = target
        return tuple(out)

    def check_writable(self, place: Place) -> None:
        if place.buffer.role == "in":
            self.error("assign-to-input", place.node.span, [self.made(place.buffer)], name=place.buffer.name)

    def check_race(self, place: Place) -> None:
        """Defined by the layer that knows the loops."""

    def atomic(self, kind: str, node: ast.Expr, value: Val, value_node: ast.Expr) -> None:
        place = self.place(node)
        buffer = place.buffer
        self.check_writable(place)
        if buffer.dtype is bool_ or (buffer.dtype.is_float and buffer.dtype.bits == 8):
            self.error("dtype-unsupported", node.span, what=f"atomic_{kind}", dtype=dtype_text(buffer.dtype))
        with self.at(place.node.span):
            operand = self.store_number(value, buffer, value_node) if place.is_element else self.fitted(place, value, value_node).ssa
            indices, offsets = self.index_operands(place)
            self.insert(tile.AtomicRmw.of(kind, operand, buffer.ssa, indices, offsets, place.indexed, place.dropped, place.steps))

    # -- copies between tensors and buffers

    def copy(self, source: ast.Expr, target: ast.Expr) -> None:
        """copy(source, target). Where the source ends before the target, the rest of the target becomes 0."""
        to = self.place(target)
        value = self.eval_place_or_value(source, to)
        if isinstance(value, Tile) and value.rank == len(to.axes) and any(self.lengthened(a, t) != a for a, t in zip(value.axes, to.axes)):
            self.write(to, Const(False if to.buffer.dtype is bool_ else 0), source)
            axes = tuple(t if self.lengthened(a, t) == a else a for a, t in zip(value.axes, to.axes))
            kept = iter(axes)
            to = replace(to, axes=axes, entries=[replace(e, axis=next(kept)) if e.axis is not None else e for e in to.entries])
        self.write(to, value, source)

    def eval_place_or_value(self, source: ast.Expr, to: Place) -> Val:
        base = self.eval(source.base) if isinstance(source, ast.Subscript) else self.eval(source)
        if not isinstance(base, Buffer):
            return base if not isinstance(source, ast.Subscript) else self.eval(source)
        place = self.place_in(base, source)
        if place.indexed or len(place.axes) != len(to.axes):
            return self.read(place)
        axes = tuple(self.lengthened(a, t) for a, t in zip(place.axes, to.axes, strict=True))
        if axes == place.axes:
            return self.read(place)
        kept = iter(axes)
        entries = [replace(e, axis=next(kept)) if e.axis is not None else e for e in place.entries]
        zero = self.constant(0, place.buffer.dtype)
        return self.read(replace(place, entries=entries, axes=axes), zero)

    def lengthened(self, source: Axis, target: Axis) -> Axis:
        """The axis of a copy's source as long as that of its target, where the target is a full block."""
        full = source.length is not None and source.length == target.length == target.extent.value
        return Axis(source.length, target.extent, source.source) if full else source

    # -- subscripts of tiles

    def tile_subscript(self, value: Tile, node: ast.Subscript) -> Val:
        """t[:, None], t[a:b], t[3]: part of a tile, new axes of length 1."""
        new = [i for i, item in enumerate(node.items) if isinstance(item, ast.NoneLiteral)]
        items = [item for item in node.items if not isinstance(item, ast.NoneLiteral)]
        if len(items) > value.rank:
            self.rank_error(node.span, "the subscript", len(items), value.rank, self.origin(node.base, value))
        text = ast_text(node.base)
        entries: list[Entry] = []
        for i, item in enumerate(items):
            axis = value.axes[i]
            if isinstance(item, ast.Slice):
                entry = self.slice_entry(item, axis, text, i)
            else:
                found = self.eval(item)
                if isinstance(found, (Tile, Range)):
                    picks = "gather(tile, indices, axis=...) picks by an index tile" if self.level == "tile" else "a grid loop can read it: out[i, :] = t[ids[i], :]"
                    help = picks if isinstance(found, Tile) else RANGE_HELP.format(text)
                    self.wrong_type(item, ast_text(item), found, "an integer, a slice or None", help)
                entry = Entry("scalar", item, self.to_index(found, item, "an integer, a slice or None"))
            if not (isinstance(item, ast.Slice) and item.start is None and item.stop is None):
                self.check_tile_bounds(entry, axis, i, text)
            entries.append(entry)
        entries += [Entry("range", node, axis=axis) for axis in value.axes[len(items) :]]
        part = self.tile_part(value, entries, node)
        return self.new_axes(part, new, node, entries) if new else part

    def check_tile_bounds(self, entry: Entry, axis: Axis, position: int, text: str) -> None:
        extent = entry.axis.extent if entry.axis is not None else ix.const(1)
        last = entry.offset + (extent - 1) * entry.step
        outside = entry.offset if self.at_least(-1 - entry.offset, 0) else last if self.at_least(last - axis.extent, 0) else None
        if outside is None and axis.length is not None and self.at_least(last - axis.length, 0):
            outside = last
        if outside is not None:
            length = axis.extent if axis.extent.value is not None or axis.length is None else axis.length
            self.error("index-out-of-bounds", entry.node.span, index=outside, axis=position, what=text, length=length)
        checks = [e for e in (entry.offset, axis.extent - 1 - last) if not self.at_least(e, 0)]
        message = f"index {{0}} is outside axis {position} of {text}, which has length {{1}}"
        with self.at(entry.node.span):
            self.require(checks, "run-out-of-bounds", message, [last, axis.extent])

    def tile_part(self, value: Tile, entries: list[Entry], node: ast.Expr) -> Val:
        if all(e.kind == "range" and e.axis is a and e.offset is ix.const(0) for e, a in zip(entries, value.axes, strict=True)):
            return value
        offsets = [self.value(e.offset) for e in entries]
        if all(e.kind == "scalar" for e in entries) and self.level == "tile":
            return Num(self.emit(tile.Extract.of(value.ssa, offsets)), value.dtype)
        axes = tuple(e.axis for e in entries if e.axis is not None)
        if value.fill is not None:
            return self.fill(value.fill, axes, value.dtype)
        type = self.type_of(axes, value.dtype)
        dropped = tuple(i for i, e in enumerate(entries) if e.kind == "scalar")
        op = self.ops.Slice.of(value.ssa, offsets, self.sizes(axes, type), type, dropped, tuple(e.step for e in entries))
        return Tile(self.emit(op), value.dtype, axes)

    def new_axes(self, part: Val, positions: list[int], node: ast.Subscript, entries: list[Entry]) -> Val:
        """Puts axes of length 1 where the subscript has None."""
        if not isinstance(part, Tile):
            self.wrong_type(node, ast_text(node), part, "a tile: None adds an axis to one")
        axes: list[Axis] = []
        dims: list[int] = []
        kept = iter(zip(part.axes, range(part.rank), strict=True))
        own = iter(entries)
        for i in range(len(node.items)):
            if i in positions:
                axes.append(Axis.of(1))
            elif next(own).axis is not None:
                dims.append(len(axes))
                axes.append(next(kept)[0])
        for axis, _ in kept:
            dims.append(len(axes))
            axes.append(axis)
        if part.fill is not None:
            return self.fill(part.fill, tuple(axes), part.dtype)
        type = self.type_of(tuple(axes), part.dtype)
        return Tile(self.emit(self.ops.Broadcast.of(part.ssa, tuple(dims), self.sizes(tuple(axes), type), type)), part.dtype, tuple(axes))
