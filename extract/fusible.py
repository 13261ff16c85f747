"""What may be computed together: for every e-node how it fuses, for every class what it moves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from extract.egraph import EGraph


class Fusion(IntEnum):
    """How an e-node takes part in a kernel."""

    OPAQUE = 0
    """A launch of its own, or what is in memory already: its cost is all it takes."""
    VIEW = 1
    """Free, and it keeps the order of elements (a reshape), or only repeats some (an expand)."""
    MOVE = 2
    """Free, and the order of elements changes (a permute), or some are left out (a slice)."""
    POINTWISE = 3
    """Each element of the result by itself."""
    REDUCTION = 4
    """A pass over a domain: a sum, a softmax, a norm."""


FUSIBLE = frozenset({Fusion.POINTWISE, Fusion.REDUCTION})
"""What takes a launch, but not one of its own."""
VIEWS = frozenset({Fusion.VIEW, Fusion.MOVE})
"""What makes its result of its one child without touching memory."""


@dataclass(frozen=True)
class Caps:
    """How far the kernels that are considered go: `kernels` for one tensor, each with at most
    `reads` tensors read and `enodes` e-nodes; `sweeps` over tensors that need each other.
    """

    kernels: int = 12
    reads: int = 10
    enodes: int = 64
    sweeps: int = 12


@dataclass(frozen=True, eq=False)
class FusionProblem:
    """An e-graph whose e-nodes become kernels.

    A kernel computes some fusible e-nodes and the views between them. It costs `launch`, what its
    fusible e-nodes cost in `egraph`, `read[c]` for every class that it reads from memory, and
    `write[c]` for every class that it writes there. It has at most one reduction domain: all its
    reductions have the same row of `domains`, (elements outside, elements reduced to one), and what
    comes after one of them in the kernel has as many elements as outside, or as in all. There it
    may look at results of a reduction through no MOVE. Opaque e-nodes cost what they cost in
    `egraph`; their children, and the roots, are in memory. Views of memory are in memory.

    `fusion[i]` is the `Fusion` of e-node i, `domain[i]` the row of a REDUCTION, else -1. All times
    have one unit. `numel`, `read` and `write` have an entry a class. Raises ValueError where the
    arrays do not fit together.
    """

    egraph: EGraph
    fusion: NDArray[np.int8]
    domain: NDArray[np.int32]
    domains: tuple[tuple[int, int], ...]
    numel: NDArray[np.int64]
    read: NDArray[np.float64]
    write: NDArray[np.float64]
    launch: float
    caps: Caps = Caps()

    def __post_init__(self) -> None:
        nodes, classes = self.egraph.num_nodes, self.egraph.num_classes
        sizes = {"fusion": nodes, "domain": nodes}
        sizes |= {"numel": classes, "read": classes, "write": classes}
        for name, size in sizes.items():
            array: NDArray[np.generic] = getattr(self, name)
            if array.shape != (size,):
                raise ValueError(f"{name} has the shape {array.shape}, not ({size},)")
        for name, times in (("read", self.read), ("write", self.write)):
            if not (np.isfinite(times).all() and (times >= 0).all()):
                raise ValueError(f"{name} must be finite and at least 0; it is {times.min()} once")
        if not self.launch > 0:
            raise ValueError(f"launch must be positive, not {self.launch}")
        reduces = self.fusion == Fusion.REDUCTION
        inside = (self.domain >= 0) & (self.domain < len(self.domains))
        for enode in np.flatnonzero(np.where(reduces, ~inside, self.domain != -1))[:1]:
            raise ValueError(
                f"{self.egraph.describe(int(enode))} has the domain {self.domain[enode]}: a "
                f"reduction has a row of {len(self.domains)}, anything else -1"
            )
        views = np.isin(self.fusion, list(VIEWS))
        for enode in np.flatnonzero(views & (np.diff(self.egraph.child_ptr) != 1))[:1]:
            raise ValueError(f"{self.egraph.describe(int(enode))} is a view, but not of one class")

    def fits(self, domain: int, cls: int) -> bool:
        """Whether a class may come after a reduction of `domain` in its kernel."""
        outside, reduced = self.domains[domain]
        return int(self.numel[cls]) in (outside, outside * reduced)
