"""The verifier: structure, declarations, dominance, use lists, each op's own rules, and the dialects and types a level may hold."""

from __future__ import annotations

from typing import Any

from tilelang.diagnostics import Diagnostic, make
from tilelang.ir.core import Block, Module, Operation, Value, VerifyError
from tilelang.ir.types import BufferType, PtrType, TensorType, TileType, Type, VectorType

# level -> dialects that may occur (design: a level is a whitelist of dialects). builtin is always allowed.
LEVELS: dict[str, frozenset[str]] = {
    "tensor": frozenset({"func", "arith", "loop", "tensor"}),
    "tile": frozenset({"func", "arith", "loop", "tile", "mem", "dist"}),
    "mem": frozenset({"func", "arith", "loop", "mem", "dist"}),
    "vec": frozenset({"func", "arith", "loop", "vec"}),
    "ascend": frozenset({"func", "arith", "loop", "ascend"}),
}
# level -> types that are left over from another level
FOREIGN: dict[str, frozenset[type[Type]]] = {
    "tensor": frozenset({TileType, BufferType, VectorType, PtrType}),
    "tile": frozenset({TensorType, VectorType, PtrType}),
    "mem": frozenset({TensorType, TileType, VectorType, PtrType}),
    "vec": frozenset({TensorType, TileType, BufferType}),
    "ascend": frozenset({TensorType, TileType}),
}


def verify(root: Operation, level: str | None = None) -> None:
    """Checks an op and all inside it; raises the first VerifyError. level: by default that of the module; '' checks no level."""
    errors = verify_all(root, level)
    if errors:
        raise errors[0]


def verify_all(root: Operation, level: str | None = None) -> list[VerifyError]:
    """All errors of `verify`, in the order of the program."""
    return _Verifier(root, level).run()


def as_diagnostic(error: VerifyError) -> Diagnostic:
    """The error for a user who wrote the IR himself: ir-rule at the op's place, with the op as a note."""
    return make("ir-rule", error.op.span, what=str(error))


class _Verifier:
    def __init__(self, root: Operation, level: str | None) -> None:
        self.root = root
        self.errors: list[VerifyError] = []
        self.level = level if level is not None else root.level if isinstance(root, Module) else ""
        self.allowed = LEVELS.get(self.level)
        self.foreign: frozenset[type[Type]] = FOREIGN.get(self.level, frozenset())
        self.visible: set[Value] = set()  # values that the current op may use
        self.defined: list[Value] = []
        self.used = 0  # operands that name a value in `defined`
        self.calls: list[Operation] = []
        self.legal: dict[type[Operation], bool] = {}

    def error(self, op: Operation, message: str) -> None:
        self.errors.append(VerifyError(op, message))

    def run(self) -> list[VerifyError]:
        if self.level and self.allowed is None:
            self.error(self.root, f"there is no level '{self.level}'; known: {', '.join(LEVELS)}")
        self.op(self.root)
        if not self.errors and sum([len(v.uses) for v in self.defined]) != self.used:
            self.stale_uses()
        if isinstance(self.root, Module):
            self.functions(self.root)
        return self.errors

    def block(self, block: Block, parent: Operation) -> None:
        visible, defined, foreign = self.visible, self.defined, self.foreign
        start = len(defined)
        for i, a in enumerate(block.args):
            if a.owner is not block or a.index != i:
                self.error(parent, f"argument {i} of its block is owned by {a.owner!r} at position {a.index}")
            if type(a.type) in foreign:
                self.error(parent, f"has an argument of type {a.type}, which does not exist at level {self.level}")
            defined.append(a)
        visible.update(block.args)
        op, before = block.first, None
        while op is not None:
            if op.parent is not block or op.prev is not before:
                self.error(op, "is not linked to the block it stands in")
                return
            self.op(op)
            if op.results:
                defined += op.results
                visible.update(op.results)
            elif op.terminator and op.next is not None:
                self.error(op, f"ends a block, but '{op.next.name}' follows it")
            before, op = op, op.next
        if before is not block.last:
            self.error(parent, "the last op of its block is not linked")
        # A module needs no end, and an empty region stands for one that is absent, except that functions must return.
        needs_end = not isinstance(parent, Module) if before is not None else parent.name == "func.func"
        if needs_end and (before is None or not before.terminator):
            self.error(parent, "has a region that does not end in a terminator")
        # Values of a region end with it; `defined` keeps them for the count of uses.
        visible.difference_update(defined[start:])

    def op(self, op: Operation) -> None:
        cls = type(op)
        info = op.info
        operands = op.operands
        good = len(self.errors)
        visible = self.visible
        uses = 0
        for i, v in enumerate(operands):
            if v in visible:
                uses += 1
            elif not self.from_outside(v):
                self.error(op, f"operand {i}{_of(op, i)} is used where it is not defined")
            if (op, i) not in v.uses:
                self.error(op, f"operand {i}{_of(op, i)} does not know of this use")
        self.used += uses
        if info.variadics:
            sizes = op.segments
            if sizes is None or len(sizes) != len(info.operands) or sum(sizes) != len(operands):
                self.error(op, f"operand groups {sizes} do not fit {len(operands)} operands in {len(info.operands)} groups")
            else:
                for part, size in zip(info.operands, sizes):
                    if size != 1 and (not part.variadic or (part.optional and size)):
                        self.error(op, f"operand '{part.name}' needs one value, it has {size}")
        elif len(operands) != len(info.operands):
            self.error(op, f"needs {len(info.operands)} operands ({', '.join(p.name for p in info.operands)}), it has {len(operands)}")
        if len(op.results) != len(info.results) and not info.variadic_results:
            self.error(op, f"needs {len(info.results)} results, it has {len(op.results)}")
        for i, r in enumerate(op.results):
            if r.owner is not op or r.index != i:
                self.error(op, f"result {i} is owned by {r.owner!r} at position {r.index}")
            if type(r.type) in self.foreign:
                self.error(op, f"has a result of type {r.type}, which does not exist at level {self.level}")
        if op.attrs or info.attrs:
            self.attrs(op)
        if self.allowed is not None:
            legal = self.legal.get(cls)
            if legal is None:
                dialect = op.name.partition(".")[0]
                legal = self.legal[cls] = dialect in self.allowed or dialect == "builtin"
            if not legal:
                self.error(op, f"does not exist at level {self.level}; its dialects are {', '.join(sorted(self.allowed))}")
        if "callee" in info.attrs:
            self.calls.append(op)
        if op.regions or info.regions:
            self.regions(op)
        if len(self.errors) == good:
            try:
                op.verify_()
            except VerifyError as e:
                self.errors.append(e)
            except Exception as e:
                # A rule that trips over types it did not expect is a broken rule as well: the op is still the place to look.
                self.error(op, f"cannot be checked: {type(e).__name__}: {e}")

    def attrs(self, op: Operation) -> None:
        declared = op.info.attrs
        attrs = op.attrs
        for name, part in declared.items():
            value = attrs.get(name, _ABSENT)
            if value is _ABSENT:
                if part.required:
                    self.error(op, f"attribute '{name}' is missing")
            elif not isinstance(value, part.kind) or (isinstance(value, bool) and part.kind is int):
                self.error(op, f"attribute '{name}' is {value!r}, expected {part.kind.__name__}")
        for name in attrs:
            # As in MLIR, anybody may attach an attribute whose name has a prefix.
            if name not in declared and "." not in name:
                self.error(op, f"has no attribute '{name}'; it declares {', '.join(declared) or 'none'}")

    def regions(self, op: Operation) -> None:
        if len(op.regions) != len(op.info.regions):
            self.error(op, f"needs {len(op.info.regions)} regions, it has {len(op.regions)}")
        isolated = op.name == "func.func"
        if isolated:
            outer, self.visible = self.visible, set()
            if not isinstance(op.parent_op, Module) and op is not self.root:
                self.error(op, "must stand directly in a module")
        for region in op.regions:
            if region.parent is not op:
                self.error(op, "has a region that belongs to another op")
            if len(region.blocks) != 1:
                self.error(op, f"every region has one block, this one has {len(region.blocks)}")
            for block in region.blocks:
                if block.parent is not region:
                    self.error(op, "has a block that belongs to another region")
                self.block(block, op)
        if isolated:
            self.visible = outer  # pyright: ignore[reportPossiblyUnboundVariable]

    def from_outside(self, value: Value) -> bool:
        """Whether a value is defined around the op that is verified, when that is not a whole module."""
        if isinstance(self.root, Module) or self.root.name == "func.func" or self.root.parent is None:
            return False
        block = value.block
        ancestor = self.root.ancestor_in(block) if block is not None else None
        op = value.op
        while op is not None and op is not ancestor:
            op = op.next
        return ancestor is not None and (value.op is None or (op is ancestor and value.op is not ancestor))

    def stale_uses(self) -> None:
        """Finds the uses that are no longer there."""
        for v in self.defined:
            for user, i in v.uses:
                if i >= len(user.operands) or user.operands[i] is not v:
                    self.error(user, f"is listed as using {v!r} as operand {i}, and does not")
                elif not self.root.is_ancestor_of(user):
                    owner = v.owner if isinstance(v.owner, Operation) else v.owner.parent_op
                    self.error(owner or self.root, f"has a value {v!r} that '{user.name}' uses, which is not in the program")

    def functions(self, module: Module) -> None:
        known: dict[str, Operation] = {}
        for op in module.body.block if module.regions and module.regions[0].blocks else ():
            name = str(op.attrs.get("sym_name"))
            if op.name != "func.func":
                self.error(op, "stands in a module, which holds only functions")
            elif name in known:
                self.error(op, f"there are two functions '{name}'")
            else:
                known[name] = op
        for call in self.calls:
            target = known.get(call.attrs.get("callee", ""))
            if target is None:
                self.error(call, f"calls '{call.attrs.get('callee')}', which is not in the module")
            else:
                self.signature(call, target)

    def signature(self, call: Operation, target: Operation) -> None:
        given: list[Any] = [v.type for v in call.operands]
        if call.name == "vec.launch":
            given.insert(0, given[0])  # begin and end in place of the count
        wanted = [a.type for a in target.regions[0].block.args]
        if given != wanted:
            self.error(call, f"passes ({_join(given)}), '{call.attrs['callee']}' takes ({_join(wanted)})")
        results = [r.type for r in call.results]
        if results != list(target.attrs.get("results_", ())):
            self.error(call, f"expects ({_join(results)}), '{call.attrs['callee']}' returns ({_join(target.attrs.get('results_', ()))})")


_ABSENT = object()


def _join(types: Any) -> str:
    return ", ".join(map(str, types))


def _of(op: Operation, i: int) -> str:
    """` ('name')` of an operand, when it has one."""
    hint = op.operands[i].hint
    return f" (%{hint})" if hint else ""
