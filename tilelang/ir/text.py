"""IR as text. Two forms, both read back by tilelang.ir.parser without loss:

pretty (the default): what a person reads. Derived from the declared parts of the op:

    %t = tile.load %a offsets(%i, %k) sizes(%n) {dropped = [0]} : tile<f32[?64, 32]>
    %s = tile.reduce sum %t {axes = [1]} : tile<f32[?64]>
    mem.map ins(%x, %y) outs(%z) {maps = [[0], [0]]} {
      ^(%p: f32, %q: f32):
      ...
    }

  Single operands stand first; a group of operands, and every operand after one, is named: `sizes(...)`. A `kind` or `predicate` is a bare
  word after the name. Attributes with their default are left out, `{grid}` is `{grid = true}`. Types are those of the results. A region's
  arguments stand behind `^`. func.func, func.call, arith.constant and the loops have a form of their own. Ends of regions without values
  (loop.yield, func.return) are left out. An op that does not fit its declaration prints in generic form.

generic: MLIR's, valid for `iree-opt --allow-unregistered-dialect` and `mlir-opt`. Arithmetic that upstream has prints under its name there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from tilelang.ir import upstream
from tilelang.ir.core import Block, Module, Operation, Region, Value
from tilelang.ir.types import Scalar, Type, VectorType, f64

_BARE = re.compile(r"[A-Za-z_][\w$]*\Z")
_NAME = re.compile(r"[A-Za-z_][\w$]*(?:\.[\w$]+)*\Z")
_ESCAPED = re.compile(r'[\x00-\x1f"\\\x7f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_SUFFIX = re.compile(r"_\d+\Z")

# Required string attributes that are printed as a word behind the name of the op.
WORDS = ("predicate", "kind")
# What ends a region of these ops when it gives no values.
IMPLICIT_ENDS = {"func.func": "func.return", "loop.for": "loop.yield", "loop.parallel": "loop.yield", "loop.if": "loop.yield", "loop.while": "loop.yield"}
LABELS = {"orelse": "else"}  # how a second region is introduced; by default its name


def print_op(op: Operation, generic: bool = False, locations: bool = False) -> str:
    """The op and all inside it as text, without a line end. Values from outside get a name too."""
    printer = _Printer(generic, locations)
    printer.op(op, "")
    return "".join(printer.out)


def print_module(module: Operation, generic: bool = False, locations: bool = False) -> str:
    """A whole module as text, ended by a line end."""
    return print_op(module, generic, locations) + "\n"


class Shape:
    """How the operands of an op class are written, worked out once for each class."""

    __slots__ = ("word", "lead", "named", "bare_group")
    _cache: dict[type[Operation], Shape] = {}

    def __init__(self, cls: type[Operation]) -> None:
        info = cls.info
        self.word = next((w for w in WORDS if w in info.attrs and info.attrs[w].required and info.attrs[w].kind is str), None)
        # The only operands are one group: no need to name it.
        self.bare_group = len(info.operands) == 1 and info.operands[0].variadic
        first = next((i for i, o in enumerate(info.operands) if o.variadic), len(info.operands))
        self.lead = info.operands[:first]
        self.named = [] if self.bare_group else info.operands[first:]

    @classmethod
    def of(cls, op: type[Operation]) -> Shape:
        shape = cls._cache.get(op)
        if shape is None:
            shape = cls._cache[op] = Shape(op)
        return shape


def fits_declaration(op: Operation) -> bool:
    """Whether operands and regions are as declared, so that the pretty form can say everything."""
    info = op.info
    if len(op.regions) != len(info.regions) or any(len(r.blocks) != 1 for r in op.regions):
        return False
    if not info.variadics:
        return len(op.operands) == len(info.operands)
    sizes = op.segments
    return (
        sizes is not None
        and len(sizes) == len(info.operands)
        and sum(sizes) == len(op.operands)
        and all((o.variadic and (n < 2 or not o.optional)) or n == 1 for o, n in zip(info.operands, sizes))
    )


def quote(text: str) -> str:
    """A string literal with MLIR's escapes."""
    return '"' + _ESCAPED.sub(lambda m: _ESCAPES.get(m[0]) or f"\\{ord(m[0]):02X}", text) + '"'


def attr_text(value: Any) -> str:
    """An attribute value in the pretty form."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None:
        return "none"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return upstream.float_text(value, f64, shortest=True)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return f"[{', '.join(map(attr_text, items))}]"
    if isinstance(value, Type):
        return value.text
    raise TypeError(f"{value!r} cannot be an attribute")


def mlir_attr(value: Any, inner: bool = False) -> str:
    """An attribute value as MLIR spells it. inner: an element of an array, whose type MLIR leaves out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "unit"
    if isinstance(value, int):
        return f"{value} : ui64" if value >= 1 << 63 else str(value) if inner else f"{value} : i64"
    if isinstance(value, float):
        text = upstream.float_text(value, f64)
        return text if inner and not text.startswith("0x") else f"{text} : f64"
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return f"[{', '.join([mlir_attr(v, True) for v in items])}]"
    if isinstance(value, Type):
        return upstream.type_text(value)
    return attr_text(value)


def constant_name(value: Any, type: Type) -> str:
    """The name a constant gets when it has no other: c32, cm1_i32, true, cst_f32."""
    if value is True or value is False:
        text = "true" if value else "false"
        return text if isinstance(type, Scalar) else f"{text}_v"
    if isinstance(value, int):
        text = f"c{value}" if value >= 0 else f"cm{-value}"
    elif isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        text = f"c{int(value)}" if value >= 0 else f"cm{int(-value)}"
    else:
        text = "cst"
    suffix = f"{type.lanes}x{type.element}" if isinstance(type, VectorType) else type.text if isinstance(type, Scalar) else "tile"
    return text if suffix == "index" else f"{text}_{suffix}"


def _given(op: Operation) -> list[tuple[str, Any]]:
    """The attributes that differ from their default, in the order of declaration, others after them."""
    attrs = op.attrs
    if not attrs:
        return []
    declared = op.info.attrs
    given: list[tuple[str, Any]] = []
    for name, part in declared.items():
        if name in attrs:
            value = attrs[name]
            if part.required or type(value) is not type(part.default) or value != part.default:
                given.append((name, value))
    given += [(name, attrs[name]) for name in sorted(attrs) if name not in declared]
    return given


def _paren(types: Iterable[str]) -> str:
    return f"({', '.join(types)})"


class _Printer:
    def __init__(self, generic: bool, locations: bool) -> None:
        self.generic = generic
        self.locations = locations
        self.out: list[str] = []
        self.new_scope()

    def new_scope(self) -> None:
        """Forgets all names: functions see nothing of each other."""
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.next: dict[str, int] = {}
        self.number = 0

    # -- names

    def fresh(self, value: Value) -> str:
        hint = value.hint
        if not hint and isinstance(value.owner, Operation) and value.owner.name == "arith.constant":
            hint = constant_name(value.owner.attrs.get("value"), value.type)
        if not hint:
            name = f"%{self.number}"
            self.number += 1
        else:
            if not _NAME.match(hint):
                hint = re.sub(r"[^\w$.]+", "_", hint, flags=re.ASCII).strip(".") or "v"
                hint = "_" + hint if hint[0].isdigit() else hint
            if hint in self.taken:
                base = _SUFFIX.sub("", hint) or hint
                n = self.next.get(base, 1)
                while f"{base}_{n}" in self.taken:
                    n += 1
                self.next[base] = n + 1
                hint = f"{base}_{n}"
            self.taken.add(hint)
            name = "%" + hint
        self.names[value] = name
        return name

    def values(self, values: Iterable[Value]) -> str:
        names = self.names
        return ", ".join([names.get(v) or self.fresh(v) for v in values])

    # -- ops

    def op(self, op: Operation, indent: str) -> None:
        if op.name == "func.func" and op.parent_op is not None:
            self.new_scope()
        if op.results:
            self.out.append(f"{self.values(op.results)} = ")
        custom = None if self.generic else _CUSTOM.get(op.name)
        if self.generic:
            self.generic_op(op, indent)
        elif not fits_declaration(op) or (custom is not None and not custom(self, op, indent)):
            self.generic = True
            self.generic_op(op, indent)
            self.generic = False
        elif custom is None:
            self.pretty_op(op, indent)
        if self.locations:
            self.out.append(f" loc({quote(op.span.path)}:{op.span.line}:{op.span.column})" if op.span is not None else " loc(unknown)")

    def attrs(self, op: Operation, hidden: Iterable[str] = ()) -> None:
        """` {name = value, ...}` of the attributes that differ from their default, when there are any."""
        parts = [
            name if value is True and name in op.info.attrs else f"{name} = {attr_text(value)}"
            for name, value in _given(op)
            if name not in hidden
        ]
        if parts:
            self.out.append(f" {{{', '.join(parts)}}}")

    def types(self, op: Operation) -> None:
        if op.results:
            self.out.append(" : " + ", ".join([r.type.text for r in op.results]))

    def pretty_op(self, op: Operation, indent: str) -> None:
        shape = Shape.of(type(op))
        out = self.out
        out.append(op.name)
        hidden: tuple[str, ...] = ()
        if shape.word is not None:
            word = op.attrs.get(shape.word)
            if isinstance(word, str) and _BARE.match(word):
                out.append(f" {word}")
                hidden = (shape.word,)
        if shape.bare_group or not shape.named:
            if op.operands:
                out.append(" " + self.values(op.operands))
        else:
            at = len(shape.lead)
            if at:
                out.append(" " + self.values(op.operands[:at]))
            assert op.segments is not None
            for part, size in zip(shape.named, op.segments[at:]):
                if size:
                    out.append(f" {part.name}({self.values(op.operands[at : at + size])})")
                    at += size
        if op.attrs:
            self.attrs(op, hidden)
        if op.regions:
            self.regions(op, indent)
        self.types(op)

    def regions(self, op: Operation, indent: str) -> None:
        """The regions with their arguments; empty ones at the end are left out."""
        count = len(op.regions)
        while count > (1 if op.name in IMPLICIT_ENDS else 0) and self.is_empty(op, op.regions[count - 1].block):
            count -= 1
        for i in range(count):
            if i:
                name = op.info.regions[i].name
                self.out.append(f" {LABELS.get(name, name)}")
            self.region(op, op.regions[i], indent)

    def is_empty(self, op: Operation, block: Block) -> bool:
        return not block.args and (block.first is None if op.name not in IMPLICIT_ENDS else block.first is not None and self.left_out(op, block.first))

    def left_out(self, parent: Operation, op: Operation) -> bool:
        """Whether the op is an end of region that need not be written."""
        return not self.locations and op.next is None and not op.operands and not op.attrs and op.name == IMPLICIT_ENDS.get(parent.name)

    def region(self, op: Operation, region: Region, indent: str, args: bool = True) -> None:
        inner = indent + "  "
        out = self.out
        out.append(" {\n")
        block = region.block
        if args and block.args:
            out.append(f"{inner}^({', '.join([f'{self.values((a,))}: {a.type.text}' for a in block.args])}):\n")
        child = block.first
        while child is not None:
            if not self.left_out(op, child):
                out.append(inner)
                self.op(child, inner)
                out.append("\n")
            child = child.next
        out.append(indent + "}")

    # -- generic form

    def generic_op(self, op: Operation, indent: str) -> None:
        out = self.out
        name = upstream.upstream_name(op)
        attrs: dict[str, str] = {}
        if name is not None:
            if op.name == "arith.cmp":
                attrs["predicate"] = f"{upstream.predicate_number(op)} : i64"
            elif op.name == "arith.constant":
                attrs["value"] = _constant_text(op)
            attrs.update((k, mlir_attr(v)) for k, v in op.attrs.items() if k not in attrs)
        else:
            # MLIR registers `arith` and `tensor` itself and refuses ops there that it does not know.
            name = f"tl.{op.name}" if op.name.startswith(("arith.", "tensor.")) else op.name
            if op.segments is not None and len(op.info.operands) > 1 and op.info.variadics:
                attrs["operandSegmentSizes"] = f"array<i32: {', '.join(map(str, op.segments))}>"
            for k, v in _given(op):
                # Upstream's module takes only attributes with the prefix of a dialect.
                attrs[f"tl.{k}" if "." not in k and isinstance(op, Module) else k] = mlir_attr(v)
            if op.name == "func.call" and "callee" in attrs:
                attrs["callee"] = "@" + str(op.attrs["callee"])
            elif op.name == "func.func":
                results = attrs.pop("results_", None)
                outs = [upstream.type_text(t) for t in op.attrs["results_"]] if results else []
                ins = [upstream.type_text(a.type) for b in op.regions[:1] for b in b.blocks[:1] for a in b.args]
                attrs["function_type"] = f"{_paren(ins)} -> {_paren(outs)}"
        out.append(f'"{name}"({self.values(op.operands)})')
        for i, region in enumerate(op.regions):
            out.append(" ({\n" if i == 0 else ", {\n")
            for n, block in enumerate(region.blocks):
                if block.args or n:
                    out.append(f"{indent}^bb{n}({', '.join([f'{self.values((a,))}: {upstream.type_text(a.type)}' for a in block.args])}):\n")
                inner = indent + "  "
                for child in block:
                    out.append(inner)
                    self.op(child, inner)
                    out.append("\n")
            out.append(indent + ("})" if i == len(op.regions) - 1 else "}"))
        if attrs:
            out.append(f" {{{', '.join([f'{k} = {v}' for k, v in attrs.items()])}}}")
        ins = _paren(upstream.type_text(v.type) for v in op.operands)
        outs = [upstream.type_text(r.type) for r in op.results]
        out.append(f" : {ins} -> {outs[0] if len(outs) == 1 else _paren(outs)}")


def _constant_text(op: Operation) -> str:
    value, type = op.attrs["value"], op.results[0].type
    element = type.element if isinstance(type, VectorType) else type
    assert isinstance(element, Scalar)
    text = upstream.float_text(value, element) if element.is_float else mlir_attr(value, True)
    if isinstance(type, VectorType):
        return f"dense<{text}> : {upstream.type_text(type)}"
    return text if element.kind == "bool" else f"{text} : {upstream.type_text(type)}"


# -- ops with a form of their own; they return False, and write nothing, when the op needs the generic form


def _func(p: _Printer, op: Operation, indent: str) -> bool:
    block = op.regions[0].block
    roles = op.attrs.get("roles", ())
    name = op.attrs.get("sym_name")
    if not isinstance(name, str) or not _NAME.match(name) or len(roles) not in (0, len(block.args)) or any(not _BARE.match(r) for r in roles):
        return False
    params = [f"{p.values((a,))}: {a.type.text}{f' {roles[i]}' if roles else ''}" for i, a in enumerate(block.args)]
    p.out.append(f"func.func @{name}({', '.join(params)})")
    if op.attrs.get("results_"):
        p.out.append(f" -> {_paren(t.text for t in op.attrs['results_'])}")
    p.attrs(op, ("sym_name", "roles", "results_"))
    p.region(op, op.regions[0], indent, args=False)
    return True


def _call(p: _Printer, op: Operation, indent: str) -> bool:
    callee = op.attrs.get("callee")
    if not isinstance(callee, str) or not _NAME.match(callee):
        return False
    p.out.append(f"func.call @{callee}({p.values(op.operands)})")
    p.attrs(op, ("callee",))
    p.types(op)
    return True


def _constant(p: _Printer, op: Operation, indent: str) -> bool:
    if "value" not in op.attrs:
        return False
    p.out.append(f"arith.constant {attr_text(op.attrs['value'])}")
    p.attrs(op, ("value",))
    p.types(op)
    return True


def _for(p: _Printer, op: Operation, indent: str) -> bool:
    block, inits = op.regions[0].block, op.operands[3:]
    if [a.type.text for a in block.args] != ["index", *(v.type.text for v in inits)]:
        p.pretty_op(op, indent)
        return True
    lower, upper, step = (p.values((v,)) for v in op.operands[:3])
    p.out.append(f"loop.for {p.values(block.args[:1])} = {lower} to {upper} step {step}")
    if inits:
        p.out.append(f" carry({', '.join([f'{p.values((a,))} = {p.values((v,))}' for a, v in zip(block.args[1:], inits)])})")
    p.attrs(op)
    p.region(op, op.regions[0], indent, args=False)
    p.types(op)
    return True


def _parallel(p: _Printer, op: Operation, indent: str) -> bool:
    block = op.regions[0].block
    n = len(block.args)
    if op.segments != (n, n, n) or any(a.type.text != "index" for a in block.args):
        p.pretty_op(op, indent)
        return True
    groups = [f"({p.values(vs)})" for vs in (op.operands[:n], op.operands[n : 2 * n], op.operands[2 * n :])]
    p.out.append(f"loop.parallel ({p.values(block.args)}) = {groups[0]} to {groups[1]} step {groups[2]}")
    p.attrs(op)
    p.region(op, op.regions[0], indent, args=False)
    return True


_CUSTOM = {"func.func": _func, "func.call": _call, "arith.constant": _constant, "loop.for": _for, "loop.parallel": _parallel}
