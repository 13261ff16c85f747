"""The stages of a run are steps that share a part of its budget, and tables of what they gave."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar  # the results of a stage are JSON

from .bench import Bench

T = TypeVar("T")
Json = dict[str, Any]
Rows = dict[str, Json]
"""What the steps of a stage gave, by subject and part."""

COMPILE, COMPILE_NETWORK = 1.5, 25.0
"""Guessed seconds to compile a small program and a network with an empty cache, for the plan."""


@dataclass(frozen=True)
class Step:
    """One thing that is tried: of a stage's subject, the part that `run` gives."""

    subject: str
    part: str
    run: Callable[[], Json]
    expected: float = 1.0
    """The seconds that it is taken for until a step of the same part was run."""


@dataclass(frozen=True)
class Stage:
    """Steps that share a part of the budget, and what follows from their results."""

    name: str
    share: float
    compiles: Callable[[Bench], tuple[int, float]]
    """How many programs are compiled, and the guessed seconds of each."""
    steps: Callable[[Bench], Generator[Step]]
    conclude: Callable[[Bench, Rows], dict[str, list[Json]]]
    """The tables of the summary, by title."""


def spread_out(items: Sequence[T]) -> list[T]:
    """Every second one, then the others: whoever stops early has seen small and large."""
    return [*items[::2], *items[1::2]]
