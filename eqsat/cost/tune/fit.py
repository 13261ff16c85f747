"""The figures of a profile that measurements agree with best, and how well they agree."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from eqsat.cost.device import Device
from eqsat.cost.figure import FIGURES
from eqsat.cost.profile import ClassFit, Fit, Profile
from eqsat.cost.tune.measure import Measurement

FOLDS = 5
SEED = 0
SOFT = 0.2
"""An error in log space above which a measurement pulls less: an outlier does not rule the fit."""
EVALUATIONS = 100
WORST = 1.5
"""The held-out error above which a profile is of no use."""


@dataclass(frozen=True)
class Free:
    """A figure that is fitted, and how far from its prior it may be.

    A `spread` of 0.3 makes a departure by a third as unlikely as an error of a fifth.
    """

    key: str
    spread: float
    start: float = 1.0
    """Where the profile has no figure of its own."""
    factor: float = 30.0
    """The bounds: the prior by it and over it, and at most 1 for a share."""


FREE: Mapping[str, tuple[Free, ...]] = {
    "triton": (
        Free("compute.efficiency", 0.3),
        Free("compute.pointwise", 0.5),
        Free("compute.exp", 0.5),
        Free("memory.dram_efficiency", 0.2),
        Free("memory.l2_gbs", 0.7),
        Free("memory.strided_efficiency", 1.0, 0.5),
        Free("launch.stream", 1.0),
        Free("launch.graph", 1.0),
        Free("launch.base", 1.5),
    ),
    # The peak of a core is not in its name: it is fitted, as a share that is given.
    "cpp": (
        Free("compute.fp32", 2.0),
        Free("compute.pointwise", 2.0, 0.02),
        Free("compute.exp", 2.0, 0.001),
        Free("memory.dram_gbs", 1.0),
        Free("memory.l2_mb", 0.7),
        Free("memory.l2_gbs", 1.0, 40.0),
        Free("memory.strided_efficiency", 2.0, 0.3),
        Free("launch.stream", 1.5),
        Free("launch.base", 1.5),
        Free("gemm.half_m", 1.5, 2.0),
        Free("gemm.half_n", 1.5, 4.0),
        Free("gemm.half_k", 1.5, 8.0),
    ),
}


def fit(measurements: Sequence[Measurement], prior: Profile, date: str) -> Profile:
    """The profile nearest to the measurements, with its `fit`: errors by class, held-out too.

    The errors are in log space and soft (`SOFT`), the figures of `prior` pull with the strength
    that `FREE` gives them. Held-out errors are those of measurements left out of the fit, a fifth
    at a time. Raises ValueError for fewer measurements than figures.
    """
    free = FREE[prior.backend]
    if len(measurements) < len(free) + FOLDS:
        raise ValueError(
            f"{len(measurements)} measurements do not fit {len(free)} figures: take at least "
            f"{len(free) + FOLDS}"
        )
    figures = _fitted(measurements, prior, free)
    device = Device.of(replace(prior, figures=figures))
    errors = [_error(one, device) for one in measurements]
    heldout = _heldout(measurements, prior, free)
    groups = tuple(dict.fromkeys(one.group for one in measurements))
    members = {g: [i for i, one in enumerate(measurements) if one.group == g] for g in groups}
    classes = {
        group: ClassFit(
            len(which), _mean([errors[i] for i in which]), _mean([heldout[i] for i in which])
        )
        for group, which in members.items()
    }
    torch = max((one.torch for one in measurements), default="")
    report = Fit(date, torch, len(measurements), _mean(errors), _mean(heldout), classes)
    measured = f"measured: fitted to {len(measurements)} timings, torch {torch}, {date}"
    sources = {**dict.fromkeys([one.key for one in free], measured), **_tied(prior)}
    return replace(
        prior,
        figures={key: _rounded(figures[key]) for key in FIGURES if key in figures},
        sources={**prior.sources, **sources},
        unconfirmed=tuple(key for key in prior.unconfirmed if key not in sources),
        fit=report,
    )


def refuse(profile: Profile) -> None:
    """Raises ValueError where a fit is too far off to be used, and names the worst class."""
    report = profile.fit
    assert report is not None
    if report.heldout <= WORST:
        return
    worst = max(report.classes, key=lambda name: report.classes[name].heldout)
    raise ValueError(
        f"the held-out error is x{report.heldout:.2f}, above x{WORST}: no profile is written. The "
        f"worst class is {worst} (x{report.classes[worst].heldout:.2f}): measure again on a quiet "
        "machine, or look at its measurements"
    )


def _tied(prior: Profile) -> dict[str, str]:
    """The figures that follow from fitted ones, and how."""
    if prior.backend != "cpp":
        return {}
    tied = {"launch.graph": "as launch.stream: a CPU has no graphs", "compute.fp64": "half of fp32"}
    return {key: how for key, how in tied.items() if key in prior.figures}


def _with(prior: Profile, free: Sequence[Free], logs: NDArray[np.float64]) -> dict[str, float]:
    """The figures of `prior` with the free ones in place."""
    values = {one.key: math.exp(log) for one, log in zip(free, logs, strict=True)}
    figures = {**prior.figures, **values}
    if prior.backend == "cpp":
        figures["launch.graph"] = figures["launch.stream"]
        if "compute.fp64" in prior.figures:
            figures["compute.fp64"] = figures["compute.fp32"] / 2
    return figures


def _fitted(
    measurements: Sequence[Measurement], prior: Profile, free: Sequence[Free]
) -> dict[str, float]:
    """The figures at the least sum of soft squares."""
    starts = np.array([math.log(prior.figures.get(one.key, one.start)) for one in free])
    spreads = np.array([one.spread for one in free])
    low = starts - np.log([one.factor for one in free])
    high = starts + np.log([one.factor for one in free])
    shares = np.array([FIGURES[one.key].share for one in free])
    high = np.where(shares, np.minimum(high, 0.0), high) + 1e-9

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        device = Device.of(replace(prior, figures=_with(prior, free, logs)))
        errors = [_error(one, device) for one in measurements]
        return np.array([*errors, *(SOFT * (logs - starts) / spreads)])

    found = least_squares(
        residuals, starts, bounds=(low, high), loss="soft_l1", f_scale=SOFT, max_nfev=EVALUATIONS
    )
    return _with(prior, free, found.x)


def _heldout(
    measurements: Sequence[Measurement], prior: Profile, free: Sequence[Free]
) -> list[float]:
    """The error of each measurement under a fit that it took no part in."""
    order = list(range(len(measurements)))
    random.Random(SEED).shuffle(order)
    errors = [0.0] * len(order)
    for fold in range(FOLDS):
        out = set(order[fold::FOLDS])
        kept = [one for i, one in enumerate(measurements) if i not in out]
        device = Device.of(replace(prior, figures=_fitted(kept, prior, free)))
        for i in out:
            errors[i] = _error(measurements[i], device)
    return errors


def _error(measurement: Measurement, device: Device) -> float:
    """Predicted to measured, as a logarithm."""
    return math.log(measurement.predicted(device) / measurement.seconds)


def _mean(errors: Sequence[float]) -> float:
    """The geometric mean of errors, each as a factor of at least 1."""
    return _rounded(math.exp(math.fsum(map(abs, errors)) / len(errors)))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
