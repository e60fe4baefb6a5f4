"""Random data for a function, from the types of its parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelang.dialects.func import Func
from tilelang.ir.core import Module
from tilelang.ir.types import BufferType, Dyn, PtrType, Scalar, TensorType, index
from tilelang.runtime.numerics import dtype_of, poison, scalar

_PRIMES = (19, 11, 37, 29, 23, 17, 31, 13)
_FACT = re.compile(r"(\w+)\s*(%\s*(\d+)\s*==\s*0|>=\s*(\d+)|==\s*(\d+)|<=\s*(\d+))")
_RAW = 1 << 14  # elements behind a bare pointer
_PITCH = 97  # elements from row to row behind a bare pointer


class Data:
    """One array argument: `memory` is a one-axis array, the argument a strided view of it. raw: a bare pointer (vec level)."""

    __slots__ = ("memory", "shape", "strides", "element", "padded", "raw")

    def __init__(self, memory: Any, shape: tuple[int, ...], strides: tuple[int, ...], element: Scalar, padded: bool = False, raw: bool = False) -> None:
        self.memory = memory
        self.shape = shape
        self.strides = strides
        self.element = element
        self.padded = padded
        self.raw = raw

    def view(self, memory: Any) -> Any:
        # As unsigned integers: NumPy does not know all the float types there.
        raw = memory.view(f"u{memory.itemsize}")
        return np.lib.stride_tricks.as_strided(raw, self.shape, tuple(s * memory.itemsize for s in self.strides)).view(memory.dtype)

    def fresh(self, exact: bool) -> tuple[Any, Any]:
        """A copy of the memory, float64 for floats in exact mode, and the view of it."""
        memory = self.memory.astype(np.float64) if exact and self.element.is_float else self.memory.copy()
        return memory, self.view(memory)

    def covered(self) -> Any:
        """Which elements of the memory belong to the view."""
        mask = np.zeros(self.memory.shape, bool)
        self.view(mask)[...] = True
        return mask


class Case:
    """Arguments of one call: (name, Data or number) for each source parameter, and memory for the results."""

    def __init__(self, label: str, items: list[tuple[str, Any]], outs: list[Data], terms: int) -> None:
        self.label = label
        self.items = items
        self.outs = outs
        self.terms = terms  # a guess at the length of the longest sum

    def see_results(self, func: Func, values: dict[str, Any]) -> None:
        """A tensor-level function tells the shapes of its results when it runs: they become memory for later forms of it."""
        kinds: Sequence[Any] = func.results_
        if self.outs or not all(isinstance(kind, TensorType) for kind in kinds):
            return
        for i, kind in enumerate(kinds):
            value = values.get(f"result {i}")
            if value is None:
                return
            shape = np.shape(value)
            self.outs.append(Data(poison((max(int(np.prod(shape)), 1),), kind.element, False), shape, _row_major(shape), kind.element))


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _strides(kind: Any, shape: tuple[int, ...], padded: bool) -> tuple[int, ...]:
    """Strides that the type (of a buffer or tensor) allows: row-major, with gaps where the type leaves the stride open and `padded` asks for them."""
    # A tensor of rows will be a buffer whose last axis is contiguous.
    declared = kind.strides if isinstance(kind, BufferType) else (*[None] * (len(shape) - 1), 1) if shape else None
    if declared is None:
        return _row_major(shape)
    # Static strides first: the open ones go around them.
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, declared) if isinstance(s, int) and n > 0)
    strides: list[int] = []
    for n, s in zip(reversed(shape), reversed(declared)):
        if not isinstance(s, int):
            s = reach + (3 if padded and reach > 1 else 1 if padded else 0)
            reach = s * max(n, 1)
        strides.append(s)
    return tuple(reversed(strides))


class _Maker:
    def __init__(self, module: Module, func: Func, sizes: dict[str, int], rng: Any, padded: bool, special: bool, trial: int = 0) -> None:
        self.func = func
        self.trial = trial
        self.sizes = sizes
        self.rng = rng
        self.padded = padded
        self.special = special
        self.indexing = any(
            op.name.endswith((".gather", ".scatter", ".take_along")) or op.attrs.get("indexed") or _casts_to_index(op) for op in module.walk()
        )

    def shape(self, kind: Any, name: str) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else dim_size(d, self.sizes, f"{name}.{i}") for i, d in enumerate(kind.shape))

    def numbers(self, shape: tuple[int, ...], element: Scalar) -> Any:
        rng, dtype = self.rng, dtype_of(element)
        if element.kind == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if element.is_float:
            x = rng.standard_normal(shape)
            if not self.padded:
                x = np.round(x * 4) / 4  # equal numbers and zeros, for comparisons
            if self.special and x.size:
                places = rng.integers(0, x.size, 3)
                x.ravel()[places] = [np.nan, np.inf, -np.inf]
            with np.errstate(all="ignore"):
                return x.astype(np.float32).astype(dtype) if element.bits < 32 else x.astype(dtype)
        if self.indexing:
            high = min((n for n in self.extents() if n > 0), default=1)
            return rng.integers(0, min(high, 127), shape).astype(dtype)
        return rng.integers(-4 if element.kind != "uint" else 0, 9, shape).astype(dtype)

    def extents(self) -> list[int]:
        found = list(self.sizes.values())
        for a in self.func.args:
            found += [d for d in getattr(a.type, "shape", ()) if isinstance(d, int)]
        return found

    def data(self, kind: Any, name: str, role: str) -> Data:
        shape = self.shape(kind, name)
        strides = _strides(kind, shape, self.padded)
        length = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else 1
        memory = poison((length,), kind.element)
        data = Data(memory, shape, strides, kind.element, padded=strides != _row_major(shape))
        if role != "out":
            data.view(memory)[...] = self.numbers(shape, kind.element)
        return data

    def number(self, kind: Scalar, at: int = 0) -> Any:
        """The scalar argument at a position: both bools and small integers around 0 and 1 come up over the trials, since branches depend on them."""
        turn = self.trial + at
        if kind is index:
            return (3, 1, 0, 2, 5)[turn % 5]
        if kind.is_float:
            return scalar(round(float(abs(self.rng.standard_normal())) + 0.125, 3) * (-1 if self.trial == 3 else 1), kind)
        return scalar(turn % 2 if kind.kind == "bool" else (1, 0, 2, 4, 3)[turn % 5], kind)

    def case(self, label: str) -> Case:
        items: list[tuple[str, Any]] = []
        outs: list[Data] = []
        for at, (arg, role) in enumerate(zip(self.func.args, self.func.roles)):
            name, kind = arg.hint or "argument", arg.type
            if isinstance(kind, Scalar):
                items.append((name, self.number(kind, at)))
            elif role == "out":
                outs.append(self.data(kind, name, role))
            else:
                items.append((name, self.data(kind, name, role)))
        return Case(label, items, outs, max([1, *self.extents()]))


def _casts_to_index(op: Any) -> bool:
    return op.name == "arith.cast" and op.results[0].type is index and op.operands[0].type is not index


def dim_size(dim: Dyn, sizes: dict[str, int], fallback: str) -> int:
    """The size of a dim: of a symbol, or of an expression of symbols."""
    name = dim.name or fallback
    if name in sizes:
        return sizes[name]
    if name.isidentifier() or not dim.name:
        return sizes.get(fallback, 1)
    from tilelang.ir.index import parse

    return parse(name).evaluate(sizes)


def symbols(func: Func) -> list[str]:
    """Names of the dims of the parameters; an unnamed one is called `parameter.axis`."""
    found: dict[str, None] = {}
    for a in func.args:
        for i, d in enumerate(getattr(a.type, "shape", ())):
            if isinstance(d, Dyn):
                name = d.name or f"{a.hint or 'argument'}.{i}"
                if not d.name or d.name.isidentifier():
                    found[name] = None
    return list(found)


def _respect_facts(sizes: dict[str, int], facts: Sequence[str]) -> dict[str, int]:
    for fact in facts:
        m = _FACT.fullmatch(fact.strip())
        if m is None or m[1] not in sizes:
            continue
        n = sizes[m[1]]
        if m[3]:
            n = -(-n // int(m[3])) * int(m[3])
        sizes[m[1]] = max(n, int(m[4])) if m[4] else int(m[5]) if m[5] else min(n, int(m[6])) if m[6] else n
    return sizes


def _above_blocks(func: Func, names: Sequence[str]) -> dict[str, int]:
    """Sizes a little above the step of the loop over each dim: full blocks and a tail."""
    steps: dict[str, int] = {}
    for op in func.walk():
        n = len(op.operands) // 3
        triples = zip(op.operands[n : 2 * n], op.operands[2 * n :]) if op.name == "loop.parallel" else [op.operands[1:3]] if op.name == "loop.for" else ()
        for upper, step in triples:
            name, value = _dim_name(upper), step.op.attrs.get("value") if step.op is not None else None
            if name is not None and isinstance(value, int):
                steps[name] = max(steps.get(name, 1), value)
    return _cut({n: steps.get(n, 30) + 3 + 2 * k for k, n in enumerate(names)}, 1 << 18)


def _cut(sizes: dict[str, int], most: int) -> dict[str, int]:
    """The largest dims halved until their product, which the work may be in proportion to, is at most `most`."""
    while math.prod(sizes.values()) > most and max(sizes.values()) > 5:
        largest = max(sizes, key=lambda n: sizes[n])
        sizes[largest] //= 2
    return sizes


def _dim_name(value: Any) -> str | None:
    """The symbol whose size the value is."""
    op = value.op
    if op is None or op.name not in ("mem.dim", "tensor.dim"):
        return None
    source = op.operands[0]
    dim = source.type.shape[op.attrs["axis"]]
    return (dim.name or f"{source.hint or 'argument'}.{op.attrs['axis']}") if isinstance(dim, Dyn) else None


def make_cases(
    module: Module, func: Func, seed: int = 0, shapes: Sequence[dict[str, int]] | None = None, args: Sequence[Any] | None = None
) -> list[Case]:
    """Cases to run a function on: ragged dims, dims above one block (with gaps between rows where strides are open), 1, 0, and the ragged ones with
    NaN and infinities among the numbers; or the dims of `shapes`; or the given arguments of the source parameters."""
    if any(isinstance(a.type, PtrType) for a in func.args):
        return _pointer_cases(func, seed)
    if args is not None:
        return [_given(module, func, args)]
    names = symbols(func)
    if shapes is not None:
        trials = [(dict(s), True, False) for s in shapes]
    else:
        first = seed % len(_PRIMES)
        ragged = _cut({n: _PRIMES[(first + k) % len(_PRIMES)] for k, n in enumerate(names)}, 1 << 14)
        trials = [(ragged, False, False)]
        if names:
            trials.append((_above_blocks(func, names), True, False))
        if any(isinstance(a.type, Scalar) and not a.type.is_float for a in func.args):
            trials += [(ragged, False, False)] * 3  # branches on scalars
        if names:
            trials += [(dict.fromkeys(names, 1), False, False), (dict.fromkeys(names, 0), False, False)]
        trials.append((ragged, True, True))
    cases: list[Case] = []
    for k, (sizes, padded, special) in enumerate(trials):
        sizes = _respect_facts(dict(sizes), func.facts)
        label = ", ".join([f"{n}={s}" for n, s in sizes.items()] + ["with NaN and infinities"] * special) or "static shapes"
        cases.append(_Maker(module, func, sizes, np.random.default_rng((seed, k)), padded, special, k).case(label))
    return cases


def _given(module: Module, func: Func, args: Sequence[Any]) -> Case:
    sizes: dict[str, int] = {}
    items: list[tuple[str, Any]] = []
    outs: list[tuple[Any, str]] = []
    rest = iter(args)
    for arg, role in zip(func.args, func.roles):
        name, kind = arg.hint or "argument", arg.type
        if role == "out":
            outs.append((kind, name))
        elif isinstance(kind, Scalar):
            items.append((name, next(rest)))
        else:
            array = np.asarray(next(rest))
            for i, (d, n) in enumerate(zip(kind.shape, array.shape)):
                if isinstance(d, Dyn):
                    sizes.setdefault(d.name or f"{name}.{i}", n)
            # A copy in row-major order, which every declared stride allows but static unusual ones.
            memory = np.ascontiguousarray(array).ravel() if array.size else poison((1,), kind.element)
            items.append((name, Data(memory, array.shape, _row_major(array.shape), kind.element)))
    maker = _Maker(module, func, sizes, np.random.default_rng(0), False, False)
    return Case("the given arguments", items, [maker.data(kind, name, "out") for kind, name in outs], max([1, *maker.extents()]))


def _pointer_cases(func: Func, seed: int) -> list[Case]:
    """For a function of the vec level nothing but pointers and numbers is known. An even number of index parameters after a pointer are taken as its
    dims and strides; memory is larger than they say, since static dims are not among them."""
    cases: list[Case] = []
    for k, extent in enumerate((19, 34, 1, 0)):
        rng = np.random.default_rng((seed, k))
        items: list[tuple[str, Any]] = []
        params = list(func.args)
        at = 0
        while at < len(params):
            name, kind = params[at].hint or "argument", params[at].type
            at += 1
            if isinstance(kind, Scalar):
                maker = _Maker(Module.of(), func, {}, rng, False, False)
                items.append((name, extent if kind is index else maker.number(kind)))
            if not isinstance(kind, PtrType):
                continue
            maker = _Maker(Module.of(), func, {"extent": max(extent, 1)}, rng, False, False)
            items.append((name, Data(maker.numbers((_RAW,), kind.element), (_RAW,), (1,), kind.element, raw=True)))
            count = 0
            while at + count < len(params) and params[at + count].type is index:
                count += 1
            if count % 2 == 0:
                rank = count // 2
                strides = [_PITCH**i for i in range(rank - 1, -1, -1)]
                items += [(params[at + i].hint or "dim", extent if i < rank else strides[i - rank]) for i in range(count)]
                at += count
        cases.append(Case(f"extents of {extent}", items, [], max(extent, 1)))
    return cases
