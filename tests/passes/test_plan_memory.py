"""The capacity error of plan-memory, and the pipelines."""

from __future__ import annotations

import pytest

from tilelang.diagnostics import TileError
from tilelang.ir.parser import parse_module
from tilelang.ir.passes import PassContext, PassManager
from tilelang.passes.pipelines import COMMON, CPU, TILING, cpu_pipeline, pipeline_to
from tilelang.target import get_target

TOO_LARGE = """
builtin.module {level = "mem"} {
  func.func @f(%x: buffer<f32[4], global> inout) {tunables = [["BM", 1024], ["BN", 96], ["fast", true]]} {
    %z = arith.constant 0.0 : f32
    %a = mem.alloc {name_ = "stage"} : buffer<f32[1024, 128], SPACE>
    %b = mem.alloc {name_ = "other"} : buffer<f32[16], SPACE>
    mem.fill %z, %a
    mem.fill %z, %b
  }
}
"""


def plan(text: str, cpu: str) -> None:
    PassManager("plan-memory").run(parse_module(text), PassContext(get_target("cpu", cpu=cpu)))


@pytest.mark.parametrize("space", ["shared", "accumulator", "local"])
def test_capacity(space: str) -> None:
    with pytest.raises(TileError) as caught:
        plan(TOO_LARGE.replace("SPACE", space), "haswell")
    (error,) = caught.value.diagnostics
    assert error.slug == "buffer-too-large"
    assert error.message == f"'stage' (f32[1024, 128]) needs 524288 bytes of {space}, which has 262144"
    assert error.help == "lower BM (it is 1024)"
    assert [n.message for n in error.notes] == [f"'other' (f32[16]) takes 64 bytes of {space} too"]


def test_a_larger_cache_has_room() -> None:
    plan(TOO_LARGE.replace("SPACE", "shared"), "znver5")


def test_without_a_tunable() -> None:
    with pytest.raises(TileError) as caught:
        plan(TOO_LARGE.replace("SPACE", "shared").replace('"BM", 1024', '"BM", 1000'), "haswell")
    assert caught.value.diagnostics[0].help == "make an extent of the buffer smaller"


def test_pipelines() -> None:
    assert cpu_pipeline() == ",".join((*TILING, *COMMON, *CPU))
    assert pipeline_to("tile") == ",".join(TILING)
    assert pipeline_to("tile", "tile") == ""
    assert pipeline_to("mem").endswith(",vectorize")
    assert pipeline_to("vec") == cpu_pipeline()
    assert "tile{m=8}," in pipeline_to("tile", options={"tile": {"m": 8}}) + ","
    with pytest.raises(KeyError, match="no pass 'vectorize'"):
        pipeline_to("tile", options={"vectorize": {}})
