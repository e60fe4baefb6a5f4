"""Operations, values, blocks, regions: the mutable SSA core, with MLIR's and xDSL's vocabulary.

An op class declares its parts by descriptors, one a line:

    class Load(Operation, name="tile.load"):
        "Reads a tile."
        buffer = operand()
        offsets = operands()          # variadic; more than one variadic: the op stores segment sizes
        pad = optional_operand()
        steps = attr(tuple)
        result = result()

Attributes are plain Python values (int, float, str, bool, tuples of them, types), never boxed. Every op has one source span.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from tilelang.ir.parts import OpInfo, VerifyError, attr, operand, operands, optional_operand, region, result
from tilelang.ir.types import Type

if TYPE_CHECKING:
    from tilelang.diagnostics import Span

__all__ = [
    "Block", "Builder", "Dialect", "Module", "OpInfo", "Operation", "Region", "Value", "VerifyError",
    "attr", "operand", "operands", "optional_operand", "region", "result",
]  # fmt: skip


class Value:
    """An SSA value: the result of an operation, or an argument of a block."""

    __slots__ = ("type", "owner", "index", "uses", "hint")

    def __init__(self, type: Type, owner: Operation | Block, index: int, hint: str | None = None) -> None:
        self.type = type
        self.owner = owner
        self.index = index
        # A dict keyed (op, operand index) keeps insertion order and makes add and remove O(1).
        self.uses: dict[tuple[Operation, int], None] = {}
        self.hint = hint  # name for printing

    @property
    def op(self) -> Operation | None:
        """The defining operation, None for a block argument."""
        owner = self.owner
        return owner if isinstance(owner, Operation) else None

    @property
    def block(self) -> Block | None:
        """The block in which the value is defined."""
        owner = self.owner
        return owner.parent if isinstance(owner, Operation) else owner

    @property
    def is_block_argument(self) -> bool:
        return not isinstance(self.owner, Operation)

    @property
    def users(self) -> Iterator[Operation]:
        """Ops that use the value, each once, in order of first use."""
        return iter(dict.fromkeys(op for op, _ in self.uses))

    def replace_by(self, new: Value) -> None:
        """Makes every use of this value a use of `new`."""
        if new is self:
            return
        for op, i in self.uses:
            op.operands[i] = new
            new.uses[op, i] = None
        self.uses.clear()
        if new.hint is None and not (isinstance(new.owner, Operation) and not new.owner.operands):
            new.hint = self.hint  # but constants and the like are named by what they are

    def __repr__(self) -> str:
        return f"<Value {self.hint or '?'}: {self.type}>"


class Operation:
    """Base of all ops. `pure`: no effect but its results, and safe to run speculatively, twice, or not at all."""

    __slots__ = ("operands", "results", "attrs", "regions", "segments", "span", "parent", "prev", "next")
    name: ClassVar[str] = ""
    pure: ClassVar[bool] = False
    terminator: ClassVar[bool] = False
    commutative: ClassVar[bool] = False
    variadic_results: ClassVar[bool] = False  # any number of results (loops, ifs, calls)
    info: ClassVar[OpInfo]

    def __init_subclass__(
        cls, name: str = "", pure: bool = False, terminator: bool = False, commutative: bool = False, variadic_results: bool = False
    ) -> None:
        cls.name = name or cls.name
        cls.pure = pure or cls.pure
        cls.terminator = terminator or cls.terminator
        cls.commutative = commutative or cls.commutative
        cls.variadic_results = variadic_results or cls.variadic_results
        cls.info = OpInfo(cls)

    def __init__(
        self, operands: Iterable[Value | Sequence[Value] | None] = (), types: Iterable[Type] = (), attrs: Mapping[str, Any] | None = None,
        regions: Iterable[Region] = (), span: Span | None = None, segments: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        """operands: one entry a declared operand (a sequence for a variadic group, None for an absent optional one);
        a flat list of Values when `segments` is given or the class has no variadic operands."""
        flat: list[Value] = []
        sizes: list[int] = []
        if segments is None and self.info.variadics:
            for entry in operands:
                group = (entry,) if isinstance(entry, Value) else () if entry is None else tuple(entry)
                flat.extend(group)
                sizes.append(len(group))
            # An optional or variadic group at the end may be left out.
            sizes += [0] * (len(self.info.operands) - len(sizes))
            segments = tuple(sizes)
        else:
            flat = list(operands)  # pyright: ignore[reportAssignmentType, reportArgumentType]
        self.operands = flat
        self.segments = segments
        self.attrs: dict[str, Any] = dict(attrs) if attrs else {}
        self.regions: list[Region] = []
        self.span = span
        self.parent: Block | None = None
        self.prev: Operation | None = None
        self.next: Operation | None = None
        self.results = [Value(t, self, i) for i, t in enumerate(types)]
        for i, v in enumerate(flat):
            v.uses[self, i] = None
        for r in regions:
            r.parent = self
            self.regions.append(r)

    # -- access

    def operand_range(self, group: int) -> tuple[int, int]:
        """Positions [start, stop) in `operands` of the group declared at position `group`."""
        assert self.segments is not None
        start = sum(self.segments[:group])
        return start, start + self.segments[group]

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"'{self.name}' has {len(self.results)} results"
        return self.results[0]

    @property
    def parent_op(self) -> Operation | None:
        region = self.parent.parent if self.parent is not None else None
        return region.parent if region is not None else None

    def is_ancestor_of(self, other: Operation | None) -> bool:
        """True when `other` is this op or lies in one of its regions."""
        while other is not None:
            if other is self:
                return True
            other = other.parent_op
        return False

    def ancestor_in(self, block: Block) -> Operation | None:
        """This op, or the op around it that stands directly in `block`."""
        op: Operation | None = self
        while op is not None and op.parent is not block:
            op = op.parent_op
        return op

    # -- change

    def set_operand(self, i: int, value: Value) -> None:
        self.operands[i].uses.pop((self, i), None)
        self.operands[i] = value
        value.uses[self, i] = None

    def set_operands(self, groups: Sequence[Value | Sequence[Value] | None]) -> None:
        """Replaces all operands; one entry a declared operand, as in the constructor."""
        for i, v in enumerate(self.operands):
            v.uses.pop((self, i), None)
        flat: list[Value] = []
        sizes: list[int] = []
        for entry in groups:
            group = (entry,) if isinstance(entry, Value) else () if entry is None else tuple(entry)
            flat.extend(group)
            sizes.append(len(group))
        self.operands = flat
        if self.info.variadics:
            self.segments = tuple(sizes + [0] * (len(self.info.operands) - len(sizes)))
        for i, v in enumerate(flat):
            v.uses[self, i] = None

    def drop_all_references(self) -> None:
        """Removes this op's and its regions' uses of values."""
        for i, v in enumerate(self.operands):
            v.uses.pop((self, i), None)
        for r in self.regions:
            for b in r.blocks:
                for op in b:
                    op.drop_all_references()

    def detach(self) -> Self:
        """Takes the op out of its block; it can be inserted elsewhere."""
        if self.parent is not None:
            self.parent.unlink(self)
        return self

    def erase(self) -> None:
        """Removes the op for good. Its results must have no uses left."""
        for r in self.results:
            assert not r.uses, f"erasing '{self.name}' whose result is still used by '{next(r.users).name}'"
        self.detach()
        self.drop_all_references()

    def replace_by(self, *values: Value) -> None:
        """Replaces all results by `values` and erases the op."""
        assert len(values) == len(self.results)
        for old, new in zip(self.results, values):
            old.replace_by(new)
        self.erase()

    def walk(self, reverse: bool = False) -> Iterator[Operation]:
        """This op and all ops inside it: outer first, or inner first when `reverse`. The current op may be erased."""
        if reverse:
            for r in self.regions:
                for b in r.blocks:
                    for op in reversed(b):
                        if op.regions:
                            yield from op.walk(True)
                        else:
                            yield op
            yield self
            return
        yield self
        # What is still to be walked, the next one last: not a recursion, in which every op would pass through all levels.
        todo: list[Block | Operation] = [b for r in reversed(self.regions) for b in reversed(r.blocks)]
        while todo:
            at = todo.pop()
            op = at.first if isinstance(at, Block) else at
            while op is not None:
                after = op.next
                yield op
                if op.regions:
                    if after is not None:
                        todo.append(after)
                    todo += [b for r in reversed(op.regions) for b in reversed(r.blocks)]
                    break
                op = after

    def clone(self, mapping: dict[Value, Value] | None = None) -> Self:
        """A deep copy; operands are looked up in `mapping`, which gains the copied results and arguments."""
        values = mapping if mapping is not None else {}
        get = values.get
        # Not through the constructor: everything is known to be in order, and a pipeline starts with a copy of the whole module.
        new = object.__new__(type(self))
        new.operands = [get(v, v) for v in self.operands]
        new.segments = self.segments
        new.attrs = self.attrs.copy()
        new.regions = []
        new.span = self.span
        new.parent = new.prev = new.next = None
        new.results = [Value(r.type, new, r.index, r.hint) for r in self.results]
        for i, v in enumerate(new.operands):
            v.uses[new, i] = None
        values.update(zip(self.results, new.results))
        for r in self.regions:
            new.add_region(r.clone(values))
        return new

    def add_region(self, region: Region) -> Region:
        region.parent = self
        self.regions.append(region)
        return region

    # -- rules and meaning, given by the dialects

    def verify_(self) -> None:
        """Checks this op's own rules; raises VerifyError. Operand and attribute counts are checked by ir.verify."""

    def evaluate(self, frame: Any, *args: Any) -> Any:
        """The meaning of the op in NumPy (see runtime.interp): one value, a tuple for several results, None for none."""
        raise VerifyError(self, "has no evaluate")

    def fold(self) -> Value | Any | None:
        """A constant (Python value) or an existing Value equal to the only result, else None (see passes.canonicalize)."""
        return None

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __str__(self) -> str:
        from tilelang.ir.text import print_op

        return print_op(self)


class Block:
    """A list of operations with arguments; the last op is the terminator."""

    __slots__ = ("args", "first", "last", "parent")

    def __init__(self, types: Iterable[Type] = (), hints: Sequence[str | None] = ()) -> None:
        self.args = [Value(t, self, i, hints[i] if i < len(hints) else None) for i, t in enumerate(types)]
        self.first: Operation | None = None
        self.last: Operation | None = None
        self.parent: Region | None = None

    def __iter__(self) -> Iterator[Operation]:
        op = self.first
        while op is not None:
            after = op.next  # the current op may be moved or erased
            yield op
            op = after

    def __reversed__(self) -> Iterator[Operation]:
        op = self.last
        while op is not None:
            before = op.prev
            yield op
            op = before

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True  # an empty block is still a block: `block or Block()` must keep it

    @property
    def parent_op(self) -> Operation | None:
        return self.parent.parent if self.parent is not None else None

    @property
    def terminator(self) -> Operation | None:
        return self.last if self.last is not None and self.last.terminator else None

    def add_arg(self, type: Type, hint: str | None = None) -> Value:
        arg = Value(type, self, len(self.args), hint)
        self.args.append(arg)
        return arg

    def erase_arg(self, i: int) -> None:
        assert not self.args[i].uses
        del self.args[i]
        for j, a in enumerate(self.args):
            a.index = j

    def append(self, op: Operation) -> Operation:
        return self.insert_before(None, op)

    def insert_before(self, ref: Operation | None, op: Operation) -> Operation:
        """Inserts before `ref`, at the end when ref is None."""
        assert op.parent is None, f"'{op.name}' is in a block already"
        op.parent = self
        op.next = ref
        op.prev = ref.prev if ref is not None else self.last
        if op.prev is not None:
            op.prev.next = op
        else:
            self.first = op
        if ref is not None:
            ref.prev = op
        else:
            self.last = op
        return op

    def unlink(self, op: Operation) -> None:
        if op.prev is not None:
            op.prev.next = op.next
        else:
            self.first = op.next
        if op.next is not None:
            op.next.prev = op.prev
        else:
            self.last = op.prev
        op.prev = op.next = op.parent = None


class Region:
    """A list of blocks; all our regions have exactly one."""

    __slots__ = ("blocks", "parent")

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks: list[Block] = []
        self.parent: Operation | None = None
        for b in blocks:
            self.add(b)

    @property
    def block(self) -> Block:
        return self.blocks[0]

    def add(self, block: Block) -> Block:
        block.parent = self
        self.blocks.append(block)
        return block

    def clone(self, mapping: dict[Value, Value]) -> Region:
        new = Region()
        for b in self.blocks:
            copy = new.add(Block([a.type for a in b.args], [a.hint for a in b.args]))
            mapping.update(zip(b.args, copy.args))
            for op in b:
                copy.append(op.clone(mapping))
        return new


class Builder:
    """Inserts ops at a place, giving them the current span."""

    __slots__ = ("block", "before", "span")

    def __init__(self, block: Block, before: Operation | None = None, span: Span | None = None) -> None:
        self.block = block
        self.before = before
        self.span = span

    @classmethod
    def at(cls, op: Operation) -> Builder:
        """Right before `op`, with its span."""
        assert op.parent is not None
        return cls(op.parent, op, op.span)

    @classmethod
    def after(cls, op: Operation) -> Builder:
        assert op.parent is not None
        return cls(op.parent, op.next, op.span)

    @classmethod
    def at_start(cls, block: Block, span: Span | None = None) -> Builder:
        return cls(block, block.first, span)

    def insert(self, op: Op) -> Op:
        if op.span is None:
            op.span = self.span
        self.block.insert_before(self.before, op)
        return op

    def __call__(self, op: Operation) -> Value:
        """Inserts an op with one result and returns the result."""
        self.insert(op)
        return op.results[0]


Op = TypeVar("Op", bound=Operation)


class Dialect:
    """A named set of op classes. Creating one makes its ops known to the parser; a second definition is refused."""

    ops: ClassVar[dict[str, type[Operation]]] = {}
    all: ClassVar[dict[str, Dialect]] = {}

    def __init__(self, name: str, ops: Sequence[type[Operation]], doc: str = "") -> None:
        self.name = name
        self.members = tuple(ops)
        self.doc = doc
        for cls in ops:
            known = Dialect.ops.get(cls.name)
            if known is not None and known is not cls:
                raise RuntimeError(
                    f"op '{cls.name}' is already defined by {known.__module__}; it is defined again by {cls.__module__} "
                    "(import tilelang.dialects, not dialects)"
                )
            Dialect.ops[cls.name] = cls
        Dialect.all[name] = self


class Module(Operation, name="builtin.module"):
    """The top: a list of functions. attrs: 'level' is one of tensor, tile, mem, vec, ascend."""

    __slots__ = ()
    level = attr(str, "")
    body = region()

    @classmethod
    def of(cls, ops: Iterable[Operation] = (), level: str = "") -> Module:
        module = cls(attrs={"level": level} if level else {}, regions=[Region([Block()])])
        for op in ops:
            module.body.block.append(op)
        return module

    def evaluate(self, frame: Any, *args: Any) -> Any:
        raise VerifyError(self, "a module is not run; run one of its functions")


BUILTIN = Dialect("builtin", [Module])
