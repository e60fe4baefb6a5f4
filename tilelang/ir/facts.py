"""What is known about symbols, and what follows from it: bounds, divisibility, comparisons, simplification.

Each answer is a proof or "unknown": a bound of None, a False. Contradictory facts describe code that never runs; there anything holds.
The prover adds nonnegative multiples of known inequalities to eliminate atoms (Fourier-Motzkin, limited in depth, rounding to integers),
splits min and max into cases, and finishes with interval arithmetic; congruences r + mZ (Granger's domain) sharpen both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import reduce
from math import gcd
from typing import Self, TypeAlias

from tilelang.ir.expr import (
    ZERO,
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
    add_scaled,
    as_expr,
    const,
    emax,
    emin,
    extremes_of,
    linear_form,
    parse,
    plain_sum,
    sym,
)  # fmt: skip

Bounds: TypeAlias = "tuple[int | None, int | None]"
Congruence: TypeAlias = "tuple[int, int]"  # (m, r): r + m*k for some integer k; (0, r): exactly r

_DEPTH = 4  # eliminations in a row; a tail of a doubly tiled loop needs three
_FUEL = 300  # expressions looked at for one question
_COMPARISON = re.compile(r"(<=|>=|==|<|>)")


class Facts:
    """A set of assumptions that only grows. `Facts("M % 16 == 0", "0 <= i < ceildiv(M, 64)")`, or by the methods; `copy` opens a scope."""

    def __init__(self, *assumptions: str) -> None:
        self._ranges: dict[str, Bounds] = {}
        self._congruences: dict[Expr, Congruence] = {}
        self._inequalities: dict[Expr, list[Expr]] = {}  # atom -> expressions with it that are >= 0
        self._memo: dict[tuple[object, ...], int | None] = {}
        self._fuel = 0
        for text in assumptions:
            self.assume(text)

    def copy(self) -> Facts:
        """The same facts; what is assumed of the copy stays there."""
        other = Facts()
        other._ranges = dict(self._ranges)
        other._congruences = dict(self._congruences)
        other._inequalities = {atom: list(known) for atom, known in self._inequalities.items()}
        return other

    # What is known

    def dim(self, *names: str, lo: int = 0, hi: int | None = None, multiple_of: int = 1) -> Self:
        """Extents: lo <= name <= hi and name % multiple_of == 0."""
        for name in names:
            self.range(name, lo, None if hi is None else hi + 1)
            self.multiple(sym(name), multiple_of)
        return self

    def range(self, name: str, lo: IntLike | None, stop: IntLike | None) -> Self:
        """lo <= name < stop; None leaves a side open."""
        if lo is not None:
            self._learn(sym(name) - lo)
        if stop is not None:
            self._learn(as_expr(stop) - 1 - sym(name))
        return self

    def multiple(self, e: IntLike, n: int, remainder: int = 0) -> Self:
        """e % n == remainder, n > 0."""
        self._memo.clear()
        terms, k = linear_form(as_expr(e))
        m, r = n, (remainder - k) % n
        if len(terms) == 1:  # q*t = r (mod m): divide by q
            t, q = terms[0]
            g = gcd(q, m)
            if r % g == 0:
                m //= g
                self._congruences[t] = _meet(self._congruences.get(t, (1, 0)), (m, r // g * pow(q // g, -1, m) % m))
        elif terms:
            whole = as_expr(e) - k
            self._congruences[whole] = _meet(self._congruences.get(whole, (1, 0)), (m, r))
        return self

    def assume(self, text: str) -> Self:
        """A comparison or a chain: `0 <= i < M`, `M % 16 == 0`, `64*i <= M - 1`. ValueError when it is not one."""
        pieces = _COMPARISON.split(text)
        if len(pieces) < 3:
            raise ValueError(f"'{text}' compares nothing; expected <, <=, ==, >= or > between expressions")
        sides = [parse(piece) for piece in pieces[::2]]
        for a, op, b in zip(sides, pieces[1::2], sides[1:]):
            self.assume_that(a, op, b)
        return self

    def assume_that(self, a: IntLike, op: str, b: IntLike) -> Self:
        """`a op b` for op in < <= == >= >."""
        a, b = as_expr(a), as_expr(b)
        if op in ("<", "<="):
            self._learn(b - a - (op == "<"))
        elif op in (">", ">="):
            self._learn(a - b - (op == ">"))
        else:
            self._learn(a - b)
            self._learn(b - a)
            terms, k = linear_form(a - b)
            if len(terms) == 1 and isinstance(terms[0][0], Mod) and isinstance(terms[0][0].den, Const) and k % terms[0][1] == 0:
                self.multiple(terms[0][0].num, terms[0][0].den.number, -k // terms[0][1])
        return self

    def _learn(self, e: Expr) -> None:
        """Records e >= 0."""
        self._memo.clear()
        for part in extremes_of(Min, e):  # min(a, b) >= 0 says a >= 0 and b >= 0
            terms, k = linear_form(part)
            if len(terms) == 1 and isinstance(terms[0][0], Sym):
                (atom, q), name = terms[0], str(terms[0][0])
                lo, hi = self._ranges.get(name, (None, None))
                self._ranges[name] = (_tighter(max, lo, -(k // q)), hi) if q > 0 else (lo, _tighter(min, hi, k // -q))
                continue
            for atom, _ in terms:
                self._inequalities.setdefault(atom, []).append(part)
                if isinstance(atom, FloorDiv) and isinstance(atom.den, Const):  # i < M // 64 says something about M as well
                    for fact in self._division_facts(atom):
                        for inner, _ in linear_form(atom.num)[0]:
                            self._inequalities.setdefault(inner, []).append(fact)

    # Questions

    def bounds(self, e: IntLike) -> Bounds:
        """Constants lo <= e <= hi, each None where none was found."""
        e = as_expr(e)
        self._fuel = _FUEL
        lo, hi = self._lower(e, None, _DEPTH), self._upper(e, _DEPTH)
        m, r = self.congruence(e)
        if m > 1:
            lo, hi = lo if lo is None else lo + (r - lo) % m, hi if hi is None else hi - (hi - r) % m
        return lo, hi

    def divisible(self, e: IntLike, n: int) -> bool:
        """Whether e is a multiple of n in every case."""
        m, r = self.congruence(as_expr(e))
        return m % n == 0 and r % n == 0

    def prove_ge(self, a: IntLike, b: IntLike) -> bool:
        """Whether a >= b is certain."""
        e = as_expr(a) - b
        self._fuel = _FUEL
        lo = self._lower(e, 0, _DEPTH)
        return lo is not None and lo >= 0

    def prove_lt(self, a: IntLike, b: IntLike) -> bool:
        """Whether a < b is certain."""
        return self.prove_ge(as_expr(b) - 1, a)

    def prove_eq(self, a: IntLike, b: IntLike) -> bool:
        """Whether a == b is certain."""
        return self.simplify(as_expr(a) - b) is ZERO or (self.prove_ge(a, b) and self.prove_ge(b, a))

    def proves(self, a: IntLike, op: str, b: IntLike) -> bool:
        """Whether `a op b` is certain, for op in < <= == != >= >. ValueError for another op."""
        match op:
            case ">=" | "<=":
                return self.prove_ge(a, b) if op == ">=" else self.prove_ge(b, a)
            case "<" | ">":
                return self.prove_lt(a, b) if op == "<" else self.prove_lt(b, a)
            case "==":
                return self.prove_eq(a, b)
            case "!=":
                m, r = self.congruence(as_expr(a) - b)
                return (r % m if m else r) != 0 or self.prove_lt(a, b) or self.prove_lt(b, a)
            case _:
                raise ValueError(f"'{op}' is not a comparison")

    def congruence(self, e: Expr) -> Congruence:
        """(m, r) with e = r + m*k for some integer k, 0 <= r < m; (0, r) when e is r; (1, 0) when nothing is known."""
        if isinstance(e, Const):
            return 0, e.number
        m, r = self._congruence(e)
        if isinstance(e, Sum):
            known = self._congruences.get(e - e.const)
            if known:
                m, r = _meet((m, r), (known[0], known[1] + e.const))
        else:
            m, r = _meet((m, r), self._congruences.get(e, (1, 0)))
        return (m, r % m) if m else (m, r)

    def _congruence(self, e: Expr) -> Congruence:
        m, r = 1, 0
        if isinstance(e, Sym):
            lo, hi = self._ranges.get(e.name, (None, None))
            if lo is not None and lo == hi:
                m, r = 0, lo
        elif isinstance(e, Sum):
            m, r = 0, e.const
            for t, q in e.terms:
                mt, rt = self.congruence(t)
                m, r = gcd(m, q * mt), r + q * rt
        elif isinstance(e, Product):
            m, r = 0, 1
            for mt, rt in map(self.congruence, e.factors):
                m, r = gcd(m * mt, m * rt, r * mt), r * rt
        elif isinstance(e, (FloorDiv, Mod)) and isinstance(e.den, Const):
            m, r = self.congruence(e.num)
            c = e.den.number
            if isinstance(e, FloorDiv):
                m, r = (m // c, r // c) if m % c == 0 else (1, 0)
            else:
                m, r = (0, r % c) if m % c == 0 else (gcd(m, c), r)
        elif isinstance(e, (Min, Max)):
            m, r = reduce(lambda x, y: (gcd(x[0], y[0], x[1] - y[1]), x[1]), map(self.congruence, e.args))
        return m, r

    # Lower bounds

    def _upper(self, e: Expr, depth: int) -> int | None:
        lo = self._lower(-e, None, depth)
        return None if lo is None else -lo

    def _lower(self, e: Expr, want: int | None, depth: int) -> int | None:
        """The best lower bound found; the search stops when `want` is reached. Depth 0 is interval arithmetic."""
        key = (e, want, depth)
        if key not in self._memo:
            self._memo[key] = self._search(e, want, depth)
        return self._memo[key]

    def _search(self, e: Expr, want: int | None, depth: int) -> int | None:
        self._fuel -= 1
        if self._fuel < 0:
            depth = 0
        terms, total = linear_form(e)
        best: int | None = total
        for t, q in terms:
            side = self._interval(t, depth)[q < 0]
            best = None if best is None or side is None else best + q * side
        for t, q in terms if depth else ():
            if best is not None and want is not None and best >= want:
                break
            if isinstance(t, (Min, Max)):
                cases = [self._lower(e - t * q + a * q, want, depth - 1) for a in t.args]
                if isinstance(t, Min) == (q > 0):  # e is one of the cases; in the other sense it is above each of them
                    found = None if None in cases else min(c for c in cases if c is not None)
                else:
                    found = max((c for c in cases if c is not None), default=None)
                best = _tighter(max, best, found)
                continue
            for known in self._inequalities_with(t, depth):
                s = next((k for a, k in linear_form(known)[0] if a is t), 0)
                if s * q <= 0:
                    continue
                g = gcd(s, q)
                scale = abs(s) // g  # scale*e = simpler + (a positive multiple of known >= 0)
                found = self._lower(add_scaled(e * scale, -abs(q) // g, known), None if want is None else want * scale, depth - 1)
                best = _tighter(max, best, None if found is None else -(-found // scale))
        return best

    def _inequalities_with(self, t: Expr, depth: int) -> Iterator[Expr]:
        """Expressions containing atom t that are >= 0: those assumed, and those that follow from what t is."""
        yield from self._inequalities.get(t, ())
        if isinstance(t, (FloorDiv, Mod)):
            yield from self._division_facts(t)
        elif isinstance(t, Product):
            for i, factor in enumerate(t.factors):
                others = [f for j, f in enumerate(t.factors) if j != i]
                rest = reduce(Expr.__mul__, others)
                if isinstance(factor, FloorDiv) and factor.den is rest:
                    yield from self._division_facts(factor)
                if not all(_at_least(self._both(f, min(depth, 2)), 0) for f in others):
                    continue
                lo, hi = self._interval(factor, depth - 1)
                if lo is not None:
                    yield (factor - lo) * rest
                if hi is not None:
                    yield (hi - factor) * rest
                for known in self._inequalities_with(factor, depth - 1) if depth > 1 else ():
                    yield known * rest

    def _division_facts(self, t: FloorDiv | Mod) -> Iterator[Expr]:
        """0 <= num - den*(num // den) < den, sharpened by what num is modulo den."""
        num, k = linear_form(t.num)
        if isinstance(t.den, Const):
            c = t.den.number
            m, r = self.congruence(t.num)
            g = gcd(m, c)
            if isinstance(t, FloorDiv):  # built without folding, since num - c*t would become num % c
                yield plain_sum(dict(num) | {t: -c}, k - r % g)
                yield plain_sum({a: -q for a, q in num} | {t: c}, c - g + r % g - k)
            elif isinstance(t.num // c, FloorDiv):
                whole = t.num // c
                yield plain_sum(dict(num) | {whole: -c, t: -1}, k)
                yield plain_sum({a: -q for a, q in num} | {whole: c, t: 1}, -k)
        elif _at_least(self._both(t.den, 0), 1):
            over = t.num - t.den * t if isinstance(t, FloorDiv) else t
            yield over
            yield t.den - 1 - over

    def _interval(self, t: Expr, depth: int) -> Bounds:
        """Interval arithmetic on one atom, sharpened by its congruence; parts of it are searched while depth lasts."""
        lo: int | None = None
        hi: int | None = None
        if isinstance(t, Sym):
            lo, hi = self._ranges.get(t.name, (None, None))
        elif isinstance(t, Product):
            lo, hi = reduce(_product, (self._interval(f, depth) for f in t.factors))
        elif isinstance(t, (FloorDiv, Mod)):
            lo, hi = _quotient(self._both(t.num, depth), self._both(t.den, depth), isinstance(t, Mod))
        elif isinstance(t, (Min, Max)):
            lows, highs = zip(*(self._both(a, depth) for a in t.args))
            known_lows, known_highs = [x for x in lows if x is not None], [x for x in highs if x is not None]
            if isinstance(t, Min):
                lo, hi = None if None in lows else min(known_lows), min(known_highs, default=None)
            else:
                lo, hi = max(known_lows, default=None), None if None in highs else max(known_highs)
        m, r = self.congruence(t)
        if m == 0:
            return r, r
        return lo if lo is None else lo + (r - lo) % m, hi if hi is None else hi - (hi - r) % m

    def _both(self, e: Expr, depth: int) -> Bounds:
        depth = max(depth - 1, 0)
        return self._lower(e, None, depth), self._upper(e, depth)

    # Simplification

    def simplify(self, e: IntLike) -> Expr:
        """An equal expression, simpler where the facts allow: dominated min and max arguments go, divisions split and vanish."""
        e = as_expr(e)
        if isinstance(e, Const):
            return e
        m, r = self.congruence(e)
        if m == 0:
            return const(r)
        if isinstance(e, Sum):
            total: Expr = const(e.const)
            for t, q in e.terms:
                if isinstance(t, FloorDiv) and isinstance(t.den, Const) and q % t.den.number == 0:
                    c = t.den.number
                    m, r = self.congruence(t.num)
                    if m % c == 0:  # 16*(M // 16) is M when M % 16 == 0
                        total += self.simplify(t.num - r % c) * (q // c)
                        continue
                total += self.simplify(t) * q
            return total
        if isinstance(e, Product):
            return reduce(Expr.__mul__, map(self.simplify, e.factors))
        if isinstance(e, (Min, Max)):
            args = list(dict.fromkeys(map(self.simplify, e.args)))
            for a in tuple(args):
                if any(self.prove_ge(a, b) if isinstance(e, Min) else self.prove_ge(b, a) for b in args if b is not a):
                    args.remove(a)
            return (emin if isinstance(e, Min) else emax)(*args)
        if isinstance(e, (FloorDiv, Mod)):
            return self._divide(self.simplify(e.num), self.simplify(e.den), isinstance(e, Mod))
        return e

    def _divide(self, num: Expr, den: Expr, remainder: bool) -> Expr:
        """num % den or num // den. What is certainly a multiple of den leaves the numerator; the rest may be in a known period."""
        quotient: Expr = ZERO
        rest: Expr = const(linear_form(num)[1])
        for t, q in linear_form(num)[0]:
            part = self._exact_quotient(t * q, den)
            quotient, rest = (quotient, rest + t * q) if part is None else (quotient + part[0], rest + part[1])
        if not isinstance(den, Const):
            if self.prove_ge(rest, 0) and self.prove_lt(rest, den):
                return rest if remainder else quotient
            return rest % den if remainder else quotient + rest // den
        c = den.number
        lo, hi = self.bounds(rest)
        if lo is not None and hi is not None and lo // c == hi // c:
            return rest - lo // c * c if remainder else quotient + lo // c
        terms = linear_form(rest)[0]
        for g in sorted({gcd(c, q) for _, q in terms} - {1, c}, reverse=True):
            # (g*y + s) // (g*d) = y // d and (g*y + s) % (g*d) = g*(y % d) + s when 0 <= s < g
            big = sum((t * q for t, q in terms if q % g == 0), ZERO)
            small = rest - big
            lo, hi = self.bounds(small)
            if lo is not None and hi is not None and lo // g == hi // g:
                small, big = small - lo // g * g, (big + lo // g * g) // g
                return big % (c // g) * g + small if remainder else quotient + big // (c // g)
        return rest % den if remainder else quotient + rest // den

    def _exact_quotient(self, term: Expr, den: Expr) -> tuple[Expr, Expr] | None:
        """(q, r) with term = den*q + r, r a constant, or None."""
        if isinstance(den, Const):
            m, r = self.congruence(term)
            return ((term - r % den.number) // den, const(r % den.number)) if m % den.number == 0 else None
        (t, k), *_ = linear_form(term)[0]
        left = list(t.factors if isinstance(t, Product) else (t,))
        for f in den.factors if isinstance(den, Product) else (den,):
            if f not in left:
                return None
            left.remove(f)
        return reduce(Expr.__mul__, left, const(k)), ZERO


def _at_least(bounds: Bounds, least: int) -> bool:
    return bounds[0] is not None and bounds[0] >= least


def _tighter(pick: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else pick(a, b)


def _meet(a: Congruence, b: Congruence) -> Congruence:
    """Numbers in both classes (Chinese remainder theorem); `a` when there are none."""
    (m, r), (n, s) = a, b
    g = gcd(m, n)
    if (r - s) % g if g else True:
        return a
    if m == 0 or n == 0:
        return a if m == 0 else b
    step = (s - r) // g * pow(m // g, -1, n // g) % (n // g)
    return m // g * n, r + m * step


def _product(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a product. Infinite ends are the floats; zero times infinity is zero."""
    inf = float("inf")
    xs = [-inf if a[0] is None else a[0], inf if a[1] is None else a[1]]
    ys = [-inf if b[0] is None else b[0], inf if b[1] is None else b[1]]
    ends = [x * y if x and y else 0 for x in xs for y in ys]
    lo, hi = min(ends), max(ends)
    return None if lo == -inf else int(lo), None if hi == inf else int(hi)


def _quotient(num: Bounds, den: Bounds, remainder: bool) -> Bounds:
    """Bounds of num // den or num % den; unknown unless den is positive."""
    (lo, hi), (small, large) = num, den
    if small is None or small <= 0:
        return None, None
    if remainder:
        if lo is not None and lo >= 0:
            return (lo, hi) if hi is not None and hi < small else (0, hi if large is None else _tighter(min, hi, large - 1))
        return 0, None if large is None else large - 1
    if lo is not None:
        lo = (0 if large is None else lo // large) if lo >= 0 else lo // small
    if hi is not None:
        hi = hi // small if hi >= 0 else (-1 if large is None else hi // large)
    return lo, hi
