"""Kernels as the e-nodes of an e-graph of their own, whose cheapest selection is a program of them.

A kernel with one result is an e-node of the tensor that it writes, and its children are those that
it reads. One with several is an e-node of a class of its own, paid once, of which every result is a
view that costs its write. DAG cost is then launches and traffic, and a selection, which has no
cycles, is an order of launches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from extract.cuts import Cuts
from extract.egraph import EGraph
from extract.fusible import FUSIBLE, VIEWS
from extract.selection import Choice
from extract.tensors import Tensors


@dataclass(frozen=True, order=True)
class Launch:
    """The e-nodes that a kernel computes and the tensors that it reads, each ascending."""

    body: tuple[int, ...]
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """What makes some tensors be in memory: a launch, or an opaque e-node or a view, `enode`."""

    launch: Launch | None
    enode: int
    writes: tuple[int, ...]


Pool = dict[Launch, tuple[int, ...]]
"""Launches, with the tensors that each may write."""


@dataclass(frozen=True, eq=False)
class KernelGraph:
    """The e-graph of some launches, and what its classes and e-nodes are.

    `tensor[c]` is the tensor that class c is, or -1 for the class of a launch with several results;
    `launch[i]` is the launch that e-node i is or takes a result of, or -1, and then `enode[i]` is
    what it is in the problem.
    """

    egraph: EGraph
    tensor: list[int]
    launches: tuple[Launch, ...]
    launch: list[int]
    enode: list[int]

    def steps(self, choice: Choice) -> list[Step]:
        """What a selection of the e-graph has, in no order, each launch once."""
        writes: dict[int, list[int]] = {}
        steps: list[Step] = []
        for cls in np.flatnonzero(choice >= 0).tolist():
            enode, tensor = int(choice[cls]), self.tensor[cls]
            if self.launch[enode] < 0:
                steps.append(Step(None, self.enode[enode], (tensor,)))
            else:
                writes.setdefault(self.launch[enode], []).extend([tensor] if tensor >= 0 else [])
        for number, tensors in writes.items():
            steps.append(Step(self.launches[number], -1, tuple(tensors)))
        return steps

    def choice(self, steps: Iterable[Step]) -> Choice:
        """The choice that has certain steps, whose launches are all in the e-graph."""
        number = {launch: which for which, launch in enumerate(self.launches)}
        taken = np.full(self.egraph.num_classes, -1, np.int32)
        for step in steps:
            if step.launch is None:
                where = self._where[-1 - step.enode]
                taken[list(where)] = list(where.values())
                continue
            where = self._where[number[step.launch]]
            for cls, enode in where.items():
                if self.tensor[cls] < 0 or self.tensor[cls] in step.writes:
                    taken[cls] = enode
        return taken

    def colours(self, colour: Sequence[int]) -> list[int]:
        """A number for every class: the `colour` of a tensor, or what that of a launch's classes
        makes of it.
        """
        egraph = self.egraph
        looks: list[tuple[int, str, list[int]]] = []
        for cls, tensor in enumerate(self.tensor):
            enodes = egraph.members[cls] if tensor < 0 else ()
            needs = sorted(colour[self.tensor[k]] for e in enodes for k in egraph.kids[e])
            costs = "".join(f"{float(egraph.node_cost[e]):.8e}" for e in enodes)
            looks.append((-1 if tensor < 0 else colour[tensor], costs, needs))
        names = {repr(look): 0 for look in sorted(looks)}
        number = {look: index for index, look in enumerate(names)}
        return [number[repr(look)] for look in looks]

    @cached_property
    def _where(self) -> Mapping[int, Mapping[int, int]]:
        """The e-node in every class that a launch (or -1 less an e-node of the problem) has."""
        where: dict[int, dict[int, int]] = {}
        for enode, cls in enumerate(self.egraph.node_class.tolist()):
            which = self.launch[enode]
            where.setdefault(which if which >= 0 else -1 - self.enode[enode], {})[cls] = enode
        return where


def launches(tensors: Tensors, found: Cuts, wanted: Iterable[int], several: bool) -> Pool:
    """The launches of `found` that write a tensor of `wanted`, and others too if `several`."""
    fusion = tensors.problem.fusion.tolist()
    pool: Pool = {}
    for tensor in wanted:
        for cut in found.of[tensor]:
            if any(fusion[e] in FUSIBLE for e in cut.body):
                launch = Launch(tuple(sorted(cut.body)), tuple(sorted(cut.leaves)))
                add(pool, launch, {tensor} | cut.stores if several else {tensor})
    return pool


def trimmed(tensors: Tensors, step: Step) -> Step:
    """A step without what its launch computes and reads for results that nobody takes."""
    if step.launch is None:
        return step
    of, kids = tensors.of, tensors.problem.egraph.kids
    made = {of[tensors.home[enode]]: enode for enode in step.launch.body}
    needed = dict.fromkeys(step.writes)
    queue = list(needed)
    for tensor in queue:  # grows as it is read
        for child in kids[made[tensor]] if tensor in made else ():
            if of[child] not in needed:
                needed[of[child]] = None
                queue.append(of[child])
    body = tuple(enode for enode in step.launch.body if of[tensors.home[enode]] in needed)
    reads = tuple(tensor for tensor in step.launch.reads if tensor in needed)
    return Step(Launch(body, reads), -1, step.writes)


def add(pool: Pool, launch: Launch, writes: Iterable[int]) -> None:
    """Adds a launch to a pool, or to the tensors that it may write."""
    pool[launch] = tuple(sorted({*pool.get(launch, ()), *writes}))


def wanted(
    tensors: Tensors, read: Iterable[int], chosen: Collection[int] | None = None
) -> list[int]:
    """The tensors that may have to be in memory: `read`, roots, and what opaque e-nodes and views
    of these need.
    """
    problem = tensors.problem
    of, kids = tensors.of, problem.egraph.kids
    fusion = problem.fusion.tolist()
    needed = dict.fromkeys([*(of[root] for root in problem.egraph.roots), *read])
    queue = list(needed)
    for tensor in queue:  # grows as it is read
        for enode in tensors.members[tensor]:
            if fusion[enode] in FUSIBLE or (chosen is not None and enode not in chosen):
                continue
            for child in kids[enode]:
                if of[child] not in needed:
                    needed[of[child]] = None
                    queue.append(of[child])
    return queue


def kernel_graph(
    tensors: Tensors,
    pool: Mapping[Launch, tuple[int, ...]],
    wanted: Sequence[int],
    chosen: Collection[int] | None = None,
) -> KernelGraph:
    """The e-graph of the launches `pool` and of opaque e-nodes and views, over tensors `wanted`."""
    problem = tensors.problem
    fusion, cost = problem.fusion.tolist(), problem.egraph.node_cost.tolist()
    read, write = problem.read.tolist(), problem.write.tolist()
    number = {tensor: cls for cls, tensor in enumerate(wanted)}
    nodes: list[tuple[int, float, list[int]]] = []
    launch: list[int] = []
    enodes: list[int] = []
    tensor = list(wanted)

    def put(cls: int, seconds: float, needs: Iterable[int], which: int, enode: int) -> None:
        nodes.append((cls, seconds, list(needs)))
        launch.append(which)
        enodes.append(enode)

    for made in wanted:
        for enode in tensors.members[made]:
            if fusion[enode] in FUSIBLE or (chosen is not None and enode not in chosen):
                continue
            needs = dict.fromkeys(tensors.of[child] for child in problem.egraph.kids[enode])
            seconds = 0.0 if fusion[enode] in VIEWS else cost[enode]
            put(number[made], seconds, [number[t] for t in needs], -1, enode)
    for which, (one, may) in enumerate(pool.items()):
        work = sum(cost[e] for e in one.body if fusion[e] in FUSIBLE)
        paid = problem.launch + work + sum(read[t] for t in one.reads)
        needs = [number[t] for t in one.reads]
        writes = [t for t in may if t in number]
        if len(writes) == 1:
            put(number[writes[0]], paid + write[writes[0]], needs, which, -1)
        elif writes:
            tensor.append(-1)
            put(len(tensor) - 1, paid, needs, which, -1)
            for t in writes:
                put(number[t], write[t], [len(tensor) - 1], which, -1)
    roots = [number[t] for t in dict.fromkeys(tensors.of[root] for root in problem.egraph.roots)]
    egraph = EGraph.build(nodes, roots, len(tensor))
    return KernelGraph(egraph, tensor, tuple(pool), launch, enodes)
