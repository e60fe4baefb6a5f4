"""Random programs of the language, well-typed by construction: hypothesis strategies that write source text.

Expressions are made from the type that is wanted (dtype and axes) down to loads; parameters come into being where an expression loads from one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st

from tests.evaluator import bounded as bd
from tests.fuzz.cases import Case, Scalar, Tensor

T = TypeVar("T")
SIZES = (5, 1, 2, 3, 8, 0, 7, 9, 16, 17, 20, 33)
BLOCKS = (4, 8, 1, 3, 16, 5)
FLOATS, INTS = ("f32", "f64", "f16", "bf16"), ("i32", "i64", "i8", "u8", "i16", "u16", "u32", "u64")


class Axis(NamedTuple):
    """kind: range (of variable `name`, over `dim`, in blocks of n), dim (all of one), len (n elements)."""

    kind: str
    name: str
    n: int = 0
    dim: str | int = 0

    @property
    def item(self) -> str:
        """As a shape argument."""
        return str(self.n) if self.kind == "len" else self.name


Axes = tuple[Axis, ...]


@dataclass
class Var:
    name: str
    dtype: str
    axes: Axes
    fixed: bool = False  # not to be assigned to
    buffer: bool = False
    used: bool = False


class Writer:
    """Writes one program. draw(n) gives a number below n; smaller numbers give simpler programs."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self.below = draw
        self.args: list[Tensor | Scalar] = []
        self.params: list[str] = []
        self.keywords: list[str] = []
        self.dims: dict[str, int] = {}
        self.vars: list[Var] = []
        self.scalars: list[Var] = []  # run-time numbers
        self.lines: list[str] = []
        self.indent = 1
        self.count = 0
        self.helpers: list[str] = []
        self.dtype_params: list[str] = []
        self.whole = False  # a whole-tensor function
        self.loops = 0
        self.grid = 0  # axes of the grid being written
        self.budget = 40

    # -- choices

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def often(self, times: int, of: int = 10) -> bool:
        return self.below(of) >= of - times

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def dim(self) -> str:
        if self.dims and self.often(7):
            return self.pick(list(self.dims))
        name = "MNKPQR"[len(self.dims)] if len(self.dims) < 6 else self.fresh("D")
        self.dims[name] = self.pick(SIZES)
        return name

    def float_or_int(self) -> str:
        return self.pick(("f32", "f32", "i32", "f64", "f16", "bf16", "i64", "i8", "u8", "i16", "u16", "u32", "u64"))

    # -- parameters

    def tensor(self, dtype: str, dims: tuple[str | int, ...], below: str | int | None = None, role: str = "") -> str:
        for a in self.args:
            if isinstance(a, Tensor) and (a.dtype, a.dims, a.below) == (dtype, dims, below) and not role and a.name[0] == "x" and self.often(5):
                return a.name
        name = self.fresh("x" if not role else "io")
        listed = ", ".join(map(str, dims))
        self.args.append(Tensor(name, dtype, dims, below))
        self.params.append(f"{name}: {role}[{dtype}, {listed}]" if role else f"{name}: {dtype}[{listed}]")
        return name

    def number(self, dtype: str) -> str:
        """A run-time scalar parameter."""
        found = [s.name for s in self.scalars if s.dtype == dtype]
        if found and self.often(5):
            return self.pick(found)
        name = self.fresh("s")
        value: Any = self.below(2) == 1 if dtype == "bool_" else self.below(9) - (3 if dtype not in bd.UNSIGNED else 0)
        self.args.append(Scalar(name, dtype, value / 4 if bd.is_float(dtype) else value))
        self.params.append(f"{name}: {dtype}")
        self.scalars.append(Var(name, dtype, (), fixed=True))
        return name

    # -- tile expressions

    def expr(self, axes: Axes, dtype: str, depth: int) -> str:
        """Source of a tile of these axes and dtype."""
        self.budget -= 1
        if not axes:
            return self.scalar(dtype, depth)
        if depth <= 0 or self.budget < 0:
            return self.leaf(axes, dtype)
        makers: list[Callable[[Axes, str, int], str]] = [self.plain_leaf, self.binary, self.unary, self.converted, self.choice, self.reduced, self.broadcasted]
        if len(axes) == 2:
            makers += [self.product, self.turned]
        if not self.whole:
            makers += [self.gathered, self.taken]
        makers += [self.scanned, self.bits, self.helped, self.masked, self.whole_reduced, self.conditional]
        if len(axes) == 3:
            makers += [self.batched, self.batched]
        made = self.pick(makers)(axes, dtype, depth - 1)
        return made or self.leaf(axes, dtype)

    def plain_leaf(self, axes: Axes, dtype: str, depth: int) -> str:
        return self.leaf(axes, dtype)

    def leaf(self, axes: Axes, dtype: str) -> str:
        if not axes:
            return self.scalar(dtype, 0)
        found = [v for v in self.vars if v.axes == axes]
        if found and self.often(5):
            return self.use(self.pick(found), dtype)
        kind = self.below(12)
        if kind == 11 and dtype != "bool_":
            return f"full({dtype}, {self.items(axes)}, value={self.literal(dtype)})"
        if kind == 10:
            return f"{self.pick(('zeros', 'ones'))}({dtype}, {self.items(axes)})"
        if kind == 9 and dtype in ("i32", "i64", "u32") and len(axes) == 1:
            return f"iota({axes[0].item}, dtype={dtype})"
        if kind == 8 and dtype == "f32" and not self.whole and not self.dtype_params:
            return self.generic(axes)
        return self.load(axes, dtype)

    def use(self, v: Var, dtype: str) -> str:
        v.used = True
        return v.name if v.dtype == dtype else f"cast({v.name}, {dtype})"

    def unused(self, axes: Axes, dtype: str) -> str:
        """What makes every variable count for a result of these axes: ' + ...'."""
        out = ""
        for v in self.vars:
            if v.used:
                continue
            x = self.use(v, dtype)
            if v.axes == axes or (v.axes == axes[1:] and v.axes):
                part = x
            elif len(axes) == 2 and v.axes == axes[:1]:
                part = f"{x}[:, None]"
            elif self.whole:
                continue
            else:
                part = f"any({x})" if dtype == "bool_" else f"cast({self.pick(('sum', 'max', 'min'))}({x}), {dtype})"
            out += f" ^ {part}" if dtype == "bool_" else f" {self.pick(('+', '-', '*') if dtype in FLOATS else ('+', '-', '^'))} {part}"
        return out

    def generic(self, axes: Axes) -> str:
        """A load from a tensor whose dtype is a parameter."""
        self.dtype_params.append("Float = dtypes(f32, f16, bf16)")
        dims, items = self.plain(axes)
        name = self.fresh("x")
        self.args.append(Tensor(name, self.pick(("f32", "f16", "bf16")), dims))
        self.params.append(f"{name}: Tensor[Float, {', '.join(map(str, dims))}]")
        return f"cast({name}[{items}], f32)"

    def plain(self, axes: Axes) -> tuple[tuple[str | int, ...], str]:
        dims = tuple(a.dim if a.kind == "range" else a.name if a.kind == "dim" else a.n for a in axes)
        return dims, ", ".join(a.name if a.kind == "range" else ":" for a in axes)

    def items(self, axes: Axes) -> str:
        return ", ".join(a.item for a in axes)

    def literal(self, dtype: str) -> str:
        n = self.below(7) - (2 if dtype not in bd.UNSIGNED else 0)
        if dtype == "bool_":
            return str(n > 0)
        return self.pick((f"{n}.0", f"{n}.25", f"{n}", "1e-3", "0.1", "inf", "-inf")) if bd.is_float(dtype) else str(n)

    def load(self, axes: Axes, dtype: str) -> str:
        if dtype == "bool_" and self.often(5):
            other = self.pick(("f32", "i32"))
            return f"({self.load(axes, other)} {self.pick(('<', '>=', '==', '!='))} {self.literal(other)})"
        dims, items = self.plain(axes)
        kind = self.below(9) if not self.whole else 0
        if kind >= 5 and any(a.kind == "range" for a in axes):
            return self.moved(axes, dtype, kind)
        if kind == 4:  # an axis more, read at one index
            n = self.pick((3, 1, 6))
            i = self.pick((str(n - 1), "0", *(s.name for s in self.scalars if s.dtype == "i32")))
            at = self.below(len(axes) + 1)
            parts = items.split(", ")
            items = ", ".join([*parts[:at], i, *parts[at:]])
            dims = (*dims[:at], n, *dims[at:])
        if kind == 3 and len(axes) == 2:
            dims = (dims[1], dims[0])
            return f"{self.tensor(dtype, dims)}[{', '.join(reversed(items.split(', ')))}].T"
        name = self.tensor(dtype, dims)
        return name if self.whole else f"{name}[{items}]"

    def moved(self, axes: Axes, dtype: str, kind: int) -> str:
        """A load where ranges are moved or stretched: padded, or inside a longer tensor."""
        dims, subscript = [], []
        for a in axes:
            if a.kind != "range":
                dims.append(a.name if a.kind == "dim" else a.n)
                subscript.append(":")
                continue
            by, shift = self.pick(((1, 1), (2, 0), (2, 1), (1, 2), (3, 0)))
            subscript.append(f"{a.name}{f' * {by}' if by > 1 else ''}{f' + {shift}' if shift else ''}")
            extent = self.dims[a.dim] if isinstance(a.dim, str) else a.dim
            if kind >= 7:
                subscript[-1] = subscript[-1].replace(" + ", self.pick((" + ", " - ")))
                dims.append(a.dim)
            else:
                longer = f"L{a.dim}_{by}{shift}"
                self.dims.setdefault(longer, extent * by + shift)
                dims.append(longer)
        name = self.tensor(dtype, tuple(dims))
        place = f"{name}[{', '.join(subscript)}]"
        return f"load({place}, pad={self.literal(dtype)})" if kind >= 7 else place

    def binary(self, axes: Axes, dtype: str, depth: int) -> str:
        if dtype == "bool_":
            if self.often(5):
                return f"({self.expr(axes, dtype, depth)} {self.pick('&|^')} {self.expr(axes, dtype, depth)})"
            other = self.float_or_int()
            left, right = self.operands(axes, other, depth)
            return f"({left} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {right})"
        if self.often(2):
            left, right = self.operands(axes, dtype, depth)
            return f"{self.pick(('max', 'min'))}({left}, {right})"
        if self.often(1) and bd.is_float(dtype):
            return f"fma({self.expr(axes, dtype, depth)}, {self.expr(axes, dtype, depth - 1)}, {self.expr(axes, dtype, depth - 1)})"
        if self.often(1):
            return f"({self.expr(axes, dtype, depth)} ** {self.pick((2, 3, 4))})"
        ops = ("+", "-", "*", "/", "//", "%") if bd.is_float(dtype) else ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>")
        left, right = self.operands(axes, dtype, depth)
        return f"({left} {self.pick(ops)} {right})"

    def operands(self, axes: Axes, dtype: str, depth: int) -> tuple[str, str]:
        """Two operands that meet in a dtype and these axes."""
        left, own = self.expr(axes, dtype, depth), dtype
        kind = self.below(8)
        if kind <= 2:
            right = self.literal(dtype)
        elif kind == 3 and self.narrower(dtype):
            right = self.expr(axes, self.pick(self.narrower(dtype)), depth - 1)
        elif kind == 4:
            right = self.scalar(dtype, depth - 1)
        elif kind == 5 and len(axes) == 2:
            right = self.part(axes, own, depth - 1)
        elif kind == 6 and axes:
            right = f"{self.pick(('max', 'min', 'sum'))}({self.expr(axes, dtype, depth - 1)}, axis={self.below(len(axes))}, keepdims=True)"
            right = right if bd.acc_type(dtype) == dtype else self.expr(axes, dtype, depth - 1)
        else:
            right = self.expr(axes, dtype, depth - 1)
        return (left, right) if self.often(5) else (right, left)

    def part(self, axes: Axes, dtype: str, depth: int) -> str:
        """A tile that broadcasts to two axes."""
        if self.often(5):
            return self.expr(axes[1:], dtype, depth)
        return f"expand({self.expr(axes[:1], dtype, depth)}, 1)" if self.often(3) else f"{self.expr(axes[:1], dtype, depth)}[:, None]"

    def narrower(self, dtype: str) -> list[str]:
        out = []
        for d in (*FLOATS, *INTS, "bool_"):
            try:
                if d != dtype and bd.promote(d, dtype) == dtype:
                    out.append(d)
            except bd.Refused:
                continue
        return out

    def unary(self, axes: Axes, dtype: str, depth: int) -> str:
        x = self.expr(axes, dtype, depth)
        if dtype == "bool_":
            return f"(~{x})"
        if not bd.is_float(dtype):
            return self.pick((f"(-{x})", f"abs({x})", f"(~{x})", f"relu({x})", f"clamp({x}, {self.literal(dtype)}, 5)"))
        name = self.pick(("-", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "sigmoid", "gelu", "silu", "relu", "floor",
                          "ceil", "round", "gelu_tanh", "clamp"))  # fmt: skip
        if name == "gelu_tanh":
            return f'gelu({x}, approximate="tanh")'
        return f"(-{x})" if name == "-" else f"clamp({x}, {self.literal(dtype)}, 2.5)" if name == "clamp" else f"{name}({x})"

    def converted(self, axes: Axes, dtype: str, depth: int) -> str:
        source = self.pick([d for d in (*FLOATS, *INTS, "bool_", "f8e4m3", "f8e5m2") if d != dtype])
        return f"cast({self.load(axes, source) if source.startswith('f8') else self.expr(axes, source, depth)}, {dtype})"

    def choice(self, axes: Axes, dtype: str, depth: int) -> str:
        if dtype == "bool_" and self.often(3):
            return f"{self.pick(('isnan', 'isinf'))}({self.expr(axes, self.pick(FLOATS), depth)})"
        left, right = self.operands(axes, dtype, depth)
        return f"where({self.expr(axes, 'bool_', depth - 1)}, {left}, {right})"

    def extra(self) -> Axis:
        """An axis to be reduced."""
        if self.often(5):
            return Axis("dim", self.dim())
        return Axis("len", "", self.pick((3, 4, 1, 8))) if not self.whole else Axis("dim", self.dim())

    def reduced(self, axes: Axes, dtype: str, depth: int) -> str:
        at = self.below(len(axes) + 1)
        extra = self.extra()
        if extra in axes:
            return ""
        full = (*axes[:at], extra, *axes[at:])
        if dtype == "bool_":
            return f"{self.pick(('any', 'all'))}({self.expr(full, 'bool_', depth)}, axis={at})"
        if self.often(3) or bd.acc_type(dtype) != dtype:
            return f"{self.pick(('max', 'min'))}({self.expr(full, dtype, depth)}, axis={at})"
        if dtype == "i32" and self.often(3) and not self.empty(extra):
            return f"{self.pick(('argmax', 'argmin'))}({self.expr(full, self.float_or_int(), depth)}, axis={at})"
        if dtype == "i64" and self.often(3) and not self.empty(extra):
            return f"{self.pick(('argmax', 'argmin'))}({self.expr(full, self.float_or_int(), depth)}, axis={at}, dtype=i64)"
        source = self.pick([d for d in (*FLOATS, *INTS, "bool_") if bd.acc_type(d) == dtype])
        kind = self.pick(("sum", "sum", "mean" if bd.is_float(dtype) else "sum", "prod"))
        return f"{kind}({self.expr(full, source, depth)}, axis={at})"

    def empty(self, axis: Axis) -> bool:
        return axis.kind == "dim" and self.dims[axis.name] == 0

    def broadcasted(self, axes: Axes, dtype: str, depth: int) -> str:
        if len(axes) != 2 or dtype == "bool_":
            return ""
        return f"({self.expr(axes[:1], dtype, depth)}[:, None] {self.pick('+-*')} {self.expr(axes[1:], dtype, depth)})"

    def product(self, axes: Axes, dtype: str, depth: int) -> str:
        if dtype not in ("f32", "f64", "i32", "i64"):
            return ""
        k = self.extra()
        if k in axes:
            return ""
        sources = {"f32": ("f32", "f16", "bf16"), "i32": ("i32", "i8", "u8", "i16"), "f64": ("f64",), "i64": ("i64",)}[dtype]
        a, b = (self.pick(sources) for _ in "ab")
        if dtype == "i32" and (a[0] == "u") != (b[0] == "u"):
            b = a
        left, right = self.expr((axes[0], k), a, depth - 1), self.expr((k, axes[1]), b, depth - 1)
        if self.often(2):
            return f"matmul({left}, {right}, acc={self.expr(axes, dtype, depth - 1)})"
        return f"({left} @ {right})"

    def turned(self, axes: Axes, dtype: str, depth: int) -> str:
        x = self.expr((axes[1], axes[0]), dtype, depth)
        return f"transpose({x}, 1, 0)" if self.often(4) else f"{x}.T"

    def gathered(self, axes: Axes, dtype: str, depth: int) -> str:
        """Rows of a table by an index tile."""
        if not axes:
            return ""
        at = self.below(len(axes))
        n: str | int = self.pick((4, 7)) if self.often(5) else self.dim()
        if isinstance(n, str) and self.dims[n] == 0:
            return ""
        dims, items = self.plain(axes)
        i_dims, i_items = self.plain(axes[at : at + 1])
        index = f"{self.tensor('i32', i_dims, n)}[{i_items}]" if isinstance(n, str) or self.often(5) else f"({self.expr(axes[at : at + 1], 'i32', depth - 1)} % {n})"
        parts = items.split(", ")
        table = self.tensor(dtype, (*dims[:at], n, *dims[at + 1 :]))
        return f"{table}[{', '.join([*parts[:at], index, *parts[at + 1 :]])}]"

    def taken(self, axes: Axes, dtype: str, depth: int) -> str:
        """gather(): elements of a tile by an index tile of the same rank."""
        at = self.below(len(axes)) if axes else 0
        if not axes:
            return ""
        n = self.pick((4, 3))
        source = (*axes[:at], Axis("len", "", n), *axes[at + 1 :])
        return f"gather({self.expr(source, dtype, depth - 1)}, ({self.expr(axes, 'i32', depth - 1)} % {n}), axis={at})"

    def scanned(self, axes: Axes, dtype: str, depth: int) -> str:
        if not axes or dtype == "bool_" or bd.acc_type(dtype) != dtype:
            return ""
        source = self.pick([d for d in (*FLOATS, *INTS) if bd.acc_type(d) == dtype])
        exclusive = ", exclusive=True" if self.often(4) else ""
        return f"cumsum({self.expr(axes, source, depth)}, axis={self.below(len(axes))}{exclusive})"

    def bits(self, axes: Axes, dtype: str, depth: int) -> str:
        pairs = {"f32": "i32", "i32": "f32", "f64": "i64", "i64": "f64", "f16": "u16", "u16": "f16", "u32": "i32", "i8": "u8", "i16": "bf16"}
        return f"reinterpret({self.expr(axes, pairs[dtype], depth)}, {dtype})" if dtype in pairs else ""

    def masked(self, axes: Axes, dtype: str, depth: int) -> str:
        """Chosen by position, as causal masks are."""
        if dtype != "bool_":
            return f"where({self.masked(axes, 'bool_', depth)}, {self.expr(axes, dtype, depth)}, {self.literal(dtype)})"
        rows = f"iota({axes[0].item})" + ("" if len(axes) == 1 else f"[:, {', '.join(['None'] * (len(axes) - 1))}]")
        return f"({rows} {self.pick(('<', '>=', '=='))} {f'iota({axes[-1].item})' if len(axes) > 1 and self.often(6) else self.below(9)})"

    def whole_reduced(self, axes: Axes, dtype: str, depth: int) -> str:
        """Something minus its reduction over several axes."""
        if dtype == "bool_" or bd.acc_type(dtype) != dtype:
            return ""
        kind = self.pick(("sum", "max", "min", *(("mean",) if bd.is_float(dtype) else ())))
        axis = self.pick(("", f", axis=({', '.join(str(i) for i in range(len(axes)))},)", ", axis=-1, keepdims=True", ", axis=None"))
        return f"({self.expr(axes, dtype, depth)} - {kind}({self.expr(axes, dtype, depth)}{axis}))"

    def conditional(self, axes: Axes, dtype: str, depth: int) -> str:
        if self.whole:
            return ""
        return f"({self.expr(axes, dtype, depth)} if {self.condition()} else {self.expr(axes, dtype, depth - 1)})"

    def batched(self, axes: Axes, dtype: str, depth: int) -> str:
        """A product for every index of the first axis."""
        if dtype not in ("f32", "f64", "i32"):
            return ""
        k = self.extra()
        if k in axes:
            return ""
        source = {"f32": "f16", "f64": "f64", "i32": "i8"}[dtype] if self.often(5) else dtype
        return f"({self.expr((*axes[:2], k), source, depth - 1)} @ {self.expr((axes[0], k, axes[2]), source, depth - 1)})"

    def helped(self, axes: Axes, dtype: str, depth: int) -> str:
        """A call of a helper function."""
        if dtype == "bool_":
            return ""
        if not self.helpers:
            self.helpers.append("def helper(a, b):\n    c = a * b\n    return c + a\n")
        return f"helper({self.expr(axes, dtype, depth)}, {self.expr(axes, dtype, depth - 1)})"

    # -- scalars

    def scalar(self, dtype: str, depth: int) -> str:
        """A run-time number."""
        kind = self.below(6)
        if self.whole:
            kind = min(kind, 2)
        if kind == 5 and self.loops and dtype != "bool_":
            found = [v.name for v in self.scalars if v.dtype == "index"]
            if found:
                return f"cast({self.pick(found)}, {dtype})"
        if kind == 4 and dtype != "bool_" and self.dims:
            return f"cast({self.pick(list(self.dims))}, {dtype})"
        if kind == 3 and depth > 0:
            axes = (Axis("len", "", self.pick((4, 3))),)
            if dtype == "bool_":
                return f"any({self.expr(axes, 'bool_', depth - 1)})"
            return f"cast({self.pick(('sum', 'max'))}({self.expr(axes, dtype, depth - 1)}), {dtype})"
        if kind == 2 and depth > 0 and dtype not in ("bool_", *bd.UNSIGNED):
            return f"({self.scalar(dtype, depth - 1)} {self.pick('+*-')} {self.number(dtype)})"
        return self.number(dtype)

    def condition(self) -> str:
        options = [f"{self.number('i32')} > {self.below(5) - 1}", self.number("bool_")]
        options += [f"{v.name} {self.pick(('<', '>=', '=='))} {self.below(4)}" for v in self.scalars if v.dtype == "index"]
        ranges = [a for v in self.vars for a in v.axes if a.kind == "range"]
        options += [f"{a.name}.start > {self.below(9)}" for a in ranges[:1]] + [f"len({a.name}) == {a.n}" for a in ranges[-1:]]
        options.append(f"any({self.expr((Axis('len', '', 4),), 'bool_', 0)})")
        chosen = self.pick(options)
        return f"{chosen} and {self.number('bool_')}" if self.often(1) else f"not ({chosen})" if self.often(1) else chosen


def drawn(draw: Any) -> Callable[[int], int]:
    """Numbers below n, from a hypothesis draw."""
    integers = [st.integers(0, n - 1) for n in range(1, 40)]
    return lambda n: draw(integers[n - 1]) if n > 1 else 0


@st.composite
def cases(draw: Any) -> Case:
    from tests.fuzz.bodies import write

    w = Writer(drawn(draw))
    write(w)
    head = [f'{", ".join(w.dims)} = dims("{" ".join(w.dims)}")'] if w.dims else []
    seed = draw(st.integers(0, 2**16))
    extra = {"special": w.often(2), "strided": w.often(2), "threads": 1 + w.below(2), "each": w.often(1, 20)}
    return Case("\n".join([*head, *w.dtype_params, "", *w.helpers, *w.lines, ""]), w.args, dict(w.dims), seed, **extra)
