"""Source files of the command line: reading them, choosing a function, the choices of --set, building a module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilelang.commands.options import pairs, suggest, usage
from tilelang.diagnostics import Diagnostics, TileError
from tilelang.kernel import Kernel

if TYPE_CHECKING:
    from types import ModuleType

    from tilelang.frontend.signature import Param, Signature, Specialization
    from tilelang.ir.core import Module


class SourceFile(click.Path):
    """A file that is there, or '-' for stdin."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True, allow_dash=True)


def read_text(path: str) -> str:
    """The text of a file, or of stdin."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.FileError(path, f"is not UTF-8 text (byte {error.start})") from None


def shown(path: str) -> str:
    """The name of a file in messages."""
    return "<stdin>" if path == "-" else path


def read_program(path: str) -> dict[str, Kernel]:
    """The kernels of a .tile file, a Python file or stdin (.tile text), in the order of the source. Raises TileError for errors in it."""
    if path.endswith(".py"):
        module = import_file(path)
        found = {name: value for name, value in vars(module).items() if isinstance(value, Kernel)}
        return {k.__name__: k for k in found.values() if getattr(k, "__module__", module.__name__) == module.__name__} or found
    from tilelang.kernel import load_text

    return {kernel.__name__: kernel for kernel in load_text(read_text(path), shown(path))}


def import_file(path: str) -> ModuleType:
    """A Python file as a module, as part of its package when it lies in one. What goes wrong in it is an error of the program."""
    file = Path(path).resolve()
    root, parts = file.parent, [file.stem]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    name = ".".join(parts)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file):
        return loaded
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        if len(parts) > 1:
            module = importlib.import_module(name)
            if getattr(module, "__file__", None) == str(file):
                return module
        # Not in a package, or in one whose name is taken: the file under a name of its own.
        spec = importlib.util.spec_from_file_location(f"_tilec_{file.stem}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    except (TileError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: the file is not run as a program
        raise click.ClickException(f"{path} cannot be imported{_where(error, file)}: {type(error).__name__}: {error}") from None


def _where(error: BaseException, file: Path) -> str:
    """The line of the file at which it went wrong."""
    import traceback

    if isinstance(error, SyntaxError):
        return ""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    return f" (line {lines[-1]})" if lines else ""


def is_public(kernel: Kernel) -> bool:
    """A function to call from outside: no name with an underscore in front, every parameter declared."""
    return not kernel.__name__.startswith("_") and all(p.annotation is not None for p in kernel.function.params)


def choose(kernels: dict[str, Kernel], path: str, name: str | None) -> Kernel:
    """The function a command works on."""
    if name is not None:
        if name not in kernels:
            usage(f"{shown(path)} has no function '{name}'{suggest(name, kernels)}")
        return kernels[name]
    public = [k for k in kernels.values() if is_public(k)]
    if not public:
        what = "@tile kernels" if path.endswith(".py") else "functions to call"
        raise click.ClickException(f"{shown(path)} has no {what}" + (f", only helpers: {', '.join(kernels)}" if kernels else ""))
    like_file = next((k for k in public if k.__name__ == Path(path).stem), None)
    return like_file or public[-1]


def names_to_set(signature: Signature) -> list[str]:
    return [*(p.name for p in signature.statics), *signature.dtype_params]


def choices_of(signature: Signature, texts: Sequence[str]) -> dict[str, Any]:
    """The values of --set, by name. Wrong names and values are wrong usage."""
    out: dict[str, Any] = {}
    for name, text in pairs(texts, "--set").items():
        param = signature.param(name)
        if name in signature.dtype_params:
            out[name] = _dtype_choice(name, text, signature)
        elif param is not None and param.role == "static":
            out[name] = _value(param, text)
        else:
            known = names_to_set(signature)
            usage(f"--set: '{signature.name}' has no compile-time parameter '{name}'{suggest(name, known) or '; it has none at all'}")
    return out


def _dtype_choice(name: str, text: str, signature: Signature) -> Any:
    domain = signature.dtype_params[name]
    found = next((s for s in domain if s.name == text), None)
    if found is None:
        usage(f"--set {name}={text}: it is one of {', '.join(s.name for s in domain)}")
    return found


def _value(param: Param, text: str) -> Any:
    from tilelang.ir.types import Scalar

    try:
        if param.kind == "int":
            return int(text, 0)
        if param.kind == "float":
            return float(text)
        if param.kind == "bool":
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if param.kind == "dtype":
            return Scalar("bool" if text == "bool_" else text)
        return text
    except (ValueError, KeyError):
        what = {"int": "an integer", "float": "a number", "bool": "true or false", "dtype": "a dtype such as f32"}[param.kind]
        usage(f"--set {param.name}={text}: '{param.name}' is {what}")


def require_constants(signature: Signature, choices: dict[str, Any]) -> None:
    """Compile-time parameters without a default must be set."""
    missing = [p.name for p in signature.statics if not p.has_default and p.name not in choices]
    if missing:
        usage(f"'{signature.name}' needs a value: " + " ".join(f"--set {name}=..." for name in missing))


def specialise(kernel: Kernel, texts: Sequence[str]) -> Specialization:
    """The specialisation that --set asks for, defaults for the rest."""
    choices = choices_of(kernel.signature, texts)
    require_constants(kernel.signature, choices)
    return kernel.specialise(**choices)


def build(kernel: Kernel, spec: Specialization, diagnostics: Diagnostics) -> Module:
    """The module of one specialisation, as the frontend makes it. Raises TileError; warnings stay in `diagnostics`."""
    from tilelang.frontend.builder import build

    module = build(kernel.function, kernel.env, spec, diagnostics)
    diagnostics.raise_if_errors()
    return module
