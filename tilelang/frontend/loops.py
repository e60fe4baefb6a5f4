"""Loops: the grid, element loops, serial and pipelined loops, while; carried variables, and races between blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilelang.diagnostics import Diagnostics, Note
from tilelang.dialects import loop
from tilelang.frontend import ast
from tilelang.frontend.access import Place
from tilelang.frontend.calls import BindError, Signature, bind
from tilelang.frontend.context import Failed, ast_text
from tilelang.frontend.expressions import Expressions
from tilelang.frontend.flow import Flow, Names, target_names, used
from tilelang.frontend.joins import NoJoin, Slot, describe, slot_of
from tilelang.frontend.values import POISON, Buffer, Const, Index, Num, Range, Source, Tile, Tuple, Unset, Val
from tilelang.ir import index as ix
from tilelang.ir.core import Operation, Value
from tilelang.ir.types import bool_

Build: TypeAlias = "Callable[[list[Slot], list[Value]], tuple[Operation, list[Val]]]"

_WHO = {"grid": "blocks of the grid", "parallel": "iterations of the parallel loop"}


@dataclass(slots=True)
class BlockAxis:
    """One axis of a parallel loop: its symbol (None when there is only one block), the step, and the user's name for it."""

    symbol: str | None
    step: int
    name: str
    node: ast.Expr


@dataclass(slots=True)
class BlockLoop:
    """A parallel loop around the code. branches: run-time branches around the loop itself."""

    id: int
    kind: str
    axes: list[BlockAxis]
    branches: int


class Loops(Expressions):
    flow: Flow
    blocks: list[BlockLoop]
    loop_count = 0
    around: list[str]  # what the code stands in, for messages

    def run(self, body: list[ast.Stmt], live: Names) -> object:
        raise NotImplementedError

    # -- carried variables

    def carried_names(self, body: list[ast.Stmt], live: Names, own: Names, extra: Names = frozenset()) -> list[str]:
        """Variables that pass from one iteration to the next or out of the loop: set in the body, set before it, and read later."""
        effect = self.flow.block(body)
        later = live | (effect.reads - own) | extra
        return sorted(n for n in effect.assigned - own if n in later and n in self.scope and not isinstance(self.scope[n], Unset))

    def carry(self, names: list[str], node: ast.Stmt, build: Build) -> tuple[list[Slot], list[Value]]:
        """Builds a loop until the types of its variables agree at both ends; gives their slots and the loop's results. `build` gets slots and
        initial values, inserts the loop, and gives it with the values at the end of its body; it is undone when they need other slots."""
        inits = [self.scope[n] for n in names]
        slots = [self.initial_slot(n, v, node) for n, v in zip(names, inits)]
        outer, first, count = self.diagnostics, self.b.block.last, self.loop_count
        symbols, opaque, cache = dict(self.symbols), set(self.opaque), dict(self.known[-1])
        for last in (False, False, False, True):
            self.diagnostics = Diagnostics()
            results: list[Value] | None = None
            try:
                values = [x for n, v, s in zip(names, inits, slots) for x in self.joined_value(v, s, _name(n, node))]
                op, ends = build(slots, values)
                results = list(op.results)
                joined = [self.next_slot(n, s, v, node, symbols.keys(), count) for n, s, v in zip(names, slots, ends)]
            except Failed:
                joined, results = slots, None
            finally:
                trial, self.diagnostics = self.diagnostics, outer
            if last or all(a.same(b) for a, b in zip(slots, joined)):
                for d in trial.all:
                    outer.add(d)
                if results is None or trial.errors:
                    raise Failed
                return slots, results
            while self.b.block.last is not None and self.b.block.last is not first:
                self.b.block.last.erase()
            self.symbols, self.opaque, self.known[-1] = dict(symbols), set(opaque), dict(cache)
            slots = joined
        raise AssertionError

    def initial_slot(self, name: str, value: Val, node: ast.Stmt) -> Slot:
        slot = slot_of(value)
        if slot is None:
            if value is POISON:
                raise Failed
            what = f"{name!r}, which the loop changes,"
            self.error("wrong-type", node.span, what=what, found=value.describe(), expected="a number or a tile: other values cannot change at run time")
        return slot

    def next_slot(self, name: str, slot: Slot, end: Val, node: ast.Stmt, known: Collection[str], count: int) -> Slot:
        """The slot that holds a variable both before the loop and at the end of its body. known: the symbols before the loop; count: ranges then."""
        own = slot_of(end)
        if end is POISON:
            raise Failed
        if own is not None:
            try:
                joined = self.join(slot, outside(own, count), _name(name, node), f"'{name}'")
            except NoJoin:
                pass
            else:
                if not all(axis.extent.symbols() <= set(known) for axis in joined.axes or ()):
                    help = f"make {name!r} before the loop with the length that it has in the loop"
                    what = f"the length of {name!r}"
                    self.error("wrong-type", self.set_at(name, node).span, help=help, what=what, found="changed inside the loop", expected="the same in each iteration")
                return joined
        before = self.scope[name]
        help = "cast it, or start with a value of this type" if isinstance(before, (Num, Index, Const)) else "give it one dtype and shape: cast or reshape the new value"
        what = f"{name!r} at the end of the loop body"
        self.error("wrong-type", self.set_at(name, node).span, help=help, what=what, found=describe(end), expected=f"{_expected(before)}, as before the loop")

    def set_at(self, name: str, node: ast.Stmt) -> ast.Node:
        """The last statement of a loop that sets a variable."""
        found: ast.Node = node
        for n in ast.walk(node):
            if isinstance(n, (ast.Assign, ast.AugAssign)) and name in target_names(n.target):
                found = n
        return found

    def leave(self, before: dict[str, Val], effect_names: Names, node: ast.Stmt) -> None:
        """After a loop or branch: variables that it may have set, and that are not carried, are no longer set."""
        self.scope = before
        for name in effect_names:
            self.scope[name] = Unset(self.set_at(name, node).span)

    # -- serial loops

    def serial(self, node: ast.For, kind: str, call: ast.Call, live: Names) -> None:
        lower, upper, step, by, stages = self.serial_bounds(kind, call)
        plain = self.flow.plain(node)
        if plain.stop is not None:
            self.scope[plain.stop] = Const(False)
            guard = ast.If(node.span, ast.Unary(node.span, "not", ast.Name(node.span, plain.stop)), plain.body, [])
            body: list[ast.Stmt] = [guard]
        else:
            body = plain.body
        name = self.loop_name(node.target)
        own = frozenset((name,))
        effect = self.flow.block(body)
        names = self.carried_names(body, live, own)
        before = self.scope
        hi = self.simplify(ix.ceildiv(lower - upper, -step)) if step < 0 else upper
        lo = ix.const(0) if step < 0 else lower
        stride = by or max(step, 1)

        def build(slots: list[Slot], inits: list[Value]) -> tuple[Operation, list[Val]]:
            op = loop.For.of(self.value(lo), self.value(hi), self.value(ix.const(stride)), inits, stages, kind == "pipelined", name)
            with self.region(op, "a 'for' loop"), self.inside(op.body.block):
                start = self.loop_index(op.iv, name, lo, hi, stride)
                if step < 0:
                    start = lower + start * step
                self.enter(before, names, slots, op.carried)
                self.scope[name] = self.loop_variable(start, hi, by, name, node.target)
                ends = self.body_ends(body, live | effect.reads, names, slots, node)
            self.insert(op)
            return op, ends

        self.finish(names, node, build, before, effect.assigned | own)

    @contextmanager
    def region(self, op: Operation, what: str) -> Iterator[None]:
        """Builds the body of a loop; facts and variables of the body end with it. An op whose body failed gives up its operands."""
        scope, facts = self.scope, self.facts
        self.facts = facts.copy()
        self.around.append(what)
        try:
            yield
        except Failed:
            op.drop_all_references()
            raise
        finally:
            self.scope, self.facts = scope, facts
            self.around.pop()

    def enter(self, before: dict[str, Val], names: list[str], slots: list[Slot], args: Sequence[Value]) -> None:
        """Starts a body: the variables before the loop, of which the carried ones are block arguments."""
        self.scope = dict(before)
        rest = list(args)
        for n, slot in zip(names, slots):
            self.scope[n] = self.slot_value(slot, rest, n)

    def body_ends(self, body: list[ast.Stmt], live: Names, names: list[str], slots: list[Slot], node: ast.Stmt) -> list[Val]:
        """Runs a body, ends it with its yield and gives the carried variables then. Values that do not fit their slots are left to `carry`."""
        self.run(body, live)
        ends = [self.scope.get(n, POISON) for n in names]
        values: list[Value] = []
        if all(self.fits(v, s, n, node) for v, s, n in zip(ends, slots, names)):
            values = [x for v, s, n in zip(ends, slots, names) for x in self.joined_value(v, s, _name(n, node))]
        self.insert(loop.Yield.of(*values))
        return ends

    def fits(self, value: Val, slot: Slot, name: str, node: ast.Stmt) -> bool:
        """Whether a value needs no other slot, sources of axes apart."""
        own = slot_of(value)
        if own is None:
            return False
        trial, self.diagnostics = self.diagnostics, Diagnostics()
        try:
            return self.join(slot, own, _name(name, node), f"'{name}'").same(slot, sources=False)
        except (NoJoin, Failed):
            return False
        finally:
            self.diagnostics = trial

    def finish(self, names: list[str], node: ast.Stmt, build: Build, before: dict[str, Val], assigned: Names) -> None:
        """Builds a loop with carried variables; afterwards they are the loop's results."""
        try:
            slots, results = self.carry(names, node, build)
        except Failed:
            self.leave(before, assigned, node)
            self.scope.update(dict.fromkeys(names, POISON))
            return
        self.leave(before, assigned, node)
        for name, slot in zip(names, slots):
            self.scope[name] = self.slot_value(slot, results, name)

    def serial_bounds(self, kind: str, call: ast.Call) -> tuple[ix.Expr, ix.Expr, int, int, int]:
        """(lower, upper, step, by or 0, stages) of range(...) or pipelined(...)."""
        try:
            bound = bind(call, kind, Signature.parse("*bounds, by=, stages=" if kind == "pipelined" else "*bounds, by="))
        except BindError as e:
            self.error("wrong-arguments", e.at.span, function=kind, what=str(e))
        if not 1 <= len(bound.rest) <= (3 if kind == "range" else 2):
            self.error("wrong-arguments", call.span, function=kind, what=f"takes a length, or a start and a stop, got {len(bound.rest)} bounds")
        ends = [self.bound(n) for n in bound.rest[:2]]
        lower, upper = (ix.const(0), ends[0]) if len(ends) == 1 else (ends[0], ends[1])
        step = self.static_int(bound.rest[2], "the step of range") if len(bound.rest) == 3 else 1
        if step == 0:
            self.error("wrong-arguments", call.span, function="range", what="has the step 0")
        by_node = bound.get("by")
        by = 0
        if by_node is not None and not isinstance(by_node, ast.NoneLiteral):
            by = self.block_size(by_node)
            if len(bound.rest) == 3:
                self.error("wrong-arguments", by_node.span, function="range", what="takes a step or 'by', not both")
        stages = 1
        if kind == "pipelined":
            node = bound.get("stages")
            stages = self.static_int(node, "the number of stages") if node is not None else 2
            if stages < 1:
                self.error("wrong-arguments", call.span, function="pipelined", what=f"needs at least 1 stage, got {stages}")
        return lower, upper, step, by, stages

    def bound(self, node: ast.Expr) -> ix.Expr:
        value = self.eval(node)
        if isinstance(value, Range):
            name = node.span.text
            help = f"write range({name}.start, {name}.stop), or len({name}) for its length"
            self.wrong_type(node, "the bound of a loop", value, "an integer", help)
        return self.to_index(value, node)

    def block_size(self, node: ast.Expr) -> int:
        by = self.static_int(node, "the block size")
        if by < 1:
            self.error("empty-tile", node.span, what="a block", length=by, axis=0)
        return by

    def loop_name(self, target: ast.Expr) -> str:
        if isinstance(target, ast.TupleExpr) and len(target.items) == 1:
            target = target.items[0]
        if not isinstance(target, ast.Name):
            self.error("wrong-arguments", target.span, function="the loop", what="has one index, and several names stand before 'in'")
        return target.id

    def loop_index(self, iv: Value, name: str, lower: ix.Expr, upper: ix.Expr, step: int) -> ix.Expr:
        """The first index of an iteration, with what is known of it."""
        symbol = self.fresh(name, iv)
        self.facts.range(symbol, lower, upper)
        start = ix.sym(symbol)
        if step > 1:
            self.facts.multiple(start - lower, step)
            if self.facts.divisible(lower, step):
                self.facts.multiple(start, step)
        lo, hi = self.facts.bounds(start)
        return ix.const(lo) if lo is not None and lo == hi else start

    def loop_variable(self, start: ix.Expr, upper: ix.Expr, by: int, name: str, target: ast.Expr) -> Val:
        if not by:
            return self.index(start)
        self.loop_count += 1
        source = Source("range", str(self.loop_count), name, target.span)
        return Range(start, self.simplify(ix.emin(by, upper - start)), by, source)

    def unrolled(self, node: ast.For, items: tuple[Val, ...], live: Names) -> object:
        """A loop over compile-time values: its body once for each."""
        plain = self.flow.plain(node)
        effect = self.flow.block(plain.body)
        inner = live | effect.reads | ({plain.stop} if plain.stop else frozenset())
        if plain.stop is not None:
            self.scope[plain.stop] = Const(False)
        for item in items:
            body: list[ast.Stmt] = plain.body
            if plain.stop is not None:
                stop = self.scope[plain.stop]
                if isinstance(stop, Const) and stop.value:
                    break
                if not isinstance(stop, Const):
                    body = [ast.If(node.span, ast.Unary(node.span, "not", ast.Name(node.span, plain.stop)), plain.body, [])]
            self.bind_target(node.target, item)
            result = self.run(body, inner)
            if result is not None:
                return result
        return None

    def bind_target(self, target: ast.Expr, value: Val) -> None:
        raise NotImplementedError

    # -- while

    def while_loop(self, node: ast.While, live: Names) -> None:
        plain = self.flow.plain(node)
        test: ast.Expr = node.test
        if plain.stop is not None:
            self.scope[plain.stop] = Const(False)
            running = ast.Unary(node.test.span, "not", ast.Name(node.test.span, plain.stop))
            test = ast.BoolOp(node.test.span, "and", [running, node.test])
        effect = self.flow.block(plain.body)
        names = self.carried_names(plain.body, live, frozenset(), used(test))
        before = self.scope

        def build(slots: list[Slot], inits: list[Value]) -> tuple[Operation, list[Val]]:
            op = loop.While.of(inits)
            self.branches += 1
            try:
                with self.region(op, "a 'while' loop"), self.inside(op.before.block):
                    self.enter(before, names, slots, op.before.block.args)
                    truth = self.truth(self.eval(test), node.test, "while")
                    condition = self.constant(truth, bool_) if isinstance(truth, bool) else truth
                    self.insert(loop.Condition.of(condition, *op.before.block.args))
                with self.region(op, "a 'while' loop"), self.inside(op.body.block):
                    self.enter(before, names, slots, op.body.block.args)
                    ends = self.body_ends(plain.body, live | effect.reads | used(test), names, slots, node)
            finally:
                self.branches -= 1
            self.insert(op)
            return op, ends

        self.finish(names, node, build, before, effect.assigned)

    # -- parallel loops

    def parallel(self, node: ast.For, kind: str, call: ast.Call, live: Names) -> None:
        """grid(...): the blocks of the kernel; parallel(...): elements inside a block."""
        if kind == "grid" and self.around:
            self.error("nested-grid", call.span, outer=self.around[-1])
        try:
            bound = bind(call, kind, Signature.parse("*dims, by=" if kind == "grid" else "*dims"))
        except BindError as e:
            self.error("wrong-arguments", e.at.span, function=kind, what=str(e))
        if not bound.rest:
            self.error("wrong-arguments", call.span, function=kind, what="needs the length of at least one axis")
        for n in bound.rest:
            if isinstance(n, ast.TupleExpr):
                help = f"write the lengths one by one: {kind}({', '.join(item.span.text for item in n.items)}{', by=(...)' if kind == 'grid' else ''})"
                self.wrong_type(n, f"a length of {kind}", self.eval(n), "an integer", help)
        dims = [self.bound(n) for n in bound.rest]
        by = self.block_sizes(bound.get("by"), len(dims))
        targets = list(node.target.items) if isinstance(node.target, ast.TupleExpr) else [node.target]
        if len(targets) != len(dims):
            self.error("wrong-arguments", node.target.span, function=kind, what=f"has {len(dims)} axes, and {len(targets)} names stand before 'in'")
        names = [self.loop_name(t) for t in targets]
        jump = next((n for n in ast.walk(node) if isinstance(n, (ast.Break, ast.Continue)) and self.flow.plain(node).body is not node.body), None)
        if jump is not None:
            help = f"blocks of a {kind} loop are independent; use 'if' around the rest of the body"
            self.error("break-outside-loop", jump.span, help=help, statement=type(jump).__name__.lower())
        effect = self.flow.block(node.body)
        self.check_shared_variables(node, kind, effect.assigned - frozenset(names), effect.reads, live)
        zero, steps = self.value(ix.const(0)), [self.value(ix.const(b or 1)) for b in by]
        op = loop.Parallel.of([zero] * len(dims), [self.value(d) for d in dims], steps, kind == "grid", list(names))
        before, facts, outer_block, outer_grid = self.scope, self.facts, self.in_block, self.grid_id
        self.scope, self.facts, self.in_block = dict(before), facts.copy(), True
        self.around.append(f"a {kind} loop")
        self.loop_count += 1
        self.grid_id = self.loop_count
        try:
            with self.inside(op.body.block):
                axes: list[BlockAxis] = []
                for iv, name, dim, b, target in zip(op.ivs, names, dims, by, targets):
                    start = self.loop_index(iv, name, ix.const(0), dim, b or 1)
                    self.scope[name] = self.loop_variable(start, dim, b, name, target)
                    axes.append(BlockAxis(str(start) if isinstance(start, ix.Sym) else None, b or 1, name, target))
                self.blocks.append(BlockLoop(self.grid_id, kind, axes, self.branches))
                try:
                    self.run(node.body, effect.reads)
                finally:
                    self.blocks.pop()
                self.insert(loop.Yield.of())
        finally:
            self.scope, self.facts, self.in_block, self.grid_id = before, facts, outer_block, outer_grid
            self.around.pop()
        self.insert(op)
        self.leave(before, effect.assigned | frozenset(names), node)

    def block_sizes(self, node: ast.Expr | None, rank: int) -> list[int]:
        """The `by` argument of grid: 0 for an axis without."""
        if node is None or isinstance(node, ast.NoneLiteral):
            return [0] * rank
        value = self.eval(node)
        items = list(value.items) if isinstance(value, Tuple) else [value] * rank
        nodes = list(node.items) if isinstance(node, ast.TupleExpr) else [node] * len(items)
        if len(items) != rank:
            entries = "1 entry" if len(items) == 1 else f"{len(items)} entries"
            help = f"one block size an axis, None for an axis that is cut into single indices: by=({', '.join(['64'] * (rank - 1))}, None)" if rank > 1 else "by=64"
            self.error("wrong-arguments", node.span, help=help, function="grid", what=f"has {'1 axis' if rank == 1 else f'{rank} axes'}, and 'by' has {entries}")
        out: list[int] = []
        for item, at in zip(items, nodes):
            if isinstance(item, Const) and item.value is None:
                out.append(0)
            elif isinstance(item, Const) and type(item.value) is int:
                if item.value < 1:
                    self.error("empty-tile", at.span, what="a block", length=item.value, axis=len(out))
                out.append(item.value)
            elif isinstance(item, (Index, Num)):
                self.error("not-constant", at.span, what="a block size", value=ast_text(at))
            else:
                self.wrong_type(at, "a block size", item, "an integer or None")
        return out

    def check_shared_variables(self, node: ast.For, kind: str, assigned: Names, reads: Names, live: Names) -> None:
        """Blocks run in any order: a variable from outside cannot be changed by them."""
        for name in sorted(assigned):
            value = self.scope.get(name)
            if value is None or isinstance(value, (Unset, Buffer)) or value is POISON:
                continue
            if name in reads or name in live:
                why = "it is a variable from outside the loop"
                help = "write to a tensor made by empty(...), or use atomic_add on one" if kind == "grid" else "use a serial loop: range(...)"
                self.error("block-race", self.set_at(name, node).span, help=help, who=_WHO[kind], name=name, why=why)

    def check_race(self, place: Place) -> None:
        """Two blocks of a loop around must not write the same elements, as far as that can be seen from the indices."""
        if place.indexed:
            return
        used = frozenset[str]().union(*(e.offset.symbols() | (e.axis.extent.symbols() if e.axis else frozenset()) for e in place.entries))
        if used & self.opaque:
            return
        for block in self.blocks:
            if place.buffer.home >= block.id or self.branches > block.branches:
                continue
            for axis in block.axes:
                if axis.symbol is None:
                    continue
                why = self.overlap(place, axis, used)
                if why is not None:
                    help = f"index {place.buffer.name!r} by all indices of the {block.kind} loop" + (", or use atomic_add" if block.kind == "grid" else "")
                    notes = [Note(f"'{axis.name}' is made here", axis.node.span), self.made(place.buffer)]
                    self.error("block-race", place.node.span, notes, help, who=_WHO[block.kind], name=place.buffer.name, why=why)

    def overlap(self, place: Place, axis: BlockAxis, used: frozenset[str]) -> str | None:
        """Why two blocks that differ along an axis write the same elements; None when that is not certain."""
        assert axis.symbol is not None
        if axis.symbol not in used:
            return f"the place does not depend on {axis.name!r}"
        entries = [e for e in place.entries if axis.symbol in e.offset.symbols()]
        if len(entries) != 1:
            return None
        entry = entries[0]
        length = entry.axis.length if entry.axis is not None else 1
        if length is None or not entry.offset.is_affine((axis.symbol,)):
            return None
        coefficient = entry.offset.coefficient(axis.symbol).value
        if coefficient is None:
            return None
        shift = abs(coefficient) * axis.step
        if shift == 0:
            return f"the place does not depend on {axis.name!r}"
        if (length - 1) * entry.step >= shift and shift % entry.step == 0:
            return f"along {axis.name!r} it moves by {shift}, and writes {length} elements"
        return None


def outside(slot: Slot, count: int) -> Slot:
    """A slot as the next iteration sees it: an axis along a range of this iteration (made after `count` ranges) has no source there."""
    if slot.items is not None:
        return replace(slot, items=tuple(outside(s, count) for s in slot.items))
    if slot.axes is None:
        return slot
    return replace(slot, axes=tuple(a._replace(source=None) if a.source and a.source.kind == "range" and int(a.source.id) > count else a for a in slot.axes))


def _name(name: str, node: ast.Node) -> ast.Name:
    return ast.Name(node.span, name)


def _expected(value: Val) -> str:
    return describe(value) if isinstance(value, (Tile, Num, Index, Const, Tuple)) else "what it was"
