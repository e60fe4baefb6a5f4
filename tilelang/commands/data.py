"""The arguments of `tilec run`: given ones, and random ones for the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilelang.commands.options import pairs, suggest, usage
from tilelang.frontend.signature import Param, Signature
from tilelang.ir.expr import Sym
from tilelang.ir.types import SCALAR_NAMES, Scalar
from tilelang.runtime.abi import dtype_name, np_dtype

# Default extents by the largest rank of a tensor that has the dim: distinct, and no multiples of a tile.
_SIZES = {
    2: (383, 257, 449, 311, 353, 281, 487, 263, 419, 331),
    3: (61, 97, 83, 71, 89, 53, 101, 67, 79, 59),
    4: (19, 23, 29, 17, 31, 13, 37, 11, 41, 43),
}
_WINDOWS = (3, 5, 2, 4)  # dims that make a result smaller, such as those of a filter
_LARGEST = 1 << 46  # bytes; NumPy has no better words for what is larger
_MADE = re.compile(r"(rand|zeros|ones)(?::(?P<dtype>[a-z]\w*)?(?P<shape>\[[^\]]*\])?)?(?::(?P<low>[^:]+):(?P<high>[^:]+))?")
_HELP = "rand:f32[128,256], rand:i32[64]:0:100, zeros:f32[64], ones:f32[64], FILE.npy or a number"


@dataclass(frozen=True)
class Given:
    """One --arg: `array` from a file, or a number, or how to make one."""

    kind: str  # array, number, rand, zeros, ones
    dtype: Scalar | None = None
    shape: tuple[int, ...] | None = None
    range: tuple[float, float] | None = None
    value: Any = None


@dataclass(frozen=True)
class Arguments:
    """values: by parameter. dims: the extents that were chosen or given."""

    values: dict[str, Any]
    dims: dict[str, int]


def make_arguments(signature: Signature, choices: dict[str, Any], texts: Sequence[str], dims: Sequence[str], seed: int) -> Arguments:
    """The run-time arguments of a call. choices: what --set chose; dtype parameters among them follow the arguments that are given.

    Tensors that are not given are random: floats standard normal, integers in [0, 8), bools. Scalars are 1. Wrong texts are wrong usage."""
    runtime = [p for p in signature.params if p.role != "static"]
    given = _given(signature, runtime, texts)
    dtypes = _dtypes(signature, runtime, given, choices)
    statics = {p.name: choices.get(p.name, p.default) for p in signature.statics}
    integers = {n: v for n, v in statics.items() if type(v) is int}
    known = _known_dims(signature, runtime, given, dims)
    sizes = default_dims(signature, known, integers)
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for p in runtime:
        dtype = p.dtype if isinstance(p.dtype, Scalar) else dtypes[str(p.dtype)]
        how = given.get(p.name)
        if p.role == "scalar":
            values[p.name] = _scalar(p, how)
        else:
            values[p.name] = _tensor(p, how or Given("rand"), dtype, {**integers, **sizes}, rng)
    return Arguments(values, sizes)


def _given(signature: Signature, runtime: list[Param], texts: Sequence[str]) -> dict[str, Given]:
    out: dict[str, Given] = {}
    names = [p.name for p in runtime]
    for name, text in pairs(texts, "--arg").items():
        if name not in names:
            param = signature.param(name)
            if param is not None or name in signature.dtype_params:
                usage(f"--arg {name}: it is known at compile time; use --set {name}={text}")
            usage(f"--arg: '{signature.name}' has no parameter '{name}'{suggest(name, names)}")
        out[name] = parse_argument(name, text)
    return out


def parse_argument(name: str, text: str) -> Given:
    """The value of one --arg."""
    made = _MADE.fullmatch(text)
    if made is not None:
        dtype = made["dtype"]
        if dtype is not None and dtype.removesuffix("_") not in SCALAR_NAMES[:-1]:
            usage(f"--arg {name}={text}: '{dtype}' is no dtype{suggest(dtype, SCALAR_NAMES[:-1])}")
        limits = (_number(name, made["low"]), _number(name, made["high"])) if made["low"] is not None else None
        if limits is not None and not limits[0] < limits[1]:
            usage(f"--arg {name}={text}: the range {made['low']}:{made['high']} is empty")
        return Given(made[1], Scalar(dtype.removesuffix("_")) if dtype else None, _shape(name, made["shape"]), limits)
    if text.endswith(".npy"):
        return Given("array", value=_read_array(name, text))
    return Given("number", value=_number(name, text))


def _shape(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        shape = tuple(int(n) for n in text[1:-1].split(",") if n.strip())
    except ValueError:
        shape = (-1,)
    if any(n < 0 for n in shape):
        usage(f"--arg {name}: the shape {text} is not a list of lengths such as [128,256]")
    return shape


def _number(name: str, text: str) -> Any:
    lower = text.strip().lower()
    if lower in ("true", "false"):
        return lower == "true"
    for kind in (lambda t: int(t, 0), float):
        try:
            return kind(text)
        except ValueError:
            continue
    usage(f"--arg {name}={text}: expected {_HELP}")


def _read_array(name: str, path: str) -> Any:
    if not Path(path).is_file():
        usage(f"--arg {name}: there is no file {path}")
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        usage(f"--arg {name}: {path} is not an array in NumPy's format: {error}")


def _dtypes(signature: Signature, runtime: list[Param], given: dict[str, Given], choices: dict[str, Any]) -> dict[str, Scalar]:
    """Of each dtype parameter: what --set says, else the dtype of a given argument, else its first."""
    out: dict[str, Scalar] = {n: v for n, v in choices.items() if n in signature.dtype_params}
    for p in runtime:
        how = given.get(p.name)
        if how is None or not isinstance(p.dtype, str) or p.dtype in out:
            continue
        found = how.dtype.name if how.dtype is not None else dtype_name(how.value.dtype) if how.kind == "array" else ""
        match = next((s for s in signature.dtype_params[p.dtype] if s.name == found), None)
        if match is not None:
            out[p.dtype] = match
    return {name: out.get(name, domain[0]) for name, domain in signature.dtype_params.items()}


def _known_dims(signature: Signature, runtime: list[Param], given: dict[str, Given], texts: Sequence[str]) -> dict[str, int]:
    known: dict[str, int] = {}
    for name, text in pairs(texts, "--dim").items():
        if name not in signature.dims:
            usage(f"--dim: '{signature.name}' has no dim '{name}'{suggest(name, signature.dims)}")
        if not text.isdecimal():
            usage(f"--dim {name}={text}: a length is an integer of at least 0")
        known[name] = int(text)
    for p in runtime:
        how = given.get(p.name)
        shape = None if how is None else how.value.shape if how.kind == "array" else how.shape
        for dim, n in zip(p.dims, shape or ()):
            if isinstance(dim, Sym):
                known.setdefault(dim.name, n)
    return known


def default_dims(signature: Signature, known: Mapping[str, int], integers: Mapping[str, int]) -> dict[str, int]:
    """Extents for all symbolic dims: the known ones, and distinct ragged ones that make no result empty for the rest."""
    sizes = dict(known)
    free = [n for n in signature.dims if n not in known]
    for name in free:
        rank = max((len(p.dims) for p in signature.tensors if any(name in d.symbols() for d in p.dims)), default=1)
        options = _SIZES[min(max(rank, 2), 4)]
        sizes[name] = next((n for n in options if n not in sizes.values()), options[-1] + 2 * len(sizes))
    windows = iter(_WINDOWS * len(free))
    for r in signature.results:
        for d in r.dims:
            for name in sorted(d.symbols() & set(free)):
                values = {**integers, **sizes}
                if not isinstance(d, Sym) and d.symbols() <= values.keys() and d.evaluate({**values, name: values[name] + 64}) < d.evaluate(values):
                    sizes[name] = next(windows)
                    free.remove(name)
    return sizes


def _scalar(p: Param, how: Given | None) -> Any:
    if how is None:
        return True if getattr(p.dtype, "kind", None) == "bool" else 1
    if how.kind == "number":
        return how.value
    if how.kind == "array" and how.value.ndim == 0:
        return how.value.item()
    usage(f"--arg {p.name}: it is a scalar, give a number")


def _tensor(p: Param, how: Given, dtype: Scalar, sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    if how.kind == "array":
        return _as_declared(how.value, dtype)
    dtype = how.dtype or dtype
    shape = how.shape if how.shape is not None else tuple(d.evaluate(sizes) for d in p.dims)
    kind = np_dtype(dtype.name)
    if math.prod(shape) * kind.itemsize > _LARGEST:
        raise MemoryError(f"'{p.name}' of shape {list(shape)} takes {math.prod(shape) * kind.itemsize:.2g} bytes")
    if how.kind in ("zeros", "ones"):
        return np.full(shape, how.kind == "ones", kind)
    if how.kind == "number":
        if not dtype.is_float and (type(how.value) is float or (dtype.kind != "bool" and not np.iinfo(kind).min <= how.value <= np.iinfo(kind).max)):
            usage(f"--arg {p.name}={how.value}: this is no {dtype}")
        with np.errstate(all="ignore"):
            return np.full(shape, how.value).astype(kind)
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(kind)
    if dtype.is_float:
        numbers = rng.standard_normal(shape, np.float32) if how.range is None else rng.uniform(*how.range, shape)
        return numbers.astype(kind)
    low, high = how.range or (0, 8)
    limits = np.iinfo(kind)
    if low != int(low) or high != int(high) or low < limits.min or high - 1 > limits.max:
        usage(f"--arg {p.name}: the range {low}:{high} does not fit {dtype}")
    return rng.integers(int(low), int(high), shape, dtype=kind)


def _as_declared(array: Any, dtype: Scalar) -> Any:
    """NumPy writes types it does not know (bf16, fp8) to files as raw bytes; they are read back as the declared type."""
    kind = np_dtype(dtype.name)
    return array.view(kind) if array.dtype.kind == "V" and array.dtype.itemsize == kind.itemsize else array
