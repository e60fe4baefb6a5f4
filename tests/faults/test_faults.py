"""Are faults in passes found? Each one is put into the source of a pass, in memory, and small programs are compiled with the verifier and the
interpreter after each pass."""

from __future__ import annotations

from functools import cache

import pytest

from tests.faults import mem_faults, tile_faults, vec_faults
from tests.faults.harness import ROOT, Fault, change, injected, look
from tests.faults.programs import examples, own
from tilelang.passes.pipelines import COMMON, CPU, TILING

FAULTS = (*tile_faults.FAULTS, *mem_faults.FAULTS, *vec_faults.FAULTS)
SHARE = 0.95
# Faults that any run notices, since the pass breaks down, prove little.
CRASHES = 5
# Passes in which nothing can change a result: their choices and marks change the speed alone, or they report errors.
HARMLESS = {"infer-layout", "pipeline", "vectorize", "validate"}
# Where a pass does its work, when not in the file of its name.
PARTS = {"canonicalize": "folding", "promote": "promotion", "raise": "raise_contract", "lower-to-vec": "vec_lowering", "expand-math": "math", "cleanup": "folding"}

found = cache(look)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.id)
def test_fault_is_found(fault: Fault) -> None:
    assert found(fault) is not None, f"no program notices: {fault.why}"


@pytest.mark.parametrize("name", [*own(), *examples()])
def test_the_right_passes_change_nothing(name: str) -> None:
    assert change(name) is None


def test_enough_are_found() -> None:
    assert len(FAULTS) >= 50 and len({f.id for f in FAULTS}) == len(FAULTS)
    results = [found(f) for f in FAULTS]
    share = sum(r is not None for r in results) / len(results)
    assert share >= SHARE, f"{share:.0%} of the faults are found"
    assert sum(r is not None and r[0] == "crash" for r in results) <= CRASHES


def test_every_pass_has_faults() -> None:
    places = {part.removesuffix(".py") for f in FAULTS for part in f.file.split("/")[1:]}
    passes = {*TILING, *COMMON, *CPU} - HARMLESS
    assert {p for p in passes if PARTS.get(p, p.replace("-", "_")) not in places} == set()


def test_a_fault_that_does_not_fit_is_named() -> None:
    fault = Fault("passes/cse.py", "text that is not there", "", "an old mistake", ())
    with pytest.raises(ValueError, match=r"'an old mistake' does not fit passes/cse\.py any more: its text is there 0 times"):
        look(fault)


def test_the_passes_are_as_before_afterwards() -> None:
    import tilelang
    from tilelang.ir.passes import get_pass
    from tilelang.passes import cse

    before = tilelang.passes, get_pass("cse"), (ROOT / "passes/cse.py").read_bytes()
    fault = next(f for f in FAULTS if f.file == "passes/cse.py")
    with injected(fault):
        assert get_pass("cse") is not before[1]
    assert (tilelang.passes, get_pass("cse"), (ROOT / "passes/cse.py").read_bytes()) == before
    assert get_pass("cse") is cse.Cse
