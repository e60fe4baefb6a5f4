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


def unparse(node: Node) -> str:
    """The source of a node in one canonical form, which both readers read back to an equal tree."""
    from tilelang.frontend.unparse import source

    return source(node)
