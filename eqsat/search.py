"""What the optimizer finds for one graph: encode, saturate, extract, decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph

from eqsat.backtrack import Backtracking
from eqsat.choose import Candidate, Found, Ground, best, candidates
from eqsat.clock import Clock
from eqsat.cost.additive import FUSED_SHARE
from eqsat.cost.model import Prediction
from eqsat.encode import Encoding, encode
from eqsat.greedy import Greedy
from eqsat.problem import Pricer
from eqsat.saturate import IterationSize, Saturation, saturate
from eqsat.settings import BACKTRACKING, FIXPOINT, SATURATION, Settings
from eqsat.snapshot import Snapshot
from eqsat.terms import Terms
from extract import Choice


@dataclass(frozen=True)
class Search:
    """What was found for a graph: `winner` is None where no candidate is worth a change."""

    encoding: Encoding
    saturation: Saturation
    given: Prediction
    candidates: Sequence[Candidate]
    winner: Candidate | None

    def no_better(self, settings: Settings) -> str:
        """Why no candidate is worth a change."""
        saving = max(1 - c.prediction.seconds / self.given.seconds for c in self.candidates)
        return (
            f"nothing faster by the margin of {settings.margin:.3g} of the time was found (the "
            f"best candidate saves {max(saving, 0):.1%})"
        )


def search(
    graph: Graph,
    constants: Mapping[str, Tensor],
    settings: Settings,
    clock: Clock,
    progress: Callable[[IterationSize], None] | None = None,
    observe: Callable[[Found], None] | None = None,
) -> Search:
    """The best equal graph for a functional ATen graph whose nodes carry `meta["val"]`.

    `constants` are the placeholders (by name) that never change. `observe` is shown the e-graph
    and what was read from it.
    """
    with clock("price"):
        given = settings.cost.estimate(graph)
    with clock("encode"):
        encoding = encode(graph, constants)
    fixed = None
    with clock("saturate"):
        if settings.search == SATURATION:
            snapshot, saturation = saturate(encoding, settings.rules, settings.limits, progress)
        else:
            snapshot, fixed, saturation = rewritten(encoding, settings, progress)
    ground = Ground(snapshot, encoding, settings, fake_mode(graph), constants, fixed)
    found = candidates(ground, clock)
    winner = best(found, given, settings.margin)
    if observe is not None:
        observe(Found(ground, tuple(found), winner))
    return Search(encoding, saturation, given, found, winner)


def rewritten(
    encoding: Encoding, settings: Settings, progress: Callable[[IterationSize], None] | None
) -> tuple[Snapshot, Choice, Saturation]:
    """The program as one search after another rewrite finds it: an e-graph, and what to choose."""
    pricer = Pricer(encoding.texts, settings.cost, settings.fold_budget != 0, FUSED_SHARE)
    terms, rules, limits = Terms(encoding, pricer), settings.rules, settings.limits
    if settings.search == BACKTRACKING:
        backtracking = Backtracking(terms, rules, limits)
        greedy, stop = backtracking.greedy, backtracking.run()
        terms = backtracking.best
    else:
        greedy = Greedy(terms, rules, limits, shared=settings.search == FIXPOINT)
        stop = greedy.fixpoint() if greedy.shared else greedy.sweep()
    if progress is not None:
        for size in greedy.sizes:
            progress(size)
    snapshot, choice = terms.snapshot()
    return snapshot, choice, greedy.record(stop)


def fake_mode(graph: Graph) -> FakeTensorMode:
    """The mode of the graph's fake tensors."""
    values = [n.meta.get("val") for n in graph.nodes]
    mode = detect_fake_mode([v for v in values if isinstance(v, Tensor)])
    return mode if mode is not None else FakeTensorMode(allow_non_fake_inputs=True)
