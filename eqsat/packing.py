"""How the values of an e-graph may lie in memory, and where a call needs them copied first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from eqsat.cost.additive import sizes
from eqsat.cost.partition.access import contiguous
from eqsat.encode import Encoding
from eqsat.hint import hint
from eqsat.kind import Kind
from eqsat.meta import INVALID, Meta
from eqsat.operators import OPERATORS
from eqsat.snapshot import Snapshot

Strides = tuple[int, ...]

WAYS = 4
"""In how many ways a value is taken to be able to lie."""


@dataclass(frozen=True, eq=False)
class Packing:
    """The strides that the value of every class may have.

    What is computed is contiguous, a view lies as its source makes it, and attention gives heads
    beside each other. An e-node in `copying` is a view that no source allows, so that it copies;
    `packed[k]` are the operands of e-node k that a library call takes only as a copy.
    """

    ways: dict[int, tuple[Strides, ...]]
    copying: frozenset[int]
    packed: dict[int, frozenset[int]]


def packing(snapshot: Snapshot, encoding: Encoding) -> Packing:
    """The packing of an e-graph: the fewest ways that its e-nodes give, at most `WAYS` a class."""
    search = _Search(snapshot, encoding)
    queue = dict.fromkeys(range(len(snapshot.symbols)))
    while queue:
        enode = next(iter(queue))
        del queue[enode]
        if search.visit(enode):
            queue.update(dict.fromkeys(search.users[snapshot.classes[enode]]))
    packed = {k: search.packed(k) for k in range(len(snapshot.symbols))}
    return Packing(search.ways, frozenset(search.copying()), {k: c for k, c in packed.items() if c})


@dataclass
class _Search:
    snapshot: Snapshot
    encoding: Encoding
    ways: dict[int, tuple[Strides, ...]] = field(default_factory=dict[int, tuple[Strides, ...]])
    known: dict[tuple[object, ...], Strides | None] = field(
        default_factory=dict[tuple[object, ...], "Strides | None"]
    )

    def __post_init__(self) -> None:
        self.users: dict[int, list[int]] = {}
        for enode, children in enumerate(self.snapshot.children):
            for cls in [*children, self.snapshot.classes[enode]]:
                self.users.setdefault(cls, []).append(enode)

    def meta(self, cls: int) -> Meta | None:
        text = self.snapshot.metas.get(cls, INVALID)
        meta = None if text == INVALID else self.encoding.texts.meta(text)
        return meta if isinstance(meta, Meta) else None

    def kind(self, enode: int) -> Kind:
        operator = OPERATORS.get(self.snapshot.symbols[enode].operator)
        return Kind.OPAQUE if operator is None else operator.kind

    def visit(self, enode: int) -> bool:
        """Adds the ways that an e-node gives its class; whether there is a new one."""
        cls = self.snapshot.classes[enode]
        meta, old = self.meta(cls), self.ways.get(cls, ())
        if meta is None or len(old) >= WAYS:
            return False
        if self.kind(enode) is Kind.VIEW:
            found = self.views(enode)
        elif self.kind(enode) is Kind.ATTENTION:
            found = [_heads_inside(sizes(meta))]
        else:
            found = [contiguous(sizes(meta))]
        new = tuple(dict.fromkeys([*old, *(f for f in found if f is not None)]))[:WAYS]
        self.ways[cls] = new
        return new != old

    def views(self, enode: int) -> list[Strides | None]:
        """How a view of its source lies, for every way of the source; None where it must copy.

        Where all must, the copy is contiguous.
        """
        meta, source = self.meta(self.snapshot.classes[enode]), self.snapshot.children[enode][0]
        if meta is None or self.meta(source) is None:
            return []
        found = [self.viewed(enode, way) for way in self.ways.get(source, ())]
        return [contiguous(sizes(meta))] if found and not any(map(_is_some, found)) else found

    def viewed(self, enode: int, way: Strides) -> Strides | None:
        s = self.snapshot
        source = self.meta(s.children[enode][0])
        assert source is not None
        shape, symbol = sizes(source), s.symbols[enode]
        key = (symbol.operator, shape, way, s.attributes[enode])
        if key not in self.known:
            attributes = [hint(self.encoding.texts.value(a)) for a in s.attributes[enode]]
            x = torch.empty_strided(shape, way, device="meta")
            self.known[key] = _strides_of(OPERATORS[symbol.operator].evaluate, x, attributes)
        return self.known[key]

    def copying(self) -> list[int]:
        """The views that no way of their source allows."""
        enodes: list[int] = []
        for enode in range(len(self.snapshot.symbols)):
            if self.kind(enode) is Kind.VIEW and self.meta(self.snapshot.classes[enode]):
                ways = self.ways.get(self.snapshot.children[enode][0], ())
                if ways and not any(_is_some(self.viewed(enode, way)) for way in ways):
                    enodes.append(enode)
        return enodes

    def packed(self, enode: int) -> frozenset[int]:
        """The operands of a matmul or an attention that none of their ways lets be passed on."""
        kind, children = self.kind(enode), self.snapshot.children[enode]
        if self.snapshot.symbols[enode].operator not in ("matmul", "affine", "attention"):
            return frozenset()
        flat = kind is Kind.MATMUL and len(sizes_or_none(self.meta(children[1]))) < 3
        fits = _rows_fit if flat else _batch_fits if kind is Kind.MATMUL else _last_fits
        return frozenset(
            cls
            for cls in children[: 2 if kind is Kind.MATMUL else 3]
            if (meta := self.meta(cls)) is not None
            and not any(fits(sizes(meta), way) for way in self.ways.get(cls, ()))
        )


def sizes_or_none(meta: Meta | None) -> tuple[int, ...]:
    """The sizes of a tensor, or none."""
    return () if meta is None else sizes(meta)


def _is_some(strides: Strides | None) -> bool:
    return strides is not None


def _strides_of(
    view: Callable[..., Any],  # an operator's function: it takes a tensor and attributes
    x: torch.Tensor,
    attributes: Sequence[Any],  # of any kind
) -> Strides | None:
    """The strides of a view of `x`; None if it is a copy, or cannot be had."""
    try:
        result = view(x, *attributes)
    except (RuntimeError, ValueError, TypeError):
        return None
    if not isinstance(result, torch.Tensor) or result._base is not x:
        return None
    return tuple(int(stride) for stride in result.stride())


def _heads_inside(shape: Sequence[int]) -> Strides:
    """The strides of (..., heads, rows, width) in memory as (..., rows, heads, width)."""
    if len(shape) < 3:
        return contiguous(tuple(shape))
    *outer, heads, rows, width = shape
    strides = contiguous((*outer, rows, heads, width))
    return (*strides[:-3], strides[-2], strides[-3], strides[-1])


def _merges(shape: Sequence[int], way: Strides) -> bool:
    """Whether all dimensions can be one, as far as they are not 1 long."""
    dims = [(size, step) for size, step in zip(shape, way, strict=True) if size != 1]
    return all(a == size * step for (_, a), (size, step) in pairwise(dims))


def _rows_fit(shape: Sequence[int], way: Strides) -> bool:
    """Whether a matrix product takes it as rows: (..., m, k) as (rows, k)."""
    if len(shape) < 3:
        return len(shape) < 2 or 1 in way[-2:]
    return way[-1] == 1 and _merges(shape[:-1], way[:-1])


def _batch_fits(shape: Sequence[int], way: Strides) -> bool:
    """Whether a batched product takes it: (..., m, k) as (batch, m, k), one of m, k contiguous."""
    return len(shape) < 3 or (_merges(shape[:-2], way[:-2]) and 1 in way[-2:])


def _last_fits(shape: Sequence[int], way: Strides) -> bool:
    return not shape or way[-1] == 1 or shape[-1] == 1
