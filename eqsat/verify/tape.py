"""A source of chance that remembers its draws: a success is tried again with a few changed."""

from __future__ import annotations

import random
from collections.abc import Sequence

Draws = tuple[float | None, ...]  # None: to be drawn anew


class Tape(random.Random):
    """A generator whose draws can be given; the others depend on the seed alone."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.given: Draws = ()
        self.drawn: list[float] = []

    def start(self, given: Draws = ()) -> None:
        """Begins anew: the draws come from `given` as far as it goes."""
        self.given, self.drawn = given, []

    def random(self) -> float:  # every other method of the class is made of this one
        """The next number in [0, 1)."""
        place = len(self.drawn)
        given = self.given[place] if place < len(self.given) else None
        value = super().random() if given is None else given
        self.drawn.append(value)
        return value


def varied(parent: Sequence[float], head: int, rng: random.Random) -> Draws:
    """The draws of an attempt that succeeded, some of them to be drawn anew.

    Of the first `head`, which are the taste of the attempt, and of the others: a few anywhere, or
    all from some place on.
    """
    new: list[float | None] = list(parent)
    if rng.random() < 0.5:
        new[:head] = [None] * min(head, len(new))
    choice = rng.random()
    if choice < 0.25 and len(new) > head:
        new = new[: rng.randrange(head, len(new))]
    elif choice < 0.9:
        for _ in range(rng.choice((1, 1, 2, 4))):
            new[rng.randrange(len(new))] = None
    return tuple(new)
