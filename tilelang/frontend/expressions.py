"""Evaluation of expressions: names, operators, subscripts, calls, choices at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tilelang.diagnostics import CompilerBug, Note, Span, TileError, nearest
from tilelang.dialects import arith, loop
from tilelang.frontend import ast
from tilelang.frontend.calls import ELSEWHERE, TABLE, BindError, Signature, bind
from tilelang.frontend.context import Failed, ast_text
from tilelang.frontend.env import LOOPS, Env, Unsupported, language_name, python_value
from tilelang.frontend.joins import Joins, NoJoin, Slot, describe, slot_of
from tilelang.frontend.shapes import Operand
from tilelang.frontend.values import (
    POISON,
    Buffer,
    Builtin,
    Const,
    DType,
    DtypeParam,
    Function,
    Index,
    Namespace,
    Num,
    Poison,
    Range,
    Tile,
    Tuple,
    TypeForm,
    Unset,
    Val,
    is_number,
    product_type,
    promote,
)  # fmt: skip
from tilelang.ir import index as ix
from tilelang.ir.core import Block, Operation, Region, Value
from tilelang.ir.types import Scalar, bool_

T = TypeVar("T")

_PURE = (ast.Name, ast.Number, ast.Bool, ast.NoneLiteral, ast.String, ast.Unary, ast.Binary, ast.Compare, ast.BoolOp, ast.Attribute)


def is_simple(node: ast.Expr) -> bool:
    """Whether evaluating the expression when it is not needed does no harm: it reads no memory and calls nothing."""
    return all(isinstance(n, _PURE) and not (isinstance(n, ast.Binary) and n.op == "@") for n in ast.walk(node))


class Expressions(Joins):
    env: Env
    scope: dict[str, Val]
    dtype_choice: dict[str, Scalar]  # dtype parameters
    static_dims: dict[str, int]  # dims made constant
    branches = 0  # run-time branches and loops around here

    def inline(self, function: Function, node: ast.Call) -> Val:
        raise NotImplementedError

    def attempt(self, node: ast.Expr) -> Val:
        """The value, POISON when there was an error."""
        try:
            return self.eval(node)
        except Failed:
            return POISON

    def eval(self, node: ast.Expr) -> Val:
        before = self.b.span
        self.b.span = node.span
        try:
            value = self._eval(node)
        except (Failed, TileError, CompilerBug, RecursionError):
            raise
        except Exception as e:
            raise CompilerBug(f"{type(e).__name__}: {e}", span=node.span, pass_name="builder") from e
        finally:
            self.b.span = before
        if isinstance(value, Poison):
            raise Failed
        return value

    def _eval(self, node: ast.Expr) -> Val:
        match node:
            case ast.Name():
                return self.name(node)
            case ast.Number(value=v) | ast.Bool(value=v) | ast.String(value=v):
                return Const(v)
            case ast.NoneLiteral():
                return Const(None)
            case ast.TupleExpr(items=items):
                return Tuple(tuple(self.eval(i) for i in items))
            case ast.Unary(op=op, operand=operand):
                return self.unary(op, self.operand_of(operand), node)
            case ast.Binary(op="@", left=left, right=right):
                return self.matmul(self.operand_of(left), self.operand_of(right), node)
            case ast.Binary(op=op, left=left, right=right):
                return self.ranged(op, left, right, node)
            case ast.Compare(op=op, left=left, right=right):
                return self.compare(op, self.operand_of(left), self.operand_of(right), node)
            case ast.BoolOp():
                return self.bool_op(node)
            case ast.Conditional():
                return self.conditional(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.call(node)
            case _:
                self.error("syntax", node.span, what="a slice stands only in a subscript")

    # -- names

    def name(self, node: ast.Name) -> Val:
        value = self.scope.get(node.id)
        if isinstance(value, Unset):
            self.error("used-before-set", node.span, [Note("it is set here, on a path that may not run", value.span)], name=node.id)
        if value is None:
            value = self.outer(node)
        return value

    def outer(self, node: ast.Name) -> Val:
        """The value of a name that no local variable has."""
        try:
            value = self.env.lookup(node.id)
        except Unsupported as e:
            self.error("wrong-type", node.span, what=f"'{node.id}'", found="not usable in a kernel", expected="a value of the language", help=str(e))
        if value is None:
            near = nearest(node.id, [*(n for n in self.scope if n.isidentifier()), *self.env.names()])
            self.error("unknown-name", node.span, help=f"did you mean {near!r}?" if near else None, name=node.id)
        return self.specialised(value, node)

    def specialised(self, value: Val, node: ast.Expr) -> Val:
        if isinstance(value, DtypeParam):
            chosen = self.dtype_choice.get(value.name)
            if chosen is None:
                help = f"use {value.name} in the type of a parameter"
                self.error("wrong-type", node.span, help=help, what=f"'{value.name}'", found="a dtype parameter that no parameter of this function has", expected="a dtype")
            return DType(chosen)
        if isinstance(value, Index) and self.static_dims:
            return self.index(value.expr.substitute(self.static_dims))
        if isinstance(value, Index):
            unknown = sorted(value.expr.symbols() - set(self.symbols))
            if unknown and self.symbols_matter:
                help = f"a dim is known in a function when a parameter has it, as in x: f32[{unknown[0]}]"
                self.error("unknown-name", node.span, help=help, name=unknown[0])
        return value

    symbols_matter = True  # False for compile-time evaluation, where dims are only symbols and nothing may be emitted

    def must_run(self) -> None:
        """What follows needs run time."""
        if not self.symbols_matter:
            span = self.b.span
            assert span is not None
            self.error("not-constant", span, what="this", value=f"'{span.text}'")

    def emit(self, op: Operation) -> Value:
        self.must_run()
        return super().emit(op)

    def value(self, e: ix.Expr) -> Value:
        self.must_run()
        return super().value(e)

    def attribute(self, node: ast.Attribute) -> Val:
        base = self.eval(node.base)
        match base, node.name:
            case Namespace(module=module, is_language=True), name:
                value = language_name(name)
                if value is not None:
                    return self.specialised(value, node)
                return self.python_attribute(module, name, node)
            case Namespace(module=module), name:
                return self.python_attribute(module, name, node)
            case Range(start=start), "start":
                return self.index(start)
            case Range(start=start, extent=extent, step=step), "stop":
                return self.index(start + extent * step)
            case Range(by=by), "by":
                return Const(by)
            case (Tile() | Buffer()), "T":
                value = base if isinstance(base, Tile) else self.whole(base, node.base)
                if value.rank != 2:
                    help = "transpose(x, axes...) takes any number of axes"
                    self.rank_error(node.span, f"the operand {ast_text(node.base)} of .T", value.rank, 2, self.origin(node.base, value), help)
                return self.transposed(value, (1, 0))
            case _:
                known = ["start", "stop", "by"] if isinstance(base, Range) else ["T"] if isinstance(base, (Tile, Buffer)) else []
                near = nearest(node.name, known)
                help = f"did you mean {near!r}?" if near else f"it has {', '.join(known)}" if known else None
                if isinstance(base, (Tile, Buffer)):
                    help = self.member_help(base, node) or help
                at = Span(node.span.source, node.base.span.end, node.span.end)
                self.error("wrong-type", at, help=help, what=ast_text(node.base), found=base.describe(), expected=f"something with '.{node.name}'")

    def member_help(self, base: Tile | Buffer, node: ast.Attribute) -> str | None:
        """What to write for a method or property that arrays have elsewhere."""
        if node.name in ("shape", "size"):
            return "its lengths are " + ", ".join(a.text for a in base.axes) if isinstance(base, Tile) else "name its dims in the declaration, x: f32[M, N], and use M and N"
        if node.name in TABLE:
            return f"functions are no methods: {node.name}({node.base.span.text}{', ...' if len(TABLE[node.name][0].names) > 1 else ''})"
        return f"write {ELSEWHERE[node.name]}" if node.name in ELSEWHERE else None

    def python_attribute(self, module: object, name: str, node: ast.Attribute) -> Val:
        found = getattr(module, name, None)
        if found is None:
            self.error("unknown-name", node.span, name=f"{node.base.span.text}.{name}")
        try:
            return self.specialised(python_value(found, name), node)
        except Unsupported as e:
            self.error("wrong-type", node.span, what=ast_text(node), found="not usable in a kernel", expected="a value of the language", help=str(e))

    # -- operators

    def ranged(self, op: str, left: ast.Expr, right: ast.Expr, node: ast.Expr) -> Val:
        """Binary operators, on index ranges too: i + s, i - s, i * c."""
        a, b = self.operand_of(left), self.operand_of(right)
        if op in ("+", "*") and isinstance(b[1], Range) and not isinstance(a[1], Range):
            a, b = b, a
        if isinstance(a[1], Range):
            r = a[1]
            if op in ("+", "-") and not isinstance(b[1], (Range, Tile)):
                shift = self.to_index(b[1], b[0])
                return Range(r.start + shift if op == "+" else r.start - shift, r.extent, r.by, r.source, r.step)
            if op == "*" and not isinstance(b[1], (Range, Tile)):
                factor = self.static_int(b[0], "the factor of an index range")
                if factor < 1:
                    self.error("wrong-type", b[0].span, what="the factor of an index range", found=str(factor), expected="1 or more")
                return Range(r.start * factor, r.extent, r.by, r.source, r.step * factor)
        for operand, value in (a, b):
            if isinstance(value, Range):
                help = f"iota({operand.span.text}) is a tile of its indices; {operand.span.text}.start is its first"
                self.wrong_type(operand, ast_text(operand), value, f"a number or a tile for '{op}'", help)
        return self.binary(op, a, b, node)

    def bool_op(self, node: ast.BoolOp) -> Val:
        """`and` / `or` on scalars; what stands right is only evaluated when it decides."""
        first = self.truth(self.eval(node.values[0]), node.values[0], node.op)
        stops = node.op == "or"
        for i, item in enumerate(node.values[1:], 1):
            if isinstance(first, bool):
                if first is stops:
                    return Const(first)
                first = self.truth(self.eval(item), item, node.op)
                continue
            if is_simple(item):
                second = self.truth(self.eval(item), item, node.op)
                if isinstance(second, bool):
                    if second is stops:
                        return Const(second)
                    continue
                first = self.emit((arith.Or if stops else arith.And).of(first, second))
                continue
            rest = item if i == len(node.values) - 1 else ast.BoolOp(Span.join(item.span, node.span), node.op, node.values[i:])

            def right(rest: ast.Expr = rest) -> list[Val]:
                truth = self.truth(self.eval(rest), rest, node.op)
                return [Const(truth) if isinstance(truth, bool) else Num(truth, bool_)]

            def decided() -> list[Val]:
                return [Const(stops)]

            branches = (decided, right) if stops else (right, decided)
            return self.branch(first, branches, [node], ["condition"], node.op)[0]
        return Const(first) if isinstance(first, bool) else Num(first, bool_)

    def conditional(self, node: ast.Conditional) -> Val:
        truth = self.truth(self.eval(node.test), node.test, "if")
        if isinstance(truth, bool):
            return self.eval(node.then if truth else node.orelse)
        if is_simple(node.then) and is_simple(node.orelse):
            a, b = self.operand_of(node.then), self.operand_of(node.orelse)
            return self.choose((node.test, Num(truth, bool_)), a, b, node)
        known = set(self.symbols)
        blocks, found = self.sides((lambda: self.operand_of(node.then)[1], lambda: self.operand_of(node.orelse)[1]))
        for k, (own, other) in enumerate((found, found[::-1])):
            if is_number(own) and isinstance(other, Tile):  # a number beside a tile is one in every element
                with self.inside(blocks[k]):
                    dtype = self.common_dtype(((node.then, own), (node.orelse, other)), node, "if")
                    found[k] = self.fill(self.number(own, dtype, node), other.axes, dtype)
        return self.joined(truth, blocks, [[found[0]], [found[1]]], [node], ["value"], "if", known)[0]

    def branch(
        self, condition: Value, make: tuple[Callable[[], list[Val]], Callable[[], list[Val]]], nodes: list[ast.Expr], names: list[str], what: str
    ) -> list[Val]:
        """A run-time if: each function builds one side and gives its values; the results are what the values are after it."""
        known = set(self.symbols)
        blocks, found = self.sides(make)
        return self.joined(condition, blocks, found, nodes, names, what, known)

    def sides(self, make: Sequence[Callable[[], T]]) -> tuple[list[Block], list[T]]:
        """The two blocks of a run-time if, and what the functions that build them give."""
        blocks: list[Block] = []
        found: list[T] = []
        facts = self.facts
        for side in make:
            self.facts = facts.copy()
            self.branches += 1
            block = Block()
            try:
                with self.inside(block):
                    found.append(side())
            finally:
                self.branches -= 1
                self.facts = facts
            blocks.append(block)
        return blocks, found

    def joined(
        self, condition: Value, blocks: list[Block], found: Sequence[list[Val]], nodes: Sequence[ast.Expr], names: Sequence[str], what: str, known: set[str]
    ) -> list[Val]:
        """Ends the blocks of a run-time if and inserts it; gives what the values of the two sides (`found`) are after it. known: symbols before it."""
        slots = [self.joined_slot(a, b, n, name, what, known) for a, b, n, name in zip(*found, nodes, names, strict=True)]
        results: list[Value] = []
        for block, values in zip(blocks, found):
            with self.inside(block):
                results = [ssa for v, slot, n in zip(values, slots, nodes, strict=True) for ssa in self.joined_value(v, slot, n)]
                self.insert(loop.Yield.of(*results))
        op = loop.If([condition], [v.type for v in results], {}, [Region([block]) for block in blocks])
        self.insert(op)
        values = list(op.results)
        return [self.slot_value(slot, values, name) for slot, name in zip(slots, names, strict=True)]

    def joined_slot(self, a: Val, b: Val, node: ast.Expr, name: str, what: str, known: set[str]) -> Slot:
        if POISON in (a, b):
            raise Failed
        x, y = slot_of(a), slot_of(b)
        if x is not None and y is not None:
            try:
                joined = self.join(x, y, node, f"'{name}'")
                if all(axis.extent.symbols() <= known for axis in joined.axes or ()):
                    return joined
            except NoJoin:
                pass
        help = "give it one type and shape on both paths"
        self.error("wrong-type", node.span, help=help, what=f"'{name}' after this '{what}'", found=f"{describe(a)} or {describe(b)}", expected="the same on both paths")

    # -- subscripts and calls

    def subscript(self, node: ast.Subscript) -> Val:
        base = self.eval(node.base)
        match base:
            case Buffer():
                if not base.is_global and any(isinstance(i, ast.NoneLiteral) for i in node.items):
                    return self.tile_subscript(self.whole(base, node.base), node)
                return self.read(self.place_in(base, node))
            case Tile():
                return self.tile_subscript(base, node)
            case Tuple(items=items):
                if len(node.items) != 1:
                    self.rank_error(node.span, "the subscript of a tuple", len(node.items), 1)
                i = self.static_int(node.items[0], "the index of a tuple")
                if not -len(items) <= i < len(items):
                    self.error("index-out-of-bounds", node.items[0].span, index=i, axis=0, what=ast_text(node.base), length=len(items))
                return items[i]
            case _:
                help = f"iota({node.base.span.text}) is a tile of its indices" if isinstance(base, Range) else None
                self.wrong_type(node.base, ast_text(node.base), base, "a tensor, a tile, a buffer or a tuple", help)

    def call(self, node: ast.Call) -> Val:
        function = self.callee(node)
        match function:
            case Builtin(name=name) if name in TABLE:
                return self.builtin(name, node)
            case Builtin(name=name) if name in LOOPS:
                self.error("wrong-arguments", node.span, help=f"for i in {name}(...):", function=name, what="makes a loop; it stands after 'in' of a for statement")
            case DType(scalar=dtype):
                return self.converted(self.operand_of(self.arguments(node, str(dtype), Signature.parse("x"))[0]), dtype, node)
            case Function():
                return self.inline(function, node)
            case TypeForm(name=name):
                help = {"int": "cast(x, i32) converts numbers", "float": "cast(x, f32) converts numbers"}.get(name, "it stands in signatures and at the top of a file")
                self.error("unknown-function", node.func.span, help=help, name=name)
            case _:
                self.wrong_type(node.func, ast_text(node.func), function, "a function")

    def callee(self, node: ast.Call) -> Val:
        if isinstance(node.func, ast.Name) and node.func.id not in self.scope:
            try:
                found = self.env.lookup(node.func.id)
            except Unsupported:
                found = POISON
            if found is None:
                own = ELSEWHERE.get(node.func.id)
                near = nearest(node.func.id, [n for n in self.env.names() if isinstance(self.known_name(n), (Builtin, Function, DType))])
                help = f"write {own}" if own else f"did you mean {near!r}?" if near else None
                self.error("unknown-function", node.func.span, help=help, name=node.func.id)
        return self.eval(node.func)

    def known_name(self, name: str) -> Val | None:
        try:
            return self.env.lookup(name)
        except Unsupported:
            return None

    def arguments(self, node: ast.Call, name: str, signature: Signature) -> list[ast.Expr]:
        try:
            bound = bind(node, name, signature)
        except BindError as e:
            self.error("wrong-arguments", e.at.span, function=name, what=str(e))
        return [bound[n] for n in signature.names]

    def builtin(self, name: str, node: ast.Call) -> Val:
        signature, method = TABLE[name]
        try:
            bound = bind(node, name, signature)
        except BindError as e:
            self.error("wrong-arguments", e.at.span, function=name, what=str(e))
        return getattr(self, method)(bound)

    def accumulated(self, current: Val, target: ast.Name, op: str, node: ast.Expr) -> Val:
        """target op= node. `acc += a @ b` adds the product into acc, when acc has the product's dtype."""
        if op == "+" and isinstance(node, ast.Binary) and node.op == "@" and isinstance(current, Tile):
            left, right = self.operand_of(node.left), self.operand_of(node.right)
            if isinstance(left[1], Tile) and isinstance(right[1], Tile) and left[1].rank == right[1].rank == current.rank >= 2:
                joined = promote(left[1].dtype, right[1].dtype)
                if joined is not None and product_type(joined) is current.dtype:
                    return self.matmul(left, right, node, (target, current))
            value = self.matmul(left, right, node)
            return self.binary(op, (target, current), (node, value), node)
        operand: Operand = (node, self.operand_of(node)[1])
        return self.binary(op, (target, current), operand, node)


