"""Every example, from .tile text and from @tile, compiled and interpreted, against its float64 reference."""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang
from tests.example_cases import CASES, Case, check
from tests.guarded import Guarded, column_major, place, reversed_rows

EXAMPLES = Path(__file__).parents[1] / "examples"


def cases() -> list[Any]:
    out = []
    for name, make in CASES.items():
        for i, case in enumerate(make(np.random.default_rng(zlib.crc32(name.encode())))):
            out.append(pytest.param(name, i, id=f"{name}-{case.name}"))
    return out


def case_of(name: str, i: int) -> Case:
    return list(CASES[name](np.random.default_rng(zlib.crc32(name.encode()))))[i]


def kernels(name: str) -> tuple[Any, Any, Any]:
    """The function from text, the one from Python, and the reference."""
    module = importlib.import_module(f"examples.{name}")
    return getattr(tilelang.load(EXAMPLES / f"{name}.tile"), name), getattr(module, name), module.reference


def test_every_example_has_both_forms_and_cases() -> None:
    names = {p.stem for p in EXAMPLES.glob("*.tile")}
    assert names == set(CASES) == {p.stem for p in EXAMPLES.glob("*.py")} - {"__init__", "demo"}


@pytest.mark.parametrize("name", CASES)
def test_text_and_python_say_the_same(name: str) -> None:
    text, python, _ = kernels(name)
    assert text.function == python.function


@pytest.mark.parametrize(("name", "i"), cases())
def test_compiled(name: str, i: int) -> None:
    text, python, reference = kernels(name)
    case = case_of(name, i)
    with np.errstate(all="ignore"):
        expected = reference(*case.args, **case.kwargs)
    result = text(*case.args, **case.kwargs)
    check(result, expected, case)
    for kernel, at_end in ((text, True), (python, False)):
        outs = [Guarded(r.shape, r.dtype, at_end) for r in (result if isinstance(result, tuple) else (result,))]
        args = [place(a, at_end) for a in case.args]
        kernel(*args, **case.kwargs, out=tuple(o.array for o in outs))
        check(tuple(o.array for o in outs), expected if isinstance(expected, tuple) else (expected,), case)
        assert all(o.untouched() for o in outs)


@pytest.mark.parametrize("stored", [reversed_rows, column_major])
@pytest.mark.parametrize("name", CASES)
def test_strides(name: str, stored: Any) -> None:
    text, _, reference = kernels(name)
    case = case_of(name, 0)
    expected = reference(*case.args, **case.kwargs)
    args = [stored(a) for a in case.args]
    check(text(*args, **case.kwargs), expected, case)
    outs = tuple(stored(np.zeros(e.shape, r.dtype)) for e, r in zip(*map(_several, (expected, text(*args, **case.kwargs)))))
    text(*args, **case.kwargs, out=outs)
    check(outs, _several(expected), case)


def _several(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


@pytest.mark.parametrize("name", CASES)
def test_interpreted(name: str) -> None:
    text, _, reference = kernels(name)
    case = case_of(name, 0)
    check(text(*case.args, **case.kwargs, mode="interpret"), reference(*case.args, **case.kwargs), case)
