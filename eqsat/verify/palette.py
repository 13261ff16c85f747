"""The taste of one attempt at a sample: sizes, dtypes, numbers and functions to draw from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from eqsat.functions import POINTWISE, REDUCTION, Function
from eqsat.meta import Meta
from eqsat.verify.tape import Tape

Shape = tuple[Any, ...]  # whole numbers

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.bool, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)
CASTS = tuple(Function("to", (dtype,)) for dtype in (*FLOATS, *INTEGERS))
PARAMETERS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "gelu": ((), ("tanh",)),
    "clamp": ((0.0,), (-0.5, 1.5), (None, 1.0)),
    "leaky_relu": ((), (0.2,)),
}
BINARY = frozenset(
    (
        *("add", "sub", "mul", "div", "div_floor", "div_trunc", "pow", "maximum", "minimum"),
        *("remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"),
        *("bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)
SPREADS = ("var", "std", "welford_var", "welford_mean")  # they have a correction
FUNCTIONS: dict[str, tuple[Function, ...]] = {
    "unary": (
        *(
            Function(name, parameters)
            for name in POINTWISE
            if name not in BINARY | {"where", "to"}
            for parameters in PARAMETERS.get(name, ((),))
        ),
        *CASTS,
    ),
    "binary": tuple(Function(name) for name in POINTWISE if name in BINARY),
    "ternary": (Function("where"),),
    "reduction": (
        *(Function(name) for name in REDUCTION if name not in SPREADS),
        *(Function(name, (c,)) for name in SPREADS for c in (0, 1)),
        Function("sum", (torch.float64,)),
    ),
}
COMMON = {
    "unary": tuple(Function(name) for name in ("relu", "exp", "tanh", "neg", "sigmoid", "abs"))
    + (Function("gelu"), Function("to", (torch.float64,)), Function("to", (torch.float32,))),
    "binary": tuple(Function(name) for name in ("add", "sub", "mul", "div", "maximum", "minimum")),
    "ternary": (Function("where"),),
    "reduction": tuple(Function(name) for name in ("sum", "mean", "amax", "amin")),
}
INTEGRAL: tuple[Any, ...] = (0, 1, -1, 2, 3)
NUMBERS = (*INTEGRAL, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.25, 1e-3, 100.0, -1e30)


LARGEST_RANK = 5


@dataclass
class Palette:
    """The taste of one attempt: its sizes, usual rank and dtype, and what it has used so far.

    `head` is the number of draws that made the sizes and the dtype.
    """

    rng: Tape
    dtypes: tuple[tuple[torch.dtype, ...], tuple[float, ...]]  # base dtypes with their weights
    infinite: bool  # whether numbers may be NaN or infinite
    used: dict[tuple[str, Any], list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = self.rng
        self.sizes = tuple(rng.sample(rng.choice(((2, 3, 5), (2, 3, 4), (2, 4, 6), (3, 5, 7))), 3))
        if rng.random() < 0.2:  # kernels have other code for rows that fill a vector
            self.sizes = (2, 3, 16)
        self.repeats = rng.random() < 0.4
        if rng.random() < 0.25:  # all sizes alike: cubes admit what a shape would refuse
            self.sizes, self.repeats = (rng.choice((2, 3)),), True
        self.empty = rng.random() < 0.06
        self.dtype = rng.choices(*self.dtypes)[0]
        self.head = len(rng.drawn)
        self.rank = rng.choice((1, 2, 2, 3, 3, 4, 4, 5))
        self.spatial = rng.choice((1, 2, 2, 2))
        self.joint = rng.random() < 0.5  # factors of a product have the usual rank
        self.mixed = rng.random() < 0.2
        self.twins = rng.choice((0.35, 0.35, 0.9))  # how often siblings look alike
        self.place = -rng.randint(1, 3)  # the dim in which they differ
        self.casts = rng.random() < 0.2  # whether functions are casts, many to the usual dtype
        self.numbers = rng.choice((0.0, 0.0, 0.25, 0.6))

    def chance(self, p: float) -> bool:
        """True with probability `p`."""
        return self.rng.random() < p

    def size(self) -> int:
        """One of the sizes of this attempt, or 0."""
        return 0 if self.empty and self.chance(0.2) else self.rng.choice(self.sizes)

    def shape(self, rank: int) -> Shape:
        """A shape of this rank, its sizes pairwise distinct where there are enough of them."""
        if rank > 4:  # small ones: there are many
            return tuple(self.rng.choice((1, 2, 2, 3, self.sizes[0])) for _ in range(rank))
        if self.repeats or self.empty or rank > 3:
            shape = [self.size() for _ in range(rank)]
        else:
            shape = self.rng.sample(self.sizes, rank)
        return tuple(1 if self.chance(0.1) else size for size in shape)

    def a_rank(self, least: int = 0) -> int:
        """The usual rank, or any."""
        usual = self.chance(0.7) and self.rank >= least
        return self.rank if usual else self.rng.randint(least, LARGEST_RANK)

    def a_dtype(self) -> torch.dtype:
        """The usual dtype, or any."""
        if self.mixed and self.chance(0.4):
            return self.rng.choices(*self.dtypes)[0]
        return self.dtype

    def tensor(self, shape: Sequence[Any], dtype: torch.dtype | None = None) -> Meta:
        """The meta of a tensor of this shape."""
        return Meta(tuple(shape), dtype or self.a_dtype(), "cpu")

    def number(self) -> Any:
        """A Python number: a special one, one of few binary digits, or of few decimal ones."""
        if self.infinite and self.chance(0.08):
            return self.rng.choice((float("inf"), float("-inf"), float("nan")))
        if self.chance(0.5):
            return self.rng.choice(NUMBERS)
        if self.chance(0.5):
            return self.rng.randint(-24, 24) / 8
        return round(self.rng.uniform(-3, 3), 3)

    def partner(self, shape: Sequence[Any]) -> Shape:
        """A shape that broadcasts with `shape`."""
        rng, choice = self.rng, self.rng.random()
        if choice < 0.45 or self.chance(self.twins - 0.3):
            return tuple(shape)
        if choice < 0.65:
            return tuple(shape[rng.randint(0, len(shape)) :])
        if choice < 0.8:
            return (*self.shape(rng.choice((1, 1, 2))), *shape)[-LARGEST_RANK:]
        return tuple(
            1 if self.chance(0.3) else self.size() if s == 1 and self.chance(0.5) else s
            for s in shape
        )

    def dim(self, meta: Any) -> int:
        """A dim of the tensor, counted from the end: often the one in which siblings differ."""
        if meta.ndim >= -self.place and self.chance(0.5):
            return self.place
        return -self.rng.randint(1, max(1, meta.ndim))

    def dims(self, meta: Any) -> Shape:
        """Some dims of the tensor, sorted and counted from the end: often the last ones."""
        n = max(1, meta.ndim)
        count = 1 if self.chance(0.6) else self.rng.randint(1, n)
        if self.chance(0.4):
            return tuple(range(-count, 0))
        return tuple(sorted(self.rng.sample(range(-n, 0), count)))
