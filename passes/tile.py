"""tile: whole-tensor functions become tile-level functions.

Tensors that must be in memory (results, operands of matmul, what several grids read, what is reduced or reshaped) are the roots; each root is one
loop.parallel {grid} over tiles of it, which computes everything between memory and the root on tiles (passes/tiling). A matmul whose only use is
an elementwise chain of its shape is computed inside the grid of that chain. Intermediate roots live in scratch memory of the function, and so do
tensors that loops carry.

Tile sizes follow the caches unless the options say otherwise; m and n: the last two axes of a result, k: the contracted axis of matmul."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import arith, func, loop, mem, tensor
from tilelang.ir.core import Block, Builder, Module, Operation, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import DYN, BufferType, Dyn, TensorType, Type, element_of, shape_of
from tilelang.passes.buffering import views
from tilelang.passes.buffering.extents import Extents
from tilelang.passes.fuse import source_axes
from tilelang.passes.tiling import control
from tilelang.passes.tiling.roots import find_roots
from tilelang.passes.tiling.tiles import Tiles
from tilelang.target import Target


@register
@dataclass(frozen=True)
class Tile(Pass):
    """Cuts whole-tensor functions into grids of tiles. m, n, k: tile sizes, 0 = chosen from the target's caches."""

    name: ClassVar[str] = "tile"
    before: ClassVar[tuple[str, ...]] = ("tensor", "tile")
    after: ClassVar[str] = "tile"
    m: int = 0
    n: int = 0
    k: int = 0

    def run(self, module: Module, ctx: PassContext) -> None:
        if module.level == "tensor":
            for function in func.functions(module):
                Lowering(function, Sizes(ctx.target, self.m, self.n, self.k)).run()
        module.attrs["level"] = "tile"


class Sizes:
    """Tile sizes."""

    def __init__(self, target: Target, m: int, n: int, k: int) -> None:
        big = target.l2 >= 512 * 1024
        self.matmul_m = m or (128 if big else 64)
        self.matmul_n = n or (256 if big else 128)
        self.k = k or 256
        # Elementwise tiles fill a third of the first-level cache with f32.
        self.n = n or 256
        near = target.l1d or (target.spaces["ub"].capacity or 0) // 4  # an NPU has no caches; its fast memory holds all temporaries, too
        self.m = m or max(1, 1 << (near // 3 // (4 * self.n)).bit_length() - 1)

    def of(self, op: Operation | None, extents: list[int | Value]) -> list[int]:
        """The tile of a result: one number an axis."""
        rank = len(extents)
        by = [1] * rank
        if isinstance(op, tensor.Matmul):
            by[-2:] = [self.matmul_m, self.matmul_n]
        elif isinstance(op, tensor.Scan):
            by = [1 if a != rank - 1 else self.n for a in range(rank)]
            if op.axis == rank - 1 and rank > 1:
                by[-2] = self.m
        elif isinstance(op, (tensor.Reduce, tensor.ArgReduce)):
            last_is_reduced = len(shape_of(op.x.type)) - 1 in (op.axes if isinstance(op, tensor.Reduce) else (op.axis,))
            if rank:
                by[-1] = self.m if last_is_reduced else self.n
        elif rank == 1:
            by[-1] = self.m * self.n
        elif rank:
            last = extents[-1]
            narrow = isinstance(last, int) and 0 < last < self.n
            by[-2:] = [self.m * self.n // last if narrow and isinstance(last, int) else self.m, self.n]
        return by

    def reduced(self, op: tensor.Reduce) -> list[int]:
        """The blocks of the reduced axes."""
        last = len(shape_of(op.x.type)) - 1
        return [self.n * 4 if a == last else self.m for a in op.axes]


class Lowering:
    """One function. buffers: tensors in memory. scalars: old value -> new value."""

    def __init__(self, function: func.Func, sizes: Sizes) -> None:
        self.old = function
        self.sizes = sizes
        self.extents = Extents()
        self.buffers: dict[Value, Value] = {}
        self.scalars: dict[Value, Value] = {}

    def run(self) -> None:
        """Puts the tile-level function in the place of the old one."""
        old = self.old
        returned = old.body.block.last
        assert isinstance(returned, func.Return)
        self._dims()
        params: list[tuple[str, Type, str]] = []
        for arg, role in zip(old.args, old.roles):
            type = self._parameter(arg.type, arg.hint) if isinstance(arg.type, TensorType) else arg.type
            params.append((arg.hint or "", type, role))
        names = {p[0] for p in params}
        for i, v in enumerate(returned.values):
            name = "out" if len(returned.values) == 1 else f"out{i}"
            while name in names:
                name += "_"
            names.add(name)
            params.append((name, self._parameter(v.type, name), "out"))
        new = func.Func.of(old.sym_name, params, span=old.span)
        new.attrs.update({k: v for k, v in old.attrs.items() if k not in ("roles", "results_")})
        new.attrs["roles"] = tuple(p[2] for p in params)
        facts = tuple(f for f in old.facts if not f.startswith("strides "))
        new.attrs.pop("facts", None)
        if facts:
            new.attrs["facts"] = facts
        self.build = Builder(new.body.block, span=old.span)
        for arg, value in zip(old.args, new.args):
            (self.buffers if isinstance(arg.type, TensorType) else self.scalars)[arg] = value
        self.outs: dict[Value, list[Value]] = {}
        for v, out in zip(returned.values, new.args[len(old.args) :]):
            self.outs.setdefault(v, []).append(out)
        self.block(old.body.block)
        for value, outs in self.outs.items():
            for out in outs:
                if self.buffers.get(value) is not out:
                    self.copy(value, out)
        self.build.insert(func.Return.of())
        assert old.parent is not None
        old.parent.insert_before(old, new)
        old.erase()

    def _parameter(self, type: Type, name: str | None) -> BufferType:
        """A tensor parameter or result in memory: the last axis contiguous, unless the facts say 'strides NAME any'."""
        shape = shape_of(type)
        unit = f"strides {name} any" not in self.old.facts
        return BufferType(shape, element_of(type), "global", (*[DYN] * (len(shape) - 1), 1 if unit else DYN) if shape else ())

    def _dims(self) -> None:
        """One tensor.dim at the start of the old function for each symbol; all extents go back to these."""
        build = Builder.at_start(self.old.body.block, self.old.span)
        by_name: dict[str, Value] = {}
        for arg in self.old.args:
            for axis, d in enumerate(shape_of(arg.type)):
                if isinstance(d, Dyn):
                    known = by_name.get(d.name)
                    if known is None:
                        known = build(tensor.DimOp.of(arg, axis))
                        known.hint = d.name or None
                        if d.name:
                            by_name[d.name] = known
                    self.extents.phis[arg, axis] = known
        entry = {v.op for v in self.extents.phis.values() if v is not None}
        for op in list(self.old.walk()):
            if isinstance(op, tensor.DimOp) and op not in entry:
                extent = self.extents.along(op.x, op.axis)
                assert not isinstance(extent, tuple)
                op.replace_by(Builder.at(op)(arith.index_constant(extent)) if isinstance(extent, int) else extent)

    def extent(self, value: Value, axis: int) -> int | Value:
        """The extent of an axis, as a value of the new function."""
        extent = self.extents.along(value, axis)
        assert not isinstance(extent, tuple)
        return extent if isinstance(extent, int) else self.scalars[extent]

    def block(self, block: Block) -> None:
        """Computes what a block of the old function does, at the place of the builder; without its terminator."""
        roots = find_roots(block)
        for op in block:
            self.build.span = op.span
            if op.terminator:
                return
            if isinstance(op, tensor.DimOp):
                self.scalars[op.out] = dim = self.build(mem.Dim.of(self.buffers[op.x], op.axis))
                dim.hint = op.out.hint
            elif isinstance(op, (loop.For, loop.If, loop.While)) and control.has_tensors(op):
                control.lower(self, op)
            elif op.results and op.results[0] in roots:
                self._root(op.results[0])
            elif not any(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
                self.build.insert(op.clone(self.scalars))

    def _root(self, value: Value) -> None:
        """Computes a value into its buffer: a result of the function, or scratch memory."""
        op = value.op
        outs = self.outs.get(value)
        if isinstance(op, tensor.Reshape) and source_axes(op) is None:
            self.buffers[value] = self._reshaped(op)
            return
        target = outs[0] if outs else self.scratch(value)
        self.copy(value, target)
        self.buffers[value] = target

    def scratch(self, value: Value) -> Value:
        """Memory for a value, with its shape."""
        sizes = [e for axis in range(len(shape_of(value.type))) if isinstance(e := self.extent(value, axis), Value)]
        alloc = mem.Alloc.of(BufferType(shape_of(value.type), element_of(value.type), "global"), sizes)
        alloc.out.hint = value.hint
        return self.build(alloc)

    def _reshaped(self, op: tensor.Reshape) -> Value:
        """A view of contiguous memory under another shape."""
        source = self.buffers.get(op.x)
        if source is None or views.buffer_type(source).strides is not None:
            scratch = self.scratch(op.x)
            self.copy(op.x, scratch)
            source = scratch
        sizes = [self.scalars[s] for s in op.sizes]
        return self.build(mem.ReshapeView.of(source, sizes, BufferType(shape_of(op.out.type), element_of(op.out.type), "global")))

    def copy(self, value: Value, target: Value) -> None:
        """One grid over tiles of a value, in memory or to be computed, stored to `target`. Axes of one block need no loop."""
        extents = [self.extent(value, axis) for axis in range(len(shape_of(value.type)))]
        lead = self._lead(value)
        by = self.sizes.of(lead, extents)
        if isinstance(lead, tensor.Scan):
            by[lead.axis] = 0  # the whole axis
        outer = Tiles(self, self.build)
        looped = [a for a, e in enumerate(extents) if by[a] and not (isinstance(e, int) and e <= by[a])]
        tiles, starts = outer, {}
        if looped:
            ix = outer.ix
            hints = [f"i{a}" if len(looped) > 2 else "ij"[n] for n, a in enumerate(looped)]
            bounds = [ix(0)] * len(looped), [ix(extents[a]) for a in looped], [ix(by[a]) for a in looped]
            grid = self.build.insert(loop.Parallel.of(*bounds, grid=True, hints=list(hints)))
            tiles = outer.inside(Builder(grid.body.block))
            starts = dict(zip(looped, grid.ivs))
        ranges = tuple(tiles.block(starts[a], e, by[a]) if a in starts else tiles.whole(value, a) for a, e in enumerate(extents))
        found = tiles.of(value, ranges) if value in self.buffers else tiles.compute(value, ranges)
        tiles.store(found, target, ranges)
        if looped:
            tiles.build.insert(loop.Yield.of())

    def _lead(self, value: Value) -> Operation | None:
        """The op that decides the tile of a grid: a matmul inside it, else the one that gives the value."""
        if value in self.buffers:
            return None
        todo = [value]
        for v in todo:
            if isinstance(v.op, tensor.Matmul):
                return v.op
            if v.op is not None and isinstance(v.op, arith.ELEMENTWISE):
                todo += [o for o in v.op.operands if isinstance(o.type, TensorType) and o not in self.buffers and o not in todo]
        return value.op
