"""Iteration spaces: the box of index values that a structured op runs over, and how each of its views is walked along.

Before loops are made the space is simplified: axes of extent 1 go, and neighbouring axes along which every view is dense become one, so that a
contiguous 64 x 64 tile is one run of 4096 elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilelang.dialects import arith
from tilelang.ir.core import Region, Value
from tilelang.ir.types import Scalar, VectorType, element_of
from tilelang.passes.vec_lowering.builder import Index, VecBuilder, View, is_dense, static

HINTS = "ijklmn"


@dataclass
class Access:
    """A view within an iteration space: its stride along each axis of the space (0 where it does not vary).

    dense[a]: a step along axis a is the whole of axis a + 1, for this view."""

    view: View
    strides: list[Index]
    dense: list[bool]

    @classmethod
    def of(cls, view: View, axes: Sequence[int], dims: Sequence[Index]) -> Access:
        """axes[a]: the axis of the view that space axis a runs along, or -1."""
        strides = [view.strides[m] if m >= 0 else 0 for m in axes]
        dense = [
            (axes[a] < 0 and axes[a + 1] < 0)
            or (axes[a] >= 0 and axes[a + 1] == axes[a] + 1 and view.dense[axes[a]])
            or is_dense(strides[a], dims[a + 1], strides[a + 1])
            for a in range(len(axes) - 1)
        ]
        return cls(view, strides, dense)


class Space:
    """dims: extents. labels: axes with different labels are never joined. vector: the axis that vectors run along, None for none."""

    def __init__(self, dims: Sequence[Index], accesses: Sequence[Access], vector: int | None, labels: Sequence[object] | None = None) -> None:
        self.dims = list(dims)
        self.accesses = list(accesses)
        self.labels = list(labels) if labels is not None else [None] * len(self.dims)
        self.vector = vector

    @property
    def axes(self) -> range:
        return range(len(self.dims))

    def simplify(self, b: VecBuilder) -> None:
        for a in reversed(self.axes):
            if static(self.dims[a]) == 1:
                self._drop(a)
        for a in reversed(range(len(self.dims) - 1)):
            # The joined axis is walked like its inner one, so an outer vector axis stays alone.
            if self.labels[a] == self.labels[a + 1] and self.vector != a and all(x.dense[a] for x in self.accesses):
                self._join(b, a)

    def _drop(self, a: int) -> None:
        del self.dims[a], self.labels[a]
        for x in self.accesses:
            if a < len(x.dense):  # the pair (a, a + 1) goes; the pair before is now with a + 1
                if a > 0:
                    x.dense[a - 1] = x.dense[a - 1] and x.dense[a]
                del x.dense[a]
            elif x.dense:
                x.dense.pop()
            del x.strides[a]
        if self.vector is not None:
            self.vector = None if self.vector == a else self.vector - (self.vector > a)

    def _join(self, b: VecBuilder, a: int) -> None:
        self.dims[a : a + 2] = [b.mul(self.dims[a], self.dims[a + 1])]
        del self.labels[a]
        for x in self.accesses:
            del x.strides[a], x.dense[a]
        if self.vector is not None and self.vector > a:
            self.vector -= 1

    def bases(self) -> list[Index]:
        return [x.view.offset for x in self.accesses]

    def walk(
        self, b: VecBuilder, axes: Sequence[int], bases: Sequence[Index], then: Callable[[list[Index], list[Value]], list[Value]],
        state: Sequence[Value] = (),
    ) -> list[Value]:  # fmt: skip
        """Loops over `axes`, the first outermost, carrying `state`. then(bases, state) -> state gets the offset of each access there."""
        if not axes:
            return then(list(bases), list(state))
        a = axes[0]
        with b.loop(0, self.dims[a], carry=state, hint=HINTS[a % len(HINTS)]) as it:
            moved = [b.add(base, b.mul(it.iv, x.strides[a])) for base, x in zip(bases, self.accesses)]
            it.yields = self.walk(b, axes[1:], moved, then, it.carried)
        return it.results


def stride_score(stride: int | None, unit: int, same: int, other: int) -> int:
    return unit if stride == 1 else same if stride == 0 else other


def best_axis(dims: Sequence[int | None], written: Sequence[Sequence[int | None]], read: Sequence[Sequence[int | None]]) -> int | None:
    """The axis along which vectors are best: where results are contiguous, then where most inputs are contiguous or constant.

    None where there is nothing to vectorise. Numbers not known now are None; the inner one of equally good axes is taken."""
    best: tuple[int, int] | None = None
    for a, dim in enumerate(dims):
        if dim == 1:
            continue
        score = sum(stride_score(s[a], 8, -8, -8) for s in written) + sum(stride_score(s[a], 2, 1, -2) for s in read)
        if best is None or (score, a) >= best:
            best = (score, a)
    return best[1] if best is not None else None


def choose_vector(space: Space, outs: int) -> None:
    """Sets the vector axis of a space that has none; the last `outs` accesses are written."""
    if space.vector is None:
        strides = [[static(s) for s in x.strides] for x in space.accesses]
        cut = len(strides) - outs
        space.vector = best_axis([static(d) for d in space.dims], strides[cut:], strides[:cut])


def fit_lanes(lanes: int, n: Index) -> int:
    """No more lanes than there are elements, rounded up to a power of two; 0 for a single element."""
    count = static(n)
    if count is None:
        return lanes
    if count <= 1:
        return 0
    return min(lanes, 1 << (count - 1).bit_length())


def evaluate_region(b: VecBuilder, region: Region, args: Sequence[Value], lanes: int, outside: Callable[[Value], Value]) -> list[Value]:
    """The values a scalar region yields, computed on vectors of `lanes` (0: scalars). outside: the new value of one defined around the region."""
    block = region.block
    values = {arg: b.splat(x, lanes) for arg, x in zip(block.args, args)}

    def look(v: Value) -> Value:
        if v not in values:
            values[v] = b.splat(outside(v), lanes)
        return values[v]

    for op in block:
        if op.terminator:
            return [look(v) for v in op.operands]
        out = op.results[0]
        if isinstance(op, arith.Constant):
            values[out] = b.const(op.value, _lanes_type(element_of(out.type), lanes))  # pyright: ignore[reportArgumentType]
            continue
        new = type(op)([look(v) for v in op.operands], [_lanes_type(element_of(out.type), lanes)], op.attrs, span=op.span)
        values[out] = b(new, out.hint)
    return []


def _lanes_type(element: Scalar, lanes: int) -> VectorType | Scalar:
    return VectorType(lanes, element) if lanes else element
