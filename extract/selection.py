"""The answer: one e-node for every class that is needed, what is proven of it, and its judge."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from extract.egraph import EGraph

Choice = NDArray[np.int32]

TOLERANCE = 1e-6
"""How far, relatively, costs that were computed in two ways may differ."""


class Status(StrEnum):
    """What is known of a selection's cost."""

    OPTIMAL = "optimal"
    """No selection has a lower DAG cost."""
    FEASIBLE = "feasible"
    """It is a selection; `lower_bound` says what else is known."""
    INTERRUPTED = "interrupted"
    """The best at the moment the user asked to stop."""


class InvalidSelection(ValueError):  # noqa: N818 - it names what was given
    """What was chosen is no selection; the message names the class where it fails."""


@dataclass(frozen=True, eq=False)
class Selection:
    """An e-node for every class that is needed for the roots.

    `choice[c]` is the e-node of class `c`, or -1 where it is not needed. `cost` is the DAG cost:
    every chosen e-node counts once. No selection costs less than `lower_bound`. `method` names the
    extractor that found it, in `seconds`.
    """

    choice: Choice
    cost: float
    lower_bound: float
    status: Status
    method: str
    seconds: float

    @property
    def gap(self) -> float:
        """The share of the cost that an optimal selection might save, 0 where it is proven to be
        one.
        """
        return (self.cost - self.lower_bound) / self.cost if self.cost > self.lower_bound else 0.0


def select(
    egraph: EGraph,
    choice: Choice,
    *,
    method: str,
    started: float,
    lower_bound: float = 0.0,
    status: Status = Status.FEASIBLE,
) -> Selection:
    """The selection of `choice`, without what the roots do not need; `started` is a
    `time.perf_counter()`.
    """
    kept = reached(egraph, choice)
    trimmed = np.full(egraph.num_classes, -1, np.int32)
    trimmed[kept] = choice[kept]
    trimmed.flags.writeable = False
    cost = math.fsum(egraph.node_cost[trimmed[kept]].tolist())
    bound = cost if status is Status.OPTIMAL else min(lower_bound, cost)
    return Selection(trimmed, cost, bound, status, method, time.perf_counter() - started)


def reached(egraph: EGraph, choice: Choice) -> list[int]:
    """The classes that `choice` needs for the roots, children first.

    Raises InvalidSelection where a class that is needed has no e-node, has one of another class, or
    needs itself.
    """
    if choice.shape != (egraph.num_classes,) or choice.dtype.kind != "i":
        raise InvalidSelection(
            f"a choice is {egraph.num_classes} integers, one a class; "
            f"this one is {choice.dtype}{list(choice.shape)}"
        )
    chosen, node_class, kids = choice.tolist(), egraph.node_class.tolist(), egraph.kids
    order: list[int] = []
    done = [False] * egraph.num_classes
    path: dict[int, Iterator[int]] = {-1: iter(egraph.roots)}
    while path:
        cls, waiting = next(reversed(path.items()))
        child = next((c for c in waiting if not done[c]), None)
        if child is None:
            del path[cls]
            if cls >= 0:
                done[cls] = True
                order.append(cls)
            continue
        if child in path:
            raise InvalidSelection(
                f"class {child} needs itself, by {egraph.describe(chosen[child])}"
            )
        enode = chosen[child]
        if not 0 <= enode < egraph.num_nodes or node_class[enode] != child:
            raise InvalidSelection(
                f"class {child} is needed, but its choice {enode} is no e-node of it"
            )
        path[child] = iter(kids[enode])
    return order


def dag_cost(egraph: EGraph, choice: Choice) -> float:
    """The cost of what `choice` needs for the roots, each e-node once."""
    return math.fsum(float(egraph.node_cost[choice[cls]]) for cls in reached(egraph, choice))


def judge(egraph: EGraph, selection: Selection) -> None:
    """Raises InvalidSelection unless the selection is complete, acyclic and costs what it says.

    It shares no code with the extractors, so that no mistake of theirs can hide here.
    """
    choice = selection.choice
    if choice.shape != (egraph.num_classes,):
        raise InvalidSelection(
            f"{egraph.num_classes} classes, but a choice of shape {choice.shape}"
        )
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(egraph.roots)
    for cls in np.flatnonzero(choice != -1).tolist():
        enode = int(choice[cls])
        if not 0 <= enode < egraph.num_nodes or egraph.node_class[enode] != cls:
            raise InvalidSelection(f"class {cls} has chosen {enode}, which is no e-node of it")
        graph.add_node(cls)
        first, last = egraph.child_ptr[enode], egraph.child_ptr[enode + 1]
        graph.add_edges_from((cls, child) for child in egraph.children[first:last].tolist())
    for cls in sorted(graph):
        if choice[cls] == -1:
            raise InvalidSelection(f"class {cls} is needed, but nothing is chosen for it")
    if not nx.is_directed_acyclic_graph(graph):
        raise InvalidSelection(
            f"class {min(min(edge) for edge in nx.find_cycle(graph))} needs itself"
        )
    useless = set(graph) - set(egraph.roots).union(
        *(nx.descendants(graph, r) for r in set(egraph.roots))
    )
    if useless:
        raise InvalidSelection(f"class {min(useless)} has a choice, but no root needs it")
    _judge_numbers(selection, float(np.sum(egraph.node_cost[choice[choice != -1]])))


def _judge_numbers(selection: Selection, cost: float) -> None:
    slack = TOLERANCE * abs(cost)
    if not abs(selection.cost - cost) <= slack:
        raise InvalidSelection(
            f"the selection says it costs {selection.cost}, but its e-nodes cost {cost}"
        )
    if not selection.lower_bound <= cost + slack:
        raise InvalidSelection(f"the lower bound {selection.lower_bound} is above the cost {cost}")
    if selection.status is Status.OPTIMAL and not selection.lower_bound >= cost - slack:
        raise InvalidSelection(
            f"said to be optimal, but the lower bound is {selection.lower_bound}, not {cost}"
        )
