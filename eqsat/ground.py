"""What candidates are made from: an e-graph, the program it grew from, and what is left of time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from eqsat.encode import Encoding
from eqsat.peak import Memory
from eqsat.problem import Problem, problem
from eqsat.settings import Settings
from eqsat.snapshot import Snapshot
from extract import Choice

LEAST_SECONDS = 0.05
PREPARING = 1e-4
"""Seconds for each e-node that extractors take before they look at the clock."""
LEAST_BUDGET = 64 << 20  # bytes: masks and position tables of programs with few weights


@dataclass(frozen=True)
class Ground:
    """What candidates are made from: the saturated e-graph, and the program it grew from."""

    snapshot: Snapshot
    encoding: Encoding
    settings: Settings
    mode: FakeTensorMode
    constants: Mapping[str, Tensor]
    fixed: Choice | None = None  # e-nodes of the snapshot: what a greedy search came to
    deadline: float = math.inf  # of time.perf_counter(), for all readings
    memory: Memory | None = None  # of the given program
    problems: dict[tuple[bool, float, float], Problem] = field(default_factory=dict[Any, Any])

    def priced(self, ahead: bool, share: float, new: float | None = None) -> Problem:
        """The extraction problem, with fusible operators at a share of their price; made once.

        Those that the given program has not are at the share `new`, if that is given.
        """
        key = (ahead, share, share if new is None else new)
        if key not in self.problems:
            self.problems[key] = problem(
                self.snapshot,
                self.encoding,
                self.settings.cost,
                fold=ahead,
                fused_share=share,
                new_share=new,
            )
        return self.problems[key]

    def left(self) -> float:
        """Seconds that are left for all readings."""
        return self.deadline - time.perf_counter()

    def seconds(self) -> float:
        """Seconds that one reading may take."""
        return min(self.settings.time_limit, max(self.left(), LEAST_SECONDS))

    def late(self) -> bool:
        """Whether there is no time left for another reading by an extractor."""
        return self.left() < PREPARING * len(self.snapshot.symbols)

    def budget(self) -> int:
        """Bytes that constants computed ahead may take."""
        return budget(self.settings, self.constants)


def budget(settings: Settings, constants: Mapping[str, Tensor]) -> int:
    """Bytes that constants computed ahead may take: as many as the given ones, if none are set."""
    if settings.fold_budget is not None:
        return settings.fold_budget
    dense = (t for t in constants.values() if t.layout == torch.strided)  # others cannot tell
    size = sum({id(t): t.nbytes for t in dense}.values())
    return max(size, LEAST_BUDGET) if settings.rules else 0
