"""The best that several extractors find together, cheap ones first, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from extract.egraph import EGraph
from extract.exact import exact
from extract.greedy_dag import greedy_dag
from extract.selection import Choice, Selection, select
from extract.tree import tree


def portfolio(
    egraph: EGraph, *, time_limit: float = 5.0, seeds: Sequence[Choice] = ()
) -> Selection:
    """The cheapest of the tree, the greedy DAG and the seeds, improved by `exact` in the time that
    is left.

    The answer depends on the clock only where the limit stops it. `method` names what found it.
    """
    started = time.perf_counter()
    known = [tree(egraph), greedy_dag(egraph)]
    known += [
        select(egraph, seed, method=f"seed {index}", started=started)
        for index, seed in enumerate(seeds)
    ]
    left = max(0.0, time_limit - (time.perf_counter() - started))
    proven = exact(egraph, time_limit=left, seeds=[selection.choice for selection in known])
    best = min([*known, proven], key=lambda selection: selection.cost)
    return replace(
        best,
        lower_bound=min(proven.lower_bound, best.cost),
        status=proven.status,
        seconds=time.perf_counter() - started,
    )
