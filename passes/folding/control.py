"""Rewrites of control flow: known conditions and trip counts, carried values that never change."""

from __future__ import annotations

from tilelang.dialects import arith, loop
from tilelang.dialects.arith import constant_value
from tilelang.ir.core import Operation, Value
from tilelang.ir.rewrite import Patterns, Rewriter
from tilelang.ir.types import bool_
from tilelang.passes.folding.constants import can_be_constant

patterns = Patterns("control")


@patterns.on(loop.If)
def known_condition(op: loop.If, rw: Rewriter) -> bool:
    known = constant_value(op.condition)
    if known is None:
        return False
    rw.replace(op, *rw.inline_before((op.then if known else op.orelse).block, op, ()))
    return True


@patterns.on(loop.If)
def negated_condition(op: loop.If, rw: Rewriter) -> bool:
    """if not c: a else: b  =  if c: b else: a, when that does not leave an empty first branch."""
    inner = op.condition.op
    if not isinstance(inner, arith.Not) or len(op.orelse.block) == 1:
        return False
    op.regions.reverse()
    rw.set_operand(op, 0, inner.x)
    return True


@patterns.on(loop.If)
def empty_branches(op: loop.If, rw: Rewriter) -> bool:
    """Nothing but ends: a choice between numbers that are there already. Tiles and buffers stay: choosing copies them."""
    then, orelse = op.then.block.last, op.orelse.block.last
    if then is None or orelse is None or then.prev is not None or orelse.prev is not None or not all(can_be_constant(r.type) for r in op.results):
        return False
    rw.replace(op, *[x if x is y else rw(arith.Select.of(op.condition, x, y)) for x, y in zip(then.operands, orelse.operands)])
    return True


@patterns.on(loop.If)
def same_in_both_branches(op: loop.If, rw: Rewriter) -> bool:
    """A result for which both branches yield one value from outside is that value; true and false make the condition itself."""
    then, orelse = op.then.block.last, op.orelse.block.last
    if then is None or orelse is None:
        return False
    done = False
    for r, x, y in zip(op.results, then.operands, orelse.operands):
        if not r.uses:
            continue
        if x is y:
            rw.replace_value(r, x)
            done = True
        elif r.type is bool_ and constant_value(x) is True and constant_value(y) is False:
            rw.replace_value(r, op.condition)
            done = True
    return done


@patterns.on(loop.Assert)
def holds(op: loop.Assert, rw: Rewriter) -> bool:
    if constant_value(op.condition) is not True:
        return False
    rw.erase(op)
    return True


def _trips(lower: Value, upper: Value, step: Value) -> int | None:
    """0 when the range is known to be empty, 1 when known to hold one number, else None."""
    if lower is upper:
        return 0
    low, high, by = constant_value(lower), constant_value(upper), constant_value(step)
    if low is None or high is None:
        return None
    if high <= low:
        return 0
    return 1 if by is not None and high - low <= by else None


@patterns.on(loop.For)
def few_trips(op: loop.For, rw: Rewriter) -> bool:
    trips = _trips(op.lower, op.upper, op.step)
    if trips is None:
        return False
    if trips == 0:
        rw.replace(op, *op.inits)
    else:
        rw.replace(op, *rw.inline_before(op.body.block, op, (op.lower, *op.inits)))
    return True


@patterns.on(loop.For)
def unchanged_carried_values(op: loop.For, rw: Rewriter) -> bool:
    """A value that every trip hands on as it is: the initial one."""
    end = op.body.block.last
    if end is None:
        return False
    stays = [y is a or y is init for y, a, init in zip(end.operands, op.carried, op.inits)]
    if not any(stays):
        return False
    for arg, result, init, stay in zip(op.carried, op.results, op.inits, stays):
        if stay:
            rw.replace_value(arg, init)
            rw.replace_value(result, init)
    remove_carried(op, [i for i, stay in enumerate(stays) if stay], rw)
    return True


def remove_carried(op: loop.For, positions: list[int], rw: Rewriter) -> None:
    """Takes carried values out of a loop; their arguments must have no uses but in the end of the body, their results none at all."""
    block = op.body.block
    end = block.last
    assert isinstance(end, loop.Yield)
    kept = [i for i in range(len(op.inits)) if i not in positions]
    rw.set_operands(end, [[end.operands[i] for i in kept]])
    for i in reversed(positions):
        block.erase_arg(i + 1)
    new = loop.For([op.lower, op.upper, op.step, [op.inits[i] for i in kept]], [op.results[i].type for i in kept], op.attrs, span=op.span)
    move_body(op, new)
    rw.insert_before(op, new)
    for i, result in zip(kept, new.results):
        rw.replace_value(op.results[i], result)
    rw.erase(op)


def move_body(op: Operation, new: Operation) -> None:
    """Gives the regions of an op to a new one of the same kind."""
    for r in op.regions:
        new.add_region(r)
    op.regions = []
    for a, b in zip(op.results, new.results):
        b.hint = a.hint


@patterns.on(loop.While)
def unchanged_while_values(op: loop.While, rw: Rewriter) -> bool:
    """An argument of `before` that goes through the condition and the body as it is: the initial value."""
    condition, end = op.before.block.last, op.body.block.last
    if not isinstance(condition, loop.Condition) or end is None:
        return False
    done = False
    for i, arg in enumerate(op.before.block.args):
        init = op.inits[i]
        passed = [op.body.block.args[j] for j, v in enumerate(condition.values) if v is arg]
        if arg.uses and (end.operands[i] is init or end.operands[i] in passed):
            rw.replace_value(arg, init)
            done = True
    for j, v in enumerate(condition.values):
        # What the condition hands on from outside the loop is the same in the body and behind it.
        if v.block is not op.before.block and not _inside(v, op):
            for user in (op.body.block.args[j], op.results[j]):
                if user.uses:
                    rw.replace_value(user, v)
                    done = True
    return done


def _inside(value: Value, op: Operation) -> bool:
    block = value.block
    return block is not None and op.is_ancestor_of(block.parent_op)


@patterns.on(loop.While)
def never_runs(op: loop.While, rw: Rewriter) -> bool:
    """The condition is false at once: `before` runs a single time."""
    condition = op.before.block.last
    if not isinstance(condition, loop.Condition) or constant_value(condition.condition) is not False:
        return False
    rw.replace(op, *rw.inline_before(op.before.block, op, op.inits)[1:])
    return True


@patterns.on(loop.Parallel)
def few_parallel_trips(op: loop.Parallel, rw: Rewriter) -> bool:
    """Nothing to run: no loop. An axis with one index: that index. The grid keeps its axes, which kernels are cut by."""
    trips = [_trips(*bounds) for bounds in zip(op.lowers, op.uppers, op.steps)]
    if 0 in trips:
        rw.erase(op)
        return True
    single = [i for i, t in enumerate(trips) if t == 1]
    if op.grid or not single:
        return False
    for i in single:
        rw.replace_value(op.ivs[i], op.lowers[i])
    kept = [i for i in range(len(trips)) if i not in single]
    if kept:
        for i in reversed(single):
            op.body.block.erase_arg(i)
        rw.set_operands(op, [[group[i] for i in kept] for group in (op.lowers, op.uppers, op.steps)])
        return True
    rw.inline_before(op.body.block, op, op.lowers)
    rw.erase(op)
    return True
