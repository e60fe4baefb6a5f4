"""promote: programs written with buffers and with values are one program, and random programs keep their meaning."""

from __future__ import annotations

import random

import pytest

from tilelang.diagnostics import Diagnostics, Source
from tilelang.dialects import arith, func, loop, mem, tile
from tilelang.frontend.builder import build
from tilelang.frontend.env import TextEnv
from tilelang.frontend.signature import Signature, Specialization
from tilelang.frontend.text import parse_module
from tilelang.ir.core import Builder, Module, Value
from tilelang.ir.passes import PassContext, PassManager, parse_pipeline
from tilelang.ir.text import print_module
from tilelang.ir.types import BufferType, TileType, bool_, f32
from tilelang.ir.verify import verify
from tilelang.runtime.interp import equivalent

GEMM_BUFFERS = """
def f(a: f32[128, 64], b: f32[64, 128], bias: f32[128]) -> f32[128, 128]:
    c = empty(f32, 128, 128)
    for i, j in grid(128, 128, by=(32, 32)):
        sa = shared(f32, 32, 16)
        sb = shared(f32, 16, 32)
        acc = accumulator(f32, 32, 32)
        fill(acc, 0)
        for k in pipelined(64, by=16, stages=2):
            copy(a[i, k], sa)
            copy(b[k, j], sb)
            gemm(sa, sb, acc)
        for r, s in parallel(32, 32):
            acc[r, s] = max(acc[r, s] * 2.0 + bias[j.start + s], 0.0)
        copy(acc, c[i, j])
    return c
"""
GEMM_VALUES = """
def f(a: f32[128, 64], b: f32[64, 128], bias: f32[128]) -> f32[128, 128]:
    c = empty(f32, 128, 128)
    for i, j in grid(128, 128, by=(32, 32)):
        acc = zeros(f32, 32, 32)
        for k in pipelined(64, by=16, stages=2):
            acc += a[i, k] @ b[k, j]
        c[i, j] = max(acc * 2.0 + bias[j], 0.0)
    return c
"""
SOFTMAX_BUFFERS = """
def f(x: f32[64, 256]) -> f32[64, 256]:
    out = empty(f32, 64, 256)
    for i in grid(64, by=8):
        s = shared(f32, 8, 32)
        top = local(f32, 8)
        total = local(f32, 8)
        new = local(f32, 8)
        fill(top, -inf)
        fill(total, 0)
        for j in range(256, by=32):
            copy(x[i, j], s)
            new[:] = max(top[:], max(s[:, :], axis=1))
            for r in parallel(8):
                total[r] = total[r] * exp(top[r] - new[r])
            for r, c in parallel(8, 32):
                s[r, c] = exp(s[r, c] - new[r])
            total[:] = total[:] + sum(s[:, :], axis=1)
            copy(new, top)
        for j in range(256, by=32):
            copy(x[i, j], s)
            for r, c in parallel(8, 32):
                s[r, c] = exp(s[r, c] - top[r]) / total[r]
            copy(s, out[i, j])
    return out
"""
SOFTMAX_VALUES = """
def f(x: f32[64, 256]) -> f32[64, 256]:
    out = empty(f32, 64, 256)
    for i in grid(64, by=8):
        top = full(f32, 8, value=-inf)
        total = zeros(f32, 8)
        for j in range(256, by=32):
            s = x[i, j]
            new = max(top, max(s, axis=1))
            total = total * exp(top - new)
            s = exp(s - new[:, None])
            total = total + sum(s, axis=1)
            top = new
        for j in range(256, by=32):
            out[i, j] = exp(x[i, j] - top[:, None]) / total[:, None]
    return out
"""


def source(text: str) -> Module:
    diagnostics = Diagnostics()
    tree = parse_module(Source("<test>", text), diagnostics)
    env = TextEnv(tree, diagnostics)
    diagnostics.raise_if_errors()
    return build(tree.functions[0], env, Specialization.of(Signature.of(tree.functions[0], env)))


def run(module: Module, pipeline: str) -> Module:
    PassManager(parse_pipeline(pipeline)).run(module, PassContext())
    verify(module)
    return module


def without_names(module: Module) -> str:
    """The text of the IR, all values numbered."""
    for op in module.walk():
        for value in [*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)]:
            value.hint = None
    return print_module(module)


@pytest.mark.parametrize(("buffers", "values"), [(GEMM_BUFFERS, GEMM_VALUES), (SOFTMAX_BUFFERS, SOFTMAX_VALUES)], ids=["gemm", "softmax"])
def test_both_styles_become_one_program(buffers: str, values: str) -> None:
    texts: list[str] = []
    for text in (buffers, values):
        module = source(text)
        before = module.clone()
        run(module, "promote,canonicalize,cse,dce")
        assert equivalent(before, module) == []
        assert not any(isinstance(op, (mem.Alloc, mem.Load)) for op in module.walk())
        texts.append(without_names(module))
    assert texts[0] == texts[1]


class Random:
    """A random program over three buffers: whole and partial reads, whole writes, loops and ifs; all buffers start with numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tile = TileType((4, 4), f32)
        whole = BufferType((4, 4), f32)
        f = func.Func.of("f", [("x", whole, "in"), ("y", whole, "inout"), ("p", bool_, "scalar"), ("q", bool_, "scalar")])
        self.x, self.y, *self.conditions = f.args
        self.build = Builder(f.body.block)
        self.numbers = [self.build(arith.index_constant(n)) for n in range(4)]
        space = self.rng.choice(["shared", "accumulator", "local"])
        self.buffers = [self.build(mem.Alloc.of(BufferType((4, 4), f32, space), (), name)) for name in "uvw"]
        for b in self.buffers:
            self.store(self.load(self.x), b)
        self.statements(3)
        for b in self.buffers:
            self.store(self.build(arith.Add.of(self.load(b), self.load(self.y))), self.y)
        self.build.insert(func.Return.of())
        self.module = Module.of([f], "tile")

    def load(self, buffer: Value) -> Value:
        return self.build(tile.Load.of(buffer, [self.numbers[0]] * 2, [], self.tile))

    def store(self, value: Value, buffer: Value) -> None:
        self.build.insert(tile.Store.of(value, buffer, [self.numbers[0]] * 2))

    def value(self) -> Value:
        pick = self.rng.choice(self.buffers)
        kind = self.rng.randrange(4)
        if kind == 0:
            at = [self.rng.choice(self.numbers), self.numbers[0]]
            row = self.build(tile.Load.of(pick, at, [], TileType((4,), f32), dropped=(0,)))
            return self.build(tile.Broadcast.of(row, (1,), [], self.tile))
        if kind == 1:
            scalar = self.build(mem.Load.of(pick, [self.rng.choice(self.numbers) for _ in range(2)]))
            return self.build(tile.Fill.of(scalar, [], self.tile))
        op = self.rng.choice([arith.Add, arith.Sub, arith.Max])
        return self.build(op.of(self.load(pick), self.load(self.rng.choice([*self.buffers, self.x]))))

    def statements(self, depth: int) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            kind = self.rng.randrange(4) if depth else 0
            outer = self.build
            if kind == 2:
                op = loop.For.of(self.numbers[0], self.rng.choice(self.numbers), self.numbers[1])
                outer.insert(op)
                self.inside(op.body.block, depth)
            elif kind == 3:
                choice = loop.If.of(self.rng.choice(self.conditions))
                outer.insert(choice)
                for region in choice.regions:
                    self.inside(region.block, depth)
            else:
                self.store(self.value(), self.rng.choice(self.buffers))
            self.build = outer

    def inside(self, block: object, depth: int) -> None:
        self.build = Builder(block)  # pyright: ignore[reportArgumentType]
        if self.rng.random() < 0.9:
            self.statements(depth - 1)
        self.build.insert(loop.Yield.of())


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    module = Random(seed).module
    verify(module)
    before = module.clone()
    run(module, "promote")
    assert not any(isinstance(op, mem.Alloc) for op in module.walk())
    assert equivalent(before, module, seed) == []
    run(module, "canonicalize,cse,dce")
    assert equivalent(before, module, seed) == []
