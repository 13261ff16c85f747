"""The extraction problem: an e-graph with costs, as plain arrays."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EGraph:
    """E-nodes in e-classes, each with a cost, of which one is to be chosen for every class that is
    needed.

    E-node `i` lies in class `node_class[i]`, costs `node_cost[i]` (any unit, finite, at least 0)
    and needs the classes `children[child_ptr[i]:child_ptr[i + 1]]`, in order and with repetitions.
    `roots` are the classes that are asked for. `names`, if there are any, say what e-nodes are
    called in messages and files.

    The arrays are copied and made read-only. Raises ValueError where they do not fit together, and
    where a root has no finite derivation, so that every e-graph has a selection.
    """

    node_class: NDArray[np.int32]
    node_cost: NDArray[np.float64]
    child_ptr: NDArray[np.int64]
    children: NDArray[np.int32]
    roots: tuple[int, ...]
    num_classes: int
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            object.__setattr__(self, name, _frozen(name, getattr(self, name), dtype))
        object.__setattr__(self, "roots", tuple(int(root) for root in self.roots))
        _check_shapes(self)
        _check_values(self)
        derived = set(derivation(self.node_class.tolist(), self.kids))
        for root in self.roots:
            if root not in derived:
                raise ValueError(
                    f"root class {root} has no finite derivation: each of its e-nodes needs, in "
                    "the end, a class that has none; add a leaf, or leave this root out"
                )

    @staticmethod
    def build(
        nodes: Sequence[tuple[int, float, Sequence[int]]],
        roots: Sequence[int],
        num_classes: int | None = None,
        names: Sequence[str] | None = None,
    ) -> EGraph:
        """The e-graph of `nodes`, each `(class, cost, child classes)`.

        Without `num_classes` there are just enough classes for every id in use.

        >>> egraph = EGraph.build([(0, 1.0, []), (1, 2.0, [0, 0])], roots=[1])
        >>> egraph.num_classes
        2
        """
        children = [child for _, _, kids in nodes for child in kids]
        if num_classes is None:
            num_classes = 1 + max([cls for cls, _, _ in nodes] + children + list(roots), default=-1)
        return EGraph(
            node_class=np.array([cls for cls, _, _ in nodes], np.int32),
            node_cost=np.array([cost for _, cost, _ in nodes], np.float64),
            child_ptr=np.cumsum([0] + [len(kids) for _, _, kids in nodes]),
            children=np.array(children, np.int32),
            roots=tuple(roots),
            num_classes=num_classes,
            names=None if names is None else tuple(names),
        )

    @staticmethod
    def from_json(path: str | Path) -> EGraph:
        """The e-graph in a file of the egraph-serialize format, `.json` or `.json.gz`; an e-node
        without a cost costs 1.

        Classes are numbered as `class_data` lists them, then as the e-nodes name them.
        """
        with _opened(path, "rt") as file:
            data: dict[str, Any] = json.load(file)  # JSON of any shape
        if "nodes" not in data or "root_eclasses" not in data:
            raise ValueError(
                f"{path}: no 'nodes' or no 'root_eclasses'; is it egraph-serialize JSON?"
            )
        entries = data["nodes"]
        classes = dict.fromkeys(
            [*data.get("class_data", ()), *(e["eclass"] for e in entries.values())]
        )
        number = {name: index for index, name in enumerate(classes)}
        for key, entry in entries.items():
            for child in entry.get("children", ()):
                if child not in entries:
                    raise ValueError(
                        f"{path}: e-node {key!r} has the child {child!r}, which is no e-node"
                    )
        for root in data["root_eclasses"]:
            if root not in number:
                raise ValueError(f"{path}: the root {root!r} is no class of an e-node")
        nodes = [
            (
                number[entry["eclass"]],
                float(entry.get("cost", 1.0)),
                [number[entries[child]["eclass"]] for child in entry.get("children", ())],
            )
            for entry in entries.values()
        ]
        names = [str(entry.get("op", key)) for key, entry in entries.items()]
        return EGraph.build(nodes, [number[r] for r in data["root_eclasses"]], len(number), names)

    def to_json(self, path: str | Path) -> None:
        """Writes the e-graph in the egraph-serialize format, `.json` or `.json.gz`, so that
        `from_json` gives it back.
        """
        nodes: dict[str, dict[str, Any]] = {}  # JSON
        for enode, (cls, cost) in enumerate(
            zip(self.node_class.tolist(), self.node_cost.tolist(), strict=True)
        ):
            kids = self.children[self.child_ptr[enode] : self.child_ptr[enode + 1]].tolist()
            for child in kids:
                if not self.members[child]:
                    raise ValueError(
                        f"e-node {enode} has the child class {child}, which has no e-node; "
                        "the format cannot say that, so leave this e-node out"
                    )
            nodes[str(enode)] = {
                "op": self.names[enode] if self.names else str(enode),
                "children": [str(self.members[child][0]) for child in kids],
                "eclass": str(cls),
                "cost": cost,
            }
        data = {
            "nodes": nodes,
            "root_eclasses": [str(root) for root in self.roots],
            "class_data": {str(cls): {} for cls in range(self.num_classes)},
        }
        with _opened(path, "wt") as file:
            json.dump(data, file, indent=1)

    def to_networkx(self) -> nx.DiGraph[tuple[str, int]]:
        """The graph of `("class", c) -> ("enode", i) -> ("class", d)`, with costs, names and roots
        as data.
        """
        graph: nx.DiGraph[tuple[str, int]] = nx.DiGraph()
        for cls in range(self.num_classes):
            graph.add_node(("class", cls), root=cls in self.roots)
        for enode, cls in enumerate(self.node_class.tolist()):
            name = self.names[enode] if self.names else str(enode)
            graph.add_node(("enode", enode), cost=float(self.node_cost[enode]), name=name)
            graph.add_edge(("class", cls), ("enode", enode))
            for child in self.kids[enode]:
                graph.add_edge(("enode", enode), ("class", child))
        return graph

    @property
    def num_nodes(self) -> int:
        """How many e-nodes there are."""
        return len(self.node_class)

    @cached_property
    def kids(self) -> tuple[tuple[int, ...], ...]:
        """The distinct child classes of every e-node, ascending."""
        bounds, children = self.child_ptr.tolist(), self.children.tolist()
        spans = (children[start:stop] for start, stop in pairwise(bounds))
        return tuple(tuple(sorted(set(span))) if len(span) > 1 else tuple(span) for span in spans)

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The e-nodes of every class, ascending."""
        members: list[list[int]] = [[] for _ in range(self.num_classes)]
        for enode, cls in enumerate(self.node_class.tolist()):
            members[cls].append(enode)
        return tuple(tuple(enodes) for enodes in members)

    def describe(self, enode: int) -> str:
        """What a message calls an e-node, such as `e-node 7 (add)`."""
        return f"e-node {enode} ({self.names[enode]})" if self.names else f"e-node {enode}"


_DTYPES: dict[str, type[np.generic]] = {
    "node_class": np.int32,
    "node_cost": np.float64,
    "child_ptr": np.int64,
    "children": np.int32,
}


def derivation(classes: Sequence[int], kids: Sequence[Sequence[int]]) -> list[int]:
    """The classes that have a finite derivation, each after the children of one of its e-nodes.

    E-node `i` lies in `classes[i]` and needs the distinct classes `kids[i]`.
    """
    users: dict[int, list[int]] = {}
    missing = [len(needs) for needs in kids]
    order: dict[int, None] = {}
    for enode, needs in enumerate(kids):
        if not needs:
            order.setdefault(classes[enode])
        for child in needs:
            if child in users:
                users[child].append(enode)
            else:
                users[child] = [enode]
    queue = list(order)
    for cls in queue:  # grows as it is read
        for user in users.get(cls, ()):
            missing[user] -= 1
            if not missing[user] and classes[user] not in order:
                order[classes[user]] = None
                queue.append(classes[user])
    return queue


def _opened(path: str | Path, mode: Literal["rt", "wt"]) -> IO[str]:
    """The file as text, packed if its name says so."""
    if Path(path).suffix != ".gz":
        return Path(path).open(mode, encoding="utf-8")
    return gzip.open(path, mode, encoding="utf-8")


def _frozen(name: str, values: object, dtype: type[np.generic]) -> NDArray[np.generic]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} dimensions; give one number an entry")
    if array.size and array.dtype.kind not in ("iu" if dtype is not np.float64 else "iuf"):
        raise TypeError(f"{name} holds {array.dtype}; give {np.dtype(dtype)}")
    if array.size and dtype is np.int32 and not -(2**31) <= array.min() <= array.max() < 2**31:
        raise ValueError(f"{name} holds a number beyond 32 bits: {array.max()}")
    array = array.astype(dtype)
    array.flags.writeable = False
    return array


def _check_shapes(egraph: EGraph) -> None:
    count = len(egraph.node_class)
    if len(egraph.node_cost) != count:
        raise ValueError(
            f"{count} e-nodes but {len(egraph.node_cost)} costs; give every e-node one"
        )
    if egraph.names is not None and len(egraph.names) != count:
        raise ValueError(
            f"{count} e-nodes but {len(egraph.names)} names; give every e-node one, or None"
        )
    ptr = egraph.child_ptr
    if (
        len(ptr) != count + 1
        or ptr[0] != 0
        or ptr[-1] != len(egraph.children)
        or (np.diff(ptr) < 0).any()
    ):
        raise ValueError(
            f"child_ptr must rise from 0 to {len(egraph.children)} in {count + 1} entries; "
            f"it has {len(ptr)} entries: {ptr[:8].tolist()}..."
        )


def _check_values(egraph: EGraph) -> None:
    limit = egraph.num_classes
    for enode in np.flatnonzero((egraph.node_class < 0) | (egraph.node_class >= limit))[:1]:
        raise ValueError(
            f"e-node {enode} lies in class {egraph.node_class[enode]}; classes are 0..{limit - 1}"
        )
    for position in np.flatnonzero((egraph.children < 0) | (egraph.children >= limit))[:1]:
        enode = int(np.searchsorted(egraph.child_ptr, position, side="right")) - 1
        raise ValueError(
            f"e-node {enode} has the child class {egraph.children[position]}; "
            f"classes are 0..{limit - 1}"
        )
    for root in egraph.roots:
        if not 0 <= root < limit:
            raise ValueError(f"root class {root} is out of range; classes are 0..{limit - 1}")
    for enode in np.flatnonzero(~np.isfinite(egraph.node_cost) | (egraph.node_cost < 0))[:1]:
        raise ValueError(
            f"e-node {enode} costs {egraph.node_cost[enode]}; costs must be finite and at least 0, "
            "so leave out an e-node that must not be chosen"
        )
    if not math.isfinite(float(egraph.node_cost.sum())):
        raise ValueError("the costs of all e-nodes sum up to infinity; use a larger unit")
