"""The IR options, which all commands share: shown on emit, and that the others have them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.cli.tilec import EXAMPLES, SCALE, fails, ok, tilec
from tilelang.commands.options import Watch
from tilelang.diagnostics import CompilerBug
from tilelang.ir.passes import PassManager, read_header
from tilelang.passes.pipelines import pipeline_to

EMIT = ("emit", "-", "--emit", "mem")


def dumps(stderr: str) -> list[str]:
    """What the banners of a dump say."""
    return re.findall(r"^// -----// IR (.*) //----- //$", stderr, re.MULTILINE)


def test_print_before_and_after() -> None:
    result = ok(*EMIT, "--print-ir-before", "bufferize", "--print-ir-after", "bufferize,plan-memory", input=SCALE)
    assert dumps(result.stderr) == ["before bufferize", "after bufferize", "after plan-memory"]
    assert 'level = "tile"' in result.stderr and 'level = "mem"' in result.stderr
    assert not dumps(result.stdout)


def test_print_options_may_be_repeated() -> None:
    result = ok(*EMIT, "--print-ir-after", "bufferize", "--print-ir-after", "vectorize", input=SCALE)
    assert dumps(result.stderr) == ["after bufferize", "after vectorize"]


def test_print_after_all_and_after_change() -> None:
    steps = pipeline_to("mem", "tile").split(",")
    every = dumps(ok(*EMIT, "--print-ir-after-all", input=SCALE).stderr)
    assert every == [f"after {name}" for name in steps]
    changed = dumps(ok(*EMIT, "--print-ir-after-change", input=SCALE).stderr)
    assert "after bufferize" in changed and len(changed) < len(every)


def test_print_diff() -> None:
    stderr = ok(*EMIT, "--print-ir-diff", input=SCALE).stderr
    assert "change by bufferize" in dumps(stderr)
    assert "--- before bufferize\n+++ after bufferize\n" in stderr and '-builtin.module {level = "tile"} {' in stderr


def test_print_to_names_the_rest_of_the_pipeline(tmp_path: Path) -> None:
    ok(*EMIT, "--print-ir-to", tmp_path / "dumps", input=SCALE)
    steps = pipeline_to("mem", "tile").split(",")
    files = sorted(p.name for p in (tmp_path / "dumps").iterdir())
    assert files == [f"{i:02d}-{name}.tir" for i, name in enumerate(["input", *steps])]
    for i, name in enumerate(files):
        assert read_header((tmp_path / "dumps" / name).read_text())["pipeline"] == ",".join(steps[i:])


def test_stop_after() -> None:
    stopped = ok("emit", "-", "--emit", "asm", "--stop-after", "bufferize", input=SCALE).stdout
    assert 'level = "mem"' in stopped and "mem.alloc" not in ok("emit", "-", "--stop-after", "canonicalize", "--emit", "mem", input=SCALE).stdout


def test_generic_and_locations() -> None:
    generic = ok("emit", "-", "--generic", input=SCALE).stdout
    assert '"builtin.module"() ({' in generic and "loc(" not in generic
    located = ok("emit", "-", "--locations", "--print-ir-after", "bufferize", "--emit", "mem", input=SCALE)
    assert 'loc("<stdin>":' in located.stdout and 'loc("<stdin>":' in located.stderr


def test_time_passes() -> None:
    stderr = ok(*EMIT, "--time-passes", input=SCALE).stderr
    assert re.search(r"^bufferize +\d+\.\d+ +[\d.]+% +\d+$", stderr, re.MULTILINE) and "total" in stderr


def test_verify_each_and_interpret_each_pass() -> None:
    ok(*EMIT, "--verify-each", "--interpret-each", input=SCALE)


@pytest.mark.parametrize("option", ["--print-ir-before", "--print-ir-after", "--stop-after"])
def test_names_of_passes(option: str) -> None:
    assert f"{option}: there is no pass 'bufferise'; did you mean 'bufferize'?" in fails(2, *EMIT, option, "bufferise", input=SCALE)
    assert f"{option} bufferize: this pass does not run here; these do: none" in fails(2, "emit", "-", option, "bufferize", input=SCALE)


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes bufferize change what the program computes: it runs, and every product becomes a sum."""
    from tilelang.dialects import arith
    from tilelang.ir.core import Operation
    from tilelang.passes.bufferize import Bufferize

    run = Bufferize.run

    def wrong(self: Any, module: Any, ctx: Any) -> None:
        run(self, module, ctx)
        products: list[Operation] = [op for op in module.walk() if op.name == "arith.mul" and op.results[0].type.text == "f32"]
        assert products
        for op in products:
            add = arith.Add.of(op.operands[0], op.operands[1])
            assert op.parent is not None
            op.parent.insert_before(op, add)
            op.replace_by(add.results[0])

    monkeypatch.setattr(Bufferize, "run", wrong)


def test_interpret_each_finds_a_wrong_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken(monkeypatch)
    monkeypatch.setenv("TILELANG_REPRODUCER_DIR", str(tmp_path))
    ok(*EMIT, input=SCALE)
    result = tilec(*EMIT, "--interpret-each", input=SCALE)
    assert result.exit_code == 3 and "compiler bug in pass bufferize: the pass changes a result" in result.stderr
    file = re.search(r"reproduce with: tilec opt (\S+)", result.stderr)
    assert file is not None
    again = tilec("opt", file[1], "--interpret-each")
    assert again.exit_code == 3 and "compiler bug in pass bufferize" in again.stderr
    assert tilec("run", "-", "--verify", input=SCALE).exit_code == 1  # and so does a comparison of the results


def test_verify_each_finds_broken_ir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tilelang.passes.plan_memory import PlanMemory

    def breaks(self: Any, module: Any, ctx: Any) -> None:
        function = next(iter(module.body.block))
        function.attrs["roles"] = function.attrs["roles"][1:]

    monkeypatch.setattr(PlanMemory, "run", breaks)
    monkeypatch.setenv("TILELANG_REPRODUCER_DIR", str(tmp_path))
    stderr = fails(3, *EMIT, "--verify-each", input=SCALE)
    assert "compiler bug in pass plan-memory" in stderr and "roles" in stderr and "reproduce with" in stderr


@pytest.mark.parametrize("command", ["run", "emit", "check", "opt"])
def test_every_command_has_the_options(command: str) -> None:
    text = ok(command, "--help").stdout
    for option in Watch.__dataclass_fields__:
        name = "--target" if option == "target_name" else f"--{option.replace('_', '-')}"
        assert name in text


class TestOtherCommands:
    """The options reach the passes of every command."""

    file: ClassVar[Path] = EXAMPLES / "elementwise.tile"

    def test_run(self, tmp_path: Path) -> None:
        result = ok("run", self.file, "--print-ir-after", "fuse", "--time-passes", "--print-ir-to", tmp_path, "--repeat", 1)
        assert dumps(result.stderr) == ["after fuse"] and "lower-to-vec" in result.stderr
        assert (tmp_path / "00-input.tir").exists()

    def test_run_stops(self) -> None:
        result = ok("run", self.file, "--stop-after", "bufferize", "--generic")
        assert '"builtin.module"' in result.stdout and "GFLOP/s" not in result.stdout

    def test_run_of_a_whole_tensor_function_numbers_each_pass_once(self, tmp_path: Path) -> None:
        ok("run", EXAMPLES / "mlp.tile", "--print-ir-to", tmp_path, "--repeat", 1)
        numbers = sorted(p.name[:2] for p in tmp_path.iterdir())
        assert numbers == [f"{i:02d}" for i in range(len(numbers))]

    def test_check(self) -> None:
        assert dumps(ok("check", self.file, "--print-ir-after", "fuse", "--verify-each").stderr) == ["after fuse"]
        assert "func.func @elementwise" in ok("check", self.file, "--stop-after", "fuse").stdout

    def test_opt(self) -> None:
        text = ok("emit", self.file).stdout
        assert dumps(ok("opt", "-", "--passes", "canonicalize,fuse", "--print-ir-after", "fuse", input=text).stderr) == ["after fuse"]


def test_nothing_watched_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    init = PassManager.__init__

    def record(self: PassManager, passes: Any, instrumentation: Any = None) -> None:
        seen.append(instrumentation)
        init(self, passes, instrumentation)

    monkeypatch.setattr(PassManager, "__init__", record)
    ok(*EMIT, "--generic", "--cpu", "haswell", input=SCALE)
    assert seen == [None]


def test_compiler_bug_is_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: Any) -> None:
        raise CompilerBug("something is wrong", pass_name="fuse", op="tile.map", reproducer="f.tir")

    monkeypatch.setattr(Watch, "lower", bug)
    stderr = fails(3, *EMIT, input=SCALE)
    assert "compiler bug in pass fuse: something is wrong" in stderr and "reproduce with: tilec opt f.tir" in stderr
