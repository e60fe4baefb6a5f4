"""The way from tensor to mem on random programs: every pass keeps the meaning, and no op at the mem level reads what it overwrites."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.passes.random_programs import TensorProgram, TileProgram
from tilelang.dialects import mem
from tilelang.ir.core import Module
from tilelang.ir.passes import PassContext, parse_pipeline, run_pass
from tilelang.ir.types import BufferType
from tilelang.passes.buffering import views
from tilelang.passes.buffering.placement import Placement
from tilelang.runtime.compare import equivalent
from tilelang.target import get_target

SHAPES = [{"M": 4, "N": 8, "K": 3}, {"M": 5, "N": 3, "K": 7}, {"M": 9, "N": 17, "K": 20}]
TENSOR_SHAPES = [*SHAPES, {"M": 1, "N": 1, "K": 1}]


def run(module: Module, pipeline: str, shapes: list[dict[str, int]]) -> Module:
    """The module after the pipeline; every pass that changes it is checked."""
    ctx = PassContext(get_target("cpu", cpu="haswell"))
    for step in parse_pipeline(pipeline):
        before = module.clone()
        run_pass(step, module, ctx)
        assert equivalent(before, module, shapes=shapes) == [], step.name
    return module


def overlaps(module: Module) -> list[str]:
    """Ops that write memory which they also read, other than element by element in place."""
    found: list[str] = []
    for op in module.walk():
        for dst in views.written(op):
            others = list(op.operands)
            others.remove(dst)
            for v in others:
                if not isinstance(v.type, BufferType) or views.root(v) is not views.root(dst):
                    continue
                in_place = isinstance(op, (mem.Map, mem.Scan)) and views.same_view(v, dst)
                if isinstance(op, mem.Map) and v in op.ins:
                    rank = len(views.buffer_type(dst).shape)
                    in_place = in_place and all(m == tuple(range(rank)) for i, m in zip(op.ins, op.maps) if i is v)
                if not in_place:
                    found.append(str(op))
    return found


@pytest.mark.parametrize("seed", range(25))
def test_tile_programs(seed: int) -> None:
    fused = "fuse," if seed % 2 else "fuse{max_ops=2}," if seed % 4 == 0 else ""
    module = run(TileProgram(seed).module(), f"{fused}bufferize", SHAPES)
    assert overlaps(module) == []
    module = run(module, "canonicalize,licm,cse,pipeline,parallelize,plan-memory", SHAPES)
    assert overlaps(module) == []


@pytest.mark.parametrize("seed", range(25))
def test_tensor_programs(seed: int) -> None:
    sizes = "tile{m=4,n=8,k=3}" if seed % 2 else "tile"
    module = run(TensorProgram(seed).module(), f"canonicalize,cse,{sizes},fuse,bufferize", TENSOR_SHAPES)
    assert overlaps(module) == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("is_free", lambda self, storage, *_, **__: not storage.external),
        ("clobbered", lambda *_: False),
        ("reads_clash", lambda *_: False),
        ("_touches", lambda *_: False),
    ],
)
def test_faults_are_found(name: str, fault: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question that placement asks matters: a wrong answer is found by these programs."""
    monkeypatch.setattr(Placement, name, fault)
    ctx = PassContext(get_target("cpu", cpu="haswell"))
    for seed in range(400):
        module = TileProgram(seed).module()
        before = module.clone()
        run_pass(parse_pipeline("bufferize")[0], module, ctx, check=False)
        if overlaps(module) or equivalent(before, module, shapes=SHAPES[2:]):
            return
    pytest.fail(f"no program notices a wrong '{name}'")
