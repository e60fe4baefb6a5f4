"""The lowest layer of the typed builder: emits ops with spans, keeps what is known about indices, reports errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NoReturn

from tilelang.diagnostics import Diagnostics, Note, Span
from tilelang.dialects import arith, loop, tensor, tile
from tilelang.frontend import ast
from tilelang.frontend.values import POISON, Axis, Const, Index, Num, Tile, Val, dtype_text, limits, tensor_type, tile_type
from tilelang.ir import index as ix
from tilelang.ir.core import Block, Builder, Operation, Value
from tilelang.ir.types import Dyn, Scalar, Type, bool_, element_of, index, shape_of


class Failed(Exception):
    """An error was reported; the statement around gives its targets the poison value."""


class Context:
    """Emission, index arithmetic and errors. Expressions are evaluated by `eval`, which a higher layer defines."""

    def __init__(self, diagnostics: Diagnostics, level: str, facts: ix.Facts, block: Block) -> None:
        self.diagnostics = diagnostics
        self.level = level
        self.facts = facts
        self.b = Builder(block)
        self.ops: Any = tile if level == "tile" else tensor
        self.symbols: dict[str, Value] = {}  # what each symbol of index expressions is
        self.declared_at: dict[Value, Span] = {}  # parameters
        self.opaque: set[str] = set()  # symbols whose value may depend on anything
        self.known: list[dict[object, Any]] = [{}]  # what is emitted already, a dict an open block: values of index expressions, checks

    def eval(self, node: ast.Expr) -> Val:
        raise NotImplementedError

    # -- errors

    def error(self, slug: str, span: Span, notes: Sequence[Note] = (), help: str | None = None, **fields: object) -> NoReturn:
        self.diagnostics.error(slug, span, notes, help, **fields)
        raise Failed

    def wrong_type(self, node: ast.Node, what: str, found: Val, expected: str, help: str | None = None) -> NoReturn:
        if found is POISON:
            raise Failed
        self.error("wrong-type", node.span, help=help, what=what, found=found.describe(), expected=expected)

    def origin(self, node: ast.Expr, value: Val) -> list[Note]:
        """Where an operand comes from: "'a' is 128x32 f16, loaded here"."""
        if not isinstance(value, Tile):
            return []
        op = value.ssa.op
        verb = "declared here" if op is None else "loaded here" if op.name in ("tile.load", "tile.gather") else "made here"
        place = op.span if op is not None else self.declared_at.get(value.ssa)
        return [Note(f"{ast_text(node)} is {self.shape_text(value)}" + (f", {verb}" if place is not None else ""), place)]

    def shape_text(self, value: Tile) -> str:
        shape = "x".join(a.text for a in value.axes) or "0-d"
        return f"{shape} {dtype_text(value.dtype)}"

    def rank_error(self, span: Span, what: str, found: int, expected: object, notes: Sequence[Note] = (), help: str | None = None) -> NoReturn:
        self.error("rank-mismatch", span, notes, help, what=what, found="1 axis" if found == 1 else f"{found} axes", expected=expected)

    # -- emission

    def emit(self, op: Operation) -> Value:
        return self.b(op)

    def insert(self, op: Operation) -> None:
        self.b.insert(op)

    @contextmanager
    def at(self, span: Span | None) -> Iterator[None]:
        """Ops emitted inside get this span."""
        before = self.b.span
        self.b.span = span or before
        try:
            yield
        finally:
            self.b.span = before

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Ops emitted inside go to the end of a block of a region."""
        before = self.b
        self.b = Builder(block, span=before.span)
        self.known.append({})
        try:
            yield
        finally:
            self.known.pop()
            self.b = before

    # -- index arithmetic

    def fresh(self, hint: str, value: Value | None = None, opaque: bool = False) -> str:
        """A new symbol. Names are unique, so that facts about a symbol hold wherever it occurs."""
        name, n = hint, 0
        while name in self.symbols or name in self.opaque:
            n += 1
            name = f"{hint}_{n}"
        if value is not None:
            self.symbols[name] = value
        if opaque:
            self.opaque.add(name)
        return name

    def opaque_index(self, value: Value, hint: str = "n", least: int | None = None) -> Index:
        """An index of which nothing is known but its SSA value."""
        name = self.fresh(hint, value, opaque=True)
        if least is not None:
            self.facts.range(name, least, None)
        return Index(ix.sym(name))

    def simplify(self, e: ix.Expr) -> ix.Expr:
        """An equal, simpler expression: min and max lose arguments that the facts dominate, with divisibility taken into account."""
        e = self.facts.simplify(e)
        if isinstance(e, (ix.Min, ix.Max)):
            args = list(e.args)
            smallest = isinstance(e, ix.Min)
            for a in tuple(args):
                if any(self.at_least(a - o if smallest else o - a, 0) for o in args if o is not a):
                    args.remove(a)
            e = (ix.emin if smallest else ix.emax)(*args)
        return e

    def at_least(self, e: ix.Expr, least: int) -> bool:
        """Whether e >= least is certain."""
        if self.facts.prove_ge(e, least):
            return True
        if e.value is not None or self.facts.congruence(e)[0] < 2:
            return False
        lo, _ = self.facts.bounds(e)  # rounds to what divisibility allows
        return lo is not None and lo >= least

    def equal(self, a: ix.Expr, b: ix.Expr) -> bool:
        return a is b or self.facts.prove_eq(a, b)

    def value(self, e: ix.Expr) -> Value:
        """The SSA value of an index expression, computed here unless an enclosing block has it already."""
        for cache in reversed(self.known):
            found = cache.get(e)
            if found is not None:
                return found
        made = self._compute(e)
        self.known[-1][e] = made
        return made

    def _compute(self, e: ix.Expr) -> Value:
        if isinstance(e, ix.Const):
            return self.emit(arith.index_constant(e.number))
        if isinstance(e, ix.Sym):
            return self.symbols[e.name]
        if isinstance(e, ix.Product):
            return reduce(lambda a, b: self.emit(arith.Mul.of(a, b)), map(self.value, e.factors))
        if isinstance(e, (ix.Min, ix.Max)):
            op = arith.Min if isinstance(e, ix.Min) else arith.Max
            return reduce(lambda a, b: self.emit(op.of(a, b)), map(self.value, e.args))
        if isinstance(e, (ix.FloorDiv, ix.Mod)):
            op = arith.FloorDiv if isinstance(e, ix.FloorDiv) else arith.Mod
            return self.emit(op.of(self.value(e.num), self.value(e.den)))
        assert isinstance(e, ix.Sum)
        terms = sorted(e.terms, key=lambda term: term[1] < 0)
        total = self.value(ix.const(e.const)) if terms[0][1] < 0 else None
        for atom, k in terms:
            part = self.value(atom) if abs(k) == 1 else self.emit(arith.Mul.of(self.value(atom), self.value(ix.const(abs(k)))))
            total = part if total is None else self.emit((arith.Sub if k < 0 else arith.Add).of(total, part))
        assert total is not None
        if terms[0][1] < 0 or not e.const:
            return total
        return self.emit((arith.Add if e.const > 0 else arith.Sub).of(total, self.value(ix.const(abs(e.const)))))

    def require(self, checks: Sequence[ix.Expr], slug: str, message: str, values: Sequence[ix.Expr]) -> None:
        """Stops the kernel unless each expression is >= 0. The message shows the values at {0}, {1}, ..."""
        open_ = [e for e in checks if not any((e, slug) in cache for cache in self.known)]
        if not open_:
            return
        zero = self.value(ix.const(0))
        held = reduce(
            lambda a, b: self.emit(arith.And.of(a, b)), [self.emit(arith.Cmp.of("ge", self.value(e), zero)) for e in open_]
        )
        self.insert(loop.Assert.of(held, message, slug, [self.value(v) for v in values]))
        for e in open_:
            self.known[-1][e, slug] = True

    # -- numbers

    def constant(self, value: int | float | bool, type: Type) -> Value:
        return self.emit(arith.Constant.of(value, type))

    def number(self, value: Val, dtype: Scalar, node: ast.Node, explicit: bool = False) -> Value:
        """The SSA scalar of a number in a dtype. A literal must be one of the dtype's values, up to rounding of floats."""
        if isinstance(value, Const) and isinstance(value.value, (int, float)):
            return self.constant(self.literal(value.value, dtype, node, explicit), dtype)
        if isinstance(value, Index):
            ssa = self.value(value.expr)
            return ssa if dtype is index else self.emit(arith.Cast.of(ssa, dtype))
        if isinstance(value, Num):
            return self.cast(value.ssa, dtype)
        self.wrong_type(node, ast_text(node), value, f"a number of dtype {dtype_text(dtype)}")

    def literal(self, value: int | float | bool, dtype: Scalar, node: ast.Node, explicit: bool = False) -> int | float | bool:
        """A compile-time number as one of a dtype. Converted as a cast does when `explicit`, else refused where that would change it."""
        if dtype is bool_:
            if not isinstance(value, bool) and not explicit:
                self.wrong_type(node, ast_text(node), Const(value), "a bool", "compare it: x != 0")
            return bool(value)
        if dtype.is_float:
            try:
                return float(value)
            except OverflowError:
                return float("inf") if value > 0 else float("-inf")
        low, high = limits(dtype)
        if isinstance(value, float):
            if not explicit:
                self.wrong_type(node, ast_text(node), Const(value), f"an integer, to be {dtype_text(dtype)}", f"cast it: cast({node.span.text}, {dtype_text(dtype)})")
            return 0 if value != value else int(min(max(value, low), high)) if abs(value) != float("inf") else (high if value > 0 else low)
        if not low <= value <= high:
            if not explicit:
                self.wrong_type(node, ast_text(node), Const(value), f"a number from {low} to {high}, the range of {dtype_text(dtype)}")
            return (int(value) - low) % 2**dtype.bits + low
        return int(value)

    def cast(self, x: Value, dtype: Scalar) -> Value:
        return x if element_of(x.type) is dtype else self.emit(arith.Cast.of(x, dtype))

    def to_index(self, value: Val, node: ast.Node, what: str = "an index") -> ix.Expr:
        """A number as an index expression. Run-time integers of any dtype are accepted, floats are not."""
        match value:
            case Index(expr=e):
                return e
            case Const(value=int(n)) if not isinstance(n, bool):
                return ix.const(n)
            case Num(ssa=ssa, dtype=dtype) if dtype.is_integer:
                found = next((cache[ssa] for cache in reversed(self.known) if ssa in cache), None)
                if found is None:
                    found = self.opaque_index(self.cast(ssa, index), _symbol(node), 0 if dtype.kind == "uint" else None).expr
                    self.known[-1][ssa] = found
                return found
            case _:
                self.wrong_type(node, ast_text(node), value, what if what != "an index" else "an integer")

    # -- types

    def type_of(self, axes: tuple[Axis, ...], dtype: Scalar) -> Type:
        return tile_type(axes, dtype) if self.level == "tile" else tensor_type(axes, dtype)

    def sizes(self, axes: tuple[Axis, ...], type: Type) -> list[Value]:
        """The SSA extents of the axes that the type does not know."""
        return [self.value(a.extent) for a, d in zip(axes, shape_of(type), strict=True) if isinstance(d, Dyn)]


def ast_text(node: ast.Node) -> str:
    """An expression as the user wrote it, short enough for a message."""
    text = " ".join(node.span.text.split()) or "it"
    return f"'{text}'" if len(text) <= 40 else f"'{text[:37]}...'"



def _symbol(node: ast.Node) -> str:
    """A name for an index that is computed by an expression."""
    text = " ".join(node.span.text.split())
    return text if text.isidentifier() else f"({text})" if 0 < len(text) <= 30 else "index"
