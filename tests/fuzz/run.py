"""Runs the fuzzers: `python -m tests.fuzz.run --cases 10000 --seed 1 --kind programs`. Every distinct failure is made small and written out."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from hypothesis.internal.conjecture import engine

from tests.fuzz.cases import Case, Scalar, Tensor
from tests.fuzz.worker import Worker


class Failure(Exception):
    """A finding; hypothesis keeps findings apart by their type."""

    def __init__(self, signature: str, details: str, case: Any) -> None:
        super().__init__(signature)
        self.signature, self.details, self.case = signature, details, case


_types: dict[str, type[Failure]] = {}


def _failure(signature: str, details: str, case: Any) -> Failure:
    kind = _types.setdefault(signature, type(f"Failure{len(_types)}", (Failure,), {}))
    return kind(signature, details, case)


def strategy(kind: str) -> st.SearchStrategy[Any]:
    if kind == "programs":
        from tests.fuzz.programs import cases

        return cases()
    from tests.fuzz.broken import texts

    return texts()


def search(kind: str, cases: int, worker: Worker, known: set[str], start: int | None, seen: Callable[[str], None] = lambda _: None) -> Failure | None:
    """Runs cases until a failure that is not known; gives it made small. start: the seed, None for the same cases each time."""

    def one(case: Any) -> None:
        status, signature, details = worker.check(kind, case)
        if status != "fail":
            seen(f"{status} {signature}".strip())
        elif signature in known:
            seen(f"known {signature}")
        else:
            seen(f"found {signature}")
            raise _failure(signature, details, case)

    given_one = given(strategy(kind))(one)
    run = settings(
        max_examples=cases, database=None, derandomize=start is None, deadline=None, suppress_health_check=tuple(HealthCheck), report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],
    )(given_one)  # fmt: skip
    if start is not None:
        run = seed(start)(run)
    try:
        run()
    except Failure as found:
        return found
    except FlakyFailure as group:
        found = next(e for e in group.exceptions if isinstance(e, Failure))
        found.details += "\nIt does not fail every time."
        return found
    return None


def show(found: Failure) -> str:
    text = found.case.text if isinstance(found.case, Case) else str(found.case)
    parts = [f"# {found.signature}", text]
    if isinstance(found.case, Case):
        parts += [f"# {a}" for a in found.case.args]
    parts += [f"# {line}" for line in found.details.splitlines()]
    return "\n".join([*parts, f"# replay: {found.case!r}\n"]).encode(errors="backslashreplace").decode()


def replay(path: Path, worker: Worker) -> int:
    """Checks the case that a file of `show` holds; prints the verdict."""
    line = next(line for line in path.read_text().splitlines() if line.startswith("# replay: "))
    case = eval(line.removeprefix("# replay: "), {"Case": Case, "Tensor": Tensor, "Scalar": Scalar})
    status, signature, details = worker.check("programs" if isinstance(case, Case) else "broken", case)
    print(f"{status} {signature}\n{details}".strip())
    return int(status == "fail")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=("programs", "broken"), default="programs")
    parser.add_argument("--save", type=Path, default=Path("fuzz-failures"), help="folder for the failures")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a case may take")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for making one failure small")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="check the case of one failure again")
    args = parser.parse_args()
    if args.replay is not None:
        with contextlib.closing(Worker(args.limit)) as one:
            return replay(args.replay, one)
    engine.MAX_SHRINKING_SECONDS = args.shrink
    worker, counts, known = Worker(args.limit), Counter[str](), set[str]()
    done, last, begin = 0, time.monotonic(), time.monotonic()

    def seen(what: str) -> None:
        nonlocal done, last
        if what.startswith("found "):
            if what not in counts:
                print(f"after {done} cases: {what}, making it small", flush=True)
            counts[what] += 1
            return
        counts[what] += 1
        done += 1
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{done} cases, {len(known)} failures, {done / (last - begin):.1f} a second", flush=True)

    try:
        part = 0
        while done < args.cases:
            found = search(args.kind, min(args.cases - done, 500), worker, known, args.seed * 1_000_003 + part, seen)
            part += 1
            if found is not None:
                known.add(found.signature)
                args.save.mkdir(parents=True, exist_ok=True)
                path = args.save / f"{args.kind}-{args.seed}-{len(known)}.txt"
                path.write_text(show(found))
                print(f"FAILURE {found.signature}\n{show(found)}written to {path}", flush=True)
    finally:
        worker.close()
    for what, n in counts.most_common():
        print(f"{n:7} {what}")
    print(f"{done} cases in {time.monotonic() - begin:.0f} s, {len(known)} kinds of failures")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
