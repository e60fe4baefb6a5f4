from __future__ import annotations

import importlib.util
import linecache
import types
import warnings
from pathlib import Path

import pytest

from tests.frontend.programs import PROGRAMS
from tilelang.diagnostics import Diagnostics, Source, TileError
from tilelang.frontend import ast
from tilelang.frontend.python import read_function
from tilelang.frontend.text import parse_module

PRELUDE = "from __future__ import annotations\ndef tune(*values): return values[0]\nf32 = dtype = None\n"


def load(path: Path, text: str, name: str = "program") -> types.ModuleType:
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


def from_text(text: str) -> ast.Function:
    diagnostics = Diagnostics()
    module = parse_module(Source("program.tile", text), diagnostics)
    diagnostics.raise_if_errors()
    assert len(module.functions) == 1
    return module.functions[0]


def from_python(path: Path, text: str) -> ast.Function:
    return read_function(load(path, PRELUDE + text).f).function


def refused(path: Path, text: str) -> TileError:
    with pytest.raises(TileError) as caught:
        from_python(path, text)
    return caught.value


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_and_python_give_the_same_tree(name: str, tmp_path: Path) -> None:
    text = PROGRAMS[name]
    a, b = from_text(text), from_python(tmp_path / "p.py", text)
    assert ast.dump(a) == ast.dump(b)
    assert a == b


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_and_python_give_the_same_spans(name: str, tmp_path: Path) -> None:
    text = PROGRAMS[name]
    a, b = from_text(text), from_python(tmp_path / "p.py", text)
    first = PRELUDE.count("\n")
    for x, y in zip(ast.walk(a), ast.walk(b), strict=True):
        assert (x.span.text, x.span.line + first, x.span.column) == (y.span.text, y.span.line, y.span.column)
    assert a.name_span.text == b.name_span.text == "f"


@pytest.mark.parametrize("name", PROGRAMS)
def test_unparse_reads_back_to_the_same_tree_in_both(name: str, tmp_path: Path) -> None:
    tree = from_text(PROGRAMS[name])
    printed = ast.unparse(tree)
    assert ast.dump(from_text(printed)) == ast.dump(tree)
    assert ast.dump(from_python(tmp_path / "p.py", printed)) == ast.dump(tree)
    assert ast.unparse(from_text(printed)) == printed


def keep(f):
    return f


def outer(width=7):
    bm = 64

    class Holder:
        @keep
        @keep
        def inner(x, y):
            é = "naïve 日本", x @ y; é = é @ y + bm  # fmt: skip
            return é[
                width
            ]  # fmt: skip

    return Holder.inner


def test_spans_under_decorators_nesting_and_non_ascii() -> None:
    read = read_function(outer())
    source = Path(__file__).read_text(encoding="utf-8").split("\n")
    nodes = [n for n in ast.walk(read.function) if isinstance(n, (ast.Name, ast.Binary, ast.String))]
    assert [n.span.text for n in nodes if isinstance(n, ast.Binary)] == ["x @ y", "é @ y + bm", "é @ y"]
    for n in nodes:
        line = source[n.span.line - 1]
        assert line[n.span.column - 1 :].startswith(n.span.text)
    assert read.function.span.text.startswith("def inner") and read.function.span.text.endswith("]")
    assert read.function.name_span.text == "inner"
    assert source[read.function.span.line - 1].strip() == "def inner(x, y):"


def test_lookup_has_closure_and_globals_that_are_used() -> None:
    names = read_function(outer()).names
    assert names == {"bm": 64, "width": 7}


def test_lookup_of_an_empty_cell_falls_through() -> None:
    def make():
        def f(x):
            return x + later

        names = read_function(f).names
        later = 1
        return names, later

    assert make()[0] == {}


def test_lookup_of_names_that_only_annotations_use() -> None:
    size = 4

    def f(x: f32[size], y: keep):  # noqa: F821
        return x

    names = read_function(f, locals()).names
    assert names["size"] == size and names["keep"] is keep


def test_edited_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    first = read_function(load(path, "def f(x):\n    return x + 1\n").f)
    second = read_function(load(path, "# a line more\ndef f(x):\n    return x + 22\n").f)
    assert ast.unparse(first.function) != ast.unparse(second.function)
    assert second.function.span.line == 2


@pytest.mark.parametrize(
    "new",
    [
        "def g(x):\n    return x\n",
        "def f(x, y):\n    return x\n",
        "def f(x):\n    z = x\n",
        "def f(x):\n    return x\n",
        "x = [\n",
        "",
        "\n\n   y =",
    ],
)
def test_function_of_a_file_that_has_changed_is_refused(new: str, tmp_path: Path) -> None:
    path = tmp_path / "changed.py"
    f = load(path, "def f(x):\n    y = x\n    return y\n").f
    path.write_text(new)
    with pytest.raises(TileError, match="source-unavailable") as caught:
        read_function(f)
    if new:
        assert "changed after it was loaded" in str(caught.value)


def test_exec_without_source_says_what_to_do() -> None:
    namespace: dict[str, types.FunctionType] = {}
    exec("def f(x):\n    return x\n", namespace)
    with pytest.raises(TileError) as caught:
        read_function(namespace["f"])
    assert str(caught.value).strip() == (
        "<string>:1:1: error[source-unavailable]: the source of 'f' is not available: "
        "it was made by exec, or in a session that keeps no source\n"
        "  help: define the function in a file or a notebook cell, or put it into a .tile file and use tilelang.load"
    )


def test_notebook_cell_and_its_redefinition() -> None:
    def cell(number: int, text: str) -> types.FunctionType:
        path = f"<ipython-input-{number}>"
        linecache.cache[path] = (len(text), None, text.splitlines(True), path)
        namespace: dict[str, types.FunctionType] = {}
        exec(compile(text, path, "exec"), namespace)
        return namespace["f"]

    old, new = cell(1, "def f(x):\n    return x + 1\n"), cell(2, "\ndef f(x):\n    return x + 2")
    assert ast.unparse(read_function(old).function) == "def f(x):\n    return x + 1\n"
    assert ast.unparse(read_function(new).function) == "def f(x):\n    return x + 2\n"
    assert str(read_function(new).function.span) == "<ipython-input-2>:2:1"


def test_tabs_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "tabs.py"
    path.write_bytes(b"if True:\r\n\tdef f(x):\r\n\t\ty = x\r\n\t\treturn y + 1\r\n")
    spec = importlib.util.spec_from_file_location("tabs", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = read_function(module.f).function
    assert [s.span.text for s in function.body] == ["y = x", "return y + 1"]
    assert (function.body[1].span.line, function.body[1].span.column) == (4, 3)


REFUSED = {
    "class": ("class A:\n        pass", "a class"),
    "with": ("with x:\n        pass", "a with statement"),
    "try": ("try:\n        pass\n    finally:\n        pass", "exception handling"),
    "raise": ("raise x", "raise"),
    "lambda": ("y = lambda: x", "a lambda"),
    "yield": ("yield x", "a generator"),
    "comprehension": ("y = [i for i in x]", "a comprehension"),
    "generator": ("y = g(i for i in x)", "a comprehension"),
    "f-string": ("y = f'{x}'", "an f-string"),
    "walrus": ("y = (z := x)", "':='"),
    "star": ("y = g(*x)", "'*' or '**' before an argument"),
    "double star": ("y = g(**x)", "'*' or '**' before an argument"),
    "chain": ("y = 1 < x < 2", "a chained comparison"),
    "in": ("y = x in x", "'in' as an operator"),
    "is": ("y = x is x", "'is' as an operator"),
    "list": ("y = [1, 2]", "a list"),
    "dict": ("y = {1: 2}", "a dict or a set"),
    "bytes": ("y = b'a'", "a byte string"),
    "complex": ("y = 1j", "a complex number"),
    "ellipsis": ("y = x[...]", "'...'"),
    "chained assignment": ("y = z = x", "an assignment to several targets"),
    "star target": ("y, *z = x", "'*' in an assignment"),
    "del": ("del x", "del"),
    "global": ("global y", "global or nonlocal"),
    "import": ("import os", "an import inside a function"),
    "nested": ("def g():\n        pass", "a function inside a function"),
    "loop else": ("for i in x:\n        pass\n    else:\n        pass", "'else' after a loop"),
    "declaration": ("y: f32", "a declaration without a value"),
    "annotated place": ("x[0]: f32 = 1", "an annotation on anything but a name"),
    "match": ("match x:\n        case 1:\n            pass", "a match statement"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_constructs_have_a_remedy(name: str, tmp_path: Path) -> None:
    body, what = REFUSED[name]
    error = refused(tmp_path / "p.py", f"def f(x):\n    {body}\n")
    assert [(d.slug, d.message) for d in error.diagnostics] == [
        ("unsupported-construct", f"{what} is not part of the language")
    ]
    assert error.diagnostics[0].help
    span = error.diagnostics[0].span
    assert span is not None and span.text and span.text in body


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ("*x", "a parameter with '*' or '**'"),
        ("**x", "a parameter with '*' or '**'"),
        ("x, /", "'/' in a parameter list"),
    ],
)
def test_unsupported_parameters(params: str, what: str, tmp_path: Path) -> None:
    error = refused(tmp_path / "p.py", f"def f({params}):\n    pass\n")
    assert [d.message for d in error.diagnostics] == [f"{what} is not part of the language"]


def test_lambda_and_async_functions_are_refused(tmp_path: Path) -> None:
    module = load(tmp_path / "p.py", "f = lambda x: x\nasync def g(x):\n    pass\n")
    for function, what in ((module.f, "a lambda"), (module.g, "an async function or loop")):
        with pytest.raises(TileError) as caught:
            read_function(function)
        assert caught.value.diagnostics[0].message == f"{what} is not part of the language"


def test_several_errors_in_one_function_are_all_reported(tmp_path: Path) -> None:
    error = refused(tmp_path / "p.py", "def f(x):\n    y = [1]\n    x.a = y\n    for x[0] in y:\n        raise y\n")
    assert [d.message for d in error.diagnostics] == [
        "a list is not part of the language",
        "expected a name or a place such as x[i] to assign to, found an attribute",
        "expected a name for the loop variable, found a subscript",
        "raise is not part of the language",
    ]


def test_deep_nesting_is_a_diagnostic(tmp_path: Path) -> None:
    error = refused(tmp_path / "p.py", f"def f(x):\n    return {' + '.join('x' * 600)}\n")
    assert "nested more than 128 deep" in error.diagnostics[0].message
    assert from_python(tmp_path / "p.py", f"def f(x):\n    return {' + '.join('x' * 100)}\n").body
