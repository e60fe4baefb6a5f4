from __future__ import annotations

import ctypes
import gc
import importlib.util
import math
import struct
import sys
import types
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tilelang.backends.cpu.engine import compile_object, load_object
from tilelang.runtime import abi
from tilelang.runtime.abi import ArgumentError, ArrayInfo, ScalarArg, TensorArg, describe, dtype_name, new_slots, np_dtype, overlap, pack
from tilelang.target import DTYPE_BITS, host_target


@pytest.mark.parametrize("name", list(DTYPE_BITS))
def test_every_dtype(name: str) -> None:
    dtype = np_dtype(name)
    assert dtype_name(dtype) == name and dtype.itemsize * 8 == DTYPE_BITS[name]
    array = np.zeros((2, 3), dtype)
    info = describe(array)
    assert (info.dtype, info.itemsize, info.shape, info.strides) == (name, dtype.itemsize, (2, 3), (3, 1))
    assert info.writable and info.device == "cpu" and info.aligned and info.owner is array and info.size == 6
    assert info.ptr == array.__array_interface__["data"][0]
    slots = new_slots([TensorArg(name, 2)])
    assert pack([TensorArg(name, 2)], [array], slots) == []
    assert list(slots) == [info.ptr, 2, 3, 3, 1]


def test_unknown_dtype_names() -> None:
    with pytest.raises(KeyError):
        np_dtype("f128")
    assert dtype_name(np.dtype(np.complex64)) == "complex64"
    assert dtype_name(np.dtype("q")) == dtype_name(np.dtype("l")) == "i64"


@pytest.mark.parametrize(
    ("make", "strides"),
    [
        (lambda a: a, (8, 1)),
        (lambda a: a.T, (1, 8)),
        (lambda a: a[::-1, ::2], (-8, 2)),
        (lambda a: a[1:, ::-3], (8, -3)),
        (lambda a: np.broadcast_to(a[0], (5, 8)), (0, 1)),
        (lambda a: a[:0], (8, 1)),
        (lambda a: as_strided(a, (1, 8), (3, 4)), (0, 1)),  # a byte stride that is no multiple, of an axis nobody steps along
    ],
)
def test_strides(make: Any, strides: tuple[int, ...]) -> None:
    array = make(np.arange(48, dtype=np.float32).reshape(6, 8))
    info = describe(array)
    assert info.strides == strides and info.aligned
    slots = new_slots([TensorArg("f32", 2)])
    pack([TensorArg("f32", 2)], [array], slots)
    assert list(slots) == [info.ptr, *array.shape, *strides]


def test_rank_0_and_sizes() -> None:
    assert describe(np.float32(3) * np.ones((), np.float32)[None][0:0]).size == 0
    info = describe(np.array(2.5))
    assert (info.shape, info.strides, info.size) == ((), (), 1)
    slots = new_slots([TensorArg("f64", 0)])
    pack([TensorArg("f64", 0)], [np.array(2.5)], slots)
    assert len(slots) == 1


def test_odd_memory() -> None:
    raw = np.zeros(65, np.uint8)
    shifted = raw[1:].view(np.float32)
    assert describe(shifted).strides == (1,) and not describe(shifted).aligned
    slots = new_slots([TensorArg("f32", 1)])
    pack([TensorArg("f32", 1)], [shifted], slots)  # legal: kernels look at the address
    assert slots[0] == raw.__array_interface__["data"][0] + 1
    field = np.zeros(4, np.dtype([("a", "i1"), ("b", "f4")]))["b"]
    assert describe(field).strides is None and not describe(field).aligned
    with pytest.raises(ArgumentError, match="no multiples") as caught:
        pack([TensorArg("f32", 1)], [field], slots)
    assert caught.value.reason == "strides"


@pytest.mark.parametrize(
    ("arg", "value", "reason", "message"),
    [
        (TensorArg("f32", 1), np.zeros(3), "dtype", "expected dtype f32, got f64"),
        (TensorArg("f32", 1), np.zeros(3, ">f4"), "dtype", "got byte-swapped f32"),
        (TensorArg("f32", 1), np.zeros(3, object), "dtype", "got object"),
        (TensorArg("f32", 1), np.zeros(3, "M8[s]"), "dtype", "got datetime64"),
        (TensorArg("f32", 2), np.zeros(3, np.float32), "rank", "expected 2 axes, got 1"),
        (TensorArg("f32", 1, writable=True), np.broadcast_to(np.float32(0), (3,)), "read-only", "read-only"),
        (TensorArg("f32", 1), np.ma.masked_array(np.zeros(3, np.float32), [False, True, False]), "masked", "masked array"),
        (TensorArg("f32", 1), [1.0, 2.0], "not-array", "expected an array, got list"),
        (TensorArg("f32", 0), np.float32(1), "not-array", "expected an array, got float32"),
        (ScalarArg("i32"), 1.0, "scalar", "expected an integer for i32, got float"),
        (ScalarArg("i32"), 1 << 31, "range", r"2147483648 does not fit in i32 \(-2147483648 to 2147483647\)"),
        (ScalarArg("u8"), -1, "range", "does not fit in u8"),
        (ScalarArg("bool"), 1, "scalar", "expected a bool, got int"),
        (ScalarArg("f32"), "1.5", "scalar", "expected a number for f32, got str"),
        (ScalarArg("f32"), 1j, "scalar", "got complex"),
        (ScalarArg("f32"), np.ones(1), "scalar", "got an array of shape"),
        (ScalarArg("f64"), 10**400, "range", "too large for f64"),
    ],
)
def test_refusals(arg: TensorArg | ScalarArg, value: Any, reason: str, message: str) -> None:
    signature = [ScalarArg("i64"), arg]
    with pytest.raises(ArgumentError, match=message) as caught:
        pack(signature, [0, value], new_slots(signature))
    assert (caught.value.reason, caught.value.index) == (reason, 1)


def test_argument_count() -> None:
    with pytest.raises(ArgumentError, match="expected 1 arguments, got 2"):
        pack([ScalarArg("i32")], [1, 2], new_slots([ScalarArg("i32")]))


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("i8", -1, -1), ("i32", True, 1), ("i64", -(1 << 63), -(1 << 63)), ("u8", 255, 255), ("u64", (1 << 64) - 1, -1),
        ("i16", np.int16(-5), -5), ("index", 7, 7), ("bool", True, 1), ("bool", np.False_, 0), ("i32", np.array(4), 4),
    ],
)  # fmt: skip
def test_integer_scalars(dtype: str, value: Any, bits: int) -> None:
    assert abi.scalar_slot(dtype, value) == bits


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8e4m3"])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -math.inf, 3, np.float32(0.1), ml_dtypes.bfloat16(2.5), np.array(7.0)])
def test_float_scalars(dtype: str, value: Any) -> None:
    assert struct.pack("=q", abi.scalar_slot(dtype, value)) == struct.pack("=d", float(value))
    assert math.isnan(struct.unpack("=d", struct.pack("=q", abi.scalar_slot(dtype, math.nan)))[0])


def test_a_kernel_receives_what_was_packed() -> None:
    """sum over a strided matrix times alpha plus n, read from the slots as compiled code reads them."""
    ir = """
    define i64 @kernel(ptr %args, i64 %threads) {
    entry:
      %data = load ptr, ptr %args
      %d0p = getelementptr i64, ptr %args, i64 1
      %d0 = load i64, ptr %d0p
      %s0p = getelementptr i64, ptr %args, i64 2
      %s0 = load i64, ptr %s0p
      %ap = getelementptr i64, ptr %args, i64 3
      %alpha = load double, ptr %ap
      %np = getelementptr i64, ptr %args, i64 4
      %n = load i64, ptr %np
      %outp = getelementptr i64, ptr %args, i64 5
      %out = load ptr, ptr %outp
      br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
      %acc = phi float [ 0.0, %entry ], [ %acc1, %loop ]
      %offset = mul i64 %i, %s0
      %p = getelementptr float, ptr %data, i64 %offset
      %x = load float, ptr %p
      %acc1 = fadd float %acc, %x
      %i1 = add i64 %i, 1
      %more = icmp slt i64 %i1, %d0
      br i1 %more, label %loop, label %done
    done:
      %a = fptrunc double %alpha to float
      %scaled = fmul float %acc1, %a
      %nf = sitofp i64 %n to float
      %r = fadd float %scaled, %nf
      store float %r, ptr %out
      ret i64 %threads
    }
    """
    module = load_object(compile_object(ir, host_target()))
    kernel = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(module.address("kernel"))
    signature = [TensorArg("f32", 1), ScalarArg("f32"), ScalarArg("i8"), TensorArg("f32", 0, writable=True)]
    x, out = np.arange(10, dtype=np.float32), np.zeros((), np.float32)
    slots = new_slots(signature)
    pack(signature, [x[::-3], 0.5, -2, out], slots)
    assert kernel(ctypes.addressof(slots), 3) == 3
    assert out == (9 + 6 + 3 + 0) * 0.5 - 2


class Interface:
    """An array of another library, known by its array interface alone; its other conversions would copy."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return self.array.copy()


def test_array_interface() -> None:
    base = np.arange(12, dtype=np.int16).reshape(3, 4)
    base.flags.writeable = False
    for view in (base, base.T, base[::-1, 1:3]):
        holder = Interface(view)
        info = describe(holder)
        assert info == describe(view)._replace(owner=holder) and not info.writable


class DLPack:
    def __init__(self, array: Any, version: bool = True, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.version, self.device = array, version, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self.version:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("version", [False, True])
@pytest.mark.parametrize("name", ["f64", "f32", "f16", "i8", "u16", "i64", "bool"])
def test_dlpack(version: bool, name: str) -> None:
    array = np.zeros((3, 4), np_dtype(name))[::-1, ::2]
    info = describe(DLPack(array, version))
    expected = describe(array)
    assert info[:5] == expected[:5] and info.device == "cpu"
    assert info.writable == (version and np.lib.NumpyVersion(np.__version__) >= "2.1.0")  # older ones know no read-only flag
    capsule = info.owner[1]
    alive = weakref.ref(array)
    del array, expected
    gc.collect()
    assert alive() is not None and capsule is not None
    del info, capsule
    gc.collect()
    assert alive() is None


def test_dlpack_on_a_device() -> None:
    with pytest.raises(ArgumentError, match="an array on cuda:1") as caught:
        describe(DLPack(np.zeros(3), device=(2, 1)))
    assert caught.value.reason == "device"


def test_pack_holds_what_dlpack_lent() -> None:
    slots = new_slots([TensorArg("f32", 1)])
    lender = DLPack(np.zeros(3, np.float32))
    (owner,) = pack([TensorArg("f32", 1)], [lender], slots)
    assert owner[0] is lender
    assert pack([TensorArg("f32", 1)], [describe(lender)], slots)[0][0] is lender


class FakeTensor:
    """The part of torch.Tensor that is looked at."""

    def __init__(self, array: np.ndarray, dtype: str, device: str = "cpu", layout: str = "torch.strided", neg: bool = False) -> None:
        self.array, self.dtype, self.device, self.layout, self.neg = array, f"torch.{dtype}", device, layout, neg
        self.shape = array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def data_ptr(self) -> int:
        return self.array.__array_interface__["data"][0]

    def element_size(self) -> int:
        return self.array.itemsize

    def is_neg(self) -> bool:
        return self.neg

    def is_conj(self) -> bool:
        return False


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch")
    module.Tensor = FakeTensor  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "torch", module)


@pytest.mark.usefixtures("fake_torch")
def test_torch_tensors() -> None:
    array = np.zeros((4, 6), ml_dtypes.bfloat16)[:, ::2]
    tensor = FakeTensor(array, "bfloat16")
    assert describe(tensor) == describe(array)._replace(owner=tensor)
    slots = new_slots([TensorArg("bf16", 2, writable=True)])
    assert pack([TensorArg("bf16", 2, writable=True)], [tensor], slots) == [tensor]
    assert list(slots)[1:] == [4, 3, 6, 2]
    gpu = FakeTensor(np.zeros(3, np.float32), "float32", device="cuda:0")
    assert describe(gpu).device == "cuda:0"
    with pytest.raises(ArgumentError, match="an array on cuda:0"):
        pack([TensorArg("f32", 1)], [gpu], new_slots([TensorArg("f32", 1)]))
    assert describe(FakeTensor(np.zeros(3, np.complex64), "complex64")).dtype == "complex64"
    with pytest.raises(ArgumentError, match="layout sparse_csr"):
        describe(FakeTensor(np.zeros(3), "float64", layout="torch.sparse_csr"))
    with pytest.raises(ArgumentError, match="resolve_neg"):
        describe(FakeTensor(np.zeros(3), "float64", neg=True))


if importlib.util.find_spec("torch"):

    def test_real_torch() -> None:
        import torch  # pyright: ignore[reportMissingImports]

        for name in ("float32", "bfloat16", "int64", "bool", "uint8"):
            tensor = torch.zeros(4, 6, dtype=getattr(torch, name))[:, ::2].T
            info = describe(tensor)
            assert (info.ptr, info.shape, info.strides, info.device) == (tensor.data_ptr(), (3, 4), (2, 6), "cpu")
            assert np_dtype(info.dtype).itemsize == tensor.element_size()


def test_torch_is_not_imported() -> None:
    before = "torch" in sys.modules
    describe(np.zeros(3))
    assert ("torch" in sys.modules) == before


def test_overlap() -> None:
    base = np.zeros((8, 8), np.float32)

    def over(a: np.ndarray, b: np.ndarray) -> bool:
        forth, back = overlap(describe(a), describe(b)), overlap(describe(b), describe(a))
        assert forth == back
        return forth

    assert over(base, base) and over(base, base[3:4, 2:3]) and over(base[::-1], base[7])
    assert not over(base[:4], base[4:]) and not over(base, np.zeros(3))
    assert not over(base[:, ::2], base[:, 1::2])  # interleaved, no element in common
    assert over(base[:, ::2], base[:, 2::3])
    assert not over(base[:, :3], base[:, 3:]) and over(base.T, base)
    assert not over(base[:0], base) and over(base, base.reshape(-1).view(np.uint8)[5:6])
    cpu = describe(base)
    assert not overlap(cpu, cpu._replace(device="cuda:0"))


def test_overlap_gives_up_on_hard_cases() -> None:
    """Deciding this takes more steps than allowed: the answer is the safe one."""
    info = ArrayInfo(1 << 20, (101, 103, 107), (7 * 11 * 13, 7 * 17 * 19, 11 * 17 * 23), "i8", 1, True, "cpu", None)
    other = info._replace(ptr=info.ptr + 1)
    assert overlap(info, other, max_work=1)


def test_random_views_agree_with_numpy() -> None:
    rng = np.random.default_rng(7)
    base = np.zeros((6, 7, 5), np.int16)

    def view() -> np.ndarray:
        def part(n: int) -> slice:
            low, high = sorted(rng.integers(0, n + 1, 2).tolist())
            step = int(rng.choice([-3, -2, -1, 1, 2, 3]))
            return slice(low, high, step) if step > 0 else slice(high, low or None, step)

        return base[tuple(part(n) for n in base.shape)].transpose(rng.permutation(3))

    seen = set[bool]()
    for _ in range(400):
        a, b = view(), view()
        seen.add(np.shares_memory(a, b))
        assert overlap(describe(a), describe(b)) == np.shares_memory(a, b)
    assert seen == {True, False}


@pytest.mark.parametrize("fast", [True, False])
def test_both_ways_to_the_pointer(monkeypatch: pytest.MonkeyPatch, fast: bool) -> None:
    assert abi._FAST  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(abi, "_FAST", fast)
    array = np.zeros((3, 4), np.int8)[1:, ::-1]
    slots = new_slots([TensorArg("i8", 2)])
    owners = pack([TensorArg("i8", 2)], [array], slots)
    assert list(slots) == [array.__array_interface__["data"][0], 2, 4, 4, -1] and len(owners) == (not fast)
