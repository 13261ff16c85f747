"""The e-graph of a search as a page shows it: e-classes, their e-nodes, what each costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.choose import Found
from eqsat.cost.additive import FUSED_SHARE
from eqsat.encode import LEAF
from eqsat.snapshot import NUMBER
from extract import reached

LIMIT = 2_000
LONGEST = 60  # characters of an attribute


def egraph(found: Found, limit: int = LIMIT) -> dict[str, Any]:
    """At most `limit` e-nodes of an e-graph, those first that are needed for what was chosen.

    `{"classes": [{"id", "meta", "root", "constant", "names", "left_out", "nodes": [...]}]}`, where
    `names` are the nodes of the given program, and `left_out` the e-nodes beyond the limit. A node
    is `{"op", "children": [ids], "cost": seconds, "chosen"}`; its cost is the price of the e-node
    alone, where constants are computed ahead if they may be. Where no candidate was better, the
    e-nodes of the given program are the chosen ones.
    """
    return {"classes": list(_Viewed.of(found).classes(limit))}


@dataclass(frozen=True)
class _Viewed:
    """An extraction problem with what its e-nodes and classes are called."""

    found: Found
    enodes: Sequence[int]  # those of the snapshot behind those of the problem
    members: dict[int, list[int]]  # e-nodes of the problem by class
    kids: Sequence[Sequence[int]]  # the classes that an e-node of the problem needs
    cost: Sequence[float]
    chosen: Sequence[int]
    roots: tuple[int, ...]
    names: dict[int, list[str]]

    @staticmethod
    def of(found: Found) -> _Viewed:
        ground = found.ground
        snapshot, encoding = ground.snapshot, ground.encoding
        choices = ground.priced(bool(ground.budget()), FUSED_SHARE)
        graph = choices.egraph
        choice = choices.given if found.winner is None else found.winner.selection.choice
        needed = set(reached(graph, choice))
        members: dict[int, list[int]] = {}
        for enode, cls in enumerate(graph.node_class.tolist()):
            members.setdefault(cls, []).append(enode)
        names: dict[int, list[str]] = {}
        for node, handle in encoding.handles.items():
            names.setdefault(snapshot.handles[handle], []).append(node.name)
        return _Viewed(
            found,
            choices.enodes,
            members,
            graph.kids,
            graph.node_cost.tolist(),
            [int(e) if cls in needed else -1 for cls, e in enumerate(choice.tolist())],
            graph.roots,
            names,
        )

    def classes(self, limit: int) -> Iterator[dict[str, Any]]:
        left = limit
        for cls in self.order():
            if left <= 0:
                return
            shown = sorted(
                self.members[cls], key=lambda e: (e != self.chosen[cls], self.cost[e], e)
            )[:left]
            left -= len(shown)
            yield self.described(cls, shown)

    def order(self) -> list[int]:
        """The classes: those that are needed for the choice, then by their distance from them."""
        by_choice = self._from(self.roots, lambda cls: [self.chosen[cls]])
        return list(self._from(by_choice, lambda cls: self.members[cls]))

    def _from(self, starts: Iterable[int], enodes: Any) -> dict[int, None]:
        """Every class that is reached, in the order of a search that goes breadth first."""
        seen = dict.fromkeys(starts)
        waiting = deque(seen)
        while waiting:
            for enode in enodes(waiting.popleft()):
                for child in self.kids[enode]:
                    if child not in seen and child in self.members:
                        seen[child] = None
                        waiting.append(child)
        return seen

    def described(self, cls: int, shown: Sequence[int]) -> dict[str, Any]:
        snapshot = self.found.ground.snapshot
        return {
            "id": cls,
            "meta": snapshot.metas[cls],
            "root": cls in self.roots,
            "constant": cls in snapshot.constant,
            "names": self.names.get(cls, []),
            "left_out": len(self.members[cls]) - len(shown),
            "nodes": [
                {
                    "op": self.text(enode),
                    "children": self.operands(enode),
                    "cost": self.cost[enode],
                    "chosen": enode == self.chosen[cls],
                }
                for enode in shown
            ],
        }

    def operands(self, enode: int) -> list[int]:
        """The classes of the operands in order; of a leaf, those that it reads."""
        snapshot = self.found.ground.snapshot
        operands = snapshot.children[self.enodes[enode]] or self.kids[enode]
        return [cls for cls in operands if cls in self.members]

    def text(self, enode: int) -> str:
        """The operator with its attributes; a leaf is called as in the program."""
        ground = self.found.ground
        k = self.enodes[enode]
        symbol, attributes = ground.snapshot.symbols[k], ground.snapshot.attributes[k]
        if symbol == LEAF:
            leaf = ground.encoding.leaves.get(int(attributes[0]))
            return f"leaf {attributes[0]}" if leaf is None else leaf.name
        if symbol == NUMBER:
            return attributes[0]
        shown = [a if len(a) <= LONGEST else f"{a[: LONGEST - 1]}…" for a in attributes]
        operator = () if symbol.operator in ("unary", "binary") else (symbol.operator,)
        return " ".join([*operator, *shown])
