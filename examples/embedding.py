"""Rows of a table picked by index: a gather."""

from __future__ import annotations

import numpy as np

from tilelang import Tensor, bf16, dims, dtypes, empty, f16, f32, grid, i32, tile, tune

V, D, T = dims("V D T")
Float = dtypes(f32, f16, bf16)


@tile
def embedding(ids: i32[T], table: Tensor[Float, V, D], *, BT: int = tune(16, 64)) -> Tensor[Float, T, D]:
    """out[t] = table[ids[t]]; an id outside the table stops the kernel."""
    out = empty(Float, T, D)
    for t in grid(T, by=BT):
        out[t, :] = table[ids[t], :]
    return out


def reference(ids: np.ndarray, table: np.ndarray) -> np.ndarray:
    return table[ids]
