"""Pipelines as text, what the pass manager checks, prints and reports."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tilelang.diagnostics import CompilerBug, TileError
from tilelang.dialects import arith, load_all
from tilelang.ir.core import Module
from tilelang.ir.instrument import Instrumentation
from tilelang.ir.parser import parse_module
from tilelang.ir.passes import Pass, PassContext, PassManager, get_pass, parse_pipeline, pass_names, print_pipeline, read_header, register
from tilelang.ir.text import print_module
from tilelang.ir.types import index

load_all()

TEXT = """\
builtin.module {level = "mem"} {
  func.func @f(%n: index scalar) {
    %c0 = arith.constant 0 : index
    loop.print %c0 {parts = [none]}
  }
}
"""


@register
@dataclass(frozen=True)
class Bump(Pass):
    """Adds to every constant."""

    name: ClassVar[str] = "test-bump"
    by: int = 1
    scale: float = 1.0
    label: str = "x"
    sizes: tuple[int, ...] = ()
    loud: bool = False
    limit: int | None = None

    def run(self, module: Module, ctx: PassContext) -> None:
        for op in module.walk():
            if isinstance(op, arith.Constant):
                op.value += self.by
        ctx.remark(f"by {self.by}", module.body.block.first)


@register
@dataclass(frozen=True)
class Crash(Pass):
    name: ClassVar[str] = "test-crash"

    def run(self, module: Module, ctx: PassContext) -> None:
        raise IndexError("list index out of range")


@register
@dataclass(frozen=True)
class Break(Pass):
    name: ClassVar[str] = "test-break"

    def run(self, module: Module, ctx: PassContext) -> None:
        next(op for op in module.walk() if isinstance(op, arith.Constant)).attrs["value"] = "zero"


@register
@dataclass(frozen=True)
class Lower(Pass):
    name: ClassVar[str] = "test-lower"
    before: ClassVar[str] = "mem"
    after: ClassVar[str] = "vec"
    forget: bool = False

    def run(self, module: Module, ctx: PassContext) -> None:
        if not self.forget:
            module.level = "vec"


@register
@dataclass(frozen=True)
class Refuse(Pass):
    name: ClassVar[str] = "test-refuse"

    def run(self, module: Module, ctx: PassContext) -> None:
        ctx.diagnostics.error("ir-rule", module.span, what="no")


def value(module: Module) -> int:
    return next(op for op in module.walk() if isinstance(op, arith.Constant)).value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "test-bump",
        "test-bump{by=2},test-crash,test-bump",
        'test-bump{by=-2,scale=0.5,label="a b",sizes=[1,2],loud=true,limit=7}',
        'test-bump{label="true"}',
        'test-bump{label="q\\"\\\\"}',
    ],
)
def test_pipelines_round_trip(text: str) -> None:
    assert print_pipeline(parse_pipeline(text)) == text


def test_options_are_typed() -> None:
    bump = parse_pipeline(" test-bump { loud , scale = 3, limit = none, label = word } ")[0]
    assert bump == Bump(loud=True, scale=3.0, limit=None, label="word")
    assert isinstance(bump, Bump) and type(bump.scale) is float and type(bump.label) is str


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("test-bmup", 1, "there is no pass 'test-bmup'"),
        ("test-bump{bye=1}", 11, "pass 'test-bump' has no option 'bye'"),
        ("test-crash{x=1}", 12, "pass 'test-crash' has no option 'x'"),
        ("test-bump{by=big}", 14, "option 'by' of pass 'test-bump' is an integer, found big"),
        ("test-bump{by=true}", 14, "option 'by' of pass 'test-bump' is an integer, found true"),
        ("test-bump{by=1.5}", 14, "option 'by' of pass 'test-bump' is an integer, found 1.5"),
        ("test-bump{loud=1}", 16, "option 'loud' of pass 'test-bump' is true or false, found 1"),
        ("test-bump{sizes=[1,a]}", 17, "option 'sizes' of pass 'test-bump' is tuple[int, ...], found [1,a]"),
        ("test-bump{by=1,by=2}", 16, "option 'by' is given twice"),
        ("test-bump{by=1", 15, "expected ',', found the end"),
        ("test-bump{by=}", 14, "expected a value, found '}'"),
        ("test-bump test-crash", 11, "expected ',', found 'test-crash'"),
        ("test-bump,", 11, "expected the name of a pass, found the end"),
        ("7", 1, "expected the name of a pass, found '7'"),
    ],
)
def test_pipeline_errors(text: str, column: int, message: str) -> None:
    with pytest.raises(TileError) as caught:
        parse_pipeline(text)
    assert f"<pipeline>:1:{column}: error[pipeline]: {message}" in str(caught.value)


def test_near_names_are_suggested() -> None:
    with pytest.raises(TileError, match="did you mean 'test-bump'"):
        parse_pipeline("test-bmup")
    with pytest.raises(TileError, match="did you mean 'by'"):
        parse_pipeline("test-bump{bye=1}")
    with pytest.raises(TileError, match="there is no pass 'nothing-of-the-kind'"):
        get_pass("nothing-of-the-kind")


def test_all_passes_load_and_have_a_line_of_text() -> None:
    assert {"canonicalize", "cse", "dce", "licm", "cleanup"} <= set(pass_names())
    for name in pass_names():
        if not name.startswith("test-"):
            assert get_pass(name).name == name
            assert get_pass(name).__doc__


def test_registering_is_checked() -> None:
    with pytest.raises(RuntimeError, match="frozen dataclass"):
        register(type("Loose", (Pass,), {"name": "test-loose"}))
    clash = dataclass(frozen=True)(type("Clash", (Pass,), {"name": "test-bump", "__module__": "elsewhere"}))
    with pytest.raises(RuntimeError, match="already defined"):
        register(clash)


def test_run_collects_remarks() -> None:
    ctx = PassContext()
    module = PassManager("test-bump{by=3},test-bump").run(parse_module(TEXT), ctx)
    assert value(module) == 4
    assert [(r.pass_name, r.message) for r in ctx.remarks] == [("test-bump", "by 3"), ("test-bump", "by 1")]
    assert ctx.remarks[0].span is not None and ctx.remarks[0].span.line == 2


def test_levels_are_checked() -> None:
    module = parse_module(TEXT)
    PassManager([Lower()]).run(module)
    assert module.level == "vec"
    with pytest.raises(TileError, match="pass 'test-lower' takes modules of level mem, this one is at level vec"):
        PassManager([Lower()]).run(module)
    with pytest.raises(CompilerBug, match="is at level 'mem' after pass 'test-lower'"):
        PassManager([Lower(forget=True)]).run(parse_module(TEXT))


def test_errors_of_the_program_pass_through() -> None:
    with pytest.raises(TileError, match="no"):
        PassManager("test-refuse").run(parse_module(TEXT))


def test_a_crash_leaves_a_reproducer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TILELANG_REPRODUCER_DIR", str(tmp_path / "reports"))
    with pytest.raises(CompilerBug) as caught:
        PassManager("test-bump{by=2},test-crash,test-bump").run(parse_module(TEXT))
    bug = caught.value
    assert (bug.pass_name, bug.message) == ("test-crash", "IndexError: list index out of range")
    text = Path(bug.reproducer).read_text()
    assert read_header(text)["pipeline"] == "test-crash,test-bump"
    module = parse_module(text)
    assert value(module) == 2  # the module right before the pass that failed
    with pytest.raises(CompilerBug, match="list index out of range"):
        PassManager(read_header(text)["pipeline"]).run(module)


def test_verify_each_blames_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TILELANG_REPRODUCER_DIR", str(tmp_path))
    with pytest.raises(CompilerBug) as caught:
        PassManager("test-break,test-bump", Instrumentation(verify_each=True)).run(parse_module(TEXT))
    assert caught.value.pass_name == "test-break"
    assert caught.value.op == '%cst = arith.constant "zero" : index'
    assert caught.value.span is not None and caught.value.span.line == 3


def test_interpret_each_blames_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TILELANG_REPRODUCER_DIR", str(tmp_path))
    watch = Instrumentation(interpret_each=lambda a, b, name: [] if value(a) + 1 == value(b) else [f"{value(a)} became {value(b)}"])
    PassManager([Bump(), Bump()], watch).run(parse_module(TEXT))
    with pytest.raises(CompilerBug, match="changes what the program computes: 1 became 3") as caught:
        PassManager([Bump(), Bump(2)], watch).run(parse_module(TEXT))
    assert caught.value.pass_name == "test-bump"


def test_dumps(tmp_path: Path) -> None:
    out = io.StringIO()
    watch = Instrumentation(print_before={"test-bump"}, print_after_change=True, stream=out, print_to=tmp_path / "dumps", stop_after="test-bump")
    PassManager("test-bump{by=5},test-crash", watch).run(parse_module(TEXT))
    bumped = TEXT.replace("%c0 ", "%c5 ").replace("constant 0", "constant 5").replace("%c0", "%c5")
    assert out.getvalue() == f"// -----// IR before test-bump //----- //\n{TEXT}// -----// IR after test-bump //----- //\n{bumped}"
    files = sorted(p.name for p in (tmp_path / "dumps").iterdir())
    assert files == ["00-input.tir", "01-test-bump.tir"]
    text = (tmp_path / "dumps" / "01-test-bump.tir").read_text()
    assert read_header(text) == {"pipeline": "test-crash"}
    assert print_module(parse_module(text)) == bumped


def test_differences_and_times() -> None:
    out = io.StringIO()
    watch = Instrumentation(print_diff=True, time_passes=True, stream=out)
    PassManager([Bump(0), Bump(1)], watch).run(parse_module(TEXT))
    text = out.getvalue()
    assert text.count("IR change by test-bump") == 1
    assert "-    %c0 = arith.constant 0 : index\n" in text and "+    %c1 = arith.constant 1 : index\n" in text
    assert [n for n, _, _ in watch.timings] == ["test-bump", "test-bump"]
    assert "total" in text


def test_print_after_all_in_generic_form() -> None:
    out = io.StringIO()
    PassManager([Bump(0)], Instrumentation(print_after_all=True, generic=True, stream=out)).run(parse_module(TEXT))
    assert '"arith.constant"() {value = 0 : index}' in out.getvalue()


def test_constant_names_follow_the_value() -> None:
    module = parse_module(TEXT)
    op = next(op for op in module.walk() if isinstance(op, arith.Constant))
    assert op.result.hint is None and op.result.type is index
