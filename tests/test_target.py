from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tilelang import target as target_module
from tilelang.target import DTYPE_BITS, Target, UnknownTarget, available_cores, get_target, host_target, list_targets


@pytest.mark.parametrize(
    ("cpu", "vector_bytes", "registers", "has", "lacks"),
    [
        ("x86-64", 16, 16, "sse2", "avx"),
        ("haswell", 32, 16, "fma", "avx512f"),
        ("x86-64-v3", 32, 16, "f16c", "avx512f"),
        ("x86-64-v4", 64, 32, "avx512vl", "avx512vnni"),
        ("skylake-avx512", 64, 32, "avx512f", "avx512bf16"),
        ("znver4", 64, 32, "avx512bf16", "avxvnni"),
        ("znver5", 64, 32, "avxvnni", "avx512fp16"),
        ("neoverse-v1", 16, 32, "sve", "avx"),
    ],
)
def test_named_cpus(cpu: str, vector_bytes: int, registers: int, has: str, lacks: str) -> None:
    target = get_target("cpu", cpu=cpu)
    assert (target.vector_bytes, target.vector_registers, target.llvm_cpu) == (vector_bytes, registers, cpu)
    assert has in target.isa and lacks not in target.isa
    assert target.lanes(32) == vector_bytes // 4 and target.lanes(4096) == 1
    assert get_target(f"cpu:{cpu}") == target
    assert target.space("accumulator").capacity == vector_bytes * registers


def test_feature_lists_agree_with_llvm() -> None:
    """LLVM accepts every CPU name and feature name of the table (it prints to stderr, and ignores them, otherwise)."""
    script = """
import llvmlite.binding as llvm
from tilelang.target import get_target, list_targets
llvm.initialize_all_targets(); llvm.initialize_all_asmprinters()
for name in list_targets():
    target = get_target(name)
    if target.kind == "cpu":
        features = ",".join("+" + item for item in sorted(target.isa))
        machine = llvm.Target.from_triple(target.triple).create_target_machine(cpu=target.llvm_cpu, features=features)
        machine.emit_assembly(llvm.parse_assembly("define void @f() { ret void }"))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert run.returncode == 0 and run.stderr == ""


def test_every_listed_target_resolves_and_is_consistent() -> None:
    for name in list_targets():
        target = get_target(name)
        assert isinstance(target, Target) and hash(target) == hash(target)
        assert target.cores >= 1 and target.vector_bytes >= 16 and target.clock_ghz > 0
        assert pickle.loads(pickle.dumps(target)) == target
        assert set(target.throughput) <= set(DTYPE_BITS)


def test_host() -> None:
    host = host_target()
    assert host is get_target("cpu") and host is get_target("host")
    assert host.llvm_cpu and host.triple and host.cores == available_cores()
    assert host.l1d >= 8 << 10 and host.line in (32, 64, 128, 256)


def test_unknown_names_list_near_ones() -> None:
    with pytest.raises(UnknownTarget, match="haswell"):
        get_target("cpu", cpu="hasswell")
    with pytest.raises(UnknownTarget, match="ascend910b"):
        get_target("ascend910")
    with pytest.raises(ValueError, match="takes no cpu"):
        get_target("ascend910b", cpu="haswell")


def test_fits_rounds_to_the_alignment() -> None:
    npu = get_target("ascend910b")
    assert npu.fits("ub", 192 << 10) and not npu.fits("ub", (192 << 10) + 1)
    assert npu.fits("l0c", (128 << 10) - 33) and npu.fits("global", 1 << 34)
    cpu = get_target("cpu", cpu="haswell")
    assert cpu.fits("global", 1 << 60)
    with pytest.raises(KeyError, match="no memory space 'ub'"):
        cpu.fits("ub", 1)


def test_roofline_takes_the_slower_side() -> None:
    target = get_target("cpu", cpu="haswell")
    compute = target.roofline(1e9, 1, "f32")
    assert compute == pytest.approx(1e9 / (32 * 3.0e9))
    assert target.roofline(1, 1e9, "f32") == pytest.approx(1 / 40)
    assert target.roofline(1e9, 1, "f64") == pytest.approx(2 * compute)
    assert target.with_(cores=8).roofline(1e9, 1, "f32") == pytest.approx(compute / 8)
    assert target.with_(cores=8).roofline(0, 1e9, "f32") == pytest.approx(1 / 160)
    with pytest.raises(ValueError, match="no bandwidth"):
        target.roofline(1, 1, "f32", space="accumulator")


def test_with_moves_the_spaces_along() -> None:
    target = get_target("cpu", cpu="znver5")
    small = target.with_(l1d=8 << 10, l2=64 << 10)
    assert small.space("local").capacity == 8 << 10 and small.space("shared").capacity == 64 << 10
    assert target.space("shared").capacity == 1 << 20 and small != target
    assert target.with_(l2=1 << 20) == target


def test_cgroup_quota(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    (root / "a/b").mkdir(parents=True)
    membership = tmp_path / "membership"
    membership.write_text("0::/a/b\n")
    (root / "a/cpu.max").write_text("150000 100000\n")
    (root / "a/b/cpu.max").write_text("max 100000\n")
    read = target_module._cgroup_cores  # pyright: ignore[reportPrivateUsage]
    assert read(str(root), str(membership)) == 2
    (root / "a/b/cpu.max").write_text("50000 100000\n")
    assert read(str(root), str(membership)) == 1
    membership.write_text("0::/elsewhere/gone\n")
    assert read(str(root), str(membership)) is None
    (root / "cpu/x").mkdir(parents=True)
    membership.write_text("5:cpuset:/\n4:cpu,cpuacct:/x\n")
    (root / "cpu/x/cpu.cfs_quota_us").write_text("300000\n")
    (root / "cpu/x/cpu.cfs_period_us").write_text("100000\n")
    assert read(str(root), str(membership)) == 3
    (root / "cpu/x/cpu.cfs_quota_us").write_text("-1\n")
    assert read(str(root), str(membership)) is None


def test_unknown_host_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU the table does not know, on a system without the Linux files, still gives a usable target."""
    import llvmlite.binding as llvm

    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "made-up-cpu")
    monkeypatch.setattr(target_module, "_read", lambda path: "")
    monkeypatch.setattr(target_module, "_cache_sizes", dict)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    target = host_target.__wrapped__()
    assert target.llvm_cpu == "made-up-cpu" and target.l1d > 0 and target.cores == os.cpu_count()

    def no_features() -> None:
        raise RuntimeError("unknown host")

    monkeypatch.setattr(llvm, "get_host_cpu_features", no_features)
    assert host_target.__wrapped__().llvm_features == ""
