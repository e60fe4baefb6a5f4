"""tilec list: what there is: passes, dialects, ops, targets, examples."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tilelang.commands.options import suggest, usage

KINDS = ("passes", "dialects", "ops", "targets", "examples")
EPILOG = """\b
Examples:
  tilec list passes
  tilec list passes fuse          one pass with its options
  tilec list ops tile             the ops of a dialect
  tilec list targets --json"""


@click.command("list", epilog=EPILOG)
@click.argument("what", type=click.Choice(KINDS), metavar="KIND")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for other programs.")
def listing(what: str, name: str | None, as_json: bool) -> None:
    """Lists a KIND: passes, dialects, ops, targets or examples; or only the one called NAME (ops: those of a dialect too)."""
    rows = _LISTS[what]()
    if name is not None:
        rows = [r for r in rows if r["name"] == name or (what == "ops" and r["name"].partition(".")[0] == name)] or _unknown(what, name, rows)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(r["name"]) for r in rows), default=0)
    for row in rows:
        click.echo(f"{row['name']:{width}}  {row['text']}".rstrip())
        for line in row.get("more", []):
            click.echo(f"{'':{width}}    {line}")


def _unknown(what: str, name: str, rows: list[dict[str, Any]]) -> Any:
    usage(f"there is no {what.removesuffix('es') if what == 'passes' else what.removesuffix('s')} '{name}'{suggest(name, [r['name'] for r in rows])}")


def first_line(thing: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    doc = inspect.cleandoc(thing if isinstance(thing, str) else thing.__doc__ or "")
    return " ".join(doc.partition("\n\n")[0].split())


def _passes() -> list[dict[str, Any]]:
    import dataclasses

    from tilelang.ir.passes import find_pass, pass_names

    rows: list[dict[str, Any]] = []
    for name in pass_names():
        cls = find_pass(name)
        if cls is None:
            continue
        before = cls.before if isinstance(cls.before, str) else " or ".join(cls.before)
        level = f"[{before or 'any'} -> {cls.after}] " if cls.after else f"[{before}] " if before else ""
        options = [f"{f.name}={f.default!r}" for f in dataclasses.fields(cls)]
        rows.append({"name": cls.name, "text": level + first_line(cls), "more": [f"options: {', '.join(options)}"] if options else [], "before": before, "after": cls.after})
    return rows


def _dialects() -> list[dict[str, Any]]:
    from importlib import import_module

    from tilelang import dialects

    rows: list[dict[str, Any]] = []
    for name in dialects.NAMES:
        module = import_module(f"tilelang.dialects.{name}")
        rows.append({"name": name, "text": f"{module.DIALECT.doc}, {len(module.DIALECT.members)} ops"})
    return rows


def _ops() -> list[dict[str, Any]]:
    from importlib import import_module

    from tilelang import dialects

    return [
        {"name": op.name, "text": first_line(op)}
        for name in dialects.NAMES
        for op in sorted(import_module(f"tilelang.dialects.{name}").DIALECT.members, key=lambda op: op.name)
    ]


def _targets() -> list[dict[str, Any]]:
    from tilelang.target import get_target, list_targets

    rows: list[dict[str, Any]] = []
    for name in list_targets():
        target = get_target(name)
        here = f"this machine, {target.llvm_cpu}: " if name == "cpu" else ""
        cores = f"{target.cores} core{'s' if target.cores > 1 else ''}, " if name == "cpu" or target.kind != "cpu" else ""
        only = "" if target.kind == "cpu" else ", no code generator yet"
        text = f"{here}{cores}{target.units}, {target.clock_ghz:.3g} GHz, {target.peak('f32') / 1e9:.0f} GFLOP/s f32{only}"
        rows.append({"name": name, "text": text, "kind": target.kind, "cores": target.cores, "isa": sorted(target.isa)})
    return rows


def _examples() -> list[dict[str, Any]]:
    import ast

    folder = Path(__file__).resolve().parents[2] / "examples"
    files = sorted(folder.glob("*.tile"))
    if not files:
        raise click.ClickException("the examples are part of the repository, not of the installed package")
    rows: list[dict[str, Any]] = []
    for file in files:
        head = file.read_text(encoding="utf-8").partition("\n")[0]
        python = file.with_suffix(".py")
        text = head[1:].strip() if head.startswith("#") else first_line(ast.get_docstring(ast.parse(python.read_text(encoding="utf-8"))) or "")
        rows.append({"name": file.stem, "text": text, "path": _relative(file)})
    return rows


def _relative(path: Path) -> str:
    cwd = Path.cwd()
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


_LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "passes": _passes, "dialects": _dialects, "ops": _ops, "targets": _targets, "examples": _examples,
}  # fmt: skip
