"""The cheapest tree: Knuth's generalisation of Dijkstra's algorithm, blind to sharing."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

import numpy as np

from extract.egraph import EGraph
from extract.selection import Choice, Selection, select


def tree(
    egraph: EGraph,
    *,
    time_limit: float = 5.0,  # noqa: ARG001 - every extractor has it
    seeds: Sequence[Choice] = (),  # noqa: ARG001 - as above
) -> Selection:
    """A selection with the least tree cost, where what is used twice is paid twice; ties go to the
    lowest e-node.

    Its `cost` is the DAG cost all the same. It is too fast to need the limit, and does not look at
    the seeds. D. E. Knuth, A Generalization of Dijkstra's Algorithm, 1977.
    """
    started = time.perf_counter()
    return select(
        egraph, cheapest(egraph, egraph.node_cost.tolist()), method="tree", started=started
    )


def cheapest(egraph: EGraph, weight: Sequence[float]) -> Choice:
    """The e-node of least tree weight in every class that has a derivation, -1 in the others."""
    classes, kids = egraph.node_class.tolist(), egraph.kids
    users: list[list[int]] = [[] for _ in range(egraph.num_classes)]
    for enode, needs in enumerate(kids):
        for child in needs:
            users[child].append(enode)
    missing = [len(needs) for needs in kids]
    total = list(weight)
    choice = [-1] * egraph.num_classes
    heap = [(total[enode], enode) for enode, needs in enumerate(kids) if not needs]
    heapq.heapify(heap)
    while heap:
        cost, enode = heapq.heappop(heap)
        if choice[classes[enode]] >= 0:
            continue
        choice[classes[enode]] = enode
        for user in users[classes[enode]]:
            total[user] += cost
            missing[user] -= 1
            if not missing[user] and choice[classes[user]] < 0:
                heapq.heappush(heap, (total[user], user))
    return np.array(choice, np.int32)
