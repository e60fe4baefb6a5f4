"""The order of the passes, on one page. A pipeline is text that `tilec opt --passes` takes: `canonicalize,fuse{max_ops=16}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Whole-tensor functions are cut into tiles first; a function that was written with tiles passes through. From there on there is one way for all.
TILING = ("canonicalize", "cse", "tile")

COMMON = (
    "validate",  # what a file of IR can get wrong
    "promote",  # buffers of whole tiles become values
    "canonicalize", "cse",
    "raise",  # loops over acc += a @ b become contractions
    "fuse",  # elementwise clusters become one map
    "canonicalize", "licm", "cse", "dce",
)  # fmt: skip

CPU = (
    "block",  # register tile and cache blocks of contractions
    "infer-layout",
    "bufferize",  # tile -> mem
    "canonicalize", "licm", "cse", "dce",
    "pipeline",
    "microkernel",  # matmul -> register tiles
    "parallelize",  # grid -> blocks for the threads
    "canonicalize", "cse",
    "plan-memory",
    "vectorize",
    "lower-to-vec",  # mem -> vec
    "expand-math",  # exp and its like -> arithmetic
    "cleanup",
)  # fmt: skip

# For an NPU: static shapes, one kernel on the vector or on the cube cores.
ASCEND = (
    "validate",
    "promote",
    "canonicalize", "cse",
    "fuse",
    "canonicalize", "licm", "cse", "dce",
    "bufferize",
    "canonicalize", "licm", "cse", "dce",
    "lower-to-ascend",  # mem -> ascend
    "canonicalize", "licm", "cse", "dce",
    "insert-sync",  # flags and barriers; nothing moves after it
)  # fmt: skip

# The last pass that leaves a module at the level.
_LAST = {"tensor": None, "tile": "tile", "mem": "vectorize", "vec": "cleanup"}


def cpu_pipeline(options: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The whole way from a tensor- or tile-level module to the vec level. options: pass name -> its options, `{"tile": {"m": 128}}`."""
    return _text((*TILING, *COMMON, *CPU), options)


def ascend_pipeline(options: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The way from a tensor- or tile-level module to the ascend level."""
    return _text((*TILING, *ASCEND), options)


def pipeline_to(level: str, start: str = "tensor", options: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The part that brings a module from level `start` to `level`: to tile as cut, to mem and vec with all that is done at these levels."""
    if level == start:
        return ""
    last = _LAST[level]
    steps = (*TILING, *COMMON, *CPU)
    return "" if last is None else _text(steps[: len(steps) - steps[::-1].index(last)], options)


def _text(steps: tuple[str, ...], options: Mapping[str, Mapping[str, Any]] | None) -> str:
    """One pipeline text. Raises KeyError for options of a pass that is not in it."""
    from tilelang.ir.passes import get_pass, print_pipeline

    options = options or {}
    unknown = [name for name in options if name not in steps]
    if unknown:
        raise KeyError(f"no pass '{unknown[0]}' in this pipeline")
    if not options:
        return ",".join(steps)
    return print_pipeline(get_pass(name)(**options.get(name, {})) for name in steps)
