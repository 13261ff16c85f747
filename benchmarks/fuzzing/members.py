"""Whether all members of a class are equal: every e-node is computed from its children's values.

By congruence every program that can be taken from the e-graph is then equal to the given one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name it has everywhere
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from eqsat.emit import VECTOR
from eqsat.encode import LEAF, Encoding
from eqsat.kind import Kind
from eqsat.meta import INVALID, meta_of
from eqsat.operators import OPERATORS
from eqsat.snapshot import NUMBER, Snapshot

from .agreement import NUDGE, Agreement, apart, nudged, precision, size

RAISED = object()  # what stands for a value that the given program has not: it raised


class _Given(Interpreter):
    """Runs what can be run of the given programs, each by itself."""

    def run_node(self, n: Node) -> Any:
        if n.op == "output" or any(self.env[read] is RAISED for read in n.all_input_nodes):
            return RAISED
        try:
            return super().run_node(n)
        except Exception:  # noqa: BLE001 - some functions refuse NaN, and so may the others
            return RAISED


@dataclass(frozen=True)
class Conflict:
    """Two members of one class that differ, or a class that is not what the e-graph knows of it."""

    cls: int
    text: str


@dataclass
class Evaluation:
    """The value of each class on one set of inputs, and how many e-nodes were computed for it.

    Where the given program has `raised` what it does on such inputs, classes are without values.
    """

    snapshot: Snapshot
    encoding: Encoding
    agreement: Agreement
    values: dict[int, Any] = field(default_factory=dict[int, Any])
    rounded: dict[int, float] = field(default_factory=dict[int, float])  # tolerances
    makers: dict[int, str] = field(default_factory=dict[int, str])
    computed: int = 0
    raised: bool = False
    conflict: Conflict | None = None

    def run(self, module: GraphModule, leaves: Sequence[Tensor]) -> Evaluation:
        """This evaluation after the given program ran on `leaves`, and every e-node."""
        with torch.no_grad():
            self._given(module, leaves)
            self._all()
        return self

    def _given(self, module: GraphModule, leaves: Sequence[Tensor]) -> None:
        """The values that the given program has itself; what was united must be equal."""
        interpreter = _Given(module, garbage_collect_values=False)
        interpreter.run(*leaves)
        rounded: dict[Node, float] = {}
        for node in module.graph.nodes:
            if node not in interpreter.env:
                continue
            value = interpreter.env[node]
            if value is RAISED:
                self.raised = True
                continue
            below = (rounded.get(n, 0.0) for n in node.all_input_nodes)
            rounded[node] = max(precision(value), *below, 0.0)
            if node in self.encoding.handles:
                cls = self.snapshot.handles[self.encoding.handles[node]]
                self._learn(cls, value, f"%{node.name}", rounded[node])

    def _all(self) -> None:
        """Computes each e-node once all of its children have values."""
        s = self.snapshot
        parents: defaultdict[int, list[int]] = defaultdict(list)
        missing: dict[int, int] = {}
        ready: list[int] = []
        for k, symbol in enumerate(s.symbols):
            if not _computes(symbol.operator) or s.metas.get(s.classes[k], INVALID) == INVALID:
                continue
            wanted = {c for c in s.children[k] if c not in self.values}
            missing[k] = len(wanted)
            for c in sorted(wanted):
                parents[c].append(k)
            if not wanted:
                ready.append(k)
        for k in ready:  # it grows
            cls = s.classes[k]
            new = cls not in self.values
            self._compute(k)
            if new and cls in self.values:
                for parent in parents[cls]:
                    missing[parent] -= 1
                    ready += [parent] if missing[parent] == 0 else []

    def _compute(self, k: int) -> None:
        s = self.snapshot
        children = [self.values[c] for c in s.children[k]]
        try:
            value = self._value(k, children)
        except Exception as error:  # noqa: BLE001 - whatever it raises is a finding
            if self.raised and s.classes[k] not in self.values:
                return
            self._report(s.classes[k], f"{self._shown(k)} raises {type(error).__name__}: {error}")
            return
        self.computed += 1
        below = (self.rounded[c] for c in s.children[k])
        self._learn(s.classes[k], value, k, max(precision(value), *below, 0.0))

    def _value(self, k: int, children: Sequence[Any]) -> Any:
        s = self.snapshot
        attributes = [self.encoding.texts.value(text) for text in s.attributes[k]]
        if s.symbols[k] == NUMBER:
            return attributes[0]
        if s.symbols[k].operator == "attention":
            return _attention(*children, *attributes)
        return OPERATORS[s.symbols[k].operator].evaluate(*children, *attributes)

    def _learn(self, cls: int, value: Any, maker: str | int, rounded: float) -> None:
        """Takes the first value of a class, and compares others with it."""
        shown = maker if isinstance(maker, str) else f"e-node {maker}"
        if cls not in self.values:
            self.values[cls] = value
            self.rounded[cls] = rounded
            self.makers[cls] = shown if isinstance(maker, str) else self._shown(maker)
            wanted = self.snapshot.metas.get(cls, INVALID)
            made = self.encoding.texts.text(meta_of(value))
            if isinstance(value, Tensor) and made != wanted:
                self._report(cls, f"{self.makers[cls]} is {made}, not {wanted}")
            return
        if self.conflict is not None:
            return
        known, rounded = self.values[cls], max(rounded, self.rounded[cls])
        if not self.agreement.signs and _equal(known, value):
            return
        scale, agreement = 1.0, self.agreement
        if isinstance(maker, int):
            children = self.snapshot.children[maker]
            scale = max((size(self.values[c]) for c in children), default=1.0)
            if not _keeps_signs(self.snapshot.symbols[maker].operator):
                agreement = replace(agreement, signs=False)
        difference = apart(known, value, agreement, scale, rounded)
        if difference and isinstance(maker, int):
            ignored = partial(apart, agreement=agreement, scale=scale, tolerance=rounded)
            if self._is_noise(maker, known, value, ignored):
                return
        if difference:
            shown = maker if isinstance(maker, str) else self._shown(maker)
            self._report(cls, f"{difference}\n  {self.makers[cls]}\n  {shown}")

    def _is_noise(self, k: int, known: Any, value: Any, differ: Callable[..., str]) -> bool:
        """Whether as much follows from operands that are a little off."""
        children = self.snapshot.children[k]
        for share in (NUDGE, -NUDGE):
            try:
                near = [nudged(self.values[c], share * self.rounded[c]) for c in children]
                moved = self._value(k, near)
            except Exception:  # noqa: BLE001 - then it says nothing
                continue
            if not differ(known, moved) or not differ(known, value, moved=moved):
                return True
        return False

    def _report(self, cls: int, text: str) -> None:
        if self.conflict is None:
            self.conflict = Conflict(cls, text)

    def _shown(self, k: int) -> str:
        s = self.snapshot
        operands = [f"{c}:{s.metas.get(c)}" for c in s.children[k]]
        return f"{s.symbols[k].operator}({', '.join([*operands, *s.attributes[k]])})"


def _attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    """Attention as it is emitted: by the kernel for two dims of a batch where that keeps NaN."""
    mask, (causal, scale, gqa) = (rest[0], rest[1:]) if len(rest) == 4 else (None, rest)
    mask = mask[None] if mask is not None and mask.ndim == 1 else mask
    lifted = 4 - q.ndim if mask is not None or k.shape[-2] >= VECTOR else 0
    for _ in range(lifted):
        mask = mask[None] if mask is not None and mask.ndim == q.ndim else mask
        q, k, v = q[None], k[None], v[None]
    result = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=gqa
    )
    return result.reshape(result.shape[lifted:]) if lifted > 0 else result


def _keeps_signs(operator: str) -> bool:
    """Whether an operator gives the bits of a call that it spells, the sign of zero included."""
    kind = OPERATORS[operator].kind if operator in OPERATORS else Kind.OPAQUE
    return kind in (Kind.POINTWISE, Kind.VIEW, Kind.CAT, Kind.GATHER, Kind.CREATION)


def _equal(a: Any, b: Any) -> bool:
    """Whether two tensors hold the same numbers: quick, and enough of a reason to go on."""
    plain = isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype == b.dtype
    return a is b or (plain and torch.equal(a, b))


def _computes(operator: str) -> bool:
    return operator != LEAF.operator and (operator in OPERATORS or operator == NUMBER.operator)


def changed_constant(first: Evaluation, second: Evaluation) -> Conflict | None:
    """A class that the e-graph takes for constant, though it changed with the inputs."""
    for cls in sorted(first.snapshot.constant):
        a, b = first.values.get(cls), second.values.get(cls)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            same = (a == b) | ((a != a) & (b != b))
            if not bool(same.all()):
                return Conflict(cls, f"{first.makers[cls]} is no constant")
    return None
