"""erf: x times a polynomial in x**2 near 0; further out 1 - erfc, with a polynomial for log erfc, of which only so many digits matter as
erfc is large (the form of N. Juffa's erff; fits of our own)."""

from __future__ import annotations

from tilelang.ir.core import Value
from tilelang.passes.math.build import MathBuilder
from tilelang.passes.math.exponential import exp_in_range

BORDER = {32: 0.9, 64: 1.0}
# From here on erf rounds to 1.
END = {32: 3.95, 64: 5.95}
# erf(x) / x in x**2 up to the border; errors 2**-31 and 2**-68
NEAR = {
    32: (1.128379225730896, -0.37612634897232056, 0.11283714324235916, -0.026860486716032028, 0.00520380400121212, -0.0008174980757758021,
         8.510176121490076e-05),
    64: (1.1283791670955126, -0.37612638903183754, 0.11283791670955119, -0.02686617064512972, 0.0052239776254218925, -0.0008548327021839452,
         0.0001205533289873087, -1.4925647445994567e-05, 1.6462043009463081e-06, -1.636460873644625e-07, 1.4792091074478079e-08,
         -1.2162703220934828e-09, 8.702569872503767e-11, -4.220954868823734e-12),
}  # fmt: skip
# log erfc(x) in x from the border on; errors of erfc 2**-34 and 2**-65
FAR = {
    32: (0.0001703092420939356, -1.1294939517974854, -0.6333890557289124, -0.1082339659333229, 0.025089768692851067, -0.004159867297858,
         0.0004321662709116936, -2.0897685317322612e-05),
    64: (2.668397040800368e-08, -1.1283795077202827, -0.6366177163706818, -0.10278041076649902, 0.019149380770505292, 0.0001670399692307595,
         -0.001630019315076757, 0.0005071332502018012, 5.84964229157265e-05, -0.00013461543299097333, 7.742985002759247e-05,
         -2.9770766756066115e-05, 8.720615248006799e-06, -2.022470817152995e-06, 3.7459322666960503e-07, -5.5021861778754204e-08,
         6.283593506473814e-09, -5.385917825691069e-10, 3.2611186101678925e-11, -1.2435252113187585e-12, 2.244888783682353e-14),
}  # fmt: skip


def erf(m: MathBuilder, x: Value) -> Value:
    size = m.at_most(m.abs(x), END[m.bits])
    near = m.mul(x, m.horner(m.mul(size, size), NEAR[m.bits]))
    far = m.copysign(m.sub(1.0, exp_in_range(m, m.horner(size, FAR[m.bits]))), x)
    return m.select(m.cmp("lt", size, BORDER[m.bits]), near, far)
