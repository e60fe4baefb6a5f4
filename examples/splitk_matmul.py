"""A matrix product whose K is cut too: blocks add their share atomically. For small M and N with a long K."""

from __future__ import annotations

import numpy as np

from tilelang import atomic_add, dims, empty, f32, grid, pipelined, tile, tune, zeros

M, N, K = dims("M N K")


@tile
def splitk_matmul(a: f32[M, K], b: f32[K, N], *,
                  BM: int = tune(32, 64), BN: int = tune(32, 64), SK: int = tune(256, 512), BK: int = tune(64, 32)) -> f32[M, N]:
    """c = a @ b; the order in which the shares are added is not fixed."""
    c = empty(f32, M, N)
    for i, j in grid(M, N, by=(BM, BN)):
        c[i, j] = zeros(f32, i, j)
    for i, j, part in grid(M, N, K, by=(BM, BN, SK)):
        acc = zeros(f32, BM, BN)
        for k in pipelined(part.start, part.stop, by=BK, stages=2):
            acc += a[i, k] @ b[k, j]
        atomic_add(c[i, j], acc)
    return c


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)
