"""Broken programs: good ones with a few mutations of their characters, tokens, lines or syntax trees."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.frontend.programs import PROGRAMS
from tests.fuzz import bodies
from tests.fuzz.programs import Writer, drawn
from tilelang.diagnostics import Diagnostics, Source
from tilelang.frontend import ast
from tilelang.frontend.text import parse_module

TOKEN = re.compile(r"\s+|#[^\n]*|[A-Za-z_]\w*|\d[\w.]*|\"[^\"\n]*\"|'[^'\n]*'|\*\*=?|//=?|<<=?|>>=?|[-+*/%@&|^<>=!]=|->|.", re.DOTALL)

WORDS = (
    "x", "i", "j", "M", "N", "out", "acc", "f32", "f16", "bf16", "i32", "u8", "i64", "bool_", "f8e4m3", "f64", "0", "1", "-1", "2.5", "1e400", "99999999999999999999",
    "None", "True", "inf", "nan", "'s'", "()", "(1, 2)", ":", "[0]", "[None]", "[:, None]", ".T", ".start", ".stop", ".by", ".shape", "+", "-", "*", "/", "//", "%", "@", "**",
    "&", "<<", "==", "<", "=", "+=", ",", "(", ")", "[", "]", "if", "else", "for", "while", "break", "continue", "return", "pass", "def", "assert", "in", "not", "and", "lambda",
    "import", "class", "grid(M)", "range(4)", "range(0, 8, 0)", "range(8, by=0)", "grid(M, by=4)", "pipelined(N, by=8)", "parallel(4)", "static_range(3)",
    "static_range(100000000)", "zeros(f32, 4)", "zeros(f32, 0)", "zeros(f32, -1)", "zeros(i8, 1000000, 1000000)", "shared(f32, 8)", "empty(f32, M)", "sum(x)", "sum(x, axis=5)",
    "max(x, 1)", "max()", "cast(x, f32)", "cast(x, i8)", "load(x[i], pad=0)", "where(x, x, x)", "atomic_add(x[0], 1)", "len(i)", "iota(i)", "reshape(x, 3, 4)", "x.T",
    "broadcast(x, 4, 4)", "gather(x, x, axis=0)", "argmax(x)", "matmul(x, x)", "gemm(x, x, x)", "copy(x, x)", "fill(x, 0)", "reinterpret(x, i32)", "tune(1, 2)", "dims('A')",
    "dtypes(f32)", "InOut[f32, M]", "Tensor[f32, M]", "tuple[f32[M]]", "f32[M, N]", "f32[M // 2]", "f32[()]", "f32[-1]", "axis=0", "by=3", "dtype=i32", "f(x)", "print(x)",
    "breakpoint()", "1 // 0", "2 ** 100", "1 << 1000", "'a' * 3", "\n", "\n    ", "\t", ";", "\\", '"""', "#", "é", "\x00", "\ufeff", "\u2028", "🙂", "~", "!", "$", "?", "`",
)  # fmt: skip

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.tile"))


@cache
def bases() -> tuple[str, ...]:
    """Small programs first, the examples last."""
    examples = [p.read_text() for p in EXAMPLES]
    head = 'M, N, K = dims("M N K")\nFloat = dtypes(f32, f16)\nBM = 8\n\n'
    return (*sorted((head + p for p in PROGRAMS.values()), key=len), *sorted(examples, key=len))


class Mutator:
    def __init__(self, below: Callable[[int], int]) -> None:
        self.below = below

    def pick(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))] if len(items) <= 39 else items[self.big(len(items))]

    def big(self, n: int) -> int:
        return (self.below(39) * 39 * 39 + self.below(39) * 39 + self.below(39)) % n if n else 0

    def base(self) -> str:
        kind = self.below(4)
        if kind >= 2:
            w = Writer(self.below)
            bodies.write(w)
            head = f'{", ".join(w.dims)} = dims("{" ".join(w.dims)}")' if w.dims else ""
            return "\n".join([head, *w.dtype_params, "", *w.helpers, *w.lines, ""])
        return self.pick(bases()[: -len(EXAMPLES)] if kind == 0 else bases()[-len(EXAMPLES) :])

    def mutate(self, text: str) -> str:
        how = self.pick((self.token, self.tree, self.tree, self.tree, self.tree, self.token, self.tree, self.line, self.character))
        return how(text)

    # -- text

    def token(self, text: str) -> str:
        tokens = TOKEN.findall(text)
        solid = [i for i, t in enumerate(tokens) if not t.isspace()]
        if not solid:
            return text
        i, j = self.pick(solid), self.pick(solid)
        kind = self.below(6)
        if kind == 0:
            del tokens[i]
        elif kind == 1:
            tokens[i] = self.pick(WORDS)
        elif kind == 2:
            tokens[i] = tokens[j]
        elif kind == 3:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        elif kind == 4:
            tokens.insert(i, self.pick(WORDS))
        else:
            tokens.insert(i, tokens[j])
        return "".join(tokens)

    def line(self, text: str) -> str:
        lines = text.split("\n")
        i, j = self.big(len(lines)), self.big(len(lines))
        kind = self.below(6)
        if kind == 0:
            del lines[i]
        elif kind == 1:
            lines.insert(j, lines[i])
        elif kind == 2:
            lines[i] = " " * self.below(6) + lines[i]
        elif kind == 3:
            lines[i] = lines[i][1 + self.below(5) :]
        elif kind == 4:
            lines[i], lines[j] = lines[j], lines[i]
        else:
            lines = lines[: i + 1]
        return "\n".join(lines)

    def character(self, text: str) -> str:
        i = self.big(len(text) + 1)
        kind = self.below(4)
        if kind == 0:
            return text[:i] + text[i + 1 :]
        if kind == 1:
            return text[:i] + chr(self.below(39) * 7 + self.below(7)) + text[i:]
        return text[:i] if kind == 2 else text[:i] + self.pick(("\x00", "\r", "\u00a0", "\udc80", "é", "(", '"', "\x0c", "]")) + text[i:]

    # -- trees

    def tree(self, text: str) -> str:
        diagnostics = Diagnostics()
        module = copy.deepcopy(parse_module(Source("base.tile", text), diagnostics))
        if not module.functions:
            return self.token(text)
        slots = [(node, f.name, k) for node in ast.walk(module) for f in fields(node) for k in _places(getattr(node, f.name))]
        kind = self.below(8)
        if kind <= 3:
            self.replace_expression(module, [s for s in slots if isinstance(_get(*s), ast.Expr)])
        elif kind <= 5:
            self.change_word(module)
        elif kind == 6:
            self.change_list([(n, f) for n, f, k in slots if isinstance(k, int)])
        else:
            self.change_statements(module)
        try:
            return ast.unparse(module)
        except (AttributeError, TypeError, ValueError, KeyError, AssertionError, IndexError):
            return self.token(text)  # a tree that no source has

    def replace_expression(self, module: ast.Module, slots: list[tuple[ast.Node, str, int | None]]) -> None:
        if len(slots) < 2:
            return
        node, name, k = self.pick(slots)
        if self.below(3) == 0:
            new: ast.Node = ast.Name(module.span, self.pick(WORDS))
        else:
            new = copy.deepcopy(_get(*self.pick(slots)))
        value = getattr(node, name)
        if k is None:
            setattr(node, name, new)
        else:
            value[k] = new

    def change_word(self, module: ast.Module) -> None:
        """Another operator, name, number or string in a node."""
        found = [(n, f.name) for n in ast.walk(module) for f in fields(n) if isinstance(getattr(n, f.name), (str, int, float)) and f.name not in ("text", "doc", "kind", "level")]
        if not found:
            return
        node, name = self.pick(found)
        value = getattr(node, name)
        if isinstance(node, ast.Number):
            node.text = self.pick(("0", "1", "3", "1000000007", "0.5", "1e39", "4294967296"))
            node.value = float(node.text) if "e" in node.text or "." in node.text else int(node.text)
        elif name == "op":
            same = ("==", "!=", "<", ">=") if isinstance(node, ast.Compare) else ("-", "~", "not") if isinstance(node, ast.Unary) else ("and", "or")
            binary = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>")
            setattr(node, name, self.pick(binary if isinstance(node, (ast.Binary, ast.AugAssign)) else same))
        elif isinstance(value, str):
            others = [getattr(n, f) for n, f in found if isinstance(getattr(n, f), str) and f != "op"]
            setattr(node, name, self.pick(others))

    def change_list(self, found: list[tuple[ast.Node, str]]) -> None:
        """One item more or less in a list: arguments, items, statements, parameters."""
        if not found:
            return
        node, name = self.pick(found)
        items = getattr(node, name)
        i = self.big(len(items))
        if self.below(2) and len(items) > 1:
            del items[i]
        else:
            items.insert(i, copy.deepcopy(items[self.big(len(items))]))

    def change_statements(self, module: ast.Module) -> None:
        blocks = [b for n in ast.walk(module) for b in (getattr(n, "body", None), getattr(n, "orelse", None)) if isinstance(b, list) and b]
        if not blocks:
            return
        block, other = self.pick(blocks), self.pick(blocks)
        i = self.big(len(block))
        kind = self.below(4)
        if kind == 0:
            block.insert(i, copy.deepcopy(other[self.big(len(other))]))
        elif kind == 1:
            block[i] = ast.While(block[i].span, ast.Name(module.span, self.pick(("x", "flag", "i < 3", "True"))), [block[i]])
        elif kind == 2:
            target, loop = self.pick(("i", "j", "q")), self.pick(("range(3)", "range(M)", "grid(M)", "parallel(4)", "(1, 2)", "range(N, by=4)", "static_range(2)"))
            block[i] = ast.For(block[i].span, ast.Name(module.span, target), ast.Name(module.span, loop), [block[i]])
        else:
            block[i] = ast.If(block[i].span, ast.Name(module.span, self.pick(("i > 2", "x", "True", "M", "nan"))), [block[i]], [])


def _places(value: Any) -> list[int | None]:
    return [None] if isinstance(value, ast.Node) else list(range(len(value))) if isinstance(value, list) else []


def _get(node: ast.Node, name: str, k: int | None) -> Any:
    value = getattr(node, name)
    return value if k is None else value[k]


@st.composite
def texts(draw: Any) -> str:
    m = Mutator(drawn(draw))
    text = m.base()
    for _ in range(m.pick((1, 1, 2, 3))):
        text = m.mutate(text)
    return text
