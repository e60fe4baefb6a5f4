"""What an expression of a program can be while it is built: compile-time values, run-time numbers, tiles, ranges, buffers, functions.

Every value that has axes carries them beside its SSA value: how long an axis is nominally (the block size), how much of it is valid (an index
expression, perhaps only known at run time), and the index range it came from (its source). So operands can be checked to run along the same axes,
and reductions and stores see valid elements only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tilelang.ir.expr import Const as ConstExpr
from tilelang.ir.expr import Expr, Sym, as_expr, const
from tilelang.ir.types import DYN, Dim, Dyn, Scalar, TensorType, TileType, index

if TYPE_CHECKING:
    from tilelang.diagnostics import Span
    from tilelang.frontend import ast
    from tilelang.frontend.env import Env
    from tilelang.ir.core import Value


class Source(NamedTuple):
    """Where an axis comes from: a loop's index range (id is unique for the loop), or all of a symbolic dim (id is the dim)."""

    kind: str  # 'range' or 'dim'
    id: str
    name: str  # as the user calls it
    span: Span | None = None

    def describe(self) -> str:
        return f"range '{self.name}'" if self.kind == "range" else f"dim {self.name}"


class Axis(NamedTuple):
    """length: the nominal length, None when it is only known at run time. extent: how many elements are valid."""

    length: int | None
    extent: Expr
    source: Source | None = None

    @classmethod
    def of(cls, length: int) -> Axis:
        return cls(length, const(length))

    @classmethod
    def whole(cls, extent: Expr, name: str | None = None) -> Axis:
        """All of a dim: a dim that is a constant is an axis without a source."""
        if extent.value is not None:
            return cls(extent.value, extent)
        text = name or str(extent)
        return cls(None, extent, Source("dim", str(extent), text))

    @property
    def is_one(self) -> bool:
        return self.extent.value == 1 and self.length == 1

    @property
    def dim(self) -> Dim:
        """The axis in the type of a tile."""
        value = self.extent.value
        return value if value is not None else Dyn("", self.length)

    @property
    def text(self) -> str:
        return str(self.length if self.length is not None else self.extent)

    def same_source(self, other: Axis) -> bool:
        a, b = self.source, other.source
        return (a is None) == (b is None) and (a is None or b is None or a[:2] == b[:2])


class Val:
    """Base of all values."""

    __slots__ = ()

    def describe(self) -> str:
        """What it is, for messages: 'a 64x32 f16 tile'."""
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Poison(Val):
    """What an expression with a reported error is: silences what follows from it."""

    def describe(self) -> str:
        return "a value with an error"


POISON = Poison()


@dataclass(slots=True, eq=False)
class Unset(Val):
    """A variable that only some paths to here have set."""

    span: Span

    def describe(self) -> str:
        return "a value that may not be set"


@dataclass(slots=True, eq=False)
class Const(Val):
    """A compile-time number, bool, string or None. Numbers are weakly typed: they adopt the dtype of what they meet."""

    value: int | float | bool | str | None

    def describe(self) -> str:
        if isinstance(self.value, bool) or self.value is None:
            return str(self.value)
        if isinstance(self.value, str):
            return f"the string {self.value!r}"
        return f"the number {self.value}"


@dataclass(slots=True, eq=False)
class DType(Val):
    """A dtype as a value."""

    scalar: Scalar

    def describe(self) -> str:
        return f"the dtype {dtype_text(self.scalar)}"


@dataclass(slots=True, eq=False)
class Tuple(Val):
    items: tuple[Val, ...]

    def describe(self) -> str:
        return f"a tuple of {len(self.items)}"


@dataclass(slots=True, eq=False)
class Index(Val):
    """A run-time integer of index arithmetic: a loop variable, a dim, or what is computed from them. Its SSA value is made when it is needed."""

    expr: Expr

    def describe(self) -> str:
        if isinstance(self.expr, Sym):
            return f"the index {self.expr}"
        return f"an index, {self.expr}"


@dataclass(slots=True, eq=False)
class Num(Val):
    """A run-time scalar."""

    ssa: Value
    dtype: Scalar

    def describe(self) -> str:
        return f"a run-time {dtype_text(self.dtype)} scalar"


@dataclass(slots=True, eq=False)
class Tile(Val):
    """A tile, or a whole tensor in a whole-tensor function. fill: the scalar SSA value in every element, when it is one."""

    ssa: Value
    dtype: Scalar
    axes: tuple[Axis, ...]
    fill: Value | None = None

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def whole(self) -> bool:
        return isinstance(self.ssa.type, TensorType)

    def describe(self) -> str:
        shape = "x".join(a.text for a in self.axes)
        return f"a {shape} {dtype_text(self.dtype)} {'tensor' if self.whole else 'tile'}".replace("  ", " ")


@dataclass(slots=True, eq=False)
class Range(Val):
    """An index range of a loop: start, start + step, ... extent of them. by: the block size."""

    start: Expr
    extent: Expr
    by: int
    source: Source
    step: int = 1

    @property
    def axis(self) -> Axis:
        return Axis(self.by, self.extent, self.source)

    def describe(self) -> str:
        return f"the index range {self.source.name!r}"


@dataclass(slots=True, eq=False)
class Buffer(Val):
    """A tensor in memory, or a buffer of the user. role: in, inout, out (made by empty) or the space of a buffer.
    axes: its axes when it is read whole; `dims` are their extents."""

    ssa: Value
    dtype: Scalar
    axes: tuple[Axis, ...]
    role: str
    name: str
    span: Span
    home: int = 0  # the grid loop inside which it was made, 0 outside

    @property
    def dims(self) -> tuple[Expr, ...]:
        return tuple(a.extent for a in self.axes)

    @property
    def is_global(self) -> bool:
        return self.role in ("in", "inout", "out")

    def describe(self) -> str:
        shape = "x".join(a.text for a in self.axes)
        return f"the {shape} {dtype_text(self.dtype)} {'tensor' if self.is_global else self.role + ' buffer'} {self.name!r}"


@dataclass(slots=True, eq=False)
class Function(Val):
    """A helper function, inlined where it is called."""

    tree: ast.Function
    env: Env

    def describe(self) -> str:
        return f"the function {self.tree.name!r}"


@dataclass(slots=True, eq=False)
class Builtin(Val):
    """A function of the language."""

    name: str

    def describe(self) -> str:
        return f"the function {self.name!r} of the language"


@dataclass(slots=True, eq=False)
class Namespace(Val):
    """A Python module: `tl` of `import tilelang as tl`, or one with constants such as math."""

    module: Any
    is_language: bool = False

    def describe(self) -> str:
        return f"the module {self.module.__name__!r}"


@dataclass(slots=True, eq=False)
class DtypeParam(Val):
    """A dtype parameter, `Float = dtypes(f32, f16)`."""

    name: str
    options: tuple[Scalar, ...] = field(default=())

    def describe(self) -> str:
        return f"the dtype parameter {self.name!r}"


@dataclass(slots=True, eq=False)
class TypeForm(Val):
    """`Tensor`, `InOut` or `tune`: names that only signatures use."""

    name: str

    def describe(self) -> str:
        return f"{self.name!r}, which belongs in a signature"


def dtype_text(scalar: Scalar) -> str:
    """A dtype as programs spell it."""
    return "bool_" if scalar.name == "bool" else scalar.name


def tile_type(axes: tuple[Axis, ...], dtype: Scalar) -> TileType:
    return TileType(tuple(a.dim for a in axes), dtype)


def tensor_type(axes: tuple[Axis, ...], dtype: Scalar) -> TensorType:
    return TensorType(tuple(dim_of(a.extent) for a in axes), dtype)


def dim_of(extent: Expr) -> Dim:
    """A dim of a tensor or buffer type: an int, the name of a symbolic dim, or `?` for anything computed."""
    if isinstance(extent, ConstExpr):
        return extent.number
    return Dyn(extent.name) if isinstance(extent, Sym) and extent.name.isidentifier() else DYN


def scalar_type(value: Val) -> Scalar | None:
    """The dtype of a number or tile that has a strong one."""
    if isinstance(value, (Num, Tile)):
        return value.dtype
    return index if isinstance(value, Index) else None


def as_index(value: Val) -> Expr | None:
    """The index expression of a compile-time int or an Index."""
    if isinstance(value, Index):
        return value.expr
    if isinstance(value, Const) and type(value.value) is int:
        return as_expr(value.value)
    return None


def is_number(value: Val) -> bool:
    return isinstance(value, (Index, Num)) or (isinstance(value, Const) and isinstance(value.value, (int, float)))


# -- promotion -----------------------------------------------------------------------------------------------------

_UP = {8: Scalar("i16"), 16: Scalar("i32"), 32: Scalar("i64")}


def promote(a: Scalar, b: Scalar) -> Scalar | None:
    """The dtype in which two dtypes meet, None when there is none. `index` yields to the other: it counts as a weak integer of at least 32 bits."""
    if a is b:
        return a
    kinds = {a.kind, b.kind}
    if "index" in kinds:
        other = b if a.kind == "index" else a
        if other.kind in ("int", "uint") and other.bits < 32:
            return Scalar("i32")
        return index if other.kind == "bool" else other
    if "bool" in kinds:
        return b if a.kind == "bool" else a
    if "float" in kinds:
        if a.kind != b.kind:
            return a if a.kind == "float" else b
        if a.bits == b.bits:
            return Scalar("f32") if a.bits == 16 else None
        return a if a.bits > b.bits else b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return _UP.get(unsigned.bits)


def acc_type(dtype: Scalar) -> Scalar:
    """The dtype in which sums of `dtype` are accumulated."""
    if dtype.is_float:
        return Scalar("f64") if dtype.bits == 64 else Scalar("f32")
    if dtype.kind == "bool" or (dtype.kind == "int" and dtype.bits < 32):
        return Scalar("i32")
    return Scalar("u32") if dtype.kind == "uint" and dtype.bits < 32 else dtype


def product_type(dtype: Scalar) -> Scalar:
    """The dtype of a matrix product of operands of `dtype`: as acc_type, but integers of up to 16 bits give i32."""
    if dtype.kind == "uint" and dtype.bits < 32:
        return Scalar("i32")
    return acc_type(dtype)


def is_f8(dtype: Scalar) -> bool:
    return dtype.is_float and dtype.bits == 8


def limits(dtype: Scalar) -> tuple[int, int]:
    """The least and greatest value of an integer dtype."""
    bits = dtype.bits
    return (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
