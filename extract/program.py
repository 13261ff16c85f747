"""What a fused extraction gives: kernels in the order of their launch, and an e-node a class."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extract.fusible import FUSIBLE, VIEWS, Fusion
from extract.kernels import Step
from extract.selection import Choice, Selection, reached
from extract.tensors import Tensors


@dataclass(frozen=True)
class Kernel:
    """One launch, or an opaque e-node: what it computes, children first, the classes that it reads
    from memory and writes there, and what it costs.

    Views inside a tensor are free and not in it; a class that it reads stands for all these.
    """

    enodes: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    cost: float


@dataclass(frozen=True, eq=False)
class Fused:
    """A selection, and the kernels that compute it in an order in which they can be launched.

    `selection` is one of the problem's e-graph, but `cost` and `lower_bound` are those of kernels:
    no program of the kernels that were considered costs less than the bound. If `complete`, these
    are all that can be of use, but for some that write more tensors than one.
    """

    selection: Selection
    kernels: tuple[Kernel, ...]
    complete: bool


def used(tensors: Tensors, steps: Iterable[Step]) -> dict[int, dict[int, int]]:
    """How many steps compute a tensor by an e-node, for every tensor and e-node."""
    counts: dict[int, dict[int, int]] = {}
    for step in steps:
        for enode in step.launch.body if step.launch is not None else (step.enode,):
            count = counts.setdefault(tensors.of[tensors.home[enode]], {})
            count[enode] = count.get(enode, 0) + 1
    return counts


def stepless(tensors: Tensors) -> dict[int, int]:
    """The e-node of every tensor that needs no step, but is there as it is: numbers."""
    problem = tensors.problem
    kids, fusion = problem.egraph.kids, problem.fusion.tolist()
    cost = problem.egraph.node_cost.tolist()
    found: dict[int, int] = {}
    for tensor, enodes in enumerate(tensors.members):
        given = [e for e in enodes if fusion[e] == Fusion.OPAQUE and not kids[e]]
        if given:
            found[tensor] = min(given, key=lambda e: (cost[e], e))
    return found


def choice_of(tensors: Tensors, steps: Iterable[Step]) -> Choice:
    """The choice of steps that compute no tensor by two e-nodes, for what the roots need.

    Other classes of a tensor are views of the one that the e-node makes, in its order if they can.
    """
    egraph = tensors.problem.egraph
    computed = used(tensors, steps).items()
    taken = stepless(tensors) | {tensor: enode for tensor, count in computed for enode in count}
    choice = np.full(egraph.num_classes, -1, np.int32)
    for tensor, enode in taken.items():
        _link(tensors, tensor, enode, choice)
    kept = reached(egraph, choice)
    trimmed = np.full(egraph.num_classes, -1, np.int32)
    trimmed[kept] = choice[kept]
    return trimmed


def _link(tensors: Tensors, tensor: int, enode: int, choice: Choice) -> None:
    """Chooses an e-node, and the views that make the other classes of its tensor of it."""
    egraph, fusion = tensors.problem.egraph, tensors.problem.fusion.tolist()
    users: dict[int, list[int]] = {}
    for link in tensors.links[tensor]:
        users.setdefault(egraph.kids[link][0], []).append(link)
    heap = [(0, tensors.home[enode], enode)]
    while heap:
        moves, cls, made = heapq.heappop(heap)
        if choice[cls] >= 0:
            continue
        choice[cls] = made
        for link in users.get(cls, ()):
            further = moves + (fusion[link] == Fusion.MOVE)
            heapq.heappush(heap, (further, tensors.home[link], link))


def kernels_of(tensors: Tensors, steps: Sequence[Step], choice: Choice) -> tuple[Kernel, ...]:
    """The kernels of steps that agree with `choice`, in an order in which they can be launched."""
    fusion = tensors.problem.fusion.tolist()
    place = {cls: index for index, cls in enumerate(reached(tensors.problem.egraph, choice))}
    homes: dict[int, int] = {}
    for enodes in tensors.members:
        for enode in enodes:
            if choice[tensors.home[enode]] == enode:
                homes[tensors.of[tensors.home[enode]]] = tensors.home[enode]
    return tuple(
        _kernel(tensors, step, homes, place)
        for step in ordered(tensors, steps)
        if step.launch is not None
        or (fusion[step.enode] not in VIEWS and tensors.problem.egraph.kids[step.enode])
        or tensors.problem.egraph.node_cost[step.enode] > 0
    )


def _needs(tensors: Tensors, step: Step) -> tuple[int, ...]:
    if step.launch is not None:
        return step.launch.reads
    kids = tensors.problem.egraph.kids[step.enode]
    return tuple(dict.fromkeys(tensors.of[child] for child in kids))


def ordered(tensors: Tensors, steps: Sequence[Step]) -> list[Step]:
    """Steps, each after those that write what it needs."""
    writers = {tensor: index for index, step in enumerate(steps) for tensor in step.writes}
    users: list[list[int]] = [[] for _ in steps]
    missing: list[int] = []
    for index, step in enumerate(steps):
        before = {writers[tensor] for tensor in _needs(tensors, step) if tensor in writers}
        missing.append(len(before))
        for writer in before:
            users[writer].append(index)
    ready = [index for index, count in enumerate(missing) if not count]
    order: list[int] = []
    heapq.heapify(ready)
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, user)
    assert len(order) == len(steps), "a selection has no cycles"
    return [steps[index] for index in order]


def _kernel(
    tensors: Tensors, step: Step, homes: Mapping[int, int], place: Mapping[int, int]
) -> Kernel:
    problem = tensors.problem
    reads = tuple(homes[tensor] for tensor in _needs(tensors, step))
    writes = tuple(sorted(homes[tensor] for tensor in step.writes))
    if step.launch is None:
        cost = float(problem.egraph.node_cost[step.enode])
        return Kernel((step.enode,), reads, writes, cost)
    enodes = tuple(sorted(step.launch.body, key=lambda e: place[tensors.home[e]]))
    work = sum(float(problem.egraph.node_cost[e]) for e in enodes if problem.fusion[e] in FUSIBLE)
    moved = sum(problem.read[list(reads)].tolist()) + sum(problem.write[list(writes)].tolist())
    return Kernel(enodes, reads, writes, problem.launch + work + moved)
