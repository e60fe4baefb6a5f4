"""Functions in the common language of both readers, used by the tests of each: name -> source."""

PROGRAMS = {
    "whole": "def f(x: f32[M, K], w: f32[K, N], b: f32[N]) -> f32[M, N]:\n    return gelu(x @ w + b)\n",
    "linear": '''def f(a: Tensor[Float, M, K], w: Tensor[Float, K, N], bias: Tensor[Float, N], *,
      BM: int = tune(64, 128), BN: int = tune(128, 64), BK: int = tune(32, 64)) -> Tensor[Float, M, N]:
    """A dense layer.

    Rows of a times columns of w.
    """
    out = empty(Float, M, N)
    for i, j in grid(M, N, by=(BM, BN)):            # parallel blocks
        acc = zeros(f32, BM, BN)
        for k in pipelined(K, by=BK, stages=3):
            acc += a[i, k] @ w[k, j]
        out[i, j] = gelu(acc + bias[j])
    return out
''',
    "buffers": """def f(a: f16[M, K], c: InOut[f32, M]):
    for i in grid(M, by=64):
        s = shared(a[i, 0:32])
        acc = accumulator(f32, 64)
        fill(acc, 0)
        copy(s[:, :], acc)
        gemm(s, s, acc, transpose_b=True)
        for r, q in parallel(64, 32):
            s[r, q] = s[r, q] * 2
        c[i] += acc[:]
""",
    "scalars": "def f(x: f32[M], alpha: f32, n: i32, flag: bool_ = True):\n    x[n] = alpha if flag else -alpha\n",
    "keywords": 'def f(x, *, causal: bool = False, eps: float = 1e-5, mode: str = "x", Out: dtype = f32):\n    pass\n',
    "two results": "def f(x: f32[M]) -> tuple[f32[M // 2], i32[M * 2]]:\n    return x, x\n",
    "while": """def f(n: i32):
    while n > 0:
        n -= 1
        if n == 3:
            break
        elif n != 4:
            continue
        else:
            pass
""",
    "elif": "def f(a):\n    if a:\n        b = 1\n    elif not a:\n        b = 2\n    elif a == 3:\n        b = 3\n    return b\n",
    "nested if": "def f(a):\n    if a:\n        if a > 1:\n            b = 1\n        else:\n            b = 2\n    return b\n",
    "one line": "def f(a): return a\n",
    "one line if": "def f(a):\n    if a: b = 1\n    else: b = 2\n    return b\n",
    "numbers": "def f(): return 1_000 + 0x1F - 1e-5 * .5 / 1. // 0b11 % 0o17 ** 00 + 1E3 + 3.25e+2\n",
    "strings": "def f():\n    print('a\"b', \"it's\", 'x' \"y\", r'\\d', '\\n\\x41\\u00e9', '''long''', u'z', '日本', '')\n",
    "precedence": "def f(a, b, c):\n    return a + b * c ** -a ** 2 - (a - (b - c)) | b & ~c ^ a << 2 >> 1 @ b\n",
    "parentheses": "def f(a, b):\n    return ((a + b)) * (a), (-a) ** 2, (a if b else a) if (a) else b, (a + b)[0], (a < b) == b\n",
    "logic": "def f(a, b, c):\n    return a and b or not c and (a or b) and not (a == b)\n",
    "unary": "def f(a):\n    return --a, -+~a, not not a, -a.b, -a[1], -(a ** 2), (not a) == a\n",
    "subscripts": "def f(x):\n    return x[i - 1, j], x[:, None], x[::2, a:b:c, 1:], x[()], x[(1, 2)], x[(1, 2), 3], x[1,], x[(1, 2),]\n",
    "calls": "def f(x):\n    return g(), g(x), g(x,), g(x, y=1), g(y=1, z=(2, 3)), tl.load(x[i], pad=0).T, g(x)(x)[0](y)\n",
    "tuples": "def f(x):\n    a, b = x, x\n    (a, b) = (b, a)\n    c = ()\n    d = (a,)\n    e = a,\n    x[0], d = c, (a, (b,))\n    return a,\n",
    "augmented": "def f(a):\n"
    + "".join(f"    a {op}= 2\n" for op in ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>")),
    "annotated": "def f(x):\n    y: f32 = x\n    z: Tensor[f32, 4] = y, y\n    return z\n",
    "assert": 'def f(x):\n    assert x > 0\n    assert x > 0, "too small"\n    assert (x), f(x)\n',
    "comments": """def f(x):  # the header
    # before

    # a doc is a string, this is not
    y = (x +  # inside
         # a line of its own
         1)

    # after
    return y
# at the margin
""",
    "continuation": "def f(x):\n    y = x + \\\n        1\n    return g(\n        y,\n        x,\n    )\n",
    "unicode": "def f(größe: f32[M], ﬁ):\n    é = größe + 'naïve 日本' + ﬁ\n    return é @ größe\n",
    "loops": """def f(n):
    for i in (1, 2, 3):
        for j in 1, 2:
            for k in range(0, n, 2):
                for (a, b) in static_range(n):
                    x[i, j, k] = a
    for (i) in range(n):
        pass
""",
    "constants": "def f(x):\n    return True, False, None, inf, -nan, x is_ None\n".replace("x is_ None", "x == None"),
    "only doc": 'def f(x):\n    """Nothing else."""\n',
    "doc with quotes": 'def f(x):\n    """A "quoted" \\\\ word.\n\n      indented\n    """\n    return x\n',
    "empty doc": 'def f(x):\n    """"""\n',
    "deep blocks": "def f(x):\n" + "".join("    " * (i + 1) + "if x:\n" for i in range(18)) + "    " * 19 + "pass\n",
}
