"""tilec inside this process, and as a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tilelang.cli import cli

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.tile"))

SCALE = """
M, N = dims("M N")
Float = dtypes(f32, f16)


def scale(x: Tensor[Float, M, N], by: f32, *, BM: int = tune(8, 16), shift: bool = False) -> Tensor[Float, M, N]:
    out = empty(Float, M, N)
    for i in grid(M, by=BM):
        if shift:
            out[i, :] = cast(x[i, :], f32) * by + 1.0
        else:
            out[i, :] = cast(x[i, :], f32) * by
    return out
"""


def tilec(*args: object, input: str | bytes | None = None) -> Result:
    """One command. result.exit_code, result.stdout, result.stderr."""
    return CliRunner().invoke(cli, [str(a) for a in args], input=input)


def ok(*args: object, input: str | bytes | None = None) -> Result:
    """A command that must succeed."""
    result = tilec(*args, input=input)
    assert result.exit_code == 0, result.output
    assert "Traceback" not in result.output
    return result


def fails(code: int, *args: object, input: str | bytes | None = None) -> str:
    """A command that must end with this exit code; what it says on stderr, on one line a word."""
    result = tilec(*args, input=input)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.stderr
    return " ".join(result.stderr.split())


def process(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tilelang.cli", *map(str, args)], cwd=ROOT, capture_output=True, text=True, timeout=120, **options)


def without_names(ir: str) -> str:
    """IR with the values of each function numbered in order, so that only hints of names may differ."""
    names: dict[str, str] = {}

    def number(m: re.Match[str]) -> str:
        if m[0] == "func.func":
            names.clear()
            return m[0]
        return names.setdefault(m[0], f"%{len(names)}")

    return re.sub(r"%[\w.]+|func\.func", number, ir)
