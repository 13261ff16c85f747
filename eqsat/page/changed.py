"""Which nodes of two graphs have no counterpart in the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Node = Mapping[str, Any]
"""A node of a result row: its name, target, shape, dtype, and the names of its inputs."""


def changed(before: Sequence[Node], after: Sequence[Node]) -> tuple[list[str], list[str]]:
    """The names of the nodes that only one of two graphs has.

    Nodes are counterparts that compute the same of the same inputs; of the rest those that are used
    for the same; of the rest those of equal operator and shape that touch the same counterparts.
    Inputs come before the nodes that read them.
    """
    pairing = _Pairing(_Side.of(before), _Side.of(after), {})
    numbers = _Numbers({})
    pairing.match(_above(before, numbers), _above(after, numbers))
    pairing.match(_below(before, numbers), _below(after, numbers))
    while pairing.match(*pairing.beside()):
        pass
    there = set(pairing.partner.values())
    return (
        [name for name in pairing.before.nodes if name not in pairing.partner],
        [name for name in pairing.after.nodes if name not in there],
    )


@dataclass(frozen=True)
class _Numbers:
    """Equal things have equal numbers."""

    known: dict[Hashable, int]

    def __call__(self, *key: Hashable) -> int:
        return self.known.setdefault(key, len(self.known))


def _sort(node: Node) -> tuple[Hashable, ...]:
    """What a node is by itself: an input is known by its name."""
    name = node["name"] if node["target"] in ("placeholder", "get_attr") else None
    return node["target"], tuple(map(str, node["shape"] or ())), node["dtype"], name


def _above(nodes: Sequence[Node], number: _Numbers) -> dict[str, Hashable]:
    """Numbers that are equal where everything is that a node is computed from."""
    found: dict[str, Hashable] = {}
    for node in nodes:
        found[node["name"]] = number(*_sort(node), *(found.get(i) for i in node["inputs"]))
    return found


def _below(nodes: Sequence[Node], number: _Numbers) -> dict[str, Hashable]:
    """Numbers that are equal where everything is that a node is used for."""
    readers: dict[str, list[tuple[Hashable, int]]] = {}
    found: dict[str, Hashable] = {}
    for node in reversed(nodes):
        name = node["name"]
        found[name] = number("below", *_sort(node), *sorted(readers.get(name, []), key=str))
        for place, read in enumerate(node["inputs"]):
            readers.setdefault(read, []).append((found[name], place))
    return found


@dataclass(frozen=True)
class _Side:
    """One graph: its nodes by name, and the readers of each."""

    nodes: dict[str, Node]
    readers: dict[str, list[str]]

    @staticmethod
    def of(nodes: Sequence[Node]) -> _Side:
        readers: dict[str, list[str]] = {node["name"]: [] for node in nodes}
        for node in nodes:
            for read in node["inputs"]:
                readers.setdefault(read, []).append(node["name"])
        return _Side({node["name"]: node for node in nodes}, readers)


@dataclass(frozen=True)
class _Pairing:
    before: _Side
    after: _Side
    partner: dict[str, str]  # names after by names before

    def match(self, before: Mapping[str, Hashable], after: Mapping[str, Hashable]) -> bool:
        """Pair the nodes without a counterpart whose keys are equal, in order; whether any were."""
        free: dict[Hashable, list[str]] = {}
        taken = set(self.partner.values())
        for name in reversed(self.after.nodes):
            if name in after and name not in taken:
                free.setdefault(after[name], []).append(name)
        paired = len(self.partner)
        for name in self.before.nodes:
            if name in before and name not in self.partner and free.get(before[name]):
                self.partner[name] = free[before[name]].pop()
        return len(self.partner) > paired

    def beside(self) -> tuple[dict[str, Hashable], dict[str, Hashable]]:
        """Keys of the nodes without a counterpart that read, or are read by, one that has one."""
        back = {after: before for before, after in self.partner.items()}
        return (
            dict(_touching(self.before, self.partner, lambda name: name)),
            dict(_touching(self.after, back, back.__getitem__)),
        )


def _touching(
    side: _Side, paired: Mapping[str, str], called: Callable[[str], str]
) -> Iterator[tuple[str, Hashable]]:
    for name, node in side.nodes.items():
        if name in paired:
            continue
        for way, others in (("reads", node["inputs"]), ("read by", side.readers[name])):
            known = [other for other in others if other in paired]
            if known:
                yield name, (_sort(node), way, called(known[0]))
                break
