"""The taste of one attempt at a sample: sizes, dtypes, numbers and functions to draw from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from eqsat.functions import POINTWISE, REDUCTION, Function
from eqsat.meta import Meta

Shape = tuple[int, ...]

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.bool)
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
        *(Function(name) for name in REDUCTION),
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


@dataclass
class Palette:
    """The taste of one attempt: its sizes, usual rank and dtype, and what it has used so far."""

    rng: random.Random
    dtypes: tuple[tuple[torch.dtype, ...], tuple[float, ...]]  # base dtypes with their weights
    infinite: bool  # whether numbers may be NaN or infinite
    used: dict[tuple[str, Any], list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = self.rng
        self.sizes = tuple(rng.sample(rng.choice(((2, 3, 5), (2, 3, 4), (2, 4, 6), (3, 5, 7))), 3))
        if rng.random() < 0.1:  # kernels have other code for rows that fill a vector
            self.sizes = (2, 3, 16)
        self.repeats = rng.random() < 0.4
        if rng.random() < 0.25:  # all sizes alike: cubes admit what a shape would refuse
            self.sizes, self.repeats = (rng.choice((2, 3)),), True
        self.empty = rng.random() < 0.03
        self.rank = rng.choice((1, 2, 2, 3, 3, 4))
        self.spatial = rng.choice((1, 2, 2, 2))
        self.dtype = rng.choices(*self.dtypes)[0]
        self.joint = rng.random() < 0.5  # factors of a product have the usual rank
        self.mixed = rng.random() < 0.2
        self.twins = rng.choice((0.35, 0.35, 0.9))  # how often siblings look alike
        self.place = -rng.randint(1, 3)  # the dim in which they differ
        self.numbers = rng.choice((0.0, 0.0, 0.25, 0.6))

    def resemble(self, good: Palette) -> None:
        """Take over the taste of an attempt that succeeded, not its sizes."""
        self.rank, self.spatial, self.dtype = good.rank, good.spatial, good.dtype
        self.mixed, self.numbers, self.joint = good.mixed, good.numbers, good.joint
        if max(good.sizes) > 7:
            self.sizes = good.sizes
        for key, values in good.used.items():
            if key[1] == "function":
                self.used[key] = list(values)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def size(self) -> int:
        return 0 if self.empty and self.chance(0.2) else self.rng.choice(self.sizes)

    def shape(self, rank: int) -> Shape:
        if self.repeats or self.empty or rank > 3:
            shape = [self.size() for _ in range(rank)]
        else:
            shape = self.rng.sample(self.sizes, rank)
        return tuple(1 if self.chance(0.1) else size for size in shape)

    def a_rank(self, least: int = 0) -> int:
        return self.rank if self.chance(0.7) and self.rank >= least else self.rng.randint(least, 4)

    def a_dtype(self) -> torch.dtype:
        if self.mixed and self.chance(0.4):
            return self.rng.choices(*self.dtypes)[0]
        return self.dtype

    def tensor(self, shape: Sequence[int], dtype: torch.dtype | None = None) -> Meta:
        return Meta(tuple(shape), dtype or self.a_dtype(), "cpu")

    def number(self) -> Any:
        if self.infinite and self.chance(0.08):
            return self.rng.choice((float("inf"), float("-inf"), float("nan")))
        if self.chance(0.5):
            return self.rng.choice(NUMBERS)
        return round(self.rng.uniform(-3, 3), 3)

    def partner(self, shape: Sequence[int]) -> Shape:
        """A shape that broadcasts with `shape`."""
        rng, choice = self.rng, self.rng.random()
        if choice < 0.45 or self.chance(self.twins - 0.3):
            return tuple(shape)
        if choice < 0.65:
            return tuple(shape[rng.randint(0, len(shape)) :])
        if choice < 0.8:
            return (*self.shape(rng.choice((1, 1, 2))), *shape)[-4:]
        return tuple(
            1 if self.chance(0.3) else self.size() if s == 1 and self.chance(0.5) else s
            for s in shape
        )

    def dim(self, meta: Any) -> int:
        if meta.ndim >= -self.place and self.chance(0.5):
            return self.place
        return -self.rng.randint(1, max(1, meta.ndim))

    def dims(self, meta: Any) -> Shape:
        n = max(1, meta.ndim)
        count = 1 if self.chance(0.6) else self.rng.randint(1, n)
        if self.chance(0.4):
            return tuple(range(-count, 0))
        return tuple(sorted(self.rng.sample(range(-n, 0), count)))
