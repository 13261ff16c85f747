"""Equal blocks of a network: each is improved with all else as it is, and equal ones only once."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from extract.egraph import EGraph
from extract.selection import Choice, dag_cost, reached
from extract.stamping import rounded, stamped

LEAST = 1e-12
"""Share of the cost that a change must save."""

Solve = Callable[[EGraph, float, Choice], Choice]
"""A selection of an e-graph, found in some seconds, that is no worse than the one given."""


@dataclass(frozen=True, eq=False)
class _Window:
    """A part of an e-graph as one of its own, with what is outside of it in place.

    Its numbers are those that any equal part gives too; `classes` and `enodes` are what they are in
    the whole.
    """

    egraph: EGraph
    classes: list[int]
    enodes: list[int]
    seed: Choice


def improved(
    egraph: EGraph,
    choice: Choice,
    colour: Sequence[int],
    *,
    span: int,
    solve: Solve,
    part: float,
    deadline: float,
) -> Choice:
    """A selection that is no worse than `choice`: `span` neighbouring blocks at a time are solved
    anew, in `part` seconds, until nothing gets better or the `deadline` comes.

    Classes of one `colour` may be the same one of two blocks; see `colours`. Where no blocks are
    found the selection is `choice`.
    """
    known: dict[object, Choice] = {}
    anchors = repeated(egraph, choice, colour)
    cost = dag_cost(egraph, choice)
    better = bool(anchors)
    while better:
        better = False
        blocks = _blocks(egraph, choice, anchors)
        choice, cost = stamped(egraph, choice, blocks, colour)
        for first in (*range(1, len(anchors) + 1), *range(-span + 1, 1)):
            if time.perf_counter() > deadline:
                return choice
            inside = [c for c, block in enumerate(blocks) if first <= block < first + span]
            far = {c for c, block in enumerate(blocks) if block < first - 1}
            window = _window(egraph, choice, inside, far, colour)
            if window is None:
                continue
            key = _key(window.egraph)
            if key not in known:
                seconds = min(part, deadline - time.perf_counter())
                known[key] = solve(window.egraph, seconds, window.seed)
            new = _with(choice, window, known[key])
            if (now := dag_cost(egraph, new)) < cost * (1 - LEAST):
                choice, cost, better = new, now, True
    return choice


def colours(egraph: EGraph, rounds: int, first: Sequence[object] | None = None) -> list[int]:
    """A number for every class, the same for those that look alike `rounds` e-nodes far.

    The colour refinement of B. Weisfeiler and A. Leman, 1968, upwards and downwards, from the looks
    of the classes by themselves. Numbers do not depend on the numbers of classes.
    """
    classes, kids = egraph.node_class.tolist(), egraph.kids
    costs = list(map(rounded, egraph.node_cost.tolist()))
    colour = _numbered(list(map(repr, first or [None] * egraph.num_classes)))
    for _ in range(rounds):
        below: list[list[object]] = [[] for _ in colour]
        above: list[list[object]] = [[] for _ in colour]
        for enode, cls in enumerate(classes):
            below[cls].append((costs[enode], sorted(colour[child] for child in kids[enode])))
            for child in kids[enode]:
                above[child].append((costs[enode], colour[cls]))
        colour = _numbered(
            [
                repr((old, sorted(map(repr, down)), sorted(map(repr, up))))
                for old, down, up in zip(colour, below, above, strict=True)
            ]
        )
    return colour


def _numbered(looks: Sequence[str]) -> list[int]:
    """The place of every look among those that there are."""
    names = {look: number for number, look in enumerate(sorted(set(looks)))}
    return [names[look] for look in looks]


def repeated(egraph: EGraph, choice: Choice, colour: Sequence[int]) -> list[int]:
    """One class of every block, children first; empty if nothing is repeated.

    How often colours are repeated, weighed by cost, tells how many blocks there are; the classes
    are of the dearest colour that is repeated so often, and each needs the one before.
    """
    order = reached(egraph, choice)
    members: dict[int, list[int]] = {}
    for cls in order:
        members.setdefault(colour[cls], []).append(cls)
    weight: dict[int, float] = {}
    for group in members.values():
        if len(group) > 2:
            paid = sum(float(egraph.node_cost[choice[c]]) for c in group)
            weight[len(group)] = weight.get(len(group), 0.0) + paid
    below = _levels(egraph, choice, order)
    for count in sorted(weight, key=lambda n: (-weight[n], n)):
        groups = [group for group in members.values() if len(group) == count]
        for group in sorted(
            groups, key=lambda g: (-float(egraph.node_cost[choice[g[0]]]), colour[g[0]])
        ):
            levels = [below[cls] for cls in group]
            if all(a < b for a, b in pairwise(levels)):
                return group
    return []


def _levels(egraph: EGraph, choice: Choice, order: Sequence[int]) -> dict[int, int]:
    """How many classes lie on the longest path below a class."""
    level: dict[int, int] = {}
    for cls in order:
        kids = egraph.kids[int(choice[cls])]
        level[cls] = 1 + max((level[child] for child in kids), default=-1)
    return level


def _blocks(egraph: EGraph, choice: Choice, anchors: Sequence[int]) -> list[int]:
    """The block of every class: how many anchors it needs, one after the other, at least.

    What needs none, such as a weight, belongs to the first block that needs it.
    """
    order = reached(egraph, choice)
    marks = set(anchors)
    block = [-1] * egraph.num_classes
    for cls in order:
        below = (block[child] for child in egraph.kids[int(choice[cls])])
        block[cls] = max(below, default=0) + (cls in marks)
    _spread(egraph, block)
    for cls in [*reversed(order), *range(egraph.num_classes)]:
        number = abs(block[cls])
        for child in (child for enode in egraph.members[cls] for child in egraph.kids[enode]):
            if number and (block[child] == 0 or -block[child] > number):
                block[child] = -number
    return [abs(number) for number in block]


def _spread(egraph: EGraph, block: list[int]) -> None:
    """Gives a block to the classes that have -1: the least in which an e-node has its children."""
    missing = [len(kids) for kids in egraph.kids]
    users: list[list[int]] = [[] for _ in block]
    for enode, kids in enumerate(egraph.kids):
        for child in kids:
            users[child].append(enode)
    classes = egraph.node_class.tolist()
    heap = [(number, cls) for cls, number in enumerate(block) if number >= 0]
    heap += [(0, classes[e]) for e, kids in enumerate(egraph.kids) if not kids]
    heapq.heapify(heap)
    done = [False] * len(block)
    while heap:
        number, cls = heapq.heappop(heap)
        if done[cls]:
            continue
        done[cls] = True
        block[cls] = number if block[cls] < 0 else block[cls]
        for enode in users[cls]:
            missing[enode] -= 1
            if not missing[enode] and not done[classes[enode]]:
                heapq.heappush(heap, (number, classes[enode]))


def _window(
    egraph: EGraph, choice: Choice, inside: Sequence[int], far: set[int], colour: Sequence[int]
) -> _Window | None:
    """The part that decides anew on the classes `inside`.

    What is needed without the window stays: it is free, but where it needs the window itself it
    keeps its e-node, so that cycles show. What only the window needs can be dropped, not changed;
    if it is `far` below, it is taken to stay.
    """
    chosen, kids = choice.tolist(), egraph.kids
    changing = set(inside)
    kept = dict.fromkeys(egraph.roots)
    users: dict[int, list[int]] = {}
    queue = list(kept)
    for cls in queue:  # grows as it is read
        if cls not in changing:
            for child in kids[chosen[cls]]:
                users.setdefault(child, []).append(cls)
                if child not in kept:
                    kept[child] = None
                    queue.append(child)
    roots = [cls for cls in inside if cls in kept]
    above: dict[int, None] = {}
    queue = list(roots)
    for cls in queue:  # grows as it is read
        for user in users.get(cls, ()):
            if user not in above:
                above[user] = None
                queue.append(user)
    members = {cls: list(egraph.members[cls]) for cls in inside}
    members |= {cls: [chosen[cls]] for cls in reached(egraph, choice) if cls not in changing}
    free = (kept.keys() | far & members.keys()) - above.keys() - changing
    members = {cls: enodes for cls, enodes in members.items() if cls not in free}
    return _part(egraph, choice, roots, members, free, kept.keys() - changing, colour)


def _part(
    egraph: EGraph,
    choice: Choice,
    roots: list[int],
    members: dict[int, list[int]],
    free: set[int],
    paid: set[int],
    colour: Sequence[int],
) -> _Window | None:
    """The e-graph of `members` as far as `roots` need them, where children `free` do not count and
    e-nodes of the classes `paid` cost nothing.
    """
    kids, cost = egraph.kids, egraph.node_cost.tolist()
    needed = dict.fromkeys(roots)
    queue = list(roots)
    for cls in queue:  # grows as it is read
        members[cls] = [e for e in members[cls] if all(k in free or k in members for k in kids[e])]
        for child in (k for e in members[cls] for k in kids[e] if k not in free):
            if child not in needed:
                needed[child] = None
                queue.append(child)
    if not needed:
        return None
    classes = sorted(needed, key=lambda cls: (colour[cls], cls))
    number = {cls: index for index, cls in enumerate(classes)}
    nodes: list[tuple[int, float, list[int]]] = []
    enodes: list[int] = []
    seed = np.full(len(classes), -1, np.int32)
    for cls in classes:
        entries = [
            (
                0.0 if cls in paid else cost[e],
                sorted(number[k] for k in kids[e] if k not in free),
                e,
            )
            for e in members[cls]
        ]
        for price, needs, enode in sorted(entries, key=lambda x: (rounded(x[0]), *x[1:])):
            if enode == choice[cls]:
                seed[number[cls]] = len(nodes)
            nodes.append((number[cls], price, needs))
            enodes.append(enode)
    window = EGraph.build(nodes, sorted(number[root] for root in roots), len(classes))
    return _Window(window, classes, enodes, seed)


def _key(egraph: EGraph) -> object:
    costs = tuple(map(rounded, egraph.node_cost.tolist()))
    arrays = (egraph.node_class, egraph.child_ptr, egraph.children)
    return egraph.roots, costs, *(array.tobytes() for array in arrays)


def _with(choice: Choice, window: _Window, found: Choice) -> Choice:
    """The choice with what was found for a window."""
    new = choice.copy()
    for cls, enode in zip(window.classes, found.tolist(), strict=True):
        if enode >= 0:
            new[cls] = window.enodes[enode]
    return new
