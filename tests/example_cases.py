"""Inputs for every example: shapes that are ragged, one element, empty and large, in every dtype the example takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

FLOATS: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": bfloat16}
RAGGED, ONE, LARGE = (127, 93, 65), (1, 1, 1), (257, 384, 320)
EMPTY = [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0)]

Make = Callable[..., tuple[Any, ...]]


@dataclass
class Case:
    """One call of an example: the arguments and the compile-time values."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    terms: int = 1  # how many products or sums go into one element of the result, for the error bound
    dtype: str = "f32"


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(FLOATS[dtype])


def _matmul(rng: np.random.Generator, m: int, n: int, k: int, dtype: str) -> tuple[Any, ...]:
    return normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)


def _floats(make: Make, dtypes: list[str], shapes: list[tuple[int, ...]], terms: Callable[[tuple[int, ...]], int]) -> Callable[[np.random.Generator], Iterator[Case]]:
    def cases(rng: np.random.Generator) -> Iterator[Case]:
        for dtype in dtypes:
            for shape in shapes if dtype == dtypes[0] else shapes[:1]:
                yield Case(f"{dtype}-{'x'.join(map(str, shape))}", make(rng, *shape, dtype), terms=terms(shape), dtype=dtype)

    return cases


MNK = [RAGGED, ONE, *EMPTY, LARGE]
MN = [RAGGED[:2], (1, 1), (0, 5), (5, 0), (300, 1000), (3, 4099)]


def _embedding(rng: np.random.Generator) -> Iterator[Case]:
    for v, d, t in [(93, 65, 127), (1, 1, 1), (5, 7, 0), (5, 0, 7), (1000, 256, 300)]:
        yield Case(f"{v}x{d}x{t}", (rng.integers(0, v, t, dtype=np.int32), normal(rng, (v, d), "f32")))
    for dtype in ("f16", "bf16"):
        yield Case(dtype, (rng.integers(0, 9, 20, dtype=np.int32), normal(rng, (9, 33), dtype)), dtype=dtype)


def _conv2d(rng: np.random.Generator) -> Iterator[Case]:
    def one(n: int, c: int, h: int, w: int, f: int, r: int, s: int, **kw: int) -> Case:
        return Case(f"{n}x{c}x{h}x{w}-{f}x{r}x{s}{kw or ''}", (normal(rng, (n, c, h, w), "f32"), normal(rng, (f, c, r, s), "f32")), kw, terms=c * r * s)

    yield one(2, 5, 13, 11, 7, 3, 3)
    yield one(1, 1, 1, 1, 1, 1, 1, pad=0)
    yield one(1, 3, 23, 19, 33, 5, 3, stride=2, pad=2)
    yield one(0, 3, 8, 8, 4, 3, 3)
    yield one(2, 0, 8, 8, 4, 3, 3)
    yield one(1, 64, 28, 28, 64, 3, 3)


def _attention(rng: np.random.Generator) -> Iterator[Case]:
    def one(b: int, h: int, s: int, t: int, d: int, causal: bool = False, dtype: str = "f32") -> Case:
        args = tuple(normal(rng, shape, dtype) for shape in ((b, h, s, d), (b, h, t, d), (b, h, t, d)))
        return Case(f"{dtype}-{b}x{h}x{s}x{t}x{d}{'-causal' if causal else ''}", args, {"causal": causal}, terms=t + d, dtype=dtype)

    yield one(2, 3, 93, 127, 65)
    yield one(1, 1, 1, 1, 1)
    yield one(0, 2, 5, 5, 8)
    yield one(1, 2, 0, 5, 8)
    for causal in (False, True):
        yield one(1, 2, 127, 127, 40, causal)
        yield one(1, 4, 256, 256, 64, causal)
    yield one(1, 2, 33, 50, 32, dtype="f16")
    yield one(1, 2, 33, 50, 32, dtype="bf16")


def _ints(rng: np.random.Generator) -> Iterator[Case]:
    for m, n, k in MNK:
        yield Case(f"{m}x{n}x{k}", (rng.integers(-128, 128, (m, k), dtype=np.int8), rng.integers(-128, 128, (k, n), dtype=np.int8)), dtype="i32")


def _histogram(rng: np.random.Generator) -> Iterator[Case]:
    for n in (127, 1, 0, 100_003):
        yield Case(str(n), (rng.integers(0, 64, n, dtype=np.int32),), dtype="i32")
    yield Case("bins", (rng.integers(0, 7, 500, dtype=np.int32),), {"BINS": 7}, dtype="i32")


def _transpose(rng: np.random.Generator) -> Iterator[Case]:
    for m, n in MN:
        yield Case(f"{m}x{n}", (normal(rng, (m, n), "f32"),))
    for dtype in ("f64", "f16", "bf16"):
        yield Case(dtype, (normal(rng, (45, 67), dtype),), dtype=dtype)
    for dtype in (np.int8, np.uint8, np.int32, np.int64):
        yield Case(np.dtype(dtype).name, (rng.integers(0, 100, (45, 67)).astype(dtype),), dtype="i32")


def _mlp(rng: np.random.Generator, m: int, k: int, h: int, dtype: str) -> tuple[Any, ...]:
    """Weights of the size that layers have, so that the hidden values stay near 1."""
    w1, w2 = (normal(rng, shape, dtype) / np.float32(max(shape[0], 1) ** 0.5) for shape in ((k, h), (h, 31)))
    return normal(rng, (m, k), dtype), w1, normal(rng, (h,), dtype), w2, normal(rng, (31,), dtype)


HALVES = ["f32", "f16", "bf16"]
CASES: dict[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    "matmul": _floats(_matmul, ["f32", "f64", "f16", "bf16"], MNK, lambda s: s[2]),
    "elementwise": _floats(lambda r, m, n, t: (normal(r, (m, n), t), normal(r, (m, n), t), 0.75), ["f32"], MN, lambda s: 4),
    "linear": _floats(lambda r, m, n, k, t: (*_matmul(r, m, n, k, t), normal(r, (n,), t)), HALVES, MNK, lambda s: s[2] + 4),
    "matmul_int8": _ints,
    "batched_matmul": _floats(
        lambda r, m, n, k, t: (normal(r, (3, m, k), t), normal(r, (3, k, n), t)), HALVES, [RAGGED, ONE, *EMPTY, (130, 70, 64)], lambda s: s[2]
    ),
    "softmax": _floats(lambda r, m, n, t: (normal(r, (m, n), t),), HALVES, MN, lambda s: s[1]),
    "layernorm": _floats(lambda r, m, n, t: (normal(r, (m, n), t), normal(r, (n,), t), normal(r, (n,), t)), HALVES, MN, lambda s: s[1]),
    "rmsnorm": _floats(lambda r, m, n, t: (normal(r, (m, n), t), normal(r, (n,), t)), HALVES, MN, lambda s: s[1]),
    "sums": _floats(lambda r, m, n, t: (normal(r, (m, n), t),), ["f32"], MN, lambda s: s[0] + s[1]),
    "transpose": _transpose,
    "embedding": _embedding,
    "conv2d": _conv2d,
    "flash_attention": _attention,
    "prefix_sum": _floats(lambda r, m, n, t: (normal(r, (m, n), t),), ["f32"], MN, lambda s: s[1]),
    "histogram": _histogram,
    "splitk_matmul": _floats(_matmul, ["f32"], [RAGGED, ONE, *EMPTY, (33, 45, 3000)], lambda s: s[2]),
    "mlp": _floats(
        _mlp, ["f32"], [RAGGED, ONE, *EMPTY, (200, 128, 256)], lambda s: s[1] + s[2] + 8,
    ),
}  # fmt: skip

# Unit roundoff of the dtype an element is stored in.
ROUNDOFF = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "i32": 0.0}


def check(result: Any, expected: Any, case: Case) -> None:
    """Compares with the float64 reference: integers exactly; floats within a bound of rounding in storage and in f32 accumulation."""
    results = result if isinstance(result, tuple) else (result,)
    references = expected if isinstance(expected, tuple) else (expected,)
    assert len(results) == len(references)
    for got, want in zip(results, references):
        assert got.shape == want.shape
        if case.dtype == "i32":
            np.testing.assert_array_equal(got, want)
            continue
        want = want.astype(np.float64)
        scale = np.maximum(np.abs(want), 1.0)
        accumulate = ROUNDOFF["f64" if case.dtype == "f64" else "f32"]
        bound = 4 * ROUNDOFF[case.dtype] + 8 * accumulate * max(case.terms, 1) ** 0.5 * max(1.0, np.log2(max(case.terms, 2)))
        error = np.abs(got.astype(np.float64) - want) / scale
        both_nan = np.isnan(got.astype(np.float64)) & np.isnan(want)
        worst = np.max(np.where(both_nan, 0.0, error), initial=0.0)
        assert worst <= bound, f"{case.name}: error {worst:.3g}, bound {bound:.3g}"
