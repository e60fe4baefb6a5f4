"""Run-time variables where paths meet: what a variable is after a branch, and around a loop."""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.frontend import ast
from tilelang.frontend.functions import Functions
from tilelang.frontend.values import POISON, Axis, Const, Index, Num, Tile, Tuple, Unset, Val, dtype_text
from tilelang.ir.core import Value
from tilelang.ir.types import Scalar, bool_, f32, index


@dataclass(frozen=True, slots=True)
class Slot:
    """How a variable is carried: a scalar (axes None), a tile, or a tuple of slots. A weak one came from a literal and adopts another's dtype."""

    dtype: Scalar | None = None
    axes: tuple[Axis, ...] | None = None
    items: tuple[Slot, ...] | None = None
    weak: bool = False

    def same(self, other: Slot, sources: bool = True) -> bool:
        """Whether two slots are equal, weakness apart; without `sources` the axes may come from different ranges."""
        if self.items is not None or other.items is not None:
            a, b = self.items or (), other.items or ()
            return len(a) == len(b) and all(x.same(y, sources) for x, y in zip(a, b))
        if self.axes is None or other.axes is None or sources:
            return self.dtype is other.dtype and self.axes == other.axes
        return self.dtype is other.dtype and [x[:2] for x in self.axes] == [y[:2] for y in other.axes]


class NoJoin(Exception):
    """Two values cannot be one variable."""


def slot_of(value: Val) -> Slot | None:
    """How a value can be carried; None when it exists at compile time only."""
    match value:
        case Tile(dtype=dtype, axes=axes):
            return Slot(dtype, axes)
        case Num(dtype=dtype):
            return Slot(dtype)
        case Index():
            return Slot(index)
        case Const(value=v) if isinstance(v, (int, float)):
            return Slot(bool_ if isinstance(v, bool) else index if isinstance(v, int) else f32, weak=True)
        case Tuple(items=items):
            slots = [slot_of(v) for v in items]
            return None if None in slots else Slot(items=tuple(s for s in slots if s is not None))
        case _:
            return None


class Joins(Functions):
    def join(self, a: Slot, b: Slot, node: ast.Expr, what: str) -> Slot:
        """The slot that holds either. Raises NoJoin."""
        if a.items is not None or b.items is not None:
            if a.items is None or b.items is None or len(a.items) != len(b.items):
                raise NoJoin
            return Slot(items=tuple(self.join(x, y, node, what) for x, y in zip(a.items, b.items)))
        if a.axes is None and b.axes is None:
            return self._join_scalars(a, b)
        if a.axes is None or b.axes is None or a.dtype is not b.dtype or len(a.axes) != len(b.axes):
            raise NoJoin
        axes = []
        for i, (x, y) in enumerate(zip(a.axes, b.axes)):
            if x.is_one != y.is_one or (x.length is not None and y.length is not None and x.length != y.length):
                raise NoJoin
            axes.append(self.meet_axes(x, y, i, (), node, what, stretch=False))
        return Slot(a.dtype, tuple(axes))

    def _join_scalars(self, a: Slot, b: Slot) -> Slot:
        assert a.dtype is not None and b.dtype is not None
        if a.dtype is b.dtype:
            return Slot(a.dtype, weak=a.weak and b.weak)
        for weak, strong in ((a, b), (b, a)):
            if weak.weak and weak.dtype is index and strong.dtype is not bool_:
                return strong
            if weak.weak and weak.dtype is f32 and strong.dtype is not None and (strong.dtype.is_float or (strong.weak and strong.dtype is index)):
                return strong if strong.dtype.is_float else weak
        for i, other in ((a, b), (b, a)):
            if i.dtype is index and other.dtype is not None and other.dtype.is_integer:
                return other
        raise NoJoin

    def joined_value(self, value: Val, slot: Slot, node: ast.Expr) -> list[Value]:
        """The SSA values of a variable in its slot."""
        if slot.items is not None:
            assert isinstance(value, Tuple)
            return [v for item, s in zip(value.items, slot.items, strict=True) for v in self.joined_value(item, s, node)]
        assert slot.dtype is not None
        if slot.axes is None:
            return [self.number(value, slot.dtype, node)]
        assert isinstance(value, Tile)
        return [self.narrow(value, slot.axes).ssa]

    def slot_value(self, slot: Slot, values: list[Value], hint: str) -> Val:
        """The variable that its SSA values stand for; takes them from the front of `values`."""
        if slot.items is not None:
            return Tuple(tuple(self.slot_value(s, values, hint) for s in slot.items))
        assert slot.dtype is not None
        ssa = values.pop(0)
        if ssa.hint is None:
            ssa.hint = hint
        if slot.axes is not None:
            return Tile(ssa, slot.dtype, slot.axes)
        return self.opaque_index(ssa, hint) if slot.dtype is index else Num(ssa, slot.dtype)


def same_value(a: Val, b: Val) -> bool:
    """Whether two values are one and the same, so that nothing has to be carried."""
    if a is b:
        return True
    match a, b:
        case Const(value=x), Const(value=y):
            return type(x) is type(y) and (x == y or (x != x and y != y))
        case Index(expr=x), Index(expr=y):
            return x is y
        case (Num(ssa=x), Num(ssa=y)):
            return x is y
        case (Tile(ssa=x, axes=p), Tile(ssa=y, axes=q)):
            return x is y and p == q
        case Tuple(items=x), Tuple(items=y):
            return len(x) == len(y) and all(same_value(p, q) for p, q in zip(x, y))
        case _:
            return False


def describe(value: Val) -> str:
    if value is POISON or isinstance(value, Unset):
        return "not set"
    if isinstance(value, Num):
        return f"a {dtype_text(value.dtype)} scalar"
    return value.describe()
