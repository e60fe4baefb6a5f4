"""Layer normalisation along the rows, with scale and shift."""

from __future__ import annotations

import numpy as np

from tilelang import Tensor, bf16, cast, dims, dtypes, empty, f16, f32, grid, mean, rsqrt, tile, tune

M, N = dims("M N")
Float = dtypes(f32, f16, bf16)


@tile
def layernorm(x: Tensor[Float, M, N], gamma: Tensor[Float, N], beta: Tensor[Float, N], *,
              eps: float = 1e-5, BM: int = tune(4, 8, 1)) -> Tensor[Float, M, N]:
    """(x - mean) / sqrt(var + eps) * gamma + beta, along the last axis."""
    out = empty(Float, M, N)
    for i in grid(M, by=BM):
        row = cast(x[i, :], f32)
        centred = row - mean(row, axis=1, keepdims=True)
        var = mean(centred * centred, axis=1, keepdims=True)
        out[i, :] = centred * rsqrt(var + eps) * gamma[:] + beta[:]
    return out


def reference(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    x = x.astype(np.float64)
    if x.size == 0:
        return np.zeros_like(x)
    centred = x - x.mean(axis=1, keepdims=True)
    var = (centred * centred).mean(axis=1, keepdims=True)
    return centred / np.sqrt(var + eps) * gamma.astype(np.float64) + beta.astype(np.float64)
