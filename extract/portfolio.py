"""The best that all ways find together within a time limit, and the best bound."""

from __future__ import annotations

import random
from collections.abc import Sequence

from extract.egraph import EGraph
from extract.exact import bounded, prove
from extract.lns import searched
from extract.parts import improved_by_parts, in_turns
from extract.selection import Choice, Selection

LARGE = 3_000
"""E-nodes of a part from which on the search comes before proofs."""


def portfolio(
    egraph: EGraph, *, time_limit: float = 5.0, seeds: Sequence[Choice] = (), random_seed: int = 0
) -> Selection:
    """The cheapest selection that local search, proofs and windows find in turn, with a bound.

    It costs no more than the tree, the greedy DAG and the best of `seeds`, each of which must be a
    selection. The answer depends on the clock only where a limit stops something. After Ctrl-C it
    is the best so far. `method` names what found it, in the dearest part of the problem.
    """
    search = searched(random.Random(random_seed))
    small = in_turns([(0.3, prove), (0.55, search), (0.75, prove), (1.0, bounded)])
    large = in_turns([(0.75, search), (0.88, prove), (1.0, bounded)])

    def improve(part: EGraph, best: Selection, deadline: float) -> Selection:
        return (small if part.num_nodes < LARGE else large)(part, best, deadline)

    return improved_by_parts(egraph, improve, None, time_limit, seeds, passes=3)
