"""The median of measured times, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Literal

CONFIDENCE = 0.95
PLACES = 0.03
"""By how much two compilations of equal kernels may differ for good, by where their memory lies.

Measured: mobilenetv3 and mla-prefill of the zoo compiled three times each, on an x86 CPU.
"""
Verdict = Literal["faster", "slower", "no difference"]


@dataclass(frozen=True)
class Interval:
    """The median of a sample, and between what the true one lies, with 95 % confidence."""

    median: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The median of `values` and its confidence interval by order statistics.

    It assumes nothing of how they are distributed, only that they are drawn alike. Fewer than six
    values have no such interval: it is then all of the line.

    Source: David and Nagaraja, Order Statistics, 3rd edition, section 7.1.
    """
    ordered = sorted(values)
    rank = _rank(len(ordered))
    if rank is None:
        return Interval(median(ordered), -math.inf, math.inf)
    return Interval(median(ordered), ordered[rank - 1], ordered[-rank])


def ratio(times: Sequence[float], others: Sequence[float]) -> Interval:
    """How many times as long `others` took as `times`, in pairs that were measured together."""
    return interval([b / a for a, b in zip(times, others, strict=True)])


def verdict(times: Sequence[float], others: Sequence[float]) -> Verdict:
    """Whether `times` are faster than `others`: only where the interval of ratios says so.

    It must lie beyond what two compilations of one program may differ by (`PLACES`).
    """
    found = ratio(times, others)
    if found.low > 1 + PLACES:
        return "faster"
    return "slower" if found.high * (1 + PLACES) < 1 else "no difference"


@cache
def _rank(count: int) -> int | None:
    """The largest r for which the median lies between the r-th least and the r-th largest value.

    With 95 % confidence: fewer than r of the values lie below the median with the probability of
    so few heads of `count` fair coins.
    """
    tail, rank = 0.0, 0
    while rank <= count // 2:
        tail += math.comb(count, rank) / 2**count
        if 2 * tail > 1 - CONFIDENCE:
            break
        rank += 1
    return rank or None
