"""The syntax tree of the language. Both frontends, `.tile` text and Python functions, make these nodes.

Nodes compare equal when they say the same thing; spans do not take part. `dump` prints a tree for people and tests,
`unparse` prints source that both readers read back to an equal tree.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

from tilelang.diagnostics import Source, Span

MAX_DEPTH = 128  # of nesting: later stages walk the tree by recursion, and Python's stack is finite


@dataclass(slots=True)
class Node:
    span: Span = field(compare=False)


class Expr(Node):
    """A node that has a value."""

    __slots__ = ()


class Stmt(Node):
    __slots__ = ()


# -- expressions ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Name(Expr):
    id: str


@dataclass(slots=True)
class Number(Expr):
    value: int | float
    text: str  # as written


@dataclass(slots=True)
class Bool(Expr):
    value: bool


@dataclass(slots=True)
class String(Expr):
    value: str


@dataclass(slots=True)
class NoneLiteral(Expr):
    pass


@dataclass(slots=True)
class Unary(Expr):
    op: str  # + - ~ not
    operand: Expr


@dataclass(slots=True)
class Binary(Expr):
    op: str  # + - * / // % ** @ & | ^ << >>
    left: Expr
    right: Expr


@dataclass(slots=True)
class Compare(Expr):
    op: str  # == != < <= > >=
    left: Expr
    right: Expr


@dataclass(slots=True)
class BoolOp(Expr):
    op: str  # and or
    values: list[Expr]


@dataclass(slots=True)
class Conditional(Expr):
    test: Expr
    then: Expr
    orelse: Expr


@dataclass(slots=True)
class Slice(Expr):
    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(slots=True)
class Subscript(Expr):
    base: Expr
    items: list[Expr]  # x[a, b] has two, x[()] none


@dataclass(slots=True)
class Keyword(Node):
    name: str
    value: Expr


@dataclass(slots=True)
class Call(Expr):
    func: Expr
    args: list[Expr]
    kwargs: list[Keyword]


@dataclass(slots=True)
class Attribute(Expr):
    base: Expr
    name: str


@dataclass(slots=True)
class TupleExpr(Expr):
    items: list[Expr]


# -- statements ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Assign(Stmt):
    target: Expr  # Name, Subscript, or TupleExpr of them
    value: Expr
    annotation: Expr | None = None


@dataclass(slots=True)
class AugAssign(Stmt):
    target: Expr  # Name or Subscript
    op: str  # as in Binary
    value: Expr


@dataclass(slots=True)
class For(Stmt):
    target: Expr  # Name or TupleExpr of Names
    iter: Expr
    body: list[Stmt]


@dataclass(slots=True)
class While(Stmt):
    test: Expr
    body: list[Stmt]


@dataclass(slots=True)
class If(Stmt):
    test: Expr
    body: list[Stmt]
    orelse: list[Stmt]  # an elif is an If alone in here


@dataclass(slots=True)
class Break(Stmt):
    pass


@dataclass(slots=True)
class Continue(Stmt):
    pass


@dataclass(slots=True)
class Pass(Stmt):
    pass


@dataclass(slots=True)
class Return(Stmt):
    value: Expr | None


@dataclass(slots=True)
class Assert(Stmt):
    test: Expr
    message: Expr | None


@dataclass(slots=True)
class ExprStmt(Stmt):
    value: Expr


# -- functions and modules -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Param(Node):
    name: str
    annotation: Expr | None
    default: Expr | None
    kind: Literal["positional", "keyword"]


@dataclass(slots=True)
class Function(Node):
    """`span` covers the definition, `name_span` its name. The docstring is in `doc` (cleaned), not in `body`."""

    name: str
    params: list[Param]
    result: Expr | None
    body: list[Stmt]
    doc: str | None
    name_span: Span = field(compare=False)


@dataclass(slots=True)
class ImportName(Node):
    name: str
    alias: str | None  # from m import name as alias


@dataclass(slots=True)
class Import(Node):
    module: str  # 'a.b' of 'from ..a.b import name'
    level: int  # the number of leading dots
    names: list[ImportName]


@dataclass(slots=True)
class Constant(Node):
    name: str
    value: Expr


@dataclass(slots=True)
class Dim(Node):
    name: str  # the variable
    symbol: str  # the dim's own name, the same in all but odd programs


@dataclass(slots=True)
class DtypeParam(Node):
    name: str
    options: list[Expr]


@dataclass(slots=True)
class Module(Node):
    source: Source = field(compare=False)
    doc: str | None = None
    imports: list[Import] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    dims: list[Dim] = field(default_factory=list)
    dtypes: list[DtypeParam] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)


_KINDS: dict[type[Node], str] = {
    Attribute: "an attribute",
    Bool: "a constant",
    Call: "a call",
    Compare: "a comparison",
    NoneLiteral: "None",
    Number: "a number",
    String: "a string",
    Subscript: "a subscript",
    TupleExpr: "a tuple",
}


def kind_of(node: Expr) -> str:
    """What an expression is, in words for a message."""
    return _KINDS.get(type(node), "an expression")


def bad_target(target: Expr, *, names_only: bool = False) -> Expr | None:
    """The part of an assignment's target that cannot be assigned to, or None. A loop variable takes only names."""
    match target:
        case Name():
            return None
        case Subscript() if not names_only:
            return None
        case TupleExpr(items=items) if items and not (names_only and any(isinstance(i, TupleExpr) for i in items)):
            return next((bad for i in items if (bad := bad_target(i, names_only=names_only)) is not None), None)
        case _:
            return target


def clean_doc(text: str) -> str | None:
    """A docstring without the indentation of its lines; None when nothing is left."""
    lines = [line.rstrip() for line in inspect.cleandoc(text).split("\n")]
    return "\n".join(lines).strip() or None


def split_doc(body: Sequence[Stmt]) -> tuple[str | None, list[Stmt]]:
    """The docstring of a body (None when it has none, or an empty one), and the statements after it."""
    doc, rest = None, list(body)
    while doc is None and rest and isinstance(rest[0], ExprStmt) and isinstance(rest[0].value, String):
        doc = clean_doc(rest.pop(0).value.value)  # pyright: ignore[reportAttributeAccessIssue]
    return doc, rest or ([Pass(body[0].span)] if doc is None and body else [])


# -- walking and printing ------------------------------------------------------------------------------------------


def children(node: Node) -> Iterator[Node]:
    """The nodes directly inside a node, in the order of the fields."""
    for f in fields(node):
        value = getattr(node, f.name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, list):
            yield from value


def walk(node: Node) -> Iterator[Node]:
    """The node and all nodes inside it, outer ones first; without recursion."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(children(node))))


def too_deep(node: Node, limit: int = MAX_DEPTH) -> Node | None:
    """A node that is nested deeper than `limit`, or None."""
    stack = [(node, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > limit:
            return node
        stack.extend((child, depth + 1) for child in children(node))
    return None


def dump(node: Node, indent: int = 0) -> str:
    """The tree as text, one node a line, its children below it by two columns."""
    pad, plain, nested = "  " * indent, [], []
    for f in fields(node):
        value = getattr(node, f.name)
        if isinstance(value, Node):
            nested.append(f"{pad}  {f.name}: {dump(value, indent + 1).lstrip()}")
        elif isinstance(value, list):
            nested += [f"{pad}  {f.name}:", *(dump(v, indent + 2) for v in value)] if value else []
        elif not isinstance(value, (Span, Source)) and value is not None:
            plain.append(f" {value!r}")
    return "\n".join([f"{pad}{type(node).__name__}{''.join(plain)}", *nested])


_LEVELS = {"if": 0, "or": 1, "and": 2, "not": 3, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "**": 12}
_COMPARE, _PRODUCT, _UNARY, _POSTFIX = 4, 10, 11, 13


def _quoted(value: str) -> str:
    text = repr(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in value else text


def _level(node: Expr) -> int:
    """How tightly an expression binds, as in Python's grammar: an operand looser than its place gets parentheses."""
    match node:
        case Conditional():
            return 0
        case BoolOp(op=op):
            return _LEVELS[op]
        case Unary(op=op):
            return _LEVELS["not"] if op == "not" else _UNARY
        case Compare():
            return _COMPARE
        case Binary(op=op):
            return _LEVELS.get(op, _PRODUCT)
        case _:
            return _POSTFIX


def _expr(node: Expr, level: int = 0) -> str:
    own = _level(node)
    text = _expr_text(node, own)
    return f"({text})" if own < level else text


def _expr_text(node: Expr, own: int) -> str:
    match node:
        case Name(id=text) | Number(text=text):
            return text
        case Bool(value=value):
            return str(value)
        case NoneLiteral():
            return "None"
        case String(value=value):
            return _quoted(value)
        case Unary(op=op, operand=operand):
            return f"{'not ' if op == 'not' else op}{_expr(operand, own)}"
        case Binary(op="**", left=left, right=right):
            return f"{_expr(left, own + 1)} ** {_expr(right, _UNARY)}"
        case Binary(op=op, left=left, right=right):
            return f"{_expr(left, own)} {op} {_expr(right, own + 1)}"
        case Compare(op=op, left=left, right=right):
            return f"{_expr(left, own + 1)} {op} {_expr(right, own + 1)}"
        case BoolOp(op=op, values=values):
            return f" {op} ".join(_expr(v, own + 1) for v in values)
        case Conditional(test=test, then=then, orelse=orelse):
            return f"{_expr(then, 1)} if {_expr(test, 1)} else {_expr(orelse)}"
        case Slice(start=start, stop=stop, step=step):
            ends = [_expr(e) if e is not None else "" for e in (start, stop, step)]
            return ":".join(ends if step is not None else ends[:2])
        case Subscript(base=base, items=items):
            lone = len(items) == 1 and isinstance(items[0], TupleExpr)
            inside = ", ".join(map(_expr, items)) + ("," if lone else "") if items else "()"
            return f"{_base(base)}[{inside}]"
        case Call(func=func, args=args, kwargs=kwargs):
            return f"{_base(func)}({', '.join([*map(_expr, args), *(f'{k.name}={_expr(k.value)}' for k in kwargs)])})"
        case Attribute(base=base, name=name):
            return f"{_base(base)}.{name}"
        case TupleExpr():
            return f"({_bare(node)})"
        case _:
            raise TypeError(f"cannot print {type(node).__name__}")


def _base(node: Expr) -> str:
    return f"({_expr(node)})" if isinstance(node, Number) else _expr(node, _POSTFIX)


def _bare(node: TupleExpr) -> str:
    """The items of a tuple without parentheses around them."""
    return ", ".join(map(_expr, node.items)) + ("," if len(node.items) == 1 else "")


def _docstring(doc: str, pad: str) -> str:
    safe = "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in doc.replace("\\", r"\\")
    )
    lines = safe.replace('"""', r"\"\"\"").split("\n")
    if lines[-1].endswith('"'):
        lines[-1] = lines[-1][:-1] + r"\""
    if len(lines) > 1 and all(line.startswith(" ") for line in lines[1:] if line):
        lines.insert(0, "")  # so that the first line takes part in finding the common indentation
    return f'{pad}"""' + "\n".join([lines[0], *(pad + line if line else "" for line in lines[1:])]) + '"""'


def _block(body: list[Stmt], pad: str) -> list[str]:
    return [line for stmt in body for line in _stmt(stmt, pad + "    ")] or [f"{pad}    pass"]


def _stmt(node: Stmt, pad: str) -> list[str]:
    match node:
        case Assign(target=target, value=value, annotation=None):
            return [f"{pad}{_top(target)} = {_top(value)}"]
        case Assign(target=target, value=value, annotation=Expr() as annotation):
            return [f"{pad}{_expr(target)}: {_expr(annotation)} = {_top(value)}"]
        case AugAssign(target=target, op=op, value=value):
            return [f"{pad}{_expr(target)} {op}= {_top(value)}"]
        case For(target=target, iter=iterable, body=body):
            return [f"{pad}for {_top(target)} in {_expr(iterable)}:", *_block(body, pad)]
        case While(test=test, body=body):
            return [f"{pad}while {_expr(test)}:", *_block(body, pad)]
        case If(test=test, body=body, orelse=orelse):
            lines = [f"{pad}if {_expr(test)}:", *_block(body, pad)]
            if len(orelse) == 1 and isinstance(orelse[0], If):
                first, *rest = _stmt(orelse[0], pad)
                return [*lines, f"{pad}el{first.lstrip()}", *rest]
            return [*lines, f"{pad}else:", *_block(orelse, pad)] if orelse else lines
        case Return(value=value):
            return [f"{pad}return {_top(value)}" if value is not None else f"{pad}return"]
        case Assert(test=test, message=message):
            return [f"{pad}assert {_expr(test)}" + (f", {_expr(message)}" if message is not None else "")]
        case ExprStmt(value=value):
            return [pad + _top(value)]
        case Break() | Continue() | Pass():
            return [pad + type(node).__name__.lower()]
        case _:
            raise TypeError(f"cannot print {type(node).__name__}")


def _top(node: Expr) -> str:
    return _bare(node) if isinstance(node, TupleExpr) and node.items else _expr(node)


def _function(node: Function) -> list[str]:
    params: list[str] = []
    for p in node.params:
        if p.kind == "keyword" and "*" not in params:
            params.append("*")
        annotation = f": {_expr(p.annotation)}" if p.annotation is not None else ""
        equals = " = " if annotation else "="
        params.append(p.name + annotation + (f"{equals}{_expr(p.default)}" if p.default is not None else ""))
    result = f" -> {_expr(node.result)}" if node.result is not None else ""
    doc = [_docstring(node.doc, "    ")] if node.doc else []
    return [
        f"def {node.name}({', '.join(params)}){result}:",
        *doc,
        *(_block(node.body, "") if node.body or not doc else []),
    ]


def _module(node: Module) -> str:
    lines = [_docstring(node.doc, "")] if node.doc else []
    items: list[Node] = [*node.imports, *node.constants, *node.dims, *node.dtypes, *node.functions]
    items.sort(key=lambda n: n.span.start)
    for item in items:
        match item:
            case Import(module=module, level=level, names=names):
                named = ", ".join(n.name + (f" as {n.alias}" if n.alias else "") for n in names)
                lines.append(f"from {'.' * level}{module} import {named}")
            case Constant(name=name, value=value):
                lines.append(f"{name} = {_expr(value)}")
            case Dim(name=name, symbol=symbol):
                lines.append(f"{name} = dims({_quoted(symbol)})")
            case DtypeParam(name=name, options=options):
                lines.append(f"{name} = dtypes({', '.join(map(_expr, options))})")
            case Function():
                lines += ["", "", *_function(item)]
            case _:
                raise TypeError(f"cannot print {type(item).__name__}")
    return "\n".join(lines).lstrip("\n") + "\n"


def unparse(node: Node) -> str:
    """The source of a node in one canonical form, which both readers read back to an equal tree."""
    match node:
        case Module():
            return _module(node)
        case Function():
            return "\n".join(_function(node)) + "\n"
        case Stmt():
            return "\n".join(_stmt(node, "")) + "\n"
        case Expr():
            return _expr(node)
        case _:
            raise TypeError(f"cannot print {type(node).__name__} alone")
