"""A smaller problem with the same optimum: the order in which reductions are done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from extract.contract import (
    with_costs_raised,
    with_forced_roots,
    with_free_classes_inlined,
    with_free_groups_merged,
    with_single_uses_merged,
)
from extract.core import Core
from extract.egraph import EGraph
from extract.loops import enclosed
from extract.prune import derivable, reachable, without_dear, without_dominated, without_returns
from extract.selection import Choice

SETS_LIMIT = 40_000
"""Most classes for which required sets are made: their bits take the square of it, 100 MB here."""
ROUNDS = 8
ROUNDING = 1e-9
"""Share by which a limit is loosened, so that a selection which meets it stays."""
ENOUGH = 0.99
"""Share of its size that a part must lose in a round to be worth another one."""


def prepare(
    egraph: EGraph,
    *,
    limit: float = math.inf,
    deadline: float = math.inf,
    rounds: int = ROUNDS,
) -> tuple[list[Core], Core]:
    """Problems that share nothing, and the whole that they are parts of.

    The optima of the parts and the `base` of the whole add up to the optimum of the e-graph, if
    that is at most `limit`; choices for the parts go back by `restore(whole.steps, ...)`. At the
    `deadline`, a `time.perf_counter()`, the reductions done so far have to do.
    """
    limit += ROUNDING * limit
    start = without_dear(derivable(Core.of(egraph)), limit, frozenset())  # cheap, and takes much
    whole = _reduced(start, limit, deadline)
    steps, base = list(whole.steps), whole.base
    waiting, done = whole.parts(), list[Core]()
    for _ in range(rounds - 1):
        fresh: list[Core] = []
        slack = limit - base - math.fsum(map(_at_least, waiting + done))
        for part in waiting:
            smaller = _reduced(part, slack + _at_least(part), deadline)
            steps += smaller.steps
            base += smaller.base
            if sum(smaller.size) > ENOUGH * sum(part.size):
                done += smaller.parts()
            else:
                fresh += smaller.parts()
        waiting = fresh
    return done + waiting, replace(whole, steps=tuple(steps), base=base)


def with_closed_solved(core: Core, solve: Callable[[EGraph], Choice | None]) -> Core:
    """With a leaf for every class whose whole part below only it leads to, as far as `solve` gives
    an optimum of that part.
    """
    for top, inside in enclosed(core.successors, core.roots):
        part = replace(core, members={cls: core.members[cls] for cls in inside}, roots=(top,))
        egraph, classes, enodes = part.egraph()
        choice = solve(egraph)
        if choice is not None:
            chosen = {classes[c]: enodes[e] for c, e in enumerate(choice.tolist()) if e >= 0}
            core = core.with_leaf(top, inside, chosen)
    return core


def _at_least(core: Core) -> float:
    """What every selection of the core costs at least."""
    return core.least if len(core.members) <= SETS_LIMIT else 0.0


def _reduced(core: Core, limit: float, deadline: float) -> Core:
    """The core after one round of every reduction; the first is done at any rate, as all else
    relies on it.
    """
    core = reachable(derivable(core))
    total = limit + core.base  # `limit` is for what is left, whatever the steps below pay for good

    def dear(core: Core) -> Core:
        return without_dear(core, total - core.base)

    steps = [with_free_groups_merged, with_free_classes_inlined, with_single_uses_merged]
    steps.append(with_costs_raised)
    if len(core.members) <= SETS_LIMIT:
        steps += [without_returns, dear, without_dominated, with_forced_roots]
    for step in steps:
        if time.perf_counter() < deadline:
            changed = step(core)
            same = changed.members is core.members and changed.kids is core.kids
            core = changed if same else reachable(derivable(changed))
    return core
