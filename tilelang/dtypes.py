# pyright: reportRedeclaration=false
"""What signatures are written with: dtypes, tensors of them, symbolic dims, dtype parameters and tunables.

    M, N = dims("M N")
    Float = dtypes(f32, f16, bf16)

    def scale(x: Tensor[Float, M, N], y: InOut[f32, N], alpha: f32, *, BM: int = tune(64, 128)) -> Tensor[Float, M, N]: ...

Signatures are read from the source, their objects are only looked up by name. Subscripts such as `f32[M, N]` give the class itself, so that type
checkers and `typing.get_type_hints` accept them; the operators exist so that expressions in a kernel are well typed.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "InOut", "Symmetric", "Tensor", "bf16", "bool_", "dims", "dtype", "dtypes", "f16", "f32", "f64", "f8e4m3", "f8e5m2", "i16", "i32", "i64", "i8", "tune", "u16", "u32",
    "u64", "u8",
]  # fmt: skip


class Value:
    """What a parameter is inside a kernel, for type checkers: everything can be computed with it. Objects of it do not exist."""

    shape: Any
    T: Any
    start: Any
    stop: Any
    by: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"'{type(self).__name__}(...)' works only inside a function under @tile")

    def __class_getitem__(cls, dims: Any) -> Any:
        return cls

    # Bodies that return NotImplemented are never reached: no object exists.
    def _binary(self, other: Any) -> Any:
        return NotImplemented

    def _unary(self) -> Any:
        return NotImplemented

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _binary
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _binary
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _binary
    __lt__ = __le__ = __gt__ = __ge__ = _binary
    __neg__ = __pos__ = __invert__ = __abs__ = _unary

    def __eq__(self, other: Any) -> Any:
        return NotImplemented

    def __ne__(self, other: Any) -> Any:
        return NotImplemented

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        return True

    def __index__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0

    def __len__(self) -> int:
        return 0

    def __getitem__(self, items: Any) -> Any:
        return NotImplemented

    def __setitem__(self, items: Any, value: Any) -> None:
        return None


class Dtype(Value):
    """Base of the dtypes."""

    ir_name: ClassVar[str] = ""


dtype = type[Dtype]  # annotation of a compile-time parameter that is a dtype: `Out: dtype = f32`

MYPY = False
if MYPY:
    # mypy takes only variables of type Any with subscripts that are values; pyright only classes. mypy alone believes MYPY to be true.
    f64: Any
    f32: Any
    f16: Any
    bf16: Any
    f8e4m3: Any
    f8e5m2: Any
    i64: Any
    i32: Any
    i16: Any
    i8: Any
    u64: Any
    u32: Any
    u16: Any
    u8: Any
    bool_: Any
    Tensor: Any
    InOut: Any
    Symmetric: Any
else:
    # fmt: off
    class f64(Dtype): "64-bit float"; ir_name = "f64"
    class f32(Dtype): "32-bit float"; ir_name = "f32"
    class f16(Dtype): "16-bit float, 10 bits of fraction"; ir_name = "f16"
    class bf16(Dtype): "16-bit float with the range of f32, 7 bits of fraction"; ir_name = "bf16"
    class f8e4m3(Dtype): "8-bit float, finite, for storage"; ir_name = "f8e4m3"
    class f8e5m2(Dtype): "8-bit float, for storage"; ir_name = "f8e5m2"
    class i64(Dtype): "64-bit signed integer"; ir_name = "i64"
    class i32(Dtype): "32-bit signed integer"; ir_name = "i32"
    class i16(Dtype): "16-bit signed integer"; ir_name = "i16"
    class i8(Dtype): "8-bit signed integer"; ir_name = "i8"
    class u64(Dtype): "64-bit unsigned integer"; ir_name = "u64"
    class u32(Dtype): "32-bit unsigned integer"; ir_name = "u32"
    class u16(Dtype): "16-bit unsigned integer"; ir_name = "u16"
    class u8(Dtype): "8-bit unsigned integer"; ir_name = "u8"
    class bool_(Dtype): "truth value, one byte in memory"; ir_name = "bool"
    # fmt: on

    class Tensor(Value):
        """`Tensor[dtype, dims...]`: a tensor whose dtype may be a dtype parameter. As a parameter it is read only."""

    class InOut(Value):
        """`InOut[dtype, dims...]`: a tensor that the kernel updates in place."""

    class Symmetric(Value):
        """`Symmetric[dtype, dims...]`: memory that every rank has, updated in place; other ranks may put into it and signal in it."""


DTYPES: dict[str, Any] = {
    "f64": f64, "f32": f32, "f16": f16, "bf16": bf16, "f8e4m3": f8e4m3, "f8e5m2": f8e5m2, "i64": i64, "i32": i32, "i16": i16, "i8": i8,
    "u64": u64, "u32": u32, "u16": u16, "u8": u8, "bool_": bool_,
}  # fmt: skip


class Dim:
    """A symbolic dim. Arithmetic gives a dim with the text of the expression."""

    __slots__ = ("symbol",)

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol

    def __repr__(self) -> str:
        return self.symbol

    def _join(self, op: str, other: Any) -> Any:
        return Dim(f"({self.symbol} {op} {other})")

    def __add__(self, other: Any) -> Any:
        return self._join("+", other)

    def __sub__(self, other: Any) -> Any:
        return self._join("-", other)

    def __mul__(self, other: Any) -> Any:
        return self._join("*", other)

    def __floordiv__(self, other: Any) -> Any:
        return self._join("//", other)

    def __mod__(self, other: Any) -> Any:
        return self._join("%", other)

    def __radd__(self, other: Any) -> Any:
        return Dim(f"({other} + {self.symbol})")

    def __rsub__(self, other: Any) -> Any:
        return Dim(f"({other} - {self.symbol})")

    def __rmul__(self, other: Any) -> Any:
        return Dim(f"({other} * {self.symbol})")


class DtypeParam(type):
    """A dtype parameter: one of several dtypes, fixed by the arguments of a call. A class, so that it can stand in annotations."""

    name: str
    options: tuple[type[Dtype], ...]


class Tunable:
    """A compile-time value with the values worth trying; the first is the default."""

    __slots__ = ("domain",)

    def __init__(self, domain: tuple[Any, ...]) -> None:
        self.domain = domain

    def __repr__(self) -> str:
        return f"tune({', '.join(map(repr, self.domain))})"


def dims(names: str) -> Any:
    """Symbolic dims by name: `M, N = dims("M N")`; a single name gives one dim. ValueError for what is not a name."""
    symbols = names.replace(",", " ").split()
    bad = next((s for s in symbols if not s.isidentifier()), None)
    if bad is not None or not symbols:
        raise ValueError(f"dims takes a string of names such as 'M N', got {names!r}")
    made = tuple(Dim(s) for s in symbols)
    return made if len(made) > 1 else next(iter(made))


def dtypes(*options: Any) -> Any:
    """A dtype parameter with its domain: `Float = dtypes(f32, f16)`. TypeError for what is not a dtype."""
    bad = next((o for o in options if scalar_name(o) is None), None)
    if bad is not None or not options:
        raise TypeError(f"dtypes takes dtypes such as f32, got {bad!r}" if options else "dtypes takes at least one dtype")
    made = DtypeParam("DtypeParam", (Value,), {})
    made.name, made.options = "", tuple(options)
    return made


def tune(*domain: Any) -> Any:
    """A tunable with its domain, as the default of a parameter: `BM: int = tune(64, 128)`. The first value is the default."""
    if not domain:
        raise TypeError("tune takes at least one value")
    return Tunable(domain)


def scalar_name(x: object) -> str | None:
    """The IR's name of a dtype class, None for anything else."""
    return x.ir_name if isinstance(x, type) and issubclass(x, Dtype) and x.ir_name else None

