"""Symbolic integer expressions over named dims and indices.

An expression is immutable, interned and brought to a normal form when it is built, so that equal normal forms are the same object:
    2*i + M - 3          a sum of integer multiples of atoms; products of sums are multiplied out
    M // 64, i % 64      Python's floor division and remainder; multiples of a constant divisor are pulled out
    min(64, M - 64*i)    what all arguments share stands in front; the rest of a sum with a lone min or max moves into it
Sums and products of several min and max may have more than one normal form. `str` prints what `parse` reads. A divisor that
evaluates to zero is an error in the program, so `N*(x // N) + x % N` is `x`.
Users import from tilelang.ir.index, which adds facts about expressions and index maps.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from math import gcd
from threading import RLock
from typing import Any, ClassVar, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

IntLike: TypeAlias = "Expr | int"
Terms: TypeAlias = "dict[Expr, int]"
E = TypeVar("E", bound="Expr")

_table: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()
_lock = RLock()
_remember = lru_cache(maxsize=4096)  # passes build the same expressions again and again; keeps at most so many alive


def _make(cls: type[E], *fields: Any) -> E:
    """The one object of a class with these fields. The lock keeps two threads from making two."""
    key = (cls, *fields)
    self = _table.get(key)
    if self is None:
        with _lock:
            self = _table.get(key)
            if self is None:
                self = object.__new__(cls)
                for name, value in zip(cls.__slots__, fields):
                    setattr(self, name, value)
                _table[key] = self
    return cast(E, self)


class Expr:
    """A symbolic integer. Build it with `sym`, `const`, operators, `emin`, `emax`, `ceildiv` or `parse`; compare with `is` or `==`."""

    __slots__ = ("__weakref__", "_text", "_symbols")
    _text: str
    _symbols: frozenset[str]
    __array_ufunc__ = None  # a NumPy integer on the left leaves the operator to us

    def __add__(self, other: IntLike) -> Expr:
        return add_scaled(self, 1, as_expr(other))

    __radd__ = __add__

    def __sub__(self, other: IntLike) -> Expr:
        return add_scaled(self, -1, as_expr(other))

    def __rsub__(self, other: IntLike) -> Expr:
        return add_scaled(as_expr(other), -1, self)

    def __neg__(self) -> Expr:
        return _scale(self, -1)

    def __mul__(self, other: IntLike) -> Expr:
        return _mul(self, as_expr(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: IntLike) -> Expr:
        return _floordiv(self, as_expr(other))

    def __rfloordiv__(self, other: int) -> Expr:
        return _floordiv(const(other), self)

    def __mod__(self, other: IntLike) -> Expr:
        return _mod(self, as_expr(other))

    def __rmod__(self, other: int) -> Expr:
        return _mod(const(other), self)

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            self._text = text = self._render()
            return text

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), *(getattr(self, name) for name in self.__slots__))

    @property
    def value(self) -> int | None:
        """The integer when the expression is a constant, else None."""
        return None

    def parts(self) -> tuple[Expr, ...]:
        """The expressions directly inside this one."""
        return ()

    def symbols(self) -> frozenset[str]:
        """Names of the symbols that occur."""
        try:
            return self._symbols
        except AttributeError:
            self._symbols = frozenset[str]().union(*(p.symbols() for p in self.parts()))
            return self._symbols

    def substitute(self, values: Mapping[str, IntLike]) -> Expr:
        """Replaces symbols by expressions, all at once."""
        if self.symbols().isdisjoint(values):
            return self
        return self._rebuild(lambda e: e.substitute(values))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The integer for given symbol values. KeyError names a missing symbol; ZeroDivisionError when a divisor is zero."""
        raise NotImplementedError

    def linear(self, symbols: Iterable[str]) -> tuple[dict[str, Expr], Expr]:
        """Coefficients c and rest r with self = sum(c[s] * s) + r, both free of `symbols`. ValueError when not affine in them."""
        names = tuple(symbols)
        coefficients: dict[str, Expr] = dict.fromkeys(names, ZERO)
        rest: Expr = const(linear_form(self)[1])
        for atom, k in linear_form(self)[0]:
            inside = atom.symbols().intersection(names)
            if not inside:
                rest += atom * k
                continue
            factors = atom.factors if isinstance(atom, Product) else (atom,)
            mine = [f for f in factors if not f.symbols().isdisjoint(inside)]
            if len(mine) != 1 or not isinstance(mine[0], Sym):
                raise ValueError(f"'{self}' is not affine in {', '.join(names)}: '{atom}'")
            others = (f for f in factors if f is not mine[0])
            coefficients[mine[0].name] += reduce(_mul, others, const(k))
        return coefficients, rest

    def is_affine(self, symbols: Iterable[str]) -> bool:
        """Whether the expression is a sum of the symbols, each times something free of them, and a rest free of them."""
        try:
            self.linear(symbols)
        except ValueError:
            return False
        return True

    def coefficient(self, symbol: str) -> Expr:
        """What one symbol is multiplied by. ValueError when not affine in it."""
        return self.linear((symbol,))[0][symbol]

    def _render(self) -> str:
        raise NotImplementedError

    def _rebuild(self, f: Callable[[Expr], Expr]) -> Expr:
        return self


class Const(Expr):
    """An integer. Equals the int, too."""

    __slots__ = ("number",)
    number: int

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and other == self.number)

    def __hash__(self) -> int:
        return hash(self.number)

    def __int__(self) -> int:
        return self.number

    __index__ = __int__

    @property
    def value(self) -> int:
        return self.number

    def evaluate(self, values: Mapping[str, int]) -> int:
        return self.number

    def _render(self) -> str:
        return str(self.number)


class Sym(Expr):
    """A named integer."""

    __slots__ = ("name",)
    name: str

    def symbols(self) -> frozenset[str]:
        return frozenset((self.name,))

    def substitute(self, values: Mapping[str, IntLike]) -> Expr:
        return as_expr(values.get(self.name, self))

    def evaluate(self, values: Mapping[str, int]) -> int:
        return values[self.name]

    def _render(self) -> str:
        return self.name


class Sum(Expr):
    """Integer multiples of distinct atoms (no Sum, no Const), in the order of their text, plus a constant."""

    __slots__ = ("terms", "const")
    terms: tuple[tuple[Expr, int], ...]
    const: int

    def parts(self) -> tuple[Expr, ...]:
        return tuple(t for t, _ in self.terms)

    def evaluate(self, values: Mapping[str, int]) -> int:
        return self.const + sum(k * t.evaluate(values) for t, k in self.terms)

    def _rebuild(self, f: Callable[[Expr], Expr]) -> Expr:
        return reduce(lambda total, term: add_scaled(total, term[1], f(term[0])), self.terms, const(self.const))

    def _render(self) -> str:
        pieces = [(k < 0, _text_of_term(t, abs(k))) for t, k in sorted(self.terms, key=lambda term: term[1] < 0)]
        if self.const:
            pieces.insert(0 if self.const > 0 and pieces[0][0] else len(pieces), (self.const < 0, str(abs(self.const))))
        text = "".join(f" {'-' if negative else '+'} {piece}" for negative, piece in pieces)[1:]
        if text[0] == "+":
            return text[2:]
        first, k = self.terms[0]  # every coefficient is negative; Python reads -a // b as (-a) // b, and -min(a, b)*c as (-min(a, b))*c
        grouped = isinstance(first, _Division) or (isinstance(first, Product) and isinstance(first.factors[0], _Extreme))
        return f"-({first}){text[2 + len(str(first)) :]}" if grouped and k == -1 else "-" + text[2:]


class Product(Expr):
    """Two or more atoms multiplied, in the order of their text."""

    __slots__ = ("factors",)
    factors: tuple[Expr, ...]

    def parts(self) -> tuple[Expr, ...]:
        return self.factors

    def evaluate(self, values: Mapping[str, int]) -> int:
        return reduce(lambda total, f: total * f.evaluate(values), self.factors, 1)

    def _rebuild(self, f: Callable[[Expr], Expr]) -> Expr:
        return reduce(_mul, map(f, self.factors))

    def _render(self) -> str:
        return "*".join(map(_parenthesised, self.factors))


class _Division(Expr):
    __slots__ = ("num", "den")
    num: Expr
    den: Expr
    sign: ClassVar[str]

    def parts(self) -> tuple[Expr, ...]:
        return (self.num, self.den)

    def _rebuild(self, f: Callable[[Expr], Expr]) -> Expr:
        num, den = f(self.num), f(self.den)
        return num // den if isinstance(self, FloorDiv) else num % den

    def _render(self) -> str:
        den = f"({self.den})" if isinstance(self.den, Product) else _parenthesised(self.den)
        return f"{_parenthesised(self.num)} {self.sign} {den}"


class FloorDiv(_Division):
    """num // den, rounded down."""

    __slots__ = ("num", "den")
    sign = "//"

    def evaluate(self, values: Mapping[str, int]) -> int:
        return self.num.evaluate(values) // self.den.evaluate(values)


class Mod(_Division):
    """num % den with the sign of den, as in Python."""

    __slots__ = ("num", "den")
    sign = "%"

    def evaluate(self, values: Mapping[str, int]) -> int:
        return self.num.evaluate(values) % self.den.evaluate(values)


class _Extreme(Expr):
    __slots__ = ("args",)
    args: tuple[Expr, ...]
    pick: ClassVar[Callable[..., int]]

    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def evaluate(self, values: Mapping[str, int]) -> int:
        return type(self).pick(a.evaluate(values) for a in self.args)

    def _rebuild(self, f: Callable[[Expr], Expr]) -> Expr:
        return _extreme(type(self), map(f, self.args))

    def _render(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(map(str, self.args))})"


class Min(_Extreme):
    """The least of two or more expressions."""

    __slots__ = ("args",)
    pick = staticmethod(min)


class Max(_Extreme):
    """The greatest of two or more expressions."""

    __slots__ = ("args",)
    pick = staticmethod(max)


def const(value: int) -> Const:
    """The constant expression of an int."""
    return _CONSTANTS.get(value) or _make(Const, int(value))


def sym(name: str) -> Sym:
    """The symbol of a name, a Python identifier."""
    return _make(Sym, name)


def as_expr(value: IntLike) -> Expr:
    """An int or expression as an expression."""
    return value if isinstance(value, Expr) else const(value)


def emin(*args: IntLike) -> Expr:
    """The least argument."""
    return _extreme(Min, map(as_expr, args))


def emax(*args: IntLike) -> Expr:
    """The greatest argument."""
    return _extreme(Max, map(as_expr, args))


def ceildiv(a: IntLike, b: IntLike) -> Expr:
    """a / b rounded up, for b > 0."""
    return (as_expr(a) + as_expr(b) - 1) // b


def linear_form(e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
    """Terms (atom, coefficient) and constant of any expression."""
    if isinstance(e, Sum):
        return e.terms, e.const
    return ((), e.number) if isinstance(e, Const) else (((e, 1),), 0)


def _text_of_term(atom: Expr, k: int) -> str:
    return str(atom) if k == 1 else f"{k}*{_parenthesised(atom)}"


def _parenthesised(e: Expr) -> str:
    return f"({e})" if isinstance(e, (Sum, _Division)) or (isinstance(e, Const) and e.number < 0) else str(e)


_CONSTANTS: dict[int, Const] = {}  # these live forever; most constants are among them
_CONSTANTS.update((i, _make(Const, i)) for i in range(-32, 257))
ZERO = _CONSTANTS[0]


@_remember
def add_scaled(a: Expr, k: int, b: Expr) -> Expr:
    """a + k*b."""
    ta, ca = linear_form(a)
    tb, cb = linear_form(b)
    terms = dict(ta)
    for t, c in tb:
        terms[t] = terms.get(t, 0) + k * c
    return _sum(terms, ca + k * cb)


@_remember
def _scale(a: Expr, k: int) -> Expr:
    terms, c = linear_form(a)
    return _sum({t: q * k for t, q in terms}, c * k)


@_remember
def _mul(a: Expr, b: Expr) -> Expr:
    ta, ca = linear_form(a)
    tb, cb = linear_form(b)
    if not ta or not tb:
        return _scale(b, ca) if not ta else _scale(a, cb)
    terms: Terms = {}
    for t, q in (*ta, (None, ca)):
        for s, p in (*tb, (None, cb)):
            if q and p and (t or s):
                factors = [f for x in (t, s) if x for f in (x.factors if isinstance(x, Product) else (x,))]
                atom = _make(Product, tuple(sorted(factors, key=str))) if len(factors) > 1 else factors[0]
                terms[atom] = terms.get(atom, 0) + q * p
    return _sum(terms, ca * cb)


def _sum(terms: Terms, constant: int) -> Expr:
    """Normal form of a sum: x % c + c*(x // c) is x, x - c*(x // c) is x % c, a lone min or max takes in the rest. `terms` may hold zeros."""
    terms = {t: k for t, k in terms.items() if k}
    extremes: list[tuple[_Extreme, int]] = []
    for t, k in terms.items():
        if isinstance(t, Mod):
            whole, left = linear_form(t.den * (t.num // t.den))
            if left == 0 and all(terms.get(s) == k * q for s, q in whole):
                joined = {s: q for s, q in terms.items() if s is not t and all(s is not w for w, _ in whole)}
                return add_scaled(_sum(joined, constant), k, t.num)
        elif isinstance(t, FloorDiv) and isinstance(t.den, Const) and k % t.den.number == 0:
            num, left = linear_form(t.num)
            times = -k // t.den.number
            if all(terms.get(s) == times * q for s, q in num):
                rest = {s: q for s, q in terms.items() if s is not t and all(s is not n for n, _ in num)}
                return add_scaled(_sum(rest, constant - times * left), times, t.num % t.den)
        elif isinstance(t, _Extreme):
            extremes.append((t, k))
    if len(extremes) == 1 and abs(extremes[0][1]) == 1 and (len(terms) > 1 or constant or extremes[0][1] < 0):
        atom, k = extremes[0]
        del terms[atom]
        rest = plain_sum(terms, constant)
        cls = type(atom) if k > 0 else Max if isinstance(atom, Min) else Min
        return _extreme(cls, (add_scaled(rest, k, a) for a in atom.args))
    return plain_sum(terms, constant)


def plain_sum(terms: Mapping[Expr, int], constant: int) -> Expr:
    """A sum as it stands, without the rules that fold several terms. Arithmetic on it applies them."""
    items = [term for term in terms.items() if term[1]]
    if not items:
        return const(constant)
    if len(items) == 1 and not constant and items[0][1] == 1:
        return items[0][0]
    if len(items) > 1:
        items.sort(key=lambda term: str(term[0]))
    return _make(Sum, tuple(items), constant)


def extremes_of(cls: type[_Extreme], e: Expr) -> Iterator[Expr]:
    """The arguments over which `e` is an extreme of this class: all of min(a, b), a + x and b + x of min(a, b) + x, or just e."""
    terms, constant = linear_form(e)
    inside = [t for t, _ in terms if isinstance(t, cls)]
    if len(inside) == 1 and dict(terms)[inside[0]] == 1:
        rest = plain_sum({t: k for t, k in terms if t is not inside[0]}, constant)
        for a in inside[0].args:
            yield from extremes_of(cls, add_scaled(rest, 1, a))
    else:
        yield e


def _extreme(cls: type[_Extreme], args: Iterable[Expr]) -> Expr:
    forms: dict[tuple[tuple[Expr, int], ...], int] = {}  # arguments that differ by a constant compare now
    for part in (part for a in args for part in extremes_of(cls, a)):
        terms, c = linear_form(part)
        forms[terms] = cls.pick((c, forms.get(terms, c)))
    if not forms:
        raise ValueError(f"{cls.__name__.lower()} of nothing")
    if len(forms) == 1:
        return next(_sum(dict(terms), c) for terms, c in forms.items())
    if () not in forms:  # a constant argument shares nothing
        shared: Terms = dict(frozenset[tuple[Expr, int]].intersection(*map(frozenset, forms)))
        c = next(iter(forms.values())) if len(set(forms.values())) == 1 else 0
        if shared or c:
            core = _extreme(cls, (_sum({t: k for t, k in terms if t not in shared}, own - c) for terms, own in forms.items()))
            core_terms, core_const = linear_form(core)
            for t, k in core_terms:
                shared[t] = shared.get(t, 0) + k
            return plain_sum(shared, core_const + c)
    exprs = [plain_sum(dict(terms), c) for terms, c in forms.items()]
    return _make(cls, tuple(sorted(exprs, key=lambda e: (not isinstance(e, Const), str(e)))))


@_remember
def _floordiv(a: Expr, b: Expr) -> Expr:
    if not isinstance(b, Const):
        return a if a is ZERO else _make(FloorDiv, a, b)
    c = b.number
    if c == 0:
        raise ZeroDivisionError(f"division of '{a}' by zero")
    if c < 0:
        return _floordiv(-a, const(-c))
    if c == 1:
        return a
    terms, k = linear_form(a)
    inside = {t: q for t, q in terms if q % c}
    g = gcd(c, *inside.values())
    if g > 1 or len(inside) < len(terms) or not 0 <= k < c:
        outside = _sum({t: q // c for t, q in terms if q % c == 0}, k // c)
        return outside + _floordiv(_sum({t: q // g for t, q in inside.items()}, k % c // g), const(c // g))
    if len(terms) == 1 and terms[0][1] == 1:
        t = terms[0][0]
        if isinstance(t, FloorDiv) and isinstance(t.den, Const):
            return _floordiv(t.num + k * t.den.number, const(c * t.den.number))
        if isinstance(t, Mod) and isinstance(t.den, Const):
            if k + t.den.number <= c:
                return ZERO
            if k == 0 and t.den.number % c == 0:
                return _mod(_floordiv(t.num, b), const(t.den.number // c))
    return _make(FloorDiv, a, b)


@_remember
def _mod(a: Expr, b: Expr) -> Expr:
    if not isinstance(b, Const):
        return a if a is ZERO else _make(Mod, a, b)
    c = b.number
    if c == 0:
        raise ZeroDivisionError(f"remainder of '{a}' by zero")
    if c < 0:
        return -_mod(-a, const(-c))
    terms, k = linear_form(a)
    same = True
    inside: Expr = const(k % c)
    for t, q in terms:
        r = q % c if q % c <= c // 2 else q % c - c  # the representative nearest to zero keeps M - i readable
        if isinstance(t, Mod) and isinstance(t.den, Const) and r * t.den.number % c == 0:
            same, t = False, t.num
        same = same and r == q
        inside = add_scaled(inside, r, t)
    if not same or k != k % c:
        return _mod(inside, b)
    g = gcd(c, *(q for _, q in terms))
    if not terms:
        return a
    if g > 1:
        return _mod(_sum({t: q // g for t, q in terms}, k // g), const(c // g)) * g + k % g
    if len(terms) == 1 and terms[0][1] == 1 and isinstance(terms[0][0], Mod):
        den = terms[0][0].den
        if isinstance(den, Const) and k + den.number <= c:
            return a
    return _make(Mod, a, b)


def parse(text: str) -> Expr:
    """Reads an expression: ints, names, + - * // %, parentheses, min, max, ceildiv. ValueError shows the part that is none of these."""
    return from_ast(parse_python(text), text)


def parse_python(text: str) -> ast.expr:
    """Python's syntax tree of an expression; its grammar is also ours."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as e:
        raise ValueError(f"'{text}' is not an expression: {e.msg}") from None


_FUNCTIONS: dict[str, Callable[..., Expr]] = {"min": emin, "max": emax, "ceildiv": ceildiv}
_OPERATORS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: Expr.__add__, ast.Sub: Expr.__sub__, ast.Mult: Expr.__mul__, ast.FloorDiv: _floordiv, ast.Mod: _mod,
}  # fmt: skip


def from_ast(node: ast.expr, text: str) -> Expr:
    """The expression of a Python syntax tree; `text` is its source, for messages. ValueError for anything that is not index arithmetic."""
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return const(number)
        case ast.Name(id=name):
            return sym(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -from_ast(inner, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](from_ast(left, text), from_ast(right, text))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and args:
            return _FUNCTIONS[name](*(from_ast(a, text) for a in args))
        case _:
            raise ValueError(f"'{ast.get_source_segment(text, node) or text}' in '{text}' is not index arithmetic")
