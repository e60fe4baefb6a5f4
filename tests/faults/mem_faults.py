"""Faults on the way to the mem level and at it."""

from __future__ import annotations

from tests.faults.harness import Fault

FAULTS: tuple[Fault, ...] = (
    # -- bufferize
    Fault(
        "passes/bufferize.py",
        "            if self.place.clobbered(op):\n",
        "            if False:\n",
        "a tile whose memory is overwritten while it is needed is not copied",
        ("exchanged", "shifted"),
    ),
    Fault(
        "passes/buffering/placement.py",
        "if isinstance(user, (tile.Slice, tile.Transpose, tile.Reshape))]",
        "if isinstance(user, (tile.Slice, tile.Reshape))]",
        "memory is overwritten while a transposed view of it is needed",
        ("exchanged",),
    ),
    Fault(
        "passes/buffering/placement.py",
        "if v not in in_place or not views.same_view(self.of[v], target):",
        "if v not in in_place:",
        "an op in place overwrites elements that it reads later",
        ("shifted",),
    ),
    Fault(
        "passes/buffering/placement.py",
        "return any(is_tile(v) and v in self.of and views.root(self.of[v]) is base for v in op.operands)",
        "return False",
        "a result is written into its final place while the old contents are read",
        ("shifted",),
    ),
    Fault(
        "passes/buffering/placement.py",
        "return not storage.external and not any(self.live.used_after(v, point, behind) for v in storage.members)",
        "return not storage.external",
        "memory is reused while a value in it is needed",
        ("branches", "lives"),
    ),
    Fault(
        "passes/buffering/control.py",
        "if b.place.storage[value] in targets:",
        "if False:",
        "carried tiles that change places overwrite each other",
        ("carried",),
    ),
    Fault(
        "passes/buffering/control.py",
        "if stable and storage not in taken and b.place.is_free(storage, op):\n        storage.buffer.hint",
        "if stable and b.place.is_free(storage, op):\n        storage.buffer.hint",
        "two carried tiles share the memory of one initial value",
        ("twins",),
    ),
    Fault(
        "passes/buffering/control.py",
        "b.place.is_free(storage, op, behind=True):",
        "not storage.external:",
        "the result of an if overwrites a value that is needed behind it",
        ("branches",),
    ),
    Fault(
        "passes/buffering/liveness.py",
        "        return True  # both in one loop: the next iteration\n",
        "        return self.order[user] > self.order[point]\n",
        "what the next iteration reads counts as dead",
        ("carried", "loop_values", "lives"),
    ),
    Fault(
        "passes/buffering/extents.py",
        "value, axis = op.x, [i for i in range(len(shape_of(op.x.type))) if i not in gone][axis]",
        "value = op.x",
        "the extent of a reduced tile comes from the reduced axis",
        ("clusters", "integer_reductions"),
    ),
    Fault(
        "passes/buffering/views.py",
        "strides.append(stride * step if isinstance(stride, int) else stride if step == 1 else DYN)",
        "strides.append(stride if isinstance(stride, int) or step == 1 else DYN)",
        "the type of a strided view has the stride of its source",
        ("spread",),
    ),
    # -- microkernel
    Fault(
        "passes/microkernel.py",
        "size if whole else self.b.min(size, self.b.sub(extent, it.iv)), size",
        "size, size",
        "the last block over K is not clipped",
        ("long_product",),
    ),
    Fault(
        "passes/microkernel.py",
        "            if m > full:\n",
        "            if m > full + 1:\n",
        "a single row that is left over is not computed",
        ("rows_of_seven",),
    ),
    Fault(
        "passes/microkernel.py",
        "if prologue is None and element_of(source.type) is self.element:",
        "if element_of(source.type) is self.element:",
        "the prologue is forgotten where no conversion is needed",
        ("scaled_product",),
    ),
    Fault(
        "passes/microkernel.py",
        "        if isinstance(n, int):\n            panel(full, b.sub(n, full))\n",
        "        if isinstance(n, int):\n            panel(0, b.sub(n, full))\n",
        "the columns that are left over are written to the first ones",
        ("rows_of_seven",),
    ),
    Fault(
        "passes/microkernel.py",
        "        if (hint, type) not in self.packs:\n",
        "        hint = ''\n        if (hint, type) not in self.packs:\n",
        "packed operands of one type share their memory",
        ("halves",),
    ),
    # -- parallelize
    Fault(
        "passes/parallelize.py",
        "number = rest if axis == 0 else inner.mod(rest, trips[axis])",
        "number = rest if axis == 0 else inner.mod(rest, trips[axis - 1])",
        "the number of a block is divided by the count of the wrong axis",
        ("doubles", "integers"),
    ),
    Fault(
        "passes/buffering/index.py",
        "return self.floordiv(self.add(a, self.sub(b, self(1))), b)",
        "return self.floordiv(a, b)",
        "the last, ragged block is not run",
        ("integers",),
    ),
    Fault(
        "passes/parallelize.py",
        "(load.place != store.place or not _before(load.op, store.op)):",
        "load.place != store.place:",
        "an element loop loads before it stores, whatever the order was",
        ("element_order",),
    ),
    Fault(
        "passes/parallelize.py",
        "else tuple(a.run.index(i) if i in a.run else -1 for i in range(len(op.ivs))))",
        "else tuple(i if i in a.run else -1 for i in range(len(op.ivs))))",
        "a load with its indices in another order is not turned",
        ("element_loops",),
    ),
    # -- plan-memory
    Fault(
        "passes/plan_memory.py",
        "free += [owner for end, owner in active if end < first]",
        "free += [owner for end, owner in active if end <= first]",
        "a buffer shares memory with one that its first op still reads",
        ("lives", "lives_by_columns"),
    ),
    Fault(
        "passes/plan_memory.py",
        "alloc.name_ or any(views.root(v) is alloc.out for v in views.read(uses[0]))):",
        "any(views.root(v) is alloc.out for v in views.read(uses[0]))):",
        "a buffer of which an iteration writes a part lives for one iteration only",
        ("filled_slowly",),
    ),
    Fault(
        "passes/plan_memory.py",
        "return order[ends[0]], max(order[inner_op] for inner_op in ends[-1].walk())",
        "return order[ends[0]], order[ends[-1]]",
        "a life ends where the loop begins in which the memory is last used",
        ("lives", "loop_values"),
    ),
    Fault(
        "passes/plan_memory.py",
        "        free.remove(owner)\n",
        "",
        "free memory is given away twice",
        ("lives",),
    ),
)
