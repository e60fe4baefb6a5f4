"""Two-dimensional convolution (NCHW), a small matrix product for every filter tap."""

from __future__ import annotations

import numpy as np

from tilelang import dims, empty, f32, grid, load, range, tile, tune, zeros

N, C, H, W, F, R, S, stride, pad = dims("N C H W F R S stride pad")


@tile
def conv2d(x: f32[N, C, H, W], w: f32[F, C, R, S], *, stride: int = 1, pad: int = 1,
           BF: int = tune(32, 64), BC: int = tune(32, 16), BX: int = tune(32, 64)
           ) -> f32[N, F, (H + 2 * pad - R) // stride + 1, (W + 2 * pad - S) // stride + 1]:
    """Cross-correlation with zero padding, as in deep learning libraries."""
    OH = (H + 2 * pad - R) // stride + 1
    OW = (W + 2 * pad - S) // stride + 1
    out = empty(f32, N, F, OH, OW)
    for n, f, y, u in grid(N, F, OH, OW, by=(None, BF, None, BX)):
        acc = zeros(f32, f, u)
        for r in range(R):
            for s in range(S):
                for c in range(C, by=BC):
                    patch = load(x[n, c, y * stride + r - pad, u * stride + (s - pad)], pad=0.0)
                    acc += w[f, c, r, s] @ patch
        out[n, f, y, u] = acc
    return out


def reference(x: np.ndarray, w: np.ndarray, stride: int = 1, pad: int = 1) -> np.ndarray:
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    (n, _, h, width), (f, _, r, s) = x.shape, w.shape
    oh, ow = np.maximum(0, ((h - r) // stride + 1, (width - s) // stride + 1))
    out = np.zeros((n, f, oh, ow))
    for i, j in np.ndindex(r, s):
        patch = x[:, :, i : i + stride * oh : stride, j : j + stride * ow : stride]
        out += np.einsum("fc,nchw->nfhw", w[:, :, i, j].astype(np.float64), patch[:, :, :oh, :ow])
    return out
