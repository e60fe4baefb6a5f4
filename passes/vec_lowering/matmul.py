"""mem.matmul: one register tile of acc in vectors, a loop over K around it.

microkernel has cut the product so that acc fits the register file: its rows are static, its columns are static or bounded by `register_tile`. The
vectors of acc are carried by the K loop; each step loads the vectors of one row of rhs and multiplies them with one broadcast element of lhs a
row. A product that was not cut is done one row and two vectors at a time. Nothing outside the three views is read or written: the last vector
of a row is masked. Products are summed in acc's type (f16 and bf16: in f32, rounded once), with one rounding where the machine has fused
multiply-add: the rounding and the order of a contraction are free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelang.dialects import arith, mem
from tilelang.ir.core import Value
from tilelang.ir.types import dim_bound, shape_of
from tilelang.passes.block import compute_type, has_fma
from tilelang.passes.vec_lowering.builder import Index, VecBuilder, View, subview

if TYPE_CHECKING:
    from tilelang.passes.lower_to_vec import Lowering
    from tilelang.target import Target


def lower(op: mem.Matmul, ctx: Lowering) -> None:
    """Appends code for acc += lhs @ rhs."""
    b, target = ctx.b, ctx.target
    lanes = target.lanes(compute_type(ctx.view(op.acc).element).bytes * 8)
    rows, columns = op.register_tile or (1, 2 * lanes)
    m, n = shape_of(op.acc.type)[-2:]
    step = m if isinstance(m, int) and 0 < m <= rows else 1
    bound = dim_bound(n)

    def matrix(lhs: View, rhs: View, acc: View) -> None:
        if acc.rank > 2:
            with b.loop(0, acc.dims[0], hint="batch") as it:
                matrix(*(subview(b, v, [it.iv] + [0] * (v.rank - 1), v.dims[1:], dropped=(0,)) for v in (lhs, rhs, acc)))
            return
        kernel = _Kernel(b, target, lhs, rhs, acc, lanes)
        width = acc.dims[1]
        with b.loop(0, acc.dims[0], step, hint="i") as i:
            if bound is not None and bound <= columns:
                kernel.run(i.iv, 0, step, width, bound)
                return
            full = b.sub(width, b.mod(width, columns))
            with b.loop(0, full, columns, hint="j") as j:
                kernel.run(i.iv, j.iv, step, columns, columns)
            with b.loop(full, width, columns, hint="j") as j:
                kernel.run(i.iv, j.iv, step, b.sub(width, j.iv), columns)

    matrix(ctx.view(op.lhs), ctx.view(op.rhs), ctx.view(op.acc))


class _Kernel:
    """The body for one register tile of a product of matrices."""

    def __init__(self, b: VecBuilder, target: Target, lhs: View, rhs: View, acc: View, lanes: int) -> None:
        self.b, self.lhs, self.rhs, self.acc, self.lanes = b, lhs, rhs, acc, lanes
        self.element = compute_type(acc.element)
        self.k = lhs.dims[1] if isinstance(lhs.dims[1], int) else rhs.dims[0]
        self.fused = self.element.is_float and has_fma(target)

    def multiply_add(self, x: Value, y: Value, sum: Value) -> Value:
        b = self.b
        return b(arith.Fma.of(x, y, sum)) if self.fused else b(arith.Add.of(sum, b(arith.Mul.of(x, y))))

    def run(self, row: Index, column: Index, rows: int, n: Index, bound: int) -> None:
        """Rows row to row + rows, columns column to column + n, of at most `bound`."""
        b, lanes, lhs, rhs, acc = self.b, self.lanes, self.lhs, self.rhs, self.acc
        starts = range(0, n if isinstance(n, int) else bound, lanes)
        # A count known now leaves only the last vector masked; else any may be.
        masks = [None if isinstance(n, int) and start + lanes <= n else b.mask(b.sub(n, start), lanes) for start in starts]
        left = [b.add(lhs.offset, b.mul(b.add(row, r), lhs.strides[0])) for r in range(rows)]
        right = [b.add(rhs.offset, b.mul(b.add(column, start), rhs.strides[1])) for start in starts]
        places = [[b.at(acc, (b.add(row, r), b.add(column, start))) for start in starts] for r in range(rows)]

        sums: list[Value] = []
        for line in places:
            for at, mask in zip(line, masks):
                sums.append(b.cast(b.load_lanes(acc, at, acc.strides[1], lanes, mask), self.element))
        with b.loop(0, self.k, carry=sums, hint="k") as k:
            ys: list[Value] = []
            for at, mask in zip(right, masks):
                y = b.load_lanes(rhs, b.add(at, b.mul(k.iv, rhs.strides[0])), rhs.strides[1], lanes, mask)
                ys.append(b.cast(y, self.element))
            for r, at in enumerate(left):
                x = b.cast(b.load(lhs, b.add(at, b.mul(k.iv, lhs.strides[1]))), self.element)
                x = b.splat(x, lanes)
                k.yields += [self.multiply_add(x, y, s) for y, s in zip(ys, k.carried[r * len(ys) :])]
        results = iter(k.results)
        for line in places:
            for at, mask in zip(line, masks):
                b.store_lanes(b.cast(next(results), acc.element), acc, at, acc.strides[1], lanes, mask)
