"""The documentation says what is: its Python runs, its outputs are what the command prints, its links lead somewhere.

An output stands in a fence after `<!-- output of: COMMAND -->`; `, 8 lines from: WORD` after the command keeps 8 lines from the first with the word.
`pytest --update-golden` writes the outputs anew."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.tilec import tilec

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").glob("*.md")))]
OUTPUT = re.compile(r"(<!-- output of: tilec (.*?)(?:, (\d+) lines from: (\S+))? -->\n```\n)(.*?)(```)", re.DOTALL)


def output(command: str, count: str | None, word: str) -> str:
    result = tilec(*shlex.split(command))
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.rstrip("\n").splitlines()
    if count is not None:
        first = next(i for i, line in enumerate(lines) if word in line)
        lines = lines[first : first + int(count)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", PAGES)
def test_outputs(page: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / page).read_text()
    now = OUTPUT.sub(lambda m: m[1] + output(m[2], m[3], m[4]) + m[6], text)
    if request.config.getoption("--update-golden"):
        (ROOT / page).write_text(now)
    assert now == (ROOT / page).read_text()


def python_blocks() -> list[tuple[str, str]]:
    return [(f"{page}-{i}", code) for page in PAGES for i, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))]


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in python_blocks()])
def test_python_runs(code: str, tmp_path: Path) -> None:
    """A block with imports is a program; one without is .tile text, or a part of one of the examples."""
    if "import" in code:
        path = tmp_path / "block.py"
        path.write_text(code)
        exec(compile(code, str(path), "exec"), {"__name__": "block"})
    elif "def " in code:
        path = tmp_path / "block.tile"
        path.write_text(code)
        result = tilec("check", path)
        assert result.exit_code == 0, result.stderr
    else:
        squeezed = re.sub(r"\s+", " ", code).strip()
        assert any(squeezed in re.sub(r"\s+", " ", p.read_text()) for p in (ROOT / "examples").glob("*.tile"))


@pytest.mark.parametrize("page", PAGES)
def test_links(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_the_kernel_of_the_readme_is_the_example() -> None:
    first = next(code for name, code in python_blocks() if name == "README.md-0")
    def bare(text: str) -> str:
        return re.sub(r"\s+", " ", re.sub(r"#.*", "", text)).strip()
    assert bare(first) in bare((ROOT / "examples" / "linear.tile").read_text())


def test_layout_of_the_sources() -> None:
    """Imports go through the package, no file grows beyond what one can read, and architecture names every folder of passes."""
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    for folder in ("tilelang", "dialects", "passes", "backends", "runtime", "examples", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            assert not re.search(r"^\s*(from|import) (dialects|passes|backends|runtime)\b", text, re.MULTILINE), path
            assert len(text.splitlines()) <= 600, f"{path} is long: is it one room or two?"
    for folder in (p.name for p in (ROOT / "passes").iterdir() if p.is_dir() and p.name != "__pycache__"):
        assert f"`{folder}" in architecture, folder
