"""Runs vec-level functions natively: one array, or one number, a parameter."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilelang.backends.cpu.compile import compile_module
from tilelang.backends.cpu.emit import ERROR_SLOTS, ErrorEntry
from tilelang.ir.core import Module
from tilelang.target import Target, host_target

Run = Callable[..., tuple[ErrorEntry | None, list[int]]]


def run_native(module: Module, *args: Any, target: Target | None = None, threads: int = 1) -> tuple[ErrorEntry | None, list[int]]:
    """Runs the only entry; gives the error, if any, and the spare slots."""
    compiled = compile_module(module, target or host_target())
    slots = (ctypes.c_uint64 * (len(args) + ERROR_SLOTS))()
    for i, value in enumerate(args):
        if isinstance(value, np.ndarray):
            slots[i] = value.ctypes.data
        elif isinstance(value, float):
            slots[i] = struct.unpack("<Q", struct.pack("<d", value))[0]
        else:
            slots[i] = int(value) & (1 << 64) - 1
    native = compiled.load()
    (symbol,) = compiled.emitted.symbols.values()
    code = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(native.address(symbol))(ctypes.addressof(slots), threads)
    return compiled.emitted.errors[code - 1] if code else None, list(slots)[len(args) :]


@pytest.fixture(name="native")
def _native() -> Run:
    return run_native
