"""Root-mean-square normalisation along the rows."""

from __future__ import annotations

import numpy as np

from tilelang import Tensor, bf16, cast, dims, dtypes, empty, f16, f32, grid, mean, rsqrt, tile, tune

M, N = dims("M N")
Float = dtypes(f32, f16, bf16)


@tile
def rmsnorm(x: Tensor[Float, M, N], weight: Tensor[Float, N], *, eps: float = 1e-6, BM: int = tune(4, 8, 1)) -> Tensor[Float, M, N]:
    """x / sqrt(mean(x * x) + eps) * weight, along the last axis."""
    out = empty(Float, M, N)
    for i in grid(M, by=BM):
        row = cast(x[i, :], f32)
        out[i, :] = row * rsqrt(mean(row * row, axis=1, keepdims=True) + eps) * weight[:]
    return out


def reference(x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    x = x.astype(np.float64)
    if x.size == 0:
        return np.zeros_like(x)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * weight.astype(np.float64)
