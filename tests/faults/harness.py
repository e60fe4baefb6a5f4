"""Injects a fault into the source of a pass, in memory, and looks for it: programs go through the CPU pipeline with the verifier and InterpretEach
after each pass.

While a fault is there, all modules of tilelang.passes are loaded anew, one of them from changed source; afterwards the old ones are back. Modules
equal to those of the right pipeline need no run: it is interpreted from the first pass on that gives something else."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np

import tilelang
from tests.faults.programs import Program, program
from tilelang.diagnostics import CompilerBug, TileError
from tilelang.driver import without_collection
from tilelang.ir import passes as manager
from tilelang.ir.core import Module, VerifyError
from tilelang.ir.passes import PassContext, parse_pipeline, run_pass
from tilelang.ir.text import print_module
from tilelang.passes.pipelines import cpu_pipeline
from tilelang.runtime.compare import InterpretEach
from tilelang.target import get_target

ROOT = Path(__file__).parents[2]
PREFIX = "tilelang.passes"


@dataclass(frozen=True)
class Fault:
    """A mistake in a file of the passes: `old` is replaced by `new`. why: what is wrong with it. programs: which may notice it."""

    file: str
    old: str
    new: str
    why: str
    programs: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.file[7:-3]}: {self.why}"

    def apply(self) -> str:
        """The source with the mistake. Raises ValueError when the text is not there exactly once: the table has to follow the code."""
        source = (ROOT / self.file).read_text(encoding="utf-8")
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"the fault '{self.why}' does not fit {self.file} any more: its text is there {count} times:\n{self.old}")
        return source.replace(self.old, self.new)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder:
    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == self.name else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin, self.text)
        return spec


@contextmanager
def injected(fault: Fault) -> Iterator[None]:
    """The passes with the fault in them."""
    name = "tilelang." + fault.file.removesuffix(".py").replace("/", ".")
    text = fault.apply()
    saved = {n: m for n, m in sys.modules.items() if n == PREFIX or n.startswith(PREFIX + ".")}
    registry, package = dict(manager._registry), tilelang.passes
    finder = _Finder(name, text)
    sys.meta_path.insert(0, finder)  # pyright: ignore[reportArgumentType]
    try:
        _forget()
        importlib.import_module(name)
        yield
    finally:
        sys.meta_path.remove(finder)  # pyright: ignore[reportArgumentType]
        _forget()
        sys.modules.update(saved)
        manager._registry.update(registry)
        tilelang.passes = package


def _forget() -> None:
    for n in [n for n in sys.modules if n == PREFIX or n.startswith(PREFIX + ".")]:
        del sys.modules[n]
    for n in [n for n, cls in manager._registry.items() if cls.__module__.startswith(PREFIX + ".")]:
        del manager._registry[n]


@dataclass
class Baseline:
    """What the right passes make of a program. modules[i], texts[i]: before step i of the pipeline; the last ones are behind it."""

    pipeline: str
    context: PassContext
    modules: list[Module]
    texts: list[str]
    start: InterpretEach
    known: dict[int, InterpretEach] = field(default_factory=dict)

    def watch(self, i: int) -> InterpretEach:
        """An InterpretEach that has seen the module before step i."""
        if i not in self.known:
            each = copy.copy(self.start)
            each(self.modules[i], self.modules[i].clone(), "nothing")
            self.known[i] = each
        return copy.copy(self.known[i])


@cache
def baseline(p: Program) -> Baseline:
    module = p.build()
    pipeline = cpu_pipeline({name: dict(options) for name, options in p.options})
    context = PassContext(get_target("cpu", cpu=p.cpu))
    start = InterpretEach(shapes=[dict(s) for s in p.shapes] or None)
    steps = parse_pipeline(pipeline)
    modules, texts = [module.clone()], [print_module(module)]
    for step in steps:
        run_pass(step, module, context)
        modules.append(module.clone())
        texts.append(print_module(module))
    # Data is made once, for the module as it is at first; a whole-tensor function tells the shapes of its results when it runs.
    start(modules[0], modules[0].clone(), "nothing")
    return Baseline(pipeline, context, modules, texts, start, {0: start})


def change(name: str) -> tuple[str, str] | None:
    """What the right passes do wrong, as from `look`: nothing."""
    known = baseline(program(name))
    return _run(replace(known, texts=[""] * len(known.texts)))


def look(fault: Fault) -> tuple[str, str] | None:
    """How the fault shows: (result, verifier or crash, message); None when no program notices it."""
    right = [(name, baseline(program(name))) for name in fault.programs]
    with injected(fault), without_collection():
        for name, known in right:
            found = _run(known)
            if found is not None:
                return found[0], f"{name}: {found[1]}"
    return None


def _run(known: Baseline) -> tuple[str, str] | None:
    module = known.modules[0].clone()
    watch: InterpretEach | None = None
    text = known.texts[0]
    for i, step in enumerate(parse_pipeline(known.pipeline)):
        before, previous = module.clone(), text
        try:
            run_pass(step, module, known.context)
            text = print_module(module)
        except VerifyError as error:
            return "verifier", f"{step.name}: {error}"
        except (TileError, CompilerBug, AssertionError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            return "crash", f"{step.name}: {type(error).__name__}: {error}"
        if watch is None and text == known.texts[i + 1]:
            continue
        if text == previous:
            continue
        watch = watch or known.watch(i)
        try:
            with np.errstate(all="ignore"):
                watch(before, module, step.name)
        except CompilerBug as bug:
            return "result", f"{step.name}: {bug.message}"
    return None
