"""How tiles meet: alignment of axes, narrowing to valid elements, broadcasting."""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.diagnostics import Note
from tilelang.frontend import ast
from tilelang.frontend.context import Context, ast_text
from tilelang.frontend.values import Axis, Num, Tile, Val
from tilelang.ir import index as ix
from tilelang.ir.core import Value
from tilelang.ir.types import Scalar

Operand = tuple[ast.Expr, Val]


class Shapes(Context):
    # -- meeting

    def meet(self, operands: Sequence[Operand], node: ast.Expr, what: str) -> tuple[Axis, ...]:
        """The axes of an elementwise result: operands align from the last axis, as in NumPy; numbers fit anywhere."""
        result: tuple[Axis, ...] = ()
        seen: list[Operand] = []
        for operand in operands:
            value = operand[1]
            if isinstance(value, Tile):
                result = self._meet_shapes(result, value.axes, [*seen, operand], node, what) if seen else value.axes
                seen.append(operand)
        return result

    def _meet_shapes(self, a: tuple[Axis, ...], b: tuple[Axis, ...], operands: Sequence[Operand], node: ast.Expr, what: str) -> tuple[Axis, ...]:
        rank = max(len(a), len(b))
        out: list[Axis] = []
        for i in range(rank):
            x = a[i - rank + len(a)] if i >= rank - len(a) else None
            y = b[i - rank + len(b)] if i >= rank - len(b) else None
            if x is None or y is None:
                axis = x or y
                assert axis is not None
                out.append(axis)
            else:
                out.append(self.meet_axes(x, y, i, operands, node, what))
        return tuple(out)

    def meet_axes(self, a: Axis, b: Axis, position: int, operands: Sequence[Operand], node: ast.Expr, what: str, stretch: bool = True) -> Axis:
        """The axis where two axes meet. An axis of length 1 repeats (when `stretch`); an axis without a source adopts one of the same length."""
        if a.is_one and not b.is_one and stretch:
            return b
        if b.is_one and not a.is_one and stretch:
            return a
        if a.source is not None and b.source is not None and not a.same_source(b):
            return self._meet_sources(a, b, position, operands, node, what)
        source = a.source or b.source
        if a.length is not None and b.length is not None:
            if a.length != b.length:
                self.lengths_differ(a, b, position, operands, node, what)
            return Axis(a.length, self.smaller(a.extent, b.extent), source)
        if self.equal(a.extent, b.extent):
            return Axis(a.length if a.length is not None else b.length, a.extent if a.extent.value is not None else b.extent, source)
        if a.same_source(b) and source is not None:
            return Axis(a.length if a.length is not None else b.length, self.smaller(a.extent, b.extent), source)
        if a.source is None and b.source is None:
            self.require_equal(a.extent, b.extent, f"axis {position} of {what} has length {{0}} and {{1}}")
            return a
        self.lengths_differ(a, b, position, operands, node, what)
        return a

    def _meet_sources(self, a: Axis, b: Axis, position: int, operands: Sequence[Operand], node: ast.Expr, what: str) -> Axis:
        assert a.source is not None and b.source is not None
        notes = [n for operand_node, value in operands for n in self.origin(operand_node, value)]
        if a.source.kind == b.source.kind == "dim":
            if self.equal(a.extent, b.extent):
                return a
            if not (isinstance(a.extent, ix.Sym) and isinstance(b.extent, ix.Sym)):
                self.require_equal(a.extent, b.extent, f"axis {position} of {what} has length {{0}} and {{1}}")
                return a
            where, other = (ast_text(operands[k][0]) for k in (0, -1))
            help = "use one symbolic dim for both when they are always equal"
            if what == "matmul":
                help = f"'@' joins the last axis on the left and the last but one on the right; x.T transposes; or {help}"
            self.error("dim-conflict", node.span, notes, help, dim=position, first=a.source.name, where=where, second=b.source.name, other=other)
        for source in (a.source, b.source):
            if source.span is not None:
                notes.append(Note(f"range '{source.name}' is made here", source.span))
        self.error("axis-mismatch", node.span, notes, axis=position, what=what, left=a.source.describe(), right=b.source.describe())

    def lengths_differ(self, a: Axis, b: Axis, position: int, operands: Sequence[Operand], node: ast.Expr, what: str) -> None:
        notes = [n for operand_node, value in operands for n in self.origin(operand_node, value)]
        text = f"{what} meets lengths {a.text} and {b.text} along axis {position}"
        help = None
        ranged = a if a.source is not None else b
        if ranged.source is not None and ranged.source.kind == "range":
            help = f"the axis of {ranged.source.describe()} has length {ranged.text}; make tiles for it with zeros(dtype, {ranged.source.name})"
        elif ranged.source is not None:
            help = f"give the other operand the same axis: zeros(dtype, {ranged.source.name}) has one"
        self.error("shape-mismatch", node.span, notes, help, what=text)

    def smaller(self, a: ix.Expr, b: ix.Expr) -> ix.Expr:
        return a if a is b else self.simplify(ix.emin(a, b))

    def require_equal(self, a: ix.Expr, b: ix.Expr, message: str) -> None:
        self.require([a - b, b - a], "run-assert", message, [a, b])

    # -- making operands fit

    def fill(self, value: Value, axes: tuple[Axis, ...], dtype: Scalar) -> Tile:
        type = self.type_of(axes, dtype)
        return Tile(self.emit(self.ops.Fill.of(value, self.sizes(axes, type), type)), dtype, axes, value)

    def narrow(self, tile: Tile, axes: tuple[Axis, ...]) -> Tile:
        """The tile cut to the extents of `axes`, which are at most its own. A tile of one number is made anew."""
        type = self.type_of(axes, tile.dtype)
        same = all(a.extent is b.extent for a, b in zip(tile.axes, axes, strict=True))
        if tile.ssa.type is type and same:
            return Tile(tile.ssa, tile.dtype, axes, tile.fill)
        if tile.fill is not None:
            return self.fill(tile.fill, axes, tile.dtype)
        zero = [self.value(ix.const(0))] * len(axes)
        return Tile(self.emit(self.ops.Slice.of(tile.ssa, zero, self.sizes(axes, type), type)), tile.dtype, axes)

    def spread(self, tile: Tile, axes: tuple[Axis, ...]) -> Tile:
        """The tile repeated along new leading axes and axes of length 1, and narrowed to the extents of `axes`."""
        offset = len(axes) - tile.rank
        if tile.fill is not None and offset >= 0:
            return tile if not offset and tile.axes == axes else self.fill(tile.fill, axes, tile.dtype)
        kept = tuple(a if a.is_one and not b.is_one else b for a, b in zip(tile.axes, axes[offset:], strict=True))
        tile = self.narrow(tile, kept)
        if not offset and all(a.is_one == b.is_one for a, b in zip(kept, axes, strict=True)):
            return Tile(tile.ssa, tile.dtype, axes, tile.fill)
        type = self.type_of(axes, tile.dtype)
        dims = tuple(range(offset, len(axes)))
        return Tile(self.emit(self.ops.Broadcast.of(tile.ssa, dims, self.sizes(axes, type), type)), tile.dtype, axes)

    def operand(self, value: Val, dtype: Scalar, axes: tuple[Axis, ...] | None, node: ast.Expr) -> Value:
        """The SSA operand of an elementwise op on `axes` (None: on scalars), cast to `dtype`."""
        if axes is None:
            return self.number(value, dtype, node)
        if not isinstance(value, Tile):
            return self.fill(self.number(value, dtype, node), axes, dtype).ssa
        return self.spread(self.as_dtype(value, dtype), axes).ssa

    def as_dtype(self, tile: Tile, dtype: Scalar) -> Tile:
        if tile.dtype is dtype:
            return tile
        fill = self.cast(tile.fill, dtype) if tile.fill is not None else None
        return self.fill(fill, tile.axes, dtype) if fill is not None else Tile(self.cast(tile.ssa, dtype), dtype, tile.axes)

    def result(self, ssa: Value, dtype: Scalar, axes: tuple[Axis, ...] | None) -> Val:
        """An elementwise result as a value."""
        if axes is None:
            return self.opaque_index(ssa) if dtype.kind == "index" else Num(ssa, dtype)
        return Tile(ssa, dtype, axes)

    def shared_axes(self, operands: Sequence[Operand], node: ast.Expr, what: str) -> tuple[Axis, ...] | None:
        """The axes where operands meet, None when all are numbers."""
        if not any(isinstance(v, Tile) for _, v in operands):
            return None
        return self.meet(operands, node, what)


