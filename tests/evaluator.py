"""The language by its own definition: runs a function on arrays, straight from the syntax tree, block by block in the order of the grid.

It shares nothing with the typed builder, the IR or the interpreter, and keeps them honest. Every number carries the bound of its error
(tests/bounded.py), so a result says itself how closely others must agree with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests import bounded as bd
from tests.bounded import Num, Refused
from tilelang.frontend import ast


class Stop(Exception):
    """The kernel stops here, with an error of this slug."""

    def __init__(self, slug: str) -> None:
        super().__init__(slug)
        self.slug = slug


class Unsure(Exception):
    """What happens next depends on rounding or on memory that was never written: the program has no one meaning."""


class Endless(Exception):
    """The run takes more steps than it may."""


class Idx(int):
    """An integer of index arithmetic: a dim, a loop index."""


class Dtype(str):
    pass


@dataclass(frozen=True)
class Range:
    start: int
    extent: int
    by: int
    step: int = 1


@dataclass
class Tensor:
    """A tensor in memory, or a buffer. mag: the sum of absolute values added atomically, whose order is free."""

    dtype: str
    val: bd.Array
    err: bd.Array
    lens: tuple[int | None, ...]
    is_global: bool = True
    mag: bd.Array | None = None


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
                scope[p.name] = self.eval(value) if isinstance(value, ast.Node) else value
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
            lens = tuple(n if type(e := self.eval(item)) is int else None for item, n in zip(shape, value.shape, strict=True))
            x = bd.exact(dtype, value, lens)
            scope[p.name] = Tensor(dtype, x.val, x.err, lens)
            if updated:
                inout[p.name] = scope[p.name]
        if not _tile_function(function):
            scope.update({n: _full(t) for n, t in scope.items() if isinstance(t, Tensor) and n not in inout})
        try:
            returned = self.body_value(function)
        except Stop as stop:
            return Result(stop=stop.slug)
        values = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
        declared = self.results(function.result)
        out = [bd.cast(self.number(v, d), d) for v, d in zip(values, declared, strict=True)]
        return Result(out, {n: _full(t) for n, t in inout.items()})

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
        if isinstance(value, (Num, Tensor)):
            if (bd.is_float(value.dtype) and not bd.is_float(dtype)) or (dtype == "bool_") > (value.dtype == "bool_"):
                raise Refused(f"store of {value.dtype} to {dtype}")
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
            value = _full(value)
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
        a, b = (_full(v) if isinstance(v, Tensor) else v for v in (a, b))
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
            return _transposed(_full(x), (1, 0))
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
                entries.append(_full(item))
            else:
                entries.append(self.int(item))
        return Place(base, entries, padded)

    def slice(self, s: ast.Slice) -> tuple[int | None, ...]:
        return tuple(None if e is None else self.int(self.eval(e)) for e in (s.start, s.stop, s.step))

    # -- calls

    def call_function(self, name: str, args: list[ast.Expr], kwargs: dict[str, ast.Expr]) -> Any:
        if name in self.functions:
            return self.inline(self.functions[name], args, kwargs)
        from tests import evaluator_functions as ef

        f = ef.FUNCTIONS.get(name)
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


@dataclass
class Place:
    """Elements of a tensor. entries: an int (the axis is dropped), (start, extent, step, length) or an index tile."""

    tensor: Tensor
    entries: list[Any]
    padded: bool = False

    def __post_init__(self) -> None:
        tiles = [e for e in self.entries if isinstance(e, Num)]
        self.tiles, shared = aligned(tiles) if tiles else ([], ())
        shape = np.broadcast_shapes(*(t.val.shape for t in self.tiles))
        if any((t.err > 0).any() for t in self.tiles):
            raise Unsure
        where = [i for i, e in enumerate(self.entries) if isinstance(e, Num)]
        apart = bool(where) and any(isinstance(e, tuple) for e in self.entries[where[0] : where[-1]])
        axes: list[tuple[str, Any, int, int | None]] = []
        both = [("shared", k, n, length) for k, (n, length) in enumerate(zip(shape, shared, strict=True))]
        for i, e in enumerate(self.entries):
            if isinstance(e, tuple):
                axes.append(("own", i, e[1], e[3]))
            elif where and i == where[0] and not apart:
                axes += both
        axes = both + axes if apart else axes
        self.shape = tuple(a[2] for a in axes)
        self.lens = tuple(a[3] for a in axes)
        self.order = [a[:2] for a in axes]
        self.shared_rank = len(shape)

    def positions(self, shape: tuple[int, ...]) -> tuple[bd.Array, ...]:
        """For each axis of the tensor the positions, over the part of the place of this shape."""
        out = []
        tiles = iter(self.tiles)
        rank = len(self.order)
        for i, e in enumerate(self.entries):
            if isinstance(e, Num):
                t = next(tiles).val
                view = [1] * rank
                first = next((k for k, (kind, _) in enumerate(self.order) if kind == "shared"), 0)
                full = np.broadcast_to(t, np.broadcast_shapes(t.shape, (1,) * self.shared_rank))
                view[first : first + self.shared_rank] = full.shape
                p = full.astype(np.int64).reshape(view)
                p = p[tuple(slice(0, n) for n in shape)]
            elif isinstance(e, tuple):
                at = self.order.index(("own", i))
                p = (e[0] + e[2] * np.arange(shape[at])).reshape([-1 if k == at else 1 for k in range(rank)])
            else:
                p = np.asarray(e)
            out.append(np.broadcast_to(p, shape))
        return tuple(out)

    def inside(self, at: tuple[bd.Array, ...]) -> bd.Array:
        ok = np.ones(at[0].shape if at else (), bool)
        for p, n in zip(at, self.tensor.val.shape, strict=True):
            ok &= (p >= 0) & (p < n)
        return ok

    def read(self, pad: Num | None = None) -> Num:
        at = self.positions(self.shape)
        ok = self.inside(at)
        t = self.tensor
        if not self.padded and not ok.all():
            raise Stop("run-out-of-bounds")
        if pad is None or ok.all():
            return Num(t.dtype, np.asarray(t.val[at]), np.asarray(t.err[at]), self.lens)
        safe = tuple(np.where(ok, p, 0) for p in at)
        if 0 in t.val.shape:
            val, err = np.broadcast_to(pad.val, self.shape), np.broadcast_to(pad.err, self.shape)
        else:
            val, err = np.where(ok, t.val[safe], pad.val), np.where(ok, t.err[safe], pad.err)
        return Num(t.dtype, val, err, self.lens)

    def fitted(self, value: Num) -> tuple[tuple[bd.Array, ...], Num]:
        """The positions that a value goes to: where both the place and the value have elements."""
        if value.rank > len(self.shape):
            raise Refused("a value of more axes than its place")
        shape, offset = list(self.shape), len(self.shape) - value.rank
        for i, (n, length) in enumerate(zip(value.val.shape, value.lens, strict=True), offset):
            if length != 1 or self.lens[i] == 1:
                if length is not None and self.lens[i] is not None and length != self.lens[i]:
                    raise Refused("a value of another length than its place")
                if n < shape[i]:
                    raise Stop("run-assert")
        at = self.positions(tuple(shape))
        if not self.inside(at).all():
            raise Stop("run-out-of-bounds")
        return at, fit(value, self.lens, tuple(shape))

    def write(self, value: Num) -> None:
        at, fitted = self.fitted(value)
        t = self.tensor
        t.val[at], t.err[at] = fitted.val, fitted.err

    def atomic(self, kind: str, value: Num) -> None:
        at, fitted = self.fitted(value)
        t = self.tensor
        if kind == "add" and bd.is_float(t.dtype) and t.mag is None:
            t.mag = np.abs(t.val)
        for index in np.ndindex(fitted.val.shape):
            i = tuple(int(p[index]) for p in at)
            old = Num(t.dtype, np.asarray(t.val[i]), np.asarray(t.err[i]))
            new = Num(t.dtype, np.asarray(fitted.val[index]), np.asarray(fitted.err[index]))
            made = bd.binary("+" if kind == "add" else kind, old, new)
            err = made.err
            if t.mag is not None:
                t.mag[i] += np.abs(new.val)
                err = err + 2 * bd.UNIT[t.dtype] * t.mag[i] if np.isfinite(t.mag[i]) else err
                err = np.inf if np.isfinite(t.mag[i]) and t.mag[i] + err > bd.LARGEST[t.dtype] else err
            t.val[i], t.err[i] = made.val, err


# -- shapes


def fit(x: Num, lens: tuple[int | None, ...], shape: tuple[int, ...]) -> Num:
    """x narrowed to a shape, repeated where it has length 1 or no axis."""
    offset = len(shape) - x.rank
    cut = tuple(slice(None) if length == 1 and lens[i] != 1 else slice(0, shape[i]) for i, length in enumerate(x.lens, offset))
    val, err = np.broadcast_to(x.val[cut], shape), np.broadcast_to(x.err[cut], shape)
    return Num(x.dtype, val, err, lens)


def aligned(values: Sequence[Num]) -> tuple[list[Num], tuple[int | None, ...]]:
    """Values in one shape, by the rule for axes: lengths agree or are 1, the valid part is what all have."""
    rank = max(v.rank for v in values)
    lens: list[int | None] = []
    shape: list[int] = []
    for i in range(-rank, 0):
        length: int | None = 1
        extent = 1
        for v in values:
            if v.rank < -i:
                continue
            own, n = v.lens[i], v.val.shape[i]
            if own == 1:
                continue
            if length == 1:
                length, extent = own, n
                continue
            if own is not None and length is not None and own != length:
                raise Refused(f"lengths {length} and {own}")
            if own is None and length is None and n != extent:
                raise Stop("run-assert")
            length, extent = (own if length is None else length), min(extent, n)
        lens.append(length)
        shape.append(extent)
    return [fit(v, tuple(lens), tuple(shape)) for v in values], tuple(lens)


def _full(t: Any) -> Num:
    return Num(t.dtype, t.val.copy(), t.err.copy(), t.lens) if isinstance(t, Tensor) else t


def _transposed(x: Num, perm: tuple[int, ...]) -> Num:
    return Num(x.dtype, x.val.transpose(perm), x.err.transpose(perm), tuple(x.lens[p] for p in perm))


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
