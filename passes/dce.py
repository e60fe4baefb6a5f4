"""dce: removes what nobody needs: pure ops, loops and branches without effect, results and carried values without use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.dialects import loop
from tilelang.ir.core import Module, Operation, Value
from tilelang.ir.passes import Pass, PassContext, register
from tilelang.ir.rewrite import Rewriter
from tilelang.passes.folding.control import move_body, remove_carried


@register
@dataclass(frozen=True)
class Dce(Pass):
    """Removes unused pure ops, control flow without effect or used result, unused results and carried values, reads nobody looks at, and memory
    that is only written."""

    name: ClassVar[str] = "dce"

    def run(self, module: Module, ctx: PassContext) -> None:
        for function in module.body.block:
            eliminate(function)


# Reads: without effect, but not pure, since they may not move across writes.
READS = frozenset({"tile.load", "mem.load", "vec.load", "vec.gather", "mem.alloc", "vec.alloc"})


ALLOCATIONS = frozenset({"mem.alloc", "vec.alloc"})
VIEWS = frozenset({"mem.subview", "mem.permute", "mem.reshape"})
# op -> the operand through which it writes; they have no other effect, and cannot fail
WRITES = {
    "mem.store": "dst", "mem.fill": "dst", "mem.iota": "dst", "mem.copy": "dst", "mem.copy_padded": "dst", "mem.map": "outs", "mem.reduce": "dst",
    "mem.arg_reduce": "dst", "mem.scan": "dst", "mem.matmul": "acc", "vec.store": "ptr", "vec.free": "ptr",
}  # fmt: skip


def eliminate(root: Operation) -> int:
    """Removes dead code inside an op; how many ops went."""
    rw = Rewriter()
    for op in root.walk():
        # Others are looked at when what uses them has gone.
        if op is not root and (is_useless(op) or op.name in ALLOCATIONS or isinstance(op, (loop.For, loop.If))):
            rw.visit(op)
    count = 0
    while rw.stack:
        op = rw.stack.pop()
        if op not in rw.waiting:
            continue
        rw.waiting.discard(op)
        around = op.parent_op
        if is_useless(op):
            rw.erase(op)
            count += 1
        elif op.name in ALLOCATIONS and (gone := only_written(op)):
            for user in gone:
                rw.visit(user.parent_op)
                rw.erase(user)
            count += len(gone)
        elif not (isinstance(op, loop.For) and drop_carried(op, rw)) and not (isinstance(op, loop.If) and drop_results(op, rw)):
            continue
        # What stands around may be without effect now.
        if around is not root:
            rw.visit(around)
    return count


def is_useless(op: Operation) -> bool:
    """Whether an op can go: no used result, and neither it nor anything inside has an effect."""
    for r in op.results:
        if r.uses:
            return False
    if op.terminator:
        return False
    return op.pure or op.name in READS or (isinstance(op, (loop.For, loop.If, loop.Parallel)) and all(_harmless(r.block.first) for r in op.regions))


def _harmless(op: Operation | None) -> bool:
    """Whether an op and those behind it have no effect outside their block. A while may not end, so it counts as an effect."""
    while op is not None:
        inside = isinstance(op, (loop.For, loop.If, loop.Parallel)) and all(_harmless(r.block.first) for r in op.regions)
        if not (op.pure or op.terminator or op.name in READS or inside):
            return False
        op = op.next
    return True


def only_written(alloc: Operation) -> list[Operation]:
    """The allocation, its views and its writers, users first, when nobody reads the memory; else nothing."""
    memory = set(alloc.results)
    pending, found = [alloc], {alloc: None}
    while pending:
        for user in (u for r in pending.pop().results for u in r.users):
            if user in found:
                continue
            found[user] = None
            if user.name in VIEWS:
                memory.update(user.results)
                pending.append(user)
            elif user.name not in WRITES:
                return []
    writers = [user for user in found if user.name in WRITES]
    for user in writers:
        written = written_positions(user)
        if any((v in memory) != (i in written) for i, v in enumerate(user.operands)):
            return []
    return writers + [op for op in reversed(found) if op.name not in WRITES]


def written_positions(op: Operation) -> range:
    """Positions of the operands through which an op of WRITES writes."""
    position = next(p.position for p in op.info.operands if p.name == WRITES[op.name])
    return range(*op.operand_range(position)) if op.segments is not None else range(position, position + 1)


def drop_carried(op: loop.For, rw: Rewriter) -> bool:
    """Removes carried values whose result is unused and that only serve to compute themselves."""
    end = op.body.block.last
    if not isinstance(end, loop.Yield):
        return False
    dead = [i for i, r in enumerate(op.results) if not r.uses and not _needed(op.carried[i], end, i)]
    if not dead:
        return False
    for i in dead:
        # The chain that computes the next value from this one goes with it.
        rw.set_operand(end, i, op.inits[i])
    for i in dead:
        arg = op.carried[i]
        if arg.uses:
            arg.replace_by(op.inits[i])
    remove_carried(op, dead, rw)
    return True


def _needed(arg: Value, end: Operation, position: int) -> bool:
    """Whether a carried argument reaches anything but the value that is yielded in its own place, through pure ops without regions."""
    pending, seen = [arg], {arg}
    while pending:
        for user, i in pending.pop().uses:
            if user is end:
                if i != position:
                    return True
            elif not user.pure or user.regions or user.parent is not end.parent:
                return True
            else:
                for r in user.results:
                    if r not in seen:
                        seen.add(r)
                        pending.append(r)
    return False


def drop_results(op: loop.If, rw: Rewriter) -> bool:
    """Removes unused results of a branch."""
    kept = [i for i, r in enumerate(op.results) if r.uses]
    if len(kept) == len(op.results):
        return False
    for region in op.regions:
        end = region.block.last
        assert isinstance(end, loop.Yield)
        rw.set_operands(end, [[end.operands[i] for i in kept]])
    new = loop.If([op.condition], [op.results[i].type for i in kept], op.attrs, span=op.span)
    used = [op.results[i] for i in kept]
    move_body(op, new)
    rw.insert_before(op, new)
    for old, result in zip(used, new.results):
        rw.replace_value(old, result)
        result.hint = old.hint
    rw.erase(op)
    return True
