"""Tensors in memory, places in them, and how shapes meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.evaluator import bounded as bd
from tests.evaluator.bounded import Num, Refused


class Stop(Exception):
    """The kernel stops here, with an error of this slug."""

    def __init__(self, slug: str) -> None:
        super().__init__(slug)
        self.slug = slug


class Unsure(Exception):
    """What happens next depends on rounding or on memory that was never written: the program has no one meaning."""


class Endless(Exception):
    """The run takes more steps than it may."""


class Idx(int):
    """An integer of index arithmetic: a dim, a loop index."""


class Dtype(str):
    pass


@dataclass(frozen=True)
class Range:
    start: int
    extent: int
    by: int
    step: int = 1


@dataclass
class Tensor:
    """A tensor in memory, or a buffer. mag: the sum of absolute values added atomically, whose order is free."""

    dtype: str
    val: bd.Array
    err: bd.Array
    lens: tuple[int | None, ...]
    is_global: bool = True
    mag: bd.Array | None = None


@dataclass
class Place:
    """Elements of a tensor. entries: an int (the axis is dropped), (start, extent, step, length) or an index tile."""

    tensor: Tensor
    entries: list[Any]
    padded: bool = False

    def __post_init__(self) -> None:
        tiles = [e for e in self.entries if isinstance(e, Num)]
        self.tiles, shared = aligned(tiles) if tiles else ([], ())
        shape = np.broadcast_shapes(*(t.val.shape for t in self.tiles))
        if any((t.err > 0).any() for t in self.tiles):
            raise Unsure
        where = [i for i, e in enumerate(self.entries) if isinstance(e, Num)]
        apart = bool(where) and any(isinstance(e, tuple) for e in self.entries[where[0] : where[-1]])
        axes: list[tuple[str, Any, int, int | None]] = []
        both = [("shared", k, n, length) for k, (n, length) in enumerate(zip(shape, shared, strict=True))]
        for i, e in enumerate(self.entries):
            if isinstance(e, tuple):
                axes.append(("own", i, e[1], e[3]))
            elif where and i == where[0] and not apart:
                axes += both
        axes = both + axes if apart else axes
        self.shape = tuple(a[2] for a in axes)
        self.lens = tuple(a[3] for a in axes)
        self.order = [a[:2] for a in axes]
        self.shared_rank = len(shape)

    def positions(self, shape: tuple[int, ...]) -> tuple[bd.Array, ...]:
        """For each axis of the tensor the positions, over the part of the place of this shape."""
        out = []
        tiles = iter(self.tiles)
        rank = len(self.order)
        for i, e in enumerate(self.entries):
            if isinstance(e, Num):
                t = next(tiles).val
                view = [1] * rank
                first = next((k for k, (kind, _) in enumerate(self.order) if kind == "shared"), 0)
                full = np.broadcast_to(t, np.broadcast_shapes(t.shape, (1,) * self.shared_rank))
                view[first : first + self.shared_rank] = full.shape
                p = full.astype(np.int64).reshape(view)
                p = p[tuple(slice(0, n) for n in shape)]
            elif isinstance(e, tuple):
                at = self.order.index(("own", i))
                p = (e[0] + e[2] * np.arange(shape[at])).reshape([-1 if k == at else 1 for k in range(rank)])
            else:
                p = np.asarray(e)
            out.append(np.broadcast_to(p, shape))
        return tuple(out)

    def inside(self, at: tuple[bd.Array, ...]) -> bd.Array:
        ok = np.ones(at[0].shape if at else (), bool)
        for p, n in zip(at, self.tensor.val.shape, strict=True):
            ok &= (p >= 0) & (p < n)
        return ok

    def read(self, pad: Num | None = None) -> Num:
        at = self.positions(self.shape)
        ok = self.inside(at)
        t = self.tensor
        if not self.padded and not ok.all():
            raise Stop("run-out-of-bounds")
        if pad is None or ok.all():
            return Num(t.dtype, np.asarray(t.val[at]), np.asarray(t.err[at]), self.lens)
        safe = tuple(np.where(ok, p, 0) for p in at)
        if 0 in t.val.shape:
            val, err = np.broadcast_to(pad.val, self.shape), np.broadcast_to(pad.err, self.shape)
        else:
            val, err = np.where(ok, t.val[safe], pad.val), np.where(ok, t.err[safe], pad.err)
        return Num(t.dtype, val, err, self.lens)

    def fitted(self, value: Num) -> tuple[tuple[bd.Array, ...], Num]:
        """The positions that a value goes to: where both the place and the value have elements."""
        if value.rank > len(self.shape):
            raise Refused("a value of more axes than its place")
        shape, offset = list(self.shape), len(self.shape) - value.rank
        for i, (n, length) in enumerate(zip(value.val.shape, value.lens, strict=True), offset):
            if length != 1 or self.lens[i] == 1:
                if length is not None and self.lens[i] is not None and length != self.lens[i]:
                    raise Refused("a value of another length than its place")
                if n < shape[i]:
                    raise Stop("run-assert")
        at = self.positions(tuple(shape))
        if not self.inside(at).all():
            raise Stop("run-out-of-bounds")
        return at, fit(value, self.lens, tuple(shape))

    def write(self, value: Num) -> None:
        at, fitted = self.fitted(value)
        t = self.tensor
        t.val[at], t.err[at] = fitted.val, fitted.err

    def atomic(self, kind: str, value: Num) -> None:
        at, fitted = self.fitted(value)
        t = self.tensor
        if kind == "add" and bd.is_float(t.dtype) and t.mag is None:
            t.mag = np.where(np.isfinite(t.val), np.abs(t.val), 0.0)
        for index in np.ndindex(fitted.val.shape):
            i = tuple(int(p[index]) for p in at)
            old = Num(t.dtype, np.asarray(t.val[i]), np.asarray(t.err[i]))
            new = Num(t.dtype, np.asarray(fitted.val[index]), np.asarray(fitted.err[index]))
            made = bd.binary("+" if kind == "add" else kind, old, new)
            err = made.err
            if t.mag is not None:
                t.mag[i] += np.abs(new.val) if np.isfinite(new.val) else 0.0
                err = err + 2 * bd.UNIT[t.dtype] * t.mag[i]
                err = np.inf if t.mag[i] + err > bd.LARGEST[t.dtype] else err
            t.val[i], t.err[i] = made.val, err


# -- shapes


def fit(x: Num, lens: tuple[int | None, ...], shape: tuple[int, ...]) -> Num:
    """x narrowed to a shape, repeated where it has length 1 or no axis."""
    offset = len(shape) - x.rank
    cut = tuple(slice(None) if length == 1 and lens[i] != 1 else slice(0, shape[i]) for i, length in enumerate(x.lens, offset))
    val, err = np.broadcast_to(x.val[cut], shape), np.broadcast_to(x.err[cut], shape)
    return Num(x.dtype, val, err, lens)


def aligned(values: Sequence[Num]) -> tuple[list[Num], tuple[int | None, ...]]:
    """Values in one shape, by the rule for axes: lengths agree or are 1, the valid part is what all have."""
    rank = max(v.rank for v in values)
    lens: list[int | None] = []
    shape: list[int] = []
    for i in range(-rank, 0):
        length: int | None = 1
        extent = 1
        for v in values:
            if v.rank < -i:
                continue
            own, n = v.lens[i], v.val.shape[i]
            if own == 1:
                continue
            if length == 1:
                length, extent = own, n
                continue
            if own is not None and length is not None and own != length:
                raise Refused(f"lengths {length} and {own}")
            if own is None and length is None and n != extent:
                raise Stop("run-assert")
            length, extent = (own if length is None else length), min(extent, n)
        lens.append(length)
        shape.append(extent)
    return [fit(v, tuple(lens), tuple(shape)) for v in values], tuple(lens)


def full(t: Any) -> Num:
    return Num(t.dtype, t.val.copy(), t.err.copy(), t.lens) if isinstance(t, Tensor) else t


def transposed(x: Num, perm: tuple[int, ...]) -> Num:
    return Num(x.dtype, x.val.transpose(perm), x.err.transpose(perm), tuple(x.lens[p] for p in perm))
