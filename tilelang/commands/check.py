"""tilec check: everything that is wrong with a program, without making code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tilelang.commands.opt import read_ir
from tilelang.commands.options import IrCommand, Watch, ir_options, pairs, set_option, suggest, usage, warn, write_output
from tilelang.commands.programs import SourceFile, build, choices_of, is_public, names_to_set, read_program, read_text, require_constants, shown
from tilelang.diagnostics import Diagnostics, TileError

if TYPE_CHECKING:
    from tilelang.frontend.signature import Specialization
    from tilelang.kernel import Kernel
    from tilelang.target import Target

EPILOG = """\b
Examples:
  tilec check examples/*.tile
  tilec check matmul.tile --set BM=96 --cpu haswell
  tilec check matmul.tile --interpret-each          every pass must keep the results
  tilec check dumps/04-raise.tir                    IR text, as --print-ir-to writes it"""


@click.command(cls=IrCommand, epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=SourceFile(), metavar="FILE...")
@set_option
@ir_options
def check(files: tuple[str, ...], choices: tuple[str, ...], watch: Watch) -> None:
    """Checks FILEs (.tile, .py, IR text in .tir, or '-' for .tile text on stdin) and reports all that is wrong.

    Every public function is built for every dtype it allows and goes through all passes; no code is made."""
    target = watch.cpu_target()
    wanted = pairs(choices, "--set")
    settable: set[str] = set()
    used: set[str] = set()
    failed = False
    for file in files:
        diagnostics = Diagnostics()
        try:
            summary = _check_ir(file) if file.endswith(".tir") else _check_program(file, wanted, settable, used, target, watch, diagnostics)
            diagnostics.raise_if_errors()
        except TileError as error:
            from tilelang.cli import show, wants_colour

            failed = True
            show(error.render(wants_colour()))
            continue
        finally:
            warn(diagnostics)
        click.echo(f"{shown(file)}: OK, {summary}")
    for name in wanted:
        if name not in used and not failed:
            usage(f"--set: no function checked has a compile-time parameter '{name}'{suggest(name, settable)}")
    if failed:
        raise click.exceptions.Exit(1)


def _check_ir(file: str) -> str:
    module = read_ir(read_text(file), file)
    return f"{_count(len(list(module.body.block)), 'function')} at the {module.level or 'unknown'} level"


def _check_program(
    file: str, wanted: dict[str, str], settable: set[str], used: set[str], target: Target, watch: Watch, diagnostics: Diagnostics
) -> str:  # fmt: skip
    """Reports to `diagnostics`; gives the counts."""
    kernels = read_program(file)
    public = [k for k in kernels.values() if is_public(k)]
    built = 0
    for kernel in public:
        try:
            signature = kernel.signature
            names = names_to_set(signature)
            settable.update(names)
            own = {n: v for n, v in wanted.items() if n in names}
            used.update(own)
            values = choices_of(signature, [f"{n}={v}" for n, v in own.items()])
            require_constants(signature, values)
            for spec in _specialisations(kernel, values):
                built += 1
                _check_one(kernel, spec, target, watch, diagnostics)
        except TileError as error:
            for d in error.diagnostics:
                diagnostics.add(d)
    helpers = len(kernels) - len(public)
    return ", ".join([_count(len(public), "function"), _count(built, "specialisation")] + [_count(helpers, "helper")] * (helpers > 0))


def _specialisations(kernel: Kernel, values: dict[str, Any]) -> Iterator[Specialization]:
    """One for each dtype of each dtype parameter, the others at their first."""
    first = kernel.specialise(**values)
    yield first
    for name, domain in kernel.signature.dtype_params.items():
        if name not in values:
            for dtype in domain[1:]:
                yield replace(first, dtypes={**first.dtypes, name: dtype})


def _check_one(kernel: Kernel, spec: Specialization, target: Target, watch: Watch, diagnostics: Diagnostics) -> None:
    from tilelang.passes.pipelines import cpu_pipeline

    own = Diagnostics()
    try:
        module = build(kernel, spec, own)
        watch.lower(module, cpu_pipeline(), target, own)
        if watch.stop_after:
            write_output(None, watch.text(module))
    except TileError as error:
        for d in error.diagnostics:
            diagnostics.add(d)
    for d in own.all:
        diagnostics.add(d)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
