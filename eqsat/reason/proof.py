"""Which matches of rules lead from the given graph to the chosen one, in order, and no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from eqsat.reason.goal import Goal
from eqsat.reason.instance import Instance
from eqsat.reason.replay import CONGRUENCE, Match, Replay

ROUNDS = 100
SLACK = 2
"""How many times the rounds and terms of all instances fewer of them may need: some never end."""


@dataclass(frozen=True)
class Applied:
    """An instance and the places at which it applied, in the terms that there were then."""

    instance: Instance
    matches: tuple[Match, ...]


@dataclass(frozen=True)
class Proof:
    """Steps from the given terms, `start`, to the goal, in order; none can be left out."""

    start: Replay
    steps: tuple[Applied, ...]

    def after(self, count: int) -> Replay:
        """The terms after the first steps."""
        return _replayed(self.start, [step.instance for step in self.steps[:count]])[0]

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules, each where it is first needed."""
        return tuple(dict.fromkeys(step.instance.rule.name for step in self.steps))


def prove(
    start: Replay,
    instances: Sequence[Instance],
    goal: Goal,
    spent: Callable[[], bool] = lambda: False,
) -> Proof | None:
    """Steps from the given terms to the goal, none of which can be left out; None without any.

    First those on which a proof rests are found, then each is tried without, until time is `spent`.
    """
    run = _Run(start, instances, at_once=True)
    if not run.until(goal):
        return None
    order = [instances[n] for n in _distinct(run.used[n].instance for n in run.needed(goal))]
    bounds = SLACK * (run.rounds + 1), SLACK * len(run.replay.terms)
    size = max(1, len(order) // 2)
    while order and not spent():  # by halves, then quarters, at last one by one
        order = _shortened(start, order, goal, size, bounds, spent)
        if size == 1:
            break
        size //= 2
    last = _Run(start, order)
    assert last.until(goal)
    end, steps = _replayed(start, [order[last.used[n].instance] for n in last.needed(goal)])
    assert end.reached(goal) is not None, "one by one the steps do not come to the goal"
    return Proof(start, steps)


def _shortened(
    start: Replay,
    order: list[Instance],
    goal: Goal,
    size: int,
    bounds: tuple[int, int],
    spent: Callable[[], bool],
) -> list[Instance]:
    """The instances without those, `size` at a time from the last, that the goal does without."""
    for low in range((len(order) - 1) // size * size, -1, -size):
        trial = order[:low] + order[low + size :]
        if not spent() and _Run(start, trial).until(goal, *bounds):
            order = trial
    return order


def _replayed(start: Replay, instances: Sequence[Instance]) -> tuple[Replay, tuple[Applied, ...]]:
    """The terms after the instances, one after the other, and where each applied."""
    replay, steps = start.copy(), list[Applied]()
    for number, instance in enumerate(instances):
        found = list(replay.matches(number, instance))
        done = [m for m in found if replay.apply(m, instance, number) is not None]
        if done:
            steps.append(Applied(instance, tuple(done)))
    return replay, tuple(steps)


def _distinct(values: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(values))


class _Run:
    """Applies instances round by round: one after the other, or with `at_once` all that match."""

    def __init__(self, start: Replay, instances: Sequence[Instance], at_once: bool = False) -> None:
        self.replay = start.copy()
        self.instances = instances
        self.groups = [range(len(instances))] if at_once else [[n] for n in range(len(instances))]
        self.used: list[Match] = []
        self.done: set[tuple[int, ...]] = set()
        self.rounds = 0

    def until(self, goal: Goal, rounds: int = ROUNDS, terms: float = math.inf) -> bool:
        """Whether the goal is reached before nothing new comes, in so many rounds and terms."""
        for self.rounds in range(rounds):
            if self.replay.reached(goal) is not None:
                return True
            before = len(self.used)
            for group in self.groups:
                found = [m for n in group for m in self.replay.matches(n, self.instances[n])]
                for match in found:
                    self._apply(match)
            if len(self.used) == before or len(self.replay.terms) > terms:
                return False
        return False

    def _apply(self, match: Match) -> None:
        """Apply an instance at a place, once."""
        place = (match.instance, *match.roots, *match.bound.values())
        if place in self.done:
            return
        self.done.add(place)
        equal = self.replay.apply(match, self.instances[match.instance], len(self.used))
        if equal is not None:
            self.used.append(replace(match, equalities=(*match.equalities, *equal)))

    def needed(self, goal: Goal) -> list[int]:
        """The applications on which the goal rests, in order."""
        replay = self.replay
        found = replay.reached(goal)
        assert found is not None
        needed: set[int] = set()
        terms: list[int] = list(found)
        equal = [(handle, found[term]) for handle, term in goal.targets]
        for row, term in zip(goal.terms, found, strict=True):
            equal += zip((found[c] for c in row.children), replay.terms[term].children, strict=True)
        seen: set[tuple[int, int]] = set()
        while terms or equal:
            number = -1
            if terms:
                number = replay.by[terms.pop()]
            else:
                a, b = equal.pop()
                if a == b or (a, b) in seen:
                    continue
                seen.add((a, b))
                for x, y, why in replay.path(a, b):
                    if why == CONGRUENCE:
                        equal += zip(
                            replay.terms[x].children, replay.terms[y].children, strict=True
                        )
                    elif why >= 0:
                        self._need(why, needed, terms, equal)
            if number >= 0:
                self._need(number, needed, terms, equal)
        return sorted(needed)

    def _need(
        self, number: int, needed: set[int], terms: list[int], equal: list[tuple[int, int]]
    ) -> None:
        if number not in needed:
            needed.add(number)
            terms += [*self.used[number].terms, *self.used[number].bound.values()]
            equal += self.used[number].equalities
