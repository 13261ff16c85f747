"""Fits a profile to the device at hand: measure what is not measured yet, fit, write."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from platformdirs import user_data_path

from eqsat.cost.device import Device
from eqsat.cost.profile import Profile, find, render
from eqsat.cost.tune import fit
from eqsat.cost.tune.measure import Measurement, append, read
from eqsat.cost.tune.microbench import Benchmark, grid
from eqsat.cost.tune.timer import Kind, one_thread, seconds
from eqsat.replacing import replacing

Progress = Callable[[int, int, str], None]
"""Called with how many are done, of how many, and what is next."""


def device_name(place: Kind) -> str:
    """What the device at hand calls itself. Raises ValueError where there is none."""
    if place == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("torch sees no CUDA device: tune on the machine that has the card")
        return torch.cuda.get_device_name()
    return "cpu"


def prior_of(place: Kind, like: str | None = None) -> Profile:
    """The profile whose figures a fit starts from: the one named, or that of the device.

    Raises ValueError for a card that no profile is of.
    """
    name = device_name(place) if like is None else like
    try:
        prior = find(name)
    except ValueError as error:
        if like is not None:
            raise
        raise ValueError(f"{error}; or name the nearest one with --profile") from error
    if (prior.backend == "cpp") != (place == "cpu"):
        raise ValueError(f"the profile {prior.name} is not one of a {place} device")
    return prior


def measurements_path(place: Kind) -> Path:
    """Where the measurements of this device are kept if no file is named."""
    name = "".join(c if c.isalnum() else "-" for c in device_name(place).lower())
    return user_data_path("eqsat") / f"measurements-{name}.jsonl"


def measure(
    place: Kind, prior: Profile, path: Path, progress: Progress | None = None
) -> tuple[Measurement, ...]:
    """Every measurement of the file, after taking those of the grid that it lacks.

    Each is in the file as soon as it is taken: an interrupted run goes on where it stopped.
    """
    name = device_name(place)
    known = {one.key() for one in read(path)}
    benchmarks = [
        one
        for one in grid(Device.of(prior), place)
        if (one.group, one.name, name, torch.__version__) not in known
    ]
    with one_thread():
        for done, one in enumerate(benchmarks):
            if progress is not None:
                progress(done, len(benchmarks), f"{one.group} {one.name}")
            append(path, _measured(one, place, name))
    return read(path)


def _measured(one: Benchmark, place: Kind, device: str) -> Measurement:
    spent = seconds(one.call(place), place, one.mode)
    return Measurement(
        one.group, spent, one.kernels, one.name, one.mode, one.base, device, torch.__version__
    )


def fitted(measurements: Sequence[Measurement], prior: Profile) -> Profile:
    """The profile that the measurements of one device agree with; see `eqsat.cost.tune.fit`.

    Raises ValueError where it is too far off to be used, or the measurements are of many devices.
    """
    devices = sorted({one.device for one in measurements if one.device})
    if len(devices) > 1:
        raise ValueError(f"the measurements are of {len(devices)} devices: {', '.join(devices)}")
    profile = fit.fit(measurements, prior, datetime.date.today().isoformat())
    fit.refuse(profile)
    if prior.backend == "triton" and devices and devices[0] not in prior.match:
        return replace(profile, match=(devices[0],))
    return profile


def write(profile: Profile, path: Path) -> None:
    """Writes the file of a profile, whole or not at all."""
    with replacing(path) as part:
        part.write_text(render(profile), "utf-8")
