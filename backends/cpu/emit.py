"""vec level to LLVM IR text.

Every function of the module becomes an internal LLVM function; each one that nobody calls or launches is an entry and gets a C wrapper

    i64 kernel(ptr args, i64 threads)       (`kernel_<name>` where a module has several entries)

whose arguments are 8-byte slots: a pointer, dim, stride or integer as it is, a float as the bits of a double, then 8 spare slots. It returns 0 or
the number, from 1, of the loop.assert that failed; its `values` are then in the spare slots (floats as doubles).

A function that can fail takes the run's state `{i64 failed, ptr slots}` and returns a number as above. The first failure claims the state, so that
number and values belong together when several threads fail. Memory from the heap is given back on the way out.

Structured loops are emitted rotated (test at the end) with phis for carried values: nothing is left for an optimiser but instruction selection,
strength reduction and register allocation, which LLVM's code generator does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilelang.backends.cpu.spelling import constant_text, identifier, lanes_of, scalar_type, splat, type_text
from tilelang.dialects import arith, func, loop, vec
from tilelang.errors import CATALOGUE
from tilelang.ir.core import Block, Module, Operation, Region, Value, VerifyError
from tilelang.ir.types import PtrType, Scalar, Type, element_of

if TYPE_CHECKING:
    from tilelang.diagnostics import Span
    from tilelang.target import Target

ERROR_SLOTS = 8
OUT_OF_MEMORY = "run-out-of-memory"


@dataclass(frozen=True)
class ErrorEntry:
    """What the number a kernel returned stands for. types: of the values left in the spare slots, as type texts."""

    slug: str
    message: str
    span: Span | None
    types: tuple[str, ...]


@dataclass(frozen=True)
class EmittedModule:
    """text: the LLVM IR. symbols: entry function -> C symbol. errors[n - 1] explains the return value n."""

    text: str
    symbols: dict[str, str]
    errors: tuple[ErrorEntry, ...]


@dataclass
class _Callee:
    """What callers must know of a function."""

    function: func.Func
    fails: bool = False
    launches: bool = False

    @property
    def returns(self) -> str:
        types = [type_text(t) for t in self.function.results_]
        if self.fails:
            types.insert(0, "i64")
        return "void" if not types else types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"


class ModuleEmitter:
    """State of one emission: declarations, the error table, the functions' properties."""

    def __init__(self, module: Module, target: Target) -> None:
        self.target = target
        self.functions = {f.sym_name: _Callee(f) for f in func.functions(module)}
        self.declarations: dict[str, None] = {}
        self.block_functions: dict[str, str] = {}
        self.errors: list[ErrorEntry] = []
        self._analyse()

    def _analyse(self) -> None:
        """Marks, to a fixpoint over calls, which functions can fail and which start threads."""
        uses: dict[str, list[str]] = {}
        for name, callee in self.functions.items():
            uses[name] = []
            for op in callee.function.walk():
                if isinstance(op, loop.Assert) or (isinstance(op, vec.Alloc) and not op.stack):
                    callee.fails = True
                elif isinstance(op, vec.Launch):
                    callee.fails = callee.launches = True
                    self.functions[op.callee].fails = True
                elif isinstance(op, func.Call):
                    uses[name].append(op.callee)
        changed = True
        while changed:
            changed = False
            for name, callee in self.functions.items():
                before = callee.fails, callee.launches
                callee.fails |= any(self.functions[n].fails for n in uses[name])
                callee.launches |= any(self.functions[n].launches for n in uses[name])
                changed |= before != (callee.fails, callee.launches)

    def entries(self) -> list[str]:
        used = set[str]()
        for callee in self.functions.values():
            used |= {op.callee for op in callee.function.walk() if isinstance(op, (func.Call, vec.Launch))}
        return [name for name in self.functions if name not in used]

    def declare(self, text: str) -> None:
        self.declarations[f"declare {text}"] = None

    def error(self, slug: str, message: str, span: Span | None, types: tuple[str, ...] = ()) -> int:
        """The number of an error; equal ones share it."""
        entry = ErrorEntry(slug, message, span, types)
        if entry in self.errors:
            return self.errors.index(entry) + 1
        self.errors.append(entry)
        return len(self.errors)

    def run(self) -> EmittedModule:
        entries = self.entries()
        bodies = [FunctionEmitter(self, callee).run() for callee in self.functions.values()]
        symbols = {name: "kernel" if len(entries) == 1 else f"kernel_{identifier(name)}" for name in entries}
        bodies += self.block_functions.values()
        bodies += [self._wrapper(self.functions[name], symbol) for name, symbol in symbols.items()]
        head = [f'target triple = "{self.target.triple}"', "", *self.declarations, ""]
        return EmittedModule("\n".join(head + bodies) + "\n", symbols, tuple(self.errors))

    def _wrapper(self, callee: _Callee, symbol: str) -> str:
        """The C entry: unpacks the slots."""
        f = callee.function
        lines = [f"define i64 @{symbol}(ptr %args, i64 %threads) nounwind {{", "  %state = alloca { i64, ptr }", "  store i64 0, ptr %state"]
        lines += [f"  %spare = getelementptr i64, ptr %args, i64 {len(f.args)}", "  %spare.at = getelementptr i64, ptr %state, i64 1"]
        lines.append("  store ptr %spare, ptr %spare.at")
        passed = ["ptr %state"] * callee.fails + ["i64 %threads"] * callee.launches
        for i, arg in enumerate(f.args):
            lines.append(f"  %p{i} = getelementptr i64, ptr %args, i64 {i}")
            passed.append(f"{type_text(arg.type)} {self._slot(lines, i, arg.type)}")
        if f.results_:
            raise VerifyError(f, "an entry function returns through its parameters, not by value")
        call = f"call {callee.returns} @{_symbol(f.sym_name)}({', '.join(passed)})"
        lines += [f"  %failed = {call}", "  ret i64 %failed"] if callee.fails else [f"  {call}", "  ret i64 0"]
        return "\n".join([*lines, "}", ""])

    def _slot(self, lines: list[str], i: int, type: Type) -> str:
        """Reads slot i as a value of a type."""
        if isinstance(type, PtrType):
            lines.append(f"  %a{i} = load ptr, ptr %p{i}")
            return f"%a{i}"
        assert isinstance(type, Scalar)
        if type.is_float:
            from tilelang.backends.cpu.emit_cast import float_to_float

            emitter = FunctionEmitter(self, None, prefix=f"a{i}.")
            value = emitter.emit(f"load double, ptr %p{i}")
            out = float_to_float(emitter, value, Scalar("f64"), type, 0)
            lines += emitter.lines
            return out
        lines.append(f"  %w{i} = load i64, ptr %p{i}")
        if type.bits == 64:
            return f"%w{i}"
        lines.append(f"  %a{i} = icmp ne i64 %w{i}, 0" if type.kind == "bool" else f"  %a{i} = trunc i64 %w{i} to {scalar_type(type)}")
        return f"%a{i}"


class FunctionEmitter:
    """Writes one function. `emit` adds an instruction with a result and returns its name; `line` one without."""

    def __init__(self, module: ModuleEmitter, callee: _Callee | None, prefix: str = "") -> None:
        self.module = module
        self.target = module.target
        self.callee = callee
        self.lines: list[str] = []
        self.cold: list[str] = []  # blocks that end the function after a failure
        self.head: list[str] = []  # allocas
        self.names: dict[Value, str] = {}
        self.live: list[Value] = []  # memory from the heap to give back on a failure
        self.block = "entry"
        self._taken: dict[str, int] = {}
        self._prefix = prefix

    # -- text

    def fresh(self, hint: str | None = None) -> str:
        """A name not yet used in the function (without its sigil)."""
        base = self._prefix + identifier(hint or "t")
        n = self._taken.get(base, -1) + 1
        self._taken[base] = n
        # A hint never contains the dot, so that numbered names are unique.
        return base if n == 0 and hint else f"{base}.{n}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def emit(self, text: str, hint: str | None = None) -> str:
        name = f"%{self.fresh(hint)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def call(self, returns: str, name: str, args: list[tuple[str, str]], hint: str | None = None, attrs: str = "") -> str:
        """Calls a function outside the module, declaring it. args: (type, value)."""
        self.module.declare(f"{returns} @{name}({', '.join(t for t, _ in args)}){attrs}")
        text = f"call {returns} @{name}({', '.join(f'{t} {v}' for t, v in args)})"
        if returns != "void":
            return self.emit(text, hint)
        self.line(text)
        return ""

    def intrinsic(self, name: str, type: str, *args: str, hint: str | None = None) -> str:
        """An intrinsic whose operands and result have one type."""
        from tilelang.backends.cpu.spelling import suffix

        return self.call(type, f"llvm.{name}.{suffix(type)}", [(type, a) for a in args], hint)

    def ref(self, value: Value) -> str:
        """The text of a value: a name or a constant."""
        name = self.names.get(value)
        if name is None:
            assert value.op is not None and isinstance(value.op, arith.Constant), f"{value} is used before it is emitted"
            element = element_of(value.type)
            text = constant_text(value.op.value, element)  # pyright: ignore[reportArgumentType]
            name = self.names[value] = splat(lanes_of(value.type), scalar_type(element), text)
        return name

    def typed(self, value: Value) -> str:
        return f"{type_text(value.type)} {self.ref(value)}"

    def define(self, value: Value, text: str) -> None:
        """Adds the instruction that computes a value of the IR."""
        self.names[value] = self.emit(text, value.hint)

    # -- structure

    def run(self) -> str:
        assert self.callee is not None
        f = self.callee.function
        params = ["ptr %state"] * self.callee.fails + ["i64 %threads"] * self.callee.launches
        self._taken.update(state=0, threads=0, entry=0)
        for arg, role in zip(f.args, f.roles):
            self.names[arg] = f"%{self.fresh(arg.hint or 'arg')}"
            # Kernels are specialised on results that overlap nothing else.
            noalias = " noalias" if role == "out" and isinstance(arg.type, PtrType) else ""
            params.append(f"{type_text(arg.type)}{noalias} {self.names[arg]}")
        self.body(f.body.block)
        define = f"define internal {self.callee.returns} @{_symbol(f.sym_name)}({', '.join(params)}) nounwind {{"
        return "\n".join([define, "entry:", *self.head, *self.lines, *self.cold, "}", ""])

    def body(self, block: Block) -> tuple[Value, ...]:
        """Emits the ops of a region and returns what its terminator passes on."""
        outer = list(self.live)
        for op in block:
            if isinstance(op, loop.Yield):
                self.live = outer
                return op.values
            if isinstance(op, loop.Condition):
                self.live = outer
                return (op.condition, *op.values)
            if not isinstance(op, arith.Constant):
                handler = HANDLERS.get(type(op))
                if handler is None:
                    raise VerifyError(op, "has no translation to LLVM IR")
                handler(self, op)
        self.live = outer
        return ()

    def region(self, region: Region) -> list[str]:
        return [self.ref(v) for v in self.body(region.block)]

    def phi(self, type: Type, incoming: list[tuple[str, str]], hint: str | None = None) -> str:
        pairs = ", ".join(f"[ {value}, %{label} ]" for value, label in incoming)
        return self.emit(f"phi {type_text(type)} {pairs}", hint)

    def fail(self, number: int, values: list[Value]) -> str:
        """The label of a cold block that leaves the function with error `number`."""
        label = self.fresh("fail")
        main, self.lines, block = self.lines, [], self.block
        self.start(label)
        first = self.emit(f"cmpxchg ptr %state, i64 0, i64 {number} acq_rel monotonic")
        won = self.emit(f"extractvalue {{ i64, i1 }} {first}, 1")
        note, leave = self.fresh("note"), self.fresh("leave")
        if values:
            self.line(f"br i1 {won}, label %{note}, label %{leave}")
            self.start(note)
            spare = self.emit("load ptr, ptr " + self.emit("getelementptr i64, ptr %state, i64 1"))
            for i, value in enumerate(values[:ERROR_SLOTS]):
                slot = self.emit(f"getelementptr i64, ptr {spare}, i64 {i}")
                self.line(f"store {self._wide(value)}, ptr {slot}")
        self.line(f"br label %{leave}")
        self.start(leave)
        self._leave(str(number))
        self.cold += self.lines
        self.lines, self.block = main, block
        return label

    def _wide(self, value: Value) -> str:
        """A scalar as it stands in a spare slot: i64, or double for floats."""
        element = element_of(value.type)
        if element.is_float:
            from tilelang.backends.cpu.emit_cast import float_to_float

            return f"double {float_to_float(self, self.ref(value), element, Scalar('f64'), 0)}"
        if element.bits == 64:
            return self.typed(value)
        extend = "sext" if element.is_signed else "zext"
        return f"i64 {self.emit(f'{extend} {self.typed(value)} to i64')}"

    def _leave(self, number: str) -> None:
        """Gives memory back and returns an error."""
        assert self.callee is not None
        for memory in reversed(self.live):
            self.call("void", "tl_free", [("ptr", self.ref(memory))])
        self._return(number, [f"{type_text(t)} zeroinitializer" for t in self.callee.function.results_])

    def _return(self, number: str, values: list[str]) -> None:
        assert self.callee is not None
        parts = [f"i64 {number}"] * self.callee.fails + values
        if len(parts) < 2:
            self.line(f"ret {parts[0] if parts else 'void'}")
            return
        whole = "poison"
        for i, part in enumerate(parts):
            whole = self.emit(f"insertvalue {self.callee.returns} {whole}, {part}, {i}")
        self.line(f"ret {self.callee.returns} {whole}")

    def guard(self, failed: str) -> None:
        """Leaves the function when an error number is not 0."""
        label, ok = self.fresh("fail"), self.fresh("ok")
        self.line(f"br i1 {self.emit(f'icmp eq i64 {failed}, 0')}, label %{ok}, label %{label}")
        main, self.lines = self.lines, []
        self.start(label)
        self._leave(failed)
        self.cold += self.lines
        self.lines = main
        self.start(ok)


def _symbol(name: str) -> str:
    return f'"tl.{identifier(name)}"'


# -- functions and loops


def _return(e: FunctionEmitter, op: func.Return) -> None:
    e._return("0", [e.typed(v) for v in op.values])


def _call(e: FunctionEmitter, op: func.Call) -> None:
    callee = e.module.functions[op.callee]
    passed = ["ptr %state"] * callee.fails + ["i64 %threads"] * callee.launches + [e.typed(v) for v in op.arguments]
    text = f"call {callee.returns} @{_symbol(op.callee)}({', '.join(passed)})"
    if callee.returns == "void":
        e.line(text)
        return
    whole = e.emit(text)
    if not op.results:
        e.guard(whole)
        return
    parts = len(op.results) + callee.fails
    names = [whole] if parts == 1 else [e.emit(f"extractvalue {callee.returns} {whole}, {i}") for i in range(parts)]
    if callee.fails:
        e.guard(names.pop(0))
    e.names.update(zip(op.results, names))


def _launch(e: FunctionEmitter, op: vec.Launch) -> None:
    """Puts the captured values into a struct that the threads read."""
    callee = e.module.functions[op.callee]
    types = ["ptr", *(type_text(v.type) for v in op.captured)]
    struct = f"{{ {', '.join(types)} }}"
    context = f"%{e.fresh('context')}"
    e.head.append(f"  {context} = alloca {struct}")
    for i, value in enumerate(["ptr %state", *map(e.typed, op.captured)]):
        e.line(f"store {value}, ptr {e.emit(f'getelementptr {struct}, ptr {context}, i32 0, i32 {i}')}")
    block = _block_function(e.module, callee, struct, types)
    args = [("ptr", f'@"{block}"'), ("ptr", context), ("i64", e.ref(op.count)), ("i64", "%threads")]
    e.guard(e.call("i64", "tl_parallel_for", args, "failed"))


def _block_function(module: ModuleEmitter, callee: _Callee, struct: str, types: list[str]) -> str:
    """The function the pool calls: i64 fn(ctx, begin, end, worker)."""
    name = f"tl.{identifier(callee.function.sym_name)}.blocks"
    lines = [f'define internal i64 @"{name}"(ptr %context, i64 %begin, i64 %end, i64 %worker) nounwind {{']
    passed = ["i64 %begin", "i64 %end"]
    for i, type in enumerate(types):
        lines.append(f"  %p{i} = getelementptr {struct}, ptr %context, i32 0, i32 {i}")
        lines.append(f"  %c{i} = load {type}, ptr %p{i}")
        if i:
            passed.append(f"{type} %c{i}")
    # A launch from inside a launch runs alone.
    front = ["ptr %c0"] * callee.fails + ["i64 1"] * callee.launches
    lines.append(f"  %failed = call {callee.returns} @{_symbol(callee.function.sym_name)}({', '.join(front + passed)})")
    # Another thread may have failed first; its number goes with the values in the slots.
    lines += ["  %bad = icmp ne i64 %failed, 0", "  br i1 %bad, label %first, label %done", "first:"]
    lines += ["  %claimed = load atomic i64, ptr %c0 monotonic, align 8", "  ret i64 %claimed", "done:", "  ret i64 0", "}", ""]
    module.block_functions[name] = "\n".join(lines)
    return name


def _for(e: FunctionEmitter, op: loop.For) -> None:
    lower, upper, step = e.ref(op.lower), e.ref(op.upper), e.ref(op.step)
    head, done = e.fresh(f"for_{op.iv.hint or 'i'}"), e.fresh(f"end_{op.iv.hint or 'i'}")
    before = e.block
    low, high = arith.constant_value(op.lower), arith.constant_value(op.upper)
    runs = low is not None and high is not None and low < high  # at least once, known now
    inits = [e.ref(v) for v in op.inits]
    if runs:
        e.line(f"br label %{head}")
    else:
        e.line(f"br i1 {e.emit(f'icmp slt i64 {lower}, {upper}')}, label %{head}, label %{done}")
    e.start(head)
    args = [op.iv, *op.carried]
    # Names first: the body uses the phis before their last incoming values are known.
    for arg in args:
        e.names[arg] = f"%{e.fresh(arg.hint or 'i')}"
    place = len(e.lines)
    yielded = e.region(op.body)
    following = e.emit(f"add nsw i64 {e.names[op.iv]}, {step}", f"{op.iv.hint or 'i'}_next")
    again = e.emit(f"icmp slt i64 {following}, {upper}")
    last = e.block
    phis = [
        f"  {e.names[arg]} = phi {type_text(arg.type)} [ {first}, %{before} ], [ {later}, %{last} ]"
        for arg, first, later in zip(args, [lower, *inits], [following, *yielded])
    ]
    e.lines[place:place] = phis
    e.line(f"br i1 {again}, label %{head}, label %{done}")
    e.start(done)
    for result, first, later in zip(op.results, inits, yielded):
        incoming = [(later, last)] if runs else [(first, before), (later, last)]
        e.names[result] = e.phi(result.type, incoming, result.hint)


def _if(e: FunctionEmitter, op: loop.If) -> None:
    then, orelse, done = e.fresh("then"), e.fresh("else"), e.fresh("endif")
    empty = len(op.orelse.block) <= 1 and not op.results
    e.line(f"br i1 {e.ref(op.condition)}, label %{then}, label %{done if empty else orelse}")
    sides: list[tuple[list[str], str]] = []
    for label, region in ((then, op.then), (orelse, op.orelse))[: 1 if empty else 2]:
        e.start(label)
        sides.append((e.region(region), e.block))
        e.line(f"br label %{done}")
    e.start(done)
    for i, result in enumerate(op.results):
        e.names[result] = e.phi(result.type, [(values[i], label) for values, label in sides], result.hint)


def _while(e: FunctionEmitter, op: loop.While) -> None:
    head, body, done = e.fresh("while"), e.fresh("do"), e.fresh("endwhile")
    entered, inits = e.block, [e.ref(v) for v in op.inits]
    e.line(f"br label %{head}")
    e.start(head)
    args = op.before.block.args
    for arg in args:
        e.names[arg] = f"%{e.fresh(arg.hint or 'w')}"
    place = len(e.lines)
    condition, *values = e.region(op.before)
    e.line(f"br i1 {condition}, label %{body}, label %{done}")
    e.start(body)
    e.names.update(zip(op.body.block.args, values))
    e.names.update(zip(op.results, values))
    yielded = e.region(op.body)
    e.line(f"br label %{head}")
    e.lines[place:place] = [
        f"  {e.names[arg]} = phi {type_text(arg.type)} [ {first}, %{entered} ], [ {later}, %{e.block} ]"
        for arg, first, later in zip(args, inits, yielded)
    ]
    e.start(done)


def _assert(e: FunctionEmitter, op: loop.Assert) -> None:
    number = e.module.error(op.slug, op.message, op.span, tuple(str(v.type) for v in op.values[:ERROR_SLOTS]))
    ok = e.fresh("ok")
    e.line(f"br i1 {e.ref(op.condition)}, label %{ok}, label %{e.fail(number, list(op.values))}, !prof !{{!\"branch_weights\", i32 1048575, i32 1}}")
    e.start(ok)


def _nothing(e: FunctionEmitter, op: Operation) -> None:
    """Prints and breakpoints exist in interpret and check mode only."""


# -- memory that a function owns


def _alloc(e: FunctionEmitter, op: vec.Alloc) -> None:
    size = element_of(op.out.type).bytes
    count = arith.constant_value(op.count)
    if op.stack:
        if count is None:
            raise VerifyError(op, "memory on the stack needs a constant count")
        name = e.names[op.out] = f"%{e.fresh(op.out.hint or 'stack')}"
        e.head.append(f"  {name} = alloca [{max(1, count) * size} x i8], align 64")
        return
    bytes = str(count * size) if count is not None else e.emit(f"mul i64 {e.ref(op.count)}, {size}") if size > 1 else e.ref(op.count)
    name = e.names[op.out] = e.call("ptr", "tl_alloc", [("i64", bytes)], op.out.hint or "memory")
    number = e.module.error(OUT_OF_MEMORY, CATALOGUE[OUT_OF_MEMORY].message, op.span)
    ok = e.fresh("ok")
    e.line(f"br i1 {e.emit(f'icmp ne ptr {name}, null')}, label %{ok}, label %{e.fail(number, [])}")
    e.start(ok)
    e.live.append(op.out)


def _free(e: FunctionEmitter, op: vec.Free) -> None:
    e.call("void", "tl_free", [("ptr", e.ref(op.ptr))])
    if op.ptr in e.live:
        e.live.remove(op.ptr)


Handler = Callable[[FunctionEmitter, Any], None]
HANDLERS: dict[type[Operation], Handler] = {
    func.Return: _return, func.Call: _call, vec.Launch: _launch, loop.For: _for, loop.If: _if, loop.While: _while, loop.Assert: _assert,
    loop.Print: _nothing, loop.Breakpoint: _nothing, vec.Alloc: _alloc, vec.Free: _free,
}  # fmt: skip


def emit(module: Module, target: Target) -> EmittedModule:
    """The LLVM IR of a vec-level module for a CPU target. Raises VerifyError for what has no translation."""
    from tilelang.backends.cpu import emit_arith, emit_cast, emit_vec

    for part in (emit_arith, emit_cast, emit_vec):
        HANDLERS.update(part.HANDLERS)
    return ModuleEmitter(module, target).run()
