"""tensor: whole-tensor values with symbolic dims. The ops mirror those of tile; the pass `tile` lowers a whole-tensor function to grids of tiles.
Extents of results come from the operands, or from `sizes` as in tile."""

from __future__ import annotations

from typing import Any

from tilelang.dialects import tile
from tilelang.ir.core import Dialect, Operation, Value, VerifyError, attr, operand, result
from tilelang.ir.types import TensorType, index


class DimOp(Operation, name="tensor.dim", pure=True):
    """The extent of an axis."""

    __slots__ = ()
    x = operand()
    axis = attr(int)
    out = result()

    @classmethod
    def of(cls, x: Value, axis: int) -> DimOp:
        return cls([x], [index], {"axis": axis})

    def verify_(self) -> None:
        if not isinstance(self.x.type, TensorType) or not 0 <= self.axis < len(self.x.type.shape):
            raise VerifyError(self, f"{self.x.type} has no axis {self.axis}")

    def evaluate(self, frame: Any, *args: Any) -> Any:
        return int(args[0].shape[self.axis])


# fmt: off
class Fill(tile.Fill, name="tensor.fill"): "A tensor with one number in every element."; __slots__ = ()
class Iota(tile.Iota, name="tensor.iota"): "A one-axis tensor start, start + step, ..."; __slots__ = ()
class Broadcast(tile.Broadcast, name="tensor.broadcast"): "Repeats along new axes and axes of length 1."; __slots__ = ()
class Reshape(tile.Reshape, name="tensor.reshape"): "The same elements in row-major order under another shape."; __slots__ = ()
class Transpose(tile.Transpose, name="tensor.transpose"): "Axis i of the result is axis perm[i] of x."; __slots__ = ()
class Slice(tile.Slice, name="tensor.slice"): "Part of a tensor."; __slots__ = ()
class Matmul(tile.Matmul, name="tensor.matmul"): "acc + lhs @ rhs, over the last two axes."; __slots__ = ()
class Reduce(tile.Reduce, name="tensor.reduce"): "Reduces `axes`; over all axes the result is a tensor of rank 0."; __slots__ = ()
class ArgReduce(tile.ArgReduce, name="tensor.arg_reduce"): "Index of the first largest or smallest element along an axis."; __slots__ = ()
class Scan(tile.Scan, name="tensor.scan"): "Cumulative reduction along an axis."; __slots__ = ()
# fmt: on

DIALECT = Dialect(
    "tensor", [DimOp, Fill, Iota, Broadcast, Reshape, Transpose, Slice, Matmul, Reduce, ArgReduce, Scan], "whole-tensor values"
)
