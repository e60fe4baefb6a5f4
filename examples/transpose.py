"""A matrix turned over its diagonal, block by block."""

from __future__ import annotations

import numpy as np

from tilelang import Tensor, bf16, dims, dtypes, empty, f16, f32, f64, grid, i8, i32, i64, tile, tune, u8

M, N = dims("M N")
Element = dtypes(f32, f64, f16, bf16, i8, u8, i32, i64)


@tile
def transpose(x: Tensor[Element, M, N], *, BM: int = tune(32, 64), BN: int = tune(32, 64)) -> Tensor[Element, N, M]:
    """out[j, i] = x[i, j]."""
    out = empty(Element, N, M)
    for i, j in grid(M, N, by=(BM, BN)):
        out[j, i] = x[i, j].T
    return out


def reference(x: np.ndarray) -> np.ndarray:
    return x.T
