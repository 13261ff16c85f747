"""Large neighbourhood search: windows of a selection are solved anew, and the rest is kept."""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extract.draft import LEAST, Draft
from extract.egraph import EGraph
from extract.exact import prove
from extract.local_search import descend
from extract.parts import Improve, improved_by_parts, in_turns
from extract.selection import Choice, Selection, Status, select

TURNS = ((0.2, 0.45), (0.6, 0.8), (0.85, 1.0))
"""Until which shares of the time local search and windows take turns."""
SMALLEST = 6
"""Classes with a choice in the smallest windows."""
LARGEST = 8000
"""Most e-nodes of a window's problem."""
SECONDS = 1.0
"""Time for one window."""
SAMPLED = 8
"""Classes of which the one that has been tried least is the first of a window."""
ROUNDS = 1
"""How often a window is reduced: another time costs more than it saves the solvers."""
NOISE = 1e-6
"""Share by which costs in a window may change, to choose among equal selections."""
IDLE = 200
"""How many windows in a row may bring nothing before the search ends."""


def lns(
    egraph: EGraph, *, time_limit: float = 5.0, seeds: Sequence[Choice] = (), random_seed: int = 0
) -> Selection:
    """The selection of the local search, improved in windows that grow while they are solved in
    time, and by local search again.

    A window is a set of classes of the selection, near each other; all that they need is chosen
    anew, and what else is chosen is free for them. When one window has been the whole selection,
    that is optimal.
    """
    improve = searched(random.Random(random_seed))
    return improved_by_parts(egraph, improve, "lns", time_limit, seeds)


def searched(rng: random.Random) -> Improve:
    """Improves by local search and windows in turn."""

    def local(part: EGraph, best: Selection, deadline: float) -> Selection:
        return descend(part, best, deadline, rng)

    def windows(part: EGraph, best: Selection, deadline: float) -> Selection:
        return improve_windows(part, best, deadline, rng)

    return in_turns([turn for pair in TURNS for turn in zip(pair, (local, windows), strict=True)])


def improve_windows(
    egraph: EGraph, best: Selection, deadline: float, rng: random.Random
) -> Selection:
    """The selection after windows of it have been solved until the deadline."""
    started = time.perf_counter()
    draft = Draft(egraph, best.choice)
    size, idle, status = float(SMALLEST), 0, best.status
    tried = [0] * egraph.num_classes  # windows that a class has been in since something changed
    while status is Status.FEASIBLE and idle < IDLE and time.perf_counter() < deadline:
        idle += 1
        noise = rng.choice((0.0, NOISE))
        classes = _near(draft, max(2, int(size * rng.uniform(0.5, 1.0))), tried, rng)
        window = _window(draft, egraph.roots, classes, noise, rng)
        if window is None:
            size = max(size * 0.9, SMALLEST)
            continue
        began = time.perf_counter()
        seconds, known = min(SECONDS, deadline - began), [window.choice]
        found = improved_by_parts(window.egraph, prove, "window", seconds, known, rounds=ROUNDS)
        if found.status is Status.INTERRUPTED:
            status = Status.INTERRUPTED
        elif found.status is not Status.OPTIMAL:
            size = max(size * 0.85, SMALLEST)
        elif time.perf_counter() - began < 0.5 * SECONDS:
            size *= 1.15
        before = draft.cost
        draft.become(window.outside(found.choice))
        draft.log.clear()
        better = draft.cost < before * (1 - LEAST)
        idle = 0 if better else idle
        for cls in classes:
            tried[cls] = 0 if better else tried[cls] + 1
        if window.is_whole and not noise and found.status is Status.OPTIMAL:
            status = Status.OPTIMAL
    choice, bound = draft.to_choice(), best.lower_bound
    told = status is Status.OPTIMAL or draft.cost < best.cost * (1 - LEAST)
    method = "lns" if told else best.method
    return select(egraph, choice, method=method, started=started, lower_bound=bound, status=status)


@dataclass(frozen=True, eq=False)
class _Window:
    """A problem over some classes of another one: its numbers there, what is chosen now, and the
    choices that stay.
    """

    egraph: EGraph
    classes: list[int]
    enodes: list[int]
    choice: Choice
    kept: list[int]
    is_whole: bool

    def outside(self, choice: Choice) -> list[int]:
        """The whole selection, with `choice` in the window."""
        full = self.kept.copy()
        for cls, enode in zip(self.classes, choice.tolist(), strict=True):
            if enode >= 0:
                full[cls] = self.enodes[enode]
        return full


def _near(draft: Draft, size: int, tried: Sequence[int], rng: random.Random) -> set[int]:
    """Some classes of the selection that are linked by what they need, or next to each other in
    number, which e-graphs give to what belongs together; around one that has been tried less than
    most.
    """
    selected = [cls for cls, enode in enumerate(draft.choice) if enode >= 0]
    places = [rng.randrange(len(selected)) for _ in range(SAMPLED)]
    first = min(places, key=lambda place: tried[selected[place]])
    if rng.random() < 0.3:
        return set(selected[first : first + size])
    window, edge = {selected[first]}, [selected[first]]
    while edge and len(window) < size:
        place = rng.randrange(len(edge))
        cls = edge[place]
        edge[place] = edge[-1]
        edge.pop()
        for other in (*draft.kids[draft.choice[cls]], *sorted(draft.parents[cls])):
            if other not in window and len(window) < size:
                window.add(other)
                edge.append(other)
    return window


def _window(
    draft: Draft, roots: Sequence[int], classes: set[int], noise: float, rng: random.Random
) -> _Window | None:
    """The problem of choosing anew for `classes`, and what is between them; None if it is too
    large.

    With `noise`, costs change by that share at random, which leads from one of many equal
    selections to another.
    """
    above = draft.above(classes)
    classes = above & draft.below(classes)
    kept, tops = _kept(draft, roots, classes)
    banned = above - classes
    now = math.fsum(draft.price[draft.choice[cls]] for cls in kept - classes)
    found = _region(draft, tops, banned, kept - above, draft.cost - now + LEAST * draft.cost)
    if found is None:
        return None
    number, enodes = found
    nodes = [
        (
            number[draft.home[e]],
            draft.price[e] * (1 + noise * rng.random()),
            [number[k] for k in kids],
        )
        for e, kids in enodes.items()
    ]
    place = {enode: index for index, enode in enumerate(enodes)}
    choice = [place.get(draft.choice[cls], -1) for cls in number]
    stays = kept - classes
    return _Window(
        EGraph.build(nodes, [number[top] for top in tops], len(number)),
        list(number),
        list(enodes),
        np.array(choice, np.int32),
        [enode if cls in stays else -1 for cls, enode in enumerate(draft.choice)],
        is_whole=set(roots) <= classes,
    )


def _region(
    draft: Draft, tops: Sequence[int], banned: set[int], free: set[int], most: float
) -> tuple[dict[int, int], dict[int, list[int]]] | None:
    """The classes below `tops`, numbered, and the children of their e-nodes that are not `free`.

    Only what can be had for `most`, and none that needs what is `banned`; None if that is too many.
    """
    away = dict.fromkeys(tops, 0.0)
    queue = [(0.0, top) for top in tops]
    number: dict[int, int] = {}
    enodes: dict[int, list[int]] = {}
    while queue:
        path, cls = heapq.heappop(queue)
        if cls in number:
            continue
        number[cls] = len(number)
        for enode in draft.members[cls]:
            length = path + draft.price[enode]
            if length > most or not banned.isdisjoint(draft.kids[enode]):
                continue
            enodes[enode] = [child for child in draft.kids[enode] if child not in free]
            for child in enodes[enode]:
                if length < away.get(child, math.inf):
                    away[child] = length
                    heapq.heappush(queue, (length, child))
        if len(enodes) > LARGEST:
            return None
    return number, enodes


def _kept(draft: Draft, roots: Sequence[int], classes: set[int]) -> tuple[set[int], list[int]]:
    """The classes that are needed whatever `classes` choose, and those of `classes` among them."""
    kept, stack = set(roots), list(roots)
    while stack:
        cls = stack.pop()
        if cls not in classes:
            fresh = [child for child in draft.kids[draft.choice[cls]] if child not in kept]
            kept.update(fresh)
            stack += fresh
    return kept, sorted(kept & classes)
