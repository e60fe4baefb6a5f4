"""Calls of the language's functions: binding of arguments, and the table of functions (see functions.py for what they do)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tilelang.diagnostics import nearest
from tilelang.frontend import ast

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function: names in order, '*name' for any number, 'name=' for one that may be left out."""

    names: tuple[str, ...]
    variadic: str | None
    required: frozenset[str]
    keyword_only: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> Signature:
        names: list[str] = []
        variadic: str | None = None
        required: set[str] = set()
        keyword_only: set[str] = set()
        for item in filter(None, (part.strip() for part in text.split(","))):
            name = item.strip("*=")
            if item.startswith("*"):
                variadic = name
                continue
            names.append(name)
            if not item.endswith("="):
                required.add(name)
            if variadic is not None:
                keyword_only.add(name)
        return cls(tuple(names), variadic, frozenset(required), frozenset(keyword_only))

    def __str__(self) -> str:
        parts = [n if n in self.required else f"{n}=..." for n in self.names if n not in self.keyword_only]
        if self.variadic:
            parts.append(f"*{self.variadic}")
        parts += [n if n in self.required else f"{n}=..." for n in self.names if n in self.keyword_only]
        return f"({', '.join(parts)})"


class Arguments:
    """The argument expressions of a call by parameter name. `node` is the call."""

    __slots__ = ("node", "name", "values", "rest")

    def __init__(self, node: ast.Call, name: str) -> None:
        self.node = node
        self.name = name  # of the function, as the language calls it
        self.values: dict[str, ast.Expr] = {}
        self.rest: list[ast.Expr] = []

    def __getitem__(self, name: str) -> ast.Expr:
        return self.values[name]

    def get(self, name: str) -> ast.Expr | None:
        return self.values.get(name)


class BindError(Exception):
    """The arguments do not fit; `at` is the place, the message says what is wrong."""

    def __init__(self, message: str, at: ast.Node) -> None:
        super().__init__(message)
        self.at = at


def bind(node: ast.Call, name: str, signature: Signature) -> Arguments:
    """Matches the arguments of a call to parameters. Raises BindError."""
    made = Arguments(node, name)
    positional = [n for n in signature.names if n not in signature.keyword_only]
    for i, arg in enumerate(node.args):
        if i < len(positional):
            made.values[positional[i]] = arg
        elif signature.variadic is not None:
            made.rest.append(arg)
        else:
            n = len(positional)
            raise BindError(f"takes {n} argument{'s' if n != 1 else ''}, {signature}, got {len(node.args)}", arg)
    for k in node.kwargs:
        if k.name not in signature.names:
            near = nearest(k.name, signature.names)
            raise BindError(f"has no argument {k.name!r}; it takes {signature}" + (f": did you mean {near!r}?" if near else ""), k)
        if k.name in made.values:
            raise BindError(f"got the argument {k.name!r} twice", k)
        made.values[k.name] = k.value
    missing = [n for n in signature.names if n in signature.required and n not in made.values]
    if missing:
        raise BindError(f"needs the argument {missing[0]!r}: it takes {signature}", node)
    return made


TABLE: dict[str, tuple[Signature, str]] = {}  # name -> parameters, method

# How this language writes what NumPy, torch and Triton have under another name: the help for a name that is none.
ELSEWHERE = {
    "maximum": "max(a, b)", "minimum": "min(a, b)", "amax": "max(x, axis=...)", "amin": "min(x, axis=...)", "pow": "x ** n", "power": "x ** n",
    "square": "x * x", "absolute": "abs(x)", "dot": "a @ b", "mm": "a @ b", "bmm": "a @ b", "einsum": "a @ b", "tensordot": "a @ b",
    "arange": "iota(n); iota(i) for the indices of a range i", "program_id": "a grid loop, whose variables tell the blocks apart: for i in grid(N, by=64):",
    "num_programs": "cdiv(N, by)", "store": "out[i, j] = value", "select": "where(condition, a, b)", "trans": "x.T", "permute": "transpose(x, axes...)",
    "swapaxes": "transpose(x, axes...)", "expand_dims": "x[:, None]", "unsqueeze": "x[:, None]", "zeros_like": "zeros(dtype, M, N)",
    "ones_like": "ones(dtype, M, N)", "empty_like": "empty(dtype, M, N)", "full_like": "full(dtype, value, M, N)", "astype": "cast(x, dtype)",
    "to": "cast(x, dtype)", "view": "reinterpret(x, dtype), or reshape(x, ...)", "softmax": "e = exp(x - max(x, axis=1, keepdims=True)), then "
    "e / sum(e, axis=1, keepdims=True)", "range_constexpr": "static_range(n)",
}  # fmt: skip


def language(parameters: str, *names: str) -> Callable[[F], F]:
    """Makes a method `do_name` the language's function `name` (or all of `names`), with these parameters."""

    def register(method: F) -> F:
        for name in names or (method.__name__.removeprefix("do_"),):
            TABLE[name] = Signature.parse(parameters), method.__name__
        return method

    return register
