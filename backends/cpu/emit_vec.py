"""vec to LLVM IR: loads, stores, gathers, atomics, lanes, reductions and dot products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilelang.backends.cpu.emit_arith import binary, number
from tilelang.backends.cpu.spelling import constant_text, lanes_of, scalar_type, splat, suffix, type_text
from tilelang.dialects import arith, vec
from tilelang.ir.core import Operation, Value, VerifyError
from tilelang.ir.types import Type, VectorType, bf16, bool_, element_of, f32

if TYPE_CHECKING:
    from tilelang.backends.cpu.emit import FunctionEmitter

_KINDS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def _address(e: FunctionEmitter, ptr: Value, offset: Value) -> str:
    if arith.constant_value(offset) == 0:
        return e.ref(ptr)
    return e.emit(f"getelementptr {scalar_type(element_of(ptr.type), memory=True)}, {e.typed(ptr)}, {e.typed(offset)}")


def _addresses(e: FunctionEmitter, ptr: Value, offsets: Value) -> str:
    return e.emit(f"getelementptr {scalar_type(element_of(ptr.type), memory=True)}, {e.typed(ptr)}, {e.typed(offsets)}")


def _from_memory(e: FunctionEmitter, x: str, type: Type, hint: str | None) -> str:
    """A value as read: any byte but 0 is true."""
    if element_of(type) is not bool_:
        return x
    return e.emit(f"icmp ne {type_text(type, memory=True)} {x}, {splat(lanes_of(type), 'i8', '0')}", hint)


def _to_memory(e: FunctionEmitter, value: Value) -> str:
    """A value with its type, as it is written."""
    if element_of(value.type) is not bool_:
        return e.typed(value)
    memory = type_text(value.type, memory=True)
    return f"{memory} {e.emit(f'zext {e.typed(value)} to {memory}')}"


def _all(lanes: int) -> str:
    return splat(lanes, "i1", "true")


def _load(e: FunctionEmitter, op: vec.Load) -> None:
    memory, align = type_text(op.out.type, memory=True), element_of(op.ptr.type).bytes
    address, hint = _address(e, op.ptr, op.offset), op.out.hint
    if op.mask is None:
        read = e.emit(f"load {memory}, ptr {address}, align {align}", hint)
    else:
        args = [("ptr", address), ("i32", str(align)), (type_text(op.mask.type), e.ref(op.mask)), (memory, "zeroinitializer")]
        read = e.call(memory, f"llvm.masked.load.{suffix(memory)}.p0", args, hint)
    e.names[op.out] = _from_memory(e, read, op.out.type, hint)


def _store(e: FunctionEmitter, op: vec.Store) -> None:
    align = element_of(op.ptr.type).bytes
    value, address = _to_memory(e, op.value), _address(e, op.ptr, op.offset)
    if op.mask is None:
        e.line(f"store {value}, ptr {address}, align {align}")
        return
    memory = type_text(op.value.type, memory=True)
    args = [(memory, value.removeprefix(memory + " ")), ("ptr", address), ("i32", str(align)), (type_text(op.mask.type), e.ref(op.mask))]
    e.call("void", f"llvm.masked.store.{suffix(memory)}.p0", args)


def _gather(e: FunctionEmitter, op: vec.Gather) -> None:
    lanes, memory = lanes_of(op.out.type), type_text(op.out.type, memory=True)
    mask = e.ref(op.mask) if op.mask is not None else _all(lanes)
    args = [(f"<{lanes} x ptr>", _addresses(e, op.ptr, op.offsets)), ("i32", str(element_of(op.ptr.type).bytes))]
    args += [(f"<{lanes} x i1>", mask), (memory, "zeroinitializer")]
    read = e.call(memory, f"llvm.masked.gather.{suffix(memory)}.v{lanes}p0", args, op.out.hint)
    e.names[op.out] = _from_memory(e, read, op.out.type, op.out.hint)


def _scatter(e: FunctionEmitter, op: vec.Scatter) -> None:
    # LLVM writes overlapping lanes in order too.
    lanes, memory = lanes_of(op.value.type), type_text(op.value.type, memory=True)
    mask = e.ref(op.mask) if op.mask is not None else _all(lanes)
    value = _to_memory(e, op.value).removeprefix(memory + " ")
    args = [(memory, value), (f"<{lanes} x ptr>", _addresses(e, op.ptr, op.offsets)), ("i32", str(element_of(op.ptr.type).bytes))]
    e.call("void", f"llvm.masked.scatter.{suffix(memory)}.v{lanes}p0", [*args, (f"<{lanes} x i1>", mask)])


def _atomic(e: FunctionEmitter, op: vec.AtomicRmw) -> None:
    element, address = element_of(op.ptr.type), _address(e, op.ptr, op.offset)
    if element.is_integer:
        action = "add" if op.kind == "add" else op.kind if element.is_signed else f"u{op.kind}"
        e.emit(f"atomicrmw {action} ptr {address}, {e.typed(op.value)} monotonic, align {element.bytes}")
        return
    # Floats (and bools) by compare and exchange of their bits.
    bits, text = f"i{element.bytes * 8}", scalar_type(element)
    entered, head, done = e.block, e.fresh("retry"), e.fresh("updated")
    first = e.emit(f"load atomic {bits}, ptr {address} monotonic, align {element.bytes}")
    e.line(f"br label %{head}")
    e.start(head)
    seen = f"%{e.fresh('seen')}"
    place = len(e.lines)
    old = _from_memory(e, seen, element, None) if element is bool_ else seen if text == bits else e.emit(f"bitcast {bits} {seen} to {text}")
    new = binary(e, op.kind, element, old, e.ref(op.value))
    raw = e.emit(f"zext i1 {new} to i8") if element is bool_ else new if text == bits else e.emit(f"bitcast {text} {new} to {bits}")
    pair = e.emit(f"cmpxchg ptr {address}, {bits} {seen}, {bits} {raw} monotonic monotonic, align {element.bytes}")
    found = e.emit(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
    e.lines.insert(place, f"  {seen} = phi {bits} [ {first}, %{entered} ], [ {found}, %{e.block} ]")
    won = e.emit(f"extractvalue {{ {bits}, i1 }} {pair}, 1")
    e.line(f"br i1 {won}, label %{done}, label %{head}")
    e.start(done)


def splat_of(e: FunctionEmitter, x: str, element: str, lanes: int, hint: str | None = None) -> str:
    one = e.emit(f"insertelement <{lanes} x {element}> poison, {element} {x}, i32 0")
    return e.emit(f"shufflevector <{lanes} x {element}> {one}, <{lanes} x {element}> poison, <{lanes} x i32> zeroinitializer", hint)


def _splat(e: FunctionEmitter, op: vec.Splat) -> None:
    lanes, element = lanes_of(op.out.type), scalar_type(element_of(op.out.type))
    if isinstance(op.x.op, arith.Constant):
        e.names[op.out] = splat(lanes, element, e.ref(op.x))
    else:
        e.names[op.out] = splat_of(e, e.ref(op.x), element, lanes, op.out.hint)


def _numbers(element: str, values: list[int]) -> str:
    return f"<{', '.join(f'{element} {v}' for v in values)}>"


def _iota(e: FunctionEmitter, op: vec.Iota) -> None:
    element, lanes = element_of(op.out.type), list(range(lanes_of(op.out.type)))
    if element.is_float:
        e.names[op.out] = f"<{', '.join(f'{scalar_type(element)} {constant_text(v, element)}' for v in lanes)}>"
    else:
        e.names[op.out] = _numbers(scalar_type(element), lanes)


def _mask(e: FunctionEmitter, op: vec.Mask) -> None:
    lanes = lanes_of(op.out.type)
    count = arith.constant_value(op.count)
    if isinstance(count, int):
        e.names[op.out] = f"<{', '.join('i1 true' if i < count else 'i1 false' for i in range(lanes))}>"
        return
    # Clamped, the count fits the narrow lanes that compare fast.
    clamped = e.intrinsic("smin", "i64", e.intrinsic("smax", "i64", e.ref(op.count), "0"), str(lanes))
    width = "i8" if lanes > 16 else "i32"
    limit = splat_of(e, e.emit(f"trunc i64 {clamped} to {width}"), width, lanes)
    e.define(op.out, f"icmp slt <{lanes} x {width}> {_numbers(width, list(range(lanes)))}, {limit}")


def _extract(e: FunctionEmitter, op: vec.Extract) -> None:
    e.define(op.out, f"extractelement {e.typed(op.x)}, i32 {op.lane}")


def _insert(e: FunctionEmitter, op: vec.Insert) -> None:
    e.define(op.out, f"insertelement {e.typed(op.x)}, {e.typed(op.value)}, i32 {op.lane}")


def _shuffle(e: FunctionEmitter, op: vec.Shuffle) -> None:
    e.define(op.out, f"shufflevector {e.typed(op.a)}, {e.typed(op.b)}, <{len(op.lanes)} x i32> {_numbers('i32', list(op.lanes))}")


def _reduce(e: FunctionEmitter, op: vec.Reduce) -> None:
    type = op.x.type
    assert isinstance(type, VectorType)
    element, lanes, x = type.element, type.lanes, e.ref(op.x)
    if op.kind in ("any", "all"):
        if element is not bool_:
            raise VerifyError(op, f"reduces {type}, only bool lanes have any and all")
        bits = e.emit(f"bitcast <{lanes} x i1> {x} to i{lanes}")
        e.define(op.out, f"icmp ne i{lanes} {bits}, 0" if op.kind == "any" else f"icmp eq i{lanes} {bits}, -1")
        return
    if lanes & lanes - 1:
        raise VerifyError(op, f"{lanes} lanes do not halve")
    name, text = _KINDS[op.kind], scalar_type(element)
    while lanes > 1:
        lanes //= 2
        halves = [
            e.emit(f"shufflevector <{2 * lanes} x {text}> {x}, <{2 * lanes} x {text}> poison, <{lanes} x i32> {_numbers('i32', list(part))}")
            for part in (range(lanes), range(lanes, 2 * lanes))
        ]
        x = binary(e, name, VectorType(lanes, element), *halves)
    e.define(op.out, f"extractelement <1 x {text}> {x}, i32 0")


def _dot(e: FunctionEmitter, op: vec.Dot) -> None:
    a, acc = op.a.type, op.acc.type
    assert isinstance(a, VectorType) and isinstance(acc, VectorType) and isinstance(op.b.type, VectorType)
    group = a.lanes // acc.lanes
    native = _native_dot(e, op, a, acc)
    if native is not None:
        e.names[op.out] = native
        return
    sums, width = e.ref(op.acc), element_of(acc).bits // group
    if element_of(a) is bf16 and acc.element is f32 and group == 2:
        parts = [[_pair(e, v, acc.lanes, g) for g in range(2)] for v in (op.a, op.b)]
    elif acc.element.is_integer and element_of(a).bits == element_of(op.b.type).bits == width:
        parts = [[_field(e, v, acc, width, g) for g in range(group)] for v in (op.a, op.b)]
    else:
        raise VerifyError(op, f"multiplies {a} by {op.b.type} into {acc}: neither pairs of bf16 nor groups of integers")
    for x, y in zip(*parts):
        if acc.element.is_float:
            sums = multiply_add(e, type_text(acc), x, y, sums)
        else:
            sums = e.emit(f"add {type_text(acc)} {sums}, {e.emit(f'mul {type_text(acc)} {x}, {y}')}")
    e.names[op.out] = sums


def _native_dot(e: FunctionEmitter, op: vec.Dot, a: VectorType, acc: VectorType) -> str | None:
    isa, bits = e.target.isa, acc.lanes * 32
    if not e.target.triple.startswith("x86_64") or bits not in (128, 256, 512) or acc.element.bits != 32:
        return None
    types, text = [type_text(v.type) for v in (op.a, op.b)], type_text(acc)
    if a.element is bf16 and "avx512bf16" in isa and ("avx512vl" in isa or bits == 512):
        as_bf16 = [e.emit(f"bitcast {t} {e.ref(v)} to <{a.lanes} x bfloat>") for t, v in zip(types, (op.a, op.b))]
        args = [(text, e.ref(op.acc)), *((f"<{a.lanes} x bfloat>", x) for x in as_bf16)]
        return e.call(text, f"llvm.x86.avx512bf16.dpbf16ps.{bits}", args, op.out.hint)
    signs = (a.element.name, element_of(op.b.type).name)
    vnni = ("avx512vnni" in isa and ("avx512vl" in isa or bits == 512)) or ("avxvnni" in isa and bits < 512)
    if signs == ("u8", "i8") and vnni:
        args = [(text, e.ref(op.acc)), (types[0], e.ref(op.a)), (types[1], e.ref(op.b))]
        return e.call(text, f"llvm.x86.avx512.vpdpbusd.{bits}", args, op.out.hint)
    return None


def multiply_add(e: FunctionEmitter, text: str, a: str, b: str, c: str) -> str:
    """a * b + c, in one instruction where the target has it: for sums whose rounding is free."""
    if "fma" in e.target.isa or not e.target.triple.startswith("x86_64"):
        return e.intrinsic("fma", text, a, b, c)
    return e.emit(f"fadd {text} {e.emit(f'fmul {text} {a}, {b}')}, {c}")


def _pair(e: FunctionEmitter, value: Value, lanes: int, which: int) -> str:
    """Every second bf16 as f32: its bits are the upper half of the f32's."""
    whole = e.emit(f"bitcast {e.typed(value)} to <{lanes} x i32>")
    upper = f"and <{lanes} x i32> {whole}, splat (i32 -65536)" if which else f"shl <{lanes} x i32> {whole}, splat (i32 16)"
    return e.emit(f"bitcast <{lanes} x i32> {e.emit(upper)} to <{lanes} x float>")


def _field(e: FunctionEmitter, value: Value, acc: VectorType, width: int, which: int) -> str:
    """Every G-th small integer, from position `which`, extended to acc's type."""
    text, bits = type_text(acc), acc.element.bits
    whole = e.emit(f"bitcast {e.typed(value)} to {text}")
    left = bits - width * (which + 1)
    moved = e.emit(f"shl {text} {whole}, {number(acc, left)}") if left else whole
    return e.emit(f"{'ashr' if element_of(value.type).is_signed else 'lshr'} {text} {moved}, {number(acc, bits - width)}")


def _prefetch(e: FunctionEmitter, op: vec.Prefetch) -> None:
    args = [("ptr", _address(e, op.ptr, op.offset)), ("i32", "0"), ("i32", str(op.locality)), ("i32", "1")]
    e.call("void", "llvm.prefetch.p0", args)


HANDLERS: dict[type[Operation], Callable[[FunctionEmitter, Any], None]] = {
    vec.Load: _load, vec.Store: _store, vec.Gather: _gather, vec.Scatter: _scatter, vec.AtomicRmw: _atomic, vec.Splat: _splat, vec.Iota: _iota,
    vec.Mask: _mask, vec.Extract: _extract, vec.Insert: _insert, vec.Shuffle: _shuffle, vec.Reduce: _reduce, vec.Dot: _dot, vec.Prefetch: _prefetch,
}  # fmt: skip
