"""Statements of random programs: whole-tensor functions, and grids of blocks with loops, branches, buffers and stores."""

from __future__ import annotations

from tests.evaluator import bounded as bd
from tests.fuzz.cases import Tensor
from tests.fuzz.programs import BLOCKS, FLOATS, Axes, Axis, Var, Writer

OUTPUTS = ("f32", "f32", "i32", "f64", "f16", "bf16", "i64", "i8", "u8", "i16", "u32", "bool_", "u16", "u64")


def write(w: Writer) -> None:
    """Writes the function `kernel` into the writer."""
    if w.often(2):
        whole_function(w)
    else:
        tile_function(w)


def finish(w: Writer, results: list[str], returned: list[str]) -> None:
    text = ", ".join([*w.params, *(["*", *w.keywords] if w.keywords else [])])
    result = "" if not results else f" -> {results[0]}" if len(results) == 1 else f" -> tuple[{', '.join(results)}]"
    w.lines.insert(0, f"def kernel({text}){result}:")
    if returned:
        w.line(f"return {', '.join(returned)}")


def whole_function(w: Writer) -> None:
    w.whole = True
    results, returned = [], []
    for _ in range(w.pick((1, 1, 2))):
        axes = distinct(w, w.pick((2, 1, 3)))
        dtype = w.pick(OUTPUTS)
        for _ in range(w.below(3)):
            other = w.pick(OUTPUTS)
            assign(w, axes, other)
        value = w.expr(axes, dtype, 3) + w.unused(axes, dtype)
        name = w.fresh("r")
        w.line(f"{name} = {value}")
        results.append(f"{dtype}[{w.items(axes)}]")
        returned.append(name)
    bind_dims(w, returned)
    finish(w, results, returned)


def distinct(w: Writer, rank: int) -> Axes:
    axes: list[Axis] = []
    while len(axes) < rank:
        name = w.dim()
        if all(a.name != name for a in axes):
            axes.append(Axis("dim", name))
        elif len(w.dims) <= rank:
            w.dims.setdefault("MNKPQR"[len(w.dims)], w.pick((5, 1, 2, 3, 8, 0, 7)))
    return tuple(axes)


def bind_dims(w: Writer, _: list[str]) -> None:
    """Every dim must be that of a parameter."""
    used = {d for a in w.args if isinstance(a, Tensor) for d in a.dims}
    for name in w.dims:
        if name not in used:
            w.tensor("f32", (name,))


def assign(w: Writer, axes: Axes, dtype: str) -> Var:
    value = w.expr(axes, dtype, 2)
    var = Var(w.fresh("t"), dtype, axes)
    w.line(f"{var.name} = {value}")
    w.vars.append(var)
    return var


# -- functions with grids


def tile_function(w: Writer) -> None:
    results: list[str] = []
    returned: list[str] = []
    grids = w.pick((1, 1, 1, 2))
    for g in range(grids):
        grid(w, results, returned, g)
    bind_dims(w, returned)
    finish(w, results, returned)


def block_size(w: Writer) -> tuple[str, int]:
    n = w.pick(BLOCKS)
    if not w.often(2):
        return str(n), n
    name = w.fresh("B")
    w.keywords.append(f"{name}: int = {f'tune({n}, 64)' if w.often(5) else n}")
    return name, n


def grid(w: Writer, results: list[str], returned: list[str], number: int) -> None:
    axes = distinct(w, w.pick((1, 2, 2, 3)))
    names = [f"{'ijl'[k]}{number or ''}" for k in range(len(axes))]
    blocks: list[str] = []
    made: list[Axis] = []
    start = len(w.scalars)
    for name, axis in zip(names, axes, strict=True):
        if w.often(2):
            blocks.append("None")
            w.scalars.append(Var(name, "index", (), fixed=True))
        else:
            text, n = block_size(w)
            blocks.append(text)
            made.append(Axis("range", name, n, axis.name))
    if not made or w.often(2):
        made.append(Axis("dim", distinct_dim(w, axes)) if w.often(6) else Axis("len", "", w.pick((4, 6))))
    outs = outputs(w, axes, tuple(made), results, returned, names)
    by = blocks[0] if len(blocks) == 1 else f"({', '.join(blocks)})"
    by = "" if all(b == "None" for b in blocks) else f", by={by}"
    w.grid = len(axes)
    w.line(f"for {', '.join(names)} in grid({', '.join(a.name for a in axes)}{by}):")
    w.indent += 1
    w.loops += 1
    statements(w, tuple(made)[-2:] if w.often(8) else tuple(made)[:3], w.pick((1, 2, 0, 3, 4)))
    for name, dtype, out_axes, subscript in outs:
        store(w, name, dtype, out_axes, subscript)
    w.loops -= 1
    w.indent -= 1
    w.vars.clear()
    del w.scalars[start:]
    w.scalars = [s for s in w.scalars if s.dtype != "index"]


def distinct_dim(w: Writer, axes: Axes) -> str:
    while True:
        name = w.dim()
        if all(a.name != name for a in axes):
            return name
        if len(w.dims) <= len(axes):
            w.dims["MNKPQR"[len(w.dims)]] = w.pick((5, 1, 2, 3, 8, 0, 7))


def outputs(w: Writer, grid_axes: Axes, axes: Axes, results: list[str], returned: list[str], names: list[str]) -> list[tuple[str, str, Axes, str]]:
    """Declares the tensors that a grid writes: (name, dtype, axes of the stored tile, subscript)."""
    outs = []
    inner = [a for a in axes if a.kind != "range"]
    for _ in range(w.pick((1, 1, 2))):
        dtype = w.pick(OUTPUTS)
        dims = [*(a.name for a in grid_axes), *(a.name if a.kind == "dim" else str(a.n) for a in inner)]
        items = [*names, *(":" for _ in inner)]
        stored = [*axes]
        if len(items) == 2 and len(stored) == 2 and w.often(3):
            dims.reverse()
            items.reverse()
            stored.reverse()
        name = w.fresh("o")
        if w.often(2):
            name = w.tensor(dtype, tuple(int(d) if d.isdigit() else d for d in dims), role="InOut")
        else:
            w.line(f"{name} = empty({dtype}, {', '.join(dims)})")
            results.append(f"{dtype}[{', '.join(dims)}]")
            returned.append(name)
        outs.append((name, dtype, tuple(stored), ", ".join(items)))
    return outs


def store(w: Writer, name: str, dtype: str, axes: Axes, subscript: str) -> None:
    place = f"{name}[{subscript}]"
    kind = w.below(12)
    if name.startswith("io") and dtype != "bool_":
        if kind >= 9:
            w.line(f"{place} {w.pick(('+=', '*=', '-='))} {w.expr(axes, dtype, 2)}")
            return
        if kind >= 7:
            w.line(f"atomic_{w.pick(('add', 'max', 'min'))}({place}, {w.expr(axes, dtype, 2)})")
            return
    if kind == 6:
        w.line(f"{place} = {w.scalar(dtype, 1)}")
        return
    wide = {"f16": "f32", "bf16": "f64", "f32": "f64", "i8": "i32", "u8": "i16", "i16": "i64", "i32": "i64"}
    source = wide[dtype] if kind == 5 and dtype in wide and bd.is_float(dtype) == bd.is_float(wide[dtype]) else dtype
    w.line(f"{place} = {w.expr(axes, source, 3)}{w.unused(axes, source)}")


# -- statements of a block


def statements(w: Writer, axes: Axes, count: int, depth: int = 2) -> None:
    for _ in range(count):
        options = [declare, declare, update]
        if depth > 0:
            options += [serial_loop, contraction, branch, while_loop, unrolled, buffers, element_loop, counted, block_buffer, scattered, checked]
        w.pick(options)(w, axes, depth - 1)


def some_axes(w: Writer, axes: Axes) -> Axes:
    return axes if not w.often(3) else axes[: 1 + w.below(len(axes))]


def declare(w: Writer, axes: Axes, depth: int) -> None:
    if w.often(1):
        v = Var(w.fresh("v"), w.pick(("i32", "f32", "bool_")), ())
        w.line(f"{v.name} = {w.scalar(v.dtype, 2)}")
        w.scalars.append(Var(v.name, v.dtype, (), fixed=True))
        return
    assign(w, some_axes(w, axes), w.pick(OUTPUTS))


def update(w: Writer, axes: Axes, depth: int) -> None:
    found = [v for v in w.vars if not v.fixed]
    if not found:
        declare(w, axes, depth)
        return
    v = w.pick(found)
    if v.buffer:
        w.line(f"{v.name}[{', '.join(':' for _ in v.axes)}] {w.pick(('=', '+=')) if v.dtype != 'bool_' else '='} {w.expr(v.axes, v.dtype, 1)}")
    elif v.dtype == "bool_" or w.often(3):
        w.line(f"{v.name} = {w.expr(v.axes, v.dtype, 2)}")
    else:
        ops = ("+=", "-=", "*=", *(("/=",) if bd.is_float(v.dtype) else ("|=", "^=")))
        w.line(f"{v.name} {w.pick(ops)} {w.expr(v.axes, v.dtype, 1) if w.often(7) else w.literal(v.dtype)}")


class Block:
    """Statements one level further in, whose new variables end with it."""

    def __init__(self, w: Writer, header: str, loop: bool = True) -> None:
        self.w, self.loop = w, loop
        w.line(header)

    def __enter__(self) -> None:
        self.seen = len(self.w.vars), len(self.w.scalars)
        self.w.indent += 1
        self.w.loops += self.loop
        self.lines = len(self.w.lines)

    def __exit__(self, *_: object) -> None:
        if len(self.w.lines) == self.lines:
            self.w.line("pass")
        # Parameters that came into being inside stay known.
        w = self.w
        late = [s for s in w.scalars[self.seen[1] :] if any(a.name == s.name for a in w.args)]
        del w.vars[self.seen[0] :]
        del w.scalars[self.seen[1] :]
        w.scalars += late
        w.indent -= 1
        w.loops -= self.loop


def start(w: Writer, axes: Axes, depth: int) -> Var:
    """A variable for a loop to change."""
    found = [v for v in w.vars if not v.fixed and not v.buffer]
    if found and w.often(5):
        return w.pick(found)
    v = Var(w.fresh("a"), w.pick(("f32", "i32", "f64", "f16", "i64", "u8")), some_axes(w, axes))
    w.line(f"{v.name} = {w.pick(('zeros', 'ones'))}({v.dtype}, {w.items(v.axes)})" if w.often(6) else f"{v.name} = {w.expr(v.axes, v.dtype, 1)}")
    w.vars.append(v)
    return v


def change(w: Writer, v: Var, extra: Axis | None) -> None:
    """Updates a variable in a loop, from a tile with one axis more when there is one."""
    if v.dtype == "bool_":
        update_one(w, v)
        return
    if extra is None or extra in v.axes or len(v.axes) > 1 or bd.acc_type(v.dtype) != v.dtype:
        w.line(f"{v.name} {w.pick(('+=', '-=', '*='))} {w.expr(v.axes, v.dtype, 1)}")
        return
    at = w.below(len(v.axes) + 1)
    full = (*v.axes[:at], extra, *v.axes[at:])
    if w.often(3):
        w.line(f"{v.name} = {(f := w.pick(('max', 'min')))}({v.name}, {f}({w.expr(full, v.dtype, 2)}, axis={at}))")
    else:
        w.line(f"{v.name} += sum({w.expr(full, v.dtype, 2)}, axis={at})")


def serial_loop(w: Writer, axes: Axes, depth: int) -> None:
    v = start(w, axes, depth)
    name = w.fresh("k")
    dim = w.dim()
    kind = w.below(6)
    extra: Axis | None = None
    if kind <= 1:
        text, n = block_size(w)
        loop = f"range({dim}, by={text})" if kind == 0 else f"pipelined({dim}, by={text}, stages={w.pick((2, 3))})"
        extra = Axis("range", name, n, dim)
    elif kind == 2:
        loop = f"range({w.pick(('2', '3', '0', dim, f'1, {dim}', f'0, {dim}, 2'))})"
    elif kind == 3:
        loop = f"range({w.number('i32')})"
    elif kind == 4:
        loop = f"static_range({w.pick((2, 3))})"
    else:
        text, n = block_size(w)
        low = w.pick(("1", w.number("i32")))
        loop = f"{w.pick(('range', 'pipelined'))}({low}, min({dim}, {w.pick(('9', '4'))}), by={text})"
        extra = Axis("range", name, n, dim) if low == "1" else None
    with Block(w, f"for {name} in {loop}:"):
        if extra is None and kind not in (4, 5):
            w.scalars.append(Var(name, "index", (), fixed=True))
        if w.often(2) and kind != 4:
            with Block(w, f"if {w.condition()}:", loop=False):
                if w.often(4):
                    change(w, v, None)
                w.line(w.pick(("break", "continue")))
        change(w, v, extra)
        if w.often(3):
            statements(w, axes, 1, depth)


def contraction(w: Writer, axes: Axes, depth: int) -> None:
    """acc += a @ b over blocks of a dim."""
    if len(axes) != 2 or axes[0] == axes[1]:
        declare(w, axes, depth)
        return
    dtype = w.pick(("f32", "f32", "i32", "f64"))
    acc = Var(w.fresh("acc"), dtype, axes)
    shape = ", ".join(str(a.n) if a.kind == "range" else a.item for a in axes) if w.often(5) else w.items(axes)
    w.line(f"{acc.name} = zeros({dtype}, {shape})")
    text, n = block_size(w)
    k = Axis("range", w.fresh("k"), n, distinct_dim(w, tuple(Axis("dim", str(a.dim)) for a in axes)))
    loop = "pipelined" if w.often(6) else "range"
    source = w.pick({"f32": ("f32", "f16", "bf16"), "i32": ("i8", "i32", "u8"), "f64": ("f64",)}[dtype])
    with Block(w, f"for {k.name} in {loop}({k.dim}, by={text}):"):
        depth = w.pick((0, 0, 1, 2))
        left, right = w.expr((axes[0], k), source, depth), w.expr((k, axes[1]), source, depth)
        if w.often(2):
            w.line(f"{acc.name} = {acc.name} + ({left} @ {right}) * {w.literal(dtype)}")
        else:
            w.line(f"{acc.name} += {left} @ {right}")
    w.vars.append(acc)


def branch(w: Writer, axes: Axes, depth: int) -> None:
    v = start(w, axes, depth)
    with Block(w, f"if {w.condition()}:", loop=False):
        update_one(w, v)
        if w.often(3):
            statements(w, axes, 1, depth)
    if w.often(3):
        with Block(w, f"elif {w.condition()}:", loop=False):
            update_one(w, v)
    if w.often(5):
        with Block(w, "else:", loop=False):
            update_one(w, v)


def update_one(w: Writer, v: Var) -> None:
    w.line(f"{v.name} = {w.expr(v.axes, v.dtype, 2)}")


def while_loop(w: Writer, axes: Axes, depth: int) -> None:
    v = start(w, axes, depth)
    n = w.fresh("n")
    w.line(f"{n} = {w.pick(('0', 'cast(0, i32)'))}")
    test = w.pick((f"{n} < 3", f"{n} < {w.number('i32')}", f"{n} < 5 and any({w.expr((Axis('len', '', 4),), 'bool_', 0)})"))
    with Block(w, f"while {test}:"):
        w.line(f"{n} += 1")
        change(w, v, None)
        if w.often(2):
            with Block(w, f"if {w.condition()}:", loop=False):
                w.line("break")


def unrolled(w: Writer, axes: Axes, depth: int) -> None:
    v = start(w, axes, depth)
    c = w.fresh("c")
    with Block(w, f"for {c} in ({w.below(3)}, {w.below(5)}):"):
        if v.dtype == "bool_":
            update_one(w, v)
            return
        w.line(f"{v.name} += {w.expr(v.axes, v.dtype, 1)} * {c}")


def counted(w: Writer, axes: Axes, depth: int) -> None:
    """Counts with atomics, into a tensor for all blocks."""
    n = w.pick((5, 8))
    dtype = w.pick(("i32", "f32", "i64"))
    counts = w.tensor(dtype, (n,), role="InOut")
    one = some_axes(w, axes)[:1]
    value = w.pick(("1", "2", w.expr(one, dtype, 1)))
    w.line(f"atomic_{w.pick(('add', 'max', 'min'))}({counts}[{w.expr(one, 'i32', 1)} % {n}], {value})")


def block_buffer(w: Writer, axes: Axes, depth: int) -> None:
    """A buffer for the block's part of a tensor, copied at the edge too."""
    dtype = w.pick(("f32", "i32", "f16"))
    v = Var(w.fresh("s"), dtype, some_axes(w, axes))
    colons = ", ".join(":" for _ in v.axes)
    if w.often(5) and all(a.kind != "dim" for a in v.axes):
        w.line(f"{v.name} = shared({dtype}, {', '.join(str(a.n) if a.kind == 'range' else a.item for a in v.axes)})")
        dims, items = w.plain(v.axes)
        w.line(f"copy({w.tensor(dtype, dims)}[{items}], {v.name}[{colons}])")
        full = tuple(Axis("len", "", a.n) for a in v.axes)
        w.vars.append(Var(v.name, dtype, full, buffer=True))
        return
    w.line(f"{v.name} = {w.pick(('shared', 'local'))}({w.expr(v.axes, dtype, 2)})")
    v.buffer = True
    w.vars.append(v)


def scattered(w: Writer, axes: Axes, depth: int) -> None:
    """Stores at indices that occur once each in the whole grid, if the range is the grid's."""
    a = axes[0]
    if a.kind != "range" or w.loops != 1 or w.grid != 1:
        declare(w, axes, depth)
        return
    dtype = w.pick(("f32", "i32", "f16", "u8"))
    name, index = w.fresh("io"), w.fresh("p")
    w.args += [Tensor(name, dtype, (a.dim,)), Tensor(index, "i32", (a.dim,), once=True)]
    w.params += [f"{name}: InOut[{dtype}, {a.dim}]", f"{index}: i32[{a.dim}]"]
    w.line(f"{name}[{index}[{a.name}]] = {w.expr(axes[:1], dtype, 2)}")


def checked(w: Writer, axes: Axes, depth: int) -> None:
    if w.often(3):
        w.line(f'assert {w.condition()}, "not so"')
        return
    x, y = w.fresh("t"), w.fresh("t")
    dtypes = w.pick(("f32", "i32")), w.pick(("f32", "i64"))
    w.line(f"{x}, {y} = {w.expr(axes, dtypes[0], 2)}, {w.expr(axes, dtypes[1], 1)}")
    w.vars += [Var(x, dtypes[0], axes), Var(y, dtypes[1], axes)]


def buffers(w: Writer, axes: Axes, depth: int) -> None:
    """A buffer, filled and changed in parts, then a variable like any other."""
    space = w.pick(("shared", "local", "accumulator"))
    static = tuple(Axis("len", "", w.pick((4, 6))) for _ in range(w.pick((2, 1))))
    dtype = w.pick(("f32", "i32", "f16", "f64"))
    name = w.fresh("s")
    colons = ", ".join(":" for _ in static)
    first = w.below(4)
    if first == 0:
        w.line(f"{name} = {space}({w.expr(static, dtype, 2)})")
    else:
        w.line(f"{name} = {space}({dtype}, {w.items(static)})")
        x = w.tensor(dtype, tuple(a.n for a in static))
        fill = {1: f"fill({name}, {w.literal(dtype)})", 2: f"copy({x}[{colons}], {name})", 3: f"{name}[{colons}] = {w.expr(static, dtype, 2)}"}
        w.line(fill[first])
    v = Var(name, dtype, static, buffer=True)
    for _ in range(w.below(3)):
        kind = w.below(4)
        if kind == 0:
            w.line(f"{name}[{', '.join(['1:3', *(':' for _ in static[1:])])}] = {w.expr((Axis('len', '', 2), *static[1:]), dtype, 1)}")
        elif kind == 1:
            w.line(f"{name}[{', '.join(str(w.below(4)) for _ in static)}] = {w.scalar(dtype, 1)}")
        elif kind == 2 and len(static) == 2 and dtype in ("f32", "f64"):
            a, b = w.tensor(dtype, (static[0].n, 4)), w.tensor(dtype, (4, static[1].n))
            w.line(f"gemm({a}[:, :], {b}[:, :], {name})" if w.often(6) else f"gemm({a}[:, :].T, {b}[:, :], {name}, transpose_a=True)")
        else:
            elements(w, v)
    if w.often(5):
        t = Var(w.fresh("t"), dtype, static)
        w.line(f"{t.name} = {name}[{colons}] + {w.literal(dtype)}")
        w.vars.append(t)
    else:
        w.vars.append(v)


def elements(w: Writer, v: Var) -> None:
    """A loop over the elements of a buffer."""
    names = [w.fresh("e") for _ in v.axes]
    at = ", ".join(names)
    static = all(a.kind != "range" for a in v.axes)
    x = w.tensor(v.dtype, w.plain(v.axes)[0]) if static else v.name
    extents = ", ".join(f"len({a.name})" if a.kind == "range" else a.item for a in v.axes)
    with Block(w, f"for {at} in parallel({extents}):"):
        value = w.pick((f"{v.name}[{at}] * 2", f"{x}[{at}] + {v.name}[{at}]", f"max({x}[{at}], {w.literal(v.dtype)})", f"{v.name}[{at}] * {w.number(v.dtype)}"))
        w.line(f"{v.name}[{at}] = {value}")


def element_loop(w: Writer, axes: Axes, depth: int) -> None:
    found = [v for v in w.vars if v.buffer]
    if found:
        elements(w, w.pick(found))
    else:
        buffers(w, axes, depth)


__all__ = ["FLOATS", "write"]
