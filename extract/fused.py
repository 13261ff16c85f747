"""The cheapest program of kernels: one e-node a class, and which of them are computed together."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from extract.blocks import improved
from extract.branching import branch_and_cut
from extract.cuts import Cuts, cuts
from extract.egraph import EGraph
from extract.fusible import FusionProblem
from extract.greedy_dag import greedy_dag
from extract.kernels import Step, add, kernel_graph, launches, trimmed, wanted
from extract.parts import improved_by_parts
from extract.portfolio import portfolio
from extract.program import Fused, choice_of, kernels_of, ordered, stepless, used
from extract.selection import Choice, Selection, Status, dag_cost
from extract.tensors import Tensors

SPANS = (1, 2)
"""How many neighbouring blocks are solved at once, in turn."""
SLACK = 1e-9
"""Share of the cost that rounding may add."""
PART = 1.0
"""Seconds for blocks that are solved at once."""


def fused(
    problem: FusionProblem, *, time_limit: float = 10.0, seeds: Sequence[Choice] = ()
) -> Fused:
    """The cheapest kernels found in about `time_limit` seconds.

    They never cost more than the best kernels that are found for one of the `seeds`, which are
    choices of the problem's e-graph. The bound is for the kernels that were considered, each of
    which may compute a class by another e-node.
    """
    started = time.perf_counter()
    deadline = started + time_limit
    tensors = Tensors.of_problem(problem)
    known: list[Found] = []
    for index, seed in enumerate(seeds):
        until = _until(deadline, 0.3 / (len(seeds) - index))
        known.append(_fixed(tensors, seed[seed >= 0].tolist(), until))
    found = cuts(tensors, stored=tensors.shared)
    if not known:
        known.append(_search(tensors, found, known, _until(deadline, 0.2), several=False))
    whole = _search(tensors, found, known, _until(deadline, 0.95))
    best = agreeing(tensors, whole, known, deadline)
    return _result(tensors, best, whole, started)


def fuse(problem: FusionProblem, choice: Choice, *, time_limit: float = 10.0) -> Fused:
    """The cheapest kernels found in about `time_limit` seconds for what is chosen already.

    The bound is for kernels of this choice alone.
    """
    started = time.perf_counter()
    tensors = Tensors.of_problem(problem)
    found = _fixed(tensors, choice[choice >= 0].tolist(), started + time_limit)
    return _result(tensors, found, found, started)


def _result(tensors: Tensors, found: Found, bound: Found, started: float) -> Fused:
    """The kernels `found`, with what was proven when `bound` was found."""
    choice = choice_of(tensors, found.steps)
    kernels = kernels_of(tensors, found.steps, choice)
    cost = sum(kernel.cost for kernel in kernels)
    proven = bound.status is Status.OPTIMAL and cost <= bound.bound * (1 + SLACK)
    status = Status.OPTIMAL if proven else Status.FEASIBLE
    least = cost if proven else min(bound.bound, cost)
    seconds = time.perf_counter() - started
    selection = Selection(choice, cost, least, status, "fused", seconds)
    return Fused(selection, kernels, bound.complete)


@dataclass(frozen=True, eq=False)
class Found:
    """Kernels, what they cost, and what is known of those that were considered for them."""

    steps: tuple[Step, ...]
    cost: float
    bound: float
    status: Status
    complete: bool


def _until(deadline: float, share: float) -> float:
    """The moment when a share of the time up to the deadline is over."""
    now = time.perf_counter()
    return now + share * (deadline - now)


def _search(
    tensors: Tensors,
    found: Cuts,
    known: Sequence[Found],
    deadline: float,
    chosen: Collection[int] | None = None,
    *,
    several: bool = True,
) -> Found:
    """The best kernels of the cuts `found`, with the e-nodes `chosen` (all, if None), that write
    one tensor each, or `several`; no worse than those `known`.
    """
    leaves = dict.fromkeys(leaf for of in found.of for cut in of for leaf in sorted(cut.leaves))
    pool = launches(tensors, found, wanted(tensors, leaves, chosen), several)
    for step in (step for one in known for step in one.steps):
        if step.launch is not None:
            add(pool, step.launch, step.writes)
    reads = dict.fromkeys(tensor for launch in pool for tensor in launch.reads)
    graph = kernel_graph(tensors, pool, wanted(tensors, reads, chosen), chosen)
    starts = [graph.choice(one.steps) for one in known]
    best, bound = _solved(graph.egraph, graph.colours(tensors.colour), starts, deadline)
    steps = tuple(trimmed(tensors, step) for step in graph.steps(best.choice))
    return Found(steps, best.cost, bound, best.status, found.complete)


def _solved(
    egraph: EGraph, colour: Sequence[int], starts: Sequence[Choice], deadline: float
) -> tuple[Selection, float]:
    """The best selection of kernels, and a bound: by blocks, by a proof, then by all means."""
    at_hand = starts or [greedy_dag(egraph).choice]
    choice = min(at_hand, key=lambda start: dag_cost(egraph, start))
    for span in SPANS:
        until = _until(deadline, 0.3)
        choice = improved(
            egraph, choice, colour, span=span, solve=_solve, part=PART, deadline=until
        )
    proof = _proven(egraph, 0.7 * _left(deadline), choice)
    if proof.status is Status.OPTIMAL:
        return proof, proof.lower_bound
    best = portfolio(egraph, time_limit=_left(deadline), seeds=[proof.choice])
    return best, max(proof.lower_bound, best.lower_bound)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.perf_counter())


def _solve(egraph: EGraph, seconds: float, seed: Choice) -> Choice:
    return _proven(egraph, seconds, seed).choice


def _proven(egraph: EGraph, seconds: float, seed: Choice) -> Selection:
    """The best selection by branch and cut alone, which proves most of kernels."""
    return improved_by_parts(egraph, branch_and_cut, "branch-and-cut", seconds, [seed])


def _fixed(tensors: Tensors, chosen: Iterable[int], deadline: float) -> Found:
    """The best kernels for e-nodes that are chosen already, one a tensor."""
    allowed = frozenset(chosen)
    found = cuts(tensors, stored=tensors.shared_by(allowed), chosen=allowed)
    return _search(tensors, found, (), deadline, allowed)


def agreeing(tensors: Tensors, found: Found, known: Sequence[Found], deadline: float) -> Found:
    """Kernels that compute no tensor by two e-nodes: `found` if it does so, or the best there are.

    Where it does not, the e-nodes by which its tensors are computed first are kept: each needs what
    is computed before, so that they are a selection.
    """
    if _agrees(tensors, found):
        return found
    kids, given = tensors.problem.egraph.kids, stepless(tensors)
    first: dict[int, int] = {}
    for step in ordered(tensors, found.steps):
        left = {t: sorted(by) for t, by in used(tensors, [step]).items() if t not in first}
        while left:  # what a kernel computes inside it, from its operands on
            ready: dict[int, int] = {}
            for tensor, enodes in left.items():
                for enode in enodes:
                    parts = (tensors.of[cls] for cls in kids[enode])
                    if all(p in first or p in given or p == tensor for p in parts):
                        ready.setdefault(tensor, enode)
            assert ready, "a kernel computes what it needs"
            first |= ready
            left = {tensor: enodes for tensor, enodes in left.items() if tensor not in ready}
    first = given | first
    fixed = _fixed(tensors, first.values(), deadline)
    others = [one for one in known if _agrees(tensors, one)]
    return min([fixed, *others], key=lambda one: one.cost)


def _agrees(tensors: Tensors, found: Found) -> bool:
    """Whether every tensor is computed by one e-node only, be it several times."""
    return all(len(count) == 1 for count in used(tensors, found.steps).values())
