"""The dialects: one file each. Importing one makes its ops known; `load_all` imports every one (for the IR parser and `tilec list`)."""

from __future__ import annotations

from importlib import import_module

NAMES = ("func", "arith", "loop", "tensor", "tile", "mem", "vec", "dist", "ascend")


def load(name: str) -> None:
    """Imports the dialect called `name`; unknown names are left to the caller to report."""
    if name in NAMES:
        import_module(f"tilelang.dialects.{name}")


def load_all() -> None:
    for name in NAMES:
        load(name)
