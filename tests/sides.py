"""The sides of a rule run on real tensors, compared as strictly as its numerics promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from samples import Sample, run
from torch import Tensor

from eqsat.infer import Oracle
from eqsat.meta import Meta, Scalar, Texts
from eqsat.operators import OPERATORS
from eqsat.rewrite import EXACT, RELAXED, Numerics, Rewrite

REFUSALS = (RuntimeError, ArithmeticError, IndexError)
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
STYLES = {  # how the tensors of a sample are filled
    Numerics.EXACT: ("plain", "special", "wide"),
    Numerics.ROUNDING: ("plain", "nan", "wide"),
    Numerics.RELAXED: ("plain", "wide"),
}


class Evaluation:
    """Runs operators on real tensors; notes the lowest precision and the largest value met."""

    def __init__(self) -> None:
        self.scale = 1.0
        self.tolerance = 0.0

    def operate(self, name: str, children: list[Any], attributes: list[Any]) -> Any:
        """An operator on real tensors and numbers."""
        if name == "number":
            return attributes[0]
        with torch.no_grad():
            return self.noted(OPERATORS[name].evaluate(*children, *attributes))

    def noted(self, value: Any) -> Any:
        """The value, taken into account in what rounding is judged by."""
        if isinstance(value, Tensor) and value.dtype in TOLERANCE and value.numel():
            self.tolerance = max(self.tolerance, TOLERANCE[value.dtype])
            largest = float(torch.where(value.isfinite(), value, 0.0).abs().amax())
            self.scale = max(self.scale, largest)
        return value


def fill(meta: Meta, style: str, role: int | None, generator: torch.Generator) -> Tensor:
    """A tensor of this meta: plain values and zeros, wide ones, or with NaN, Inf and -0.0."""
    shape, dtype = tuple(meta.shape), meta.dtype
    draw = torch.rand(shape, generator=generator, dtype=torch.float64)
    if role:
        return (draw * role).long()
    if dtype == torch.bool:
        return draw < 0.5
    if not dtype.is_floating_point:
        reach = 2**20 if style == "wide" else 6
        return torch.randint(-reach, reach, shape, generator=generator).to(dtype)
    if role == 0:
        return (draw + 0.1).to(dtype)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if style == "wide":
        values = values * 10 ** (3 * draw)
    rare: tuple[float, ...] = (1.0, -1.0) if style == "wide" else (0.0, 0.0, 1.0, -1.0)
    share = 0.1
    if style == "nan":
        rare, share = (float("nan"),), 0.08
    elif style == "special":
        limits = torch.finfo(dtype)
        rare = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, limits.max, limits.tiny, -1.0)
        share = 0.3
    pick = torch.randint(len(rare), shape, generator=generator)
    place = torch.rand(shape, generator=generator) < share
    return torch.where(place, torch.tensor(rare, dtype=torch.float64)[pick], values).to(dtype)


def tensors(rule: Rewrite, sample: Sample, style: str, seed: int) -> dict[str, Any]:
    """The variables' values: tensors filled in a style, numbers and attributes as they are."""
    generator = torch.Generator().manual_seed(seed)
    finite = {v for fact in rule.facts if fact.name == "finite" for v in fact.variables}

    def value(name: str, given: Any) -> Any:
        if isinstance(given, Scalar):
            return given.value
        if not isinstance(given, Meta):
            return given
        tame = name in finite and style in ("special", "nan")
        return fill(given, "plain" if tame else style, sample.roles.get(name), generator)

    return {name: value(name, given) for name, given in sample.values.items()}


def counterexample(rule: Rewrite, sample: Sample, style: str, seed: int) -> str | None:
    """How the sides differ on one filling of a sample; None where they are as equal as promised.

    Wide values may overflow: a result that the given program loses to that may become a better one.
    """
    values, oracle, evaluation = tensors(rule, sample, style, seed), Oracle(Texts()), Evaluation()
    for value in values.values():
        evaluation.noted(value)
    try:
        lefts = [run(s, sample.values, values, evaluation.operate, oracle) for s in rule.left]
    except REFUSALS:  # no value: nothing to compare
        return None
    for index in sample.pairs:
        try:
            right = run(rule.right[index], sample.values, values, evaluation.operate, oracle)
        except REFUSALS as error:
            return f"output {index}: the right side raises {error!r} with {sample} ({style} values)"
        numerics = RELAXED if style == "wide" and rule.numerics is not EXACT else rule.numerics
        found = difference(lefts[index], right, numerics, evaluation)
        if found is not None:
            return f"output {index}: {found} with {sample} ({style} values)"
    return None


def difference(left: Any, right: Any, numerics: Numerics, evaluation: Evaluation) -> str | None:
    """How two results differ, more than the rule's numerics allow."""
    if not isinstance(left, Tensor):
        left, right = (torch.tensor(v, dtype=torch.float64) for v in (left, right))
    if left.shape != right.shape or left.dtype != right.dtype:
        return f"{left.dtype}{list(left.shape)} against {right.dtype}{list(right.shape)}"
    if numerics is EXACT or not left.dtype.is_floating_point:
        wrong = ~same_bits(left, right)
    else:
        a, b = left.double(), right.double()
        close = (a - b).abs() <= evaluation.tolerance * evaluation.scale
        wrong = ~(close | (a == b) | (a.isnan() & b.isnan()))
        if numerics is RELAXED:
            wrong &= a.isfinite()
    if not wrong.any():
        return None
    place = tuple(int(i) for i in wrong.nonzero()[0])
    return f"{left[place].item()!r} became {right[place].item()!r} at {list(place)}"


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Where the bits agree; every NaN counts as the same."""
    if not a.dtype.is_floating_point:
        return a == b
    return ((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())


def direct(rule: Rewrite, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Left and right of the rule called as a Python function on real tensors."""
    return rule.rule(*(values[name] for name in rule.variables))
