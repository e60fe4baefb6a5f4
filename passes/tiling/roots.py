"""Which tensors of a function must be in memory."""

from __future__ import annotations

from tilelang.dialects import arith, func, loop, tensor
from tilelang.ir.core import Block, Operation, Value
from tilelang.ir.types import TensorType, shape_of
from tilelang.passes.tiling.tiles import is_heavy

_CONTROL = (loop.For, loop.If, loop.While)
_VIEWS = (tensor.Transpose, tensor.Slice)
# Cheap enough to be made wherever they are needed.
_CHEAP = (tensor.Fill, tensor.Iota, tensor.Broadcast, tensor.Reshape, arith.Constant, *_VIEWS)


def find_roots(block: Block) -> set[Value]:
    """Tensors that get a buffer, and so a grid of their own. Works backwards: a value belongs to the groups of its users, where a group is what
    one grid computes; a value of several groups, unless it costs nothing, is a root itself."""
    roots: set[Value] = set()
    groups: dict[Value, set[Value]] = {}
    hosts: set[Value] = set()  # roots that compute a matmul
    for op in reversed(block):
        if isinstance(op, _CONTROL):
            continue  # what it gives is in memory
        for value in op.results:
            if not isinstance(value.type, TensorType) or not value.uses:
                continue
            found: set[Value] = set()
            stored = False
            for user, i in value.uses:
                if user.parent is not block:
                    stored = stored or not isinstance(op, _CHEAP)
                    continue
                stored = stored or isinstance(user, (func.Return, loop.Yield, loop.Condition, *_CONTROL)) or _needs_memory(value, user, i)
                for r in user.results:
                    found |= {r} if r in roots else groups.get(r, set())
            if not stored and isinstance(op, tensor.Matmul):
                host = next(iter(found)) if len(found) == 1 else None
                stored = host is None or host in hosts or not _reaches(value, host)
                if not stored and host is not None:
                    hosts.add(host)
            elif is_heavy(op) or (len(found) > 1 and not isinstance(op, _CHEAP)):
                stored = True
            if stored:
                roots.add(value)
            else:
                groups[value] = found
    return roots


def _needs_memory(value: Value, user: Operation, i: int) -> bool:
    """Whether a user reads the value more than once or as a whole. Operands of matmul may still be views of what is in memory."""
    if isinstance(user, tensor.Matmul):
        return i < 2 and not isinstance(value.op, _CHEAP)
    if isinstance(user, _VIEWS):
        return not isinstance(value.op, _CHEAP) and any(_needs_memory(user.results[0], u, j) or isinstance(u, tensor.Matmul) for u, j in user.results[0].uses)
    return isinstance(user, tensor.Reshape) and is_heavy(user)


def _reaches(value: Value, host: Value) -> bool:
    """Whether `host` is computed from `value` by elementwise ops of its shape alone."""
    return all(
        isinstance(user, arith.ELEMENTWISE)
        and shape_of(user.results[0].type) == shape_of(value.type)
        and (user.results[0] is host or _reaches(user.results[0], host))
        for user in value.users
    )
