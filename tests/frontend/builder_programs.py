"""Small right programs with what they compute: (name, source, arguments, NumPy function). Each is built, verified and interpreted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

HEAD = 'M, N, K = dims("M N K")\nFloat = dtypes(f32, f16, f64)\n\n'
R = np.random.default_rng(5)


class Program(NamedTuple):
    text: str
    args: Callable[[], list[Any]]
    expected: Callable[..., Any]
    constants: dict[str, Any] = {}


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def i32(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(high + sum(shape)).integers(0, high, shape, dtype=np.int32)


def blocks(body: str, params: str = "x: f32[M, N]", result: str = "f32[M, N]", by: str = "(8, 16)", axes: str = "i, j", dims: str = "M, N") -> str:
    """A function with one grid around the body and one result of the dtype and dims of `result`."""
    dtype, _, shape = result.partition("[")
    lines = "\n".join("        " + line for line in body.strip().split("\n"))
    return (
        f"{HEAD}def f({params}) -> {result}:\n    out = empty({dtype}, {shape[:-1]})\n    for {axes} in grid({dims}, by={by}):\n{lines}\n    return out\n"
    )


def rows(body: str, params: str = "x: f32[M, N]", result: str = "f32[M, N]") -> str:
    return blocks(body, params, result, "8", "i", "M")


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30], np.float32)

PROGRAMS: dict[str, Program] = {
    "copy": Program(blocks("out[i, j] = x[i, j]"), lambda: [f32(13, 37)], lambda x: x),
    "elementwise": Program(blocks("a = x[i, j]\nout[i, j] = exp(-abs(a)) * 2 + a / 3 - max(a, 0.0)"), lambda: [f32(13, 37)],
                           lambda x: np.exp(-np.abs(x)) * 2 + x / 3 - np.maximum(x, 0)),
    "scalar parameter": Program(blocks("out[i, j] = a * x[i, j] + n", "x: f32[M, N], a: f32, n: i32"), lambda: [f32(5, 6), 1.5, 3], lambda x, a, n: x * a + n),
    "broadcast row": Program(blocks("out[i, j] = x[i, j] + v[j]", "x: f32[M, N], v: f32[N]"), lambda: [f32(9, 20), f32(20)], lambda x, v: x + v),
    "broadcast column": Program(blocks("out[i, j] = x[i, j] + v[i][:, None]", "x: f32[M, N], v: f32[M]"), lambda: [f32(9, 20), f32(9)], lambda x, v: x + v[:, None]),
    "square": Program(blocks("out[i, j] = x[i, j] + v[i][:, None] * v[j]", "x: f32[M, M], v: f32[M]", "f32[M, M]", dims="M, M"), lambda: [f32(19, 19), f32(19)],
                      lambda x, v: x + v[:, None] * v),
    "matmul": Program(blocks("acc = zeros(f32, 8, 16)\nfor k in pipelined(K, by=4, stages=3):\n    acc += a[i, k] @ b[k, j]\nout[i, j] = acc",
                             "a: f32[M, K], b: f32[K, N]"), lambda: [f32(9, 7), f32(7, 20)], lambda a, b: a @ b),
    "matmul plain": Program(blocks("acc = zeros(f32, i, j)\nfor k in range(K, by=4):\n    acc = acc + a[i, k] @ b[k, j]\nout[i, j] = acc",
                                   "a: f32[M, K], b: f32[K, N]"), lambda: [f32(9, 7), f32(7, 20)], lambda a, b: a @ b),
    "matmul int8": Program(blocks("out[i, j] = a[i, :] @ b[:, j]", "a: i8[M, K], b: u8[K, N]", "i32[M, N]"),
                           lambda: [i32(100, 5, 6).astype(np.int8) - np.int8(50), i32(255, 6, 7).astype(np.uint8)], lambda a, b: a.astype(np.int32) @ b.astype(np.int32)),
    "matmul batched": Program(HEAD + "def f(a: f32[K, M, N], b: f32[K, N, M]) -> f32[K, M, M]:\n    return a @ b\n", lambda: [f32(3, 4, 5), f32(3, 5, 4)], lambda a, b: a @ b),
    "softmax": Program(rows("r = x[i, :]\ne = exp(r - max(r, axis=1, keepdims=True))\nout[i, :] = e / sum(e, axis=-1)[:, None]"), lambda: [f32(11, 30)],
                       lambda x: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)),
    "reduce all": Program(rows("out[i] = sum(x[i, :]) + 0 * v[i]", "x: f32[M, N], v: f32[M]", "f32[M]").replace("by=8", "by=1"), lambda: [f32(6, 5), f32(6)],
                          lambda x, v: x.sum(1)),
    "reduce kinds": Program(rows("t = x[i, :]\nout[i] = prod(t, axis=1) + min(t, axis=1) + mean(t, axis=1) + argmax(t, axis=1)", result="f32[M]"), lambda: [f32(9, 7)],
                            lambda x: x.prod(1) + x.min(1) + x.mean(1) + x.argmax(1)),
    "any all": Program(rows("t = x[i, :]\nout[i] = where(any(t > 2, axis=1) & all(t > -2, axis=1), 1.0, 0.0)", result="f32[M]"), lambda: [f32(9, 40)],
                       lambda x: ((x > 2).any(1) & (x > -2).all(1)).astype(np.float32)),
    "sum of bools": Program(rows("out[i] = sum(x[i, :] > 0, axis=1)", result="i32[M]"), lambda: [f32(9, 7)], lambda x: (x > 0).sum(1)),
    "cumsum": Program(rows("out[i, :] = cumsum(x[i, :], axis=1) - cumsum(x[i, :], axis=1, exclusive=True) * 2"), lambda: [f32(9, 7)],
                      lambda x: np.cumsum(x, 1) - 2 * (np.cumsum(x, 1) - x)),
    "stencil": Program(blocks("out[i, j] = load(x[i - 1, j], pad=0) + load(x[i + 1, j + 2], pad=1.0)"), lambda: [f32(10, 17)],
                       lambda x: np.pad(x, ((1, 0), (0, 0)))[:-1] + np.pad(x, ((0, 1), (0, 2)), constant_values=1.0)[1:, 2:]),
    "strided range": Program(rows("out[i] = x[i * 2 + 1]", "x: f32[K], y: f32[M]", "f32[M]"), lambda: [f32(20), f32(10)], lambda x, y: x[1::2]),
    "strided slice": Program(HEAD + "def f(x: f32[M, 9]) -> f32[M, 3]:\n    out = empty(f32, M, 3)\n    for i in grid(M):\n        out[i, :] = x[i, 1:9:3]\n    return out\n",
                             lambda: [f32(4, 9)], lambda x: x[:, 1:9:3]),
    "gather rows": Program(rows("out[i, :] = table[ids[i], :]", "ids: i32[M], table: f32[K, N]"), lambda: [i32(6, 13), f32(6, 5)], lambda ids, t: t[ids]),
    "gather column": Program(rows("out[i, :] = table[:, ids[i]].T", "ids: i64[M], table: f32[N, K]"), lambda: [i32(6, 13).astype(np.int64), f32(5, 6)], lambda ids, t: t[:, ids].T),
    "gather pairs": Program(rows("out[i] = x[a[i], b[i]]", "x: f32[K, N], a: i32[M], b: u8[M]", "f32[M]"), lambda: [f32(6, 5), i32(6, 13), i32(5, 13).astype(np.uint8)],
                            lambda x, a, b: x[a, b]),
    "gather apart": Program(rows("out[i, :] = x[a[i], :, b[i]]", "x: f32[K, N, K], a: i32[M], b: i32[M]"), lambda: [f32(6, 5, 6), i32(6, 13), i32(6, 13)],
                            lambda x, a, b: x[a, :, b]),
    "gather tile": Program(rows("out[i, :] = gather(x[i, :], c[i, :], axis=1)", "x: f32[M, N], c: i32[M, K]", "f32[M, K]"), lambda: [f32(9, 5), i32(5, 9, 4)],
                           lambda x, c: np.take_along_axis(x, c, 1)),
    "scatter": Program(rows("out[p[i]] = x[i]", "x: f32[M], p: i32[M]", "f32[M]"), lambda: [f32(13), np.arange(13, dtype=np.int32)[::-1].copy()], lambda x, p: x[::-1]),
    "iota": Program(blocks("out[i, j] = iota(i)[:, None] * 100 + iota(j + 3) - iota(4)[1]", "x: f32[M, N]", "i32[M, N]"), lambda: [f32(10, 20)],
                    lambda x: np.arange(10)[:, None] * 100 + np.arange(20) + 3 - 1),
    "index scalars": Program(rows("out[i] = x[i] * i.start + i.stop + len(i) + i.by + M", "x: f32[M]", "f32[M]"), lambda: [f32(11)],
                             lambda x: np.concatenate([x[:8] * 0 + 8 + 8 + 8 + 11, x[8:] * 8 + 11 + 3 + 8 + 11])),
    "scalar grid": Program(HEAD + "def f(x: f32[M, N]) -> f32[N, M]:\n    out = empty(f32, N, M)\n    for i, j in grid(M, N):\n        out[j, i] = x[i, j]\n    return out\n",
                           lambda: [f32(3, 4)], lambda x: x.T),
    "while": Program(rows("n = 0\nv = 100.0\nwhile v > 1 and n < 50:\n    v = v / 2\n    n += 1\nout[i] = x[i] + n", "x: f32[M]", "f32[M]"), lambda: [f32(9)], lambda x: x + 7),
    "break": Program(rows("s = 0.0\nfor k in range(10):\n    if k == 4:\n        break\n    s += k\nout[i] = x[i] + s", "x: f32[M]", "f32[M]"), lambda: [f32(9)], lambda x: x + 6),
    "continue": Program(rows("s = 0.0\nfor k in range(10):\n    if k % 2 == 1:\n        continue\n    s += k\nout[i] = x[i] + s", "x: f32[M]", "f32[M]"), lambda: [f32(9)],
                        lambda x: x + 20),
    "while break": Program(rows("n = 0\nwhile True:\n    n += 1\n    if n > 5:\n        break\n    if n > 3:\n        continue\n    n += 1\nout[i] = x[i] + n", "x: f32[M]", "f32[M]"),
                           lambda: [f32(9)], lambda x: x + 6),
    "if": Program(rows("a = x[i]\nif n > 3:\n    a = a * 2\n    b = 1\nelif n > 1:\n    b = 2\nelse:\n    a = -a\n    b = 3\nout[i] = a + b", "x: f32[M], n: i32", "f32[M]"),
                  lambda: [f32(9), 2], lambda x, n: x + 2),
    "conditional": Program(rows("out[i] = (x[i] if n > 3 else x[0]) + (1.0 if n > 1 else 2)", "x: f32[M], n: i32", "f32[M]"), lambda: [f32(9), 4], lambda x, n: x + 1),
    "short circuit": Program(rows("t = 5.0 if k < N and v[k] > 0 else 6.0\nout[i] = x[i] + t", "x: f32[M], v: f32[N], k: i32", "f32[M]"), lambda: [f32(9), f32(3), 7],
                             lambda x, v, k: x + 6),
    "descending": Program(HEAD + "def f(x: f32[M, N]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M):\n        s = 0.0\n        for k in range(N - 1, -1, -1):\n"
                          "            s = s * 0.5 + x[i, k]\n        out[i] = s\n    return out\n",
                          lambda: [f32(5, 6)], lambda x: sum(x[:, k] * np.float32(0.5) ** k for k in range(6))),
    "unrolled": Program(rows("s = zeros(f32, i)\nfor d, w in ((0, 1.0), (1, 2.0), (2, 4.0)):\n    s += x[i + d] * w\nfor q in static_range(3):\n    if q == 2:\n        break\n    s += q\n"
                             "out[i] = s", "x: f32[K], y: f32[M]", "f32[M]"), lambda: [f32(15), f32(13)], lambda x, y: x[:13] + 2 * x[1:14] + 4 * x[2:15] + 1),
    "static if": Program(rows("if mode == \"double\" and N > 0:\n    out[i] = x[i] * 2\nelse:\n    out[i] = x[i]", "x: f32[M], *, mode: str = \"double\"", "f32[M]").replace(" and N > 0", ""),
                         lambda: [f32(9)], lambda x: x * 2),
    "helper": Program(HEAD + "def scaled(t, s=2.0):\n    if s == 1.0:\n        return t\n    return t * s\n\ndef pair(t):\n    return t + 1, t - 1\n\n"
                      + rows("a, b = pair(scaled(x[i]))\nout[i] = a * b + scaled(x[i], s=1.0)", "x: f32[M]", "f32[M]")[len(HEAD):], lambda: [f32(9)], lambda x: (2 * x + 1) * (2 * x - 1) + x),
    "two results": Program(HEAD + "def f(x: f32[M, N]) -> tuple[f32[M], i32[N]]:\n    a = empty(f32, M)\n    b = empty(i32, N)\n    for i in grid(M, by=4):\n        a[i] = sum(x[i, :], axis=1)\n"
                           "    for j in grid(N, by=4):\n        b[j] = argmin(x[:, j], axis=0)\n    return a, b\n", lambda: [f32(9, 7)], lambda x: (x.sum(1), x.argmin(0))),
    "in place": Program(HEAD + "def f(x: InOut[f32, M], y: f32[M]):\n    for i in grid(M, by=4):\n        x[i] += y[i]\n        x[i] *= 2\n", lambda: [f32(9), f32(9) + 1], lambda x, y: (x + y) * 2),
    "scratch": Program(HEAD + "def f(x: f32[M]) -> f32[M]:\n    t = empty(f32, M)\n    out = empty(f32, M)\n    for i in grid(M, by=4):\n        t[i] = x[i] * 2\n    for i in grid(M, by=8):\n"
                       "        out[i] = t[i] + 1\n    return out\n", lambda: [f32(9)], lambda x: 2 * x + 1),
    "atomics": Program(HEAD + "def f(x: i32[M]) -> i32[8]:\n    out = empty(i32, 8)\n    for b in grid(8, by=8):\n        out[b] = zeros(i32, b)\n    for i in grid(M, by=4):\n"
                       "        atomic_add(out[x[i]], 1)\n        atomic_max(out[0], max(x[i]))\n    return out\n", lambda: [i32(7, 40) + 1], lambda x: [max(x), *np.bincount(x, minlength=8)[1:]]),
    "buffers": Program(blocks("s = shared(f32, 8, 4)\nt = shared(f32, 4, 16)\nacc = accumulator(f32, 8, 16)\nfill(acc, 0)\nfor k in pipelined(K, by=4):\n    copy(a[i, k], s)\n"
                              "    copy(b[k, j], t)\n    gemm(s, t, acc)\nfor r, c in parallel(8, 16):\n    acc[r, c] = acc[r, c] * 2 + 1\ncopy(acc, out[i, j])",
                              "a: f32[M, K], b: f32[K, N]"), lambda: [f32(9, 7), f32(7, 20)], lambda a, b: 2 * (a @ b) + 1),
    "buffer of a tile": Program(rows("s = local(x[i, :])\ns += 1\ns[:, 0] = 5.0\nout[i, :] = s * 2"), lambda: [f32(9, 7)], lambda x: np.c_[np.full((9, 1), 10), 2 * (x[:, 1:] + 1)]),
    "composites": Program(rows("t = x[i]\nout[i] = where(isnan(t), 7.0, where(isinf(t), 8.0, sigmoid(t) + silu(t) + relu(t) + clamp(t, -1.0, 1.0)))", "x: f32[M]", "f32[M]"),
                          lambda: [SPECIAL],
                          lambda x: np.where(np.isnan(x), 7, np.where(np.isinf(x), 8, 1 / (1 + np.exp(-x)) + x / (1 + np.exp(-x)) + np.maximum(x, 0) + np.clip(x, -1, 1)))),
    "sigmoid at the ends": Program(HEAD + "def f(x: f32[M]) -> f32[M]:\n    return sigmoid(x) + silu(x) * 0\n", lambda: [SPECIAL[[0, 4, 5, 6][:3:2]]],
                                   lambda x: np.where(x == 0, 0.5, 0)),
    "gelu": Program(HEAD + "def f(x: f32[M]) -> f32[M]:\n    return gelu(x)\n", lambda: [np.linspace(-6, 6, 50, dtype=np.float32)], gelu),
    "gelu tanh": Program(HEAD + "def f(x: f32[M]) -> f32[M]:\n    return gelu(x, approximate=\"tanh\")\n", lambda: [np.linspace(-6, 6, 50, dtype=np.float32)],
                         lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "powers": Program(HEAD + "def f(x: f32[M], y: i32[M]) -> f32[M]:\n    return x ** 3 + abs(x) ** 0.5 + y ** 2 + 2.0 ** x\n", lambda: [f32(9), i32(9, 9)],
                      lambda x, y: x**3 + np.abs(x) ** 0.5 + y**2 + 2.0**x),
    "integers": Program(HEAD + "def f(x: i32[M], y: i32[M]) -> i32[M]:\n    return x // y + x % y + (x & y) + (x | 3) - (x ^ y) + (x << 2) + (~x >> 1)\n",
                        lambda: [i32(50, 9) - 25, i32(5, 9)],
                        lambda x, y: np.where(y == 0, 0, x // np.where(y == 0, 1, y)) + np.where(y == 0, 0, x % np.where(y == 0, 1, y)) + (x & y) + (x | 3) - (x ^ y) + (x << 2) + (~x >> 1)),
    "promotion": Program(HEAD + "def f(a: i8[M], b: u8[M], c: f16[M], d: bool_[M]) -> f32[M]:\n    return (a + b) * 1000 + c * a + d + (d | (a > 0))\n",
                         lambda: [i32(100, 9).astype(np.int8), i32(200, 9).astype(np.uint8), f32(9).astype(np.float16), i32(2, 9).astype(bool)],
                         lambda a, b, c, d: (a.astype(np.int32) + b).astype(np.int16).astype(np.int32).astype(np.float32) * 0 + _promoted(a, b, c, d)),
    "casts": Program(HEAD + "def f(x: f32[M]) -> i32[M]:\n    return cast(x, i32) + cast(cast(x, i8), i32) + reinterpret(x, i32) * 0\n", lambda: [np.array([1.9, -1.9, 300, np.nan], np.float32)],
                     lambda x: np.array([2, -2, 427, 0])),
    "whole tensor": Program(HEAD + "def f(x: f32[M, N], w: f32[N, K], b: f32[K]) -> f32[M, K]:\n    h = x @ w + b\n    return h - mean(h, axis=1, keepdims=True)\n",
                            lambda: [f32(4, 5), f32(5, 6), f32(6)], lambda x, w, b: x @ w + b - (x @ w + b).mean(1, keepdims=True)),
    "whole scalars": Program(HEAD + "def f(x: f32[M], a: f32) -> f32[()]:\n    return sum(x * a) + 1\n", lambda: [f32(9), 2.0], lambda x, a: (2 * x).sum() + 1),
    "whole reshape": Program(HEAD + "def f(x: f32[M, 6]) -> f32[M, 3, 2]:\n    return transpose(reshape(x, M, 2, 3), 0, 2, 1)\n", lambda: [f32(4, 6)], lambda x: x.reshape(4, 2, 3).transpose(0, 2, 1)),
    "expand broadcast": Program(HEAD + "def f(x: f32[M], y: f32[N]) -> f32[M, N]:\n    return expand(x, 1) * broadcast(y, M, N) + ones(f32, M, N) + full(f32, N, value=2)\n",
                                lambda: [f32(4), f32(5)], lambda x, y: x[:, None] * y + 3),
    "tile reshape": Program(rows("out[i, :] = reshape(transpose(reshape(x[i, :], i, 2, 3), 0, 2, 1), i, 6)", "x: f32[M, 6]", "f32[M, 6]"), lambda: [f32(11, 6)],
                            lambda x: x.reshape(11, 2, 3).transpose(0, 2, 1).reshape(11, 6)),
    "tile parts": Program(rows("t = x[i, :]\nout[i] = t[:, 1] + sum(t[:, 2:4], axis=1) + t[0, 0] * 0 + fma(t[:, 0], t[:, 1], 1.0)", "x: f32[M, 6]", "f32[M]"), lambda: [f32(11, 6)],
                          lambda x: x[:, 1] + x[:, 2] + x[:, 3] + x[:, 0] * x[:, 1] + 1),
    "carried tuple": Program(rows("t = (0.0, 1.0)\nfor k in range(3):\n    t = (t[1], t[0] + t[1])\nout[i] = x[i] + t[0]", "x: f32[M]", "f32[M]"), lambda: [f32(9)], lambda x: x + 2),
    "carried length": Program(rows("s = zeros(f32, 8)\nfor k in range(3):\n    s = max(s, x[i] + k)\nout[i] = s", "x: f32[M]", "f32[M]"), lambda: [f32(11)], lambda x: np.maximum(0, x + 2)),
    "reused name": Program(rows("t = x[i, :]\nfor k in range(2):\n    t = x[i, 0] * k\n    out[i, :] = t[:, None]\nt = 1.0"), lambda: [f32(11, 3)], lambda x: np.repeat(x[:, :1], 3, 1)),
    "run-time bounds": Program(rows("s = zeros(f32, i)\nfor k in range(lo, min(N, hi)):\n    s += x[i, k]\nout[i] = s", "x: f32[M, N], lo: i32, hi: i32", "f32[M]"), lambda: [f32(11, 7), 2, 100],
                               lambda x, lo, hi: x[:, 2:].sum(1)),
    "compile-time dims": Program(HEAD + "def f(x: f32[M, C], *, C: int = 4) -> f32[M, C * 2 - 1]:\n    out = empty(f32, M, C * 2 - 1)\n    for i in grid(M, by=4):\n"
                                 "        out[i, :] = 0\n        out[i, 0:C] = x[i, :]\n    return out\n", lambda: [f32(9, 4)], lambda x: np.c_[x, np.zeros((9, 3))]),
    "dtype parameter": Program(HEAD + "def f(x: Tensor[Float, M], *, Out: dtype = f64) -> Tensor[Float, M]:\n    acc = zeros(acc_type(Float), M)\n    return cast(x, Out) * 2 + acc\n",
                               lambda: [f32(9)], lambda x: 2 * x),
    "constants": Program(HEAD + "A = 3\nB = (A + 1) * 2\nT = (1.5, A)\nD = f32\n\ndef f(x: f32[M]) -> f32[M]:\n    return cast(x, D) * T[0] + B + cdiv(7, 2) + len(T) + min(A, 2) + exp(0.0)\n",
                         lambda: [f32(9)], lambda x: x * 1.5 + 8 + 4 + 2 + 2 + 1),
    "kernel in kernel": Program(HEAD + "def double(x: f32[K], *, by: int = 4) -> f32[K]:\n    out = empty(f32, K)\n    for k in grid(K, by=by):\n        out[k] = x[k] * 2\n    return out\n\n"
                                "def f(x: f32[M]) -> f32[M]:\n    t = double(x)\n    return double(t, by=8)\n", lambda: [f32(11)], lambda x: 4 * x),
    "whole in whole": Program(HEAD + "def scale(x: f32[K, N], s: f32) -> f32[K, N]:\n    return x * s + K\n\ndef f(x: f32[M, N]) -> f32[M, N]:\n    return scale(x, 2) + scale(x, 3.0)\n",
                              lambda: [f32(4, 5)], lambda x: 5 * x + 8),
}  # fmt: skip


def _promoted(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """i8 + u8 is i16 and wraps there when multiplied; f16 * i8 is f16."""
    ab = (a.astype(np.int16) + b) * np.int16(1000)
    ca = c * a.astype(np.float16)
    either = d | (a > 0)
    total = (ab.astype(np.float16) + ca) + d.astype(np.float16)
    return (total + either.astype(np.float16)).astype(np.float32)
