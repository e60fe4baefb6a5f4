"""TileLang: a compiler for tile programs.

    from tilelang import tile, dims, f32, grid, zeros, pipelined, empty

    @tile                                     # or the same function in a .tile file: tilelang.load("matmul.tile").matmul
    def matmul(a: f32[M, K], b: f32[K, N]) -> f32[M, N]: ...
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilelang import api
from tilelang import dtypes as _annotations  # before its function `dtypes` takes the name
from tilelang.api import *  # noqa: F403
from tilelang.diagnostics import CompilerBug, TileError
from tilelang.dtypes import *  # noqa: F403
from tilelang.kernel import Kernel, load, load_text, mode, tile

__version__ = "0.1.0"

_LAZY = {"Target": "tilelang.target", "host_target": "tilelang.target", "get_target": "tilelang.target", "set_threads": "tilelang.runtime.threads"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'tilelang' has no attribute '{name}'")


__all__ = ["CompilerBug", "Kernel", "TileError", "load", "load_text", "mode", "tile"]
__all__ += api.__all__
__all__ += _annotations.__all__
