"""The values that a program has so far, and what a new step may ask of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .source import Leaf, random_text, run

EPOCH = 5_000  # programs that draw on the same samples of rules

COMMON = ((3, 4), (3, 4), (4,), (2, 3, 4), (4, 4), (1, 4), (2, 4, 5, 5), (4, 6), (3, 1))
"""Shapes that steps often ask for, so that what one makes another takes."""


class Pool:
    """The values of a program that grows, and the chance by which it does."""

    def __init__(self, seed: int) -> None:
        self.epoch = seed // EPOCH
        self.rng = random.Random(seed)
        self.dtype = torch.float32 if self.rng.random() < 0.15 else torch.float64
        self.batch = self.rng.choice((2, 2, 3, 5))
        self.values: dict[str, Tensor] = {}
        self.leaves: list[Leaf] = []

    def choice(self, *texts: str) -> str:
        """One of these texts."""
        return self.rng.choice(texts)

    def shape(self, ndim: int | None = None) -> tuple[int, ...]:
        """A small shape, now and then with sizes 1 or 0."""
        if ndim is None and self.rng.random() < 0.5:
            return self.rng.choice(COMMON)
        ndim = self.rng.choice((1, 2, 2, 3, 3, 4)) if ndim is None else ndim
        sizes = [self.rng.choice((2, 3, 4, 4, 6, 8)) for _ in range(ndim)]
        if sizes and self.rng.random() < 0.6:
            sizes[0] = self.batch
        if sizes and self.rng.random() < 0.15:
            sizes[self.rng.randrange(ndim)] = self.rng.choice((1, 1, 1, 0))
        return tuple(sizes)

    def tensor(
        self, shape: Sequence[int], dtype: torch.dtype | None = None, fresh: str = ""
    ) -> str:
        """A value of this shape: one that is there, or a new leaf."""
        wanted, shape = dtype or self.dtype, tuple(shape)
        found = [n for n, v in self.values.items() if v.shape == shape and v.dtype == wanted]
        if found and not fresh and self.rng.random() < 0.6:
            return self.rng.choice(found)
        kind = fresh or self.rng.choice(("input", "parameter", "parameter", "buffer"))
        text = random_text(shape, wanted)
        if not wanted.is_floating_point:
            kind = "buffer" if kind == "parameter" else kind
        elif len(shape) == 2 and kind == "input" and self.rng.random() < 0.2:
            text = f"{random_text(shape[::-1], wanted)}.mT"
        name = f"{kind[0]}{len(self.leaves)}"
        self.leaves.append(Leaf(name, kind, text))
        self.values[name] = run([f"value = {text}"])["value"]
        return name

    def value(self, shape: Sequence[int], dtype: torch.dtype) -> str:
        """An expression of this shape: a value that is there, elements of one, or a new leaf."""
        shape, chance = tuple(shape), self.rng.random()
        alike = [n for n, v in self.values.items() if v.dtype == dtype]
        found = [n for n in alike if self.of(n).shape == shape]
        if found and chance < 0.55:
            return self.rng.choice(found[-8:])
        wanted = torch.Size(shape).numel()
        large = [n for n in alike if self.of(n).numel() >= wanted][-8:]
        if not large or chance < 0.75:
            return self.tensor(shape, dtype, self.rng.choice(("input", "parameter", "buffer")))
        name = self.rng.choice(large)
        some = "" if self.of(name).numel() == wanted else f".reshape(-1)[:{wanted}]"
        return f"{name}{some}.reshape({shape})"

    def pick(self, accept: Callable[[Tensor], bool] = lambda _: True) -> str:
        """A value, more often a late one. Raises IndexError where none is accepted."""
        names = [n for n, v in self.values.items() if accept(v)]
        late = names[-6:]
        return self.rng.choice(late if self.rng.random() < 0.6 else names)

    def real(self, least: int = 0) -> str:
        """A floating-point value of at least so many dims."""
        return self.pick(lambda v: v.is_floating_point() and v.ndim >= least)

    def full(self, least: int = 1) -> str:
        """A floating-point value of at least so many dims, none of them empty."""
        return self.pick(lambda v: v.is_floating_point() and v.ndim >= least and v.numel() > 0)

    def of(self, name: str) -> Tensor:
        """The value of a name."""
        return self.values[name]

    def dim(self, name: str) -> int:
        """A dim of a value, counted from either end."""
        ndim = self.of(name).ndim
        return self.rng.choice(range(-ndim, ndim))

    def number(self) -> str:
        """A Python number."""
        common = ("1", "1.0", "2", "0.5", "-1", "0", "0.0", "-0.0", "3", "0.25", "1.5", "-2.0")
        return self.rng.choice((*common, "0.1", "7", "1e-3"))

    def beside(self, name: str) -> str:
        """A value that broadcasts with that of `name`."""
        shape = list(self.of(name).shape)
        shape = shape[self.rng.randint(0, len(shape)) if self.rng.random() < 0.3 else 0 :]
        shape = [1 if self.rng.random() < 0.2 else n for n in shape]
        return self.tensor(shape, self.of(name).dtype)
