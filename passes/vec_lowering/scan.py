"""mem.scan: cumulative sums, products, maxima and minima along an axis.

Along a contiguous axis a vector is scanned in registers, in log2(lanes) steps that combine it with itself shifted up by 1, 2, 4, ... lanes
(Hillis and Steele, Data Parallel Algorithms, 1986), and the last lane is carried on. Across another contiguous axis each lane is a scan of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelang.dialects import mem, vec
from tilelang.ir.core import Value
from tilelang.ir.types import Scalar, element_of
from tilelang.passes.vec_lowering.builder import Index, VecBuilder, static
from tilelang.passes.vec_lowering.reduce import Combiner
from tilelang.passes.vec_lowering.space import Access, Space, best_axis, fit_lanes
from tilelang.passes.vectorize import plan

if TYPE_CHECKING:
    from tilelang.passes.lower_to_vec import Lowering


def scan(op: mem.Scan, ctx: Lowering) -> None:
    b, src, dst = ctx.b, ctx.view(op.src), ctx.view(op.dst)
    rank = dst.rank
    axis = op.axis % rank
    dims = dst.dims
    _, lanes, _ = plan(op, ctx.target)
    accesses = [Access.of(v, range(rank), dims) for v in (src, dst)]
    strides = [[static(s) for s in x.strides] for x in accesses]
    vector = best_axis([static(d) for d in dims], strides[1:], strides[:1])
    space = Space(dims, accesses, vector)
    combiner = Combiner(b, op.kind, element_of(op.src.type))
    element = element_of(op.dst.type)
    outer = [a for a in space.axes if a not in (axis, vector)]
    if vector == axis:
        row = _Row(b, combiner, element, op.exclusive, dims[axis], fit_lanes(lanes, dims[axis]), [x.strides[axis] for x in accesses], src.ptr, dst.ptr)
        space.walk(b, outer, space.bases(), lambda bases, _: row.run(bases))
        return
    n: Index = dims[vector] if vector is not None else 1
    lanes = fit_lanes(lanes, n) if vector is not None else 0
    steps: list[Index] = [x.strides[vector] if vector is not None else 0 for x in accesses]

    def column(bases: list[Index], _: list[Value]) -> list[Value]:
        def body(i: Index, mask: Value | None, _: list[Value]) -> list[Value]:
            at = [b.add(base, b.mul(i, step)) for base, step in zip(bases, steps)]

            def one(places: list[Index], state: list[Value]) -> list[Value]:
                x = combiner.prepare(b.load_lanes(src, places[0], steps[0], lanes, mask))
                total = combiner.combine(state[0], x)
                b.store_lanes(combiner.finish(state[0] if op.exclusive else total, element), dst, places[1], steps[1], lanes, mask)
                return [total]

            space.walk(b, [axis], at, one, [combiner.identity(lanes)])
            return []

        b.strip(n, lanes, 1, body, hint="v")
        return []

    space.walk(b, outer, space.bases(), column)


class _Row:
    """The scan of one contiguous run."""

    def __init__(
        self, b: VecBuilder, combiner: Combiner, element: Scalar, exclusive: bool, n: Index, lanes: int, steps: list[Index], src: Value, dst: Value
    ) -> None:
        self.b, self.c, self.element, self.exclusive, self.n, self.lanes, self.steps = b, combiner, element, exclusive, n, lanes, steps
        self.src, self.dst = src, dst

    def run(self, bases: list[Index]) -> list[Value]:
        self.bases = bases
        self.b.strip(self.n, self.lanes, 1, self._body, [self.c.identity(0)], hint="v")
        return []

    def _body(self, i: Index, mask: Value | None, state: list[Value]) -> list[Value]:
        b, c, lanes = self.b, self.c, self.lanes
        at = [b.add(base, b.mul(i, step)) for base, step in zip(self.bases, self.steps)]
        x = c.masked(c.prepare(b.load_lanes(self.src, at[0], self.steps[0], lanes, mask)), mask, lanes)
        if not lanes:
            total = c.combine(state[0], x)
            out = state[0] if self.exclusive else total
        else:
            total, out = self._scan(x, state[0])
        b.store_lanes(c.finish(out, self.element), self.dst, at[1], self.steps[1], lanes, mask)
        return [total]

    def _scan(self, x: Value, carry: Value) -> tuple[Value, Value]:
        """(the carry after the vector, the scanned vector)"""
        b, c, lanes = self.b, self.c, self.lanes
        nothing, shift = c.identity(lanes), 1
        while shift < lanes:
            x = c.combine(self._shifted(nothing, x, shift), x)
            shift *= 2
        before = b.splat(carry, lanes)
        out = c.combine(before, x)
        total = b(vec.Extract.of(out, lanes - 1))
        return total, self._shifted(before, out, 1) if self.exclusive else out

    def _shifted(self, filler: Value, x: Value, by: int) -> Value:
        """x moved up by some lanes, the first ones from `filler`."""
        return self.b(vec.Shuffle.of(filler, x, tuple(range(by)) + tuple(range(self.lanes, 2 * self.lanes - by))))
