"""The functions of the language, as Python names for editors and type checkers.

A kernel's source is read, not run: these bodies only run when somebody calls one outside a kernel, and say so.
The meaning of each is in docs/language.md; the typed builder (tilelang.frontend) implements them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan, pi
from typing import Any, NoReturn

__all__ = [
    "abs", "acc_type", "accumulator", "all", "any", "argmax", "argmin", "atomic_add", "atomic_max", "atomic_min", "barrier", "broadcast", "cast",
    "cdiv", "ceil", "clamp", "copy", "cos", "cumsum", "empty", "erf", "exp", "exp2", "expand", "fence", "fill", "floor", "fma", "full", "gather",
    "gelu", "gemm", "grid", "inf", "iota", "isinf", "isnan", "local", "log", "log2", "matmul", "max", "mean", "min", "nan", "ones", "parallel", "pi",
    "pipelined", "prod", "put", "range", "rank", "reinterpret", "relu", "reshape", "round", "rsqrt", "shared", "sigmoid", "signal", "silu", "sin",
    "sqrt", "static_range", "sum", "tanh", "transpose", "wait", "where", "world", "zeros",
]


def _outside(name: str) -> NoReturn:
    raise RuntimeError(f"'{name}' is part of the tile language and works only inside a function under @tile")


# -- loops


def grid(*dims: Any, by: Any = None) -> Iterator[Any]:
    """Parallel blocks of the kernel. With `by` the loop variables are index ranges, without they are scalar indices."""
    _outside("grid")


def pipelined(*bounds: Any, by: Any = None, stages: int = 2) -> Iterator[Any]:
    """A serial loop that may be software-pipelined."""
    _outside("pipelined")


def range(*bounds: Any, by: Any = None) -> Iterator[Any]:
    """A serial loop; with `by` the loop variable is an index range."""
    _outside("range")


def static_range(*bounds: int) -> Iterator[int]:
    """A loop unrolled at compile time."""
    _outside("static_range")


def parallel(*dims: Any) -> Iterator[Any]:
    """Independent element iterations inside a block."""
    _outside("parallel")


# -- creation and buffers


def zeros(dtype: Any, *shape: Any) -> Any:
    """A tile of zeros; shape items are ints, index ranges or dims."""
    _outside("zeros")


def ones(dtype: Any, *shape: Any) -> Any:
    """A tile of ones."""
    _outside("ones")


def full(dtype: Any, *shape: Any, value: Any) -> Any:
    """A tile of one value."""
    _outside("full")


def iota(range: Any, dtype: Any = None) -> Any:
    """The indices of a range as a tile of i32."""
    _outside("iota")


def empty(dtype: Any, *dims: Any) -> Any:
    """A new tensor: a result when it is returned, else scratch memory."""
    _outside("empty")


def shared(*what: Any) -> Any:
    """A buffer shared by the block: shared(dtype, *shape) or shared(tile)."""
    _outside("shared")


def accumulator(*what: Any) -> Any:
    """A buffer for sums: accumulator(dtype, *shape) or accumulator(tile)."""
    _outside("accumulator")


def local(*what: Any) -> Any:
    """A private buffer: local(dtype, *shape) or local(tile)."""
    _outside("local")


def copy(source: Any, destination: Any) -> None:
    """Copies between tensors and buffers."""
    _outside("copy")


def gemm(a: Any, b: Any, acc: Any, transpose_a: bool = False, transpose_b: bool = False) -> None:
    """acc += a @ b, on buffers."""
    _outside("gemm")


def fill(buffer: Any, value: Any) -> None:
    """Sets every element of a buffer."""
    _outside("fill")


def atomic_add(place: Any, value: Any) -> None:
    """place += value, atomically an element."""
    _outside("atomic_add")


def atomic_max(place: Any, value: Any) -> None:
    """place = max(place, value), atomically an element."""
    _outside("atomic_max")


def atomic_min(place: Any, value: Any) -> None:
    """place = min(place, value), atomically an element."""
    _outside("atomic_min")


# -- communication between ranks


def rank() -> Any:
    """The number of this rank, from 0."""
    _outside("rank")


def world() -> Any:
    """How many ranks run the kernel."""
    _outside("world")


def put(place: Any, value: Any, peer: Any) -> None:
    """Writes a tile to a place in the memory of rank `peer`; it arrives some time later."""
    _outside("put")


def fence(peer: Any) -> None:
    """What was put and signalled to `peer` before arrives before what is after."""
    _outside("fence")


def signal(place: Any, value: Any, peer: Any, kind: str = "set") -> None:
    """Sets one integer of rank `peer` to the value, or adds to it (kind "add")."""
    _outside("signal")


def wait(place: Any, value: Any, cmp: str = "ge") -> None:
    """Waits until one integer of this rank compares true with the value."""
    _outside("wait")


def barrier() -> None:
    """Waits for all ranks, and for all that they put and signalled."""
    _outside("barrier")


# -- conversion and types


def cast(x: Any, dtype: Any) -> Any:
    """Number conversion: floats round, float to int saturates and turns NaN into 0."""
    _outside("cast")


def reinterpret(x: Any, dtype: Any) -> Any:
    """The same bits as another dtype of the same width."""
    _outside("reinterpret")


def acc_type(dtype: Any) -> Any:
    """The dtype in which sums of `dtype` are accumulated."""
    _outside("acc_type")


# -- matmul, reductions, scans


def matmul(a: Any, b: Any, acc: Any = None, dtype: Any = None) -> Any:
    """a @ b, plus acc."""
    _outside("matmul")


def sum(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """Sum over the valid elements of an axis, several, or all."""
    _outside("sum")


def prod(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """Product over the valid elements."""
    _outside("prod")


def mean(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """Mean over the valid elements."""
    _outside("mean")


def max(*x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Of one value: the largest element over an axis. Of several: elementwise. NaN propagates."""
    _outside("max")


def min(*x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Of one value: the smallest element over an axis. Of several: elementwise. NaN propagates."""
    _outside("min")


def any(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether any element is true."""
    _outside("any")


def all(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements are true."""
    _outside("all")


def argmax(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Index of the first largest element (NaN counts as largest)."""
    _outside("argmax")


def argmin(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Index of the first smallest element (NaN counts as smallest)."""
    _outside("argmin")


def cumsum(x: Any, axis: int, exclusive: bool = False) -> Any:
    """Cumulative sum along an axis."""
    _outside("cumsum")


# -- shape


def transpose(x: Any, *axes: int) -> Any:
    """Axes in another order; without axes, reversed."""
    _outside("transpose")


def reshape(x: Any, *shape: Any) -> Any:
    """The same elements in row-major order under another shape."""
    _outside("reshape")


def broadcast(x: Any, *shape: Any) -> Any:
    """Repeats along axes of length 1 and new leading axes."""
    _outside("broadcast")


def expand(x: Any, axis: int) -> Any:
    """A new axis of length 1."""
    _outside("expand")


def gather(x: Any, indices: Any, axis: int) -> Any:
    """x picked along an axis by an index tile of the same rank, as numpy.take_along_axis."""
    _outside("gather")


# -- elementwise


def where(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b."""
    _outside("where")


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    _outside("fma")


def clamp(x: Any, low: Any, high: Any) -> Any:
    """min(max(x, low), high)."""
    _outside("clamp")


def gelu(x: Any, approximate: str = "none") -> Any:
    """x * (1 + erf(x / sqrt 2)) / 2, or its tanh approximation."""
    _outside("gelu")


def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up."""
    _outside("cdiv")


def exp(x: Any) -> Any:
    """e**x."""
    _outside("exp")


def exp2(x: Any) -> Any:
    """2**x."""
    _outside("exp2")


def log(x: Any) -> Any:
    """Natural logarithm."""
    _outside("log")


def log2(x: Any) -> Any:
    """Logarithm to base 2."""
    _outside("log2")


def sqrt(x: Any) -> Any:
    """Square root."""
    _outside("sqrt")


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    _outside("rsqrt")


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    _outside("tanh")


def erf(x: Any) -> Any:
    """Error function."""
    _outside("erf")


def sin(x: Any) -> Any:
    """Sine."""
    _outside("sin")


def cos(x: Any) -> Any:
    """Cosine."""
    _outside("cos")


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    _outside("sigmoid")


def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    _outside("silu")


def relu(x: Any) -> Any:
    """max(x, 0)."""
    _outside("relu")


def floor(x: Any) -> Any:
    """Largest integer <= x."""
    _outside("floor")


def ceil(x: Any) -> Any:
    """Smallest integer >= x."""
    _outside("ceil")


def round(x: Any) -> Any:
    """Nearest integer, ties to even."""
    _outside("round")


def isnan(x: Any) -> Any:
    """Whether x is NaN."""
    _outside("isnan")


def isinf(x: Any) -> Any:
    """Whether x is an infinity."""
    _outside("isinf")


def abs(x: Any) -> Any:
    """|x|."""
    _outside("abs")
