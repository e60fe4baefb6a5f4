"""`tilec run --verify`: results against an interpreter run with floats as float64, or against a reference function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilelang.commands.options import suggest, usage
from tilelang.commands.programs import import_file
from tilelang.dialects.func import functions
from tilelang.ir.core import Module
from tilelang.ir.types import Scalar, element_of
from tilelang.kernel import Kernel
from tilelang.runtime.abi import dtype_name
from tilelang.runtime.compare import epsilon
from tilelang.runtime.interp import Interpreter

MEASURE = "largest |difference| / max(|expected|, root mean square of expected)"


@dataclass(frozen=True)
class Outcome:
    """One result: its error and what is allowed. where: the worst element, in words."""

    name: str
    error: float
    allowed: float
    where: str = ""

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed


def interpret(module: Module, name: str, inputs: Sequence[Any], outs: Sequence[Any], exact: bool) -> list[Any]:
    """Results and in-place parameters (in this order) of a tensor- or tile-level function. inputs are left as they are; outs give shapes and dtypes."""
    function = next(f for f in functions(module) if f.sym_name == name)

    def fresh(array: Any) -> Any:
        return np.array(array, np.float64) if exact and array.dtype.kind not in "iub" else np.array(array)

    args = [fresh(a) if role == "inout" else a for a, role in zip(inputs, function.roles)]
    results = [fresh(o) for o in outs] if module.level != "tensor" else []
    returned = Interpreter(module, exact).run(name, [*args, *results])
    changed = [a for a, role in zip(args, function.roles) if role == "inout"]
    return [*(map(np.asarray, returned) if module.level == "tensor" else results), *changed]


def has_float_bits(module: Module) -> bool:
    """Whether the program looks at the bits of floats, which mean something else on float64."""
    return any(op.name == "arith.bitcast" and (element_of(op.operands[0].type).is_float or element_of(op.results[0].type).is_float) for op in module.walk())


def computing_epsilon(module: Module) -> float:
    """The distance from 1 to the next number of the coarsest float type that the program computes in; conversions are not looked at."""
    worst = 2.0**-52
    for op in module.walk():
        kind = op.name.partition(".")[2]
        if op.results and op.name not in ("arith.constant", "arith.cast") and (op.name.startswith("arith.") or kind in ("matmul", "reduce", "scan")):
            worst = max(worst, epsilon(element_of(op.results[0].type)))
    return worst


def allowance(module: Module, out: Any, terms: float) -> float:
    """What rounding may do to a result: one step of its type, and the errors of a sum of `terms` terms in the type computed in."""
    return 0.0 if out.dtype.kind in "iub" else epsilon_of(out) + computing_epsilon(module) * (16 + 4 * math.sqrt(terms))


def epsilon_of(array: Any) -> float:
    return epsilon(Scalar(dtype_name(array.dtype)))


def difference(got: Any, want: Any) -> tuple[float, str]:
    """The error by MEASURE (integers and bools: how many elements differ), and where it is largest. inf where only one of them is NaN or infinite."""
    if got.shape != want.shape:
        return math.inf, f"it has shape {list(got.shape)}, expected {list(want.shape)}"
    if got.size == 0:
        return 0.0, ""
    if got.dtype.kind in "iub":
        bad = got != want
        at = _place(bad)
        return float(np.count_nonzero(bad)), f"at {list(at)}: {got[at]}, expected {want[at]}"
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype).astype(np.float64)  # beyond the range of the type infinity is right
        x, y = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(rounded)
        scale = math.sqrt(float(np.mean(np.square(y), where=finite))) if finite.any() else 1.0
        error = np.abs(x - y) / np.maximum(np.abs(y), scale or 1.0)
        same = (x == rounded) | (np.isnan(x) & np.isnan(rounded))
    error = np.where(finite, error, np.where(same, 0.0, math.inf))
    at = _place(error)
    return float(error[at]), f"at {list(at)}: {x[at]:.9g}, expected {y[at]:.9g}"


def _place(values: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def compare(
    names: Sequence[str], got: Sequence[Any], want: Sequence[Any], allowed: Sequence[float], interpreters: Callable[[], tuple[Sequence[Any], Sequence[Any]]]
) -> list[Outcome]:
    """interpreters: the same results by the interpreter, in the program's own types and in float64. They are asked where an error is larger than
    allowed: what a program loses by its own rounding or cancellation is no error of the compiler, nor is an integer that a rounding decides."""
    own: tuple[Sequence[Any], Sequence[Any]] | None = None
    outcomes: list[Outcome] = []
    for i, (name, g, w, limit) in enumerate(zip(names, got, want, allowed)):
        error, where = difference(g, w)
        if error > limit and g.shape == w.shape:
            own = interpreters() if own is None else own
            typed, exact = own[0][i], own[1][i]
            decided = typed != exact if g.dtype.kind in "iub" else np.isfinite(as_wide(typed)) != np.isfinite(exact)
            error, where = difference(g, np.where(decided, as_wide(typed), w))
            if g.dtype.kind not in "iub":
                lost, _ = difference(typed, np.where(decided, as_wide(typed), exact))
                limit = max(limit, 8 * lost)
        outcomes.append(Outcome(name, error, limit, where))
    return outcomes


def load_reference(text: str) -> Callable[..., Any]:
    """The function that `file.py:function` names."""
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        usage(f"--reference takes file.py:function, found '{text}'")
    if not Path(path).is_file():
        usage(f"--reference: there is no file {path}")
    module = import_file(path)
    function = getattr(module, name, None)
    if not callable(function):
        usage(f"--reference: {path} has no function '{name}'{suggest(name, [n for n, v in vars(module).items() if callable(v) and not n.startswith('_')])}")
    return function


def reference_results(function: Callable[..., Any], inputs: Sequence[Any], inouts: Sequence[int], constants: dict[str, Any], outs: int) -> list[Any]:
    """Results and in-place parameters (in this order) as a reference function gives them: returned, or, in-place ones, changed in its arguments.
    It gets those compile-time values that it has parameters for."""
    args = [np.array(a) if isinstance(a, np.ndarray) else a for a in inputs]
    kwargs: dict[str, Any] = {}
    if not isinstance(function, Kernel):
        parameters = inspect.signature(function).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        kwargs = {n: v for n, v in constants.items() if takes_all or n in parameters}
    try:
        with np.errstate(all="ignore"):
            returned = function(*args, **kwargs)
    except Exception as error:
        raise click.ClickException(f"the reference function failed: {type(error).__name__}: {error}") from None
    values = [] if returned is None else list(returned) if isinstance(returned, (tuple, list)) else [returned]
    changed = [args[i] for i in inouts]
    if len(values) == outs:
        values += changed
    if len(values) != outs + len(inouts):
        raise click.ClickException(f"the reference function returns {len(values)} results, expected {outs}")
    return [np.asarray(v) for v in values]


def as_wide(array: Any) -> Any:
    """Floats as float64."""
    return array if array.dtype.kind in "iub" else array.astype(np.float64)

