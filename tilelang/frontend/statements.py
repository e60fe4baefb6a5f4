"""Statements and functions: assignments, choices, returns, inlined helper functions."""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.diagnostics import Diagnostics, Note, Span
from tilelang.dialects import loop, mem
from tilelang.frontend import ast
from tilelang.frontend.access import Place
from tilelang.frontend.calls import BindError, bind
from tilelang.frontend.calls import Signature as Parameters
from tilelang.frontend.context import Failed, ast_text
from tilelang.frontend.env import LOOPS, TYPE_FORMS, Env, PythonEnv, evaluate
from tilelang.frontend.flow import Flow, Names
from tilelang.frontend.joins import same_value
from tilelang.frontend.loops import Loops
from tilelang.frontend.values import (
    POISON,
    Axis,
    Buffer,
    Builtin,
    Const,
    DType,
    DtypeParam,
    Function,
    Index,
    Num,
    Range,
    Tile,
    Tuple,
    TypeForm,
    Unset,
    Val,
    dtype_text,
    is_number,
)  # fmt: skip
from tilelang.ir import index as ix
from tilelang.ir.core import Block
from tilelang.ir.types import Scalar

MAX_STATEMENTS = 20_000  # after unrolling and inlining
MAX_UNROLLED = 4096
MAX_CALLS = 64  # helper functions inside helper functions


@dataclass(slots=True)
class Returned:
    """What a return statement gave."""

    value: Val
    node: ast.Return


class FunctionBuilder(Loops):
    """Builds the body of one function, with the helper functions it calls."""

    def __init__(self, diagnostics: Diagnostics, level: str, facts: ix.Facts, block: Block, env: Env) -> None:
        super().__init__(diagnostics, level, facts, block)
        self.env = env
        self.scope = {}
        self.dtype_choice: dict[str, Scalar] = {}
        self.static_dims: dict[str, int] = {}
        self.flow = Flow()
        self.blocks = []
        self.around = []
        self.calls: list[tuple[ast.Function, Span]] = []
        self.statements = 0

    @classmethod
    def alone(cls, diagnostics: Diagnostics, env: Env, names: dict[str, Val]) -> FunctionBuilder:
        """A builder for compile-time expressions; what it emits is thrown away."""
        made = cls(diagnostics, "tile", ix.Facts(), Block(), env)
        made.scope = names
        made.symbols_matter = False
        return made

    # -- blocks of statements

    def run(self, body: list[ast.Stmt], live: Names) -> Returned | None:
        for s, after in zip(body, self.flow.live_after(body, live), strict=True):
            self.statements += 1
            if self.statements > MAX_STATEMENTS:
                what = f"the function has more than {MAX_STATEMENTS} statements after unrolling and inlining"
                self.error("program-too-large", s.span, what=what)
            self.b.span = s.span
            try:
                returned = self.statement(s, after)
            except Failed:
                for name in self.flow.statement(s).assigned:
                    self.scope[name] = POISON
                gives_up = next((n for n in ast.walk(s) if isinstance(n, ast.Return)), None)
                if gives_up is not None:
                    return Returned(POISON, gives_up)
                if self.statements > MAX_STATEMENTS:
                    raise
                continue
            if returned is not None:
                return returned
        return None

    def statement(self, s: ast.Stmt, live: Names) -> Returned | None:
        match s:
            case ast.Assign():
                self.assign(s)
            case ast.AugAssign():
                self.update(s)
            case ast.For():
                return self.for_loop(s, live)
            case ast.While():
                self.while_loop(s, live)
            case ast.If():
                return self.if_statement(s, live)
            case ast.Return():
                return self.returned(s)
            case ast.Assert():
                self.assertion(s)
            case ast.ExprStmt(value=ast.String()) | ast.Pass():
                pass
            case ast.ExprStmt(value=value):
                self.expression(value)
            case ast.Break() | ast.Continue():
                self.error("break-outside-loop", s.span, statement=type(s).__name__.lower())
            case _:
                self.error("syntax", s.span, what="this statement does not stand in a function")
        return None

    def expression(self, node: ast.Expr) -> None:
        if isinstance(node, ast.Name):  # a lone buffer is not read
            self.name(node)
        else:
            self.eval(node)

    # -- assignments

    def assign(self, s: ast.Assign) -> None:
        if isinstance(s.target, ast.Subscript):
            self.store(s.target, s.value)
            return
        if isinstance(s.target, ast.TupleExpr) and isinstance(s.value, ast.TupleExpr) and len(s.target.items) == len(s.value.items):
            values = [self.value_of(v) for v in s.value.items]
            for t, v, node in zip(s.target.items, values, s.value.items):
                self.bind_one(t, v, node)
            return
        value = self.value_of(s.value)
        if s.annotation is not None:
            value = self.annotated(value, s)
        self.bind_one(s.target, value, s.value)

    def value_of(self, node: ast.Expr) -> Val:
        return self.name(node) if isinstance(node, ast.Name) else self.eval(node)

    def bind_target(self, target: ast.Expr, value: Val) -> None:
        self.bind_one(target, value, target)

    def bind_one(self, target: ast.Expr, value: Val, node: ast.Expr) -> None:
        match target:
            case ast.Name(id=name):
                self.named(value, name)
                self.scope[name] = value
            case ast.TupleExpr(items=items):
                if not isinstance(value, Tuple):
                    self.wrong_type(node, ast_text(node), value, f"a tuple of {len(items)} values, one for each name")
                if len(items) != len(value.items):
                    self.error("wrong-arguments", node.span, function="the assignment", what=f"has {len(items)} names for {len(value.items)} values")
                for t, v in zip(items, value.items):
                    self.bind_one(t, v, node)
            case ast.Subscript():
                place = self.target_place(target)
                self.write(place, value, node)
            case _:
                self.error("syntax", target.span, what=f"expected a name or a place to assign to, found {ast.kind_of(target)}")

    def named(self, value: Val, name: str) -> None:
        """A value gets the name of the first variable that holds it."""
        if isinstance(value, (Tile, Num)) and value.ssa.op is not None and value.ssa.hint is None:
            value.ssa.hint = name
        elif isinstance(value, Buffer) and not value.name:
            value.name = name
            value.ssa.hint = name
            if isinstance(value.ssa.op, mem.Alloc):
                value.ssa.op.attrs["name_"] = name

    def annotated(self, value: Val, s: ast.Assign) -> Val:
        assert s.annotation is not None
        wanted = self.eval(s.annotation)
        if not isinstance(wanted, DType):
            if isinstance(wanted, TypeForm) and wanted.name in ("int", "float", "bool", "str"):
                return value
            self.error("annotation", s.annotation.span, what=f"the annotation is {wanted.describe()}, expected a dtype such as f32")
        if is_number(value):
            self.check_conversion(value, wanted.scalar, s.value, s.target.span.text)
            return Num(self.number(value, wanted.scalar, s.value), wanted.scalar)
        if not isinstance(value, Tile) or value.dtype is not wanted.scalar:
            expected = f"dtype {dtype_text(wanted.scalar)}"
            self.wrong_type(s.value, ast_text(s.value), value, expected, f"cast it: cast({s.value.span.text}, {dtype_text(wanted.scalar)})")
        return value

    def target_place(self, target: ast.Subscript) -> Place:
        base = self.eval(target.base)
        if isinstance(base, Tile):
            what = "a tensor of a whole-tensor function" if base.whole else "a tile"
            help = "where(mask, new, old) makes a changed tile; buffers made by local(...) can be written"
            if base.whole:
                help = "write a grid loop, and store to a tensor made by empty(...)"
            self.wrong_type(target.base, ast_text(target.base), base, f"a place in a tensor or buffer: {what} is a value and does not change", help)
        return self.place_in(base, target)

    def store(self, target: ast.Subscript, value_node: ast.Expr) -> None:
        value = self.operand_of(value_node)[1]
        self.write(self.target_place(target), value, value_node)

    def update(self, s: ast.AugAssign) -> None:
        if isinstance(s.target, ast.Subscript):
            place = self.target_place(s.target)
            self.check_writable(place)
            self.write(place, self.combined(self.read(place), s), s.value)
            return
        assert isinstance(s.target, ast.Name)
        current = self.name(s.target)
        if isinstance(current, Buffer):
            if current.is_global:
                self.whole(current, s.target)
            place = self.place(s.target)
            self.write(place, self.combined(self.read(place), s), s.value)
            return
        if current is POISON:
            raise Failed
        value = self.combined(current, s) if not isinstance(current, Range) else self.ranged(s.op, s.target, s.value, s.value)
        self.named(value, s.target.id)
        self.scope[s.target.id] = value

    def combined(self, current: Val, s: ast.AugAssign) -> Val:
        target = s.target if isinstance(s.target, ast.Name) else ast.Name(s.target.span, s.target.span.text)
        with self.at(s.span):
            if s.op == "@":
                return self.matmul((s.target, current), self.operand_of(s.value), s.value)
            return self.accumulated(current, target, s.op, s.value)

    # -- control flow

    def for_loop(self, s: ast.For, live: Names) -> Returned | None:
        if isinstance(s.iter, ast.Call):
            function = self.callee(s.iter)
            name = function.name if isinstance(function, Builtin) else ""
            if name in ("grid", "parallel"):
                self.parallel(s, name, s.iter, live)
                return None
            if name in ("range", "pipelined"):
                self.serial(s, name, s.iter, live)
                return None
            if name == "static_range":
                return self.static_loop(s, self.static_range(s.iter), live)
        value = self.eval(s.iter)
        if isinstance(value, Tuple):
            return self.static_loop(s, value.items, live)
        loops = ", ".join(LOOPS)
        help = f"write range({s.iter.span.text}.start, {s.iter.span.text}.stop)" if isinstance(value, Range) else None
        self.wrong_type(s.iter, ast_text(s.iter), value, f"a loop ({loops}) or a tuple", help)

    def static_range(self, call: ast.Call) -> tuple[Val, ...]:
        ends = [self.static_int(n, "the bound of static_range") for n in call.args]
        if call.kwargs or not 1 <= len(ends) <= 3 or (len(ends) == 3 and ends[2] == 0):
            self.error("wrong-arguments", call.span, function="static_range", what="takes one to three integers, as Python's range")
        numbers = range(*ends)
        if len(numbers) > MAX_UNROLLED:
            self.error("program-too-large", call.span, what=f"the loop is unrolled {len(numbers)} times, more than {MAX_UNROLLED}")
        return tuple(Const(n) for n in numbers)

    def static_loop(self, s: ast.For, items: tuple[Val, ...], live: Names) -> Returned | None:
        result = self.unrolled(s, items, live)
        return result if isinstance(result, Returned) else None

    def if_statement(self, s: ast.If, live: Names) -> Returned | None:
        truth = self.truth(self.eval(s.test), s.test, "if")
        if isinstance(truth, bool):
            return self.run(s.body if truth else s.orelse, live)
        before, known, effect = self.scope, set(self.symbols), self.flow.statement(s)

        def side(body: list[ast.Stmt]) -> dict[str, Val]:
            self.scope = dict(before)
            self.around.append("an 'if' on a run-time value")
            try:
                self.run(body, live)
                return self.scope
            finally:
                self.around.pop()
                self.scope = before

        blocks, (then, orelse) = self.sides((lambda: side(s.body), lambda: side(s.orelse)))
        after = dict(before)
        carried: list[str] = []
        for n in sorted(effect.assigned):
            a, b = then.get(n), orelse.get(n)
            if a is POISON or b is POISON:
                after[n] = POISON
            elif a is None or b is None or isinstance(a, Unset) or isinstance(b, Unset):
                after[n] = Unset(self.set_at(n, s).span)
            elif same_value(a, b):
                after[n] = a
            elif n in live:
                carried.append(n)
            else:
                after[n] = Unset(self.set_at(n, s).span)
        self.scope = after
        after.update(dict.fromkeys(carried, POISON))
        nodes = [ast.Name(self.set_at(n, s).span, n) for n in carried]
        values = self.joined(truth, blocks, [[side[n] for n in carried] for side in (then, orelse)], nodes, carried, "if", known)
        after.update(zip(carried, values))
        return None

    def returned(self, s: ast.Return) -> Returned:
        if len(self.around) > self.return_depth:
            help = "set a variable on each path and return it at the end"
            self.error("unsupported-construct", s.span, help=help, what=f"a return inside {self.around[-1]}")
        if s.value is None:
            return Returned(Const(None), s)
        if isinstance(s.value, ast.TupleExpr):
            return Returned(Tuple(tuple(self.value_of(v) for v in s.value.items)), s)
        return Returned(self.value_of(s.value), s)

    def assertion(self, s: ast.Assert) -> None:
        value = self.eval(s.test)
        if isinstance(value, Tile) and value.rank:
            self.error("tile-condition", s.test.span, self.origin(s.test, value), statement="assert", type=self.shape_text(value),
                       help="all(...) and any(...) give a scalar")  # fmt: skip
        truth = self.truth(value, s.test, "assert")
        text = s.test.span.text
        if s.message is not None:
            text = str(self.static(s.message, "the message of an assert"))
        if truth is True:
            return
        if truth is False:
            self.error("run-assert", s.test.span, message=text)
        with self.at(s.span):
            self.insert(loop.Assert.of(truth, text))

    # -- helper functions

    def inline(self, function: Function, node: ast.Call) -> Val:
        tree = function.tree
        if any(tree is f for f, _ in self.calls):
            names = [f.name for f, _ in self.calls]
            at = next(i for i, (f, _) in enumerate(self.calls) if f is tree)
            chain = " -> ".join([*names[at:], tree.name])
            notes = [Note(f"'{f.name}' is called here", span) for f, span in self.calls[max(at, 1) :]]
            self.error("recursion", node.span, notes, name=tree.name, chain=chain)
        if len(self.calls) > MAX_CALLS:
            self.error("program-too-large", node.span, what=f"functions call each other more than {MAX_CALLS} deep")
        scope = self.bound_arguments(function, node)
        outer = self.scope, self.env, self.dtype_choice, self.return_depth
        self.dtype_choice = {n: d for n, d in self.dtype_choice.items() if shares(self.env, function.env, n)}
        self.scope, self.env, self.return_depth = scope, function.env, len(self.around)
        self.calls.append((tree, node.span))
        errors = len(self.diagnostics.all)
        try:
            result = self.run(tree.body, frozenset())
        finally:
            self.calls.pop()
            self.scope, self.env, self.dtype_choice, self.return_depth = outer
        if result is None:
            if len(self.diagnostics.all) > errors:
                raise Failed
            return Const(None)
        if result.value is POISON:
            raise Failed
        return result.value

    return_depth = 0  # regions around the body of the function that is being built

    def bound_arguments(self, function: Function, node: ast.Call) -> dict[str, Val]:
        tree = function.tree
        positional = [p for p in tree.params if p.kind == "positional"]
        keyword = [p for p in tree.params if p.kind == "keyword"]
        text = [p.name + ("=" if p.default is not None else "") for p in positional]
        if keyword:
            text += ["*_", *(p.name + ("=" if p.default is not None else "") for p in keyword)]
        parameters = Parameters.parse(", ".join(text))
        parameters = Parameters(parameters.names, None, parameters.required, parameters.keyword_only)
        try:
            bound = bind(node, tree.name, parameters)
        except BindError as e:
            self.error("wrong-arguments", e.at.span, [Note(f"'{tree.name}' is defined here", tree.name_span)], function=tree.name, what=str(e))
        scope: dict[str, Val] = {}
        for p in tree.params:
            given = bound.get(p.name)
            if given is not None:
                value = self.value_of(given)
                scope[p.name] = self.checked_argument(p, value, given, function, scope)
            else:
                assert p.default is not None
                scope[p.name] = self.default_of(p, function)
        return scope

    def default_of(self, p: ast.Param, function: Function) -> Val:
        assert p.default is not None
        node: ast.Expr = p.default
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)) and node.func.span.text.split(".")[-1] == "tune" and node.args:
            node = node.args[0]
        value = evaluate(node, function.env, self.diagnostics)
        if value is POISON:
            raise Failed
        return value

    def checked_argument(self, p: ast.Param, value: Val, node: ast.Expr, function: Function, scope: dict[str, Val]) -> Val:
        """An argument for an annotated parameter of a helper function. Dims and dtype parameters of its tensors become what they are here."""
        if p.annotation is None:
            return value
        quiet = Diagnostics()
        note = [Note(f"'{p.name}' of '{function.tree.name}' is declared here", p.span)]
        if isinstance(p.annotation, ast.Subscript):
            return self.tensor_argument(p.annotation, value, node, function, scope, note)
        wanted = evaluate(p.annotation, function.env, quiet)
        if isinstance(wanted, TypeForm) and wanted.name in TYPE_FORMS and not isinstance(value, (Const, DType)):
            self.error("not-constant", node.span, note, what=f"the argument '{p.name}'", value=ast_text(node))
        if isinstance(wanted, DType) and is_number(value):
            self.check_conversion(value, wanted.scalar, node, p.name)
            return Num(self.number(value, wanted.scalar, node), wanted.scalar)
        return value

    def tensor_argument(self, form: ast.Subscript, value: Val, node: ast.Expr, function: Function, scope: dict[str, Val], note: list[Note]) -> Val:
        if not isinstance(value, (Tile, Buffer)):
            self.error("wrong-type", node.span, note, what=ast_text(node), found=value.describe(), expected=f"a tensor, {form.span.text}")
        base = evaluate(form.base, function.env, Diagnostics())
        items = list(form.items)
        if isinstance(base, TypeForm):
            base = evaluate(items.pop(0), function.env, Diagnostics()) if items else base
        if isinstance(base, DtypeParam):
            known = scope.get(base.name)
            if isinstance(known, DType) and known.scalar is not value.dtype:
                self.error("wrong-type", node.span, note, what=ast_text(node), found=value.describe(), expected=f"dtype {dtype_text(known.scalar)}, as another {base.name}")
            scope[base.name] = DType(value.dtype)
        elif isinstance(base, DType) and base.scalar is not value.dtype:
            help = f"cast it: cast({node.span.text}, {dtype_text(base.scalar)})"
            self.error("wrong-type", node.span, note, help, what=ast_text(node), found=value.describe(), expected=f"dtype {dtype_text(base.scalar)}")
        if len(items) != len(value.axes):
            self.rank_error(node.span, ast_text(node), len(value.axes), len(items), note)
        for item, axis in zip(items, value.axes):
            self.bind_dim(item, axis, node, function, scope, note)
        return value

    def bind_dim(self, item: ast.Expr, axis: Axis, node: ast.Expr, function: Function, scope: dict[str, Val], note: list[Note]) -> None:
        known = scope.get(item.id) if isinstance(item, ast.Name) else None
        if known is None:
            declared = evaluate(item, function.env, Diagnostics())
            if isinstance(item, ast.Name) and isinstance(declared, Index):
                scope[item.id] = self.index(axis.extent)
                return
            known = declared
        expected = ix.const(known.value) if isinstance(known, Const) and type(known.value) is int else known.expr if isinstance(known, Index) else axis.extent
        if not self.equal(expected, axis.extent):
            self.error("dim-conflict", node.span, note, dim=item.span.text, first=expected, where="the other arguments", second=axis.extent, other=ast_text(node))


def shares(a: Env, b: Env, name: str) -> bool:
    """Whether a name means the same in two environments: one file, or one Python object."""
    if isinstance(a, PythonEnv) and isinstance(b, PythonEnv):
        return name in a.python and a.python[name] is b.python.get(name)
    return a is b
