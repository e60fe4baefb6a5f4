"""A linear layer: matrix product, bias and gelu in one kernel."""

from __future__ import annotations

import math

import numpy as np

from tilelang import Tensor, bf16, dims, dtypes, empty, f16, f32, gelu, grid, pipelined, tile, tune, zeros

M, N, K = dims("M N K")
Float = dtypes(f32, f16, bf16)


@tile
def linear(a: Tensor[Float, M, K], w: Tensor[Float, K, N], bias: Tensor[Float, N], *,
           BM: int = tune(64, 128), BN: int = tune(128, 64), BK: int = tune(32, 64)) -> Tensor[Float, M, N]:
    """gelu(a @ w + bias)."""
    out = empty(Float, M, N)
    for i, j in grid(M, N, by=(BM, BN)):
        acc = zeros(f32, BM, BN)
        for k in pipelined(K, by=BK, stages=3):
            acc += a[i, k] @ w[k, j]
        out[i, j] = gelu(acc + bias[j])
    return out


def reference(a: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    z = a.astype(np.float64) @ w.astype(np.float64) + bias.astype(np.float64)
    return 0.5 * z * (1 + np.vectorize(math.erf, otypes=[np.float64])(z / math.sqrt(2)))
