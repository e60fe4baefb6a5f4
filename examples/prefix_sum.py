"""Cumulative sum along the rows, block by block with a carry."""

from __future__ import annotations

import numpy as np

from tilelang import cumsum, dims, empty, f32, grid, range, sum, tile, tune, zeros

M, N = dims("M N")


@tile
def prefix_sum(x: f32[M, N], *, BM: int = tune(8, 16), BN: int = tune(128, 256)) -> f32[M, N]:
    """out[i, j] = x[i, 0] + ... + x[i, j]."""
    out = empty(f32, M, N)
    for i in grid(M, by=BM):
        carry = zeros(f32, i)
        for j in range(N, by=BN):
            block = x[i, j]
            out[i, j] = cumsum(block, axis=1) + carry[:, None]
            carry += sum(block, axis=1)
    return out


def reference(x: np.ndarray) -> np.ndarray:
    return np.cumsum(x.astype(np.float64), axis=1)
