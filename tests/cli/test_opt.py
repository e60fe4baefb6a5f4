"""tilec opt: passes over IR text, and going on from what --print-ir-to wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.tilec import EXAMPLES, SCALE, fails, ok, without_names
from tilelang.ir.passes import read_header

IR = """builtin.module {level = "mem"} {
  func.func @f(%x: i32 scalar) -> (i32) {
    %c0_i32 = arith.constant 0 : i32
    %0 = arith.add %x, %c0_i32 : i32
    func.return %0
  }
}
"""


def test_passes_over_a_file_and_stdin(tmp_path: Path) -> None:
    file = tmp_path / "f.tir"
    file.write_text(IR)
    out = ok("opt", file, "--passes", "canonicalize").stdout
    assert "arith.add" not in out and "func.return %x" in out
    assert ok("opt", "-", "--passes", "canonicalize", input=IR).stdout == out
    ok("opt", file, "--passes", "canonicalize", "-o", tmp_path / "g.tir")
    assert (tmp_path / "g.tir").read_text() == out


def test_without_passes_the_ir_is_printed() -> None:
    assert ok("opt", "-", input=IR).stdout == IR
    generic = ok("opt", "-", "--generic", input=IR).stdout
    assert '"func.func"' in generic and ok("opt", "-", input=generic).stdout == IR


def test_options_of_passes() -> None:
    ok("opt", "-", "--passes", "cleanup{rounds=2},cse", input=IR)


@pytest.mark.parametrize(
    ("passes", "says"),
    [
        ("canonicalise", "there is no pass 'canonicalise'"),
        ("cse,,dce", "expected the name of a pass, found ','"),
        ("cleanup{round=2}", "did you mean 'rounds'?"),
        ("cleanup{rounds=two}", "option 'rounds' of pass 'cleanup' is an integer"),
    ],
)
def test_wrong_pipelines_are_wrong_usage(passes: str, says: str) -> None:
    stderr = fails(2, "opt", "-", "--passes", passes, input=IR)
    assert says in stderr and "^" in stderr


def test_wrong_ir() -> None:
    assert "<stdin>:1:1: error[ir-syntax]" in fails(1, "opt", "-", input="def f(): pass")
    assert "error[ir-rule]" in fails(1, "opt", "-", input=IR.replace("func.return %0", "func.return %x, %0"))


def test_pass_of_another_level() -> None:
    assert "takes modules of level tile, this one is at level mem" in fails(1, "opt", "-", "--passes", "bufferize", input=IR)


def test_continue_needs_a_header() -> None:
    assert "<stdin> has no line '// pipeline: ...'" in fails(2, "opt", "-", "--continue", input=IR)
    assert "exclude each other" in fails(2, "opt", "-", "--continue", "--passes", "cse", input=IR)
    assert "arith.add" not in ok("opt", "-", "--continue", input=f"// pipeline: canonicalize\n{IR}").stdout


def test_target_of_the_header() -> None:
    text = ok("emit", "-", "--emit", "mem", "--stop-after", "plan-memory", input=SCALE).stdout
    header = "// target: {}\n// pipeline: vectorize\n"
    assert ok("opt", "-", input=header.format("cpu:haswell") + text).stdout != ok("opt", "-", input=header.format("cpu:skylake-avx512") + text).stdout
    ok("opt", "-", "--cpu", "znver4", input=header.format("cpu:haswell") + text)


@pytest.mark.parametrize("name", ["softmax", "linear", "mlp"])
def test_goes_on_from_every_dump(name: str, tmp_path: Path) -> None:
    end = ok("emit", EXAMPLES / f"{name}.tile", "--emit", "vec", "--print-ir-to", tmp_path).stdout
    files = sorted(tmp_path.iterdir())
    assert len(files) > 20
    for file in files:
        found = ok("opt", file, "--continue").stdout
        assert without_names(found) == without_names(end), file.name


def test_stops_and_goes_on(tmp_path: Path) -> None:
    ok("emit", EXAMPLES / "softmax.tile", "--emit", "vec", "--print-ir-to", tmp_path)
    files = {p.name.partition("-")[2]: p for p in tmp_path.iterdir()}
    middle = ok("opt", files["fuse.tir"], "--stop-after", "bufferize").stdout
    rest = read_header(files["bufferize.tir"].read_text())["pipeline"]
    end = ok("opt", "-", "--passes", rest, input=middle).stdout
    assert without_names(end) == without_names(ok("opt", files["input.tir"]).stdout)
