"""The index-map algebra: symbolic expressions (tilelang.ir.expr), facts about them (tilelang.ir.facts), and index maps.

    M, i = sym("M"), sym("i")
    facts = Facts("M % 64 == 0", "0 <= i < ceildiv(M, 64)")
    facts.simplify(emin(64, M - 64*i))      # 64: no tail
    facts.bounds(M - 64*i)                  # (64, None)
    parse_map("(d0, d1) -> (d1, d0 + 1)")(4, "N")
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from tilelang.ir.expr import (
    Const,
    Expr,
    FloorDiv,
    IntLike,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Sym,
    as_expr,
    ceildiv,
    const,
    emax,
    emin,
    from_ast,
    linear_form,
    parse,
    parse_python,
    sym,
)  # fmt: skip
from tilelang.ir.facts import Bounds, Facts

__all__ = [
    "Bounds", "Const", "Expr", "Facts", "FloorDiv", "IndexMap", "IntLike", "Max", "Min", "Mod", "Product", "Sum", "Sym", "as_expr", "ceildiv", "const",
    "emax", "emin", "identity_map", "linear_form", "parse", "parse_map", "sym",
]  # fmt: skip


@dataclass(frozen=True)
class IndexMap:
    """Results as expressions of dims, and of symbols that are not dims. Printed as `(d0, d1) -> (d1, d0 + 1)`."""

    dims: tuple[str, ...]
    results: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if len(set(self.dims)) != len(self.dims):
            raise ValueError(f"a dim occurs twice in ({', '.join(self.dims)})")

    def __call__(self, *args: IntLike) -> tuple[Expr, ...]:
        """The results for these dims. ValueError unless there is one argument a dim."""
        if len(args) != len(self.dims):
            raise ValueError(f"{self} takes {len(self.dims)} indices, not {len(args)}")
        values = dict(zip(self.dims, args))
        return tuple(r.substitute(values) for r in self.results)

    def compose(self, other: IndexMap) -> IndexMap:
        """x -> self(other(x)). ValueError unless `other` has one result a dim of this map."""
        return IndexMap(other.dims, self(*other.results))

    @property
    def is_identity(self) -> bool:
        return self.results == tuple(map(sym, self.dims))

    @property
    def is_projected_permutation(self) -> bool:
        """Whether the results are some of the dims, each at most once, in any order."""
        return len(set(self.results)) == len(self.results) and all(isinstance(r, Sym) and r.name in self.dims for r in self.results)

    @property
    def is_permutation(self) -> bool:
        """Whether the results are all dims, each once, in any order."""
        return len(self.results) == len(self.dims) and self.is_projected_permutation

    def inverse(self, facts: Facts | None = None) -> IndexMap:
        """The map that takes results, where they are results of this map, back to dims. Its dims are named as here, or d0, d1, ...

        Inverts shifted, negated, scaled permutations, splits (`d // 4` with `d % 4`), and joins (`4*a + b`) when `facts` know the range of
        all but the outermost index. ValueError for other maps, and for a join that may overlap.
        """
        facts = facts or Facts()
        dims = self.dims if len(self.results) == len(self.dims) else tuple(f"d{i}" for i in range(len(self.results)))
        pieces: dict[str, list[tuple[int, Expr]]] = {d: [] for d in self.dims}  # dim -> (stride, value) that add up to it
        for dim, result in zip(dims, self.results):
            for name, stride, value in _pieces(result, sym(dim), frozenset(self.dims), facts):
                pieces[name].append((stride, value))
        inverse = IndexMap(dims, tuple(sum((v * stride for stride, v in pieces[d]), const(0)) for d in self.dims))
        back = tuple(map(facts.simplify, inverse.compose(self).results))
        if back != tuple(map(sym, self.dims)):
            raise ValueError(f"{self} has no inverse that the known facts prove")
        return inverse

    def __str__(self) -> str:
        return f"({', '.join(self.dims)}) -> ({', '.join(map(str, self.results))})"


def identity_map(*dims: str) -> IndexMap:
    """(dims) -> (dims)."""
    return IndexMap(dims, tuple(map(sym, dims)))


def parse_map(text: str) -> IndexMap:
    """Reads what str of an IndexMap prints. ValueError shows the part that is wrong."""
    left, arrow, right = text.partition("->")
    if not arrow:
        raise ValueError(f"'{text}' is not an index map; expected (dims) -> (results)")
    dims = [from_ast(node, text) for node in _elements(left)]
    if not all(isinstance(d, Sym) for d in dims):
        raise ValueError(f"'{left.strip()}' is not a list of dim names")
    return IndexMap(tuple(map(str, dims)), tuple(from_ast(node, text) for node in _elements(right)))


def _elements(text: str) -> list[ast.expr]:
    text = text.strip()
    if not (text.startswith("(") and text.endswith(")")):
        raise ValueError(f"expected a parenthesised list, not '{text}'")
    node = parse_python(text)
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _pieces(result: Expr, value: Expr, dims: frozenset[str], facts: Facts) -> Iterable[tuple[str, int, Expr]]:
    """What `result == value` says about dims: (dim, stride, expression) that contribute stride*expression to the dim."""
    inner, stride = result, 1
    if isinstance(inner, Mod):
        inner = inner.num
    if isinstance(inner, FloorDiv) and isinstance(inner.den, Const):
        inner, stride = inner.num, inner.den.number
    if isinstance(inner, Sym) and inner.name in dims:
        return [(inner.name, stride, value)]
    if stride != 1 or isinstance(result, Mod) or not result.is_affine(dims):
        raise ValueError(f"cannot invert '{result}'")
    coefficients, rest = result.linear(dims)
    strides = {d: c for d, c in coefficients.items() if c is not const(0)}
    value = value - rest
    if len(strides) == 1 and next(iter(strides.values())).value in (1, -1):
        ((d, c),) = strides.items()
        return [(d, 1, value * c)]
    # A join: the outermost index has the largest stride, which each inner index divides on.
    numbers = {d: c.value for d, c in strides.items() if c.value}
    if len(numbers) < len(strides) or any(c <= 0 for c in numbers.values()):
        raise ValueError(f"cannot invert '{result}': its strides are not positive constants")
    found: list[tuple[str, int, Expr]] = []
    for d in sorted(numbers, key=lambda d: (numbers[d], d), reverse=True):
        inner = reduce(lambda total, p: total - as_expr(sym(p[0])) * numbers[p[0]], found, result - rest)
        lo, _ = facts.bounds(inner - sym(d) * numbers[d])
        if lo is None or lo < 0 or not facts.prove_lt(inner - sym(d) * numbers[d], numbers[d]):
            raise ValueError(f"cannot invert '{result}': '{inner - sym(d) * numbers[d]}' is not known to stay in [0, {numbers[d]})")
        outer = value // numbers[d]
        previous = numbers[found[-1][0]] if found else 0  # the next larger stride
        if previous % numbers[d]:
            raise ValueError(f"cannot invert '{result}': {numbers[d]} does not divide {previous}")
        found.append((d, 1, outer % (previous // numbers[d]) if previous else outer))
    return found
