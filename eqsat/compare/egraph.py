"""The e-graph of a small program, with the cost of every e-node and which of them were chosen."""

from __future__ import annotations

from typing import Any  # JSON

import numpy as np
from torch.export import ExportedProgram

import rewrites
from eqsat.capture import constants_of
from eqsat.choose import Ground, best, candidates
from eqsat.clock import Clock
from eqsat.compare.task import Options
from eqsat.cost.additive import FUSED_SHARE
from eqsat.cost.model import CostModel
from eqsat.encode import encode
from eqsat.known import known
from eqsat.problem import Problem
from eqsat.saturate import saturate
from eqsat.search import fake_mode
from eqsat.settings import Settings
from eqsat.snapshot import Snapshot

MOST = 2_000
"""E-nodes that a page can show."""


def view(
    program: ExportedProgram, cost: CostModel, options: Options, enodes: int
) -> dict[str, Any] | None:
    """The e-graph that saturation finds of `program`; None where it has more than `MOST` e-nodes.

    It is grown anew, by the same steps with the same limits. Costs are those of e-nodes one at a
    time, by which the first candidate is read.
    """
    if enodes > MOST:
        return None
    settings = Settings.of(
        rewrites.DEFAULT,
        cost.device,
        cost.mode,
        options.numerics,
        options.extractor,
        options.limits,
        options.time_limit,
        None,
        options.margin,
    )
    graph, constants = program.graph, constants_of(program)
    encoding = encode(graph, constants, known(graph, constants))
    snapshot, _ = saturate(encoding, settings.rules, options.limits)
    ground = Ground(snapshot, encoding, settings, fake_mode(graph), constants)
    found = candidates(ground, Clock())
    winner = best(found, cost.estimate(graph), options.margin)
    problem = ground.priced(bool(ground.budget()), FUSED_SHARE)
    choice = problem.given if winner is None else winner.selection.choice
    return {"classes": _classes(snapshot, problem, _chosen(problem, choice))}


def _chosen(problem: Problem, choice: Any) -> set[int]:
    """The e-nodes of the problem that the roots need by a choice."""
    egraph, found = problem.egraph, set[int]()
    waiting = list(egraph.roots)
    while waiting:
        node = int(choice[waiting.pop()])
        if node < 0 or node in found:
            continue
        found.add(node)
        waiting += [
            int(c) for c in egraph.children[egraph.child_ptr[node] : egraph.child_ptr[node + 1]]
        ]
    return found


def _classes(snapshot: Snapshot, problem: Problem, chosen: set[int]) -> list[dict[str, Any]]:
    """The e-classes in order, each with its e-nodes."""
    members: dict[int, list[dict[str, Any]]] = {}
    costs = np.asarray(problem.egraph.node_cost)
    for i, k in enumerate(problem.enodes):
        attributes = ", ".join(snapshot.attributes[k])
        operator = snapshot.symbols[k].operator
        members.setdefault(snapshot.classes[k], []).append(
            {
                "op": f"{operator}({attributes})" if attributes else operator,
                "children": list(snapshot.children[k]),
                "cost": float(costs[i]),
                "chosen": i in chosen,
            }
        )
    return [
        {"id": cls, "meta": snapshot.metas[cls], "nodes": nodes}
        for cls, nodes in sorted(members.items())
    ]
