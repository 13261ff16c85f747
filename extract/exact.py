"""The cheapest selection: reductions, then integer programs; cycles are cut off as they show."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from extract.core import Core, restore
from extract.egraph import EGraph
from extract.greedy_dag import greedy_dag
from extract.linear import Program, Row, solve
from extract.loops import strongly_connected
from extract.prepare import prepare
from extract.selection import Choice, Selection, Status, dag_cost, reached, select
from extract.tree import cheapest, tree

PASSES = 3
"""How often parts that are not solved in their share of the time are tried with what is left."""


def exact(egraph: EGraph, *, time_limit: float = 5.0, seeds: Sequence[Choice] = ()) -> Selection:
    """The selection of least DAG cost, or the best that `time_limit` seconds allow, with a bound.

    It costs no more than the best of `seeds`, each of which must be a selection. A part of the
    problem that is not solved in time keeps the best of what the greedy ways and the seeds give for
    it. After Ctrl-C, which waits until HiGHS returns, the rest of the parts do so too.
    """
    started = time.perf_counter()
    known = [dag_cost(egraph, seed) for seed in seeds]
    cores, whole = prepare(egraph)
    groups = _grouped(cores)
    answers = [_start(group[0], seeds) for group in groups]
    interrupted = False
    try:
        _improve([group[0].egraph for group in groups], answers, started + time_limit)
    except KeyboardInterrupt:
        interrupted = True
    chosen: dict[int, int] = {}
    for group, answer in zip(groups, answers, strict=True):
        for part in group:
            chosen.update(part.outside(answer.choice))
    found = restore(whole.steps, chosen, egraph.num_classes)
    if min(known, default=math.inf) < dag_cost(egraph, found):
        found = seeds[known.index(min(known))]
    bounds = [len(group) * a.lower_bound for group, a in zip(groups, answers, strict=True)]
    proven = all(answer.status is Status.OPTIMAL for answer in answers)
    return select(
        egraph,
        found,
        method="exact",
        started=started,
        lower_bound=math.fsum([whole.base, *bounds]),
        status=Status.OPTIMAL if proven else Status.INTERRUPTED if interrupted else Status.FEASIBLE,
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """A core as an e-graph of its own, and the numbers of its classes and e-nodes outside."""

    egraph: EGraph
    classes: list[int]
    enodes: list[int]

    def outside(self, choice: Choice) -> dict[int, int]:
        """A choice for the part in the numbers outside."""
        pairs = zip(self.classes, choice.tolist(), strict=True)
        return {cls: self.enodes[enode] for cls, enode in pairs if enode >= 0}


def _grouped(cores: Sequence[Core]) -> list[list[_Part]]:
    """The parts, small ones first; those that differ only in their numbers outside are together.

    Equal layers of a network give such parts, which have to be solved once.
    """
    groups: dict[tuple[object, ...], list[_Part]] = {}
    for core in cores:
        part = _Part(*core.egraph())
        inside = part.egraph
        arrays = (inside.node_class, inside.node_cost, inside.child_ptr, inside.children)
        key = (inside.roots, *(array.tobytes() for array in arrays))
        groups.setdefault(key, []).append(part)
    return sorted(groups.values(), key=lambda group: group[0].egraph.num_nodes)


def _start(part: _Part, seeds: Sequence[Choice]) -> Selection:
    """The best selection of a part that is at hand, bounded by what its roots cost at least."""
    started = time.perf_counter()
    egraph = part.egraph
    at_hand = [tree(egraph).choice, greedy_dag(egraph).choice]
    at_hand += [_near(part, seed) for seed in seeds]
    best = min(at_hand, key=lambda choice: dag_cost(egraph, choice))
    least = [min(egraph.node_cost[list(egraph.members[r])].tolist()) for r in set(egraph.roots)]
    bound = math.fsum(least)
    return select(egraph, best, method="exact", started=started, lower_bound=bound)


def _improve(parts: Sequence[EGraph], answers: list[Selection], deadline: float) -> None:
    """Puts better selections of the parts in the place of `answers`, until all are proven.

    The time is shared by size, small parts first; what they leave goes to the next, and to those
    that a first pass has not solved.
    """
    for _ in range(PASSES):
        waiting = [i for i, answer in enumerate(answers) if answer.status is not Status.OPTIMAL]
        left = sum(parts[i].num_nodes for i in waiting)
        for i in waiting:
            rest = deadline - time.perf_counter()
            if rest <= 0:
                return
            until = time.perf_counter() + rest * parts[i].num_nodes / left
            answers[i] = branch_and_cut(parts[i], answers[i], until)
            left -= parts[i].num_nodes


def _near(part: _Part, seed: Choice) -> Choice:
    """The selection of a part that is most like a seed for the whole, as what that has is free."""
    taken = set(seed.tolist())
    pairs = zip(part.enodes, part.egraph.node_cost.tolist(), strict=True)
    return cheapest(part.egraph, [0.0 if enode in taken else cost for enode, cost in pairs])


def branch_and_cut(egraph: EGraph, best: Selection, deadline: float) -> Selection:
    """The best selection that integer programs find before the deadline, starting with `best`.

    A program allows cycles. Where its optimum has some, rows are added that forbid these, and it is
    solved again; where it has none it is the optimum.
    """
    if best.cost <= best.lower_bound:
        return replace(best, status=Status.OPTIMAL)
    started = time.perf_counter()
    program = _program(egraph)
    choice, cost, bound = best.choice, best.cost, best.lower_bound
    status = Status.FEASIBLE
    while status is Status.FEASIBLE and (rest := deadline - time.perf_counter()) > 0:
        solution = solve(program, _point(egraph, choice), rest)
        if solution.bound > cost * (1 + 1e-6):  # HiGHS is wrong: a selection below it is at hand
            break
        bound = max(bound, solution.bound)
        if solution.values is None:
            break
        found = _choice(egraph, solution.values)
        cycles = _cycles(egraph, found)
        repaired = _repaired(egraph, found) if cycles else found
        if dag_cost(egraph, repaired) < cost:
            choice, cost = repaired, dag_cost(egraph, repaired)
        if not solution.optimal:
            break
        if not cycles or cost <= bound * (1 + 1e-9):
            status = Status.OPTIMAL
        program = program.with_rows([row for cycle in cycles for row in _cuts(egraph, cycle)])
    return select(egraph, choice, method="exact", started=started, lower_bound=bound, status=status)


def _program(egraph: EGraph) -> Program:
    """Which e-nodes to choose (whole) and which classes are needed, cycles allowed.

    A class is needed exactly if one e-node of it is chosen. If one that has a certain child is, so
    is the child: one row for a class and a child, which is stronger than one for an e-node and a
    child.
    """
    count, roots = egraph.num_nodes, set(egraph.roots)
    rows: list[Row] = []
    for cls, enodes in enumerate(egraph.members):
        rows.append((0.0, 0.0, [*enodes, count + cls], [1.0] * len(enodes) + [-1.0]))
        users: dict[int, list[int]] = {}
        for enode in enodes:
            for child in egraph.kids[enode]:
                users.setdefault(child, []).append(enode)
        for child, needing in users.items():
            if child not in roots:
                rows.append(
                    (-math.inf, 0.0, [*needing, count + child], [1.0] * len(needing) + [-1.0])
                )
    lower = np.zeros(count + egraph.num_classes)
    lower[[count + root for root in roots]] = 1.0
    cost = np.concatenate([egraph.node_cost, np.zeros(egraph.num_classes)])
    return Program(cost, lower, count, tuple(rows))


def _point(egraph: EGraph, choice: Choice) -> NDArray[np.float64]:
    """The values of the program that say `choice`."""
    kept = reached(egraph, choice)
    values = np.zeros(egraph.num_nodes + egraph.num_classes)
    values[choice[kept]] = 1.0
    values[[egraph.num_nodes + cls for cls in kept]] = 1.0
    return values


def _choice(egraph: EGraph, values: NDArray[np.float64]) -> Choice:
    """What the values say, perhaps with cycles."""
    choice = np.full(egraph.num_classes, -1, np.int32)
    chosen = np.flatnonzero(values[: egraph.num_nodes] > 0.5)
    choice[egraph.node_class[chosen]] = chosen
    return choice


def _cycles(egraph: EGraph, choice: Choice) -> list[list[int]]:
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


def _cuts(egraph: EGraph, cycle: list[int]) -> list[Row]:
    """Rows that forbid a cycle: a class in it is needed only if some class in it has an e-node out
    of it.
    """
    inside = set(cycle)
    exits = [e for cls in cycle for e in egraph.members[cls] if inside.isdisjoint(egraph.kids[e])]
    return [
        (-math.inf, 0.0, [egraph.num_nodes + cls, *exits], [1.0] + [-1.0] * len(exits))
        for cls in cycle
    ]


def _repaired(egraph: EGraph, choice: Choice) -> Choice:
    """The selection without cycles that has as much as possible of `choice`, as what that has is
    free.
    """
    weight = egraph.node_cost.copy()
    weight[choice[choice >= 0]] = 0.0
    return cheapest(egraph, weight.tolist())
