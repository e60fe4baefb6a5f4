"""Attention with an online softmax: no S x T matrix in memory."""

from __future__ import annotations

import math

import numpy as np

from tilelang import (
    Tensor,
    bf16,
    cast,
    dims,
    dtypes,
    empty,
    exp,
    f16,
    f32,
    full,
    grid,
    inf,
    iota,
    max,
    min,
    pipelined,
    rsqrt,
    sum,
    tile,
    tune,
    where,
    zeros,
)

B, H, S, T, D = dims("B H S T D")
Float = dtypes(f32, f16, bf16)


@tile
def flash_attention(q: Tensor[Float, B, H, S, D], k: Tensor[Float, B, H, T, D], v: Tensor[Float, B, H, T, D], *,
                    causal: bool = False, BQ: int = tune(64, 32), BT: int = tune(64, 32)) -> Tensor[Float, B, H, S, D]:
    """softmax(q @ k.T / sqrt(D)) @ v; with causal, query i sees keys 0 to i."""
    out = empty(Float, B, H, S, D)
    scale = rsqrt(cast(D, f32))
    for b, h, i in grid(B, H, S, by=(None, None, BQ)):
        query = q[b, h, i, :]
        top = full(f32, i, value=-inf)
        total = zeros(f32, i)
        acc = zeros(f32, i, D)
        last = min(T, i.stop) if causal else T
        for j in pipelined(last, by=BT, stages=2):
            score = query @ k[b, h, j, :].T * scale
            if causal:
                score = where(iota(i)[:, None] >= iota(j)[None, :], score, -inf)
            new_top = max(top, max(score, axis=1))
            shrink = exp(top - new_top)
            p = exp(score - new_top[:, None])
            total = total * shrink + sum(p, axis=1)
            acc = acc * shrink[:, None] + p @ cast(v[b, h, j, :], f32)
            top = new_top
        out[b, h, i, :] = acc / total[:, None]
    return out


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    score = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        score = np.where(np.arange(q.shape[2])[:, None] >= np.arange(k.shape[2])[None, :], score, -np.inf)
    e = np.exp(score - score.max(axis=-1, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=-1, keepdims=True) @ v
