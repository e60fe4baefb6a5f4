"""tilec check: all that is wrong, in several files, without making code."""

from __future__ import annotations

from pathlib import Path

from tests.cli.tilec import EXAMPLES, NAMES, SCALE, fails, ok, tilec


def test_examples_are_fine() -> None:
    out = ok("check", *(EXAMPLES / f"{n}.tile" for n in NAMES)).stdout
    assert out.count(": OK, ") == len(NAMES)
    assert "transpose.tile: OK, 1 function, 8 specialisations" in out


def test_python_and_stdin() -> None:
    assert ok("check", EXAMPLES / "softmax.py").stdout.endswith("OK, 1 function, 3 specialisations\n")
    assert ok("check", "-", input=SCALE).stdout == "<stdin>: OK, 1 function, 2 specialisations\n"
    helper = "def twice(x):\n    return x + x\n\n\n"
    assert ok("check", "-", input=helper + SCALE.lstrip()).stdout == "<stdin>: OK, 1 function, 2 specialisations, 1 helper\n"


def test_all_errors_of_all_functions() -> None:
    text = SCALE.replace("* by\n", "* bye\n") + SCALE.partition("\n\n\n")[2].replace("def scale", "def other").replace("empty", "emty")
    stderr = fails(1, "check", "-", input=text)
    assert "'bye' is not defined here" in stderr and "did you mean 'empty'?" in stderr
    assert stderr.count("'bye' is not defined") == 1  # once, not for every dtype


def test_syntax_errors() -> None:
    assert "error[syntax]" in fails(1, "check", "-", input="def f(x: f32[4]) -> f32[4]\n    return x\n")


def test_good_files_beside_bad_ones(tmp_path: Path) -> None:
    (tmp_path / "bad.tile").write_text("def f(x: f32[4]) -> f32[4]:\n    return y\n")
    (tmp_path / "good.tile").write_text(SCALE)
    result = tilec("check", tmp_path / "bad.tile", tmp_path / "good.tile")
    assert result.exit_code == 1 and "good.tile: OK" in result.stdout and "bad.tile:2:12: error[unknown-name]" in result.stderr
    assert "bad.tile" not in result.stdout


def test_error_of_one_dtype_only() -> None:
    text = 'M = dims("M")\nT = dtypes(f32, i32)\n\n\ndef f(x: Tensor[T, M]) -> Tensor[T, M]:\n    return exp(x)\n'
    ok("check", "-", "--set", "T=f32", input=text)
    assert "error[" in fails(1, "check", "-", input=text)


def test_set_goes_to_the_functions_that_have_it(tmp_path: Path) -> None:
    (tmp_path / "a.tile").write_text(SCALE)
    ok("check", tmp_path / "a.tile", EXAMPLES / "mlp.tile", "--set", "BM=16")
    assert "no function checked has a compile-time parameter 'BMM'; did you mean 'BM'?" in fails(2, "check", tmp_path / "a.tile", "--set", "BMM=16")


def test_ir_files(tmp_path: Path) -> None:
    ok("emit", EXAMPLES / "softmax.tile", "--emit", "mem", "-o", tmp_path / "k.tir")
    assert ok("check", tmp_path / "k.tir").stdout.endswith("OK, 1 function at the mem level\n")
    text = (tmp_path / "k.tir").read_text()
    (tmp_path / "k.tir").write_text(text.replace('level = "mem"', 'level = "vec"'))
    assert "error[ir-rule]" in fails(1, "check", tmp_path / "k.tir")


def test_wrong_usage() -> None:
    fails(2, "check")
    assert "does not exist" in fails(2, "check", "no.tile")
    fails(2, "check", "--emit", "asm", EXAMPLES / "mlp.tile")
