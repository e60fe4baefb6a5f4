"""tilec emit: every form of every example, and the options of a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.tilec import EXAMPLES, NAMES, SCALE, fails, ok, tilec
from tilelang.ir.parser import parse_module
from tilelang.ir.verify import verify

IR = ("tile", "mem", "vec")


@pytest.mark.parametrize("name", NAMES)
def test_every_example_has_every_form(name: str, tmp_path: Path) -> None:
    file = EXAMPLES / f"{name}.tile"
    assert ok("emit", file, "--emit", "ast").stdout.startswith(f"Function '{name}'")
    for level in IR:
        module = parse_module(ok("emit", file, "--emit", level).stdout)
        verify(module)
        assert module.level == level
    tensor = tilec("emit", file, "--emit", "tensor")
    if tensor.exit_code == 0:
        assert parse_module(tensor.stdout).level == "tensor"
    else:
        assert tensor.exit_code == 1 and "starts at the tile level" in tensor.stderr and "Traceback" not in tensor.output
    assert "define" in ok("emit", file, "--emit", "llvm").stdout
    assert ".text" in ok("emit", file, "--emit", "asm").stdout
    ok("emit", file, "--emit", "obj", "-o", tmp_path / "k.o")
    assert (tmp_path / "k.o").stat().st_size > 500


def test_whole_tensor_example_starts_at_tensor() -> None:
    assert "tensor.matmul" in ok("emit", EXAMPLES / "mlp.tile", "--emit", "tensor").stdout


def test_python_file_gives_the_same_ir() -> None:
    text = ok("emit", EXAMPLES / "softmax.tile", "--emit", "mem").stdout
    assert ok("emit", EXAMPLES / "softmax.py", "--emit", "mem").stdout == text


def test_object_goes_to_stdout_when_that_is_no_terminal() -> None:
    result = ok("emit", EXAMPLES / "transpose.tile", "--emit", "obj")
    assert len(result.stdout_bytes) > 500


def test_stdin_and_output_file(tmp_path: Path) -> None:
    out = tmp_path / "k.tir"
    assert ok("emit", "-", "--emit", "mem", "-o", out, input=SCALE).stdout == ""
    assert out.read_text() == ok("emit", "-", "--emit", "mem", "-o", "-", input=SCALE).stdout


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    assert "No such file or directory" in fails(1, "emit", "-", "-o", tmp_path / "no" / "k.tir", input=SCALE)


def test_set_chooses_the_specialisation() -> None:
    assert "x: buffer<f16[M, N]" in ok("emit", "-", "--set", "Float=f16", "--set", "BM=16", input=SCALE).stdout
    plain = ok("emit", "-", input=SCALE).stdout
    assert "arith.add" not in plain and "arith.add" in ok("emit", "-", "--set", "shift=true", input=SCALE).stdout


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ("BMM=3", "'scale' has no compile-time parameter 'BMM'; did you mean 'BM'?"),
        ("BM=x", "--set BM=x: 'BM' is an integer"),
        ("shift=maybe", "'shift' is true or false"),
        ("Float=f64", "it is one of f32, f16"),
        ("BM", "--set takes NAME=VALUE, found 'BM'"),
        ("x=3", "no compile-time parameter 'x'"),
    ],
)
def test_wrong_choices(choice: str, says: str) -> None:
    assert says in fails(2, "emit", "-", "--set", choice, input=SCALE)


def test_choice_given_twice() -> None:
    assert "BM is given twice" in fails(2, "emit", "-", "--set", "BM=8", "--set", "BM=16", input=SCALE)


def test_choice_outside_the_domain_is_an_error_of_the_program() -> None:
    assert "error[tunable-domain]" in fails(1, "emit", "-", "--set", "BM=32", input=SCALE)


def test_parameter_without_default_must_be_set() -> None:
    text = SCALE.replace("shift: bool = False", "shift: bool")
    assert "'scale' needs a value: --set shift=..." in fails(2, "emit", "-", input=text)
    ok("emit", "-", "--set", "shift=0", input=text)


TWO = """
M = dims("M")


def twice(x):
    return x + x


def first(x: f32[M]) -> f32[M]:
    return twice(x)


def second(x: f32[M]) -> f32[M]:
    return x * 3.0


def _hidden(x: f32[M]) -> f32[M]:
    return x
"""


def test_which_function(tmp_path: Path) -> None:
    assert "@second" in ok("emit", "-", input=TWO).stdout
    assert "@first" in ok("emit", "-", "--function", "first", input=TWO).stdout
    assert "@_hidden" in ok("emit", "-", "-f", "_hidden", input=TWO).stdout
    like_file = tmp_path / "first.tile"
    like_file.write_text(TWO)
    assert "@first" in ok("emit", like_file).stdout
    assert "has no function 'secnd'; did you mean 'second'?" in fails(2, "emit", like_file, "-f", "secnd")


def test_file_without_functions() -> None:
    assert "<stdin> has no functions to call" in fails(1, "emit", "-", input="BM = 64\n")
    assert "only helpers: twice" in fails(1, "emit", "-", input="def twice(x):\n    return x + x\n")


def test_cpu_decides_the_code() -> None:
    wide = ok("emit", "-", "--emit", "llvm", "--cpu", "skylake-avx512", input=SCALE).stdout
    narrow = ok("emit", "-", "--emit", "llvm", "--target", "cpu:haswell", input=SCALE).stdout
    assert "<16 x float>" in wide and "<16 x float>" not in narrow and "<8 x float>" in narrow
    assert "zmm" not in ok("emit", "-", "--emit", "asm", "--cpu", "haswell", input=SCALE).stdout


def test_unknown_targets() -> None:
    assert "unknown cpu 'haswel'; near names: haswell" in fails(2, "emit", "-", "--cpu", "haswel", input=SCALE)
    assert "unknown target 'gpu'" in fails(2, "emit", "-", "--target", "gpu", input=SCALE)
    assert "code is made for CPUs only" in fails(2, "emit", "-", "--target", "ascend910b", input=SCALE)


def test_wrong_form() -> None:
    assert "'tiles' is not one of" in fails(2, "emit", "-", "--emit", "tiles", input=SCALE)
