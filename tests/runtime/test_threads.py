"""The thread pool, the allocator and the conversions of the native runtime. No timing here."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import platform
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilelang.backends.cpu.engine import NativeModule, assembly, compile_object, load_object
from tilelang.runtime import threads
from tilelang.runtime.native import native_ir
from tilelang.target import get_target, host_target

ROOT = Path(__file__).parents[2]

KERNELS = """
declare i64 @tl_parallel_for(ptr, ptr, i64, i64)
declare ptr @tl_alloc(i64)
declare void @tl_free(ptr)

; ctx is an array of i64: every block adds its index + 1 to its own cell.
define i64 @mark(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %cell = getelementptr i64, ptr %ctx, i64 %i
  %old = load i64, ptr %cell
  %i1 = add i64 %i, 1
  %new = add i64 %old, %i1
  store i64 %new, ptr %cell
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %done
done:
  ret i64 0
}

; Sum of the block indices, and how often each worker was called (ctx[1 + worker]).
define i64 @sum(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
  %n = sub i64 %end, %begin
  %last = sub i64 %end, 1
  %ends = add i64 %begin, %last
  %twice = mul i64 %ends, %n
  %part = sdiv i64 %twice, 2
  %o = atomicrmw add ptr %ctx, i64 %part monotonic
  %slot = add i64 %worker, 1
  %cell = getelementptr i64, ptr %ctx, i64 %slot
  %o2 = atomicrmw add ptr %cell, i64 1 monotonic
  ret i64 0
}

; Each block waits until ctx[0] blocks have begun: needs as many threads at once. Counts the calls of each worker in ctx[2 + worker].
declare i32 @sched_yield()
define i64 @meet(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
entry:
  %all = load i64, ptr %ctx
  %begun = getelementptr i64, ptr %ctx, i64 1
  %o = atomicrmw add ptr %begun, i64 1 seq_cst
  %slot = add i64 %worker, 2
  %cell = getelementptr i64, ptr %ctx, i64 %slot
  %o2 = atomicrmw add ptr %cell, i64 1 monotonic
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %again ]
  %now = load atomic i64, ptr %begun seq_cst, align 8
  %met = icmp sge i64 %now, %all
  br i1 %met, label %done, label %again
again:
  %y = call i32 @sched_yield()
  %i1 = add i64 %i, 1
  %patient = icmp slt i64 %i1, 100000000
  br i1 %patient, label %loop, label %alone
alone:
  ret i64 1
done:
  ret i64 0
}

; Fails with code 1000 + begin for chunks that reach block ctx[0]; counts calls in ctx[1].
define i64 @fail(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
  %from = load i64, ptr %ctx
  %count = getelementptr i64, ptr %ctx, i64 1
  %o = atomicrmw add ptr %count, i64 1 monotonic
  %bad = icmp sgt i64 %end, %from
  %code = add i64 %begin, 1000
  %r = select i1 %bad, i64 %code, i64 0
  ret i64 %r
}

; Each block runs a parallel loop of its own over 10 blocks.
define i64 @nest(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %r = call i64 @tl_parallel_for(ptr @inner, ptr %ctx, i64 10, i64 4)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %done
done:
  ret i64 0
}
define i64 @inner(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
  %n = sub i64 %end, %begin
  %o = atomicrmw add ptr %ctx, i64 %n monotonic
  ret i64 %worker
}
"""


@functools.cache
def kernels() -> NativeModule:
    return load_object(compile_object(KERNELS, host_target()))


def cells(n: int) -> tuple[ctypes.Array[ctypes.c_int64], int]:
    array = (ctypes.c_int64 * n)()
    return array, ctypes.addressof(array)


@pytest.fixture(params=["futex", "condition"])
def run(request: pytest.FixtureRequest) -> Iterator[object]:
    """tl_parallel_for as this process uses it, and a second pool that sleeps on a condition variable."""
    if request.param == "futex":
        yield threads.parallel_for
        return
    text = native_ir(platform.system(), platform.machine(), futex=False)
    module = load_object(compile_object(text, host_target()), {})
    ctypes.CFUNCTYPE(None)(module.address("tl_pool_reset"))()
    i64, ptr = ctypes.c_int64, ctypes.c_void_p
    yield ctypes.CFUNCTYPE(i64, ptr, ptr, i64, i64)(module.address("tl_parallel_for"))
    FOREVER.append(module)  # its workers sleep inside


FOREVER: list[NativeModule] = []


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64, 1001])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_every_block_runs_once(run: object, count: int, workers: int) -> None:
    array, address = cells(count + 1)
    assert run(kernels().address("mark"), address, count, workers) == 0  # pyright: ignore[reportCallIssue]
    assert list(array) == [*range(1, count + 1), 0]


def test_many_short_runs(run: object) -> None:
    fn = kernels().address("sum")
    array, address = cells(9)
    for _ in range(3000):
        assert run(fn, address, 10, 4) == 0  # pyright: ignore[reportCallIssue]
    assert array[0] == 3000 * 45
    assert sum(array[5:]) == 0 and sum(array[1:5]) == 30_000  # worker numbers stay below 4


@pytest.mark.parametrize("workers", [2, 4, 7])
def test_all_threads_take_part_at_once(run: object, workers: int) -> None:
    """One block a thread, none of which can end before all have begun: the caller and every worker must run one."""
    for _ in range(50):
        array, address = cells(2 + workers)
        array[0] = workers
        assert run(kernels().address("meet"), address, workers, workers) == 0  # pyright: ignore[reportCallIssue]
        assert list(array) == [workers, workers] + [1] * workers


def test_negative_and_odd_arguments() -> None:
    array, address = cells(4)
    fn = kernels().address("mark")
    assert threads.parallel_for(fn, address, -5, 4) == 0 and list(array) == [0] * 4
    assert threads.parallel_for(fn, address, 3, 0) == 0 and threads.parallel_for(fn, address, 3, -7) == 0
    assert list(array) == [2, 4, 6, 0]


def test_one_thread_is_one_call() -> None:
    array, address = cells(9)
    threads.parallel_for(kernels().address("sum"), address, 1000, 1)
    assert list(array) == [499500, 1, 0, 0, 0, 0, 0, 0, 0]


def test_first_error_stops_the_rest(run: object) -> None:
    array, address = cells(2)
    array[0] = 0
    code = run(kernels().address("fail"), address, 1 << 20, 4)  # pyright: ignore[reportCallIssue]
    assert code >= 1000 and 1 <= array[1] <= 4  # each thread makes one failing call at most
    array[0], array[1] = 1 << 30, 0
    assert run(kernels().address("fail"), address, 1 << 20, 4) == 0  # pyright: ignore[reportCallIssue]
    assert array[1] >= 16


def test_nested_runs_serially_as_worker_0() -> None:
    array, address = cells(1)
    assert threads.parallel_for(kernels().address("nest"), address, 40, 4) == 0
    assert array[0] == 400


def test_concurrent_python_threads() -> None:
    fn = kernels().address("sum")
    results: list[tuple[int, int]] = []

    def work() -> None:
        for _ in range(300):
            array, address = cells(9)
            results.append((threads.parallel_for(fn, address, 1000, 4), array[0]))

    callers = [threading.Thread(target=work) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [(0, 499500)] * 1800


def run_python(script: str, **env: str) -> str:

    clean = {k: v for k, v in os.environ.items() if k not in ("TILELANG_NUM_THREADS", "OMP_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        capture_output=True, text=True, cwd=ROOT, env=clean | env, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fork_starts_over() -> None:
    """The child has no workers, even when the fork happens while another thread uses the pool; the parent keeps its own."""
    out = run_python(
        """
        import ctypes, os, sys, threading
        from tests.runtime.test_threads import kernels, cells
        from tilelang.runtime import threads

        fn = kernels().address("sum")
        def total():
            array, address = cells(9)
            assert threads.parallel_for(fn, address, 1000, 3) == 0
            return array[0]
        assert total() == 499500 and threads.started_threads() == 2
        stop = False
        def churn():
            while not stop: total()
        busy = threading.Thread(target=churn); busy.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                good = threads.started_threads() == 0 and total() == 499500 and threads.started_threads() == 2
                os._exit(0 if good else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop = True; busy.join()
        assert total() == 499500 and threads.started_threads() == 2
        print("fine")
        """
    )
    assert out == "fine\n"


def test_lazy_start_and_clean_exit() -> None:
    out = run_python(
        """
        from tilelang.runtime import threads
        assert threads.started_threads() == 0
        threads.symbols()
        assert threads.started_threads() == 0
        from tests.runtime.test_threads import kernels, cells
        array, address = cells(9)
        threads.parallel_for(kernels().address("sum"), address, 1000, 5)
        print(threads.started_threads())
        """
    )
    assert out == "4\n"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"TILELANG_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, "3"),
        ({"OMP_NUM_THREADS": "5,2"}, "5"),
        ({"OMP_NUM_THREADS": "none"}, "cores"),
        ({}, "cores"),
        ({"TILELANG_NUM_THREADS": "0"}, "TILELANG_NUM_THREADS='0': expected a positive number"),
    ],
)
def test_thread_count(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], expected: str) -> None:
    for name in ("TILELANG_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    threads.set_threads(None)
    if len(expected) > 5:
        with pytest.raises(ValueError, match=expected):
            threads.thread_count()
    else:
        assert str(threads.thread_count()) == expected.replace("cores", str(host_target().cores))
    threads.set_threads(7)
    assert threads.thread_count() == 7
    with pytest.raises(ValueError, match="at least 1"):
        threads.set_threads(0)
    threads.set_threads(None)


def test_alloc() -> None:
    i64, ptr = ctypes.c_int64, ctypes.c_void_p
    alloc = ctypes.CFUNCTYPE(ptr, i64)(threads.symbols()["tl_alloc"])
    free = ctypes.CFUNCTYPE(None, ptr)(threads.symbols()["tl_free"])
    threads.trim()
    sizes = [0, 1, 63, 64, 65, 4096, 65535, 65536, 1 << 20, (1 << 21) + 8, 9 << 20]
    blocks = [(alloc(size), size) for size in sizes]
    for address, size in blocks:
        assert address and address % 64 == 0
        ctypes.memset(address, 0xA5, size)
    spans = sorted(blocks)
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(spans))
    for address, _ in blocks:
        free(address)
    again = alloc(1 << 20)
    assert again == {n: a for a, n in blocks}[1 << 20]  # a large block is kept for the next request of its size
    other = alloc(1 << 20)
    assert other != again
    free(again)
    free(other)
    free(None)
    threads.trim()
    assert alloc(-1) is None and alloc(1 << 61) is None


def test_alloc_from_many_threads() -> None:
    i64, ptr = ctypes.c_int64, ctypes.c_void_p
    alloc = ctypes.CFUNCTYPE(ptr, i64)(threads.symbols()["tl_alloc"])
    free = ctypes.CFUNCTYPE(None, ptr)(threads.symbols()["tl_free"])
    bad: list[int] = []

    def work(mark: int) -> None:
        for i in range(400):
            size = 65536 + (i * 7919 * mark) % 100_000
            address = alloc(size)
            ctypes.memset(address, mark, size)
            bad.extend(b for b in ctypes.string_at(address, size)[::997] if b != mark)
            free(address)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert bad == []


WRAPPERS = """
declare half @__truncsfhf2(float)
declare half @__truncdfhf2(double)
declare float @__extendhfsf2(half)
declare bfloat @__truncsfbf2(float)
declare bfloat @__truncdfbf2(double)
""" + "".join(
    f"""
define void @{name}(ptr %in, ptr %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %p = getelementptr {source}, ptr %in, i64 %i
  %x = load {source}, ptr %p
  %y = call {to} @{name[1:]}({source} %x)
  %q = getelementptr {to}, ptr %out, i64 %i
  store {to} %y, ptr %q
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    for name, source, to in [
        ("x__truncsfhf2", "float", "half"), ("x__truncdfhf2", "double", "half"), ("x__extendhfsf2", "half", "float"),
        ("x__truncsfbf2", "float", "bfloat"), ("x__truncdfbf2", "double", "bfloat"),
    ]
)  # fmt: skip


def convert(name: str, values: np.ndarray, to: type) -> np.ndarray:
    module = load_object(compile_object(WRAPPERS, host_target()))
    out = np.empty(values.shape, to)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(module.address(f"x{name}"))
    call(values.ctypes.data, out.ctypes.data, values.size)
    return out


def same(ours: np.ndarray, expected: np.ndarray) -> None:
    """Bit for bit, except that any NaN of the same sign is as good as another."""
    bits = np.dtype(f"u{ours.itemsize}")
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(ours), nan)
    assert np.array_equal(ours.view(bits)[~nan], expected.view(bits)[~nan])


def test_widening_f16() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    same(convert("__extendhfsf2", every, np.float32), every.astype(np.float32))


@pytest.mark.parametrize(("name", "to"), [("__truncsfhf2", np.float16), ("__truncsfbf2", ml_dtypes.bfloat16)])
def test_narrowing_f32(name: str, to: type) -> None:
    rng = np.random.default_rng(1)
    bits = np.concatenate([np.arange(0, 1 << 32, 65521, dtype=np.uint32), rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)])
    near = (np.arange(1 << 16, dtype=np.uint32) << 16) | 0x8000  # ties of bf16
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    values = np.concatenate([bits, near, near + 1, near - 1, half, half + 0x1000, half + 0xFFF, half + 0x1001]).view(np.float32)
    with np.errstate(all="ignore"):
        same(convert(name, values, to), values.astype(to))


def test_narrowing_f64() -> None:
    """Values a hair from a tie, which rounding through f32 gets wrong."""
    half = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    ties = (half[:-1] + half[1:]) / 2
    values = np.concatenate([half, ties, np.nextafter(ties, np.inf), np.nextafter(ties, 0), [65519.999, 65520.0, 1e300, np.inf, np.nan]])
    values = np.concatenate([values, -values])
    with np.errstate(all="ignore"):
        same(convert("__truncdfhf2", values, np.float16), values.astype(np.float16))
    brain = np.arange(0x7F80, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float64)
    ties = (brain[:-1] + brain[1:]) / 2
    up, down = np.nextafter(ties, np.inf), np.nextafter(ties, 0)
    ours = [convert("__truncdfbf2", item, ml_dtypes.bfloat16).astype(np.float64) for item in (up, down, brain)]
    assert np.array_equal(ours[0], brain[1:]) and np.array_equal(ours[1], brain[:-1]) and np.array_equal(ours[2], brain)


def test_kernels_for_a_cpu_without_half_precision_link_and_run() -> None:
    """Code for the baseline CPU calls the conversions; load_object provides them."""
    host = host_target()
    target = get_target("cpu", cpu="x86-64") if host.triple.startswith("x86") else host
    for name, kind, dtype in (("half", "half", np.dtype(np.float16)), ("brain", "bfloat", np.dtype(ml_dtypes.bfloat16))):
        ir = f"""
        define void @{name}(ptr %in, ptr %out, ptr %back) {{
          %x = load <8 x double>, ptr %in, align 8
          %n = fptrunc <8 x double> %x to <8 x {kind}>
          store <8 x {kind}> %n, ptr %out, align 2
          %w = fpext <8 x {kind}> %n to <8 x double>
          %f = fptrunc <8 x double> %w to <8 x float>
          %h = fptrunc <8 x float> %f to <8 x {kind}>
          %g = fpext <8 x {kind}> %h to <8 x double>
          store <8 x double> %g, ptr %back, align 8
          ret void
        }}
        """
        module = load_object(compile_object(ir, target))
        values = np.array([0.0, -1.0, 1.0009765625, 3.14159, 65519.0, 1e-7, -np.inf, 1e9])
        out, back = np.empty(8, dtype), np.empty(8)
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(module.address(name))
        call(values.ctypes.data, out.ctypes.data, back.ctypes.data)
        with np.errstate(over="ignore"):
            assert np.array_equal(out, values.astype(dtype)) and np.array_equal(back, out.astype(np.float64))


@pytest.mark.parametrize(("system", "machine"), [("Linux", "aarch64"), ("Linux", "riscv64"), ("Darwin", "arm64"), ("Darwin", "x86_64")])
def test_other_platforms_compile(system: str, machine: str) -> None:
    arm = machine in ("aarch64", "arm64")
    target = get_target("cpu", cpu="neoverse-n1" if arm else "x86-64-v2")
    text = assembly(native_ir(system, machine), target)
    futex = system == "Linux" and arm
    assert ("pthread_cond_wait" in text) != futex and ("syscall" in text) == futex
