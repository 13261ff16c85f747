"""Random e-graphs, and their cheapest selections by means that no extractor uses."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from typing import Any

from extract import EGraph, Extractor, InvalidSelection, Selection, Status, judge

SMALL = 11
"""Classes of most e-graphs here, at most."""
TRIED = 20_000
"""Most ways to take one e-node of every class that are all tried."""
CLOSE = 1e-7
"""Share by which costs that were found in two ways may differ."""
COSTS = (
    (0.0, 1.0),
    (0.0, 1.0, 2.0, 3.0),
    (0.25, 1.5, 2.125),
    (1e-6, 2e-6, 0.0),
    (1.0,),
    tuple(range(3, 12)),
    tuple(2 + number / 7 for number in range(12)),
)


def random_egraph(seed: int) -> EGraph:
    """Cycles, self-loops, sharing, repeated children, ties, free e-nodes, classes without e-nodes,
    several roots; three in four have at most `SMALL` classes.
    """
    rng = random.Random(seed)
    classes = rng.randint(1, SMALL) if rng.random() < 0.75 else rng.randint(SMALL + 1, 20)
    costs, upward = rng.choice(COSTS), rng.choice((0.0, 0.1, 0.3, 0.6))
    window, leaves = rng.choice((3, 6, classes)), rng.choice((1, 4, classes // 2))
    many = rng.choice(((1, 2, 2, 3), (2, 3, 4), (3, 4, 5)))
    nodes: list[tuple[int, float, list[int]]] = []
    for cls in range(classes):
        empty = cls > 0 and rng.random() < 0.02
        for _ in range(0 if empty else rng.choice(many)):
            count = rng.choice((0, 1, 2, 2, 3) if cls < leaves else (1, 2, 2, 3)) if cls else 0
            up = rng.random() < upward
            reach = range(classes) if up else range(max(0, cls - window), max(cls, 1))
            nodes.append((cls, rng.choice(costs), [rng.choice(reach) for _ in range(count)]))
    rng.shuffle(nodes)
    top = range(classes // 2, classes)
    roots = rng.sample(top, min(len(top), rng.choice((1, 1, 2, 3, 6))))
    try:
        return EGraph.build(nodes, roots, classes)
    except ValueError:  # a root without a derivation
        leaves = [(root, rng.choice(costs), ()) for root in roots]
        return EGraph.build([*nodes, *leaves], roots, classes)


def problem(egraph: EGraph, extractor: Extractor, optimum: float) -> str:
    """What is wrong with the answer of an extractor, given the least DAG cost; else nothing."""
    selection, claim = extractor.extract(egraph), extractor.claim
    try:
        judge(egraph, selection)
    except InvalidSelection as error:
        return str(error)
    slack = CLOSE * optimum
    if selection.cost < optimum - slack:
        return f"cost {selection.cost} is below the optimum {optimum}"
    if selection.lower_bound > optimum + slack:
        return f"says that no selection is below {selection.lower_bound}; one costs {optimum}"
    if claim == "dag-optimal" and selection.status is not Status.OPTIMAL:
        return f"has not proven {selection.cost}"
    if claim == "dag-optimal" and selection.cost > optimum + slack:
        return f"claims that {selection.cost} is least, but one costs {optimum}"
    return _tree_problem(egraph, selection) if claim == "tree-optimal" else ""


def optimum(egraph: EGraph) -> float:
    """The least DAG cost: of all selections if these are few, else by the plainest model."""
    ways = math.prod(max(1, len(enodes)) for enodes in egraph.members)
    return least_of_all(egraph) if ways <= TRIED else least_of_model(egraph)


def least_of_all(egraph: EGraph) -> float:
    """The least DAG cost, by trying everything."""
    rows = _rows(egraph)
    options: dict[int, list[int]] = {cls: [] for cls in range(egraph.num_classes)}
    for enode in sorted(range(len(rows)), key=lambda enode: -rows[enode][1]):
        options[rows[enode][0]].append(enode)
    least = {cls: rows[enodes[-1]][1] if enodes else 0.0 for cls, enodes in options.items()}
    best = math.inf
    waiting: list[dict[int, int]] = [{}]
    while waiting:
        chosen = waiting.pop()  # the cheapest comes last, so a good one is found soon
        below = (kid for enode in chosen.values() for kid in rows[enode][2])
        missing = sorted({*egraph.roots, *below} - chosen.keys())
        cost = math.fsum(rows[enode][1] for enode in chosen.values())
        if cost + sum(least[cls] for cls in missing) >= best:
            continue
        if missing:
            waiting += [chosen | {missing[0]: enode} for enode in options[missing[0]]]
        elif _is_founded({cls: rows[enode][2] for cls, enode in chosen.items()}):
            best = cost
    return best


def least_of_model(egraph: EGraph) -> float:
    """The least DAG cost that CP-SAT proves: a place in one order for every class, no more."""
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()  # OR-Tools annotates in part
    rows = _rows(egraph)
    taken = [model.new_bool_var("") for _ in rows]
    place = [model.new_int_var(0, egraph.num_classes, "") for _ in range(egraph.num_classes)]
    for enodes in egraph.members:
        model.add_at_most_one(taken[i] for i in enodes)
    for root in egraph.roots:
        model.add(sum(taken[i] for i, row in enumerate(rows) if row[0] == root) >= 1)
    for enode, (cls, _, kids) in enumerate(rows):
        for kid in kids:
            options = [taken[i] for i, row in enumerate(rows) if row[0] == kid]
            model.add(sum(options) >= 1).only_enforce_if(taken[enode])
            model.add(place[cls] > place[kid]).only_enforce_if(taken[enode])
    unit = min((row[1] for row in rows if row[1]), default=1.0) / 1e9
    model.minimize(sum(round(row[1] / unit) * var for row, var in zip(rows, taken, strict=True)))
    solver: Any = cp_model.CpSolver()  # as above
    solver.parameters.num_workers = 1
    status = solver.status_name(solver.solve(model))
    assert status == "OPTIMAL", status
    return math.fsum(row[1] for row, var in zip(rows, taken, strict=True) if solver.value(var))


def tree_costs(egraph: EGraph) -> list[float]:
    """The least tree cost of every class, by relaxing until nothing changes."""
    least = [math.inf] * egraph.num_classes
    for _ in range(egraph.num_classes + 1):
        for cls, cost, kids in _rows(egraph):
            least[cls] = min(least[cls], cost + sum(least[kid] for kid in set(kids)))
    return least


def _tree_problem(egraph: EGraph, selection: Selection) -> str:
    """Where a selection costs more as a tree than it must."""
    rows, least = _rows(egraph), tree_costs(egraph)
    for cls, enode in enumerate(selection.choice.tolist()):
        if enode >= 0:
            paid = rows[enode][1] + sum(least[kid] for kid in set(rows[enode][2]))
            if paid > least[cls] * (1 + CLOSE):
                return f"pays {paid} for the tree of class {cls}, which costs {least[cls]}"
    return ""


def _rows(egraph: EGraph) -> list[tuple[int, float, list[int]]]:
    """Class, cost and children of every e-node, read off the arrays."""
    spans = itertools.pairwise(egraph.child_ptr.tolist())
    kids = [egraph.children[start:stop].tolist() for start, stop in spans]
    return list(zip(egraph.node_class.tolist(), egraph.node_cost.tolist(), kids, strict=True))


def _is_founded(needs: Mapping[int, list[int]]) -> bool:
    left = dict(needs)
    while ready := [cls for cls, kids in left.items() if not any(kid in left for kid in kids)]:
        for cls in ready:
            del left[cls]
    return not left
