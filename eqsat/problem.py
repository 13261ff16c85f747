"""The e-graph as an extraction problem: e-nodes to choose from, what each costs, what was given."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.cost.additive import FUSED_SHARE, Call, price
from eqsat.cost.attention import attention_kernel
from eqsat.cost.device import Device
from eqsat.cost.model import CostModel
from eqsat.encode import Encoding
from eqsat.hint import hint
from eqsat.kind import Kind
from eqsat.meta import INVALID, Meta, Scalar, Texts
from eqsat.operators import OPERATORS
from eqsat.snapshot import Snapshot, Symbol
from extract import Choice, EGraph

FOLDED = 1e-12  # seconds: what a constant costs, so that the fewest are computed
STRIDED = ("slice", "permute", "expand")
"""Views that lie otherwise than a tensor of their own: returned, they are copied."""
PER_BYTE = 1e-15  # and for each of its bytes, which stay in memory: a microsecond for a gigabyte


@dataclass(frozen=True)
class Problem:
    """An extraction problem over the e-nodes of a snapshot.

    `enodes[i]` is the snapshot's e-node behind node i; `given` is the choice that gives the program
    back as it came.
    """

    egraph: EGraph
    enodes: tuple[int, ...]
    given: Choice


def problem(
    snapshot: Snapshot,
    encoding: Encoding,
    cost: CostModel,
    *,
    fold: bool,
    fused_share: float = FUSED_SHARE,
    new_share: float | None = None,
) -> Problem:
    """The extraction problem of `snapshot`, priced e-node by e-node (`eqsat.cost.additive`).

    With `fold`, constants cost nothing. A fusible operator is charged `fused_share` of its price,
    one that the given program has not `new_share`.
    """
    pricer = Pricer(encoding.texts, cost, fold, fused_share)
    other = pricer if new_share is None else Pricer(encoding.texts, cost, fold, new_share)
    leaf_classes = {
        snapshot.handles[handle]: tuple(snapshot.handles[h] for h in reads)
        for handle, reads in encoding.reads.items()
    }
    returned = {snapshot.handles[handle] for handle in encoding.returned}
    given = {snapshot.enode(row) for row in encoding.rows}
    masks, pointwise = _masks(snapshot), _pointwise(snapshot)
    padded = _padded(snapshot, encoding.texts, cost.device)
    nodes: list[tuple[int, float, Sequence[int]]] = []
    enodes: list[int] = []
    for k, symbol in enumerate(snapshot.symbols):
        cls = snapshot.classes[k]
        if snapshot.metas.get(cls, INVALID) == INVALID:
            continue
        children: Sequence[int] = snapshot.children[k]
        if symbol.operator == "leaf":
            children = leaf_classes.get(cls, ())
        elif isinstance(encoding.texts.meta(snapshot.metas[cls]), Scalar):
            children = ()
        new = _enode(snapshot, k) not in given
        charged = other if new else pricer
        seconds = _price(charged, snapshot, k)
        laid_out = cls in returned and new
        cut_out = cls in masks and not pointwise.isdisjoint(children)
        if symbol.operator in STRIDED and (laid_out or cut_out):
            seconds += charged.copy_seconds(snapshot.metas[cls])
        if cls in padded:
            seconds += charged.copy_seconds(snapshot.metas[cls], share=1.0)
        nodes.append((cls, seconds, children))
        enodes.append(k)
    roots = tuple(dict.fromkeys(snapshot.handles[h] for h in encoding.roots))
    egraph = EGraph.build(nodes, roots, snapshot.num_classes)
    return Problem(egraph, tuple(enodes), _given(snapshot, encoding, enodes))


def _masks(s: Snapshot) -> frozenset[int]:
    """The classes that are the mask of an attention, and not constant."""
    return frozenset(children[3] for children in _masked(s)) - s.constant


def _masked(s: Snapshot) -> Iterator[tuple[int, ...]]:
    """The operands of every attention with a mask: query, key, value and mask come first."""
    for symbol, children in zip(s.symbols, s.children, strict=True):
        if symbol.operator == "attention" and len(children) > 3:
            yield children


def _padded(s: Snapshot, texts: Texts, device: Device) -> frozenset[int]:
    """The classes of masks whose rows an attention's kernel needs at multiples of eight elements.

    Each is written so once, for all attentions that read it.
    """
    found: set[int] = set()
    if device.backend != "triton":
        return frozenset()
    for children in _masked(s):
        *operands, mask = (texts.meta(s.metas[c]) for c in children[:4])
        metas = [meta for meta in operands if isinstance(meta, Meta)]
        if len(metas) == 3 and isinstance(mask, Meta):
            q, k, v = (tuple(hint([*meta.shape])) for meta in metas)
            dtype = metas[0].dtype
            kernel = attention_kernel(device, q, k, v, dtype, masked=True, is_causal=False)
            if kernel == "efficient" and mask.ndim and hint(mask.shape[-1]) % 8:
                found.add(children[3])
    return frozenset(found)


def _pointwise(s: Snapshot) -> frozenset[int]:
    """The classes of what is pointwise: Inductor computes what is cut out of a mask once more."""
    return frozenset(
        cls
        for symbol, cls in zip(s.symbols, s.classes, strict=True)
        if symbol.operator in OPERATORS and OPERATORS[symbol.operator].kind is Kind.POINTWISE
    )


def _price(pricer: Pricer, s: Snapshot, k: int) -> float:
    """The predicted seconds of e-node k."""
    cls, children = s.classes[k], s.children[k]
    metas = tuple(s.metas[c] for c in children)
    constant = cls in s.constant
    return pricer.seconds(s.symbols[k], s.metas[cls], metas, children, s.attributes[k], constant)


def _enode(s: Snapshot, k: int) -> tuple[Symbol, tuple[int, ...], tuple[str, ...]]:
    return s.symbols[k], s.children[k], s.attributes[k]


def _given(snapshot: Snapshot, encoding: Encoding, enodes: Sequence[int]) -> Choice:
    """The e-node of the first given row of every class: acyclic, for rows refer to earlier rows."""
    where = {_enode(snapshot, k): index for index, k in enumerate(enodes)}
    choice = np.full(snapshot.num_classes, -1, dtype=np.int32)
    for row in encoding.rows:
        cls = snapshot.handles[row.handle]
        if choice[cls] < 0:
            choice[cls] = where.get(snapshot.enode(row), -1)
    return choice


class Pricer:
    """Prices e-nodes one at a time, equal ones once."""

    def __init__(self, texts: Texts, cost: CostModel, fold: bool, fused_share: float) -> None:
        self.texts = texts
        self.cost = cost
        self.fold = fold
        self.fused_share = fused_share
        self.known: dict[tuple[object, ...], float] = {}

    def seconds(
        self,
        symbol: Symbol,
        meta: str,
        operands: tuple[str, ...],
        children: tuple[Hashable, ...],
        attributes: tuple[str, ...],
        constant: bool,
    ) -> float:
        """The predicted seconds of an e-node, from the texts of its and its operands' metas.

        `children` tell which operands are the same value.
        """
        operator = OPERATORS.get(symbol.operator)
        kind = operator.kind if operator is not None else Kind.OPAQUE
        output = self.texts.meta(meta)
        if symbol.operator in ("leaf", "number") or isinstance(output, Scalar):
            return 0.0
        if self.fold and constant:
            size = float(sum(m.bytes() for m in _metas(output) if isinstance(m, Meta)))
            return 0.0 if kind is Kind.VIEW else FOLDED + PER_BYTE * size
        distinct = tuple(children.index(c) for c in dict.fromkeys(children))
        key = (symbol, operands, distinct, attributes)
        if key not in self.known:
            values = tuple(self.texts.value(a) for a in attributes)
            inputs = tuple(self.texts.meta(m) for m in operands)
            call = Call(symbol.operator, kind, inputs, output, values, distinct)
            estimate = price(call, self.cost.device, self.cost.mode, self.fused_share)
            self.known[key] = estimate.seconds
        return self.known[key]

    def copy_seconds(self, meta: str, share: float | None = None) -> float:
        """The predicted seconds of copying a value of this meta, in a kernel that may be fused.

        With `share` it is charged so much of the kernel's price.
        """
        output = self.texts.meta(meta)
        call = Call("copy", Kind.POINTWISE, (output,), output)
        share = self.fused_share if share is None else share
        return price(call, self.cost.device, self.cost.mode, share).seconds


def _metas(output: object) -> tuple[object, ...]:
    return output if isinstance(output, tuple) else (output,)
