"""Syntax tree -> source text in one canonical form."""

from __future__ import annotations

from tilelang.frontend.ast import (
    Assert,
    Assign,
    Attribute,
    AugAssign,
    Binary,
    Bool,
    BoolOp,
    Break,
    Call,
    Compare,
    Conditional,
    Constant,
    Continue,
    Dim,
    DtypeParam,
    Expr,
    ExprStmt,
    For,
    Function,
    If,
    Import,
    Module,
    Name,
    Node,
    NoneLiteral,
    Number,
    Pass,
    Return,
    Slice,
    Stmt,
    String,
    Subscript,
    TupleExpr,
    Unary,
    While,
)

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


def source(node: Node) -> str:
    """The source of a module, function, statement or expression; `ast.unparse` is its public name."""
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
