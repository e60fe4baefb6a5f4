"""The hardware database: one frozen `Target` per machine, read by tiling, fusion, memory planning, legality and code generation.

CPU entries come from a table of microarchitectures (`get_target("cpu", cpu="haswell")`), or from probing this machine (`host_target()`).
Numbers carry a `certainty`: "probed" (read from this machine), "measured", "documented" (vendor data), "derived" (from documented
numbers), "assumed" (a sensible default nobody checked).

Sources: LLVM's x86 and AArch64 processor definitions (which CPU has which feature), vendor optimisation guides (FMA units, cache
sizes), CANN's platform description of Ascend 910B1 (capacities, bytes per cycle).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DTYPE_BITS = {
    "f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8e4m3": 8, "f8e5m2": 8, "bool": 8,
    "i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64,
}  # fmt: skip
_DEFAULT_CLOCK = 3.0  # GHz; what a server core sustains when nothing better is known


class UnknownTarget(ValueError):
    """No target, or no CPU, of that name. The message lists near names."""


@dataclass(frozen=True)
class MemorySpace:
    """`capacity` in bytes (None: not limited here), `alignment` of an address in bytes, `bandwidth` in GB/s of one core, or None."""

    capacity: int | None
    alignment: int
    bandwidth: float | None
    certainty: str = "documented"


@dataclass(frozen=True)
class Target:
    """One machine. The dict fields are read-only by convention (they take part in equality but not in the hash).

    throughput: operations (a multiply-add counts as two) per cycle and core by dtype.
    units: what the throughput comes from, for people ("fma x2 512-bit").
    l1d, l2, l3: cache bytes one core can use (l1d and l2 its own, l3 shared); 0 where there is none. line: bytes.
    isa: LLVM feature names that are present. llvm_features: the "+a,-b" string for LLVM ("" when llvm_cpu says it all).
    """

    name: str
    kind: str  # "cpu" | "ascend"
    spaces: Mapping[str, MemorySpace] = field(hash=False)
    throughput: Mapping[str, float] = field(hash=False)
    units: str
    clock_ghz: float
    cores: int
    vector_bytes: int
    vector_registers: int
    l1d: int
    l2: int
    l3: int
    line: int
    isa: frozenset[str]
    llvm_cpu: str = ""
    llvm_features: str = ""
    triple: str = ""
    certainty: str = "documented"

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register, at least 1."""
        return max(1, self.vector_bytes * 8 // bits)

    def space(self, name: str) -> MemorySpace:
        """The memory space `name`; KeyError names those there are."""
        if name not in self.spaces:
            raise KeyError(f"target {self.name} has no memory space {name!r}; it has {', '.join(self.spaces)}")
        return self.spaces[name]

    def fits(self, space: str, bytes: int) -> bool:
        """Whether `bytes` bytes, rounded up to the alignment of the space, fit in it."""
        room = self.space(space)
        return room.capacity is None or -(-bytes // room.alignment) * room.alignment <= room.capacity

    def peak(self, dtype: str, cores: int | None = None) -> float:
        """Operations per second in `dtype` on `cores` cores (default: all)."""
        return self.throughput[dtype] * self.clock_ghz * 1e9 * (cores or self.cores)

    def roofline(self, flops: float, bytes: float, dtype: str, space: str = "global", cores: int | None = None) -> float:
        """Lower bound in seconds for `flops` operations in `dtype` that move `bytes` bytes from or to `space`.

        The roofline model (Williams, Waterman, Patterson, CACM 2009). `global` bandwidth does not grow past four cores' worth.
        """
        cores = cores or self.cores
        bandwidth = self.space(space).bandwidth
        if bandwidth is None:
            raise ValueError(f"target {self.name} has no bandwidth for space {space!r}")
        streams = min(cores, 4) if self.kind == "cpu" and space == "global" else cores
        return max(flops / self.peak(dtype, cores), bytes / (bandwidth * 1e9 * streams))

    def with_(self, **changes: Any) -> Target:
        """A copy with fields replaced. On a CPU the spaces follow the caches and registers unless `spaces` is given too."""
        new = dataclasses.replace(self, **changes)
        if self.kind == "cpu" and "spaces" not in changes:
            new = dataclasses.replace(new, spaces=_cpu_spaces(new.vector_bytes, new.vector_registers, new.l1d, new.l2))
        return new


def _cpu_spaces(vector_bytes: int, registers: int, l1d: int, l2: int) -> dict[str, MemorySpace]:
    # Bandwidths: one Zen 5 core, arrays that live in that level (STREAM read).
    return {
        "global": MemorySpace(None, 64, 40.0, "measured"),
        "shared": MemorySpace(l2, 64, 200.0, "measured"),
        "local": MemorySpace(l1d, 64, 500.0, "measured"),
        "accumulator": MemorySpace(vector_bytes * registers, vector_bytes, None, "derived"),
    }


# What each x86-64 level adds (psABI), and what later CPUs add on top, in LLVM's feature names.
_V1 = frozenset({"cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})
_V2 = _V1 | {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VNNI = _V4 | {"avx512vnni"}
_ICX = _VNNI | {"avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vpopcntdq", "gfni", "vaes", "vpclmulqdq"}
_SPR = _ICX | {"avx512bf16", "avx512fp16", "avxvnni", "amx-bf16", "amx-int8", "amx-tile"}
_ZEN4 = _ICX | {"avx512bf16"}
_NEON = frozenset({"neon", "fp-armv8"})
_N1 = _NEON | {"crc", "dotprod", "fullfp16", "lse", "rcpc", "rdm"}
_V1_ARM = _N1 | {"bf16", "i8mm", "sve"}
_V2_ARM = _V1_ARM | {"sve2"}
_KB = 1024
_OS = {"Linux": "unknown-linux-gnu", "Darwin": "apple-darwin", "Windows": "pc-windows-msvc"}

# name -> (isa, vector pipes for multiply-add, bits of one pipe, l1d KB, l2 KB, l3 KB)
_CPUS: dict[str, tuple[frozenset[str], int, int, int, int, int]] = {
    "x86-64": (_V1, 1, 128, 32, 256, 8192),
    "x86-64-v2": (_V2, 1, 128, 32, 256, 8192),
    "x86-64-v3": (_V3, 2, 256, 32, 512, 8192),
    "x86-64-v4": (_V4, 2, 512, 32, 1024, 16384),
    "haswell": (_V3, 2, 256, 32, 256, 8192),
    "broadwell": (_V3, 2, 256, 32, 256, 8192),
    "skylake": (_V3, 2, 256, 32, 256, 8192),
    "skylake-avx512": (_V4, 2, 512, 32, 1024, 16384),
    "cascadelake": (_VNNI, 2, 512, 32, 1024, 16384),
    "cooperlake": (_VNNI | {"avx512bf16"}, 2, 512, 32, 1024, 16384),
    "icelake-server": (_ICX, 2, 512, 48, 1280, 32768),
    "sapphirerapids": (_SPR, 2, 512, 48, 2048, 32768),
    "graniterapids": (_SPR | {"amx-fp16"}, 2, 512, 48, 2048, 65536),
    "alderlake": (_V3 | {"avxvnni", "gfni", "vaes", "vpclmulqdq"}, 2, 256, 48, 1280, 16384),
    "znver1": (_V3, 2, 128, 32, 512, 8192),
    "znver2": (_V3, 2, 256, 32, 512, 16384),
    "znver3": (_V3 | {"vaes", "vpclmulqdq"}, 2, 256, 32, 512, 32768),
    "znver4": (_ZEN4, 2, 256, 32, 1024, 32768),
    "znver5": (_ZEN4 | {"avxvnni", "avx512vp2intersect"}, 2, 512, 48, 1024, 32768),
    "neoverse-n1": (_N1, 2, 128, 64, 1024, 32768),
    "neoverse-v1": (_V1_ARM, 4, 128, 64, 1024, 32768),
    "neoverse-n2": (_V2_ARM, 2, 128, 64, 1024, 32768),
    "neoverse-v2": (_V2_ARM, 4, 128, 64, 2048, 65536),
    "apple-m1": (_N1, 4, 128, 128, 3072, 8192),
    "generic": (_NEON, 2, 128, 32, 512, 4096),
}


def _is_arm(isa: frozenset[str]) -> bool:
    return "neon" in isa


def _vector_file(isa: frozenset[str]) -> tuple[int, int]:
    """(bytes of a register, registers). Fixed-width code on AArch64 uses the 128-bit NEON registers even where SVE is wider."""
    if _is_arm(isa):
        return 16, 32
    return (64, 32) if "avx512f" in isa else (32, 16) if "avx" in isa else (16, 16)


def _throughput(isa: frozenset[str], pipes: int, bits: int) -> dict[str, float]:
    f32 = pipes * (bits // 32) * 2.0
    dot8 = bool(isa & {"avx512vnni", "avxvnni", "dotprod"})
    per = {"f64": f32 / 2, "f32": f32, "f16": f32, "bf16": f32, "i32": f32, "u32": f32, "i64": f32 / 2, "u64": f32 / 2}
    per |= dict.fromkeys(("i16", "u16"), f32 * 2) | dict.fromkeys(("i8", "u8"), f32 * (4 if dot8 else 2))
    per |= dict.fromkeys(("f8e4m3", "f8e5m2", "bool"), f32)  # storage types: computed as f32
    if isa & {"avx512bf16", "bf16"}:
        per["bf16"] = f32 * 2
    if isa & {"avx512fp16", "fullfp16"}:
        per["f16"] = f32 * 2
    return per


def _cpu_target(cpu: str, isa: frozenset[str], pipes: int, bits: int, l1d: int, l2: int, l3: int, **more: Any) -> Target:
    vector_bytes, registers = _vector_file(isa)
    defaults: dict[str, Any] = {
        "clock_ghz": _DEFAULT_CLOCK, "cores": 1, "line": 64, "llvm_cpu": cpu, "name": f"cpu:{cpu}",
        "triple": f"{'aarch64' if _is_arm(isa) else 'x86_64'}-{_OS.get(platform.system(), _OS['Linux'])}",
    }  # fmt: skip
    return Target(
        kind="cpu", spaces=_cpu_spaces(vector_bytes, registers, l1d, l2), throughput=_throughput(isa, pipes, bits),
        units=f"fma x{pipes}, {bits}-bit", vector_bytes=vector_bytes, vector_registers=registers, l1d=l1d, l2=l2, l3=l3, isa=isa,
        **(defaults | more),
    )  # fmt: skip


def _read(path: str | Path) -> str:
    """The stripped text of a small system file, "" when it is not there or not readable."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _cache_sizes() -> dict[str, int]:
    """{"l1d": bytes, "l2": .., "l3": .., "line": ..} of CPU 0, as far as Linux tells."""
    found: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*")):
        level, kind, size = (_read(index / item) for item in ("level", "type", "size"))
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind == "Instruction" or not match or level not in ("1", "2", "3"):
            continue
        found["l1d" if level == "1" else f"l{level}"] = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
        if line := _read(index / "coherency_line_size"):
            found["line"] = int(line)
    return found


def _cgroup_cores(root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup") -> int | None:
    """CPUs that this process's cgroup quota (v2 or v1) allows, rounded up; None without a quota."""
    limits: list[float] = []
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = Path(root, "cpu") if controllers else Path(root)
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):  # a quota of any ancestor binds
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
            fields = " ".join(_read(folder / file) for file in files).split()
            if len(fields) == 2 and all(item.isdigit() for item in fields):  # "max" and -1 mean no quota
                limits.append(int(fields[0]) / int(fields[1]))
            if folder == base:
                break
    return max(1, math.ceil(min(limits))) if limits else None


def available_cores() -> int:
    """CPUs this process may use at once: its affinity mask, cut by the cgroup quota; at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_cores()
    return max(1, min(affinity, quota) if quota else affinity)


def _clock_ghz() -> float:
    """The highest clock Linux admits to; virtual machines often show only the base clock."""
    khz = _read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    if khz.isdigit():
        return int(khz) / 1e6
    shown = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _read("/proc/cpuinfo"), re.M)
    return max([_DEFAULT_CLOCK, *(float(mhz) / 1e3 for mhz in shown)])


@functools.cache
def host_target() -> Target:
    """This machine, probed once: ISA and CPU name from LLVM, caches and core limits from Linux; defaults where it does not tell."""
    import llvmlite.binding as llvm

    cpu = llvm.get_host_cpu_name()
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell on this platform: the CPU name decides
        isa, flat = frozenset[str](), ""
    else:
        isa, flat = frozenset(name for name, on in features.items() if on), features.flatten()
    arm = platform.machine().lower() in ("arm64", "aarch64")
    if arm:
        isa |= _NEON
    known = _CPUS.get(cpu)
    if known is None:  # a CPU newer than the table: the entry with the nearest ISA stands in for pipes and caches
        level = "generic" if arm else "x86-64-v4" if "avx512f" in isa else "x86-64-v3" if "avx2" in isa else "x86-64"
        known = _CPUS[level]
    _, pipes, bits, l1d, l2, l3 = known
    sizes = {"l1d": l1d * _KB, "l2": l2 * _KB, "l3": l3 * _KB, "line": 64} | _cache_sizes()
    # A virtual machine may hide features: pipes wider than the registers cannot be used.
    isa = isa or known[0]
    bits = min(bits, _vector_file(isa)[0] * 8)
    return _cpu_target(
        cpu, isa, pipes, bits, sizes["l1d"], sizes["l2"], sizes["l3"], line=sizes["line"], name="cpu", cores=available_cores(),
        clock_ghz=_clock_ghz(), llvm_features=flat, triple=llvm.get_process_triple(), certainty="probed",
    )  # fmt: skip


def _ascend_910b() -> Target:
    ghz = 1.85
    half = 8192.0  # one 16x16x16 cube step a cycle
    rate = {"f16": half, "bf16": half, "f32": half / 4, "i8": 2 * half}
    spaces = {  # bandwidth: bytes a cycle into that space, times the clock; ub: what the vector unit reads of it
        "global": MemorySpace(64 << 30, 32, 32 * ghz, "derived"),
        "l1": MemorySpace(512 * _KB, 32, 110 * ghz),
        "ub": MemorySpace(192 * _KB, 32, 256 * ghz, "derived"),
        "l0a": MemorySpace(64 * _KB, 512, 512 * ghz),
        "l0b": MemorySpace(64 * _KB, 512, 256 * ghz),
        "l0c": MemorySpace(128 * _KB, 64, 256 * ghz),
    }
    return Target(
        name="ascend910b", kind="ascend", spaces=spaces,
        throughput=rate, units="cube 16x16x16 f16, 2 vector cores of 256 B", clock_ghz=ghz, cores=24, vector_bytes=256,
        vector_registers=0, l1d=0, l2=192 << 20, l3=0, line=512, isa=frozenset({"bf16", "dav-2201", "fixpipe"}),
    )  # fmt: skip


_DEVICES = {"ascend910b": _ascend_910b}
_ALIASES = {"host": "cpu", "native": "cpu", "910b": "ascend910b", "ascend": "ascend910b", "ascend910b1": "ascend910b"}


def list_targets() -> list[str]:
    """Names `get_target` takes: "cpu", "cpu:<microarchitecture>" and the accelerators."""
    return ["cpu", *(f"cpu:{cpu}" for cpu in _CPUS), *_DEVICES]


def _unknown(what: str, name: str, names: list[str]) -> UnknownTarget:
    near = difflib.get_close_matches(name, names, n=4, cutoff=0.4) or names
    return UnknownTarget(f"unknown {what} {name!r}; near names: {', '.join(near)}")


@functools.cache
def get_target(name: str = "cpu", cpu: str | None = None) -> Target:
    """A target by name. "cpu" or "host": this machine; `cpu="haswell"` or "cpu:haswell": that microarchitecture, nothing probed.

    A microarchitecture entry describes one core (`cores=1`); use `.with_(cores=8)`. Raises UnknownTarget.
    """
    key = _ALIASES.get(name.lower(), name.lower())
    if cpu is None and key.startswith("cpu:"):
        key, cpu = "cpu", key[4:]
    if key == "cpu":
        if cpu is None or cpu in ("host", "native"):
            return host_target()
        if cpu not in _CPUS:
            raise _unknown("cpu", cpu, list(_CPUS))
        isa, pipes, bits, l1d, l2, l3 = _CPUS[cpu]
        return _cpu_target(cpu, isa, pipes, bits, l1d * _KB, l2 * _KB, l3 * _KB)
    if key not in _DEVICES:
        raise _unknown("target", name, [*list_targets(), *_ALIASES])
    if cpu is not None:
        raise UnknownTarget(f"target {name!r} takes no cpu={cpu!r}")
    return _DEVICES[key]()
