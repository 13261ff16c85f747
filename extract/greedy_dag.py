"""The cheapest set of classes, given those of the children: greedy, but not blind to sharing."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from extract.egraph import EGraph
from extract.selection import Choice, Selection, select


def greedy_dag(
    egraph: EGraph,
    *,
    time_limit: float = 5.0,  # noqa: ARG001 - every extractor has it
    seeds: Sequence[Choice] = (),  # noqa: ARG001 - as above
) -> Selection:
    """The selection in which every class takes the e-node with the cheapest set of classes below
    it.

    A set costs what it costs with each class counted once, so sharing below one class is seen, and
    sharing between two classes is not. Sets only grow on the way up; hence classes can be settled
    in the order of their cost, each once, as Dijkstra does. A set is the bits of a Python integer,
    numbered in that order. It is too fast to need the limit, and does not look at the seeds.
    """
    started = time.perf_counter()
    classes, kids, cost = egraph.node_class.tolist(), egraph.kids, egraph.node_cost.tolist()
    users: list[list[int]] = [[] for _ in range(egraph.num_classes)]
    for enode, needs in enumerate(kids):
        for child in needs:
            users[child].append(enode)
    missing = [len(needs) for needs in kids]
    choice = [-1] * egraph.num_classes
    below = [0] * egraph.num_classes
    total = [0.0] * egraph.num_classes
    price = np.zeros(egraph.num_classes)  # of the e-node settled n-th
    settled = 0
    heap = [(cost[enode], enode) for enode, needs in enumerate(kids) if not needs]
    heapq.heapify(heap)
    while heap:
        key, enode = heapq.heappop(heap)
        cls = classes[enode]
        if choice[cls] >= 0:
            continue
        choice[cls], total[cls], price[settled] = enode, key, cost[enode]
        below[cls] = _union(below, kids[enode]) | 1 << settled
        settled += 1
        for user in users[cls]:
            missing[user] -= 1
            if not missing[user] and choice[classes[user]] < 0:
                key = cost[user] + _union_cost(below, total, price, kids[user])
                heapq.heappush(heap, (key, user))
    return select(egraph, np.array(choice, np.int32), method="greedy-dag", started=started)


def _union(below: list[int], classes: Sequence[int]) -> int:
    union = 0
    for cls in classes:
        union |= below[cls]
    return union


def _union_cost(
    below: list[int], total: list[float], price: NDArray[np.float64], classes: Sequence[int]
) -> float:
    """The cost of the union of the sets below `classes`: that of the dearest, and of what the
    others add.
    """
    first = max(classes, key=total.__getitem__)
    union, cost = below[first], total[first]
    for cls in classes:
        added = below[cls] & ~union
        if added:
            union |= added
            cost += _sum(price, added)
    return cost


def _sum(price: NDArray[np.float64], bits: int) -> float:
    if not bits & (bits - 1):
        return float(price[bits.bit_length() - 1])
    raw = np.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), np.uint8)
    mask = np.unpackbits(raw, count=bits.bit_length(), bitorder="little").view(np.bool_)
    return float(price[: len(mask)][mask].sum())
