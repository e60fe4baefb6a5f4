"""Accesses of every form against loops over single elements (hypothesis)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.diagnostics import TileError
from tilelang.dialects import tile
from tilelang.dialects.func import Func, Return
from tilelang.ir.core import Builder, Module
from tilelang.ir.types import BufferType, Dyn, TileType, f32, i64, index
from tilelang.ir.verify import verify
from tilelang.runtime.interp import Interpreter


def call(params: list[tuple[str, Any, str]], build: Any, args: list[Any]) -> None:
    func = Func.of("f", params)
    b = Builder(func.body.block)
    build(b, *func.args)
    b.insert(Return.of())
    module = Module.of([func], "tile")
    verify(module)
    Interpreter(module).run("f", args)


@st.composite
def boxes(draw: Any) -> Any:
    """Shape, offsets, counts of the kept axes, dropped axes, steps; sometimes outside."""
    rank = draw(st.integers(1, 3))
    shape = [draw(st.integers(0, 6)) for _ in range(rank)]
    dropped = tuple(a for a in range(rank) if draw(st.booleans()) and draw(st.booleans()))
    steps = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank))
    offsets = [draw(st.integers(-2, 7)) for _ in range(rank)]
    counts = [draw(st.integers(0, 4)) for a in range(rank) if a not in dropped]
    return shape, offsets, counts, dropped, steps


def places(offsets: list[int], counts: list[int], dropped: tuple[int, ...], steps: tuple[int, ...]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Position in the tile -> position in the buffer."""
    out = {}
    for r in itertools.product(*map(range, counts)):
        kept = iter(r)
        out[r] = tuple(o if a in dropped else o + next(kept) * steps[a] for a, o in enumerate(offsets))
    return out


@settings(max_examples=150, deadline=None, derandomize=True)
@given(boxes(), st.booleans())
def test_loads_and_stores(box: Any, pad: bool) -> None:
    shape, offsets, counts, dropped, steps = box
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    where = places(offsets, counts, dropped, steps)
    inside = {r: all(0 <= i < n for i, n in zip(p, shape)) for r, p in where.items()}
    out = np.full(counts, -1, np.float32)
    kind = TileType(tuple(Dyn("", 8) for _ in counts), f32) if counts else f32

    def build(b: Builder, x: Any, y: Any, pad_value: Any, *numbers: Any) -> None:
        n = len(shape)
        t = b(tile.Load.of(x, list(numbers[:n]), list(numbers[n + 1 :]), kind, pad_value if pad else None, dropped, steps))  # pyright: ignore[reportArgumentType]
        b.insert(tile.Store.of(t, y, [numbers[n]] * len(counts)))
        if not pad:
            b.insert(tile.Store.of(t, x, list(numbers[:n]), dropped, steps))

    params = [("x", BufferType(tuple(Dyn(f"X{i}") for i in range(len(shape))), f32), "inout"), ("y", BufferType(tuple(Dyn(f"Y{i}") for i in range(len(counts))), f32), "out")]
    params += [("pad", f32, "scalar")] + [(f"n{i}", index, "scalar") for i in range(len(shape) + 1 + len(counts))]
    args = [x.copy(), out, 7.0, *offsets, 0, *counts]
    if not pad and not all(inside.values()):
        with pytest.raises(TileError, match="run-out-of-bounds"):
            call(params, build, args)
        return
    call(params, build, args)
    for r, p in where.items():
        assert out[r] == (x[p] if inside[r] else 7)
    np.testing.assert_array_equal(args[0], x)


@st.composite
def lattices(draw: Any) -> Any:
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    indexed = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
    dropped = tuple(a for a in range(rank) if a not in indexed and draw(st.booleans()))
    inner = [draw(st.integers(0, 3)) for _ in range(draw(st.integers(1, 2)))]
    seed = draw(st.integers(0, 999))
    return shape, indexed, dropped, inner, seed


@settings(max_examples=150, deadline=None, derandomize=True)
@given(lattices())
def test_gathers_and_scatters(lattice: Any) -> None:
    shape, indexed, dropped, inner, seed = lattice
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(np.float32)
    tiles = [rng.integers(0, shape[a], inner) for a in indexed]
    kept = [a for a in range(len(shape)) if a not in indexed and a not in dropped]
    before = [a for a in kept if a < indexed[0]]
    after = [a for a in kept if a > indexed[0]]
    full = [shape[a] for a in before] + inner + [shape[a] for a in after]
    y = np.full(full, -1, np.float32)
    z = np.zeros(shape, np.float32)
    offsets = [rng.integers(0, shape[a]) if a in dropped else 0 for a in range(len(shape)) if a not in indexed]
    result = TileType(tuple(full), f32)

    def build(b: Builder, x: Any, y: Any, z: Any, *rest: Any) -> None:
        numbers, bufs = list(rest[: len(offsets)]), rest[len(offsets) + 1 :]
        zero = rest[len(offsets)]
        idx = [b(tile.Load.of(i, [zero] * len(inner), [], TileType(tuple(inner), i64))) for i in bufs]
        g = b(tile.Gather.of(x, idx, numbers, [], indexed, result, dropped))
        b.insert(tile.Store.of(g, y, [zero] * len(full)))
        b.insert(tile.Scatter.of(g, z, idx, numbers, indexed, dropped))

    params = [("x", BufferType(tuple(shape), f32), "in"), ("y", BufferType(tuple(full), f32), "out"), ("z", BufferType(tuple(shape), f32), "inout")]
    params += [(f"n{i}", index, "scalar") for i in range(len(offsets) + 1)] + [(f"i{a}", BufferType(tuple(inner), i64), "in") for a in indexed]
    call(params, build, [x, y, z, *offsets, 0, *tiles])
    want_z = np.zeros(shape, np.float32)
    for r in itertools.product(*map(range, full)):
        s = r[len(before) : len(before) + len(inner)]
        own = dict(zip([*before, *after], r[: len(before)] + r[len(before) + len(inner) :]))
        others = iter(offsets)
        place = []
        for a in range(len(shape)):
            if a in indexed:
                place.append(int(tiles[indexed.index(a)][s]))
            else:
                o = next(others)
                place.append(int(o) if a in dropped else own[a])
        assert y[r] == x[tuple(place)]
        want_z[tuple(place)] = x[tuple(place)]
    np.testing.assert_array_equal(z, want_z)
