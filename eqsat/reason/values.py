"""The values of terms where a program runs on its inputs, and both sides of a rule run on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # programs take and return arbitrary Python values

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node

from eqsat.encode import Encoding
from eqsat.hint import own_hint
from eqsat.meta import Scalar, meta_of
from eqsat.observe import first_line, untouched_generators
from eqsat.operators import OPERATORS
from eqsat.rewrite import Rewrite
from eqsat.snapshot import NUMBER, Row

RANDOM = "random values"
EXAMPLE = "the example's values"


@dataclass(frozen=True)
class Trial:
    """One run of both sides: on which values, the largest difference, and what differs if any."""

    on: str
    error: float
    difference: str = ""


class Values:
    """The values of terms: those of the given nodes from a run of the program, the others computed.

    `terms` may be those of any later step: the given ones come first.
    """

    def __init__(
        self, encoding: Encoding, program: ExportedProgram, args: Any, kwargs: Any
    ) -> None:
        self.encoding = encoding
        self.program = program
        self.inputs = (args, kwargs)
        self.known: dict[int, Any] = {}

    def run(self, terms: Sequence[Row], wanted: Iterable[int]) -> None:
        """Run the program, once, for what the wanted terms are computed from."""
        origins, nodes, seen = self.encoding.origins, dict[str, int](), set[int]()
        stack = list(wanted)
        while stack:
            term = stack.pop()
            if term in seen:
                continue
            seen.add(term)
            if term in origins and term < len(self.encoding.rows):
                nodes[origins[term].name] = term
            else:
                stack.extend(terms[term].children)
        flat = self.program._graph_module_flat_inputs(*self.inputs)
        with untouched_generators(), torch.no_grad():
            for name, value in _run(self.program, flat, nodes).items():
                self.known[nodes[name]] = value

    def of(self, terms: Sequence[Row], term: int) -> Any:
        """The value of a term, its operands computed first. Raises what an operator raises."""
        stack = [term]
        while stack:
            row = terms[stack[-1]]
            missing = [c for c in row.children if c not in self.known]
            if row.handle not in self.known:
                if missing:
                    stack.extend(missing)
                    continue
                self.known[row.handle] = self._computed(row)
            stack.pop()
        return self.known[term]

    def _computed(self, row: Row) -> Any:
        attributes = [own_hint(self.encoding.texts.value(text)) for text in row.attributes]
        if row.symbol == NUMBER:
            return attributes[0]
        operands = [self.known[c] for c in row.children]
        with torch.no_grad():
            return OPERATORS[row.symbol.operator].evaluate(*operands, *attributes)


def _run(
    program: ExportedProgram, flat: Sequence[Any], wanted: Mapping[str, int]
) -> dict[str, Any]:
    """The values of the wanted nodes by name; of the others none is held longer than it is read."""
    found: dict[str, Any] = {}

    class Keeping(Interpreter):
        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if n.name in wanted:
                found[n.name] = value
            return value

    Keeping(program.graph_module).run(*flat)
    return found


def compared(
    rule: Rewrite, bound: Mapping[str, Any], places: Sequence[int], encoding: Encoding
) -> list[Trial]:
    """Both sides of a rule run on what its variables stand for, and again with random floats."""
    trials = [_trial(EXAMPLE, rule, bound, places, encoding)]
    floats = [n for n, v in bound.items() if isinstance(v, Tensor) and v.is_floating_point()]
    if floats:
        generator = torch.Generator().manual_seed(0)
        drawn = dict(bound)
        for name in floats:
            value = bound[name]
            normal = torch.randn(value.shape, generator=generator).to(value.dtype)
            drawn[name] = normal.to(value.device)
        trials.append(_trial(RANDOM, rule, drawn, places, encoding))
    return trials


def _trial(
    on: str, rule: Rewrite, bound: Mapping[str, Any], places: Sequence[int], encoding: Encoding
) -> Trial:
    from eqsat.verify.samples import run  # brings what no search needs
    from eqsat.verify.sides import Evaluation, difference

    evaluation, largest = Evaluation(), 0.0
    metas = {n: meta_of(v) if isinstance(v, Tensor) else v for n, v in bound.items()}
    numbers = {n: Scalar(v) for n, v in metas.items() if rule.kinds[n] == "tensor"}
    metas |= {n: m for n, m in numbers.items() if not isinstance(bound[n], Tensor)}
    with torch.no_grad():
        for value in bound.values():
            evaluation.noted(value)
        for place in places:
            try:
                left, right = (
                    run(side[place], metas, bound, evaluation.operate, encoding.oracle)
                    for side in (rule.left, rule.right)
                )
            except Exception as error:  # noqa: BLE001 - whatever a kernel refuses, the two are not equal
                return Trial(on, 0.0, f"raised {type(error).__name__}: {first_line(error)}")
            found = difference(left, right, rule.numerics, evaluation, lenient=False)
            if found is not None:
                return Trial(on, _error(left, right), found)
            largest = max(largest, _error(left, right))
    return Trial(on, largest)


def _error(left: Any, right: Any) -> float:
    """The largest finite difference, relative where the values are above one."""
    if not isinstance(left, Tensor):
        return 0.0 if left == right else float("nan")
    if left.dtype == torch.bool or not left.numel() or left.shape != right.shape:
        return 0.0
    wide = torch.complex128 if left.is_complex() else torch.float64
    a, b = left.to(wide), right.to(wide)
    finite = a.isfinite() & b.isfinite()
    gap = (a - b).abs()[finite]
    scale = a.abs()[finite]
    return float(gap.max() / scale.max().clamp(min=1.0)) if gap.numel() else 0.0
