from __future__ import annotations

import pickle
import string
import traceback

import pytest

from tilelang.diagnostics import (
    CompilerBug,
    Diagnostic,
    Diagnostics,
    Note,
    Source,
    Span,
    TileError,
    make,
    nearest,
    without_own_frames,
)
from tilelang.errors import CATALOGUE, CONSTRUCTS
from tilelang.frontend.text import parse_module

PROGRAM = """def f(a: f16[M, K], b: f16[K, N]):
    for i in grid(M):
        acc = zeros(f32, 128, 128)
        x = a[i, 0:32]
        y = b[0:64, :]
        acc += x @ y
"""


def at(text: str, piece: str, path: str = "m.tile", first_line: int = 1, columns: int = 0) -> Span:
    start = text.index(piece)
    return Span(Source(path, text, first_line, columns), start, start + len(piece))


def shown(span: Span | None) -> str:
    return Diagnostic("syntax", "what", span).render()


def test_rendering_with_notes_and_help() -> None:
    source = Source("matmul.tile", PROGRAM)

    def span(piece: str) -> Span:
        return Span(source, PROGRAM.index(piece), PROGRAM.index(piece) + len(piece))

    d = make(
        "shape-mismatch",
        span("x @ y"),
        [Note("'x' is 128x32 f16, loaded here", span("a[i, 0:32]")), Note("no place")],
        "slice b by 0:32",
        what="matmul contracts 32 with 64",
    )
    assert str(d) == (
        "matmul.tile:6:16: error[shape-mismatch]: matmul contracts 32 with 64\n"
        "   6 |         acc += x @ y\n"
        "     |                ^^^^^\n"
        "  note: 'x' is 128x32 f16, loaded here (matmul.tile:4:13)\n"
        "  note: no place\n"
        "  help: slice b by 0:32"
    )


def test_colour_changes_nothing_but_colour() -> None:
    d = make("unknown-name", at(PROGRAM, "acc"), [Note("n")], "did you mean 'abc'?", name="acc")
    coloured = d.render(color=True)
    assert "\033[1;31merror[unknown-name]\033[0m" in coloured
    for code in ("\033[1;31m", "\033[1;34m", "\033[1;36m", "\033[1;32m", "\033[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == d.render()


@pytest.mark.parametrize(
    ("text", "piece", "lines"),
    [
        ("\tx = \ty\n", "y", ["   1 |     x =     y", "     |             ^"]),
        ("é = '日本' + 語\n", "語", ["   1 | é = '日本' + 語", "     |              ^^"]),
        ("e\u0301 = xy\n", "xy", ["   1 | e\u0301 = xy", "     |     ^^"]),
        ("a\x1b[31m b\n", "b", ["   1 | a\N{REPLACEMENT CHARACTER}[31m b", "     |        ^"]),
        ("f(\n  a,\n  b)\n", "f(\n  a,\n  b)", ["   1 | f(", "     | ^^ ... to line 3"]),
        ("a\r\nb\r\n", "b", ["   2 | b", "     | ^"]),
        ("a\rb\r", "b", ["   2 | b", "     | ^"]),
        ("a = 1", "1", ["   1 | a = 1", "     |     ^"]),
    ],
)
def test_snippets(text: str, piece: str, lines: list[str]) -> None:
    assert shown(at(text, piece)).split("\n")[1:] == lines


def test_snippet_at_the_end_of_the_file() -> None:
    text = "a = (\n"
    assert shown(Span(Source("m", text), 5, 5)) == "m:1:6: error[syntax]: what\n   1 | a = (\n     |      ^"
    assert shown(Span(Source("m", text), 6, 6)) == "m:2:1: error[syntax]: what\n   2 |\n     | ^"


def test_snippet_of_a_high_line_number_and_a_cut_out_source() -> None:
    span = at("a = b\nc = d\n", "d", first_line=99999, columns=4)
    assert (span.line, span.column, str(span)) == (100000, 9, "m.tile:100000:9")
    assert shown(span).split("\n")[1:] == ["100000 | c = d", "       |     ^"]


def test_without_text_or_place_there_is_no_snippet() -> None:
    assert shown(None) == "error[syntax]: what"
    assert shown(Span.at("m.tile", 7, 16)) == "m.tile:7:16: error[syntax]: what"
    assert shown(Span(Source("empty.tile", ""), 0, 0)) == "empty.tile:1:1: error[syntax]: what"


def test_long_lines_are_cut_around_the_caret() -> None:
    text = "x = " + "a + " * 500 + "B + " + "c + " * 500 + "d\n"
    _, line, caret = shown(at(text, "B")).split("\n")
    assert len(line) < 200 and line[caret.index("^")] == "B"
    _, line, caret = shown(at(text, "x")).split("\n")
    assert len(line) < 200 and line[caret.index("^")] == "x" and line.endswith("...")


def test_span_positions_and_join() -> None:
    source = Source("m", "ab\ncd\nef\n")
    a, b = Span(source, 1, 2), Span(source, 4, 6)
    joined = Span.join(b, a)
    assert (joined.start, joined.end, joined.text) == (1, 6, "b\ncd\n")
    assert (a.line, a.column, joined.end_line) == (1, 2, 2)
    other = Span(Source("n", "xy"), 0, 1)
    assert Span.join(a, other) is a
    assert source.offset(2, 2) == 4 and source.offset(1, 99) == len(source.text)
    assert source.line_text(2) == "cd" and source.line_text(9) == ""
    with pytest.raises(AttributeError):
        a.start = 3  # type: ignore[misc]


def test_collector_sorts_and_drops_repetitions() -> None:
    found = Diagnostics()
    source = Source("m", "abc")
    found.error("unknown-name", None, name="z")
    found.error("unknown-name", Span(source, 2, 3), name="c")
    found.error("unknown-name", Span(source, 0, 1), name="a")
    found.error("unknown-name", Span(source, 0, 1), name="a")
    found.warning("unknown-name", Span(source, 1, 2), name="b")
    assert [d.message[1] for d in found.sorted()] == ["a", "b", "c", "z"]
    assert [d.message[1] for d in found.errors] == ["a", "c", "z"]
    assert [d.message[1] for d in found.warnings] == ["b"]
    with pytest.raises(TileError) as caught:
        found.raise_if_errors()
    assert [d.severity for d in caught.value.diagnostics] == ["error"] * 3


def test_warnings_alone_do_not_raise() -> None:
    found = Diagnostics()
    assert found.warning("unknown-name", None, name="a").render() == "warning[unknown-name]: 'a' is not defined here"
    found.raise_if_errors()


def test_at_most_twenty_errors_are_shown() -> None:
    found = Diagnostics()
    source = Source("m", "x" * 100)
    for i in reversed(range(33)):
        found.error("unknown-name", Span(source, i, i + 1), name=str(i))
    with pytest.raises(TileError) as caught:
        found.raise_if_errors()
    error = caught.value
    assert [d.span.start for d in error.diagnostics if d.span] == list(range(20))
    assert str(error).endswith("\nand 13 more errors")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_tile_error_prints_below_its_name() -> None:
    error = TileError(make("unknown-name", at("a = b", "b"), name="b"))
    printed = "".join(traceback.format_exception_only(error))
    assert printed.endswith(
        "TileError: \nm.tile:1:5: error[unknown-name]: 'b' is not defined here\n   1 | a = b\n     |     ^\n"
    )


def test_compiler_bug_names_op_pass_and_reproducer() -> None:
    bug = CompilerBug(
        "operand 1 has no type",
        op="%3 = tile.add %1, %2",
        span=at(PROGRAM, "x @ y"),
        pass_name="fuse",
        reproducer="bug.tir",
    )
    assert str(bug) == (
        "compiler bug in pass fuse: operand 1 has no type\n"
        "  op: %3 = tile.add %1, %2\n"
        "  from: m.tile:6:16\n"
        "   6 |         acc += x @ y\n"
        "     |                ^^^^^\n"
        "  reproduce with: tilec opt bug.tir"
    )
    assert str(CompilerBug("why")) == "compiler bug: why"


def test_own_frames_can_be_hidden() -> None:
    try:
        make("no-such-slug", None)
    except KeyError as e:
        whole = [f.name for f in traceback.extract_tb(e.__traceback__)]
        kept = [f.name for f in traceback.extract_tb(without_own_frames(e))]
    assert whole == ["test_own_frames_can_be_hidden", "make"]
    assert kept == ["test_own_frames_can_be_hidden"]


def test_nearest() -> None:
    names = ["matmul", "maximum", "acc", "BM"]
    assert nearest("matmull", names) == "matmul"
    assert nearest("bm", names) == "BM"
    assert nearest("zzz", names) is None
    assert nearest("acc", ["acc"]) is None


# -- the catalogue


def template_fields(template: str | None) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template or "") if name}


@pytest.mark.parametrize("slug", CATALOGUE)
def test_catalogue_entry_is_complete(slug: str) -> None:
    entry = CATALOGUE[slug]
    assert slug == slug.lower() and " " not in slug
    assert template_fields(entry.help) <= template_fields(entry.message), "a help line uses the fields of its message"
    assert entry.summary.endswith(".") and entry.summary[0].isupper()
    assert not entry.message.endswith(".") and "invalid" not in entry.message
    fields = {name: f"<{name}>" for name in template_fields(entry.message)}
    text = make(slug, None, (), None, "error", **fields).render()
    assert text.startswith(f"error[{slug}]: ") and all(value in text for value in fields.values())


def test_missing_field_and_unknown_slug_are_key_errors() -> None:
    with pytest.raises(KeyError):
        Diagnostics().error("unknown-name", None)
    with pytest.raises(KeyError):
        Diagnostics().error("no-such-slug", None)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_every_construct_has_wording_and_remedy(construct: str) -> None:
    what, help = CONSTRUCTS[construct]
    assert what and help and not what.endswith(".") and not help.endswith(".")


def test_errors_of_a_file_come_out_in_order() -> None:
    found = Diagnostics()
    parse_module(Source("m.tile", "def f(x):\n    return [x]\n\ndef g(x):\n    return x +\n"), found)
    with pytest.raises(TileError) as caught:
        found.raise_if_errors()
    assert str(caught.value) == (
        "\nm.tile:2:12: error[unsupported-construct]: a list is not part of the language\n"
        "   2 |     return [x]\n"
        "     |            ^\n"
        "  help: use a tuple: (a, b)\n"
        "m.tile:5:15: error[syntax]: expected an expression, found the end of the line\n"
        "   5 |     return x +\n"
        "     |               ^"
    )
