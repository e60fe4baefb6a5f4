"""tilec opt: passes over IR text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tilelang.commands.options import IrCommand, Watch, ir_options, usage, warn, write_output
from tilelang.commands.programs import SourceFile, read_text, shown
from tilelang.diagnostics import Diagnostics, TileError

if TYPE_CHECKING:
    from tilelang.ir.core import Module

EPILOG = """\b
Examples:
  tilec opt f.tir --passes "canonicalize,fuse{max_ops=16},cse"
  tilec emit f.tile --emit tile | tilec opt - --passes canonicalize --print-ir-diff
  tilec emit f.tile --emit vec --print-ir-to dumps -o f.tir
  tilec opt dumps/07-raise.tir                      the passes that its header names
  tilec opt dumps/07-raise.tir --stop-after block"""


@click.command(cls=IrCommand, epilog=EPILOG)
@click.argument("file", type=SourceFile())
@click.option("--passes", metavar="PIPELINE", help="The passes to run, separated by commas, options in braces: 'cse,fuse{max_ops=16}'.")
@click.option("--continue", "go_on", is_flag=True, help="Run the passes that the file's header names, as --print-ir-to and bug reports write it; so does leaving out --passes.")
@click.option("--output", "-o", metavar="FILE", help="Where to write; by default, and for '-', to stdout.")
@ir_options
def opt(file: str, passes: str | None, go_on: bool, output: str | None, watch: Watch) -> None:
    """Reads IR text from FILE ('-': stdin), runs passes over it, and prints the result.

    Without --passes, the passes that the file's header names; without a header too, the IR is checked and printed."""
    from tilelang.ir.passes import read_header

    if passes is not None and go_on:
        usage("--passes and --continue exclude each other")
    text = read_text(file)
    header = read_header(text)
    if go_on and "pipeline" not in header:
        usage(f"--continue: {shown(file)} has no line '// pipeline: ...' at its top")
    module = read_ir(text, shown(file))
    diagnostics = Diagnostics()
    target = watch.target(header.get("target", "cpu"))
    watch.lower(module, passes if passes is not None else header.get("pipeline", ""), target, diagnostics)
    warn(diagnostics)
    write_output(output, watch.text(module))


def read_ir(text: str, path: str) -> Module:
    """A verified module from IR text. Raises TileError for text that cannot be read and for IR that breaks a rule."""
    from tilelang.ir.parser import parse_module
    from tilelang.ir.verify import as_diagnostic, verify_all

    module = parse_module(text, path)
    errors = verify_all(module)
    if errors:
        raise TileError([as_diagnostic(e) for e in errors[: Diagnostics.limit]], max(0, len(errors) - Diagnostics.limit))
    return module
