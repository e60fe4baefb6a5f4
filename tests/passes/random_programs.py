"""Random tile- and tensor-level functions, built op by op: they stress what depends on liveness, aliasing and order."""

from __future__ import annotations

import random

from tilelang.dialects import arith, func, loop, mem, tensor, tile
from tilelang.ir.core import Builder, Module, Value
from tilelang.ir.types import DYN, BufferType, Dyn, TensorType, TileType, f32, i32

M, K, N = Dyn("M"), Dyn("K"), Dyn("N")
TILE, ROWS = TileType((Dyn("", 4), Dyn("", 8)), f32), TileType((Dyn("", 4),), f32)


class TileProgram:
    """f(x in, y inout, k, o out, p out): a grid over 4x8 tiles with loads, stores, loops, branches and whiles that carry tiles."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        matrix = BufferType((M, N), f32, "global", (DYN, 1))
        params = [("x", matrix, "in"), ("y", matrix, "inout"), ("k", i32, "scalar"), ("o", matrix, "out"), ("p", matrix, "out")]
        self.function = func.Func.of("f", params)
        x, y, self.k, o, p = self.function.args
        b = Builder(self.function.body.block)
        self.c = {v: b(arith.index_constant(v)) for v in (0, 1, 3, 4, 8)}
        self.limits = {v: b(arith.Constant.of(v, i32)) for v in (1, 2, 4)}
        dims = [b(mem.Dim.of(x, 0)), b(mem.Dim.of(x, 1))]
        grid = b.insert(loop.Parallel.of([self.c[0]] * 2, dims, [self.c[4], self.c[8]], grid=True, hints=["i", "j"]))
        b.insert(func.Return.of())
        b = Builder(grid.body.block)
        self.at = grid.ivs
        self.n, self.m = (b(arith.Min.of(b(arith.Sub.of(d, i)), self.c[s])) for d, i, s in zip(dims, self.at, (4, 8)))
        self.scratch = b(mem.Alloc.of(BufferType((4, 8), f32, "shared"), (), "scratch"))
        b.insert(mem.Fill.of(b(arith.Constant.of(2.0, f32)), self.scratch))
        self.buffers = [x, y, o, p]
        values = [self.load(b, x), self.load(b, y)]
        self.statements(b, values, self.random.randint(2, 8), 0)
        for buffer in (o, p, y):
            b.insert(tile.Store.of(self.pick(values), buffer, self.at))
        b.insert(loop.Yield.of())

    def module(self) -> Module:
        return Module.of([self.function], "tile")

    def offsets(self, buffer: Value) -> list[Value]:
        return [self.c[0]] * 2 if buffer is self.scratch else self.at

    def load(self, b: Builder, buffer: Value) -> Value:
        return b(tile.Load.of(buffer, self.offsets(buffer), [self.n, self.m], TILE))

    def pick(self, values: list[Value]) -> Value:
        """Mostly a recent one."""
        return values[-1 - min(len(values) - 1, int(self.random.expovariate(0.7)))]

    def expression(self, b: Builder, values: list[Value]) -> Value:
        choose, sizes = self.random.choice, [self.n, self.m]
        pick = lambda: self.pick(values)  # noqa: E731
        kind = self.random.randint(0, 12)
        if kind <= 2:
            return b(choose([arith.Add, arith.Sub, arith.Max, arith.Min]).of(pick(), pick()))
        if kind == 3:
            return b(choose([arith.Neg, arith.Abs]).of(pick()))
        if kind == 4:
            return b(tile.Fill.of(b(arith.Constant.of(float(self.random.randint(-2, 2)), f32)), sizes, TILE))
        if kind == 5:
            return b(tile.Broadcast.of(b(tile.Reduce.of(choose(["sum", "max"]), pick(), (1,))), (0,), sizes, TILE))
        if kind == 6:
            number = b(arith.Min.of(b(tile.Reduce.of("max", pick(), (0, 1))), b(arith.Constant.of(1.0, f32))))
            return b(arith.Mul.of(pick(), b(tile.Fill.of(number, sizes, TILE))))
        if kind == 7:
            return self.load(b, choose([self.buffers[0], *[self.buffers[1]] * 3, self.scratch]))
        if kind == 8:
            square = TileType((Dyn("", 4), Dyn("", 4)), f32)
            zero, small = (b(tile.Fill.of(b(arith.Constant.of(v, f32)), [self.n, self.n], square)) for v in (0.0, 0.01))
            product = b(tile.Matmul.of(pick(), b(tile.Transpose.of(pick(), (1, 0))), zero))
            return b(tile.Matmul.of(b(arith.Mul.of(product, small)), pick(), pick()))
        if kind == 9:
            return b(tile.Scan.of("sum", pick(), choose([0, 1])))
        if kind == 10:
            turned = [b(tile.Transpose.of(pick(), (1, 0))) for _ in range(2)]
            return b(tile.Transpose.of(b(arith.Add.of(*turned)), (1, 0)))
        if kind == 11:
            flat = b(tile.Reshape.of(pick(), [b(arith.Mul.of(self.n, self.m))], TileType((Dyn("", 32),), f32)))
            return b(tile.Reshape.of(b(arith.Neg.of(flat)), sizes, TILE))
        column = b(tile.Slice.of(pick(), [self.c[0]] * 2, [self.n], ROWS, dropped=(1,)))
        new = b.insert(tile.Map.of([pick(), column], ((0, 1), (0, -1)), sizes, [TILE]))
        body = Builder(new.body.block)
        body.insert(loop.Yield.of(body(arith.Sub.of(*new.body.block.args))))
        return new.results[0]

    def statements(self, b: Builder, values: list[Value], count: int, depth: int) -> None:
        for _ in range(count):
            kind = self.random.randint(0, 9)
            if kind <= 4 or depth >= 2:
                values.append(self.expression(b, values))
            elif kind == 5:
                buffer = self.random.choice([*self.buffers[1:], self.scratch, self.scratch])
                b.insert(tile.Store.of(self.pick(values), buffer, self.offsets(buffer)))
            elif kind <= 7:
                self.for_(b, values, depth)
            elif kind == 8:
                self.if_(b, values, depth)
            else:
                self.while_(b, values, depth)

    def body(self, b: Builder, values: list[Value], count: int, depth: int, results: int) -> list[Value]:
        self.statements(b, values, count, depth + 1)
        return [self.pick(values) for _ in range(results)]

    def for_(self, b: Builder, values: list[Value], depth: int) -> None:
        inits = [self.pick(values) for _ in range(self.random.randint(1, 3))]
        op = b.insert(loop.For.of(self.c[0], self.c[self.random.choice([0, 1, 3])], self.c[1], inits))
        inner = Builder(op.body.block)
        inner.insert(loop.Yield.of(*self.body(inner, values + op.carried, self.random.randint(1, 5), depth, len(inits))))
        values += op.results

    def if_(self, b: Builder, values: list[Value], depth: int) -> None:
        count = self.random.randint(1, 2)
        condition = b(arith.Cmp.of("lt", self.k, self.limits[self.random.choice([1, 2, 4])]))
        op = b.insert(loop.If.of(condition, (TILE,) * count))
        for region in op.regions:
            inner = Builder(region.block)
            inner.insert(loop.Yield.of(*self.body(inner, list(values), self.random.randint(0, 3), depth, count)))
        values += op.results

    def while_(self, b: Builder, values: list[Value], depth: int) -> None:
        inits = [self.pick(values) for _ in range(self.random.randint(1, 2))]
        op = b.insert(loop.While.of([self.c[0], *inits]))
        number, *carried = op.before.block.args
        inner = Builder(op.before.block)
        given = [a if self.random.random() < 0.7 else self.pick(values + carried) for a in carried]
        inner.insert(loop.Condition.of(inner(arith.Cmp.of("lt", number, self.c[self.random.choice([1, 3])])), number, *given))
        number, *carried = op.body.block.args
        inner = Builder(op.body.block)
        ends = self.body(inner, values + carried, self.random.randint(1, 3), depth, len(inits))
        inner.insert(loop.Yield.of(inner(arith.Add.of(number, self.c[1])), *ends))
        values += op.results[1:]


class TensorProgram:
    """f(x, y: [M, K], w: [K, N], b: [N], c: [6, 4], a): whole-tensor ops of all sorts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        shapes = {"x": (M, K), "y": (M, K), "w": (K, N), "b": (N,), "c": (6, 4)}
        self.function = func.Func.of("f", [*((n, TensorType(s, f32), "in") for n, s in shapes.items()), ("a", f32, "scalar")])
        *self.values, self.a = self.function.args
        self.b = Builder(self.function.body.block)
        self.dims = {d: self.b(tensor.DimOp.of(self.values[v], axis)) for d, v, axis in ((M, 0, 0), (K, 0, 1), (N, 2, 1))}
        for _ in range(self.random.randint(2, 9)):
            value = self.step(self.pick())
            if value is not None:
                self.values.append(value)
        results = [self.pick() for _ in range(self.random.randint(1, 3))]
        self.b.insert(func.Return.of(*results))
        self.function.attrs["results_"] = tuple(r.type for r in results)

    def module(self) -> Module:
        return Module.of([self.function], "tensor")

    def pick(self, *ranks: int) -> Value:
        found = [v for v in self.values if not ranks or len(tile.shape_of(v.type)) in ranks]
        return found[-1 - min(len(found) - 1, int(self.random.expovariate(0.5)))]

    def sizes(self, shape: tuple[int | Dyn, ...]) -> list[Value]:
        return [self.dims[d] for d in shape if isinstance(d, Dyn)]

    def step(self, v: Value) -> Value | None:
        b, shape = self.b, tile.shape_of(v.type)
        kind = self.random.randint(0, 11)
        if kind <= 1:
            same = [u for u in self.values if u.type is v.type]
            return b(self.random.choice([arith.Add, arith.Sub, arith.Max]).of(v, self.random.choice(same)))
        if kind == 2:
            return b(self.random.choice([arith.Neg, arith.Abs, arith.Tanh]).of(v))
        if kind == 3:
            return b(arith.Add.of(v, b(tensor.Fill.of(self.a, self.sizes(shape), v.type))))
        if kind == 4:
            return b(tensor.Transpose.of(self.pick(2), (1, 0)))
        if kind <= 6:
            lhs = self.pick(2)
            rows, depth = tile.shape_of(lhs.type)
            fitting = [u for u in self.values if len(tile.shape_of(u.type)) == 2 and tile.shape_of(u.type)[0] is depth]
            if not fitting:
                return None
            rhs = self.random.choice(fitting)
            type = TensorType((rows, tile.shape_of(rhs.type)[1]), f32)
            zero = b(tensor.Fill.of(b(arith.Constant.of(0.0, f32)), self.sizes(type.shape), type))
            return b(tensor.Matmul.of(lhs, rhs, zero))
        if not shape:
            target = (self.random.choice([M, N, 6]), self.random.choice([K, 4]))
            return b(tensor.Broadcast.of(v, (), self.sizes(target), TensorType(target, f32)))
        if kind == 7 and len(shape) == 1:
            other = self.random.choice([M, K, 6])
            dims, target = self.random.choice([((0,), (shape[0], other)), ((1,), (other, shape[0]))])
            return b(tensor.Broadcast.of(v, dims, self.sizes(target), TensorType(target, f32)))
        if kind == 8:
            return b(tensor.Scan.of("sum", v, self.random.randrange(len(shape))))
        if kind == 9:
            return b(arith.Cast.of(b(tensor.ArgReduce.of("max", v, self.random.randrange(len(shape)), i32)), f32))
        if kind == 10 and len(shape) == 2:
            extents = [self.dims[d] if isinstance(d, Dyn) else b(arith.index_constant(d)) for d in shape]
            flat = b(tensor.Reshape.of(v, [b(arith.Mul.of(*extents))], TensorType((DYN,), f32)))
            return b(tensor.Reshape.of(flat, self.sizes(shape[::-1]), TensorType(shape[::-1], f32)))
        axes = tuple(sorted(self.random.sample(range(len(shape)), self.random.randint(1, len(shape)))))
        return b(tensor.Reduce.of(self.random.choice(["sum", "max", "min"]), v, axes))
