"""From a function's tree to checked IR: a whole-tensor function becomes a module of level tensor, a function with a grid one of level tile.

    tree, env = python_function(fn)              # or a function of a parsed .tile module with its TextEnv
    signature = Signature.of(tree, env)
    module = build(tree, env, Specialization.of(signature))
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tilelang.diagnostics import CompilerBug, Diagnostics, Note, TileError
from tilelang.dialects import mem, tensor
from tilelang.dialects.func import Func, Return
from tilelang.errors import TOO_DEEP, TOO_DEEP_HELP
from tilelang.frontend import ast
from tilelang.frontend.context import Failed, ast_text
from tilelang.frontend.env import Env, Unsupported
from tilelang.frontend.signature import Param, Signature, Specialization, check_constants
from tilelang.frontend.statements import FunctionBuilder, Returned
from tilelang.frontend.values import (
    POISON,
    Axis,
    Buffer,
    Builtin,
    Const,
    DType,
    Function,
    Namespace,
    Num,
    Tile,
    Tuple,
    Val,
    dim_of,
    dtype_text,
    tensor_type,
)  # fmt: skip
from tilelang.ir import index as ix
from tilelang.ir.core import Module, Value
from tilelang.ir.types import DYN, BufferType, Dim, Scalar, Type
from tilelang.ir.verify import verify_all

# Functions that a whole-tensor function does not have: one of them makes it a tile function.
_TILE_FUNCTIONS = frozenset(
    ("grid", "parallel", "pipelined", "empty", "shared", "accumulator", "local", "copy", "gemm", "fill", "load", "atomic_add", "atomic_max", "atomic_min",
     "put", "signal", "wait", "fence", "barrier", "rank", "world")
)
_RECURSION = 20_000  # Python frames; the depth of the tree is bounded by the readers


def build(fn: ast.Function, env: Env, spec: Specialization | None = None, diagnostics: Diagnostics | None = None) -> Module:
    """Builds the module of a function. Raises TileError with all errors of the program (they are in `diagnostics`, too); anything unforeseen is a
    CompilerBug with the place in the program that was being built."""
    own = diagnostics if diagnostics is not None else Diagnostics()
    try:
        with _deep_recursion():
            module = _Build(fn, env, spec, own).module()
    except Failed:
        own.raise_if_errors()
        raise CompilerBug("a failure without a message", span=fn.name_span) from None
    except RecursionError:
        own.error("syntax", fn.name_span, help=TOO_DEEP_HELP, what=TOO_DEEP.format(ast.MAX_DEPTH))
        own.raise_if_errors()
        raise
    own.raise_if_errors()
    return module


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def level_of(fn: ast.Function, env: Env, signature: Signature | None = None) -> str:
    """tile for a function with a grid, buffers or stores, else tensor."""
    if signature is not None and any(p.role == "inout" for p in signature.params):
        return "tile"
    seen: set[int] = set()
    todo: list[tuple[ast.Function, Env]] = [(fn, env)]
    while todo:
        tree, names = todo.pop()
        if id(tree) in seen:
            continue
        seen.add(id(tree))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign)) and any(isinstance(n, ast.Subscript) for n in _targets(node.target)):
                return "tile"
            if isinstance(node, ast.Call):
                found = _function(node.func, names)
                if isinstance(found, Builtin) and (found.name in _TILE_FUNCTIONS or (found.name == "range" and any(k.name == "by" for k in node.kwargs))):
                    return "tile"
                if isinstance(found, Function):
                    todo.append((found.tree, found.env))
    return "tensor"


def _targets(target: ast.Expr) -> list[ast.Expr]:
    return target.items if isinstance(target, ast.TupleExpr) else [target]


def _function(node: ast.Expr, env: Env) -> Val | None:
    try:
        if isinstance(node, ast.Name):
            return env.lookup(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.base, ast.Name):
            base = env.lookup(node.base.id)
            if isinstance(base, Namespace):
                return Env().lookup(node.name) if base.is_language else None
    except Unsupported:
        return None
    return None


class _Build:
    def __init__(self, fn: ast.Function, env: Env, spec: Specialization | None, diagnostics: Diagnostics) -> None:
        self.fn, self.env, self.diagnostics = fn, env, diagnostics
        self.signature = Signature.of(fn, env, diagnostics)
        self.spec = spec if spec is not None else Specialization.of(self.signature)
        self.level = level_of(fn, env, self.signature)

    def module(self) -> Module:
        if self.signature.is_helper:
            bare = next((p for p in self.fn.params if p.annotation is None), None)
            assert bare is not None
            help = "annotate it, as in x: f32[M, N]; functions without annotations are helpers for others"
            self.diagnostics.error("annotation", bare.span, help=help, what=f"the parameter {bare.name!r} of a kernel has no annotation")
        self.diagnostics.raise_if_errors()
        check_constants(self.signature, self.spec.constants, self.diagnostics)
        self.diagnostics.raise_if_errors()
        func = self.function()
        builder = self.builder(func)
        try:
            self.bind(func, builder)
            returned = builder.run(self.fn.body, frozenset())
            self.finish(func, builder, returned)
        except (Failed, TileError, CompilerBug, RecursionError):
            raise
        except Exception as e:
            raise CompilerBug(f"{type(e).__name__}: {e}", span=builder.b.span or self.fn.name_span, pass_name="builder") from e
        self.diagnostics.raise_if_errors()
        sweep(func)
        module = Module.of([func], self.level)
        wrong = next(iter(verify_all(module)), None)
        if wrong is not None:
            raise CompilerBug(wrong.message, op=wrong.op.name, span=wrong.op.span, pass_name="builder")
        return module

    # -- the function and its parameters

    def function(self) -> Func:
        params: list[tuple[str, Type, str]] = []
        for p in self.signature.params:
            if p.is_tensor or p.role == "scalar":
                params.append((p.name, self.param_type(p), p.role))
        results = [(self.spec.dtype(r.dtype), self.spec.dims_of(r.dims)) for r in self.signature.results]
        types: tuple[Type, ...] = ()
        if self.level == "tensor":
            types = tuple(tensor_type(tuple(Axis.whole(d) for d in dims), dtype) for dtype, dims in results)
        else:
            for i, (dtype, dims) in enumerate(results):
                shape = tuple(map(dim_of, dims))
                params.append((f"out{i if len(results) > 1 else ''}", BufferType(shape, dtype, "global", self.strides(f"out{i}", len(shape))), "out"))
        func = Func.of(self.fn.name, params, types, self.fn.name_span)
        chosen = tuple((p.name, _shown(self.spec.constants[p.name])) for p in self.signature.statics)
        if chosen:
            func.attrs["tunables"] = chosen
        facts = [*self.spec.facts]
        if self.level == "tensor":  # tensors have no strides: pass tile gives their buffers these
            own = [p[0] for p in params]
            facts += [f"strides {name} any" for name in own if self.spec.strides.get(name) == "any"]
            for i in range(len(results)):
                name = "out" if len(results) == 1 else f"out{i}"
                while name in own:  # as pass tile names them
                    name += "_"
                facts += [f"strides {name} any"] if self.spec.strides.get(f"out{i}") == "any" else []
        if facts:
            func.attrs["facts"] = tuple(facts)
        return func

    def param_type(self, p: Param) -> Type:
        assert p.dtype is not None
        dtype = self.spec.dtype(p.dtype)
        if p.role == "scalar":
            return dtype
        dims = self.spec.dims_of(p.dims)
        if self.level == "tensor":
            return tensor_type(tuple(Axis.whole(d) for d in dims), dtype)
        return BufferType(tuple(map(dim_of, dims)), dtype, p.space, self.strides(p.name, len(dims)))

    def strides(self, name: str, rank: int) -> tuple[Dim, ...] | None:
        """Strides of a parameter: unknown, but for the last axis of a tensor with unit stride."""
        if self.spec.strides.get(name, "unit") == "any" or rank == 0:
            return (DYN,) * rank
        return (*(DYN,) * (rank - 1), 1)

    def builder(self, func: Func) -> FunctionBuilder:
        facts = ix.Facts()
        for name in self.signature.dims:
            facts.dim(name)
        for text in self.spec.facts:
            facts.assume(text)
        builder = FunctionBuilder(self.diagnostics, self.level, facts, func.body.block, self.env)
        builder.dtype_choice = dict(self.spec.dtypes)
        builder.static_dims = dict(self.spec.dims)
        builder.dims = frozenset(self.signature.dims)
        builder.calls.append((self.fn, self.fn.name_span))
        builder.b.span = self.fn.name_span
        return builder

    def bind(self, func: Func, builder: FunctionBuilder) -> None:
        args = dict(zip((a.hint for a in func.args), func.args))
        for p in self.signature.params:
            if p.role == "static":
                value = self.spec.constants[p.name]
                builder.scope[p.name] = DType(value) if isinstance(value, Scalar) else Const(value)
                continue
            ssa = args[p.name]
            if p.role == "scalar":
                assert isinstance(ssa.type, Scalar)
                builder.scope[p.name] = Num(ssa, ssa.type)
            else:
                builder.scope[p.name] = self.bind_tensor(p, ssa, builder)

    def bind_tensor(self, p: Param, ssa: Value, builder: FunctionBuilder) -> Val:
        assert p.dtype is not None
        dtype, dims = self.spec.dtype(p.dtype), self.spec.dims_of(p.dims)
        for i, d in enumerate(dims):
            if isinstance(d, ix.Sym) and d.name not in builder.symbols:
                size = builder.emit(mem.Dim.of(ssa, i) if self.level == "tile" else tensor.DimOp.of(ssa, i))
                size.hint = d.name
                builder.symbols[d.name] = size
        axes = tuple(Axis.whole(d) for d in dims)
        builder.declared_at[ssa] = p.span
        if self.level == "tensor":
            return Tile(ssa, dtype, axes)
        return Buffer(ssa, dtype, axes, p.role, p.name, p.span)

    # -- results

    def finish(self, func: Func, builder: FunctionBuilder, returned: Returned | None) -> None:
        expected = self.signature.results
        if returned is None or (isinstance(returned.value, Const) and returned.value.value is None):
            if expected and not (self.diagnostics.errors and any(isinstance(n, ast.Return) for n in ast.walk(self.fn))):
                shown = self.fn.result.span.text if self.fn.result is not None else ""
                self.diagnostics.error("missing-return", self.fn.name_span, name=self.fn.name, result=shown)
            values: list[Value] = []
        else:
            values = self.results(func, builder, returned) if returned.value is not POISON else []
        builder.insert(Return.of(*values))

    def results(self, func: Func, builder: FunctionBuilder, returned: Returned) -> list[Value]:
        node, value, expected = returned.node.value, returned.value, self.signature.results
        assert node is not None
        items = list(value.items) if isinstance(value, Tuple) else [value]
        nodes = list(node.items) if isinstance(node, ast.TupleExpr) and len(node.items) == len(items) else [node] * len(items)
        if len(items) != len(expected):
            notes = [Note("the result is declared here", self.fn.result.span)] if self.fn.result is not None else []
            help = f"declare it: def {self.fn.name}(...) -> f32[M]" if not expected else None
            self.diagnostics.error(
                "wrong-arguments", node.span, notes, help, function=f"'{self.fn.name}'", what=f"returns {len(items)} values, and declares {len(expected)}"
            )
            return []
        if any(v is POISON for v in items):
            return []
        outs = func.args[len(func.args) - len(expected) :] if self.level == "tile" else []
        values: list[Value] = []
        taken: dict[int, ast.Expr] = {}
        for i, (item, at) in enumerate(zip(items, nodes)):
            try:
                if self.level == "tile":
                    self.return_buffer(item, at, i, outs[i], builder, taken)
                else:
                    values.append(self.return_tensor(item, at, i, builder))
            except Failed:
                continue
        return values

    def return_buffer(self, item: Val, node: ast.Expr, i: int, out: Value, builder: FunctionBuilder, taken: dict[int, ast.Expr]) -> None:
        """A returned tensor was made by empty(...): its memory becomes the caller's."""
        if not isinstance(item, Buffer) or item.role != "out":
            help = "write to out = empty(dtype, dims...) and return out"
            if isinstance(item, Buffer) and item.role == "inout":
                help = f"'{item.name}' is updated in place; remove it from the return and from the result type"
            builder.wrong_type(node, f"the result {ast_text(node)}", item, "a tensor made by empty(...) at the top of the function", help)
        if id(item) in taken:
            builder.wrong_type(node, f"the result {ast_text(node)}", item, "a tensor that is not returned already")
        taken[id(item)] = node
        dtype, dims = self.declared(i)
        note = [builder.made(item), Note("the result is declared here", self.signature.results[i].span)]
        if item.dtype is not dtype:
            self.mismatch(builder, node, note, item, dtype, dims)
        self.check_dims(builder, node, note, item, item.dims, dims, dtype)
        alloc = item.ssa.op
        if isinstance(alloc, mem.Alloc):
            out.hint = item.name or out.hint
            item.ssa.replace_by(out)
            alloc.erase()

    def return_tensor(self, item: Val, node: ast.Expr, i: int, builder: FunctionBuilder) -> Value:
        dtype, dims = self.declared(i)
        axes = tuple(Axis.whole(d) for d in dims)
        note = [*builder.origin(node, item), Note("the result is declared here", self.signature.results[i].span)]
        with builder.at(node.span):
            if not isinstance(item, Tile) and not dims:
                builder.check_conversion(item, dtype, node, "the result")
                return builder.fill(builder.number(item, dtype, node), (), dtype).ssa
            if not isinstance(item, Tile):
                builder.wrong_type(node, f"the result {ast_text(node)}", item, "a tensor")
            if item.rank != len(dims):
                builder.rank_error(node.span, "the result", item.rank, len(dims), note)
            builder.check_conversion(item, dtype, node, "the result")
            self.check_dims(builder, node, note, item, tuple(a.extent for a in item.axes), dims, dtype)
            return builder.narrow(builder.as_dtype(item, dtype), axes).ssa

    def declared(self, i: int) -> tuple[Scalar, tuple[ix.Expr, ...]]:
        r = self.signature.results[i]
        return self.spec.dtype(r.dtype), self.spec.dims_of(r.dims)

    def check_dims(
        self, builder: FunctionBuilder, node: ast.Expr, notes: list[Note], item: Val, found: tuple[ix.Expr, ...], dims: tuple[ix.Expr, ...], dtype: Scalar
    ) -> None:
        if len(found) != len(dims):
            self.mismatch(builder, node, notes, item, dtype, dims)
        for a, b in zip(found, dims):
            if builder.equal(a, b):
                continue
            plain = all(isinstance(e, (ix.Sym, ix.Const)) for e in (a, b))
            if plain or self.level == "tile":
                self.mismatch(builder, node, notes, item, dtype, dims)
            builder.require_equal(a, b, "the result has length {0}, and is declared with {1}")

    def mismatch(self, builder: FunctionBuilder, node: ast.Expr, notes: list[Note], item: Val, dtype: Scalar, dims: tuple[ix.Expr, ...]) -> None:
        builder.error("wrong-type", node.span, notes, what=f"the result {ast_text(node)}", found=item.describe(), expected=f"{dtype_text(dtype)}[{', '.join(map(str, dims))}]")


def _shown(value: object) -> object:
    """A compile-time value as an attribute: dtypes by name."""
    return dtype_text(value) if isinstance(value, Scalar) else value


def sweep(func: Func) -> None:
    """Removes what has no effect and no use: index values that were computed and not needed, tiles that were made anew."""
    for op in list(func.walk(reverse=True)):
        if op.pure and op is not func and not any(r.uses for r in op.results):
            op.erase()


