"""Whether a value is still needed after a point, over structured control flow."""

from __future__ import annotations

from tilelang.dialects import loop
from tilelang.ir.core import Block, Operation, Value


class Liveness:
    """Numbers the ops of a function once; ops inserted later have no number and are not asked about."""

    def __init__(self, func: Operation) -> None:
        self.order: dict[Operation, int] = {op: i for i, op in enumerate(func.walk())}

    def used_after(self, value: Value, point: Operation, behind: bool = False) -> bool:
        """Whether a use of `value` may run after `point`, in the same life of the value. The use by `point` itself does not count, and neither
        does what an op around `point` reads on entry. behind: after all of `point`, what its regions use not counted."""
        block = value.block
        assert block is not None
        here = point.ancestor_in(block)
        # Out of scope, or the result of an op around the point, which is not there yet.
        if here is None or value.op is here:
            return False
        return any(self._runs_after(user, point, block, behind) for user in value.users)

    def _runs_after(self, user: Operation, point: Operation, block: Block, behind: bool) -> bool:
        there, here = user.ancestor_in(block), point.ancestor_in(block)
        assert there is not None and here is not None
        if there is not here:
            return self.order[there] > self.order[here]
        if user is here:
            return False
        if point is here:
            return not behind
        if isinstance(here, loop.If):
            for region in here.regions:
                inner = region.block
                if point.ancestor_in(inner) is not None:
                    return user.ancestor_in(inner) is not None and self._runs_after(user, point, inner, behind)
        return True  # both in one loop: the next iteration
