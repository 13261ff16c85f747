"""The extraction problem, which e-node to take of every class, and algorithms for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

from extract.egraph import EGraph
from extract.exact import exact
from extract.greedy_dag import greedy_dag
from extract.lns import lns
from extract.local_search import local_search
from extract.portfolio import portfolio
from extract.selection import Choice, InvalidSelection, Selection, Status, dag_cost, judge, reached
from extract.tree import tree


class Extract(Protocol):
    """A function that finds a selection; `seeds` are choices of which it may take the best as a
    start.
    """

    def __call__(
        self, egraph: EGraph, *, time_limit: float = 5.0, seeds: Sequence[Choice] = ()
    ) -> Selection: ...


@dataclass(frozen=True)
class Extractor:
    """An extractor and what it claims: the least tree cost, or, where it says "optimal", the least
    DAG cost.
    """

    extract: Extract
    claim: Literal["tree-optimal", "dag-optimal"] | None


EXTRACTORS: Mapping[str, Extractor] = MappingProxyType(
    {
        "tree": Extractor(tree, "tree-optimal"),
        "greedy-dag": Extractor(greedy_dag, None),
        "local-search": Extractor(local_search, None),
        "lns": Extractor(lns, None),
        "exact": Extractor(exact, "dag-optimal"),
        "portfolio": Extractor(portfolio, "dag-optimal"),
    }
)

__all__ = [
    "EXTRACTORS",
    "Choice",
    "EGraph",
    "Extract",
    "Extractor",
    "InvalidSelection",
    "Selection",
    "Status",
    "dag_cost",
    "judge",
    "portfolio",
    "reached",
]
