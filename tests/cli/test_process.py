"""tilec as a process: exit codes, streams, signals, and how soon it answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.tilec import EXAMPLES, ROOT, SCALE, fails, process, tilec
from tilelang.commands.options import Watch

TILEC = [sys.executable, "-m", "tilelang.cli"]


def test_exit_codes() -> None:
    done = process("run", EXAMPLES / "transpose.tile", "--verify", "--repeat", 1)
    assert done.returncode == 0 and ": ok" in done.stdout and done.stderr == ""
    done = process("check", "-", input="def f(x: f32[4]) -> f32[4]:\n    return y\n")
    assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("<stdin>:2:12: error[unknown-name]: 'y' is not defined here\n")
    done = process("emit", "-", "--emitt", "asm", input=SCALE)
    assert done.returncode == 2 and "No such option" in done.stderr and "--emit" in done.stderr
    for result in (process(), process("--help"), process("--version")):
        assert "Traceback" not in result.stdout + result.stderr


def test_pipe_from_command_to_command() -> None:
    emitted = process("emit", EXAMPLES / "softmax.tile")
    done = process("opt", "-", "--passes", "canonicalize,cse", input=emitted.stdout)
    assert done.returncode == 0 and done.stdout.startswith('builtin.module {level = "tile"}')


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_reader_that_stops_reading() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*TILEC, "list", "ops"], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writing)
    assert done.returncode == 141 and done.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupt() -> None:
    running = subprocess.Popen([*TILEC, "check", "-"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)  # it waits for its input
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and "Traceback" not in out + err


def test_interrupt_inside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "lower", interrupt)
    assert tilec("emit", "-", input=SCALE).exit_code == 130


def test_what_nobody_expected_is_a_report_with_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(Watch, "lower", fail)
    monkeypatch.setenv("TILELANG_REPRODUCER_DIR", str(tmp_path))
    stderr = fails(3, "emit", "-", input=SCALE)
    assert stderr.startswith("compiler bug: ZeroDivisionError: by nothing (test_process.py:")
    [file] = tmp_path.iterdir()
    assert "please report it, with the file" in stderr and file.name in stderr and "Traceback" in file.read_text()


def test_input_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "f.tile").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in fails(1, "emit", tmp_path / "f.tile")
    assert "is not UTF-8 text" in fails(1, "check", "-", input=b"\xff\xfe")
    fails(2, "emit", tmp_path)


def test_no_colour_where_nobody_watches() -> None:
    assert "\033" not in process("check", "-", input="def f(:\n").stderr


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, tilelang.cli; print(*sorted({'numpy', 'llvmlite', 'lark', 'rich', 'ml_dtypes', 'inspect'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= {"inspect"}


def test_help_of_every_command() -> None:
    for command in ("run", "emit", "check", "opt", "list"):
        done = process(command, "--help")
        assert done.returncode == 0 and f"tilec {command} " in done.stdout and "Examples:" in done.stdout
