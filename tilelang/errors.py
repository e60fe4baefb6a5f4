"""The catalogue of errors: one entry for each thing that the compiler can say is wrong.

A message says what is, and what was expected. Fields in braces are filled in by
`Diagnostics.error(slug, span, field=...)`; `{name!r}` prints quotes. A help template uses the same fields; a caller that
knows better passes `help=`.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """message and help are templates; summary explains the error for the documentation."""

    message: str
    help: str | None
    summary: str


CATALOGUE: dict[str, Entry] = {
    # -- source text ------------------------------------------------------------------------------------------------
    "syntax": Entry(
        "{what}", None, "The text does not follow the grammar; the message says what was found and expected."
    ),
    "indentation": Entry("{what}", None, "The indentation of a line does not fit the block it is in."),
    "unsupported-construct": Entry(
        "{what} is not part of the language",
        None,
        "A Python construct that tile programs do not have; the help line says what to write.",
    ),
    "source-unavailable": Entry(
        "the source of {name!r} is not available: {why}",
        "define the function in a file or a notebook cell, or put it into a .tile file and use tilelang.load",
        "A @tile function is compiled from its source text, which Python could not find.",
    ),
    # -- names ------------------------------------------------------------------------------------------------------
    "unknown-name": Entry(
        "{name!r} is not defined here", None, "A name that no parameter, assignment, constant or import defines."
    ),
    "unknown-function": Entry(
        "there is no function {name!r}", None, "A call of something that is not a function of the language or the file."
    ),
    "redefinition": Entry(
        "{name!r} is already defined as {previous}",
        "give one of them another name",
        "One name stands for two things in one scope.",
    ),
    "used-before-set": Entry(
        "{name!r} is used before it is set on every path that leads here",
        "set {name!r} before the branch or loop",
        "A value that only some paths to this place have set.",
    ),
    "recursion": Entry(
        "{name!r} calls itself: {chain}",
        "write a loop; helper functions are inlined",
        "Functions are inlined, so none may call itself.",
    ),
    "import-not-found": Entry("{module!r} {why}", None, "An import of a file or a name that is not there."),
    "import-cycle": Entry(
        "this import leads back to the file itself: {chain}",
        "move what both need into a third file",
        "Files that import each other.",
    ),
    # -- types, shapes and axes --------------------------------------------------------------------------------------
    "wrong-type": Entry(
        "{what} is {found}, expected {expected}", None, "A value of another type than its place needs."
    ),
    "annotation": Entry(
        "{what}", None, "A parameter, result or variable annotation that does not name a type of the language."
    ),
    "dtype-unsupported": Entry(
        "{what} does not support {dtype}", None, "An operation that is not defined for this element type."
    ),
    "dtype-mismatch": Entry(
        "{what} has {left} and {right}, which have no common type",
        "cast one of them: cast(x, dtype)",
        "Two element types that do not mix.",
    ),
    "integer-division": Entry(
        "'/' divides {left} by {right}, both integers",
        "write '//' for the floor, or cast one of them to a float type",
        "True division of integers has no integer result.",
    ),
    "shape-mismatch": Entry(
        "{what}", None, "Operands whose lengths do not fit each other; notes say where each comes from."
    ),
    "reshape-mismatch": Entry(
        "reshape of {old} to {new} changes the number of elements from {old_size} to {new_size}",
        None,
        "A reshape keeps the number of elements.",
    ),
    "rank-mismatch": Entry(
        "{what} has {found}, expected {expected}", None, "A value or subscript with too many or too few axes."
    ),
    "axis-mismatch": Entry(
        "axis {axis} of {what} runs along {left}, here it meets {right}",
        "broadcast explicitly: x[:, None] or x[None, :] puts an axis where you mean it",
        "Two axes that come from different index ranges, even when they have the same length.",
    ),
    "dim-conflict": Entry(
        "dim {dim} is {first} in {where}, and {second} in {other}",
        None,
        "One symbolic dim that would need two lengths.",
    ),
    "result-dims-unbound": Entry(
        "the result uses dim {dim}, which no parameter has",
        "use dims of the parameters, or constants, in the result type",
        "The shape of a result must follow from the arguments.",
    ),
    "empty-tile": Entry(
        "{what} has length {length} along axis {axis}; a tile has at least one element along each axis",
        None,
        "A tile without elements.",
    ),
    "index-out-of-bounds": Entry(
        "index {index} is outside axis {axis} of {what}, which has length {length}",
        None,
        "An access that is outside the tensor or tile for sure.",
    ),
    "not-constant": Entry(
        "{what} must be known at compile time, and {value} is a run-time value",
        "use a constant or a keyword-only parameter such as 'BM: int = 64'",
        "A place that needs a compile-time value.",
    ),
    "constant-error": Entry(
        "{what}", None, "A compile-time computation that has no value, such as a division by zero."
    ),
    "program-too-large": Entry(
        "{what}",
        "use a run-time loop such as range(...), or fewer nested calls",
        "Loops unrolled and functions inlined at compile time make the program too large.",
    ),
    "tunable-domain": Entry(
        "{value} is not in the domain of {name!r}: {domain}", None, "A tunable set to a value that it does not declare."
    ),
    "wrong-arguments": Entry(
        "{function} {what}", None, "A call inside a program with the wrong number or names of arguments."
    ),
    # -- statements ---------------------------------------------------------------------------------------------------
    "assign-to-input": Entry(
        "{name!r} is an input and cannot be written",
        "declare it as {name}: InOut[...] to update it in place, or write to an empty(...) tensor and return it",
        "Tensor parameters are read-only unless declared InOut.",
    ),
    "missing-return": Entry(
        "{name!r} declares the result {result}, and does not return on every path",
        "end the function with 'return'",
        "A declared result that is not returned.",
    ),
    "tile-condition": Entry(
        "the condition of {statement!r} is a tile of {type}; it must be a scalar",
        "where(condition, a, b) chooses element by element; any(...) and all(...) give a scalar",
        "Control flow needs one truth value.",
    ),
    "break-outside-loop": Entry(
        "{statement!r} is not inside a serial loop",
        None,
        "The statements break and continue belong to for and while loops.",
    ),
    "nested-grid": Entry(
        "a grid loop inside {outer}",
        "use one grid over all axes, or range(...) for the inner loop",
        "The grid is the outermost loop of a kernel.",
    ),
    "block-race": Entry(
        "{who} write the same elements of {name!r}: {why}",
        "index {name!r} by all ranges of the grid, or use atomic_add",
        "Two grid blocks that write one element without an atomic.",
    ),
    "buffer-too-large": Entry(
        "{what} needs {needed} bytes of {space}, which has {capacity}",
        None,
        "Buffers that do not fit into the memory they live in.",
    ),
    # -- calls from Python --------------------------------------------------------------------------------------------
    "argument-count": Entry(
        "{function} takes {expected} arguments, got {found}", None, "A call with too many or too few arguments."
    ),
    "argument-kind": Entry(
        "argument {name!r} is {found}, expected {expected}",
        None,
        "A call with something that is not an array or number.",
    ),
    "argument-dtype": Entry(
        "argument {name!r} has dtype {found}, expected {expected}",
        None,
        "An array of another element type than declared.",
    ),
    "argument-shape": Entry(
        "argument {name!r} has shape {found}, expected {expected}", None, "An array of another shape than declared."
    ),
    "argument-overlap": Entry(
        "arguments {name!r} and {other!r} share memory, and the kernel writes {name!r}",
        "pass a copy of one of them",
        "An output that overlaps another argument.",
    ),
    "argument-read-only": Entry(
        "argument {name!r} is written by the kernel, and the array is read-only",
        "pass a writable copy",
        "An output array that may not be written.",
    ),
    "argument-byte-order": Entry(
        "argument {name!r} has byte order {found}, expected this machine's {expected}",
        "convert it: x.astype(x.dtype.newbyteorder('='))",
        "An array stored in the other byte order.",
    ),
    "argument-object": Entry(
        "argument {name!r} is an array of Python objects, expected {expected}",
        "convert it: x.astype(...)",
        "An object array has no elements in memory.",
    ),
    "argument-device": Entry(
        "argument {name!r} is on device {found}, expected {expected}", "move it: x.cpu()", "An array in another memory."
    ),
    "run-out-of-bounds": Entry(
        "index {index} is outside axis {axis} of {what}, which has length {length}",
        "limit the index, or read with load(..., pad=0)",
        "A running kernel stopped before it accessed an element outside a tensor.",
    ),
    "run-assert": Entry("assertion failed: {message}", None, "An assert of the program was false while it ran."),
    "run-out-of-memory": Entry(
        "there is no memory for a buffer of this kernel",
        "make its tiles smaller, or run it on fewer threads",
        "A running kernel asked the system for scratch memory and got none.",
    ),
    # -- check mode ---------------------------------------------------------------------------------------------------
    "check-bounds": Entry(
        "access outside {what}: index {index} of axis {axis}, length {length}",
        None,
        "Check mode: an access outside a buffer.",
    ),
    "check-uninitialised": Entry(
        "{what} is read at {index} before anything was written there",
        None,
        "Check mode: an element was read that was never written.",
    ),
    "check-race": Entry(
        "blocks {first} and {second} both access {what} at {index}, and at least one writes",
        "index it by all ranges of the grid, or use an atomic",
        "Check mode: two grid blocks met at one element.",
    ),
    "check-pipeline": Entry(
        "iteration {second} reads {what} at {index}, which iteration {first} of the same pipelined loop writes",
        "use range(...) instead of pipelined(...): a pipeline loads ahead, before earlier iterations have stored",
        "Check mode: the result of a pipelined loop would change with the number of stages.",
    ),
    "check-overflow": Entry(
        "{what} overflows {dtype}: {value}",
        "accumulate in a wider type",
        "Check mode: a result outside the range of its type.",
    ),
    # -- several ranks ------------------------------------------------------------------------------------------------
    "needs-ranks": Entry(
        "{what} talks to other ranks, and would run here as one alone",
        "run it on all ranks with tilelang.runtime.ranks.run_ranks; it is interpreted there, not compiled",
        "Kernels with put, signal or wait run on several ranks at once, so far in the interpreter only.",
    ),
    "check-no-peer": Entry(
        "rank {rank} addresses rank {peer}, and there are {world}",
        "ranks count from 0: take the number modulo world()",
        "Ranks: a put, signal or fence to a rank that is not there.",
    ),
    "check-rank-race": Entry(
        "rank {first} {first_does} {what} of rank {owner} at {index}, and rank {second} {second_does} it with nothing between that orders the two",
        "signal when the memory may be used again, and wait for that signal before the put",
        "Ranks: two accesses of one element, at least one a write, with no signal and wait between them.",
    ),
    "check-fence": Entry(
        "rank {reader} reads {what} at {index}, and the put of rank {writer} to there may arrive later: no fence stands between the put and the signal",
        "write fence(peer) between the put and the signal",
        "Ranks: a signal may arrive before a put that was issued before it, unless a fence orders them.",
    ),
    "check-deadlock": Entry(
        "no rank can go on: {waiting}",
        "send before you wait, and see that each value that is waited for is signalled",
        "Ranks: every rank that has not finished waits, and nothing is under way that could wake one.",
    ),
    # -- NPUs ---------------------------------------------------------------------------------------------------------
    "ascend-unsupported": Entry(
        "{what} cannot be put on the NPU: {why}", None, "Something that the passes for Ascend do not lower yet, or that the hardware does not have."
    ),
    "check-hazard": Entry(
        "pipe {second} {second_does} {what} of {space} while pipe {first} may still {first_does} it",
        "a set_flag and wait_flag, or a pipe_barrier inside one pipe, must stand between them",
        "NPU pipes: two instructions touch the same memory, at least one writes, and nothing orders them.",
    ),
    "check-flag": Entry("{what}", None, "NPU pipes: a flag that is waited for and never set, set twice, or left over at the end."),
    # -- IR text and pipelines --------------------------------------------------------------------------------------
    "ir-syntax": Entry("{what}", None, "IR text that cannot be read; the message says what was found and expected."),
    "ir-rule": Entry("{what}", None, "IR that breaks a rule of the verifier: an op, its types, or the level it is at."),
    "pipeline": Entry(
        "{what}", None, "A pipeline string names a pass or an option that is not there, or a value of another type."
    ),
}

# Wordings that both frontends use.
NOT_A_TARGET = "expected a name or a place such as x[i] to assign to, found {}"
NOT_A_LOOP_VARIABLE = "expected a name for the loop variable, found {}"
TUPLE_UPDATE = "expected one name or place before {!r}, found a tuple"
TOO_DEEP = "this is nested more than {} deep, expected fewer levels"
TOO_DEEP_HELP = "name the inner parts in assignments of their own"

# What Python has and tile programs do not: the wording of the error, and what to write instead.
CONSTRUCTS: dict[str, tuple[str, str]] = {
    "class": ("a class", "write functions; group values in a tuple"),
    "with": ("a with statement", "loops and buffers need no context: write shared(...) or a grid loop"),
    "try": ("exception handling", "use 'if' for conditions, and 'assert' to stop"),
    "raise": ("raise", "use 'assert condition, \"message\"'"),
    "lambda": ("a lambda", "define a helper function with 'def' beside this one"),
    "yield": ("a generator", "return values, or write them to a tensor"),
    "await": ("async code", "kernels run to their end; remove 'async' and 'await'"),
    "del": ("del", "values live as long as they are used; remove the line"),
    "global": ("global or nonlocal", "pass the value as a parameter and return the result"),
    "match": ("a match statement", "use if/elif/else"),
    "import": ("an import of a module", "write 'from module import name' at the top of the file"),
    "local-import": ("an import inside a function", "put 'from module import name' at the top of the file"),
    "star-import": ("an import of everything", "name what you import: 'from module import f, g'"),
    "comprehension": ("a comprehension", "write a for loop, or use whole-tile operations"),
    "f-string": ("an f-string", "print(...) and assert take values after a plain string"),
    "bytes": ("a byte string", "use a plain string"),
    "walrus": ("':='", "assign on a line of its own"),
    "star-argument": ("'*' or '**' before an argument", "write the arguments out one by one"),
    "star-parameter": (
        "a parameter with '*' or '**'",
        "declare each parameter; a bare '*' starts the keyword-only ones",
    ),
    "star-target": ("'*' in an assignment", "give each value a name of its own"),
    "positional-only": ("'/' in a parameter list", "remove it: parameters before '*' are positional"),
    "chained-comparison": (
        "a chained comparison",
        "write 'a < b and b < c' for scalars, '(a < b) & (b < c)' for tiles",
    ),
    "membership": ("'in' as an operator", "compare with '==' and join with 'or'"),
    "identity": ("'is' as an operator", "compare with '=='"),
    "decorator": ("a decorator in .tile text", "remove the line: each function of a .tile file is a kernel already"),
    "list": ("a list", "use a tuple: (a, b)"),
    "dict": ("a dict or a set", "use parameters or tuples"),
    "complex": ("a complex number", "use two real values"),
    "ellipsis": ("'...'", "write ':' for each axis, or 'pass' for an empty body"),
    "semicolon": ("';'", "put each statement on a line of its own"),
    "loop-else": ("'else' after a loop", "set a variable in the loop and test it after"),
    "chained-assignment": ("an assignment to several targets", "write one assignment a line"),
    "nested-function": ("a function inside a function", "move it beside this one, and pass what it needs"),
    "bare-annotation": ("a declaration without a value", "assign the value: 'x: f32 = 0.0'"),
    "annotated-target": ("an annotation on anything but a name", "annotate a plain variable"),
    "type-parameter": ("a type parameter", "declare 'Float = dtypes(f32, f16)' at the top"),
    "type-alias": ("a type statement", "declare 'Float = dtypes(f32, f16)' at the top"),
    "async": ("an async function or loop", "remove 'async'"),
}
