"""Patterns and the driver that applies them until nothing changes.

    patterns = Patterns("canonicalize")

    @patterns.on(arith.Neg)
    def double_negation(op: arith.Neg, rw: Rewriter) -> bool:
        inner = op.x.op
        if not isinstance(inner, arith.Neg):
            return False
        rw.replace(op, inner.x)
        return True

A pattern looks at one op, changes the program only through the rewriter, and says whether it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tilelang.diagnostics import CompilerBug
from tilelang.ir.core import Block, Builder, Operation, Value

Pattern = Callable[[Any, "Rewriter"], bool]
P = TypeVar("P", bound=Pattern)
O = TypeVar("O", bound=Operation)  # noqa: E741


class Patterns:
    """Pattern functions by the class of op that they look at; a base class stands for all classes below it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: list[tuple[type[Operation], Pattern]] = []
        self._found: dict[type[Operation], tuple[Pattern, ...]] = {}

    def on(self, *classes: type[Operation]) -> Callable[[P], P]:
        """Decorator: the function rewrites ops of these classes."""

        def add(pattern: P) -> P:
            self.entries += [(cls, pattern) for cls in classes]
            self._found.clear()
            return pattern

        return add

    def include(self, other: Patterns) -> None:
        """Adds the patterns of another set behind those here."""
        self.entries += other.entries
        self._found.clear()

    def of(self, cls: type[Operation]) -> tuple[Pattern, ...]:
        """The patterns for ops of exactly this class, in the order in which they were added."""
        found = self._found.get(cls)
        if found is None:
            found = self._found[cls] = tuple(dict.fromkeys(p for c, p in self.entries if issubclass(cls, c)))
        return found


class Rewriter:
    """Changes the program and remembers which ops deserve another look. New ops get the span of the op they are made for."""

    def __init__(self) -> None:
        self.stack: list[Operation] = []
        self.waiting: set[Operation] = set()
        self.op: Operation | None = None  # the op that a pattern looks at

    def visit(self, op: Operation | None) -> None:
        """Looks at the op (again)."""
        if op is not None and op not in self.waiting:
            self.waiting.add(op)
            self.stack.append(op)

    def visit_users(self, value: Value) -> None:
        for user, _ in value.uses:
            self.visit(user)

    def __call__(self, op: Operation) -> Value:
        """Inserts an op with one result before the current one; its result."""
        assert self.op is not None
        return self.insert_before(self.op, op).results[0]

    def insert_before(self, ref: Operation, op: O) -> O:
        assert ref.parent is not None
        if op.span is None:
            op.span = ref.span
        ref.parent.insert_before(ref, op)
        for inner in op.walk():
            self.visit(inner)
        return op

    def insert_after(self, ref: Operation, op: O) -> O:
        assert ref.parent is not None
        if op.span is None:
            op.span = ref.span
        ref.parent.insert_before(ref.next, op)
        for inner in op.walk():
            self.visit(inner)
        return op

    def builder(self, ref: Operation) -> Builder:
        """A builder before `ref` whose ops are looked at too."""
        assert ref.parent is not None
        return _Noting(self, ref.parent, ref, ref.span)

    def replace(self, op: Operation, *values: Value) -> None:
        """Gives all uses of the results to `values` and erases the op."""
        assert len(values) == len(op.results)
        for old, new in zip(op.results, values):
            self.replace_value(old, new)
        self.erase(op)

    def replace_op(self, op: Operation, new: O) -> O:
        """Puts `new` in the place of `op`."""
        self.insert_before(op, new)
        self.replace(op, *new.results)
        return new

    def replace_value(self, old: Value, new: Value) -> None:
        self.visit_users(old)
        old.replace_by(new)
        if new.op is not None:
            self.visit(new.op)

    def set_operand(self, op: Operation, i: int, value: Value) -> None:
        self.visit(op.operands[i].op)
        op.set_operand(i, value)
        self.visit(op)

    def set_operands(self, op: Operation, groups: Sequence[Value | Sequence[Value] | None]) -> None:
        """Replaces all operands; one entry a declared operand."""
        for v in op.operands:
            self.visit(v.op)
        op.set_operands(groups)
        self.visit(op)

    def erase(self, op: Operation) -> None:
        """Removes the op and all inside it; what its operands come from is looked at, since it may be dead now."""
        for inner in op.walk():
            for v in inner.operands:
                self.visit(v.op)
        for inner in op.walk():
            self.waiting.discard(inner)
        op.erase()

    def changed(self, op: Operation) -> None:
        """An op was changed in place: it and the users of its results are looked at."""
        self.visit(op)
        for r in op.results:
            self.visit_users(r)

    def inline_before(self, block: Block, ref: Operation, args: Sequence[Value]) -> tuple[Value, ...]:
        """Moves the ops of a block before `ref`, its arguments replaced by `args`; the operands of its terminator, which is dropped.
        The op that held the block must be erased by the caller."""
        for old, new in zip(block.args, args):
            self.replace_value(old, new)
        assert ref.parent is not None
        end = block.terminator
        for op in list(block):
            if op is not end:
                ref.parent.insert_before(ref, op.detach())
                self.visit(op)
        if end is None:
            return ()
        values = tuple(end.operands)
        self.erase(end)
        return values


class _Noting(Builder):
    __slots__ = ("rewriter",)

    def __init__(self, rewriter: Rewriter, block: Block, before: Operation | None, span: Any) -> None:
        super().__init__(block, before, span)
        self.rewriter = rewriter

    def insert(self, op: O) -> O:
        super().insert(op)
        self.rewriter.visit(op)
        return op


def is_dead(op: Operation) -> bool:
    """Whether nothing is lost without the op: pure, and no result used."""
    return op.pure and not any(r.uses for r in op.results)


def rewrite_greedily(root: Operation, patterns: Patterns, limit: int | None = None, start: Sequence[Operation] | None = None) -> bool:
    """Applies patterns to the ops inside root until none fits, and drops dead pure ops on the way; whether anything changed.

    start: where something has changed since the same patterns were applied to all ops: only these, and what reads them, are looked at. limit: the number of rewrites after which it gives up with a CompilerBug that names the pattern; by default 1000 and 50 an op."""
    rw = Rewriter()
    ops = [op for op in root.walk() if op is not root] if start is None else start
    limit = 1000 + 50 * len(ops) if limit is None else limit
    for op in reversed(ops):
        if start is None:
            rw.visit(op)
        else:
            rw.changed(op)
    count = 0
    while rw.stack:
        op = rw.stack.pop()
        if op not in rw.waiting:
            continue  # erased meanwhile
        rw.waiting.discard(op)
        if is_dead(op):
            rw.erase(op)
            count += 1
            continue
        rw.op = op
        for pattern in patterns.of(type(op)):
            if pattern(op, rw):
                count += 1
                if count > limit:
                    raise CompilerBug(f"pattern '{pattern.__name__}' of {patterns.name} does not come to an end", op=op.name, span=op.span)
                if op.parent is not None:
                    rw.visit(op)
                break
    return count > 0
