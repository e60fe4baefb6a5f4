"""Arguments of the language's functions: operands, compile-time values, axes and shapes."""

from __future__ import annotations

from tilelang.frontend import ast
from tilelang.frontend.access import Access
from tilelang.frontend.context import Failed, ast_text
from tilelang.frontend.shapes import Operand
from tilelang.frontend.values import POISON, Axis, Buffer, Const, DType, Index, Num, Range, Source, Tile, Tuple, Val
from tilelang.ir import index as ix
from tilelang.ir.types import Scalar


class ArgumentReader(Access):
    dims: frozenset[str] = frozenset()  # the symbolic dims

    def operand_of(self, node: ast.Expr) -> Operand:
        """An argument as an operand: a user's buffer stands for its full tile."""
        value = self.eval(node)
        if isinstance(value, Buffer):
            value = self.whole(value, node)
        if value is POISON:
            raise Failed
        return node, value

    def tile_of(self, node: ast.Expr, what: str) -> Tile:
        value = self.operand_of(node)[1]
        if not isinstance(value, Tile):
            help = "loops without 'by' give single indices; with it, ranges, which read tiles" if isinstance(value, Num) and isinstance(node, ast.Subscript) else None
            self.wrong_type(node, f"the operand {ast_text(node)} of {what}", value, "a tile" if self.level == "tile" else "a tensor", help)
        return value

    def dtype_of(self, node: ast.Expr) -> Scalar:
        value = self.eval(node)
        if not isinstance(value, DType):
            self.wrong_type(node, ast_text(node), value, "a dtype such as f32")
        return value.scalar

    def static(self, node: ast.Expr | None, what: str, default: object = None) -> object:
        """A compile-time argument as a Python value; a tuple of them as a tuple."""
        if node is None:
            return default
        value = self.eval(node)
        items = value.items if isinstance(value, Tuple) else (value,)
        found: list[object] = []
        for item in items:
            if isinstance(item, (Index, Num, Tile)):
                self.error("not-constant", node.span, what=what, value=ast_text(node))
            if not isinstance(item, Const):
                self.wrong_type(node, what, item, "a compile-time value")
            found.append(item.value)
        return tuple(found) if isinstance(value, Tuple) else found[0]

    def flag(self, node: ast.Expr | None, what: str) -> bool:
        value = self.static(node, what, False)
        if node is not None and not isinstance(value, bool):
            self.error("wrong-type", node.span, what=what, found=repr(value), expected="True or False")
        return bool(value)

    def axis_of(self, node: ast.Expr | None, rank: int, what: str, default: int | None = None) -> int:
        found = self.axes_of(node, rank, what) if node is not None else None
        if found is None:
            if default is None:
                assert node is not None
                self.error("wrong-type", node.span, what=f"the axis of {what}", found="None", expected="an integer")
            return default
        if len(found) != 1:
            assert node is not None
            self.error("wrong-arguments", node.span, function=what, what=f"works along one axis, got {len(found)}")
        return found[0]

    def axes_of(self, node: ast.Expr | None, rank: int, what: str) -> tuple[int, ...] | None:
        """The `axis` argument: None for all, else axes counted from 0."""
        value = self.static(node, f"the axis of {what}")
        if value is None or node is None:
            return None
        axes = value if isinstance(value, tuple) else (value,)
        out: list[int] = []
        for a in axes:
            if type(a) is not int:
                self.error("wrong-type", node.span, what=f"the axis of {what}", found=repr(a), expected="an integer")
            if not -rank <= a < rank:
                self.rank_error(node.span, f"the operand of {what}", rank, f"more than axis {a} needs")
            out.append(a % rank)
        if len(set(out)) != len(out):
            self.error("wrong-arguments", node.span, function=what, what=f"got the axes {axes}, one of them twice")
        return tuple(sorted(out))

    def shape(self, nodes: list[ast.Expr], what: str) -> tuple[Axis, ...]:
        """Axes for shape arguments: ints, index ranges, dims and run-time integers."""
        axes: list[Axis] = []
        for node in nodes:
            value = self.eval(node)
            for item in value.items if isinstance(value, Tuple) else (value,):
                axes.append(self.shape_axis(item, node, what, len(axes)))
        return tuple(axes)

    def shape_axis(self, value: Val, node: ast.Expr, what: str, position: int) -> Axis:
        if isinstance(value, Range):
            return value.axis
        extent = self.to_index(value, node, "an integer, a dim or an index range")
        if extent.value is not None:
            if extent.value <= 0:
                self.error("empty-tile", node.span, what=what, length=extent.value, axis=position)
            return Axis(extent.value, extent)
        if isinstance(extent, ix.Sym) and extent.name in self.dims:
            return Axis.whole(extent)
        if not self.at_least(extent, 0):
            self.require([extent], "run-assert", f"axis {position} of {what} has length {{0}}", [extent])
        return Axis(None, extent, Source("dim", str(extent), str(extent)) if extent.symbols() <= self.dims else None)
