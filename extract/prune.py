"""Reductions that leave out e-nodes which no optimum needs."""

from __future__ import annotations

import heapq
import math

from extract.core import Core

COMPARED = 32
"""Most e-nodes of a class that another e-node of it is compared with."""


def derivable(core: Core) -> Core:
    """Without the e-nodes that no finite derivation can use. The other reductions rely on this
    one.
    """
    known = set(core.order)
    dropped = {enode for enode, kids in core.kids.items() if not known.issuperset(kids)}
    return core.without(dropped)


def reachable(core: Core) -> Core:
    """Without the classes that the roots cannot come to."""
    seen = dict.fromkeys(core.roots)
    queue = list(core.roots)
    for cls in queue:  # grows as it is read
        for child in core.successors[cls]:
            if child not in seen:
                seen[child] = None
                queue.append(child)
    return core.only(seen)


def without_returns(core: Core) -> Core:
    """Without the e-nodes that lead back to their class: on every way up, or on every way down.

    The way up: a child that every path from the roots to the class passes (that dominates it) is
    above the class wherever the class is needed. The way down: a child all of whose derivations
    contain the class.
    """

    returning = {
        enode
        for loop in core.cyclic
        for cls in loop
        for enode in core.members[cls]
        for child in core.kids[enode]
        if core.loop_of[child] == core.loop_of[cls]
        and (core.required[child] >> core.place[cls] & 1 or (cls, child) in core.dominating)
    }
    own = {e for cls, enodes in core.members.items() for e in enodes if cls in core.kids[e]}
    return core.without(returning | own)


def without_dominated(core: Core) -> Core:
    """Without the e-nodes that another of their class can always replace.

    The other costs no more, and needs only classes that are there anyway: in every derivation of
    what this one needs, or in every selection. Those below this one do not need the class, so
    nothing becomes a cycle.
    """
    dropped: set[int] = set()
    for cls, enodes in core.members.items():
        if len(enodes) == 1:
            continue
        given = {enode: core.needs(core.kids[enode]) for enode in enodes}
        kept: list[int] = []
        for enode in sorted(enodes, key=lambda e: (core.cost[e], given[e].bit_count(), e)):
            if any(not needs & ~given[enode] for needs in kept[:COMPARED]):
                dropped.add(enode)
                continue
            unpaid = (child for child in core.kids[enode] if not core.is_paid(cls, child))
            kept.append(sum(1 << core.place[child] for child in unpaid))
    return core.without(dropped)


def without_dear(core: Core, limit: float, forced: frozenset[int] | None = None) -> Core:
    """Without the e-nodes that no selection of at most `limit` uses; `limit` is for the core's own
    costs.

    A selection with an e-node pays for every class that is in all selections (`forced`, by default
    all that are), for what the e-node costs above that, and for a path from it down to a leaf: the
    cheapest if each e-node takes the child whose cheapest path is dearest.
    """
    if not math.isfinite(limit):
        return core
    forced = core.forced if forced is None else forced
    least = {cls: min(core.cost[e] for e in core.members[cls]) for cls in forced}
    always = math.fsum(least.values())
    above = {
        enode: core.cost[enode] - least.get(cls, 0.0)
        for cls, enodes in core.members.items()
        for enode in enodes
    }
    down = _paths(core, above)
    most = limit - always
    dropped = {
        enode
        for enode, kids in core.kids.items()
        if above[enode] + max(map(down.__getitem__, kids), default=0.0) > most
    }
    return core.without(dropped)


def _paths(core: Core, price: dict[int, float]) -> dict[int, float]:
    """The price of the cheapest of the paths that a derivation of a class cannot do without."""
    users: dict[int, list[tuple[int, int]]] = {cls: [] for cls in core.members}
    missing: dict[int, int] = {}
    heap: list[tuple[float, int, int]] = []
    for cls, enodes in core.members.items():
        for enode in enodes:
            missing[enode] = len(core.kids[enode])
            for child in core.kids[enode]:
                users[child].append((cls, enode))
            if not missing[enode]:
                heap.append((price[enode], cls, enode))
    heapq.heapify(heap)
    down: dict[int, float] = {}
    while heap:
        length, cls, _ = heapq.heappop(heap)
        if cls in down:
            continue
        down[cls] = length
        for user, enode in users[cls]:
            missing[enode] -= 1  # classes come in the order of their paths: the last is the dearest
            if not missing[enode] and user not in down:
                heapq.heappush(heap, (price[enode] + length, user, enode))
    return down
