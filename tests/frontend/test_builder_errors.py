"""What the builder says of wrong programs: slug, place and text of every error, and no error that follows from another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frontend.wrong_modules import WRONG_MODULES
from tests.frontend.wrong_programs import WRONG_BLOCKS, grid, module
from tilelang.diagnostics import CompilerBug, Diagnostics, Source, TileError
from tilelang.errors import CATALOGUE
from tilelang.frontend.builder import build
from tilelang.frontend.env import TextEnv
from tilelang.frontend.signature import Signature, Specialization
from tilelang.frontend.text import parse_module


def errors_of(text: str, name: str = "f", path: str = "t.tile", **choices: Any) -> TileError:
    """The error of building a function; fails when there is none."""
    diagnostics = Diagnostics()
    tree = parse_module(Source(path, text), diagnostics)
    with pytest.raises(TileError) as caught:
        env = TextEnv(tree, diagnostics)
        diagnostics.raise_if_errors()
        function = next(f for f in tree.functions if f.name == name)
        spec = Specialization.of(Signature.of(function, env), **choices) if choices else None
        build(function, env, spec, diagnostics)
    return caught.value


def lines_of(error: TileError) -> str:
    return "\n".join(f"{d.span.line}:{d.span.column} {d.slug}: {d.message}" for d in error.diagnostics if d.span is not None)


WRONG = {**WRONG_BLOCKS, **WRONG_MODULES}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    text, expected = WRONG[name]
    error = errors_of(text)
    assert lines_of(error) == expected
    assert all(d.slug in CATALOGUE and d.render() for d in error.diagnostics)


def test_rendered_with_notes_and_help() -> None:
    text = module(
        "def f(x: f32[M, M], v: f32[M]) -> f32[M, M]:\n    out = empty(f32, M, M)\n    for i, j in grid(M, M, by=(64, 32)):\n"
        "        row = x[i, j]\n        out[i, j] = row + v[i]\n    return out\n"
    )
    assert str(errors_of(text)) == """
t.tile:9:21: error[axis-mismatch]: axis 1 of '+' runs along range 'j', here it meets range 'i'
   9 |         out[i, j] = row + v[i]
     |                     ^^^^^^^^^^
  note: 'row' is 64x32 f32, loaded here (t.tile:8:15)
  note: 'v[i]' is 64 f32, loaded here (t.tile:9:27)
  note: range 'j' is made here (t.tile:7:12)
  note: range 'i' is made here (t.tile:7:9)
  help: broadcast explicitly: x[:, None] or x[None, :] puts an axis where you mean it"""


def test_the_nearest_name_is_suggested() -> None:
    error = errors_of(grid("row = x[i, j]", "out[i, j] = expp(rwo)"))
    assert [d.help for d in error.diagnostics] == ["did you mean 'exp'?"]
    assert [d.help for d in errors_of(grid("row = x[i, j]", "out[i, j] = rwo")).diagnostics] == ["did you mean 'row'?"]


@pytest.mark.parametrize(
    ("text", "help"),
    [
        (grid("x[i, j] = 1.0"), "declare it as x: InOut[...] to update it in place, or write to an empty(...) tensor and return it"),
        (grid("out[i, j] = n / 2"), "write '//' for the floor, or cast one of them to a float type"),
        (grid("if x[i, j] > 0:", "    pass"), "where(condition, a, b) chooses element by element; any(...) and all(...) give a scalar"),
        (grid("out[i, j] = x + 1.0"), "read a part of it: x[:, :] is all of it"),
        (grid("out[i, j] = x[i, j] * i"), "iota(i) is a tile of its indices; i.start is its first"),
        (grid("out[i, j] = x[i, -1]"), None),
        (grid("break"), "blocks of a grid loop are independent; use 'if' around the rest of the body"),
        (grid("out[i, j] = x[i, j] @ v[j]"), "add an axis: v[j][None, :]"),
        (grid("t = x[i, j]", "t[0, 0] = 1.0"), "where(mask, new, old) makes a changed tile; buffers made by local(...) can be written"),
        (module("def f(x: f32[M]) -> i32[M]:\n    return x\n"), "cast it: cast(x, i32)"),
        (
            module("def f(x: f32[M]) -> f32[M]:\n    out = zeros(f32, M)\n    for i in grid(M, by=8):\n        out[i] = out[i] + x[i]\n    return out\n"),
            "'out' is a tile, a value; ranges are places in tensors: parameters, and what empty(...) made at the top",
        ),
        (
            module("def f(a: f32[M, K], b: f32[N, K]) -> f32[M, N]:\n    return a @ b\n"),
            "'@' joins the last axis on the left and the last but one on the right; x.T transposes; or use one symbolic dim for both when they are "
            "always equal",
        ),
        (module("def f(x: f32[M], n: i32[N]) -> f32[N]:\n    return x[n]\n"), "a grid loop can read it: out[i, :] = t[ids[i], :]"),
        (module("def f(x: f32[M]) -> f32[M]:\n    return maximum(x, 0.0)\n"), "write max(a, b)"),
        (module("def f(x: f32[M]) -> f32[M]:\n    return x.astype(f32)\n"), "write cast(x, dtype)"),
        (module("def f(x: f32[M]) -> f32[M]:\n    return x.max()\n"), "functions are no methods: max(x, ...)"),
        (grid("out[i, j] = x[i, j].sum()"), "functions are no methods: sum(x[i, j], ...)"),
        (module("def f(x: InOut[f32, M, N]):\n    for i, j in grid((M, N), (8, 8)):\n        pass\n"), "write the lengths one by one: grid(M, N, by=(...))"),
        (grid("out[i, j] = x.shape[0]"), "name its dims in the declaration, x: f32[M, N], and use M and N"),
        (grid("for k in range(N):", "    out[i, j] = sum(v[k])"), "loops without 'by' give single indices; with it, ranges, which read tiles"),
    ],
)
def test_help(text: str, help: str | None) -> None:
    found = errors_of(text).diagnostics[0].help
    assert found == help if help is not None else found is not None


def test_compile_time_values() -> None:
    text = module("def f(x: f32[M], *, B: int = tune(2, 4), mode: str = \"a\") -> f32[M]:\n    return x * B\n")
    error = errors_of(text, constants={"B": 3})
    assert lines_of(error) == "5:21 tunable-domain: 3 is not in the domain of 'B': 2, 4"
    assert lines_of(errors_of(text, constants={"mode": 1})) == "5:42 wrong-type: the value of 'mode' is 1, expected a string"
    unknown = errors_of(text, constants={"mod": "b"}).diagnostics[0]
    assert (unknown.slug, unknown.message, unknown.help) == ("unknown-name", "'mod' is not defined here", "did you mean 'mode'?")


# -- imports


def test_imports(tmp_path: Path) -> None:
    (tmp_path / "common.tile").write_text("from .deep import two\n\ndef double(t):\n    return t * two\n\nLIMIT = 3 * two\n")
    (tmp_path / "deep.tile").write_text("two = 2\n")
    text = 'from .common import double as d, LIMIT\n\nM = dims("M")\n\ndef f(x: f32[M]) -> f32[M]:\n    return d(x) + LIMIT\n'
    diagnostics = Diagnostics()
    tree = parse_module(Source(str(tmp_path / "main.tile"), text), diagnostics)
    built = build(tree.functions[0], TextEnv(tree, diagnostics))
    assert built.level == "tensor"
    assert "arith.constant 6.0" in str(built)


def test_an_error_in_an_imported_file_is_shown_there(tmp_path: Path) -> None:
    (tmp_path / "common.tile").write_text("def double(t):\n    return t * too\n")
    text = 'from .common import double\n\nM = dims("M")\n\ndef f(x: f32[M]) -> f32[M]:\n    return double(x)\n'
    error = errors_of(text, path=str(tmp_path / "main.tile"))
    assert [str(d.span) for d in error.diagnostics] == [f"{tmp_path}/common.tile:2:16"]


def test_a_missing_name_of_an_import(tmp_path: Path) -> None:
    (tmp_path / "common.tile").write_text("def double(t):\n    return t\n")
    error = errors_of("from .common import doubel\n\ndef f(x: f32[3]) -> f32[3]:\n    return x\n", path=str(tmp_path / "main.tile"))
    assert [(d.slug, d.message, d.help) for d in error.diagnostics] == [("import-not-found", "'common' has no 'doubel'", "did you mean 'double'?")]


def test_files_that_import_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.tile").write_text("from .b import g\n\ndef f(x: f32[3]) -> f32[3]:\n    return x\n")
    (tmp_path / "b.tile").write_text("from .a import f\n\ndef g(t):\n    return t\n")
    error = errors_of((tmp_path / "a.tile").read_text(), path=str(tmp_path / "a.tile"))
    assert error.diagnostics[0].slug == "import-cycle"
    assert error.diagnostics[0].message == "this import leads back to the file itself: a.tile -> b.tile -> a.tile"
    assert str(error.diagnostics[0].span) == f"{tmp_path}/b.tile:1:1"


# -- programs that are too much


def test_calls_that_double_end() -> None:
    chain = "def h0(t):\n    return t + 1\n\n" + "".join(f"def h{i}(t):\n    return h{i - 1}(h{i - 1}(t))\n\n" for i in range(1, 40))
    error = errors_of(module(chain + "def f(x: f32[M]) -> f32[M]:\n    return h39(x)\n"))
    assert [d.slug for d in error.diagnostics] == ["program-too-large"]


def test_loops_nested_deep_build_in_linear_time() -> None:
    depth = 40
    loops = "".join(f"{'    ' * (d + 2)}for k{d} in range(2):\n" for d in range(depth))
    body = "    out = empty(f32, M)\n    for i in grid(M, by=8):\n        acc = zeros(f32, 8)\n" + loops + "    " * (depth + 2) + "acc += x[i]\n        out[i] = acc\n    return out\n"
    diagnostics = Diagnostics()
    tree = parse_module(Source("t.tile", module("def f(x: f32[M]) -> f32[M]:\n" + body)), diagnostics)
    built = build(tree.functions[0], TextEnv(tree, diagnostics))
    assert sum(op.name == "loop.for" for op in built.walk()) == depth


def test_expressions_nested_deep() -> None:
    text = module("def f(x: f32[M]) -> f32[M]:\n    return " + "(" * 100 + "x" + " + 1)" * 100 + "\n")
    tree = parse_module(Source("t.tile", text), diagnostics := Diagnostics())
    assert build(tree.functions[0], TextEnv(tree, diagnostics)).level == "tensor"


# -- bugs of the compiler


def test_an_unforeseen_exception_names_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("tilelang.frontend.statements.FunctionBuilder.function", broken)
    tree = parse_module(Source("t.tile", grid("out[i, j] = x[i, j] + exp(x[i, j])")), diagnostics := Diagnostics())
    with pytest.raises(CompilerBug) as caught:
        build(tree.functions[0], TextEnv(tree, diagnostics))
    assert str(caught.value) == (
        "compiler bug in pass builder: ZeroDivisionError: boom\n  from: t.tile:8:31\n"
        "   8 |         out[i, j] = x[i, j] + exp(x[i, j])\n     |                               ^^^^^^^^^^^^"
    )


def test_what_is_built_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilelang.frontend.shapes.Shapes.narrow", lambda self, tile, axes: tile)
    tree = parse_module(Source("t.tile", grid("out[i, j] = (zeros(f32, 64, 32) + 1) + x[i, j]")), diagnostics := Diagnostics())
    with pytest.raises(CompilerBug, match="in pass builder"):
        build(tree.functions[0], TextEnv(tree, diagnostics))
