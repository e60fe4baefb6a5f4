"""Runs modules natively, and checks lowerings to the vec level: the interpreter before and after, and native code, must agree."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tilelang.backends.cpu.compile import compile_module
from tilelang.backends.cpu.emit import ERROR_SLOTS, ErrorEntry
from tilelang.dialects.func import functions
from tilelang.ir.core import Module
from tilelang.ir.parser import parse_module
from tilelang.ir.passes import PassContext, parse_pipeline
from tilelang.ir.types import Scalar
from tilelang.ir.verify import verify
from tilelang.runtime.interp import Interpreter
from tilelang.target import Target, get_target, host_target

X86 = host_target().triple.startswith("x86")
HOST_CPUS = ("host", "x86-64", "haswell") if X86 else ("host",)  # code for them runs here (given AVX2)


class Native:
    """A vec-level module with one entry, compiled and loaded."""

    def __init__(self, module: Module, target: Target) -> None:
        compiled = compile_module(module, target)
        self.errors = compiled.emitted.errors
        ((name, symbol),) = compiled.emitted.symbols.items()
        (entry,) = (f for f in functions(module) if f.sym_name == name)
        self.types = [a.type for a in entry.args]
        self.loaded = compiled.load()
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(self.loaded.address(symbol))

    def __call__(self, *args: Any, threads: int = 1) -> tuple[ErrorEntry | None, list[int]]:
        """One array or number a parameter; gives the error, if any, and the spare slots."""
        slots = (ctypes.c_uint64 * (len(args) + ERROR_SLOTS))()
        for i, (value, kind) in enumerate(zip(args, self.types, strict=True)):
            if not isinstance(kind, Scalar):
                slots[i] = value.ctypes.data
            else:
                slots[i] = struct.unpack("<Q", struct.pack("<d", value))[0] if kind.is_float else int(value) & (1 << 64) - 1
        code = self.entry(ctypes.addressof(slots), threads)
        return self.errors[code - 1] if code else None, list(slots)[len(args) :]


def run_native(module: Module, *args: Any, target: Target | None = None, threads: int = 1) -> tuple[ErrorEntry | None, list[int]]:
    """Compiles and runs, see Native."""
    return Native(module, target or host_target())(*args, threads=threads)


def flatten(args: Sequence[Any]) -> list[Any]:
    """Arguments as a lowered function takes them: an array is its address, dims and strides in elements."""
    flat: list[Any] = []
    for a in args:
        flat.append(a)
        if isinstance(a, np.ndarray):
            flat += [*a.shape, *(s // a.itemsize for s in a.strides)]
    return flat


def copies(args: Sequence[Any], guarded: bool = False) -> list[Any]:
    """Arrays of the same content and strides in memory of their own; guarded: that ends where a page begins that may not be touched."""
    out: list[Any] = []
    for a in args:
        if not isinstance(a, np.ndarray) or a.size == 0:
            out.append(a.copy() if isinstance(a, np.ndarray) else a)
            continue
        low = sum(min(0, (n - 1) * s) for n, s in zip(a.shape, a.strides)) // a.itemsize
        high = sum(max(0, (n - 1) * s) for n, s in zip(a.shape, a.strides)) // a.itemsize
        memory = _before_a_guard((high - low + 1) * a.itemsize) if guarded else np.zeros((high - low + 1) * a.itemsize, np.uint8)
        new = np.lib.stride_tricks.as_strided(memory.view(a.dtype)[-low:], a.shape, a.strides)
        new[...] = a
        out.append(new)
    return out


def _before_a_guard(size: int) -> np.ndarray[Any, Any]:
    """Bytes that end at a page without access: a read or write past the end ends the process."""
    page = mmap.PAGESIZE
    whole = -(-size // page) * page
    area = mmap.mmap(-1, whole + page)
    bytes_ = np.frombuffer(area, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(bytes_.ctypes.data + whole), ctypes.c_size_t(page), 0) == 0
    return bytes_[whole - size : whole]


def lower(text: str, target: Target, passes: str = "vectorize,lower-to-vec,expand-math,cleanup") -> tuple[Module, Module]:
    """(the module of the text, the same lowered)"""
    before, after = parse_module(text), parse_module(text)
    verify(before)
    ctx = PassContext(target)
    for p in parse_pipeline(passes):
        p.run(after, ctx)
        verify(after)
    return before, after


@lru_cache(maxsize=8)
def _versions(text: str, cpu: str) -> tuple[Interpreter, Interpreter, Native]:
    """Before and after lowering, and native."""
    target = get_target("cpu", cpu=cpu)
    before, after = lower(text, target)
    return Interpreter(before), Interpreter(after), Native(after, target)


def check_lowering(text: str, args: Sequence[Any], rtol: float = 2e-6, cpus: Sequence[str] = HOST_CPUS) -> list[Any]:
    """Runs function @f before and after lowering, and natively for each CPU; all must leave the same in the arrays. Returns what they leave."""
    want = copies(args)
    for cpu in cpus:
        before, after, native = _versions(text, cpu)
        if cpu == cpus[0]:
            before.run("f", want)
        got = copies(args)
        after.run("f", got)
        _compare(got, want, rtol, f"interpreter after lowering, {cpu}")
        got = copies(args, guarded=True)
        error, _ = native(*flatten(got), threads=2)
        assert error is None, error
        _compare(got, want, rtol, f"native, {cpu}")
    return want


def _compare(got: Sequence[Any], want: Sequence[Any], rtol: float, what: str) -> None:
    for i, (a, b) in enumerate(zip(got, want)):
        if isinstance(a, np.ndarray):
            if a.dtype.kind in "iub":
                np.testing.assert_array_equal(a, b, err_msg=f"{what}, argument {i}")
            else:
                wide = [x.astype(np.float64) for x in (a, b)]
                scale = float(np.max(np.abs(wide[1]), initial=0.0, where=np.isfinite(wide[1])))
                np.testing.assert_allclose(*wide, rtol=rtol, atol=rtol * scale * 0.1, err_msg=f"{what}, argument {i}")
