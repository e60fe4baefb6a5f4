"""The default data of tilec run, its operation counts, and its measure of errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.cli.tilec import EXAMPLES, NAMES, SCALE
from tilelang import load, load_text
from tilelang.commands import count as counting
from tilelang.commands.count import count
from tilelang.commands.data import default_dims, make_arguments, parse_argument
from tilelang.commands.verify import allowance, compare, difference
from tilelang.kernel import Kernel


def kernel(name: str) -> Kernel:
    return getattr(load(EXAMPLES / f"{name}.tile"), name)


def made(k: Kernel, dims: tuple[str, ...] = (), **choices: Any) -> tuple[dict[str, Any], dict[str, int]]:
    arguments = make_arguments(k.signature, choices, (), dims, 0)
    return arguments.values, arguments.dims


@pytest.mark.parametrize("name", NAMES)
def test_default_dims_are_distinct_and_give_results(name: str) -> None:
    k = kernel(name)
    values, dims = made(k)
    assert len(set(dims.values())) == len(dims)
    if all(len(p.dims) <= 2 for p in k.signature.tensors):
        assert all(256 < n < 512 for n in dims.values())
    call = k.bind(*values.values())
    assert all(r.size for r in call.results)
    assert sum(v.nbytes for v in values.values() if isinstance(v, np.ndarray)) < 100e6


def test_dims_that_are_given_stay() -> None:
    signature = kernel("conv2d").signature
    dims = default_dims(signature, {"H": 5, "R": 7}, {"pad": 1, "stride": 1})
    assert dims["H"] == 5 and dims["R"] == 7 and dims["S"] < dims["W"]


def test_random_values() -> None:
    text = """
M = dims("M")


def f(a: f32[M], b: i8[M], c: u32[M], d: bool_[M], e: f16[M], s: f32, n: i32, flag: bool_) -> f32[M]:
    return a
"""
    values, _ = made(load_text(text).f, ("M=4000",))
    assert abs(float(values["a"].mean())) < 0.1 and abs(float(values["a"].std()) - 1) < 0.1
    for name in "bc":
        assert set(values[name].tolist()) == set(range(8))
    assert values["d"].dtype == np.bool_ and 0.4 < values["d"].mean() < 0.6
    assert values["e"].dtype == np.float16 and values["s"] == 1 and values["n"] == 1 and values["flag"] is True


def test_forms_of_arguments() -> None:
    assert parse_argument("x", "rand").kind == "rand"
    assert parse_argument("x", "rand:[3]").shape == (3,)
    assert parse_argument("x", "rand:f32[]").shape == ()
    made = parse_argument("x", "rand:i32[64]:-5:100")
    assert made.dtype is not None and made.dtype.name == "i32" and made.shape == (64,) and made.range == (-5, 100)
    assert parse_argument("x", "rand:0:1.5").range == (0, 1.5)
    assert parse_argument("x", "zeros:bool_[2,3]").shape == (2, 3)
    assert [parse_argument("x", t).value for t in ("3", "0x10", "-2.5", "true", "1e3")] == [3, 16, -2.5, True, 1000.0]
    assert math.isinf(parse_argument("x", "inf").value)


# -- counts


def counted(k: Kernel, dims: tuple[str, ...], **choices: Any) -> counting.Count:
    values, _ = made(k, dims, **choices)
    call = k.bind(*values.values(), **choices)
    module = k.build(call.spec)
    shapes = [getattr(v, "shape", v) for v in values.values()]
    return count(module, k.__name__, shapes if module.level == "tensor" else [*shapes, *(r.shape for r in call.results)])


def test_counts_of_products() -> None:
    found = counted(kernel("matmul"), ("M=300", "N=77", "K=129"))
    blocks = -(-129 // 64)
    assert found.exact and 2 * 300 * 77 * 129 <= found.operations <= 2 * 300 * 77 * 129 + blocks * 300 * 77
    batched = counted(kernel("batched_matmul"), ("B=3", "M=70", "N=65", "K=1"))
    assert 2 * 3 * 70 * 65 <= batched.operations <= 3 * 3 * 70 * 65


def test_count_of_a_chain() -> None:
    assert counted(load_text(SCALE).scale, ("M=101", "N=7")) == counting.Count(101 * 7, True)
    assert counted(load_text(SCALE).scale, ("M=101", "N=7"), shift=True) == counting.Count(2 * 101 * 7, True)
    assert counted(load_text(SCALE).scale, ("M=0", "N=7")).operations == 0


@pytest.mark.parametrize(("name", "dims"), [
    ("flash_attention", ("B=2", "H=3", "S=500", "T=500", "D=16")), ("softmax", ("M=83", "N=9")), ("sums", ("M=203", "N=2000")), ("mlp", ()),
    ("splitk_matmul", ("M=130", "N=70", "K=2000")), ("prefix_sum", ("M=40", "N=3000")), ("conv2d", ("N=3", "H=9", "W=40")), ("embedding", ()),
    ("histogram", ("N=9999",)),
])  # fmt: skip
def test_points_stand_for_all_iterations(name: str, dims: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    few = counted(kernel(name), dims)
    monkeypatch.setattr(counting, "_points", lambda numbers: [(i, 1.0) for i in numbers])
    every = counted(kernel(name), dims)
    assert few.exact and few.operations == pytest.approx(every.operations, rel=1e-9) and (few.operations > 0) == (name != "embedding")


def test_triangular_loops_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    dims = ("B=1", "H=1", "S=640", "T=640", "D=8")
    k = kernel("flash_attention")
    few = counted(k, dims, causal=True)
    monkeypatch.setattr(counting, "_points", lambda numbers: [(i, 1.0) for i in numbers])
    assert few.operations == pytest.approx(counted(k, dims, causal=True).operations, rel=1e-9)
    assert few.operations < 0.6 * counted(k, dims).operations


def test_data_dependent_control_flow_is_said_to_be() -> None:
    text = """
M = dims("M")


def f(x: f32[M]) -> f32[M]:
    out = empty(f32, M)
    for i in grid(M):
        v = x[i]
        if v > 0.0:
            v = v * 2.0 + 1.0
        out[i] = v
    return out
"""
    found = counted(load_text(text).f, ("M=50",))
    assert not found.exact and found.operations == 100


# -- errors


def test_difference() -> None:
    want = np.array([1.0, -2.0, 0.0, 2.0])
    got = want.astype(np.float32)
    assert difference(got, want)[0] == 0.0
    got[2] = 0.01
    error, where = difference(got, want)
    assert error == pytest.approx(0.01 / 1.5, rel=1e-6) and where == "at [2]: 0.00999999978, expected 0"
    assert difference(np.array([1, 2, 3], np.int32), np.array([1, 5, 9], np.int32))[0] == 2
    assert difference(np.zeros((0, 3), np.float32), np.zeros((0, 3)))[0] == 0.0


def test_difference_where_numbers_are_not_finite() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert difference(special.astype(np.float32), special)[0] == 0.0
    assert difference(np.array([np.inf], np.float16), np.array([1e6]))[0] == 0.0  # beyond what f16 holds
    for got in (np.nan, np.inf, 3.0):
        assert difference(np.array([got], np.float32), np.array([-np.inf]))[0] == math.inf
    assert difference(np.array([np.nan], np.float32), np.array([1.0]))[0] == math.inf


def test_allowance_follows_the_types() -> None:
    module = kernel("matmul").build()
    f32, f16 = (allowance(module, np.zeros(1, t), 500.0) for t in (np.float32, np.float16))
    assert 1e-6 < f32 < 2e-5 < f16 < 1e-2
    assert allowance(module, np.zeros(1, np.int32), 500.0) == 0.0
    assert allowance(module, np.zeros(1, np.float32), 50000.0) > f32


def test_what_the_program_itself_loses_is_allowed() -> None:
    """x + 1e8 - 1e8 in f32: the typed interpreter is as wrong as the code, the float64 one is not."""
    want = np.array([0.25, 3.0])
    lossy = np.array([0.0, 0.0], np.float32)

    def both() -> Any:
        return [lossy], [want]

    assert compare(["out"], [lossy], [want], [1e-6], both)[0].ok
    assert not compare(["out"], [lossy + 50], [want], [1e-6], both)[0].ok


def test_what_a_reference_finds_wrong_stays_wrong() -> None:
    """The interpreters agree with the code and with each other: then the program is not what the reference says."""
    for got, want in ((np.array([1.0, 2.0], np.float32), np.array([1.0, 3.0])), (np.array([1, 2]), np.array([1, 3])), (np.array([1.0, np.inf]), np.ones(2))):
        [outcome] = compare(["out"], [got], [want], [1e-6], lambda got=got: ([got], [got.astype(np.float64) if got.dtype.kind == "f" else got]))
        assert not outcome.ok and outcome.where.startswith("at [1]")


def test_integers_and_overflows_that_a_rounding_decides() -> None:
    want, own = np.array([3, 7]), np.array([3, 8], np.int32)
    assert compare(["out"], [own], [want], [0.0], lambda: ([own], [want]))[0].ok
    assert not compare(["out"], [own + 1], [want], [0.0], lambda: ([own], [want]))[0].ok
    huge, inf = np.array([1.0, 7e4]), np.array([1.0, np.inf], np.float16)
    assert compare(["out"], [inf], [huge * 0.9], [0.0], lambda: ([inf], [huge * 0.9]))[0].ok
