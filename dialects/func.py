"""func: functions, calls and returns."""

from __future__ import annotations

from typing import Any

from tilelang.ir.core import Block, Dialect, Module, Operation, Region, VerifyError, attr, operands, region
from tilelang.ir.types import BufferType, Scalar, TensorType, Type

# Roles of parameters below the tensor level: in (read), inout (updated in place), out (written only: a result of the source function),
# scalar. At the tensor level results are returned, so there is no `out`.
ROLES = ("in", "inout", "out", "scalar")


class Func(Operation, name="func.func"):
    """A function. Block arguments of the body are the parameters, hints their names.

    roles: one of ROLES a parameter. results: types returned (tensor level; empty below).
    tunables: ((name, value), ...) the compile-time values chosen. facts: texts such as 'M % 16 == 0' known to hold."""

    __slots__ = ()
    sym_name = attr(str)
    roles = attr(tuple, ())
    results_ = attr(tuple, ())
    tunables = attr(tuple, ())
    facts = attr(tuple, ())
    body = region()

    @classmethod
    def of(cls, name: str, params: list[tuple[str, Type, str]], results: tuple[Type, ...] = (), span: Any = None) -> Func:
        """params: (name, type, role)."""
        block = Block([t for _, t, _ in params], [n for n, _, _ in params])
        attrs: dict[str, Any] = {"sym_name": name, "roles": tuple(r for _, _, r in params)}
        if results:
            attrs["results_"] = tuple(results)
        return cls(attrs=attrs, regions=[Region([block])], span=span)

    @property
    def args(self) -> list[Any]:
        return self.body.block.args

    def verify_(self) -> None:
        if len(self.roles) != len(self.args):
            raise VerifyError(self, f"{len(self.args)} parameters but {len(self.roles)} roles")
        for arg, role in zip(self.args, self.roles):
            if role not in ROLES:
                raise VerifyError(self, f"role '{role}' of '{arg.hint}' is none of {', '.join(ROLES)}")
            if (role == "scalar") != isinstance(arg.type, Scalar) and isinstance(arg.type, (TensorType, BufferType, Scalar)):
                raise VerifyError(self, f"parameter '{arg.hint}' of type {arg.type} has role '{role}'")


class Return(Operation, name="func.return", terminator=True):
    """Ends a function; the operands are its results."""

    __slots__ = ()
    values = operands()

    @classmethod
    def of(cls, *values: Any) -> Return:
        return cls([values])

    def verify_(self) -> None:
        func = self.parent_op
        if not isinstance(func, Func):
            raise VerifyError(self, "stands outside a func.func")
        types = tuple(v.type for v in self.values)
        if types != tuple(func.results_):
            raise VerifyError(self, f"returns ({', '.join(map(str, types))}), '{func.sym_name}' declares ({', '.join(map(str, func.results_))})")

    def evaluate(self, frame: Any, *args: Any) -> Any:
        return args


class Call(Operation, name="func.call", variadic_results=True):
    """Calls a function of the module by name."""

    __slots__ = ()
    callee = attr(str)
    arguments = operands()

    @classmethod
    def of(cls, callee: str, arguments: list[Any], types: list[Type]) -> Call:
        return cls([arguments], types, {"callee": callee})

    def evaluate(self, frame: Any, *args: Any) -> Any:
        return frame.call(self.callee, args)


def functions(module: Module) -> list[Func]:
    return [op for op in module.body.block if isinstance(op, Func)]


DIALECT = Dialect("func", [Func, Return, Call], "functions")
