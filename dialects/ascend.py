"""ascend: instructions of one AI core of an NPU of arch 2201 (Ascend 910B), close to the basic API of Ascend C.

A core runs the function once; core number block_idx of block_num takes every block_num-th block of the grid. Local memory is flat: a buffer of one axis at
a byte address of a space (ub, l1, l0a, l0b, l0c); parameters lie in global memory, dense. Counts, offsets and strides are in elements unless said otherwise.

Each instruction belongs to a pipe: V (vector), M (cube), MTE1 (l1 to l0a, l0b), MTE2 (from global memory), MTE3 (ub to global memory), FIX (l0c to global
memory); what is left runs on S. Pipes run at the same time, and inside a pipe an instruction may start before the one before it is complete. Only these order them:
set_flag(src, dst, id) with the next wait_flag of the same three: all of pipe src before it completes before any of pipe dst behind it starts;
pipe_barrier(pipe): the same inside one pipe. The pass insert-sync puts them in; without them a module means what it says in program order.

Layouts, in fractals of 16 x 16 elements of 16 bits: l1 holds a matrix column of fractals after column of fractals, rows inside (NZ); l0a row of fractals after
row of fractals, rows inside (ZZ); l0b row after row, columns inside (ZN); l0c as l1, of f32."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from tilelang.ir.core import Dialect, Operation, Value, VerifyError, attr, operand, operands, result
from tilelang.ir.types import BufferType, bool_, element_of, index

PIPES: tuple[str, ...] = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
LOCAL = ("ub", "l1", "l0a", "l0b", "l0c")
EVENTS = 8  # ids for each pair of pipes
FRACTAL = 16
UNARY = ("exp", "log", "abs", "sqrt", "relu")
BINARY = ("add", "sub", "mul", "div", "max", "min")
SCALAR = ("adds", "muls", "maxs", "mins")


class Access(NamedTuple):
    """What an instruction touches: elements first to stop of a local buffer, or some of a buffer in global memory (first = stop = 0)."""

    buffer: Value
    first: int
    stop: int
    writes: bool


def buffer_type(value: Value) -> BufferType:
    assert isinstance(value.type, BufferType), f"{value.type} is not a buffer"
    return value.type


def size_of(value: Value) -> int:
    """Elements of a local buffer."""
    (n,) = buffer_type(value).shape
    assert isinstance(n, int)
    return n


class _Ascend(Operation):
    """Base: evaluation is in runtime.npu."""

    __slots__ = ()

    def evaluate(self, frame: Any, *args: Any) -> Any:
        from tilelang.runtime import npu

        return npu.evaluate(self, frame, args)


class Instruction(_Ascend):
    """Base of what runs on a pipe."""

    __slots__ = ()
    on: ClassVar[str] = "V"

    @property
    def pipe(self) -> str:
        return self.on

    def accesses(self) -> list[Access]:
        """What it reads and writes, as far as that is known here."""
        raise NotImplementedError

    def verify_(self) -> None:
        for a in self.accesses():
            if buffer_type(a.buffer).space == "global":
                continue
            if not 0 <= a.first <= a.stop <= size_of(a.buffer):
                raise VerifyError(self, f"touches elements {a.first} to {a.stop} of {a.buffer.type}")
        self.check()

    def check(self) -> None:
        """Rules of its own."""


class BlockIdx(_Ascend, name="ascend.block_idx", pure=True):
    """The number of this core, from 0."""

    __slots__ = ()
    out = result()

    @classmethod
    def of(cls) -> BlockIdx:
        return cls([], [index])


class BlockNum(_Ascend, name="ascend.block_num", pure=True):
    """How many cores run the kernel."""

    __slots__ = ()
    out = result()

    @classmethod
    def of(cls) -> BlockNum:
        return cls([], [index])


class Alloc(_Ascend, name="ascend.alloc"):
    """Local memory at an address (bytes) of the space in the type, throughout the function. Contents undefined."""

    __slots__ = ()
    address = attr(int)
    out = result()

    @classmethod
    def of(cls, type: BufferType, address: int) -> Alloc:
        return cls([], [type], {"address": address})

    def verify_(self) -> None:
        t = buffer_type(self.out)
        if t.space not in LOCAL or len(t.shape) != 1 or not isinstance(t.shape[0], int):
            raise VerifyError(self, f"makes {t}, not a flat buffer of fixed size in one of {', '.join(LOCAL)}")


class DataCopy(Instruction, name="ascend.data_copy"):
    """Copies a box of rows x cols elements (rows 1 for memory of one axis) at offsets of global memory to the start of local memory, or back: to ub and from ub
    row after row, to l1 as NZ (Nd2Nz). global -> ub or l1 on MTE2, ub -> global on MTE3."""

    __slots__ = ()
    src = operand()
    dst = operand()
    offsets = operands()
    rows = attr(int)
    cols = attr(int)

    @classmethod
    def of(cls, src: Value, dst: Value, offsets: list[Value], rows: int, cols: int) -> DataCopy:
        return cls([src, dst, offsets], (), {"rows": rows, "cols": cols})

    @property
    def outward(self) -> bool:
        return buffer_type(self.dst).space == "global"

    @property
    def pipe(self) -> str:
        return "MTE3" if self.outward else "MTE2"

    def accesses(self) -> list[Access]:
        n = self.rows * self.cols
        ends = (0, n) if self.outward else (n, 0)
        return [Access(self.src, 0, ends[1], False), Access(self.dst, 0, ends[0], True)]

    def check(self) -> None:
        path = buffer_type(self.src).space, buffer_type(self.dst).space
        if path not in (("global", "ub"), ("ub", "global"), ("global", "l1")):
            raise VerifyError(self, f"there is no way from {path[0]} to {path[1]}")
        element = element_of(self.src.type)
        if element is not element_of(self.dst.type):
            raise VerifyError(self, f"copies {element} to {element_of(self.dst.type)}")
        if self.cols * element.bytes % 32 != 0:
            raise VerifyError(self, f"rows of {self.cols * element.bytes} bytes are not multiples of 32")


class Load2D(Instruction, name="ascend.load_2d"):
    """Moves `repeat` fractals of 16 x 16 from l1 to l0a or l0b: the one at src_offset + r * src_stride * 256 to dst_offset + r * 256; transposed inside
    where asked."""

    __slots__ = ()
    on = "MTE1"
    src = operand()
    dst = operand()
    src_offset = attr(int, 0)
    dst_offset = attr(int, 0)
    repeat = attr(int)
    src_stride = attr(int, 1)  # fractals
    transpose = attr(bool, False)

    @classmethod
    def of(cls, src: Value, dst: Value, src_offset: int, dst_offset: int, repeat: int, src_stride: int, transpose: bool = False) -> Load2D:
        attrs = {"src_offset": src_offset, "dst_offset": dst_offset, "repeat": repeat, "src_stride": src_stride}
        return cls([src, dst], (), {**attrs, "transpose": True} if transpose else attrs)

    def accesses(self) -> list[Access]:
        end = self.src_offset + ((self.repeat - 1) * self.src_stride + 1) * FRACTAL**2
        return [Access(self.src, self.src_offset, end, False), Access(self.dst, self.dst_offset, self.dst_offset + self.repeat * FRACTAL**2, True)]

    def check(self) -> None:
        path = buffer_type(self.src).space, buffer_type(self.dst).space
        if path not in (("l1", "l0a"), ("l1", "l0b")) or element_of(self.src.type).bits != 16 or element_of(self.dst.type) is not element_of(self.src.type):
            raise VerifyError(self, f"moves {self.src.type} to {self.dst.type}")
        if not 1 <= self.repeat <= 255 or not 1 <= self.src_stride <= 65535:
            raise VerifyError(self, f"repeat {self.repeat} or stride {self.src_stride} out of range")


class Mmad(Instruction, name="ascend.mmad"):
    """acc = a @ b where init, else acc += a @ b: m x k by k x n, l0a and l0b to l0c, in f32."""

    __slots__ = ()
    on = "M"
    acc = operand()
    a = operand()
    b = operand()
    init = operand()
    m = attr(int)
    n = attr(int)
    k = attr(int)

    @classmethod
    def of(cls, acc: Value, a: Value, b: Value, init: Value, m: int, n: int, k: int) -> Mmad:
        return cls([acc, a, b, init], (), {"m": m, "n": n, "k": k})

    def accesses(self) -> list[Access]:
        m, n, k = self.m, self.n, self.k
        return [Access(self.a, 0, m * k, False), Access(self.b, 0, k * n, False), Access(self.acc, 0, m * n, False), Access(self.acc, 0, m * n, True)]

    def check(self) -> None:
        if [buffer_type(v).space for v in (self.acc, self.a, self.b)] != ["l0c", "l0a", "l0b"] or self.init.type is not bool_:
            raise VerifyError(self, "needs l0c, l0a, l0b and a bool")
        if any(x % FRACTAL or not 1 <= x <= 4095 for x in (self.m, self.n, self.k)):
            raise VerifyError(self, f"{self.m} x {self.n} x {self.k} are not multiples of {FRACTAL} up to 4095")


class Fixpipe(Instruction, name="ascend.fixpipe"):
    """Writes an m x n matrix of l0c to offsets of global memory, converted to its element type (f32, f16 or bf16)."""

    __slots__ = ()
    on = "FIX"
    src = operand()
    dst = operand()
    offsets = operands()
    m = attr(int)
    n = attr(int)

    @classmethod
    def of(cls, src: Value, dst: Value, offsets: list[Value], m: int, n: int) -> Fixpipe:
        return cls([src, dst, offsets], (), {"m": m, "n": n})

    def accesses(self) -> list[Access]:
        return [Access(self.src, 0, self.m * self.n, False), Access(self.dst, 0, 0, True)]

    def check(self) -> None:
        if buffer_type(self.src).space != "l0c" or buffer_type(self.dst).space != "global":
            raise VerifyError(self, f"writes {self.src.type} to {self.dst.type}")
        if self.m % FRACTAL or self.n % FRACTAL or self.m > 8192 or self.n > 4095:
            raise VerifyError(self, f"{self.m} x {self.n} are not multiples of {FRACTAL} up to 8192 x 4095")


class _Vector(Instruction):
    """Base of vector instructions: the first `count` elements of buffers in ub, all of one type unless said otherwise."""

    __slots__ = ()
    kinds: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        if any(buffer_type(a.buffer).space != "ub" for a in self.accesses()):
            raise VerifyError(self, "works on ub only")
        if self.kinds and self.attrs.get("kind") not in self.kinds:
            raise VerifyError(self, f"kind '{self.attrs.get('kind')}' is none of {', '.join(self.kinds)}")
        types = {element_of(a.buffer.type) for a in self.accesses()}
        if len(types) > 1 and not isinstance(self, Cast):
            raise VerifyError(self, f"mixes {', '.join(sorted(map(str, types)))}")


class Unary(_Vector, name="ascend.unary"):
    """dst = kind(src)."""

    __slots__ = ()
    kinds = UNARY
    dst = operand()
    src = operand()
    kind = attr(str)
    count = attr(int)

    @classmethod
    def of(cls, kind: str, dst: Value, src: Value, count: int) -> Unary:
        return cls([dst, src], (), {"kind": kind, "count": count})

    def accesses(self) -> list[Access]:
        return [Access(self.src, 0, self.count, False), Access(self.dst, 0, self.count, True)]


class Binary(_Vector, name="ascend.binary"):
    """dst = kind(a, b)."""

    __slots__ = ()
    kinds = BINARY
    dst = operand()
    a = operand()
    b = operand()
    kind = attr(str)
    count = attr(int)

    @classmethod
    def of(cls, kind: str, dst: Value, a: Value, b: Value, count: int) -> Binary:
        return cls([dst, a, b], (), {"kind": kind, "count": count})

    def accesses(self) -> list[Access]:
        return [Access(self.a, 0, self.count, False), Access(self.b, 0, self.count, False), Access(self.dst, 0, self.count, True)]


class WithScalar(_Vector, name="ascend.with_scalar"):
    """dst = src (+, *, max, min) a number: adds, muls, maxs, mins."""

    __slots__ = ()
    kinds = SCALAR
    dst = operand()
    src = operand()
    value = operand()
    kind = attr(str)
    count = attr(int)

    @classmethod
    def of(cls, kind: str, dst: Value, src: Value, value: Value, count: int) -> WithScalar:
        return cls([dst, src, value], (), {"kind": kind, "count": count})

    def accesses(self) -> list[Access]:
        return [Access(self.src, 0, self.count, False), Access(self.dst, 0, self.count, True)]


class Duplicate(_Vector, name="ascend.duplicate"):
    """Sets elements to a number."""

    __slots__ = ()
    dst = operand()
    value = operand()
    count = attr(int)

    @classmethod
    def of(cls, dst: Value, value: Value, count: int) -> Duplicate:
        return cls([dst, value], (), {"count": count})

    def accesses(self) -> list[Access]:
        return [Access(self.dst, 0, self.count, True)]


class Cast(_Vector, name="ascend.cast"):
    """dst = src in dst's element type, rounded to nearest even."""

    __slots__ = ()
    dst = operand()
    src = operand()
    count = attr(int)

    @classmethod
    def of(cls, dst: Value, src: Value, count: int) -> Cast:
        return cls([dst, src], (), {"count": count})

    def accesses(self) -> list[Access]:
        return [Access(self.src, 0, self.count, False), Access(self.dst, 0, self.count, True)]


class Reduce(_Vector, name="ascend.reduce"):
    """dst[r] = sum or max or min of row r of src, rows x cols (ReduceSum and ReduceMax with the pattern AR). work: scratch of at least rows * cols elements."""

    __slots__ = ()
    kinds = ("sum", "max", "min")
    dst = operand()
    src = operand()
    work = operand()
    kind = attr(str)
    rows = attr(int)
    cols = attr(int)

    @classmethod
    def of(cls, kind: str, dst: Value, src: Value, work: Value, rows: int, cols: int) -> Reduce:
        return cls([dst, src, work], (), {"kind": kind, "rows": rows, "cols": cols})

    def accesses(self) -> list[Access]:
        n = self.rows * self.cols
        return [Access(self.src, 0, n, False), Access(self.work, 0, n, True), Access(self.dst, 0, self.rows, True)]


class Broadcast(_Vector, name="ascend.broadcast"):
    """dst[r, c] = src[r] (axis 0) or src[c] (axis 1), rows x cols: the axis of dst that src has."""

    __slots__ = ()
    dst = operand()
    src = operand()
    axis = attr(int)
    rows = attr(int)
    cols = attr(int)

    @classmethod
    def of(cls, dst: Value, src: Value, axis: int, rows: int, cols: int) -> Broadcast:
        return cls([dst, src], (), {"axis": axis, "rows": rows, "cols": cols})

    def accesses(self) -> list[Access]:
        return [Access(self.src, 0, (self.rows, self.cols)[self.axis], False), Access(self.dst, 0, self.rows * self.cols, True)]


class _Sync(Instruction):
    __slots__ = ()

    def accesses(self) -> list[Access]:
        return []


class SetFlag(_Sync, name="ascend.set_flag"):
    """Sets event `id` from pipe src to pipe dst when all of src before it is complete."""

    __slots__ = ()
    src = attr(str)
    dst = attr(str)
    id = attr(int)

    @classmethod
    def of(cls, src: str, dst: str, id: int) -> SetFlag:
        return cls([], (), {"src": src, "dst": dst, "id": id})

    @property
    def pipe(self) -> str:
        return self.src

    def check(self) -> None:
        _check_flag(self, self.src, self.dst, self.id)


class WaitFlag(_Sync, name="ascend.wait_flag"):
    """Holds pipe dst back until event `id` from pipe src is set, and clears it."""

    __slots__ = ()
    src = attr(str)
    dst = attr(str)
    id = attr(int)

    @classmethod
    def of(cls, src: str, dst: str, id: int) -> WaitFlag:
        return cls([], (), {"src": src, "dst": dst, "id": id})

    @property
    def pipe(self) -> str:
        return self.dst

    def check(self) -> None:
        _check_flag(self, self.src, self.dst, self.id)


class PipeBarrier(_Sync, name="ascend.pipe_barrier"):
    """Holds a pipe back until all of it before is complete."""

    __slots__ = ()
    of_pipe = attr(str)

    @classmethod
    def of(cls, pipe: str) -> PipeBarrier:
        return cls([], (), {"of_pipe": pipe})

    @property
    def pipe(self) -> str:
        return self.of_pipe

    def check(self) -> None:
        if self.of_pipe not in PIPES or self.of_pipe == "S":
            raise VerifyError(self, f"there is no barrier of pipe '{self.of_pipe}'")


def _check_flag(op: Operation, src: str, dst: str, id: int) -> None:
    if src not in PIPES or dst not in PIPES or src == dst:
        raise VerifyError(op, f"'{src}' and '{dst}' are not two of the pipes {', '.join(PIPES)}")
    if not 0 <= id < EVENTS:
        raise VerifyError(op, f"event {id} is none of 0 to {EVENTS - 1}")


VECTOR = (Unary, Binary, WithScalar, Duplicate, Cast, Reduce, Broadcast)
CUBE = (Load2D, Mmad, Fixpipe)
SYNC = (SetFlag, WaitFlag, PipeBarrier)
DIALECT = Dialect("ascend", [BlockIdx, BlockNum, Alloc, DataCopy, *CUBE, *VECTOR, *SYNC], "instructions of an NPU core")
