"""Softmax along the rows."""

from __future__ import annotations

import numpy as np

from tilelang import Tensor, bf16, cast, dims, dtypes, empty, exp, f16, f32, grid, max, sum, tile, tune

M, N = dims("M N")
Float = dtypes(f32, f16, bf16)


@tile
def softmax(x: Tensor[Float, M, N], *, BM: int = tune(4, 8, 1)) -> Tensor[Float, M, N]:
    """exp(x - max) / sum(exp(x - max)), along the last axis."""
    out = empty(Float, M, N)
    for i in grid(M, by=BM):
        row = cast(x[i, :], f32)
        e = exp(row - max(row, axis=1, keepdims=True))
        out[i, :] = e / sum(e, axis=1, keepdims=True)
    return out


def reference(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=1, keepdims=True)
