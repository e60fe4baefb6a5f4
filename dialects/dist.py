"""dist: communication between ranks, legal at the tile and mem levels. Every rank runs the same function (SPMD) on memory of its own; memory in the
space `symmetric` exists once on every rank, with the same shape, and a rank may write that of another, its peer.

Memory model, which runtime.ranks carries out and checks:
- put copies its value when it is issued; it arrives at any later time, and in any order with other puts and signals.
- fence(peer) orders: what this rank issued to that peer before arrives before what it issues to it after. It waits for nothing, and says nothing
  about other peers.
- signal changes one integer of the peer's memory atomically. Signals of one rank to one word arrive in order.
- wait returns when its rank's word compares true. What the signals so far were ordered behind (by the program, by fences) is then visible, and is read
  by loads that take the wait's token. A wait is not pure: no pass moves it, removes it or merges it with another.
- barrier waits for all ranks and for all puts and signals that were issued before it.
Memory of the space symmetric changes without a store in the program, so a load of it is never an alias of that memory, and never moves across an op of
this dialect."""

from __future__ import annotations

from typing import Any

from tilelang.dialects.tile import access_attrs, check_access
from tilelang.ir.core import Dialect, Operation, Value, VerifyError, attr, operand, operands, result
from tilelang.ir.types import BufferType, Scalar, element_of, index, shape_of, token

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
SYMMETRIC = "symmetric"


def is_symmetric(value: Value) -> bool:
    """Whether a value is a buffer that every rank has."""
    return isinstance(value.type, BufferType) and value.type.space == SYMMETRIC


def synchronises(op: Operation, memory: Value) -> bool:
    """Whether other ranks may access a buffer of this rank while, or after, an op is passed."""
    return is_symmetric(memory) and isinstance(op, _Dist) and not op.pure


class _Dist(Operation):
    """Base: an op asks the ranks of the run (runtime.ranks) for what it means."""

    __slots__ = ()

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import ranks

        return ranks.evaluate(self, frame, args)


class Rank(_Dist, name="dist.rank", pure=True):
    """The number of this rank, from 0."""

    __slots__ = ()
    out = result()

    @classmethod
    def of(cls) -> Rank:
        return cls([], [index])


class World(_Dist, name="dist.world", pure=True):
    """How many ranks there are."""

    __slots__ = ()
    out = result()

    @classmethod
    def of(cls) -> World:
        return cls([], [index])


class Put(_Dist, name="dist.put"):
    """Writes a tile, or a scalar when all axes are dropped, to the buffer of rank `peer` (this one included); offsets, dropped and steps as in tile.store.
    At the mem level the value is a buffer."""

    __slots__ = ()
    value = operand()
    buffer = operand()
    offsets = operands()
    peer = operand()
    dropped = attr(tuple, ())
    steps = attr(tuple, ())

    @classmethod
    def of(
        cls, value: Value, buffer: Value, offsets: list[Value], peer: Value, dropped: tuple[int, ...] = (), steps: tuple[int, ...] = ()
    ) -> Put:
        return cls([value, buffer, offsets, peer], (), access_attrs(dropped, steps))

    def verify_(self) -> None:
        check_access(self, self.buffer.type, self.offsets, self.value.type, self.dropped, self.steps)
        _check_symmetric(self, self.buffer)
        _check_peer(self, self.peer)


class Fence(_Dist, name="dist.fence"):
    """Orders what was issued to `peer` before what will be."""

    __slots__ = ()
    peer = operand()

    @classmethod
    def of(cls, peer: Value) -> Fence:
        return cls([peer])

    def verify_(self) -> None:
        _check_peer(self, self.peer)


class Signal(_Dist, name="dist.signal"):
    """Sets one integer of the buffer of rank `peer` to the value, or adds the value to it (kind set or add), atomically."""

    __slots__ = ()
    value = operand()
    buffer = operand()
    indices = operands()
    peer = operand()
    kind = attr(str, "set")

    @classmethod
    def of(cls, value: Value, buffer: Value, indices: list[Value], peer: Value, kind: str = "set") -> Signal:
        return cls([value, buffer, indices, peer], (), {"kind": kind} if kind != "set" else {})

    def verify_(self) -> None:
        if self.kind not in ("set", "add"):
            raise VerifyError(self, f"kind '{self.kind}' is neither set nor add")
        _check_word(self, self.value, self.buffer, self.indices)
        _check_peer(self, self.peer)


class Wait(_Dist, name="dist.wait"):
    """Waits until one integer of this rank's own buffer compares true with the value: eq, ne, lt, le, gt or ge. The token goes to the loads that read
    what was waited for."""

    __slots__ = ()
    buffer = operand()
    indices = operands()
    value = operand()
    cmp = attr(str, "ge")
    out = result()

    @classmethod
    def of(cls, buffer: Value, indices: list[Value], value: Value, cmp: str = "ge") -> Wait:
        return cls([buffer, indices, value], [token], {"cmp": cmp} if cmp != "ge" else {})

    def verify_(self) -> None:
        if self.cmp not in COMPARISONS:
            raise VerifyError(self, f"cmp '{self.cmp}' is none of {', '.join(COMPARISONS)}")
        _check_word(self, self.value, self.buffer, self.indices)


class Barrier(_Dist, name="dist.barrier"):
    """Waits until all ranks are here, and all that was issued before has arrived."""

    __slots__ = ()

    @classmethod
    def of(cls) -> Barrier:
        return cls([])


def _check_symmetric(op: Operation, buffer: Value) -> None:
    if not is_symmetric(buffer):
        raise VerifyError(op, f"{buffer.type} is not memory that other ranks have, its space must be {SYMMETRIC}")


def _check_peer(op: Operation, peer: Value) -> None:
    if peer.type is not index:
        raise VerifyError(op, f"the peer must be of type index, it is {peer.type}")


def _check_word(op: Operation, value: Value, buffer: Value, indices: tuple[Value, ...]) -> None:
    _check_symmetric(op, buffer)
    element = element_of(buffer.type)
    if not element.is_integer or element.bits < 32:
        raise VerifyError(op, f"signals are integers of 32 or 64 bits, not {element}")
    if not isinstance(value.type, Scalar) or value.type is not element:
        raise VerifyError(op, f"the value is {value.type}, the buffer holds {element}")
    if len(indices) != len(shape_of(buffer.type)):
        raise VerifyError(op, f"{buffer.type} needs {len(shape_of(buffer.type))} indices, it has {len(indices)}")


DIALECT = Dialect("dist", [Rank, World, Put, Fence, Signal, Wait, Barrier], "communication between ranks")
