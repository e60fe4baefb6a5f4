"""Arithmetic of the language: promotion, operators, elementwise functions and those made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import pi, sqrt
from typing import Any

from tilelang.dialects import arith
from tilelang.frontend import ast, fold
from tilelang.frontend.context import Failed, ast_text
from tilelang.frontend.shapes import Operand, Shapes
from tilelang.frontend.values import (
    POISON,
    Axis,
    Const,
    DType,
    Index,
    Num,
    Tile,
    Val,
    as_index,
    dtype_text,
    is_f8,
    is_number,
    promote,
    scalar_type,
)  # fmt: skip
from tilelang.ir import index as ix
from tilelang.ir.core import Operation, Value
from tilelang.ir.types import Scalar, bool_, f32, i32, index

Axes = tuple[Axis, ...] | None

BINARY: dict[str, Any] = {
    "+": arith.Add, "-": arith.Sub, "*": arith.Mul, "/": arith.Div, "//": arith.FloorDiv, "%": arith.Mod, "&": arith.And, "|": arith.Or,
    "^": arith.Xor, "<<": arith.Shl, ">>": arith.Shr, "min": arith.Min, "max": arith.Max,
}  # fmt: skip
_BITWISE = ("&", "|", "^", "<<", ">>")
_NOT_ON_BOOL = ("-", "//", "%", "<<", ">>", "**")

UNARY: dict[str, Any] = {
    "exp": arith.Exp, "exp2": arith.Exp2, "log": arith.Log, "log2": arith.Log2, "sqrt": arith.Sqrt, "rsqrt": arith.Rsqrt, "tanh": arith.Tanh,
    "erf": arith.Erf, "sin": arith.Sin, "cos": arith.Cos, "floor": arith.Floor, "ceil": arith.Ceil, "round": arith.Round, "abs": arith.Abs,
}  # fmt: skip


class Arithmetic(Shapes):
    # -- dtypes

    def common_dtype(self, operands: Sequence[Operand], node: ast.Expr, what: str) -> Scalar:
        """The dtype in which operands meet. Literals adopt it; a float literal turns integers into f32, an integer literal bools into i32."""
        dtype: Scalar | None = None
        first = operands[0]
        for operand in operands:
            self.check_number(operand, what)
            own = scalar_type(operand[1])
            if own is None:
                continue
            if is_f8(own) and what not in ("where",):
                self.unsupported(what, own, node, f"cast it first: cast({operand[0].span.text}, f32)")
            if dtype is None:
                dtype, first = own, operand
                continue
            joined = promote(dtype, own)
            if joined is None:
                notes = [n for o in (first, operand) for n in self.origin(*o)]
                self.error("dtype-mismatch", node.span, notes, what=what, left=dtype_text(dtype), right=dtype_text(own), suggestion=_wider(dtype, own))
            dtype = joined
        for _, value in operands:
            if isinstance(value, Const) and dtype is not None:
                if type(value.value) is float and not dtype.is_float:
                    dtype = f32
                elif type(value.value) is int and dtype is bool_:
                    dtype = i32
        if dtype is None:  # literals only, where a run-time result is asked for
            kinds = {type(v.value) for _, v in operands if isinstance(v, Const)}
            dtype = f32 if float in kinds else index if int in kinds else bool_
        return dtype

    def check_number(self, operand: Operand, what: str) -> None:
        node, value = operand
        if value is POISON:
            raise Failed
        if not isinstance(value, Tile) and not is_number(value):
            self.wrong_type(node, ast_text(node), value, "a number, a tile or a tensor")

    def unsupported(self, what: str, dtype: Scalar, node: ast.Expr, help: str | None = None) -> None:
        self.error("dtype-unsupported", node.span, help=help, what=what, dtype="index integers" if dtype is index else dtype_text(dtype))

    # -- operators

    def binary(self, op: str, left: Operand, right: Operand, node: ast.Expr) -> Val:
        """left op right, for all operators but @."""
        a, b = left[1], right[1]
        if isinstance(a, Const) and isinstance(b, Const):
            return self.folded(node, lambda: fold.binary(op, a.value, b.value))
        what = f"'{op}'"
        ea, eb = as_index(a), as_index(b)
        if ea is not None and eb is not None:
            made = self._index_binary(op, ea, eb, node)
            if made is not None:
                return made
        if op == "**":
            return self._power(left, right, node)
        dtype = self.common_dtype((left, right), node, what)
        return self.elementwise(op, (left, right), dtype, node, what)

    def elementwise(self, op: str, operands: Sequence[Operand], dtype: Scalar, node: ast.Expr, what: str) -> Val:
        """Operands combined from the left by a binary op, in `dtype`."""
        if op == "/" and not dtype.is_float:
            left, right = (scalar_type(v) for _, v in operands[:2])
            names = [dtype_text(d) if d is not None and d is not index else "an integer" for d in (left, right)]
            self.error("integer-division", node.span, left=names[0], right=names[1])
        if op in _BITWISE and dtype.is_float:
            self.unsupported(what, dtype, node, "use it on integers or bools")
        if op in _NOT_ON_BOOL and dtype is bool_:
            self.unsupported(what, dtype, node, "use '^' for the exclusive or, or cast to an integer")
        axes = self.shared_axes(operands, node, what)
        values = [self.operand(v, dtype, axes, n) for n, v in operands]
        return self.result(reduce(lambda x, y: self.emit(BINARY[op].of(x, y)), values), dtype, axes)

    def _index_binary(self, op: str, a: ix.Expr, b: ix.Expr, node: ast.Expr) -> Val | None:
        match op:
            case "+":
                return self.index(a + b)
            case "-":
                return self.index(a - b)
            case "*":
                return self.index(a * b)
            case "//" | "%":
                if b.value == 0:
                    self.error("constant-error", node.span, what=f"{ast_text(node)} divides by zero")
                return self.index(a // b if op == "//" else a % b)
            case "min" | "max":
                return self.index(ix.emin(a, b) if op == "min" else ix.emax(a, b))
            case "/":
                self.error("integer-division", node.span, left="an index", right="an integer")
            case "**" if b.value is not None and 0 <= b.value <= 4:
                return self.index(reduce(lambda x, y: x * y, [a] * b.value, ix.const(1)))
            case _:
                return None

    def index(self, e: ix.Expr) -> Val:
        """An index value: a compile-time number when it is one."""
        e = self.simplify(e)
        return Const(e.value) if e.value is not None else Index(e)

    def _power(self, left: Operand, right: Operand, node: ast.Expr) -> Val:
        dtype = self.common_dtype((left, right), node, "'**'")
        base, exponent = left[1], right[1]
        if isinstance(exponent, Const) and type(exponent.value) is int and (own := scalar_type(base)) is not None and own is not bool_:
            n = exponent.value
            if 0 < n <= 64 and (n <= 4 or not own.is_float):
                return self._repeated(left, n, node)
            if own.is_integer and n <= 0:
                self.unsupported(f"'**' with the exponent {n}", own, node, "cast the base to a float type")
        if not dtype.is_float:
            self.unsupported("'**'", dtype, node, "cast the base to a float type, or use a constant exponent")
        axes = self.shared_axes((left, right), node, "'**'")
        a, b = (self.operand(v, dtype, axes, n) for n, v in (left, right))
        return self.result(self.emit(arith.Pow.of(a, b)), dtype, axes)

    def _repeated(self, base: Operand, n: int, node: ast.Expr) -> Val:
        """base ** n by squaring."""
        square: Operand = base
        total: Operand | None = None
        while n:
            if n & 1:
                total = square if total is None else (node, self.binary("*", total, square, node))
            n >>= 1
            if n:
                square = (node, self.binary("*", square, square, node))
        assert total is not None
        return total[1]

    def unary(self, op: str, operand: Operand, node: ast.Expr) -> Val:
        value = operand[1]
        if op == "not":
            truth = self.truth(value, operand[0], "not")
            return Const(not truth) if isinstance(truth, bool) else Num(self.emit(arith.Not.of(truth)), bool_)
        if isinstance(value, Const):
            return self.folded(node, lambda: fold.unary(op, value.value))
        self.check_number(operand, f"'{op}'")
        if op == "+":
            return value
        if isinstance(value, Index) and op == "-":
            return self.index(-value.expr)
        dtype = self.common_dtype((operand,), node, f"'{op}'")
        if op == "-" and dtype is bool_:
            self.unsupported("'-'", dtype, node, "write '~' for the complement")
        if op == "~" and dtype.is_float:
            self.unsupported("'~'", dtype, node)
        axes = self.shared_axes((operand,), node, op)
        made = (arith.Neg if op == "-" else arith.Not).of(self.operand(value, dtype, axes, node))
        return self.result(self.emit(made), dtype, axes)

    def compare(self, op: str, left: Operand, right: Operand, node: ast.Expr) -> Val:
        a, b = left[1], right[1]
        if POISON in (a, b):
            raise Failed
        if isinstance(a, (Const, DType)) and isinstance(b, (Const, DType)):
            x, y = (v.scalar if isinstance(v, DType) else v.value for v in (a, b))
            return self.folded(node, lambda: fold.compare(op, x, y))
        ea, eb = as_index(a), as_index(b)
        if ea is not None and eb is not None:
            difference = self.simplify(ea - eb).value
            if difference is not None:
                return Const(fold.COMPARE[op](difference, 0))
        what = f"'{op}'"
        dtype = self.common_dtype((left, right), node, what)
        axes = self.shared_axes((left, right), node, what)
        x, y = (self.operand(v, dtype, axes, n) for n, v in (left, right))
        return self.result(self.emit(arith.Cmp.of(fold.PREDICATE[op], x, y)), bool_, axes)

    def folded(self, node: ast.Expr, compute: Callable[[], Any]) -> Const:
        try:
            return Const(compute())
        except fold.FoldError as e:
            self.error("constant-error", node.span, what=str(e))

    def truth(self, value: Val, node: ast.Expr, statement: str) -> bool | Value:
        """A condition: a bool known now, or a run-time bool."""
        match value:
            case Const(value=v):
                return bool(v)
            case Num(ssa=ssa, dtype=dtype):
                return ssa if dtype is bool_ else self.emit(arith.Cmp.of("ne", ssa, self.constant(0, dtype)))
            case Index(expr=e):
                return self.emit(arith.Cmp.of("ne", self.value(e), self.value(ix.const(0))))
            case Tile() if value.rank or not value.whole:
                notes = self.origin(node, value)
                self.error("tile-condition", node.span, notes, statement=statement, type=self.shape_text(value))
            case _:
                self.wrong_type(node, f"the condition {ast_text(node)}", value, "a scalar")

    # -- elementwise functions

    def function(self, name: str, operand: Operand, node: ast.Expr) -> Val:
        """A function of one value that is one op."""
        value = operand[1]
        if isinstance(value, Const) and isinstance(value.value, (int, float)):
            x = value.value
            return self.folded(node, lambda: fold.FUNCTIONS[name](x))
        self.check_number(operand, name)
        if name == "abs":
            if isinstance(value, Index):
                return self.index(ix.emax(value.expr, -value.expr))
            dtype = self.common_dtype((operand,), node, name)
            if dtype.kind in ("uint", "bool"):
                return value
        else:
            dtype = self.float_dtype(operand, node, name)
        axes = self.shared_axes((operand,), node, name)
        return self.result(self.emit(UNARY[name].of(self.operand(value, dtype, axes, node))), dtype, axes)

    def float_dtype(self, operand: Operand, node: ast.Expr, name: str) -> Scalar:
        dtype = self.common_dtype((operand,), node, name)
        if not dtype.is_float:
            self.unsupported(name, dtype, node, f"cast it: {name}(cast({operand[0].span.text}, f32))")
        return dtype

    def composite(self, name: str, operand: Operand, node: ast.Expr, make: Callable[[Formula, Value], Value]) -> Val:
        """A float function made of several ops; on f16 and bf16 computed in f32 and rounded once."""
        self.check_number(operand, name)
        value = operand[1]
        if isinstance(value, Const):
            value = Num(self.number(value, f32, node), f32)
            operand = (operand[0], value)
        dtype = self.float_dtype(operand, node, name)
        wide = f32 if dtype.bits == 16 else dtype
        axes = self.shared_axes((operand,), node, name)
        x = self.operand(value, wide, axes, node)
        return self.result(self.cast(make(Formula(self, wide, axes), x), dtype), dtype, axes)

    def predicate(self, name: str, operand: Operand, node: ast.Expr) -> Val:
        """isnan, isinf."""
        value = operand[1]
        if isinstance(value, Const) and isinstance(value.value, (int, float)):
            return Const(value.value != value.value if name == "isnan" else abs(value.value) == float("inf"))
        dtype = self.float_dtype(operand, node, name)
        axes = self.shared_axes((operand,), node, name)
        x = self.operand(value, dtype, axes, node)
        f = Formula(self, dtype, axes)
        made = f.compare("ne", x, x) if name == "isnan" else f.compare("eq", f(arith.Abs, x), f.number(float("inf")))
        return self.result(made, bool_, axes)

    def choose(self, condition: Operand, a: Operand, b: Operand, node: ast.Expr) -> Val:
        """where(condition, a, b)."""
        dtype = self.common_dtype((a, b), node, "where")
        self.check_number(condition, "where")
        kind = scalar_type(condition[1])
        if kind is not bool_ and not (isinstance(condition[1], Const) and isinstance(condition[1].value, bool)):
            self.wrong_type(condition[0], "the condition of where", condition[1], "bool", f"compare it: {condition[0].span.text} != 0")
        axes = self.shared_axes((condition, a, b), node, "where")
        scalar_condition = not isinstance(condition[1], Tile)
        c = self.operand(condition[1], bool_, None if scalar_condition else axes, condition[0])
        x, y = (self.operand(v, dtype, axes, n) for n, v in (a, b))
        return self.result(self.emit(arith.Select.of(c, x, y)), dtype, axes)

    def fused(self, operands: Sequence[Operand], node: ast.Expr) -> Val:
        """fma(a, b, c)."""
        dtype = self.common_dtype(operands, node, "fma")
        if not dtype.is_float:
            self.unsupported("fma", dtype, node, "write a * b + c")
        axes = self.shared_axes(operands, node, "fma")
        a, b, c = (self.operand(v, dtype, axes, n) for n, v in operands)
        return self.result(self.emit(arith.Fma.of(a, b, c)), dtype, axes)

    def extreme(self, name: str, operands: Sequence[Operand], node: ast.Expr) -> Val:
        """min or max of several values, element by element."""
        if all(isinstance(v, Const) for _, v in operands):
            for o in operands:
                self.check_number(o, name)
            numbers = [v.value for _, v in operands if isinstance(v, Const)]
            return self.folded(node, lambda: fold.minimum(numbers, name == "min"))
        indices = [as_index(v) for _, v in operands]
        if all(e is not None for e in indices):
            return self.index((ix.emin if name == "min" else ix.emax)(*(e for e in indices if e is not None)))
        dtype = self.common_dtype(operands, node, name)
        return self.elementwise(name, operands, dtype, node, name)

    def converted(self, operand: Operand, dtype: Scalar, node: ast.Expr) -> Val:
        """cast(x, dtype)."""
        value = operand[1]
        self.check_number(operand, "cast")
        if isinstance(value, Tile):
            return self.as_dtype(value, dtype)
        if isinstance(value, Num) and value.dtype is dtype:
            return value
        return Num(self.number(value, dtype, operand[0], explicit=True), dtype)

    def reinterpreted(self, operand: Operand, dtype: Scalar, node: ast.Expr) -> Val:
        value = operand[1]
        if not isinstance(value, (Num, Tile)):
            self.wrong_type(operand[0], ast_text(operand[0]), value, "a tile or a run-time scalar", "cast it first, so that it has bits")
        if value.dtype.bits != dtype.bits:
            bits = f"a dtype of {value.dtype.bits} bits"
            self.wrong_type(node, "the dtype of reinterpret", DType(dtype), bits, "use cast to convert the number")
        if value.dtype is dtype:
            return value
        ssa = self.emit(arith.Bitcast.of(value.ssa, dtype))
        return Num(ssa, dtype) if isinstance(value, Num) else Tile(ssa, dtype, value.axes)


class Formula:
    """Writes float formulas of tiles or scalars of one dtype and shape."""

    def __init__(self, b: Arithmetic, dtype: Scalar, axes: Axes) -> None:
        self.b, self.dtype, self.axes = b, dtype, axes

    def __call__(self, op: Any, *args: Value) -> Value:
        return self.b.emit(op.of(*args))

    def number(self, value: float) -> Value:
        c = self.b.constant(value, self.dtype)
        return c if self.axes is None else self.b.fill(c, self.axes, self.dtype).ssa

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        return self.b.emit(arith.Cmp.of(predicate, a, b))

    def select(self, c: Value, a: Value, b: Value) -> Value:
        op: Operation = arith.Select.of(c, a, b)
        return self.b.emit(op)


def sigmoid(f: Formula, x: Value) -> Value:
    """1 / (1 + exp(-x)) without overflow: with e = exp(-|x|), 1 / (1 + e) for x >= 0 and e / (1 + e) else. NaN stays NaN."""
    e = f(arith.Exp, f(arith.Neg, f(arith.Abs, x)))
    one = f.number(1.0)
    top = f.select(f.compare("ge", x, f.number(0.0)), one, e)
    return f(arith.Div, top, f(arith.Add, one, e))


def silu(f: Formula, x: Value) -> Value:
    """x * sigmoid(x). sigmoid is 0 well before the bound, which keeps -inf from giving NaN."""
    bounded = f(arith.Max, x, f.number(-1024.0))
    return f(arith.Mul, bounded, sigmoid(f, x))


def relu(f: Formula, x: Value) -> Value:
    return f(arith.Max, x, f.number(0.0))


def gelu(f: Formula, x: Value) -> Value:
    """x * (1 + erf(x / sqrt 2)) / 2. erf is -1 before the bound, which keeps -inf from giving NaN."""
    x = f(arith.Max, x, f.number(-64.0))
    inner = f(arith.Erf, f(arith.Mul, x, f.number(1 / sqrt(2))))
    return f(arith.Mul, f(arith.Mul, f.number(0.5), x), f(arith.Add, f.number(1.0), inner))


def gelu_tanh(f: Formula, x: Value) -> Value:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2 (Hendrycks and Gimpel, Gaussian Error Linear Units, 2016)."""
    x = f(arith.Max, x, f.number(-64.0))
    cube = f(arith.Mul, f(arith.Mul, x, x), x)
    inner = f(arith.Mul, f.number(sqrt(2 / pi)), f(arith.Add, x, f(arith.Mul, f.number(0.044715), cube)))
    return f(arith.Mul, f(arith.Mul, f.number(0.5), x), f(arith.Add, f.number(1.0), f(arith.Tanh, inner)))


FORMULAS: dict[str, Callable[[Formula, Value], Value]] = {"sigmoid": sigmoid, "silu": silu, "gelu": gelu}


def _wider(a: Scalar, b: Scalar) -> str:
    return "f64" if 64 in (a.bits, b.bits) else "f32" if a.is_float or b.is_float else "i64"
