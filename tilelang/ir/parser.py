"""The parser of IR text: recursive descent over a list of tokens, reading the pretty and the generic form, op by op (see tilelang.ir.text)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tilelang import dialects
from tilelang.diagnostics import Source, Span, nearest
from tilelang.ir import upstream
from tilelang.ir.core import Block, Dialect, Module, Operation, Region, Value
from tilelang.ir.lexer import TYPES, Cursor, parse_type, unquote
from tilelang.ir.text import IMPLICIT_ENDS, LABELS, Shape, constant_name
from tilelang.ir.types import Scalar, Type, f64

_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][-+]?\d+)?\Z")
_AUTOMATIC = re.compile(r"%\d+\Z")


def parse_module(text: str, path: str = "<ir>") -> Module:
    """The module that IR text describes: a builtin.module, or bare functions. Ops without loc(...) get the place in this text as their span.
    Raises TileError (ir-syntax) that says where, what was found and what was expected."""
    return _Parser(Source(path, text)).module()


class _Parser(Cursor):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.values: dict[str, Value] = {}
        self.scopes: list[list[str]] = [[]]

    # -- values and types

    def value(self, what: str = "a value like '%x'") -> Value:
        found = self.tokens[self.pos]
        value = self.values.get(found)
        if value is None:
            if found[:1] != "%":
                self.unexpected(what)
            near = nearest(found, self.values)
            self.fail(f"'{found}' is not defined here", help=f"did you mean '{near}'?" if near else None)
        self.pos += 1
        return value

    def value_list(self, end: str = "") -> list[Value]:
        """Values with commas between; up to `end`, or, without one, as long as commas follow."""
        values: list[Value] = []
        if end and self.accept(end):
            return values
        while True:
            values.append(self.value())
            if self.tokens[self.pos] == ",":
                self.pos += 1
            elif end and not self.accept(end):
                self.unexpected(f"',' or '{end}'")
            else:
                return values

    def define(self, at: int, value: Value, name: str = "") -> None:
        name = name or self.tokens[at]
        if name in self.values:
            self.fail(f"'{name}' is already defined", at)
        if not _AUTOMATIC.match(name):
            value.hint = name[1:]
        self.values[name] = value
        self.scopes[-1].append(name)

    def name(self) -> int:
        """Skips a value name that is about to be defined; its position."""
        if self.tokens[self.pos][:1] != "%":
            self.unexpected("a value name like '%x'")
        self.pos += 1
        return self.pos - 1

    def type(self) -> Type:
        text = self.tokens[self.pos]
        found = TYPES.get(text)
        if found is None:
            if not text or text[0] not in "!tbvp" or (text[-1] != ">" and text[0] != "!"):
                self.unexpected("a type")
            try:
                found = parse_type(text)
            except ValueError as e:
                self.fail(str(e))
        self.pos += 1
        return found

    def type_list(self) -> list[Type]:
        """`(type, ...)`."""
        self.take("(")
        types: list[Type] = []
        if self.accept(")"):
            return types
        while True:
            types.append(self.type())
            if self.accept(")"):
                return types
            self.take(",")

    # -- attributes

    def attribute(self, typed: bool = True) -> Any:
        """A value of any kind. typed: a number may be followed by its type."""
        text = self.tokens[self.pos]
        first = text[:1]
        if first == '"':
            self.pos += 1
            return unquote(text)
        if first == "[":
            self.pos += 1
            items: list[Any] = []
            while not self.accept("]"):
                if items:
                    self.take(",")
                items.append(self.attribute())
            return tuple(items)
        if text in _LITERALS and self.tokens[self.pos + 1] != "<":
            self.pos += 1
            return _LITERALS[text]
        if first.isdigit() or (first == "-" and len(text) > 1):
            self.pos += 1
            return self.number(text, typed)
        if text == "dense":
            self.pos += 1
            self.take("<")
            self.pos += 1
            word = self.tokens[self.pos - 1]
            value = _LITERALS[word] if word in _LITERALS else self.number(word, typed=False)
            self.take(">")
            self.take(":")
            element = getattr(self.type(), "element", f64)
            return upstream.float_of_bits(value, element) if element.is_float and isinstance(value, int) else value
        if text == "array" and self.tokens[self.pos + 1] == "<":
            self.pos += 3
            numbers: list[int] = []
            while self.tokens[self.pos] in (":", ","):
                self.pos += 1
                numbers.append(self.integer("a number"))
            self.take(">")
            return tuple(numbers)
        if first == "@":
            return self.symbol()
        if first == "(":
            ins = self.type_list()
            self.take("->")
            return tuple(ins), tuple(self.type_list() if self.tokens[self.pos] == "(" else [self.type()])
        if first == "#":
            self.pos += 1
            return text
        if text in TYPES or first == "!" or text.endswith(">"):
            return self.type()
        self.unexpected("an attribute value")

    def number(self, text: str, typed: bool) -> Any:
        """The number of a literal, with the type that may follow (`3 : i64`)."""
        is_hex = text.startswith("0x")
        m = _NUMBER.match(text)
        if m is None and not is_hex and text not in ("-inf", "-nan"):
            self.fail(f"expected a number, found {text!r}", self.pos - 1)
        value: Any = int(text, 16) if is_hex else float(text) if m is None or m[1] or m[2] else int(text)
        if typed and self.accept(":"):
            type = self.type()
            if isinstance(type, Scalar) and type.is_float:
                return upstream.float_of_bits(value, type) if is_hex else float(value)
        return value

    def attr_dict(self, attrs: dict[str, Any], end: str = "}") -> None:
        """`name = value, flag, ...` up to `end`."""
        while not self.accept(end):
            if attrs and self.tokens[self.pos - 1] not in ("{", "<"):
                self.take(",")
            at = self.pos
            text = self.tokens[at]
            name = unquote(text) if text[:1] == '"' else self.word("an attribute name")
            self.pos = at + 1
            if name in attrs:
                self.fail(f"attribute '{name}' is given twice", at)
            attrs[name] = self.attribute() if self.accept("=") else True

    def at_attr_dict(self) -> bool:
        """Whether the `{` here opens attributes, not a region."""
        first, second = self.tokens[self.pos + 1], self.tokens[self.pos + 2]
        return (first[:1].isalpha() or first[:1] in "_") and first != "" and (second in ("=", ",") or (second == "}" and "." not in first))

    # -- structure

    def module(self) -> Module:
        ops: list[Operation] = []
        while self.tokens[self.pos]:
            ops.append(self.op(None))
        if len(ops) == 1 and isinstance(ops[0], Module):
            return ops[0]
        return Module.of(ops)

    def region(self, parent: str, block: Block | None = None) -> Region:
        """`{ ops }`, with the arguments in front unless `block` has them already. Names defined inside end with it."""
        outer = self.scope() if block is None else None
        self.take("{")
        block = Block() if block is None else block
        if self.tokens[self.pos].startswith("^"):
            self.block_args(block)
        while not self.accept("}"):
            if not self.tokens[self.pos]:
                self.unexpected("'}'")
            if self.tokens[self.pos].startswith("^"):
                self.fail("a region has one block")
            block.append(self.op(parent))
        end = IMPLICIT_ENDS.get(parent)
        if end is not None and block.terminator is None:
            start = self.starts[self.pos - 1]
            block.append(self.op_class(end, self.pos - 1)(span=Span(self.source, start, start + 1)))
        if outer is not None:
            self.leave()
        return Region([block])

    def scope(self) -> list[str]:
        self.scopes.append([])
        return self.scopes[-1]

    def leave(self) -> None:
        for name in self.scopes.pop():
            del self.values[name]

    def block_args(self, block: Block) -> None:
        """`^bb0(%x: f32, ...):`; the label is optional."""
        self.pos += 1
        if self.accept("("):
            while not self.accept(")"):
                if block.args:
                    self.take(",")
                at = self.name()
                self.take(":")
                self.define(at, block.add_arg(self.type()))
                if self.tokens[self.pos] == "loc":
                    self.location()  # mlir-opt writes one here; our arguments have none
        self.take(":")

    def op(self, parent: str | None) -> Operation:
        start = self.pos
        names: list[tuple[int, int]] = []  # position of a result's name, how many it stands for
        if self.tokens[start][:1] == "%":
            while True:
                at = self.name()
                names.append((at, self.integer("a number of results") if self.accept(":") else 1))
                if not self.accept(","):
                    break
            self.take("=")
        at = self.pos
        text = self.tokens[at]
        if text[:1] == '"':
            op = self.generic(at, unquote(text))
        else:
            self.word("an operation")
            cls = self.op_class(text, at)
            special = _SPECIAL.get(text)
            op = special(self, cls, at) if special is not None else self.pretty(cls, at)
        if self.tokens[self.pos] == "loc":
            op.span = self.location()
        elif op.span is None:
            begin = self.starts[at]
            op.span = Span(self.source, begin, begin + len(text))
        if names:
            total = sum(n for _, n in names)
            if total != len(op.results):
                self.fail(f"'{op.name}' has {len(op.results)} results, {total} {'is' if total == 1 else 'are'} named", start)
            results = iter(op.results)
            for name_at, n in names:
                if n == 1 and len(names) == total:
                    self.define(name_at, next(results))
                else:
                    for i in range(n):
                        self.define(name_at, next(results), f"{self.tokens[name_at]}#{i}")
            if op.name == "arith.constant":
                # The name a constant has by itself is no hint: it would lie when the constant changes.
                value = op.results[0]
                if value.hint and value.hint.startswith(constant_name(op.attrs.get("value"), value.type)):
                    value.hint = None
        elif op.results:
            # The printer names every result; text written by hand need not.
            for r in op.results:
                r.hint = None
        return op

    def op_class(self, name: str, at: int) -> type[Operation]:
        cls = Dialect.ops.get(name)
        if cls is None:
            dialect = name.partition(".")[0]
            dialects.load(dialect)
            cls = Dialect.ops.get(name)
            if cls is None:
                dialects.load_all()
                near = nearest(name, Dialect.ops)
                self.fail(f"there is no operation '{name}'", at, help=f"did you mean '{near}'?" if near else None)
        return cls

    def location(self) -> Span | None:
        """`loc("file":line:column)` or `loc(unknown)`."""
        self.pos += 1
        self.take("(")
        if self.accept("unknown"):
            self.take(")")
            return None
        text = self.tokens[self.pos]
        if text[:1] != '"':
            self.unexpected("a location: \"file\":line:column")
        self.pos += 1
        self.take(":")
        line = self.integer("a line number")
        self.take(":")
        column = self.integer("a column number")
        self.take(")")
        return Span.at(unquote(text), line, column)

    # -- pretty form

    def pretty(self, cls: type[Operation], at: int) -> Operation:
        shape = Shape.of(cls)
        tokens = self.tokens
        attrs: dict[str, Any] = {}
        if shape.word is not None and tokens[self.pos][:1].isalpha() and tokens[self.pos + 1] != "(":
            attrs[shape.word] = self.word(f"the {shape.word}")
        operands: list[Value] = []
        segments: list[int] | None = None
        if shape.bare_group:
            if tokens[self.pos][:1] == "%":
                operands = self.value_list()
            segments = [len(operands)]
        else:
            for i, part in enumerate(shape.lead):
                if i:
                    if tokens[self.pos] != ",":
                        self.unexpected(f"',' and then operand '{part.name}'")
                    self.pos += 1
                operands.append(self.value(f"operand '{part.name}' of '{cls.name}'"))
            if shape.named:
                segments = [1] * len(shape.lead) + self.groups(cls, shape, operands)
        return self.rest(cls, operands, segments, attrs)

    def groups(self, cls: type[Operation], shape: Shape, operands: list[Value]) -> list[int]:
        """The named operands `offsets(%i, %j) pad(%z)`; how many each has."""
        sizes: list[int] = []
        for part in shape.named:
            if self.tokens[self.pos] == part.name and self.tokens[self.pos + 1] == "(":
                at = self.pos
                self.pos += 2
                values = self.value_list(")")
                if len(values) > 1 and (part.optional or not part.variadic):
                    self.fail(f"'{part.name}' is one operand, not {len(values)}", at)
                operands += values
                sizes.append(len(values))
            elif part.variadic:
                sizes.append(0)
            else:
                self.unexpected(f"operand '{part.name}(...)' of '{cls.name}'")
        if self.tokens[self.pos + 1] == "(" and self.tokens[self.pos][:1].isalpha() and self.tokens[self.pos] != "loc" and "." not in self.tokens[self.pos]:
            self.fail(f"'{cls.name}' has no operand '{self.tokens[self.pos]}' here; in order: {', '.join(p.name for p in shape.named)}")
        return sizes

    def rest(self, cls: type[Operation], operands: list[Value], segments: list[int] | None, attrs: dict[str, Any], blocks: list[Block] | None = None) -> Operation:
        """Attributes, regions and result types, the same for all ops. blocks: regions whose arguments were read already."""
        if self.tokens[self.pos] == "{" and self.at_attr_dict():
            self.pos += 1
            self.attr_dict(attrs)
        regions: list[Region] = []
        for i, part in enumerate(cls.info.regions):
            label = LABELS.get(part.name, part.name)
            if i and self.tokens[self.pos] == label and self.tokens[self.pos + 1] == "{":
                self.pos += 1
            if self.tokens[self.pos] == "{":
                regions.append(self.region(cls.name, blocks[i] if blocks is not None else None))
            else:
                block = blocks[i] if blocks is not None else Block()
                if cls.name in IMPLICIT_ENDS:
                    block.append(self.op_class(IMPLICIT_ENDS[cls.name], self.pos)())
                regions.append(Region([block]))
        types: list[Type] = []
        if self.accept(":"):
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
        elif cls.info.results and not cls.variadic_results:
            self.unexpected(f"':' and the type of the result of '{cls.name}'")
        return cls(operands, types, attrs, regions, segments=tuple(segments) if segments is not None else None)

    # -- generic form

    def generic(self, at: int, name: str) -> Operation:
        self.pos += 1
        upstreams = name in upstream.OURS
        if upstreams:
            ours = upstream.OURS[name]
        else:
            ours = name[3:] if name.startswith("tl.") else name
        cls = self.op_class(ours, at)
        isolated = name == "func.func"
        saved = self.values
        if isolated:
            self.values = {}
        self.take("(")
        operands = self.value_list(")")
        attrs: dict[str, Any] = {}
        if self.tokens[self.pos] == "<" and self.tokens[self.pos + 1] == "{":
            self.pos += 2
            self.attr_dict(attrs)
            self.take(">")
        regions: list[Region] = []
        if self.accept("("):
            while True:
                regions.append(self.region(""))
                if not self.accept(","):
                    break
            self.take(")")
        if self.accept("{"):
            extra: dict[str, Any] = {}
            self.attr_dict(extra)
            attrs.update(extra)
        self.values = saved
        self.take(":")
        types_at = self.pos
        ins = self.type_list()
        self.take("->")
        outs = self.type_list() if self.tokens[self.pos] == "(" else [self.type()]
        if ins != [v.type for v in operands]:
            self.fail(f"the operands of '{name}' are ({', '.join(str(v.type) for v in operands)})", types_at)
        segments = attrs.pop("operandSegmentSizes", None)
        if segments is None and cls.info.variadics:
            segments = (len(operands),)
            if len(cls.info.operands) != 1:
                self.fail(f"'{name}' needs operandSegmentSizes: it has more than one group of operands", at)
        if cls is Module:
            attrs = {k.removeprefix("tl."): v for k, v in attrs.items()}
        elif isolated:
            results = attrs.pop("function_type", ((), ()))[1]
            if results:
                attrs["results_"] = results
        elif upstreams:
            attrs = {k: v for k, v in attrs.items() if k in cls.info.attrs or "." in k}  # not fastmath and the like
            if ours == "arith.cmp":
                attrs["predicate"] = upstream.predicate_of(attrs.get("predicate"), ins[0]) if ins else None
        op = cls(operands, outs, attrs, regions, segments=segments if cls.info.variadics else None)
        if upstreams and upstream.upstream_name(op) != name:
            self.fail(f"'{name}' on these types has no equal here", at, help="its meaning upstream differs from that of ours")
        return op


def _func(p: _Parser, cls: type[Operation], at: int) -> Operation:
    saved, p.values = p.values, {}
    p.scope()
    name = p.symbol()
    block = Block()
    roles: list[str] = []
    p.take("(")
    while not p.accept(")"):
        if block.args:
            p.take(",")
        arg_at = p.name()
        p.take(":")
        p.define(arg_at, block.add_arg(p.type()))
        if p.tokens[p.pos][:1].isalpha():
            roles.append(p.word("a role"))
    attrs: dict[str, Any] = {"sym_name": name}
    if roles:
        attrs["roles"] = tuple(roles)
    if p.accept("->"):
        attrs["results_"] = tuple(p.type_list() if p.tokens[p.pos] == "(" else [p.type()])
    op = p.rest(cls, [], None, attrs, [block])
    p.leave()
    p.values = saved
    return op


def _call(p: _Parser, cls: type[Operation], at: int) -> Operation:
    callee = p.symbol()
    p.take("(")
    arguments = p.value_list(")")
    return p.rest(cls, arguments, [len(arguments)], {"callee": callee})


def _constant(p: _Parser, cls: type[Operation], at: int) -> Operation:
    value_at = p.pos
    value = p.attribute(typed=False)
    op = p.rest(cls, [], None, {"value": value})
    element = getattr(op.results[0].type, "element", op.results[0].type)
    if isinstance(element, Scalar) and element.is_float and isinstance(value, int) and not isinstance(value, bool):
        p.fail(f"{value} is an integer, {op.results[0].type} needs a float like {value}.0", value_at)
    return op


def _for(p: _Parser, cls: type[Operation], at: int) -> Operation:
    if p.tokens[p.pos + 1] != "=":
        return p.pretty(cls, at)
    p.scope()
    block = Block()
    iv_at = p.name()
    p.take("=")
    operands = [p.value()]
    p.take("to")
    operands.append(p.value())
    p.take("step")
    operands.append(p.value())
    carried: list[tuple[int, Value]] = []
    if p.accept("carry"):
        p.take("(")
        while not p.accept(")"):
            if carried:
                p.take(",")
            name_at = p.name()
            p.take("=")
            init = p.value()
            carried.append((name_at, init))
            operands.append(init)
    p.define(iv_at, block.add_arg(TYPES["index"]))
    for name_at, init in carried:
        p.define(name_at, block.add_arg(init.type))
    op = p.rest(cls, operands, [1, 1, 1, len(carried)], {}, [block])
    p.leave()
    return op


def _parallel(p: _Parser, cls: type[Operation], at: int) -> Operation:
    if p.tokens[p.pos] != "(":
        return p.pretty(cls, at)
    p.scope()
    block = Block()
    p.take("(")
    names: list[int] = []
    while not p.accept(")"):
        if names:
            p.take(",")
        names.append(p.name())
    groups: list[list[Value]] = []
    for word in ("=", "to", "step"):
        group_at = p.pos
        p.take(word)
        p.take("(")
        groups.append(p.value_list(")"))
        if len(groups[-1]) != len(names):
            p.fail(f"{len(groups[-1])} values for {len(names)} indices", group_at)
    for name_at in names:
        p.define(name_at, block.add_arg(TYPES["index"]))
    op = p.rest(cls, [v for g in groups for v in g], [len(g) for g in groups], {}, [block])
    p.leave()
    return op


_LITERALS: dict[str, Any] = {"true": True, "false": False, "none": None, "unit": None, "inf": float("inf"), "nan": float("nan")}
_SPECIAL: dict[str, Callable[[_Parser, type[Operation], int], Operation]] = {
    "func.func": _func, "func.call": _call, "arith.constant": _constant, "loop.for": _for, "loop.parallel": _parallel,
}  # fmt: skip
