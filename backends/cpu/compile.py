"""A vec-level module to a native object, with what is needed to call it and to explain its failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelang.backends.cpu.emit import EmittedModule, emit
from tilelang.backends.cpu.engine import NativeModule, assembly, compile_object, load_object

if TYPE_CHECKING:
    from tilelang.ir.core import Module
    from tilelang.target import Target


@dataclass(frozen=True)
class CompiledModule:
    """object: relocatable native code for the target. emitted: its LLVM IR, C symbols and error table."""

    object: bytes
    emitted: EmittedModule

    def load(self) -> NativeModule:
        """Links the object into this process; `emitted.symbols` name its entries."""
        return load_object(self.object)


def compile_module(module: Module, target: Target, opt: int = 2) -> CompiledModule:
    """Compiles a vec-level module. Raises VerifyError (an op without translation) or EngineError (LLVM refuses the IR): compiler bugs both."""
    emitted = emit(module, target)
    return CompiledModule(compile_object(emitted.text, target, opt=opt), emitted)


def assembly_of(module: Module, target: Target, opt: int = 2) -> str:
    """The assembly listing of a vec-level module."""
    return assembly(emit(module, target).text, target, opt=opt)
