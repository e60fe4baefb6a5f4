"""raise: loops over acc += a @ b become tile.contract, which names the operands over the whole of K.

An accumulator carried by a loop is raised when
- it is only added to: acc' = acc + t1 + t2 ..., each t a product of tiles (as tile.matmul with acc, or added, in either order), or such a product
  negated, or multiplied or divided (floats) by a scalar that does not change in the loop, and nothing else looks at it on the way;
- each factor is a tile loaded in the loop, possibly transposed, and changed elementwise with scalars that do not change in the loop;
- the memory is not written in the loop; along K, and only there, the offset moves with the loop, by as much as the block is long, so that the blocks
  tile a contiguous range, each element once. The last block may be clipped, and blocks may be padded with zeros behind the end of the memory.

Everything is decided by the index algebra: neither names nor sizes nor the kind of loop matter. What cannot be proved stays a loop. A loop that is left
with nothing to do goes away; one with more to do keeps that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import arith, func, loop, tile
from tilelang.dialects.contract import Contract
from tilelang.ir.core import Block, Builder, Module, Operation, Region, Value
from tilelang.ir.expr import Expr, Min, ceildiv, const, emax, emin
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.types import Scalar, TileType, element_of, shape_of
from tilelang.passes.affine import Scope
from tilelang.passes.buffering import views

_BATCHES = "bcdefghij"


@register
@dataclass(frozen=True)
class Raise(Pass):
    """Turns loops that accumulate matrix products into tile.contract."""

    name: ClassVar[str] = "raise"
    before: ClassVar[str] = "tile"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in func.functions(module):
            scope = Scope()
            scope.assume_of(function)
            for op in list(function.walk(reverse=True)):
                if isinstance(op, loop.For) and (count := _Raiser(op, scope).run()):
                    ctx.remark(f"{count} product{'s' if count > 1 else ''} over the whole of K", op)


@dataclass
class _Factor:
    """One side of a product: what is loaded, the tile axis that each axis of the factor comes from, and what is done to each element, in order."""

    load: tile.Load
    axes: tuple[int, ...]
    steps: list[Operation]


@dataclass
class _Operand:
    """A factor in the terms of tile.contract. window: along K (start, length) when the loop is over, as expressions."""

    buffer: Value
    offsets: list[Expr]
    letters: str
    start: Expr
    depth: Expr
    steps: list[Operation]
    padded: str  # letters along which it may reach behind the end of the buffer, where it is padded with zeros
    end: Expr | None  # elements from `start` to the end of the buffer along K


@dataclass
class _Product:
    op: tile.Matmul
    lhs: _Operand
    rhs: _Operand
    scaling: list[Operation]  # applied to the sum
    negated: bool = False


class _Raiser:
    def __init__(self, op: loop.For, scope: Scope) -> None:
        self.op, self.scope = op, scope
        end = op.body.block.last
        assert isinstance(end, loop.Yield)
        self.end = end
        self.facts = scope.facts_at(op)  # of the place of the contraction: the loop may have no iterations

    def run(self) -> int:
        """Raises what can be; the number of products."""
        op = self.op
        if not op.inits or any(isinstance(inner, loop.Assert) for inner in op.walk()):
            return 0  # an assert in the loop may be what keeps its loads in bounds
        found = {i: products for i, arg in enumerate(op.carried) if (products := self.products(arg, self.end.values[i])) is not None}
        if not found:
            return 0
        build = Builder.at(op)
        for i, products in found.items():
            acc = op.inits[i]
            for product in products:
                acc = self.contract(product, acc, build)
            op.results[i].replace_by(acc)
        self.remove(set(found))
        return sum(map(len, found.values()))

    # -- recognition

    def invariant(self, value: Value) -> bool:
        """Whether the value is the same in every iteration."""
        at = value.op if value.op is not None else value.block.parent_op if value.block is not None else None
        return at is not None and not self.op.is_ancestor_of(at)

    def products(self, arg: Value, value: Value) -> list[_Product] | None:
        """What is added to the carried value `arg` to give `value`, in program order; None when that is not all that happens."""
        if not isinstance(arg.type, TileType):
            return None
        found: list[_Product] = []
        while value is not arg:
            if len(value.uses) != 1 or value.op is None or not self.op.is_ancestor_of(value.op):
                return None
            step = self.step(value.op, arg)
            if step is None:
                return None
            value, product = step
            found.append(product)
        return found[::-1] if len(arg.uses) == 1 and found else None

    def step(self, op: Operation, arg: Value) -> tuple[Value, _Product] | None:
        """One addition: what it adds to, and the product."""
        if op.parent is not self.op.body.block:
            return None
        if isinstance(op, tile.Matmul):
            product = self.product(op, [])
            return None if product is None else (op.acc, product)
        if isinstance(op, (arith.Add, arith.Sub)):
            sides = ((op.a, op.b), (op.b, op.a)) if isinstance(op, arith.Add) else ((op.a, op.b),)
            for base, term in sides:
                if self.reaches(base, arg) and (product := self.term(term)) is not None:
                    if isinstance(op, arith.Sub):
                        product.negated = True
                    return base, product
        return None

    def reaches(self, value: Value, arg: Value) -> bool:
        """Whether a chain of additions leads from the carried value to this one."""
        while value is not arg:
            op = value.op
            if isinstance(op, tile.Matmul):
                value = op.acc
            elif isinstance(op, (arith.Add, arith.Sub)):
                value = op.a if self.reaches(op.a, arg) or isinstance(op, arith.Sub) else op.b
            else:
                return False
        return True

    def term(self, value: Value) -> _Product | None:
        """A product that starts from zero, scaled by what does not change in the loop."""
        scaling: list[Operation] = []
        while not isinstance(value.op, tile.Matmul):
            op = value.op
            if op is None or len(value.uses) != 1:
                return None
            linear = isinstance(op, (arith.Neg, arith.Mul)) or (isinstance(op, arith.Div) and self.splat(op.b) is not None)
            source = self.elementwise_source(op) if linear else None
            if source is None:
                return None
            scaling.append(op)
            value = source
        if len(value.uses) != 1 or not _is_zero(value.op.acc):
            return None
        return self.product(value.op, scaling[::-1])

    def product(self, op: tile.Matmul, scaling: list[Operation]) -> _Product | None:
        rank = len(shape_of(op.out.type))
        if rank - 2 > len(_BATCHES):
            return None
        batch = _BATCHES[: rank - 2]
        lhs, rhs = self.operand(op.lhs, batch + "mk"), self.operand(op.rhs, batch + "kn")
        if lhs is None or rhs is None or not self.facts.prove_eq(lhs.depth, rhs.depth):
            return None
        if "k" in lhs.padded + rhs.padded and not (lhs.end is not None and rhs.end is not None and self.facts.prove_eq(lhs.end, rhs.end)):
            return None  # zeros meet numbers, which may be infinite
        return _Product(op, lhs, rhs, scaling)

    def operand(self, value: Value, letters: str) -> _Operand | None:
        factor = self.factor(value)
        if factor is None:
            return None
        load = factor.load
        named = dict(zip(factor.axes, letters))
        kept = iter(range(len(factor.axes)))
        buffer_letters = "".join("-" if axis in load.dropped else named[next(kept)] for axis in range(len(load.offsets)))
        offsets = [self.scope.expr(o) for o in load.offsets]
        along = buffer_letters.index("k")
        if any(self.varies(o) or (axis != along and self.iv_symbol() in o.symbols()) for axis, o in enumerate(offsets)):
            return None
        window = self.window(offsets[along], self.length(load, factor.axes[letters.index("k")]))
        if window is None or self.is_written(load.buffer):
            return None
        offsets[along] = window[0]
        extents = {x: self.length(load, axis) for x, axis in zip(letters, factor.axes)} | {"k": window[1]}
        padded = ""
        if load.pad is not None:
            found = self.padding(load, offsets, buffer_letters, extents)
            if found is None or not all(self.keeps_zero(step) for step in factor.steps):
                return None
            padded = found
        length = self.scope.extent(load.buffer, along)
        return _Operand(load.buffer, offsets, buffer_letters, *window, factor.steps, padded, None if length is None else length - window[0])

    def padding(self, load: tile.Load, offsets: list[Expr], letters: str, extents: dict[str, Expr]) -> str | None:
        """The letters along which a padded load may reach behind the end; None when it may start outside, or is padded with anything but 0."""
        facts = self.facts
        if load.pad is None or arith.constant_value(load.pad) != 0:
            return None
        found = ""
        for axis, (offset, x) in enumerate(zip(offsets, letters)):
            length = self.scope.extent(load.buffer, axis)
            if length is None or not facts.prove_ge(offset, 0):
                return None
            if not facts.prove_ge(length, offset + (1 if x == "-" else extents[x])):
                if x == "-":
                    return None
                found += x
        return found

    def factor(self, value: Value) -> _Factor | None:
        """Follows a factor back to the load that it is made from."""
        steps: list[Operation] = []
        perm = tuple(range(len(shape_of(value.type))))
        while not isinstance(value.op, tile.Load):
            op = value.op
            if isinstance(op, tile.Transpose):
                perm = tuple(op.perm[p] for p in perm)
                value = op.x
                continue
            source = None if op is None else self.elementwise_source(op)
            if op is None or source is None:
                return None
            steps.append(op)
            value = source
        load = value.op
        if self.invariant(load.out) or load.parent is not self.op.body.block or load.tokens or load.steps:
            return None
        if not self.invariant(load.buffer):
            return None
        return _Factor(load, perm, steps[::-1])

    def elementwise_source(self, op: Operation) -> Value | None:
        """The one tile that an elementwise op works on, when its other operands are scalars that do not change in the loop."""
        if not isinstance(op, arith.ELEMENTWISE) or not isinstance(op.results[0].type, TileType):
            return None
        others = [v for v in op.operands if self.splat(v) is None]
        return others[0] if len(others) == 1 and isinstance(others[0].type, TileType) else None

    def keeps_zero(self, op: Operation) -> bool:
        """Whether an elementwise op with scalars turns 0 into 0."""
        if isinstance(op, arith.Div):
            return self.splat(op.b) is not None
        return isinstance(op, (arith.Cast, arith.Neg, arith.Mul, arith.Abs))

    def splat(self, value: Value) -> Value | float | None:
        """The unchanging scalar that every element of a tile is: a value, or a number."""
        if isinstance(value.op, tile.Fill) and self.invariant(value.op.value):
            return value.op.value
        if isinstance(value.op, tile.Fill) and isinstance(value.op.value.op, arith.Constant):
            return value.op.value.op.value  # pyright: ignore[reportReturnType]
        if isinstance(value.op, arith.Constant):
            return value.op.value  # pyright: ignore[reportReturnType]
        return value if isinstance(value.type, Scalar) and self.invariant(value) else None

    # -- the range along K

    def iv_symbol(self) -> str:
        return str(self.scope.expr(self.op.iv))

    def length(self, load: tile.Load, axis: int) -> Expr:
        dims = shape_of(load.out.type)
        dim = dims[axis]
        if isinstance(dim, int):
            return const(dim)
        return self.scope.expr(load.sizes[tile.dynamic_axes(load.out.type).index(axis)])

    def varies(self, e: Expr) -> bool:
        """Whether an expression depends on something else in the loop than its index."""
        values = (self.scope.values[name] for name in e.symbols())
        return any(v is not self.op.iv and not self.invariant(v) for v in values)

    def window(self, offset: Expr, length: Expr) -> tuple[Expr, Expr] | None:
        """(start, extent) of the range that the blocks at `offset`, `length` long, tile as the loop runs; None when they do not."""
        iv, facts = self.iv_symbol(), self.facts
        lower, upper, step = (self.scope.expr(v) for v in (self.op.lower, self.op.upper, self.op.step))
        if not offset.is_affine([iv]) or self.varies(length) or step.value is None:
            return None
        stride = offset.coefficient(iv).value
        if stride is None or stride <= 0:
            return None
        advance = stride * step.value
        start = offset.substitute({iv: lower})
        trips = ceildiv(emax(upper - lower, 0), step)
        length = self.scope.facts_at(self.end).simplify(length)
        if length == advance:
            return start, facts.simplify(trips * advance)
        # min(advance, stop - offset): the last block is clipped at `stop`.
        if not isinstance(length, Min):
            return None
        rest = [a for a in length.args if a != advance]
        if len(rest) != len(length.args) - 1:
            return None
        stops = [a + offset for a in rest]
        if any(iv in s.symbols() for s in stops):
            return None
        extent = emin(*stops) - start if len(stops) > 1 else stops[0] - start
        # Whole steps that reach the end of the loop reach what is not behind it.
        if extent == (upper - lower) * stride or all(facts.prove_ge(trips * advance, s - start) for s in stops):
            return start, facts.simplify(emax(extent, 0))
        return start, facts.simplify(emax(emin(trips * advance, extent), 0))

    def is_written(self, buffer: Value) -> bool:
        base = views.root(buffer)
        return any(views.root(b) is base for inner in self.op.walk() for b in views.written(inner))

    # -- change

    def contract(self, product: _Product, acc: Value, build: Builder) -> Value:
        lhs, rhs = product.lhs, product.rhs
        batch = _BATCHES[: len(shape_of(acc.type)) - 2]
        element = element_of(acc.type)
        epilogue = None
        if product.scaling or product.negated:
            block = Block([element, element], ["sum", "acc"])
            value = self.chain(product.scaling, block.args[0], block)
            total = block.append((arith.Sub if product.negated else arith.Add).of(block.args[1], value)).results[0]
            block.append(loop.Yield.of(total))
            epilogue = Region([block])
        op = Contract.of(
            acc, lhs.buffer, rhs.buffer, self.scope.build(lhs.depth, build),
            [self.scope.build(o, build) for o in lhs.offsets], [self.scope.build(o, build) for o in rhs.offsets],
            f"{lhs.letters},{rhs.letters}->{batch}mn", self.prologue(lhs, element), self.prologue(rhs, element), epilogue,
            "".join(x for x in batch + "mnk" if x in lhs.padded + rhs.padded),
        )  # fmt: skip
        op.span = product.op.span
        out = build(op)
        out.hint = acc.hint
        return out

    def prologue(self, operand: _Operand, acc: Scalar) -> Region | None:
        steps = list(operand.steps)
        # Factors are converted to acc's type anyway.
        while steps and isinstance(steps[-1], arith.Cast) and element_of(steps[-1].results[0].type) is acc:
            steps.pop()
        if not steps:
            return None
        block = Block([element_of(operand.buffer.type)], ["x"])
        block.append(loop.Yield.of(self.chain(steps, block.args[0], block)))
        return Region([block])

    def chain(self, steps: list[Operation], value: Value, block: Block) -> Value:
        """The scalar form of elementwise ops on tiles, one after the other."""
        for step in steps:
            operands: list[Value] = []
            for v in step.operands:
                scalar = self.splat(v)
                if scalar is None:
                    operands.append(value)
                elif isinstance(scalar, Value):
                    operands.append(scalar)
                else:
                    operands.append(block.append(arith.Constant.of(scalar, element_of(v.type))).results[0])
            new = type(step)(operands, [element_of(step.results[0].type)], step.attrs)
            new.span = step.span
            value = block.append(new).results[0]
        return value

    def remove(self, gone: set[int]) -> None:
        """Takes accumulators off the loop, and the loop away when nothing is left to do in it."""
        op = self.op
        kept = [i for i in range(len(op.carried)) if i not in gone]
        new = loop.For.of(op.lower, op.upper, op.step, [op.inits[i] for i in kept])
        new.attrs.update(op.attrs)
        new.span = op.span
        old, block = op.body.block, new.body.block
        block.args[0].hint = op.iv.hint
        for old_arg, new_arg in zip([op.iv, *(op.carried[i] for i in kept)], block.args):
            old_arg.replace_by(new_arg)
            new_arg.hint = old_arg.hint
        self.end.set_operands([[self.end.values[i] for i in kept]])
        for inner in _dead_first(old):
            inner.erase()
        effects = any(_has_effect(inner) for inner in old if inner is not self.end)
        for inner in list(old):
            block.append(inner.detach())
        for i, r in zip(kept, new.results):
            op.results[i].replace_by(r)
            r.hint = op.results[i].hint
        Builder.at(op).insert(new)
        op.erase()
        if not effects and not any(r.uses for r in new.results):
            new.erase()


def _dead_first(block: Block) -> Iterator[Operation]:
    """Ops that nothing needs any more: their users come before them."""
    for op in reversed(block):
        if not any(r.uses for r in op.results) and op.results and (op.pure or isinstance(op, tile.Load)):
            yield op


def _has_effect(op: Operation) -> bool:
    """Whether an op does more than give values."""
    return any(not inner.pure and not isinstance(inner, (tile.Load, loop.For, loop.If, loop.Yield)) for inner in op.walk())


def _is_zero(value: Value) -> bool:
    number = value.op.value if isinstance(value.op, tile.Fill) else value
    return isinstance(number.op, arith.Constant) and number.op.value == 0
