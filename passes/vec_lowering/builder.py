"""What lowering to vec is written with: views of memory, index arithmetic that folds constants, loops as `with` blocks.

    b = ctx.b                                            # a VecBuilder
    v = ctx.view(op.src)                                 # pointer, offset, dims, strides of a buffer
    with b.loop(0, v.dims[0], hint="i") as it:           # it.iv
        at = b.add(v.offset, b.mul(it.iv, v.strides[0]))
        x = b.load(v, at, lanes=16)
        b.store(b(arith.Add.of(x, x)), out, at)

An Index is an int known now or an SSA value of type index; arithmetic on ints happens in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from tilelang.dialects import arith, loop, vec
from tilelang.ir.core import Block, Operation, Value, VerifyError
from tilelang.ir.types import Dyn, PtrType, Scalar, Type, VectorType, bool_, element_of, f64

if TYPE_CHECKING:
    from tilelang.diagnostics import Span
    from tilelang.target import Target

NO_MEMORY = 1 << 58  # elements; so many bytes fit in 64 bits, whatever the element is
Index: TypeAlias = "int | Value"
# body(i, mask, state) -> state: the elements from i on, those that the mask (None: all lanes) lets through.
Strip: TypeAlias = "Callable[[Index, Value | None, list[Value]], list[Value]]"


@dataclass(frozen=True)
class View:
    """A buffer at the vec level. Element (i0, i1, ...) is ptr[offset + i0 * strides[0] + i1 * strides[1] + ...].

    dense[i]: strides[i] is known to be dims[i + 1] * strides[i + 1], so that the two axes can be walked as one; one entry less than axes.
    name: the user's name of the buffer, for messages. layout: of the buffer type, where elements are not placed by strides alone."""

    ptr: Value
    offset: Index
    dims: tuple[Index, ...]
    strides: tuple[Index, ...]
    dense: tuple[bool, ...]
    name: str = ""
    layout: str | None = None

    @property
    def element(self) -> Scalar:
        return element_of(self.ptr.type)

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass
class Loop:
    """A loop being built. Set `yields` to the next values of `carried` before the block ends; `results` is there after it."""

    iv: Index
    carried: list[Value]
    yields: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)


class VecBuilder:
    """Inserts ops at the end of `block`, with the span of the op being lowered."""

    def __init__(self, block: Block, target: Target, span: Span | None = None) -> None:
        self.block = block
        self.target = target
        self.span = span

    def insert(self, op: Operation) -> Operation:
        if op.span is None:
            op.span = self.span
        return self.block.append(op)

    def __call__(self, op: Operation, hint: str | None = None) -> Value:
        """Inserts an op with one result and returns the result."""
        result = self.insert(op).results[0]
        if hint is not None:
            result.hint = hint
        return result

    # -- index arithmetic

    def value(self, x: Index) -> Value:
        """An index as an SSA value."""
        return self(arith.index_constant(x)) if isinstance(x, int) else x

    def _fold(self, cls: Any, a: Index, b: Index, fold: Callable[[int, int], int]) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        return self(cls.of(self.value(a), self.value(b)))

    def add(self, a: Index, b: Index) -> Index:
        return b if a == 0 else a if b == 0 else self._fold(arith.Add, a, b, lambda x, y: x + y)

    def sub(self, a: Index, b: Index) -> Index:
        return a if b == 0 else 0 if a is b else self._fold(arith.Sub, a, b, lambda x, y: x - y)

    def mul(self, a: Index, b: Index) -> Index:
        if a == 0 or b == 0:
            return 0
        return b if a == 1 else a if b == 1 else self._fold(arith.Mul, a, b, lambda x, y: x * y)

    def div(self, a: Index, b: Index) -> Index:
        """floor(a / b)"""
        return a if b == 1 else self._fold(arith.FloorDiv, a, b, lambda x, y: x // y if y else 0)

    def mod(self, a: Index, b: Index) -> Index:
        return 0 if b == 1 else self._fold(arith.Mod, a, b, lambda x, y: x % y if y else 0)

    def min(self, a: Index, b: Index) -> Index:
        return a if a is b else self._fold(arith.Min, a, b, min)

    def max(self, a: Index, b: Index) -> Index:
        return a if a is b else self._fold(arith.Max, a, b, max)

    def ceildiv(self, a: Index, b: int) -> Index:
        return self.div(self.add(a, b - 1), b)

    def cmp(self, predicate: str, a: Index, b: Index) -> Value:
        return self(arith.Cmp.of(predicate, self.value(a), self.value(b)))

    def product(self, xs: Sequence[Index]) -> Index:
        total: Index = 1
        for x in xs:
            total = self.mul(total, x)
        return total

    def room(self, dims: Sequence[Index]) -> Index:
        """How many elements to allocate for these extents: their product, or what no machine has where the product does not fit in an index.
        Arrays that repeat one element (strides of 0) have extents of any size."""
        count = self.product(dims)
        if isinstance(count, int):
            return min(count, NO_MEMORY)
        about = reduce(lambda x, y: self(arith.Mul.of(x, y)), [self.cast(self.value(d), f64) for d in dims])
        fits = self(arith.Cmp.of("lt", about, self(arith.Constant.of(float(NO_MEMORY), f64))))
        return self(arith.Select.of(fits, count, self.value(NO_MEMORY)))

    # -- values

    def const(self, value: float | int | bool, type: Type) -> Value:
        return self(arith.Constant.of(value, type))

    def splat(self, x: Value, lanes: int) -> Value:
        """x in every lane; x itself when lanes is 0."""
        if not lanes or isinstance(x.type, VectorType):
            return x
        if isinstance(x.op, arith.Constant):
            return self.const(x.op.value, VectorType(lanes, element_of(x.type)))  # pyright: ignore[reportArgumentType]
        return self(vec.Splat.of(x, lanes))

    def mask(self, count: Index, lanes: int) -> Value:
        """True in the first `count` lanes."""
        return self(vec.Mask.of(self.value(count), lanes))

    def cast(self, x: Value, element: Scalar) -> Value:
        return x if element_of(x.type) is element else self(arith.Cast.of(x, element))

    # -- memory

    def at(self, view: View, indices: Sequence[Index]) -> Index:
        """The offset from view.ptr of an element."""
        where = view.offset
        for i, stride in zip(indices, view.strides):
            where = self.add(where, self.mul(i, stride))
        return where

    def load(self, view: View | Value, offset: Index, lanes: int = 0, mask: Value | None = None, hint: str | None = None) -> Value:
        """A scalar (lanes 0), or consecutive elements, at an offset from the pointer."""
        ptr = view.ptr if isinstance(view, View) else view
        return self(vec.Load.of(ptr, self.value(offset), lanes, mask), hint)

    def store(self, value: Value, view: View | Value, offset: Index, mask: Value | None = None) -> None:
        ptr = view.ptr if isinstance(view, View) else view
        self.insert(vec.Store.of(value, ptr, self.value(offset), mask))

    def lane_offsets(self, base: Index, stride: Index, lanes: int) -> Value:
        """base + stride * lane, a vector of index: what a strided gather or scatter needs."""
        lane = self(vec.Iota.of(lanes))
        if stride != 1:
            lane = self(arith.Mul.of(lane, self.splat(self.value(stride), lanes)))
        return lane if base == 0 else self(arith.Add.of(lane, self.splat(self.value(base), lanes)))

    def load_lanes(self, view: View | Value, offset: Index, stride: Index, lanes: int, mask: Value | None = None) -> Value:
        """`lanes` elements `stride` apart: one vector load, one scalar in every lane (stride 0), or a gather."""
        if not lanes or stride == 1:
            return self.load(view, offset, lanes, mask)
        if stride == 0:
            return self.splat(self.load(view, offset), lanes)
        ptr = view.ptr if isinstance(view, View) else view
        return self(vec.Gather.of(ptr, self.lane_offsets(offset, stride, lanes), mask))

    def store_lanes(self, value: Value, view: View | Value, offset: Index, stride: Index, lanes: int, mask: Value | None = None) -> None:
        if not lanes or stride == 1:
            self.store(value, view, offset, mask)
            return
        ptr = view.ptr if isinstance(view, View) else view
        self.insert(vec.Scatter.of(value, ptr, self.lane_offsets(offset, stride, lanes), mask))

    def alloc(self, element: Scalar, count: Index, stack: bool = False, hint: str | None = None) -> Value:
        """Scratch memory; heap memory must be freed by the caller (vec.Free) in the same region."""
        return self(vec.Alloc.of(self.value(count), PtrType(element, "local"), stack), hint)

    # -- structure

    @contextmanager
    def loop(self, lower: Index, upper: Index, step: int = 1, carry: Sequence[Value] = (), hint: str | None = None) -> Iterator[Loop]:
        """for iv in range(lower, upper, step). A loop known to run exactly once is its body alone."""
        if isinstance(lower, int) and isinstance(upper, int) and lower < upper <= lower + step:
            it = Loop(lower, list(carry))
            yield it
            it.results = list(it.yields)
            return
        op = loop.For.of(self.value(lower), self.value(upper), self.value(step), list(carry), hint=hint)
        self.insert(op)
        it = Loop(op.iv, op.carried)
        outer, self.block = self.block, op.body.block
        yield it
        self.insert(loop.Yield.of(*it.yields))
        self.block = outer
        it.results = list(op.results)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """The body runs where the condition holds."""
        op = loop.If.of(condition)
        self.insert(op)
        outer, self.block = self.block, op.then.block
        yield
        self.insert(loop.Yield.of())
        self.block = outer
        op.orelse.block.append(loop.Yield(span=self.span))

    def strip(
        self, n: Index, lanes: int, unroll: int, body: Strip,
        state: Sequence[Value] = (), merge: Callable[[list[Value], list[Value]], list[Value]] | None = None, hint: str | None = None,
    ) -> list[Value]:  # fmt: skip
        """Runs over n elements, `lanes` at a time, every lane once: body(i, mask, state) -> state for elements i to i + lanes.

        Full vectors, `unroll` of them an iteration, then full ones one by one, then a masked one. mask is None where all lanes are in range; lanes 0 means
        one element at a time. With `merge` each of the unrolled bodies has a state of its own (all start as `state`, which must then be an
        identity of merge), joined at the end."""
        width = max(lanes, 1)
        states = [list(state)] * (unroll if merge is not None else 1)
        done: Index = 0
        if unroll > 1:
            step = width * unroll
            done = self.sub(n, self.mod(n, step))
            if done != 0:
                with self.loop(0, done, step, [v for s in states for v in s], hint) as it:
                    now = _split(it.carried, len(states))
                    for u in range(unroll):
                        k = u % len(states)
                        now[k] = body(self.add(it.iv, u * width), None, now[k])
                    it.yields = [v for s in now for v in s]
                states = _split(it.results, len(states))
            else:
                states = states[:1]
        while len(states) > 1:
            assert merge is not None
            half = len(states) // 2
            states = [merge(a, b) for a, b in zip(states[:half], states[half : 2 * half])] + states[2 * half :]
        return self.strip_from(done, n, lanes, body, states[0], hint)

    def strip_from(self, done: Index, n: Index, lanes: int, body: Strip, state: Sequence[Value] = (), hint: str | None = None) -> list[Value]:
        """The elements from `done`, a multiple of lanes, to n: full vectors one by one, then a masked one."""
        width = max(lanes, 1)
        current = list(state)
        if isinstance(n, int) or not self.cheap_masks:
            full = self.sub(n, self.mod(n, width)) if lanes else n
            current = self._single(done, full, width, lambda i, s: body(i, None, s), current, hint)
            return self._tail(full, n, lanes, body, current, hint) if lanes else current
        # Masked vectors cost the same here, so that one loop does the rest of the full vectors and the tail.
        return self._single(done, n, width, lambda i, s: body(i, self.mask(self.sub(n, i), lanes) if lanes else None, s), current, hint)

    @property
    def cheap_masks(self) -> bool:
        """Whether a masked load or store costs no more than a plain one."""
        return "avx512f" in self.target.isa

    def _single(
        self, lower: Index, upper: Index, step: int, body: Callable[[Index, list[Value]], list[Value]], state: list[Value], hint: str | None
    ) -> list[Value]:
        if isinstance(lower, int) and isinstance(upper, int) and lower >= upper:
            return state
        with self.loop(lower, upper, step, state, hint) as it:
            it.yields = body(it.iv, it.carried)
        return it.results

    def _tail(
        self, full: Index, n: Index, lanes: int, body: Strip, state: list[Value], hint: str | None
    ) -> list[Value]:
        if isinstance(full, int) and isinstance(n, int):
            return body(full, self.mask(n - full, lanes), state) if full < n else state
        # At most one iteration.
        return self._single(full, n, lanes, lambda i, s: body(i, self.mask(self.sub(n, i), lanes), s), state, hint)

    def require(self, condition: Value, message: str, slug: str, values: Sequence[Value] = ()) -> None:
        """Stops the kernel when the condition is false."""
        self.insert(loop.Assert.of(condition, message, slug, list(values)))


def _split(values: list[Value], groups: int) -> list[list[Value]]:
    n = len(values) // groups
    return [values[i * n : (i + 1) * n] for i in range(groups)]


def bool_vector(lanes: int) -> Type:
    return VectorType(lanes, bool_) if lanes else bool_


def static(x: Index) -> int | None:
    """The number when it is known now."""
    return x if isinstance(x, int) else arith.constant_value(x)


def row_major(b: VecBuilder, dims: Sequence[Index]) -> tuple[Index, ...]:
    """Strides of contiguous memory of these extents."""
    strides: list[Index] = []
    step: Index = 1
    for d in reversed(dims):
        strides.append(step)
        step = b.mul(d, step)
    return tuple(reversed(strides))


def dims_of(type: Any, sizes: Sequence[Index]) -> tuple[Index, ...]:
    """Extents of a buffer type whose run-time extents are `sizes`, in order."""
    rest = iter(sizes)
    return tuple(next(rest) if isinstance(d, Dyn) else d for d in type.shape)


def subview(
    b: VecBuilder, view: View, offsets: Sequence[Index], sizes: Sequence[Index], dropped: Sequence[int] = (), steps: Sequence[int] = ()
) -> View:
    """Part of a view: one offset an axis, one size an axis that is not dropped."""
    where = b.at(view, offsets)
    kept = [a for a in range(view.rank) if a not in dropped]
    strides = tuple(b.mul(view.strides[a], steps[a] if steps else 1) for a in kept)
    dense = []
    for k, a in enumerate(kept[:-1]):
        following, plain = kept[k + 1], not steps or (steps[a] == steps[kept[k + 1]] == 1)
        # Still dense when the inner axis is taken whole, or where numbers say so.
        whole = following == a + 1 and plain and view.dense[a] and same(sizes[k + 1], view.dims[following])
        dense.append(whole or is_dense(strides[k], sizes[k + 1], strides[k + 1]))
    return View(view.ptr, where, tuple(sizes), strides, tuple(dense), view.name, view.layout)


def same(a: Index, b: Index) -> bool:
    """Known to be equal."""
    return a is b or (static(a) is not None and static(a) == static(b))


def is_dense(outer: Index, dim: Index, inner: Index) -> bool:
    """Known from numbers alone: a step of the outer axis is the whole inner axis."""
    a, d, c = static(outer), static(dim), static(inner)
    return a is not None and d is not None and c is not None and a == d * c


def unsupported(op: Operation, what: str) -> VerifyError:
    return VerifyError(op, f"cannot be lowered to vectors: {what}")
