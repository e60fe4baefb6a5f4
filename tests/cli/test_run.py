"""tilec run: data, modes, rates, comparison of results, files."""

from __future__ import annotations

import bdb
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16

from tests.cli.tilec import EXAMPLES, NAMES, SCALE, fails, ok, tilec

ONCE = ("--repeat", 1)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_verified(name: str) -> None:
    out = ok("run", EXAMPLES / f"{name}.tile", "--verify", *ONCE).stdout
    assert re.search(r"^verify +out.*: ok$", out, re.MULTILINE)
    assert "against the interpreter in float64" in out


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_verified_by_the_interpreter_too(name: str) -> None:
    out = ok("run", EXAMPLES / f"{name}.tile", "--verify", "--mode", "interpret").stdout
    assert re.search(r"^verify +out.*: ok$", out, re.MULTILINE) and "interpreted" in out


@pytest.mark.parametrize("name", ["softmax", "mlp", "sums", "histogram"])
def test_examples_against_their_reference(name: str) -> None:
    out = ok("run", EXAMPLES / f"{name}.py", "--reference", EXAMPLES / f"{name}.py:reference", *ONCE).stdout
    assert "against the reference" in out and ": ok" in out


def test_report() -> None:
    out = ok("run", "-", "--dim", "M=100", "--dim", "N=50", "--arg", "by=3", "--threads", 1, "--repeat", 4, input=SCALE).stdout
    assert out.startswith("scale(x: f32[100, 50], by=3) -> f32[100, 50]\n          BM=8, shift=False\n")
    assert re.search(r"^compile +[\d.]+ ms   \(passes [\d.]+ ms, machine code [\d.]+ ms\)$", out, re.MULTILINE)
    assert re.search(r"^run +min [\d.]+ ms, median [\d.]+ ms   \(4 runs, 1 thread\)$", out, re.MULTILINE)
    assert re.search(r"^rate +[\d.]+ GFLOP/s, [\d.]+ GB/s   \(5 kFLOP and 40 kB, counted from program and shapes, not measured\)$", out, re.MULTILINE)


def test_interpreted_and_checked() -> None:
    out = ok("run", "-", "--mode", "interpret", "--verify", input=SCALE).stdout
    assert "(1 run, interpreted)" in out and "compile" not in out and ": ok" in out
    for how in (["--sanitize"], ["--mode", "check"], ["--sanitize", "--mode", "check"]):
        assert "no defect found" in ok("run", "-", *how, input=SCALE).stdout
    assert "contradicts" in fails(2, "run", "-", "--sanitize", "--mode", "fast", input=SCALE)


RACE = """
M = dims("M")


def f(x: f32[M], at: i32[M]) -> f32[M]:
    out = empty(f32, M)
    for i in grid(M, by=8):
        out[i] = zeros(f32, i)
    for i in grid(M, by=8):
        out[at[i]] = x[i]
    return out
"""


def test_sanitize_finds_a_race() -> None:
    result = tilec("run", "-", "--sanitize", "--arg", "at=zeros:i32[300]", input=RACE)
    assert result.exit_code == 1 and re.search(r"<stdin>:\d+:\d+: error\[check-race\]", result.stderr)


def test_failing_assert_is_an_error_of_the_program() -> None:
    text = SCALE.replace("    out = empty", '    assert by > 5.0, "too small"\n    out = empty')
    for mode in ("fast", "interpret", "check"):
        assert "too small" in fails(1, "run", "-", "--mode", mode, input=text)
    ok("run", "-", "--arg", "by=6", *ONCE, input=text)


def test_out_of_bounds_index() -> None:
    stderr = fails(1, "run", EXAMPLES / "embedding.tile", "--arg", "ids=rand:i32[10]:500:600", "--dim", "V=400")
    assert "embedding.tile" in stderr and "^" in stderr


def test_prints_of_the_program_show_when_interpreted() -> None:
    text = SCALE.replace("    out = empty", '    print("by is", by)\n    out = empty')
    assert "by is 1" in ok("run", "-", "--mode", "interpret", input=text).stdout


def test_quit_in_the_debugger_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook() -> None:
        raise bdb.BdbQuit

    monkeypatch.setattr(sys, "breakpointhook", hook)
    result = tilec("run", "-", "--mode", "interpret", input=SCALE.replace("    out = empty", "    breakpoint()\n    out = empty"))
    assert (result.exit_code, result.stderr) == (130, "")


# -- arguments


def test_given_arrays(tmp_path: Path) -> None:
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    np.save(tmp_path / "x.npy", x)
    out = ok("run", "-", "--arg", f"x={tmp_path / 'x.npy'}", "--arg", "by=0.5", "--save", tmp_path / "out", *ONCE, input=SCALE).stdout
    assert "x: f32[3, 5]" in out and "saved     x.npy, by.npy, out.npy in" in out
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "out.npy"), x * np.float32(0.5))
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "x.npy"), x)


def test_saved_arrays_can_be_given_again(tmp_path: Path) -> None:
    """bf16 too, which NumPy writes as raw bytes."""
    file = EXAMPLES / "softmax.tile"
    ok("run", file, "--set", "Float=bf16", "--dim", "M=7", "--save", tmp_path / "a", *ONCE)
    ok("run", file, "--set", "Float=bf16", "--arg", f"x={tmp_path / 'a' / 'x.npy'}", "--save", tmp_path / "b", *ONCE)
    a, b = (np.load(tmp_path / d / "out.npy").view(bfloat16) for d in "ab")
    assert a.shape[0] == 7
    np.testing.assert_array_equal(a, b)


def test_random_arrays(tmp_path: Path) -> None:
    ok("run", EXAMPLES / "embedding.tile", "--arg", "ids=rand:i32[300]:20:40", "--arg", "table=rand:f16[40,8]", "--save", tmp_path, *ONCE)
    ids, table = np.load(tmp_path / "ids.npy"), np.load(tmp_path / "table.npy")
    assert ids.shape == (300,) and ids.dtype == np.int32 and set(ids) == set(range(20, 40))
    assert table.dtype == np.float16 and table.shape == (40, 8)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), table[ids])


def test_seed_decides_the_data(tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        ok("run", "-", "--seed", seed, "--save", tmp_path / folder, *ONCE, input=SCALE)
    a, b, c = (np.load(tmp_path / d / "x.npy") for d in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("arg", "says"),
    [
        ("z=3", "'scale' has no parameter 'z'; there are: x, by"),
        ("bye=3", "did you mean 'by'?"),
        ("BM=3", "known at compile time; use --set BM=3"),
        ("x", "--arg takes NAME=VALUE, found 'x'"),
        ("x=rand:f31[3]", "'f31' is no dtype; did you mean 'f32'?"),
        ("x=rand:f32[3,y]", "the shape [3,y] is not a list of lengths"),
        ("x=rand:f32[3,-1]", "the shape [3,-1] is not a list of lengths"),
        ("x=rand:2:2", "the range 2:2 is empty"),
        ("x=none.npy", "there is no file none.npy"),
        ("x=banana", "expected rand:f32[128,256]"),
        ("by=rand", "it is a scalar, give a number"),
    ],
)
def test_wrong_arguments(arg: str, says: str) -> None:
    assert says in fails(2, "run", "-", "--arg", arg, input=SCALE)


def test_file_that_is_no_array(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"no array")
    assert "is not an array in NumPy's format" in fails(2, "run", "-", "--arg", f"x={tmp_path / 'x.npy'}", input=SCALE)


def test_arguments_that_do_not_fit_the_signature() -> None:
    assert "error[argument-shape]" in fails(1, "run", "-", "--arg", "x=rand:f32[3]", input=SCALE)
    assert "error[argument-dtype]" in fails(1, "run", "-", "--arg", "x=rand:f64[3,4]", input=SCALE)
    assert "error[argument-shape]" in fails(1, "run", EXAMPLES / "matmul.tile", "--arg", "a=rand:f32[3,4]", "--arg", "b=rand:f32[5,6]")


def test_dims() -> None:
    assert "x: f32[9, 383]" in ok("run", "-", "--dim", "M=9", *ONCE, input=SCALE).stdout
    assert "-> f32[0, 383]" in ok("run", "-", "--dim", "M=0", "--verify", *ONCE, input=SCALE).stdout
    assert "no dim 'K'; there are: M, N" in fails(2, "run", "-", "--dim", "K=3", input=SCALE)
    assert "a length is an integer" in fails(2, "run", "-", "--dim", "M=-3", input=SCALE)


def test_too_large() -> None:
    assert "not enough memory" in fails(1, "run", "-", "--dim", "M=10000000000", "--dim", "N=10000000000", input=SCALE)


@pytest.mark.parametrize("option", [("--threads", 0), ("--repeat", 0), ("--seed", -1), ("--mode", "slow"), ("--nonsense",)])
def test_wrong_options(option: tuple[object, ...]) -> None:
    fails(2, "run", "-", *option, input=SCALE)


def test_compile_time_parameters_among_positional_ones() -> None:
    text = """
M = dims("M")


def f(factor: float, x: f32[M], twice: bool = True) -> f32[M]:
    return x * factor * 2.0 if twice else x * factor
"""
    assert "needs a value: --set factor=..." in fails(2, "run", "-", input=text)
    ok("run", "-", "--set", "factor=2.5", "--set", "twice=false", "--verify", *ONCE, input=text)


def test_cpu_that_this_machine_is_not() -> None:
    from tilelang.target import host_target

    other = "neoverse-n1" if "avx2" in host_target().isa else "haswell"
    assert "does not run here" in fails(2, "run", "-", "--cpu", other, input=SCALE)


def test_dtype_parameters_of_scalars() -> None:
    """A number takes the dtype of the arrays, or the chosen one."""
    text = """
M = dims("M")
Float = dtypes(f32, f16)


def f(alpha: Float, x: Tensor[Float, M]) -> Tensor[Float, M]:
    return x * alpha


def g(alpha: Float, x: i32[M]) -> Tensor[Float, M]:
    return cast(x, Float) * alpha
"""
    for function in "fg":
        assert "-> f16[383]" in ok("run", "-", "-f", function, "--set", "Float=f16", "--verify", *ONCE, input=text).stdout
    assert "x: f16[5]" in ok("run", "-", "-f", "f", "--arg", "x=rand:f16[5]", *ONCE, input=text).stdout
    assert "has dtype f32, expected f16, as 'Float' has" in fails(1, "run", "-", "-f", "f", "--set", "Float=f16", "--arg", "x=rand:f32[5]", input=text)


# -- in place

UPDATE = """
M = dims("M")


def f(x: InOut[f32, M], y: f32[M]):
    for i in grid(M, by=64):
        x[i] += y[i]
"""


def test_in_place_parameters(tmp_path: Path) -> None:
    """Every run starts from the same data; what is compared and saved is one update."""
    out = ok("run", "-", "--verify", "--repeat", 5, "--save", tmp_path, input=UPDATE).stdout
    assert "-> nothing" in out and re.search("^verify    x: .* ok$", out, re.MULTILINE) and "x_after.npy" in out
    x, y, after = (np.load(tmp_path / f"{n}.npy") for n in ("x", "y", "x_after"))
    np.testing.assert_array_equal(after, x + y)


def test_in_place_reference(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def changes(x, y):\n    x += y\n\ndef gives(x, y):\n    return x + y\n\ndef wrong(x, y):\n    x += 2 * y\n")
    for name in ("changes", "gives"):
        ok("run", "-", "--reference", f"{tmp_path / 'r.py'}:{name}", *ONCE, input=UPDATE)
    assert "differ" in fails(1, "run", "-", "--reference", f"{tmp_path / 'r.py'}:wrong", *ONCE, input=UPDATE)


# -- references


def test_wrong_results_fail(tmp_path: Path) -> None:
    file = tmp_path / "r.py"
    file.write_text("def off(x, by, shift=False):\n    return x * by * (1 + 1e-5)\n\ndef shape(x, by):\n    return x[1:] * by\n\ndef right(x, by, **kw):\n    assert kw['BM'] == 8\n    return x * by\n")
    result = tilec("run", "-", "--reference", f"{file}:off", *ONCE, input=SCALE)
    assert result.exit_code == 1 and "WRONG, the largest at [" in result.stdout and "the results differ" in result.stderr
    result = tilec("run", "-", "--reference", f"{file}:shape", *ONCE, input=SCALE)
    assert result.exit_code == 1 and "it has shape [383, 257], expected [382, 257]" in result.stdout
    ok("run", "-", "--reference", f"{file}:right", *ONCE, input=SCALE)


def test_references_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "r.py"
    file.write_text("def f(x, by):\n    raise ValueError('no')\n\ndef g(x, by):\n    return x, x\n")
    assert "the reference function failed: ValueError: no" in fails(1, "run", "-", "--reference", f"{file}:f", input=SCALE)
    assert "returns 2 results, expected 1" in fails(1, "run", "-", "--reference", f"{file}:g", input=SCALE)
    assert "has no function 'h'" in fails(2, "run", "-", "--reference", f"{file}:h", input=SCALE)
    assert "there is no file none.py" in fails(2, "run", "-", "--reference", "none.py:f", input=SCALE)
    assert "takes file.py:function" in fails(2, "run", "-", "--reference", str(file), input=SCALE)
    file.write_text("x = 1 / 0\n")
    assert "cannot be imported (line 1): ZeroDivisionError" in fails(1, "run", "-", "--reference", f"{file}:f", input=SCALE)


# -- Python files


def test_python_file_outside_a_package(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "from tilelang import tile, dims, f32, exp\n\nM = dims('M')\n\n@tile\ndef one(x: f32[M]) -> f32[M]:\n    return exp(x)\n\n"
        "@tile\ndef two(x: f32[M]) -> f32[M]:\n    return one(x) + 1.0\n"
    )
    assert ok("run", file, "--verify", *ONCE).stdout.startswith("two(")
    assert ok("run", file, "-f", "one", "--verify", *ONCE).stdout.startswith("one(")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "has no @tile kernels"),
        ("import nothing_of_this_name\n", "ModuleNotFoundError"),
        ("def f(:\n", "SyntaxError"),
        ("raise SystemExit(0)\n", "SystemExit"),
    ],
)
def test_python_files_without_kernels(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(text)
    assert says in fails(1, "run", tmp_path / "f.py")


def test_python_error_is_shown_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("from tilelang import tile, f32\n\n@tile\ndef f(x: f32[4]) -> f32[4]:\n    return x + y\n")
    assert "f.py:5:16: error[unknown-name]" in fails(1, "run", tmp_path / "f.py")


WRAPS = """N = dims("N")

def f(x: i8[N]) -> i8[N]:
    out = empty(i8, N)
    for i in grid(N, by=16):
        out[i] = x[i] * 100
    return out
"""


def test_sanitize_reports_overflow_where_asked() -> None:
    ok("run", "-", "--sanitize", "--arg", "x=rand:i8[40]:1:8", input=WRAPS)
    message = fails(1, "run", "-", "--sanitize", "--overflow", "--arg", "x=rand:i8[40]:2:8", input=WRAPS)
    assert "error[check-overflow]" in message and "out[i] = x[i] * 100" in message
    assert "--sanitize" in fails(2, "run", "-", "--overflow", input=WRAPS)


def test_prints_of_whole_tensor_functions_show_when_interpreted() -> None:
    text = 'M, N = dims("M N")\n\ndef f(x: f32[M, N]) -> f32[M]:\n    print("all of", x)\n    return sum(x, axis=1)\n'
    out = ok("run", "-", "--mode", "interpret", "--arg", "x=ones:f32[2,3]", "--verify", input=text).stdout
    assert "all of [[1. 1. 1.]\n [1. 1. 1.]]" in out and ": ok" in out
