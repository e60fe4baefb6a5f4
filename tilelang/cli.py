"""tilec: the command line. The commands are in tilelang/commands; here is what they share on the way out: messages and exit codes.

    0 all is well    1 the program is wrong, or what it computes    2 the command line is wrong    3 the compiler broke its own rules
    130 interrupted  141 nobody reads the output any more"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from typing import Any

import click

from tilelang import __version__
from tilelang.commands.check import check
from tilelang.commands.emit import emit
from tilelang.commands.listing import listing
from tilelang.commands.opt import opt
from tilelang.commands.run import run
from tilelang.diagnostics import CompilerBug, TileError

EXAMPLES = """\b
Examples:
  tilec run examples/softmax.tile --verify
  tilec run matmul.tile --arg a=rand:f32[1000,500] --set BM=64 --threads 4
  tilec emit matmul.tile --emit mem
  tilec check *.tile
  tilec emit matmul.tile --emit vec --print-ir-to dumps -o matmul.tir
  tilec opt dumps/07-raise.tir --print-ir-diff
  tilec list passes"""


class Tilec(click.Group):
    """A group whose commands end with an exit code and a message for everything that can go wrong, never with a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TileError as error:
            show(error.render(wants_colour()))
            ctx.exit(1)
        except CompilerBug as bug:
            show(str(bug))
            ctx.exit(3)
        except BrokenPipeError:
            _close_stdout()
            ctx.exit(141)
        except KeyboardInterrupt:
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except MemoryError as error:
            show(f"error: there is not enough memory: {error}" if str(error) else "error: there is not enough memory")
            ctx.exit(1)
        except OSError as error:
            show(f"error: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
            ctx.exit(1)
        except Exception as error:
            if type(error).__name__ == "BdbQuit":  # 'quit' in the debugger, at a breakpoint() of the kernel
                ctx.exit(130)
            show(crash_report(error))
            ctx.exit(3)


def show(text: str) -> None:
    click.echo(text, err=True)


def wants_colour() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def crash_report(error: Exception) -> str:
    """What a user is told about an exception that no part of the compiler expected; the traceback goes to a file."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    first = str(error).strip().partition("\n")[0]
    text = f"compiler bug: {type(error).__name__}{f': {first}' if first else ''}{where}"
    try:
        directory = os.environ.get("TILELANG_REPRODUCER_DIR") or tempfile.gettempdir()
        os.makedirs(directory, exist_ok=True)
        handle, path = tempfile.mkstemp(".txt", "tilec-crash-", directory)
        with open(handle, "w", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:  # the report matters more than the file
        return text
    return f"{text}\n  please report it, with the file {path}"


def _close_stdout() -> None:
    """What is still buffered goes nowhere, so that Python does not complain about the pipe when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # stdout is no file
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


@click.group(cls=Tilec, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, epilog=EXAMPLES)
@click.version_option(__version__, prog_name="tilec", message="tilec %(version)s")
def cli() -> None:
    """Compiles, runs and shows tile programs: .tile files, or Python files with @tile kernels."""


for _command in (run, emit, check, opt, listing):
    cli.add_command(_command)


def main() -> None:
    """The console script."""
    try:
        code = cli.main(standalone_mode=False) or 0
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        _close_stdout()
        code = 141
    except (KeyboardInterrupt, click.Abort):
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
