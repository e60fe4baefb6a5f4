"""vec: registers and addresses, CPU only. Memory is a pointer plus an offset in elements; vectors have a fixed number of lanes; masks are vectors of bool.
Arithmetic is arith on scalars and vectors. Prints straight to LLVM IR (backends.cpu)."""

from __future__ import annotations

from typing import Any

from tilelang.dialects.tile import REDUCTIONS
from tilelang.ir.core import Dialect, Operation, Value, VerifyError, attr, operand, operands, optional_operand, result
from tilelang.ir.types import PtrType, Scalar, Type, VectorType, bool_, element_of, index


class _Vec(Operation):
    """Base: evaluation of every op is the function of the same name in runtime.registers."""

    __slots__ = ()

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import registers

        return registers.evaluate(self, frame, args)


class Alloc(_Vec, name="vec.alloc"):
    """`count` elements of fresh memory, 64-byte aligned, alive to the end of the enclosing region. stack: a fixed small count, kept on the stack;
    else from the worker's heap."""

    __slots__ = ()
    count = operand()
    stack = attr(bool, False)
    out = result()

    @classmethod
    def of(cls, count: Value, type: PtrType, stack: bool = False) -> Alloc:
        return cls([count], [type], {"stack": True} if stack else {})


class Free(_Vec, name="vec.free"):
    """Gives back memory from vec.alloc that is not on the stack."""

    __slots__ = ()
    ptr = operand()

    @classmethod
    def of(cls, ptr: Value) -> Free:
        return cls([ptr])


class Load(_Vec, name="vec.load"):
    """A scalar, or `lanes` consecutive elements from ptr + offset. mask: lanes that are false read nothing and give 0. A bool is one byte in memory."""

    __slots__ = ()
    ptr = operand()
    offset = operand()
    mask = optional_operand()
    out = result()

    @classmethod
    def of(cls, ptr: Value, offset: Value, lanes: int = 0, mask: Value | None = None) -> Load:
        return cls([ptr, offset, mask], [vector_or_scalar(element_of(ptr.type), lanes)])

    def verify_(self) -> None:
        _check_mask(self, self.mask, self.out.type)


class Store(_Vec, name="vec.store"):
    """Writes a scalar or a vector to ptr + offset; false lanes write nothing."""

    __slots__ = ()
    value = operand()
    ptr = operand()
    offset = operand()
    mask = optional_operand()

    @classmethod
    def of(cls, value: Value, ptr: Value, offset: Value, mask: Value | None = None) -> Store:
        return cls([value, ptr, offset, mask])

    def verify_(self) -> None:
        _check_mask(self, self.mask, self.value.type)


class Gather(_Vec, name="vec.gather"):
    """Lane l reads ptr + offsets[l] (offsets: vector of index)."""

    __slots__ = ()
    ptr = operand()
    offsets = operand()
    mask = optional_operand()
    out = result()

    @classmethod
    def of(cls, ptr: Value, offsets: Value, mask: Value | None = None) -> Gather:
        assert isinstance(offsets.type, VectorType)
        return cls([ptr, offsets, mask], [VectorType(offsets.type.lanes, element_of(ptr.type))])

    def verify_(self) -> None:
        _check_mask(self, self.mask, self.out.type)


class Scatter(_Vec, name="vec.scatter"):
    """Lane l writes ptr + offsets[l], in order of lanes."""

    __slots__ = ()
    value = operand()
    ptr = operand()
    offsets = operand()
    mask = optional_operand()

    @classmethod
    def of(cls, value: Value, ptr: Value, offsets: Value, mask: Value | None = None) -> Scatter:
        return cls([value, ptr, offsets, mask])


class AtomicRmw(_Vec, name="vec.atomic_rmw"):
    """One element at ptr + offset, atomically: kind add, max or min (min and max propagate NaN)."""

    __slots__ = ()
    value = operand()
    ptr = operand()
    offset = operand()
    kind = attr(str)

    @classmethod
    def of(cls, kind: str, value: Value, ptr: Value, offset: Value) -> AtomicRmw:
        return cls([value, ptr, offset], (), {"kind": kind})


class Splat(_Vec, name="vec.splat", pure=True):
    """A scalar in every lane."""

    __slots__ = ()
    x = operand()
    out = result()

    @classmethod
    def of(cls, x: Value, lanes: int) -> Splat:
        assert isinstance(x.type, Scalar)
        return cls([x], [VectorType(lanes, x.type)])


class Iota(_Vec, name="vec.iota", pure=True):
    """0, 1, 2, ... lanes - 1."""

    __slots__ = ()
    out = result()

    @classmethod
    def of(cls, lanes: int, element: Scalar = index) -> Iota:
        return cls((), [VectorType(lanes, element)])


class Mask(_Vec, name="vec.mask", pure=True):
    """Lane l is true when l < count (count: index, may be <= 0 or >= lanes)."""

    __slots__ = ()
    count = operand()
    out = result()

    @classmethod
    def of(cls, count: Value, lanes: int) -> Mask:
        return cls([count], [VectorType(lanes, bool_)])


class Extract(_Vec, name="vec.extract", pure=True):
    """One lane (static)."""

    __slots__ = ()
    x = operand()
    lane = attr(int)
    out = result()

    @classmethod
    def of(cls, x: Value, lane: int) -> Extract:
        return cls([x], [element_of(x.type)], {"lane": lane})


class Insert(_Vec, name="vec.insert", pure=True):
    """x with one lane (static) replaced."""

    __slots__ = ()
    value = operand()
    x = operand()
    lane = attr(int)
    out = result()

    @classmethod
    def of(cls, value: Value, x: Value, lane: int) -> Insert:
        return cls([value, x], [x.type], {"lane": lane})


class Shuffle(_Vec, name="vec.shuffle", pure=True):
    """Lanes picked from a and b put one after the other."""

    __slots__ = ()
    a = operand()
    b = operand()
    lanes = attr(tuple)
    out = result()

    @classmethod
    def of(cls, a: Value, b: Value, lanes: tuple[int, ...]) -> Shuffle:
        return cls([a, b], [VectorType(len(lanes), element_of(a.type))], {"lanes": tuple(lanes)})


class Reduce(_Vec, name="vec.reduce", pure=True):
    """All lanes to one scalar, in a tree (halves added to halves). kind as tile.reduce."""

    __slots__ = ()
    x = operand()
    kind = attr(str)
    out = result()

    @classmethod
    def of(cls, kind: str, x: Value) -> Reduce:
        return cls([x], [element_of(x.type)], {"kind": kind})

    def verify_(self) -> None:
        if self.kind not in REDUCTIONS:
            raise VerifyError(self, f"kind '{self.kind}' is none of {', '.join(REDUCTIONS)}")


class Dot(_Vec, name="vec.dot", pure=True):
    """acc + groups of products: lane l of acc gains the sum over g of a[G*l + g] * b[G*l + g], G = lanes of a / lanes of acc
    (bf16 pairs to f32: G = 2; u8 x i8 to i32: G = 4)."""

    __slots__ = ()
    a = operand()
    b = operand()
    acc = operand()
    out = result()

    @classmethod
    def of(cls, a: Value, b: Value, acc: Value) -> Dot:
        return cls([a, b, acc], [acc.type])


class Prefetch(_Vec, name="vec.prefetch"):
    """A hint that ptr + offset will be read soon. locality 0 (none) to 3 (keep)."""

    __slots__ = ()
    ptr = operand()
    offset = operand()
    locality = attr(int, 3)

    @classmethod
    def of(cls, ptr: Value, offset: Value, locality: int = 3) -> Prefetch:
        return cls([ptr, offset], (), {"locality": locality} if locality != 3 else {})


class Launch(_Vec, name="vec.launch"):
    """Runs `callee(begin, end, captured...)` over the flat block numbers 0 to count, in chunks spread over the threads (runtime.threads).
    An error of a chunk (a failed loop.assert) ends the kernel with it."""

    __slots__ = ()
    count = operand()
    captured = operands()
    callee = attr(str)

    @classmethod
    def of(cls, callee: str, count: Value, captured: list[Value]) -> Launch:
        return cls([count, captured], (), {"callee": callee})


def vector_or_scalar(element: Scalar, lanes: int) -> Type:
    return VectorType(lanes, element) if lanes else element


def _check_mask(op: Operation, mask: Value | None, type: Type) -> None:
    if mask is not None and (not isinstance(type, VectorType) or mask.type is not VectorType(type.lanes, bool_)):
        raise VerifyError(op, f"mask {mask.type} does not fit {type}")


DIALECT = Dialect(
    "vec",
    [Alloc, Free, Load, Store, Gather, Scatter, AtomicRmw, Splat, Iota, Mask, Extract, Insert, Shuffle, Reduce, Dot, Prefetch, Launch],
    "registers and addresses",
)
