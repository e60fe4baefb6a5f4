"""How many arithmetic operations a program asks for: counted from its IR for given shapes, neither measured nor run.

Each add, multiply, exp, ... of an element counts one, a multiply-add two; moves, casts, comparisons and selections count nothing, and so does
index arithmetic. Loops are entered at their first, middle and last iterations, the middle standing for the others: exact as long as extents
change linearly along a loop, as those of blocks do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tilelang.dialects.func import Func, functions
from tilelang.ir.core import Block, Module, Operation, Value
from tilelang.ir.types import Dyn, Scalar, Type, element_of, index, shape_of

_FREE = frozenset({"constant", "cast", "bitcast", "select", "cmp"})
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Count:
    """operations: how many. exact: False when control flow depends on data, and one path was taken."""

    operations: float
    exact: bool


def count(module: Module, name: str, args: Sequence[Any]) -> Count:
    """Operations of one call of function `name` (tensor or tile level). args: a shape for each tensor and buffer, a number for each scalar."""
    counter = _Counter(module)
    counter.call(name, args)
    return Count(counter.total, counter.exact)


def _points(numbers: range) -> list[tuple[int, float]]:
    """Iterations that stand for all of a loop, with their weights."""
    n = len(numbers)
    if n <= 4:
        return [(i, 1.0) for i in numbers]
    inner = (n - 2) / 2
    return [(numbers[0], 1.0), (numbers[(n - 1) // 2], inner), (numbers[n // 2], inner), (numbers[-1], 1.0)]


class _Counter:
    """values: what is known of each SSA value: a shape, a number, or None."""

    def __init__(self, module: Module) -> None:
        self.functions: dict[str, Func] = {f.sym_name: f for f in functions(module)}
        self.values: dict[Value, Any] = {}
        self.kernels: dict[Operation, Callable[..., Any]] = {}
        self.total = 0.0
        self.weight = 1.0
        self.exact = True

    def call(self, name: str, args: Iterable[Any]) -> list[Any]:
        function = self.functions[name]
        self.values.update(zip(function.args, args))
        return self.block(function.body.block)

    def block(self, block: Block) -> list[Any]:
        """Counts a block; what its terminator gives."""
        for op in block:
            if not op.terminator:
                self.op(op)
        return [self.values.get(v) for v in block.last.operands] if block.last is not None else []

    def add(self, operations: float) -> None:
        self.total += operations * self.weight

    def shape(self, value: Value) -> Shape:
        """The extents of a tile, tensor or buffer; the bound where one is not known."""
        found = self.values.get(value)
        if isinstance(found, tuple):
            return found
        if shape_of(value.type):
            self.exact = False
        return tuple(d if isinstance(d, int) else d.bound or 1 for d in shape_of(value.type))

    # -- ops

    def op(self, op: Any) -> None:
        handler = getattr(self, "op_" + op.name.replace(".", "_"), None)
        if handler is not None:
            handler(op)
        elif op.name.startswith("arith."):
            self.arith(op)
        else:
            kind = op.name.partition(".")[2]
            if kind in ("matmul", "reduce", "arg_reduce", "scan", "map", "atomic_rmw"):
                getattr(self, kind)(op)
            for r in op.results:
                self.values[r] = self.result_shape(op, kind, r.type)

    def arith(self, op: Any) -> None:
        result = op.results[0]
        if shape_of(result.type):
            shape = next((s for v in op.operands if isinstance(s := self.values.get(v), tuple)), None)
            self.values[result] = self.static(result.type) if shape is None else shape
        else:
            self.values[result] = self.number(op)
        if element_of(result.type) is not index:
            self.add(_cost(op) * math.prod(self.shape(result)))

    def number(self, op: Any) -> Any:
        """The value of scalar arithmetic, None when an operand is not known."""
        if op.name == "arith.constant":
            return op.value
        args = [self.values.get(v) for v in op.operands]
        if any(a is None for a in args):
            return None
        from tilelang.runtime import numerics

        kernel = self.kernels.get(op)
        if kernel is None:
            kernel = self.kernels[op] = numerics.kernel(op, True, False)
        kinds = [v.type for v in op.operands]
        out = kernel(*(a if t is index else numerics.scalar(a, t, True) for a, t in zip(args, kinds)))
        return int(out) if op.results[0].type is index else out

    def static(self, type: Type) -> Shape | None:
        dims = shape_of(type)
        return tuple(d for d in dims if isinstance(d, int)) if not any(isinstance(d, Dyn) for d in dims) else None

    def sized(self, type: Type, sizes: Iterable[Value]) -> Shape | None:
        """A shape whose open extents are operands."""
        rest = iter(sizes)
        out: list[int] = []
        for d in shape_of(type):
            n = d if isinstance(d, int) else self.values.get(v) if (v := next(rest, None)) is not None else None
            if n is None and isinstance(d, Dyn):
                n = d.bound
                self.exact = False
            if n is None:
                return None
            out.append(max(0, int(n)))
        return tuple(out)

    def result_shape(self, op: Any, kind: str, type: Type) -> Any:
        if isinstance(type, Scalar):
            return None
        if kind in ("transpose", "permute"):
            source = self.shape(op.operands[0])
            return tuple(source[p] for p in op.perm)
        if kind == "reduce":
            return tuple(n for i, n in enumerate(self.shape(op.x)) if i not in op.axes)
        if kind == "arg_reduce":
            return tuple(n for i, n in enumerate(self.shape(op.x)) if i != op.axis)
        if kind == "gather":
            return self.gathered(op, type)
        same = {"matmul": "acc", "scan": "x", "take_along": "indices"}.get(kind)
        if same is not None:
            return self.shape(getattr(op, same))
        return self.sized(type, getattr(op, "sizes", ()))

    def gathered(self, op: Any, type: Type) -> Shape | None:
        """The axes of the index tiles stand in the place of the first indexed axis."""
        at = sum(a not in op.dropped for a in range(op.indexed[0]))
        picked = self.shape(op.indices[0])
        dims = shape_of(type)
        kept = dims[:at] + dims[at + len(picked) :]
        rest = iter(op.sizes)
        known = [d if isinstance(d, int) else self.values.get(next(rest)) for d in kept]
        return None if any(n is None for n in known) else (*known[:at], *picked, *known[at:])  # pyright: ignore[reportReturnType]

    # -- what costs

    def matmul(self, op: Any) -> None:
        self.add(2.0 * math.prod(self.shape(op.acc)) * self.shape(op.lhs)[-1])

    def reduce(self, op: Any) -> None:
        self.add(math.prod(self.shape(op.operands[0])))

    arg_reduce = scan = atomic_rmw = reduce  # one operation an element of the first operand

    def map(self, op: Any) -> None:
        element = sum(_cost(inner) for inner in op.body.block if inner.name.startswith("arith."))
        outs = getattr(op, "outs", None)
        shape = self.shape(outs[0]) if outs else self.sized(op.results[0].type, op.sizes)
        self.add(element * math.prod(shape or ()))

    # -- extents and control flow

    def op_mem_dim(self, op: Any) -> None:
        self.values[op.out] = self.shape(op.operands[0])[op.axis]

    op_tensor_dim = op_mem_dim

    def op_func_call(self, op: Any) -> None:
        self.values.update(zip(op.results, self.call(op.callee, [self.values.get(v) for v in op.operands])))

    def bounds(self, lower: Value, upper: Value, step: Value) -> list[tuple[int | None, float]]:
        low, high, by = (self.values.get(v) for v in (lower, upper, step))
        if low is None or high is None or by is None:
            self.exact = False
            return [(None, 1.0)]
        return [*_points(range(int(low), int(high), max(int(by), 1)))]

    def op_loop_for(self, op: Any) -> None:
        points = self.bounds(op.lower, op.upper, op.step)
        carried = [self.values.get(v) for v in op.inits]
        weight = self.weight
        for i, share in points:
            self.values[op.iv] = i
            self.values.update(zip(op.carried, carried))
            self.weight = weight * share
            carried = self.block(op.body.block)
            if any(w != 1.0 for _, w in points):  # iterations were left out: numbers that are carried along are not known
                carried = [c if isinstance(c, tuple) else None for c in carried]
        self.weight = weight
        self.values.update(zip(op.results, carried))

    def op_loop_parallel(self, op: Any) -> None:
        weight = self.weight
        for point in itertools.product(*map(self.bounds, op.lowers, op.uppers, op.steps)):
            self.values.update(zip(op.ivs, (i for i, _ in point)))
            self.weight = weight * math.prod(w for _, w in point)
            self.block(op.body.block)
        self.weight = weight

    def op_loop_if(self, op: Any) -> None:
        condition = self.values.get(op.condition)
        if condition is not None:
            self.values.update(zip(op.results, self.block((op.then if condition else op.orelse).block)))
            return
        self.exact = False
        start = self.total
        results = self.block(op.then.block)
        then = self.total
        self.total = start
        self.block(op.orelse.block)
        self.total = max(self.total, then)  # the path that asks for more
        self.values.update(zip(op.results, results))

    def op_loop_while(self, op: Any) -> None:
        self.exact = False
        self.values.update(zip(op.before.block.args, (self.values.get(v) if isinstance(self.values.get(v), tuple) else None for v in op.inits)))
        _, *given = self.block(op.before.block)
        self.values.update(zip(op.body.block.args, given))
        self.block(op.body.block)
        self.values.update(zip(op.results, given))


def _cost(op: Operation) -> int:
    kind = op.name.partition(".")[2]
    return 0 if kind in _FREE else 2 if kind == "fma" else 1
