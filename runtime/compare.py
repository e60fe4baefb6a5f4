"""Do two modules compute the same? Runs both in the interpreter on the same data, exact and typed. Every pass is checked with it.

Exact mode (floats as float64) tells bugs from reordering: the results agree to 1e-11 of their magnitude. Typed mode catches what exact mode cannot
see (rounding, overflow, saturation) and allows an error in proportion to the type's epsilon. Integers must be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tilelang.diagnostics import CompilerBug
from tilelang.dialects.func import Func, functions
from tilelang.ir.core import Module
from tilelang.ir.types import PtrType, Scalar, element_of
from tilelang.runtime.cases import Case, Data, make_cases
from tilelang.runtime.failure import KernelError
from tilelang.runtime.interp import Interpreter, RunLimit
from tilelang.runtime.registers import Pointer

EXACT = 1e-11
_LIMIT = 5  # differences that are described
_BLOCKS = 3_000_000  # executions of a block after which a run is given up
_MATH = {f"arith.{n}" for n in ("exp", "exp2", "log", "log2", "tanh", "erf", "sin", "cos", "rsqrt", "pow", "floordiv", "mod")}
_DECIDING = {"arith.cmp", "arith.floor", "arith.ceil", "arith.round", "arith.floordiv", "arith.mod", "tile.arg_reduce", "tensor.arg_reduce", "mem.arg_reduce"}


class _Traits:
    """What a module does that decides how exactly its results can be compared."""

    def __init__(self, module: Module) -> None:
        self.math: set[str] = set()
        self.float_bits = False
        self.deciding = False
        self.eps = 0.0
        self.constants: set[float] = set()
        for op in module.walk():
            name = op.name
            floats = {t.name: t for v in (*op.operands, *op.results) if (t := _scalar(v.type)) is not None and t.is_float}
            for t in floats.values():
                self.eps = max(self.eps, epsilon(t))
            if name in _MATH:
                self.math.add(name)
            elif name == "arith.bitcast":
                self.float_bits = self.float_bits or bool(floats)
            elif name == "arith.constant" and floats:
                self.constants.add(op.attrs["value"])
            if floats and (name in _DECIDING or (name == "arith.cast" and not element_of(op.results[0].type).is_float)):
                self.deciding = True


def _scalar(type: Any) -> Scalar | None:
    return type if isinstance(type, Scalar) else getattr(type, "element", None)


def epsilon(element: Scalar) -> float:
    """The distance from 1 to the next number of a float type."""
    return {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7, "f8e4m3": 2.0**-3, "f8e5m2": 2.0**-2}.get(element.name, 0.0)


def _simple(x: float) -> bool:
    """Numbers that a pass brings in by itself (0, 1, -inf, ...), not results of folding."""
    with np.errstate(all="ignore"):
        return x != x or float(np.float16(x)) == x or abs(x) == float("inf")


class _Outcome:
    """What a run gave: the error it stopped with, or results and in-place buffers by name, and writes outside the buffers' elements."""

    def __init__(self, error: str = "", values: dict[str, Any] | None = None, stray: Sequence[str] = (), runs: int = 0) -> None:
        self.error = error
        self.runs = runs  # how many blocks were executed
        self.values = values or {}
        self.stray = stray


def _run(module: Module, func: Func, case: Case, exact: bool, limit: int) -> _Outcome:
    args: list[Any] = []
    live: list[tuple[str, Data, Any, Any]] = []

    def add(name: str, data: Data) -> None:
        memory, view = data.fresh(exact)
        live.append((name, data, memory, view))
        args.append(Pointer(memory, 0, name) if data.raw else view)

    items, outs = iter(case.items), iter([(f"result {i}", data) for i, data in enumerate(case.outs)])
    params = iter(zip(func.args, func.roles))
    for param, role in params:
        name, item = next(outs if role == "out" and case.outs else items)
        if isinstance(item, Data):
            add(name, item)
            if isinstance(param.type, PtrType) and not item.raw:
                for _ in range(2 * len(item.shape)):  # dims and strides, which the interpreter takes from the array
                    next(params)
        else:
            args.append(item)
    interp = Interpreter(module, exact, limit=limit)
    try:
        results = interp.run(func.sym_name, args)
    except KernelError as error:
        return _Outcome(error.diagnostics[0].slug, runs=interp.runs)
    except RunLimit:
        return _Outcome("no end in sight", runs=interp.runs)
    values = {f"result {i}": np.asarray(r) for i, r in enumerate(results, sum(r == "out" for r in func.roles))}
    stray: list[str] = []
    for name, data, memory, view in live:
        values[name] = view
        if data.padded:
            start, _ = data.fresh(exact)
            gaps = ~data.covered()
            if not _same_bits(memory[gaps], start[gaps]):
                stray.append(f"{name}: elements between the rows of the buffer are written")
    return _Outcome("", values, stray, interp.runs)


def _same_bits(a: Any, b: Any) -> bool:
    return a.tobytes() == b.tobytes()


def _difference(a: Any, b: Any, tolerance: float, outliers: float) -> str | None:
    """None when b equals a within tolerance * magnitude, in all but a share of `outliers` of the elements; else where it does not."""
    if a.shape != b.shape:
        return f"has shape {a.shape} before and {b.shape} after"
    if a.dtype.kind in "iub":
        bad = a != b
        note = ""
    else:
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        scale = max(1.0, float(np.max(np.abs(x), initial=0.0, where=finite)))
        error = np.where(finite, np.abs(x - y), 0.0)
        bad = (error > tolerance * scale) | (~finite & ~((x == y) | (np.isnan(x) & np.isnan(y))))
        note = f", allowed {tolerance * scale:.3g}"
    count = int(np.count_nonzero(bad))
    # No rounding makes a number of a NaN.
    if count == 0 or (count <= outliers * a.size and not np.any((a != a) != (b != b))):
        return None
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    return f"differs in {count} of {a.size} elements, first at {list(where)}: {a[where]} before, {b[where]} after{note}"


def _largest_error(typed: _Outcome, exact: _Outcome, name: str) -> float:
    """The largest error of a typed result, relative to its magnitude."""
    a, b = typed.values.get(name), exact.values.get(name)
    if a is None or b is None or a.shape != b.shape or a.dtype.kind in "iub" or a.size == 0:
        return 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    scale = max(1.0, float(np.max(np.abs(y), initial=0.0, where=finite)))
    return float(np.max(np.abs(np.where(finite, x - y, 0.0)), initial=0.0)) / scale


def called(module: Module) -> set[str]:
    """Names of functions that others call or launch: parts of them, which take no arguments from outside."""
    return {op.attrs["callee"] for op in module.walk() if "callee" in op.attrs}


class Comparison:
    """Compares two modules; `cases` are data made for an earlier form of the module (its dims and outputs are known there)."""

    def __init__(self, before: Module, after: Module, rtol: float | None = None, known: dict[tuple[Case, bool], _Outcome] | None = None) -> None:
        """known: outcomes of the module before, from an earlier comparison."""
        self.before, self.after, self.rtol = before, after, rtol
        self.known = known or {}
        self.outcomes: dict[tuple[Case, bool], _Outcome] = {}  # of the module after
        a, b = _Traits(before), _Traits(after)
        # What looks at the bits of floats, and polynomials that replace exp and its like, mean something else on float64.
        self.can_be_exact = a.float_bits == b.float_bits and a.math <= b.math
        self.eps = a.eps or b.eps  # narrower types may not come in
        self.deciding = a.deciding or b.deciding
        # A folded float constant was rounded to its type.
        folded = any(not _simple(c) for c in b.constants - a.constants)
        self.exact_tolerance = max(EXACT, 16 * self.eps) if folded else EXACT
        self.old = {f.sym_name: f for f in functions(before)}
        self.new = {f.sym_name: f for f in functions(after)}

    def names(self, wanted: Iterable[str] | None) -> list[str]:
        parts = called(self.before) | called(self.after)
        return [n for n in self.old if n in self.new and (n not in parts if wanted is None else n in wanted)]

    def differences(self, name: str, cases: Sequence[Case]) -> list[str]:
        found: list[str] = []
        with np.errstate(all="ignore"):
            for case in cases:
                found += [f"{name}: {text} ({case.label})" for text in self._case(name, case)]
                if len(found) >= _LIMIT:
                    break
        return found[:_LIMIT]

    def _case(self, name: str, case: Case) -> list[str]:
        exact = self._pair(name, case, True) if self.can_be_exact else None
        if isinstance(exact, list):
            return exact
        found = self._compare(exact, self.exact_tolerance, 0.0, "exact") if exact is not None else []
        if found:
            return found
        typed = self._pair(name, case, False)
        if isinstance(typed, list):
            return typed

        def tolerance(value: str) -> float:
            if self.rtol is not None:
                return self.rtol
            if exact is None:
                return self.eps * (16 + case.terms)
            return 8 * _largest_error(typed[0], exact[0], value) + self.eps * (16 + 4 * case.terms**0.5)

        # A comparison of floats may come out the other way after a different rounding: a few elements may differ then.
        return self._compare(typed, tolerance, 0.02 if self.deciding else 0.0, "typed")

    def _pair(self, name: str, case: Case, exact: bool) -> tuple[_Outcome, _Outcome] | list[str]:
        """The two outcomes; or a list of what is wrong already (empty: both stop alike, nothing to compare)."""
        mode = "exact" if exact else "typed"
        when = "before"
        try:
            a = self.known.get((case, exact)) or _run(self.before, self.old[name], case, exact, _BLOCKS)
            case.see_results(self.old[name], a.values)
            when = "after"
            b = self.outcomes[case, exact] = _run(self.after, self.new[name], case, exact, min(1000 * a.runs + 10_000, _BLOCKS))
        except CompilerBug as bug:
            return [f"the module {when} cannot be interpreted: {bug.message}: {bug.op}"]
        except (TypeError, StopIteration) as error:
            return [f"the module {when} cannot be called: {error or 'it has more parameters'}"]
        if a.error or b.error:
            if a.error == b.error:
                return []
            return [f"{mode}: {_stops(a)} before, {_stops(b)} after"]
        return a, b

    def _compare(
        self, pair: tuple[_Outcome, _Outcome], tolerance: float | Callable[[str], float], outliers: float, mode: str
    ) -> list[str]:
        a, b = pair
        found = [f"{mode}: {text}" for text in b.stray if text not in a.stray]
        for name, value in a.values.items():
            other = b.values.get(name)
            if other is None:
                found.append(f"{mode}: {name} is missing after")
                continue
            text = _difference(value, other, tolerance(name) if callable(tolerance) else tolerance, outliers)
            if text is not None:
                found.append(f"{mode}: {name} {text}")
        return found


def _stops(outcome: _Outcome) -> str:
    return f"stops with {outcome.error}" if outcome.error else "runs to the end"


def equivalent(
    before: Module, after: Module, seed: int = 0, rtol: float | None = None, functions: Iterable[str] | None = None,
    shapes: Sequence[dict[str, int]] | None = None,
) -> list[str]:  # fmt: skip
    """Differences between what the functions of two modules compute, in words; empty when none is found.

    Functions are matched by name; those that others call are skipped, unless named by `functions`. Data is random, made from the parameter types:
    symbolic dims get several sizes (ragged, above one block, 1, 0), or those of `shapes`, a list of {dim: size}. rtol replaces the error bound of typed
    mode. The two modules may be of different levels."""
    comparison = Comparison(before, after, rtol)
    found: list[str] = []
    for name in comparison.names(functions):
        found += comparison.differences(name, make_cases(before, comparison.old[name], seed, shapes))
    return found[:_LIMIT]


class InterpretEach:
    """For the pass manager's instrumentation: called with the module before (a clone) and after each pass, it compares them on data made once, from
    the first module it sees. args: {function: arguments of its source parameters} instead of random data.

    Raises CompilerBug that names the pass when a result changes; with record=True it appends to `differences` instead."""

    def __init__(
        self, args: dict[str, Sequence[Any]] | None = None, record: bool = False, seed: int = 0, shapes: Sequence[dict[str, int]] | None = None
    ) -> None:
        self.args = args or {}
        self.record = record
        self.seed = seed
        self.shapes = shapes
        self.differences: list[tuple[str, str]] = []
        self._cases: dict[str, list[Case]] = {}
        self._text = ""  # of the last module after a pass: mostly the next one before a pass, whose outcomes are known then
        self._outcomes: dict[tuple[Case, bool], _Outcome] = {}

    def __call__(self, before: Module, after: Module, pass_name: str) -> None:
        from tilelang.ir.text import print_module

        comparison = Comparison(before, after, known=self._outcomes if self._text == print_module(before) else None)
        for name in comparison.names(None):
            cases = self._cases.get(name)
            if cases is None:
                cases = self._cases[name] = make_cases(before, comparison.old[name], self.seed, self.shapes, self.args.get(name))
            found = comparison.differences(name, cases)
            if found and not self.record:
                raise CompilerBug(f"the pass changes a result: {found[0]}", pass_name=pass_name, span=comparison.old[name].span)
            self.differences += [(pass_name, text) for text in found]
        self._text, self._outcomes = print_module(after), comparison.outcomes
