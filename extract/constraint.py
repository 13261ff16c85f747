"""Extraction as a constraint program, solved by CP-SAT where OR-Tools is installed."""

from __future__ import annotations

import importlib.util
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extract.choosing import needing_by_child
from extract.egraph import EGraph
from extract.linear import LISTEN
from extract.loops import strongly_connected
from extract.selection import Choice, Selection, Status, dag_cost, reached, select

INSTALLED = importlib.util.find_spec("ortools") is not None
"""Whether OR-Tools can be imported."""
TOTAL = 1 << 46
"""What all costs add up to as the integers that CP-SAT wants, unless they are whole numbers."""
CLOSE = 1e-9
"""Share of the cost that rounding to integers may hide where a selection is said to be optimal."""


def constraint_search(egraph: EGraph, best: Selection, deadline: float) -> Selection:
    """The best selection that CP-SAT finds before the deadline, from `best` on; without OR-Tools,
    `best`.

    Cycles are forbidden by an order of the classes within each loop. It proves less than
    branch-and-cut, and finds more where loops are many.
    """
    started = time.perf_counter()
    if not INSTALLED or started >= deadline:
        return best
    model = _model(egraph)
    _hint(model, egraph, best.choice)
    try:
        solver, status = _solve(model.model, deadline - time.perf_counter())
    except KeyboardInterrupt:
        return replace(best, status=Status.INTERRUPTED)
    choice, bound = best.choice, best.lower_bound
    bound = max(bound, _bound(model, solver.best_objective_bound))
    if status not in ("OPTIMAL", "FEASIBLE"):
        return replace(best, lower_bound=min(bound, best.cost))
    found = np.full(egraph.num_classes, -1, np.int32)
    for enode, variable in enumerate(model.chosen):
        if solver.value(variable):
            found[egraph.node_class[enode]] = enode
    if dag_cost(egraph, found) < best.cost:
        choice = found
    cost = dag_cost(egraph, choice)
    met = cost <= bound or (status == "OPTIMAL" and 2 * model.error <= CLOSE * cost)
    return select(
        egraph,
        choice,
        method=best.method if choice is best.choice and not met else "constraint-search",
        started=started,
        lower_bound=bound,
        status=Status.OPTIMAL if met else Status.FEASIBLE,
    )


@dataclass(frozen=True, eq=False)
class _Model:
    """The model, the variables of e-nodes, of classes and of places in the order, and how costs
    were rounded: `scale` of them make a unit of cost, and a selection is off by `error` at most.
    """

    model: Any  # OR-Tools is optional, so its types are not at hand
    chosen: list[Any]
    needed: list[Any]
    place: dict[int, Any]
    scale: float
    error: float


def _model(egraph: EGraph) -> _Model:
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()  # as above
    chosen = [model.new_bool_var("") for _ in range(egraph.num_nodes)]
    needed = [model.new_bool_var("") for _ in range(egraph.num_classes)]
    roots = set(egraph.roots)
    for cls, enodes in enumerate(egraph.members):
        model.add(sum(chosen[e] for e in enodes) == needed[cls])
        for child, needing in needing_by_child(egraph, cls).items():
            if child not in roots:
                model.add(sum(chosen[e] for e in needing) <= needed[child])
    for root in roots:
        model.add(needed[root] == 1)
    place = _order(model, egraph, chosen)
    costs, scale, error = _whole(egraph.node_cost, egraph.num_classes)
    model.minimize(sum(cost * x for cost, x in zip(costs, chosen, strict=True)))
    return _Model(model, chosen, needed, place, scale, error)


def _order(model: Any, egraph: EGraph, chosen: list[Any]) -> dict[int, Any]:  # Any: as above
    """A place for every class of a loop, after those that its e-node needs."""
    successors = {
        cls: list(dict.fromkeys(kid for enode in enodes for kid in egraph.kids[enode]))
        for cls, enodes in enumerate(egraph.members)
    }
    place: dict[int, Any] = {}
    for loop in strongly_connected(successors):
        inside = set(loop)
        if len(loop) == 1:
            own = [e for e in egraph.members[loop[0]] if loop[0] in egraph.kids[e]]
            for enode in own:
                model.add(chosen[enode] == 0)
            continue
        for cls in loop:
            place[cls] = model.new_int_var(0, len(loop) - 1, "")
        for cls in loop:
            for enode in egraph.members[cls]:
                for child in egraph.kids[enode]:
                    if child in inside:
                        rule = model.add(place[cls] >= place[child] + 1)
                        rule.only_enforce_if(chosen[enode])
    return place


def _whole(cost: NDArray[np.float64], classes: int) -> tuple[list[int], float, float]:
    """Whole numbers for the costs, how many make a unit, and by how much the sum of one a class can
    be off.
    """
    scale = TOTAL / (float(cost.sum()) or 1.0)
    for unit in (1.0, float(cost[cost > 0].min(initial=math.inf))):
        if (abs(cost / unit - np.round(cost / unit)) < 1e-9).all() and cost.sum() / unit < TOTAL:
            scale = 1.0 / unit
    whole = np.round(cost * scale)
    off = float(abs(cost - whole / scale).max(initial=0.0))
    return whole.astype(np.int64).tolist(), scale, off * classes


def _bound(model: _Model, bound: float) -> float:
    """What a bound in whole numbers says about costs, whatever the rounding."""
    return bound / model.scale - model.error if math.isfinite(bound) else 0.0


def _hint(model: _Model, egraph: EGraph, choice: Choice) -> None:
    """Tells CP-SAT a selection to begin with."""
    order = reached(egraph, choice)
    taken = set(choice[order].tolist())
    kept = set(order)
    for enode, variable in enumerate(model.chosen):
        model.model.add_hint(variable, int(enode in taken))
    for cls, variable in enumerate(model.needed):
        model.model.add_hint(variable, int(cls in kept))
    heights: dict[int, int] = {}
    for cls in order:  # children first
        below = [heights[kid] for kid in egraph.kids[int(choice[cls])] if kid in model.place]
        if cls in model.place:
            heights[cls] = max((below_ + 1 for below_ in below), default=0)
    for cls, variable in model.place.items():
        model.model.add_hint(variable, heights.get(cls, 0))


def _solve(model: Any, seconds: float) -> tuple[Any, str]:  # Any: as above
    """The solver after it has run, in a thread of its own so that Ctrl-C stops it at once."""
    from ortools.sat.python import cp_model

    solver: Any = cp_model.CpSolver()  # as above
    settings: Mapping[str, object] = {
        "max_time_in_seconds": seconds,
        "num_workers": 1,  # the answer must not depend on which worker is faster
        "catch_sigint_signal": False,
    }
    for name, value in settings.items():
        setattr(solver.parameters, name, value)
    status: list[str] = []
    thread = threading.Thread(
        target=lambda: status.append(solver.status_name(solver.solve(model))), daemon=True
    )
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LISTEN)
    except KeyboardInterrupt:
        solver.stop_search()
        thread.join()
        raise
    return solver, status[0]
