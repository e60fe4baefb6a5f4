"""The descriptors by which op classes declare their operands, results, regions and attributes, and what a class declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from tilelang.ir.core import Operation, Region, Value

T = TypeVar("T")


class VerifyError(Exception):
    """An op breaks a rule of its dialect or of the IR. Carries the op."""

    def __init__(self, op: Operation, message: str) -> None:
        super().__init__(f"'{op.name}': {message}")
        self.op = op
        self.message = message


class operand:
    """One named operand."""

    variadic: ClassVar[bool] = False
    optional: ClassVar[bool] = False

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.position = -1

    @overload
    def __get__(self, op: None, cls: type) -> Self: ...
    @overload
    def __get__(self, op: Operation, cls: type) -> Value: ...
    def __get__(self, op: Operation | None, cls: type) -> Self | Value:
        if op is None:
            return self
        return op.operands[self.position if op.segments is None else sum(op.segments[: self.position])]


class operands:
    """A variadic group of operands."""

    variadic: ClassVar[bool] = True
    optional: ClassVar[bool] = False

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.position = -1

    @overload
    def __get__(self, op: None, cls: type) -> Self: ...
    @overload
    def __get__(self, op: Operation, cls: type) -> tuple[Value, ...]: ...
    def __get__(self, op: Operation | None, cls: type) -> Self | tuple[Value, ...]:
        if op is None:
            return self
        start, stop = op.operand_range(self.position)
        return tuple(op.operands[start:stop])


class optional_operand:
    """An operand that may be absent."""

    variadic: ClassVar[bool] = True
    optional: ClassVar[bool] = True

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.position = -1

    @overload
    def __get__(self, op: None, cls: type) -> Self: ...
    @overload
    def __get__(self, op: Operation, cls: type) -> Value | None: ...
    def __get__(self, op: Operation | None, cls: type) -> Self | Value | None:
        if op is None:
            return self
        start, stop = op.operand_range(self.position)
        return op.operands[start] if stop > start else None


class result:
    """One named result, by order of declaration."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.position = -1

    @overload
    def __get__(self, op: None, cls: type) -> Self: ...
    @overload
    def __get__(self, op: Operation, cls: type) -> Value: ...
    def __get__(self, op: Operation | None, cls: type) -> Self | Value:
        return self if op is None else op.results[self.position]


class region:
    """One named region, by order of declaration."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.position = -1

    @overload
    def __get__(self, op: None, cls: type) -> Self: ...
    @overload
    def __get__(self, op: Operation, cls: type) -> Region: ...
    def __get__(self, op: Operation | None, cls: type) -> Self | Region:
        return self if op is None else op.regions[self.position]


_REQUIRED: Any = object()


class attr(Generic[T]):
    """A named attribute of Python type `kind`. With a default it may be absent (and is then not printed)."""

    def __init__(self, kind: type[T], default: T = _REQUIRED) -> None:
        self.kind = kind
        self.default = default

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, op: None, cls: type) -> Self: ...
    @overload
    def __get__(self, op: Operation, cls: type) -> T: ...
    def __get__(self, op: Operation | None, cls: type) -> Self | T:
        if op is None:
            return self
        value = op.attrs.get(self.name, self.default)
        if value is _REQUIRED:
            raise VerifyError(op, f"attribute '{self.name}' is missing")
        return value

    def __set__(self, op: Operation, value: T) -> None:
        if value == self.default and not self.required:
            op.attrs.pop(self.name, None)
        else:
            op.attrs[self.name] = value


class OpInfo:
    """What an op class declared: filled in once by Operation.__init_subclass__."""

    __slots__ = ("operands", "results", "attrs", "regions", "variadics", "variadic_results")

    def __init__(self, cls: type[Operation]) -> None:
        parts: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            parts.update({k: v for k, v in vars(base).items() if isinstance(v, (operand, operands, optional_operand, result, region, attr))})
        self.operands = [p for p in parts.values() if isinstance(p, (operand, operands, optional_operand))]
        self.results = [p for p in parts.values() if isinstance(p, result)]
        self.regions = [p for p in parts.values() if isinstance(p, region)]
        self.attrs: dict[str, attr[Any]] = {p.name: p for p in parts.values() if isinstance(p, attr)}
        self.variadics = [p for p in self.operands if p.variadic]
        self.variadic_results: bool = cls.variadic_results
        for group in (self.operands, self.results, self.regions):
            for i, part in enumerate(group):
                part.position = i
