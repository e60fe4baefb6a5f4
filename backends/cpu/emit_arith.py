"""arith to LLVM IR, on scalars and vectors alike. What LLVM leaves undefined (division by zero, long shifts) gets the meaning of the dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilelang.backends.cpu.spelling import is_narrow, lane_type, lanes_of, scalar_type, signed, splat, type_text
from tilelang.dialects import arith
from tilelang.ir.core import Operation, Value, VerifyError
from tilelang.ir.types import Scalar, Type, element_of

if TYPE_CHECKING:
    from tilelang.backends.cpu.emit import FunctionEmitter

# Ops that LLVM has as an instruction or as an intrinsic which code generation turns into one (or, on old targets, a few).
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_BOOL = {"add": "or", "sub": "xor", "mul": "and", "and": "and", "or": "or", "xor": "xor", "min": "and", "max": "or", "floordiv": "and"}
_FLOAT1 = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven"}
_PREDICATES = {
    "float": {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"},
    "signed": {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"},
    "unsigned": {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"},
}


def number(type: Type, value: int) -> str:
    """An integer constant of a type, in every lane."""
    element = element_of(type)
    return splat(lanes_of(type), scalar_type(element), str(signed(value, element.bits)))


def _bits(type: Type) -> str:
    return lane_type("i1", lanes_of(type))


def binary(e: FunctionEmitter, name: str, type: Type, a: str, b: str, hint: str | None = None) -> str:
    """The value of arith.<name> on two operands of one type. Narrow floats have no arithmetic here, except by `narrow`."""
    element, text = element_of(type), type_text(type)
    if is_narrow(element):
        return narrow(e, name, element, lanes_of(type), a, b)
    if name in ("min", "max") and element.kind != "bool":
        return _extremum(e, name, type, a, b, hint)
    if element.is_float:
        if name in _FLOAT:
            return e.emit(f"{_FLOAT[name]} {text} {a}, {b}", hint)
        quotient = e.intrinsic("floor", text, e.emit(f"fdiv {text} {a}, {b}"), hint=hint)
        if name == "floordiv":
            return quotient
        assert name == "mod", name
        return e.emit(f"fsub {text} {a}, {e.emit(f'fmul {text} {b}, {quotient}')}", hint)
    if element.kind == "bool":
        return "zeroinitializer" if name == "mod" and lanes_of(type) else "false" if name == "mod" else e.emit(f"{_BOOL[name]} {text} {a}, {b}", hint)
    if name in _INT:
        return e.emit(f"{_INT[name]} {text} {a}, {b}", hint)
    if name in ("shl", "shr"):
        return _shift(e, name, type, a, b, hint)
    return _divide(e, name, type, a, b, hint)


def narrow(e: FunctionEmitter, name: str, element: Scalar, lanes: int, a: str, b: str) -> str:
    """A binary op on narrow floats, through f32. Only atomics need it: other arithmetic was expanded before."""
    from tilelang.backends.cpu.emit_cast import float_to_float
    from tilelang.dialects.vec import vector_or_scalar
    from tilelang.ir.types import f32

    wide = [float_to_float(e, x, element, f32, lanes) for x in (a, b)]
    return float_to_float(e, binary(e, name, vector_or_scalar(f32, lanes), *wide), f32, element, lanes)


def _extremum(e: FunctionEmitter, name: str, type: Type, a: str, b: str, hint: str | None) -> str:
    element, text = element_of(type), type_text(type)
    if not element.is_float:
        return e.intrinsic(("s" if element.is_signed else "u") + name, text, a, b, hint=hint)
    if not e.target.triple.startswith("x86_64"):
        return e.intrinsic({"min": "minimum", "max": "maximum"}[name], text, a, b, hint=hint)
    # x86's maxps is this compare and select: b where one is NaN. A NaN in a is put back after it; shorter than llvm.maximum,
    # which also orders the zeros.
    bit = _bits(type)
    better = e.emit(f"fcmp {'ogt' if name == 'max' else 'olt'} {text} {a}, {b}")
    picked = e.emit(f"select {bit} {better}, {text} {a}, {text} {b}")
    nan = e.emit(f"fcmp uno {text} {a}, {a}")
    return e.emit(f"select {bit} {nan}, {text} {a}, {text} {picked}", hint)


def _shift(e: FunctionEmitter, name: str, type: Type, a: str, b: str, hint: str | None) -> str:
    element, text = element_of(type), type_text(type)
    if name == "shr" and element.is_signed:
        # Shifting by width - 1 already leaves the sign only.
        return e.emit(f"ashr {text} {a}, {e.intrinsic('umin', text, b, number(type, element.bits - 1))}", hint)
    short = e.emit(f"icmp ult {text} {b}, {number(type, element.bits)}")
    amount = e.emit(f"and {text} {b}, {number(type, element.bits - 1)}")
    shifted = e.emit(f"{'shl' if name == 'shl' else 'lshr'} {text} {a}, {amount}")
    return e.emit(f"select {_bits(type)} {short}, {text} {shifted}, {text} {number(type, 0)}", hint)


def _divide(e: FunctionEmitter, name: str, type: Type, a: str, b: str, hint: str | None) -> str:
    """Floor division or its remainder by any divisor."""
    element, text, bit = element_of(type), type_text(type), _bits(type)
    zero, one = number(type, 0), number(type, 1)
    none = e.emit(f"icmp eq {text} {b}, {zero}")
    if not element.is_signed:
        safe = e.emit(f"select {bit} {none}, {text} {one}, {text} {b}")
        value = e.emit(f"{'udiv' if name == 'floordiv' else 'urem'} {text} {a}, {safe}")
        return e.emit(f"select {bit} {none}, {text} {zero}, {text} {value}", hint)
    # The lowest number over -1 does not fit; dividing by 1 and negating wraps instead.
    minus = e.emit(f"icmp eq {text} {b}, {number(type, -1)}")
    safe = e.emit(f"select {bit} {e.emit(f'or {bit} {none}, {minus}')}, {text} {one}, {text} {b}")
    rest = e.emit(f"srem {text} {a}, {safe}")
    down = _rounds_down(e, type, rest, safe)
    if name == "mod":
        value = e.emit(f"add {text} {rest}, {e.emit(f'select {bit} {down}, {text} {safe}, {text} {zero}')}")
        return value  # 0 for the divisors replaced by 1
    quotient = e.emit(f"add {text} {e.emit(f'sdiv {text} {a}, {safe}')}, {e.emit(f'sext {bit} {down} to {text}')}")
    negated = e.emit(f"select {bit} {minus}, {text} {e.emit(f'sub {text} {zero}, {a}')}, {text} {quotient}")
    return e.emit(f"select {bit} {none}, {text} {zero}, {text} {negated}", hint)


def _rounds_down(e: FunctionEmitter, type: Type, rest: str, divisor: str) -> str:
    """Where truncating division gave one more than the floor."""
    text, bit, zero = type_text(type), _bits(type), number(type, 0)
    uneven = e.emit(f"icmp ne {text} {rest}, {zero}")
    signs = e.emit(f"icmp slt {text} {e.emit(f'xor {text} {rest}, {divisor}')}, {zero}")
    return e.emit(f"and {bit} {uneven}, {signs}")


def _divide_by_constant(e: FunctionEmitter, op: Operation, name: str, divisor: int) -> str | None:
    """Shorter code for a positive constant divisor, which index arithmetic is full of."""
    a, out = op.operands[0], op.results[0]
    element, text = element_of(out.type), type_text(out.type)
    if divisor <= 0 or not element.is_integer:
        return None
    x, by = e.ref(a), number(out.type, divisor)
    if not element.is_signed:
        return e.emit(f"{'udiv' if name == 'floordiv' else 'urem'} {text} {x}, {by}", out.hint)
    if divisor & divisor - 1 == 0:
        if name == "mod":
            return e.emit(f"and {text} {x}, {number(out.type, divisor - 1)}", out.hint)
        return e.emit(f"ashr {text} {x}, {number(out.type, divisor.bit_length() - 1)}", out.hint)
    rest = e.emit(f"srem {text} {x}, {by}")
    down = e.emit(f"icmp slt {text} {rest}, {number(out.type, 0)}")
    if name == "mod":
        return e.emit(f"select {_bits(out.type)} {down}, {text} {e.emit(f'add {text} {rest}, {by}')}, {text} {rest}", out.hint)
    return e.emit(f"add {text} {e.emit(f'sdiv {text} {x}, {by}')}, {e.emit(f'sext {_bits(out.type)} {down} to {text}')}", out.hint)


def _constant_of(value: Value) -> int | None:
    found = arith.constant_value(value)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _binary(e: FunctionEmitter, op: Operation) -> None:
    name, (a, b), out = op.name[6:], op.operands, op.results[0]
    amount, element = _constant_of(b), element_of(out.type)
    text: str | None = None
    if amount is not None and name in ("floordiv", "mod"):
        text = _divide_by_constant(e, op, name, amount)
    elif amount is not None and name in ("shl", "shr") and 0 <= amount < element.bits:
        shift = "shl" if name == "shl" else "ashr" if element.is_signed else "lshr"
        text = e.emit(f"{shift} {e.typed(a)}, {e.ref(b)}", out.hint)
    _refuse_narrow(op)
    e.names[out] = text or binary(e, name, out.type, e.ref(a), e.ref(b), out.hint)


def _refuse_narrow(op: Operation) -> None:
    if is_narrow(element_of(op.operands[0].type)):
        raise VerifyError(op, f"arithmetic on {op.operands[0].type} must be expanded to f32 before (expand-math)")


def _unary(e: FunctionEmitter, op: Operation) -> None:
    name, x, out = op.name[6:], op.operands[0], op.results[0]
    element, text = element_of(x.type), type_text(x.type)
    if is_narrow(element) and name in ("neg", "abs"):
        sign = 1 << element.bits - 1
        action = f"xor {text} {e.ref(x)}, {_raw(x.type, sign)}" if name == "neg" else f"and {text} {e.ref(x)}, {_raw(x.type, sign - 1)}"
        e.define(out, action)
        return
    _refuse_narrow(op)
    if element.is_float:
        if name == "neg":
            e.define(out, f"fneg {e.typed(x)}")
        elif name in _FLOAT1 or (name in ("sin", "cos") and not lanes_of(x.type)):
            # sin and cos of one number are calls of the C library: the slow path for huge arguments (passes.math.trigonometric).
            e.names[out] = e.intrinsic(_FLOAT1.get(name, name), text, e.ref(x), hint=out.hint)
        else:
            raise VerifyError(op, "must be expanded before (expand-math)")
    elif name == "not":
        e.define(out, f"xor {e.typed(x)}, {number(x.type, -1)}")
    elif element.kind == "bool" or (name == "abs" and not element.is_signed):
        e.names[out] = e.ref(x)
    elif name == "neg":
        e.define(out, f"sub {text} {number(x.type, 0)}, {e.ref(x)}")
    else:
        e.names[out] = e.call(text, f"llvm.abs.{_suffix(text)}", [(text, e.ref(x)), ("i1", "false")], out.hint)


def _suffix(text: str) -> str:
    from tilelang.backends.cpu.spelling import suffix

    return suffix(text)


def _raw(type: Type, bits: int) -> str:
    """A constant of the integer that a narrow float is kept in."""
    width = element_of(type).bits
    return splat(lanes_of(type), f"i{width}", str(signed(bits, width)))


def compare(e: FunctionEmitter, predicate: str, type: Type, a: str, b: str, hint: str | None = None) -> str:
    element = element_of(type)
    if element.is_float:
        return e.emit(f"fcmp {_PREDICATES['float'][predicate]} {type_text(type)} {a}, {b}", hint)
    kind = "signed" if element.is_signed else "unsigned"
    return e.emit(f"icmp {_PREDICATES[kind][predicate]} {type_text(type)} {a}, {b}", hint)


def _cmp(e: FunctionEmitter, op: arith.Cmp) -> None:
    _refuse_narrow(op)
    e.names[op.out] = compare(e, op.predicate, op.a.type, e.ref(op.a), e.ref(op.b), op.out.hint)


def _select(e: FunctionEmitter, op: arith.Select) -> None:
    e.define(op.out, f"select {e.typed(op.condition)}, {e.typed(op.a)}, {e.typed(op.b)}")


def _fma(e: FunctionEmitter, op: arith.Fma) -> None:
    _refuse_narrow(op)
    e.names[op.out] = e.intrinsic("fma", type_text(op.out.type), e.ref(op.a), e.ref(op.b), e.ref(op.c), hint=op.out.hint)


_EXPANDED = (arith.Exp, arith.Exp2, arith.Log, arith.Log2, arith.Rsqrt, arith.Tanh, arith.Erf)
HANDLERS: dict[type[Operation], Callable[[FunctionEmitter, Any], None]] = {
    **dict.fromkeys((cls for cls in arith.UNARY if cls not in _EXPANDED), _unary),
    **dict.fromkeys((cls for cls in arith.BINARY if cls is not arith.Pow), _binary),
    arith.Cmp: _cmp, arith.Select: _select, arith.Fma: _fma,
}  # fmt: skip
