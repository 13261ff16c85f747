"""What `eqsat tune` does: measure and fit a profile, or measure and rank equal programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from eqsat import contest
from eqsat.contest import PREDICTORS
from eqsat.cost.device import Device
from eqsat.cost.figure import FIGURES
from eqsat.cost.listing import errors
from eqsat.cost.profile import Profile, find
from eqsat.cost.tune import calibrate, measure
from eqsat.cost.tune.rank import LARGE, TIE, Ranked, misses, score
from eqsat.cost.tune.timer import Kind
from eqsat.table import table


def fit(
    place: Kind, like: str | None, out: Path | None, path: Path | None, refit: bool
) -> RenderableType:
    """Measures what is not measured yet (not if `refit`), fits and writes the profile.

    Raises ValueError where there is nothing to fit, or the fit is too far off.
    """
    prior = calibrate.prior_of(place, like) if not refit or like is None else find(like)
    path = calibrate.measurements_path(place) if path is None else path
    if refit:
        if not path.exists():
            raise ValueError(f"{path}: no such file; run without --refit to measure")
        measurements = measure.read(path)
    else:
        with _progress("measuring", path) as progress:
            measurements = calibrate.measure(place, prior, path, progress)
    profile = calibrate.fitted(measurements, prior)
    out = Path(f"{profile.name}.toml") if out is None else out
    calibrate.write(profile, out)
    assert profile.fit is not None
    return Group(
        Text(f"wrote {out}, fitted to the {len(measurements)} measurements of {path}"),
        *_changes(prior, profile),
        *errors(profile.fit),
        Text(f"\nuse it: eqsat optimize MODEL.pt2 -o OUT.pt2 --device {_as_path(out)}"),
    )


def rank(place: Kind, like: str | None, path: Path | None, plot: Path | None) -> RenderableType:
    """Times the groups of equal programs that are not timed yet, and ranks the predictors."""
    profile = calibrate.prior_of(place, like)
    path = (
        calibrate.measurements_path(place).with_stem(f"programs-{place}") if path is None else path
    )
    with _progress("timing", path) as progress:
        times = contest.measure(place, calibrate.device_name(place), path, progress)
    here = [one for one in times if one.device == calibrate.device_name(place)]
    programs = contest.ranked(here, Device.of(profile))
    if plot is not None:
        draw(programs, plot)
    return ranking(programs, profile.name)


def ranking(programs: Sequence[Ranked], device: str) -> RenderableType:
    """The scores of every predictor as one table, and the groups where the model is wrong."""
    rows: list[tuple[str, ...]] = []
    for key, name in PREDICTORS.items():
        one = score(programs, key)
        rows.append(
            (
                name,
                f"{one.accuracy:.2f}",
                f"{one.large_accuracy:.2f}",
                f"{one.tau:.2f}",
                f"{one.top:.2f}",
                f"{one.regret:.1%}",
                f"{one.worst:.0%}",
            )
        )
    one = score(programs, "model")
    groups = len({program.group for program in programs})
    head = Text(
        f"{len(programs)} programs in {groups} groups of equal ones, measured, ranked by the "
        f"profile {device}: {one.pairs} pairs differ by more than {TIE:.0%}, {one.large_pairs} by "
        f"more than {LARGE:.0%}"
    )
    columns = ("predictor", "pairs", f"pairs > {LARGE:.0%}", "tau", "top", "regret", "worst")
    missed = [(group, f"{regret:.0%}") for group, regret in misses(programs, "model")]
    return Group(
        head,
        *table("Right order, best found, time lost by the choice", columns, rows),
        *table("Groups where the model does not find the fastest", ("group", "slower by"), missed),
    )


def draw(programs: Sequence[Ranked], path: Path) -> None:
    """A plot of predicted over measured times, the programs of a group joined by a line."""
    wrong = {group for group, _ in misses(programs, "model")}
    with mpl.rc_context({"svg.hashsalt": "eqsat"}):
        figure = Figure(figsize=(6, 6), layout="constrained")
        axes = figure.subplots()
        groups = dict.fromkeys(program.group for program in programs)
        for group in groups:
            members = sorted(
                (p.seconds * 1e6, p.predicted["model"] * 1e6) for p in programs if p.group == group
            )
            color = "tab:red" if group in wrong else "tab:blue"
            axes.plot(*zip(*members, strict=True), "o-", color=color, alpha=0.6, markersize=4)
            if group in wrong:
                axes.annotate(group, members[-1], fontsize=7)
        low, high = axes.get_xlim()
        axes.plot([low, high], [low, high], color="gray", linewidth=0.5)
        axes.set(xscale="log", yscale="log", xlabel="measured us", ylabel="predicted us")
        axes.set_title("equal programs; red where the fastest is missed", fontsize=9)
        figure.savefig(path)


def _changes(prior: Profile, profile: Profile) -> list[RenderableType]:
    """The figures that the fit changed."""
    rows = [
        (key, _value(prior, key), _value(profile, key), figure.unit)
        for key, figure in FIGURES.items()
        if key in profile.figures and profile.figures[key] != prior.figures.get(key)
    ]
    return table("Figures that changed", ("figure", "prior", "fitted", "unit"), rows)


def _value(profile: Profile, key: str) -> str:
    return f"{profile.figures[key]:,.4g}" if key in profile.figures else "-"


def _as_path(path: Path) -> str:
    return str(path) if path.suffix == ".toml" or path.is_absolute() else f"./{path}"


@contextmanager
def _progress(what: str, path: Path) -> Generator[Callable[[int, int, str], None]]:
    """A bar on stderr; where the work is interrupted, a line that says what is kept."""
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=None)
            yield lambda done, of, name: progress.update(
                task, completed=done, total=of, description=name
            )
    except KeyboardInterrupt:
        print(f"what was measured is kept in {path}; run again to go on", file=sys.stderr)
        raise
