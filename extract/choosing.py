"""Extraction as an integer program: a column an e-node and a class, cycles allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from extract.egraph import EGraph
from extract.linear import Program, Row
from extract.loops import strongly_connected
from extract.selection import Choice, reached
from extract.tree import cheapest


def program(egraph: EGraph) -> Program:
    """Which e-nodes to choose (whole) and which classes are needed, cycles allowed.

    A class is needed exactly if one e-node of it is chosen. If one that has a certain child is, so
    is the child: one row for a class and a child, which is stronger than one for an e-node and a
    child.
    """
    count, roots = egraph.num_nodes, set(egraph.roots)
    rows: list[Row] = []
    for cls, enodes in enumerate(egraph.members):
        rows.append((0.0, 0.0, [*enodes, count + cls], [1.0] * len(enodes) + [-1.0]))
        for child, needing in needing_by_child(egraph, cls).items():
            if child not in roots:
                rows.append(
                    (-math.inf, 0.0, [*needing, count + child], [1.0] * len(needing) + [-1.0])
                )
    lower = np.zeros(count + egraph.num_classes)
    lower[[count + root for root in roots]] = 1.0
    cost = np.concatenate([egraph.node_cost, np.zeros(egraph.num_classes)])
    return Program(cost, lower, count, tuple(rows))


def needing_by_child(egraph: EGraph, cls: int) -> dict[int, list[int]]:
    """The e-nodes of a class that have a certain child, for every child that one has."""
    needing: dict[int, list[int]] = {}
    for enode in egraph.members[cls]:
        for child in egraph.kids[enode]:
            needing.setdefault(child, []).append(enode)
    return needing


def point(egraph: EGraph, choice: Choice) -> NDArray[np.float64]:
    """The values of the program that say `choice`."""
    kept = reached(egraph, choice)
    values = np.zeros(egraph.num_nodes + egraph.num_classes)
    values[choice[kept]] = 1.0
    values[[egraph.num_nodes + cls for cls in kept]] = 1.0
    return values


def chosen(egraph: EGraph, values: NDArray[np.float64]) -> Choice:
    """What the values say, perhaps with cycles."""
    choice = np.full(egraph.num_classes, -1, np.int32)
    enodes = np.flatnonzero(values[: egraph.num_nodes] > 0.5)
    choice[egraph.node_class[enodes]] = enodes
    return choice


def cycles(egraph: EGraph, choice: Choice) -> list[list[int]]:
    """The sets of classes that need each other, among those that the choice needs for the roots."""
    needed: dict[int, tuple[int, ...]] = {}
    queue = list(egraph.roots)
    for cls in queue:  # grows as it is read
        if cls not in needed:
            needed[cls] = egraph.kids[int(choice[cls])]
            queue.extend(needed[cls])
    return [
        loop for loop in strongly_connected(needed) if len(loop) > 1 or loop[0] in needed[loop[0]]
    ]


def exits(egraph: EGraph, cycle: Sequence[int]) -> list[int]:
    """The e-nodes of the classes of a cycle that need none of them: a class of it is needed only
    with one of these.
    """
    inside = set(cycle)
    return [e for cls in cycle for e in egraph.members[cls] if inside.isdisjoint(egraph.kids[e])]


def cuts(egraph: EGraph, cycle: Sequence[int]) -> list[Row]:
    """Rows that forbid a cycle."""
    out = exits(egraph, cycle)
    return [
        (-math.inf, 0.0, [egraph.num_nodes + cls, *out], [1.0] + [-1.0] * len(out)) for cls in cycle
    ]


def repaired(egraph: EGraph, choice: Choice) -> Choice:
    """The selection without cycles that has as much as possible of `choice`, as what that has is
    free.
    """
    weight = egraph.node_cost.copy()
    weight[choice[choice >= 0]] = 0.0
    return cheapest(egraph, weight.tolist())
