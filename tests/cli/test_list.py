"""tilec list."""

from __future__ import annotations

import json

import pytest

from tests.cli.tilec import NAMES, fails, ok
from tilelang import dialects
from tilelang.ir.passes import pass_names
from tilelang.passes.pipelines import cpu_pipeline


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]


def test_passes() -> None:
    out = ok("list", "passes").stdout
    names = first_words(out)
    assert set(cpu_pipeline().split(",")) <= set(names) <= set(pass_names())
    assert "bufferize [tile -> mem] " in " ".join(out.split()) and "options: max_ops=32" in out
    assert all(len(line.split(None, 1)) == 2 for line in out.splitlines())


def test_dialects_and_ops() -> None:
    assert first_words(ok("list", "dialects").stdout) == list(dialects.NAMES)
    ops = first_words(ok("list", "ops").stdout)
    assert {"func.func", "arith.add", "tile.matmul", "mem.copy", "vec.launch"} <= set(ops)
    assert first_words(ok("list", "ops", "tile").stdout) == [n for n in ops if n.startswith("tile.")]


def test_targets() -> None:
    rows = json.loads(ok("list", "targets", "--json").stdout)
    by_name = {r["name"]: r for r in rows}
    assert by_name["cpu:haswell"]["kind"] == "cpu" and "avx2" in by_name["cpu:haswell"]["isa"]
    assert by_name["ascend910b"]["kind"] == "ascend" and "no code generator yet" in by_name["ascend910b"]["text"]
    assert "this machine" in ok("list", "targets", "cpu").stdout


def test_examples() -> None:
    out = ok("list", "examples").stdout
    assert first_words(out) == NAMES and "Softmax along the rows." in out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["passes", "fus"], "there is no pass 'fus'; did you mean 'fuse'?"),
        (["ops", "tile.lod"], "there is no op 'tile.lod'; did you mean 'tile.load'?"),
        (["targets", "cpu:haswel"], "did you mean 'cpu:haswell'?"),
        (["pass"], "'pass' is not one of"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage(args: list[str], says: str) -> None:
    assert says in fails(2, "list", *args)
