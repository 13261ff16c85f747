"""What is left of an e-graph while it is reduced, what is known of it, and the way back."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from extract.egraph import EGraph, derivation
from extract.loops import dominating, strongly_connected
from extract.selection import Choice


@dataclass(frozen=True)
class Settled:
    """What a reduction has decided: this class, if it is needed, takes this e-node."""

    cls: int
    enode: int


@dataclass(frozen=True)
class Merged:
    """What a reduction has made one: `into` stands for every class of a group that is linked by
    free e-nodes.

    `home[i]` is the class of e-node `i`; a link `(class, enode, child)` derives the class from its
    child.
    """

    into: int
    home: Mapping[int, int]
    links: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, eq=False)
class Core:
    """What is left of an e-graph; classes and e-nodes keep their numbers.

    `members` are the e-nodes of a class, `kids` the distinct children of an e-node, `cost` what is
    still to pay for every e-node of the e-graph, and `base` what `steps` have decided to pay for
    good.
    """

    members: dict[int, tuple[int, ...]]
    kids: dict[int, tuple[int, ...]]
    roots: tuple[int, ...]
    cost: Sequence[float]
    base: float = 0.0
    steps: tuple[Settled | Merged, ...] = ()

    @staticmethod
    def of(egraph: EGraph) -> Core:
        """The core of an e-graph as it is given."""
        members = {cls: enodes for cls, enodes in enumerate(egraph.members) if enodes}
        roots = tuple(sorted(set(egraph.roots)))
        return Core(members, dict(enumerate(egraph.kids)), roots, egraph.node_cost.tolist())

    def egraph(self) -> tuple[EGraph, list[int], list[int]]:
        """The core as an e-graph of its own, and the classes and e-nodes here that its numbers
        stand for.
        """
        classes = sorted(self.members)
        number = {cls: index for index, cls in enumerate(classes)}
        pairs = [(cls, enode) for cls in classes for enode in self.members[cls]]
        nodes = [(number[c], self.cost[e], [number[k] for k in self.kids[e]]) for c, e in pairs]
        egraph = EGraph.build(nodes, [number[root] for root in self.roots], len(classes))
        return egraph, classes, [enode for _, enode in pairs]

    @property
    def size(self) -> tuple[int, int, int]:
        """Counts of classes, e-nodes and edges; every reduction that changes something makes one of
        them less.
        """
        return len(self.members), len(self.kids), sum(map(len, self.kids.values()))

    @cached_property
    def order(self) -> list[int]:
        """The classes that have a derivation, each after the children of one of its e-nodes."""
        pairs = [(cls, enode) for cls, enodes in self.members.items() for enode in enodes]
        return derivation([cls for cls, _ in pairs], [self.kids[enode] for _, enode in pairs])

    @cached_property
    def successors(self) -> dict[int, tuple[int, ...]]:
        """The classes that some e-node of a class needs."""
        kids = self.kids
        return {
            cls: kids[enodes[0]]
            if len(enodes) == 1
            else tuple(dict.fromkeys(chain.from_iterable(map(kids.__getitem__, enodes))))
            for cls, enodes in self.members.items()
        }

    @cached_property
    def loops(self) -> list[list[int]]:
        """The strongly connected classes, children first."""
        return strongly_connected(self.successors)

    @cached_property
    def loop_of(self) -> dict[int, int]:
        """The index in `loops` of every class; only classes of one loop can need each other."""
        return {cls: index for index, loop in enumerate(self.loops) for cls in loop}

    @cached_property
    def place(self) -> dict[int, int]:
        """The bit of every class in the sets of `required`: low for those far down, so that sets
        are short.
        """
        return {cls: bit for bit, cls in enumerate(cls for loop in self.loops for cls in loop)}

    @cached_property
    def required(self) -> dict[int, int]:
        """The classes in every derivation of a class, itself among them, as bits: a greatest
        fixpoint.
        """
        required: dict[int, int] = {}
        rank = {cls: index for index, cls in enumerate(self.order)} if self.cyclic else {}
        for loop in self.loops:
            if len(loop) == 1:
                required[loop[0]] = _required(self, required, loop[0])
            else:
                _require_loop(self, required, sorted(loop, key=rank.__getitem__))
        return required

    @cached_property
    def cyclic(self) -> list[list[int]]:
        """The loops of more than one class."""
        return [loop for loop in self.loops if len(loop) > 1]

    @cached_property
    def forced(self) -> frozenset[int]:
        """The classes in every selection."""
        bits = bin(self.needs(self.roots))[:1:-1]
        return frozenset(cls for cls, bit in self.place.items() if bits[bit : bit + 1] == "1")

    @cached_property
    def least(self) -> float:
        """What every selection costs at least, beside `base`: each class in all of them, its
        cheapest e-node.
        """
        cheapest = (min(self.cost[e] for e in self.members[cls]) for cls in self.forced)
        return math.fsum(cheapest)

    @cached_property
    def dominating(self) -> frozenset[tuple[int, int]]:
        """The pairs `(class, child)` of a loop whose child every path from the roots to the class
        passes.
        """
        entered = set(self.roots)
        if self.cyclic:
            for cls, children in self.successors.items():
                entered.update(
                    child for child in children if self.loop_of[child] != self.loop_of[cls]
                )
        return frozenset(
            pair for loop in self.cyclic for pair in dominating(self.successors, loop, entered)
        )

    def needs(self, classes: Iterable[int]) -> int:
        """The classes in every derivation of `classes` together, as bits."""
        bits = 0
        for cls in classes:
            bits |= self.required[cls]
        return bits

    def is_paid(self, cls: int, child: int) -> bool:
        """Whether an edge says nothing: the child is in every selection, and cannot need the
        class.
        """
        return child in self.forced and self.loop_of[cls] != self.loop_of[child]

    def without(self, dropped: Collection[int]) -> Core:
        """The core without some e-nodes, and without the classes that have no other."""
        if not dropped:
            return self
        members = self.members.copy()
        for cls, enodes in self.members.items():
            left = tuple(enode for enode in enodes if enode not in dropped)
            if left:
                members[cls] = left
            else:
                del members[cls]
        kids = {enode: kids for enode, kids in self.kids.items() if enode not in dropped}
        return replace(self, members=members, kids=kids)

    def only(self, classes: Collection[int]) -> Core:
        """The core with only some of its classes."""
        if len(classes) == len(self.members):
            return self
        members = {cls: enodes for cls, enodes in self.members.items() if cls in classes}
        kids = {enode: self.kids[enode] for enodes in members.values() for enode in enodes}
        return replace(self, members=members, kids=kids)

    def with_leaf(self, top: int, inside: Collection[int], chosen: Mapping[int, int]) -> Core:
        """The core in which class `top` is a leaf that costs what is `chosen` for the classes
        `inside`, `top` among them, which nothing else leads to.
        """
        enode = chosen[top]
        cost = list(self.cost)
        cost[enode] = math.fsum(self.cost[e] for e in chosen.values())
        gone = {e for cls in inside for e in self.members[cls]} - {enode}
        rest = self.without(gone | {e for cls, e in chosen.items() if cls != top})
        below = (Settled(cls, e) for cls, e in chosen.items() if cls != top)
        kids = rest.kids | {enode: ()}
        return replace(rest, kids=kids, cost=cost, steps=(*self.steps, *below))

    def parts(self) -> list[Core]:
        """The core cut where nothing connects it, each part with nothing decided yet."""
        parent = {cls: cls for cls in self.members}

        def find(cls: int) -> int:
            while parent[cls] != cls:
                parent[cls] = cls = parent[parent[cls]]
            return cls

        for cls, children in self.successors.items():
            for child in children:
                parent[find(child)] = find(cls)
        groups: dict[int, list[int]] = {}
        for cls in self.members:
            groups.setdefault(find(cls), []).append(cls)
        roots: dict[int, list[int]] = {}
        for root in self.roots:
            roots.setdefault(find(root), []).append(root)
        parts: list[Core] = []
        for top, group in groups.items():
            members = {cls: self.members[cls] for cls in group}
            kids = {enode: self.kids[enode] for enodes in members.values() for enode in enodes}
            parts.append(Core(members, kids, tuple(roots.get(top, ())), self.cost))
        return parts


def restore(
    steps: Sequence[Settled | Merged], choice: Mapping[int, int], num_classes: int
) -> Choice:
    """The choice for an e-graph that takes `choice` in what `steps` have left of it."""
    full = dict(choice)
    for step in reversed(steps):
        if isinstance(step, Settled):
            full[step.cls] = step.enode
            continue
        enode = full.pop(step.into, -1)
        if enode < 0:
            continue
        users: dict[int, list[tuple[int, int]]] = {}
        for cls, link, child in step.links:
            users.setdefault(child, []).append((cls, link))
        full[step.home[enode]] = enode
        queue = [step.home[enode]]
        for child in queue:  # grows as it is read
            for cls, link in users.get(child, ()):
                if cls not in full:
                    full[cls] = link
                    queue.append(cls)
    array = np.full(num_classes, -1, np.int32)
    array[list(full.keys())] = list(full.values())
    return array


def _required(core: Core, required: Mapping[int, int], cls: int) -> int:
    """What `cls` requires by what its children do; e-nodes with a child of which that is unknown do
    not count.
    """
    common = -1
    for enode in core.members[cls]:
        below = 0
        for child in core.kids[enode]:
            bits = required.get(child)
            if bits is None:
                break
            below |= bits
        else:
            common &= below
    assert common >= 0, f"class {cls} has no derivation"
    return common | 1 << core.place[cls]


def _require_loop(core: Core, required: dict[int, int], loop: list[int]) -> None:
    """Adds what the classes of a loop require; `loop` is in the order of `Core.order`, so the start
    is above it.
    """
    inside = set(loop)
    users: dict[int, list[int]] = {cls: [] for cls in loop}
    for cls in loop:
        for child in core.successors[cls]:
            if child in inside:
                users[child].append(cls)
    for cls in loop:
        required[cls] = _required(core, required, cls)
    queue = deque(loop)
    waiting = set(loop)
    while queue:
        cls = queue.popleft()
        waiting.discard(cls)
        bits = _required(core, required, cls)
        if bits != required[cls]:
            required[cls] = bits
            fresh = [user for user in users[cls] if user not in waiting]
            waiting.update(fresh)
            queue.extend(fresh)
