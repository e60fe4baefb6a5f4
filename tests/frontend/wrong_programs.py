"""Programs with a wrong line in a grid loop, each with the errors that the builder reports: `line:column slug: message`, a line each."""

from __future__ import annotations

HEAD = 'M, N, K = dims("M N K")\nFloat = dtypes(f32, f16)\nBM = 64\n\n'


def grid(*lines: str) -> str:
    """A function with one grid over x: f32[M, N] by (64, 32) around the lines, from line 8 on; the result is out: f32[M, N]."""
    head = "def f(x: f32[M, N], y: f32[N, K], v: f32[N], n: i32) -> f32[M, N]:\n    out = empty(f32, M, N)\n    for i, j in grid(M, N, by=(64, 32)):\n"
    return HEAD + head + "\n".join("        " + line for line in lines) + "\n    return out\n"


def module(text: str) -> str:
    """The text below the head, from line 5 on."""
    return HEAD + text


WRONG_BLOCKS: dict[str, tuple[str, str]] = {
    'unknown name': (
        grid('out[i, j] = x[i, j] + rwo'),
        "8:31 unknown-name: 'rwo' is not defined here",
    ),
    'unknown name near': (
        grid('row = x[i, j]', 'out[i, j] = rwo'),
        "9:21 unknown-name: 'rwo' is not defined here",
    ),
    'unknown function near': (
        grid('out[i, j] = expp(x[i, j])'),
        "8:21 unknown-function: there is no function 'expp'",
    ),
    'unknown attribute': (
        grid('a = i.strt', 'out[i,j] = x[i,j]'),
        "8:14 wrong-type: 'i' is the index range 'i', expected something with '.strt'",
    ),
    'length': (
        grid('out[i, j] = x[i, j] + v[0:16]'),
        "8:21 shape-mismatch: '+' meets lengths 32 and 16 along axis 1",
    ),
    'matmul': (
        grid('t = x[i, j] @ x[i, j]', 'out[i, j] = t'),
        '8:13 shape-mismatch: matmul contracts 32 with 64',
    ),
    'matmul rank': (
        grid('out[i, j] = x[i, j] @ v[j]'),
        "8:31 rank-mismatch: the operand 'v[j]' of matmul has 1 axis, expected 2 or more",
    ),
    'matmul scalar': (
        grid('out[i, j] = x[i, j] @ 3'),
        "8:31 wrong-type: the operand '3' of matmul is the number 3, expected a tile",
    ),
    'rank': (
        grid('out[i, j] = x[i, j, 0]'),
        "8:21 rank-mismatch: the subscript of 'x' has 3 axes, expected 2",
    ),
    'store rank': (
        grid('out[i, j] = x[i, j][:, :, None]'),
        "8:21 rank-mismatch: the value stored to 'out' has 3 axes, expected 2",
    ),
    'assign input': (
        grid('x[i, j] = 1.0', 'out[i,j] = 2'),
        "8:9 assign-to-input: 'x' is an input and cannot be written",
    ),
    'used before set': (
        grid('if n > 3:', '    a = x[i, j]', 'out[i, j] = a'),
        "10:21 used-before-set: 'a' is used before it is set on every path that leads here",
    ),
    'used before set loop': (
        grid('for k in range(n):', '    a = x[i, j]', 'out[i, j] = a'),
        "10:21 used-before-set: 'a' is used before it is set on every path that leads here",
    ),
    'tile condition': (
        grid('if x[i, j] > 0:', '    out[i, j] = x[i, j]'),
        "8:12 tile-condition: the condition of 'if' is a tile of 64x32 bool_; it must be a scalar",
    ),
    'and on tile': (
        grid('out[i, j] = x[i, j] if x[i,j] > 0 and n > 3 else 0'),
        "8:32 tile-condition: the condition of 'and' is a tile of 64x32 bool_; it must be a scalar",
    ),
    'zeros float len': (
        grid('a = zeros(f32, 2.5)', 'out[i,j]=x[i,j]'),
        "8:24 wrong-type: '2.5' is the number 2.5, expected an integer, a dim or an index range",
    ),
    'empty tile': (
        grid('a = zeros(f32, 0)', 'out[i, j] = x[i, j]'),
        '8:24 empty-tile: zeros has length 0 along axis 0; a tile has at least one element along each axis',
    ),
    'tile index oob': (
        grid('t = zeros(f32, 16)', 'a = t[16]', 'out[i, j] = x[i, j]'),
        "9:15 index-out-of-bounds: index 16 is outside axis 0 of 't', which has length 16",
    ),
    'integer division': (
        grid('out[i, j] = x[i, j] + n / 2'),
        "8:31 integer-division: '/' divides i32 by an integer, both integers",
    ),
    'return in loop': (
        grid('for k in range(n):', '    return out'),
        "9:13 unsupported-construct: a return inside a 'for' loop is not part of the language",
    ),
    'nested grid': (
        grid('for k in grid(K):', '    pass'),
        '8:18 nested-grid: a grid loop inside a grid loop',
    ),
    'break in grid': (
        grid('break'),
        "8:9 break-outside-loop: 'break' is not inside a serial loop",
    ),
    'reduce axis': (
        grid('s = sum(x[i, j], axis=2)', 'out[i, j] = x[i, j]'),
        '8:31 rank-mismatch: the operand of sum has 2 axes, expected more than axis 2 needs',
    ),
    'reduce kw': (
        grid('s = sum(x[i, j], axes=1)', 'out[i, j] = x[i, j]'),
        "8:26 wrong-arguments: sum has no argument 'axes'; it takes (x, axis=..., keepdims=..., dtype=...): did you mean 'axis'?",
    ),
    'reduce scalar': (
        grid('s = sum(n)', 'out[i, j] = x[i, j]'),
        "8:17 wrong-type: the operand 'n' of sum is a run-time i32 scalar, expected a tile",
    ),
    'reshape': (
        grid('s = reshape(zeros(f32, 4, 6), 5, 5)', 'out[i, j] = x[i, j]'),
        '8:13 reshape-mismatch: reshape of 4x6 to 5x5 changes the number of elements from 24 to 25',
    ),
    'transpose': (
        grid('s = transpose(x[i, j], 0, 0)', 'out[i, j] = x[i, j]'),
        '8:13 wrong-arguments: transpose needs each of the 2 axes once, got (0, 0)',
    ),
    'T rank': (
        grid('s = v[j].T', 'out[i, j] = x[i, j]'),
        "8:13 rank-mismatch: the operand 'v[j]' of .T has 1 axis, expected 2",
    ),
    'tile assign': (
        grid('t = x[i, j]', 't[0, 0] = 1.0', 'out[i, j] = t'),
        "9:9 wrong-type: 't' is a 64x32 f32 tile, expected a place in a tensor or buffer: a tile is a value and does not change",
    ),
    'loop type change': (
        grid('acc = zeros(f32, 64, 32)', 'for k in range(3):', '    acc = acc[:, 0]', 'out[i, j] = x[i, j]'),
        "10:13 wrong-type: 'acc' at the end of the loop body is a 64 f32 tile, expected a 64x32 f32 tile, as before the loop",
    ),
    'loop dtype change': (
        grid('acc = zeros(f16, i, j)', 'for k in range(3):', '    acc = acc + x[i, j]', 'out[i, j] = acc'),
        "10:13 wrong-type: 'acc' at the end of the loop body is a 64x32 f32 tile, expected a 64x32 f16 tile, as before the loop",
    ),
    'loop scalar to tile': (
        grid('acc = 0.0', 'for k in range(3):', '    acc = acc + x[i, j]', 'out[i, j] = acc'),
        "10:13 wrong-type: 'acc' at the end of the loop body is a 64x32 f32 tile, expected the number 0.0, as before the loop",
    ),
    'loop buffer change': (
        grid('s = local(f32, 4)', 'for k in range(3):', '    s = local(f32, 4)', '    s[0] = 1', 'out[i, j] = s[0]'),
        "9:9 wrong-type: 's', which the loop changes, is the 4 f32 local buffer 's', expected a number or a tile: other values cannot change at run time",
    ),
    'if type': (
        grid('if n > 0:', '    a = x[i, j]', 'else:', '    a = 0', 'out[i, j] = a'),
        "11:13 wrong-type: 'a' after this 'if' is a 64x32 f32 tile or the number 0, expected the same on both paths",
    ),
    'range arithmetic': (
        grid('out[i, j] = x[i, j] * i'),
        "8:31 wrong-type: 'i' is the index range 'i', expected a number or a tile for '*'",
    ),
    'range subscript': (
        grid('a = i[0]', 'out[i, j] = x[i, j]'),
        "8:13 wrong-type: 'i' is the index range 'i', expected a tensor, a tile, a buffer or a tuple",
    ),
    'tensor as value': (
        grid('out[i, j] = x + 1.0'),
        "8:21 wrong-type: 'x' is the MxN f32 tensor 'x', expected a value",
    ),
    'print': (
        grid('print(grid)', 'out[i, j] = 0'),
        "8:15 wrong-type: 'grid' is the function 'grid' of the language, expected something to print: a number, a tile or a string",
    ),
    'shadow call': (
        grid('sum = x[i, j]', 'out[i, j] = sum(x[i, j])'),
        "9:21 wrong-type: 'sum' is a 64x32 f32 tile, expected a function",
    ),
    'mask index': (
        grid('out[i, j] = x[x[i, 0] > 0, j]'),
        "8:23 wrong-type: the index 'x[i, 0] > 0' is a 64 bool_ tile, expected a tile of integers",
    ),
    'float index': (
        grid('out[i, j] = x[1.5, j]'),
        "8:23 wrong-type: '1.5' is the number 1.5, expected an index range, an integer or an integer tile",
    ),
    'unroll big': (
        grid('for q in static_range(100000):', '    pass', 'out[i, j] = x[i, j]'),
        '8:18 program-too-large: the loop is unrolled 100000 times, more than 4096',
    ),
    'gather dyn slice': (
        grid('out[i, j] = x[n:n + i.start, j]'),
        '8:23 not-constant: the length of a slice must be known at compile time, and (n + i.start) - n is a run-time value',
    ),
    'range step zero': (
        grid('for q in range(0, 8, 0):', '    pass'),
        '8:18 wrong-arguments: range has the step 0',
    ),
    'for over range value': (
        grid('for q in i:', '    pass'),
        "8:18 wrong-type: 'i' is the index range 'i', expected a loop (grid, pipelined, range, static_range, parallel) or a tuple",
    ),
    'empty in grid': (
        grid('t = empty(f32, M)', 'out[i, j] = x[i, j]'),
        '8:13 wrong-arguments: empty makes a tensor for all blocks, it cannot stand inside a loop over them',
    ),
    'assert tile': (
        grid('assert x[i, j] > 0, "positive"', 'out[i, j] = 0'),
        "8:16 tile-condition: the condition of 'assert' is a tile of 64x32 bool_; it must be a scalar",
    ),
    'assert static': (
        grid('assert BM == 32, "BM must be 32"', 'out[i, j] = 0'),
        '8:16 run-assert: assertion failed: BM must be 32',
    ),
    'store tile to element': (
        grid('out[0, 0] = x[i, j]'),
        "8:21 rank-mismatch: the value stored to one element of 'out' has 2 axes, expected 0",
    ),
    'pad with tile index': (
        grid('a = load(x[n, v[j]], pad=0)', 'out[i, j] = 0'),
        "8:23 wrong-type: the index 'v[j]' is a 32 f32 tile, expected a tile of integers",
    ),
    'atomic on input': (
        grid('atomic_add(x[i, j], 1.0)', 'out[i, j] = 0'),
        "8:20 assign-to-input: 'x' is an input and cannot be written",
    ),
    'atomic on value': (
        grid('t = x[i, j]', 'atomic_add(t, 1.0)', 'out[i, j] = 0'),
        "9:20 wrong-type: 't' is a 64x32 f32 tile, expected a place in a tensor or buffer, such as x[i]",
    ),
    'copy to input': (
        grid('copy(out[i, j], x[i, j])'),
        "8:25 assign-to-input: 'x' is an input and cannot be written",
    ),
    'while on tile': (
        grid('a = x[i, j]', 'while a > 0:', '    a = a - 1', 'out[i, j] = a'),
        "9:15 tile-condition: the condition of 'while' is a tile of 64x32 bool_; it must be a scalar",
    ),
    'gemm into tile': (
        grid('acc = zeros(f32, 64, 32)', 'gemm(x[i, j], x[i, j], acc)', 'out[i, j] = 0'),
        "9:32 wrong-type: 'acc' is a 64x32 f32 tile, expected a place in a tensor or buffer, such as x[i]",
    ),
    'static_range of run time': (
        grid('for q in static_range(n):', '    pass', 'out[i, j] = 0'),
        "8:31 not-constant: the bound of static_range must be known at compile time, and 'n' is a run-time value",
    ),
    'range factor': (
        grid('a = x[i * n, j]', 'out[i, j] = 0'),
        "8:19 not-constant: the factor of an index range must be known at compile time, and 'n' is a run-time value",
    ),
    'negative factor': (
        grid('a = x[i * -1, j]', 'out[i, j] = 0'),
        '8:19 wrong-type: the factor of an index range is -1, expected 1 or more',
    ),
    'iota float': (
        grid('a = iota(i, dtype=f32)', 'out[i, j] = 0'),
        '8:27 dtype-unsupported: iota does not support f32',
    ),
    'gather rank': (
        grid('a = gather(x[i, j], zeros(i32, 4), axis=1)', 'out[i, j] = 0'),
        '8:13 rank-mismatch: the index tile of gather has 1 axis, expected 2',
    ),
    'gather no axis': (
        grid('a = gather(x[i, j], zeros(i32, 64, 4))', 'out[i, j] = 0'),
        "8:13 wrong-arguments: gather needs the argument 'axis': it takes (x, indices, axis)",
    ),
    'where shapes': (
        grid('a = where(x[i, j] > 0, zeros(f32, 3), 0)', 'out[i, j] = 0'),
        '8:13 shape-mismatch: where meets lengths 32 and 3 along axis 1',
    ),
    'reduce axis twice': (
        grid('a = sum(x[i, j], axis=(0, -2))', 'out[i, j] = 0'),
        '8:31 wrong-arguments: sum got the axes (0, -2), one of them twice',
    ),
    'argmax dtype': (
        grid('a = argmax(x[i, j], axis=0, dtype=f32)', 'out[i, j] = 0'),
        '8:43 wrong-type: the dtype of argmax is the dtype f32, expected i32 or i64',
    ),
    'cumsum axis': (
        grid('a = cumsum(x[i, j])', 'out[i, j] = 0'),
        "8:13 wrong-arguments: cumsum needs the argument 'axis': it takes (x, axis, exclusive=...)",
    ),
    'keepdims': (
        grid('a = sum(x[i, j], axis=0, keepdims=1)', 'out[i, j] = 0'),
        '8:43 wrong-type: keepdims is 1, expected True or False',
    ),
    'axis at run time': (
        grid('a = sum(x[i, j], axis=n)', 'out[i, j] = 0'),
        "8:31 not-constant: the axis of sum must be known at compile time, and 'n' is a run-time value",
    ),
    'fill with tile': (
        grid('s = local(f32, 64, 32)', 'fill(s, x[i, j])', 'out[i, j] = 0'),
        '9:17 wrong-type: the value of fill is a 64x32 f32 tile, expected a scalar',
    ),
    'local without shape': (
        grid('s = local(f32)', 'out[i, j] = 0'),
        '8:13 wrong-arguments: local needs a shape after the dtype',
    ),
    'local of two tiles': (
        grid('s = local(x[i, j], x[i, j])', 'out[i, j] = 0'),
        '8:28 wrong-arguments: local takes one tile, or a dtype and a shape',
    ),
    'zeros without dtype': (
        grid('s = zeros(64, 32)', 'out[i, j] = 0'),
        "8:19 wrong-type: '64' is the number 64, expected a dtype such as f32",
    ),
    'shape attribute': (
        grid('s = x.shape', 'out[i, j] = 0'),
        "8:14 wrong-type: 'x' is the MxN f32 tensor 'x', expected something with '.shape'",
    ),
    'tuple index': (
        grid('t = (1, 2)', 'a = t[2]', 'out[i, j] = 0'),
        "9:15 index-out-of-bounds: index 2 is outside axis 0 of 't', which has length 2",
    ),
    'unpack count': (
        grid('a, b = (1, 2, 3)', 'out[i, j] = 0'),
        '8:16 wrong-arguments: the assignment has 2 names for 3 values',
    ),
    'unpack tile': (
        grid('a, b = x[i, j]', 'out[i, j] = 0'),
        "8:16 wrong-type: 'x[i, j]' is a 64x32 f32 tile, expected a tuple of 2 values, one for each name",
    ),
    'string arithmetic': (
        grid('a = "x" - 1', 'out[i, j] = 0'),
        "8:13 constant-error: '-' does not work on a string and an integer",
    ),
    'string and tile': (
        grid('out[i, j] = x[i, j] + "a"'),
        '8:31 wrong-type: \'"a"\' is the string \'a\', expected a number, a tile or a tensor',
    ),
    'local annotation': (
        grid('a: i32 = 1.5', 'out[i, j] = 0'),
        "8:18 wrong-type: '1.5' is the number 1.5, expected an integer, to be i32",
    ),
    'local annotation tile': (
        grid('a: f16 = x[i, j]', 'out[i, j] = 0'),
        "8:18 wrong-type: 'x[i, j]' is a 64x32 f32 tile, expected dtype f16",
    ),
    'local annotation kind': (
        grid('a: M = 3', 'out[i, j] = 0'),
        '8:12 annotation: the annotation is the index M, expected a dtype such as f32',
    ),
    'accumulate': (
        grid('acc = zeros(f32, 64, 32)', 'for k in range(K, by=16):', '    acc += y[j, k] @ y[j, k]', 'out[i, j] = acc'),
        '10:20 shape-mismatch: matmul contracts 16 with 32',
    ),
    'accumulate provenance': (
        grid('acc = zeros(f32, 32, 32)', 'for k in range(K, by=16):', '    acc += y[j, k] @ y[j, k].T', 'out[i, j] = acc'),
        "11:21 axis-mismatch: axis 0 of the store to 'out' runs along range 'j', here it meets range 'i'",
    ),
    'message at run time': (
        grid('assert n > 0, n', 'out[i, j] = 0'),
        "8:23 not-constant: the message of an assert must be known at compile time, and 'n' is a run-time value",
    ),
    'return in if': (
        grid('if n > 0:', '    return out', 'out[i, j] = 0'),
        "9:13 unsupported-construct: a return inside an 'if' on a run-time value is not part of the language",
    ),
    'loop outside for': (
        grid('a = range(4)', 'out[i, j] = 0'),
        "8:13 wrong-arguments: range makes a loop; it stands after 'in' of a for statement",
    ),
    'range of float': (
        grid('for q in range(2.5):', '    pass', 'out[i, j] = 0'),
        "8:24 wrong-type: '2.5' is the number 2.5, expected an integer",
    ),
    'range of range': (
        grid('for q in range(i):', '    pass', 'out[i, j] = 0'),
        "8:24 wrong-type: the bound of a loop is the index range 'i', expected an integer",
    ),
    'stages': (
        grid('for q in pipelined(K, by=4, stages=0):', '    pass', 'out[i, j] = 0'),
        '8:18 wrong-arguments: pipelined needs at least 1 stage, got 0',
    ),
    'step and by': (
        grid('for q in range(0, 8, 2, by=2):', '    pass', 'out[i, j] = 0'),
        "8:36 wrong-arguments: range takes a step or 'by', not both",
    ),
    'break in parallel': (
        grid('for r, c in parallel(4, 4):', '    break', 'out[i, j] = 0'),
        "9:13 break-outside-loop: 'break' is not inside a serial loop",
    ),
    'variable in parallel': (
        grid('s = 0.0', 'for r in parallel(4):', '    s += 1.0', 'out[i, j] = s'),
        "10:13 block-race: iterations of the parallel loop write the same elements of 's': it is a variable from outside the loop",
    ),
    'loop length change': (
        grid('acc = zeros(f32, 64)', 'for k in range(K, by=64):', '    acc = acc + y[j.start, k]', 'out[i, j] = acc[0]'),
        "10:13 wrong-type: the length of 'acc' is changed inside the loop, expected the same in each iteration",
    ),
    'range variable changes': (
        grid('r = i', 'for k in range(3):', '    r = r + 1', 'out[i, j] = 0'),
        "9:9 wrong-type: 'r', which the loop changes, is the index range 'i', expected a number or a tile: other values cannot change at run time",
    ),
    'int call': (
        grid('out[i, j] = int(n)'),
        "8:21 unknown-function: there is no function 'int'",
    ),
    'dims call': (
        grid('Q = dims("Q")', 'out[i, j] = 0'),
        "8:13 unknown-function: there is no function 'dims'",
    ),
    'call of a number': (
        grid('out[i, j] = BM(3)'),
        "8:21 wrong-type: 'BM' is the number 64, expected a function",
    ),
    'two errors': (
        grid('a = x[i, k]', 'b = x[i, j, j]', 'out[i, j] = a + b'),
        "8:18 unknown-name: 'k' is not defined here\n9:13 rank-mismatch: the subscript of 'x' has 3 axes, expected 2",
    ),
    'not on tile': (
        grid('a = not x[i, j]', 'out[i, j] = 0'),
        "8:17 tile-condition: the condition of 'not' is a tile of 64x32 f32; it must be a scalar",
    ),
    'len of number': (
        grid('a = len(n)', 'out[i, j] = 0'),
        "8:17 wrong-type: 'n' is a run-time i32 scalar, expected an index range, a tile, a tensor or a tuple",
    ),
    'min of nothing': (
        grid('a = min()', 'out[i, j] = 0'),
        '8:13 wrong-arguments: min takes one value and an axis to reduce, or several values to compare',
    ),
    'min axis of several': (
        grid('a = min(n, 3, axis=0)', 'out[i, j] = 0'),
        '8:13 wrong-arguments: min takes one value and an axis to reduce, or several values to compare',
    ),
}
