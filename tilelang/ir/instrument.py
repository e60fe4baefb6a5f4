"""What one may watch while passes run: dumps, differences, files, checks by the verifier and the interpreter, times."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tilelang.diagnostics import CompilerBug
from tilelang.ir.core import Module
from tilelang.ir.text import print_module

if TYPE_CHECKING:
    from tilelang.ir.passes import Pass


@dataclass
class Instrumentation:
    """Options of a PassManager.

    print_before, print_after: names of passes. print_after_change: after each pass that changed the text. print_diff: unified differences.
    print_to: a directory that gets `03-fuse.tir` and so on, from which `tilec opt` can go on. interpret_each(before, after, name of the pass): runs
    both modules on the same data; gives or raises what differs (runtime.interp.InterpretEach). stop_after: the name of the last pass to run."""

    print_before: frozenset[str] | set[str] = frozenset()
    print_after: frozenset[str] | set[str] = frozenset()
    print_after_all: bool = False
    print_after_change: bool = False
    print_diff: bool = False
    print_to: str | Path | None = None
    verify_each: bool = False
    interpret_each: Callable[[Module, Module, str], Sequence[str] | None] | None = None
    time_passes: bool = False
    stop_after: str = ""
    generic: bool = False
    locations: bool = False
    stream: TextIO | None = None
    timings: list[tuple[str, float, int]] = field(default_factory=list[tuple[str, float, int]])  # pass, seconds of CPU time, ops after it

    def write(self, text: str) -> None:
        print(text, end="", file=self.stream or sys.stderr)

    def text(self, module: Module) -> str:
        return print_module(module, self.generic, self.locations)

    def begin(self, module: Module, passes: Sequence[Pass]) -> None:
        self.passes = list(passes)
        self.timings.clear()
        self.previous = self.text(module) if self.print_after_change or self.print_diff else ""
        if self.print_to is not None:
            Path(self.print_to).mkdir(parents=True, exist_ok=True)
            self.file(0, "input", module)

    def file(self, number: int, name: str, module: Module) -> None:
        from tilelang.ir.passes import header_text, print_pipeline

        assert self.print_to is not None
        header = banner(f"after {name}" if number else "before all passes") + header_text(pipeline=print_pipeline(self.passes[number:]))
        (Path(self.print_to) / f"{number:02d}-{name}.tir").write_text(header + self.text(module), encoding="utf-8")

    def before_pass(self, step: Pass, module: Module) -> None:
        if step.name in self.print_before:
            self.write(banner(f"before {step.name}") + self.text(module))
        self.before = module.clone() if self.interpret_each is not None else None
        self.start = time.process_time()

    def after_pass(self, step: Pass, module: Module, index: int) -> None:
        """index: the position of the pass in the pipeline."""
        if self.time_passes:
            self.timings.append((step.name, time.process_time() - self.start, sum(1 for _ in module.walk())))
        if self.print_after_change or self.print_diff:
            now = self.text(module)
            if now != self.previous:
                if self.print_diff:
                    lines = difflib.unified_diff(self.previous.splitlines(True), now.splitlines(True), f"before {step.name}", f"after {step.name}")
                    self.write(banner(f"change by {step.name}") + "".join(lines))
                if self.print_after_change:
                    self.write(banner(f"after {step.name}") + now)
            self.previous = now
        if self.print_after_all or step.name in self.print_after:
            self.write(banner(f"after {step.name}") + self.text(module))
        if self.print_to is not None:
            self.file(index + 1, step.name, module)
        if self.interpret_each is not None and self.before is not None:
            differences = self.interpret_each(self.before, module, step.name)
            if differences:
                raise CompilerBug("the pass changes what the program computes: " + "; ".join(differences))

    def end(self) -> None:
        if self.time_passes:
            self.write(self.report())

    def report(self) -> str:
        """A table of the CPU time of each pass."""
        total = sum(t for _, t, _ in self.timings) or 1e-9
        width = max([len(n) for n, _, _ in self.timings] + [5])
        lines = [f"{'pass':{width}}  {'ms':>9}  {'share':>6}  {'ops':>6}"]
        lines += [f"{n:{width}}  {t * 1e3:9.3f}  {t / total:6.1%}  {ops:6d}" for n, t, ops in self.timings]
        lines.append(f"{'total':{width}}  {sum(t for _, t, _ in self.timings) * 1e3:9.3f}")
        return "\n".join(lines) + "\n"


def banner(text: str) -> str:
    return f"// -----// IR {text} //----- //\n"
