"""lark's reductions -> syntax tree: one method a rule of tile.lark."""

from __future__ import annotations

import ast as python_ast
import unicodedata
import warnings
from collections.abc import Callable
from typing import Any

from tilelang.diagnostics import Diagnostics, Note, Source, Span
from tilelang.errors import CONSTRUCTS, NOT_A_LOOP_VARIABLE, NOT_A_TARGET, TUPLE_UPDATE
from tilelang.frontend import ast


class _Paren:
    """An expression in parentheses: the node inside, and the extent with them, which nodes around it span."""

    __slots__ = ("node", "start", "end")

    def __init__(self, node: ast.Expr, start: int, end: int) -> None:
        self.node, self.start, self.end = node, start, end


class _Group(list[Any]):
    """Children that their parent takes apart, such as a parameter's annotation or the items of a subscript."""

    __slots__ = ("span",)

    def __init__(self, span: Span, items: list[Any]) -> None:
        super().__init__(items)
        self.span = span


def _rule(make: Callable[..., Any]) -> Callable[[TreeBuilder, list[Any]], Any]:
    """A grammar rule: `make(self, span, *children)`, where the span runs from the first child to the last."""

    def build(self: TreeBuilder, children: list[Any]) -> Any:
        span = Span(self.source, self.start_of(children[0]), self.end_of(children[-1]))
        return make(self, span, *[c.node if type(c) is _Paren else c for c in children])

    return build


class TreeBuilder:
    """Makes the tree bottom-up while lark reduces, one method a rule of the grammar, so depth costs no recursion."""

    source: Source
    base: int
    limit: int
    diagnostics: Diagnostics

    def start_of(self, child: Any) -> int:
        if isinstance(child, (ast.Node, _Group)):
            return child.span.start
        return child.start if isinstance(child, _Paren) else self.base + child.start_pos

    def end_of(self, child: Any) -> int:
        if isinstance(child, (ast.Node, _Group)):
            return child.span.end
        return child.end if isinstance(child, _Paren) else min(self.base + child.end_pos, self.limit)

    def span_of(self, token: Any) -> Span:
        return Span(self.source, self.start_of(token), self.end_of(token))

    def unsupported(self, construct: str, span: Span) -> None:
        what, help = CONSTRUCTS[construct]
        self.diagnostics.error("unsupported-construct", span, help=help, what=what)

    def syntax(self, span: Span, what: str, help: str | None = None) -> None:
        self.diagnostics.error("syntax", span, help=help, what=what)

    def start(self, children: list[Any]) -> list[Any]:
        return children

    # -- statements

    @_rule
    def expression(self, span: Span, value: ast.Expr) -> ast.Stmt:
        return ast.ExprStmt(span, value)

    @_rule
    def assign(self, span: Span, target: ast.Expr, *values: Any) -> ast.Stmt:
        exprs = [v for v in values if isinstance(v, ast.Expr)]
        if len(exprs) > 1:
            self.unsupported("chained-assignment", span)
        self.check_target(target)
        return ast.Assign(span, target, exprs[-1])

    @_rule
    def annotated(self, span: Span, target: ast.Expr, annotation: ast.Expr, value: ast.Expr) -> ast.Stmt:
        if not isinstance(target, ast.Name):
            self.unsupported("annotated-target", target.span)
        return ast.Assign(span, target, value, annotation)

    @_rule
    def declaration(self, span: Span, target: ast.Expr, annotation: ast.Expr) -> ast.Stmt:
        self.unsupported("bare-annotation", span)
        return ast.Pass(span)

    @_rule
    def augmented(self, span: Span, target: ast.Expr, op: str, value: ast.Expr) -> ast.Stmt:
        if isinstance(target, ast.TupleExpr):
            self.syntax(target.span, TUPLE_UPDATE.format(str(op)))
        else:
            self.check_target(target)
        return ast.AugAssign(span, target, op[:-1], value)

    def check_target(self, target: ast.Expr) -> None:
        bad = ast.bad_target(target)
        if bad is not None:
            help = "a comparison is written '=='" if isinstance(bad, (ast.Call, ast.Binary)) else None
            self.syntax(bad.span, NOT_A_TARGET.format(ast.kind_of(bad)), help)

    @_rule
    def return_(self, span: Span, _: Any, value: ast.Expr | None = None) -> ast.Stmt:
        return ast.Return(span, value)

    @_rule
    def pass_(self, span: Span, _: Any) -> ast.Stmt:
        return ast.Pass(span)

    @_rule
    def break_(self, span: Span, _: Any) -> ast.Stmt:
        return ast.Break(span)

    @_rule
    def continue_(self, span: Span, _: Any) -> ast.Stmt:
        return ast.Continue(span)

    @_rule
    def assert_(
        self, span: Span, _: Any, test: ast.Expr, comma: Any = None, message: ast.Expr | None = None
    ) -> ast.Stmt:
        return ast.Assert(span, test, message)

    @_rule
    def from_(self, span: Span, *children: Any) -> ast.Import:
        *path, _, names = children[1:]
        level = next((i for i, t in enumerate(path) if t != "."), len(path))
        return ast.Import(span, "".join(_name(t) for t in path[level:]), level, list(names))

    @_rule
    def import_names(self, span: Span, *children: Any) -> _Group:
        return _Group(span, [c for c in children if isinstance(c, ast.ImportName)])

    @_rule
    def import_name(self, span: Span, name: str, _: Any = None, alias: str | None = None) -> ast.ImportName:
        return ast.ImportName(span, _name(name), _name(alias) if alias else None)

    # -- functions and blocks

    @_rule
    def function(self, span: Span, keyword: Any, name: Any, *rest: Any) -> ast.Function:
        params = next((c for c in rest if isinstance(c, _Group)), None)
        result = next((c for c in rest if isinstance(c, ast.Expr)), None)
        doc, body = ast.split_doc(rest[-1])
        found = self.parameters(params) if params is not None and params is not rest[-1] else []
        return ast.Function(span, _name(name), found, result, body, doc, self.span_of(name))

    def params(self, children: list[Any]) -> _Group:
        return _Group(Span(self.source, self.start_of(children[0]), self.end_of(children[-1])), children)

    def parameters(self, group: _Group) -> list[ast.Param]:
        params: list[ast.Param] = []
        kind, star, defaulted = "positional", None, False
        for item in group:
            if not isinstance(item, ast.Param):
                if star is not None:
                    self.syntax(item.span, "expected one '*' in a parameter list, found a second")
                kind, star = "keyword", item
                continue
            item.kind = kind
            previous = next((p for p in params if p.name == item.name), None)
            if previous is not None:
                note = Note("it is first declared here", previous.span)
                self.diagnostics.error("redefinition", item.span, [note], name=item.name, previous="a parameter")
            if kind == "positional" and defaulted and item.default is None:
                self.syntax(item.span, f"expected a default for {item.name!r}, since a parameter before it has one")
            defaulted = defaulted or item.default is not None
            params.append(item)
        if star is not None and not any(p.kind == "keyword" for p in params):
            self.syntax(star.span, "expected a parameter after '*', found the end of the list")
        return params

    def star(self, children: list[Any]) -> _Group:
        return _Group(self.span_of(children[0]), [])

    @_rule
    def param(self, span: Span, name: str, *rest: _Group) -> ast.Param:
        parts: dict[str, Any] = {part[0]: part[1] for part in rest}
        return ast.Param(span, _name(name), parts.get("annotation"), parts.get("default"), "positional")

    @_rule
    def annotation(self, span: Span, value: ast.Expr) -> _Group:
        return _Group(span, ["annotation", value])

    @_rule
    def default(self, span: Span, value: ast.Expr) -> _Group:
        return _Group(span, ["default", value])

    def block(self, children: list[Any]) -> _Group:
        statements = [c for c in children if isinstance(c, ast.Node)]
        span = Span(self.source, statements[0].span.start, statements[-1].span.end)
        kept: list[ast.Stmt] = []
        for s in statements:
            if isinstance(s, ast.Stmt):
                kept.append(s)
            elif isinstance(s, ast.Function):
                self.unsupported("nested-function", s.name_span)
            else:
                self.unsupported("local-import", s.span)
        return _Group(span, kept)

    @_rule
    def if_(self, span: Span, _if: Any, test: ast.Expr, _colon: Any, body: _Group, *rest: Any) -> ast.Stmt:
        orelse: list[ast.Stmt] = []
        for part in reversed(rest):
            if isinstance(part, ast.If):
                part.orelse, part.span = orelse, Span(self.source, part.span.start, span.end)
                orelse = [part]
            else:
                orelse = list(part)
        return ast.If(span, test, list(body), orelse)

    @_rule
    def elif_(self, span: Span, _elif: Any, test: ast.Expr, _colon: Any, body: _Group) -> ast.Stmt:
        return ast.If(span, test, list(body), [])

    @_rule
    def else_(self, span: Span, body: _Group) -> _Group:
        return body

    @_rule
    def for_(self, span: Span, _for: Any, target: Any, _in: Any, iterable: Any, _colon: Any, body: _Group) -> ast.Stmt:
        bad = ast.bad_target(target, names_only=True)
        if bad is not None:
            self.syntax(bad.span, NOT_A_LOOP_VARIABLE.format(ast.kind_of(bad)))
        return ast.For(span, target, iterable, list(body))

    @_rule
    def while_(self, span: Span, _while: Any, test: ast.Expr, _colon: Any, body: _Group) -> ast.Stmt:
        return ast.While(span, test, list(body))

    # -- expressions

    @_rule
    def bare_tuple(self, span: Span, *children: Any) -> ast.Expr:
        return ast.TupleExpr(span, [c for c in children if isinstance(c, ast.Expr)])

    tuple_ = bare_tuple

    @_rule
    def conditional(self, span: Span, then: ast.Expr, test: ast.Expr, orelse: ast.Expr) -> ast.Expr:
        return ast.Conditional(span, test, then, orelse)

    @_rule
    def or_(self, span: Span, *values: ast.Expr) -> ast.Expr:
        return ast.BoolOp(span, "or", list(values))

    @_rule
    def and_(self, span: Span, *values: ast.Expr) -> ast.Expr:
        return ast.BoolOp(span, "and", list(values))

    @_rule
    def compare(self, span: Span, left: ast.Expr, op: str, right: ast.Expr, *more: Any) -> ast.Expr:
        if more:
            self.unsupported("chained-comparison", span)
        return ast.Compare(span, str(op), left, right)

    @_rule
    def binary(self, span: Span, left: ast.Expr, op: str, right: ast.Expr) -> ast.Expr:
        return ast.Binary(span, str(op), left, right)

    @_rule
    def unary(self, span: Span, op: str, operand: ast.Expr) -> ast.Expr:
        return ast.Unary(span, str(op), operand)

    @_rule
    def call(self, span: Span, func: ast.Expr, *children: Any) -> ast.Expr:
        args: list[ast.Expr] = []
        kwargs: list[ast.Keyword] = []
        for c in children:
            if isinstance(c, ast.Keyword):
                if any(k.name == c.name for k in kwargs):
                    self.syntax(c.span, f"expected each argument once, found {c.name!r} a second time")
                kwargs.append(c)
            elif isinstance(c, ast.Expr):
                if kwargs:
                    self.syntax(c.span, "expected 'name=value', found a positional argument after a keyword argument")
                args.append(c)
        return ast.Call(span, func, args, kwargs)

    @_rule
    def keyword(self, span: Span, name: str, value: ast.Expr) -> ast.Keyword:
        return ast.Keyword(span, _name(name), value)

    @_rule
    def subscript(self, span: Span, base: ast.Expr, _open: Any, items: _Group, _close: Any) -> ast.Expr:
        return ast.Subscript(span, base, list(items))

    @_rule
    def items(self, span: Span, *children: Any) -> _Group:
        found = [c for c in children if isinstance(c, ast.Expr)]
        if len(children) == 1 and isinstance(found[0], ast.TupleExpr):
            found = found[0].items  # x[(a, b)] is x[a, b], as in Python
        return _Group(span, found)

    @_rule
    def slice(self, span: Span, *children: Any) -> ast.Expr:
        parts: list[ast.Expr | None] = [None]
        for c in children:
            if isinstance(c, ast.Expr):
                parts[-1] = c
            else:
                parts.append(None)
        return ast.Slice(span, parts[0], parts[1], parts[2] if len(parts) > 2 else None)

    @_rule
    def attribute(self, span: Span, base: ast.Expr, _dot: Any, name: str) -> ast.Expr:
        return ast.Attribute(span, base, _name(name))

    @_rule
    def name(self, span: Span, token: str) -> ast.Expr:
        return ast.Name(span, _name(token))

    @_rule
    def number(self, span: Span, token: str) -> ast.Expr:
        text = str(token)
        try:
            whole = text[:2].lower() in ("0x", "0b", "0o") or not any(c in ".eE" for c in text)
            return ast.Number(span, int(text, 0) if whole else float(text), text)
        except ValueError:  # Python limits the digits of an int
            self.syntax(span, f"expected a shorter number, found one of {len(text)} digits")
            return ast.Number(span, 0, "0")

    @_rule
    def string(self, span: Span, *tokens: Any) -> ast.Expr:
        return ast.String(span, "".join(self.string_value(t) for t in tokens))

    def string_value(self, token: Any) -> str:
        text = str(token)
        if "\\" not in text and "\r" not in text:
            body = text.lstrip("rRuU")
            size = 3 if body[:3] in ('"""', "'''") else 1
            return body[size:-size]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an unknown escape such as \d stays as it is
                return python_ast.literal_eval(text)
        except (SyntaxError, ValueError):
            self.syntax(
                self.span_of(token), "expected a whole escape such as '\\n', '\\x41' or '\\u00e9' after each backslash"
            )
            return ""

    @_rule
    def true(self, span: Span, _: Any) -> ast.Expr:
        return ast.Bool(span, True)

    @_rule
    def false(self, span: Span, _: Any) -> ast.Expr:
        return ast.Bool(span, False)

    @_rule
    def none(self, span: Span, _: Any) -> ast.Expr:
        return ast.NoneLiteral(span)

    def paren(self, children: list[Any]) -> _Paren:
        inner = children[1]
        node = inner.node if isinstance(inner, _Paren) else inner
        return _Paren(node, self.start_of(children[0]), self.end_of(children[-1]))


def _name(token: str) -> str:
    """A name as Python compares it."""
    return unicodedata.normalize("NFKC", str(token))
