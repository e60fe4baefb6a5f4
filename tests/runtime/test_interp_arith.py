"""Arithmetic of the interpreter: every op and element type against Python integers, fractions and float64, with the special values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.dialects import arith
from tilelang.ir.types import Scalar, TileType, VectorType, bool_, index
from tilelang.runtime import numerics

INTS = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]
FLOATS = ["f64", "f32", "f16", "bf16"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-8, 65504.0, -7e4, 1e30, math.inf, -math.inf, math.nan]


def kernel(cls: Any, type: Any, *, attrs: dict[str, Any] | None = None, out: Any = None, exact: bool = False, arrays: bool = False) -> Any:
    from tilelang.ir.core import Block

    n = len(cls.info.operands)
    block = Block([type] * n)
    op = cls(block.args, [out or type], attrs or {})
    return numerics.kernel(op, exact, arrays)


def limits(name: str) -> tuple[int, int]:
    info = np.iinfo(numerics.dtype_of(Scalar(name)))
    return int(info.min), int(info.max)


def samples(name: str) -> list[int]:
    lo, hi = limits(name)
    return sorted({lo, lo + 1, 0, 1, 2, 3, 7, hi - 1, hi, *([-1, -2, -7] if lo < 0 else [])})


def wrap(x: int, name: str) -> int:
    lo, hi = limits(name)
    return (x - lo) % (hi - lo + 1) + lo


PYTHON_INT: dict[Any, Any] = {
    arith.Add: lambda a, b, _: a + b, arith.Sub: lambda a, b, _: a - b, arith.Mul: lambda a, b, _: a * b,
    arith.FloorDiv: lambda a, b, _: a // b if b else 0, arith.Mod: lambda a, b, _: a % b if b else 0,
    arith.Min: lambda a, b, _: min(a, b), arith.Max: lambda a, b, _: max(a, b),
    arith.And: lambda a, b, _: a & b, arith.Or: lambda a, b, _: a | b, arith.Xor: lambda a, b, _: a ^ b,
    arith.Shl: lambda a, b, bits: a << b if 0 <= b < bits else 0, arith.Shr: lambda a, b, bits: a >> b if 0 <= b < bits else -(a < 0),
}  # fmt: skip


@pytest.mark.parametrize("name", [*INTS, "index"])
@pytest.mark.parametrize("cls", PYTHON_INT)
def test_binary_on_integers(cls: Any, name: str) -> None:
    element = Scalar(name)
    bits = element.bits
    pairs = list(itertools.product(samples(name), repeat=2))
    want = [wrap(PYTHON_INT[cls](a, b, bits), name) for a, b in pairs]
    with np.errstate(all="ignore"):
        f = kernel(cls, element)
        assert [int(f(numerics.scalar(a, element), numerics.scalar(b, element))) for a, b in pairs] == want
        dtype = numerics.dtype_of(element)
        x, y = (np.array([p[i] for p in pairs], dtype) for i in (0, 1))
        out = kernel(cls, TileType((len(pairs),), element))(x, y)
        assert out.dtype == dtype and out.tolist() == want


@pytest.mark.parametrize("name", INTS)
def test_unary_on_integers(name: str) -> None:
    values = samples(name)
    with np.errstate(all="ignore"):
        for cls, f in ((arith.Neg, lambda x: -x), (arith.Abs, abs), (arith.Not, lambda x: ~x)):
            out = kernel(cls, TileType((len(values),), Scalar(name)))(np.array(values, numerics.dtype_of(Scalar(name))))
            assert out.tolist() == [wrap(f(x), name) for x in values], cls.name


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", FLOATS)
def test_floats_round_once_an_op(name: str, exact: bool) -> None:
    """Each op is the float64 (or f32) result rounded to the type."""
    element = Scalar(name)
    dtype = numerics.dtype_of(element, exact)
    with np.errstate(all="ignore"):
        pairs = [(x, y) for x in SPECIAL for y in SPECIAL]
        x, y = (np.array([p[i] for p in pairs]).astype(dtype) for i in (0, 1))
        wide = np.float64 if dtype == np.float64 else np.float32
        a, b = x.astype(wide), y.astype(wide)
        tile = TileType((len(pairs),), element)
        for cls, want in (
            (arith.Add, a + b), (arith.Sub, a - b), (arith.Mul, a * b), (arith.Div, a / b), (arith.Min, np.minimum(a, b)),
            (arith.Max, np.maximum(a, b)), (arith.FloorDiv, np.floor(a / b)), (arith.Mod, a - b * np.floor(a / b)),
        ):  # fmt: skip
            out = kernel(cls, tile, exact=exact)(x, y)
            assert out.dtype == dtype
            np.testing.assert_array_equal(out.astype(np.float64), want.astype(dtype).astype(np.float64), err_msg=cls.name)
        for predicate, want in {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}.items():
            out = kernel(arith.Cmp, tile, attrs={"predicate": predicate}, out=TileType((len(pairs),), bool_), exact=exact)(x, y)
            np.testing.assert_array_equal(out, want, err_msg=predicate)


def test_functions_against_math() -> None:
    table = {
        arith.Exp: math.exp, arith.Exp2: math.exp2, arith.Log: math.log, arith.Log2: math.log2, arith.Sqrt: math.sqrt,
        arith.Rsqrt: lambda x: 1 / math.sqrt(x), arith.Tanh: math.tanh, arith.Erf: math.erf, arith.Sin: math.sin, arith.Cos: math.cos,
        arith.Floor: math.floor, arith.Ceil: math.ceil, arith.Round: round,
    } if hasattr(math, "exp2") else {}  # fmt: skip
    x = [0.25, 0.5, 1.0, 1.5, 2.5, 3.5, 7.0]
    for cls, f in table.items():
        for name, tolerance in (("f64", 1e-15), ("f32", 2e-7), ("f16", 1e-3), ("bf16", 8e-3)):
            element = Scalar(name)
            out = kernel(cls, TileType((len(x),), element))(np.array(x).astype(numerics.dtype_of(element)))
            np.testing.assert_allclose(out.astype(np.float64), [f(v) for v in x], rtol=tolerance, err_msg=f"{cls.name} {name}")


def test_erf_of_special_values() -> None:
    x = np.array([math.nan, math.inf, -math.inf, 0.0])
    np.testing.assert_array_equal(kernel(arith.Erf, TileType((4,), Scalar("f64")))(x), [math.nan, 1.0, -1.0, 0.0])


@pytest.mark.parametrize("target", [*INTS, "index"])
def test_casts_from_floats_saturate(target: str) -> None:
    lo, hi = limits(target)
    cases = {
        math.nan: 0, math.inf: hi, -math.inf: lo, 1e30: hi, -1e30: lo, 2.75: 2, -2.75: max(-2, lo), 0.99: 0, -0.99: 0, 126.5: 126,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        for source in ("f64", "f32", "bf16"):
            x = np.array(list(cases)).astype(numerics.dtype_of(Scalar(source)))
            want = [v if abs(k) != 126.5 or source != "bf16" else int(float(ml_dtypes.bfloat16(k))) for k, v in cases.items()]
            out = numerics.cast(x, Scalar(source), Scalar(target))
            assert out.tolist() == want
            one = numerics.cast(x[0], Scalar(source), Scalar(target))
            assert int(one) == 0 and (type(one) is int) == (target == "index")


def test_casts_between_integers_wrap() -> None:
    for source, target in itertools.product(INTS, INTS):
        values = samples(source)
        out = numerics.cast(np.array(values, numerics.dtype_of(Scalar(source))), Scalar(source), Scalar(target))
        assert out.tolist() == [wrap(v, target) for v in values]
    assert numerics.cast(300, index, Scalar("u8")) == 44
    assert numerics.cast(2**40, index, Scalar("f32")) == np.float32(2**40)
    assert numerics.cast(5, index, bool_) == np.True_


def test_casts_to_bool_and_from() -> None:
    x = np.array([0.0, -0.0, math.nan, 3.0], np.float32)
    assert numerics.cast(x, Scalar("f32"), bool_).tolist() == [False, False, True, True]
    assert numerics.cast(np.array([True, False]), bool_, Scalar("bf16")).astype(np.float32).tolist() == [1.0, 0.0]


def test_f8_rounds_to_nearest_even() -> None:
    x = np.array([1.0625, 1.1875, 300.0, -0.3], np.float32)
    for name, dtype in (("f8e4m3", ml_dtypes.float8_e4m3fn), ("f8e5m2", ml_dtypes.float8_e5m2)):
        np.testing.assert_array_equal(numerics.cast(x, Scalar("f32"), Scalar(name)).astype(np.float32), x.astype(dtype).astype(np.float32))


def test_bitcast_reads_the_bits() -> None:
    assert numerics.bitcast(np.float32(1.0), Scalar("f32"), Scalar("i32")) == 0x3F800000
    assert numerics.bitcast(np.float64(1.0), Scalar("f32"), Scalar("i32"), exact=True) == 0x3F800000
    assert numerics.bitcast(np.array([0x3F80], np.uint16), Scalar("u16"), Scalar("bf16")).astype(np.float32).tolist() == [1.0]
    assert numerics.bitcast(-1, index, Scalar("u64")) == 2**64 - 1


def test_fma_rounds_once() -> None:
    a = np.array([1 + 2.0**-27], np.float64)
    out = numerics.fma(a, a, np.array([-1 - 2.0**-26]))
    assert out[0] == 2.0**-54  # a * a rounded first would give 0
    f = np.float32(1 + 2.0**-12)
    assert numerics.fma(f, f, np.float32(-1 - 2.0**-11)) == np.float32(2.0**-24)
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isinf(numerics.fma(np.float64(1e300), np.float64(1e300), np.float64(0)))


def test_select_takes_one_condition_or_many() -> None:
    tile = TileType((3,), Scalar("f32"))
    a, b = np.ones(3, np.float32), np.zeros(3, np.float32)
    out = kernel(arith.Select, tile)(np.array([True, False, True]), a, b)
    assert out.tolist() == [1, 0, 1] and out.dtype == np.float32
    assert kernel(arith.Select, tile)(np.False_, a, b).tolist() == [0, 0, 0]


def test_constants() -> None:
    assert numerics.constant(3, index) == 3
    assert numerics.constant(-1, Scalar("u8")) == 255
    assert numerics.constant(0.1, Scalar("f32"), exact=True) == np.float64(np.float32(0.1))
    assert numerics.constant(2.0, VectorType(4, Scalar("bf16"))).astype(np.float32).tolist() == [2.0] * 4


def test_index_wraps_at_64_bits() -> None:
    f = kernel(arith.Mul, index)
    assert f(2**62, 2) == -(2**63) and f(3, 5) == 15 and f(2**40, 2**40) == 0
