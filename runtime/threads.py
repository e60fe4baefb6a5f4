"""Threads and memory for compiled kernels: the native runtime (runtime/native.py), compiled once per process without a C compiler.

Compiled code may call, by these names:

    i64 tl_parallel_for(ptr fn, ptr ctx, i64 n, i64 threads)   run i64 fn(ptr ctx, i64 begin, i64 end, i64 worker) over blocks [0, n)
    ptr tl_alloc(i64 bytes)                                    64-byte aligned, uninitialised; null when there is no memory
    void tl_free(ptr)

Blocks are handed out in contiguous chunks, about four a thread. `worker` is in [0, threads) and belongs to one thread for the whole
of one tl_parallel_for. A non-zero result of fn stops the handing out and is returned (the first one reported). The caller works as
worker 0. A call from inside a parallel region, or while another Python thread has the pool, runs alone as worker 0.
Threads are started when first needed and sleep when idle; a forked child starts its own.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import threading
from collections.abc import Callable
from typing import Any

from tilelang.backends.cpu.engine import NativeModule, compile_object, load_object
from tilelang.runtime.native import EXPORTS, native_ir
from tilelang.target import available_cores, host_target

_lock = threading.RLock()
_module: NativeModule | None = None
_count: int | None = None


def _native() -> NativeModule:
    global _module
    if _module is None:
        with _lock:
            if _module is None:
                module = load_object(compile_object(native_ir(platform.system(), platform.machine()), host_target(), opt=0), {})
                _call(module, "tl_pool_reset", None)()
                _module = module
    return _module


def _call(module: NativeModule, name: str, result: Any, *args: Any) -> Callable[..., Any]:
    return ctypes.CFUNCTYPE(result, *args)(module.address(name))


@functools.cache
def symbols() -> dict[str, int]:
    """Name -> address of what compiled kernels may use; compiles the runtime on first use (about 15 ms)."""
    module = _native()
    return {name: module.address(name) for name in EXPORTS}


def parallel_for(fn: int, ctx: int, n: int, threads: int | None = None) -> int:
    """Run the native function at address `fn` over `n` blocks on `threads` threads (default: thread_count()); its first error or 0."""
    run = _parallel_for()
    return run(fn, ctx, n, thread_count() if threads is None else threads)


@functools.cache
def _parallel_for() -> Callable[..., int]:
    return _call(_native(), "tl_parallel_for", ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def trim() -> None:
    """Give the memory that tl_free keeps for reuse (at most 256 MiB) back to the system."""
    if _module is not None:
        _call(_module, "tl_trim", None)()


def started_threads() -> int:
    """Threads the pool has created in this process, the caller not counted."""
    return int(_call(_module, "tl_pool_started", ctypes.c_int64)()) if _module is not None else 0


def _from_environment() -> int | None:
    text = os.environ.get("TILELANG_NUM_THREADS", "").strip()
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"TILELANG_NUM_THREADS={text!r}: expected a positive number")
        return int(text)
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # OpenMP allows one number for each nesting level
    return int(first) if first.isdecimal() and int(first) > 0 else None


def thread_count() -> int:
    """Threads a kernel uses: set_threads, else TILELANG_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this process may use.

    The environment and the machine are read once. Raises ValueError when TILELANG_NUM_THREADS is not a positive number.
    """
    global _count
    if _count is None:
        _count = _from_environment() or available_cores()
    return _count


def set_threads(n: int | None) -> None:
    """Use `n` threads from now on (1: run on the caller's thread); None: read the environment and the machine again."""
    global _count
    if n is not None and n < 1:
        raise ValueError(f"set_threads({n}): expected at least 1, or None")
    _count = n


def _after_fork() -> None:
    if _module is not None:
        _call(_module, "tl_pool_reset", None)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
    os.register_at_fork(after_in_child=_after_fork)
