"""From a checked module to code that runs: the passes, the emitter, the loader. What `@tile`, `tilec` and the tests all go through."""

from __future__ import annotations

import ctypes
import gc
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilelang.dialects.func import Func, functions
from tilelang.ir.core import Module
from tilelang.ir.types import BufferType, Scalar, TensorType
from tilelang.runtime import abi

if TYPE_CHECKING:
    from tilelang.backends.cpu.emit import ErrorEntry
    from tilelang.ir.passes import Instrumentation
    from tilelang.target import Target

LEVELS = ("tensor", "tile", "mem", "vec")


@contextmanager
def without_collection() -> Iterator[None]:
    """No cyclic garbage collection inside: a compilation makes many objects that all live to its end, and the collector, which their number
    sets off, took half of the time to find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def lower(module: Module, target: Target, instrumentation: Instrumentation | None = None, pipeline: str | None = None) -> Module:
    """Runs a pipeline (by default the target's whole one) over the module, in place, and returns it.

    Raises TileError for what the user can mend, CompilerBug for what we have to."""
    from tilelang.ir.passes import PassContext, PassManager, parse_pipeline
    from tilelang.passes.pipelines import cpu_pipeline

    passes = parse_pipeline(cpu_pipeline() if pipeline is None else pipeline)
    context = PassContext(target)
    with without_collection():
        PassManager(passes, instrumentation).run(module, context)
    context.diagnostics.raise_if_errors()
    return module


def at_level(module: Module, level: str, target: Target, instrumentation: Instrumentation | None = None) -> Module:
    """The module lowered as far as `level` (one of LEVELS), and no further; in place."""
    from tilelang.passes.pipelines import pipeline_to

    if LEVELS.index(module.level) > LEVELS.index(level):
        raise ValueError(f"the module is at level {module.level}, which is below {level}")
    return lower(module, target, instrumentation, pipeline_to(level, module.level))


def arguments(function: Func) -> list[abi.TensorArg | abi.ScalarArg]:
    """The kernel arguments of a tensor- or tile-level function, in order: the parameters, then the results."""
    out: list[abi.TensorArg | abi.ScalarArg] = []
    for arg, role in zip(function.args, function.roles):
        if isinstance(arg.type, (BufferType, TensorType)):
            out.append(abi.TensorArg(arg.type.element.name, len(arg.type.shape), role != "in"))
        elif isinstance(arg.type, Scalar):
            out.append(abi.ScalarArg(arg.type.name))
        else:
            raise TypeError(f"parameter '{arg.hint}' has type {arg.type}, which no kernel argument has")
    return out + [abi.TensorArg(t.element.name, len(t.shape), True) for t in function.results_]


@dataclass
class Compiled:
    """Native code of one specialisation of one function.

    signature: its kernel arguments. errors: what the numbers it may return stand for. object: the relocatable code."""

    name: str
    signature: list[abi.TensorArg | abi.ScalarArg]
    errors: tuple[ErrorEntry, ...]
    llvm: str
    object: bytes
    _native: Any = None
    _entry: Any = None
    _slots: int = field(default=0)

    def __post_init__(self) -> None:
        from tilelang.backends.cpu.emit import ERROR_SLOTS
        from tilelang.backends.cpu.engine import load_object

        self._native = load_object(self.object)
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(self._native.address("kernel"))
        self._slots = abi.slot_count(self.signature)
        self._spare = ERROR_SLOTS
        self._type = ctypes.c_int64 * (self._slots + ERROR_SLOTS)
        self._arguments = ctypes.c_int64 * self._slots

    def __call__(self, values: Sequence[Any], threads: int) -> None:
        """Runs the kernel on arrays and scalars. Raises TileError when an assert or a bounds check of the program fails."""
        slots = self._type()
        owners = abi.pack(self.signature, values, self._arguments.from_buffer(slots))
        code = self._entry(ctypes.addressof(slots), threads)
        del owners
        if code:
            self._raise(code, slots[self._slots :])

    def _raise(self, code: int, spare: list[int]) -> None:
        from tilelang.runtime.failure import KernelError, assertion

        entry = self.errors[code - 1]
        values = [_spare_value(t, bits) for t, bits in zip(entry.types, spare)]
        raise KernelError([assertion(entry.slug, entry.message, entry.span, values)])


def _spare_value(type_text: str, bits: int) -> Any:
    """A value that a failing assert left in a spare slot."""
    if Scalar(type_text).is_float:
        return struct.unpack("=d", struct.pack("=q", bits))[0]
    if type_text == "bool":
        return bool(bits)
    return bits % 2**64 if type_text == "u64" else bits


def compile_function(module: Module, name: str, target: Target, instrumentation: Instrumentation | None = None) -> Compiled:
    """Compiles one function of a tensor- or tile-level module for the CPU. The module is lowered in place."""
    from tilelang.backends.cpu.compile import compile_module

    function = next(f for f in functions(module) if f.sym_name == name)
    signature = arguments(function)
    lower(module, target, instrumentation)
    compiled = compile_module(module, target)
    return Compiled(name, signature, compiled.emitted.errors, compiled.emitted.text, compiled.object)
