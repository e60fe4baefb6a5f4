"""Arrays between pages that must not be touched: a stray read or write of native code ends the process, one inside the pages shows as a changed byte."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE, PROT_NONE = mmap.PAGESIZE, 0
FILL = 0xFF  # as floats, NaN


class Guarded:
    """Memory for one array: [forbidden page][FILL ... array ... FILL][forbidden page], the array at the start or the end of the middle."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, at_end: bool) -> None:
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        middle = max(1, -(-size // PAGE)) * PAGE
        self.area = mmap.mmap(-1, middle + 2 * PAGE)
        memory = np.frombuffer(self.area, np.uint8)
        memory[PAGE : PAGE + middle] = FILL
        base = memory.ctypes.data
        for address in (base, base + PAGE + middle):
            if _libc.mprotect(address, PAGE, PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.middle = memory[PAGE : PAGE + middle]
        self.start = middle - size if at_end else 0
        self.stop = self.start + size
        self.array = self.middle[self.start : self.stop].view(dtype).reshape(shape)

    def untouched(self) -> bool:
        """Whether the bytes around the array still hold FILL."""
        return bool((self.middle[: self.start] == FILL).all() and (self.middle[self.stop :] == FILL).all())


def place(value: Any, at_end: bool) -> Any:
    """A copy of an array in guarded memory; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    guarded = Guarded(value.shape, value.dtype, at_end)
    guarded.array[...] = value
    return guarded.array


def reversed_rows(value: Any) -> Any:
    """The same numbers with strides that are negative and wider than the rows; anything but an array of two or more axes as it is."""
    if not isinstance(value, np.ndarray) or value.ndim < 2:
        return value
    wide = np.full((*value.shape[:-1], value.shape[-1] + 3), FILL, np.uint8).astype(value.dtype)[::-1]
    view = wide[..., 1 : 1 + value.shape[-1]]
    view[...] = value
    return view


def column_major(value: Any) -> Any:
    """The same numbers with the first axis contiguous."""
    return np.asfortranarray(value) if isinstance(value, np.ndarray) else value
