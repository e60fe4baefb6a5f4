"""int8 matrix product with a 32-bit accumulator."""

from __future__ import annotations

import numpy as np

from tilelang import dims, empty, grid, i8, i32, pipelined, tile, tune, zeros

M, N, K = dims("M N K")


@tile
def matmul_int8(a: i8[M, K], b: i8[K, N], *, BM: int = tune(64, 128), BN: int = tune(64, 128), BK: int = tune(64, 128)) -> i32[M, N]:
    """c = a @ b, exact in i32 as long as no sum overflows."""
    c = empty(i32, M, N)
    for i, j in grid(M, N, by=(BM, BN)):
        acc = zeros(i32, BM, BN)
        for k in pipelined(K, by=BK, stages=2):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
    return c


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.int64) @ b.astype(np.int64)
