"""Elementary functions in additions, multiplications and bit operations, on scalars and vectors of f32 and f64: what expand-math inserts.

Polynomials are minimax fits by the Remez exchange algorithm in 60-digit decimal arithmetic (Remez, 1934; Muller, Elementary Functions: Algorithms and
Implementation, chapter 3), their coefficients rounded to the type. Errors named in the files are of the fits; those of the functions are tested in
tests/passes/test_expand_math.py. Sources of the reductions are named where they are used."""
