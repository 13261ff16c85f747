"""The least cost of kernels, by the shortest path from what is in memory to the roots in memory.

It knows nothing of cuts: every set of e-nodes, one a class, is tried as a kernel.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import combinations, product

from extract.egraph import derivation
from extract.fusible import VIEWS, Fusion, FusionProblem

Move = tuple[frozenset[int], frozenset[int], float]
"""Classes that must be in memory, classes that are after it, cost."""


def least_cost(problem: FusionProblem) -> float:
    """The cost of the cheapest kernels after which the roots are in memory."""
    moves = [*_opaque(problem), *_kernels(problem)]
    start = _closed(problem, frozenset())
    best = {start: 0.0}
    heap = [(0.0, 0, start)]
    while heap:
        cost, _, memory = heapq.heappop(heap)
        if set(problem.egraph.roots) <= memory:
            return cost
        if cost > best[memory]:
            continue
        for needs, gives, price in moves:
            if needs <= memory and not gives <= memory:
                after = _closed(problem, memory | gives)
                if cost + price < best.get(after, float("inf")):
                    best[after] = cost + price
                    heapq.heappush(heap, (cost + price, len(best), after))
    raise AssertionError("the roots have no derivation")


def _closed(problem: FusionProblem, memory: frozenset[int]) -> frozenset[int]:
    """What is in memory, with what is given, and all views."""
    egraph = problem.egraph
    while True:
        more = {
            int(egraph.node_class[e])
            for e, kids in enumerate(egraph.kids)
            if (problem.fusion[e] in VIEWS and kids[0] in memory)
            or (problem.fusion[e] == Fusion.OPAQUE and not kids and egraph.node_cost[e] == 0)
        }
        if more <= memory:
            return memory
        memory |= more


def _opaque(problem: FusionProblem) -> Iterator[Move]:
    egraph = problem.egraph
    for enode, kids in enumerate(egraph.kids):
        if problem.fusion[enode] == Fusion.OPAQUE:
            made = frozenset({int(egraph.node_class[enode])})
            yield frozenset(kids), made, float(egraph.node_cost[enode])


def _kernels(problem: FusionProblem) -> Iterator[Move]:
    """Every kernel of one result that is allowed, with what else of it is worth storing."""
    egraph, stored = problem.egraph, _stored(problem)
    ways = [
        [None, *(e for e in enodes if problem.fusion[e] != Fusion.OPAQUE)]
        for enodes in egraph.members
    ]
    for picked in product(*ways):
        body = {cls: enode for cls, enode in enumerate(picked) if enode is not None}
        needed = {k for e in body.values() for k in egraph.kids[e]}
        reads = needed - body.keys()
        if len(body.keys() - needed) != 1:  # the kernel of one result and what that needs
            continue
        if len(reads) > problem.caps.reads or not _allowed(problem, body):
            continue
        work = sum(
            float(egraph.node_cost[e]) for e in body.values() if problem.fusion[e] not in VIEWS
        )
        paid = problem.launch + work + sum(float(problem.read[cls]) for cls in reads)
        for count in range(1, len(body) + 1):
            for results in combinations(body, count):
                if len(set(results) - stored) <= 1:
                    cost = paid + sum(float(problem.write[cls]) for cls in results)
                    yield frozenset(reads), frozenset(results), cost


def _allowed(problem: FusionProblem, body: dict[int, int]) -> bool:
    """Whether e-nodes can be computed one after the other, over at most one domain."""
    kids = problem.egraph.kids
    below: dict[int, int] = {}
    for _ in body:
        for cls, enode in body.items():
            inner = [child for child in kids[enode] if child in body]
            if cls in below or not all(child in below for child in inner):
                continue
            domains = {below[child] for child in inner} - {-1}
            if problem.fusion[enode] == Fusion.MOVE and domains:
                return False
            if problem.fusion[enode] == Fusion.REDUCTION:
                domains.add(int(problem.domain[enode]))
            elif domains and not problem.fits(max(domains), cls):
                return False
            if len(domains) > 1:
                return False
            below[cls] = max(domains, default=-1)
    return len(below) == len(body) and len(set(below.values()) - {-1}) <= 1


def _stored(problem: FusionProblem) -> set[int]:
    """The classes, all views of a tensor with it, that every derivation has and several need."""
    egraph = problem.egraph
    same = [
        {cls}
        | {
            other
            for other in range(egraph.num_classes)
            if other in _closed_views(problem, cls) and cls in _closed_views(problem, other)
        }
        for cls in range(egraph.num_classes)
    ]
    stored: set[int] = set()
    for cls, group in enumerate(same):
        enodes = [e for e in range(egraph.num_nodes) if int(egraph.node_class[e]) not in group]
        made = derivation(
            [int(egraph.node_class[e]) for e in enodes], [egraph.kids[e] for e in enodes]
        )
        users = {
            min(same[int(egraph.node_class[e])]) for e in enodes if group & set(egraph.kids[e])
        }
        if not set(egraph.roots) <= set(made) and len(users) + bool(group & {*egraph.roots}) > 1:
            stored.add(cls)
    return stored


def _closed_views(problem: FusionProblem, cls: int) -> set[int]:
    """The classes that are views of a class, or views of such."""
    found = {cls}
    for _ in range(problem.egraph.num_classes):
        found |= {
            int(problem.egraph.node_class[e])
            for e, kids in enumerate(problem.egraph.kids)
            if problem.fusion[e] in VIEWS and kids[0] in found
        }
    return found
