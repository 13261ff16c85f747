"""The single step of a result that makes a check fail, found by halving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch.export import ExportedProgram

from eqsat.culprit.stage import Stages
from eqsat.reason.step import Step

Bad = Callable[[ExportedProgram], bool]


class NoTimeError(Exception):
    """There was no time to find out."""


@dataclass(frozen=True)
class Culprit:
    """The step from a program that passes to one that fails.

    `rule` and `step` are the rule and its application, none where what failed is no rule: then
    `what` says it. `beside` are steps that show in no program but with this one. `runs` is how
    often the check ran; `good` and `bad` are the two programs.
    """

    what: str
    rule: str | None
    step: Step | None
    beside: tuple[Step, ...]
    runs: int
    good: ExportedProgram
    bad: ExportedProgram

    def __str__(self) -> str:
        if self.step is None:
            return self.what
        return f"rule {self.rule} at {place(self.step)}"


def place(step: Step) -> str:
    """The nodes and the first line of the program that a step touches."""
    nodes = ", ".join(step.nodes) or "values of its own"
    return f"{nodes} ({step.source[0]})" if step.source else nodes


def culprit(
    stages: Stages,
    bad: Bad,
    spent: Callable[[], bool] = lambda: False,
    *,
    known: bool = False,
) -> Culprit:
    """The first bad stage after one that is not, by halving.

    The first halving is around a step whose two sides differ on their own, if there is one. With
    `known`, the last stage is bad and the first is not: they are not run. Raises ValueError where
    that is not so, NoTimeError when time is spent.
    """
    runs, low, high = 0, 0, stages.count - 1

    def failing(number: int) -> bool:
        nonlocal runs
        if spent():
            raise NoTimeError
        runs += 1
        return bad(stages.program(number))

    if not known and not failing(high):
        raise ValueError("the result passes the check: nothing to find")
    if not known and failing(low):
        raise ValueError("the given program fails the check too: no rule made it fail")
    applied = stages.steps()
    for middle in _suspects(applied):
        if low < middle < high:
            low, high = (low, middle) if failing(middle) else (middle, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if failing(middle) else (middle, high)
    return _named(stages, applied, low, high, runs)


def _suspects(applied: Sequence[Sequence[Step]]) -> tuple[int, ...]:
    """The stages before and after the first step that is wrong on its own, if one is."""
    wrong = (n for n, steps in enumerate(applied) if not all(step.equal for step in steps))
    first = next(wrong, None)
    return () if first is None else (first + 2, first + 1)


def _named(
    stages: Stages, applied: Sequence[Sequence[Step]], low: int, high: int, runs: int
) -> Culprit:
    """The culprit between two stages that follow each other."""
    good, bad = stages.program(low), stages.program(high)
    if not 2 <= high < 2 + len(applied):
        return Culprit(stages.name(high), None, None, (), runs, good, bad)
    hidden = low
    while hidden > 1 and _text(stages, hidden - 1) == _text(stages, low):
        hidden -= 1  # what this step did shows in no program before `high`
    all_steps = [step for number in range(hidden - 1, high - 1) for step in applied[number]]
    wrong = [step for step in all_steps if not step.equal]
    chosen = wrong[0] if wrong else applied[high - 2][0]
    beside = tuple(step for step in all_steps if step is not chosen)
    return Culprit(stages.name(high), chosen.rule, chosen, beside, runs, good, bad)


def _text(stages: Stages, number: int) -> str:
    graph = stages.graph(number)
    return "" if graph is None else str(graph)
