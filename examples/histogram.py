"""Counts of values, with atomic additions from all blocks."""

from __future__ import annotations

import numpy as np

from tilelang import atomic_add, dims, empty, grid, i32, tile, tune, zeros

N, BINS = dims("N BINS")


@tile
def histogram(x: i32[N], *, BINS: int = 64, BN: int = tune(1024, 4096)) -> i32[BINS]:
    """counts[b] = how often b occurs in x; a value outside 0 to BINS - 1 stops the kernel."""
    counts = empty(i32, BINS)
    for b in grid(BINS, by=BINS):
        counts[b] = zeros(i32, b)
    for i in grid(N, by=BN):
        atomic_add(counts[x[i]], 1)
    return counts


def reference(x: np.ndarray, BINS: int = 64) -> np.ndarray:
    return np.bincount(x, minlength=BINS)
