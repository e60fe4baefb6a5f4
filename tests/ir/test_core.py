"""The SSA core: use lists stay right through every change, ops are declared once."""

from __future__ import annotations

import pickle

import pytest

from tilelang.dialects import arith, func, loop, mem, tile
from tilelang.ir.core import Block, Builder, Dialect, Module, Operation, Region, Value, VerifyError, attr, operand, operands, optional_operand, result
from tilelang.ir.text import print_op
from tilelang.ir.types import DYN, BufferType, Dyn, Scalar, TileType, f32, index
from tilelang.ir.verify import verify


class Sample(Operation, name="test.sample"):
    """An op with every kind of part."""

    first = operand()
    many = operands()
    maybe = optional_operand()
    size = attr(int)
    flag = attr(bool, False)
    out = result()


def block() -> tuple[Block, list[Value]]:
    b = Block([f32] * 4, ["a", "b", "c", "d"])
    return b, b.args


def test_parts_are_found_by_name() -> None:
    _, (a, b, c, d) = block()
    op = Sample([a, [b, c], d], [f32], {"size": 3})
    assert (op.first, op.many, op.maybe, op.size, op.flag, op.out) == (a, (b, c), d, 3, False, op.results[0])
    assert op.segments == (1, 2, 1)
    short = Sample([a], [f32], {})
    assert (short.many, short.maybe, short.segments) == ((), None, (1, 0, 0))
    with pytest.raises(VerifyError, match="attribute 'size' is missing"):
        _ = short.size
    op.flag = True
    assert op.attrs == {"size": 3, "flag": True}
    op.flag = False
    assert op.attrs == {"size": 3}


def test_uses_follow_every_change() -> None:
    _, (a, b, c, d) = block()
    op = Sample([a, [a, b], None], [f32], {"size": 1})
    assert list(a.uses) == [(op, 0), (op, 1)] and list(a.users) == [op]
    op.set_operand(1, c)
    assert list(a.uses) == [(op, 0)] and list(c.uses) == [(op, 1)]
    op.set_operands([d, [], a])
    assert not b.uses and not c.uses and list(a.uses) == [(op, 1)] and op.segments == (1, 0, 1)
    a.replace_by(b)
    assert op.maybe is b and not a.uses
    b.replace_by(b)
    assert op.maybe is b and list(b.uses) == [(op, 1)]
    op.drop_all_references()
    assert not b.uses and not d.uses


def test_erase_refuses_values_in_use() -> None:
    b, (x, *_) = block()
    neg = b.append(arith.Neg((x,), (f32,)))
    again = b.append(arith.Neg((neg.results[0],), (f32,)))
    with pytest.raises(AssertionError, match=r"still used by 'arith\.neg'"):
        neg.erase()
    again.replace_by(x)
    neg.erase()
    assert len(b) == 0 and not x.uses


def test_blocks_are_lists() -> None:
    b, (x, *_) = block()
    ops = [arith.Neg((x,), (f32,)) for _ in range(3)]
    b.append(ops[1])
    b.insert_before(ops[1], ops[0])
    b.append(ops[2])
    assert list(b) == ops and list(reversed(b)) == ops[::-1] and len(b) == 3
    ops[1].detach()
    assert list(b) == [ops[0], ops[2]] and ops[1].parent is None and ops[0].next is ops[2]
    assert b.terminator is None
    with pytest.raises(AssertionError, match="in a block already"):
        b.append(ops[0])
    # The current op may go while one walks.
    for op in b:
        op.erase()
    assert len(b) == 0 and b.first is None and b.last is None and bool(b)


def test_block_arguments() -> None:
    b, (x, *_) = block()
    y = b.add_arg(index, "y")
    assert (y.index, y.block, y.op, y.is_block_argument) == (4, b, None, True)
    b.erase_arg(0)
    assert [a.index for a in b.args] == [0, 1, 2, 3] and x not in b.args


def loop_function() -> tuple[Module, func.Func, loop.For]:
    f = func.Func.of("f", [("n", index, "scalar")])
    b = Builder(f.body.block)
    zero, one = b(arith.index_constant(0)), b(arith.index_constant(1))
    for_ = b.insert(loop.For.of(zero, f.args[0], one, [zero], hint="i"))
    inner = Builder(for_.body.block)
    inner.insert(loop.Yield.of(inner(arith.Add.of(for_.carried[0], for_.iv))))
    b.insert(func.Return.of())
    return Module.of([f], "mem"), f, for_


def test_walks() -> None:
    module, f, for_ = loop_function()
    names = [op.name for op in module.walk()]
    order = ["builtin.module", "func.func", "arith.constant", "arith.constant", "loop.for", "arith.add", "loop.yield", "func.return"]
    assert names == order
    inner_first = [op.name for op in module.walk(reverse=True)]
    assert inner_first == ["func.return", "loop.yield", "arith.add", "loop.for", "arith.constant", "arith.constant", "func.func", "builtin.module"]
    add = for_.body.block.first
    assert add is not None
    assert f.is_ancestor_of(add) and not add.is_ancestor_of(f) and add.ancestor_in(f.body.block) is for_
    assert func.functions(module) == [f]


def test_clone_is_deep_and_apart() -> None:
    module, _, for_ = loop_function()
    text = print_op(module)
    copy = module.clone()
    assert print_op(copy) == text
    verify(copy)
    for op in list(module.walk(reverse=True)):
        op.drop_all_references()
    verify(copy)
    values: dict[Value, Value] = {}
    again = for_.clone(values)
    assert values[for_.results[0]] is again.results[0] and values[for_.iv] is again.iv


def test_builders_give_spans() -> None:
    from tilelang.diagnostics import Span

    module, f, for_ = loop_function()
    for_.span = Span.at("x.tile", 3, 5)
    before = Builder.at(for_)(arith.index_constant(7)).op
    after = Builder.after(for_)(arith.index_constant(8)).op
    start = Builder.at_start(f.body.block, for_.span)(arith.index_constant(9)).op
    assert before is not None and after is not None and start is not None
    assert before.span == after.span == start.span == for_.span
    assert before.next is for_ and for_.next is after and f.body.block.first is start
    verify(module)


def test_a_second_definition_is_refused() -> None:
    class Add(Operation, name="arith.add"):
        pass

    with pytest.raises(RuntimeError, match=r"op 'arith\.add' is already defined by tilelang\.dialects\.arith"):
        Dialect("mine", [Add])


def test_types_are_interned_and_survive_pickling() -> None:
    a = TileType((Dyn("", 64), 32), f32)
    assert a is TileType((Dyn("", 64), 32), Scalar("f32"))
    assert a is not TileType((DYN, 32), f32) and a is not TileType((64, 32), f32)
    assert pickle.loads(pickle.dumps(a)) is a
    assert pickle.loads(pickle.dumps(BufferType((4,), f32, "local", (1,)))) is BufferType((4,), f32, "local", (1,))
    with pytest.raises(ValueError, match="'f33' is not a scalar type"):
        Scalar("f33")


def test_replacing_keeps_the_name_people_gave() -> None:
    b, (x, *_) = block()
    neg = b.append(arith.Neg((x,), (f32,)))
    neg.results[0].hint = "acc"
    new = b.append(arith.Exp((x,), (f32,)))
    neg.results[0].replace_by(new.results[0])
    assert new.results[0].hint == "acc"
    constant = b.append(arith.Constant.of(0, index))
    new.results[0].replace_by(constant.results[0])
    assert constant.results[0].hint is None


def test_a_region_belongs_to_one_op() -> None:
    op = tile.Map.of([], (), [], [])
    assert op.body.parent is op and op.body.block.parent_op is op
    alloc = mem.Alloc.of(BufferType((4,), f32, "local"))
    assert alloc.add_region(Region([Block()])).parent is alloc
