"""mem.reduce and mem.arg_reduce.

Along a reduced axis a vector holds partial results of every lanes-th element, several vectors at once so that additions need not wait for each other;
they are joined in a tree at the end. Across a kept axis every lane is a result of its own. Sums of narrow floats are kept in f32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilelang.dialects import arith, mem, vec
from tilelang.ir.core import Value
from tilelang.ir.types import Scalar, VectorType, bool_, element_of, f32
from tilelang.passes.vec_lowering.builder import Index, VecBuilder
from tilelang.passes.vec_lowering.space import Access, Space, choose_vector, evaluate_region, fit_lanes
from tilelang.passes.vectorize import plan

if TYPE_CHECKING:
    from tilelang.passes.lower_to_vec import Lowering

_COMBINE = {"sum": arith.Add, "prod": arith.Mul, "max": arith.Max, "min": arith.Min}


class Combiner:
    """One kind of reduction on one element type: identity, combination of two vectors, of all lanes, and what is stored."""

    def __init__(self, b: VecBuilder, kind: str, element: Scalar) -> None:
        self.b = b
        self.source = element
        self.truth = kind in ("any", "all") or element is bool_
        if self.truth:
            self.kind = "any" if kind in ("any", "sum", "max") else "all"
            self.element = bool_
        else:
            self.kind = kind
            self.element = f32 if element.is_float and element.bits < 32 and kind in ("sum", "prod") else element

    def prepare(self, x: Value) -> Value:
        """A loaded or computed value in the type that is accumulated."""
        return self.b.cast(x, self.element)

    def combine(self, a: Value, x: Value) -> Value:
        if self.truth:
            return self.b(arith.Or.of(a, x) if self.kind == "any" else arith.And.of(a, x))
        return self.b(_COMBINE[self.kind].of(a, x))

    def identity(self, lanes: int) -> Value:
        return self.b.splat(self.b.const(identity(self.kind, self.element), self.element), lanes)

    def lanes_to_scalar(self, x: Value) -> Value:
        return self.b(vec.Reduce.of(self.kind, x)) if isinstance(x.type, VectorType) else x

    def finish(self, x: Value, element: Scalar) -> Value:
        return self.b.cast(x, element)

    def masked(self, x: Value, mask: Value | None, lanes: int) -> Value:
        return x if mask is None else self.b(arith.Select.of(mask, x, self.identity(lanes)))


def identity(kind: str, element: Scalar) -> float | int | bool:
    """What a reduction of nothing gives."""
    if element is bool_:
        return kind in ("all", "prod", "min")
    if kind in ("sum", "prod"):
        return int(kind == "prod") if not element.is_float else float(kind == "prod")
    sign = -1 if kind == "max" else 1
    if element.is_float:
        return sign * (448.0 if element.name == "f8e4m3" else float("inf"))  # f8e4m3 has no infinity
    low = -(1 << element.bits - 1) if element.is_signed else 0
    high = (1 << element.bits - 1 if element.is_signed else 1 << element.bits) - 1
    return low if kind == "max" else high


def reduce(op: mem.Reduce, ctx: Lowering) -> None:
    b = ctx.b
    first = ctx.view(op.srcs[0])
    rank, dims = first.rank, first.dims
    reduced = {a % rank for a in op.axes} if rank else set()
    kept = [a for a in range(rank) if a not in reduced]
    maps = op.maps or tuple(tuple(range(rank)) for _ in op.srcs)
    axis, lanes, unroll = plan(op, ctx.target)
    dst = ctx.view(op.dst)
    along = [kept.index(a) if a in kept else -1 for a in range(rank)]
    sources = [(ctx.view(v), m) for v, m in zip(op.srcs, maps) if not isinstance(v.type, Scalar)]
    accesses = [Access.of(v, m, dims) for v, m in sources] + [Access.of(dst, along, dims)]
    space = Space(dims, accesses, axis if axis >= 0 else None, [a in reduced for a in range(rank)])
    space.simplify(b)
    choose_vector(space, 0)
    has_region = op.body.block.first is not None
    terminator = op.body.block.last
    element = element_of(terminator.operands[0].type) if has_region and terminator is not None else element_of(op.srcs[0].type)
    combiner = Combiner(b, op.kind, element)

    def value_at(places: list[Index], steps: list[Index], lanes: int, mask: Value | None) -> Value:
        rest = zip(accesses, places, steps)
        loaded = []
        for v in op.srcs:
            if isinstance(v.type, Scalar):
                loaded.append(ctx.value(v))
            else:
                x, at, step = next(rest)
                loaded.append(b.load_lanes(x.view, at, step, lanes, mask))
        if has_region:
            loaded = evaluate_region(b, op.body, loaded, lanes, ctx.value)
        return combiner.prepare(loaded[0])

    _Reduction(b, space, combiner, value_at, lanes, unroll).run(element_of(op.dst.type))


class _Reduction:
    """The loops of one reduction. The last access of the space is what is written."""

    def __init__(
        self, b: VecBuilder, space: Space, combiner: Combiner, value_at: Callable[[list[Index], list[Index], int, Value | None], Value],
        lanes: int, unroll: int,
    ) -> None:  # fmt: skip
        self.b, self.space, self.combiner, self.value_at = b, space, combiner, value_at
        a = space.vector
        self.n: Index = space.dims[a] if a is not None else 1
        self.lanes = fit_lanes(lanes, self.n) if a is not None else 0
        self.unroll = unroll if self.lanes else 1
        self.steps: list[Index] = [x.strides[a] if a is not None else 0 for x in space.accesses]
        self.outer_kept = [x for x in space.axes if not space.labels[x] and x != a]
        self.outer_reduced = [x for x in space.axes if space.labels[x] and x != a]

    def run(self, element: Scalar) -> None:
        a, dst = self.space.vector, self.space.accesses[-1].view

        def result(bases: list[Index], _: list[Value]) -> list[Value]:
            if a is None or self.space.labels[a]:
                total = self.combiner.lanes_to_scalar(self._along(bases))
                self.b.store(self.combiner.finish(total, element), dst, bases[-1])
            else:
                self._across(bases, element)
            return []

        self.space.walk(self.b, self.outer_kept, self.space.bases(), result)

    def _moved(self, bases: list[Index], i: Index) -> list[Index]:
        return [self.b.add(at, self.b.mul(i, step)) for at, step in zip(bases, self.steps)]

    def _along(self, bases: list[Index]) -> Value:
        """Vectors run along a reduced axis: the partial results in lanes."""
        c, lanes = self.combiner, self.lanes
        nothing = c.identity(lanes)

        def body(i: Index, mask: Value | None, state: list[Value]) -> list[Value]:
            x = self.value_at(self._moved(now, i), self.steps, lanes, mask)
            return [c.combine(state[0], c.masked(x, mask, lanes))]

        def merge(a: list[Value], b: list[Value]) -> list[Value]:
            return [c.combine(x, y) for x, y in zip(a, b)]

        now = bases

        def row(places: list[Index], state: list[Value]) -> list[Value]:
            nonlocal now
            now = places
            if not self.outer_reduced:
                return self.b.strip(self.n, lanes, self.unroll, body, [nothing], merge, hint="v")
            if self.unroll == 1:
                return self.b.strip(self.n, lanes, 1, body, state, hint="v")
            return merge(state, self.b.strip(self.n, lanes, self.unroll, body, [nothing], merge, hint="v"))

        return self.space.walk(self.b, self.outer_reduced, bases, row, [nothing])[0]

    def _across(self, bases: list[Index], element: Scalar) -> None:
        """Vectors run along a kept axis: a column of lanes is reduced in each, several columns side by side."""
        b, c, lanes = self.b, self.combiner, self.lanes
        dst = self.space.accesses[-1].view

        def columns(i: Index, count: int, mask: Value | None) -> None:
            starts = [self._moved(bases, b.add(i, k * max(lanes, 1))) for k in range(count)]
            # One walk moves all columns: they differ by a constant.
            flat = [place for start in starts for place in start]
            wide = Space(self.space.dims, self.space.accesses * count, None)

            def row(places: list[Index], state: list[Value]) -> list[Value]:
                width = len(self.steps)
                return [
                    c.combine(s, self.value_at(places[k * width : (k + 1) * width], self.steps, lanes, mask)) for k, s in enumerate(state)
                ]

            totals = wide.walk(b, self.outer_reduced, flat, row, [c.identity(lanes)] * count)
            for total, start in zip(totals, starts):
                b.store_lanes(c.finish(total, element), dst, start[-1], self.steps[-1], lanes, mask)

        step = max(lanes, 1) * self.unroll
        whole = b.sub(self.n, b.mod(self.n, step)) if self.unroll > 1 else 0
        if whole != 0:
            with b.loop(0, whole, step, hint="v") as it:
                columns(it.iv, self.unroll, None)

        def rest(i: Index, mask: Value | None, _: list[Value]) -> list[Value]:
            columns(i, 1, mask)
            return []

        b.strip_from(whole, self.n, lanes, rest, hint="v")


def arg_reduce(op: mem.ArgReduce, ctx: Lowering) -> None:
    """Each lane keeps its best value and where it was first seen; NaN beats every number, the first NaN stays.

    Lanes start with the worst value at their own first place, so that a row of nothing but the worst value gives its first place as well."""
    b, src, dst = ctx.b, ctx.view(op.src), ctx.view(op.dst)
    rank = src.rank
    axis = op.axis % rank
    _, lanes, _ = plan(op, ctx.target)
    kept = [a for a in range(rank) if a != axis]
    along = [kept.index(a) if a in kept else -1 for a in range(rank)]
    accesses = [Access.of(src, range(rank), src.dims), Access.of(dst, along, src.dims)]
    space = Space(src.dims, accesses, None, [a == axis for a in range(rank)])
    space.simplify(b)
    choose_vector(space, 0)
    a = space.vector
    n: Index = space.dims[a] if a is not None else 1
    lanes = fit_lanes(lanes, n) if a is not None else 0
    steps: list[Index] = [x.strides[a] if a is not None else 0 for x in space.accesses]
    value, number = element_of(op.src.type), element_of(op.dst.type)
    worst = b.splat(b.const(identity(op.kind, value), value), lanes)

    def better(x: Value, best: Value, mask: Value | None) -> Value:
        wins = b(arith.Cmp.of("gt" if op.kind == "max" else "lt", x, best))
        if value.is_float:
            nan, known = b(arith.Cmp.of("ne", x, x)), b(arith.Cmp.of("eq", best, best))
            wins = b(arith.Or.of(wins, b(arith.And.of(nan, known))))
        return wins if mask is None else b(arith.And.of(wins, mask))

    def keep(x: Value, at: Value, state: list[Value], mask: Value | None) -> list[Value]:
        wins = better(x, state[0], mask)
        return [b(arith.Select.of(wins, x, state[0])), b(arith.Select.of(wins, at, state[1]))]

    def places(bases: list[Index], i: Index) -> list[Index]:
        return [b.add(at, b.mul(i, step)) for at, step in zip(bases, steps)]

    def row_along(bases: list[Index], _: list[Value]) -> list[Value]:
        """Vectors along the reduced axis; the lanes are joined at the end."""

        def body(i: Index, mask: Value | None, state: list[Value]) -> list[Value]:
            x = b.load_lanes(src, places(bases, i)[0], steps[0], lanes, mask)
            base = b.splat(b.cast(b.value(i), number), lanes)
            return keep(x, b(arith.Add.of(first, base)) if lanes else base, state, mask)

        first = b(vec.Iota.of(lanes, number)) if lanes else b.const(0, number)
        best, where = b.strip(n, lanes, 1, body, [worst, first], hint="v")
        if lanes:
            top = b.splat(b(vec.Reduce.of(op.kind, best)) if value is not bool_ else _bool_best(b, op.kind, best), lanes)
            hit = b(arith.Cmp.of("eq", best, top))
            if value.is_float:
                nan = [b(arith.Cmp.of("ne", v, v)) for v in (best, top)]
                hit = b(arith.Or.of(hit, b(arith.And.of(*nan))))
            far = b.splat(b.const(identity("min", number), number), lanes)
            where = b(vec.Reduce.of("min", b(arith.Select.of(hit, where, far))))
        b.store(where, dst, bases[-1])
        return []

    def row_across(bases: list[Index], _: list[Value]) -> list[Value]:
        """Vectors along a kept axis; or nothing to vectorise."""

        def column(i: Index, mask: Value | None, _: list[Value]) -> list[Value]:
            at = places(bases, i)
            outer = [x for x in space.axes if space.labels[x]]

            def step(k: Index, place: Index, state: list[Value]) -> list[Value]:
                x = b.load_lanes(src, place, steps[0], lanes, mask)
                return keep(x, b.splat(b.cast(b.value(k), number), lanes), state, None)

            start = [worst, b.splat(b.const(0, number), lanes)]
            if outer:
                with b.loop(0, space.dims[outer[0]], carry=start, hint="k") as it:
                    stride = space.accesses[0].strides[outer[0]]
                    it.yields = step(it.iv, b.add(at[0], b.mul(it.iv, stride)), it.carried)
                start = it.results
            b.store_lanes(start[1], dst, at[1], steps[1], lanes, mask)
            return []

        b.strip(n, lanes, 1, column, hint="v")
        return []

    inner = {a, *(x for x in space.axes if space.labels[x])}
    row = row_along if a is not None and space.labels[a] else row_across
    space.walk(b, [x for x in space.axes if x not in inner], space.bases(), row)


def _bool_best(b: VecBuilder, kind: str, x: Value) -> Value:
    return b(vec.Reduce.of("any" if kind == "max" else "all", x))
