"""What names mean outside of a function: the language's own names, those of a .tile module, those around a Python function."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tilelang.diagnostics import Diagnostics, Note, Source, TileError, nearest
from tilelang.dtypes import DTYPES, Dim, InOut, Symmetric, Tensor, dims, dtype, dtypes, scalar_name, tune
from tilelang.dtypes import DtypeParam as DtypeChoice
from tilelang.frontend import ast
from tilelang.frontend.values import POISON, Builtin, Const, DType, DtypeParam, Function, Index, Namespace, Num, Tile, Tuple, TypeForm, Val
from tilelang.ir import index as ix
from tilelang.ir.types import Scalar

LOOPS = ("grid", "pipelined", "range", "static_range", "parallel")
TYPE_FORMS = ("Tensor", "InOut", "Symmetric", "tune", "dims", "dtypes", "dtype", "int", "float", "bool", "str", "tuple")


class Unsupported(Exception):
    """A Python object that a program cannot use; the message says why."""


class Env:
    """Names outside of a function. This one has the language's own."""

    def lookup(self, name: str) -> Val | None:
        """The value of a name, None when it is not defined. Raises Unsupported for an object without a meaning here."""
        return language_name(name)

    def names(self) -> Iterable[str]:
        """All names, for suggestions."""
        return language_names()


_CACHE: dict[str, Val] = {}


def language_name(name: str) -> Val | None:
    if not _CACHE:
        _fill()
    return _CACHE.get(name)


def language_names() -> Iterable[str]:
    if not _CACHE:
        _fill()
    return _CACHE


def _fill() -> None:
    from tilelang.frontend import functions  # noqa: F401  (fills the table)
    from tilelang.frontend.calls import TABLE

    _CACHE.update((name, Builtin(name)) for name in (*TABLE, *LOOPS))
    _CACHE.update((name, DType(Scalar(cls.ir_name))) for name, cls in DTYPES.items())
    _CACHE.update((name, TypeForm(name)) for name in TYPE_FORMS)
    _CACHE.update(inf=Const(math.inf), nan=Const(math.nan), pi=Const(math.pi))


# -- .tile text ----------------------------------------------------------------------------------------------------


class TextEnv(Env):
    """The names of a .tile module. Imports are read when it is made; constants are computed when they are first used."""

    def __init__(self, module: ast.Module, diagnostics: Diagnostics, loader: Loader | None = None) -> None:
        self.module = module
        self.diagnostics = diagnostics
        self.values: dict[str, Val] = {}
        self.constants = {c.name: c for c in module.constants}
        self.running: set[str] = set()
        for function in module.functions:
            self.values[function.name] = Function(function, self)
        for dim in module.dims:
            self.values[dim.name] = Index(ix.sym(dim.symbol))
        for param in module.dtypes:
            self.values[param.name] = DtypeParam(param.name, self._options(param))
        loader = loader or Loader(diagnostics)
        loader.envs.setdefault(_key(module.source.path), self)
        for item in module.imports:
            self._import(item, loader)

    def _options(self, param: ast.DtypeParam) -> tuple[Scalar, ...]:
        options: list[Scalar] = []
        for node in param.options:
            value = self.lookup(node.id) if isinstance(node, ast.Name) else None
            if isinstance(value, DType):
                options.append(value.scalar)
            else:
                self.diagnostics.error("wrong-type", node.span, what="an option of dtypes", found=f"'{node.span.text}'", expected="a dtype such as f32")
        return tuple(options)

    def _import(self, item: ast.Import, loader: Loader) -> None:
        env = loader.load(item, self.module.source)
        for n in item.names:
            name = n.alias or n.name
            value = env.lookup(n.name) if env is not None and env.own(n.name) else None
            if env is not None and value is None:
                near = nearest(n.name, env.own_names())
                self.diagnostics.error(
                    "import-not-found", n.span, help=f"did you mean {near!r}?" if near else None, module=item.module or ".", why=f"has no {n.name!r}"
                )
            self.values[name] = value if value is not None else POISON

    def own(self, name: str) -> bool:
        return name in self.values or name in self.constants

    def own_names(self) -> list[str]:
        return [*self.values, *self.constants]

    def lookup(self, name: str) -> Val | None:
        if name not in self.values and name in self.constants:
            self.values[name] = self._constant(self.constants[name])
        found = self.values.get(name)
        return found if found is not None else language_name(name)

    def _constant(self, node: ast.Constant) -> Val:
        if node.name in self.running:
            self.diagnostics.error("constant-error", node.span, what=f"the constant '{node.name}' needs its own value")
            return Const(1)
        self.running.add(node.name)
        try:
            return evaluate(node.value, self, self.diagnostics)
        finally:
            self.running.discard(node.name)

    def names(self) -> Iterable[str]:
        return [*self.own_names(), *language_names()]


class Loader:
    """Reads imported .tile files, each once; refuses files that import each other."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.envs: dict[str, TextEnv] = {}
        self.loading: list[str] = []

    def load(self, item: ast.Import, source: Source) -> TextEnv | None:
        path = self._path(item, source)
        if path is None:
            return None
        key, here = _key(str(path)), _key(source.path)
        chain = [*self.loading, here]
        if key in chain:
            shown = " -> ".join(Path(p).name for p in [*chain[chain.index(key) :], key])
            self.diagnostics.error("import-cycle", item.span, chain=shown)
            return None
        if key in self.envs:
            return self.envs[key]
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            why = "is not UTF-8 text" if isinstance(e, UnicodeDecodeError) else "cannot be read" if path.exists() else f"is not there: no file {path.name}"
            self.diagnostics.error("import-not-found", item.span, [Note(f"looked for {path}")], module="." * item.level + item.module, why=why)
            return None
        from tilelang.frontend.text import parse_module

        self.loading.append(here)
        try:
            return TextEnv(parse_module(Source(str(path), text), self.diagnostics), self.diagnostics, self)
        finally:
            self.loading.pop()

    def _path(self, item: ast.Import, source: Source) -> Path | None:
        parts = item.module.split(".") if item.module else []
        if item.level:
            folder = Path(source.path).parent
            for _ in range(item.level - 1):
                folder = folder.parent
            return folder.joinpath(*parts).with_suffix(".tile") if parts else self._unknown(item, "names no file")
        if parts[:2] == ["tilelang", "lib"] and len(parts) > 2:
            return Path(__file__).resolve().parent.parent.joinpath("lib", *parts[2:]).with_suffix(".tile")
        return self._unknown(item, "cannot be imported into .tile text")

    def _unknown(self, item: ast.Import, why: str) -> None:
        help = "import from tilelang.lib.<name>, or from a file beside this one: from .name import f"
        self.diagnostics.error("import-not-found", item.span, help=help, module="." * item.level + item.module, why=why)


def _key(path: str) -> str:
    try:
        return str(Path(path).resolve())
    except (OSError, ValueError):
        return path


# -- Python --------------------------------------------------------------------------------------------------------


class PythonEnv(Env):
    """The closure and globals of a Python function, as far as it uses them. later: the globals themselves, for names that
    were not set when the function was read, such as those of functions further down."""

    def __init__(self, values: Mapping[str, Any], later: Mapping[str, Any]) -> None:
        self.python = values
        self.later = later
        self.values: dict[str, Val] = {}

    def lookup(self, name: str) -> Val | None:
        if name not in self.values:
            layer = self.python if name in self.python else self.later
            if name not in layer:
                return language_name(name)
            try:
                self.values[name] = python_value(layer[name], name)
            except (Unsupported, TileError):
                raise
            except Exception as e:  # an object that does not let itself be looked at
                raise Unsupported(f"'{name}' raised {type(e).__name__} when it was looked at") from e
        return self.values[name]

    def names(self) -> Iterable[str]:
        return [*self.python, *self.later, *language_names()]


def python_value(x: Any, name: str) -> Val:
    """The meaning of a Python object in a program. Raises Unsupported when it has none."""
    if x is None or isinstance(x, (bool, int, float, str)):
        return Const(x if type(x) in (bool, int, float, str) or x is None else _plain(x))
    if isinstance(x, tuple):
        return Tuple(tuple(python_value(item, name) for item in x))
    if isinstance(x, Dim):
        return Index(ix.parse(x.symbol))
    if isinstance(x, DtypeChoice):
        return DtypeParam(name, tuple(Scalar(o.ir_name) for o in x.options))
    if x is dtype:
        return TypeForm("dtype")
    scalar = scalar_name(x)
    if scalar is not None:
        return DType(Scalar(scalar))
    if any(x is form for form in (Tensor, InOut, Symmetric, tune, dims, dtypes)):
        return TypeForm(x.__name__)
    if isinstance(x, ModuleType):
        return Namespace(x, x.__name__ in ("tilelang", "tilelang.api", "tilelang.dtypes"))
    make = getattr(x, "__tile_function__", None)
    if make is not None:
        tree, env = make()
        return Function(tree, env)
    return _callable(x, name)


def _plain(x: Any) -> Any:
    """A number or string of a subclass (an enum's member, a NumPy scalar) as one of Python's own."""
    base = next(t for t in (bool, int, float, str) if isinstance(x, t))
    return base(x)


def _callable(x: Any, name: str) -> Val:
    owner = getattr(x, "__module__", None)
    own = getattr(x, "__name__", name)
    # `load` is one name for two things: tilelang.load(path) outside of kernels, load(place, pad=...) inside.
    if owner in ("tilelang.api", "tilelang.kernel") or (owner in ("builtins", "math") and getattr(builtins, own, getattr(math, own, None)) is x):
        found = language_name(own)
        if found is not None:
            return found
    item = getattr(x, "item", None)
    if type(x).__module__.partition(".")[0] in ("numpy", "ml_dtypes") and item is not None and getattr(x, "ndim", 1) == 0:
        return python_value(item(), name)
    if isinstance(x, FunctionType):
        raise Unsupported(f"'{name}' is a plain Python function; put @tile in front of it, so that kernels can call it")
    if type(x).__module__.partition(".")[0] in ("numpy", "torch"):
        raise Unsupported(f"'{name}' is an array; pass it to the kernel as a parameter")
    raise Unsupported(f"'{name}' is a Python object of type {type(x).__name__}; kernels use numbers, bools, strings, dtypes, dims and tuples of them")


def python_function(fn: FunctionType, scope: Mapping[str, Any] | None = None) -> tuple[ast.Function, PythonEnv]:
    """The tree of a Python function and the names around it. Raises TileError as read_function does."""
    from tilelang.frontend.python import read_function

    read = read_function(fn, scope)
    return read.function, PythonEnv(read.names, fn.__globals__)


def evaluate(node: ast.Expr, env: Env, diagnostics: Diagnostics, names: Mapping[str, Val] | None = None) -> Val:
    """The value of a compile-time expression, POISON after reporting an error. `names` come before the environment's."""
    from tilelang.frontend.statements import FunctionBuilder

    builder = FunctionBuilder.alone(diagnostics, env, dict(names or {}))
    value = builder.attempt(node)
    if isinstance(value, (Num, Tile)):
        diagnostics.error("not-constant", node.span, what="this", value=f"'{node.span.text}'")
        return POISON
    return value
