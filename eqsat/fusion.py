"""What of an e-graph may be computed in one kernel, by the rules that Inductor fuses by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

from eqsat.cost.additive import sizes
from eqsat.cost.model import CostModel
from eqsat.encode import Encoding
from eqsat.kind import Kind
from eqsat.meta import INVALID, AnyMeta, Meta
from eqsat.operators import OPERATORS
from eqsat.packing import Packing, packing
from eqsat.problem import Problem
from eqsat.snapshot import Snapshot
from extract import Choice, EGraph, Selection
from extract.fused import fused
from extract.fused_judge import fused_judge
from extract.fusible import VIEWS, Caps, Fusion, FusionProblem

UNROLLED = 8
"""A reduction of at most so many elements is computed as a pointwise function of them."""
INLINED = 8
"""A cat of at most so many tensors is computed as a pointwise function of them."""
OPERATION = 0.1
"""FLOPs for each element of a pointwise operator: little, for such kernels wait for memory, but not
nothing, so that fewer operators are cheaper."""
CAPS = Caps()

Domain = tuple[int, int, object]
"""Elements outside a reduction, elements reduced to one, and how the latter lie."""


@dataclass(frozen=True, eq=False)
class Fusible:
    """A fusion problem over the e-nodes of an extraction problem, and of copies after them.

    Where a call takes an operand only as a copy, the copy is a class and an e-node of its own.
    `copies` are these e-nodes, numbered from the last of the extraction problem on.
    """

    problem: FusionProblem
    num_classes: int
    copies: tuple[int, ...]

    def inside(self, choice: Choice) -> Choice:
        """A choice for the extraction problem, as one for the fusion problem."""
        return np.concatenate([choice, np.array(self.copies, np.int32)])

    def outside(self, choice: Choice) -> Choice:
        """A choice for the fusion problem, as one for the extraction problem."""
        return choice[: self.num_classes]


def extract_fused(
    snapshot: Snapshot,
    encoding: Encoding,
    cost: CostModel,
    choices: Problem,
    *,
    fold: bool,
    time_limit: float = 5.0,
    seeds: Sequence[Choice] = (),
) -> Selection:
    """The selection of `choices` whose kernels take the least predicted time, and a bound for that.

    Its cost and bound are seconds of kernels, not the sum of the prices in `choices`. It is no
    worse than the best kernels that were found for any of `seeds`, selections of `choices`.
    """
    given = fusible(snapshot, encoding, cost, choices, fold=fold)
    inside = [given.inside(seed) for seed in seeds]
    found = fused(given.problem, time_limit=time_limit, seeds=inside)
    fused_judge(given.problem, found)
    return replace(found.selection, choice=given.outside(found.selection.choice))


def fusible(
    snapshot: Snapshot,
    encoding: Encoding,
    cost: CostModel,
    choices: Problem,
    *,
    fold: bool,
    caps: Caps = CAPS,
) -> Fusible:
    """What may be fused of the e-nodes of `choices`, in seconds.

    `choices` has the prices of single e-nodes, which those of library calls keep; it must have been
    made with the same `cost` and `fold`. With `fold`, constants are in memory.
    """
    rules = _Rules(snapshot, encoding, packing(snapshot, encoding))
    egraph = choices.egraph
    fusion: list[Fusion] = []
    domain: list[int] = []
    seconds: list[float] = []
    domains: dict[Domain, int] = {}
    rate = OPERATION / cost.device.sustained_flops(torch.float32)
    for enode, k in enumerate(choices.enodes):
        kind, over = rules.fusion(k)
        if fold and snapshot.classes[k] in snapshot.constant and kind not in VIEWS:
            kind, over = Fusion.OPAQUE, None
        fusion.append(kind)
        domain.append(-1 if over is None else domains.setdefault(over, len(domains)))
        own = float(egraph.node_cost[enode])
        work = 0.0 if kind in VIEWS else rate * rules.work(k)
        seconds.append(own if kind is Fusion.OPAQUE else work)
    extended, copied = _with_copies(choices, rules, seconds, snapshot)
    count = len(copied)
    numel = [rules.numel(cls) for cls in range(snapshot.num_classes)]
    moved = np.array([rules.bytes(cls) for cls in range(snapshot.num_classes)], np.float64)
    moved /= cost.device.sustained_bandwidth()
    read = np.minimum(moved, rules.gathered(choices) / cost.device.sustained_bandwidth())
    problem = FusionProblem(
        egraph=extended,
        fusion=np.array([*fusion, *[Fusion.POINTWISE] * count], np.int8),
        domain=np.array([*domain, *[-1] * count], np.int32),
        domains=tuple((outside, reduced) for outside, reduced, _ in domains),
        numel=np.array([*numel, *(numel[cls] for cls in copied)], np.int64),
        read=np.concatenate([read, moved[copied]]),
        write=np.concatenate([moved, moved[copied]]),
        launch=cost.device.launch(cost.mode),
        caps=caps,
    )
    copies = range(egraph.num_nodes, egraph.num_nodes + count)
    return Fusible(problem, snapshot.num_classes, tuple(copies))


def _with_copies(
    choices: Problem, rules: _Rules, seconds: Sequence[float], snapshot: Snapshot
) -> tuple[EGraph, list[int]]:
    """The e-graph with these costs and with the copies that calls need, and what is copied."""
    egraph = choices.egraph
    copies: dict[int, int] = {}  # class -> the class of its copy
    nodes: list[tuple[int, float, Sequence[int]]] = []
    for enode, k in enumerate(choices.enodes):
        packed = rules.packing.packed.get(k, frozenset()) | rules.mask(k)
        first, last = int(egraph.child_ptr[enode]), int(egraph.child_ptr[enode + 1])
        children: list[int] = egraph.children[first:last].tolist()
        if snapshot.classes[k] not in snapshot.constant:
            for cls in sorted(packed - snapshot.constant):
                copies.setdefault(cls, egraph.num_classes + len(copies))
            children = [copies.get(c, c) if c in packed else c for c in children]
        nodes.append((int(egraph.node_class[enode]), seconds[enode], children))
    nodes += [(copy, 0.0, [cls]) for cls, copy in copies.items()]
    extended = EGraph.build(nodes, egraph.roots, egraph.num_classes + len(copies))
    return extended, list(copies)


@dataclass
class _Rules:
    snapshot: Snapshot
    encoding: Encoding
    packing: Packing
    _metas: dict[int, AnyMeta | None] = field(default_factory=dict[int, "AnyMeta | None"])

    def meta(self, cls: int) -> AnyMeta | None:
        if cls not in self._metas:
            text = self.snapshot.metas.get(cls, INVALID)
            self._metas[cls] = None if text == INVALID else self.encoding.texts.meta(text)
        return self._metas[cls]

    def tensors(self, cls: int) -> list[Meta]:
        meta = self.meta(cls)
        return [m for m in (meta if isinstance(meta, tuple) else (meta,)) if isinstance(m, Meta)]

    def numel(self, cls: int) -> int:
        return sum(math.prod(sizes(meta)) for meta in self.tensors(cls))

    def bytes(self, cls: int) -> int:
        return sum(math.prod(sizes(meta)) * meta.dtype.itemsize for meta in self.tensors(cls))

    def work(self, k: int) -> int:
        """Elements that an e-node looks at or makes."""
        return max(self.numel(c) for c in (self.snapshot.classes[k], *self.snapshot.children[k]))

    def mask(self, k: int) -> frozenset[int]:
        """The mask of an attention, if it is computed: Inductor repeats it for every head, and then
        what is cut out of it is not read from it.
        """
        children = self.snapshot.children[k][3:4]
        if self.snapshot.symbols[k].operator != "attention":
            return frozenset()
        return frozenset(children) & self.computed

    @cached_property
    def computed(self) -> frozenset[int]:
        """The classes of what is pointwise, and of views of such."""
        s = self.snapshot
        kinds = [self.fusion(k)[0] for k in range(len(s.symbols))]
        found = {s.classes[k] for k, kind in enumerate(kinds) if kind is Fusion.POINTWISE}
        views = [k for k, kind in enumerate(kinds) if kind in VIEWS]
        size = -1
        while size != len(found):
            size = len(found)
            found |= {s.classes[k] for k in views if s.children[k][0] in found}
        return frozenset(found)

    def gathered(self, choices: Problem) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The most bytes that are read of every class: of a table, the rows that are gathered."""
        most: dict[int, float] = {}
        for k in choices.enodes:
            operator = OPERATORS.get(self.snapshot.symbols[k].operator)
            gathers = operator is not None and operator.kind is Kind.GATHER
            for position, cls in enumerate(self.snapshot.children[k]):
                rows = (
                    self.bytes(self.snapshot.classes[k]) if gathers and not position else math.inf
                )
                most[cls] = max(most.get(cls, 0.0), rows)
        return np.array([most.get(c, math.inf) for c in range(self.snapshot.num_classes)])

    def fusion(self, k: int) -> tuple[Fusion, Domain | None]:
        """How an e-node fuses, and what a reduction reduces."""
        s = self.snapshot
        symbol = s.symbols[k]
        operator = OPERATORS.get(symbol.operator)
        if operator is None or not isinstance(self.meta(s.classes[k]), Meta):
            return Fusion.OPAQUE, None
        if operator.kind is Kind.VIEW:
            if not isinstance(self.meta(s.children[k][0]), Meta):
                return Fusion.OPAQUE, None
            if k in self.packing.copying:
                return Fusion.POINTWISE, None
            kept = symbol.operator in ("reshape", "expand")
            return Fusion.VIEW if kept else Fusion.MOVE, None
        if operator.kind in (Kind.REDUCTION, Kind.NORM):
            return self.reduction(k)
        inlined = operator.kind is Kind.CAT and len(s.children[k]) <= INLINED
        if inlined or operator.kind in (Kind.POINTWISE, Kind.CREATION, Kind.GATHER):
            return Fusion.POINTWISE, None
        return Fusion.OPAQUE, None

    def reduction(self, k: int) -> tuple[Fusion, Domain | None]:
        """A reduction or norm, by what it reduces; a short one is unrolled."""
        s = self.snapshot
        operator = s.symbols[k].operator
        source = self.meta(s.children[k][0])
        assert isinstance(source, Meta)
        shape = sizes(source)
        dims = self.reduced(
            operator, shape, [self.encoding.texts.value(a) for a in s.attributes[k]]
        )
        if operator == "group_norm":
            groups = self.encoding.texts.value(s.attributes[k][0])
            outside = shape[0] * int(groups)
            reduced, lies = math.prod(shape) // max(1, outside), "inner"
        elif dims is None:  # a pooling: windows that nothing else iterates over
            outside = self.numel(s.classes[k])
            reduced, lies = math.prod(shape) // max(1, outside), (operator, s.attributes[k])
        else:
            reduced = math.prod(shape[dim] for dim in dims)
            outside = math.prod(shape) // max(1, reduced)
            long = [dim for dim, size in enumerate(shape) if size > 1]
            kept = [dim for dim in long if dim in dims]
            inner = not kept or long[-len(kept) :] == kept
            lies = "inner" if inner else (shape, tuple(dims))
        if reduced <= UNROLLED and OPERATORS[operator].kind is Kind.REDUCTION:
            return Fusion.POINTWISE, None
        return Fusion.REDUCTION, (outside, reduced, lies)

    @staticmethod
    def reduced(
        operator: str,
        shape: Sequence[int],
        attributes: Sequence[object],
    ) -> list[int] | None:
        """The dimensions that are reduced; None for those of a window."""
        rank = len(shape)
        first = attributes[0] if attributes else None
        if operator in ("softmax", "log_softmax") and isinstance(first, int):
            return [first % rank]
        if operator in ("layer_norm", "rms_norm") and isinstance(first, (tuple, list)):
            return list(range(rank - len(first), rank))
        dims = attributes[1] if operator == "reduction" else None
        if isinstance(dims, (tuple, list)):
            return sorted(int(dim) % rank for dim in dims)
        return None
