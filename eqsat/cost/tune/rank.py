"""How well predicted costs rank equal programs whose times are measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import kendalltau

TIE = 0.05
"""Measured times that differ by less are equal: their order is noise."""
LARGE = 0.25
"""Pairs that differ by more are counted apart: their order is not noise on any machine."""
EQUAL = 1e-9
"""Predictions that differ by less are equal."""


@dataclass(frozen=True)
class Ranked:
    """The measured seconds of one program of a group, and what each predictor says of it."""

    group: str
    program: str
    seconds: float
    predicted: Mapping[str, float]


@dataclass(frozen=True)
class Score:
    """How well one predictor ranks.

    A predicted tie counts as half right, and as a choice of each of the tied programs.
    """

    pairs: int
    """Pairs within a group that differ by more than `TIE`."""
    accuracy: float
    """The share of them that are predicted in the right order."""
    large_pairs: int
    large_accuracy: float
    """The same for pairs that differ by more than `LARGE`."""
    tau: float
    """The mean of Kendall's tau over the groups; 0 for a group that is predicted to be equal."""
    top: float
    """The share of groups whose predicted best is within `TIE` of the fastest."""
    regret: float
    """How much slower than the fastest the predicted best is: the mean over the groups."""
    worst: float
    """The same of the worst group."""


def score(programs: Sequence[Ranked], predictor: str) -> Score:
    """The score of one predictor, by its name in `Ranked.predicted`."""
    groups = _grouped(programs)
    right: list[tuple[float, float]] = []  # (ratio of the times, 1 if in order, 1/2 if tied)
    taus: list[float] = []
    tops: list[float] = []
    regrets: list[float] = []
    for members in groups.values():
        times = [one.seconds for one in members]
        costs = [one.predicted[predictor] for one in members]
        for (t, c), (u, d) in itertools.combinations(zip(times, costs, strict=True), 2):
            right.append((max(t, u) / min(t, u) - 1, _in_order(t - u, c, d)))
        tau = float(kendalltau(costs, times)[0])  # pyright: ignore[reportArgumentType] - no stubs
        taus.append(0.0 if math.isnan(tau) else tau)
        chosen = [t / min(times) - 1 for t, c in zip(times, costs, strict=True) if _least(c, costs)]
        tops.append(sum(excess <= TIE for excess in chosen) / len(chosen))
        regrets.append(sum(chosen) / len(chosen))
    some = [order for excess, order in right if excess > TIE]
    large = [order for excess, order in right if excess > LARGE]
    return Score(
        len(some), _mean(some), len(large), _mean(large), _mean(taus), _mean(tops), _mean(regrets),
        max(regrets, default=0.0),
    )  # fmt: skip


def misses(programs: Sequence[Ranked], predictor: str) -> list[tuple[str, float]]:
    """The groups whose predicted best is not within `TIE` of the fastest, the worst first."""
    found = [
        (group, score(members, predictor).regret)
        for group, members in _grouped(programs).items()
        if score(members, predictor).top < 1
    ]
    return sorted(found, key=lambda pair: -pair[1])


def _grouped(programs: Sequence[Ranked]) -> dict[str, list[Ranked]]:
    groups: dict[str, list[Ranked]] = {}
    for one in programs:
        groups.setdefault(one.group, []).append(one)
    return groups


def _in_order(difference: float, a: float, b: float) -> float:
    if abs(a - b) <= EQUAL * max(abs(a), abs(b)):
        return 0.5
    return float((a - b) * difference > 0)


def _least(cost: float, costs: Sequence[float]) -> bool:
    return cost <= min(costs) + EQUAL * abs(min(costs))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
