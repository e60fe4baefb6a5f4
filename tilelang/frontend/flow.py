"""What the builder must know of a program's control flow: which variables statements set and use, and loops without break and continue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilelang.frontend import ast

Names = frozenset[str]
_NONE: Names = frozenset()


def used(node: ast.Expr | None) -> Names:
    """Names that an expression reads."""
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name)) if node is not None else _NONE


def target_names(target: ast.Expr) -> Names:
    """Variables that an assignment to `target` sets."""
    match target:
        case ast.Name(id=name):
            return frozenset((name,))
        case ast.TupleExpr(items=items):
            return frozenset[str]().union(*map(target_names, items))
        case _:
            return _NONE


def _target_uses(target: ast.Expr) -> Names:
    match target:
        case ast.Name():
            return _NONE
        case ast.TupleExpr(items=items):
            return frozenset[str]().union(*map(_target_uses, items))
        case _:
            return used(target)


@dataclass(frozen=True, slots=True)
class Effect:
    """reads: variables read before they are surely set. sets: surely set. assigned: perhaps set."""

    reads: Names
    sets: Names
    assigned: Names


class Flow:
    """Effects of statements and blocks, computed once each. Keeps the trees it was asked about alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, Effect]] = {}
        self._plain: dict[int, tuple[ast.For | ast.While, PlainLoop]] = {}

    def block(self, body: list[ast.Stmt]) -> Effect:
        found = self._known.get(id(body))
        if found is None:
            reads, sets, assigned = _NONE, _NONE, _NONE
            for s in body:
                e = self.statement(s)
                reads, sets, assigned = reads | (e.reads - sets), sets | e.sets, assigned | e.assigned
            found = self._known[id(body)] = body, Effect(reads, sets, assigned)
        return found[1]

    def statement(self, s: ast.Stmt) -> Effect:
        found = self._known.get(id(s))
        if found is None:
            found = self._known[id(s)] = s, self._effect(s)
        return found[1]

    def _effect(self, s: ast.Stmt) -> Effect:
        match s:
            case ast.Assign(target=target, value=value, annotation=annotation):
                names = target_names(target)
                return Effect(used(value) | used(annotation) | _target_uses(target), names, names)
            case ast.AugAssign(target=target, value=value):
                names = target_names(target)
                return Effect(used(value) | used(target), names, names)
            case ast.For(target=target, iter=iterable, body=body):
                inner, names = self.block(body), target_names(target)
                return Effect(used(iterable) | (inner.reads - names), _NONE, inner.assigned | names)
            case ast.While(test=test, body=body):
                inner = self.block(body)
                return Effect(used(test) | inner.reads, _NONE, inner.assigned)
            case ast.If(test=test, body=body, orelse=orelse):
                a, b = self.block(body), self.block(orelse)
                return Effect(used(test) | a.reads | b.reads, a.sets & b.sets, a.assigned | b.assigned)
            case ast.Return(value=value):
                return Effect(used(value), _NONE, _NONE)
            case ast.Assert(test=test, message=message):
                return Effect(used(test) | used(message), _NONE, _NONE)
            case ast.ExprStmt(value=value):
                return Effect(used(value), _NONE, _NONE)
            case _:
                return Effect(_NONE, _NONE, _NONE)

    def live_after(self, body: list[ast.Stmt], live_out: Names) -> list[Names]:
        """For each statement of a block, the variables that are read after it."""
        out: list[Names] = []
        live = live_out
        for s in reversed(body):
            out.append(live)
            e = self.statement(s)
            live = (live - e.sets) | e.reads
        out.reverse()
        return out

    def plain(self, loop: ast.For | ast.While) -> PlainLoop:
        """The loop without break and continue."""
        found = self._plain.get(id(loop))
        if found is None:
            found = self._plain[id(loop)] = loop, _without_jumps(loop)
        return found[1]


@dataclass(frozen=True, slots=True)
class PlainLoop:
    """A loop body in which break and continue set flags. stop: the flag of break, None when there is no break in it."""

    body: list[ast.Stmt]
    stop: str | None


def _jumps(body: Iterable[ast.Stmt]) -> set[type[ast.Stmt]]:
    """Which of Break and Continue a block has for the loop around it."""
    found: set[type[ast.Stmt]] = set()
    for s in body:
        if isinstance(s, (ast.Break, ast.Continue)):
            found.add(type(s))
        elif isinstance(s, ast.If):
            found |= _jumps(s.body) | _jumps(s.orelse)
    return found


def _without_jumps(loop: ast.For | ast.While) -> PlainLoop:
    jumps = _jumps(loop.body)
    if not jumps:
        return PlainLoop(loop.body, None)
    skip, stop = f"continue@{loop.span.start}", f"break@{loop.span.start}"
    start = ast.Assign(loop.span, ast.Name(loop.span, skip), ast.Bool(loop.span, False))
    body: list[ast.Stmt] = [start, *_guarded(loop.body, skip, stop)]
    return PlainLoop(body, stop if ast.Break in jumps else None)


def _guarded(body: list[ast.Stmt], skip: str, stop: str) -> list[ast.Stmt]:
    out: list[ast.Stmt] = []
    for i, s in enumerate(body):
        if isinstance(s, (ast.Break, ast.Continue)):
            for flag in (skip, stop) if isinstance(s, ast.Break) else (skip,):
                out.append(ast.Assign(s.span, ast.Name(s.span, flag), ast.Bool(s.span, True)))
            return out
        if isinstance(s, ast.If) and _jumps([s]):
            out.append(ast.If(s.span, s.test, _guarded(s.body, skip, stop), _guarded(s.orelse, skip, stop)))
            rest = _guarded(body[i + 1 :], skip, stop)
            if rest:
                out.append(ast.If(s.span, ast.Unary(s.span, "not", ast.Name(s.span, skip)), rest, []))
            return out
        out.append(s)
    return out
