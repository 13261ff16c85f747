"""What one block of a network has chosen, put on all the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from extract.egraph import EGraph
from extract.selection import Choice, InvalidSelection, dag_cost, reached
from extract.tree import cheapest

DIGITS = 9
"""Of costs: what differs less is equal."""

Address = tuple[int, int, int]
"""Block and colour of a class, and which one of those it is."""


def stamped(
    egraph: EGraph, choice: Choice, block: Sequence[int], colour: Sequence[int]
) -> tuple[Choice, float]:
    """The cheapest selection with the choice of one block on all, or `choice`, and its cost.

    `block[c]` is the block of class c; classes of one colour stand for each other.
    """
    best, cost = choice, dag_cost(egraph, choice)
    for stamp in _stamps(egraph, choice, block, colour):
        made = _selection(egraph, stamp)
        if (now := dag_cost(egraph, made)) < cost:
            best, cost = made, now
    return best, cost


def rounded(cost: float) -> str:
    """A cost as a text that is the same for equal blocks, whatever the order of their sums."""
    return f"{cost:.{DIGITS - 1}e}"


def _selection(egraph: EGraph, stamp: Choice) -> Choice:
    """A stamp, with what it lacks, if that is a selection; or one that is like it."""
    weight = egraph.node_cost.copy()
    weight[stamp[stamp >= 0]] = 0.0
    near = cheapest(egraph, weight.tolist())
    filled = np.where(stamp >= 0, stamp, near)
    try:
        reached(egraph, filled)
    except InvalidSelection:
        return near
    return filled


def _stamps(
    egraph: EGraph, choice: Choice, block: Sequence[int], colour: Sequence[int]
) -> Iterator[Choice]:
    """The choice with each inner block in turn put on the others, as far as they have the same."""
    address, at = _addresses(block, colour)
    find = _Finder(egraph)
    chosen: dict[int, list[int]] = {}
    for cls in reached(egraph, choice):
        chosen.setdefault(block[cls], []).append(cls)
    last = max(block, default=0)
    for source in range(1, last):
        stamp = choice.copy()
        for target in range(1, last + 1):
            shift = target - source
            for cls in chosen.get(source, ()) if shift else ():
                enode = int(choice[cls])
                moved = _moved(cls, shift, address, at)
                needs = [_moved(child, shift, address, at) for child in egraph.kids[enode]]
                found = find.enode(moved, tuple(sorted(needs)), float(egraph.node_cost[enode]))
                if found >= 0:
                    stamp[moved] = found
        yield stamp


def _addresses(
    block: Sequence[int], colour: Sequence[int]
) -> tuple[list[Address], dict[Address, int]]:
    """The address of every class, and the class at every address."""
    seen: dict[tuple[int, int], int] = {}
    address: list[Address] = []
    for pair in zip(block, colour, strict=True):
        address.append((*pair, seen.get(pair, 0)))
        seen[pair] = seen.get(pair, 0) + 1
    return address, {where: cls for cls, where in enumerate(address)}


def _moved(cls: int, shift: int, address: Sequence[Address], at: dict[Address, int]) -> int:
    """The class that stands for `cls` some blocks further; itself if there is none, as for what all
    blocks share.
    """
    block, colour, which = address[cls]
    return at.get((block + shift, colour, which), cls)


class _Finder:
    """The e-nodes of classes by their children and costs."""

    def __init__(self, egraph: EGraph) -> None:
        self.egraph = egraph
        self.known: dict[int, dict[tuple[tuple[int, ...], str], int]] = {}

    def enode(self, cls: int, needs: tuple[int, ...], cost: float) -> int:
        """The e-node of a class with these children and this cost, or -1."""
        if cls not in self.known:
            self.known[cls] = {
                (self.egraph.kids[e], rounded(float(self.egraph.node_cost[e]))): e
                for e in reversed(self.egraph.members[cls])
            }
        return self.known[cls].get((needs, rounded(cost)), -1)
