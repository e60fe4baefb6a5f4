"""Golden tests of passes: every tests/passes/*.tir is a file of cases, each an item of its own.

    // pass: canonicalize            the pipeline of all cases below; `// level: mem` the level of bare functions, `// target: haswell` a CPU
    // case: adding zero             a name
    // input
    func.func @f(%x: i32 scalar) -> (i32) { ... }
    // expect                        the module after the pipeline; or `// error: slug line:column`, lines counted from the input's first
    func.func @f(%x: i32 scalar) -> (i32) { ... }
    // -----

Before and after are verified, go through both forms of text and back, and must compute the same in the interpreter.
`pytest --update-golden` writes what passes give now, and refuses where the interpreter says that the meaning changed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_MARK = re.compile(r"^// (pass|level|target|case|input|expect|error|-----)(?::? *(.*))?$")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the expected IR of tests/passes/*.tir anew")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".tir" and file_path.parent.name == "passes":
        return GoldenFile.from_parent(parent, path=file_path)
    return None


class Case:
    """One case, as sections of lines: what stands before the input, the input, what is expected."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.head: list[str] = []
        self.input: list[str] = []
        self.expected: list[str] = []
        self.error = ""

    def text(self) -> str:
        """The case as it stands in the file."""
        tail = [f"// error: {self.error}"] if self.error else ["// expect", *_trimmed(self.expected)]
        return "\n".join([*_trimmed(self.head), "// input", *_trimmed(self.input), *tail])


def _trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip("\n").splitlines()


class GoldenFile(pytest.File):
    def collect(self) -> Iterator[GoldenCase]:
        self.cases = read_cases(self.path.read_text(encoding="utf-8"))
        for i, case in enumerate(self.cases):
            yield GoldenCase.from_parent(self, name=case.settings.get("case") or str(i + 1), case=case)

    def write(self) -> None:
        self.path.write_text("\n\n// -----\n\n".join(c.text() for c in self.cases) + "\n", encoding="utf-8")


def read_cases(text: str) -> list[Case]:
    cases: list[Case] = []
    settings: dict[str, str] = {}
    case = Case()
    section = case.head
    for line in [*text.splitlines(), "// -----"]:
        mark = _MARK.match(line)
        kind = mark[1] if mark is not None else ""
        if kind == "-----":
            case.settings = dict(settings)
            if any(case.input):
                cases.append(case)
            case = Case()
            section = case.head
            settings.pop("case", None)
        elif kind in ("pass", "level", "target", "case") and mark is not None and section is case.head:
            settings[kind] = mark[2].strip()
            section.append(line)
        elif kind == "input":
            section = case.input
        elif kind == "expect":
            section = case.expected
        elif kind == "error" and mark is not None:
            case.error = mark[2].strip()
        else:
            section.append(line)
    return cases


class GoldenCase(pytest.Item):
    parent: GoldenFile

    def __init__(self, *, case: Case, **more: Any) -> None:
        super().__init__(**more)
        self.case = case

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"golden {self.path.name}: {self.name}"

    def runtest(self) -> None:
        from tilelang.diagnostics import TileError
        from tilelang.ir.verify import verify
        from tilelang.runtime.interp import equivalent

        update = self.config.getoption("--update-golden")
        text = "\n".join(_trimmed(self.case.input)) + "\n"
        before = self.parse(text)
        verify(before)
        round_trip(before)
        after = before.clone()
        try:
            self.pipeline(after)
        except TileError as error:
            span = error.diagnostics[0].span
            found = f"{error.diagnostics[0].slug} {span.line}:{span.column}" if span is not None else error.diagnostics[0].slug
            if update:
                self.case.error, self.case.expected = found, []
                self.parent.write()
            elif found != self.case.error:
                raise GoldenMismatch(f"expected {self.case.error or 'no error'}, found {found}\n{error}") from None
            return
        verify(after)
        round_trip(after)
        differences = equivalent(before, after)
        if differences:
            raise GoldenMismatch("input and output compute different results:\n" + "\n".join(differences) + "\n" + self.printed(after, text))
        printed = self.printed(after, text)
        if update:
            self.case.error, self.case.expected = "", printed.splitlines()
            self.parent.write()
            return
        if self.case.error:
            raise GoldenMismatch(f"expected error {self.case.error}, the pass gave\n{printed}")
        expected = "\n".join(_trimmed(self.case.expected)) + "\n"
        if printed != expected:
            raise GoldenMismatch("".join(difflib.unified_diff(expected.splitlines(True), printed.splitlines(True), "expected", "found")))

    def parse(self, text: str) -> Any:
        from tilelang.ir.parser import parse_module

        module = parse_module(text, self.path.name)
        if "level" in self.case.settings and not module.level:
            module.level = self.case.settings["level"]
        return module

    def pipeline(self, module: Any) -> None:
        from tilelang.ir.passes import PassContext, PassManager
        from tilelang.target import get_target

        ctx = PassContext(get_target("cpu", cpu=self.case.settings.get("target", "haswell")))
        PassManager(self.case.settings["pass"]).run(module, ctx)

    def printed(self, module: Any, source: str) -> str:
        """The module; only its functions when the input is bare functions."""
        from tilelang.ir.text import print_module, print_op

        if re.search(r"^\s*\"?builtin\.module", source, re.MULTILINE):
            return print_module(module)
        return "".join(print_op(f) + "\n" for f in module.body.block)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, GoldenMismatch):
            return f"{self.path.name}: case '{self.name}'\n{excinfo.value}"
        return super().repr_failure(excinfo, style)


class GoldenMismatch(Exception):
    """What the pass gave is not what the file says."""


def round_trip(module: Any) -> None:
    """Both forms of text read back to the same module."""
    from tilelang.ir.parser import parse_module
    from tilelang.ir.text import print_module

    for generic in (False, True):
        for locations in (False, True):
            text = print_module(module, generic, locations)
            again = parse_module(text)
            assert print_module(again, generic, locations) == text
            assert print_module(again, not generic) == print_module(module, not generic)
