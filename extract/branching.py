"""Branch and cut: integer programs by HiGHS, with cycles cut off as they show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from extract.choosing import chosen, cuts, cycles, point, program, repaired
from extract.egraph import EGraph
from extract.linear import Row, solve
from extract.selection import Selection, Status, dag_cost, select

WRONG = 1e-6
"""Share of the cost by which a bound may be above a selection that is at hand."""
CLOSE = 1e-9
"""Share of the cost that a bound may be below where the selection is said to be optimal."""


def branch_and_cut(
    egraph: EGraph, best: Selection, deadline: float, rows: Sequence[Row] = ()
) -> Selection:
    """The best selection that integer programs find before the deadline, starting with `best`.

    A program allows cycles. Where its optimum has some, rows are added that forbid these, and it is
    solved again; where it has none it is the optimum. `rows` are true rows to begin with.
    """
    if best.cost <= best.lower_bound:
        return replace(best, status=Status.OPTIMAL)
    started = time.perf_counter()
    choices = program(egraph).with_rows(rows)
    choice, cost, bound = best.choice, best.cost, best.lower_bound
    status = Status.FEASIBLE
    while status is Status.FEASIBLE and (rest := deadline - time.perf_counter()) > 0:
        try:
            solution = solve(choices, point(egraph, choice), rest)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
            break
        if solution.bound > cost * (1 + WRONG):  # HiGHS is wrong: a selection below it is at hand
            break
        bound = max(bound, solution.bound)
        if solution.values is None:
            break
        found = chosen(egraph, solution.values)
        circles = cycles(egraph, found)
        acyclic = repaired(egraph, found) if circles else found
        if dag_cost(egraph, acyclic) < cost:
            choice, cost = acyclic, dag_cost(egraph, acyclic)
        if not solution.optimal:
            break
        if not circles or cost <= bound * (1 + CLOSE):
            status = Status.OPTIMAL
        choices = choices.with_rows([row for circle in circles for row in cuts(egraph, circle)])
    told = status is Status.OPTIMAL or choice is not best.choice
    method = "branch-and-cut" if told else best.method
    return select(egraph, choice, method=method, started=started, lower_bound=bound, status=status)
