"""The reader of Python functions: the source of a function object -> the same syntax tree as .tile text.

The function is never executed, and its annotations are never evaluated. Spans are exact under the traps of Python's
source tools: a function's lines start at its decorator, an inner function is indented, columns count UTF-8 bytes, and
cached lines go stale when a file changes.
"""

from __future__ import annotations

import ast as py
import inspect
import linecache
import re
import tokenize
import warnings
from collections.abc import Mapping
from types import FunctionType
from typing import Any, NamedTuple

from tilelang.diagnostics import Diagnostics, Source, Span, TileError, make
from tilelang.errors import CONSTRUCTS, NOT_A_LOOP_VARIABLE, NOT_A_TARGET, TOO_DEEP, TOO_DEEP_HELP, TUPLE_UPDATE
from tilelang.frontend import ast

_BINARY: dict[type[py.operator], str] = {
    py.Add: "+", py.Sub: "-", py.Mult: "*", py.Div: "/", py.FloorDiv: "//", py.Mod: "%", py.Pow: "**", py.MatMult: "@",
    py.BitAnd: "&", py.BitOr: "|", py.BitXor: "^", py.LShift: "<<", py.RShift: ">>",
}  # fmt: skip
_UNARY: dict[type[py.unaryop], str] = {py.USub: "-", py.UAdd: "+", py.Invert: "~", py.Not: "not"}
_COMPARE: dict[type[py.cmpop], str] = {py.Eq: "==", py.NotEq: "!=", py.Lt: "<", py.LtE: "<=", py.Gt: ">", py.GtE: ">="}

# Python's nodes by name, since newer versions have more of them: which construct is refused.
_REFUSED = {
    "ClassDef": "class", "With": "with", "AsyncWith": "with", "Try": "try", "TryStar": "try", "Raise": "raise",
    "Delete": "del", "Global": "global", "Nonlocal": "global", "Match": "match", "Import": "local-import",
    "ImportFrom": "local-import", "FunctionDef": "nested-function", "AsyncFunctionDef": "async", "AsyncFor": "async",
    "TypeAlias": "type-alias", "Lambda": "lambda", "Yield": "yield", "YieldFrom": "yield", "Await": "await",
    "ListComp": "comprehension", "SetComp": "comprehension", "DictComp": "comprehension",
    "GeneratorExp": "comprehension", "JoinedStr": "f-string", "TemplateStr": "f-string", "NamedExpr": "walrus",
    "List": "list", "Dict": "dict", "Set": "dict",
}  # fmt: skip


# Constructs that bind names in another way than by assignment, or in a scope of their own.
_BINDS_ELSEWHERE = {
    "ClassDef", "FunctionDef", "AsyncFunctionDef", "Lambda", "Global", "Nonlocal", "ListComp", "SetComp", "DictComp",
    "GeneratorExp", "ExceptHandler", "Import", "ImportFrom", "Match", "TypeAlias",
}  # fmt: skip


class Read(NamedTuple):
    """A function as read: its tree, the source its spans point into, and the values of the outside names it uses."""

    function: ast.Function
    source: Source
    names: dict[str, Any]


def read_function(fn: FunctionType, scope: Mapping[str, Any] | None = None) -> Read:
    """Reads a Python function. `scope` has the local variables of the function around it, for names that only
    annotations use: Python keeps no reference to those. Raises TileError when there is no source, or when the function
    is not in the language."""
    source, tree, indented = _tree(fn)
    reader = _Reader(source, indented)
    function = reader.function(tree)
    reader.diagnostics.raise_if_errors()
    deep = ast.too_deep(function)
    if deep is not None:
        raise TileError(make("syntax", deep.span, help=TOO_DEEP_HELP, what=TOO_DEEP.format(ast.MAX_DEPTH)))
    return Read(function, source, _outside(fn, function, scope or {}))


def _outside(fn: FunctionType, function: ast.Function, scope: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    layers: list[Mapping[str, Any]] = [_cells(fn), _cells(getattr(fn, "__annotate__", None)), scope, fn.__globals__]
    for name in {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}:
        layer = next((values for values in layers if name in values), None)
        if layer is not None:
            found[name] = layer[name]
    return found


def _cells(fn: Any) -> dict[str, Any]:
    """The variables that a function has from the functions around it; those not set yet are left out."""
    if not isinstance(fn, FunctionType):
        return {}
    cells: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # an empty cell
            continue
    return cells


# -- finding the source --------------------------------------------------------------------------------------------


def _tree(fn: FunctionType) -> tuple[Source, py.FunctionDef, bool]:
    """The source of a function, Python's tree of it, and whether the tree has a line in front ('if 1:') because
    the function is indented."""
    code = fn.__code__
    path, first = code.co_filename, code.co_firstlineno
    linecache.checkcache(path)
    lines = linecache.getlines(path, fn.__globals__)
    if not lines:
        made = "it was made by exec, or in a session that keeps no source"
        raise _unavailable(fn, made if path.startswith("<") else f"{path} cannot be read")
    changed = f"{path} was changed after it was loaded"
    try:
        block = inspect.getblock(lines[first - 1 :])
    except (SyntaxError, IndexError, tokenize.TokenError) as e:
        raise _unavailable(fn, changed) from e
    text = "".join(block).replace("\r\n", "\n").replace("\r", "\n")
    source = Source(path, text, first)
    if code.co_name == "<lambda>":
        indent = len(text) - len(text.lstrip())
        what, help = CONSTRUCTS["lambda"]
        raise TileError(make("unsupported-construct", Span(source, indent, len(text.rstrip())), help=help, what=what))
    indented = text[:1] in (" ", "\t", "\f")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python has warned when it loaded the file
            body = py.parse(f"if 1:\n{text}" if indented else text).body
    except (RecursionError, MemoryError):
        raise TileError(
            make("syntax", Span(source, 0, 0), help=TOO_DEEP_HELP, what=TOO_DEEP.format(ast.MAX_DEPTH))
        ) from None
    except SyntaxError as e:
        raise _unavailable(fn, changed) from e
    if indented and body and isinstance(body[0], py.If):
        body = body[0].body
    node = body[0] if body else None
    if isinstance(node, py.AsyncFunctionDef):
        what, help = CONSTRUCTS["async"]
        span = _Reader(source, indented).span(node)
        raise TileError(make("unsupported-construct", Span(source, span.start, span.start + 5), help=help, what=what))
    if not isinstance(node, py.FunctionDef) or not _agrees(node, fn):
        raise _unavailable(fn, changed)
    if _depth(node) > ast.MAX_DEPTH + 4:
        span = _Reader(source, indented).span(node)
        raise TileError(make("syntax", span, help=TOO_DEEP_HELP, what=TOO_DEEP.format(ast.MAX_DEPTH)))
    return source, node, indented


def _unavailable(fn: FunctionType, why: str) -> TileError:
    span = Span.at(fn.__code__.co_filename, fn.__code__.co_firstlineno, 1)
    return TileError(make("source-unavailable", span, name=fn.__name__, why=why))


def _agrees(node: py.FunctionDef, fn: FunctionType) -> bool:
    """Whether the tree can be that of the function: it has the name, parameters and variables of the code."""
    code, args = fn.__code__, node.args
    positional = [p.arg for p in (*args.posonlyargs, *args.args)]
    params = positional + [p.arg for p in args.kwonlyargs]
    if node.name != code.co_name or params != list(code.co_varnames[: len(params)]):
        return False
    if (len(positional), len(params)) != (code.co_argcount, code.co_argcount + code.co_kwonlyargcount):
        return False
    inside = [n for n in py.walk(node) if n is not node]
    if any(type(n).__name__ in _BINDS_ELSEWHERE for n in inside):
        return True  # refused later, with a better message
    declared = {id(n.target) for n in inside if isinstance(n, py.AnnAssign) and n.value is None}
    names = {n.id for n in inside if isinstance(n, py.Name) and isinstance(n.ctx, py.Store) and id(n) not in declared}
    names.update(params, (a.arg for a in (args.vararg, args.kwarg) if a is not None))
    own = {n for n in (*code.co_varnames, *code.co_cellvars) if n[0] != "@"}  # pytest's assert makes variables with "@"
    return names == own


def _depth(node: py.AST) -> int:
    deepest, stack = 0, [(node, 0)]
    while stack:
        inner, depth = stack.pop()
        deepest = max(deepest, depth)
        stack.extend((child, depth + 1) for child in py.iter_child_nodes(inner))
    return deepest


# -- reading the tree ----------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, source: Source, indented: bool) -> None:
        self.source = source
        self.skipped = 1 + indented  # Python's first line that is in the source
        self.diagnostics = Diagnostics()

    def offset(self, line: int, column: int) -> int:
        """The character offset of a position of Python's tree: line from 1, column in bytes of UTF-8."""
        start = self.source.starts[line - self.skipped]
        text = self.source.line_text(line - self.skipped + self.source.first_line)
        return start + (column if text.isascii() else len(text.encode()[:column].decode(errors="replace")))

    def span(self, node: Any) -> Span:
        start = self.offset(node.lineno, node.col_offset)
        return Span(self.source, start, self.offset(node.end_lineno, node.end_col_offset))

    def unsupported(self, construct: str, span: Span) -> None:
        what, help = CONSTRUCTS[construct]
        self.diagnostics.error("unsupported-construct", span, help=help, what=what)

    def refuse(self, node: Any) -> None:
        name = type(node).__name__
        if name == "FunctionDef":
            self.unsupported("nested-function", self.name_span(node))
        else:
            self.unsupported(_REFUSED[name], self.span(node))

    # -- the function

    def name_span(self, node: py.FunctionDef) -> Span:
        start = self.offset(node.lineno, node.col_offset)
        found = re.compile(r"def(?:\s|\\\n)+(\w+)").match(self.source.text, start)
        return Span(self.source, found.start(1), found.end(1)) if found else Span(self.source, start, start)

    def function(self, node: py.FunctionDef) -> ast.Function:
        for parameter in getattr(node, "type_params", ()):
            self.unsupported("type-parameter", self.span(parameter))
        doc, body = ast.split_doc(self.block(node.body))
        result = self.expr(node.returns) if node.returns is not None else None
        params = self.parameters(node.args)
        return ast.Function(self.span(node), node.name, params, result, body, doc, self.name_span(node))

    def parameters(self, args: py.arguments) -> list[ast.Param]:
        for star in (args.vararg, args.kwarg):
            if star is not None:
                self.unsupported("star-parameter", self.span(star))
        if args.posonlyargs:
            self.unsupported("positional-only", self.span(args.posonlyargs[-1]))
        positional = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(positional) - len(args.defaults)) + args.defaults
        params = [self.parameter(a, d, False) for a, d in zip(positional, defaults, strict=True)]
        return params + [self.parameter(a, d, True) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]

    def parameter(self, arg: py.arg, default: py.expr | None, keyword: bool) -> ast.Param:
        annotation = self.expr(arg.annotation) if arg.annotation is not None else None
        value = self.expr(default) if default is not None else None
        span = self.span(arg) if value is None else Span.join(self.span(arg), value.span)
        return ast.Param(span, arg.arg, annotation, value, "keyword" if keyword else "positional")

    # -- statements

    def block(self, body: list[py.stmt]) -> list[ast.Stmt]:
        return [self.stmt(s) for s in body]

    def stmt(self, node: py.stmt) -> ast.Stmt:
        span = self.span(node)
        match node:
            case py.Assign(targets=targets, value=value):
                if len(targets) > 1:
                    self.unsupported("chained-assignment", span)
                return ast.Assign(span, self.target(targets[0]), self.expr(value))
            case py.AnnAssign(value=None):
                self.unsupported("bare-annotation", span)
                return ast.Pass(span)
            case py.AnnAssign(target=target, annotation=annotation, value=py.expr() as value):
                if not isinstance(target, py.Name):
                    self.unsupported("annotated-target", self.span(target))
                return ast.Assign(span, self.expr(target), self.expr(value), self.expr(annotation))
            case py.AugAssign(target=target, op=op, value=value):
                symbol = _BINARY[type(op)]
                if isinstance(target, py.Tuple):
                    self.syntax(self.span(target), TUPLE_UPDATE.format(symbol + "="))
                return ast.AugAssign(span, self.target(target), symbol, self.expr(value))
            case py.For(target=target, iter=iterable, body=body, orelse=orelse):
                self.no_else(orelse)
                return ast.For(span, self.target(target, loop=True), self.expr(iterable), self.block(body))
            case py.While(test=test, body=body, orelse=orelse):
                self.no_else(orelse)
                return ast.While(span, self.expr(test), self.block(body))
            case py.If(test=test, body=body, orelse=orelse):
                return ast.If(span, self.expr(test), self.block(body), self.block(orelse))
            case py.Return(value=value):
                return ast.Return(span, self.expr(value) if value is not None else None)
            case py.Assert(test=test, msg=msg):
                return ast.Assert(span, self.expr(test), self.expr(msg) if msg is not None else None)
            case py.Expr(value=value):
                return ast.ExprStmt(span, self.expr(value))
            case py.Pass():
                return ast.Pass(span)
            case py.Break():
                return ast.Break(span)
            case py.Continue():
                return ast.Continue(span)
            case _:
                self.refuse(node)
                return ast.Pass(span)

    def no_else(self, orelse: list[py.stmt]) -> None:
        if orelse:
            self.unsupported("loop-else", self.span(orelse[0]))

    def target(self, node: py.expr, loop: bool = False) -> ast.Expr:
        for inner in py.walk(node):
            if isinstance(inner, py.Starred):
                self.unsupported("star-target", self.span(inner))
                return self.poison(node)
        target = self.expr(node)
        bad = ast.bad_target(target, names_only=loop)
        if bad is not None and not isinstance(node, py.List):
            self.syntax(bad.span, (NOT_A_LOOP_VARIABLE if loop else NOT_A_TARGET).format(ast.kind_of(bad)))
        return target

    def syntax(self, span: Span, what: str) -> None:
        self.diagnostics.error("syntax", span, what=what)

    # -- expressions

    def poison(self, node: py.expr) -> ast.Expr:
        """Stands for an expression that was refused."""
        return ast.Name(self.span(node), "_")

    def expr(self, node: py.expr) -> ast.Expr:
        span = self.span(node)
        match node:
            case py.Name(id=name):
                return ast.Name(span, name)
            case py.Constant():
                return self.constant(node, span)
            case py.BinOp(left=left, op=op, right=right):
                return ast.Binary(span, _BINARY[type(op)], self.expr(left), self.expr(right))
            case py.UnaryOp(op=op, operand=operand):
                return ast.Unary(span, _UNARY[type(op)], self.expr(operand))
            case py.BoolOp(op=op, values=values):
                return ast.BoolOp(span, "and" if isinstance(op, py.And) else "or", [self.expr(v) for v in values])
            case py.Compare(left=left, ops=ops, comparators=comparators):
                return self.compare(span, left, ops, comparators)
            case py.IfExp(test=test, body=body, orelse=orelse):
                return ast.Conditional(span, self.expr(test), self.expr(body), self.expr(orelse))
            case py.Subscript(value=value, slice=py.Tuple(elts=items)):
                return ast.Subscript(span, self.expr(value), [self.expr(i) for i in items])
            case py.Subscript(value=value, slice=item):
                return ast.Subscript(span, self.expr(value), [self.expr(item)])
            case py.Slice(lower=lower, upper=upper, step=step):
                return ast.Slice(span, *(self.expr(e) if e is not None else None for e in (lower, upper, step)))
            case py.Call(func=func, args=args, keywords=keywords):
                return ast.Call(span, self.expr(func), [self.expr(a) for a in args], self.keywords(keywords))
            case py.Attribute(value=value, attr=attr):
                return ast.Attribute(span, self.expr(value), attr)
            case py.Tuple(elts=items):
                return ast.TupleExpr(span, [self.expr(i) for i in items])
            case py.Starred():
                self.unsupported("star-argument", span)
            case _:
                self.refuse(node)
        return self.poison(node)

    def keywords(self, keywords: list[py.keyword]) -> list[ast.Keyword]:
        for k in keywords:
            if k.arg is None:
                self.unsupported("star-argument", self.span(k))
        return [ast.Keyword(self.span(k), k.arg, self.expr(k.value)) for k in keywords if k.arg is not None]

    def compare(self, span: Span, left: py.expr, ops: list[py.cmpop], right: list[py.expr]) -> ast.Expr:
        if isinstance(ops[0], (py.In, py.NotIn, py.Is, py.IsNot)):
            self.unsupported("membership" if isinstance(ops[0], (py.In, py.NotIn)) else "identity", span)
            return ast.Name(span, "_")
        if len(ops) > 1:
            self.unsupported("chained-comparison", span)
        return ast.Compare(span, _COMPARE[type(ops[0])], self.expr(left), self.expr(right[0]))

    def constant(self, node: py.Constant, span: Span) -> ast.Expr:
        match node.value:
            case None:
                return ast.NoneLiteral(span)
            case bool(value):
                return ast.Bool(span, value)
            case int(value) | float(value):
                return ast.Number(span, value, span.text)
            case str(value):
                return ast.String(span, value)
            case complex():
                self.unsupported("complex", span)
            case bytes():
                self.unsupported("bytes", span)
            case _:
                self.unsupported("ellipsis", span)
        return self.poison(node)
