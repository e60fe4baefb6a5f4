"""block: register tiles and cache blocks of contractions, from the target.

The register tile is rows x vectors of the accumulator: rows * vectors + vectors + 1 registers at once (accumulators, one row of rhs, one broadcast
of lhs; another one for the product where multiply-add is not fused). Among those that fit, the one with the least modelled time for the extents
that are known: a step over K takes as long as its multiply-adds, its loads, or the latency of one multiply-add, whichever is longest.

Cache blocks follow the analysis of Goto and van de Geijn (ACM TOMS 2008) and Low et al. (ACM TOMS 2016): the panel of rhs, depth x columns, stays in
L1 while rows of lhs pass by, and the block of lhs, rows x depth, stays in L2 while panels pass by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import tile
from tilelang.dialects.arith import constant_value
from tilelang.dialects.contract import Contract
from tilelang.ir.core import Module
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import DYN, Dim, Scalar, dim_bound, element_of, f32, shape_of
from tilelang.target import Target

_PIPES, _LOADS, _LATENCY = 2, 2, 4  # multiply-adds and loads a cycle, cycles of a multiply-add: of all large cores since 2015
_UNKNOWN = 240  # stands for an extent without a bound


@dataclass(frozen=True)
class Blocking:
    """rows, columns: of the register tile, in elements. depth: of a block over K. height: rows of a block of lhs, a multiple of `rows`."""

    rows: int
    columns: int
    depth: int
    height: int

    @property
    def register_tile(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def cache_blocks(self) -> tuple[int, int]:
        return self.height, self.depth


@register
@dataclass(frozen=True)
class Block(Pass):
    """Chooses register tiles and cache blocks of contractions. rows, vectors, depth: 0 chooses."""

    name: ClassVar[str] = "block"
    before: ClassVar[str] = "tile"
    rows: int = 0
    vectors: int = 0
    depth: int = 0

    def run(self, module: Module, ctx: PassContext) -> None:
        for op in module.walk():
            if isinstance(op, (tile.Matmul, Contract)) and not op.register_tile:
                m, n = shape_of(op.acc.type)[-2:]
                k = shape_of(op.lhs.type)[-1] if isinstance(op, tile.Matmul) else depth_of(op)
                blocking = choose(ctx.target, element_of(op.acc.type), m, n, k, self.rows, self.vectors, self.depth)
                op.attrs["register_tile"], op.attrs["cache_blocks"] = blocking.register_tile, blocking.cache_blocks
                ctx.remark(f"register tile {blocking.rows}x{blocking.columns}, blocks of {blocking.depth} over K", op)


def depth_of(op: Contract) -> Dim:
    """The extent of K of a contraction as far as it is static."""
    known = constant_value(op.depth)
    return DYN if known is None else int(known)


def has_fma(target: Target) -> bool:
    """Whether fused multiply-add is one instruction."""
    return bool(target.isa & {"fma", "avx512f", "neon"})


def compute_type(acc: Scalar) -> Scalar:
    """The type in which the products of a matmul with this accumulator are summed: f16 and bf16 in f32."""
    return f32 if acc.name in ("f16", "bf16") else acc


def choose(target: Target, acc: Scalar, m: Dim, n: Dim, k: Dim, rows: int = 0, vectors: int = 0, depth: int = 0) -> Blocking:
    """The blocking of an m x k by k x n product summed in `acc`. rows, vectors, depth: taken as they are when not 0."""
    element = compute_type(acc)
    lanes = target.lanes(element.bytes * 8)
    extent_m, extent_n = (dim_bound(d) if dim_bound(d) is not None else _UNKNOWN for d in (m, n))
    best = min(
        _register_tiles(target, element, rows, vectors),
        key=lambda t: _time(t[0], t[1], extent_m or 1, extent_n or 1, lanes),
    )
    r, columns = best[0], best[1] * lanes
    if isinstance(m, int) and 0 < m < r:
        r = m
    if not depth:
        depth = _depth(max(64, target.l1d * 2 // 3 // (columns * element.bytes) // 8 * 8), dim_bound(k), isinstance(k, int))
    height = max(r, target.l2 // 2 // (depth * element.bytes) // r * r)
    return Blocking(r, columns, depth, height)


def _depth(most: int, bound: int | None, exact: bool) -> int:
    """Depth of the blocks of a K of at most `bound`: about `most`, and such that no short block is left over, which would load and store the
    accumulators for little work."""
    if bound is None or bound <= most:
        return most if bound is None else max(bound, 1)
    if exact:
        divisors = [d for d in range(most * 2 // 3, most * 4 // 3 + 1) if bound % d == 0]
        if divisors:
            return min(divisors, key=lambda d: (abs(d - most), -d))
    blocks = -(-bound // most)
    return (-(-bound // blocks) + 7) // 8 * 8


def _register_tiles(target: Target, element: Scalar, rows: int, vectors: int) -> list[tuple[int, int]]:
    """(rows, vectors) that fit the registers without spilling."""
    spare = 1 if element.is_float and has_fma(target) else 2
    found: list[tuple[int, int]] = []
    for v in range(1, 7) if not vectors else (vectors,):
        most = (target.vector_registers - v - spare) // v
        found += [(r, v) for r in (range(1, min(most, 16) + 1) if not rows else (rows,))]
    return found


def _time(rows: int, vectors: int, m: int, n: int, lanes: int) -> tuple[float, float]:
    """Modelled cycles of one step over K for an m x n accumulator, and its loads, which decide between equals."""

    def cycles(r: int, v: int) -> float:
        return max(r * v / _PIPES, (r + v) / _LOADS, _LATENCY)

    columns = -(-n // lanes)
    total = loads = 0.0
    for r, how_many in ((rows, m // rows), (m % rows, 1)):
        for v, times in ((vectors, columns // vectors), (columns % vectors, 1)):
            if r and v:
                total += how_many * times * cycles(r, v)
                loads += how_many * times * (r + v)
    return total, loads
