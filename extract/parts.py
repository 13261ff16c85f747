"""An e-graph solved part by part: reductions first, then a way to improve each part's selection."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from extract.core import Core, Merged, Settled, restore
from extract.egraph import EGraph
from extract.greedy_dag import greedy_dag
from extract.prepare import ROUNDS, prepare, with_closed_solved
from extract.selection import Choice, Selection, Status, dag_cost, select
from extract.tree import cheapest, tree

Improve = Callable[[EGraph, Selection, float], Selection]
"""From an e-graph, a selection for it and a deadline (a `time.perf_counter()`) to a selection that
costs no more, with what is proven of it.

OPTIMAL says that there is nothing left to do, INTERRUPTED that the user asked to stop.
"""


def in_turns(turns: Sequence[tuple[float, Improve]]) -> Improve:
    """Improves in one way after the other, each until a share of the time, as long as there is
    something to do.
    """

    def improve(egraph: EGraph, best: Selection, deadline: float) -> Selection:
        started = time.perf_counter()
        for share, turn in turns:
            until = started + share * (deadline - started)
            if best.status is Status.FEASIBLE and time.perf_counter() < until:
                best = turn(egraph, best, until)
        return best

    return improve


def improved_by_parts(
    egraph: EGraph,
    improve: Improve,
    method: str | None,
    time_limit: float,
    seeds: Sequence[Choice] = (),
    passes: int = 1,
    rounds: int = ROUNDS,
) -> Selection:
    """The selection of an e-graph that `improve` finds, called on each of its reduced parts.

    It costs no more than the tree, the greedy DAG and the best of `seeds`, each of which must be a
    selection. `passes` says how often a part that is not solved gets a share of the time that the
    others have left, `rounds` how often the reductions are done. Without a `method` the selection
    names what found it in the dearest part.
    """
    started = time.perf_counter()
    deadline = started + time_limit
    known = {"tree": tree(egraph).choice}
    known |= {f"seed {index}": seed for index, seed in enumerate(seeds)}
    costs = {name: dag_cost(egraph, choice) for name, choice in known.items()}
    bound, status, dearest = 0.0, Status.INTERRUPTED, ""
    try:
        if time.perf_counter() < deadline:
            known["greedy-dag"] = greedy_dag(egraph).choice
            costs["greedy-dag"] = dag_cost(egraph, known["greedy-dag"])
        limit = min(costs.values())
        cores, whole = prepare(egraph, limit=limit, deadline=deadline, rounds=rounds)
        cores = [with_closed_solved(core, _solver(improve, deadline)) for core in cores]
        groups = _grouped(cores)
        near = [[_near(group[0], choice) for choice in known.values()] for group in groups]
        answers = [_start(group[0].egraph, at) for group, at in zip(groups, near, strict=True)]
        _improve([group[0].egraph for group in groups], answers, improve, deadline, passes)
        known[""] = _joined(groups, answers, [*whole.steps, *_steps(cores)], egraph.num_classes)
        costs[""] = dag_cost(egraph, known[""])
        bounds = [len(group) * a.lower_bound for group, a in zip(groups, answers, strict=True)]
        bound, status = math.fsum([whole.base, *bounds]), _together(answers)
        dearest = _dearest(answers)
    except KeyboardInterrupt:
        pass  # what is known is the best so far
    name = min(costs, key=costs.__getitem__)  # of equal ones the simplest, which comes first
    return select(
        egraph,
        known[name],
        method=method or name or dearest,
        started=started,
        lower_bound=bound,
        status=status,
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


def _solver(improve: Improve, deadline: float) -> Callable[[EGraph], Choice | None]:
    """What finds the optimum of a small part within a share of the time that is left."""

    def solve(egraph: EGraph) -> Choice | None:
        now = time.perf_counter()
        if now >= deadline:
            return None
        answer = improve(egraph, _start(egraph, ()), now + 0.1 * (deadline - now))
        return answer.choice if answer.status is Status.OPTIMAL else None

    return solve


def _joined(
    groups: Sequence[Sequence[_Part]],
    answers: Sequence[Selection],
    steps: Sequence[Settled | Merged],
    num_classes: int,
) -> Choice:
    """The choice for the whole that the answers, one for a group of equal parts, make."""
    chosen: dict[int, int] = {}
    for group, answer in zip(groups, answers, strict=True):
        for part in group:
            chosen.update(part.outside(answer.choice))
    return restore(steps, chosen, num_classes)


def _steps(cores: Sequence[Core]) -> list[Settled | Merged]:
    return [step for core in cores for step in core.steps]


def _together(answers: Sequence[Selection]) -> Status:
    statuses = {answer.status for answer in answers}
    worst = (Status.INTERRUPTED, Status.FEASIBLE)
    return next((status for status in worst if status in statuses), Status.OPTIMAL)


def _dearest(answers: Sequence[Selection]) -> str:
    return max(answers, key=lambda answer: answer.cost).method if answers else "reductions"


def _start(egraph: EGraph, known: Sequence[Choice]) -> Selection:
    """The best selection that is at hand, bounded by what the roots cost at least."""
    started = time.perf_counter()
    at_hand = {"tree": tree(egraph).choice, "greedy-dag": greedy_dag(egraph).choice}
    at_hand |= {f"seed {index}": choice for index, choice in enumerate(known)}
    costs = {name: dag_cost(egraph, choice) for name, choice in at_hand.items()}
    name = min(costs, key=costs.__getitem__)
    least = [min(egraph.node_cost[list(egraph.members[r])].tolist()) for r in set(egraph.roots)]
    bound = math.fsum(sorted(least))
    return proven(select(egraph, at_hand[name], method=name, started=started, lower_bound=bound))


def proven(selection: Selection) -> Selection:
    """The selection, optimal if its bound says so."""
    met = selection.cost <= selection.lower_bound
    return replace(selection, status=Status.OPTIMAL) if met else selection


def _near(part: _Part, seed: Choice) -> Choice:
    """The selection of a part that is most like a seed for the whole, as what that has is free."""
    taken = set(seed.tolist())
    pairs = zip(part.enodes, part.egraph.node_cost.tolist(), strict=True)
    return cheapest(part.egraph, [0.0 if enode in taken else cost for enode, cost in pairs])


def _improve(
    parts: Sequence[EGraph],
    answers: list[Selection],
    improve: Improve,
    deadline: float,
    passes: int,
) -> None:
    """Puts better selections of the parts in the place of `answers`.

    The time is shared by size, small parts first; what they leave goes to the next, and to those
    that a first pass has not solved.
    """
    for _ in range(passes):
        waiting = [i for i, answer in enumerate(answers) if answer.status is not Status.OPTIMAL]
        left = sum(parts[i].num_nodes for i in waiting)
        for i in waiting:
            rest = deadline - time.perf_counter()
            if rest <= 0:
                return
            until = time.perf_counter() + rest * parts[i].num_nodes / left
            answers[i] = improve(parts[i], answers[i], until)
            if answers[i].status is Status.INTERRUPTED:
                return
            left -= parts[i].num_nodes
