"""LLVM IR text to native code: compile to an object, list the assembly, load an object into this process.

Everything goes through llvmlite.binding, which is imported on first use. Compiling parses into a private LLVM context, so nothing
stays behind. Objects are linked by ORC's JITLink, which puts a module's sections into one allocation (small code model, no range
trouble) and reports an unresolved symbol instead of ending the process.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tilelang.target import Target

Passes = Literal["none", "O1", "O2", "O3"]

# Held for every use of LLVM here, and over a fork so that the child never inherits a half-done LLVM operation.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class EngineError(Exception):
    """LLVM refused the IR or the object: a bug of the compiler, never of the user's program.

    message: what LLVM said. lines: the offending IR lines, numbered from 1, with some context ("" when unknown).
    """

    def __init__(self, message: str, lines: str = "") -> None:
        super().__init__(f"{message}\n{lines}" if lines else message)
        self.message = message
        self.lines = lines


@functools.cache
def _llvm() -> Any:
    """llvmlite.binding, with all targets of this LLVM initialised once."""
    import ctypes.util

    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # expf and friends must be found by the process-wide lookup even where the interpreter itself was not linked against libm.
    if os.name == "posix" and (libm := ctypes.util.find_library("m")):
        ctypes.CDLL(libm, mode=ctypes.RTLD_GLOBAL)
    return llvm


@functools.lru_cache(maxsize=64)
def _machine(cpu: str, features: str, triple: str, opt: int) -> Any:
    # The CPU is always given: a generic machine turns 64-byte vectors into scalar code. PIC and the small code model suit JITLink.
    try:
        chosen = _llvm().Target.from_triple(triple)
    except RuntimeError as error:
        raise EngineError(f"this LLVM has no code generator for {triple}: {error}") from error
    return chosen.create_target_machine(cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small")


def _machine_for(target: Target, opt: int, passes: Passes) -> Any:
    if target.kind != "cpu":
        raise ValueError(f"target {target.name} is not a CPU")
    if opt not in (0, 1, 2, 3):
        raise ValueError(f"opt={opt}: expected 0 to 3")
    if passes not in ("none", "O1", "O2", "O3"):
        raise ValueError(f"passes={passes!r}: expected none, O1, O2 or O3")
    return _machine(target.llvm_cpu, target.llvm_features, target.triple, opt)


def _excerpt(ir_text: str, numbers: list[int], around: int = 2) -> str:
    """The given lines (from 1) with `around` lines of context, numbered; the offending ones are marked with `>`."""
    lines = ir_text.splitlines()
    shown = sorted({i for n in numbers for i in range(max(1, n - around), min(len(lines), n + around) + 1)})
    return "\n".join(f"{'>' if i in numbers else ' '}{i:6} | {lines[i - 1]}" for i in shown)


def _located(ir_text: str, message: str) -> EngineError:
    """An EngineError whose lines are those LLVM's message points at: by number (parser), or by quoting them (verifier)."""
    message = message.strip()
    numbers = [int(n) for n in re.findall(r"<string>:(\d+):\d+", message)]
    if not numbers:
        # The verifier quotes instructions with printed operands, so compare what precedes metadata, whitespace normalised.
        quoted = {" ".join(line.split()) for line in message.splitlines()} - {""}
        numbers = [i for i, line in enumerate(ir_text.splitlines(), 1) if " ".join(line.split(";")[0].split()) in quoted]
        if not numbers and (named := re.search(r"@([\w.$-]+)", message)):
            define = re.compile(rf"^define\b.*@{re.escape(named[1])}\(")
            numbers = [i for i, line in enumerate(ir_text.splitlines(), 1) if define.match(line)]
    return EngineError(message, _excerpt(ir_text, numbers[:8]))


@contextmanager
def _prepared(ir_text: str, machine: Any, target: Target, passes: Passes) -> Iterator[Any]:
    """The verified (and optimised) module. It is freed on leaving, module before context: left to the garbage collector, which
    frees in any order what an exception's traceback kept alive, this would crash."""
    llvm = _llvm()
    context = llvm.create_context()
    module = None
    try:
        try:
            module = llvm.parse_assembly(ir_text, context)
            module.triple = module.triple or target.triple
            module.data_layout = module.data_layout or str(machine.target_data)
            module.verify()
        except RuntimeError as error:
            raise _located(ir_text, str(error)) from error
        if passes != "none":
            options = llvm.create_pipeline_tuning_options(speed_level=int(passes[1]))
            options.loop_vectorization = options.slp_vectorization = passes != "O1"
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
        yield module
    finally:
        if module is not None:
            module.close()
        context.close()


def compile_object(ir_text: str, target: Target, *, opt: int = 2, passes: Passes = "none") -> bytes:
    """The native object of an LLVM module for `target`. `opt` is the code generator's level (0 spills, 2 and 3 are alike).

    `passes` runs LLVM's optimiser first; IR that is already vectorised and unrolled does not gain from it. Raises EngineError.
    An intrinsic the target does not have ends the process inside LLVM: legality is the caller's to check.
    """
    with _lock:
        machine = _machine_for(target, opt, passes)
        with _prepared(ir_text, machine, target, passes) as module:
            return machine.emit_object(module)


def assembly(ir_text: str, target: Target, *, opt: int = 2, passes: Passes = "none") -> str:
    """The assembly listing of an LLVM module for `target`. Raises EngineError."""
    with _lock:
        machine = _machine_for(target, opt, passes)
        with _prepared(ir_text, machine, target, passes) as module:
            return machine.emit_assembly(module)


class NativeModule:
    """Native code loaded into this process. Addresses are valid as long as this object lives."""

    __slots__ = ("name", "_addresses", "_jit", "_tracker")

    def __init__(self, name: str, jit: Any, tracker: Any, addresses: dict[str, int]) -> None:
        self.name = name
        self._jit = jit
        self._tracker = tracker  # unloads the code when it is collected
        self._addresses = addresses

    def address(self, symbol: str) -> int:
        """The address of a function or global that the object defines. Raises EngineError when there is none of that name."""
        found = self._addresses.get(symbol)
        if found is None:
            with _lock:
                try:
                    found = self._jit.lookup(self.name, symbol)[symbol]
                except RuntimeError as error:
                    raise EngineError(f"no symbol {symbol!r} in native module: {error}") from error
            self._addresses[symbol] = found
        return found


def _elf_symbols(data: bytes) -> tuple[list[str], list[str]] | None:
    """(defined, undefined) global symbols of a little-endian ELF64 object; None for another format."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    defined: list[str] = []
    undefined: list[str] = []
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        names = sections[section[6]][4]
        for offset in range(section[4], section[4] + section[5], 24):
            name, info, _, index = struct.unpack_from("<IBBH", data, offset)
            if name and info >> 4:  # global or weak
                start = names + name
                (undefined if index == 0 else defined).append(data[start : data.index(b"\0", start)].decode())
    return defined, undefined


@functools.cache
def _linker() -> Any:
    llvm = _llvm()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features="", reloc="pic", codemodel="small"
    )
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)


_names = itertools.count()


def load_object(data: bytes, symbols: Mapping[str, int] | None = None) -> NativeModule:
    """Load a native object of this machine. It may use libc, libm and `symbols` (name -> address).

    Without `symbols` it gets those of the runtime (tl_parallel_for, tl_alloc, ...). Raises EngineError.
    """
    if symbols is None:
        from tilelang.runtime.threads import symbols as runtime_symbols

        symbols = runtime_symbols()
    exports, imports = _elf_symbols(data) or ([], list(symbols))
    with _lock:
        llvm, jit, name = _llvm(), _linker(), f"tl{next(_names)}"
        builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
        for symbol in imports:
            if symbol in symbols:
                builder.import_symbol(symbol, symbols[symbol])
        for symbol in exports:
            builder.export_symbol(symbol)
        try:
            tracker = builder.link(jit, name)
        except RuntimeError as error:
            missing = [item for item in imports if item not in symbols and not llvm.address_of_symbol(item)]
            reason = f"undefined symbols {', '.join(missing)}" if missing else str(error)
            raise EngineError(f"cannot load native module: {reason}") from error
        return NativeModule(name, jit, tracker, {symbol: tracker[symbol] for symbol in exports})
