"""A ring all-reduce on several ranks: right in every order in which puts and signals arrive, and what is forgotten is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilelang.diagnostics import Diagnostic, TileError
from tilelang.ir.core import Module
from tilelang.ir.parser import parse_module
from tilelang.ir.text import print_module
from tilelang.ir.verify import verify
from tilelang.kernel import Kernel, load_text
from tilelang.runtime.ranks import run_ranks

PATH = Path(__file__).parent / "ring.tile"
TEXT = PATH.read_text(encoding="utf-8")
ONE = "M, S = dims('M S')\ndef f(x: InOut[f32, M], box: Symmetric[f32, M], flag: Symmetric[i64, S]):\n"


def kernel(text: str) -> Kernel:
    return next(iter(load_text(text, "ring.tile")))


def changed(*changes: tuple[str, str]) -> str:
    """The ring with lines replaced."""
    text = TEXT
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def arguments(n: int, size: int, seed: int) -> tuple[list[list[Any]], np.ndarray]:
    rng = np.random.default_rng(seed)
    xs = [rng.integers(-9, 10, size).astype(np.float32) for _ in range(n)]
    chunk = -(-size // n)
    return [[x, np.zeros((2, chunk), np.float32), np.zeros(2, np.int64), np.zeros(2, np.int64)] for x in xs], np.sum(xs, axis=0)


def ring(module: Module, n: int, size: int, seed: int) -> tuple[list[Diagnostic], bool]:
    """What is reported, and whether every rank has the sum."""
    args, want = arguments(n, size, seed)
    reports = run_ranks(module, "ring_all_reduce", args, seed)
    return reports, all(np.array_equal(a[0], want) for a in args)


@pytest.mark.parametrize("level", ["tile", "mem"])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_right_on_every_schedule(n: int, level: str) -> None:
    module = kernel(TEXT).build(level=level)  # pyright: ignore[reportArgumentType]
    verify(module)
    for size in (0, 1, 5, 23):
        for seed in range(8):
            assert ring(module, n, size, seed) == ([], True), f"{n} ranks, {size} elements, seed {seed}"


def found(text: str, n: int, size: int = 13, seeds: int = 8) -> tuple[dict[str, Diagnostic], int]:
    """The first report of each kind over several schedules; in how many of them anything was reported."""
    module = kernel(text).build()
    kinds: dict[str, Diagnostic] = {}
    count = 0
    for seed in range(seeds):
        reports, right = ring(module, n, size, seed)
        assert reports or right, f"seed {seed}: a wrong result and no report"
        count += bool(reports)
        for report in reports:
            kinds.setdefault(report.slug, report)
    return kinds, count


def line(report: Diagnostic) -> str:
    assert report.span is not None
    return report.span.text


def noted(report: Diagnostic) -> set[str]:
    return {n.span.text for n in report.notes if n.span is not None}


@pytest.mark.parametrize("n", [2, 3, 4])
def test_no_fence(n: int) -> None:
    kinds, count = found(changed(("        fence(right)\n", "")), n)
    assert count == 8, "found in every schedule"
    assert line(kinds["check-fence"]) == "put(inbox[slot, k - first], x[k], right)"
    assert noted(kinds["check-fence"]) == {"inbox[slot, k - start]"}


@pytest.mark.parametrize("n", [3, 4])
def test_no_credit(n: int) -> None:
    kinds, count = found(changed(("wait(free[slot], t - 1)", "pass")), n)
    assert count >= 6
    race = kinds["check-rank-race"]
    assert "of rank" in race.message and "'inbox'" in race.message
    assert {line(race)} | noted(race) == {"put(inbox[slot, k - first], x[k], right)", "inbox[slot, k - start]"}


def test_no_credit_is_safe_for_two() -> None:
    """What the right neighbour sends back is the credit, when it is the left one, too."""
    assert found(changed(("wait(free[slot], t - 1)", "pass")), 2) == ({}, 0)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_wait_before_send(n: int) -> None:
    text = changed(("        wait(arrived[slot], t + 1)\n", ""), ("        out = (me", "        wait(arrived[slot], t + 1)\n        out = (me"))
    kinds, count = found(text, n)
    assert count == 8 and list(kinds) == ["check-deadlock"]
    assert line(kinds["check-deadlock"]) == "wait(arrived[slot], t + 1)"
    assert "rank 0 waits for arrived[0] >= 1 (it is 0), rank 1 waits for arrived[0] >= 1 (it is 0)" in kinds["check-deadlock"].message


@pytest.mark.parametrize(
    "old, new",
    [
        ("signal(arrived[slot], t + 1, right)", "signal(arrived[slot], t, right)"),  # one too low: a deadlock
        ("        wait(arrived[slot], t + 1)", "        wait(arrived[slot], t)"),  # one too low: reads what has not come
        ("        signal(free[slot], t + 1, left)", "        signal(free[slot], t + 1, right)"),  # credit to the wrong side
        ("fence(right)", "fence(left)"),
    ],
)
def test_more_mistakes(old: str, new: str) -> None:
    assert found(changed((old, new)), 4)[1] >= 6


def run(body: str, n: int, seed: int = 0, size: int = 4) -> tuple[list[Diagnostic], list[list[Any]]]:
    text = ONE + "".join(f"    {x}\n" for x in body.splitlines())
    args = [[np.full(size, r + 1, np.float32), np.zeros(size, np.float32), np.zeros(2, np.int64)] for r in range(n)]
    return run_ranks(kernel(text).build(), "f", args, seed), args


EXCHANGE = "put(box[:], x[:], (rank() + 1) % world())\n{}\nx[:] = box[:]"


@pytest.mark.parametrize("seed", range(8))
def test_barrier_orders_everything(seed: int) -> None:
    reports, args = run(EXCHANGE.format("barrier()"), 3, seed)
    assert reports == [] and [a[0][0] for a in args] == [3, 1, 2]


def test_nothing_orders_a_put_and_a_load() -> None:
    reports, _ = run(EXCHANGE.format("pass"), 3)
    assert {r.slug for r in reports} == {"check-rank-race"}


@pytest.mark.parametrize("seed", range(8))
def test_signals_add_up(seed: int) -> None:
    """All signal rank 0, which waits for the sum."""
    body = "signal(flag[1], rank() + 1, 0, kind='add')\nif rank() == 0:\n    wait(flag[1], 10, cmp='eq')\n    x[0] = 5.0"
    reports, args = run(body, 4, seed)
    assert reports == [] and args[0][0][0] == 5 and args[0][2][1] == 10


def test_two_puts_to_one_place() -> None:
    reports, _ = run("put(box[:], x[:], 0)", 2)
    assert [r.slug for r in reports] == ["check-rank-race"] and "puts to 'box' of rank 0" in reports[0].message
    reports, args = run("if rank() == 1:\n    put(box[:], x[:], 0)\n    fence(0)\n    put(box[:], x[:] * 2, 0)", 2)
    assert reports == [] and args[0][1][0] == 4


def test_a_fence_orders_one_peer_only() -> None:
    """The signal goes round through a third rank: a fence towards the reader does not order that."""
    body = """if rank() == 0:
    put(box[:], x[:], 2)
    fence(2)
    signal(flag[0], 1, 1)
if rank() == 1:
    wait(flag[0], 1)
    signal(flag[0], 1, 2)
if rank() == 2:
    wait(flag[0], 1)
    x[:] = box[:]"""
    assert {r.slug for seed in range(6) for r in run(body, 3, seed)[0]} == {"check-fence"}


def test_barrier_that_one_rank_does_not_reach() -> None:
    reports, _ = run("if rank() > 0:\n    barrier()", 3)
    assert [r.slug for r in reports] == ["check-deadlock"] and "rank 1 waits for a barrier" in reports[0].message


def test_symmetric_memory_has_one_shape() -> None:
    args = [[np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(2 + r, np.int64)] for r in range(2)]
    with pytest.raises(ValueError, match=r"'flag' has shape .2,. on rank 0 and .3,. on rank 1"):
        run_ranks(kernel(f"{ONE}    barrier()\n").build(), "f", args)


def test_peer_that_is_not_there() -> None:
    with pytest.raises(TileError) as caught:
        run("put(box[:], x[:], rank() + 1)", 2)
    assert [d.slug for d in caught.value.diagnostics] == ["check-no-peer"]


@pytest.mark.parametrize("mode", ["fast", "check", "interpret"])
def test_one_rank_alone_is_refused(mode: str) -> None:
    args, _ = arguments(1, 5, 0)
    with pytest.raises(TileError) as caught:
        kernel(TEXT)(*args[0], mode=mode)
    (report,) = caught.value.diagnostics
    assert report.slug == "needs-ranks" and report.span is not None and "'ring_all_reduce' talks to other ranks" in report.message


@pytest.mark.parametrize(
    "body, slug, text",
    [
        ("put(x[:], box[:], 0)", "wrong-type", "declare the parameter as Symmetric[f32, M]"),
        ("signal(box[0], 1, 0)", "dtype-unsupported", "use i64"),
        ("signal(flag[:], 1, 0)", "rank-mismatch", "one element"),
        ("wait(flag[0], 1, cmp='>=')", "wrong-arguments", '"ge", "eq"'),
        ("put(box[:], x[:], 0.5)", "wrong-type", "the number of a rank"),
    ],
)
def test_wrong_programs(body: str, slug: str, text: str) -> None:
    with pytest.raises(TileError) as caught:
        kernel(f"{ONE}    {body}\n").build()
    (report,) = caught.value.diagnostics
    assert report.slug == slug and text in report.render()


def test_a_result_is_not_symmetric() -> None:
    with pytest.raises(TileError, match="Symmetric is for parameters"):
        kernel("M = dims('M')\ndef f(x: f32[M]) -> Symmetric[f32, M]:\n    return x\n").build()


def test_the_ir_is_written_and_read() -> None:
    module = kernel(TEXT).build()
    loads = [op for op in module.walk() if op.name == "tile.load" and "symmetric" in str(op.operands[0].type)]
    assert len(loads) == 2 and all(op.segments is not None and op.segments[-1] == 1 for op in loads), "loads take the token of the wait"
    for generic in (False, True):
        text = print_module(module, generic=generic)
        assert print_module(parse_module(text), generic=generic) == text
