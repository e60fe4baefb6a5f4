"""microkernel: cuts every mem.matmul and mem.contract into register tiles.

The loops around a tile are those of Goto and van de Geijn (ACM TOMS 2008): blocks over K, blocks of rows of lhs, panels of columns of rhs, tiles of
rows; loops that run once are not there. What is left is a mem.matmul whose acc fits the registers; lower-to-vec turns it into vectors.

An operand is packed, that is copied to contiguous local memory in the accumulator's type, where that pays: it is read more than once, and its elements
need a conversion, are not adjacent where vectors or broadcasts read them, or lie in rows so far apart that cache sets collide. A panel of rhs is packed
where it is used, right before the tiles that read it. A prologue is always applied while packing.

Ragged extents: the rows left over are done by tiles of fewer rows (all of them at once where their number is known, else by powers of two), the columns
left over by a tile with fewer columns. Views are exact, so that nothing outside the operands is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tilelang.dialects import arith, func, loop, mem
from tilelang.dialects.contract import MemContract, is_empty
from tilelang.ir.core import Block, Builder, Module, Operation, Region, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import BufferType, Dim, Dyn, dim_bound, element_of, shape_of
from tilelang.passes.block import Blocking, choose, compute_type
from tilelang.passes.buffering import views
from tilelang.passes.vec_lowering.builder import Index, VecBuilder

if TYPE_CHECKING:
    from tilelang.target import Target


@register
@dataclass(frozen=True)
class Microkernel(Pass):
    """Cuts matmuls into register tiles, with blocks over K and packed operands. pack: pack operands where it pays."""

    name: ClassVar[str] = "microkernel"
    before: ClassVar[str] = "mem"
    pack: bool = True

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            for op in list(function.walk()):
                if isinstance(op, MemContract) or (isinstance(op, mem.Matmul) and not _is_tile(op)):
                    _Cutter(op, ctx.target, self.pack).run()


def _is_tile(op: mem.Matmul) -> bool:
    """Whether acc fits the register tile that the op names."""
    if not op.register_tile or op.cache_blocks:
        return False
    rows, columns = op.attrs["register_tile"]
    *batch, m, n = shape_of(op.acc.type)
    bound = dim_bound(n)
    return not batch and isinstance(m, int) and m <= rows and bound is not None and bound <= columns


class _Cutter:
    """Cuts one matmul. Ops are built into a block of their own, which then takes the place of the matmul."""

    def __init__(self, op: mem.Matmul | MemContract, target: Target, pack: bool) -> None:
        self.op, self.target, self.pack = op, target, pack
        # What is done to each element of lhs and rhs before it is multiplied.
        prologues = (op.prologue_lhs, op.prologue_rhs) if isinstance(op, MemContract) else (None, None)
        self.prologue_lhs, self.prologue_rhs = (None if p is None or is_empty(p) else p for p in prologues)
        self.b = VecBuilder(Block(), target, op.span)
        self.element = compute_type(element_of(op.acc.type))
        m, n = shape_of(op.acc.type)[-2:]
        k = _narrower(shape_of(op.lhs.type)[-1], shape_of(op.rhs.type)[-2])
        if op.register_tile and op.cache_blocks:
            (rows, columns), (height, depth) = op.attrs["register_tile"], op.attrs["cache_blocks"]
            self.blocking = Blocking(rows, columns, depth, height)
        else:
            self.blocking = choose(target, element_of(op.acc.type), m, n, k)
        # Reads of a masked vector cost no more than others, so that one tile serves full and ragged panels.
        self.masks_are_free = "avx512f" in target.isa
        self.packs: dict[tuple[str, BufferType], Value] = {}

    def run(self) -> None:
        op = self.op
        self.batch(op.lhs, op.rhs, op.acc)
        assert op.parent is not None
        for new in list(self.b.block):
            op.parent.insert_before(op, new.detach())
        op.erase()

    # -- loops, outermost first

    def batch(self, lhs: Value, rhs: Value, acc: Value) -> None:
        shape = shape_of(acc.type)
        if len(shape) == 2:
            self.matrix(lhs, rhs, acc)
            return
        with self.b.loop(0, self.dim(acc, 0), hint="batch") as it:
            parts = [self.sub(v, [it.iv] + [0] * (len(shape) - 1), shape_of(v.type)[1:], dropped=(0,)) for v in (lhs, rhs, acc)]
            self.batch(*parts)

    def matrix(self, lhs: Value, rhs: Value, acc: Value) -> None:
        b, blocking = self.b, self.blocking
        m, n = self.dim(acc, 0), self.dim(acc, 1)
        k = self.dim(lhs, 1) if isinstance(shape_of(lhs.type)[1], int) else self.dim(rhs, 0)
        pack_lhs, pack_rhs = self.packed_lhs(lhs, acc), self.packed_rhs(rhs, acc)
        most_k = _narrower(shape_of(lhs.type)[1], shape_of(rhs.type)[0])
        with self.blocks(k, most_k, blocking.depth, "k") as (at_k, size_k, bound_k), self.blocks(m, shape_of(acc.type)[0], blocking.height, "m") as (
            at_m,
            size_m,
            bound_m,
        ):
            block = self.sub(lhs, [at_m, at_k], [(size_m, bound_m), (size_k, bound_k)])
            if pack_lhs:
                block = self.copy_lhs(block, bound_m, bound_k)

            def panel(at_n: Index, size_n: Index) -> None:
                side = self.sub(rhs, [at_k, at_n], [(size_k, bound_k), (size_n, blocking.columns)])
                if pack_rhs:
                    side = self.copy(side, (bound_k, blocking.columns), "rhs", self.prologue_rhs)

                def rows(at: Index, count: int) -> None:
                    left = self.sub(block, [at, 0], [(count, count), (size_k, bound_k)])
                    out = self.sub(acc, [b.add(at_m, at), at_n], [(count, count), (size_n, blocking.columns)])
                    tile = mem.Matmul.of(left, side, out)
                    tile.attrs["register_tile"] = blocking.register_tile
                    b.insert(tile)

                self.each_rows(size_m, bound_m, rows)

            self.each_panel(n, panel)

    @contextmanager
    def blocks(self, extent: Index, dim: Dim, size: int, hint: str) -> Iterator[tuple[Index, Index, int]]:
        """A loop over [0, extent) in steps of `size`: start, extent and static bound of a block."""
        bound = dim_bound(dim)
        if bound is not None and bound <= size:
            yield 0, extent, max(bound, 1)
            return
        with self.b.loop(0, extent, size, hint=hint) as it:
            whole = isinstance(extent, int) and extent % size == 0
            yield it.iv, size if whole else self.b.min(size, self.b.sub(extent, it.iv)), size

    def each_panel(self, n: Index, panel: Callable[[Index, Index], None]) -> None:
        b, columns = self.b, self.blocking.columns
        full = n if self.masks_are_free and not isinstance(n, int) else b.sub(n, b.mod(n, columns))
        if full != 0:
            with b.loop(0, full, columns, hint="j") as it:
                panel(it.iv, columns if full is not n or isinstance(n, int) else b.min(columns, b.sub(n, it.iv)))
        if full is n or full == n:
            return
        if isinstance(n, int):
            panel(full, b.sub(n, full))
            return
        with b.loop(full, n, columns, hint="j") as it:
            panel(it.iv, b.sub(n, it.iv))

    def each_rows(self, m: Index, bound: int, rows: Callable[[Index, int], None]) -> None:
        b, most = self.b, self.blocking.rows
        if isinstance(m, int):
            full = m - m % most
            if full:
                with b.loop(0, full, most, hint="i") as it:
                    rows(it.iv, most)
            if m > full:
                rows(full, m - full)
            return
        start: Index = 0
        count = most
        while count:
            if count <= bound:
                stop = b.sub(m, b.mod(b.sub(m, start), count))
                with b.loop(start, stop, count, hint="i") as it:
                    rows(it.iv, count)
                start = stop
            count = 1 << (count - 1).bit_length() - 1 if count > 1 else 0

    # -- packing

    def packed_rhs(self, rhs: Value, acc: Value) -> bool:
        """Whether a panel of rhs is copied: when more than one tile of rows reads it."""
        m = dim_bound(shape_of(acc.type)[0])
        if self.prologue_rhs is not None:
            return True
        if not self.pack or (m is not None and m <= self.blocking.rows):
            return False
        type = views.buffer_type(rhs)
        along_k, along_n = views.strides_of(type)
        return type.element is not self.element or along_n != 1 or not self.near(along_k, dim_bound(type.shape[0]), self.blocking.depth, 2)

    def packed_lhs(self, lhs: Value, acc: Value) -> bool:
        """Whether a block of lhs is copied: when more than one panel of columns reads it."""
        n = dim_bound(shape_of(acc.type)[1])
        if self.prologue_lhs is not None:
            return True
        if not self.pack or (n is not None and n <= self.blocking.columns):
            return False
        type = views.buffer_type(lhs)
        along_m, along_k = views.strides_of(type)
        return type.element is not self.element or along_k != 1 or not self.near(along_m, dim_bound(type.shape[0]), self.blocking.rows, 4)

    def near(self, stride: Dim, rows: int | None, most: int, share: int) -> bool:
        """Whether rows this far apart, as many as are used at a time, take at most a share of L1 together with what lies between them."""
        if not isinstance(stride, int):
            return False
        rows = most if rows is None else min(rows, most)
        return rows * stride * self.element.bytes <= self.target.l1d // share

    def copy_lhs(self, block: Value, rows: int, depth: int) -> Value:
        along_m, along_k = views.strides_of(views.buffer_type(block))
        if along_m == 1 and along_k != 1:
            # Columns are contiguous: they stay so, and the tile reads them through a transposed view.
            return self.b(mem.Permute.of(self.copy(self.b(mem.Permute.of(block, (1, 0))), (depth, rows), "lhs", self.prologue_lhs), (1, 0)))
        return self.copy(block, (rows, depth), "lhs", self.prologue_lhs)

    def copy(self, source: Value, shape: Sequence[int], hint: str, prologue: Region | None) -> Value:
        """`source` in contiguous local memory, in the type that products are summed in. shape: the largest extents it may have. prologue: applied to each
        element."""
        b = self.b
        memory = self.memory(BufferType(tuple(shape), self.element, "local"), hint)
        extents: list[tuple[Index, int]] = []
        for axis, (dim, bound) in enumerate(zip(shape_of(source.type), shape)):
            extents.append((dim if isinstance(dim, int) else self.dim(source, axis), bound))
        target = self.sub(memory, [0, 0], extents)
        if prologue is None and element_of(source.type) is self.element:
            b.insert(mem.Copy.of(source, target))
            return target
        convert = mem.Map.of([source], [target], ((0, 1),))
        body = Builder(convert.body.block, span=self.op.span)
        value = convert.body.block.args[0]
        if prologue is not None:
            mapping = {prologue.block.args[0]: value}
            for inner in prologue.block:
                if inner.terminator:
                    value = mapping.get(inner.operands[0], inner.operands[0])
                else:
                    body.insert(inner.clone(mapping))
        if element_of(value.type) is not self.element:
            value = body(arith.Cast.of(value, self.element))
        body.insert(loop.Yield.of(value))
        b.insert(convert)
        return target

    def memory(self, type: BufferType, hint: str) -> Value:
        """Memory for a packed operand, at the start of the block of the grid, or of the function; one for all panels."""
        if (hint, type) not in self.packs:
            spot: Operation = self.op
            while not isinstance(parent := spot.parent_op, (loop.Parallel, func.Func)):
                assert parent is not None
                spot = parent
            assert spot.parent is not None
            alloc = mem.Alloc.of(type)
            alloc.out.hint = hint
            self.packs[hint, type] = Builder.at_start(spot.parent, self.op.span)(alloc)
        return self.packs[hint, type]

    # -- views

    def dim(self, buffer: Value, axis: int) -> Index:
        size = shape_of(buffer.type)[axis]
        return size if isinstance(size, int) else self.b(mem.Dim.of(buffer, axis))

    def sub(self, buffer: Value, offsets: Sequence[Index], extents: Sequence[Dim | tuple[Index, int]], dropped: Sequence[int] = ()) -> Value:
        """Part of a buffer; the buffer itself when that is all of it. extents: a dim of the buffer that is taken whole, or (extent, its bound)."""
        b, shape = self.b, shape_of(buffer.type)
        dims: list[Dim] = []
        sizes: list[Value] = []
        kept = [axis for axis in range(len(shape)) if axis not in dropped]
        for axis, extent in zip(kept, extents):
            size, bound = extent if isinstance(extent, tuple) else (self.dim(buffer, axis), None)
            if isinstance(size, int):
                dims.append(size)
            else:
                dims.append(Dyn("", bound) if isinstance(extent, tuple) else shape[axis])
                sizes.append(size)
        if not dropped and tuple(dims) == shape and all(isinstance(d, int) for d in dims):
            return buffer
        type = views.view_type(views.buffer_type(buffer), dims, dropped)
        return b(mem.Subview.of(buffer, [b.value(o) for o in offsets], sizes, type, tuple(dropped)))


def _narrower(a: Dim, b: Dim) -> Dim:
    """Of two descriptions of one extent the one that says more."""
    if isinstance(a, int) or (isinstance(b, Dyn) and b.bound is None):
        return a
    if isinstance(b, int) or a.bound is None:
        return b
    return a if a.bound <= (b.bound or a.bound) else b
