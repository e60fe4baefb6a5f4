"""What a case must pass: the evaluator of the source, the interpreter and compiled code agree; broken programs get a diagnostic. Runs in a worker."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np

from tests import evaluator as ev
from tests.evaluator import bounded as bd
from tests.fuzz.cases import Case

Verdict = tuple[str, str, str]  # ok, skip or fail; a short signature; details


def check(kind: str, case: Any) -> Verdict:
    with np.errstate(all="ignore"):
        return check_program(case) if kind == "programs" else check_broken(case)


def check_program(case: Case) -> Verdict:
    from tilelang.diagnostics import TileError
    from tilelang.kernel import load_text

    try:
        kernel = load_text(case.text, "case.tile").kernel
        kernel.build(kernel.bind(*case.arguments(), **case.constants).spec)
    except TileError as error:
        return "fail", f"rejected {error.diagnostics[0].slug}", str(error)
    except Exception as error:
        return failure("build", error)
    from tilelang.frontend.text import parse_module

    diagnostics, source = _source(case.text)
    try:
        expected = ev.run(parse_module(source, diagnostics), "kernel", case.arguments(), case.constants)
    except (ev.Unsure, ev.Endless) as why:
        return "skip", type(why).__name__, ""
    except bd.Refused as why:
        return "fail", "accepted", f"the compiler accepts it, but: {why}"
    except Exception as error:
        return failure("evaluator", error)
    for how in ("interpret", "fast"):
        found = _run(kernel, case, how, expected)
        if found is not None:
            return found
    return _each(kernel, case) if case.each else ("ok", expected.stop, "")


def _source(text: str) -> tuple[Any, Any]:
    from tilelang.diagnostics import Diagnostics, Source

    return Diagnostics(), Source("case.tile", text)


def _run(kernel: Any, case: Case, mode: str, expected: ev.Result) -> Verdict | None:
    from tilelang.diagnostics import TileError

    args = case.arguments()
    try:
        returned = kernel(*args, mode=mode, threads=case.threads, **case.constants)
    except TileError as error:
        slug = error.diagnostics[0].slug
        if expected.stop and slug in ("run-assert", "run-out-of-bounds"):
            return None  # which of several errors comes first is not promised
        return "fail", f"{mode} stops with {slug}", f"expected {expected.stop or 'no error'}\n{error}"
    except Exception as error:
        return failure(mode, error)
    if expected.stop:
        return "fail", f"{mode} does not stop", f"expected the error {expected.stop}"
    results = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    named = [(f"result {i}", got, want) for i, (got, want) in enumerate(zip(results, expected.values, strict=True))]
    named += [(a.name, got, expected.updated[a.name]) for a, got in zip(case.args, args) if a.name in expected.updated]
    for name, got, want in named:
        text = difference(got, want)
        if text is not None:
            return "fail", f"{mode} differs", f"{name} {text}"
    return None


def difference(got: Any, want: bd.Num) -> str | None:
    """Where an array is outside the bounds of a Num, in words."""
    if got.shape != want.val.shape:
        return f"has shape {got.shape}, expected {want.val.shape}"
    if bd.is_float(want.dtype):
        x, y = got.astype(np.float64), want.val
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        apart = np.where(same, 0.0, np.abs(x - y))
        bad = ~same & ~(apart <= want.err) & ~np.isinf(want.err)
    else:
        bad = (got != want.val) & ~np.isinf(want.err)
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    return f"differs in {int(bad.sum())} of {bad.size} elements, first at {list(at)}: {got[at]}, expected {want.val[at]} within {want.err[at]:.3g}"


def _each(kernel: Any, case: Case) -> Verdict:
    """The interpreter before and after every pass."""
    from tilelang.driver import compile_function
    from tilelang.ir.instrument import Instrumentation
    from tilelang.runtime.compare import InterpretEach
    from tilelang.target import host_target

    call = kernel.bind(*case.arguments(), **case.constants)
    # Small, since the interpreter runs the last levels element by element; what was made longer by shifts and strides stays longer.
    sizes = {name: min(n, 3 if len(name) == 1 else 9) for name, n in call.dims.items()}
    each = InterpretEach(record=True, shapes=[sizes])
    try:
        compile_function(kernel.build(call.spec), "kernel", host_target(), Instrumentation(interpret_each=each))
    except Exception as error:
        return failure("interpret-each", error)
    if each.differences:
        name, text = each.differences[0]
        return "fail", f"pass {name} changes a result", text
    return "ok", "each", ""


def failure(stage: str, error: BaseException) -> Verdict:
    """An exception that nobody should see. The signature names the place it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/tests/" not in f.filename] or frames
    place = f"{own[-1].filename.rsplit('/', 1)[-1]}:{own[-1].name}" if own else ""
    name = getattr(error, "pass_name", "")
    message = str(error).strip().split("\n")[0][:120]
    words = " ".join(w for w in message.split() if not any(c.isdigit() or c in "'%?<" for c in w))[:60]
    return "fail", f"{stage}{f' pass {name}' if name else ''} {type(error).__name__} {place} {words}", "".join(traceback.format_exception(error))[-6000:]


def check_broken(text: str) -> Verdict:
    """A text that may be anything: a diagnostic with a place, or a program that is built and compiled."""
    from tilelang.diagnostics import TileError
    from tilelang.kernel import load_text

    try:
        library = load_text(text, "case.tile")
        for kernel in library:
            if any(p.annotation is None for p in kernel.function.params):
                continue  # a helper
            kernel.build()
            kernel.compile()
    except TileError as error:
        for d in error.diagnostics:
            if d.span is None:
                return "fail", f"no span {d.slug}", str(error)
            if not 0 <= d.span.start <= d.span.end <= len(d.span.source.text):
                return "fail", f"span outside {d.slug}", str(error)
        error.render()
        return "ok", error.diagnostics[0].slug, ""
    except Exception as error:
        return failure("broken", error)
    return "ok", "works", ""
