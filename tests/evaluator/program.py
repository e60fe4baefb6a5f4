"""The language by its own definition: runs a function on arrays, straight from the syntax tree, block by block in the order of the grid.

It shares nothing with the typed builder, the IR or the interpreter, and keeps them honest. Every number carries the bound of its error
(bounded.py), so a result says itself how closely others must agree with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.evaluator import bounded as bd
from tests.evaluator.bounded import Num, Refused
from tests.evaluator.places import Dtype, Endless, Idx, Place, Range, Stop, Tensor, Unsure, aligned, fit, full, transposed
from tilelang.frontend import ast


@dataclass
class Result:
    """values: what the function returns; updated: the tensors it writes in place. stop: the slug of the error it stops with."""

    values: list[Num] = field(default_factory=list)
    updated: dict[str, Num] = field(default_factory=dict)
    stop: str = ""


class _Leave(Exception):
    """return, break or continue."""

    def __init__(self, kind: str, value: Any = None) -> None:
        self.kind, self.value = kind, value


def run(module: ast.Module, name: str, args: Sequence[Any], constants: dict[str, Any] | None = None, steps: int = 200_000) -> Result:
    """Calls a function. args: for each positional parameter an array (of the dtype's NumPy type) or a number; they are not written.
    constants: compile-time values by name. Raises Refused for what no program may do, Unsure, Endless."""
    with np.errstate(all="ignore"):
        return _Program(module, steps).call(name, args, constants or {})


class _Program:
    def __init__(self, module: ast.Module, steps: int) -> None:
        self.module, self.steps = module, steps
        self.functions = {f.name: f for f in module.functions}
        self.globals: dict[str, Any] = {}
        self.scope: dict[str, Any] = {}
        for c in module.constants:
            self.globals[c.name] = self.eval(c.value)

    # -- calls from outside

    def call(self, name: str, args: Sequence[Any], constants: dict[str, Any]) -> Result:
        function = self.functions[name]
        dims = {d.name for d in self.module.dims}
        params = {d.name for d in self.module.dtypes}
        given = iter(args)
        inout: dict[str, Tensor] = {}
        scope = self.scope = {}
        for p in function.params:
            tensor = self.tensor_type(p.annotation, params)
            if p.kind == "keyword" or (tensor is None and _name(p.annotation) in ("int", "float", "bool", "str", "dtype")):
                value = constants.get(p.name, p.default)
                scope[p.name] = self.eval(value) if isinstance(value, ast.Expr) else value
                continue
            value = next(given)
            if tensor is None:
                dtype = _name(p.annotation)
                scope[p.name] = bd.exact(self.globals.get(dtype, dtype), value)
                continue
            dtype, shape, updated = tensor
            if dtype in params:
                found = self.globals.setdefault(dtype, Dtype(_dtype_name(value)))
                dtype = found
            for item, n in zip(shape, value.shape, strict=True):
                if isinstance(item, ast.Name) and item.id in dims:
                    self.globals.setdefault(item.id, Idx(n))
            lens = tuple(n if type(self.eval(item)) is int else None for item, n in zip(shape, value.shape, strict=True))
            x = bd.exact(dtype, value, lens)
            scope[p.name] = Tensor(dtype, x.val, x.err, lens)
            if updated:
                inout[p.name] = scope[p.name]
        if not _tile_function(function):
            scope.update({n: full(t) for n, t in scope.items() if isinstance(t, Tensor) and n not in inout})
        try:
            returned = self.body_value(function)
        except Stop as stop:
            return Result(stop=stop.slug)
        values = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
        declared = self.results(function.result)
        out = [bd.cast(self.number(v, d), d) for v, d in zip(values, declared, strict=True)]
        return Result(out, {n: full(t) for n, t in inout.items()})

    def tensor_type(self, node: ast.Expr | None, dtype_params: set[str]) -> tuple[str, list[ast.Expr], bool] | None:
        match node:
            case ast.Subscript(base=ast.Name(id=("Tensor" | "InOut") as kind), items=[first, *shape]):
                return _name(first), shape, kind == "InOut"
            case ast.Subscript(base=ast.Name(id=name), items=shape):
                return ("bool_" if name == "bool" else name), shape, False
        return None

    def results(self, node: ast.Expr | None) -> list[str]:
        if node is None:
            return []
        if isinstance(node, ast.Subscript) and _name(node.base) == "tuple":
            return [d for item in node.items for d in self.results(item)]
        found = self.tensor_type(node, set())
        name = found[0] if found else _name(node)
        return [str(self.globals.get(name, name))]

    def body_value(self, function: ast.Function) -> Any:
        try:
            self.block(function.body)
        except _Leave as leave:
            return leave.value
        return None

    # -- statements

    def block(self, body: list[ast.Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: ast.Stmt) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Endless
        match s:
            case ast.Assign(target=target, value=value, annotation=annotation):
                result = self.eval(value)
                if annotation is not None:
                    result = self.convert(result, str(self.eval(annotation)))
                self.assign(target, result)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                old = self.eval(target)
                made = self.binary(op, old, self.eval(value))
                if isinstance(old, Tensor):
                    self.place(target).write(self.number(made, old.dtype))
                else:
                    self.scope[name] = made
            case ast.AugAssign(target=target, op=op, value=value):
                place = self.place(target)
                place.write(self.number(self.binary(op, place.read(), self.eval(value)), place.tensor.dtype))
            case ast.For(target=target, iter=it, body=body):
                self.loop(target, it, body)
            case ast.While(test=test, body=body):
                while self.truth(self.eval(test)):
                    self.steps -= 1
                    if self.steps < 0:
                        raise Endless
                    if not self.once(body):
                        break
            case ast.If(test=test, body=body, orelse=orelse):
                self.block(body if self.truth(self.eval(test)) else orelse)
            case ast.Break():
                raise _Leave("break")
            case ast.Continue():
                raise _Leave("continue")
            case ast.Return(value=value):
                raise _Leave("return", None if value is None else self.eval(value))
            case ast.Assert(test=test):
                if not self.truth(self.eval(test)):
                    raise Stop("run-assert")
            case ast.ExprStmt(value=value):
                self.eval(value)
            case ast.Pass():
                return
            case _:
                raise AssertionError(s)

    def once(self, body: list[ast.Stmt]) -> bool:
        """Runs a loop's body; False when it breaks out."""
        try:
            self.block(body)
        except _Leave as leave:
            if leave.kind == "return":
                raise
            return leave.kind == "continue"
        return True

    def loop(self, target: ast.Expr, it: ast.Expr, body: list[ast.Stmt]) -> None:
        for values in self.iterations(it):
            if isinstance(target, ast.TupleExpr):
                for name, value in zip(target.items, values, strict=True):
                    self.assign(name, value)
            else:
                self.assign(target, values[0] if len(values) == 1 else values)
            if not self.once(body):
                return

    def iterations(self, it: ast.Expr) -> Iterator[tuple[Any, ...]]:
        if not isinstance(it, ast.Call):
            items = self.eval(it)
            yield from ((item,) if not isinstance(item, tuple) else item for item in items)
            return
        kind = _name(it.func)
        args = [self.int(self.eval(a)) for a in it.args]
        by = next((self.eval(k.value) for k in it.kwargs if k.name == "by"), None)
        if kind in ("grid", "parallel"):
            blocks = by if isinstance(by, tuple) else (by,) * len(args)
            yield from itertools.product(*(_axis(0, n, b) for n, b in zip(args, blocks, strict=True)))
            return
        lo, hi = (0, args[0]) if len(args) == 1 else args[:2]
        step = args[2] if len(args) > 2 else 1
        yield from ((i if kind != "static_range" else int(i),) for i in _axis(lo, hi, by, step))

    def assign(self, target: ast.Expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.scope[name] = value
            case ast.TupleExpr(items=items):
                for item, v in zip(items, value, strict=True):
                    self.assign(item, v)
            case _:
                place = self.place(target)
                place.write(self.stored(value, place.tensor.dtype))

    def stored(self, value: Any, dtype: str) -> Num:
        """A value as a store converts it: floats do not become integers, numbers not bools."""
        source = value.dtype if isinstance(value, (Num, Tensor)) else dtype
        if (bd.is_float(source) and not bd.is_float(dtype)) or (dtype == "bool_") > (source == "bool_"):
            raise Refused(f"store of {source} to {dtype}")
        return self.number(value, dtype)

    # -- values

    def truth(self, value: Any) -> bool:
        if isinstance(value, Num):
            if value.rank:
                raise Refused("a tile as a condition")
            if value.err > 0:
                raise Unsure
            return bool(value.val != 0)
        return bool(value)

    def int(self, value: Any) -> int:
        if isinstance(value, Num) and not value.rank and bd.is_int(value.dtype):
            if value.err > 0:
                raise Unsure
            return Idx(int(value.val))
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(f"{value!r} as an index")
        return value

    def number(self, value: Any, dtype: str) -> Num:
        """A value cast to a dtype."""
        if isinstance(value, Tensor):
            value = full(value)
        if isinstance(value, Num):
            return bd.cast(value, dtype)
        if isinstance(value, Idx):
            return bd.cast(bd.exact("i64", int(value)), dtype)
        return bd.literal(value, dtype)

    def convert(self, value: Any, dtype: str) -> Any:
        """cast(value, dtype), where literals saturate and wrap as numbers do."""
        if isinstance(value, (Num, Tensor, Idx)):
            return self.number(value, dtype)
        if isinstance(value, float):
            return bd.cast(bd.exact("f64", value), dtype)
        return bd.literal(value, dtype) if bd.is_float(dtype) or isinstance(value, bool) else bd.cast(bd.exact("i64", value), dtype)

    def common(self, *values: Any) -> str:
        """The dtype where operands meet."""
        dtype: str | None = None
        index = False
        for v in values:
            if isinstance(v, (Num, Tensor)):
                dtype = v.dtype if dtype is None else bd.promote(dtype, v.dtype)
            index |= isinstance(v, Idx)
        if index and dtype is not None and not bd.is_float(dtype) and bd.bits(dtype) < 32:
            dtype = "i64" if dtype == "bool_" else "i32"
        literals = [v for v in values if not isinstance(v, (Num, Tensor, Idx))]
        if any(isinstance(v, float) for v in literals) and not (dtype and bd.is_float(dtype)):
            dtype = "f32"
        if dtype == "bool_" and any(type(v) is int for v in literals):
            dtype = "i32"
        return dtype or ("i64" if index or any(type(v) is int for v in literals) else "bool_")

    def together(self, values: Sequence[Any], dtype: str | None = None) -> tuple[list[Num], tuple[int | None, ...]]:
        """Operands in one dtype and shape: narrowed to the elements that are valid in all, ready to broadcast."""
        dtype = dtype or self.common(*values)
        return aligned([self.number(v, dtype) for v in values])

    def binary(self, op: str, a: Any, b: Any) -> Any:
        if op == "@":
            return self.matmul(a, b)
        if not any(isinstance(v, (Num, Tensor)) for v in (a, b)):
            if isinstance(a, Idx) or isinstance(b, Idx):
                if isinstance(a, int) and isinstance(b, int):
                    if op == "/":
                        raise Refused("/ of integers")
                    return Idx(_python(op, int(a), int(b)))
            else:
                return _python(op, a, b)
        if op == "**" and type(b) is int and 0 < b <= 4:
            made = a
            for _ in range(b - 1) if b < 4 else ():
                made = self.binary("*", a, made)
            return made if b < 4 else self.binary("*", square := self.binary("*", a, a), square)
        (x, y), lens = self.together((a, b))
        out = bd.binary(op, x, y)
        out.lens = lens
        return out

    def compare(self, op: str, a: Any, b: Any) -> Any:
        if not any(isinstance(v, (Num, Tensor)) for v in (a, b)) and isinstance(a, float) == isinstance(b, float):
            result = bool(bd._COMPARE[op](a, b)) if not isinstance(a, (str, type(None))) else (a == b) == (op == "==")
            return bd.exact("bool_", result) if isinstance(a, Idx) or isinstance(b, Idx) else result
        (x, y), lens = self.together((a, b))
        out = bd.compare(op, x, y)
        out.lens = lens
        return out

    def matmul(self, a: Any, b: Any, acc: Any = None, dtype: str | None = None) -> Num:
        a, b = (full(v) if isinstance(v, Tensor) else v for v in (a, b))
        d = bd.promote(a.dtype, b.dtype)
        d = dtype or ("i32" if bd.is_int(d) and bd.bits(d) < 32 else bd.acc_type(d))
        x, y = bd.cast(a, d), bd.cast(b, d)
        k = min(x.val.shape[-1], y.val.shape[-2])
        lead = [min(m, n) for m, n in zip(x.val.shape[:-2], y.val.shape[:-2], strict=True)]
        shape = (*lead, x.val.shape[-2], y.val.shape[-1])
        lens = (*(m if m is not None else n for m, n in zip(x.lens[:-2], y.lens[:-2])), x.lens[-2], y.lens[-1])
        c = None
        if acc is not None:
            c = self.number(acc, d)
            shape = tuple(map(min, shape, c.val.shape))
            c = fit(c, c.lens, shape)
        x = fit(x, x.lens, (*shape[:-1], k))
        y = fit(y, y.lens, (*shape[:-2], k, shape[-1]))
        return bd.matmul(x, y, c, lens)

    # -- expressions

    def eval(self, node: ast.Expr) -> Any:
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.Number(value=value) | ast.Bool(value=value) | ast.String(value=value):
                return value
            case ast.NoneLiteral():
                return None
            case ast.TupleExpr(items=items):
                return tuple(self.eval(i) for i in items)
            case ast.Unary(op=op, operand=operand):
                return self.unary(op, self.eval(operand))
            case ast.Binary(op=op, left=left, right=right):
                return self.ranged(op, self.eval(left), self.eval(right))
            case ast.Compare(op=op, left=left, right=right):
                return self.compare(op, self.eval(left), self.eval(right))
            case ast.BoolOp(op=op, values=values):
                for v in values[:-1]:
                    x = self.eval(v)
                    if self.truth(x) == (op == "or"):
                        return op == "or"
                return self.truth(self.eval(values[-1]))
            case ast.Conditional(test=test, then=then, orelse=orelse):
                return self.eval(then if self.truth(self.eval(test)) else orelse)
            case ast.Subscript(base=base, items=items):
                return self.subscript(node, self.eval(base), items)
            case ast.Attribute(base=base, name=name):
                return self.attribute(self.eval(base), name)
            case ast.Call(func=func, args=args, kwargs=kwargs):
                return self.call_function(_name(func), args, {k.name: k.value for k in kwargs})
        raise AssertionError(node)

    def name(self, name: str) -> Any:
        if name in self.scope:
            return self.scope[name]
        if name in self.globals:
            return self.globals[name]
        if name in bd.NUMPY:
            return Dtype(name)
        return {"inf": np.inf, "nan": np.nan, "pi": np.pi}[name]

    def unary(self, op: str, x: Any) -> Any:
        if op == "not":
            return not self.truth(x)
        if not isinstance(x, (Num, Tensor)):
            made = -x if op == "-" else +x if op == "+" else (not x if isinstance(x, bool) else ~x)
            return Idx(made) if isinstance(x, Idx) else made
        x = self.number(x, x.dtype)
        return x if op == "+" else bd.unary("neg" if op == "-" else "invert", x)

    def ranged(self, op: str, a: Any, b: Any) -> Any:
        """Operators on index ranges, and all others."""
        if isinstance(b, Range) and op in "+*":
            a, b = b, a
        if not isinstance(a, Range):
            return self.binary(op, a, b)
        n = self.int(b)
        if op == "*":
            return Range(a.start * n, a.extent, a.by, a.step * n)
        return replace(a, start=a.start + (n if op == "+" else -n))

    def attribute(self, x: Any, name: str) -> Any:
        if isinstance(x, Range):
            return {"start": Idx(x.start), "stop": Idx(x.start + x.extent * x.step), "by": x.by}[name]
        if name == "T":
            return transposed(full(x), (1, 0))
        raise Refused(f"attribute {name}")

    def subscript(self, node: ast.Subscript, base: Any, items: list[ast.Expr]) -> Any:
        if isinstance(base, tuple):
            return base[self.int(self.eval(items[0]))]
        if isinstance(base, Tensor):
            return self.place(node).read()
        return self.tile_part(base, items)

    def tile_part(self, x: Num, items: list[ast.Expr]) -> Num:
        index: list[Any] = []
        lens: list[int | None] = []
        axis = 0
        for item in items:
            if isinstance(item, ast.NoneLiteral):
                index.append(None)
                lens.append(1)
                continue
            n = x.val.shape[axis]
            if isinstance(item, ast.Slice):
                start, stop, step = (None if e is None else self.int(self.eval(e)) for e in (item.start, item.stop, item.step))
                whole = start is None and stop is None and step in (None, 1)
                if not whole and (stop if stop is not None else n) > n:
                    raise Stop("run-out-of-bounds")
                index.append(slice(start, stop, step))
                lens.append(x.lens[axis] if whole else len(range(n)[index[-1]]))
            else:
                i = self.int(self.eval(item))
                if not 0 <= i < n:
                    raise Stop("run-out-of-bounds")
                index.append(i)
            axis += 1
        at = tuple(index)
        return Num(x.dtype, np.asarray(x.val[at]), np.asarray(x.err[at]), (*lens, *x.lens[axis:]))

    def place(self, node: ast.Expr, padded: bool = False) -> Place:
        base = self.eval(node.base if isinstance(node, ast.Subscript) else node)
        if not isinstance(base, Tensor):
            raise Refused("a place in something that is not a tensor")
        items = [None if isinstance(i, ast.NoneLiteral) else self.slice(i) if isinstance(i, ast.Slice) else self.eval(i) for i in getattr(node, "items", [])]
        entries: list[Any] = []
        for n, length, item in itertools.zip_longest(base.val.shape, base.lens, items):
            if item is None:
                item = (None, None, None)
            if isinstance(item, tuple):
                start, stop, step = item
                whole = item == (None, None, None)
                start, step = start or 0, step or 1
                extent = max(-(-((n if stop is None else stop) - start) // step), 0)
                entries.append((start, extent, step, length if whole else extent))
            elif isinstance(item, Range):
                entries.append((item.start, item.by if padded else item.extent, item.step, item.by))
            elif isinstance(item, (Num, Tensor)) and len(item.lens):
                entries.append(full(item))
            else:
                entries.append(self.int(item))
        return Place(base, entries, padded)

    def slice(self, s: ast.Slice) -> tuple[int | None, ...]:
        return tuple(None if e is None else self.int(self.eval(e)) for e in (s.start, s.stop, s.step))

    # -- calls

    def call_function(self, name: str, args: list[ast.Expr], kwargs: dict[str, ast.Expr]) -> Any:
        if name in self.functions:
            return self.inline(self.functions[name], args, kwargs)
        from tests.evaluator.functions import FUNCTIONS

        f = FUNCTIONS.get(name)
        if f is not None:
            return f(self, *args, **kwargs)
        if name in bd.NUMPY or isinstance(self.name(name), Dtype):
            return self.convert(self.eval(args[0]), str(self.name(name)))
        raise Refused(f"function {name}")

    def inline(self, function: ast.Function, args: list[ast.Expr], kwargs: dict[str, ast.Expr]) -> Any:
        values = [self.eval(a) for a in args]
        named = {k: self.eval(v) for k, v in kwargs.items()}
        outer, scope = self.scope, {}
        for p, value in itertools.zip_longest(function.params, values):
            if p.name in named:
                value = named[p.name]
            elif value is None and p.default is not None:
                value = self.eval(p.default)
            dtype = _name(p.annotation)
            scope[p.name] = self.convert(value, dtype) if dtype in bd.NUMPY else value
        self.scope = scope
        try:
            return self.body_value(function)
        finally:
            self.scope = outer


def _axis(lo: int, hi: int, by: int | None, step: int = 1) -> Iterator[Any]:
    if by is None:
        yield from (Idx(i) for i in range(lo, hi, step))
    else:
        yield from (Range(i, min(by, hi - i), by) for i in range(lo, hi, by))


def _python(op: str, a: Any, b: Any) -> Any:
    if op in ("//", "%") and b == 0:
        return 0  # as integers at run time
    return {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "//": lambda: a // b, "%": lambda: a % b,
        "**": lambda: a**b, "&": lambda: a & b, "|": lambda: a | b, "^": lambda: a ^ b, "<<": lambda: a << b, ">>": lambda: a >> b,
    }[op]()  # fmt: skip


def _name(node: ast.Expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else node.name if isinstance(node, ast.Attribute) else ""


def _dtype_name(array: Any) -> str:
    return next(name for name, t in bd.NUMPY.items() if np.dtype(t) == array.dtype)


def _tile_function(function: ast.Function) -> bool:
    """Whether values live in tensors that are read and written part by part: the function has a grid."""
    return any(isinstance(n, ast.Call) and _name(n.func) in ("grid", "empty") for n in ast.walk(function))
