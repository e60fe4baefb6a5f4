"""The verifier finds each kind of broken IR, and says which op it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilelang.dialects import arith, func, load_all, loop, mem, vec
from tilelang.ir.core import Block, Module, Operation, Region, Value, VerifyError
from tilelang.ir.parser import parse_module
from tilelang.ir.types import BufferType, PtrType, TileType, f32, f64, index
from tilelang.ir.verify import LEVELS, as_diagnostic, verify, verify_all

load_all()

GOOD = """
builtin.module {level = "mem"} {
  func.func @g(%x: index scalar) {
  }
  func.func @f(%a: buffer<f32[M], global> inout, %n: index scalar) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %s = loop.for %i = %c0 to %n step %c1 carry(%acc = %c0) {
      %t = arith.add %acc, %i : index
      loop.yield %t
    } : index
    func.call @g(%s)
    %m = mem.dim %a {axis = 0} : index
  }
}
"""


def module() -> Module:
    return parse_module(GOOD)


def find(m: Module, name: str) -> Operation:
    return next(op for op in m.walk() if op.name == name)


def test_good_module_passes_at_its_level() -> None:
    assert verify_all(module()) == []
    assert [e.op.name for e in verify_all(module(), "vec")] == ["func.func", "mem.dim"]
    assert "does not exist at level vec" in str(verify_all(module(), "vec")[1])
    assert verify_all(module(), "nowhere")[0].message.startswith("there is no level 'nowhere'")
    assert set(LEVELS) == {"tensor", "tile", "mem", "vec", "ascend"}


def add_too_few(m: Module) -> None:
    add = find(m, "arith.add")
    add.operands[1].uses.pop((add, 1))
    del add.operands[1]


def unknown_attr(m: Module) -> None:
    find(m, "arith.add").attrs["fast"] = True


def wrong_attr(m: Module) -> None:
    find(m, "mem.dim").attrs["axis"] = "0"


def bool_for_int(m: Module) -> None:
    find(m, "mem.dim").attrs["axis"] = True


def missing_attr(m: Module) -> None:
    del find(m, "mem.dim").attrs["axis"]


def use_before_definition(m: Module) -> None:
    op, block = find(m, "loop.for"), find(m, "loop.for").parent
    assert block is not None
    const = block.first
    assert const is not None
    block.insert_before(None, const.detach())
    assert op.operands[0] is const.results[0]
    last = find(m, "mem.dim").next
    assert last is not None
    block.insert_before(None, last.detach())


def use_of_inner_value(m: Module) -> None:
    find(m, "func.call").set_operand(0, find(m, "arith.add").results[0])


def use_of_other_function(m: Module) -> None:
    other = m.body.block.first
    assert other is not None
    find(m, "func.call").set_operand(0, other.regions[0].block.args[0])


def stale_use(m: Module) -> None:
    add = find(m, "arith.add")
    find(m, "mem.dim").results[0].uses[add, 0] = None


def lost_use(m: Module) -> None:
    add = find(m, "arith.add")
    add.operands[0].uses.pop((add, 0))


def detached_user(m: Module) -> None:
    arith.Neg((find(m, "mem.dim").results[0],), (index,))


def early_end(m: Module) -> None:
    block = find(m, "arith.add").parent
    assert block is not None
    block.insert_before(block.first, loop.Yield.of())


def no_end(m: Module) -> None:
    find(m, "loop.yield").erase()


def no_return(m: Module) -> None:
    m.body.block.append(func.Func.of("h", []))


def segments(m: Module) -> None:
    find(m, "loop.for").segments = (1, 1, 2, 0)


def results(m: Module) -> None:
    add = find(m, "arith.add")
    add.results.append(Value(index, add, 1))


def result_owner(m: Module) -> None:
    find(m, "arith.add").results[0].index = 3


def region_count(m: Module) -> None:
    find(m, "loop.for").add_region(Region([Block()]))


def two_blocks(m: Module) -> None:
    find(m, "loop.for").regions[0].add(Block())


def own_rule(m: Module) -> None:
    find(m, "arith.add").results[0].type = f32


def unknown_callee(m: Module) -> None:
    find(m, "func.call").attrs["callee"] = "nobody"


def callee_types(m: Module) -> None:
    block = find(m, "mem.dim").parent
    assert block is not None
    block.insert_before(block.last, func.Call.of("f", [find(m, "mem.dim").results[0]], []))


def same_name(m: Module) -> None:
    find(m, "func.func").attrs["sym_name"] = "f"


def not_a_function(m: Module) -> None:
    m.body.block.append(arith.Constant.of(1, index))


def foreign_type(m: Module) -> None:
    block = find(m, "mem.dim").parent
    assert block is not None
    block.insert_before(block.last, arith.Constant.of(1.0, TileType((4,), f32)))


def broken_links(m: Module) -> None:
    add = find(m, "arith.add")
    assert add.next is not None
    add.next.prev = None


@pytest.mark.parametrize(
    ("fault", "op", "message"),
    [
        (add_too_few, "arith.add", "needs 2 operands (a, b), it has 1"),
        (unknown_attr, "arith.add", "has no attribute 'fast'; it declares none"),
        (wrong_attr, "mem.dim", "attribute 'axis' is '0', expected int"),
        (bool_for_int, "mem.dim", "attribute 'axis' is True, expected int"),
        (missing_attr, "mem.dim", "attribute 'axis' is missing"),
        (use_before_definition, "loop.for", "operand 0 is used where it is not defined"),
        (use_of_inner_value, "func.call", "operand 0 (%t) is used where it is not defined"),
        (use_of_other_function, "func.call", "operand 0 (%x) is used where it is not defined"),
        (stale_use, "arith.add", "is listed as using <Value m: index> as operand 0, and does not"),
        (lost_use, "arith.add", "operand 0 (%acc) does not know of this use"),
        (detached_user, "mem.dim", "has a value <Value m: index> that 'arith.neg' uses, which is not in the program"),
        (early_end, "loop.yield", "ends a block, but 'arith.add' follows it"),
        (no_end, "loop.for", "has a region that does not end in a terminator"),
        (no_return, "func.func", "has a region that does not end in a terminator"),
        (segments, "loop.for", "operand 'step' needs one value, it has 2"),
        (results, "arith.add", "needs 1 results, it has 2"),
        (result_owner, "arith.add", "result 0 is owned by <arith.add> at position 3"),
        (region_count, "loop.for", "needs 1 regions, it has 2"),
        (two_blocks, "loop.for", "every region has one block, this one has 2"),
        (own_rule, "arith.add", "operands and result must have one type"),
        (unknown_callee, "func.call", "calls 'nobody', which is not in the module"),
        (callee_types, "func.call", "passes (index), 'f' takes (buffer<f32[M], global>, index)"),
        (same_name, "func.func", "there are two functions 'f'"),
        (not_a_function, "arith.constant", "stands in a module, which holds only functions"),
        (foreign_type, "arith.constant", "has a result of type tile<f32[4]>, which does not exist at level mem"),
        (broken_links, "loop.yield", "is not linked to the block it stands in"),
    ],
)
def test_faults_are_found(fault: Callable[[Module], None], op: str, message: str) -> None:
    m = module()
    fault(m)
    errors = verify_all(m)
    assert any(e.op.name == op and e.message.startswith(message) for e in errors), errors
    with pytest.raises(VerifyError):
        verify(m)


def test_launch_passes_a_range() -> None:
    m = Module.of(level="vec")
    body = func.Func.of("f_grid0", [("begin", index, "scalar"), ("end", index, "scalar"), ("p", PtrType(f32), "inout")])
    main = func.Func.of("f", [("p", PtrType(f32), "inout"), ("n", index, "scalar")])
    for f in (body, main):
        m.body.block.append(f)
    p, n = main.args
    main.body.block.append(vec.Launch.of("f_grid0", n, [p]))
    for f in (body, main):
        f.body.block.append(func.Return.of())
    assert verify_all(m) == []
    body.args[2].type = PtrType(f64)
    assert [e.op.name for e in verify_all(m)] == ["vec.launch"]


def test_part_of_a_program_may_use_what_is_around_it() -> None:
    m = module()
    verify(find(m, "loop.for"))
    verify(find(m, "arith.add"))
    find(m, "arith.add").set_operand(0, find(m, "mem.dim").results[0])
    assert [e.op.name for e in verify_all(find(m, "loop.for"))] == ["arith.add"]


def test_errors_become_diagnostics() -> None:
    m = module()
    wrong_attr(m)
    diagnostic = as_diagnostic(verify_all(m)[0])
    assert str(diagnostic).startswith("<ir>:13:10: error[ir-rule]: 'mem.dim': attribute 'axis' is '0', expected int")


def test_alloc_without_sizes_is_a_rule_of_the_op() -> None:
    m = module()
    block = find(m, "mem.dim").parent
    assert block is not None
    op = mem.Alloc.of(BufferType((4,), f32, "local"))
    block.insert_before(block.last, op)
    verify(m)
