"""Kernels: functions of the language that can be called, looked at and checked.

    @tile                                    tilelang.load("f.tile").f
    def f(...): ...                          f(a, b)  f(a, b, out=c)  f(a, b, BM=128)  f(a, b, mode="check")
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, overload

from tilelang.diagnostics import Diagnostics, TileError, without_own_frames

if TYPE_CHECKING:
    from tilelang.binding import Binder, Call
    from tilelang.driver import Compiled
    from tilelang.frontend import ast
    from tilelang.frontend.env import Env
    from tilelang.frontend.signature import Signature, Specialization
    from tilelang.ir.core import Module
    from tilelang.target import Target

MODES = ("fast", "check", "interpret")
_mode: contextvars.ContextVar[str | None] = contextvars.ContextVar("tilelang_mode", default=None)
_overflow: contextvars.ContextVar[bool] = contextvars.ContextVar("tilelang_overflow", default=False)


class CacheInfo(NamedTuple):
    """Of one kernel: calls that found compiled code, calls that compiled, specialisations held."""

    hits: int
    misses: int
    size: int


@contextlib.contextmanager
def mode(name: str, *, overflow: bool = False) -> Iterator[None]:
    """All kernel calls inside run in that mode: fast, check or interpret. overflow: check mode also reports integers that wrap."""
    tokens = _mode.set(_known_mode(name)), _overflow.set(overflow)
    try:
        yield
    finally:
        _mode.reset(tokens[0])
        _overflow.reset(tokens[1])


def _known_mode(name: str) -> str:
    if name not in MODES:
        raise ValueError(f"mode is {name!r}, expected one of {', '.join(MODES)}")
    return name


class Kernel:
    """A function of the language. Call it with NumPy arrays, or with CPU torch tensors; it is compiled for their dtypes on the first call.

    Keywords of a call beside the function's own: out= (array, or tuple of arrays, for the results), mode= (fast, check, interpret),
    threads= (how many at most). Raises TileError for anything that does not fit, and for failed asserts and accesses out of bounds.
    """

    def __init__(self, function: ast.Function, env: Env) -> None:
        self.function = function
        self.env = env
        self.__name__ = function.name
        self.__doc__ = function.doc
        self._compiled: dict[tuple[Any, ...], Compiled] = {}
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def __repr__(self) -> str:
        return f"<tile kernel {self.__name__}>"

    @functools.cached_property
    def signature(self) -> Signature:
        """Parameters, results, symbolic dims and tunables. Raises TileError when the declaration has errors."""
        from tilelang.frontend.signature import Signature

        diagnostics = Diagnostics()
        signature = Signature.of(self.function, self.env, diagnostics)
        diagnostics.raise_if_errors()
        return signature

    @functools.cached_property
    def _binder(self) -> Binder:
        from tilelang.binding import Binder

        return Binder(self.signature, self.function.name_span)

    def __tile_function__(self) -> tuple[ast.Function, Env]:
        """How other kernels see this one: as a helper that is inlined."""
        return self.function, self.env

    # -- calling

    def __call__(self, *args: Any, out: Any = None, mode: str | None = None, threads: int | None = None, **kwargs: Any) -> Any:
        try:
            return self._call(args, kwargs, out, mode, threads)
        except TileError as error:
            raise error.with_traceback(without_own_frames(error)) from None

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, mode: str | None, threads: int | None) -> Any:
        how = _known_mode(mode or _mode.get() or os.environ.get("TILELANG_MODE") or "fast")
        call = self._binder.bind(args, kwargs, out)
        if how == "fast":
            from tilelang.runtime.threads import thread_count

            compiled = self._specialised(call.spec)
            compiled(call.values, thread_count() if threads is None else max(1, threads))
        elif how == "interpret":
            self._interpret(call)
        else:
            self._check(call)
        for copy, original in call.write_back:
            original[...] = copy
        if not call.results:
            return None
        return tuple(call.results) if self.signature.several else call.results[0]

    def _specialised(self, spec: Specialization) -> Compiled:
        key = spec.key
        compiled = self._compiled.get(key)
        if compiled is not None:
            self._hits += 1
            return compiled
        with self._lock:  # two threads that need the same code compile it once
            compiled = self._compiled.get(key)
            if compiled is None:
                self._misses += 1
                compiled = self._compiled[key] = self.compile(spec)
        return compiled

    def _interpret(self, call: Call) -> None:
        interpret(self.build(call.spec), self.__name__, arrays_of(call))

    def _check(self, call: Call) -> None:
        from tilelang.runtime.check import check

        module = self.build(call.spec, level="tile")
        reports = check(module, self.__name__, arrays_of(call), overflow=_overflow.get())
        if reports:
            raise TileError(reports)

    # -- compiling and looking

    def bind(self, *args: Any, out: Any = None, **kwargs: Any) -> Call:
        """Checks arguments as a call does, and says which specialisation they need, without running anything."""
        return self._binder.bind(args, kwargs, out)

    def specialise(self, **choices: Any) -> Specialization:
        """A specialisation without arguments: dtype parameters and compile-time values by keyword, defaults for the rest."""
        from tilelang.frontend.signature import Specialization

        values = self._binder.constant_values(choices)
        dtypes = {name: values.pop(name, domain[0]) for name, domain in self.signature.dtype_params.items()}
        unknown = choices.keys() - values.keys() - dtypes.keys()
        if unknown:
            raise TypeError(f"{self.__name__} has no compile-time parameter '{min(unknown)}'")
        return Specialization(dtypes=dtypes, constants=values)

    def build(self, spec: Specialization | None = None, level: Literal["source", "tensor", "tile", "mem", "vec"] = "source", target: Target | None = None) -> Module:
        """The IR of one specialisation (by default the first of each choice) at a level; 'source': as the frontend makes it."""
        from tilelang.driver import LEVELS, at_level
        from tilelang.frontend.builder import build
        from tilelang.target import host_target

        diagnostics = Diagnostics()
        module = build(self.function, self.env, spec or self.specialise(), diagnostics)
        diagnostics.raise_if_errors()
        if level != "source" and LEVELS.index(level) > LEVELS.index(module.level):
            at_level(module, level, target or host_target())
        return module

    def compile(self, spec: Specialization | None = None, target: Target | None = None) -> Compiled:
        """Native code for one specialisation."""
        from tilelang.driver import compile_function
        from tilelang.target import host_target

        return compile_function(self.build(spec), self.__name__, target or host_target())

    def ir(self, level: Literal["source", "tensor", "tile", "mem", "vec"] = "source", spec: Specialization | None = None, generic: bool = False) -> str:
        """The IR as text."""
        from tilelang.ir.text import print_module

        return print_module(self.build(spec, level), generic=generic)

    def source(self, kind: Literal["llvm", "asm"] = "llvm", spec: Specialization | None = None, target: Target | None = None) -> str:
        """What the backend makes of the kernel: LLVM IR, or assembly."""
        from tilelang.backends.cpu.compile import assembly_of
        from tilelang.backends.cpu.emit import emit
        from tilelang.target import host_target

        target = target or host_target()
        module = self.build(spec, "vec", target)
        return emit(module, target).text if kind == "llvm" else assembly_of(module, target)

    def cache_info(self) -> CacheInfo:
        """How often calls found compiled code."""
        return CacheInfo(self._hits, self._misses, len(self._compiled))


def interpret(module: Module, name: str, arrays: list[Any]) -> None:
    """Runs a function as the frontend made it, on its kernel arguments; results are written to the last of them. A whole-tensor function is run
    as such, so that its prints and breakpoints see the user's values."""
    from tilelang.dialects.func import functions
    from tilelang.driver import at_level
    from tilelang.runtime.interp import Interpreter
    from tilelang.target import host_target

    function = next(f for f in functions(module) if f.sym_name == name)
    if module.level != "tensor" or "inout" in function.roles:
        Interpreter(at_level(module, "tile", host_target())).run(name, arrays)
        return
    count = len(function.args)
    for array, result in zip(arrays[count:], Interpreter(module).run(name, arrays[:count])):
        array[...] = result


def arrays_of(call: Call) -> list[Any]:
    """The values of a call as NumPy arrays and numbers, for the interpreters."""
    from tilelang.runtime.abi import ArrayInfo, as_numpy

    return [as_numpy(v) if isinstance(v, ArrayInfo) else v for v in call.values]


@overload
def tile(function: Callable[..., Any], /) -> Kernel: ...
@overload
def tile() -> Callable[[Callable[..., Any]], Kernel]: ...
def tile(function: Callable[..., Any] | None = None, /) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Makes a Python function a kernel. Its source is read now; errors in it are reported when it is first called or looked at, syntax at once."""
    scope = sys._getframe(1).f_locals
    if function is None:
        return lambda f: _kernel_of(f, scope)
    return _kernel_of(function, scope)


def _kernel_of(function: Callable[..., Any], scope: dict[str, Any]) -> Kernel:
    from tilelang.frontend.env import PythonEnv
    from tilelang.frontend.python import read_function

    try:
        read = read_function(cast(Any, function), scope)
    except TileError as error:
        raise error.with_traceback(without_own_frames(error)) from None
    kernel = Kernel(read.function, PythonEnv(read.names, cast(Any, function).__globals__))
    functools.update_wrapper(cast(Any, kernel), function, updated=())
    return kernel


class Library:
    """The functions of one .tile file, as attributes."""

    def __init__(self, path: str, kernels: dict[str, Kernel]) -> None:
        self.__path = path
        self.__kernels = kernels
        self.__dict__.update(kernels)

    def __dir__(self) -> list[str]:
        return sorted(self.__kernels)

    def __getattr__(self, name: str) -> Kernel:
        from tilelang.diagnostics import nearest

        near = nearest(name, self.__kernels)
        raise AttributeError(f"{self.__path} has no function '{name}'" + (f"; did you mean '{near}'?" if near else ""))

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.__kernels.values())

    def __repr__(self) -> str:
        return f"<tile library {self.__path}: {', '.join(self.__kernels)}>"


@overload
def load(path: str | os.PathLike[str]) -> Library: ...
@overload
def load(path: Any, *, pad: Any) -> Any: ...
def load(path: Any, *, pad: Any = None) -> Any:
    """Reads a .tile file and gives its functions as kernels. Raises TileError for errors in it, OSError when it cannot be read.

    Inside a kernel `load(x[i - 1], pad=0)` reads a place of a tensor, and pad outside of it."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"load takes the path of a .tile file, not {type(path).__name__}; load(place, pad=...) works only inside a kernel")
    return load_text(Path(path).read_text(encoding="utf-8"), os.fspath(path))


def load_text(text: str, path: str = "<text>") -> Library:
    """As load, from text; `path` is for messages and relative imports."""
    from tilelang.diagnostics import Source
    from tilelang.frontend.env import TextEnv
    from tilelang.frontend.text import parse_module

    diagnostics = Diagnostics()
    module = parse_module(Source(path, text), diagnostics)
    diagnostics.raise_if_errors()
    env = TextEnv(module, diagnostics)
    diagnostics.raise_if_errors()
    return Library(path, {f.name: Kernel(f, env) for f in module.functions})
