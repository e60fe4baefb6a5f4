"""tilec run: a program on real data, with its speed, and its error when asked for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilelang.commands.options import IrCommand, Watch, function_option, ir_options, passes_of, set_option, usage, warn, write_output
from tilelang.commands.programs import SourceFile, build, choices_of, choose, read_program, require_constants
from tilelang.diagnostics import Diagnostics, TileError

if TYPE_CHECKING:
    from tilelang.binding import Call
    from tilelang.commands.verify import Outcome
    from tilelang.ir.core import Module
    from tilelang.kernel import Kernel
    from tilelang.target import Target

MODES = ("fast", "check", "interpret")
EPILOG = """\b
Values of --arg:
  x=rand:f32[128,256]      standard normal floats; integers in [0, 8)
  x=rand:i32[64]:0:100     uniform in [0, 100); dtype and shape may be left out: rand:0:100
  x=zeros:f32[8]  x=ones:f32[8]  x=0.5
  x=FILE.npy               an array in NumPy's format
  n=3                      a scalar
What is not given: tensors are random, scalars 1, dims between 256 and 512 (smaller for tensors of more than two axes).

\b
Examples:
  tilec run examples/softmax.tile --verify
  tilec run examples/matmul.tile --dim M=1000 --dim N=1000 --dim K=1000 --repeat 20
  tilec run examples/matmul.tile --set Float=f16 --verify --reference examples/matmul.py:reference
  tilec run examples/embedding.tile --arg ids=rand:i32[100]:0:5000 --arg table=weights.npy --save results
  tilec run examples/histogram.tile --sanitize"""


@click.command(cls=IrCommand, epilog=EPILOG)
@click.argument("file", type=SourceFile())
@function_option
@click.option("--arg", "args", multiple=True, metavar="NAME=VALUE", help="The value of a parameter, see below. May be repeated.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="The length of a symbolic dim, e.g. M=1000. May be repeated.")
@set_option
@click.option("--verify", is_flag=True, help="Compare the results with the interpreter's, in float64, or with --reference. Exit code 1 when they differ.")
@click.option("--reference", metavar="FILE.py:FUNCTION", help="A NumPy function that takes the same arguments; implies --verify.")
@click.option("--sanitize", is_flag=True, help="Run in check mode: bounds, uninitialised reads, races, pipeline hazards. The same as --mode check.")
@click.option("--overflow", is_flag=True, help="With --sanitize: integer arithmetic that wraps is a defect, too.")
@click.option("--mode", type=click.Choice(MODES), help="Compiled (fast), checked, or in the interpreter. By default fast.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads at most; by default all cores.")
@click.option("--repeat", type=click.IntRange(min=1), metavar="N", help="How often to run for the time; by default 10 compiled, else 1.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For random data.")
@click.option("--save", type=click.Path(file_okay=False), metavar="DIR", help="Write arguments and results as .npy files.")
@ir_options
def run(
    file: str, function: str | None, args: tuple[str, ...], dims: tuple[str, ...], choices: tuple[str, ...], verify: bool, reference: str | None,
    sanitize: bool, overflow: bool, mode: str | None, threads: int | None, repeat: int | None, seed: int, save: str | None, watch: Watch,
) -> None:  # fmt: skip
    """Runs one function of FILE (.tile, .py, or '-' for .tile text on stdin) on given or random data, and prints shapes, times and rates."""
    if sanitize and mode not in (None, "check"):
        usage(f"--sanitize is --mode check, --mode {mode} contradicts it")
    mode = "check" if sanitize else mode or "fast"
    if overflow and mode != "check":
        usage("--overflow is for check mode: add --sanitize")
    target = runnable(watch.cpu_target())
    kernel = choose(read_program(file), file, function)
    check_function: Callable[..., Any] | None = None
    if reference is not None:
        from tilelang.commands.verify import load_reference

        check_function = load_reference(reference)
    job = prepare(kernel, choices, args, dims, seed)
    click.echo(job.heading())
    diagnostics = Diagnostics()
    if watch.stop_after:
        write_output(None, watch.text(compile_passes(job, target, watch, diagnostics)))
        warn(diagnostics)
        return
    if mode == "fast":
        run_compiled(job, target, watch, diagnostics, threads, repeat or 10)
    else:
        run_interpreted(job, mode, target, watch, diagnostics, repeat or 1, overflow)
    warn(diagnostics)
    click.echo(job.rates())
    if save is not None:
        click.echo(f"saved     {', '.join(job.save(Path(save)))} in {save}")
    if verify or reference is not None:
        outcomes = job.verify(check_function)
        for outcome in outcomes:
            click.echo(describe(outcome))
        from tilelang.commands.verify import MEASURE

        against = f"the reference {reference}" if reference is not None else "the interpreter in float64"
        click.echo(f"          against {against}; {MEASURE}")
        if not all(o.ok for o in outcomes):
            click.echo("error: the results differ from what is expected", err=True)
            raise click.exceptions.Exit(1)


def runnable(target: Target) -> Target:
    """Refuses a target whose instructions this machine does not have."""
    from tilelang.target import host_target

    host = host_target()
    missing = sorted(target.isa - host.isa) if target is not host else []
    if missing:
        usage(f"--cpu {target.llvm_cpu}: code for it does not run here, this machine ({host.llvm_cpu}) has no {', '.join(missing[:4])}; 'tilec emit' shows it")
    return target


@dataclass
class Job:
    """One kernel with its arguments. inputs: its run-time parameters in order. got: results and in-place parameters after the first run."""

    kernel: Kernel
    call: Call
    inputs: list[Any]
    module: Module  # as the frontend makes it
    inouts: list[int]
    got: list[Any] = field(default_factory=list)
    seconds: float = 0.0  # the median

    @property
    def names(self) -> list[str]:
        """Of what `got` holds."""
        results = len(self.call.results)
        runtime = [p for p in self.kernel.signature.params if p.role != "static"]
        return [*(f"out{i}" if results > 1 else "out" for i in range(results)), *(runtime[i].name for i in self.inouts)]

    def heading(self) -> str:
        """The call with shapes and dtypes, and the compile-time values."""
        runtime = [p for p in self.kernel.signature.params if p.role != "static"]
        params = ", ".join(f"{p.name}: {_type(v)}" if hasattr(v, "dtype") else f"{p.name}={v}" for p, v in zip(runtime, self.inputs))
        results = ", ".join(map(_type, self.call.results)) or "nothing"
        constants = ", ".join(f"{n}={v}" for n, v in self.call.spec.constants.items())
        return f"{self.kernel.__name__}({params}) -> {results}" + (f"\n          {constants}" if constants else "")

    def keep(self) -> None:
        """Remembers what the first run gave."""
        self.got = [a.copy() for a in self.call.results] + [self.inputs[i].copy() for i in self.inouts]

    def rates(self) -> str:
        import numpy as np

        from tilelang.commands.count import count

        shapes = [getattr(v, "shape", v) for v in self.inputs]
        with np.errstate(all="ignore"):
            counted = count(self.module, self.kernel.__name__, shapes if self.module.level == "tensor" else [*shapes, *(r.shape for r in self.call.results)])
        self.terms = counted.operations / (2 * max(1, sum(g.size for g in self.got)))
        arrays = [*(v for v in self.inputs if hasattr(v, "nbytes")), *self.got]
        moved = sum(a.nbytes for a in arrays)
        floats = any(a.dtype.kind not in "iub" for a in arrays)
        unit = "FLOP" if floats else "OP"
        seconds = max(self.seconds, 1e-9)
        about = "" if counted.exact else "about "
        return (
            f"rate      {counted.operations / seconds / 1e9:.3g} G{unit}/s, {moved / seconds / 1e9:.3g} GB/s   "
            f"({about}{_scaled(counted.operations, unit)} and {_scaled(moved, 'B')}, counted from program and shapes, not measured)"
        )

    def save(self, folder: Path) -> list[str]:
        """Writes arguments and results; gives the names of the files."""
        import numpy as np

        folder.mkdir(parents=True, exist_ok=True)
        runtime = [p for p in self.kernel.signature.params if p.role != "static"]
        files = {p.name: v for p, v in zip(runtime, self.inputs)}
        for name, array in zip(self.names, self.got):
            files[f"{name}_after" if name in files else name] = array
        for name, array in files.items():
            np.save(folder / f"{name}.npy", array)
        return [f"{name}.npy" for name in files]

    def verify(self, reference: Callable[..., Any] | None) -> list[Outcome]:
        from tilelang.commands import verify as v

        name, outs = self.kernel.__name__, self.call.results

        def interpreted(exact: bool) -> list[Any]:
            return v.interpret(self.module, name, self.inputs, outs, exact and not v.has_float_bits(self.module))

        if reference is not None:
            want = v.reference_results(reference, self.inputs, self.inouts, dict(self.call.spec.constants), len(outs))
        else:
            want = interpreted(True)
        allowed = [v.allowance(self.module, g, self.terms) for g in self.got]
        both = lambda: (interpreted(False), want if reference is None else interpreted(True))  # noqa: E731
        return v.compare(self.names, self.got, [v.as_wide(w) for w in want], allowed, both)


def prepare(kernel: Kernel, choices: tuple[str, ...], args: tuple[str, ...], dims: tuple[str, ...], seed: int) -> Job:
    """Data, the bound call, and the module of the specialisation that it needs. Warnings of the module are reported when it is compiled."""
    from tilelang.commands.data import make_arguments

    signature = kernel.signature
    chosen = choices_of(signature, choices)
    require_constants(signature, chosen)
    made = make_arguments(signature, chosen, args, dims, seed)
    runtime = [p for p in signature.params if p.role != "static"]
    call = kernel.bind(**made.values, **chosen)
    module = build(kernel, call.spec, Diagnostics())
    return Job(kernel, call, [made.values[p.name] for p in runtime], module, [i for i, p in enumerate(runtime) if p.role == "inout"])


def compile_passes(job: Job, target: Target, watch: Watch, diagnostics: Diagnostics) -> Module:
    """A module built anew and lowered all the way."""
    from tilelang.passes.pipelines import cpu_pipeline

    return watch.lower(build(job.kernel, job.call.spec, diagnostics), cpu_pipeline(), target, diagnostics)


def run_compiled(job: Job, target: Target, watch: Watch, diagnostics: Diagnostics, threads: int | None, repeat: int) -> None:
    from tilelang.backends.cpu.compile import compile_module
    from tilelang.dialects.func import functions
    from tilelang.driver import Compiled, arguments
    from tilelang.passes.pipelines import cpu_pipeline
    from tilelang.runtime.threads import thread_count

    passes_of(cpu_pipeline())  # loads them, which is not the time of this program
    start = time.perf_counter()
    module = compile_passes(job, target, watch, diagnostics)
    lowered = time.perf_counter()
    code = compile_module(module, target)
    done = time.perf_counter()
    click.echo(f"compile   {_ms(done - start)}   (passes {_ms(lowered - start)}, machine code {_ms(done - lowered)})")
    name = job.kernel.__name__
    signature = arguments(next(f for f in functions(job.module) if f.sym_name == name))
    compiled = Compiled(name, signature, code.emitted.errors, code.emitted.text, code.object)
    count = thread_count() if threads is None else threads
    before = [job.inputs[i].copy() for i in job.inouts]
    compiled(job.call.values, count)  # for the results; it also touches memory and starts the threads
    _finish(job)
    times: list[float] = []
    for _ in range(repeat):
        _restore(job, before)
        start = time.perf_counter()
        compiled(job.call.values, count)
        times.append(time.perf_counter() - start)
    _restore(job, before)
    _report_times(job, times, f", {count} thread{'s' if count > 1 else ''}")


def run_interpreted(job: Job, mode: str, target: Target, watch: Watch, diagnostics: Diagnostics, repeat: int, overflow: bool) -> None:
    from tilelang.kernel import arrays_of, interpret
    from tilelang.passes.pipelines import pipeline_to
    from tilelang.runtime.check import check

    source = build(job.kernel, job.call.spec, diagnostics)
    module = source.clone()
    watch.lower(module, pipeline_to("tile", module.level), target, diagnostics)
    name = job.kernel.__name__
    before = [job.inputs[i].copy() for i in job.inouts]
    times: list[float] = []
    for n in range(repeat):
        _restore(job, before)
        start = time.perf_counter()
        if mode == "interpret":
            interpret(source.clone(), name, arrays_of(job.call))
        elif reports := check(module, name, arrays_of(job.call), overflow=overflow):
            raise TileError(reports)
        times.append(time.perf_counter() - start)
        if n == 0:
            _finish(job)
    _restore(job, before)
    if mode == "check":
        click.echo("check     no defect found: bounds, uninitialised reads, races between blocks, pipeline hazards" + (", integer overflow" if overflow else ""))
    _report_times(job, times, ", interpreted")


def _finish(job: Job) -> None:
    """Takes the results of the first run."""
    for copy, original in job.call.write_back:
        original[...] = copy
    job.keep()


def _restore(job: Job, before: list[Any]) -> None:
    """In-place parameters as they were: for the next run, and for the check of the results."""
    for i, array in zip(job.inouts, before):
        job.inputs[i][...] = array
    for copy, original in job.call.write_back:
        copy[...] = original


def _report_times(job: Job, times: list[float], how: str) -> None:
    job.seconds = statistics.median(times)
    click.echo(f"run       min {_ms(min(times))}, median {_ms(job.seconds)}   ({len(times)} run{'s' if len(times) > 1 else ''}{how})")


def describe(outcome: Outcome) -> str:
    if outcome.ok:
        return f"verify    {outcome.name}: error {outcome.error:.3g}, allowed {outcome.allowed:.3g}: ok"
    return f"verify    {outcome.name}: error {outcome.error:.3g}, allowed {outcome.allowed:.3g}: WRONG, the largest {outcome.where}"


def _type(array: Any) -> str:
    from tilelang.runtime.abi import dtype_name

    return f"{dtype_name(array.dtype)}[{', '.join(map(str, array.shape))}]"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _scaled(n: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= factor:
            return f"{n / factor:.4g} {prefix}{unit}"
    return f"{n:.4g} {unit}"
