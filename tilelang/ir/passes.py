"""Passes, pipelines and what is watched while they run.

A pass is a frozen dataclass whose fields are its options; it lives in passes/<name>.py:

    @register
    @dataclass(frozen=True)
    class Fuse(Pass):
        "One line that says what it does."
        name: ClassVar[str] = "fuse"
        max_ops: int = 32                       # option: fuse{max_ops=16}

        def run(self, module: Module, ctx: PassContext) -> None: ...

A pipeline is text: `canonicalize,tile{m=128,n=128},cse`."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from tilelang.diagnostics import CompilerBug, Diagnostics, Source, Span, TileError, make, nearest
from tilelang.ir.core import Module, Operation, VerifyError
from tilelang.ir.text import print_module, print_op
from tilelang.ir.verify import verify

if TYPE_CHECKING:
    from tilelang.ir.instrument import Instrumentation
    from tilelang.target import Target


@dataclass(frozen=True)
class Remark:
    """What a pass decided, for people: `tilec --explain` shows them."""

    pass_name: str
    message: str
    span: Span | None = None


class PassContext:
    """What passes share: the target, where to report to, and free options of the caller."""

    def __init__(self, target: Target | None = None, diagnostics: Diagnostics | None = None, options: dict[str, Any] | None = None) -> None:
        self._target = target
        self.diagnostics = diagnostics or Diagnostics()
        self.options: dict[str, Any] = dict(options or {})
        self.remarks: list[Remark] = []
        self.pass_name = ""  # of the running pass

    @property
    def target(self) -> Target:
        """The machine compiled for; by default this one."""
        if self._target is None:
            from tilelang.target import host_target

            self._target = host_target()
        return self._target

    def remark(self, message: str, at: Operation | Span | None = None) -> None:
        self.remarks.append(Remark(self.pass_name, message, at.span if isinstance(at, Operation) else at))


@dataclass(frozen=True)
class Pass:
    """Base of all passes.

    before: the level (or levels) of modules that it takes, '' for all. after: the level that it lowers to; such a pass sets
    module.attrs['level'], and its result is verified."""

    name: ClassVar[str] = ""
    before: ClassVar[str | tuple[str, ...]] = ""
    after: ClassVar[str] = ""

    def run(self, module: Module, ctx: PassContext) -> None:
        """Changes the module in place. Raises TileError for what the user can mend."""
        raise NotImplementedError(f"pass '{self.name}' has no run")

    def __str__(self) -> str:
        """The pass as a pipeline spells it, with the options that differ from their default."""
        options = [f"{f.name}={_option_text(v)}" for f in dataclasses.fields(self) if (v := getattr(self, f.name)) != f.default]
        return self.name + (f"{{{','.join(options)}}}" if options else "")


# -- registry

_registry: dict[str, type[Pass]] = {}
P = TypeVar("P", bound=Pass)


def register(cls: type[P]) -> type[P]:
    """Makes a pass known by its name. Stands above @dataclass(frozen=True)."""
    parameters = vars(cls).get("__dataclass_params__")
    if not cls.name or parameters is None or not parameters.frozen:
        raise RuntimeError(f"{cls.__name__} must be a frozen dataclass with a name")
    known = _registry.get(cls.name)
    if known is not None and known.__module__ != cls.__module__:
        raise RuntimeError(f"pass '{cls.name}' is already defined by {known.__module__}; it is defined again by {cls.__module__}")
    _registry[cls.name] = cls
    return cls


def find_pass(name: str) -> type[Pass] | None:
    """The pass class of that name, loaded from tilelang/passes when it is not known yet; None when there is none."""
    from tilelang import passes

    if name not in _registry and name in passes.names():
        import_module(f"tilelang.passes.{passes.modules()[name]}")
    return _registry.get(name)


def get_pass(name: str) -> type[Pass]:
    """As find_pass; raises TileError (pipeline) that suggests the nearest name."""
    found = find_pass(name)
    if found is None:
        raise TileError(make("pipeline", None, what=f"there is no pass '{name}'", help=_suggest(name, pass_names())))
    return found


def pass_names() -> tuple[str, ...]:
    """All passes that there are, those registered elsewhere included."""
    from tilelang import passes

    return tuple(dict.fromkeys([*passes.names(), *sorted(_registry)]))


def _suggest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = nearest(name, known)
    return f"did you mean '{near}'?" if near else f"there are: {', '.join(known) or 'none'}"


# -- pipelines as text

_WORD = re.compile(r'\s*(?:([A-Za-z_][\w-]*)|(-?\d+\.\d*(?:[eE][-+]?\d+)?|-?\d+[eE][-+]?\d+|-?\d+)|"((?:[^"\\]|\\.)*)"|(\S)|\Z)')


def parse_pipeline(text: str) -> list[Pass]:
    """The passes of a pipeline text. Raises TileError (pipeline) at the word that is wrong."""
    return _PipelineParser(text).parse()


def print_pipeline(passes: Iterable[Pass]) -> str:
    return ",".join(map(str, passes))


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{','.join(map(_option_text, _items(value)))}]"
    if isinstance(value, str) and not (re.fullmatch(r"[A-Za-z_][\w-]*", value) and value not in ("true", "false", "none")):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "none" if value is None else str(value)


def _items(value: Any) -> tuple[Any, ...]:
    return value


class _PipelineParser:
    def __init__(self, text: str) -> None:
        self.source = Source("<pipeline>", text)
        self.text = text
        self.pos = 0
        self.next()

    def next(self) -> None:
        m = _WORD.match(self.text, self.pos)
        assert m is not None
        self.word, self.literal, self.quoted, self.punctuation = m.groups()
        self.start = m.start(m.lastindex) if m.lastindex else len(self.text)
        self.pos = m.end()

    def fail(self, what: str, help: str | None = None, start: int | None = None) -> NoReturn:
        start = self.start if start is None else start
        raise TileError(make("pipeline", Span(self.source, start, max(start + 1, self.pos)), what=what, help=help))

    def found(self) -> str:
        return repr(self.text[self.start : self.pos]) if self.start < len(self.text) else "the end"

    def at(self, punctuation: str) -> bool:
        return self.punctuation == punctuation

    def take(self, punctuation: str) -> None:
        if not self.at(punctuation):
            self.fail(f"expected '{punctuation}', found {self.found()}")
        self.next()

    def parse(self) -> list[Pass]:
        passes: list[Pass] = []
        while self.start < len(self.text):
            if passes:
                self.take(",")
            passes.append(self.one())
        return passes

    def one(self) -> Pass:
        name = self.word
        if name is None:
            self.fail(f"expected the name of a pass, found {self.found()}")
        cls = find_pass(name)
        if cls is None:
            self.fail(f"there is no pass '{name}'", _suggest(name, pass_names()))
        self.next()
        options: dict[str, Any] = {}
        if self.at("{"):
            self.next()
            hints = typing.get_type_hints(cls)
            fields = {f.name: hints[f.name] for f in dataclasses.fields(cls)}
            while not self.at("}"):
                if options:
                    self.take(",")
                self.option(cls, fields, options)
            self.next()
        return cls(**options)

    def option(self, cls: type[Pass], fields: dict[str, Any], options: dict[str, Any]) -> None:
        if self.word is None:
            self.fail(f"expected an option of pass '{cls.name}', found {self.found()}")
        name = self.word.replace("-", "_")
        if name not in fields:
            self.fail(f"pass '{cls.name}' has no option '{self.word}'", _suggest(name, fields) if fields else "it has no options")
        if name in options:
            self.fail(f"option '{name}' is given twice")
        self.next()
        if self.at("="):
            self.next()
            start = self.start
            value = self.value()
        else:
            start, value = self.start, True
        fitting = _fit(value, fields[name])
        if fitting is _MISFIT:
            self.fail(f"option '{name}' of pass '{cls.name}' is {_type_name(fields[name])}, found {_option_text(value)}", start=start)
        options[name] = fitting

    def value(self) -> Any:
        if self.at("["):
            self.next()
            items: list[Any] = []
            while not self.at("]"):
                if items:
                    self.take(",")
                items.append(self.value())
            self.next()
            return tuple(items)
        word, literal, quoted = self.word, self.literal, self.quoted
        if word is None and literal is None and quoted is None:
            self.fail(f"expected a value, found {self.found()}")
        self.next()
        if word is not None:
            return {"true": True, "false": False, "none": None}.get(word, _Bare(word))
        if literal is not None:
            return int(literal) if literal.lstrip("-").isdigit() else float(literal)
        return re.sub(r"\\(.)", r"\1", quoted or "")


class _Bare(str):
    """A word without quotes."""


_MISFIT: Any = object()


def _fit(value: Any, hint: Any) -> Any:
    """The value as an option of type `hint`, _MISFIT when it is none."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return next((f for h in typing.get_args(hint) if (f := _fit(value, h)) is not _MISFIT), _MISFIT)
    if origin is typing.Literal:
        return next((v for v in typing.get_args(hint) if v == value and type(v) is not bool), _MISFIT)
    if origin is tuple:
        args = typing.get_args(hint)
        if not isinstance(value, tuple) or (args[-1] is not Ellipsis and len(args) != len(_items(value))):
            return _MISFIT
        items = tuple(_fit(v, args[0] if args[-1] is Ellipsis else args[i]) for i, v in enumerate(_items(value)))
        return _MISFIT if any(i is _MISFIT for i in items) else items
    if hint is None or hint is type(None):
        return None if value is None else _MISFIT
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint is str and isinstance(value, str):
        return str(value)
    return value if type(value) is hint else _MISFIT


def _type_name(hint: Any) -> str:
    if hint is bool:
        return "true or false"
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    return {int: "an integer", float: "a number", str: "a text"}.get(hint, str(hint))


# -- running


@dataclass
class PassManager:
    """Runs passes one after the other. passes: objects, or a pipeline text."""

    passes: Sequence[Pass] | str
    instrumentation: Instrumentation | None = None
    list: list[Pass] = field(init=False)

    def __post_init__(self) -> None:
        self.list = parse_pipeline(self.passes) if isinstance(self.passes, str) else [*self.passes]

    def run(self, module: Module, ctx: PassContext | None = None) -> Module:
        """Changes the module in place and returns it. Raises TileError for errors of the program; anything else that goes wrong becomes a
        CompilerBug with the pass, the op, its place, and a file that reproduces it."""
        ctx = ctx or PassContext()
        watch = self.instrumentation
        original = module.clone()
        if watch is not None:
            watch.begin(module, self.list)
        for i, step in enumerate(self.list):
            if watch is not None:
                watch.before_pass(step, module)
            try:
                run_pass(step, module, ctx, check=watch is not None and watch.verify_each)
                if watch is not None:
                    watch.after_pass(step, module, i)
            except TileError:
                raise
            except Exception as error:
                raise self.bug(error, i, original, ctx) from error
            if watch is not None and watch.stop_after == step.name:
                break
        if watch is not None:
            watch.end()
        return module

    def bug(self, error: Exception, failed: int, original: Module, ctx: PassContext) -> CompilerBug:
        """The error as a bug report. The module before the failing pass is made again from the original, so that a good run pays for no copies."""
        op = error.op if isinstance(error, VerifyError) else None
        message = str(error) or repr(error) if isinstance(error, (VerifyError, CompilerBug)) else f"{type(error).__name__}: {error}"
        span = op.span if op is not None else getattr(error, "span", None)
        start = failed
        module = original.clone()
        try:
            for step in self.list[:failed]:
                run_pass(step, module, PassContext(ctx.target, options=ctx.options), check=False)
        except Exception:
            module, start = original, 0  # the earlier passes do not repeat: the report starts at the first
        path = write_reproducer(module, self.list[start:], ctx)
        text = print_op(op) if op is not None else getattr(error, "op", "")
        return CompilerBug(message, op=text, span=span, pass_name=self.list[failed].name, reproducer=path)


def run_pass(step: Pass, module: Module, ctx: PassContext, check: bool = True) -> None:
    """Runs one pass, with the checks of levels around it. check: verify also when the pass does not lower."""
    cls = type(step)
    levels = (cls.before,) if isinstance(cls.before, str) else cls.before
    if levels != ("",) and module.level not in levels:
        raise TileError(make("pipeline", module.span, what=f"pass '{cls.name}' takes modules of level {' or '.join(levels)}, this one is at level {module.level or 'none'}"))
    ctx.pass_name = cls.name
    step.run(module, ctx)
    ctx.diagnostics.raise_if_errors()
    if cls.after and module.level != cls.after:
        raise VerifyError(module, f"is at level '{module.level}' after pass '{cls.name}', which lowers to '{cls.after}'")
    if cls.after or check:
        verify(module)


def write_reproducer(module: Module, passes: Sequence[Pass], ctx: PassContext) -> Path:
    """Writes the module with the pipeline in its header, for `tilec opt`, to $TILELANG_REPRODUCER_DIR or the directory for temporary files."""
    directory = os.environ.get("TILELANG_REPRODUCER_DIR") or tempfile.gettempdir()
    Path(directory).mkdir(parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(".tir", f"tilelang-{passes[0].name if passes else 'empty'}-", directory)
    header = header_text(pipeline=print_pipeline(passes), target=ctx.target.name)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(header + print_module(module, locations=True))
    return Path(path)


def header_text(**fields: str) -> str:
    """Comment lines `// key: value` for the top of an IR file."""
    return "".join(f"// {key}: {value}\n" for key, value in fields.items())


def read_header(text: str) -> dict[str, str]:
    """The `// key: value` lines at the top of an IR file, such as the pipeline that is still to run."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        found = re.match(r"//\s*([\w-]+):\s*(.*\S)?\s*$", line)
        if found:
            fields[found[1]] = found[2] or ""
    return fields
