"""Runs modules natively, and checks lowerings to the vec level: the interpreter before and after, and native code, must agree."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
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


def run_native(module: Module, *args: Any, target: Target | None = None, threads: int = 1) -> tuple[ErrorEntry | None, list[int]]:
    """Runs the only entry of a vec-level module on one array or number a parameter; gives the error, if any, and the spare slots."""
    compiled = compile_module(module, target or host_target())
    slots = (ctypes.c_uint64 * (len(args) + ERROR_SLOTS))()
    (entry,) = (f for f in functions(module) if f.sym_name in compiled.emitted.symbols)
    for i, (value, param) in enumerate(zip(args, entry.args, strict=True)):
        if isinstance(value, np.ndarray):
            slots[i] = value.ctypes.data
        elif isinstance(param.type, Scalar) and param.type.is_float:
            slots[i] = struct.unpack("<Q", struct.pack("<d", value))[0]
        else:
            slots[i] = int(value) & (1 << 64) - 1
    native = compiled.load()
    (symbol,) = compiled.emitted.symbols.values()
    code = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(native.address(symbol))(ctypes.addressof(slots), threads)
    return compiled.emitted.errors[code - 1] if code else None, list(slots)[len(args) :]


def flatten(args: Sequence[Any]) -> list[Any]:
    """Arguments as a lowered function takes them: an array is its address, dims and strides in elements."""
    flat: list[Any] = []
    for a in args:
        flat.append(a)
        if isinstance(a, np.ndarray):
            flat += [*a.shape, *(s // a.itemsize for s in a.strides)]
    return flat


def copies(args: Sequence[Any]) -> list[Any]:
    """Arrays of the same content and strides in memory of their own."""
    out: list[Any] = []
    for a in args:
        if not isinstance(a, np.ndarray):
            out.append(a)
            continue
        base = a if a.base is None else a.base
        if not isinstance(base, np.ndarray) or base.dtype != a.dtype:
            out.append(a.copy())
            continue
        memory = base.copy()
        start = (a.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // a.itemsize
        flat = memory.reshape(-1)
        out.append(np.lib.stride_tricks.as_strided(flat[start:], a.shape, a.strides) if a.size else a.copy())
    return out


def lower(text: str, target: Target, passes: str = "vectorize,lower-to-vec,expand-math,cleanup") -> tuple[Module, Module]:
    """(the module of the text, the same lowered)"""
    before, after = parse_module(text), parse_module(text)
    verify(before)
    ctx = PassContext(target)
    for p in parse_pipeline(passes):
        p.run(after, ctx)
        verify(after)
    return before, after


def check_lowering(text: str, args: Sequence[Any], rtol: float = 2e-6, cpus: Sequence[str] = HOST_CPUS, **how: Any) -> list[Any]:
    """Runs function @f before and after lowering, and natively for each CPU; all must leave the same in the arrays. Returns what they leave."""
    want = copies(args)
    for cpu in cpus:
        before, after = lower(text, get_target("cpu", cpu=cpu), **how)
        if cpu == cpus[0]:
            Interpreter(before).run("f", want)
        got = copies(args)
        Interpreter(after).run("f", got)
        _compare(got, want, rtol, f"interpreter after lowering, {cpu}")
        got = copies(args)
        error, _ = run_native(after, *flatten(got), target=get_target("cpu", cpu=cpu), threads=2)
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
