"""Figures for a paper, as PDF and SVG, from the rows that `eqsat compare` writes."""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import extraction
import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

mpl.use("Agg")

Row = Mapping[str, Any]
BASE, BEST = "inductor", "saturation"
ARMS = {
    "eager": ("eager", "#8b94a1"),
    "inductor-plain": ("Inductor, no patterns", "#6a7482"),
    "inductor": ("Inductor", "#b8742a"),
    "inductor-freezing": ("Inductor, freezing", "#d4a72c"),
    "sharing": ("sharing, no rules", "#5d6f4f"),
    "greedy": ("greedy", "#2fa08c"),
    "fixpoint": ("greedy to a fixpoint", "#7d9a2c"),
    "backtracking": ("backtracking", "#a259b5"),
    "saturation": ("saturation", "#2457c5"),
    "saturation-freezing": ("saturation, freezing", "#3f8fd0"),
    "saturation-inductor": ("saturation, with Inductor's rules", "#c43d6b"),
}
"""The name and the colour of every arm, in order; the colours are those of the page."""
STYLE: dict[Any, Any] = {  # Any: matplotlib lists the keys
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "eqsat",  # equal rows make equal files
}


@dataclass(frozen=True)
class Results:
    """The rows of one size and device: one for each entry and arm, that in the middle of seeds."""

    rows: Mapping[tuple[str, str], Row]

    @staticmethod
    def of(rows: Iterable[Row], size: str, profile: str) -> Results:
        """Those rows of `rows` that did not fail."""
        seeds: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in rows:
            if (row["size"], row["profile"]) == (size, profile) and row["error"] is None:
                seeds[row["entry"], row["arm"]].append(row)
        return Results({key: _middle(found) for key, found in seeds.items()})

    @property
    def entries(self) -> list[str]:
        """The names of the programs, in order."""
        return list(dict.fromkeys(entry for entry, _ in self.rows))

    @property
    def arms(self) -> list[str]:
        """The arms that there are, in order."""
        there = {arm for _, arm in self.rows}
        return [arm for arm in ARMS if arm in there]

    def of_arm(self, arm: str) -> list[Row]:
        """The rows of one arm."""
        return [row for (_, name), row in self.rows.items() if name == arm]

    def speedup(self, entry: str, arm: str, base: str = BASE) -> float | None:
        """How many times as fast as `base` an arm is predicted to be."""
        there = [self.rows.get((entry, name), {}).get("predicted") for name in (base, arm)]
        return there[0] / there[1] if there[0] and there[1] else None

    def measured(self, entry: str, arm: str, base: str = BASE) -> float | None:
        """How many times as fast as `base` it was measured to be, with the fewest threads."""
        medians = [_median(self.rows.get((entry, name), {})) for name in (base, arm)]
        return medians[0] / medians[1] if medians[0] and medians[1] else None


def main() -> int:
    """Draws every figure for which the file has rows, and says which."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="the JSON lines of eqsat compare")
    parser.add_argument("-o", "--out", type=Path, default=Path("figures"), help="a folder")
    parser.add_argument("--size", help="full or small; by default that of the first row")
    parser.add_argument("--profile", help="a device; by default that of the first row")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines() if line]
    if not rows:
        parser.error(f"{options.results} has no rows")
    size, profile = options.size or rows[0]["size"], options.profile or rows[0]["profile"]
    results = Results.of(rows, size, profile)
    if not results.rows:
        parser.error(f"no row of size {size!r} on {profile!r} without an error")
    options.out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, figure in figures(results, profile):
            for path in save(figure, options.out / name):
                print(path)
        for path in anytime(options.out / "extractors"):
            print(path)
    return 0


def figures(results: Results, profile: str) -> Iterator[tuple[str, Figure]]:
    """Each figure that the rows have data for, with its name."""
    if any(arm != BASE for arm in results.arms) and results.of_arm(BASE):
        yield "speedup", speedups(results, profile)
    searched = [row for row in results.of_arm(BEST) if row["optimizer"]]
    if searched:
        yield "optimizer", steps(searched)
        yield "size", by_size(results)
    if any(len(row["iterations"]) > 1 for row in searched):
        yield "growth", growth(searched)
    families = by_layers(results)
    if families:
        yield "layers", layers(families)
    if any(_median(row) for row in results.of_arm(BASE)):
        yield "measured", against(results, profile)


def save(figure: Figure, path: Path) -> Iterator[Path]:
    """Write a figure as PDF and SVG, without the date."""
    for suffix, date in ((".pdf", "CreationDate"), (".svg", "Date")):
        figure.savefig(path.with_suffix(suffix), bbox_inches="tight", metadata={date: None})
        yield path.with_suffix(suffix)
    pyplot.close(figure)


def speedups(results: Results, profile: str) -> Figure:
    """A dot for each entry and arm, the best entries on top; the geometric mean below."""
    shown = [arm for arm in results.arms if arm != BASE]
    best = {e: results.speedup(e, BEST) or 1.0 for e in results.entries}
    entries = sorted(results.entries, key=lambda e: best[e])
    figure, axes = pyplot.subplots(figsize=(6.5, 1.4 + 0.2 * (len(entries) + 1)))
    for arm in shown:
        label, colour = ARMS[arm]
        found = [(e, results.speedup(e, arm)) for e in entries]
        there = [(place, s) for place, (_, s) in enumerate(found, 1) if s]
        if not there:
            continue
        places, values = [p for p, _ in there], [s for _, s in there]
        size = 20 if arm == BEST else 34
        axes.scatter(
            values, places, s=size, color=colour, label=label, zorder=4 if arm == BEST else 2
        )
        mean = statistics.geometric_mean(values)
        axes.scatter([mean], [0], s=size + 10, color=colour, marker="D", zorder=3)
    axes.axvline(1, color="#888888", linewidth=0.8, zorder=1)
    axes.axhline(0.5, color="#888888", linewidth=0.6)
    axes.set_yticks(range(len(entries) + 1), ["geometric mean", *entries])
    axes.set(xscale="log", xlabel=f"predicted speed-up over Inductor ({profile})")
    _plain_ticks(axes, "x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)
    return figure


def steps(rows: Sequence[Row]) -> Figure:
    """The optimizer's seconds by step, the longest on top."""
    rows = sorted(rows, key=lambda row: sum(row["optimizer"].values()))
    names = list(dict.fromkeys(step for row in rows for step in row["optimizer"]))
    colours = mpl.colormaps["tab20"].colors  # pyright: ignore[reportAttributeAccessIssue] - listed
    figure, axes = pyplot.subplots(figsize=(6.5, 1.4 + 0.2 * len(rows)))
    left = [0.0] * len(rows)
    for number, name in enumerate(names):
        spent = [row["optimizer"].get(name, 0.0) for row in rows]
        axes.barh(range(len(rows)), spent, left=left, color=colours[number % 20], label=name)
        left = [a + b for a, b in zip(left, spent, strict=True)]
    axes.set_yticks(range(len(rows)), [row["entry"] for row in rows])
    axes.set(xlabel="seconds of the optimizer (saturation)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize=8)
    return figure


def by_size(results: Results) -> Figure:
    """The optimizer's seconds of every search against the nodes of the program."""
    figure, axes = pyplot.subplots(figsize=(4.2, 3.2))
    for arm in results.arms:
        rows = [row for row in results.of_arm(arm) if row["optimizer"] and row["graph_before"]]
        if rows:
            nodes = [len(row["graph_before"]["nodes"]) for row in rows]
            spent = [sum(row["optimizer"].values()) for row in rows]
            label, colour = ARMS[arm]
            axes.scatter(nodes, spent, s=18, color=colour, label=label, alpha=0.85)
    axes.set(xscale="log", yscale="log", xlabel="nodes of the program", ylabel="optimizer (s)")
    _plain_ticks(axes, "xy")
    axes.legend(fontsize=8)
    return figure


def growth(rows: Sequence[Row]) -> Figure:
    """The rows of the e-graph after every iteration; the largest are named."""
    figure, axes = pyplot.subplots(figsize=(5.2, 3.4))
    rows = [row for row in rows if row["iterations"]]
    largest = sorted(rows, key=lambda row: -row["iterations"][-1]["enodes"])[:6]
    for row in rows:
        sizes = [one["enodes"] for one in row["iterations"]]
        named = row in largest
        colour = f"C{largest.index(row)}" if named else "#b7bec8"
        label = row["entry"] if named else None
        axes.plot(
            range(1, len(sizes) + 1), sizes, color=colour, label=label, zorder=3 if named else 2
        )
    axes.set(yscale="log", xlabel="iteration", ylabel="rows of the e-graph")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8)
    return figure


def by_layers(results: Results) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """The optimizer's seconds by layers, where entries are called so (`bert-12-layers`)."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for (entry, arm), row in results.rows.items():
        match = re.fullmatch(r"(.+)-(\d+)-layers?", entry)
        if match and row["optimizer"]:
            spent = sum(row["optimizer"].values())
            found[match[1], arm].append((int(match[2]), spent))
    return {key: sorted(points) for key, points in found.items() if len(points) > 1}


def layers(families: Mapping[tuple[str, str], Sequence[tuple[int, float]]]) -> Figure:
    """The optimizer's seconds against the number of layers."""
    figure, axes = pyplot.subplots(figsize=(4.6, 3.2))
    for (family, arm), points in families.items():
        counts, spent = zip(*points, strict=True)
        axes.plot(counts, spent, marker="o", markersize=4, label=f"{family}, {ARMS[arm][0]}")
    axes.set(xscale="log", yscale="log", xlabel="layers", ylabel="optimizer (s)")
    _plain_ticks(axes, "xy")
    axes.legend(fontsize=8)
    return figure


def against(results: Results, profile: str) -> Figure:
    """The measured speed-up of every entry and arm against the predicted one."""
    figure, axes = pyplot.subplots(figsize=(4.2, 4.2))
    values = [1.0]
    for arm in results.arms:
        pairs = [(results.speedup(e, arm), results.measured(e, arm)) for e in results.entries]
        there = [(x, y) for x, y in pairs if x and y]
        if arm != BASE and there:
            x, y = zip(*there, strict=True)
            axes.scatter(x, y, s=18, color=ARMS[arm][1], label=ARMS[arm][0], alpha=0.85, zorder=2)
            values += [*x, *y]
    ends = (min(values) * 0.95, max(values) * 1.05)
    axes.plot(ends, ends, color="#888888", linewidth=0.8, linestyle="--", zorder=1)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel=f"predicted speed-up over Inductor ({profile})")
    axes.set(ylabel="measured on a CPU")
    _plain_ticks(axes, "xy")
    axes.legend(fontsize=8)
    return figure


def anytime(path: Path) -> Iterator[Path]:
    """The excess cost and the proven share of each extractor against its time limit."""
    records = extraction.read(extraction.RESULTS / "extraction.jsonl")
    for suffix in (".pdf", ".svg"):
        extraction.plot(records, {}, path.with_suffix(suffix))
        yield path.with_suffix(suffix)


def _middle(rows: Sequence[Row]) -> Row:
    return sorted(rows, key=lambda row: row["predicted"] or math.inf)[(len(rows) - 1) // 2]


def _median(row: Row) -> float | None:
    """The measured seconds with the fewest threads."""
    measured = row.get("measured") or {}
    threads = min(measured, key=int, default=None)
    return None if threads is None or not measured[threads] else measured[threads]["median"]


def _plain_ticks(axes: Axes, which: str) -> None:
    """Write numbers, not powers of ten."""
    for axis in (getattr(axes, f"{name}axis") for name in which):
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
        low, high = axis.get_view_interval()
        steps = (1, 2, 5) if high / low > 8 else (1, 1.25, 1.5, 2, 3, 5, 7)
        ticks = [step * 10**power for power in range(-3, 6) for step in steps]
        axis.set_ticks([t for t in ticks if low <= t <= high])


if __name__ == "__main__":
    sys.exit(main())
