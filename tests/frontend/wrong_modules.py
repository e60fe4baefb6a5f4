"""Wrong declarations, whole-tensor functions and files, each with the errors that the builder reports, as in wrong_programs.py."""

from __future__ import annotations

from tests.frontend.wrong_programs import module

WRONG_MODULES: dict[str, tuple[str, str]] = {
    'axis mismatch': (
        module('def f(x: f32[M, M], v: f32[M]) -> f32[M, M]:\n    out = empty(f32, M, M)\n    for i, j in grid(M, M, by=(64, 64)):\n        out[i, j] = x[i, j] + v[i]\n    return out\n'),
        "8:21 axis-mismatch: axis 1 of '+' runs along range 'j', here it meets range 'i'",
    ),
    'matmul len': (
        module('def f(a: f32[128, 64], b: f32[32, 64]) -> f32[128, 64]:\n    c = empty(f32, 128, 64)\n    for i in grid(128, by=32):\n        s = a[i, :]\n        c[i, :] = s @ b[:, :]\n    return c\n'),
        '9:19 shape-mismatch: matmul contracts 64 with 32',
    ),
    'store race': (
        module('def f(x: f32[M, N]) -> f32[M]:\n    out = empty(f32, M)\n    for i, j in grid(M, N, by=(64, 64)):\n        out[i] = sum(x[i, j], axis=1)\n    return out\n'),
        "8:9 block-race: blocks of the grid write the same elements of 'out': the place does not depend on 'j'",
    ),
    'store race overlap': (
        module('def f(x: f32[M]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M):\n        out[i:i + 2] = 0.0\n    return out\n'),
        "8:9 block-race: blocks of the grid write the same elements of 'out': along 'i' it moves by 1, and writes 2 elements",
    ),
    'variable race': (
        module('def f(x: f32[M], s: InOut[f32, 1]):\n    t = 0.0\n    for i in grid(M, by=64):\n        t += sum(x[i])\n    s[0] = t\n'),
        "8:9 block-race: blocks of the grid write the same elements of 't': it is a variable from outside the loop",
    ),
    'not constant by': (
        module('def f(x: f32[M], n: i32) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M, by=n):\n        out[i] = x[i]\n    return out\n'),
        "7:25 not-constant: a block size must be known at compile time, and 'n' is a run-time value",
    ),
    'const oob': (
        module('def f(x: f32[M, 4]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M):\n        out[i] = x[i, 4]\n    return out\n'),
        "8:23 index-out-of-bounds: index 4 is outside axis 1 of 'x', which has length 4",
    ),
    'negative index': (
        module('def f(x: f32[M, 4]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M):\n        out[i] = x[i, -1]\n    return out\n'),
        "8:23 index-out-of-bounds: index -1 is outside axis 1 of 'x', which has length 4",
    ),
    'dtype mismatch': (
        module('def f(a: u64[M], b: i64[M]) -> i64[M]:\n    out = empty(i64, M)\n    for i in grid(M, by=64):\n        out[i] = a[i] + b[i]\n    return out\n'),
        "8:18 dtype-mismatch: '+' has u64 and i64, which have no common type",
    ),
    'f8 arithmetic': (
        module('def f(a: f8e4m3[M]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M, by=64):\n        out[i] = a[i] + 1.0\n    return out\n'),
        "8:18 dtype-unsupported: '+' does not support f8e4m3",
    ),
    'exp int': (
        module('def f(a: i32[M]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M, by=64):\n        out[i] = exp(a[i])\n    return out\n'),
        '8:18 dtype-unsupported: exp does not support i32',
    ),
    'literal range': (
        module('def f(a: i8[M]) -> i8[M]:\n    out = empty(i8, M)\n    for i in grid(M, by=64):\n        out[i] = a[i] + 1000\n    return out\n'),
        "8:25 wrong-type: '1000' is the number 1000, expected a number from -128 to 127, the range of i8",
    ),
    'float to int store': (
        module('def f(a: f32[M]) -> i32[M]:\n    out = empty(i32, M)\n    for i in grid(M, by=64):\n        out[i] = a[i]\n    return out\n'),
        "8:18 wrong-type: the value stored to 'out' is a 64 f32 tile, expected dtype i32",
    ),
    'float literal to int': (
        module('def f(a: f32[M]) -> i32[M]:\n    out = empty(i32, M)\n    for i in grid(M, by=64):\n        out[i] = 1.5\n    return out\n'),
        "8:18 wrong-type: '1.5' is the number 1.5, expected an integer, to be i32",
    ),
    'missing return': (
        module('def f(a: f32[M]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M, by=64):\n        out[i] = a[i]\n'),
        "5:5 missing-return: 'f' declares the result f32[M], and does not return on every path",
    ),
    'wrong result dims': (
        module('def f(a: f32[M]) -> f32[N]:\n    out = empty(f32, M)\n    for i in grid(M, by=64):\n        out[i] = a[i]\n    return out\n'),
        '5:21 result-dims-unbound: the result uses dim N, which no parameter has',
    ),
    'wrong result dims2': (
        module('def f(a: f32[M, N]) -> f32[N]:\n    out = empty(f32, M)\n    for i in grid(M, by=64):\n        out[i] = 0\n    return out\n'),
        "9:12 wrong-type: the result 'out' is the M f32 tensor 'out', expected f32[N]",
    ),
    'wrong result dtype': (
        module('def f(a: f32[M]) -> f16[M]:\n    out = empty(f32, M)\n    for i in grid(M, by=64):\n        out[i] = a[i]\n    return out\n'),
        "9:12 wrong-type: the result 'out' is the M f32 tensor 'out', expected f16[M]",
    ),
    'return input': (
        module('def f(a: f32[M]) -> f32[M]:\n    for i in grid(M, by=64):\n        pass\n    return a\n'),
        "8:12 wrong-type: the result 'a' is the M f32 tensor 'a', expected a tensor made by empty(...) at the top of the function",
    ),
    'return count': (
        module('def f(a: f32[M]) -> tuple[f32[M], f32[M]]:\n    o = empty(f32, M)\n    for i in grid(M, by=64):\n        o[i] = a[i]\n    return o\n'),
        "9:12 wrong-arguments: 'f' returns 1 values, and declares 2",
    ),
    'return twice': (
        module('def f(a: f32[M]) -> tuple[f32[M], f32[M]]:\n    o = empty(f32, M)\n    for i in grid(M, by=64):\n        o[i] = a[i]\n    return o, o\n'),
        "9:15 wrong-type: the result 'o' is the M f32 tensor 'o', expected a tensor that is not returned already",
    ),
    'return undeclared': (
        module('def f(a: f32[M]):\n    o = empty(f32, M)\n    for i in grid(M, by=64):\n        o[i] = a[i]\n    return o\n'),
        "9:12 wrong-arguments: 'f' returns 1 values, and declares 0",
    ),
    'grid in for': (
        module('def f(a: InOut[f32, M]):\n    for q in range(3):\n        for i in grid(M, by=64):\n            a[i] = 0\n'),
        "7:18 nested-grid: a grid loop inside a 'for' loop",
    ),
    'grid in if': (
        module('def f(a: InOut[f32, M], n: i32):\n    if n > 0:\n        for i in grid(M, by=64):\n            a[i] = 0\n'),
        "7:18 nested-grid: a grid loop inside an 'if' on a run-time value",
    ),
    'break outside': (
        module('def f(a: InOut[f32, M]):\n    a[0] = 1\n    break\n'),
        "7:5 break-outside-loop: 'break' is not inside a serial loop",
    ),
    'recursion': (
        module('def r(x):\n    return s(x)\n\ndef s(x):\n    return r(x)\n\ndef f(a: f32[M]) -> f32[M]:\n    return r(a)\n'),
        "9:12 recursion: 'r' calls itself: r -> s -> r",
    ),
    'helper args': (
        module('def r(x, y):\n    return x\n\ndef f(a: f32[M]) -> f32[M]:\n    return r(a)\n'),
        "9:12 wrong-arguments: r needs the argument 'y': it takes (x, y)",
    ),
    'helper kwarg': (
        module('def r(x, *, eps=1.0):\n    return x\n\ndef f(a: f32[M]) -> f32[M]:\n    return r(a, epss=3.0)\n'),
        "9:17 wrong-arguments: r has no argument 'epss'; it takes (x, eps=...): did you mean 'eps'?",
    ),
    'dim conflict': (
        module('def f(a: f32[M], b: f32[N]) -> f32[M]:\n    return a + b\n'),
        "6:12 dim-conflict: dim 0 is M in 'a', and N in 'b'",
    ),
    'tensor matmul conflict': (
        module('def f(a: f32[M, K], b: f32[N, K]) -> f32[M, K]:\n    return a @ b\n'),
        "6:12 dim-conflict: dim 1 is K in 'a', and N in 'b'",
    ),
    'unbound result': (
        module('def f(a: f32[M]) -> f32[N]:\n    return a\n'),
        '5:21 result-dims-unbound: the result uses dim N, which no parameter has',
    ),
    'bad annotation': (
        module('def f(a: flaot32[M]) -> f32[M]:\n    return a\n'),
        "5:10 annotation: the parameter 'a' has the annotation 'flaot32[M]', which is not a type of the language",
    ),
    'no annotation': (
        module('def f(a) -> f32[4]:\n    return a\n'),
        "5:7 annotation: the parameter 'a' of a kernel has no annotation",
    ),
    'param dim expr': (
        module('def f(a: f32[M * 2]) -> f32[M]:\n    return a\n'),
        "5:7 annotation: the dim 2*M of 'a' is computed; a dim of a parameter is a symbolic dim or a constant",
    ),
    'default on tensor': (
        module('def f(a: f32[M] = 3) -> f32[M]:\n    return a\n'),
        "5:19 annotation: the parameter 'a' is a tensor and has no default",
    ),
    'wrong kind default': (
        module('def f(a: f32[M], *, B: int = 2.5) -> f32[M]:\n    return a\n'),
        "5:30 wrong-type: the value of 'B' is the number 2.5, expected an integer",
    ),
    'dup param': (
        module('def f(a: f32[M], a: f32[M]) -> f32[M]:\n    return a\n'),
        "5:18 redefinition: 'a' is already defined as a parameter",
    ),
    'inout result': (
        module('def f(a: f32[M]) -> InOut[f32, M]:\n    return a\n'),
        '5:21 annotation: a result is a new tensor, InOut is for parameters',
    ),
    'tensor assign': (
        module('def f(a: f32[M]) -> f32[M]:\n    b = a + 1\n    return b[None]\n'),
        '7:12 rank-mismatch: the result has 2 axes, expected 1',
    ),
    'constant div': (
        module('A = 1 // 0\ndef f(a: f32[M]) -> f32[M]:\n    return a * A\n'),
        '5:5 constant-error: 1 // 0 divides by zero',
    ),
    'constant big': (
        module('def f(a: f32[M]) -> f32[M]:\n    return a * (2 ** 1000)\n'),
        '6:17 constant-error: 2 ** 1000 is too large',
    ),
    'pow int': (
        module('def f(a: i32[M]) -> i32[M]:\n    return a ** a\n'),
        "6:12 dtype-unsupported: '**' does not support i32",
    ),
    'import missing': (
        'from .nothere import g\nM, N, K = dims("M N K")\nFloat = dtypes(f32, f16)\nBM = 64\n\ndef f(a: f32[M]) -> f32[M]:\n    return a\n',
        "1:1 import-not-found: '.nothere' is not there: no file nothere.tile",
    ),
    'import bad': (
        'from numpy import exp\nM, N, K = dims("M N K")\nFloat = dtypes(f32, f16)\nBM = 64\n\ndef f(a: f32[M]) -> f32[M]:\n    return a\n',
        "1:1 import-not-found: 'numpy' cannot be imported into .tile text",
    ),
    'slice negative': (
        module('def f(x: f32[M, 8]) -> f32[M, 2]:\n    o = empty(f32, M, 2)\n    for i in grid(M):\n        o[i, :] = x[i, -2:8]\n    return o\n'),
        "8:24 index-out-of-bounds: index -2 is outside axis 1 of 'x', which has length 8",
    ),
    'grid targets': (
        module('def f(x: InOut[f32, M]):\n    for i, j in grid(M):\n        x[i] = 0\n'),
        "6:9 wrong-arguments: grid has 1 axes, and 2 names stand before 'in'",
    ),
    'by count': (
        module('def f(x: InOut[f32, M]):\n    for i in grid(M, by=(3, 4)):\n        x[i] = 0\n'),
        "6:25 wrong-arguments: grid has 1 axis, and 'by' has 2 entries",
    ),
    'by zero': (
        module('def f(x: InOut[f32, M]):\n    for i in grid(M, by=0):\n        x[i] = 0\n'),
        '6:25 empty-tile: a block has length 0 along axis 0; a tile has at least one element along each axis',
    ),
    'gemm': (
        module('def f(a: f32[M, K], c: InOut[f32, M, M]):\n    for i in grid(M, by=32):\n        s = shared(f32, 32, 16)\n        t = shared(f32, 32, 16)\n        acc = accumulator(f32, 32, 32)\n        gemm(s, t, acc)\n'),
        '10:9 shape-mismatch: matmul contracts 16 with 32',
    ),
    'copy shape': (
        module('def f(a: f32[M, K]) :\n    for i in grid(M, by=32):\n        s = shared(f32, 16)\n        copy(a[i, 0], s)\n'),
        "8:14 shape-mismatch: the store to 's' meets lengths 32 and 16 along axis 0",
    ),
    'parallel race': (
        module('def f(x: InOut[f32, M]):\n    for i in grid(M, by=32):\n        s = local(f32, 4)\n        for r, c in parallel(4, 4):\n            s[r] = 1.0\n        x[i] = s[0]\n'),
        "9:13 block-race: iterations of the parallel loop write the same elements of 's': the place does not depend on 'c'",
    ),
    'uminus bool': (
        module('def f(x: bool_[M]) -> bool_[M]:\n    return -x\n'),
        "6:12 dtype-unsupported: '-' does not support bool_",
    ),
    'bitand float': (
        module('def f(x: f32[M]) -> f32[M]:\n    return x & x\n'),
        "6:12 dtype-unsupported: '&' does not support f32",
    ),
    'bool store': (
        module('def f(x: f32[M]) -> bool_[M]:\n    return x\n'),
        "6:12 wrong-type: the value stored to 'the result' is a M f32 tensor, expected dtype bool_",
    ),
    'dtype param unknown': (
        module('def f(x: f32[M]) -> f32[M]:\n    return cast(x, Float)\n'),
        "6:20 wrong-type: 'Float' is a dtype parameter that no parameter of this function has, expected a dtype",
    ),
    'reinterpret': (
        module('def f(x: f32[M]) -> f32[M]:\n    return reinterpret(x, i16)\n'),
        '6:12 wrong-type: the dtype of reinterpret is the dtype i16, expected a dtype of 32 bits',
    ),
    'gelu arg': (
        module('def f(x: f32[M]) -> f32[M]:\n    return gelu(x, approximate="fast")\n'),
        '6:12 wrong-arguments: gelu takes approximate="none" or "tanh", got \'fast\'',
    ),
    'where cond': (
        module('def f(x: f32[M]) -> f32[M]:\n    return where(x, x, 0)\n'),
        '6:18 wrong-type: the condition of where is a M f32 tensor, expected bool',
    ),
    'compare strings': (
        module('def f(x: f32[M], *, mode: str = "a") -> f32[M]:\n    if mode < 3:\n        return x\n    return x\n'),
        "6:8 constant-error: '<' does not compare a string with an integer",
    ),
    'expand axis': (
        module('def f(x: f32[M]) -> f32[M]:\n    return expand(x, 3)\n'),
        '6:22 rank-mismatch: the operand of expand has 2 axes, expected more than axis 3 needs',
    ),
    'several': (
        module('def f(x: f32[M]) -> f32[M]:\n    a = foo(x)\n    b = x + bar\n    c = a + b\n    return c @ x\n'),
        "6:9 unknown-function: there is no function 'foo'\n7:13 unknown-name: 'bar' is not defined here",
    ),
    'store length': (
        module('def f(x: f32[M]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M, by=64):\n        out[i] = zeros(f32, 32)\n    return out\n'),
        "8:18 shape-mismatch: the store to 'out' meets lengths 32 and 64 along axis 0",
    ),
    'store wide to one': (
        module('def f(x: f32[M]) -> f32[1]:\n    out = empty(f32, 1)\n    for i in grid(1):\n        out[0:1] = x[0:4]\n    return out\n'),
        "8:20 shape-mismatch: a value of length 4 is stored to an axis of 'out' of length 1",
    ),
    'pad with index tile': (
        module('def f(x: f32[M], p: i32[M]) -> f32[M]:\n    out = empty(f32, M)\n    for i in grid(M, by=4):\n        out[i] = load(x[p[i]], pad=0)\n    return out\n'),
        '8:25 wrong-arguments: load does not pad an access by index tiles; clamp the indices',
    ),
    'pad float to int': (
        module('def f(x: i32[M]) -> i32[M]:\n    out = empty(i32, M)\n    for i in grid(M, by=4):\n        out[i] = load(x[i - 1], pad=0.5)\n    return out\n'),
        "8:37 wrong-type: '0.5' is the number 0.5, expected an integer, to be i32",
    ),
    'atomic on bool': (
        module('def f(x: InOut[bool_, M]):\n    for i in grid(M, by=4):\n        atomic_add(x[i], True)\n'),
        '7:20 dtype-unsupported: atomic_add does not support bool_',
    ),
    'matmul batch': (
        module('def f(a: f32[2, M, K], b: f32[3, K, N]) -> f32[2, M, N]:\n    return a @ b\n'),
        '6:12 shape-mismatch: matmul meets lengths 2 and 3 along axis 0',
    ),
    'matmul f8': (
        module('def f(a: f8e4m3[M, K], b: f8e4m3[K, N]) -> f32[M, N]:\n    return a @ b\n'),
        '6:12 dtype-unsupported: matmul does not support f8e4m3',
    ),
    'matmul dtypes': (
        module('def f(a: u64[M, K], b: i64[K, N]) -> f32[M, N]:\n    return a @ b\n'),
        '6:12 dtype-mismatch: matmul has u64 and i64, which have no common type',
    ),
    'helper returns in if': (
        module('def pick(n):\n    if n > 0:\n        return 1.0\n    return 2.0\n\ndef f(x: f32[M], n: i32) -> f32[M]:\n    return x * pick(n)\n'),
        "7:9 unsupported-construct: a return inside an 'if' on a run-time value is not part of the language",
    ),
    'helper nothing': (
        module('def nothing(n):\n    pass\n\ndef f(x: f32[M]) -> f32[M]:\n    return x * nothing(x)\n'),
        "9:16 wrong-type: 'nothing(x)' is None, expected a number, a tile or a tensor",
    ),
    'kernel argument rank': (
        module('def g2(x: f32[M, N]) -> f32[M, N]:\n    return x\n\ndef f(x: f32[M]) -> f32[M]:\n    return g2(x)\n'),
        "9:15 rank-mismatch: 'x' has 1 axis, expected 2",
    ),
    'kernel argument dtype': (
        module('def g2(x: f16[M]) -> f16[M]:\n    return x\n\ndef f(x: f32[M]) -> f32[M]:\n    return g2(x)\n'),
        "9:15 wrong-type: 'x' is a M f32 tensor, expected dtype f16",
    ),
    'kernel argument dims': (
        module('def g2(x: f32[M], y: f32[M]) -> f32[M]:\n    return x + y\n\ndef f(x: f32[M], y: f32[N]) -> f32[M]:\n    return g2(x, y)\n'),
        "9:18 dim-conflict: dim M is M in the other arguments, and N in 'y'",
    ),
    'kernel argument static': (
        module('def g2(x: f32[M], k: int) -> f32[M]:\n    return x\n\ndef f(x: f32[M], n: i32) -> f32[M]:\n    return g2(x, n)\n'),
        "9:18 not-constant: the argument 'k' must be known at compile time, and 'n' is a run-time value",
    ),
    'tune empty': (
        module('def f(x: f32[M], *, B: int = tune()) -> f32[M]:\n    return x\n'),
        '5:30 wrong-arguments: tune takes the values worth trying, as in tune(64, 128)',
    ),
    'tune kinds': (
        module('def f(x: f32[M], *, B: int = tune(1, 2.5)) -> f32[M]:\n    return x\n'),
        "5:38 wrong-type: the value of 'B' is the number 2.5, expected an integer",
    ),
    'static parameter without value': (
        module('def f(x: f32[M], *, B: int) -> f32[M]:\n    return x\n'),
        "5:21 wrong-arguments: f needs a value for the compile-time parameter 'B'",
    ),
    'tensor of what': (
        module('def f(x: Tensor[M, N]) -> f32[M]:\n    return x\n'),
        "5:17 annotation: Tensor starts with a dtype, found 'M'",
    ),
    'negative dim': (
        module('def f(x: f32[-3]) -> f32[3]:\n    return x\n'),
        '5:14 annotation: a dim of the tensor is the number -3, expected a symbolic dim or an integer of at least 0',
    ),
    'float dim': (
        module('def f(x: f32[2.5]) -> f32[3]:\n    return x\n'),
        '5:14 annotation: a dim of the tensor is the number 2.5, expected a symbolic dim or an integer of at least 0',
    ),
    'constant cycle': (
        module('A = B + 1\nB = A\ndef f(x: f32[M]) -> f32[M]:\n    return x * A\n'),
        "5:1 constant-error: the constant 'A' needs its own value",
    ),
    'grid without dims': (
        module('def f(x: InOut[f32, M]):\n    for i in grid():\n        x[0] = 0\n'),
        '6:14 wrong-arguments: grid needs the length of at least one axis',
    ),
    'reserved dims': (
        module('def f(x: f32[M], M: i32) -> f32[M]:\n    return x * M\n'),
        "5:18 redefinition: 'M' is already defined as a dim",
    ),
    'unsigned negative': (
        module('def f(x: u8[M]) -> u8[M]:\n    return x + -1\n'),
        "6:16 wrong-type: '-1' is the number -1, expected a number from 0 to 255, the range of u8",
    ),
    'broadcast': (
        module('def f(x: f32[M, 3]) -> f32[M, 4]:\n    return broadcast(x, M, 4)\n'),
        '6:12 shape-mismatch: broadcast meets lengths 3 and 4 along axis 1',
    ),
    'reshape symbolic': (
        module('def f(x: f32[4, 6]) -> f32[5, 5]:\n    return reshape(x, 5, 5)\n'),
        '6:12 reshape-mismatch: reshape of 4x6 to 5x5 changes the number of elements from 24 to 25',
    ),
    'tensor gather': (
        module('def f(x: f32[M, N], c: i32[M, N]) -> f32[M, N]:\n    return gather(x, c, axis=1)\n'),
        '6:12 wrong-arguments: gather works on tiles, not on whole tensors; write a grid loop',
    ),
    'huge string': (
        module('A = "aaaaaaaaaa"\ndef f(x: f32[M], *, s: str = "b") -> f32[M]:\n    return x * (A + s)\n'),
        "7:17 wrong-type: 'A + s' is the string 'aaaaaaaaaab', expected a number, a tile or a tensor",
    ),
}
