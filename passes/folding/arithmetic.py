"""Rewrites of arith ops. Integers are a ring modulo 2**bits; on floats only what is exact for NaN, infinities and the sign of zero."""

from __future__ import annotations

import math

from tilelang.dialects import arith, tile, vec
from tilelang.ir.core import Operation, Value
from tilelang.ir.rewrite import Patterns, Rewriter
from tilelang.ir.types import Scalar, bool_, element_of, index
from tilelang.passes.folding.constants import can_be_constant, evaluate, is_integral, is_number, number_range, splat_value

patterns = Patterns("arithmetic")

_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_MANTISSA = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3}
_SMALLEST_NORMAL = {"f64": -1022, "f32": -126, "f16": -14, "bf16": -126, "f8e4m3": -6, "f8e5m2": -14}  # exponent


@patterns.on(*arith.ELEMENTWISE)
def constants(op: Operation, rw: Rewriter) -> bool:
    """All operands are constants: compute."""
    number = evaluate(op)
    if number is None:
        return False
    rw.replace_op(op, arith.Constant.of(number, op.results[0].type))
    return True


@patterns.on(*arith.UNARY, *arith.BINARY, arith.Fma, arith.Cast)
def on_fills(op: Operation, rw: Rewriter) -> bool:
    """The same number in every element of every operand: one scalar op, then a fill."""
    first = op.operands[0].op
    if not isinstance(first, (tile.Fill, vec.Splat)):
        return False
    fills = [v.op for v in op.operands]
    if any(type(f) is not type(first) for f in fills):
        return False
    scalars = [f.operands[0] for f in fills if f is not None]
    inner = rw(type(op)(scalars, [element_of(op.results[0].type)], op.attrs))
    if isinstance(first, tile.Fill):
        rw.replace_op(op, type(first).of(inner, list(first.sizes), op.results[0].type))
    else:
        rw.replace_op(op, vec.Splat([inner], [op.results[0].type]))
    return True


@patterns.on(*(c for c in arith.ELEMENTWISE if c.commutative))
def constant_to_the_right(op: Operation, rw: Rewriter) -> bool:
    a, b = op.operands
    if splat_value(a) is None or splat_value(b) is not None:
        return False
    rw.set_operand(op, 0, b)
    rw.set_operand(op, 1, a)
    rw.changed(op)
    return True


# -- one operand is a special number, or both are the same


def _same_or_none(op: Operation) -> Value | None:
    """The operand that the op gives back unchanged."""
    a, b = op.operands
    element = element_of(a.type)
    name = op.name[6:]
    if element.is_float:
        if (name in ("mul", "div") and is_number(b, 1.0)) or (name == "sub" and is_number(b, 0.0)) or (name == "add" and is_number(b, -0.0)):
            return a
        return a if a is b and name in ("min", "max") else None
    if element is bool_:
        known = splat_value(b)
        if a is b and name in ("and", "or", "min", "max", "add", "mul"):
            return a
        if known is None:
            return None
        if name in ("and", "mul", "min"):
            return a if known else b
        if name in ("or", "add", "max"):
            return b if known else a
        return a if name == "xor" and not known else None
    if a is b and name in ("and", "or", "min", "max"):
        return a
    low, high = number_range(element)
    neutral = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1, "or": 0, "xor": 0, "shl": 0, "shr": 0, "min": high, "max": low}.get(name)
    if name == "and":
        neutral = -1 if low < 0 else high
    if neutral is not None and is_number(b, neutral):
        return a
    absorbing = {"mul": 0, "and": 0, "or": -1 if low < 0 else high, "min": low, "max": high}.get(name)
    if absorbing is not None and is_number(b, absorbing):
        return b
    # 0 // x and 0 % x are 0 for every x, 0 included.
    return a if name in ("floordiv", "mod", "shl", "shr") and is_number(a, 0) else None


@patterns.on(*arith.BINARY)
def neutral_elements(op: Operation, rw: Rewriter) -> bool:
    left, right = op.operands
    if left is not right and splat_value(right) is None and splat_value(left) is None:
        return False
    same = _same_or_none(op)
    if same is not None:
        rw.replace(op, same)
        return True
    a, b = op.operands
    nothing = (a is b and op.name in ("arith.sub", "arith.xor", "arith.mod")) or (op.name == "arith.mod" and is_number(b, 1))
    if not nothing or not is_integral(a.type) or not can_be_constant(a.type):
        return False
    rw.replace_op(op, arith.Constant.of(0, a.type))
    return True


@patterns.on(arith.Neg, arith.Not)
def twice(op: Operation, rw: Rewriter) -> bool:
    inner = op.operands[0].op
    if inner is None or type(inner) is not type(op):
        return False
    rw.replace(op, inner.operands[0])
    return True


@patterns.on(arith.Abs, arith.Floor, arith.Ceil, arith.Round)
def already_done(op: Operation, rw: Rewriter) -> bool:
    inner = op.operands[0].op
    roundings = (arith.Floor, arith.Ceil, arith.Round)
    if not (isinstance(inner, roundings) if isinstance(op, roundings) else type(inner) is type(op)):
        return False
    rw.replace(op, op.operands[0])
    return True


@patterns.on(arith.Div)
def divide_by_power_of_two(op: arith.Div, rw: Rewriter) -> bool:
    """x / 2**k = x * 2**-k: both round the same number, as long as 2**-k is a normal number."""
    divisor = splat_value(op.b)
    element = element_of(op.b.type)
    if divisor is None or not math.isfinite(divisor) or divisor == 0 or not can_be_constant(op.b.type):
        return False
    mantissa, exponent = math.frexp(divisor)
    least = _SMALLEST_NORMAL[element.name]
    if abs(mantissa) != 0.5 or not least <= 1 - exponent <= -least or not least <= exponent - 1 <= -least:
        return False
    rw.replace_op(op, arith.Mul([op.a, rw(arith.Constant.of(1.0 / divisor, op.b.type))], [op.out.type]))
    return True


# -- chains of integer ops


@patterns.on(arith.Sub)
def subtract_constant(op: arith.Sub, rw: Rewriter) -> bool:
    """x - c = x + (-c), so that sums have one form."""
    number = splat_value(op.b)
    if not is_integral(op.a.type) or number is None or not can_be_constant(op.a.type):
        return False
    rw.replace_op(op, arith.Add.of(op.a, rw(_wrapped(-number, op.a))))
    return True


@patterns.on(arith.Add, arith.Mul, arith.And, arith.Or, arith.Xor, arith.Min, arith.Max)
def join_constants(op: Operation, rw: Rewriter) -> bool:
    """(x + c) + d = x + (c + d), for all associative ops. On floats only min and max are."""
    a, b = op.operands
    inner = a.op
    if inner is None or type(inner) is not type(op) or not can_be_constant(a.type) or splat_value(b) is None or splat_value(inner.operands[1]) is None:
        return False
    if element_of(a.type).is_float and op.name not in ("arith.min", "arith.max"):
        return False
    joined = rw(type(op)([inner.operands[1], b], [a.type]))
    rw.replace_op(op, type(op)([inner.operands[0], joined], [a.type]))
    return True


@patterns.on(arith.Add)
def constants_outward(op: arith.Add, rw: Rewriter) -> bool:
    """a + (x + c) = (a + x) + c: neighbouring addresses share a + x and differ by a displacement."""
    if not isinstance(op.a.op, arith.Add) and not isinstance(op.b.op, arith.Add):
        return False
    if not is_integral(op.out.type) or splat_value(op.a) is not None or splat_value(op.b) is not None:
        return False
    for plain, sum_ in ((op.a, op.b), (op.b, op.a)):
        inner = sum_.op
        if isinstance(inner, arith.Add) and splat_value(inner.b) is not None and splat_value(inner.a) is None:
            rw.replace_op(op, arith.Add([rw(arith.Add([plain, inner.a], [op.out.type])), inner.b], [op.out.type]))
            return True
    return False


@patterns.on(arith.Add)
def add_what_was_subtracted(op: arith.Add, rw: Rewriter) -> bool:
    """(x - y) + y = x."""
    for difference, other in ((op.a, op.b), (op.b, op.a)):
        inner = difference.op
        if isinstance(inner, arith.Sub) and inner.b is other and is_integral(op.a.type):
            rw.replace(op, inner.a)
            return True
    return False


@patterns.on(arith.Sub)
def subtract_what_was_added(op: arith.Sub, rw: Rewriter) -> bool:
    """(x + y) - y = x, (x + c) - (x + d) = c - d, x - (x - y) = y."""
    a, b = op.a, op.b
    if not is_integral(a.type):
        return False
    left, right = a.op, b.op
    if isinstance(left, arith.Add) and b in (left.a, left.b):
        rw.replace(op, left.b if b is left.a else left.a)
        return True
    if isinstance(right, arith.Sub) and right.a is a:
        rw.replace(op, right.b)
        return True
    if isinstance(left, arith.Add) and isinstance(right, arith.Add) and left.a is right.a:
        rw.replace_op(op, arith.Sub.of(left.b, right.b))
        return True
    return False


@patterns.on(arith.Mod)
def mod_of_mod(op: arith.Mod, rw: Rewriter) -> bool:
    inner = op.a.op
    if not isinstance(inner, arith.Mod) or not is_integral(op.a.type):
        return False
    divisor = splat_value(op.b)
    if inner.b is not op.b and (divisor is None or splat_value(inner.b) != divisor):
        return False
    rw.replace(op, op.a)
    return True


def _wrapped(number: int, like: Value) -> arith.Constant:
    """A constant of the type of a value, wrapped into its range."""
    element = element_of(like.type)
    number &= (1 << element.bits) - 1
    if number > number_range(element)[1]:
        number -= 1 << element.bits
    return arith.Constant.of(number, like.type)


# -- comparison and choice


@patterns.on(arith.Cmp)
def compare(op: arith.Cmp, rw: Rewriter) -> bool:
    a, b = op.a, op.b
    if splat_value(a) is not None and splat_value(b) is None:
        rw.replace_op(op, arith.Cmp.of(_SWAPPED[op.predicate], b, a))
        return True
    if not can_be_constant(op.out.type):
        return False
    element = element_of(a.type)
    answer: bool | None = None
    if a is b:
        # NaN is not equal to itself, and neither less nor greater.
        if not element.is_float:
            answer = op.predicate in ("eq", "le", "ge")
        elif op.predicate in ("lt", "gt"):
            answer = False
    elif element.is_integer and (number := splat_value(b)) is not None:
        low, high = number_range(element)
        if number == low and op.predicate in ("lt", "ge"):
            answer = op.predicate == "ge"
        elif number == high and op.predicate in ("gt", "le"):
            answer = op.predicate == "le"
    elif element is index:
        answer = _compare_with_offset(op)
    if answer is None:
        return False
    rw.replace_op(op, arith.Constant.of(answer, op.out.type))
    return True


def _compare_with_offset(op: arith.Cmp) -> bool | None:
    """x + c against x: equality is decided by c, wrapping or not."""
    for left, right in ((op.a, op.b), (op.b, op.a)):
        inner = left.op
        if isinstance(inner, arith.Add) and inner.a is right and (c := splat_value(inner.b)) is not None and op.predicate in ("eq", "ne"):
            return (c == 0) == (op.predicate == "eq")
    return None


@patterns.on(arith.Select)
def choose(op: arith.Select, rw: Rewriter) -> bool:
    known = splat_value(op.condition)
    if op.a is op.b or known is not None:
        rw.replace(op, op.a if op.a is op.b or known else op.b)
        return True
    if op.out.type is bool_:
        a, b = splat_value(op.a), splat_value(op.b)
        if a is True and b is False:
            rw.replace(op, op.condition)
            return True
        if a is False and b is True:
            rw.replace_op(op, arith.Not.of(op.condition))
            return True
    inner = op.condition.op
    if isinstance(inner, arith.Not):
        rw.replace_op(op, arith.Select.of(inner.x, op.b, op.a))
        return True
    return False


@patterns.on(arith.Not)
def negate_comparison(op: arith.Not, rw: Rewriter) -> bool:
    """not (a < b) = a >= b, except on floats, where NaN makes both false; == and != are opposites on all."""
    inner = op.x.op
    if not isinstance(inner, arith.Cmp) or len(op.x.uses) > 1:
        return False
    opposite = {"eq": "ne", "ne": "eq"} if element_of(inner.a.type).is_float else {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
    if inner.predicate not in opposite:
        return False
    rw.replace_op(op, arith.Cmp.of(opposite[inner.predicate], inner.a, inner.b))
    return True


# -- casts


def is_exact(source: Scalar, target: Scalar) -> bool:
    """Whether every number of the source type is one of the target type."""
    if source is target or source.kind == "bool":
        return True
    if target.kind == "bool":
        return False
    if source.is_float:
        if not target.is_float:
            return False
        range_fits = _SMALLEST_NORMAL[target.name] <= _SMALLEST_NORMAL[source.name] and target.bits > source.bits
        return range_fits and _MANTISSA[target.name] >= _MANTISSA[source.name]
    low, high = number_range(source)
    if target.is_float:
        # f8e4m3 ends at 448 and f16 at 65504: a number of as many bits as the mantissa holds is always below.
        return max(high, -low - 1).bit_length() <= _MANTISSA[target.name] and abs(low) <= 1 << (_MANTISSA[target.name])
    return number_range(target)[0] <= low and high <= number_range(target)[1]


@patterns.on(arith.Cast)
def cast_chain(op: arith.Cast, rw: Rewriter) -> bool:
    """A cast to the same type is nothing; a cast after one that changes no number works on the first operand."""
    if op.x.type is op.out.type:
        rw.replace(op, op.x)
        return True
    inner = op.x.op
    if not isinstance(inner, arith.Cast):
        return False
    first, middle, last = (element_of(t) for t in (inner.x.type, inner.out.type, op.out.type))
    if not is_exact(first, middle):
        return False
    if first is not last and middle.is_float and not first.is_float and not last.is_float and not is_exact(first, last):
        return False  # from a float it saturates, from an integer it wraps
    rw.replace_op(op, arith.Cast.of(inner.x, last))
    return True


@patterns.on(arith.Bitcast)
def bitcast_chain(op: arith.Bitcast, rw: Rewriter) -> bool:
    if op.x.type is op.out.type:
        rw.replace(op, op.x)
        return True
    inner = op.x.op
    if not isinstance(inner, arith.Bitcast):
        return False
    rw.replace_op(op, arith.Bitcast.of(inner.x, element_of(op.out.type)))
    return True


# -- what only the last pass may do, since others understand // and % better

late = Patterns("late arithmetic")


@late.on(arith.FloorDiv, arith.Mod)
def by_power_of_two(op: Operation, rw: Rewriter) -> bool:
    """x // 2**k = x >> k and x % 2**k = x & (2**k - 1), for negative x too: both round down."""
    x, divisor = op.operands
    number = splat_value(divisor)
    if not is_integral(x.type) or not can_be_constant(x.type) or number is None or number <= 0 or number & (number - 1):
        return False
    if isinstance(op, arith.FloorDiv):
        rw.replace_op(op, arith.Shr.of(x, rw(arith.Constant.of(number.bit_length() - 1, x.type))))
    else:
        rw.replace_op(op, arith.And.of(x, rw(arith.Constant.of(number - 1, x.type))))
    return True
