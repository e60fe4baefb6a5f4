"""expand-math: accuracy of the functions in units in the last place, values at the ends, narrow floats, no calls of libraries."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.native import X86, run_native
from tilelang.backends.cpu.emit import emit
from tilelang.dialects import arith, func, loop, vec
from tilelang.ir.core import Builder, Module
from tilelang.ir.passes import PassContext, get_pass
from tilelang.ir.types import PtrType, Scalar, f32, f64
from tilelang.ir.verify import verify
from tilelang.runtime import numerics
from tilelang.runtime.interp import Interpreter
from tilelang.runtime.registers import Pointer
from tilelang.target import get_target

CPUS = ("host", "x86-64") if X86 else ("host",)  # the latter has neither fused multiply-add nor rounding instructions
WIDE = {f32: np.float64, f64: np.longdouble}


def build(cls: Any, element: Scalar, lanes: int, n: int, operands: int = 1) -> Module:
    """out[i] = op(x0[i], ...)"""
    f = func.Func.of("f", [(f"x{i}", PtrType(element), "in") for i in range(operands)] + [("out", PtrType(element), "out")])
    b = Builder(f.body.block)
    zero, count, step = (b(arith.index_constant(k)) for k in (0, n, max(lanes, 1)))
    each = loop.For.of(zero, count, step, hint="i")
    b.insert(each)
    inner = Builder(each.body.block)
    loaded = [inner(vec.Load.of(x, each.iv, lanes)) for x in f.args[:-1]]
    inner.insert(vec.Store.of(inner(cls.of(*loaded)), f.args[-1], each.iv))
    inner.insert(loop.Yield.of())
    b.insert(func.Return.of())
    return Module.of([f], level="vec")


def expanded(cls: Any, element: Scalar, lanes: int, n: int, operands: int = 1, cpu: str = "host") -> Module:
    module = build(cls, element, lanes, n, operands)
    get_pass("expand-math")().run(module, PassContext(get_target("cpu", cpu=cpu)))
    verify(module)
    return module


def run(cls: Any, element: Scalar, *xs: np.ndarray[Any, Any], lanes: int = 8, cpu: str = "host") -> np.ndarray[Any, Any]:
    n = -(-len(xs[0]) // 16) * 16
    padded = [np.ascontiguousarray(np.resize(x, n)) for x in xs]
    out = np.zeros(n, xs[0].dtype)
    module = expanded(cls, element, lanes, n, len(xs), cpu)
    assert run_native(module, *padded, out, target=get_target("cpu", cpu=cpu))[0] is None
    return out[: len(xs[0])]


def _erf(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.array([math.erf(v) for v in x.astype(np.float64)])


def spread(rng: np.random.Generator, low: float, high: float, n: int = 20000) -> np.ndarray[Any, Any]:
    return np.concatenate([rng.uniform(low, high, n), rng.normal(size=n), np.exp(rng.uniform(-80, 0, n)) * rng.choice([-1, 1], n)])


# reference, interval of each type, units in the last place allowed
CASES: dict[Any, tuple[Any, dict[Scalar, tuple[float, float]], float]] = {
    arith.Exp: (np.exp, {f32: (-87, 88.7), f64: (-708, 709.7)}, 2),
    arith.Exp2: (np.exp2, {f32: (-126, 127.9), f64: (-1022, 1023.9)}, 2),
    arith.Tanh: (np.tanh, {f32: (-11, 11), f64: (-22, 22)}, 4),
    arith.Erf: (_erf, {f32: (-5, 5), f64: (-7, 7)}, 4),
    arith.Sin: (np.sin, {f32: (-1e5, 1e5), f64: (-1e6, 1e6)}, 2),
    arith.Cos: (np.cos, {f32: (-1e5, 1e5), f64: (-1e6, 1e6)}, 2),
}
POSITIVE: dict[Any, Any] = {arith.Log: np.log, arith.Log2: np.log2, arith.Rsqrt: lambda x: 1 / np.sqrt(x)}


def worst(got: np.ndarray[Any, Any], want: Any) -> float:
    """The largest error in units in the last place of the result."""
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(want.astype(got.dtype))).astype(want.dtype)
        return float(np.max(np.abs(got.astype(want.dtype) - want) / unit))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("element", [f32, f64], ids=str)
@pytest.mark.parametrize("cls", [*CASES, *POSITIVE], ids=lambda c: c.name)
def test_accuracy(cls: Any, element: Scalar, cpu: str) -> None:
    rng = np.random.default_rng(0)
    dtype = numerics.dtype_of(element)
    if cls in CASES:
        reference, intervals, allowed = CASES[cls]
        x = spread(rng, *intervals[element])
        if cls in (arith.Sin, arith.Cos):  # near the zeros
            x = np.concatenate([x, rng.integers(-60000, 60000, 20000) * (math.pi / 2)])
    else:
        reference, allowed = POSITIVE[cls], 2
        high = 88 if element is f32 else 709
        x = np.concatenate([np.exp(rng.uniform(-high, high, 20000)), rng.uniform(0.5, 2, 20000), 1 + rng.normal(size=20000) * 1e-3])
    x = x.astype(dtype)
    assert worst(run(cls, element, x, cpu=cpu), reference(x.astype(WIDE[element]))) <= allowed


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("element", [f32, f64], ids=str)
def test_pow(element: Scalar, cpu: str) -> None:
    rng = np.random.default_rng(1)
    dtype, n = numerics.dtype_of(element), 20000
    exponent = rng.normal(size=n) * rng.choice([0.01, 1, 20], n)
    y = rng.uniform(-1, 1, n) * (80 if element is f32 else 690) / np.maximum(np.abs(exponent), 1e-2)
    x, y = np.exp(exponent).astype(dtype), y.astype(dtype)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(WIDE[element]), y.astype(WIDE[element]))
    normal = (np.abs(want) > np.finfo(dtype).tiny) & (np.abs(want) < np.finfo(dtype).max)
    assert worst(run(arith.Pow, element, x, y, cpu=cpu)[normal], want[normal]) <= 4


ENDS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, -3.0, 1e-40, -1e-40, 1e-45, 2.0**-126, 88.73, 89.0, -87.5, -100.0, -103.9, -104.1, 127.5, 128.0, -126.5, -149.0, -151.0]
ENDS += [np.inf, -np.inf, np.nan, 1e30, -1e30, 3e38, 12345678.0, 1e15]
ENDS64 = [1e-320, -1e-320, 5e-324, 709.78, 709.79, -708.5, -745.1, -745.2, 1e300, -1e300, 1023.5, 1024.0, -1074.0, -1075.1]


def agree(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Equal up to four units in the last place; zeros with their sign, infinities, NaN the same."""
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= 4 * np.spacing(np.abs(want))
        return (near & (np.signbit(got) == np.signbit(want))) | (got == want) & (want != 0) | (np.isnan(got) & np.isnan(want))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("element", [f32, f64], ids=str)
def test_values_at_the_ends(element: Scalar, cpu: str) -> None:
    with np.errstate(all="ignore"):
        x = np.array(ENDS + (ENDS64 if element is f64 else [])).astype(numerics.dtype_of(element))
        for cls in [*CASES, *POSITIVE, arith.Floor, arith.Ceil, arith.Round]:
            want = numerics.apply_kernel(cls.name[6:], element)(x)
            got = run(cls, element, x, cpu=cpu)
            ok = agree(got, want)
            assert ok.all(), (cls.name, [(x[i], got[i], want[i]) for i in np.flatnonzero(~ok)])
        pairs = [np.array([p[k] for p in itertools.product(x, repeat=2)]) for k in range(2)]
        want, got = np.power(*pairs), run(arith.Pow, element, *pairs, cpu=cpu)
        ok = agree(got, want)
        assert ok.all(), [(pairs[0][i], pairs[1][i], got[i], want[i]) for i in np.flatnonzero(~ok)[:8]]


@pytest.mark.parametrize("lanes", [0, 1, 16])
def test_other_lanes_and_the_interpreter(lanes: int) -> None:
    x = np.random.default_rng(2).normal(size=32).astype(np.float32)
    x[3] = 1e7  # beyond the fast path of sin
    for cls in (*CASES, *POSITIVE):
        y = np.abs(x) if cls in POSITIVE else x
        out = np.zeros_like(y)
        Interpreter(expanded(cls, f32, lanes, 32)).run("f", [Pointer(y), Pointer(out)])
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(out, numerics.apply_kernel(cls.name[6:], f32)(y), rtol=1e-6)
        np.testing.assert_array_equal(out, run(cls, f32, y, lanes=lanes))


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3", "f8e5m2"])
def test_narrow_floats_round_after_every_op(name: str) -> None:
    element = Scalar(name)
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=48).astype(np.float32).astype(numerics.dtype_of(element)) for _ in range(2))
    for cls in (arith.Add, arith.Mul, arith.Div, arith.Min, arith.Max, arith.FloorDiv, arith.Mod, arith.Sqrt, arith.Floor, arith.Exp, arith.Neg):
        args = [x, y] if issubclass(cls, arith.Binary) else [x]
        with np.errstate(all="ignore"):
            want = numerics.apply_kernel(cls.name[6:], element)(*args)
        for cpu, lanes in itertools.product(CPUS, (0, 16)):
            got = run(cls, element, *args, lanes=lanes, cpu=cpu)
            same = (got.view(f"u{element.bytes}") == want.view(f"u{element.bytes}")) | (got == want) | (np.isnan(got) & np.isnan(want))
            assert same.all(), (cls.name, cpu, lanes)


def test_narrow_fma_rounds_once() -> None:
    element = Scalar("f16")
    a = np.array([1 + 2.0**-10] * 16, np.float16)
    c = np.array([-1 - 2.0**-9] * 16, np.float16)
    assert (run(arith.Fma, element, a, a, c) == np.float16(2.0**-20)).all()


def test_no_library_calls_in_vector_code() -> None:
    for cls in (*CASES, *POSITIVE, arith.Floor, arith.Mod):
        if cls not in (arith.Sin, arith.Cos):  # their slow path
            text = emit(expanded(cls, f32, 16, 16, 2 if cls is arith.Mod else 1, "x86-64"), get_target("cpu", cpu="x86-64")).text
            called = {line.split("@")[1].split("(")[0] for line in text.splitlines() if " call " in line and "llvm." in line}
            assert not {c for c in called if not c.startswith(("llvm.fabs", "llvm.sqrt", "llvm.umin"))}, (cls.name, called)
