"""The functions of the language, one method each; `language` gives their parameters. Each gets its call and returns a value."""

from __future__ import annotations

from functools import reduce

from tilelang.dialects import loop, mem, tile
from tilelang.frontend import ast
from tilelang.frontend.access import Entry, Place
from tilelang.frontend.arithmetic import FORMULAS, UNARY, gelu_tanh, relu
from tilelang.frontend.calls import Arguments, language
from tilelang.frontend.communication import Communication
from tilelang.frontend.context import ast_text
from tilelang.frontend.shapes import Operand
from tilelang.frontend.values import Axis, Buffer, Const, DType, Index, Num, Range, Tile, Tuple, Val, acc_type, as_index, dtype_text, is_number
from tilelang.ir import index as ix
from tilelang.ir.core import Value
from tilelang.ir.types import BufferType, Dyn, Scalar, bool_, i32

NONE = Const(None)


class Functions(Communication):
    in_block = False  # inside a grid or an element loop
    scope: dict[str, Val]  # the variables

    # -- creation

    @language("dtype, *shape")
    def do_zeros(self, a: Arguments) -> Val:
        return self.filled(a, Const(0), "zeros")

    @language("dtype, *shape")
    def do_ones(self, a: Arguments) -> Val:
        return self.filled(a, Const(1), "ones")

    @language("dtype, *shape, value")
    def do_full(self, a: Arguments) -> Val:
        return self.filled(a, self.operand_of(a["value"])[1], "full")

    def filled(self, a: Arguments, value: Val, what: str) -> Val:
        dtype = self.dtype_of(a["dtype"])
        axes = self.shape(a.rest, what)
        node = a.get("value") or a.node
        if isinstance(value, Tile):
            self.wrong_type(node, "the value of full", value, "a scalar")
        if isinstance(value, Const) and type(value.value) is int and what != "full":
            value = Const(bool(value.value)) if dtype is bool_ else value
        scalar = self.number(value, dtype, node)
        if not axes:
            return Num(scalar, dtype) if self.level == "tile" else self.fill(scalar, (), dtype)
        return self.fill(scalar, axes, dtype)

    @language("range, dtype=")
    def do_iota(self, a: Arguments) -> Val:
        dtype = self.dtype_of(a["dtype"]) if a.get("dtype") else i32
        if not dtype.is_integer:
            self.unsupported("iota", dtype, a["dtype"], f"cast it: cast(iota({a['range'].span.text}), {dtype_text(dtype)})")
        value = self.eval(a["range"])
        start, step = (value.start, value.step) if isinstance(value, Range) else (ix.const(0), 1)
        axes = (self.shape_axis(value, a["range"], "iota", 0),)
        type = self.type_of(axes, dtype)
        return Tile(self.emit(self.ops.Iota.of(self.value(start), self.sizes(axes, type), type, step)), dtype, axes)

    @language("dtype, *dims")
    def do_empty(self, a: Arguments) -> Val:
        if self.in_block:
            help = "make tensors at the top of the function; inside a block use zeros, local or shared"
            self.error("wrong-arguments", a.node.span, help=help, function="empty", what="makes a tensor for all blocks, it cannot stand inside a loop over them")
        dtype = self.dtype_of(a["dtype"])
        dims: list[Axis] = []
        for node in a.rest:
            extent = self.to_index(self.eval(node), node, "a dim or an integer")
            if extent.value is not None and extent.value < 0:
                self.error("empty-tile", node.span, what="empty", length=extent.value, axis=len(dims))
            dims.append(Axis.whole(extent))
        return self.allocate(dtype, tuple(dims), "out", "global", a.node)

    @language("*what", "shared", "accumulator", "local")
    def do_buffer(self, a: Arguments) -> Val:
        space = a.name
        if not a.rest:
            self.error("wrong-arguments", a.node.span, function=space, what="takes a dtype and a shape, or one tile")
        first = self.eval(a.rest[0])
        if isinstance(first, DType):
            axes = self.shape(a.rest[1:], space)
            if not axes:
                self.error("wrong-arguments", a.node.span, function=space, what="needs a shape after the dtype")
            return self.allocate(first.scalar, axes, space, space, a.node)
        value = self.tile_of(a.rest[0], space)
        if len(a.rest) > 1:
            self.error("wrong-arguments", a.rest[1].span, function=space, what="takes one tile, or a dtype and a shape")
        buffer = self.allocate(value.dtype, value.axes, space, space, a.node)
        self.write(self.full_place(buffer, a.node), value, a.rest[0])
        return buffer

    def allocate(self, dtype: Scalar, axes: tuple[Axis, ...], role: str, space: str, node: ast.Expr) -> Buffer:
        shape = tuple(a.dim if role != "out" else (a.extent.value if a.extent.value is not None else Dyn()) for a in axes)
        sizes = [self.value(a.extent) for a, d in zip(axes, shape, strict=True) if isinstance(d, Dyn)]
        ssa = self.emit(mem.Alloc.of(BufferType(shape, dtype, space), sizes))
        return Buffer(ssa, dtype, axes, role, "", node.span, self.grid_id)

    def full_place(self, buffer: Buffer, node: ast.Expr) -> Place:
        return Place(buffer, node, [Entry("range", node, axis=axis) for axis in buffer.axes], buffer.axes)

    # -- buffers and places

    @language("source, destination")
    def do_copy(self, a: Arguments) -> Val:
        self.copy(a["source"], a["destination"])
        return NONE

    @language("a, b, acc, transpose_a=, transpose_b=")
    def do_gemm(self, a: Arguments) -> Val:
        place = self.place(a["acc"])
        operands: list[Operand] = []
        for name in "ab":
            value = self.tile_of(a[name], "gemm")
            if self.flag(a.get(f"transpose_{name}"), f"transpose_{name}"):
                value = self.transposed(value, (*range(value.rank - 2), value.rank - 1, value.rank - 2)) if value.rank >= 2 else value
            operands.append((a[name], value))
        acc = self.read(place)
        if not isinstance(acc, Tile):
            self.wrong_type(a["acc"], "the accumulator of gemm", acc, "a buffer")
        made = self.matmul(operands[0], operands[1], a.node, (a["acc"], acc))
        self.write(place, made, a.node)
        return NONE

    @language("buffer, value")
    def do_fill(self, a: Arguments) -> Val:
        place = self.place(a["buffer"])
        value = self.operand_of(a["value"])[1]
        if isinstance(value, Tile):
            self.wrong_type(a["value"], "the value of fill", value, "a scalar")
        self.write(place, value, a["value"])
        return NONE

    @language("place, pad=")
    def do_load(self, a: Arguments) -> Val:
        pad = a.get("pad")
        place = self.place(a["place"], padded=pad is not None)
        if pad is None:
            return self.read(place)
        value = self.operand_of(pad)[1]
        if not is_number(value):
            self.wrong_type(pad, "the pad of load", value, "a scalar")
        self.check_conversion(value, place.buffer.dtype, pad, place.buffer.name)
        return self.read(place, self.number(value, place.buffer.dtype, pad))

    @language("place, value", "atomic_add", "atomic_max", "atomic_min")
    def do_atomic(self, a: Arguments) -> Val:
        kind = a.name.removeprefix("atomic_")
        self.atomic(kind, a["place"], self.operand_of(a["value"])[1], a["value"])
        return NONE

    # -- conversion

    @language("x, dtype")
    def do_cast(self, a: Arguments) -> Val:
        return self.converted(self.operand_of(a["x"]), self.dtype_of(a["dtype"]), a.node)

    @language("x, dtype")
    def do_reinterpret(self, a: Arguments) -> Val:
        return self.reinterpreted(self.operand_of(a["x"]), self.dtype_of(a["dtype"]), a.node)

    @language("dtype")
    def do_acc_type(self, a: Arguments) -> Val:
        return DType(acc_type(self.dtype_of(a["dtype"])))

    # -- elementwise

    @language("x", *UNARY)
    def do_function(self, a: Arguments) -> Val:
        return self.function(a.name, self.operand_of(a["x"]), a.node)

    @language("x", "sigmoid", "silu")
    def do_formula(self, a: Arguments) -> Val:
        name = a.name
        return self.composite(name, self.operand_of(a["x"]), a.node, FORMULAS[name])

    @language("x, approximate=")
    def do_gelu(self, a: Arguments) -> Val:
        kind = self.static(a.get("approximate"), "approximate", "none")
        if kind not in ("none", "tanh"):
            self.error("wrong-arguments", a.node.span, function="gelu", what=f'takes approximate="none" or "tanh", got {kind!r}')
        return self.composite("gelu", self.operand_of(a["x"]), a.node, gelu_tanh if kind == "tanh" else FORMULAS["gelu"])

    @language("x")
    def do_relu(self, a: Arguments) -> Val:
        x = self.operand_of(a["x"])
        if isinstance(x[1], Tile) and x[1].dtype.is_float:
            return self.composite("relu", x, a.node, relu)
        return self.extreme("max", (x, (a.node, Const(0))), a.node)

    @language("x", "isnan", "isinf")
    def do_predicate(self, a: Arguments) -> Val:
        return self.predicate(a.name, self.operand_of(a["x"]), a.node)

    @language("x, low, high")
    def do_clamp(self, a: Arguments) -> Val:
        bounded = self.extreme("max", (self.operand_of(a["x"]), self.operand_of(a["low"])), a.node)
        return self.extreme("min", ((a.node, bounded), self.operand_of(a["high"])), a.node)

    @language("condition, a, b")
    def do_where(self, a: Arguments) -> Val:
        return self.choose(self.operand_of(a["condition"]), self.operand_of(a["a"]), self.operand_of(a["b"]), a.node)

    @language("a, b, c")
    def do_fma(self, a: Arguments) -> Val:
        return self.fused([self.operand_of(a[n]) for n in "abc"], a.node)

    @language("*x, axis=, keepdims=", "min", "max")
    def do_extreme(self, a: Arguments) -> Val:
        name = a.name
        if len(a.rest) == 1:
            return self.reduced(name, a.rest[0], a)
        if not a.rest or a.get("axis") or a.get("keepdims"):
            self.error("wrong-arguments", a.node.span, function=name, what="takes one value and an axis to reduce, or several values to compare")
        return self.extreme(name, [self.operand_of(x) for x in a.rest], a.node)

    @language("a, b")
    def do_cdiv(self, a: Arguments) -> Val:
        x, y = (as_index(self.operand_of(a[n])[1]) for n in "ab")
        if x is None or y is None:
            bad = a["a"] if x is None else a["b"]
            self.wrong_type(bad, ast_text(bad), self.eval(bad), "an integer or an index")
        if y.value == 0:
            self.error("constant-error", a.node.span, what=f"{ast_text(a.node)} divides by zero")
        return self.index(-(-x // y))

    @language("x")
    def do_len(self, a: Arguments) -> Val:
        value = self.eval(a["x"])
        match value:
            case Range(extent=extent):
                return self.index(extent)
            case Tuple(items=items):
                return Const(len(items))
            case Tile(axes=axes) | Buffer(axes=axes) if axes:
                return self.index(axes[0].extent)
            case _:
                self.wrong_type(a["x"], ast_text(a["x"]), value, "an index range, a tile, a tensor or a tuple")

    # -- shape

    @language("x, *axes")
    def do_transpose(self, a: Arguments) -> Val:
        x = self.tile_of(a["x"], "transpose")
        if not a.rest:
            return self.transposed(x, tuple(reversed(range(x.rank))))
        given = [self.static(n, "an axis of transpose") for n in a.rest]
        found = [v for g in given for v in (g if isinstance(g, tuple) else (g,))]
        axes = [v % x.rank for v in found if type(v) is int and -x.rank <= v < x.rank]
        if sorted(axes) != list(range(x.rank)) or len(axes) != len(found):
            shown = ", ".join(map(str, found))
            self.error("wrong-arguments", a.node.span, self.origin(a["x"], x), function="transpose", what=f"needs each of the {x.rank} axes once, got ({shown})")
        return self.transposed(x, tuple(axes))

    @language("x, *shape")
    def do_reshape(self, a: Arguments) -> Val:
        x = self.tile_of(a["x"], "reshape")
        axes = self.shape(a.rest, "reshape")
        old, new = (self.simplify(reduce(lambda p, q: p * q, (axis.extent for axis in of), ix.const(1))) for of in (x.axes, axes))
        if old is not new and not self.equal(old, new):
            if old.value is not None and new.value is not None:
                shapes = ["x".join(axis.text for axis in of) for of in (x.axes, axes)]
                self.error("reshape-mismatch", a.node.span, self.origin(a["x"], x), old=shapes[0], new=shapes[1], old_size=old, new_size=new)
            self.require_equal(old, new, "reshape of {0} elements to {1}")
        return self.reshaped(x, axes)

    @language("x, *shape")
    def do_broadcast(self, a: Arguments) -> Val:
        operand = self.operand_of(a["x"])
        axes = self.shape(a.rest, "broadcast")
        value = operand[1]
        if not isinstance(value, Tile):
            dtype = self.common_dtype((operand,), a.node, "broadcast")
            return self.fill(self.number(value, dtype, a["x"]), axes, dtype)
        if value.rank > len(axes):
            self.rank_error(a.node.span, "broadcast", value.rank, f"at most {len(axes)}", self.origin(*operand))
        offset = len(axes) - value.rank
        for i, (own, target) in enumerate(zip(value.axes, axes[offset:], strict=True)):
            if target.is_one and not own.is_one:
                self.lengths_differ(own, target, i + offset, (operand,), a.node, "broadcast")
            self.meet_axes(own, target, i + offset, (operand,), a.node, "broadcast")
        return self.spread(value, axes)

    @language("x, axis")
    def do_expand(self, a: Arguments) -> Val:
        x = self.tile_of(a["x"], "expand")
        at = self.axis_of(a["axis"], x.rank + 1, "expand")
        axes = (*x.axes[:at], Axis.of(1), *x.axes[at:])
        type = self.type_of(axes, x.dtype)
        dims = tuple(i for i in range(len(axes)) if i != at)
        return Tile(self.emit(self.ops.Broadcast.of(x.ssa, dims, self.sizes(axes, type), type)), x.dtype, axes)

    @language("x, indices, axis")
    def do_gather(self, a: Arguments) -> Val:
        if self.level != "tile":
            self.error("wrong-arguments", a.node.span, function="gather", what="works on tiles, not on whole tensors; write a grid loop")
        x, picked = self.tile_of(a["x"], "gather"), self.tile_of(a["indices"], "gather")
        index = self.index_tile(picked, a["indices"])
        operands = ((a["x"], x), (a["indices"], picked))
        if x.rank != index.rank:
            notes = [n for o in operands for n in self.origin(*o)]
            self.rank_error(a.node.span, "the index tile of gather", index.rank, x.rank, notes)
        axis = self.axis_of(a["axis"], x.rank, "gather")
        met = [None if i == axis else self.meet_axes(p, q, i, operands, a.node, "gather", stretch=False) for i, (p, q) in enumerate(zip(x.axes, index.axes, strict=True))]
        x = self.narrow(x, tuple(m or own for m, own in zip(met, x.axes, strict=True)))
        index = self.narrow(index, tuple(m or own for m, own in zip(met, index.axes, strict=True)))
        return Tile(self.emit(tile.TakeAlong.of(x.ssa, index.ssa, axis)), x.dtype, index.axes)

    # -- debugging

    @language("*values")
    def do_print(self, a: Arguments) -> Val:
        parts: list[str | None] = []
        values: list[Value] = []
        for i, node in enumerate(a.rest):
            value = self.eval(node)
            if i:
                parts.append(" ")
            self.print_part(value, node, parts, values)
        with self.at(a.node.span):
            self.insert(loop.Print.of(_joined(parts), values))
        return NONE

    def print_part(self, value: Val, node: ast.Expr, parts: list[str | None], values: list[Value]) -> None:
        match value:
            case Const(value=v):
                parts.append(str(v))
            case DType(scalar=s):
                parts.append(dtype_text(s))
            case Tuple(items=items):
                parts.append("(")
                for i, item in enumerate(items):
                    if i:
                        parts.append(", ")
                    self.print_part(item, node, parts, values)
                parts.append(")")
            case Range(start=start, extent=extent, step=step):
                parts += ["range(", None, ", ", None, ")"]
                values += [self.value(start), self.value(start + extent * step)]
            case _:
                value = self.operand_of(node)[1] if isinstance(value, Buffer) else value
                if not isinstance(value, (Num, Tile, Index)):
                    self.wrong_type(node, ast_text(node), value, "something to print: a number, a tile or a string")
                parts.append(None)
                values.append(self.value(value.expr) if isinstance(value, Index) else value.ssa)

    @language("")
    def do_breakpoint(self, a: Arguments) -> Val:
        names: list[str] = []
        values: list[Value] = []
        for name, value in self.scope.items():
            if isinstance(value, (Num, Tile)):
                names.append(name)
                values.append(value.ssa)
            elif isinstance(value, Index):
                names.append(name)
                values.append(self.value(value.expr))
            elif isinstance(value, Range):
                names += [f"{name}.start", f"{name}.stop"]
                values += [self.value(value.start), self.value(value.start + value.extent * value.step)]
        with self.at(a.node.span):
            self.insert(loop.Breakpoint.of(tuple(names), values))
        return NONE


def _joined(parts: list[str | None]) -> tuple[str | None, ...]:
    """Texts that follow each other become one."""
    out: list[str | None] = []
    for part in parts:
        if part is not None and out and out[-1] is not None:
            out[-1] += part
        else:
            out.append(part)
    return tuple(out)
