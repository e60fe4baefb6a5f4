"""Sums of the rows and of the columns: two grids, two results."""

from __future__ import annotations

import numpy as np

from tilelang import dims, empty, f32, grid, range, sum, tile, tune, zeros

M, N = dims("M N")


@tile
def sums(x: f32[M, N], *, BM: int = tune(16, 32), BN: int = tune(256, 512)) -> tuple[f32[M], f32[N]]:
    """The sum of every row and the sum of every column."""
    rows = empty(f32, M)
    columns = empty(f32, N)
    for i in grid(M, by=BM):
        acc = zeros(f32, i)
        for j in range(N, by=BN):
            acc += sum(x[i, j], axis=1)
        rows[i] = acc
    for j in grid(N, by=BN):
        acc = zeros(f32, j)
        for i in range(M, by=BM):
            acc += sum(x[i, j], axis=0)
        columns[j] = acc
    return rows, columns


def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = x.astype(np.float64)
    return x.sum(axis=1), x.sum(axis=0)
