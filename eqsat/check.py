"""Whether a result does what the given program does, found by running both on probing inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any  # programs take and return arbitrary pytrees

from eqsat.difference import (
    contents,
    exact_difference,
    mean_movement,
    rounding_difference,
    structure,
)
from eqsat.observe import Inputs, Program, Run, first_line, observe, untouched_generators
from eqsat.probe import PROBES, attempts, nudged, probing, vacuous


@dataclass(frozen=True)
class Probe:
    """What one set of inputs showed.

    `difference` is empty when nothing differs. `skipped` says why a probe compared nothing; it
    then counts as passed. `max_error` is the largest finite |result - given|, divided by the
    largest finite |given| of that output where this is above one.
    """

    name: str
    passed: bool
    difference: str = ""
    max_error: float = 0.0
    skipped: str = ""


@dataclass(frozen=True)
class Check:
    """The verdict over all probes."""

    passed: bool
    max_error: float
    probes: tuple[Probe, ...]

    def __str__(self) -> str:
        ran = [probe for probe in self.probes if not probe.skipped]
        if self.passed:
            skipped = ", ".join(probe.name for probe in self.probes if probe.skipped)
            tail = f", skipped: {skipped}" if skipped else ""
            return f"passed {len(ran)} probes, largest error {self.max_error:.1e}{tail}"
        return "; ".join(f"FAILED {p.name}: {p.difference}" for p in self.probes if not p.passed)


def check(
    given: Program,
    result: Program,
    args: Sequence[Any] | None,
    kwargs: dict[str, Any] | None = None,
    *,
    numerics: str = "default",
    seed: int = 0,
    probes: Sequence[str] = PROBES,
) -> Check:
    """Returns whether `result` behaves as `given` on every probe.

    Both run under `no_grad`, on copies of the inputs that keep strides, overlap and aliasing. A
    module's buffers and constants (and the parameters, where it may write them) are put back
    after every run, so that the two may share weights. Global random state is left as it was.

    Probes: the `example` inputs as they are; `random` values with the mean and deviation of the
    example (bools too; integers, drawn from those of the example, when there is no float input);
    a few `nan`; a few +/-`inf`; half of the elements `zero` or -0.0; every element times a random
    power of two (`magnitude`); `integer` extremes of the dtype, without zero if the given program
    raises on them, drawn from the example's values if it still does or if extremes could end the
    process. Shapes stay those of the example.
    When the given program raises, the result must raise the same class of exception.

    Compared: pytree, types, values, dtype, shape, strides of dims longer than one, offset where
    an output is a view of an input or of state, conj and neg bits, object identity, aliasing among
    inputs, state and outputs, what was written to inputs and state, random generator state.

    `numerics="strict"` asks for equal bits (NaN positions, sign of Inf and of zero included).
    `"default"` asks |given - result| <= tol * (|given| + max(1, largest finite |given|)) with tol
    1e-9 (f64), 1e-5 (f32), 2e-3 (f16), 1.6e-2 (bf16): the noise of a reassociated sum is
    proportional to the largest values in it. A larger difference is still rounding if it is within
    16 times what the given program's output moves, on average, when each float input moves by one
    rounding. NaN and Inf must stand in the same places, except on the `inf` and `magnitude`
    probes, where places that are not finite in both are not compared; a complex number with a NaN
    or Inf need only be one in both. `"relaxed"` skips `nan` and `inf` and compares finite places
    only, but for the example. Integers and bools are bit-equal always.

    Raises ValueError without example inputs or for an unknown `numerics` or probe.
    """
    if numerics not in ("strict", "default", "relaxed"):
        raise ValueError(f'numerics is "strict", "default" or "relaxed", not {numerics!r}')
    if unknown := [name for name in probes if name not in PROBES]:
        raise ValueError(f"unknown probes {unknown}; the probes are {', '.join(PROBES)}")
    if args is None:
        raise ValueError("a check runs the programs: pass example inputs as args")
    pair = _Pair(given, result, (tuple(args), dict(kwargs or {})), numerics, seed)
    with untouched_generators():
        seen = tuple(_probe(pair, name) for name in probes)
    return Check(all(p.passed for p in seen), max((p.max_error for p in seen), default=0.0), seen)


@dataclass(frozen=True)
class _Pair:
    given: Program
    result: Program
    example: Inputs
    numerics: str
    seed: int


def _probe(pair: _Pair, name: str) -> Probe:
    """Returns what the probe of that name shows."""
    if pair.numerics == "relaxed" and name in ("nan", "inf"):
        return Probe(name, True, skipped='numerics="relaxed" promises nothing for NaN and Inf')
    if reason := vacuous(name, pair.given, pair.example):
        return Probe(name, True, skipped=reason)
    shown = Probe(name, True)
    for values in attempts(name, pair.given, pair.example):
        shown = _compare(pair, name, values)
        if not shown.skipped:
            break
    return shown


def _compare(pair: _Pair, name: str, values: str) -> Probe:
    """Returns what one run of each program on those values shows."""
    given = observe(pair.given, probing(pair.example, values, pair.seed), pair.seed)
    result = observe(pair.result, probing(pair.example, values, pair.seed), pair.seed)
    if given.error is not None:
        if type(given.error) is not type(result.error):
            got = "nothing" if result.error is None else type(result.error).__name__
            raised = type(given.error).__name__
            return Probe(name, False, f"the given program raises {raised}, the result {got}")
        if name == "example":
            reason = f"the given program raises {first_line(given.error)}"
            return Probe(name, False, f"nothing can be compared: on its example inputs {reason}")
        return Probe(name, True, skipped=f"both programs raise {first_line(given.error)}")
    if result.error is not None:
        return Probe(name, False, f"the result raises {first_line(result.error)}")
    if difference := structure(given, result):
        return Probe(name, False, difference)
    return _compare_contents(pair, name, values, given, result)


def _compare_contents(pair: _Pair, name: str, values: str, given: Run, result: Run) -> Probe:
    """Returns the comparison of tensor contents."""
    finite_only = name in ("inf", "magnitude") or (pair.numerics == "relaxed" and name != "example")
    noise = cache(partial(_noise, pair, values, given))
    worst, first = 0.0, ""
    for what, a, b in contents(given, result):
        if pair.numerics == "strict" or not (a.is_floating_point() or a.is_complex()):
            difference = exact_difference(a, b)
        else:
            error, difference = rounding_difference(
                a, b, finite_only=finite_only, noise=lambda what=what: noise().get(what, 0.0)
            )
            worst = max(worst, error)
        if difference and not first:
            first = f"{what}: {difference}"
    return Probe(name, not first, first, worst)


def _noise(pair: _Pair, values: str, given: Run) -> dict[str, float]:
    """Returns how much each output moves, on average, when float inputs move by one rounding."""
    moved = observe(pair.given, nudged(pair.example, values, pair.seed), pair.seed)
    if moved.error is not None or structure(given, moved):
        return {}
    return {what: mean_movement(a, b) for what, a, b in contents(given, moved)}
