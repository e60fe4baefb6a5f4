"""lower-to-vec on random ops, shapes and views: any strides, axes in any order, extents known or not; before, after and native agree."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.native import HOST_CPUS, check_lowering
from tilelang.ir.types import Scalar
from tilelang.runtime.numerics import dtype_of

DTYPES = ("f32", "f32", "f64", "f16", "bf16", "i32", "i8", "u16", "i64", "bool")
EXTENTS = (1, 2, 3, 5, 16, 17, 33, 64, 70)


class Program:
    """One random op on parameters of its own."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        rank = self.pick.choice([1, 2, 2, 3])
        self.shape = [self.pick.choice(EXTENTS) for _ in range(rank)]
        while np.prod(self.shape) > 6000:
            self.shape[self.pick.randrange(rank)] = 2
        self.names = [str(n) if self.pick.random() < 0.4 else f"D{i}" for i, n in enumerate(self.shape)]
        self.dtype = self.pick.choice(DTYPES)
        self.params: list[str] = []
        self.args: list[Any] = []
        kind = self.pick.choice([self.map, self.reduce, self.copy, self.scan, self.arg_reduce])
        body = kind(rank)
        self.text = f'builtin.module {{level = "mem"}} {{\n  func.func @f({", ".join(self.params)}) {{\n{body}\n  }}\n}}'

    def numbers(self, shape: list[int], dtype: str) -> np.ndarray[Any, Any]:
        if Scalar(dtype).is_float:
            return self.rng.normal(size=shape).astype(np.float32).astype(dtype_of(Scalar(dtype)))
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        return self.rng.integers(0 if dtype[0] == "u" else -50, 50, shape).astype(dtype_of(Scalar(dtype)))

    def view(self, shape: list[int], dtype: str) -> np.ndarray[Any, Any]:
        """Part of a larger array, its axes in any order, with steps, perhaps backwards."""
        order = list(range(len(shape)))
        if self.pick.random() < 0.4:
            self.pick.shuffle(order)
        steps = [self.pick.choice([1, 1, 2]) for _ in shape]
        more = [n * s + self.pick.choice([0, 0, 3]) for n, s in zip(shape, steps)]
        base = np.asarray(self.numbers([more[o] for o in order], dtype)).transpose(np.argsort(order).tolist())
        v = base[(..., *(slice(0, n * s, s) for n, s in zip(shape, steps)))]
        return v[::-1] if shape and self.pick.random() < 0.2 else v

    def add(self, name: str, axes: list[int], dtype: str, role: str) -> None:
        """A parameter with some of the axes; its strides are known or not."""
        v = self.view([self.shape[a] for a in axes], dtype)
        strides = [s // v.itemsize for s in v.strides]
        known = [str(s) if self.pick.random() < (0.8 if s == 1 else 0.3) else "?" for s in strides]
        tail = f", strides [{', '.join(known)}]" if axes else ""
        self.params.append(f"%{name}: buffer<{dtype}[{', '.join(self.names[a] for a in axes)}], global{tail}> {role}")
        self.args.append(v)

    def map(self, rank: int) -> str:
        count, maps = self.pick.choice([1, 2, 3]), []
        for k in range(count):
            axes = [a for a in range(rank) if self.pick.random() < 0.8]
            if self.pick.random() < 0.4:
                self.pick.shuffle(axes)
            self.add(f"x{k}", axes, self.dtype, "in")
            maps.append([axes.index(a) if a in axes else -1 for a in range(rank)])
        self.add("o", list(range(rank)), self.dtype, "out")
        self.add("p", list(range(rank)), "bool", "out")
        lines, last = [], "%a0"
        for k in range(1, count):
            lines.append(f"%s{k} = arith.{self.pick.choice(['add', 'mul', 'max', 'min', 'sub'])} {last}, %a{k} : {self.dtype}")
            last = f"%s{k}"
        lines += [f"%g = arith.cmp {self.pick.choice(['lt', 'eq', 'ge'])} {last}, %a0 : bool", f"loop.yield {last}, %g"]
        ins, args = ", ".join(f"%x{k}" for k in range(count)), ", ".join(f"%a{k}: {self.dtype}" for k in range(count))
        return f"mem.map ins({ins}) outs(%o, %p) {{maps = {maps}}} {{\n^({args}):\n" + "\n".join(lines) + "\n}"

    def reduce(self, rank: int) -> str:
        axes = [a for a in range(rank) if self.pick.random() < 0.5] or [self.pick.randrange(rank)]
        self.add("x", list(range(rank)), self.dtype, "in")
        self.add("o", [a for a in range(rank) if a not in axes], self.dtype, "out")
        return f"mem.reduce {self.pick.choice(['sum', 'max', 'min'])} srcs(%x) dst(%o) {{axes = {axes}}} {{\n}}"

    def copy(self, rank: int) -> str:
        perm = list(range(rank))
        self.pick.shuffle(perm)
        self.add("x", list(range(rank)), self.dtype, "in")
        self.add("o", perm, self.dtype, "out")
        kind = f"buffer<{self.dtype}[{', '.join(self.names[p] for p in perm)}], global, strides [{', '.join('?' * rank)}]>"
        return f"%v = mem.permute %x {{perm = {perm}}} : {kind}\nmem.copy %v, %o"

    def scan(self, rank: int) -> str:
        self.dtype = "u8" if self.dtype == "bool" else self.dtype
        self.add("x", list(range(rank)), self.dtype, "in")
        self.add("o", list(range(rank)), self.dtype, "out")
        exclusive = self.pick.choice(["", ", exclusive"])
        return f"mem.scan {self.pick.choice(['sum', 'max', 'min'])} %x, %o {{axis = {self.pick.randrange(rank)}{exclusive}}}"

    def arg_reduce(self, rank: int) -> str:
        axis = self.pick.randrange(rank)
        self.add("x", list(range(rank)), self.dtype, "in")
        self.add("o", [a for a in range(rank) if a != axis], "i32", "out")
        return f"mem.arg_reduce {self.pick.choice(['max', 'min'])} %x, %o {{axis = {axis}}}"


@pytest.mark.parametrize("seed", range(60))
def test_random_op(seed: int) -> None:
    program = Program(seed)
    tolerance = 2e-2 if program.dtype in ("f16", "bf16") else 2e-5
    check_lowering(program.text, program.args, tolerance, cpus=(HOST_CPUS[seed % len(HOST_CPUS)],))
