"""The sides of a rule run on real tensors, compared as strictly as its numerics promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from eqsat.infer import Oracle
from eqsat.meta import Texts, meta_of
from eqsat.operators import OPERATORS
from eqsat.rewrite import EXACT, RELAXED, ROUNDING, Numerics, Rewrite
from eqsat.verify.counterexample import Counterexample, count, shown
from eqsat.verify.filling import tensors
from eqsat.verify.samples import Sample, run

REFUSALS = (RuntimeError, ArithmeticError, IndexError)
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.complex128: 1e-9,
    torch.complex64: 1e-4,
}
UNDERFLOW = 1e3  # how much more a relaxed rule may lose, to subnormal numbers
LENIENT = ("wide", "masked")  # styles in which what is lost to infinity may change
NARROW = (torch.float16, torch.bfloat16, torch.float32, torch.complex64)


class Evaluation:
    """Runs operators on real tensors; notes what rounding and overflow are judged by.

    These are the largest value met, the lowest precision, the nearest limit of a dtype, and whether
    a tensor was empty.
    """

    def __init__(self) -> None:
        self.scale = 1.0
        self.tolerance = 0.0
        self.limit = float("inf")
        self.empty = False

    def operate(self, name: str, children: list[Any], attributes: list[Any]) -> Any:
        """An operator on real tensors and numbers."""
        if name == "number":
            return self.noted(attributes[0])
        return self.noted(OPERATORS[name].evaluate(*children, *attributes))

    def noted(self, value: Any) -> Any:
        """The value, taken into account."""
        if isinstance(value, (int, float)) and abs(value) < float("inf"):
            self.scale = max(self.scale, float(abs(value)))
        if not isinstance(value, Tensor):
            return value
        if not value.numel():
            self.empty = True
            return value
        if value.dtype in TOLERANCE:
            self.tolerance = max(self.tolerance, TOLERANCE[value.dtype])
            self.limit = min(self.limit, torch.finfo(value.dtype).max)
        if value.dtype != torch.bool:
            size = value.abs()
            largest = float(size.amax())
            if not largest < float("inf"):
                largest = float(torch.where(size.isfinite(), size, 0.0).amax())
            self.scale = max(self.scale, largest)
        return value

    @property
    def overflows(self) -> bool:
        """Whether sums and products of values like these may exceed a dtype met."""
        return self.scale * 64 > self.limit


def counterexample(
    rule: Rewrite, sample: Sample, style: str, seed: int, numerics: Numerics | None = None
) -> Counterexample | None:
    """Where the sides differ on one filling of a sample; None where they are as equal as promised.

    Wide values may overflow: a result that the given program loses to that may become a better one.
    `numerics` is the promise, where not the rule's.
    """
    promise = rule.numerics if numerics is None else numerics
    values, oracle, evaluation = tensors(rule, sample, style, seed), Oracle(Texts()), Evaluation()

    def differing(reason: str, left: Any, right: Any) -> Counterexample:
        texts = tuple((name, shown(value)) for name, value in values.items())
        about = (str(sample), style, seed, texts, shown(left), shown(right), count(values))
        return Counterexample(reason, *about)

    with torch.no_grad():
        for value in values.values():
            evaluation.noted(value)
        try:
            lefts = [run(s, sample.values, values, evaluation.operate, oracle) for s in rule.left]
        except REFUSALS:  # no value: nothing to compare
            return None
        for index in sample.pairs:
            left = lefts[index]
            try:
                right = run(rule.right[index], sample.values, values, evaluation.operate, oracle)
            except REFUSALS as error:
                if evaluation.empty and isinstance(error, NotImplementedError):
                    continue  # the left side ran only because there was nothing to compute
                reason = f"output {index}: the right side raises {error!r}"
                return differing(reason, left, repr(error))
            found = difference(left, right, promise, evaluation, style in LENIENT)
            if found is None:
                continue
            wide = _agreed(rule, index, sample, values, promise)
            if wide is not None:
                kept, lenient = _without_strays(left, wide), style in LENIENT
                found = difference(kept, right, promise, evaluation, lenient, rounds=True)
            if found is not None:
                return differing(f"output {index}: {found}", left, right)
    return None


def _agreed(
    rule: Rewrite, index: int, sample: Sample, values: Mapping[str, Any], promise: Numerics
) -> Any:
    """The left side in double precision, if the right one equals it there; None if it does not.

    Then a difference between finite results in a narrower dtype is its rounding, much enlarged.
    """
    narrow = any(isinstance(v, Tensor) and v.dtype in NARROW for v in values.values())
    if promise is EXACT or not narrow:
        return None
    wide, evaluation, oracle = (
        {n: _widened(v) for n, v in values.items()},
        Evaluation(),
        Oracle(Texts()),
    )
    metas = {n: meta_of(v) if isinstance(v, Tensor) else sample.values[n] for n, v in wide.items()}
    try:
        left, right = (
            run(side[index], metas, wide, evaluation.operate, oracle)
            for side in (rule.left, rule.right)
        )
    except Exception:  # noqa: BLE001 - the rule does not apply to these dtypes
        return None
    double = evaluation.tolerance == TOLERANCE[torch.float64]
    if not double or difference(left, right, ROUNDING, evaluation, lenient=False) is not None:
        return None
    return left


def _without_strays(value: Any, wide: Any) -> Any:
    """The value without NaNs that double precision does not have.

    Products in bfloat16 carry the NaN of one row into the next on CPUs with AMX (torch 2.13).
    """
    if (
        not isinstance(value, Tensor)
        or not isinstance(wide, Tensor)
        or not value.dtype.is_floating_point
    ):
        return value
    stray = value.isnan() & ~wide.isnan()
    return torch.where(stray, wide.to(value.dtype), value)


def _widened(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.dtype not in NARROW:
        return value
    return value.to(torch.complex128 if value.dtype.is_complex else torch.float64)


def difference(
    left: Any,
    right: Any,
    numerics: Numerics,
    evaluation: Evaluation,
    lenient: bool,
    rounds: bool = False,
) -> str | None:
    """How two results differ, more than `numerics` allows.

    Where `lenient`, in what is finite on the left; where it `rounds`, in what is not finite.
    """
    if not isinstance(left, Tensor):
        left, right = (torch.tensor(v, dtype=torch.float64) for v in (left, right))
    if left.shape != right.shape or left.dtype != right.dtype:
        return f"{left.dtype}{list(left.shape)} against {right.dtype}{list(right.shape)}"
    if numerics is EXACT or left.dtype not in TOLERANCE:
        wrong = ~same_bits(left, right)
    else:
        a, b = (v.to(torch.complex128) if v.dtype.is_complex else v.double() for v in (left, right))
        slack = UNDERFLOW if numerics is RELAXED else 1.0
        close = (a - b).abs() <= slack * evaluation.tolerance * evaluation.scale
        wrong = ~(close | (a == b) | (a.isnan() & b.isnan()))
        if lenient or numerics is RELAXED:
            wrong &= a.isfinite()
        if evaluation.overflows or evaluation.empty:  # an empty sum holds no NaN of its operands
            wrong &= a.isfinite() & b.isfinite()
        elif a.is_complex():  # which part of a complex number is lost is up to the kernel
            wrong &= a.isfinite() | b.isfinite()
        if rounds:
            wrong &= ~(a.isfinite() & b.isfinite())
    if not wrong.any():
        return None
    place = tuple(int(i) for i in wrong.nonzero()[0])
    return f"{left[place].item()!r} became {right[place].item()!r} at {list(place)}"


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Where the bits agree; every NaN counts as the same."""
    if a.dtype.is_complex:
        parts = (torch.view_as_real(value.resolve_conj()) for value in (a, b))
        return same_bits(*parts).all(-1)
    if not a.dtype.is_floating_point:
        return a == b
    return ((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())


def direct(rule: Rewrite, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Left and right of the rule called as a Python function on real tensors."""
    return rule.rule(*(values[name] for name in rule.variables))
