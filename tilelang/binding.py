"""Arguments of a call against the signature of a kernel: dims and dtypes are unified, everything that does not fit is explained.

The result says which specialisation is wanted and what to pass to it. Nothing here knows how kernels are compiled."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tilelang.diagnostics import Note, Span, TileError, make, nearest
from tilelang.frontend.signature import Param, Signature, Specialization
from tilelang.ir.expr import Sym
from tilelang.ir.types import Scalar
from tilelang.runtime import abi


@dataclass
class Call:
    """One bound call. values: kernel arguments in order, the outputs last. results: what the caller gets.
    write_back: (copy, original) pairs of written arrays that had to be copied."""

    spec: Specialization
    dims: dict[str, int]
    values: list[Any]
    results: list[Any]
    write_back: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


class Binder:
    """Binds calls of one function."""

    def __init__(self, signature: Signature, span: Span) -> None:
        """span: where the function is, for errors that belong to no parameter."""
        self.signature = signature
        self.span = span
        self.runtime = [p for p in signature.params if p.role != "static"]
        self.constants = {p.name: p for p in signature.statics}
        self.positional = [p for p in signature.params if not p.keyword]
        self.by_name = {p.name: p for p in signature.params}

    # -- the whole call

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any], out: Any = None) -> Call:
        """Raises TileError with a call-time slug."""
        given = self._match(args, kwargs)
        constants = self.constant_values(given)
        dims: dict[str, tuple[int, str]] = {}
        dtypes = {name: (constants.pop(name), name) for name in self.signature.dtype_params if name in constants}
        strides: dict[str, str] = {}
        bound: dict[str, Any] = {}
        infos: list[tuple[Param, abi.ArrayInfo]] = []
        write_back: list[tuple[np.ndarray, np.ndarray]] = []
        for p in sorted(self.runtime, key=lambda p: p.role == "scalar"):  # arrays have a dtype, which numbers then take
            value = given[p.name]
            if p.role == "scalar":
                bound[p.name] = self._scalar(p, value, dtypes)
                continue
            info = self._describe(p, value)
            self._check(p, info, dims, dtypes, constants)
            info = self._native(info, p.role == "inout", write_back)
            strides[p.name] = _strides_class(info)
            infos.append((p, info))
            bound[p.name] = info
        values = [bound[p.name] for p in self.runtime]
        chosen = {name: scalar for name, (scalar, _) in dtypes.items()}
        for name, domain in self.signature.dtype_params.items():
            chosen.setdefault(name, domain[0])
        extents = {name: n for name, (n, _) in dims.items()}
        results = self._results(out, extents, chosen, constants, infos, values, strides, write_back, given)
        self._check_overlap(infos)
        spec = Specialization(dtypes=chosen, constants=constants, strides=strides)
        return Call(spec, extents, values, results, write_back)

    def _match(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        sig = self.signature
        if len(args) > len(self.positional):
            others = [p.name for p in sig.params if p.keyword]
            help = "results are returned, or written to out=" + (f"; by keyword: {', '.join(others)}" if others else "")
            self._fail("argument-count", None, help=help, function=sig.name, expected=_count(len(self.positional)), found=len(args))
        given = {p.name: v for p, v in zip(self.positional, args)}
        for name, value in kwargs.items():
            if name in given:
                self._fail("argument-kind", self.by_name[name], name=name, found="given twice", expected="one value")
            if name not in self.by_name and name not in sig.dtype_params:
                near = nearest(name, [*self.by_name, "out", "mode", "threads"])
                self._fail(
                    "argument-kind", None, help=f"did you mean '{near}'?" if near else None, name=name, found="no parameter of this kernel",
                    expected=f"one of {', '.join(self.by_name)}",
                )  # fmt: skip
            given[name] = value
        missing = [p for p in sig.params if p.name not in given and not p.has_default]
        if missing:
            names = ", ".join(f"'{p.name}'" for p in missing)
            help = f"pass {names}"
            found = sum(p.name in given for p in self.positional)
            self._fail("argument-count", missing[0], help=help, function=sig.name, expected=_count(len(self.positional)), found=found)
        return given

    def constant_values(self, given: dict[str, Any]) -> dict[str, Any]:
        """The compile-time values of a call: given ones, checked, and defaults."""
        out: dict[str, Any] = {}
        for name, p in self.constants.items():
            out[name] = self._constant(p, given[name]) if name in given else p.default
        for name, domain in self.signature.dtype_params.items():
            if name in given:
                scalar = _as_scalar(given[name])
                if scalar not in domain:
                    self._fail("argument-dtype", None, name=name, found=given[name], expected=" or ".join(map(str, domain)))
                out[name] = scalar
        return out

    def _constant(self, p: Param, value: Any) -> Any:
        kind = p.kind
        if isinstance(value, np.generic):
            value = value.item()
        wanted = {"int": int, "float": (int, float), "bool": bool, "str": str}.get(kind)
        if kind == "dtype":
            scalar = _as_scalar(value)
            if scalar is None:
                self._fail("argument-kind", p, name=p.name, found=_text(value), expected="a dtype such as f32")
            return scalar
        if wanted is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool")):
            self._fail("argument-kind", p, name=p.name, found=_text(value), expected=f"a compile-time {kind}")
        value = float(value) if kind == "float" else value
        return value

    # -- single arguments

    def _scalar(self, p: Param, value: Any, dtypes: dict[str, tuple[Scalar, str]]) -> Any:
        dtype = p.dtype
        assert dtype is not None
        if isinstance(dtype, str):
            if dtype not in dtypes:
                dtypes[dtype] = (self.signature.dtype_params[dtype][0], p.name)
            dtype = dtypes[dtype][0]
        try:
            abi.scalar_slot(dtype.name, value)
        except abi.ArgumentError as error:
            wanted = str(error).removeprefix("expected ").partition(", got")[0] if error.reason == "scalar" else f"a number for {dtype}: {error}"
            self._fail("argument-kind", p, name=p.name, found=_text(value), expected=wanted)
        return value

    def _describe(self, p: Param, value: Any) -> abi.ArrayInfo:
        if isinstance(value, np.ndarray) and value.dtype == object:
            self._fail("argument-object", p, name=p.name, expected=self._type_text(p))
        try:
            info = abi.describe(value)
        except abi.ArgumentError as error:
            if error.reason == "device":
                self._fail("argument-device", p, name=p.name, found=error.device, expected="the CPU")
            plain = error.reason == "not-array"
            help = "np.asarray(x) makes an array of numbers" if plain and p.role == "in" and isinstance(value, (list, tuple, int, float)) else None
            expected = f"an array {self._type_text(p)}" + ("" if plain else f": {error}")
            self._fail("argument-kind", p, help=help, name=p.name, found=_text(value), expected=expected)
        if info.device != "cpu":
            self._fail("argument-device", p, name=p.name, found=info.device, expected="the CPU")
        if info.dtype.startswith("byte-swapped"):
            found, expected = ("big", "little") if sys.byteorder == "little" else ("little", "big")
            self._fail("argument-byte-order", p, name=p.name, found=f"{found}-endian", expected=f"{expected}-endian")
        return info

    def _check(
        self, p: Param, info: abi.ArrayInfo, dims: dict[str, tuple[int, str]], dtypes: dict[str, tuple[Scalar, str]], constants: dict[str, Any]
    ) -> None:  # fmt: skip
        if isinstance(p.dtype, str):
            domain = self.signature.dtype_params[p.dtype]
            if p.dtype in dtypes:
                bound, other = dtypes[p.dtype]
                if info.dtype != bound.name:
                    help = _conversion(p.role, bound)
                    self._fail("argument-dtype", p, self._note(other), help, name=p.name, found=info.dtype, expected=f"{bound}, as '{other}' has")
            else:
                match = next((s for s in domain if s.name == info.dtype), None)
                if match is None:
                    self._fail("argument-dtype", p, help=_conversion(p.role, domain[0]), name=p.name, found=info.dtype, expected=" or ".join(map(str, domain)))
                dtypes[p.dtype] = (match, p.name)
        elif p.dtype is not None and info.dtype != p.dtype.name:
            self._fail("argument-dtype", p, name=p.name, found=info.dtype, expected=str(p.dtype), help=_conversion(p.role, p.dtype))
        if len(info.shape) != len(p.dims):
            self._fail("argument-shape", p, name=p.name, found=info.shape, expected=f"{self._type_text(p)}, {len(p.dims)} axes")
        for axis, (extent, dim) in enumerate(zip(info.shape, p.dims)):
            if isinstance(dim, Sym):
                known = dims.setdefault(dim.name, (extent, p.name))
                if known[0] != extent:
                    first = f"dim {dim.name} is {known[0]} in '{known[1]}'"
                    self._fail(
                        "argument-shape", p, self._note(known[1]), name=p.name, found=info.shape,
                        expected=f"{self._type_text(p)}: {first}, and axis {axis} here has {extent}",
                    )  # fmt: skip
            else:
                wanted = self._evaluate(dim, {n: v for n, (v, _) in dims.items()}, constants)
                if wanted is not None and wanted != extent:
                    self._fail("argument-shape", p, name=p.name, found=info.shape, expected=f"{self._type_text(p)}: axis {axis} must have {wanted}")
        if p.role == "inout":
            self._check_written(p.name, p, info)

    def _check_written(self, name: str, p: Param | None, info: abi.ArrayInfo) -> None:
        if not info.writable:
            self._fail("argument-read-only", p, name=name)
        if abi.overlaps_itself(info):
            self._fail("argument-overlap", p, name=name, other=name, help="its elements share memory; pass a copy")

    def _native(self, info: abi.ArrayInfo, written: bool, write_back: list[tuple[np.ndarray, np.ndarray]]) -> abi.ArrayInfo:
        """The array itself, or an aligned copy of one whose elements lie at odd addresses."""
        if info.aligned or info.size == 0:
            return info
        original = info.owner if isinstance(info.owner, np.ndarray) else np.asarray(info.owner)
        copy = np.array(original, order="C")
        if written:
            write_back.append((copy, original))
        return abi.describe(copy)

    # -- results

    def _results(
        self, out: Any, dims: dict[str, int], dtypes: dict[str, Scalar], constants: dict[str, Any], infos: list[tuple[Param, abi.ArrayInfo]],
        values: list[Any], strides: dict[str, str], write_back: list[tuple[np.ndarray, np.ndarray]], given: dict[str, Any],
    ) -> list[Any]:  # fmt: skip
        specs = self.signature.results
        if out is None:
            outs: list[Any] = [None] * len(specs)
        else:
            outs = [out] if len(specs) == 1 and not isinstance(out, (tuple, list)) else list(out)
            if len(outs) != len(specs):
                self._fail("argument-count", None, function=f"out= of {self.signature.name}", expected=_count(len(specs)), found=len(outs))
        torch = sys.modules.get("torch")
        wants_torch = torch is not None and any(isinstance(given[p.name], torch.Tensor) for p, _ in infos)
        results: list[Any] = []
        for n, (spec, array) in enumerate(zip(specs, outs)):
            dtype = dtypes[spec.dtype] if isinstance(spec.dtype, str) else spec.dtype
            shape = tuple(self._extent(d, dims, constants) for d in spec.dims)
            name = "out" if len(specs) == 1 else f"out[{n}]"
            if array is None:
                array = _new(shape, dtype, torch if wants_torch else None)
                info = abi.describe(array)
            else:
                info = self._describe_out(name, array, dtype, shape)
                info = self._native(info, True, write_back)
                infos.append((Param(name, spec.span, "out", dtype, spec.dims), info))
            strides[f"out{n}"] = _strides_class(info)
            values.append(info)
            results.append(array)
        return results

    def _describe_out(self, name: str, array: Any, dtype: Scalar, shape: tuple[int, ...]) -> abi.ArrayInfo:
        try:
            info = abi.describe(array)
        except abi.ArgumentError as error:
            if error.reason == "device":
                self._fail("argument-device", None, name=name, found=error.device, expected="the CPU")
            self._fail("argument-kind", None, name=name, found=_text(array), expected=f"an array {dtype}{list(shape)}: {error}")
        if info.device != "cpu":
            self._fail("argument-device", None, name=name, found=info.device, expected="the CPU")
        if info.dtype != dtype.name:
            self._fail("argument-dtype", None, help=_conversion("out", dtype), name=name, found=info.dtype, expected=str(dtype))
        if info.shape != shape:
            self._fail("argument-shape", None, name=name, found=info.shape, expected=str(shape))
        self._check_written(name, None, info)
        return info

    def _check_overlap(self, infos: list[tuple[Param, abi.ArrayInfo]]) -> None:
        """A written array shares no element with any other argument: kernels may read and write in any order."""
        for i, (p, info) in enumerate(infos):
            if p.role == "in":
                continue
            for j, (q, other) in enumerate(infos):
                if i != j and (q.role == "in" or j < i) and abi.overlap(info, other):
                    self._fail("argument-overlap", p if p.role == "inout" else None, self._note(q.name), name=p.name, other=q.name)

    def _extent(self, dim: Any, dims: dict[str, int], constants: dict[str, Any]) -> int:
        extent = self._evaluate(dim, dims, constants)
        if extent is None:
            self._fail("argument-shape", None, name="result", found=str(dim), expected="dims of the arguments")
        return max(0, extent)

    def _evaluate(self, dim: Any, dims: dict[str, int], constants: dict[str, Any]) -> int | None:
        if isinstance(dim, int):
            return dim
        known = {**{n: v for n, v in constants.items() if isinstance(v, int)}, **dims}
        return dim.evaluate(known) if dim.symbols() <= known.keys() else None

    # -- messages

    def _type_text(self, p: Param) -> str:
        return f"{p.dtype}[{', '.join(map(str, p.dims))}]"

    def _note(self, name: str) -> list[Note]:
        p = self.by_name.get(name)
        return [Note(f"'{name}' is declared here", p.span)] if p is not None else []

    def _fail(self, slug: str, p: Param | None, notes: list[Note] | None = None, help: str | None = None, **fields: Any) -> NoReturn:
        span = p.span if p is not None else self.span
        raise TileError([make(slug, span, notes or (), help, **fields)])


def _strides_class(info: abi.ArrayInfo) -> str:
    """'unit': the last axis is contiguous, so rows can be read by whole vectors."""
    strides = info.strides
    return "unit" if strides is None or not strides or strides[-1] == 1 or info.shape[-1] <= 1 else "any"


def _new(shape: tuple[int, ...], dtype: Scalar, torch: Any) -> Any:
    if torch is not None:
        kind = {v: k for k, v in abi._TORCH_NAMES.items()}[dtype.name]  # pyright: ignore[reportPrivateUsage]
        return torch.empty(shape, dtype=getattr(torch, kind))
    return np.empty(shape, abi.np_dtype(dtype.name))


def _as_scalar(value: Any) -> Scalar | None:
    """A dtype given as a dtype object, a name, or a NumPy dtype."""
    if isinstance(value, Scalar):
        return value
    name = getattr(value, "ir_name", "") or value
    try:
        return Scalar(name) if isinstance(name, str) else Scalar(abi.dtype_name(np.dtype(value)))
    except (TypeError, ValueError):
        return None


def _count(n: int) -> str:
    return "no" if n == 0 else str(n)


def _text(value: Any) -> str:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return repr(value)
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")


def _conversion(role: str, dtype: Scalar) -> str:
    """The help for an array of another dtype. A converted copy of a written one would get the result, not the caller's array."""
    return f"convert it: x.astype({_numpy_text(dtype)})" if role == "in" else f"make the array as {_numpy_text(dtype)} from the start: the kernel writes into it, not into a converted copy"


def _numpy_text(dtype: Scalar) -> str:
    name = abi.np_dtype(dtype.name).name
    return f"ml_dtypes.{name}" if "float8" in name or name == "bfloat16" else f"np.{name}"
