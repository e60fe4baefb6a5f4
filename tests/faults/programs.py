"""The programs that look for faults, and how each is built: its options of the pipeline, processor, and shapes to run on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tilelang
from tilelang.ir.core import Module

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Program:
    """shapes: sizes of the dims, one entry a run; empty: those InterpretEach chooses, with NaN and infinities among the data. options: of passes."""

    name: str
    file: str = ""
    shapes: tuple[tuple[tuple[str, int], ...], ...] = ()
    choices: tuple[tuple[str, Any], ...] = ()
    options: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    cpu: str = "haswell"

    def build(self) -> Module:
        kernel = getattr(_load(self.file), self.name)
        return kernel.build(kernel.specialise(**dict(self.choices)))


@cache
def _load(file: str) -> Any:
    return tilelang.load(EXAMPLES / file if file else Path(__file__).with_name("programs.tile"))


def _sizes(*shapes: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    """'M=3 N=5' -> the dims of one run."""
    return tuple(tuple((name, int(size)) for name, size in (part.split("=") for part in shape.split())) for shape in shapes)


_TILES = (("tile", (("m", 3), ("n", 4), ("k", 4))),)
_SMALL = {
    "batched_matmul": "B=2 M=5 N=7 K=3", "conv2d": "N=2 C=3 H=5 W=4 F=5 R=3 S=3", "embedding": "V=7 D=5 T=18", "histogram": "N=37",
    "flash_attention": "B=1 H=2 S=5 T=7 D=3", "mlp": "M=5 K=3 H=6 N=7",
}  # fmt: skip
_SETTINGS: dict[str, dict[str, Any]] = {
    "whole": {"options": _TILES},
    "whole_reshape": {"options": _TILES},
    "crossed": {"options": (("fuse", (("max_ops", 4),)),)},
    "rows_of_seven": {"options": (("block", (("rows", 6), ("vectors", 2))),)},
    "windows": {"shapes": _sizes("B=3 M=5 N=9", "B=1 M=2 N=4")},
    "rounding": {"cpu": "x86-64"},
    "long_product": {"options": (("block", (("depth", 4),)),), "shapes": _sizes("M=5 N=11 K=7", "M=4 N=8 K=9")},
}


def own() -> list[str]:
    """Names of the programs in programs.tile."""
    return [name for name in dir(_load("")) if not name.startswith("_")]


def examples() -> list[str]:
    return sorted(p.stem for p in EXAMPLES.glob("*.tile"))


def program(name: str) -> Program:
    """A program by its name; those of the examples are called like the file, and run on small ragged shapes."""
    if name in examples():
        return Program(name, f"{name}.tile", _sizes(_SMALL.get(name, "M=5 N=7 K=3")))
    return Program(name, **_SETTINGS.get(name, {}))
