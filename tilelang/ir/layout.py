"""Layouts: nested shape:stride functions from coordinates to offsets, after the CuTe layout algebra.

A layout is printed `shape:stride`, as `(4,8):(8,1)`; both are ints or tuples of the same nesting. A mode (top-level entry) may be nested:
`((16,8),(16,4)):((16,256),(1,2048))` is a 128x64 matrix of 16x16 blocks. As in CuTe an index into a mode, or into the whole layout, runs
through it with the leftmost entry fastest. Offsets count elements.

Sources: the CuTe layout algebra documentation and J. Shah, "A Note on the Algebra of CuTe Layouts" (coalesce, composition, complement,
divide, product, inverse); Ascend C data formats (fractals NZ, ZN, ZZ: the first letter orders the blocks, the second the elements inside
a block; Z is row-major, N column-major).

Leaves are ints; index expressions are accepted where only sums and products are needed: calls, size, cosize, strides, transpose, text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, cast

from tilelang.ir.expr import Expr, from_ast, parse_python

Leaf: TypeAlias = "int | Expr"
Nest: TypeAlias = "Leaf | tuple[Nest, ...]"


def _leaves(nest: Nest) -> Iterator[Leaf]:
    if isinstance(nest, tuple):
        for part in nest:
            yield from _leaves(part)
    else:
        yield nest


def _same_nesting(a: Nest, b: Nest) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_nesting, a, b))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def _normal(nest: Nest | list[Any]) -> Nest:
    """Tuples for lists, ints for constant expressions."""
    if isinstance(nest, (tuple, list)):
        return tuple(map(_normal, nest))
    if isinstance(nest, Expr):
        return nest if nest.value is None else nest.value
    return int(nest)


def _text(nest: Nest) -> str:
    if isinstance(nest, tuple):
        return f"({','.join(map(_text, nest))}{',' if len(nest) == 1 else ''})"
    return str(nest)


@dataclass(frozen=True)
class Layout:
    """shape:stride. ValueError when the nesting differs or an extent is negative."""

    shape: Nest
    stride: Nest

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _normal(self.shape))
        object.__setattr__(self, "stride", _normal(self.stride))
        if not _same_nesting(self.shape, self.stride):
            raise ValueError(f"shape {_text(self.shape)} and stride {_text(self.stride)} are not nested alike")
        if any(isinstance(s, int) and s < 0 for s in _leaves(self.shape)):
            raise ValueError(f"shape {_text(self.shape)} has a negative extent")

    def __str__(self) -> str:
        return f"{_text(self.shape)}:{_text(self.stride)}"

    # Structure

    @property
    def modes(self) -> tuple[Layout, ...]:
        """The top-level entries, each as a layout; the layout itself when it is a single leaf."""
        if isinstance(self.shape, tuple):
            return tuple(map(Layout, self.shape, cast("tuple[Nest, ...]", self.stride)))
        return (self,)

    @property
    def rank(self) -> int:
        """Number of modes, the coordinates a call takes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def extents(self) -> tuple[Leaf, ...]:
        """Size of each mode: the logical shape."""
        return tuple(m.size for m in self.modes)

    @property
    def size(self) -> Leaf:
        """Number of coordinates."""
        return _product(_leaves(self.shape))

    @property
    def cosize(self) -> Leaf:
        """One more than the largest offset, 0 when empty: the elements to allocate when no stride is negative."""
        total: Leaf = 1
        for s, d in self._pairs():
            if s == 0:
                return 0
            if not (isinstance(d, int) and d < 0):
                total = total + (s - 1) * d
        return total

    def _pairs(self) -> Iterator[tuple[Leaf, Leaf]]:
        return zip(_leaves(self.shape), _leaves(self.stride))

    def _static(self, what: str) -> list[tuple[int, int]]:
        """(extent, stride) of all leaves, leftmost first. ValueError when one is symbolic."""
        pairs = list(self._pairs())
        if not all(isinstance(s, int) and isinstance(d, int) for s, d in pairs):
            raise ValueError(f"{what} needs constant extents and strides, not {self}")
        return cast("list[tuple[int, int]]", pairs)

    def __call__(self, *coords: Nest) -> Leaf:
        """The offset of one coordinate a mode, each an index or nested like the mode; or of one index that runs through all modes.

        Indices may be expressions. ValueError for another number of coordinates. Not checked against the extents.
        """
        if len(coords) == 1 and (self.rank != 1 or not isinstance(coords[0], tuple)):
            return _offset(coords[0], self.shape, self.stride)
        if len(coords) != self.rank:
            raise ValueError(f"{self} takes {self.rank} coordinates (or one index), not {len(coords)}")
        if not isinstance(self.shape, tuple):
            return _offset(coords[0], self.shape, self.stride)
        return _offset(coords, self.shape, self.stride)

    def offsets(self) -> Iterator[int]:
        """Offsets of the indices 0, 1, ... size - 1."""
        pairs = self._static("enumeration")
        at = [0] * len(pairs)
        offset = 0
        for _ in range(prod(s for s, _ in pairs)):
            yield offset
            for k, (s, d) in enumerate(pairs):
                at[k] += 1
                offset += d
                if at[k] < s:
                    break
                offset -= s * d
                at[k] = 0

    def flatten(self) -> Layout:
        """The same function with one mode a leaf."""
        return Layout(tuple(_leaves(self.shape)), tuple(_leaves(self.stride)))

    def transpose(self, perm: Sequence[int]) -> Layout:
        """Mode k of the result is mode perm[k]. ValueError unless `perm` is a permutation of the modes."""
        if sorted(perm) != list(range(self.rank)):
            raise ValueError(f"{tuple(perm)} is not a permutation of the {self.rank} modes of {self}")
        return self.sublayout(*perm)

    def sublayout(self, *modes: int) -> Layout:
        """Only these modes, in this order; the others stay at coordinate 0."""
        return _join(*(self.modes[k] for k in modes))

    def coalesce(self, by_mode: bool = False) -> Layout:
        """The shortest flat layout with the same offset for every index (CuTe coalesce); `by_mode` keeps the modes apart."""
        if by_mode and isinstance(self.shape, tuple):
            return _join(*(m.coalesce() for m in self.modes))
        return _from_pairs(_coalesced(self._pairs()))

    # Algebra

    def compose(self, other: Layout) -> Layout:
        """x -> self(other(x)), shaped like `other`, whose leaves may split (CuTe composition, with divisibility checked).

        ValueError when the result is no layout, or `other` leaves this layout's domain.
        """
        pairs: list[tuple[int, int]] = _coalesced(self._static("compose"))
        last = 0 if 0 in dict(other._static("compose")) else cast(int, other.cosize) - 1
        if any(d < 0 for _, d in other._static("compose")) or last >= max(cast(int, self.size), 1):
            raise ValueError(f"cannot compose {self} with {other}: offsets up to {last} leave its {self.size} elements")
        digits = [0] * len(pairs)  # the largest index into each leaf; a carry into the next leaf would not be linear
        try:
            result = _map_leaves(other, lambda s, d: _every(pairs, s, d, digits))
            for (s, _), digit in zip(pairs[:-1], digits):
                if digit >= s:
                    raise ValueError(f"indices up to {digit} run over extent {s}")
        except ValueError as e:
            raise ValueError(f"cannot compose {self} with {other}: {e}") from None
        return result

    def complement(self, size: int) -> Layout:
        """The layout of the gaps: with it, this layout reaches each of the offsets 0..size-1 (rounded up) once (CuTe complement).

        ValueError when this layout repeats offsets or its leaves interleave, so that the gaps are no layout.
        """
        result: list[tuple[int, int]] = []
        current = 1
        for d, s in sorted((d, s) for s, d in self._static("complement") if s != 1):
            if d <= 0 or d % current:
                raise ValueError(f"{self} has no complement: stride {d} is not a multiple of {current}")
            result.append((d // current, current))
            current = d * s
        result.append((-(-size // current), current))
        return _from_pairs(_coalesced(result))

    def divide(self, tile: Layout | int | Sequence[Layout | int]) -> Layout:
        """Splits into (tile, rest) (CuTe logical_divide): mode 0 walks one tile, mode 1 the tiles.

        A sequence divides mode by mode: mode k of the result is (tile_k, rest_k). An int n is n:1. ValueError when a tile does not fit.
        """
        if not isinstance(tile, (Layout, int)):
            if len(tile) != self.rank:
                raise ValueError(f"{len(tile)} tiles for the {self.rank} modes of {self}")
            return _join(*(m.divide(t) for m, t in zip(self.modes, tile)))
        tile = Layout(tile, 1) if isinstance(tile, int) else tile
        self._static("divide")
        count, size = cast(int, self.size), cast(int, tile.size)
        if size <= 0 or count % size:
            raise ValueError(f"tile {tile} does not divide the {count} elements of {self}")
        return self.compose(_join(tile, tile.complement(count)))

    def product(self, other: Layout) -> Layout:
        """Repeats this layout as `other` says (CuTe logical_product): mode 0 is this layout, mode 1 walks the copies."""
        gaps = self.complement(cast(int, self.size) * cast(int, other.cosize))
        return _join(self, gaps.compose(other))

    def inverse(self) -> Layout:
        """From offset to index: self(inverse(k)) == k (CuTe right inverse). ValueError unless the offsets are exactly 0..size-1."""
        if not self.is_contiguous():
            raise ValueError(f"{self} has no inverse: its offsets are not 0..{cast(int, self.size) - 1}, each once")
        steps: list[tuple[int, int, int]] = []
        index = 1
        for s, d in self._static("inverse"):
            if s != 1:
                steps.append((d, s, index))
            index *= s
        return _from_pairs(_coalesced((s, i) for _, s, i in sorted(steps)))

    # Questions

    def is_contiguous(self) -> bool:
        """Whether the offsets are exactly 0..size-1, each once, in any order."""
        pairs = self._static("is_contiguous")
        if any(s == 0 for s, _ in pairs):
            return True
        current = 1
        for d, s in sorted((d, s) for s, d in pairs if s != 1):
            if d != current:
                return False
            current *= s
        return True

    def is_injective(self) -> bool:
        """Whether no two coordinates share an offset. Exact, also for interleaved strides."""
        pairs = self._static("is_injective")
        if any(s == 0 for s, _ in pairs):
            return True
        steps = sorted(((abs(d), s - 1) for s, d in pairs if s > 1), reverse=True)
        reach = [sum(d * n for d, n in steps[k:]) for k in range(len(steps) + 1)]

        def collides(k: int, difference: int, moved: bool) -> bool:
            # Two coordinates differ by m_k in leaf k, |m_k| < extent: is there a choice, not all zero, with sum m_k*d_k == 0?
            if k == len(steps):
                return moved and difference == 0
            d, n = steps[k]
            if d == 0:
                return True  # the rest may differ freely, and what came before adds up to zero
            low = max(-((reach[k + 1] + difference) // d), -n if moved else 0)  # the mirror image of a collision is one, too
            high = min((reach[k + 1] - difference) // d, n)
            return any(collides(k + 1, difference + m * d, moved or m != 0) for m in range(low, high + 1))

        return not collides(0, 0, False)

    def unit_stride_axis(self) -> int | None:
        """The mode along which neighbours are adjacent in memory, None when there is none."""
        return next((k for k in range(self.rank) if self.vector_width(k) != 1), None)

    def vector_width(self, axis: int) -> Leaf:
        """Length of the aligned runs along mode `axis` whose elements are adjacent in memory; 1 when they are not."""
        s, d = next(self.modes[axis].coalesce()._pairs())
        return s if d == 1 else 1


def _every(pairs: list[tuple[int, int]], size: int, stride: int, digits: list[int]) -> Layout:
    """The layout of `size` indices into `pairs`, `stride` apart; adds the largest index into each leaf to `digits`."""
    if size == 1 or stride == 0:
        return Layout(size, 0)
    result: list[tuple[int, int]] = []
    for k, (s, d) in enumerate(pairs):
        if k == len(pairs) - 1 or (size - 1) * stride < s:
            result.append((size, d * stride))
            digits[k] += (size - 1) * stride
            break
        if stride % s == 0:  # the step jumps over this whole leaf
            stride //= s
            continue
        if s % stride or size % (s // stride):
            raise ValueError(f"{size} steps of {stride} do not fit extent {s}")
        take = s // stride
        result.append((take, d * stride))
        digits[k] += (take - 1) * stride
        size, stride = size // take, 1
    return _from_pairs(result)


def _product(leaves: Iterator[Leaf]) -> Leaf:
    total: Leaf = 1
    for leaf in leaves:
        total = total * leaf
    return total


def _offset(coord: Nest, shape: Nest, stride: Nest) -> Leaf:
    if not isinstance(shape, tuple):
        if isinstance(coord, tuple):
            raise ValueError(f"coordinate {_text(coord)} is nested deeper than extent {shape}")
        return coord * cast(Leaf, stride)
    strides = cast("tuple[Nest, ...]", stride)
    if isinstance(coord, tuple):
        if len(coord) != len(shape):
            raise ValueError(f"coordinate {_text(coord)} does not fit shape {_text(shape)}")
        return sum((_offset(c, s, d) for c, s, d in zip(coord, shape, strides)), 0)
    total: Leaf = 0
    for k, (s, d) in enumerate(zip(shape, strides)):
        extent = _product(_leaves(s))
        total = total + _offset(coord if k == len(shape) - 1 else coord % extent, s, d)
        coord = coord // extent if k < len(shape) - 1 else coord
    return total


def _coalesced(pairs: Any) -> list[Any]:
    result: list[tuple[Leaf, Leaf]] = []
    for s, d in pairs:
        if s == 1:
            continue
        if result and result[-1][0] * result[-1][1] == d:
            s, d = result[-1][0] * s, result[-1][1]
            result.pop()
        result.append((s, d))
    return result or [(1, 0)]


def _from_pairs(pairs: Sequence[tuple[Leaf, Leaf]]) -> Layout:
    if len(pairs) == 1:
        return Layout(*pairs[0])
    return Layout(tuple(s for s, _ in pairs), tuple(d for _, d in pairs))


def _join(*modes: Layout) -> Layout:
    return Layout(tuple(m.shape for m in modes), tuple(m.stride for m in modes))


def _map_leaves(layout: Layout, f: Callable[[int, int], Layout]) -> Layout:
    if isinstance(layout.shape, tuple):
        return _join(*(_map_leaves(m, f) for m in layout.modes))
    return f(cast(int, layout.shape), cast(int, layout.stride))


# Constructors


def strided(shape: Sequence[Leaf], strides: Sequence[Leaf]) -> Layout:
    """One stride an axis."""
    return Layout(tuple(shape), tuple(strides))


def column_major(shape: Sequence[Leaf]) -> Layout:
    """The first axis is adjacent in memory."""
    return Layout(tuple(shape), tuple(_running(shape)))


def row_major(shape: Sequence[Leaf]) -> Layout:
    """The last axis is adjacent in memory."""
    return Layout(tuple(shape), tuple(_running(shape[::-1])[::-1]))


def _running(extents: Sequence[Leaf], start: Leaf = 1) -> list[Leaf]:
    strides: list[Leaf] = []
    for extent in extents:
        strides.append(start)
        start = start * extent
    return strides


def _tiled(shape: Sequence[int], block: Sequence[int], inner_order: Sequence[int], outer_order: Sequence[int]) -> Layout:
    """Blocks in memory one after the other; the orders list axes, fastest first. Extents are rounded up to whole blocks."""
    if len(shape) != len(block) or any(b < 1 for b in block):
        raise ValueError(f"block {tuple(block)} does not fit shape {tuple(shape)}: one positive extent an axis is needed")
    counts = [-(-s // b) for s, b in zip(shape, block)]
    inner = dict(zip(inner_order, _running([block[a] for a in inner_order])))
    outer = dict(zip(outer_order, _running([counts[a] for a in outer_order], prod(block))))
    return Layout(tuple(zip(block, counts)), tuple((inner[a], outer[a]) for a in range(len(shape))))


def blocked(shape: Sequence[int], block: Sequence[int]) -> Layout:
    """Contiguous row-major tiles of `block`, the tiles row-major among themselves; extents are rounded up to whole tiles."""
    axes = range(len(shape))[::-1]
    return _tiled(shape, block, axes, axes)


def panel(shape: Sequence[int], width: int, axis: int) -> Layout:
    """GEMM panels: `axis` is cut in panels of `width`; a panel is contiguous, row-major in the other axes, `width` adjacent elements each.

    B[K, N] is panel((K, N), nr, 1), A[M, K] is panel((M, K), mr, 0). `axis` is rounded up to whole panels (the padding is the packer's).
    """
    if not 0 <= axis < len(shape) or width < 1:
        raise ValueError(f"no panels of {width} along axis {axis} of shape {tuple(shape)}")
    others = [a for a in range(len(shape))[::-1] if a != axis]
    inner, *outer, between = _running([width, *(shape[a] for a in others), 0])
    strides: dict[int, Nest] = {axis: (inner, between), **dict(zip(others, outer))}
    return Layout(
        tuple((width, -(-s // width)) if a == axis else s for a, s in enumerate(shape)),
        tuple(strides[a] for a in range(len(shape))),
    )


def fractal_nz(rows: int, cols: int, c0: int = 16, r0: int = 16) -> Layout:
    """Ascend NZ (L1, L0C): r0 x c0 blocks, row-major inside, block columns one after the other. c0 = 32 bytes / element size (16 in L0C)."""
    return _tiled((rows, cols), (r0, c0), (1, 0), (0, 1))


def fractal_zz(rows: int, cols: int, c0: int = 16, r0: int = 16) -> Layout:
    """Ascend ZZ (L0A): r0 x c0 blocks, row-major inside, block rows one after the other."""
    return _tiled((rows, cols), (r0, c0), (1, 0), (1, 0))


def fractal_zn(rows: int, cols: int, c0: int = 16, r0: int = 16) -> Layout:
    """Ascend ZN (L0B, of the K x N matrix): c0 x r0 blocks, column-major inside (32 bytes along K), block rows one after the other."""
    return _tiled((rows, cols), (c0, r0), (0, 1), (1, 0))


def parse(text: str) -> Layout:
    """Reads `shape:stride`. ValueError says what is wrong."""
    shape, colon, stride = text.partition(":")
    if not colon:
        raise ValueError(f"'{text}' is not a layout; expected shape:stride")
    return Layout(_nest(parse_python(shape), text), _nest(parse_python(stride), text))


def _nest(node: ast.expr, text: str) -> Nest:
    if isinstance(node, ast.Tuple):
        return tuple(_nest(e, text) for e in node.elts)
    return from_ast(node, text)
