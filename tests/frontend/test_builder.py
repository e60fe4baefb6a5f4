"""Every construct of the language: builds, verifies, and computes what NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
from tests.frontend.builder_programs import PROGRAMS
from tilelang.ir.verify import verify


def kernel(text: str) -> Any:
    return tilelang.load_text(text, "test.tile").f


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    program = PROGRAMS[name]
    f = kernel(program.text)
    args = program.args()
    verify(f.build(f.bind(*args, **program.constants).spec))
    with np.errstate(all="ignore"):
        expected = program.expected(*program.args())
        found = f(*args, mode="interpret", **program.constants)
    if found is None:
        found = args[0]
    for got, want in zip(found if isinstance(found, tuple) else (found,), expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=2e-5, atol=2e-5)
