"""The stage `tune`: the figures of the card, as `eqsat tune --device cuda` fits them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from eqsat.cost.device import Device
from eqsat.cost.figure import FIGURES
from eqsat.cost.tune import calibrate, measure, timer
from eqsat.cost.tune.measure import Measurement
from eqsat.cost.tune.microbench import Benchmark

from .bench import Bench
from .stage import COMPILE, Json, Rows, Stage, Step, T, spread_out


def _steps(bench: Bench) -> Generator[Step]:
    """The measurements that the file lacks, the classes in turns, so that each gets its share."""
    known = {one.key() for one in measure.read(bench.measurements)}
    classes: defaultdict[str, list[Benchmark]] = defaultdict(list)
    for one in bench.grid:
        if (one.group, one.name, bench.name, torch.__version__) not in known:
            classes[one.group].append(one)
    for one in _in_turns(map(spread_out, classes.values())):
        compiled = one.compiled and not bench.dry
        part, expected = ("compiled", COMPILE) if compiled else ("library", 0.3)
        yield Step(f"{one.group}: {one.name}", part, partial(_measured, bench, one), expected)


def _in_turns(lists: Iterable[Sequence[T]]) -> Iterator[T]:
    """The first of each list, then the second of each, and so on."""
    lists = list(lists)
    for i in range(max(map(len, lists), default=0)):
        yield from (items[i] for items in lists if i < len(items))


def _measured(bench: Bench, one: Benchmark) -> Json:
    line = Measurement(
        one.group, 1.0, one.kernels, one.name, one.mode, one.base, bench.name, torch.__version__
    )
    predicted = line.predicted(Device.of(bench.profile))
    if bench.dry:  # a clock by which a device is slower than its profile says
        spent = predicted * 1.2
    else:
        with timer.one_thread():
            spent = timer.seconds(one.call(bench.place), bench.place, one.mode)
    measure.append(bench.measurements, replace(line, seconds=spent))
    return {"seconds": spent, "predicted": predicted}


def _tables(bench: Bench, _: Rows) -> dict[str, list[Json]]:
    """Writes the profile; the figures that changed, and the error of each class."""
    profile = calibrate.fitted(measure.read(bench.measurements), bench.profile)
    calibrate.write(profile, bench.tuned)
    report = profile.fit
    assert report is not None
    changed = [
        {"figure": key, "prior": bench.profile.figures.get(key), "fitted": value,
         "unit": FIGURES[key].unit}
        for key, value in profile.figures.items()
        if value != bench.profile.figures.get(key)
    ]  # fmt: skip
    errors = [
        {"class": name, "n": one.n, "error": one.error, "held out": one.heldout}
        for name, one in report.classes.items()
    ]
    n, error, heldout = report.measurements, report.error, report.heldout
    errors.append({"class": "all", "n": n, "error": error, "held out": heldout})
    return {"Figures that changed": changed, "Errors of the fit, as factors": errors}


TUNE = Stage(
    "tune",
    0.26,
    lambda bench: (sum(one.compiled for one in bench.grid), COMPILE),
    _steps,
    _tables,
)
