"""Softmax and a matrix product on the pipes of an NPU core: right in every order that flags allow, and every missing one is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilelang.diagnostics import Diagnostic, TileError
from tilelang.dialects import ascend
from tilelang.driver import lower
from tilelang.frontend.signature import Specialization
from tilelang.ir.core import Module, Operation
from tilelang.ir.parser import parse_module
from tilelang.ir.types import Scalar, f16, f32
from tilelang.ir.verify import verify
from tilelang.kernel import Kernel, load, load_text
from tilelang.passes.pipelines import ascend_pipeline
from tilelang.runtime.compare import equivalent
from tilelang.runtime.interp import Interpreter
from tilelang.runtime.pipes import run_pipes
from tilelang.target import get_target

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NPU = get_target("ascend910b")


def build(kernel: Kernel, dims: dict[str, int], constants: dict[str, Any] | None = None, dtype: Scalar = f32, sync: bool = True) -> Module:
    dtypes = {"Float": dtype} if kernel.signature.dtype_params else {}
    module = kernel.build(Specialization.of(kernel.signature, dtypes, constants, {}, dims))
    pipeline = ascend_pipeline()
    return lower(module, NPU, pipeline=pipeline if sync else pipeline.removesuffix(",insert-sync"))


class Program:
    """A kernel at the ascend level, data for it, and the result in float64."""

    def __init__(self, kernel: Kernel, dims: dict[str, int], inputs: Callable[[np.random.Generator], list[Any]], reference: Callable[..., Any],
                 tolerance: float, constants: dict[str, Any] | None = None, dtype: Scalar = f32) -> None:  # fmt: skip
        self.name = kernel.__name__
        self.make = lambda sync: build(kernel, dims, constants, dtype, sync)
        self.inputs = inputs(np.random.default_rng(7))
        self.want = reference(*(x.astype(np.float64) for x in self.inputs))
        self.tolerance, self.dtype = tolerance, dtype
        self.module = self.make(True)

    def args(self) -> list[Any]:
        return [*self.inputs, np.full(self.want.shape, np.nan, {"f16": np.float16, "f32": np.float32}[self.dtype.name])]

    def error(self, out: Any) -> float:
        return float(np.max(np.abs(out - self.want), initial=0.0, where=~np.isnan(out))) if not np.isnan(out).any() else float("inf")

    def run(self, module: Module, seed: int, cores: int = 1) -> tuple[list[Diagnostic], bool]:
        """What is reported, and whether the result is right."""
        args = self.args()
        return run_pipes(module, self.name, args, cores, seed), self.error(args[-1]) <= self.tolerance


def softmax64(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


SOFTMAX = next(iter(load(EXAMPLES / "softmax.tile")))
MATMUL = next(iter(load(EXAMPLES / "matmul.tile")))
BLOCKS = {"BM": 64, "BN": 64, "BK": 32}


def normal(dtype: Any, *shapes: tuple[int, int]) -> Callable[[np.random.Generator], list[Any]]:
    return lambda rng: [rng.normal(size=s).astype(dtype) for s in shapes]


PROGRAMS = {
    "softmax f32": Program(SOFTMAX, {"M": 32, "N": 64}, normal(np.float32, (32, 64)), softmax64, 1e-6),
    "softmax f16": Program(SOFTMAX, {"M": 24, "N": 48}, normal(np.float16, (24, 48)), softmax64, 1e-3, dtype=f16),
    "matmul f16": Program(MATMUL, {"M": 128, "N": 64, "K": 96}, normal(np.float16, (128, 96), (96, 64)), lambda a, b: a @ b, 0.03, BLOCKS, f16),
}
NAMES = list(PROGRAMS)


@pytest.mark.parametrize("name", NAMES)
def test_in_program_order(name: str) -> None:
    """Before insert-sync a module means what it says in program order; the pass does not change that."""
    program = PROGRAMS[name]
    before = program.make(False)
    assert not any(isinstance(op, ascend.SYNC) for op in before.walk())
    verify(program.module)
    args = program.args()
    Interpreter(before).run(program.name, args)
    assert program.error(args[-1]) <= program.tolerance
    assert equivalent(before, program.module) == []


@pytest.mark.parametrize("cores", [1, 2, 5, 24])
@pytest.mark.parametrize("name", NAMES)
def test_right_in_every_order(name: str, cores: int) -> None:
    program = PROGRAMS[name]
    for seed in range(8):
        assert program.run(program.module, seed, cores) == ([], True), f"seed {seed}"


@pytest.mark.parametrize("name", NAMES)
def test_without_synchronisation(name: str) -> None:
    """The hazards are found in every order, and the results are wrong in some."""
    program = PROGRAMS[name]
    module = program.make(False)
    found = [program.run(module, seed) for seed in range(6)]
    for reports, _ in found:
        assert reports and {r.slug for r in reports} == {"check-hazard"} and all(r.span is not None for r in reports)
    assert not all(right for _, right in found)


def syncs(module: Module) -> list[Operation]:
    return [op for op in module.walk() if isinstance(op, ascend.SYNC)]


# What may go without a report, and why. Empty: insert-sync keeps only what nothing else implies.
REDUNDANT: dict[str, set[int]] = {name: set() for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_can_be_left_out(name: str) -> None:
    program = PROGRAMS[name]
    count = len(syncs(program.module))
    assert count > 10
    for i in range(count):
        module = program.module.clone()
        victim = syncs(module)[i]
        text = str(victim)
        victim.erase()
        assert bool(program.run(module, i)[0]) != (i in REDUNDANT[name]), text


@pytest.mark.parametrize("name", NAMES)
def test_no_event_can_be_left_out(name: str) -> None:
    """All sets and waits of one event together: the flags stay balanced, and the hazard itself is found."""
    program = PROGRAMS[name]
    events = {(op.src, op.dst, op.id) for op in syncs(program.module) if isinstance(op, (ascend.SetFlag, ascend.WaitFlag))}
    assert len(events) >= 4
    for event in sorted(events):
        module = program.module.clone()
        for op in syncs(module):
            if isinstance(op, (ascend.SetFlag, ascend.WaitFlag)) and (op.src, op.dst, op.id) == event:
                op.erase()
        slugs = {r.slug for seed in range(4) for r in program.run(module, seed)[0]}
        # A flag against the direction of the data may be there so that another is not set twice.
        assert slugs and slugs <= {"check-hazard", "check-flag"}, event


@pytest.mark.parametrize("blocks", [0, 1, 2, 3])
def test_any_number_of_iterations(blocks: int) -> None:
    """More cores than blocks: some cores have no block, or one, and their flags are balanced, too."""
    m = 4 * blocks
    module = build(SOFTMAX, {"M": m, "N": 8})
    x = np.random.default_rng(0).normal(size=(m, 8)).astype(np.float32)
    for cores in (1, 2, 3, 4):
        out = np.full_like(x, np.nan)
        assert run_pipes(module, "softmax", [x, out], cores, cores) == []
        if m:
            np.testing.assert_allclose(out, softmax64(x.astype(np.float64)), atol=1e-6)


def function(body: str) -> Module:
    lines = "\n".join("  " + line for line in body.strip().splitlines())
    return parse_module(
        'builtin.module {level = "ascend"} {\nfunc.func @f(%x: buffer<f32[16], global> inout) {\n'
        "  %a = ascend.alloc {address = 0} : buffer<f32[16], ub>\n  %c0 = arith.constant 0 : index\n  %one = arith.constant 1.0 : f32\n" + lines + "\n}\n}\n"
    )


def reports(body: str, cores: int = 1, seed: int = 0) -> list[str]:
    module = function(body)
    verify(module)
    return [f"{r.slug}: {r.message}" for r in run_pipes(module, "f", [np.zeros(16, np.float32)], cores, seed)]


def flag(what: str, src: str, dst: str, id: int = 0) -> str:
    return f'ascend.{what}_flag {{src = "{src}", dst = "{dst}", id = {id}}}\n'


STORE = "ascend.data_copy %a, %x offsets(%c0) {rows = 1, cols = 16}\n"
ONES = "ascend.duplicate %a, %one {count = 16}\n"


@pytest.mark.parametrize("seed", range(4))
def test_flags_that_do_not_match(seed: int) -> None:
    (report,) = reports(flag("wait", "V", "MTE3") + STORE, seed=seed)
    assert "event 0 from pipe V to pipe MTE3 is waited for and never set" in report
    (report,) = reports(ONES + flag("set", "V", "MTE3", 1), seed=seed)
    assert "event 1 from pipe V to pipe MTE3 is set and never waited for" in report
    assert any("is set again before anybody waited" in r for r in reports(flag("set", "V", "M") + flag("set", "V", "M"), seed=seed))
    assert reports(ONES + flag("set", "V", "MTE3") + flag("wait", "V", "MTE3") + STORE, seed=seed) == []


@pytest.mark.parametrize("seed", range(4))
def test_hazards_say_who_does_what(seed: int) -> None:
    (report,) = reports(ONES + STORE, seed=seed)
    assert report.startswith("check-hazard: pipe ") and "the memory of ub" in report
    assert reports(ONES + ONES, seed=seed)[0].count("pipe V") == 2
    # A flag the wrong way round, and one of another pair, order nothing.
    assert any("check-hazard" in r for r in reports(ONES + flag("set", "MTE3", "V") + flag("wait", "MTE3", "V") + STORE, seed=seed))


def test_two_cores_at_one_place() -> None:
    body = ONES + flag("set", "V", "MTE3") + flag("wait", "V", "MTE3") + STORE
    (report,) = reports(body, cores=2)
    assert "core 0" in report and "core 1" in report and "'x' of global memory" in report


def test_local_memory_outside_its_space() -> None:
    (report,) = reports("%b = ascend.alloc {address = 196600} : buffer<f32[16], ub>")
    assert report == "buffer-too-large: 'b' needs 196664 bytes of ub, which has 196608"
    (report,) = reports("%b = ascend.alloc {address = 32} : buffer<f32[16], ub>")
    assert "'b' lies over another buffer of ub" in report


def test_a_function_with_flags_is_left_alone() -> None:
    module = function(ONES + flag("set", "V", "MTE3") + flag("wait", "V", "MTE3") + STORE)
    text = str(module)
    assert str(lower(module, NPU, pipeline="insert-sync")) == text


@pytest.mark.parametrize(
    "example, dims, slug, text",
    [
        ("linear", {"M": 128, "N": 128, "K": 128}, "ascend-unsupported", "kernels are not split"),
        ("transpose", {"M": 64, "N": 64}, "ascend-unsupported", "there is no instruction"),
        ("softmax", {"M": 64, "N": 65}, "ascend-unsupported", "multiples of 32 bytes"),
        ("softmax", {"M": 64, "N": 8192}, "buffer-too-large", "of ub, which has 196608"),
        ("softmax", {}, "ascend-unsupported", "must be constants"),
        ("matmul", {"M": 72, "N": 64, "K": 64}, "ascend-unsupported", "must be constants"),
    ],
)
def test_what_is_refused(example: str, dims: dict[str, int], slug: str, text: str) -> None:
    kernel = next(iter(load(EXAMPLES / f"{example}.tile")))
    with pytest.raises(TileError) as caught:
        build(kernel, dims, dtype=f16 if example != "softmax" else f32)
    report = caught.value.diagnostics[0]
    assert report.slug == slug and text in report.message and report.span is not None


def test_arithmetic_with_numbers_and_rows() -> None:
    """More of the vector unit: numbers on both sides, a repeated row, functions."""
    text = """
M, N = dims("M N")
def f(x: f32[M, N], y: f32[N]) -> f32[M, N]:
    out = empty(f32, M, N)
    for i in grid(M, by=8):
        t = x[i, :]
        out[i, :] = 1.0 - exp(-t) * 2.0 + max(t, 0.5) / sqrt(abs(t) + 1.0) + y[:]
    return out
"""
    def want(x: Any, y: Any) -> Any:
        return 1 - np.exp(-x) * 2 + np.maximum(x, 0.5) / np.sqrt(np.abs(x) + 1) + y

    kernel = next(iter(load_text(text)))
    program = Program(kernel, {"M": 24, "N": 32}, lambda rng: [rng.normal(size=s).astype(np.float32) for s in ((24, 32), (32,))], want, 1e-4)
    for seed in range(4):
        assert program.run(program.module, seed, 2) == ([], True)


def random_body(rng: random.Random, depth: int, buffers: int) -> list[str]:
    """Instructions on buffers of one size, in up to two loops."""
    lines: list[str] = []
    for _ in range(rng.randint(1, 5)):
        a, b, c = (f"%b{rng.randrange(buffers)}" for _ in range(3))
        kind = rng.choice(("in", "out", "binary", "unary", "one", "for"))
        if kind == "for" and depth < 2:
            loop = f"%i{depth}_{len(lines)}_{rng.randrange(10**6)}"
            lines += [f"loop.for {loop} = %c0 to %c{rng.choice((0, 1, 2, 3))} step %c1 {{", *random_body(rng, depth + 1, buffers), "}"]
        elif kind == "in":
            lines.append(f"ascend.data_copy %x, {a} offsets(%c{rng.randrange(4)}, %c0) {{rows = 1, cols = 16}}")
        elif kind == "out":
            lines.append(f"ascend.data_copy {a}, %x offsets(%c{rng.randrange(4)}, %c0) {{rows = 1, cols = 16}}")
        elif kind == "binary":
            lines.append(f"ascend.binary {rng.choice(('max', 'min', 'sub'))} {a}, {b}, {c} {{count = 16}}")
        elif kind == "unary":
            lines.append(f"ascend.unary abs {a}, {b} {{count = 16}}")
        else:
            lines.append(f"ascend.with_scalar adds {a}, {b}, %one {{count = 16}}")
    return lines


def random_module(seed: int) -> Module:
    rng = random.Random(seed)
    buffers = rng.randint(2, 4)
    head = [f"%b{i} = ascend.alloc {{address = {64 * i}}} : buffer<f32[16], ub>" for i in range(buffers)]
    head += [f"%c{i} = arith.constant {i} : index" for i in range(4)] + ["%one = arith.constant 1.0 : f32"]
    head += [f"ascend.duplicate %b{i}, %one {{count = 16}}" for i in range(buffers)]
    body = "\n".join([*head, *random_body(rng, 0, buffers)])
    return parse_module(f'builtin.module {{level = "ascend"}} {{\nfunc.func @f(%x: buffer<f32[4, 16], global> inout) {{\n{body}\n}}\n}}\n')


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_programs(start: int) -> None:
    """With flags, any program gives on its pipes what it means in program order."""
    for number in range(start, start + 10):
        module = random_module(number)
        want = np.arange(64, dtype=np.float32).reshape(4, 16)
        start_data = want.copy()
        Interpreter(module).run("f", [want])
        lower(module, NPU, pipeline="insert-sync")
        for seed in range(3):
            got = start_data.copy()
            assert run_pipes(module, "f", [got], 1, seed) == [], f"program {number}"
            np.testing.assert_array_equal(got, want, err_msg=f"program {number}")
