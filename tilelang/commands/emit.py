"""tilec emit: a program at one of its levels, or the code made of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tilelang.commands.options import IrCommand, Watch, function_option, ir_options, set_option, warn, write_output
from tilelang.commands.programs import SourceFile, build, choose, read_program, specialise
from tilelang.diagnostics import Diagnostics

if TYPE_CHECKING:
    from tilelang.ir.core import Module
    from tilelang.kernel import Kernel
    from tilelang.target import Target

FORMS = ("ast", "tensor", "tile", "mem", "vec", "llvm", "asm", "obj")
LEVELS = FORMS[1:5]

EPILOG = """\b
Forms:
  ast      the syntax tree
  tensor   whole tensors; only functions without a grid have this level
  tile     tiles and grids, as written; functions without a grid are cut into tiles
  mem      buffers in memory spaces, bufferized and vectorized
  vec      registers and pointers
  llvm     LLVM IR
  asm      assembly of the target
  obj      an object file

\b
Examples:
  tilec emit examples/linear.tile --emit mem
  tilec emit examples/mlp.tile --emit tensor --generic
  tilec emit matmul.tile --set BM=128 --cpu haswell --emit asm -o matmul.s
  tilec emit matmul.tile --emit vec --print-ir-after raise --print-ir-diff -o matmul.tir
  tilec emit - --emit vec --print-ir-to dumps < matmul.tile"""


@click.command(cls=IrCommand, epilog=EPILOG)
@click.argument("file", type=SourceFile())
@click.option("--emit", "form", type=click.Choice(FORMS), default="tile", show_default=True, help="What to print.")
@function_option
@set_option
@click.option("--output", "-o", metavar="FILE", help="Where to write; by default, and for '-', to stdout.")
@ir_options
def emit(file: str, form: str, function: str | None, choices: tuple[str, ...], output: str | None, watch: Watch) -> None:
    """Prints one function of FILE (.tile, .py, or '-' for .tile text on stdin) at a level of the compiler, or the code made of it."""
    kernel = choose(read_program(file), file, function)
    if form == "ast":
        from tilelang.frontend.ast import dump

        watch.check_names(())
        write_output(output, dump(kernel.function) + "\n")
        return
    if form == "obj" and output in (None, "-") and sys.stdout.isatty():
        raise click.UsageError("an object file is not for a terminal; say where to write it with -o")
    target = watch.cpu_target()
    diagnostics = Diagnostics()
    module = build(kernel, specialise(kernel, choices), diagnostics)
    lower_to(form, module, kernel, target, watch, diagnostics)
    warn(diagnostics)
    if form in LEVELS or watch.stop_after:
        write_output(output, watch.text(module))
        return
    from tilelang.backends.cpu.compile import assembly_of, compile_module
    from tilelang.backends.cpu.emit import emit as emit_llvm

    if form == "llvm":
        write_output(output, emit_llvm(module, target).text)
    elif form == "asm":
        write_output(output, assembly_of(module, target))
    else:
        write_output(output, compile_module(module, target).object)


def lower_to(form: str, module: Module, kernel: Kernel, target: Target, watch: Watch, diagnostics: Diagnostics) -> None:
    """Lowers a module as far as the form needs, in place."""
    from tilelang.driver import LEVELS as ORDER
    from tilelang.passes.pipelines import pipeline_to

    level = form if form in LEVELS else "vec"
    if ORDER.index(level) < ORDER.index(module.level):
        raise click.ClickException(
            f"'{kernel.__name__}' starts at the {module.level} level: it says itself how it is cut into tiles, so it has no {level} form (--emit {module.level} shows it)"
        )
    watch.lower(module, pipeline_to(level, module.level), target, diagnostics)
