"""What a call with arguments that do not fit says, and what it advises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilelang import InOut, Tensor, TileError, dims, dtypes, f16, f32, grid, i32, tile, zeros

M, N = dims("M N")
Float = dtypes(f32, f16)


@tile
def scaled(x: Tensor[Float, M, N], y: Tensor[Float, N], s: f32, n: i32) -> Tensor[Float, M, N]:
    return x * s + y * n


@tile
def cleared(x: InOut[f32, M]):
    for i in grid(M, by=8):
        x[i] = zeros(f32, i)


X, Y = np.ones((3, 4), np.float32), np.ones(4, np.float32)
CONVERT = "convert it: x.astype(np.float32)"
MAKE = "make the array as np.float32 from the start: the kernel writes into it, not into a converted copy"


@pytest.mark.parametrize(
    ("kernel", "args", "out", "message", "help"),
    [
        (scaled, (X.astype(np.float64), Y, 1, 2), None, "argument 'x' has dtype f64, expected f32 or f16", CONVERT),
        (scaled, (X, Y.astype(np.float16), 1, 2), None, "argument 'y' has dtype f16, expected f32, as 'x' has", CONVERT),
        (scaled, (X, Y, 1, 2), X.astype(np.float64), "argument 'out' has dtype f64, expected f32", MAKE),
        (cleared, (np.ones(3),), None, "argument 'x' has dtype f64, expected f32", MAKE),
        (scaled, ([[1.0]], Y, 1, 2), None, "argument 'x' is a list, expected an array Float[M, N]", "np.asarray(x) makes an array of numbers"),
        (scaled, (X, None, 1, 2), None, "argument 'y' is None, expected an array Float[N]", None),
        (cleared, ([1.0],), None, "argument 'x' is a list, expected an array f32[M]", None),
        (scaled, (X, Y, 1, 2, X), None, "scaled takes 4 arguments, got 5", "results are returned, or written to out="),
        (scaled, (X, Y, "1", 2), None, "argument 's' is '1', expected a number for f32", None),
        (scaled, (X, Y, Y, 2), None, "argument 's' is a numpy.ndarray, expected a scalar", None),
        (scaled, (X, Y, 1, 2.5), None, "argument 'n' is 2.5, expected an integer for i32", None),
        (scaled, (X, Y, 1, 1 << 31), None, "argument 'n' is 2147483648, expected a number for i32: "
         "2147483648 does not fit in i32 (-2147483648 to 2147483647)", None),
    ],
)  # fmt: skip
def test_arguments(kernel: Any, args: tuple[Any, ...], out: Any, message: str, help: str | None) -> None:
    with pytest.raises(TileError) as caught:
        kernel(*args, out=out)
    (found,) = caught.value.diagnostics
    assert (found.message, found.help) == (message, help)


class OnDevice:
    """What DLPack shows of an array in the memory of another device."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("the device is looked at first")


@pytest.mark.parametrize(("args", "out", "name"), [((OnDevice(), Y, 1, 2), None, "x"), ((X, Y, 1, 2), OnDevice(), "out")])
def test_arrays_of_another_device(args: tuple[Any, ...], out: Any, name: str) -> None:
    with pytest.raises(TileError) as caught:
        scaled(*args, out=out)
    text = str(caught.value)
    assert f"error[argument-device]: argument '{name}' is on device cuda:0, expected the CPU" in text and "help: move it: x.cpu()" in text
