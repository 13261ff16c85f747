"""The search of a graph in a process of its own, which may be killed without loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.fx import Graph

from eqsat import cache
from eqsat.apart import apart
from eqsat.canonical import Canonical
from eqsat.clock import Clock
from eqsat.saturate import IterationSize, StopReason
from eqsat.search import Search, explore, recalled, telling, told
from eqsat.settings import Settings

PATIENCE = 1.2
"""The share of its limits after which a search is killed; half as long again is promised."""


def isolated(
    graph: Graph,
    constants: Mapping[str, Tensor],
    settings: Settings,
    clock: Clock,
    progress: Callable[[IterationSize], None] | None = None,
    *,
    cached: bool = False,
) -> Search:
    """What `eqsat.search.search` finds, but the search runs in a fork of this process.

    The fork reads no constant. What it finds comes back as an entry of the cache, constants are
    computed here. Raises LostError where the fork dies, or takes more than the settings allow.
    """
    facts, slot, earlier = recalled(graph, constants, settings, clock, cached=cached)
    if earlier is not None:
        return earlier
    names = Canonical(graph, here=True) if slot is None else slot.names
    if slot is None:
        names.text(facts, constants)

    def work(tell: Callable[[Any], None]) -> Any:
        inside = Clock()
        found = explore(
            graph,
            constants,
            facts,
            settings,
            inside,
            lambda size: tell([size.enodes, size.seconds]),
        )
        return [telling(found, names), inside.seconds]

    def grown(size: Any) -> None:
        if progress is not None:
            progress(IterationSize(*size))

    allowed = PATIENCE * (settings.limits.seconds + settings.time_limit)
    entry, seconds = apart(work, allowed, settings.memory_limit, grown)
    for step, spent in seconds.items():
        clock.seconds[step] = clock.seconds.get(step, 0.0) + spent
    with clock("fold"):
        search = told(entry, names, constants, settings, cached=False)
    if slot is not None and search.saturation.stop is not StopReason.INTERRUPTED:
        with clock("cache"):
            cache.store(slot.place, slot.key, json.dumps(entry))
    return search
