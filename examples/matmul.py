"""Matrix product of any float dtype: blocks of C in parallel, a pipelined loop over K."""

from __future__ import annotations

import numpy as np

from tilelang import Tensor, acc_type, bf16, dims, dtypes, empty, f16, f32, f64, grid, pipelined, tile, tune, zeros

M, N, K = dims("M N K")
Float = dtypes(f32, f64, f16, bf16)


@tile
def matmul(a: Tensor[Float, M, K], b: Tensor[Float, K, N], *,
           BM: int = tune(64, 128), BN: int = tune(64, 128), BK: int = tune(64, 32)) -> Tensor[Float, M, N]:
    """c = a @ b, summed in f32 (f64 for f64)."""
    c = empty(Float, M, N)
    for i, j in grid(M, N, by=(BM, BN)):
        acc = zeros(acc_type(Float), BM, BN)
        for k in pipelined(K, by=BK, stages=2):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
    return c


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)
