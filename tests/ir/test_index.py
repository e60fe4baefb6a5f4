"""Index expressions, facts and index maps: every answer is compared with brute-force evaluation over small ranges."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import threading

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tilelang.ir import expr
from tilelang.ir.index import (
    Expr,
    Facts,
    IndexMap,
    Min,
    Sum,
    ceildiv,
    const,
    emax,
    emin,
    identity_map,
    parse,
    parse_map,
    sym,
)

M, N, i, j, r = map(sym, ("M", "N", "i", "j", "r"))
# n is positive, so that it may divide
RANGES = {"a": range(-3, 6), "b": range(7), "n": range(1, 5)}
ENVIRONMENTS = [dict(zip(RANGES, values)) for values in itertools.product(*RANGES.values())]
BUILTINS = {"__builtins__": {}, "min": min, "max": max, "ceildiv": lambda a, b: -(-a // b)}


def run(text: str, env: dict[str, int]) -> int:
    """The independent reference: Python evaluates the text."""
    return eval(text, BUILTINS, env)


leaves = st.sampled_from(["a", "b", "n"]) | st.integers(-9, 40).map(lambda v: f"({v})")


def bigger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    number = st.sampled_from([-4, -1, 1, 2, 3, 4, 6, 8])
    return st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(number, inner).map(lambda t: f"({t[0]} * {t[1]})"),
        st.tuples(inner, st.sampled_from(["//", "%"]), number).map(lambda t: f"({t[0]} {t[1]} ({t[2]}))"),
        st.tuples(inner, st.sampled_from(["//", "%"])).map(lambda t: f"({t[0]} {t[1]} n)"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    )


texts = st.recursive(leaves, bigger, max_leaves=7)
comparisons = st.one_of(
    st.tuples(st.sampled_from("ab"), st.integers(2, 4), st.integers(0, 3)).map(lambda t: f"{t[0]} % {t[1]} == {t[2] % t[1]}"),
    st.tuples(st.sampled_from("ab"), st.sampled_from(["<", "<=", ">=", ">", "=="]), texts).map(" ".join),
    st.tuples(texts, st.sampled_from(["<", ">="]), texts).map(" ".join),
    st.just("0 <= a < n"),
    st.just("0 <= b < ceildiv(a, 4)"),
)


@settings(max_examples=200, deadline=None)
@given(texts)
@example("(((2 * a) % 8) + (8 * ((2*a) // 8)))")
@example("(min((a + 3), (b - a)) - min(b, n))")
@example("((((a % 8) + 3) // 2) % 4)")
@example("((-1 * n) * min(a, b))")
def test_normal_form_keeps_the_value(text: str) -> None:
    e = parse(text)
    for env in ENVIRONMENTS:
        assert e.evaluate(env) == run(text, env), (str(e), env)
    for env in ENVIRONMENTS[::7]:
        assert run(str(e), env) == run(text, env), str(e)  # what is printed is Python that means the same
    assert parse(str(e)) is e
    assert e.substitute({"a": 2, "n": 3}).evaluate({"b": 1}) == run(text, {"a": 2, "b": 1, "n": 3})


@settings(max_examples=150, deadline=None)
@given(texts, texts, texts)
def test_equal_sums_are_the_same_object(x: str, y: str, z: str) -> None:
    a, b, c = map(parse, (x, y, z))
    assert a + b is b + a
    assert a * b is b * a
    assert a - a is const(0)
    if "m" not in x + y + z:  # of min and max inside min and max there are several normal forms
        assert emin(a, b, c) is emin(c, emin(b, a))
        assert -emin(a, b) is emax(-a, -b)
        assert emin(a, b) + c is emin(c + b, a + c)
        assert (a + b) * c is a * c + b * c


@settings(max_examples=300, deadline=None)
@given(st.lists(comparisons, min_size=1, max_size=3), texts, texts)
@example(["0 <= a < n"], "b*n + a", "b")
@example(["b % 4 == 0", "0 <= a < ceildiv(b, 4)"], "min(4, b - 4*a)", "4")
@example(["b % 3 == 1", "b % 2 == 0"], "(b + 2) // 6", "b % 6")
def test_facts_answer_only_what_holds(assumptions: list[str], x: str, y: str) -> None:
    worlds = [env for env in ENVIRONMENTS if all(run(text, env) for text in assumptions)]
    assume(worlds)
    facts = Facts(*assumptions).dim("b").dim("n", lo=1)
    a, b = parse(x), parse(y)
    lo, hi = facts.bounds(a)
    m, remainder = facts.congruence(a)
    simple = facts.simplify(a)
    claims = [op for op in ("<", "<=", "==", "!=", ">=", ">") if facts.proves(a, op, b)]
    for env in worlds:
        value = run(x, env)
        assert lo is None or lo <= value, (str(a), lo, env)
        assert hi is None or value <= hi, (str(a), hi, env)
        assert (value - remainder) % m == 0 if m else value == remainder, (str(a), m, remainder, env)
        assert simple.evaluate(env) == value, (str(a), str(simple), env)
        assert all(run(f"({x}) {op} ({y})", env) for op in claims), (str(a), claims, str(b), env)
    for k in (2, 3, 4):
        assert not facts.divisible(a, k) or all(run(x, env) % k == 0 for env in worlds)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-8, 8), st.integers(-8, 8)), min_size=2, max_size=2), st.integers(-20, 20), st.integers(1, 16))
def test_bounds_of_affine_expressions_are_exact(terms: list[tuple[int, int]], c: int, width: int) -> None:
    """Interval arithmetic loses nothing where every symbol occurs once."""
    (p, lo), (q, _) = terms
    facts = Facts().range("i", lo, lo + width).range("j", 0, 5)
    values = [p * x + q * y + c for x in range(lo, lo + width) for y in range(5)]
    assert facts.bounds(p * i + q * j + c) == (min(values), max(values))


def simplified(text: str, *assumptions: str) -> str:
    return str(Facts(*assumptions).simplify(parse(text)))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("min(64, M - 64*i)", "min(64, M - 64*i)"),
        ("ceildiv(M, 64)", "(M + 63) // 64"),
        ("min(64*i + 64, M) - 64*i", "min(64, M - 64*i)"),
        ("64*i + min(64, M - 64*i)", "min(64*i + 64, M)"),
        ("M - min(64, M)", "max(0, M - 64)"),
        ("i + min(64, M)", "i + min(64, M)"),
        ("64*(i // 64) + i % 64", "i"),
        ("i - 64*(i // 64)", "i % 64"),
        ("N*(i // N) + i % N", "i"),
        ("(64*i + r) // 64", "i + r // 64"),
        ("(x % 64) // 4", "(x // 4) % 16"),
        ("x // 4 // 8", "x // 32"),
        ("(x % 128) % 64", "x % 64"),
        ("(a + b)*(a - b)", "a*a - b*b"),
        ("-(M // 4)", "-(M // 4)"),
        ("3 - i", "3 - i"),
        ("min(3, i, i + 1)", "min(3, i)"),
    ],
)
def test_normal_forms(text: str, normal: str) -> None:
    assert str(parse(text)) == normal


@pytest.mark.parametrize(
    ("text", "assumptions", "expected"),
    [
        ("min(64, M - 64*i)", ["M % 64 == 0", "i < M // 64"], "64"),
        ("min(64, M - 64*i)", ["M % 64 == 0", "i < ceildiv(M, 64)"], "64"),
        ("min(64, M - 64*i)", ["i < ceildiv(M, 64)"], "min(64, M - 64*i)"),
        ("min(64, M - 64*i)", ["64*i <= M - 64"], "64"),
        ("max(0, M - 64*i)", ["i < ceildiv(M, 64)"], "M - 64*i"),
        ("(64*i + r) // 64", ["0 <= r < 64"], "i"),
        ("(64*i + r) % 64", ["0 <= r < 64"], "r"),
        ("(16*i + r) // 64", ["0 <= r < 16"], "i // 4"),
        ("(i*N + j) // N", ["0 <= j < N"], "i"),
        ("(i*N + j) % N", ["0 <= j < N"], "j"),
        ("ceildiv(M, 64)", ["M % 64 == 0"], "M // 64"),
        ("16*(M // 16)", ["M % 16 == 0"], "M"),
        ("min(M, 64*i + 64)", ["i < 4", "M >= 256"], "64*i + 64"),
        ("M + 3", ["M == 5"], "8"),
    ],
)
def test_simplify(text: str, assumptions: list[str], expected: str) -> None:
    assert simplified(text, *assumptions) == expected


def test_tails_of_nested_tiles_stay_inside() -> None:
    """Row `64*i + 8*j + r` of a ragged matrix, tiled twice, each tile clipped: in bounds with no test."""
    facts = Facts("0 <= i < ceildiv(M, 64)", "0 <= j < ceildiv(min(64, M - 64*i), 8)", "0 <= r < min(8, min(64, M - 64*i) - 8*j)")
    assert facts.prove_lt(64 * i + 8 * j + r, M)
    assert facts.prove_ge(64 * i + 8 * j + r, 0)
    assert not facts.prove_lt(64 * i + 8 * j + r + 1, M)


def test_row_major_offset_stays_inside() -> None:
    facts = Facts("0 <= i < M", "0 <= j < N")
    assert facts.prove_lt(i * N + j, M * N)
    assert not facts.prove_lt(i * N + j + 1, M * N)


def test_bounds_and_divisibility() -> None:
    facts = Facts("0 <= i < ceildiv(M, 64)", "0 <= M <= 1000", "M % 16 == 0")
    assert facts.bounds(i) == (0, 15)
    assert facts.bounds(M) == (16, 992)  # i exists, so M is not 0
    assert facts.bounds(emin(64, M - 64 * i)) == (16, 64)
    assert facts.bounds(N) == (None, None)
    assert facts.divisible(4 * M + 32 * i, 32)
    assert not facts.divisible(M, 32)
    assert Facts().dim("N", multiple_of=12).divisible(N * M, 4)
    assert facts.proves(M, "!=", 17)


def test_copy_opens_a_scope() -> None:
    outer = Facts("0 <= i < 8")
    inner = outer.copy().assume("i < 4")
    assert inner.bounds(i) == (0, 3)
    assert outer.bounds(i) == (0, 7)


def test_linear() -> None:
    e = 64 * i + i * N - 3 * j + M // 2 + 5
    coefficients, rest = e.linear(("i", "j"))
    assert coefficients == {"i": N + 64, "j": const(-3)}
    assert rest is M // 2 + 5
    assert e.coefficient("j") == -3
    assert e.coefficient("r") == 0
    assert not e.is_affine(("M",))
    assert not (i * j).is_affine(("i", "j"))
    with pytest.raises(ValueError, match=r"'M // 2 \+ i' is not affine in M: 'M // 2'"):
        (i + M // 2).linear(("M",))


def test_interning_is_weak_and_safe_across_threads() -> None:
    made: list[Expr] = []
    threads = [threading.Thread(target=lambda: made.extend(sym(f"t{k}") // 7 + k for k in range(300))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(map(id, made))) == 300
    made.clear()
    for k in range(5000):  # push the recent ones out of the memo
        _ = sym("w") + k
        _ = sym("w") // (k + 2)
    gc.collect()
    assert not any(str(key[1]).startswith("t2") for key in list(expr._table) if key[0] is expr.FloorDiv)


def test_pickle_and_copy_give_the_same_object() -> None:
    e = emin(64, M - 64 * i) * N + M // 3
    assert pickle.loads(pickle.dumps(e)) is e
    assert copy.deepcopy(e) is e
    assert isinstance(e, Sum)
    assert isinstance(parse("min(a, b)"), Min)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a and b", "'a and b' in 'a and b' is not index arithmetic"),
        ("2 * foo(a)", r"'foo\(a\)' in '2 \* foo\(a\)' is not index arithmetic"),
        ("a / 2", "not index arithmetic"),
        ("a +", "'a \\+' is not an expression"),
        ("True", "not index arithmetic"),
    ],
)
def test_parse_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_other_errors() -> None:
    with pytest.raises(ZeroDivisionError, match="division of 'M' by zero"):
        M // 0
    with pytest.raises(ValueError, match="compares nothing"):
        Facts("M")
    with pytest.raises(ValueError, match="is not a comparison"):
        Facts().proves(M, "=<", N)


class TestIndexMap:
    def test_text(self) -> None:
        m = IndexMap(("d0", "d1"), (sym("d1"), sym("d0") + 1))
        assert str(m) == "(d0, d1) -> (d1, d0 + 1)"
        assert parse_map(str(m)) == m
        assert parse_map("() -> ()") == IndexMap((), ())
        assert m(4, N) == (N, const(5))

    def test_compose_is_application_of_the_inner_map_first(self) -> None:
        outer, inner = parse_map("(a, b) -> (a // 4, b + a)"), parse_map("(x, y) -> (y, 4*x)")
        composed = outer.compose(inner)
        assert composed.dims == ("x", "y")
        for x, y in itertools.product(range(5), repeat=2):
            assert composed(x, y) == outer(*inner(x, y))

    def test_kinds(self) -> None:
        assert identity_map("i", "j").is_identity
        assert parse_map("(i, j) -> (j, i)").is_permutation
        assert not parse_map("(i, j) -> (j, i)").is_identity
        assert parse_map("(i, j, k) -> (k, i)").is_projected_permutation
        assert not parse_map("(i, j, k) -> (k, i)").is_permutation
        assert not parse_map("(i, j) -> (i, i)").is_projected_permutation
        assert not parse_map("(i, j) -> (i, N)").is_projected_permutation

    @pytest.mark.parametrize(
        ("text", "assumptions", "inverse"),
        [
            ("(a, b, c) -> (c, a, b)", [], "(a, b, c) -> (b, c, a)"),
            ("(a, b) -> (b - 3, N - a)", [], "(a, b) -> (N - b, a + 3)"),
            ("(d) -> (d // 64, d % 64)", [], "(d0, d1) -> (64*d0 + d1)"),
            ("(d) -> (d // 64, d // 8 % 8, d % 8)", [], "(d0, d1, d2) -> (64*d0 + 8*d1 + d2)"),
            ("(a) -> (2*a + 1)", [], "(a) -> ((a + 1) // 2 - 1)"),
            ("(a, b) -> (64*a + b)", ["0 <= b < 64"], "(d0) -> (d0 // 64, d0 % 64)"),
            ("(a, b, c) -> (64*a + 8*b + c)", ["0 <= b < 8", "0 <= c < 8"], "(d0) -> (d0 // 64, (d0 // 8) % 8, d0 % 8)"),
        ],
    )
    def test_inverse(self, text: str, assumptions: list[str], inverse: str) -> None:
        assert str(parse_map(text).inverse(Facts(*assumptions))) == inverse

    @pytest.mark.parametrize(
        "text", ["(a, b) -> (64*a + b)", "(a, b) -> (a)", "(a) -> (a // 4)", "(a) -> (a*a)", "(d) -> (d // 8, d % 4)"]
    )
    def test_no_inverse(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"cannot invert|has no inverse"):
            parse_map(text).inverse(Facts("0 <= b < 65"))

    def test_errors(self) -> None:
        with pytest.raises(ValueError, match="takes 1 indices, not 2"):
            identity_map("a")(1, 2)
        with pytest.raises(ValueError, match="occurs twice"):
            identity_map("a", "a")
        with pytest.raises(ValueError, match="not an index map"):
            parse_map("(a)")
        with pytest.raises(ValueError, match="not a list of dim names"):
            parse_map("(a + 1) -> (a)")
        with pytest.raises(ValueError, match="parenthesised"):
            parse_map("a -> (a)")


def test_numpy_integers_are_integers() -> None:
    k = np.int64(3)
    assert k * i is 3 * i is i * k
    assert k + i is i + 3
    assert (i + 5) // k is (i + 5) // 3
    assert (7 * i) % k is i % 3


def test_ceildiv_of_known_numbers() -> None:
    assert ceildiv(100, 64) == 2
    assert ceildiv(M, 64).evaluate({"M": 65}) == 2
