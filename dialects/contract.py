"""tile.contract and mem.contract: a whole matrix product as one op. Members of the dialects tile and mem, in a file of their own.

tile.contract is what `raise` makes of a loop over acc += a @ b: it names the memory that is read, over the whole of K, and leaves the order of K open.
bufferize turns it into mem.matmul, or into mem.contract where an operand has a prologue; microkernel applies prologues while it packs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilelang.ir.core import Block, Operation, Region, Value, VerifyError, attr, operand, operands, region, result
from tilelang.ir.types import BufferType, TileType, element_of, index, shape_of

_Prologue = Region | None


class Contract(Operation, name="tile.contract"):
    """out = acc + sum over k of lhs(m, k) * rhs(k, n), in acc's element type (as tile.matmul), for every m, n and batch index of acc.

    lhs and rhs are memory: the axis of a buffer starts at its offset and goes as far as the letter in `maps` says. maps: "lhs,rhs->acc", a letter an
    axis, as `mk,kn->mn` or `-mk,nk->mn`: k is summed, over `depth` elements; m is an axis of lhs and acc, n of rhs and acc, other letters of all three
    (batches); `-` is an axis read at its offset alone. acc's letters are the batches, m, n, in this order. Accesses are in bounds, but along the letters
    in `padded`: what would lie behind the end of a buffer there adds nothing to the sum.

    prologue_lhs, prologue_rhs: from an element of the buffer to the factor; epilogue: from the sum and acc's element to the result's. They are elementwise
    and may use scalars from around the op; an empty region is the factor itself, and sum + acc. The sum may be taken in any order, with any
    intermediate rounding. register_tile, cache_blocks: as mem.matmul."""

    __slots__ = ()
    acc = operand()
    lhs = operand()
    rhs = operand()
    depth = operand()
    lhs_offsets = operands()
    rhs_offsets = operands()
    maps = attr(str)
    padded = attr(str, "")
    register_tile = attr(tuple, ())
    cache_blocks = attr(tuple, ())
    out = result()
    prologue_lhs = region()
    prologue_rhs = region()
    epilogue = region()

    @classmethod
    def of(
        cls, acc: Value, lhs: Value, rhs: Value, depth: Value, lhs_offsets: Iterable[Value], rhs_offsets: Iterable[Value], maps: str,
        prologue_lhs: _Prologue = None, prologue_rhs: _Prologue = None, epilogue: _Prologue = None, padded: str = "",
    ) -> Contract:  # fmt: skip
        a, b, c = (element_of(v.type) for v in (lhs, rhs, acc))
        regions = (prologue_lhs or Region([Block([a])]), prologue_rhs or Region([Block([b])]), epilogue or Region([Block([c, c])]))
        attrs = {"maps": maps, "padded": padded} if padded else {"maps": maps}
        return cls([acc, lhs, rhs, depth, list(lhs_offsets), list(rhs_offsets)], [acc.type], attrs, regions)

    @property
    def letters(self) -> tuple[str, str, str]:
        """The letters of lhs, rhs and acc."""
        operands_, _, acc = self.maps.partition("->")
        lhs, _, rhs = operands_.partition(",")
        return lhs, rhs, acc

    def verify_(self) -> None:
        lhs, rhs, acc = self.letters
        batch = acc[:-2]
        if acc[-2:] != "mn" or len(set(acc)) != len(acc) or not set(batch).isdisjoint("k-"):
            raise VerifyError(self, f"acc's letters must be batches, m, n; they are '{acc}'")
        if not set(self.padded) <= set(acc + "k"):
            raise VerifyError(self, f"padded '{self.padded}' are not letters of '{acc}' or k")
        for name, letters, own in (("lhs", lhs, "mk"), ("rhs", rhs, "kn")):
            if sorted(letters.replace("-", "")) != sorted(batch + own):
                raise VerifyError(self, f"the letters of {name} must be {', '.join(batch + own)} and '-', once each; they are '{letters}'")
        if not isinstance(self.acc.type, TileType) or len(acc) != len(self.acc.type.shape) or self.out.type is not self.acc.type:
            raise VerifyError(self, f"acc {self.acc.type} and the result {self.out.type} must be one tile type of {len(acc)} axes")
        for name, buffer, offsets, letters in (("lhs", self.lhs, self.lhs_offsets, lhs), ("rhs", self.rhs, self.rhs_offsets, rhs)):
            if not isinstance(buffer.type, BufferType) or not len(buffer.type.shape) == len(offsets) == len(letters):
                raise VerifyError(self, f"{name} {buffer.type} needs an offset and a letter for every axis")
        if any(v.type is not index for v in (self.depth, *self.lhs_offsets, *self.rhs_offsets)):
            raise VerifyError(self, "depth and offsets must be of type index")
        element = element_of(self.acc.type)
        wanted = ([element_of(self.lhs.type)], [element_of(self.rhs.type)], [element, element])
        for part, types in zip(self.regions, wanted):
            if [a.type for a in part.block.args] != types:
                raise VerifyError(self, f"a region must take ({', '.join(map(str, types))})")
            check_elementwise(self, part)
        if (last := self.epilogue.block.last) is not None and last.operands[0].type is not element:
            raise VerifyError(self, f"the epilogue yields {last.operands[0].type}, not {element}")

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import contract

        return contract.contract(self, frame, args)


class MemContract(Operation, name="mem.contract"):
    """acc += prologue_lhs(lhs) @ prologue_rhs(rhs), otherwise as mem.matmul. An empty region is the factor itself."""

    __slots__ = ()
    lhs = operand()
    rhs = operand()
    acc = operand()
    register_tile = attr(tuple, ())
    cache_blocks = attr(tuple, ())
    prologue_lhs = region()
    prologue_rhs = region()

    @classmethod
    def of(cls, lhs: Value, rhs: Value, acc: Value, prologue_lhs: Region, prologue_rhs: Region) -> MemContract:
        return cls([lhs, rhs, acc], (), {}, [prologue_lhs, prologue_rhs])

    def verify_(self) -> None:
        for part, buffer in zip(self.regions, (self.lhs, self.rhs)):
            if [a.type for a in part.block.args] != [element_of(buffer.type)]:
                raise VerifyError(self, f"a prologue must take one {element_of(buffer.type)}")
            check_elementwise(self, part)
        ranks = {len(shape_of(v.type)) for v in (self.lhs, self.rhs, self.acc)}
        if len(ranks) != 1 or min(ranks) < 2:
            raise VerifyError(self, "needs three buffers of one rank >= 2")

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import contract

        contract.mem_contract(self, frame, args)


def is_empty(part: Region) -> bool:
    """Whether a region says nothing, and so means the default."""
    return part.block.last is None


def check_elementwise(op: Operation, part: Region) -> None:
    """A region of pure scalar arithmetic that yields one value, or nothing at all. Raises VerifyError."""
    last = part.block.last
    if last is None:
        return
    if not last.terminator or len(last.operands) != 1:
        raise VerifyError(op, "a region must yield one value")
    for inner in part.block:
        if inner is not last and (not inner.pure or not inner.name.startswith("arith.")):
            raise VerifyError(op, f"'{inner.name}' cannot stand in an elementwise region")
