"""Index values of the IR as expressions of the index algebra (tilelang.ir.index), and back.

    scope = Scope()
    e = scope.expr(offset)              # i0 * 64 + M, ... : loop indices, dims and everything not understood are symbols
    scope.facts                         # what is known of the symbols met so far everywhere in the function: extents >= 0
    scope.facts_at(op)                  # and what the loops around an op say: their indices have a range, so that it is not empty
    scope.build(e, builder)             # ops that compute it"""

from __future__ import annotations

from tilelang.dialects import arith, func, loop, mem
from tilelang.ir.core import Block, Builder, Operation, Value
from tilelang.ir.expr import Const, Expr, FloorDiv, Max, Min, Mod, Product, Sum, Sym, const, emax, emin, sym
from tilelang.ir.facts import Facts
from tilelang.ir.types import BufferType, Dyn, index, shape_of

_DEPTH = 40  # of nested ops; what lies deeper is a symbol


class Scope:
    """Expressions of the values of one function. Symbols are named v0, v1, ... in the order met; `values` maps them back."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.values: dict[str, Value] = {}
        self._known: dict[Value, Expr] = {}
        self._facts: dict[Block, tuple[int, Facts]] = {}
        self._dims: dict[str | tuple[Value, int], Expr] = {}

    def expr(self, value: Value | int, depth: int = 0) -> Expr:
        """The value as an expression of symbols."""
        if isinstance(value, int):
            return const(value)
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._convert(value, depth)
        return found

    def _symbol(self, value: Value) -> Sym:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return sym(name)

    def _convert(self, value: Value, depth: int) -> Expr:
        op = value.op
        if value.type is not index or depth > _DEPTH:
            return self._symbol(value)
        if op is None:
            return self._symbol(value)
        if isinstance(op, arith.Constant):
            number = op.value
            assert isinstance(number, int)
            return const(number)
        if isinstance(op, mem.Dim):
            return self._dim(op)
        if isinstance(op, (arith.Add, arith.Sub, arith.Mul, arith.Min, arith.Max, arith.FloorDiv, arith.Mod)):
            a, b = (self.expr(v, depth + 1) for v in op.operands)
            match op:
                case arith.Add():
                    return a + b
                case arith.Sub():
                    return a - b
                case arith.Mul():
                    return a * b
                case arith.Min():
                    return emin(a, b)
                case arith.Max():
                    return emax(a, b)
                case arith.FloorDiv() | arith.Mod():
                    # Division by zero is 0 in the IR and undefined in the algebra.
                    lo, _ = self.facts.bounds(b)
                    if lo is not None and lo > 0:
                        return a // b if isinstance(op, arith.FloorDiv) else a % b
        return self._symbol(value)

    def _dim(self, op: mem.Dim) -> Expr:
        """Extents are equal where buffer types name them alike."""
        type = op.buffer.type
        assert isinstance(type, BufferType)
        dim = type.shape[op.axis]
        if isinstance(dim, int):
            return const(dim)
        # Only a symbol from the top of the function is visible wherever it may be needed.
        outermost = isinstance(op.parent_op, func.Func)
        key = dim.name if dim.name and outermost else (op.buffer, op.axis)
        if key not in self._dims:
            self._dims[key] = s = self._symbol(op.out)
            self.facts.dim(s.name, hi=dim.bound)
        return self._dims[key]

    def extent(self, memory: Value, axis: int) -> Expr | None:
        """The extent of a buffer or tile along an axis, None when nothing is known about it."""
        dim = shape_of(memory.type)[axis]
        if isinstance(dim, int):
            return const(dim)
        return self._dims.get((memory, axis)) or (self._dims.get(dim.name) if dim.name else None)

    def facts_at(self, op: Operation) -> Facts:
        """What holds where an op stands: the indices of the loops around it are in their ranges."""
        loops: list[tuple[Expr, Expr, Expr, Expr]] = []
        around = op.parent_op
        while around is not None:
            if isinstance(around, loop.For):
                ranges = [(around.iv, around.lower, around.upper, around.step)]
            else:
                ranges = list(zip(around.ivs, around.lowers, around.uppers, around.steps)) if isinstance(around, loop.Parallel) else []
            for iv, lower, upper, step in ranges:
                loops.append((self.expr(iv), self.expr(lower), self.expr(upper), self.expr(step)))
            around = around.parent_op
        block = op.parent
        assert block is not None
        known = self._facts.get(block)
        if known is not None and known[0] == len(self.values):
            return known[1]
        facts = self.facts.copy()
        for iv, lower, upper, step in loops:
            facts.range(str(iv), lower, upper)
            if step.value is not None and step.value > 1 and lower.value is not None:
                facts.multiple(iv, step.value, lower.value)
        self._facts[block] = len(self.values), facts
        return facts

    def assume_of(self, function: func.Func) -> None:
        """Takes in the facts that the function declares about its symbolic dims."""
        names: dict[str, Expr] = {}
        for op in function.walk():
            if isinstance(op, mem.Dim):
                type = op.buffer.type
                assert isinstance(type, BufferType)
                dim = type.shape[op.axis]
                if isinstance(dim, Dyn) and dim.name:
                    names[dim.name] = self._dim(op)
        own = Facts(*function.facts)
        for name, expression in names.items():
            lo, hi = own.bounds(sym(name))
            m, r = own.congruence(sym(name))
            if isinstance(expression, Sym):
                self.facts.range(expression.name, lo, None if hi is None else hi + 1)
                if m > 1:
                    self.facts.multiple(expression, m, r)

    def build(self, e: Expr, build: Builder) -> Value:
        """Ops that compute an expression; its symbols must be visible there."""
        match e:
            case Const():
                return build(arith.index_constant(e.number))
            case Sym():
                return self.values[e.name]
            case Sum():
                total: Value | None = None
                for atom, k in e.terms:
                    term = self.build(atom, build)
                    if k != 1:
                        term = build(arith.Mul.of(term, build(arith.index_constant(k))))
                    total = term if total is None else build(arith.Add.of(total, term))
                assert total is not None
                return build(arith.Add.of(total, build(arith.index_constant(e.const)))) if e.const else total
            case Product():
                return self._fold(arith.Mul, e, build)
            case Min():
                return self._fold(arith.Min, e, build)
            case Max():
                return self._fold(arith.Max, e, build)
            case FloorDiv():
                return build(arith.FloorDiv.of(self.build(e.num, build), self.build(e.den, build)))
            case Mod():
                return build(arith.Mod.of(self.build(e.num, build), self.build(e.den, build)))
        raise TypeError(f"cannot compute '{e}'")

    def _fold(self, op: type[Operation], e: Expr, build: Builder) -> Value:
        first, *rest = (self.build(part, build) for part in e.parts())
        for part in rest:
            first = build(op([first, part], [index]))
        return first
