"""A program as a search that rewrites one leaves it, and the same choice in a larger e-graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from eqsat.cost.additive import FUSED_SHARE
from eqsat.encode import Encoding
from eqsat.problem import Pricer
from eqsat.saturate import IterationSize, Saturation
from eqsat.settings import BACKTRACKING, FIXPOINT, Settings
from eqsat.snapshot import Snapshot
from extract import Choice


def rewritten(
    encoding: Encoding,
    settings: Settings,
    search: str,
    progress: Callable[[IterationSize], None] | None = None,
) -> tuple[Snapshot, Choice, Saturation]:
    """The program as one rewrite after another leaves it: an e-graph, and what to choose."""
    from eqsat.backtrack import Backtracking  # these need Inductor, which is slow to import
    from eqsat.greedy import Greedy
    from eqsat.terms import Terms

    pricer = Pricer(encoding.texts, settings.cost, settings.fold_budget != 0, FUSED_SHARE)
    terms, rules, limits = Terms(encoding, pricer), settings.rules, settings.limits
    if search == BACKTRACKING:
        backtracking = Backtracking(terms, rules, limits)
        greedy, stop = backtracking.greedy, backtracking.run()
        terms = backtracking.best
    else:
        greedy = Greedy(terms, rules, limits, shared=search == FIXPOINT)
        stop = greedy.fixpoint() if greedy.shared else greedy.sweep()
    if progress is not None:
        for size in greedy.sizes:
            progress(size)
    snapshot, choice = terms.snapshot()
    return snapshot, choice, greedy.record(stop)


def placed(
    snapshot: Snapshot, choice: Choice, larger: Snapshot, roots: Iterable[int]
) -> Choice | None:
    """What is chosen of `snapshot`, whose e-nodes come after their operands, in a larger e-graph.

    None where an e-node is not there, or one of the handles `roots` has another class there, as in
    an e-graph that was cut short. Of what is one class there, the first is chosen.
    """
    parts = zip(larger.symbols, larger.children, larger.attributes, strict=True)
    where = {enode: k for k, enode in enumerate(parts)}
    cls_of: dict[int, int] = {}
    found = np.full(larger.num_classes, -1, dtype=np.int32)
    for k, cls in enumerate(snapshot.classes):
        if choice[cls] != k:
            continue
        operands = tuple(cls_of[child] for child in snapshot.children[k])
        at = where.get((snapshot.symbols[k], operands, snapshot.attributes[k]))
        if at is None:
            return None
        cls_of[cls] = larger.classes[at]
        if found[larger.classes[at]] < 0:
            found[larger.classes[at]] = at
    same = (cls_of[snapshot.handles[root]] == larger.handles[root] for root in roots)
    return found if all(same) else None
