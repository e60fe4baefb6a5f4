"""A share of the fuzzers that always runs the same cases, the evaluator on the examples, and proof that the fuzzers can find something."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import evaluator
from tests.evaluator import bounded as bd
from tests.example_cases import CASES
from tests.fuzz.checks import difference
from tests.fuzz.run import search, show
from tests.fuzz.worker import Worker
from tilelang.diagnostics import Diagnostics, Source
from tilelang.frontend.text import parse_module

EXAMPLES = Path(__file__).parents[1] / "examples"


def evaluate(text: str, *args: Any, name: str = "f", **constants: Any) -> evaluator.Result:
    diagnostics = Diagnostics()
    module = parse_module(Source("test.tile", text), diagnostics)
    diagnostics.raise_if_errors()
    return evaluator.run(module, name, args, constants)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker(limit=60.0)
    yield made
    made.close()


@pytest.mark.parametrize(("kind", "cases"), [("programs", 150), ("broken", 300)])
def test_fuzz(worker: Worker, kind: str, cases: int) -> None:
    found = search(kind, cases, worker, set(), None)
    assert found is None, show(found)


# -- the evaluator


@pytest.mark.parametrize("name", CASES)
def test_evaluator_on_examples(name: str) -> None:
    """Small cases of every example, against the reference in float64 and the evaluator's own bounds."""
    text = (EXAMPLES / f"{name}.tile").read_text()
    reference = importlib.import_module(f"examples.{name}").reference
    for case in CASES[name](np.random.default_rng(3)):
        if sum(getattr(a, "size", 1) for a in case.args) > 30_000:
            continue
        with np.errstate(all="ignore"):
            wanted = reference(*case.args, **case.kwargs)
        result = evaluate(text, *case.args, name=name, **case.kwargs)
        for got, want in zip(result.values, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            assert got.val.shape == want.shape
            got.err = got.err + 2 * bd.UNIT.get(case.dtype, 0.0) * np.abs(np.nan_to_num(got.val.astype(np.float64)))
            assert difference(want, got) is None, case.name
            assert np.all(got.err <= 0.03 * (1 + np.abs(got.val.astype(np.float64)))), "a bound that says nothing"


HEAD = 'M, N = dims("M N")\n\n'


def test_evaluator_clips_at_the_edge() -> None:
    text = HEAD + (
        "def f(x: i32[M]) -> i32[M]:\n    out = empty(i32, M)\n    for i in grid(M, by=4):\n        t = ones(i32, 4) + x[i]\n        out[i] = t * 0 + sum(t)\n    return out\n"
    )
    assert evaluate(text, np.arange(6, dtype=np.int32)).values[0].val.tolist() == [10, 10, 10, 10, 11, 11]


def test_evaluator_stops() -> None:
    text = HEAD + "def f(x: f32[M]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M):\n        assert x[i] > 0\n        out[i] = x[i + 1]\n    return out\n"
    assert evaluate(text, np.ones(3, np.float32)).stop == "run-out-of-bounds"
    assert evaluate(text, np.zeros(3, np.float32)).stop == "run-assert"


def test_evaluator_pads_scatters_and_counts() -> None:
    text = HEAD + (
        "def f(x: f32[M], k: i32[M], c: InOut[i32, 3], d: InOut[f32, 4]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M, by=8):\n"
        "        out[i] = load(x[i - 1], pad=9)\n        atomic_add(c[k[i]], 1)\n        d[k[i]] = x[i]\n    return out\n"
    )
    result = evaluate(text, np.arange(4, dtype=np.float32), np.array([2, 0, 2, 2], np.int32), np.zeros(3, np.int32), np.zeros(4, np.float32))
    assert result.values[0].val.tolist() == [9, 0, 1, 2]
    assert result.updated["c"].val.tolist() == [1, 0, 3]
    assert result.updated["d"].val.tolist() == [1, 0, 3, 0]


def test_evaluator_knows_what_is_not_certain() -> None:
    text = HEAD + "def f(x: f32[M], y: f32[M]) -> tuple[bool_[M], f32[M], bool_[M]]:\n    e = exp(x)\n    return e < y, x + y, x < y\n"
    x = np.array([-1.0, 1.0, 1.0], np.float32)
    y = np.array([1.0, np.e, 5.0], np.float32)
    less, total, plain = evaluate(text, x, y).values
    assert less.err.tolist() == [0.0, np.inf, 0.0]  # exp(1) is next to y
    assert not total.err.any() and not plain.err.any()


# -- the fuzzers find what is wrong


@pytest.mark.parametrize(
    ("got", "ok"),
    [([1.0, 2.0], True), ([1.0 + 2**-23, 2.0], True), ([1.0 + 2**-21, 2.0], False), ([1.0, 2.0 + 2**-22], False), ([np.nan, 2.0], False), ([1.0, np.inf], False)],
)
def test_bounds_tell(got: list[float], ok: bool) -> None:
    want = bd.Num("f32", np.array([1.0, 2.0]), np.array([2.0**-22, 0.0]), (2,))
    assert (difference(np.array(got, np.float32), want) is None) == ok


def test_a_crash_is_a_verdict() -> None:
    made = Worker(limit=60.0)
    try:
        assert made.check("crash", None)[:2] == ("fail", "crash -11")
        assert made.check("broken", "def f(:\n")[0] == "ok"
    finally:
        made.close()
