from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.frontend.programs import PROGRAMS
from tilelang.diagnostics import Diagnostic, Diagnostics, Source
from tilelang.frontend import ast, text


def parse(program: str) -> tuple[ast.Module, list[Diagnostic]]:
    diagnostics = Diagnostics()
    return text.parse_module(Source("a.tile", program), diagnostics), diagnostics.sorted()


def good(program: str) -> ast.Module:
    module, found = parse(program)
    assert not found, found[0].render()
    return module


def only(program: str) -> Diagnostic:
    _, found = parse(program)
    assert len(found) == 1, "\n".join(d.render() for d in found)
    return found[0]


def place(d: Diagnostic) -> tuple[int, int, str]:
    assert d.span is not None
    return d.span.line, d.span.column, d.span.text


MODULE = '''"""What the file is for."""
from tilelang.lib.nn import softmax, gelu as act   # a comment
from .common import (f, g,)
from ..up.there import h
from . import k

BM = 64
SHAPE = (BM, 2 * 3)
A, B = 1, "two"
M, N, K = dims("M N K")
L = dims("L")
Float = dtypes(f32, f16, bf16)

def one(x: f32[M]) -> f32[M]:
    return softmax(x)

def two(x): return one(x)
'''


def test_module_level() -> None:
    module = good(MODULE)
    assert module.doc == "What the file is for."
    assert [(i.module, i.level, [(n.name, n.alias) for n in i.names]) for i in module.imports] == [
        ("tilelang.lib.nn", 0, [("softmax", None), ("gelu", "act")]),
        ("common", 1, [("f", None), ("g", None)]),
        ("up.there", 2, [("h", None)]),
        ("", 1, [("k", None)]),
    ]
    assert [(c.name, ast.unparse(c.value)) for c in module.constants] == [
        ("BM", "64"),
        ("SHAPE", "(BM, 2 * 3)"),
        ("A", "1"),
        ("B", '"two"'),
    ]
    assert [(d.name, d.symbol) for d in module.dims] == [(s, s) for s in "MNKL"]
    assert [(d.name, [ast.unparse(o) for o in d.options]) for d in module.dtypes] == [("Float", ["f32", "f16", "bf16"])]
    assert [f.name for f in module.functions] == ["one", "two"]


def test_module_prints_and_reads_back() -> None:
    module = good(MODULE)
    printed = ast.unparse(module)
    assert good(printed) == module
    assert ast.dump(good(printed)) == ast.dump(module)
    assert ast.unparse(good(printed)) == printed


def test_dump_shows_the_tree() -> None:
    assert ast.dump(good("BM = 64\n\ndef f(x: f32[M], *, n=1):\n    x[0:, 1] += -2\n    return\n")) == (
        "Module\n"
        "  constants:\n"
        "    Constant 'BM'\n"
        "      value: Number 64 '64'\n"
        "  functions:\n"
        "    Function 'f'\n"
        "      params:\n"
        "        Param 'x' 'positional'\n"
        "          annotation: Subscript\n"
        "            base: Name 'f32'\n"
        "            items:\n"
        "              Name 'M'\n"
        "        Param 'n' 'keyword'\n"
        "          default: Number 1 '1'\n"
        "      body:\n"
        "        AugAssign '+'\n"
        "          target: Subscript\n"
        "            base: Name 'x'\n"
        "            items:\n"
        "              Slice\n"
        "                start: Number 0 '0'\n"
        "              Number 1 '1'\n"
        "          value: Unary '-'\n"
        "            operand: Number 2 '2'\n"
        "        Return"
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark(end: str, bom: str) -> None:
    program = "BM = 1\n\n# comment\ndef f(x):\n    y = (x,\n\n  1)  # c\n\n    return y"
    module = good(bom + program.replace("\n", end))
    assert ast.dump(module) == ast.dump(good(program + "\n"))
    last = module.functions[0].body[-1]
    assert (last.span.line, last.span.column, last.span.text) == (9, 5, "return y")
    assert (module.constants[0].span.line, module.constants[0].span.column) == (1, 1)


@pytest.mark.parametrize(
    "program", ["", "\n", "# only a comment", "\n\n   \n  # indented comment\n\n", "\ufeff", "\\\n\n"]
)
def test_empty_files(program: str) -> None:
    assert good(program) == ast.Module(good("").span, Source("", ""))


def test_values_of_literals() -> None:
    module = good(
        "A = 1_000\nB = 0x1F\nC = 1e-5\nD = .5\nE = 1.\nF = 0b11\nG = 'a' \"b\"\nH = r'\\d'\nI = '\\x41\\n'\nJ = True\nK = None\n"
    )
    values = [getattr(c.value, "value", None) for c in module.constants]
    assert values == [1000, 31, 1e-5, 0.5, 1.0, 3, "ab", "\\d", "A\n", True, None]


# Each: a program with one error, its slug, line, column, marked text and message, and a word of the help line (or None).
ERRORS = {
    "no colon after for": ("def f(x):\n    for i in grid(M)\n        pass\n", "syntax", 2, 21, "", "expected ':' after the loop header, found the end of the line", None),
    "no colon after while": ("def f(x):\n    while x\n        pass\n", "syntax", 2, 12, "", "expected ':' after the loop condition, found the end of the line", None),
    "no colon after def": ("def f(x)\n    pass\n", "syntax", 1, 9, "", "expected ':' after the function header, found the end of the line", None),
    "no colon after else": ("def f(x):\n    if x: pass\n    else\n        pass\n", "syntax", 3, 9, "", "expected ':' after 'else', found the end of the line", None),
    "= in a condition": ("def f(x):\n    if x = 3:\n        pass\n", "syntax", 2, 10, "=", "expected ':' after the condition, found '='", "=="),
    "block on the same line": ("def f(x): for i in x: pass\n", "syntax", 1, 11, "for", "expected 'for' on a line of its own, below this one and indented", None),
    "missing operand": ("def f(x):\n    return x +\n", "syntax", 2, 15, "", "expected an expression, found the end of the line", None),
    "two values": ("def f(x):\n    y = x x\n", "syntax", 2, 11, "x", "expected an operator or the end of the line, found name 'x'", None),
    "missing comma": ("def f(x):\n    y = g(x 1)\n", "syntax", 2, 13, "1", "expected ',' or ')', found number 1", None),
    "missing comma before a line": ("def f(x):\n    y = g(x,\n          1\n          2)\n", "syntax", 3, 12, "", "expected ',' or ')', found number 2", None),
    "unclosed": ("def f(x):\n    y = g(x, 1\n    return y\n", "syntax", 2, 10, "(", "'(' is never closed", None),
    "unclosed at the end": ("def f(x):\n    return x[", "syntax", 2, 13, "[", "'[' is never closed", None),
    "unclosed header": ("def f(x:\n    return 3\n", "syntax", 1, 6, "(", "'(' is never closed", None),
    "wrong bracket": ("def f(x):\n    return (x]\n", "syntax", 2, 14, "]", "']' does not close '('", None),
    "bracket too many": ("def f(x):\n    return x)\n", "syntax", 2, 13, ")", "')' closes nothing: no bracket is open here", None),
    "unterminated string": ("def f(x):\n    y = 'abc\n", "syntax", 2, 9, "'", "the string that starts with ' has no end", None),
    "unterminated doc": ('def f(x):\n    """abc\n', "syntax", 2, 5, '"""', 'the string that starts with """ has no end', None),
    "half an escape": ("A = 'a\\x1'\n", "syntax", 1, 5, "'a\\x1'", "expected a whole escape such as '\\n', '\\x41' or '\\u00e9' after each backslash", None),
    "conditional without else": ("def f(x):\n    return 1 if x\n", "syntax", 2, 18, "", "expected 'else', found the end of the line", None),
    "for without in": ("def f(x):\n    for i range(3):\n        pass\n", "syntax", 2, 11, "range", "expected 'in', found name 'range'", None),
    "keyword as a name": ("def as(x):\n    pass\n", "syntax", 1, 5, "as", "expected a name, found the keyword 'as'", None),
    "def without brackets": ("def f:\n    pass\n", "syntax", 1, 6, ":", "expected '(', found ':'", None),
    "octal": ("A = 012\n", "syntax", 1, 5, "012", "expected a number, found '012'", "0o"),
    "number and name": ("A = 1abc\n", "syntax", 1, 5, "1abc", "expected a number, found '1abc'", None),
    "unknown character": ("A = 3 €\n", "syntax", 1, 7, "€", "unexpected character '€' (EURO SIGN)", None),
    "character in a name": ("A² = 3\n", "syntax", 1, 1, "A²", "the character '²' (SUPERSCRIPT TWO) cannot be part of a name", None),
    "not with a mark": ("A = !B\n", "syntax", 1, 5, "!", "unexpected character '!'", "not a"),
    "backslash": ("A = 3 \\ 4\n", "syntax", 1, 7, "\\", "a backslash continues a line only at its end", None),
    "backslash at the end": ("A = 3 \\", "syntax", 1, 6, "", "expected another line after the backslash, found the end of the file", None),
    "assign to a call": ("def f(x):\n    g(x) = 3\n", "syntax", 2, 5, "g(x)", "expected a name or a place such as x[i] to assign to, found a call", "=="),
    "assign to True": ("def f(x):\n    a, True = 3\n", "syntax", 2, 8, "True", "expected a name or a place such as x[i] to assign to, found a constant", None),
    "update of a tuple": ("def f(x):\n    a, b += 1\n", "syntax", 2, 5, "a, b", "expected one name or place before '+=', found a tuple", None),
    "loop over a place": ("def f(x):\n    for x[0] in x:\n        pass\n", "syntax", 2, 9, "x[0]", "expected a name for the loop variable, found a subscript", None),
    "argument twice": ("A = g(a=1, a=2)\n", "syntax", 1, 12, "a=2", "expected each argument once, found 'a' a second time", None),
    "positional after keyword": ("A = g(a=1, b)\n", "syntax", 1, 12, "b", "expected 'name=value', found a positional argument after a keyword argument", None),
    "default order": ("def f(x=1, y): pass\n", "syntax", 1, 12, "y", "expected a default for 'y', since a parameter before it has one", None),
    "star without parameter": ("def f(x, *): pass\n", "syntax", 1, 10, "*", "expected a parameter after '*', found the end of the list", None),
    "two stars": ("def f(*, a, *, b): pass\n", "syntax", 1, 13, "*", "expected one '*' in a parameter list, found a second", None),
    "else alone": ("def f(x):\n    y = 1\n    else:\n        pass\n", "syntax", 3, 5, "else", "'else' has no 'if' at the same indentation before it", None),
    "loop at the top": ("for i in 3:\n    pass\n", "syntax", 1, 1, "for i in 3:\n    pass", "expected an import, a constant, dims, dtypes or a function at the top level, found a loop", "function"),
    "values for names": ("A, B = 3\n", "syntax", 1, 8, "3", "expected 2 values, one for each name", None),
    "body not indented": ("def f(x):\nreturn x\n", "indentation", 2, 1, "return", "expected an indented block after the function header, found the keyword 'return'", "pass"),
    "body missing": ("def f(x):\n", "indentation", 1, 10, "", "expected an indented block after the function header, found the end of the file", "pass"),
    "indented for nothing": ("def f(x):\n    y = 1\n      z = 2\n", "indentation", 3, 7, "", "this line is indented, and the line above it starts no block", None),
    "unindented between": ("def f(x):\n        y = 1\n    return y\n", "indentation", 3, 5, "", "this line is indented by 4 columns, which is no block that is open here", "0"),
    "first line": ("  A = 1\n", "indentation", 1, 3, "", "the first line is indented", "margin"),
    "tabs and spaces": ("def f(x):\n\ty = 1\n        z = 1\n", "indentation", 3, 9, "", "this line is indented with a mixture of tabs and spaces that the line above does not have", "spaces"),
    "parameter twice": ("def f(x, x): pass\n", "redefinition", 1, 10, "x", "'x' is already defined as a parameter", "another name"),
    "name twice": ("A = 1\ndef A(x): pass\n", "redefinition", 2, 5, "A", "'A' is already defined as a constant", "another name"),
    "dims count": ('M, N = dims("M")\n', "wrong-arguments", 1, 8, 'dims("M")', "dims names 1 dims, and 2 names stand before '='", None),
    "dims without a string": ("M = dims(3)\n", "wrong-arguments", 1, 5, "dims(3)", 'dims takes one string of names, as in M, N = dims("M N")', None),
    "dtypes of nothing": ("T = dtypes()\n", "wrong-arguments", 1, 5, "dtypes()", "dtypes takes the dtypes of one parameter, as in Float = dtypes(f32, f16)", None),
    "annotated constant": ("A: int = 3\n", "annotation", 1, 4, "int", "expected 'name = value' for a constant, found an annotation on 'A'", "remove"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str) -> None:
    program, slug, line, column, marked, message, help = ERRORS[name]
    found = only(program)
    assert (found.slug, found.message) == (slug, message)
    assert place(found) == (line, column, marked)
    assert (help or "") in (found.help or "") and (found.help is None) == (help is None)


UNSUPPORTED = {
    "class A:\n        pass": "a class",
    "with x:\n        pass": "a with statement",
    "try:\n        pass": "exception handling",
    "raise x": "raise",
    "y = lambda: x": "a lambda",
    "yield x": "a generator",
    "await x": "async code",
    "y = g(i for i in x)": "a comprehension",
    "y = (i for i in x)": "a comprehension",
    "y = [i for i in x]": "a list",
    "y = f'{x}'": "an f-string",
    'y = rb"x"': "a byte string",
    "y = (z := x)": "':='",
    "y = g(*x)": "'*' or '**' before an argument",
    "y = g(1, **x)": "'*' or '**' before an argument",
    "y = 1 < x < 2": "a chained comparison",
    "y = x in x": "'in' as an operator",
    "y = x not in x": "'in' as an operator",
    "y = x is not x": "'is' as an operator",
    "y = [1, 2]": "a list",
    "y = {1: 2}": "a dict or a set",
    "y = 1j": "a complex number",
    "y = x[...]": "'...'",
    "...": "'...'",
    "y = z = x": "an assignment to several targets",
    "y, *z = x": "'*' in an assignment",
    "del x": "del",
    "nonlocal y": "global or nonlocal",
    "import os": "an import of a module",
    "from os import *": "an import of everything",
    "from os import path": "an import inside a function",
    "def g():\n        pass": "a function inside a function",
    "for i in x:\n        pass\n    else:\n        pass": "'else' after a loop",
    "while x:\n        if x:\n            pass\n    else:\n        pass": "'else' after a loop",
    "y: f32": "a declaration without a value",
    "x[0]: f32 = 1": "an annotation on anything but a name",
    "match x:\n        case 1:\n            pass": "a match statement",
    "type X = f32": "a type statement",
    "y = 1; z = 2": "';'",
    "y = 1;": "';'",
    "@tile\n    def g():\n        pass": "a decorator in .tile text",
}


@pytest.mark.parametrize("body", UNSUPPORTED)
def test_unsupported_constructs_have_a_remedy(body: str) -> None:
    found = only(f"def f(x):\n    {body}\n")
    assert (found.slug, found.message) == (
        "unsupported-construct",
        f"{UNSUPPORTED[body]} is not part of the language",
    )
    assert found.help and found.span and found.span.text in body


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("def f(*x):", "a parameter with '*' or '**'"),
        ("def f(a, **x):", "a parameter with '*' or '**'"),
        ("def f(a, /):", "'/' in a parameter list"),
        ("def f(a, /, b):", "'/' in a parameter list"),
        ("def f[T](a):", "a type parameter"),
        ("async def f(a):", "an async function or loop"),
        ("@tile\ndef f(a):", "a decorator in .tile text"),
    ],
)
def test_unsupported_headers(header: str, what: str) -> None:
    found = only(f"{header}\n    pass\n")
    assert (found.slug, found.message) == ("unsupported-construct", f"{what} is not part of the language")


def test_each_function_reports_its_own_error_and_good_ones_are_kept() -> None:
    module, found = parse(
        'A = 1\n\ndef a(x):\n    """\ndef in a string\n    """\n    return (x\n\n@tile\ndef b(x):\n    return x\n\n'
        "def c(x):\n    y = x +\n\ndef d(x):\n    return [x]\n\n# def e\ndef f(x):\n    return 1 < x < 2\n"
    )
    assert [(d.slug, *place(d)) for d in found] == [
        ("syntax", 7, 12, "("),
        ("unsupported-construct", 9, 1, "@"),
        ("syntax", 14, 12, ""),
        ("unsupported-construct", 17, 12, "["),
        ("unsupported-construct", 21, 12, "1 < x < 2"),
    ]
    assert [f.name for f in module.functions] == ["b", "f"]


def test_rendered_error() -> None:
    assert only("def f(x):\n\ty = (x]\n").render() == (
        "a.tile:2:8: error[syntax]: ']' does not close '('\n"
        "   2 |     y = (x]\n"
        "     |           ^\n"
        "  note: '(' is opened here (a.tile:2:6)"
    )


@pytest.mark.parametrize(
    "value",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "(" * 5000,
        "-" * 5000 + "1",
        "not " * 5000 + "1",
        " + ".join("1" * 5000),
        "f" + "(x)" * 5000,
        "x" + "[0]" * 5000,
        "x" + ".a" * 5000,
        "1 if x else " * 5000 + "1",
        "2 ** " * 5000 + "2",
    ],
)
def test_deep_nesting_is_a_diagnostic(value: str) -> None:
    assert "nested more than" in only(f"def f(x):\n    return {value}\n").message


def test_deep_blocks_are_a_diagnostic() -> None:
    program = "def f(x):\n" + "".join(" " * (i + 1) + "if x:\n" for i in range(500)) + " " * 501 + "pass\n"
    assert only(program).message == "blocks are nested more than 100 deep, expected fewer"


def test_long_chains_and_files_are_no_problem() -> None:
    lines = "".join(f"    a{i} = x and y or {' + '.join('z' * 100)}\n" for i in range(100))
    assert len(good(f"def f(x):\n{lines}").functions[0].body) == 100
    assert isinstance(good(f"A = x and {' and '.join('y' * 3000)}\n").constants[0].value, ast.BoolOp)


def test_number_with_more_digits_than_python_takes() -> None:
    assert only(f"A = {'9' * 5000}\n").message == "expected a shorter number, found one of 5000 digits"


KEYWORDS = "def for in if elif while return lambda class not and is import from as match yield else:"
FRAGMENTS = (  # noqa: SIM905
    "( ) [ ] { } : , = == \n \t \r\n \r # \\ \\\n @ * ** / -> . ... é ² € \x00 \ufeff \x0c 1 0x 1e 1j 0777 f\" b' \ud800 "
    "T + - ~ ! $ ? ` ; := < >= None 日本 \" ' \"\"\" ''' \u2028"
).split(" ") + [f"{w} " for w in KEYWORDS.split()]


@pytest.mark.parametrize("seed", range(6))
def test_any_text_gives_a_module_or_diagnostics(seed: int) -> None:
    """Random changes of good programs: never a traceback, spans inside the text, and what reads also prints and reads."""
    chance = random.Random(seed)
    programs = [MODULE, *PROGRAMS.values()]
    for _ in range(120):
        program = chance.choice(programs)
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(len(program) + 1)
            to = at + chance.choice((0, 0, 1, 3, 20))
            piece = chance.choice(
                ("", chance.choice(FRAGMENTS), program[at : at + 30], "\n" + " " * chance.randrange(9))
            )
            program = program[:at] + piece + program[to:]
        module, found = parse(program)
        text_length = len(program.removeprefix("\ufeff"))
        for d in found:
            assert d.render()
            assert d.span is not None and 0 <= d.span.start <= d.span.end <= text_length
        if not found:
            assert good(ast.unparse(module)) == module


def test_parsing_from_several_threads() -> None:
    expected = ast.dump(good(MODULE))
    seen: list[str] = []
    threads = [threading.Thread(target=lambda: seen.extend(ast.dump(good(MODULE)) for _ in range(5))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen == [expected] * 20


# -- the cached grammar tables


@pytest.fixture
def fresh_parser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text._parser.cache_clear()
    yield tmp_path / "cache"
    text._parser.cache_clear()


def test_tables_are_cached_and_read_again(fresh_parser: Path) -> None:
    good(MODULE)
    (file,) = (fresh_parser / "tilec").iterdir()
    before = file.read_bytes()
    text._parser.cache_clear()
    good(MODULE)
    assert file.read_bytes() == before
    assert only("def f(x)\n    pass\n").message.startswith("expected ':'")  # spellings survive the cache


@pytest.mark.parametrize("junk", [b"", b"junk", b"\x80\x04", None])
def test_damaged_cache_is_rebuilt(fresh_parser: Path, junk: bytes | None) -> None:
    good(MODULE)
    (file,) = (fresh_parser / "tilec").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if junk is None else junk)
    text._parser.cache_clear()
    good(MODULE)
    rebuilt = file.read_bytes()
    assert rebuilt[:64] == whole[:64] and len(rebuilt) > 10_000
    text._parser.cache_clear()
    good(MODULE)
    assert file.read_bytes() == rebuilt


def test_folder_that_cannot_be_made_is_no_error(fresh_parser: Path) -> None:
    fresh_parser.write_text("a file where the folder should be")
    good(MODULE)
    assert fresh_parser.is_file()


def test_folder_that_cannot_be_written_is_no_error(fresh_parser: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    good(MODULE)
    assert not list((fresh_parser / "tilec").iterdir())


def test_lark_is_imported_only_when_text_is_read() -> None:
    code = "import sys, tilelang.frontend.text, tilelang.frontend.python; print('lark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
