"""Forty programs with a planted defect, ten of each kind: check mode finds each at its line, and nothing in programs near them."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang
from tests.example_cases import CASES
from tilelang.diagnostics import TileError

DEFECTS = Path(__file__).parent / "defects"
KINDS = ("bounds", "uninitialised", "race", "pipeline")
M, N = 37, 21


def functions(kind: str) -> list[str]:
    return re.findall(r"^def (\w+)", (DEFECTS / f"{kind}.tile").read_text(), re.MULTILINE)


def marked_line(kind: str, name: str) -> int:
    """The line of the comment HERE in a function."""
    lines = (DEFECTS / f"{kind}.tile").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"def {name}("))
    return next(i for i in range(start, len(lines)) if "# HERE" in lines[i]) + 1


def arguments(kind: str) -> list[Any]:
    rng = np.random.default_rng(3)
    idx = rng.permutation(N).astype(np.int32)
    if kind == "bounds":
        idx[5] = N
    elif kind == "uninitialised":
        idx[:] = idx[0]
    elif kind == "race":
        idx[:] = idx % 3
    return [rng.standard_normal((M, N)).astype(np.float32), rng.standard_normal((M, N)).astype(np.float32), idx, 3]


def test_there_are_ten_of_each() -> None:
    assert [len(functions(kind)) for kind in KINDS] == [10] * 4 and len(functions("clean")) == 10


@pytest.mark.parametrize(("kind", "name"), [(k, f) for k in KINDS for f in functions(k)])
def test_a_planted_defect_is_found(kind: str, name: str) -> None:
    kernel = getattr(tilelang.load(DEFECTS / f"{kind}.tile"), name)
    with pytest.raises(TileError) as caught:
        kernel(*arguments(kind), mode="check")
    found = caught.value.diagnostics
    assert {d.slug for d in found} == {f"check-{kind}"}, str(caught.value)
    assert {d.span.line for d in found if d.span is not None} == {marked_line(kind, name)}, str(caught.value)
    assert any("in the grid block (" in n.message or n.message.startswith("block (") for d in found for n in d.notes) or "blocks (" in found[0].message


@pytest.mark.parametrize("name", functions("clean"))
def test_nothing_is_found_in_a_clean_program(name: str) -> None:
    kernel = getattr(tilelang.load(DEFECTS / "clean.tile"), name)
    args, again = arguments("clean"), arguments("clean")
    checked = kernel(*args, mode="check")
    interpreted = kernel(*again, mode="interpret")
    np.testing.assert_array_equal(checked, interpreted)
    np.testing.assert_array_equal(args[1], again[1])


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_found_in_the_examples(name: str) -> None:
    kernel = getattr(tilelang.load(Path(__file__).parents[2] / "examples" / f"{name}.tile"), name)
    case = next(iter(CASES[name](np.random.default_rng(zlib.crc32(name.encode())))))
    kernel(*case.args, **case.kwargs, mode="check")
