"""The form of the IR that the builder makes: static extents where they can be proved, checks only where they are needed, spans, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilelang
from tests.frontend.builder_programs import PROGRAMS
from tilelang.diagnostics import Diagnostics, Source
from tilelang.dialects.func import functions
from tilelang.frontend.builder import build, level_of
from tilelang.frontend.env import TextEnv
from tilelang.frontend.signature import Signature, Specialization
from tilelang.frontend.text import parse_module
from tilelang.ir.core import Module
from tilelang.ir.types import TileType

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.tile"))
MATMUL = """M, N, K = dims("M N K")

def f(a: f32[M, K], b: f32[K, N], *, BM: int = 64) -> f32[M, N]:
    c = empty(f32, M, N)
    for i, j in grid(M, N, by=(BM, 32)):
        acc = zeros(f32, BM, 32)
        for k in pipelined(K, by=16, stages=3):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
    return c
"""


def built(text: str, **choices: Any) -> Module:
    tree = parse_module(Source("t.tile", text), diagnostics := Diagnostics())
    env = TextEnv(tree, diagnostics)
    function = next(f for f in tree.functions if f.name == "f")
    return build(function, env, Specialization.of(Signature.of(function, env), **choices))


def names(module: Module) -> list[str]:
    return [op.name for op in module.walk()]


def test_a_product_in_a_loop() -> None:
    assert [n for n in names(built(MATMUL)) if n.startswith(("tile.", "loop."))] == [
        "loop.parallel", "tile.fill", "loop.for", "tile.load", "tile.load", "tile.matmul", "loop.yield", "tile.store", "loop.yield",
    ]  # fmt: skip
    loop = next(op for op in built(MATMUL).walk() if op.name == "loop.for")
    assert (loop.attrs["stages"], loop.attrs["pipelined"], loop.results[0].hint) == (3, True, "acc")


def test_blocks_that_end_at_the_edge_have_dynamic_extents() -> None:
    assert {str(r.type) for op in built(MATMUL).walk() for r in op.results if isinstance(r.type, TileType)} == {
        "tile<f32[?64, ?32]>", "tile<f32[?64, ?16]>", "tile<f32[?16, ?32]>",
    }  # fmt: skip


@pytest.mark.parametrize(
    "choices",
    [
        {"dims": {"M": 128, "N": 96, "K": 32}},
        {"facts": ("M % 64 == 0", "N % 32 == 0", "K % 16 == 0")},
    ],
    ids=["constant dims", "facts"],
)
def test_whole_blocks_have_static_extents(choices: Any) -> None:
    module = built(MATMUL, **choices)
    assert {str(r.type) for op in module.walk() for r in op.results if isinstance(r.type, TileType)} == {
        "tile<f32[64, 32]>", "tile<f32[64, 16]>", "tile<f32[16, 32]>",
    }  # fmt: skip
    assert "arith.min" not in names(module)


def test_a_single_block_is_as_long_as_its_dim() -> None:
    module = built(MATMUL, dims={"M": 10, "N": 32, "K": 16})
    assert {str(r.type) for op in module.walk() for r in op.results if isinstance(r.type, TileType)} == {
        "tile<f32[10, 32]>", "tile<f32[10, 16]>", "tile<f32[16, 32]>",
    }  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_examples_need_no_run_time_checks(path: Path) -> None:
    for kernel in tilelang.load(path):
        assert "loop.assert" not in names(kernel.build())


def checks(body: str, params: str = "x: InOut[f32, M, N], n: i32, v: i32[N]") -> list[str]:
    """The messages of the run-time checks of a body that follows a grid loop over M by 8."""
    lines = "\n".join("        " + line for line in body.split("\n"))
    module = built(f'M, N = dims("M N")\n\ndef f({params}):\n    for i in grid(M, by=8):\n{lines}\n')
    return [op.attrs["message"] for op in module.walk() if op.name == "loop.assert"]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("x[i, :] = 0", 0),
        ("x[i.start, 0:0 + N] = 0", None),
        ("for j in range(N, by=4):\n    x[i, j] = 0", 0),
        ("for j in range(N):\n    x[i, j] = 0", 0),
        ("for j in range(max(M - 5, 0), min(N, M + 4)):\n    x[i, j] = 0", 0),
        ("for j in range(n, min(N, n + 4)):\n    x[i, max(j, 0)] = 0", 1),
        ("for j in range(N - 1):\n    x[i, j] = x[i, j + 1]", 0),
        ("x[i, 0] = 1", 1),
        ("x[i, n] = 1", 1),
        ("x[i, n] = x[i, n] + 1", 1),
        ("for j in range(4):\n    x[i, j] = 0", 1),
        ("x[i + 1, :] = 0", 1),
        ("x[i, :] = load(x[i + 1, :], pad=0)", 0),
        ("x[i, 0] = sum(x[i, 1:3], axis=1)", 2),
    ],
)
def test_checks_only_where_they_are_needed(body: str, count: int | None) -> None:
    if count is None:
        with pytest.raises(tilelang.TileError):
            checks(body)
    else:
        assert len(checks(body)) == count


def test_the_message_of_a_check() -> None:
    assert checks("x[i, n] = 1") == ["index {0} is outside axis 1 of 'x', which has length {1}"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_op_has_a_place_in_the_source(name: str) -> None:
    for op in tilelang.load_text(PROGRAMS[name].text, "t.tile").f.build().walk():
        assert op.name == "builtin.module" or (op.span is not None and op.span.path == "t.tile" and op.span.text), op.name


def test_the_function() -> None:
    module = built(MATMUL.replace("f32[M, K]", "f32[M, K]"), constants={"BM": 16}, strides={"a": "any"}, facts=("M % 16 == 0",))
    (func,) = functions(module)
    assert [(a.hint, str(a.type), role) for a, role in zip(func.args, func.roles)] == [
        ("a", "buffer<f32[M, K], global, strides [?, ?]>", "in"),
        ("b", "buffer<f32[K, N], global, strides [?, 1]>", "in"),
        ("c", "buffer<f32[M, N], global, strides [?, 1]>", "out"),
    ]
    assert (module.level, func.tunables, func.facts) == ("tile", (("BM", 16),), ("M % 16 == 0",))


def test_scratch_memory_keeps_its_name() -> None:
    module = tilelang.load_text(PROGRAMS["scratch"].text, "t.tile").f.build()
    assert [(op.attrs["name_"], str(op.results[0].type)) for op in module.walk() if op.name == "mem.alloc"] == [("t", "buffer<f32[?], global>")]


@pytest.mark.parametrize(
    ("body", "level"),
    [
        ("    return x + 1", "tensor"),
        ("    for k in range(3):\n        x = x * 2\n    return x", "tensor"),
        ("    return helper(x)", "tensor"),
        ("    out = empty(f32, M)\n    for i in grid(M):\n        out[i] = x[i]\n    return out", "tile"),
        ("    return gridded(x)", "tile"),
    ],
)
def test_level(body: str, level: str) -> None:
    head = 'M = dims("M")\n\ndef helper(t):\n    return exp(t)\n\ndef gridded(x: f32[M]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M):\n        out[i] = x[i]\n    return out\n\n'
    tree = parse_module(Source("t.tile", f"{head}def f(x: f32[M]) -> f32[M]:\n{body}\n"), diagnostics := Diagnostics())
    function = tree.functions[-1]
    assert level_of(function, TextEnv(tree, diagnostics)) == level
    assert build(function, TextEnv(tree, diagnostics)).level == level


def test_signature() -> None:
    text = """M, K = dims("M K")
Float = dtypes(f32, f16)

def f(x: Tensor[Float, M, K], y: InOut[i8, 4, K], a: f32, n: int, *, B: int = tune(2, 4), eps: float = 1, Out: dtype = f64) -> tuple[Tensor[Float, M * B], f32[(K + 1) // 2]]:
    return x, y
"""
    tree = parse_module(Source("t.tile", text), diagnostics := Diagnostics())
    s = Signature.of(tree.functions[0], TextEnv(tree, diagnostics))
    assert [(p.name, p.role, str(p.dtype), list(map(str, p.dims)), p.kind, str(p.default), p.domain, p.keyword) for p in s.params] == [
        ("x", "in", "Float", ["M", "K"], "", "None", (), False),
        ("y", "inout", "i8", ["4", "K"], "", "None", (), False),
        ("a", "scalar", "f32", [], "", "None", (), False),
        ("n", "static", "None", [], "int", "None", (), False),
        ("B", "static", "None", [], "int", "2", (2, 4), True),
        ("eps", "static", "None", [], "float", "1.0", (), True),
        ("Out", "static", "None", [], "dtype", "f64", (), True),
    ]
    assert (s.dims, {k: [str(d) for d in v] for k, v in s.dtype_params.items()}, s.several) == (("M", "K"), {"Float": ["f32", "f16"]}, True)
    spec = Specialization.of(s, constants={"n": 3, "B": 4})
    assert [s.result_shape(i, spec, {"M": 5, "K": 6}) for i in (0, 1)] == [(20,), (3,)]
    assert str(s.result_dtype(0, spec)) == "f32"
    assert hash(spec.key) == hash(Specialization.of(s, constants={"B": 4, "n": 3}).key)
    assert spec.key != Specialization.of(s, constants={"n": 3, "B": 2}).key
