"""A whole-tensor function: no grid, the compiler cuts the work."""

from __future__ import annotations

import math

import numpy as np

from tilelang import dims, f32, gelu, tile

M, K, H, N = dims("M K H N")


@tile
def mlp(x: f32[M, K], w1: f32[K, H], b1: f32[H], w2: f32[H, N], b2: f32[N]) -> f32[M, N]:
    """Two linear layers with gelu between them."""
    hidden = gelu(x @ w1 + b1)
    return hidden @ w2 + b2


def reference(x: np.ndarray, w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray) -> np.ndarray:
    x, w1, b1, w2, b2 = (t.astype(np.float64) for t in (x, w1, b1, w2, b2))
    z = x @ w1 + b1
    hidden = 0.5 * z * (1 + np.vectorize(math.erf, otypes=[np.float64])(z / math.sqrt(2)))
    return hidden @ w2 + b2
