"""One case of a fuzzer: a program and the recipe for its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.evaluator import bounded as bd


@dataclass
class Tensor:
    """A tensor argument. dims: names or numbers. below: the values are indices less than this dim; each once if `once`. dtype: of the data."""

    name: str
    dtype: str
    dims: tuple[str | int, ...]
    below: str | int | None = None
    once: bool = False


@dataclass
class Scalar:
    name: str
    dtype: str
    value: int | float | bool


@dataclass
class Case:
    """special: NaN, infinities, zeros and the largest numbers are among the data. strides: how arrays lie in memory."""

    text: str
    args: list[Tensor | Scalar]
    dims: dict[str, int]
    seed: int = 0
    special: bool = False
    strided: bool = False
    threads: int = 1
    each: bool = False  # run the interpreter after every pass
    constants: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> list[Any]:
        """The same values at every call."""
        rng = np.random.default_rng(self.seed)
        return [a.value if isinstance(a, Scalar) else self._array(rng, a) for a in self.args]

    def extent(self, dim: str | int) -> int:
        return self.dims[dim] if isinstance(dim, str) else dim

    def _array(self, rng: np.random.Generator, a: Tensor) -> Any:
        shape = tuple(self.extent(d) for d in a.dims)
        if a.once:
            values: Any = rng.permutation(self.extent(a.dims[0]))
        elif a.below is not None:
            values = rng.integers(0, max(self.extent(a.below), 1), shape)
        elif a.dtype == "bool_":
            values = rng.integers(0, 2, shape)
        elif bd.is_float(a.dtype):
            # Small numbers of few digits: sums of them are often exact, which makes the comparison sharp.
            values = rng.integers(-40, 41, shape) / 8 if rng.random() < 0.5 else rng.standard_normal(shape)
            if self.special:
                odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, bd.LARGEST[a.dtype], bd.SMALLEST[a.dtype], 1e-30]
                values = np.where(rng.random(shape) < 0.15, rng.choice(odd, shape), values)
        else:
            info = np.iinfo(bd.NUMPY[a.dtype])
            low, high = (max(info.min, -9), min(info.max, 9)) if rng.random() < 0.7 else (info.min, info.max)
            values = rng.integers(low, high, shape, dtype=bd.NUMPY[a.dtype], endpoint=True)
        with np.errstate(all="ignore"):
            array = np.asarray(values).astype(bd.NUMPY[a.dtype])
        if not self.strided or array.ndim == 0:
            return array
        room = np.zeros(tuple(2 * n + 1 for n in shape), array.dtype)
        view = room[tuple(slice(2 * n - 1, None, -2) if n and rng.random() < 0.3 else slice(0, 2 * n, 2) for n in shape)]
        view[...] = array
        return view
