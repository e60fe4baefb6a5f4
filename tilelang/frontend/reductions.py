"""Reductions, scans and matrix products."""

from __future__ import annotations

from functools import reduce

from tilelang.dialects import arith
from tilelang.frontend import ast
from tilelang.frontend.arguments import ArgumentReader
from tilelang.frontend.calls import Arguments, language
from tilelang.frontend.context import ast_text
from tilelang.frontend.shapes import Operand
from tilelang.frontend.values import Axis, DType, Num, Tile, Val, acc_type, dtype_text, is_f8, product_type, promote
from tilelang.ir import index as ix
from tilelang.ir.core import Value
from tilelang.ir.types import Scalar, bool_, f32, i32, i64


class Reductions(ArgumentReader):
    # -- reductions and scans

    @language("x, axis=, keepdims=, dtype=", "sum", "prod", "mean")
    def do_sum(self, a: Arguments) -> Val:
        return self.reduced(a.name, a["x"], a)

    @language("x, axis=, keepdims=", "any", "all")
    def do_any(self, a: Arguments) -> Val:
        return self.reduced(a.name, a["x"], a)

    def reduced(self, name: str, node: ast.Expr, a: Arguments) -> Val:
        x = self.tile_of(node, name)
        axes = self.axes_of(a.get("axis"), x.rank, name)
        axes = tuple(range(x.rank)) if axes is None else axes
        keep = self.flag(a.get("keepdims"), "keepdims")
        if is_f8(x.dtype):
            self.unsupported(name, x.dtype, a.node, f"cast it first: cast({node.span.text}, f32)")
        given = a.get("dtype")
        if name in ("any", "all"):
            if x.dtype is not bool_:
                zero = self.fill(self.constant(0, x.dtype), x.axes, x.dtype)
                x = Tile(self.emit(arith.Cmp.of("ne", x.ssa, zero.ssa)), bool_, x.axes)
        elif name not in ("min", "max"):
            dtype = self.dtype_of(given) if given is not None else acc_type(x.dtype)
            if name == "mean" and not dtype.is_float:
                dtype = f32
            x = self.as_dtype(x, dtype)
        kind = "sum" if name == "mean" else name
        made = self.dropped(self.emit(self.ops.Reduce.of(kind, x.ssa, axes)), x, axes, x.dtype)
        if name == "mean":
            count = reduce(lambda p, q: p * q, (x.axes[i].extent for i in axes), ix.const(1))
            number = Num(self.cast(self.value(self.simplify(count)), x.dtype), x.dtype)
            made = self.elementwise("/", ((node, made), (node, number)), x.dtype, a.node, name)
        return self.restored(made, x, axes) if keep else made

    def dropped(self, ssa: Value, x: Tile, axes: tuple[int, ...], dtype: Scalar) -> Val:
        """The result of a reduction as a value: of all axes a scalar (at tensor level a tensor of rank 0)."""
        kept = tuple(a for i, a in enumerate(x.axes) if i not in axes)
        return Tile(ssa, dtype, kept) if kept or self.level == "tensor" else Num(ssa, dtype)

    def restored(self, made: Val, x: Tile, axes: tuple[int, ...]) -> Val:
        """keepdims: reduced axes come back with length 1."""
        full = tuple(Axis.of(1) if i in axes else a for i, a in enumerate(x.axes))
        if isinstance(made, Num):
            return self.fill(made.ssa, full, made.dtype)
        assert isinstance(made, Tile)
        type = self.type_of(full, made.dtype)
        dims = tuple(i for i in range(x.rank) if i not in axes)
        return Tile(self.emit(self.ops.Broadcast.of(made.ssa, dims, self.sizes(full, type), type)), made.dtype, full)

    @language("x, axis=, dtype=", "argmax", "argmin")
    def do_argmax(self, a: Arguments) -> Val:
        name = a.name
        x = self.tile_of(a["x"], name)
        dtype = self.dtype_of(a["dtype"]) if a.get("dtype") else i32
        if dtype not in (i32, i64):
            self.wrong_type(a["dtype"], f"the dtype of {name}", DType(dtype), "i32 or i64")
        if is_f8(x.dtype) or x.dtype is bool_:
            self.unsupported(name, x.dtype, a.node, f"cast it first: cast({a['x'].span.text}, i32)")
        if a.get("axis") is None and x.rank > 1:
            total = self.simplify(reduce(lambda p, q: p * q, (axis.extent for axis in x.axes)))
            x = self.reshaped(x, (Axis(total.value, total),))
        axis = self.axis_of(a.get("axis"), x.rank, name, 0)
        if x.axes[axis].extent.value == 0:
            self.error("empty-tile", a.node.span, self.origin(a["x"], x), what=f"the operand of {name}", length=0, axis=axis)
        return self.dropped(self.emit(self.ops.ArgReduce.of(name[3:], x.ssa, axis, dtype)), x, (axis,), dtype)

    @language("x, axis, exclusive=")
    def do_cumsum(self, a: Arguments) -> Val:
        x = self.tile_of(a["x"], "cumsum")
        axis = self.axis_of(a["axis"], x.rank, "cumsum")
        if is_f8(x.dtype):
            self.unsupported("cumsum", x.dtype, a.node, f"cast it first: cast({a['x'].span.text}, f32)")
        x = self.as_dtype(x, acc_type(x.dtype))
        exclusive = self.flag(a.get("exclusive"), "exclusive")
        return Tile(self.emit(self.ops.Scan.of("sum", x.ssa, axis, exclusive)), x.dtype, x.axes)

    # -- matmul

    @language("a, b, acc=, dtype=")
    def do_matmul(self, a: Arguments) -> Val:
        acc = self.operand_of(a["acc"]) if a.get("acc") else None
        dtype = self.dtype_of(a["dtype"]) if a.get("dtype") else None
        return self.matmul(self.operand_of(a["a"]), self.operand_of(a["b"]), a.node, acc, dtype)

    def matmul(self, left: Operand, right: Operand, node: ast.Expr, acc: Operand | None = None, dtype: Scalar | None = None) -> Tile:
        """acc + left @ right over the last two axes, equal leading axes."""
        a, b = left[1], right[1]
        for operand, value in (left, right):
            if not isinstance(value, Tile):
                self.wrong_type(operand, f"the operand {ast_text(operand)} of matmul", value, "a tile" if self.level == "tile" else "a tensor")
        assert isinstance(a, Tile) and isinstance(b, Tile)
        notes = [*self.origin(*left), *self.origin(*right)]
        for operand, value in ((left[0], a), (right[0], b)):
            if value.rank < 2:
                help = f"add an axis: {operand.span.text}[None, :]"
                self.rank_error(operand.span, f"the operand {ast_text(operand)} of matmul", value.rank, "2 or more", notes, help)
        if a.rank != b.rank:
            self.rank_error(node.span, "the right operand of matmul", b.rank, a.rank, notes)
        for operand, value in ((left[0], a), (right[0], b)):
            if is_f8(value.dtype) or value.dtype is bool_:
                self.unsupported("matmul", value.dtype, node, f"cast it first: cast({operand.span.text}, f32)")
        joined = promote(a.dtype, b.dtype)
        if joined is None:
            self.error("dtype-mismatch", node.span, notes, what="matmul", left=dtype_text(a.dtype), right=dtype_text(b.dtype), suggestion="i64")
        if a.dtype.is_float != b.dtype.is_float:
            a, b = self.as_dtype(a, joined), self.as_dtype(b, joined)
        k_left, k_right = a.axes[-1], b.axes[-2]
        if k_left.length is not None and k_right.length is not None and k_left.length != k_right.length:
            help = "the last axis of the left operand and the last but one of the right must be the same"
            self.error("shape-mismatch", node.span, notes, help, what=f"matmul contracts {k_left.text} with {k_right.text}")
        operands = (left, right)
        contracted = self.meet_axes(k_left, k_right, a.rank - 1, operands, node, "matmul", stretch=False)
        lead = tuple(self.meet_axes(x, y, i, operands, node, "matmul", stretch=False) for i, (x, y) in enumerate(zip(a.axes[:-2], b.axes[:-2], strict=True)))
        rows, columns = a.axes[-2], b.axes[-1]
        axes = (*lead, rows, columns)
        if acc is None:
            dtype = dtype or product_type(joined)
            start = self.fill(self.constant(0, dtype), axes, dtype)
        else:
            start = self.accumulator(acc, axes, node, dtype)
            axes = start.axes
            rows, columns = axes[-2:]
        a = self.narrow(a, (*axes[:-2], rows, contracted))
        b = self.narrow(b, (*axes[:-2], contracted, columns))
        return Tile(self.emit(self.ops.Matmul.of(a.ssa, b.ssa, start.ssa)), start.dtype, axes)

    def accumulator(self, acc: Operand, axes: tuple[Axis, ...], node: ast.Expr, dtype: Scalar | None) -> Tile:
        value = acc[1]
        if not isinstance(value, Tile):
            self.wrong_type(acc[0], "the accumulator of matmul", value, "a tile")
        if value.rank != len(axes):
            self.rank_error(acc[0].span, "the accumulator of matmul", value.rank, len(axes), self.origin(*acc))
        met = tuple(
            self.meet_axes(x, y, i, (acc,), node, "the accumulator and the product of matmul", stretch=False) for i, (x, y) in enumerate(zip(value.axes, axes, strict=True))
        )
        value = self.narrow(value, met)
        return self.as_dtype(value, dtype) if dtype is not None else value

    def reshaped(self, x: Tile, axes: tuple[Axis, ...]) -> Tile:
        if x.fill is not None:
            return self.fill(x.fill, axes, x.dtype)
        type = self.type_of(axes, x.dtype)
        return Tile(self.emit(self.ops.Reshape.of(x.ssa, self.sizes(axes, type), type)), x.dtype, axes)
