"""Broadcasting recognised, and delayed: reshapes move across functions of which one operand is broadcast."""

import math
from typing import Any

from eqsat.operators import cat, expand, reshape
from eqsat.rewrite import ROUNDING, Rewrite, attribute
from rewrites.attributes import both_steady, spans

Shape = tuple[Any, ...]


@attribute
def stretched(small: Shape, big: Shape, size: Shape) -> Shape | None:
    """The shape in which an operand of shape `small` meets one of shape `big` that is reshaped to `size`.

    The dims of `big` and `size` are read in groups of equal product; `small` has all of a group or, of size 1, none.
    None where it has a part of one, or a size is 0 or symbolic.
    """
    if len(small) != len(big) or not all(isinstance(n, int) and n > 0 for n in (*small, *big, *size)):
        return None
    found: list[int] = []
    i, j = len(big), len(size)
    while i > 0 or j > 0:
        a, b = i, j
        i, j = max(i - 1, 0), max(j - 1, 0)
        while math.prod(big[i:a]) != math.prod(size[j:b]):
            if math.prod(big[i:a]) < math.prod(size[j:b]) and i > 0:
                i -= 1
            elif j > 0:
                j -= 1
            else:
                return None
        if small[i:a] == big[i:a]:
            found = [*size[j:b], *found]
        elif math.prod(small[i:a]) == 1:
            found = [1] * (b - j) + found
        else:
            return None
    return tuple(found)


def splits(x: Any, y: Any, z: Shape) -> bool:
    """Whether a reshape to more dims can meet `y`, which is broadcast along dims of `x`, before `x` does."""
    return len(z) > x.ndim and tuple(y.shape) != tuple(x.shape) and stretched(tuple(y.shape), tuple(x.shape), z) is not None


@attribute
def grown(shape: Shape, dim: int, count: int) -> Shape:
    """The shape with another size along a dim."""
    return tuple(count if d == dim else n for d, n in enumerate(shape, -len(shape)))


def _same(n: int) -> Rewrite:
    """A tensor of size 1 along a dim, `n` times."""
    return Rewrite(f"cat-same-{n}", lambda x, d: (cat(*(x for _ in range(n)), d), expand(x, grown(x.shape, d, n))), when=lambda x, d: not spans(x, d))


BROADCAST = (
    *(_same(n) for n in (2, 3, 4)),
    Rewrite("split-broadcast-left",  lambda f, x, y, z: (reshape(f(x, y), z), f(reshape(x, z), reshape(y, stretched(y.shape, x.shape, z)))), when=splits, numerics=ROUNDING, exact=both_steady),
    Rewrite("split-broadcast-right", lambda f, x, y, z: (reshape(f(y, x), z), f(reshape(y, stretched(y.shape, x.shape, z)), reshape(x, z))), when=splits, numerics=ROUNDING, exact=both_steady),
)
