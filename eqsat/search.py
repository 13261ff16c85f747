"""What the optimizer finds for one graph: encode, saturate, extract, decode; or what it found."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph

from eqsat import cache
from eqsat.canonical import Canonical, UnsayableError
from eqsat.choose import Candidate, Found, allowed, best, candidates
from eqsat.clock import Clock
from eqsat.cost.model import Prediction
from eqsat.encode import encode
from eqsat.fingerprint import fingerprint
from eqsat.fold import Folding, compute, finish
from eqsat.ground import Ground, budget
from eqsat.known import Known, known
from eqsat.peak import Memory, exceeds, memory
from eqsat.recipe import build, write
from eqsat.record import plain, read
from eqsat.report import Extraction
from eqsat.rewritten import rewritten
from eqsat.saturate import IterationSize, Saturation, StopReason, saturate
from eqsat.settings import SATURATION, Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Better:
    """An equal graph that is worth a change, and what it is predicted to cost.

    `folded` are the constants computed ahead, by the names of their placeholders, in `bytes`.
    """

    graph: Graph
    folded: Mapping[str, Tensor]
    bytes: int
    prediction: Prediction

    @staticmethod
    def of(
        graph: Graph,
        folding: Folding,
        prediction: Prediction,
        constants: Mapping[str, Tensor],
        mode: FakeTensorMode,
    ) -> Better:
        """The graph with its constants computed."""
        folded = compute(folding, graph, constants, mode)
        return Better(graph, folded, folding.bytes, prediction)


@dataclass(frozen=True)
class Search:
    """What was found for a graph: `winner` is None where no candidate is worth a change.

    `coverage` says why an operator is not in the language. `cached` results are those of an earlier
    search, whose record this is.
    """

    coverage: Mapping[str, str]
    saturation: Saturation
    given: Prediction
    candidates: tuple[Extraction, ...]
    winner: Better | None
    memory: Memory
    cached: bool = False

    @property
    def memory_after(self) -> Memory | None:
        """The memory of the winner."""
        return next((c.memory for c in self.candidates if c.chosen), None)

    def no_better(self, settings: Settings) -> str:
        """Why no candidate is worth a change."""
        growth, limit = settings.max_memory_growth, self.given.seconds * (1 - settings.margin)
        taken = [
            c.memory.total / max(self.memory.total, 1)
            for c in self.candidates
            if growth is not None
            and exceeds(c.memory, self.memory, growth)
            and c.predicted <= limit
        ]
        if taken:
            what = "what is faster" if limit < self.given.seconds else "what was found"
            return (
                f"{what} takes {min(taken):.3g} times the memory, and max_memory_growth allows "
                f"{growth:.3g}"
            )
        saving = max(1 - c.predicted / self.given.seconds for c in self.candidates)
        return (
            f"nothing faster by the margin of {settings.margin:.3g} of the time was found (the "
            f"best candidate saves {max(saving, 0):.1%})"
        )


@dataclass(frozen=True)
class Entry:
    """What the cache keeps of a search; `steps` make the winner before constants are folded."""

    coverage: dict[str, str]
    saturation: Saturation
    given: Prediction
    candidates: tuple[Extraction, ...]
    after: Prediction | None
    steps: Any
    ahead: bool
    memory: Memory
    lines: str
    """The hash of the text of the graph that `steps` make."""


@dataclass(frozen=True)
class Slot:
    """Where the cache keeps what a search of one graph finds."""

    place: Path
    key: str
    names: Canonical


def search(
    graph: Graph,
    constants: Mapping[str, Tensor],
    settings: Settings,
    clock: Clock,
    progress: Callable[[IterationSize], None] | None = None,
    *,
    cached: bool = False,
    observe: Callable[[Found], None] | None = None,
) -> Search:
    """The best equal graph for a functional ATen graph whose nodes carry `meta["val"]`.

    `constants` are the placeholders (by name) that never change. With `cached`, what an earlier
    search of the same graph with the same settings found comes back, and what this one finds is
    kept: also where a time limit ended it, though another machine would have come further, but not
    where a person did. `observe` is shown the e-graph and what was read from it: such a search is
    made anew.
    """
    kept = cached and observe is None
    facts, slot, earlier = recalled(graph, constants, settings, clock, cached=kept)
    if earlier is not None:
        return earlier
    found = explore(graph, constants, facts, settings, clock, progress, observe)
    winner, better = found.winner, None
    if winner is not None:
        with clock("fold"):
            mode = fake_mode(graph)
            better = Better.of(winner.graph, winner.folding, winner.prediction, constants, mode)
    if slot is not None and found.saturation.stop is not StopReason.INTERRUPTED:
        with clock("cache"):
            _remember(slot, found)
    return Search(
        found.coverage, found.saturation, found.given, found.candidates, better, found.memory
    )


def recalled(
    graph: Graph,
    constants: Mapping[str, Tensor],
    settings: Settings,
    clock: Clock,
    *,
    cached: bool,
) -> tuple[Mapping[Any, Known], Slot | None, Search | None]:
    """What is known of the values, where the cache keeps the search, and what it holds of it."""
    with clock("encode"):
        facts = known(graph, constants)
    with clock("cache"):
        slot = _slot(graph, constants, facts, settings) if cached else None
        earlier = None if slot is None else _recall(slot, constants, settings)
    return facts, slot, earlier


@dataclass(frozen=True)
class Explored:
    """What a search found, before constants are computed: `winner` is one of the candidates."""

    coverage: dict[str, str]
    saturation: Saturation
    given: Prediction
    candidates: tuple[Extraction, ...]
    winner: Candidate | None
    memory: Memory


def explore(
    graph: Graph,
    constants: Mapping[str, Tensor],
    facts: Mapping[Any, Known],
    settings: Settings,
    clock: Clock,
    progress: Callable[[IterationSize], None] | None,
    observe: Callable[[Found], None] | None = None,
) -> Explored:
    """What a search of the graph finds; it reads no constant, for the `facts` tell of them."""
    deadline = time.perf_counter() + settings.limits.seconds + settings.time_limit
    with clock("price"):
        given, held = settings.cost.estimate(graph), memory(graph, constants)
    with clock("encode"):
        encoding = encode(graph, constants, facts)
    fixed, mode = None, fake_mode(graph)
    with clock("saturate"):
        if settings.search == SATURATION:
            snapshot, saturation = saturate(
                encoding, settings.rules, settings.limits, progress, settings.memory_limit
            )
        else:
            snapshot, fixed, saturation = rewritten(encoding, settings, settings.search, progress)
    ground = Ground(snapshot, encoding, settings, mode, constants, fixed, deadline, held)
    found = candidates(ground, clock)
    winner = best(allowed(ground, found), given, settings.margin)
    if observe is not None:
        observe(Found(ground, tuple(found), winner))
    coverage, tried = dict(encoding.opaque), _extractions(found, winner)
    return Explored(coverage, saturation, given, tried, winner, held)


def fake_mode(graph: Graph) -> FakeTensorMode:
    """The mode of the graph's fake tensors."""
    values = [n.meta.get("val") for n in graph.nodes]
    mode = detect_fake_mode([v for v in values if isinstance(v, Tensor)])
    return mode if mode is not None else FakeTensorMode(allow_non_fake_inputs=True)


def _extractions(found: Sequence[Candidate], winner: Candidate | None) -> tuple[Extraction, ...]:
    return tuple(
        Extraction(
            name=c.name,
            method=c.selection.method,
            status=str(c.selection.status),
            cost=float(c.selection.cost),
            lower_bound=float(c.selection.lower_bound),
            seconds=c.selection.seconds,
            predicted=c.prediction.seconds,
            kernels=len(c.prediction.kernels),
            chosen=c is winner,
            memory=c.memory,
        )
        for c in found
    )


def _slot(
    graph: Graph, constants: Mapping[str, Tensor], facts: Mapping[Any, Known], settings: Settings
) -> Slot | None:
    """Where the search of a graph is kept; None where it is not to be, or no key tells it all."""
    place = cache.folder()
    decides = None if place is None else fingerprint(settings)
    if place is None or decides is None:
        return None
    names = Canonical(graph)
    try:
        text = names.text(facts, constants)
    except Exception as reason:  # noqa: BLE001 - what cannot be told, for whatever reason, is not kept
        log.info("not cached: %s: %s", type(reason).__name__, reason)
        return None
    return Slot(place, hashlib.sha256(f"{decides}\n{text}".encode()).hexdigest(), names)


def _lines(graph: Graph, names: Canonical) -> str:
    return hashlib.sha256("\n".join(names.lines(graph)).encode()).hexdigest()


def _recall(slot: Slot, constants: Mapping[str, Tensor], settings: Settings) -> Search | None:
    """What the cache holds of a search; None where it holds nothing that can be used."""
    text = cache.load(slot.place, slot.key)
    if text is None:
        return None
    try:
        return told(json.loads(text), slot.names, constants, settings, cached=True)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an entry, a search does not need it
        log.warning("the entry %s cannot be used and is computed anew: %s", slot.key, error)
        return None


def told(
    data: Any,
    names: Canonical,
    constants: Mapping[str, Tensor],
    settings: Settings,
    *,
    cached: bool,
) -> Search:
    """The search that an entry tells of, as JSON; raises where it does not fit the graph."""
    entry: Entry = read(Entry, data)
    winner = None if entry.after is None else _better(entry, names, constants, settings)
    return Search(
        entry.coverage,
        entry.saturation,
        entry.given,
        entry.candidates,
        winner,
        entry.memory,
        cached,
    )


def _better(
    entry: Entry, names: Canonical, constants: Mapping[str, Tensor], settings: Settings
) -> Better:
    """The winner of an entry, its constants computed."""
    mode = fake_mode(names.graph)
    graph = build(entry.steps, names, mode)
    if _lines(graph, names) != entry.lines:
        raise ValueError("it makes another graph than the one that was found")
    folding = finish(graph, constants, budget(settings, constants) if entry.ahead else None)
    if folding is None or entry.after is None:
        raise ValueError("its constants take more memory than is allowed")
    return Better.of(graph, folding, entry.after, constants, mode)


def telling(found: Explored, names: Canonical) -> Any:
    """The entry of a search, as JSON. Raises UnsayableError for what it cannot tell."""
    winner, steps, lines = found.winner, None, ""
    if winner is not None:
        steps, lines = write(winner.decoded, names), _lines(winner.decoded, names)
        if _lines(build(steps, names, fake_mode(names.graph)), names) != lines:
            raise UnsayableError("the graph does not come back as it was")
    entry = Entry(
        found.coverage,
        found.saturation,
        found.given,
        found.candidates,
        None if winner is None else winner.prediction,
        steps,
        winner is not None and winner.ahead,
        found.memory,
        lines,
    )
    return plain(entry)


def _remember(slot: Slot, found: Explored) -> None:
    """Keep what a search found, if it can be told and comes back as it was."""
    try:
        text = json.dumps(telling(found, slot.names))
    except Exception as reason:  # noqa: BLE001 - what cannot be kept is no reason to lose the result
        log.info("not cached: %s", reason)
        return
    cache.store(slot.place, slot.key, text)
