"""Communication between ranks: rank, world, put, fence, signal, wait, barrier. See dialects.dist for what they mean."""

from __future__ import annotations

from tilelang.dialects import dist
from tilelang.frontend import ast
from tilelang.frontend.access import Place
from tilelang.frontend.calls import Arguments, language
from tilelang.frontend.context import ast_text
from tilelang.frontend.reductions import Reductions
from tilelang.frontend.values import Const, Index, Val, dtype_text
from tilelang.ir import index as ix
from tilelang.ir.core import Value

NOTHING = Const(None)


class Communication(Reductions):
    @language("")
    def do_rank(self, a: Arguments) -> Val:
        return self.constant_of_run(dist.Rank.of(), "rank", 0)

    @language("")
    def do_world(self, a: Arguments) -> Val:
        return self.constant_of_run(dist.World.of(), "world", 1)

    def constant_of_run(self, op: dist.Rank | dist.World, hint: str, least: int) -> Index:
        """A symbol for a number that is the same throughout a run."""
        name = self.fresh(hint, self.emit(op))
        self.facts.range(name, least, None)
        return Index(ix.sym(name))

    @language("place, value, peer")
    def do_put(self, a: Arguments) -> Val:
        place = self.symmetric_place(a["place"], "put")
        value = self.operand_of(a["value"])[1]
        peer = self.peer(a["peer"])
        with self.at(a.node.span):
            what = self.store_number(value, place.buffer, a["value"]) if place.is_element else self.fitted(place, value, a["value"]).ssa
            offsets = [self.value(e.offset) for e in place.entries]
            self.insert(dist.Put.of(what, place.buffer.ssa, offsets, peer, place.dropped, place.steps))
        return NOTHING

    @language("peer")
    def do_fence(self, a: Arguments) -> Val:
        peer = self.peer(a["peer"])
        with self.at(a.node.span):
            self.insert(dist.Fence.of(peer))
        return NOTHING

    @language("place, value, peer, kind=")
    def do_signal(self, a: Arguments) -> Val:
        kind = self.choice(a, "kind", ("set", "add"))
        place, value = self.word(a, "signal")
        peer = self.peer(a["peer"])
        with self.at(a.node.span):
            self.insert(dist.Signal.of(value, place.buffer.ssa, [self.value(e.offset) for e in place.entries], peer, kind))
        return NOTHING

    @language("place, value, cmp=")
    def do_wait(self, a: Arguments) -> Val:
        cmp = self.choice(a, "cmp", ("ge", *dist.COMPARISONS))
        place, value = self.word(a, "wait")
        with self.at(a.node.span):
            self.arrived(self.emit(dist.Wait.of(place.buffer.ssa, [self.value(e.offset) for e in place.entries], value, cmp)))
        return NOTHING

    @language("")
    def do_barrier(self, a: Arguments) -> Val:
        with self.at(a.node.span):
            self.insert(dist.Barrier.of())
        return NOTHING

    # -- arguments

    def choice(self, a: Arguments, name: str, options: tuple[str, ...]) -> str:
        """A text argument; the first option when it is left out."""
        found = self.static(a.get(name), name, options[0])
        if found not in options:
            shown = ", ".join(f'"{o}"' for o in dict.fromkeys(options))
            self.error("wrong-arguments", a.node.span, function=a.name, what=f"takes {name} as one of {shown}, got {found!r}")
        return str(found)

    def peer(self, node: ast.Expr) -> Value:
        return self.value(self.to_index(self.eval(node), node, "the number of a rank"))

    def symmetric_place(self, node: ast.Expr, function: str) -> Place:
        place = self.place(node)
        if not dist.is_symmetric(place.buffer.ssa):
            help = f"declare the parameter as Symmetric[{', '.join([dtype_text(place.buffer.dtype), *map(str, place.buffer.dims)])}]"
            self.wrong_type(node, f"the place of {function}", place.buffer, "a place in memory that every rank has", help)
        if place.indexed:
            self.error("wrong-arguments", node.span, function=function, what="takes a place of ranges and scalars, not of index tiles")
        return place

    def word(self, a: Arguments, function: str) -> tuple[Place, Value]:
        """The integer that a signal or wait is about, and the value."""
        node = a["place"]
        place = self.symmetric_place(node, function)
        if not place.is_element:
            self.rank_error(node.span, f"the place of {function}", len(place.axes), "one element")
        if not place.buffer.dtype.is_integer or place.buffer.dtype.bits < 32:
            self.error("dtype-unsupported", node.span, [self.made(place.buffer)], f"use i64, as {ast_text(node)} may only be i32, u32, i64 or u64", what=function, dtype=dtype_text(place.buffer.dtype))
        with self.at(a.node.span):
            return place, self.store_number(self.operand_of(a["value"])[1], place.buffer, a["value"])
