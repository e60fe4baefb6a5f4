"""Defects that a review found: sizes and indices that do not fit in 64 bits, long programs, arrays whose elements share memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilelang import TileError
from tilelang.kernel import Kernel, load_text

Array = np.ndarray[Any, Any]


def kernel(text: str) -> Kernel:
    return load_text('M, N, K = dims("M N K")\n' + text).f


def fails(slug: str, f: Kernel, *args: Any, **keywords: Any) -> None:
    with pytest.raises(TileError) as caught:
        f(*args, **keywords)
    assert slug in str(caught.value)


def numbers(n: int) -> Array:
    return np.arange(n, dtype=np.float32)


def repeated(n: int) -> Array:
    """n times the same element."""
    return np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (n,), (0,))


OUTER = """def f(x: f32[N], y: f32[M], o: InOut[f32, 1]):
    for i in grid(1):
        t = x[:][:, None] * y[:][None, :]
        for k in range(2):
            t = t * t
        o[0] = max(t)
"""
SCRATCH = """def f(x: f32[N], y: f32[M]) -> f32[1]:
    t = empty(f32, N, M)
    o = empty(f32, 1)
    for i, j in grid(N, M, by=(8, 8)):
        t[i, j] = x[i][:, None] * y[j][None, :]
    for j in grid(1):
        o[0] = t[1, 1]
    return o
"""


def test_sizes_beyond_64_bits_are_out_of_memory() -> None:
    """2 ** 66 elements are not 4, for which there is memory."""
    fails("run-out-of-memory", kernel(OUTER), repeated(2**34), repeated(2**32), np.zeros(1, np.float32))
    fails("run-out-of-memory", kernel(SCRATCH), repeated(2**34), repeated(2**32))
    np.testing.assert_array_equal(kernel(SCRATCH)(repeated(9), repeated(5)), [1])


def test_tiles_beyond_64_bits_are_out_of_memory() -> None:
    text = """def f(x: f32[N, M]) -> f32[N, M]:
    o = empty(f32, N, M)
    for i, j in grid(N, M, by=(4294967296, 4294967296)):
        t = exp(x[i, j])
        o[i, j] = t / sum(t)
    return o
"""
    fails("run-out-of-memory", kernel(text), np.ones((3, 3), np.float32))


@pytest.mark.parametrize("offset", [-(2**63), 2**63 - 1, -(2**62) - 3, 2**61, -38, -37, -36, 36, 37])
def test_padded_loads_far_outside(offset: int) -> None:
    f = kernel("""def f(x: f32[N], k: i64) -> f32[N]:
    o = empty(f32, N)
    for i in grid(N, by=8):
        o[i] = load(x[i + k], pad=7)
    return o
""")
    x = numbers(37)
    inside = [(i + offset + 2**63) % 2**64 - 2**63 for i in range(37)]
    np.testing.assert_array_equal(f(x, offset), [x[i] if 0 <= i < 37 else 7 for i in inside])


@pytest.mark.parametrize("q, factor", [(3, 2**62), (7, 2**61)])
@pytest.mark.parametrize("place", ["q * {0}", "q * {0} : q * {0} + 4"])
def test_products_that_wrap_are_outside(q: int, factor: int, place: str) -> None:
    """The index is never negative in exact numbers, and negative in 64 bits."""
    f = kernel(f"""def f(x: InOut[f32, N], high: i64):
    for i in grid(1):
        for q in range({q}, high):
            x[{place.format(factor)}] = 1
""")
    fails("run-out-of-bounds", f, np.zeros(37, np.float32), q + 1)


@pytest.mark.parametrize("statement", ["a{0} = a{1} * 1.5 + a{2}", "a{0} = where(a{1} > 0, a{2}, -a{0})"])
def test_long_functions(statement: str) -> None:
    """Extents are followed along chains of ops, which may be longer than Python's stack."""
    lines = [statement.format(i % 3, (i + 1) % 3, (2 * i) % 3) for i in range(700)]
    start = [f"a{i} = x[i] * {i - 1}" for i in range(3)]
    f = kernel("def f(x: f32[N]) -> f32[N]:\n    o = empty(f32, N)\n    for i in grid(N, by=16):\n        " + "\n        ".join([*start, *lines, "o[i] = a0"]) + "\n    return o\n")
    x = numbers(20) - 7
    with np.errstate(all="ignore"):
        names: dict[str, Any] = {f"a{i}": x * np.float32(i - 1) for i in range(3)}
        for line in lines:
            exec(line, {"where": np.where}, names)
    np.testing.assert_allclose(f(x), names["a0"], rtol=1e-3)


@pytest.mark.parametrize("mode", ["fast", "interpret"])
def test_written_arrays_that_overlap_themselves(mode: str) -> None:
    f = kernel("def f(x: f32[M, N]) -> f32[M, N]:\n    return x + 1\n")
    strided = np.lib.stride_tricks.as_strided
    x = np.ones((4, 4), np.float32)
    fails("argument-overlap", f, x, out=strided(np.zeros(9, np.float32), (4, 4), (4, 8)), mode=mode)
    fails("argument-overlap", f, x, out=strided(np.zeros(9, np.float32), (4, 4), (8, 8)), mode=mode)
    fails("argument-overlap", f, x, out=strided(np.zeros(9, np.float32), (4, 4), (0, 4)), mode=mode)
    # Axes that interleave and share nothing: 0, 12, 24, 36 and 0, 16 bytes.
    out = strided(np.zeros(20, np.float32), (4, 2), (12, 16))
    np.testing.assert_array_equal(f(x[:, :2], out=out, mode=mode), np.full((4, 2), 2))
