"""One matrix product for every batch index."""

from __future__ import annotations

import numpy as np

from tilelang import Tensor, bf16, dims, dtypes, empty, f16, f32, grid, pipelined, tile, tune, zeros

B, M, N, K = dims("B M N K")
Float = dtypes(f32, f16, bf16)


@tile
def batched_matmul(a: Tensor[Float, B, M, K], b: Tensor[Float, B, K, N], *,
                   BM: int = tune(64, 32), BN: int = tune(64, 32), BK: int = tune(64, 32)) -> Tensor[Float, B, M, N]:
    """c[n] = a[n] @ b[n]."""
    c = empty(Float, B, M, N)
    for n, i, j in grid(B, M, N, by=(None, BM, BN)):
        acc = zeros(f32, BM, BN)
        for k in pipelined(K, by=BK, stages=2):
            acc += a[n, i, k] @ b[n, k, j]
        c[n, i, j] = acc
    return c


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)
