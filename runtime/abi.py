"""From Python arrays to kernel arguments.

The kernel ABI: `i64 kernel(ptr args, i64 threads)` with args an array of 8-byte slots. A tensor parameter takes 1 + 2 * rank slots:
data pointer, dims (i64), strides in elements (i64). A scalar parameter takes one: integers and bool extended to 64 bits by their
signedness, every float as the bits of an f64. The result is 0, or an error code whose meaning the caller of the kernel knows.

A data pointer need not be a multiple of the item size; kernels look at it before they assume alignment.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_NUMPY_NAMES = {
    "f64": "f8", "f32": "f4", "f16": "f2", "i8": "i1", "u8": "u1", "i16": "i2", "u16": "u2", "i32": "i4", "u32": "u4", "i64": "i8",
    "u64": "u8", "bool": "?",
}  # fmt: skip
_ML_NAMES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
_TORCH_NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
    "bool": "bool",
}  # fmt: skip
_ITEMSIZE = {name: int(code[-1]) if code != "?" else 1 for name, code in _NUMPY_NAMES.items()} | {"bf16": 2, "f8e4m3": 1, "f8e5m2": 1}


class ArgumentError(ValueError):
    """A value that a parameter cannot take.

    reason: "not-array", "masked", "dtype", "rank", "device", "strides", "read-only", "count", "range" or "scalar".
    index: position in the signature, None while unknown. device: where the array is, with the reason "device". The message says what is
    and what was expected.
    """

    def __init__(self, reason: str, message: str, index: int | None = None, device: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.index = index
        self.device = device


@functools.cache
def np_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a TileLang dtype name (bf16 and fp8 from ml_dtypes). KeyError for another name."""
    if name in _ML_NAMES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _ML_NAMES[name]))
    return np.dtype(_NUMPY_NAMES[name])


_BY_NUMPY_NAME = {np.dtype(code).name: name for name, code in _NUMPY_NAMES.items()} | {v: k for k, v in _ML_NAMES.items()}


@functools.cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The TileLang name of a NumPy dtype. What kernels cannot take keeps a telling name: "complex64", "object",
    "byte-swapped f32"; none of these is a key of `np_dtype`."""
    name = _BY_NUMPY_NAME.get(dtype.name, str(dtype))
    return name if dtype.isnative else f"byte-swapped {_BY_NUMPY_NAME.get(dtype.name, dtype.name)}"


class ArrayInfo(NamedTuple):
    """What a kernel needs to know of an array. `owner` keeps the memory alive; the caller holds it during the kernel."""

    ptr: int
    shape: tuple[int, ...]
    byte_strides: tuple[int, ...]
    dtype: str
    itemsize: int
    writable: bool
    device: str  # "cpu", else as its library calls it ("cuda:0")
    owner: Any

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Strides in elements; None when one is not a multiple of the item size. An axis of extent 0 or 1 is never stepped
        along, so whatever its byte stride is, it is rounded down."""
        size = self.itemsize
        if any(s % size for s, n in zip(self.byte_strides, self.shape) if n > 1):
            return None
        return tuple(s // size for s in self.byte_strides)

    @property
    def aligned(self) -> bool:
        """Whether every element lies at a multiple of its size."""
        return self.ptr % self.itemsize == 0 and self.strides is not None

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n


def _contiguous(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


class _Memory:
    """Nothing but an array interface, so that NumPy can take no other way (which might copy) to the memory."""

    owner: Any = None

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _describe_numpy(array: np.ndarray[Any, Any], owner: Any) -> ArrayInfo:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError("masked", "a masked array: fill it (.filled(value)) or pass its .data")
    dtype = array.dtype
    pointer = array.__array_interface__["data"][0]
    return ArrayInfo(pointer, array.shape, array.strides, dtype_name(dtype), max(dtype.itemsize, 1), array.flags.writeable, "cpu", owner)


def _describe_torch(tensor: Any) -> ArrayInfo:
    name = str(tensor.dtype).removeprefix("torch.")
    if str(tensor.layout) != "torch.strided":
        raise ArgumentError("strides", f"a torch tensor of layout {str(tensor.layout).removeprefix('torch.')}: only dense strided tensors")
    if tensor.is_neg() or tensor.is_conj():  # lazily negated: the memory does not hold the values
        raise ArgumentError("dtype", "a lazily negated or conjugated torch tensor: call .resolve_neg() or .resolve_conj() first")
    size = tensor.element_size()
    strides = tuple(s * size for s in tensor.stride())
    return ArrayInfo(tensor.data_ptr(), tuple(tensor.shape), strides, _TORCH_NAMES.get(name, name), size, True, str(tensor.device), tensor)


class _DLTensor(ctypes.Structure):
    """The DLPack C structure (dlpack.h, ABI 0.x and 1.x)."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _DLVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", _DLTensor),
    ]  # fmt: skip


_DL_KINDS = {0: "i", 1: "u", 2: "f", 4: "bf", 6: "bool"}
_DL_FP8 = {10: "f8e4m3", 12: "f8e5m2"}
_DL_DEVICES = {1: "cpu", 2: "cuda", 3: "cuda host", 7: "vulkan", 8: "metal", 10: "rocm", 12: "npu", 13: "cuda managed", 14: "oneapi"}


def _describe_dlpack(array: Any) -> ArrayInfo:
    """By DLPack. The capsule is read but not consumed: it is the owner, and releases the array when it is collected."""
    kind, number = array.__dlpack_device__()
    device = _DL_DEVICES.get(int(kind), f"device {int(kind)}")
    if device != "cpu":
        device = f"{device}:{number}"
        raise ArgumentError("device", f"an array on {device}; kernels of this target take CPU arrays", device=device)
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer older than DLPack 1.0
        capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.restype, valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
    if valid(capsule, b"dltensor_versioned"):
        managed = _DLVersioned.from_address(pointer(capsule, b"dltensor_versioned"))
        tensor, writable = managed.tensor, not managed.flags & 1
    else:  # nothing says whether it may be written: assume not, as NumPy does
        tensor, writable = _DLTensor.from_address(pointer(capsule, b"dltensor")), False
    rank, bits = tensor.ndim, tensor.bits
    code = _DL_KINDS.get(tensor.code)
    name = _DL_FP8.get(tensor.code) or ("bool" if code == "bool" else f"{code}{bits}" if code else f"dlpack type {tensor.code}x{bits}")
    size = max(bits // 8, 1)
    shape = tuple(tensor.shape[:rank])
    strides = tuple(s * size for s in tensor.strides[:rank]) if rank and tensor.strides else _contiguous(shape, size)
    if tensor.lanes != 1:
        name = f"{name}x{tensor.lanes}"
    return ArrayInfo((tensor.data or 0) + tensor.byte_offset, shape, strides, name, size, writable, device, (array, capsule))


def describe(array: Any) -> ArrayInfo:
    """Look at an array without copying: NumPy (with ml_dtypes), torch, `__array_interface__`, `__dlpack__`.

    An unsupported dtype or a foreign torch device is reported in the result. Raises ArgumentError ("not-array", "masked", "device"
    for DLPack arrays that are not on the CPU, "strides" and "dtype" for torch tensors whose memory does not hold their values).
    """
    if isinstance(array, np.ndarray):
        return _describe_numpy(array, array)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _describe_torch(array)
    interface = getattr(array, "__array_interface__", None)
    if isinstance(interface, dict) and interface.get("data") and not isinstance(array, np.generic):
        return _describe_numpy(np.asarray(_Memory(interface)), array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _describe_dlpack(array)
    raise ArgumentError("not-array", f"expected an array, got {_kind(array)}")


def as_numpy(info: ArrayInfo) -> np.ndarray[Any, Any]:
    """A NumPy array over the same memory."""
    if isinstance(info.owner, np.ndarray):
        return info.owner
    kind = {"version": 3, "typestr": f"|V{info.itemsize}", "data": (info.ptr, not info.writable), "shape": info.shape, "strides": info.byte_strides}
    memory = _Memory(kind)
    memory.owner = info.owner  # NumPy keeps `memory` as the base of the array
    return np.asarray(memory).view(np_dtype(info.dtype))


def _kind(value: Any) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ in ("builtins", "numpy") else f"{cls.__module__}.{cls.__qualname__}"


def _range(info: ArrayInfo) -> tuple[int, int]:
    """[first byte, one past the last byte) that the elements of a non-empty array touch."""
    low = high = info.ptr
    for extent, stride in zip(info.shape, info.byte_strides):
        step = (extent - 1) * stride
        low, high = (low + step, high) if step < 0 else (low, high + step)
    return low, high + info.itemsize


def _as_bytes(info: ArrayInfo) -> np.ndarray[Any, Any]:
    kind = {"version": 3, "typestr": f"|V{info.itemsize}", "data": (info.ptr, True), "shape": info.shape, "strides": info.byte_strides}
    return np.asarray(_Memory(kind))


def overlap(a: ArrayInfo, b: ArrayInfo, max_work: int = 10_000) -> bool:
    """Whether two arrays share a byte. Byte ranges decide most cases; views that interleave are told apart exactly, as in
    np.shares_memory, as long as that takes at most `max_work` steps, and count as overlapping beyond that."""
    if a.device != b.device or 0 in a.shape or 0 in b.shape:
        return False
    (a_low, a_high), (b_low, b_high) = _range(a), _range(b)
    if a_high <= b_low or b_high <= a_low:
        return False
    try:
        return bool(np.shares_memory(_as_bytes(a), _as_bytes(b), max_work=max_work))  # pyright: ignore[reportArgumentType]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(info: ArrayInfo, max_elements: int = 1 << 16) -> bool:
    """Whether two elements of one array share a byte. Nested axes decide most cases; others are told apart exactly as long as the array has
    at most `max_elements` elements, and count as overlapping beyond that."""
    if 0 in info.shape:
        return False
    reach = info.itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(info.byte_strides, info.shape) if n > 1):
        if stride < reach:
            break
        reach += stride * (extent - 1)
    else:
        return False
    if info.size > max_elements or any(s == 0 and n > 1 for s, n in zip(info.byte_strides, info.shape)):
        return True
    places = np.zeros(1, np.int64)
    for stride, extent in zip(info.byte_strides, info.shape):
        places = (places[:, None] + stride * np.arange(extent)).ravel()
    places.sort()
    return bool(np.any(np.diff(places) < info.itemsize))


@dataclass(frozen=True, slots=True)
class TensorArg:
    """A tensor parameter: dtype name, rank, and whether the kernel writes it."""

    dtype: str
    rank: int
    writable: bool = False

    @property
    def slots(self) -> int:
        return 1 + 2 * self.rank


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A run-time scalar parameter."""

    dtype: str

    @property
    def slots(self) -> int:
        return 1


Signature = Sequence[TensorArg | ScalarArg]


def slot_count(signature: Iterable[TensorArg | ScalarArg]) -> int:
    """8-byte slots that a call needs."""
    return sum(arg.slots for arg in signature)


def new_slots(signature: Iterable[TensorArg | ScalarArg]) -> ctypes.Array[ctypes.c_int64]:
    """An array for `pack`; a call in flight needs one of its own."""
    return (ctypes.c_int64 * slot_count(signature))()


_double, _int64 = struct.Struct("=d"), struct.Struct("=q")


def _integer_range(dtype: str) -> tuple[int, int]:
    bits = int(dtype[1:])
    return (0, (1 << bits) - 1) if dtype[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def scalar_slot(dtype: str, value: Any) -> int:
    """The slot of a scalar, as a signed 64-bit number. Raises ArgumentError: "scalar" for the wrong kind of value (a float for an
    integer, a number for a bool), "range" for an integer that the dtype does not hold. Floats overflow to infinity, as in NumPy."""
    if isinstance(value, np.ndarray):
        if value.ndim:
            raise ArgumentError("scalar", f"expected a scalar, got an array of shape {value.shape}")
        value = value[()]
    if dtype == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise ArgumentError("scalar", f"expected a bool, got {_kind(value)}")
        return int(value)
    if dtype[0] in "iu":
        try:
            number = operator.index(value)
        except TypeError:
            raise ArgumentError("scalar", f"expected an integer for {dtype}, got {_kind(value)}") from None
        low, high = _integer_range("i64" if dtype == "index" else dtype)
        if not low <= number <= high:
            raise ArgumentError("range", f"{number} does not fit in {dtype} ({low} to {high})")
        return number if number < 1 << 63 else number - (1 << 64)
    if isinstance(value, (str, bytes)):  # float() would parse it
        raise ArgumentError("scalar", f"expected a number for {dtype}, got {_kind(value)}")
    try:
        return _int64.unpack(_double.pack(float(value)))[0]
    except OverflowError:
        raise ArgumentError("range", f"an integer too large for {dtype}") from None
    except (TypeError, ValueError):
        raise ArgumentError("scalar", f"expected a number for {dtype}, got {_kind(value)}") from None


def check_tensor(arg: TensorArg, info: ArrayInfo) -> tuple[int, ...]:
    """The strides in elements of an array that suits the parameter. Raises ArgumentError."""
    if info.device != "cpu":
        raise ArgumentError("device", f"an array on {info.device}; kernels of this target take CPU arrays", device=info.device)
    if info.dtype != arg.dtype:
        raise ArgumentError("dtype", f"expected dtype {arg.dtype}, got {info.dtype}")
    if len(info.shape) != arg.rank:
        raise ArgumentError("rank", f"expected {arg.rank} axes, got {len(info.shape)} (shape {info.shape})")
    if arg.writable and not info.writable:
        raise ArgumentError("read-only", "the kernel writes this array, and it is read-only")
    strides = info.strides
    if strides is None:
        raise ArgumentError("strides", f"strides of {info.byte_strides} bytes are no multiples of the item size {info.itemsize}")
    return strides


# A ndarray's C struct starts with the object header and the data pointer, in every NumPy so far; reading it costs a fifth of
# __array_interface__. Checked once: where it does not hold (another Python implementation), the documented way is used.
_DATA = object.__basicsize__
_word = ctypes.c_int64.from_address
_probe = np.zeros(3, np.int8)[1:]
_FAST = sys.implementation.name == "cpython" and _word(id(_probe) + _DATA).value == _probe.__array_interface__["data"][0]


@functools.lru_cache(maxsize=4096)
def _element_strides(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    return None if any(s % itemsize for s in strides) else tuple(s // itemsize for s in strides)


def pack(signature: Signature, values: Sequence[Any], slots: ctypes.Array[ctypes.c_int64]) -> list[Any]:
    """Fill `slots` (from new_slots) with the arguments of one call. A value may be an ArrayInfo that `describe` made before.

    The caller keeps `values` and the result (owners of memory, usually none) alive until the kernel returns.

    Raises ArgumentError, its `index` set, for what `describe`, `check_tensor` or `scalar_slot` refuse.
    """
    if len(values) != len(signature):
        raise ArgumentError("count", f"expected {len(signature)} arguments, got {len(values)}")
    out: list[int] = []
    owners: list[Any] = []
    position = 0
    try:
        for position, arg in enumerate(signature):
            value = values[position]
            if type(arg) is not TensorArg:
                out.append(scalar_slot(arg.dtype, value))
                continue
            if _FAST and type(value) is np.ndarray:  # the same checks as check_tensor, without an ArrayInfo
                dtype, shape = value.dtype, value.shape
                strides = _element_strides(value.strides, dtype.itemsize or 1)
                if (
                    strides is not None and len(shape) == arg.rank and dtype_name(dtype) == arg.dtype
                    and not (arg.writable and not value.flags.writeable)
                ):  # fmt: skip
                    out.append(_word(id(value) + _DATA).value)
                    out += shape
                    out += strides
                    continue
            info = value if type(value) is ArrayInfo else describe(value)
            strides = check_tensor(arg, info)
            owners.append(info.owner)
            out.append(info.ptr)
            out += info.shape
            out += strides
    except ArgumentError as error:
        error.index = position
        raise
    slots[:] = out
    return owners
