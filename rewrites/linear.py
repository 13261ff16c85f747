"""Matrix products: association, distribution, transposition."""

from eqsat.rewrite import ROUNDING, Rewrite

LINEAR = (
    Rewrite("matmul-associate", lambda a, b, c: ((a @ b) @ c, a @ (b @ c)), numerics=ROUNDING),
    Rewrite("matmul-associate-left", lambda a, b, c: (a @ (b @ c), (a @ b) @ c), numerics=ROUNDING),
)
