"""Names around a Python function: constants, dtypes, dims, other kernels, modules; and objects that kernels cannot use."""

from __future__ import annotations

import enum
import math
import sys
from typing import Any

import numpy as np
import pytest

import tilelang as tl
from tilelang import TileError, dims, dtypes, exp, f16, f32, gelu, grid, tile

M, N = dims("M N")
Float = dtypes(f32, f16)
SCALE = 3
PAIR = (1.5, 2)
WIDE = f32
TWO = np.float32(2)


ARRAY = np.ones(3)


class Size(enum.IntEnum):
    SMALL = 4


FOUR = Size.SMALL


@tile
def doubled(t):
    return t * 2


@tile
def from_globals(x: f32[M]) -> f32[M]:
    return doubled(x) * SCALE + PAIR[0] + PAIR[1] + TWO + FOUR


@tile
def through_modules(x: tl.f32[M]) -> tl.f32[M]:
    out = tl.empty(tl.f32, M)
    for i in tl.grid(M, by=4):
        out[i] = tl.exp(x[i]) + math.pi + tl.inf * 0
    return out


@tile
def with_builtins(x: f32[M, N]) -> f32[M]:
    out = tl.empty(WIDE, M)
    for i in grid(M, by=4):
        row = x[i, :]
        out[i] = sum(row, axis=1) + max(row, axis=1) + min(abs(row), axis=1)
    return out


@tile
def with_later_names(x: f32[M]) -> f32[M]:
    return tripled(x) + LATER


@tile
def tripled(t):
    return t * 3


@tile
def calls_itself(x: f32[M]) -> f32[M]:
    return calls_itself(x)


LATER = 1.5


@tile
def stopping(x: f32[M, N], s: f32) -> f32[M, N]:
    out = tl.empty(f32, M, N)
    for i, j in grid(M, N, by=(2, None)):
        t = x[i, j] * s
        breakpoint()
        out[i, j] = t
    return out


X = np.arange(6, dtype=np.float32)


def test_names_that_are_set_after_the_function() -> None:
    np.testing.assert_array_equal(with_later_names(X, mode="interpret"), X * 3 + 1.5)
    with pytest.raises(TileError) as caught:
        calls_itself.build()
    assert caught.value.diagnostics[0].slug == "recursion"


@pytest.mark.parametrize("mode", ["interpret", "check"])
def test_breakpoints_see_the_variables(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(dict(sys._getframe(1).f_globals)))
    stopping(X.reshape(3, 2), 2.0, mode=mode)
    assert [(d["i"], d["j"], d["s"]) for d in seen] == [(range(2), 0, 2), (range(2), 1, 2), (range(2, 3), 0, 2), (range(2, 3), 1, 2)]
    assert [d["t"].tolist() for d in seen] == [[0, 4], [2, 6], [8], [10]]


def test_constants_and_helpers() -> None:
    np.testing.assert_allclose(from_globals(X, mode="interpret"), X * 6 + 9.5)


def test_modules() -> None:
    found = through_modules.build()
    assert found.level == "tile"
    assert "arith.exp" in str(found)
    assert "3.141592653589793" in str(found)


def test_names_of_python_mean_the_languages() -> None:
    x = X.reshape(2, 3)
    np.testing.assert_allclose(with_builtins(x, mode="interpret"), x.sum(1) + x.max(1) + np.abs(x).min(1))


def test_a_closure() -> None:
    factor = 4

    def make(power: int) -> Any:
        @tile
        def f(x: f32[M]) -> f32[M]:
            return x * factor + power

        return f

    np.testing.assert_allclose(make(2)(X, mode="interpret"), X * 4 + 2)
    np.testing.assert_allclose(make(5)(X, mode="interpret"), X * 4 + 5)


def test_a_dtype_parameter_shared_with_a_helper() -> None:
    @tile
    def cast_up(t):
        return tl.cast(t, tl.acc_type(Float))

    @tile
    def f(x: tl.Tensor[Float, M]) -> f32[M]:
        return gelu(cast_up(x))

    x = np.array([0.5, 2], np.float16)
    np.testing.assert_allclose(f(x, mode="interpret"), [0.34573123, 1.9544997], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ARRAY", "'ARRAY' is an array; pass it to the kernel as a parameter"),
        ("plain", "'plain' is a plain Python function; put @tile in front of it, so that kernels can call it"),
        ("np", None),
        ("thing", "'thing' is a Python object of type object; kernels use numbers, bools, strings, dtypes, dims and tuples of them"),
    ],
)
def test_objects_that_kernels_cannot_use(name: str, message: str | None) -> None:
    thing = object()

    def plain(x: Any) -> Any:
        return x

    kernels = {}

    @tile
    def array(x: f32[M]) -> f32[M]:
        return x * ARRAY

    @tile
    def call(x: f32[M]) -> f32[M]:
        return plain(x)

    @tile
    def module(x: f32[M]) -> f32[M]:
        return np.exp(x)

    @tile
    def other(x: f32[M]) -> f32[M]:
        return x * thing

    kernels = {"ARRAY": array, "plain": call, "np": module, "thing": other}
    with pytest.raises(TileError) as caught:
        kernels[name].build()
    found = caught.value.diagnostics[0]
    assert found.slug == "wrong-type"
    assert message is None or found.help == message


def test_the_types_are_only_for_signatures() -> None:
    with pytest.raises(RuntimeError, match="only inside a function"):
        f32(3)
    with pytest.raises(TypeError, match="takes dtypes"):
        dtypes(3)
    with pytest.raises(ValueError, match="names"):
        dims("3 M")
    assert repr((M + 1) // 2) == "((M + 1) // 2)"
    assert exp is tl.exp
