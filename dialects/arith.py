"""arith: arithmetic on numbers, elementwise on tiles, tensors and vectors. The element type decides between integer and float meaning.

Meaning (as NumPy, with the undefined cases defined): integers wrap; integer division by zero gives 0; shifts beyond the width give 0
(-1 for a negative value shifted right); float -> int casts saturate and turn NaN into 0; min and max propagate NaN; f16 and bf16 round after every op.
"""

from __future__ import annotations

from typing import Any

from tilelang.ir.core import Dialect, Operation, Value, VerifyError, attr, operand, result
from tilelang.ir.types import Scalar, Type, bool_, element_of, index, with_element

PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")


class Constant(Operation, name="arith.constant", pure=True):
    """A number, or one number in every element. value: int, float or bool, in the range of the type."""

    __slots__ = ()
    value = attr(object)
    out = result()

    @classmethod
    def of(cls, value: int | float | bool, type: Type) -> Constant:
        kind = element_of(type)
        value = float(value) if kind.is_float else bool(value) if kind is bool_ else int(value)
        return cls((), (type,), {"value": value})

    def verify_(self) -> None:
        kind = element_of(self.out.type)
        want = float if kind.is_float else bool if kind is bool_ else int
        if type(self.value) is not want:
            raise VerifyError(self, f"value {self.value!r} is not a {want.__name__}, as {self.out.type} needs")

    def evaluate(self, frame: Any, *args: Any) -> Any:
        return frame.scalar(self.value, element_of(self.out.type))


class Unary(Operation, pure=True):
    """One operand, a result of the same type."""

    __slots__ = ()
    x = operand()
    out = result()
    floats_only = False

    @classmethod
    def of(cls, x: Value) -> Operation:
        return cls((x,), (x.type,))

    def verify_(self) -> None:
        if self.out.type is not self.x.type:
            raise VerifyError(self, f"result {self.out.type} differs from the operand's {self.x.type}")
        if self.floats_only and not element_of(self.x.type).is_float:
            raise VerifyError(self, f"works on floats, not on {self.x.type}")


class Binary(Operation, pure=True):
    """Two operands and a result of one type."""

    __slots__ = ()
    a = operand()
    b = operand()
    out = result()
    kinds = ("float", "int", "uint", "index", "bool")

    @classmethod
    def of(cls, a: Value, b: Value) -> Operation:
        return cls((a, b), (a.type,))

    def verify_(self) -> None:
        if not (self.a.type is self.b.type is self.out.type):
            raise VerifyError(self, f"operands and result must have one type, not {self.a.type}, {self.b.type} and {self.out.type}")
        if element_of(self.a.type).kind not in self.kinds:
            raise VerifyError(self, f"does not work on {self.a.type}")


class Float1(Unary):
    __slots__ = ()
    floats_only = True


# fmt: off
class Neg(Unary, name="arith.neg"): "-x"; __slots__ = ()
class Abs(Unary, name="arith.abs"): "|x|; the most negative integer stays itself"; __slots__ = ()
class Not(Unary, name="arith.not"): "bitwise complement; logical not on bool"; __slots__ = ()
class Exp(Float1, name="arith.exp"): "e**x"; __slots__ = ()
class Exp2(Float1, name="arith.exp2"): "2**x"; __slots__ = ()
class Log(Float1, name="arith.log"): "natural logarithm"; __slots__ = ()
class Log2(Float1, name="arith.log2"): "logarithm to base 2"; __slots__ = ()
class Sqrt(Float1, name="arith.sqrt"): "square root"; __slots__ = ()
class Rsqrt(Float1, name="arith.rsqrt"): "1 / sqrt(x)"; __slots__ = ()
class Tanh(Float1, name="arith.tanh"): "hyperbolic tangent"; __slots__ = ()
class Erf(Float1, name="arith.erf"): "error function"; __slots__ = ()
class Sin(Float1, name="arith.sin"): "sine"; __slots__ = ()
class Cos(Float1, name="arith.cos"): "cosine"; __slots__ = ()
class Floor(Float1, name="arith.floor"): "largest integer <= x"; __slots__ = ()
class Ceil(Float1, name="arith.ceil"): "smallest integer >= x"; __slots__ = ()
class Round(Float1, name="arith.round"): "nearest integer, ties to even"; __slots__ = ()

class Add(Binary, name="arith.add", commutative=True): "a + b; on bool: or"; __slots__ = ()
class Sub(Binary, name="arith.sub"): "a - b"; __slots__ = ()
class Mul(Binary, name="arith.mul", commutative=True): "a * b; on bool: and"; __slots__ = ()
class Div(Binary, name="arith.div"): "a / b on floats"; __slots__ = (); kinds = ("float",)
class FloorDiv(Binary, name="arith.floordiv"): "floor(a / b); integer x // 0 = 0"; __slots__ = ()
class Mod(Binary, name="arith.mod"): "a - b * floor(a / b), sign of b; integer x % 0 = 0"; __slots__ = ()
class Pow(Binary, name="arith.pow"): "a ** b on floats"; __slots__ = (); kinds = ("float",)
class Min(Binary, name="arith.min", commutative=True): "smaller; NaN if either is NaN"; __slots__ = ()
class Max(Binary, name="arith.max", commutative=True): "larger; NaN if either is NaN"; __slots__ = ()
class And(Binary, name="arith.and", commutative=True): "bitwise and"; __slots__ = (); kinds = ("int", "uint", "index", "bool")
class Or(Binary, name="arith.or", commutative=True): "bitwise or"; __slots__ = (); kinds = ("int", "uint", "index", "bool")
class Xor(Binary, name="arith.xor", commutative=True): "bitwise exclusive or"; __slots__ = (); kinds = ("int", "uint", "index", "bool")
class Shl(Binary, name="arith.shl"): "a << b"; __slots__ = (); kinds = ("int", "uint", "index")
class Shr(Binary, name="arith.shr"): "a >> b, arithmetic on signed types"; __slots__ = (); kinds = ("int", "uint", "index")
# fmt: on


class Cmp(Operation, name="arith.cmp", pure=True):
    """Comparison, a bool an element. Ordered, except `ne`, which holds when either is NaN (as in NumPy)."""

    __slots__ = ()
    a = operand()
    b = operand()
    predicate = attr(str)
    out = result()

    @classmethod
    def of(cls, predicate: str, a: Value, b: Value) -> Cmp:
        return cls((a, b), (with_element(a.type, bool_),), {"predicate": predicate})

    def verify_(self) -> None:
        if self.predicate not in PREDICATES:
            raise VerifyError(self, f"predicate '{self.predicate}' is none of {', '.join(PREDICATES)}")
        if self.a.type is not self.b.type or self.out.type is not with_element(self.a.type, bool_):
            raise VerifyError(self, f"compares {self.a.type} with {self.b.type} giving {self.out.type}")


class Select(Operation, name="arith.select", pure=True):
    """a where the condition holds, else b. The condition is one bool, or a bool an element."""

    __slots__ = ()
    condition = operand()
    a = operand()
    b = operand()
    out = result()

    @classmethod
    def of(cls, condition: Value, a: Value, b: Value) -> Select:
        return cls((condition, a, b), (a.type,))

    def verify_(self) -> None:
        if not (self.a.type is self.b.type is self.out.type):
            raise VerifyError(self, f"chooses between {self.a.type} and {self.b.type} giving {self.out.type}")
        if self.condition.type is not bool_ and self.condition.type is not with_element(self.a.type, bool_):
            raise VerifyError(self, f"condition {self.condition.type} does not fit {self.a.type}")


class Fma(Operation, name="arith.fma", pure=True):
    """a * b + c on floats, rounded once."""

    __slots__ = ()
    a = operand()
    b = operand()
    c = operand()
    out = result()

    @classmethod
    def of(cls, a: Value, b: Value, c: Value) -> Fma:
        return cls((a, b, c), (a.type,))

    def verify_(self) -> None:
        if not (self.a.type is self.b.type is self.c.type is self.out.type) or not element_of(self.out.type).is_float:
            raise VerifyError(self, f"needs one float type, not {self.a.type}, {self.b.type}, {self.c.type} and {self.out.type}")


class Cast(Operation, name="arith.cast", pure=True):
    """Number conversion to another element type: rounds to nearest even; float -> int truncates, saturates, NaN -> 0; int -> narrower int wraps;
    to bool: x != 0."""

    __slots__ = ()
    x = operand()
    out = result()

    @classmethod
    def of(cls, x: Value, element: Scalar) -> Cast:
        return cls((x,), (with_element(x.type, element),))

    def verify_(self) -> None:
        if self.out.type is not with_element(self.x.type, element_of(self.out.type)):
            raise VerifyError(self, f"changes the shape: {self.x.type} to {self.out.type}")


class Bitcast(Operation, name="arith.bitcast", pure=True):
    """The same bits read as another type of the same width."""

    __slots__ = ()
    x = operand()
    out = result()

    @classmethod
    def of(cls, x: Value, element: Scalar) -> Bitcast:
        return cls((x,), (with_element(x.type, element),))

    def verify_(self) -> None:
        a, b = element_of(self.x.type), element_of(self.out.type)
        if a.bits != b.bits or self.out.type is not with_element(self.x.type, b):
            raise VerifyError(self, f"reads {self.x.type} as {self.out.type}")


def constant_value(value: Value) -> Any | None:
    """The number when the value is an arith.constant, else None."""
    op = value.op
    return op.value if isinstance(op, Constant) else None


def index_constant(value: int) -> Constant:
    return Constant.of(value, index)


UNARY = (Neg, Abs, Not, Exp, Exp2, Log, Log2, Sqrt, Rsqrt, Tanh, Erf, Sin, Cos, Floor, Ceil, Round)
BINARY = (Add, Sub, Mul, Div, FloorDiv, Mod, Pow, Min, Max, And, Or, Xor, Shl, Shr)
OTHER = (Cmp, Select, Fma, Cast, Bitcast)
ELEMENTWISE = (*UNARY, *BINARY, *OTHER)

DIALECT = Dialect("arith", [Constant, *ELEMENTWISE], "arithmetic, elementwise")


def _evaluate(self: Operation, frame: Any, *args: Any) -> Any:
    from tilelang.runtime import numerics

    return numerics.elementwise(self, frame, args)


for _cls in ELEMENTWISE:
    _cls.evaluate = _evaluate  # one NumPy table for all of them: runtime/numerics.py

