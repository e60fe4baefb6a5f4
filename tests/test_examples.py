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
    check(text(*case.args, **case.kwargs), expected, case)
    check(python(*case.args, **case.kwargs), expected, case)


@pytest.mark.parametrize("name", CASES)
def test_interpreted(name: str) -> None:
    text, _, reference = kernels(name)
    case = case_of(name, 0)
    check(text(*case.args, **case.kwargs, mode="interpret"), reference(*case.args, **case.kwargs), case)
