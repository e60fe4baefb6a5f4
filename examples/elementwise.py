"""A chain of elementwise operations: one pass over memory."""

from __future__ import annotations

import numpy as np

from tilelang import abs, dims, empty, exp, f32, grid, relu, sigmoid, tile, tune

M, N = dims("M N")


@tile
def elementwise(x: f32[M, N], y: f32[M, N], scale: f32, *, BM: int = tune(16, 32), BN: int = tune(256, 512)) -> f32[M, N]:
    """out = sigmoid(scale * x + 1) * relu(y) - exp(-|x|)."""
    out = empty(f32, M, N)
    for i, j in grid(M, N, by=(BM, BN)):
        a = x[i, j]
        gate = sigmoid(scale * a + 1.0)
        out[i, j] = gate * relu(y[i, j]) - exp(-abs(a))
    return out


def reference(x: np.ndarray, y: np.ndarray, scale: float) -> np.ndarray:
    x, y = x.astype(np.float64), y.astype(np.float64)
    return 1 / (1 + np.exp(-(scale * x + 1))) * np.maximum(y, 0) - np.exp(-np.abs(x))
