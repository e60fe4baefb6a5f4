"""fuse: clusters of elementwise ops on tiles become one tile.map each, so that no intermediate tile needs memory.

Ops are taken in program order; each joins the clusters of its operands where that is legal. Broadcasts, fills and constants have no cost: every
cluster that reads one reads its source instead. What a cluster computes is the result of the map when somebody outside needs it; all else is
computed once, in registers. All ops concerned are pure, so a cluster may stand anywhere between the last definition that it needs (`low`) and
the first use outside; an op that would leave no such place does not join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from tilelang.dialects import arith, func, loop, tile
from tilelang.ir.core import Block, Builder, Module, Operation, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import Scalar, element_of, shape_of
from tilelang.passes.buffering.extents import Extents, carry_extents, is_tile


@register
@dataclass(frozen=True)
class Fuse(Pass):
    """Clusters of elementwise ops on tiles become tile.map. max_ops: most ops in one cluster."""

    name: ClassVar[str] = "fuse"
    max_ops: int = 32

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            extents = Extents()
            carry_extents(function, extents)
            blocks = [r.block for op in function.walk() for r in op.regions if not isinstance(op, tile.Map)]
            for block in blocks:
                _Block(block, extents, self.max_ops).run()
            for op in function.walk(reverse=True):
                if (is_transparent(op) or isinstance(op, (tile.Fill, arith.Constant))) and not op.results[0].uses:
                    op.erase()


# Where an operand of a cluster comes from: a scalar or a tile, and for each axis of the result the axis of the tile.
Source: TypeAlias = tuple[Value, tuple[int, ...]]


@dataclass(eq=False)
class _Cluster:
    members: list[Operation] = field(default_factory=list)
    low: int = -1  # order of the last op outside that it needs
    size: int = 0


class _Block:
    """Clusters of one block."""

    def __init__(self, block: Block, extents: Extents, max_ops: int) -> None:
        self.block = block
        self.extents = extents
        self.max_ops = max_ops
        self.order = {op: i for i, op in enumerate(block)}
        self.cluster: dict[Operation, _Cluster] = {}
        self.spots: dict[_Cluster, int] = {}
        self._sizes: dict[Value, list[Value]] = {}

    def run(self) -> None:
        for op in self.order:
            if op.results and is_tile(op.results[0]) and isinstance(op, (*arith.ELEMENTWISE, tile.Map)):
                self.add(op)
        clusters = {c for c in self.cluster.values() if self.worthwhile(c)}
        for c in clusters:
            self.spot(c)
        ops, pending = list(self.order), dict.fromkeys(sorted(clusters, key=self.spots.__getitem__))
        while pending:
            self.build(next(iter(pending)), ops, pending)
        for c in sorted(clusters, key=lambda c: self.order[c.members[-1]], reverse=True):
            for m in reversed(c.members):
                m.drop_all_references()
                m.detach()

    def worthwhile(self, cluster: _Cluster) -> bool:
        """Whether a map saves something over the ops as they are."""
        return len(cluster.members) > 1 or any(self.source(*read) != read for read in _reads(cluster.members[0]))

    # -- growing

    def add(self, op: Operation) -> None:
        inner = [self.cluster[v.op] for v, m in _reads(op) if v.op in self.cluster and m == _identity(op)]
        clusters = list(dict.fromkeys(inner))
        for choice in [clusters, *([c] for c in reversed(clusters) if len(clusters) > 1)]:
            if choice and self.join(op, choice):
                return
        new = _Cluster([op], self.need(op, set()), _weight(op))
        self.cluster[op] = new

    def join(self, op: Operation, clusters: list[_Cluster]) -> bool:
        """Makes one cluster of `op` and these, if it can stand somewhere."""
        members = [*sorted({m for c in clusters for m in c.members}, key=self.order.__getitem__), op]
        size = sum(c.size for c in clusters) + _weight(op)
        if size > self.max_ops:
            return False
        inside = set(members)
        # What holds inside a cluster is known: that no member is read in another way than element by element (it would have to be complete
        # first), and that nothing the cluster reads depends on it.
        new = [op] if len(clusters) == 1 else members
        identity = _identity(op)
        if any(v.op in inside and axes != identity for m in new for v, axes in (self.source(*read) for read in _reads(m))):
            return False
        low = max(self.need(op, inside), *(c.low for c in clusters))
        sources = {self.cluster[v.op] for m in new for v in self.needs(m) if v.op in self.cluster}.difference(clusters)
        raised = [c for c in clusters if c.low < low]
        dependents = self.dependents(clusters) if sources or raised else set[_Cluster]()
        if not sources.isdisjoint(dependents):
            return False
        raised += [c for c in dependents if c.low < low]
        if any(self.order[user] <= low for c in raised for user in self.users(c) if user not in self.cluster and user is not op):
            return False
        merged = _Cluster(members, low, size)
        for m in members:
            self.cluster[m] = merged
        for c in dependents:
            c.low = max(c.low, low)
        return True

    def dependents(self, clusters: list[_Cluster]) -> set[_Cluster]:
        """Clusters that read these, directly or through other clusters."""
        found: set[_Cluster] = set()
        todo = list(clusters)
        for c in todo:
            for user in self.users(c):
                other = self.cluster.get(user)
                if other is not None and other not in found and other not in clusters:
                    found.add(other)
                    todo.append(other)
        return found

    def users(self, cluster: _Cluster) -> Iterator[Operation]:
        """Ops of this block, outside the cluster, that need it. A broadcast counts through its users in clusters as well as itself."""
        for m in cluster.members:
            for r in m.results:
                for user in self._through(r):
                    there = user.ancestor_in(self.block)
                    if there is not None and self.cluster.get(there) is not cluster:
                        yield there

    def _through(self, value: Value) -> Iterator[Operation]:
        """Users of a value; those of its broadcasts in their place when all of them are elementwise."""
        for user in value.users:
            if is_transparent(user) and user.results[0].uses and all(_fusable(u) for u in user.results[0].users):
                yield from self._through(user.results[0])
            else:
                yield user

    def need(self, op: Operation, inside: set[Operation]) -> int:
        """Order of the last op outside `inside` that must come before `op`."""
        low = -1
        for v in self.needs(op):
            at = v.op
            if at is not None and at not in inside and at.parent is self.block:
                other = self.cluster.get(at)
                low = max(low, other.low if other is not None else self.order.get(at, -1))
        return low

    def needs(self, op: Operation) -> Iterator[Value]:
        """Values that must be there before `op`, in a map, is run."""
        for read in _reads(op):
            yield self.source(*read)[0]
        yield from self.sizes(op.results[0])

    def sizes(self, value: Value) -> list[Value]:
        """The extents of a value that are known at run time only. Kept: chains of elementwise ops are followed to their start once."""
        found = self._sizes.get(value)
        if found is None:
            source = next((v for v in value.op.operands if is_tile(v)), None) if isinstance(value.op, arith.ELEMENTWISE) else None
            found = self._sizes.get(source) if source is not None else None
            found = self._sizes[value] = self.extents.sizes(value) if found is None else found
        return found

    # -- operands

    def source(self, value: Value, map: tuple[int, ...]) -> Source:
        """The operand behind broadcasts and fills."""
        op = value.op
        if isinstance(op, tile.Fill):
            return op.value, (-1,) * len(map)
        axes = source_axes(op)
        if axes is None or op is None:
            return value, map
        return self.source(op.operands[0], tuple(axes[a] if a >= 0 else -1 for a in map))

    # -- building

    def spot(self, cluster: _Cluster) -> int:
        """Order of the op in front of which the map stands: where its last op was, or the first use outside."""
        found = self.spots.get(cluster)
        if found is None:
            found = max(self.order[cluster.members[-1]], cluster.low + 1)
            for user in self.users(cluster):
                other = self.cluster.get(user)
                found = min(found, self.order[user] if other is None else self.spot(other))
            self.spots[cluster] = found
        return found

    def build(self, cluster: _Cluster, ops: list[Operation], pending: dict[_Cluster, None]) -> None:
        """Makes the map, after those of the clusters that it reads. The ops of a cluster stay until the end, as marks of places."""
        del pending[cluster]
        for m in cluster.members:
            for v in self.needs(m):
                other = self.cluster.get(v.op) if v.op is not None else None
                if other in pending and other is not None:
                    self.build(other, ops, pending)
        inside = set(cluster.members)
        results = [r for m in cluster.members for r in m.results if any(u not in inside for u in r.users)]
        if not results:
            return
        ins: dict[Source, int] = {}
        span = cluster.members[-1].span
        for m in cluster.members:
            span = m.span.join(m.span, span) if m.span is not None and span is not None else span
            for read in _reads(m):
                v, axes = self.source(*read)
                if v.op not in inside and not isinstance(v.op, arith.Constant):
                    ins.setdefault((v, axes), len(ins))
        build = Builder(self.block, ops[self.spots[cluster]], span)
        sizes = self.sizes(results[0])
        new = build.insert(tile.Map.of([v for v, _ in ins], tuple(m for _, m in ins), sizes, [r.type for r in results]))
        self._fill_body(cluster, new, ins, results)
        for old, value in zip(results, new.results):
            old.replace_by(value)

    def _fill_body(self, cluster: _Cluster, new: tile.Map, ins: dict[Source, int], results: list[Value]) -> None:
        body = Builder(new.body.block)
        scalars: dict[Value, Value] = {}
        constants: dict[tuple[object, Scalar], Value] = {}

        def read(v: Value, axes: tuple[int, ...]) -> Value:
            v, axes = self.source(v, axes)
            if v in scalars:
                return scalars[v]
            if not isinstance(v.op, arith.Constant):
                return new.body.block.args[ins[v, axes]]
            kind = element_of(v.type)
            number = v.op.attrs["value"]
            key = (repr(number), kind)
            if key not in constants:
                constants[key] = body(arith.Constant.of(number, kind))
            return constants[key]

        for m in cluster.members:
            body.span = m.span
            given = [read(v, axes) for v, axes in _reads(m)]
            if isinstance(m, tile.Map):
                mapping = dict(zip(m.body.block.args, given))
                for op in m.body.block:
                    if not isinstance(op, loop.Yield):
                        body.insert(op.clone(mapping))
                    else:
                        scalars.update(zip(m.results, (mapping.get(v, v) for v in op.values)))
            else:
                scalars[m.results[0]] = body(type(m)(given, [element_of(m.results[0].type)], m.attrs))
                scalars[m.results[0]].hint = m.results[0].hint
        body.insert(loop.Yield.of(*(scalars[r] for r in results)))


def _fusable(op: Operation) -> bool:
    return isinstance(op, (*arith.ELEMENTWISE, tile.Map))


def _identity(op: Operation) -> tuple[int, ...]:
    return tuple(range(len(shape_of(op.results[0].type))))


def _reads(op: Operation) -> list[Source]:
    """Operands of an elementwise op or a map, with their maps."""
    if isinstance(op, tile.Map):
        return list(zip(op.ins, op.maps))
    axes = _identity(op)
    return [(v, axes if is_tile(v) else (-1,) * len(axes)) for v in op.operands]


def _weight(op: Operation) -> int:
    return len(op.body.block) - 1 if isinstance(op, tile.Map) else 1


def is_transparent(op: Operation) -> bool:
    return source_axes(op) is not None


def source_axes(op: Operation | None) -> list[int] | None:
    """For a broadcast, or a reshape that only adds axes of length 1: for each axis of the result the axis of the operand, or -1. None else, and
    where an axis of length 1 is repeated, as a map cannot say 'read at 0'."""
    if isinstance(op, tile.Broadcast):
        source, target = shape_of(op.x.type), shape_of(op.out.type)
        if any(s == 1 and target[d] != 1 for s, d in zip(source, op.dims)):
            return None
        return [op.dims.index(a) if a in op.dims else -1 for a in range(len(target))]
    if not isinstance(op, tile.Reshape):
        return None
    source, found, at = shape_of(op.x.type), [], 0
    for d in shape_of(op.out.type):
        if at < len(source) and d == source[at]:
            found.append(at)
            at += 1
        elif d == 1:
            found.append(-1)
        else:
            return None
    return found if at == len(source) else None
