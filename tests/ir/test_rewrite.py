"""The pattern driver: it reaches a fixpoint, looks again where something changed, and names a pattern that never ends."""

from __future__ import annotations

from typing import Any

import pytest

from tilelang.diagnostics import CompilerBug
from tilelang.dialects import arith, func, load_all, loop
from tilelang.ir.core import Module, Operation
from tilelang.ir.parser import parse_module
from tilelang.ir.rewrite import Patterns, Rewriter, rewrite_greedily
from tilelang.ir.text import print_op
from tilelang.ir.types import f32
from tilelang.ir.verify import verify

load_all()


def module(body: str, result: str = "%r", more: str = "") -> Module:
    return parse_module(f"func.func @f(%x: f32 scalar, %c: bool scalar) -> (f32) {{\n{body}\n  func.return {result}\n}}{more}")


def names(m: Module) -> list[str]:
    f = m.body.block.first
    assert f is not None
    return [op.name.partition(".")[2] for op in f.walk() if op is not f]


def test_a_chain_collapses_and_the_dead_go() -> None:
    patterns = Patterns("test")

    @patterns.on(arith.Neg)
    def twice(op: arith.Neg, rw: Rewriter) -> bool:
        inner = op.x.op
        if not isinstance(inner, arith.Neg):
            return False
        rw.replace(op, inner.x)
        return True

    lines = ["  %0 = arith.neg %x : f32"] + [f"  %{i} = arith.neg %{i - 1} : f32" for i in range(1, 9)]
    m = module("\n".join(lines), "%8")
    assert rewrite_greedily(m, patterns)
    assert names(m) == ["neg", "return"]
    assert not rewrite_greedily(m, patterns)
    verify(m)


def test_users_are_looked_at_again() -> None:
    """The pattern on exp fits only after tanh has become a constant, which comes later in the program's order of definition."""
    patterns = Patterns("test")
    seen: list[str] = []

    @patterns.on(arith.Exp)
    def exp_of_constant(op: arith.Exp, rw: Rewriter) -> bool:
        seen.append("exp")
        if not isinstance(op.x.op, arith.Constant):
            return False
        rw.replace_op(op, arith.Constant.of(1.0, f32))
        return True

    @patterns.on(loop.If)
    def first_branch(op: loop.If, rw: Rewriter) -> bool:
        rw.replace(op, *rw.inline_before(op.then.block, op, ()))
        return True

    m = module("""
      %0 = loop.if %c {
        %1 = arith.constant 2.0 : f32
        loop.yield %1
      } else {
        loop.yield %x
      } : f32
      %r = arith.exp %0 : f32""")
    rewrite_greedily(m, patterns)
    assert names(m) == ["constant", "return"]
    verify(m)


def test_new_ops_take_the_span_and_are_looked_at() -> None:
    patterns = Patterns("test")

    @patterns.on(arith.Abs)
    def to_neg(op: arith.Abs, rw: Rewriter) -> bool:
        rw.replace_op(op, arith.Max([op.x, rw(arith.Neg([op.x], [f32]))], [f32]))
        return True

    @patterns.on(arith.Max)
    def to_sqrt(op: arith.Max, rw: Rewriter) -> bool:
        rw.replace_op(op, arith.Sqrt([op.a], [f32]))
        return True

    m = module("%r = arith.abs %x : f32")
    f = m.body.block.first
    assert f is not None and f.regions[0].block.first is not None
    span = f.regions[0].block.first.span
    rewrite_greedily(m, patterns)
    assert names(m) == ["sqrt", "return"]
    assert span is not None and f.regions[0].block.first.span == span


def test_base_classes_stand_for_all_below_and_sets_add_up() -> None:
    one, two = Patterns("one"), Patterns("two")

    @one.on(arith.Unary)
    def any_unary(op: Operation, rw: Rewriter) -> bool:
        return False

    @two.on(arith.Neg, arith.Exp)
    def some(op: Operation, rw: Rewriter) -> bool:
        return False

    one.include(two)
    assert one.of(arith.Neg) == (any_unary, some)
    assert one.of(arith.Sqrt) == (any_unary,)
    assert one.of(func.Return) == ()


def test_endless_patterns_are_named() -> None:
    patterns = Patterns("test")

    @patterns.on(arith.Neg)
    def to_exp(op: Any, rw: Rewriter) -> bool:
        rw.replace_op(op, arith.Exp([op.x], [f32]))
        return True

    @patterns.on(arith.Exp)
    def to_neg(op: Any, rw: Rewriter) -> bool:
        rw.replace_op(op, arith.Neg([op.x], [f32]))
        return True

    with pytest.raises(CompilerBug, match=r"pattern 'to_(exp|neg)' of test does not come to an end") as caught:
        rewrite_greedily(module("%r = arith.neg %x : f32"), patterns)
    assert caught.value.span is not None


def test_erasing_an_op_forgets_what_is_inside() -> None:
    patterns = Patterns("test")
    looked: list[str] = []

    @patterns.on(loop.If)
    def drop(op: loop.If, rw: Rewriter) -> bool:
        rw.erase(op)
        return True

    @patterns.on(arith.Neg, loop.Print)
    def look(op: Operation, rw: Rewriter) -> bool:
        looked.append(op.name)
        return False

    m = module("loop.if %c {\n%0 = arith.neg %x : f32\nloop.print %0 {parts = [none]}\n}", "%x")
    rewrite_greedily(m, patterns)
    assert names(m) == ["return"] and looked == []
    verify(m)


def test_builder_and_operands() -> None:
    patterns = Patterns("test")

    @patterns.on(arith.Sub)
    def to_add(op: arith.Sub, rw: Rewriter) -> bool:
        b = rw.builder(op)
        neg = b(arith.Neg([op.b], [f32]))
        after = rw.insert_after(op, arith.Add([op.a, neg], [f32]))
        rw.replace(op, after.results[0])
        return True

    @patterns.on(arith.Neg)
    def fold_neg(op: arith.Neg, rw: Rewriter) -> bool:
        if not isinstance(op.x.op, arith.Constant):
            return False
        rw.replace_op(op, arith.Constant.of(-op.x.op.value, f32))
        return True

    @patterns.on(arith.Add)
    def swap(op: arith.Add, rw: Rewriter) -> bool:
        if not isinstance(op.b.op, arith.Constant):
            return False
        rw.set_operands(op, [op.b, op.a])
        return True

    m = module("%0 = arith.constant 2.0 : f32\n%r = arith.sub %x, %0 : f32")
    rewrite_greedily(m, patterns)
    f = m.body.block.first
    assert f is not None
    assert "%cm2_f32 = arith.constant -2.0 : f32" in print_op(f) and "arith.add %cm2_f32, %x" in print_op(f)
    verify(m)
