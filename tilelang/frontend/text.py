"""The reader of .tile text: source -> syntax tree, through lark's LALR parser and the grammar in tile.lark."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

from tilelang.diagnostics import Diagnostics, Note, Source, Span
from tilelang.errors import TOO_DEEP, TOO_DEEP_HELP
from tilelang.frontend import ast
from tilelang.frontend.lexical import MARGIN, Layout, Problem, explain
from tilelang.frontend.tree import TreeBuilder

_GRAMMAR = Path(__file__).with_name("tile.lark")
_LOCK = threading.Lock()  # the one parser keeps the state of a parse

# Where a file that does not parse is cut, so that each function reports its own error: at a 'def' or '@' at the left
# margin that is in no string or comment.
_CUTS = re.compile(
    r'"""(?:[^\\]|\\[\s\S])*?"""|\'\'\'(?:[^\\]|\\[\s\S])*?\'\'\'|#[^\r\n]*|(?P<cut>(?:\r\n|\r|\n)(?=def\b|@))'
)


def parse_module(source: Source, diagnostics: Diagnostics) -> ast.Module:
    """Reads a .tile file. Errors go to `diagnostics`; the module then has what could be read."""
    text = source.text
    with _LOCK:
        statements, problem = _parse(source, 0, len(text), diagnostics)
        if problem is not None:
            cuts = [m.end() for m in _CUTS.finditer(text) if m["cut"]]
            parts = [_parse(source, a, b, diagnostics) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
            statements = [s for part, _ in parts for s in part]
            for p in [p for _, p in parts if p is not None] or [problem]:
                _report(p, source, diagnostics)
    return _Assembly(source, diagnostics).module(statements)


def _parse(source: Source, start: int, end: int, diagnostics: Diagnostics) -> tuple[list[ast.Node], _Placed | None]:
    """The statements in the characters [start, end), or the syntax error there."""
    from lark.exceptions import UnexpectedToken

    parser, build, layout, spelling = _parser()
    text = f"\n{source.text[start:end]}\n"
    build.source, build.base, build.limit, build.diagnostics = source, start - MARGIN, end, diagnostics
    try:
        statements = parser.parse(text)
    except UnexpectedToken as e:
        accepts = {str(a) for a in e.accepts or ()}
        return [], _Placed(explain(e.token, accepts, layout, spelling, text), build.base, end)
    except Problem as problem:
        return [], _Placed(problem, build.base, end)
    deep = next((d for s in statements if (d := ast.too_deep(s))), None)
    if deep is not None:
        return [], _Placed(_too_deep(deep.span), 0, end)
    return statements, None


def _too_deep(span: Span) -> Problem:
    return Problem("syntax", span.start, span.end, TOO_DEEP.format(ast.MAX_DEPTH), TOO_DEEP_HELP)


class _Placed:
    """A problem, and how its offsets map to the source's."""

    def __init__(self, problem: Problem, base: int, limit: int) -> None:
        self.problem, self.base, self.limit = problem, base, limit

    def offset(self, at: int) -> int:
        return min(max(at + self.base, 0), self.limit)


def _report(placed: _Placed, source: Source, diagnostics: Diagnostics) -> None:
    p = placed.problem
    span = Span(source, placed.offset(p.start), placed.offset(p.end))
    notes = [Note(p.note[0], Span(source, placed.offset(p.note[1]), placed.offset(p.note[1] + 1)))] if p.note else []
    diagnostics.error(p.slug, span, notes, p.help, what=p.what)


@cache
def _parser() -> tuple[Any, TreeBuilder, Layout, dict[str, str]]:
    """The parser with its tree builder and layout step. Made once; its tables come from the user's cache folder."""
    from lark import Lark
    from lark.lexer import PatternStr

    grammar = _GRAMMAR.read_text(encoding="utf-8")
    build, layout = TreeBuilder(), Layout()
    parser = Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        transformer=build,
        postlex=layout,  # pyright: ignore[reportArgumentType]  (duck-typed, as lark allows)
        maybe_placeholders=False,
        propagate_positions=False,
        cache=_cache_file(grammar),
    )
    spelling = {t.name: t.pattern.value for t in parser.terminals if isinstance(t.pattern, PatternStr)}
    return parser, build, layout, spelling


def _cache_file(grammar: str) -> str | bool:
    """The file for lark's tables, one for each grammar and Python version; False when no folder can be written."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(root, "tilec")
    digest = hashlib.sha256(grammar.encode()).hexdigest()[:16]
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return False
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    return os.path.join(folder, f"grammar-{sys.version_info[0]}{sys.version_info[1]}-{digest}.pickle")


# -- the module ----------------------------------------------------------------------------------------------------


class _Assembly:
    """Sorts the statements at the top level of a file into imports, constants, dims, dtype parameters and functions."""

    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self.source, self.diagnostics = source, diagnostics
        self.names: dict[str, tuple[str, Span]] = {}

    def module(self, statements: list[ast.Node]) -> ast.Module:
        module = ast.Module(Span(self.source, 0, len(self.source.text)), self.source)
        if statements and isinstance(statements[0], ast.ExprStmt):
            module.doc, rest = ast.split_doc([statements[0]])
            statements = [*rest, *statements[1:]]
        for s in statements:
            match s:
                case ast.Function():
                    self.define(s.name, "a function", s.name_span)
                    module.functions.append(s)
                case ast.Import():
                    for n in s.names:
                        self.define(n.alias or n.name, "an import", n.span)
                    module.imports.append(s)
                case ast.Assign():
                    self.assignment(s, module)
                case ast.Pass():
                    pass  # what stands for a statement already reported
                case _:
                    allowed = "an import, a constant, dims, dtypes or a function"
                    what = f"expected {allowed} at the top level, found {_statement(s)}"
                    self.diagnostics.error("syntax", s.span, what=what, help="put it into a function")
        return module

    def define(self, name: str, kind: str, span: Span) -> None:
        if name in self.names:
            previous, place = self.names[name]
            self.diagnostics.error(
                "redefinition", span, [Note("first defined here", place)], name=name, previous=previous
            )
        else:
            self.names[name] = (kind, span)

    def assignment(self, s: ast.Assign, module: ast.Module) -> None:
        targets = s.target.items if isinstance(s.target, ast.TupleExpr) else [s.target]
        names = [t for t in targets if isinstance(t, ast.Name)]
        if len(names) < len(targets):
            bad = next(t for t in targets if not isinstance(t, ast.Name))
            self.diagnostics.error("syntax", bad.span, what="expected a name for a constant, found a place")
            return
        if s.annotation is not None:
            what = f"expected 'name = value' for a constant, found an annotation on {names[0].id!r}"
            self.diagnostics.error(
                "annotation", s.annotation.span, what=what, help="remove it: the value says the type"
            )
        match s.value:
            case ast.Call(func=ast.Name(id="dims")) as call:
                self.dims(names, call, module)
            case ast.Call(func=ast.Name(id="dtypes")) as call:
                self.dtypes(names, call, module)
            case ast.TupleExpr(items=items) if isinstance(s.target, ast.TupleExpr) and len(items) == len(names):
                for n, item in zip(names, items, strict=True):
                    self.constant(n, item, module)
            case _ if isinstance(s.target, ast.TupleExpr):
                what = f"expected {len(names)} values, one for each name"
                self.diagnostics.error("syntax", s.value.span, what=what)
            case value:
                self.constant(names[0], value, module)

    def constant(self, name: ast.Name, value: ast.Expr, module: ast.Module) -> None:
        self.define(name.id, "a constant", name.span)
        module.constants.append(ast.Constant(name.span, name.id, value))

    def dims(self, names: list[ast.Name], call: ast.Call, module: ast.Module) -> None:
        text = call.args[0] if call.args else None
        if len(call.args) != 1 or call.kwargs or not isinstance(text, ast.String):
            what = 'takes one string of names, as in M, N = dims("M N")'
            self.diagnostics.error("wrong-arguments", call.span, function="dims", what=what)
            return
        symbols = text.value.replace(",", " ").split()
        if len(symbols) != len(names):
            what = f"names {len(symbols)} dims, and {len(names)} names stand before '='"
            self.diagnostics.error("wrong-arguments", call.span, function="dims", what=what)
            return
        for name, symbol in zip(names, symbols, strict=True):
            if not symbol.isidentifier():
                what = f"needs names such as M, got {symbol!r}"
                self.diagnostics.error("wrong-arguments", text.span, function="dims", what=what)
            self.define(name.id, "a dim", name.span)
            module.dims.append(ast.Dim(name.span, name.id, symbol))

    def dtypes(self, names: list[ast.Name], call: ast.Call, module: ast.Module) -> None:
        if call.kwargs or not call.args or len(names) != 1:
            what = "takes the dtypes of one parameter, as in Float = dtypes(f32, f16)"
            self.diagnostics.error("wrong-arguments", call.span, function="dtypes", what=what)
            return
        self.define(names[0].id, "a dtype parameter", names[0].span)
        module.dtypes.append(ast.DtypeParam(names[0].span, names[0].id, call.args))


def _statement(node: ast.Node) -> str:
    words = {
        ast.For: "a loop",
        ast.While: "a loop",
        ast.If: "an 'if'",
        ast.ExprStmt: "an expression",
        ast.AugAssign: "an update",
    }
    return words.get(type(node), f"'{type(node).__name__.lower()}'")
