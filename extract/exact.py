"""The cheapest selection: reductions, then proofs by two solvers in turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from extract.blocking import bound
from extract.branching import branch_and_cut
from extract.constraint import INSTALLED, constraint_search
from extract.egraph import EGraph
from extract.local_search import descend
from extract.parts import Improve, improved_by_parts, in_turns, proven
from extract.selection import Choice, Selection, Status

TURNS = (
    (0.1, branch_and_cut),
    (0.2, constraint_search),
    (0.6, branch_and_cut),
    (1.0, constraint_search),
)
"""Until which shares of the time the solvers take turns."""

prove: Improve = in_turns(TURNS if INSTALLED else ((1.0, branch_and_cut),))
"""The best selection and bound that HiGHS and CP-SAT find in turn before a deadline."""


def exact(
    egraph: EGraph,
    *,
    time_limit: float = 5.0,
    seeds: Sequence[Choice] = (),
    blocking: bool = False,
    random_seed: int = 0,
) -> Selection:
    """The selection of least DAG cost, or the best that `time_limit` seconds allow, with a bound.

    It costs no more than the best of `seeds`, each of which must be a selection. Where the first
    third of the time brings no proof, local search finds the solvers a better start. With
    `blocking`, a fifth of the time goes to the rows of blocking sets, for a better bound where
    there is no proof. After Ctrl-C it gives the best so far.
    """
    rng = random.Random(random_seed)

    def local(part: EGraph, best: Selection, deadline: float) -> Selection:
        return descend(part, best, deadline, rng)

    turns: list[tuple[float, Improve]] = [(0.35, prove), (0.45, local), (1.0, prove)]
    improve = in_turns([(0.2, bounded), *turns] if blocking else turns)
    return improved_by_parts(egraph, improve, "exact", time_limit, seeds, passes=3)


def bounded(egraph: EGraph, best: Selection, deadline: float) -> Selection:
    """The selection with the bound that blocking sets prove before the deadline, if better."""
    try:
        cost = bound(egraph, best.cost, deadline).cost
    except KeyboardInterrupt:
        return replace(best, status=Status.INTERRUPTED)
    return proven(replace(best, lower_bound=max(best.lower_bound, cost)))
