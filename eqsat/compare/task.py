"""One row to find: a program at a size, under an arm, on a device, with a seed."""

from __future__ import annotations

import importlib.metadata
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import torch

from eqsat.compare.program import Source, code
from eqsat.cost.device import Mode
from eqsat.limits import Limits
from eqsat.settings import MARGIN

EAGER, PLAIN, STOCK, FREEZING = "eager", "inductor-plain", "inductor", "inductor-freezing"
GREEDY, FIXPOINT, BACKTRACKING = "greedy", "fixpoint", "backtracking"
SHARING, SATURATION, BOTH = "sharing", "saturation", "saturation-inductor"
FROZEN = "saturation-freezing"
ARMS = (
    *(EAGER, PLAIN, STOCK, FREEZING),
    *(SHARING, GREEDY, FIXPOINT, BACKTRACKING, SATURATION, FROZEN, BOTH),
)
"""What is compared: eager mode, Inductor without patterns, as it is, with frozen weights; then an
e-graph without rules, our rules by three searches and by saturation; that with frozen weights, and
with Inductor's rules, too."""
SEARCHES = {name: name for name in (GREEDY, FIXPOINT, BACKTRACKING, SATURATION)} | {
    SHARING: SATURATION,
    FROZEN: SATURATION,
    BOTH: SATURATION,
}
"""The search of each arm that is ours."""
PATCHES: dict[str, dict[str, Any]] = {
    PLAIN: {"pattern_matcher": False},
    STOCK: {},
    FREEZING: {"freezing": True},
    FROZEN: {"freezing": True},
}
"""The settings of Inductor that an arm compiles with, where it has some."""

Key = tuple[str, str, str, str, int]


@dataclass(frozen=True)
class Options:
    """What all rows of a result file share: rules, cost and limits of every search."""

    mode: str = "stream"
    numerics: str = "default"
    margin: float = MARGIN
    extractor: str = "auto"
    time_limit: float = 5.0
    limits: Limits = field(default_factory=Limits)
    check: bool = True
    explain: bool = False

    def launch(self) -> Mode:
        """The mode as the cost model takes it."""
        return cast("Mode", self.mode)


@dataclass(frozen=True)
class Task:
    """A row to find. `profile` names or is the file of the device profile, `device` is its name."""

    source: Source
    entry: str
    size: str
    arm: str
    profile: str
    device: str
    seed: int

    @property
    def key(self) -> Key:
        """What tells a row from every other one of its file."""
        return self.entry, self.size, self.arm, self.device, self.seed

    @property
    def group(self) -> tuple[str, str, int]:
        """What tells the program from others."""
        return self.entry, self.size, self.seed

    def __str__(self) -> str:
        return f"{self.entry} ({self.size}), {self.arm} on {self.device}"


@dataclass(frozen=True)
class Failure:
    """Why a task has no row."""

    text: str


def key_of(row: dict[str, Any]) -> Key:
    """The key of a row of a result file."""
    return row["entry"], row["size"], row["arm"], row["profile"], row["seed"]


def header(task: Task, options: Options) -> dict[str, Any]:
    """What a row says of how it was made: rows of one file agree in it."""
    return {
        "torch": torch.__version__.split("+")[0],
        "eqsat": importlib.metadata.version("eqsat"),
        "options": asdict(options),
        "code": code(task.source),
    }


def blank(task: Task, options: Options) -> dict[str, Any]:
    """A row with every key, of which nothing is found yet."""
    found: dict[str, Any] = dict(
        zip(("entry", "size", "arm", "profile", "seed"), task.key, strict=True)
    )
    nothing = ("set", "predicted", "modelled", "unfused", "kernels", "bytes", "flops",
               "kernel_source", "measured", "max_error", "enodes", "stop", "gap", "kept",
               "graph_before", "graph_after", "egraph", "error")  # fmt: skip
    lists = ("kernel_list", "expected", "rules", "iterations")
    found |= {"about": "", **dict.fromkeys(nothing), **{name: [] for name in lists}}
    return found | {"optimizer": {}} | header(task, options)
