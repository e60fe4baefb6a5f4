"""The collector of golden cases: a wrong output fails, and a change of meaning is never written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import read_cases

ROOT = Path(__file__).resolve().parents[2]

PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from tests.conftest import *
from tilelang.diagnostics import Span
from tilelang.dialects import arith
from tilelang.ir.passes import Pass, register

@register
@dataclass(frozen=True)
class Wrong(Pass):
    name: ClassVar[str] = "test-wrong"
    def run(self, module, ctx):
        for op in module.walk():
            if isinstance(op, arith.Constant):
                op.value += 1

@register
@dataclass(frozen=True)
class Refuse(Pass):
    name: ClassVar[str] = "test-refuse"
    def run(self, module, ctx):
        op = next(op for op in module.walk() if isinstance(op, arith.Constant))
        ctx.diagnostics.error("ir-rule", op.span, what="no constants")
"""

FUNCTION = "func.func @f(%x: i32 scalar) -> (i32) {{\n  %0 = arith.constant {} : i32\n  %1 = arith.add %x, %0 : i32\n  func.return %1\n}}"


def case(name: str, pipeline: str, number: int, expected: str) -> str:
    return f"// pass: {pipeline}\n// case: {name}\n// input\n{FUNCTION.format(number)}\n{expected}\n"


@pytest.fixture
def run(tmp_path: Path):
    folder = tmp_path / "passes"
    folder.mkdir()
    (tmp_path / "conftest.py").write_text(PLUGIN)
    file = folder / "x.tir"

    def run_(text: str, *options: str) -> tuple[str, str]:
        file.write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-c", "/dev/null", "-p", "no:cacheprovider", str(file), *options]
        done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True)
        return done.stdout, file.read_text()

    return run_


ZERO = "func.func @f(%x: i32 scalar) -> (i32) {\n  func.return %x\n}"


def test_a_right_a_wrong_and_a_lying_case(run) -> None:
    text = "\n// -----\n\n".join(
        [
            case("right", "canonicalize", 0, f"// expect\n{ZERO}"),
            case("wrong", "canonicalize", 1, f"// expect\n{ZERO}"),
            case("changes the meaning", "test-wrong", 1, "// expect\n" + FUNCTION.format(2)),
            case("error", "test-refuse", 1, "// error: ir-rule 2:8"),
            case("another error", "test-refuse", 1, "// error: ir-rule 3:8"),
        ]
    )
    out, _ = run(text)
    assert "3 failed, 2 passed" in out
    assert "case 'wrong'" in out and "-  func.return %x" in out
    assert "input and output compute different results" in out
    assert "expected ir-rule 3:8, found ir-rule 2:8" in out


def test_update_writes_what_passes_give_and_refuses_lies(run) -> None:
    text = "\n// -----\n\n".join([case("good", "canonicalize", 0, "// expect"), case("lie", "test-wrong", 1, "// expect"), case("error", "test-refuse", 1, "// expect")])
    out, written = run(text, "--update-golden")
    assert "1 failed, 2 passed" in out
    cases = read_cases(written)
    assert ["\n".join(c.expected).strip() for c in cases] == [ZERO, "", ""]
    assert cases[2].error == "ir-rule 2:8"
    again, unchanged = run(written, "--update-golden")
    assert unchanged == written and "1 failed, 2 passed" in again
