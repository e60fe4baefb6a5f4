"""Where tile values live: storages, the buffer of each value, and the choice of the buffer that an op writes its result to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilelang.dialects import dist, func, loop, mem, tile
from tilelang.dialects.arith import index_constant
from tilelang.dialects.contract import is_empty
from tilelang.ir.core import Block, Builder, Operation, Value
from tilelang.ir.types import BufferType, Dyn, TileType
from tilelang.passes.buffering import views
from tilelang.passes.buffering.extents import Extents, is_tile
from tilelang.passes.buffering.liveness import Liveness


@dataclass(eq=False)
class Storage:
    """Memory that holds tile values one after the other. buffer: all of it. external: the program's own, which only its stores may write."""

    buffer: Value
    external: bool = False
    members: list[Value] = field(default_factory=list)


@dataclass(eq=False)
class Slot:
    """The place of a value given to a loop or an `if`: fixed before its producer is known. view: None when the extents may change."""

    storage: Storage
    view: Value | None


class Placement:
    """Buffers of the tile values of one function; `of` and `storage` are filled in program order."""

    def __init__(self, function: func.Func, extents: Extents) -> None:
        self.extents = extents
        self.live = Liveness(function)
        self.of: dict[Value, Value] = {}
        self.storage: dict[Value, Storage] = {}
        self.slots: dict[tuple[Operation, int], Slot] = {}  # (terminator, operand index) -> where that value must end up
        self.stored: set[Operation] = set()  # tile.store ops whose value was written in place by its producer
        self.accumulated: set[Operation] = set()  # products that add to an accumulator which lies where the sum is stored
        self._external: dict[Value, Storage] = {}
        self._last_alloc: dict[Block, Operation] = {}
        self._function = function
        self._zero: Value | None = None

    @property
    def zero(self) -> Value:
        if self._zero is None:
            self._zero = Builder.at_start(self._function.body.block, self._function.span)(index_constant(0))
        return self._zero

    # -- memory

    def record(self, value: Value, buffer: Value, storage: Storage) -> None:
        self.of[value] = buffer
        self.storage[value] = storage
        storage.members.append(value)
        if buffer.hint is None:
            buffer.hint = value.hint

    def external(self, buffer: Value) -> Storage:
        """The storage of a buffer of the program."""
        base = views.root(buffer)
        return self._external.setdefault(base, Storage(base, external=True))

    def allocate(self, type: TileType, sizes: Sequence[Value], at: Operation, hint: str | None) -> Storage:
        """Fresh local memory of the bound of `type`. It is placed at the start of the body of the block of the grid (or of the function), outside
        of serial loops; memory whose size is only known later stays as far out as the size allows."""
        shape = tuple(d.bound if isinstance(d, Dyn) and d.bound is not None else d for d in type.shape)
        unbounded = [s for s, axis in zip(sizes, (i for i, d in enumerate(type.shape) if isinstance(d, Dyn))) if isinstance(shape[axis], Dyn)]
        alloc = mem.Alloc.of(BufferType(shape, type.element, "local"), unbounded)
        alloc.out.hint = hint
        alloc.span = at.span
        self.place_alloc(alloc, at)
        return Storage(alloc.out)

    def place_alloc(self, alloc: mem.Alloc, at: Operation) -> None:
        spot = at
        while not isinstance(parent := spot.parent_op, (loop.Parallel, func.Func)):
            assert parent is not None
            if any(_defined_in(size, parent) for size in alloc.sizes):
                break
            spot = parent
        assert spot.parent is not None
        if alloc.sizes:
            Builder.at(spot).insert(alloc)
            return
        last = self._last_alloc.get(spot.parent)
        spot.parent.insert_before(last.next if last is not None else spot.parent.first, alloc)
        self._last_alloc[spot.parent] = alloc

    def view(self, storage: Storage, type: TileType, sizes: Sequence[Value], build: Builder) -> Value:
        """The first elements of a storage as a buffer with exactly the extents of a tile."""
        if not dynamic_of(type) or buffer_shape(storage.buffer) == type.shape:
            return storage.buffer
        return views.subview(build, storage.buffer, [self.zero] * len(type.shape), sizes, type.shape)

    def fresh(self, value: Value, build: Builder, at: Operation) -> tuple[Value, Storage]:
        """New memory for a value."""
        type = value.type
        assert isinstance(type, TileType)
        sizes = self.extents.sizes(value)
        storage = self.allocate(type, sizes, at, value.hint)
        return self.view(storage, type, sizes, build), storage

    # -- choice

    def is_free(self, storage: Storage, point: Operation, behind: bool = False) -> bool:
        """Whether no value in the storage is needed after `point`, but for what `point` itself reads (behind: or its regions)."""
        return not storage.external and not any(self.live.used_after(v, point, behind) for v in storage.members)

    def reads_clash(self, op: Operation, target: Value, in_place: Sequence[Value]) -> bool:
        """Whether writing `target` while `op` reads its operands could change what it reads. in_place: operands that it reads element by
        element as it writes, which may be the target itself."""
        base = views.root(target)
        for v in op.operands:
            if is_tile(v) and v in self.of and views.root(self.of[v]) is base:
                if v not in in_place or not views.same_view(self.of[v], target):
                    return True
            elif isinstance(v.type, BufferType) and views.root(v) is base:
                return True
        return False

    def choose(
        self, value: Value, op: Operation, build: Builder, in_place: Sequence[Value] = (), taken: Sequence[Storage] = (),
        reader: Operation | None = None,
    ) -> Value:  # fmt: skip
        """Picks and records where `op` writes its result `value`: where it is stored, where a loop or an `if` wants it, the memory of an operand
        that ends here, or new memory. taken: storages of other results of the op. reader: the op whose operands are read meanwhile, if another."""
        reader = reader or op
        direct = self._store_target(value, op, build, in_place, reader)
        if direct is not None:
            self.record(value, direct, self.external(direct))
            return direct
        for user, i in list(value.uses):
            slot = self.slots.get((user, i))
            if slot is None or slot.storage in taken or user.parent is not op.parent or not self.is_free(slot.storage, op):
                continue
            target = slot.view
            if target is None:
                assert isinstance(value.type, TileType)
                target = self.view(slot.storage, value.type, self.extents.sizes(value), build)
            if not self.reads_clash(reader, target, in_place):
                self.record(value, target, slot.storage)
                return target
        for operand in in_place:
            if operand.type is not value.type or operand not in self.of:
                continue
            storage, target = self.storage[operand], self.of[operand]
            if storage not in taken and self.is_free(storage, op) and not self.reads_clash(reader, target, in_place):
                self.record(value, target, storage)
                return target
        target, storage = self.fresh(value, build, op)
        self.record(value, target, storage)
        return target

    def _store_target(self, value: Value, op: Operation, build: Builder, in_place: Sequence[Value], reader: Operation) -> Value | None:
        """The view that the only use of `value`, a tile.store, writes: when nothing between looks at that memory. An accumulator may start where
        the sum of products is stored."""
        chain = accumulations(value)
        end = chain[-1].results[0] if chain else value
        store = next(end.users, None) if len(end.uses) == 1 else None
        if not isinstance(store, tile.Store) or store.parent is not op.parent or store in self.stored:
            return None
        base = views.root(store.buffer)
        between = op.next
        while between is not None and between is not store:
            if any(self._touches(inner, base) for inner in between.walk()):
                return None
            between = between.next
        if between is None or not all(self._can_hoist(v, op) for v in (store.buffer, *store.offsets)):
            return None
        for v in (store.buffer, *store.offsets):
            self._hoist(v, op)
        target = views.subview(build, store.buffer, store.offsets, self.extents.sizes(value), tile.shape_of(value.type), store.dropped, store.steps)
        if self.reads_clash(reader, target, in_place):
            assert target.op is not None
            target.op.erase()
            return None
        self.stored.add(store)
        self.accumulated.update(chain)
        return target

    def _touches(self, op: Operation, base: Value) -> bool:
        if dist.synchronises(op, base):
            return True
        if any(views.root(b) is base for b in views.touched(op)):
            return True
        return any(is_tile(v) and v in self.of and views.root(self.of[v]) is base for v in op.operands)

    def _can_hoist(self, value: Value, before: Operation) -> bool:
        """Whether a value is, or can be, computed before an op."""
        op = value.op
        if op is None or op.parent is not before.parent or op not in self.live.order or self.live.order[op] < self.live.order[before]:
            return True
        return op is not before and op.pure and not op.regions and all(self._can_hoist(v, before) for v in op.operands)

    def _hoist(self, value: Value, before: Operation) -> None:
        op = value.op
        if op is None or op.parent is not before.parent or op not in self.live.order or self.live.order[op] < self.live.order[before]:
            return
        for v in op.operands:
            self._hoist(v, before)
        assert before.parent is not None
        before.parent.insert_before(before, op.detach())
        self.live.order[op] = self.live.order[before] - 1

    def clobbered(self, load: tile.Load) -> bool:
        """Whether the memory a load reads may be written while its value, or a part of it, is still needed."""
        block = load.parent
        assert block is not None
        ends = [user.ancestor_in(block) for v in self._parts(load.out) for user in v.users]
        last = max((op for op in ends if op is not None), key=self.live.order.__getitem__, default=None)
        base = views.root(load.buffer)
        op = load.next
        while last is not None and op is not None:
            for inner in op.walk():
                if dist.synchronises(inner, base) or any(views.root(b) is base for b in views.written(inner)):
                    return True
            if op is last:
                break
            op = op.next
        return False

    def _parts(self, value: Value) -> list[Value]:
        found = [value]
        for v in found:
            found += [user.results[0] for user in v.users if isinstance(user, (tile.Slice, tile.Transpose, tile.Reshape))]
        return found


def accumulations(value: Value) -> list[Operation]:
    """The matrix products that one after the other add to `value`, when each is its only use."""
    chain: list[Operation] = []
    while len(value.uses) == 1:
        user, i = next(iter(value.uses))
        if not (isinstance(user, tile.Matmul) and i == 2) and not (isinstance(user, tile.Contract) and i == 0 and is_empty(user.epilogue)):
            break
        chain.append(user)
        value = user.results[0]
    return chain


def buffer_shape(buffer: Value) -> tuple[int | Dyn, ...]:
    return views.buffer_type(buffer).shape


def dynamic_of(type: TileType) -> list[int]:
    return [i for i, d in enumerate(type.shape) if isinstance(d, Dyn)]


def _defined_in(value: Value, op: Operation) -> bool:
    at = value.op if value.op is not None else value.block.parent_op if value.block is not None else None
    return at is not None and op.is_ancestor_of(at) and (value.op is None or at is not op)
