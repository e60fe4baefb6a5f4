"""Options that every command has: the target, and how to look at the IR between the passes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tilelang.diagnostics import Diagnostics, TileError, nearest

if TYPE_CHECKING:
    from tilelang.ir.core import Module
    from tilelang.ir.instrument import Instrumentation
    from tilelang.ir.passes import Pass
    from tilelang.target import Target


def usage(message: str) -> NoReturn:
    """Ends the command: exit code 2."""
    raise click.UsageError(message)


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or what there is."""
    known = list(known)
    near = nearest(name, known)
    return f"; did you mean '{near}'?" if near else f"; there are: {', '.join(known)}" if known else ""


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE texts as a dict."""
    out: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            usage(f"{option} takes NAME=VALUE, found '{item}'")
        if name.strip() in out:
            usage(f"{option} {name.strip()} is given twice")
        out[name.strip()] = value.strip()
    return out


@dataclass(frozen=True)
class Watch:
    """The IR options of one command line."""

    target_name: str | None
    cpu: str | None
    print_ir_before: tuple[str, ...]
    print_ir_after: tuple[str, ...]
    print_ir_after_all: bool
    print_ir_after_change: bool
    print_ir_diff: bool
    print_ir_to: str | None
    verify_each: bool
    interpret_each: bool
    time_passes: bool
    stop_after: str | None
    generic: bool
    locations: bool

    def target(self, default: str = "cpu") -> Target:
        """The machine to compile for; a wrong name is wrong usage."""
        from tilelang.target import UnknownTarget, get_target

        try:
            return get_target(self.target_name or ("cpu" if self.cpu else default), self.cpu)
        except UnknownTarget as error:
            usage(f"--{'cpu' if self.cpu and self.target_name in (None, 'cpu') else 'target'}: {error}")

    def cpu_target(self) -> Target:
        """As target; there is a code generator for CPUs only."""
        target = self.target()
        if target.kind != "cpu":
            usage(f"--target {target.name}: code is made for CPUs only; 'tilec list targets' says which")
        return target

    def check_names(self, passes: Sequence[Pass]) -> None:
        """Every pass that an option names must run."""
        names = list(dict.fromkeys(p.name for p in passes))
        for option, wanted in (("print-ir-before", self.print_ir_before), ("print-ir-after", self.print_ir_after), ("stop-after", (self.stop_after,))):
            for name in wanted:
                if name and name not in names:
                    known_pass(name, f"--{option}")
                    usage(f"--{option} {name}: this pass does not run here; these do: {', '.join(names) or 'none'}")

    def instrumentation(self) -> Instrumentation | None:
        """For the pass manager; None when nothing is watched, so that nothing is paid for."""
        if not any(getattr(self, f.name) for f in fields(self) if f.name not in ("target_name", "cpu", "generic", "locations")):
            return None
        from tilelang.ir.instrument import Instrumentation

        each = None
        if self.interpret_each:
            from tilelang.runtime.compare import InterpretEach

            each = InterpretEach()
        return Instrumentation(
            frozenset(self.print_ir_before), frozenset(self.print_ir_after), self.print_ir_after_all, self.print_ir_after_change, self.print_ir_diff,
            self.print_ir_to, self.verify_each, each, self.time_passes, self.stop_after or "", self.generic, self.locations,
        )  # fmt: skip

    def lower(self, module: Module, pipeline: str, target: Target, diagnostics: Diagnostics) -> Module:
        """Runs a pipeline over the module, in place. Warnings stay in `diagnostics`."""
        from tilelang.ir.passes import PassContext, PassManager

        passes = passes_of(pipeline)
        self.check_names(passes)
        if passes:
            PassManager(passes, self.instrumentation()).run(module, PassContext(target, diagnostics))
        return module

    def text(self, module: Module) -> str:
        from tilelang.ir.text import print_module

        return print_module(module, self.generic, self.locations)


def passes_of(pipeline: str) -> list[Pass]:
    """The passes of a pipeline text; what is wrong with it is wrong usage, shown with its place."""
    from tilelang.ir.passes import parse_pipeline

    try:
        return parse_pipeline(pipeline)
    except TileError as error:
        usage(error.render())


def known_pass(name: str, option: str) -> str:
    """Refuses the name of a pass that does not exist."""
    from tilelang.ir.passes import pass_names

    if name not in pass_names():
        usage(f"{option}: there is no pass '{name}'{suggest(name, pass_names())}")
    return name


def _passes(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Names of passes, also several in one option, separated by commas."""
    return tuple(known_pass(name.strip(), f"--{(param.name or '').replace('_', '-')}") for item in value for name in item.split(",") if name.strip())


def _pass(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return None if value is None else known_pass(value, "--stop-after")


_IR_OPTIONS = (
    click.option("--target", "target_name", metavar="NAME", help="The machine to compile for ('tilec list targets'); by default this one."),
    click.option("--cpu", metavar="NAME", help="A CPU by name, e.g. haswell or znver4."),
    click.option("--print-ir-before", multiple=True, metavar="PASS", callback=_passes, help="Print the IR before a pass. May be repeated; on stderr, as all of these."),
    click.option("--print-ir-after", multiple=True, metavar="PASS", callback=_passes, help="Print the IR after a pass. May be repeated."),
    click.option("--print-ir-after-all", is_flag=True, help="Print the IR after every pass."),
    click.option("--print-ir-after-change", is_flag=True, help="Print the IR after every pass that changed it."),
    click.option("--print-ir-diff", is_flag=True, help="Print what each pass changed, as a difference."),
    click.option("--print-ir-to", type=click.Path(file_okay=False), metavar="DIR", help="Write the IR after every pass to a file; 'tilec opt FILE' goes on from it."),
    click.option("--verify-each", is_flag=True, help="Check the IR after every pass."),
    click.option("--interpret-each", is_flag=True, help="Run the IR before and after every pass on random data and compare the results."),
    click.option("--time-passes", is_flag=True, help="Print the CPU time of every pass."),
    click.option("--stop-after", metavar="PASS", callback=_pass, help="Stop after a pass and print the IR."),
    click.option("--generic", is_flag=True, help="Print IR in MLIR's generic form."),
    click.option("--locations", is_flag=True, help="Print the source position of every op."),
)
_NAMES = frozenset(f.name for f in fields(Watch))

set_option = click.option(
    "--set", "choices", multiple=True, metavar="NAME=VALUE", help="A tunable, a compile-time parameter or a dtype parameter, e.g. BM=64 or Float=f16. May be repeated."
)
function_option = click.option("--function", "-f", metavar="NAME", help="The function; by default the one named like the file, else the last public one.")


class IrCommand(click.Command):
    """A command whose help lists the IR options apart."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                (shared if param.name in _NAMES else own).append(record)
        for title, records in (("Options", own), ("Target and IR", shared)):
            with formatter.section(title):
                formatter.write_dl(records)


def ir_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of Watch; the command gets them as one argument `watch`."""

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        watch = Watch(**{name: given.pop(name) for name in _NAMES})
        return function(watch=watch, **given)

    for option in reversed(_IR_OPTIONS):
        command = option(command)
    return command


def write_output(path: str | None, content: str | bytes) -> None:
    """To a file, or to stdout for None and '-'."""
    if path is None or path == "-":
        if isinstance(content, str):
            click.echo(content, nl=False)
        else:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        return
    try:
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise click.FileError(path, error.strerror or str(error)) from None


def warn(diagnostics: Diagnostics) -> None:
    """Shows the warnings of a compile."""
    colour = sys.stderr.isatty()
    for warning in diagnostics.warnings:
        click.echo(warning.render(colour), err=True)
