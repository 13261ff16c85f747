"""What a comparison shows on a terminal: the headline, the tables, and what went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eqsat.compare.interval import ratio, verdict
from eqsat.compare.task import (
    ARMS,
    BACKTRACKING,
    FIXPOINT,
    FREEZING,
    FROZEN,
    GREEDY,
    SATURATION,
    STOCK,
)

Row = dict[str, Any]
SAME = 1e-3
"""Of a predicted time: closer than that two programs are equal."""
SHORT = {
    "inductor-plain": "plain",
    "inductor-freezing": "freezing",
    "backtracking": "backtrack",
    "saturation": "saturation",
    "saturation-freezing": "sat+freez",
    "saturation-inductor": "sat+ind",
}
"""The headings of columns that need room."""
BEST = "bold green"
COLUMNS = 6
"""The most arms beside one another, so that a terminal of 80 characters has room for them."""


def listing(rows: Sequence[Row]) -> RenderableType:
    """All that a person reads of the rows of a result file."""
    parts: list[RenderableType] = []
    for place in dict.fromkeys((row["profile"], row["size"]) for row in rows):
        some = [row for row in rows if (row["profile"], row["size"]) == place]
        parts += [*_headline(some, *place), *_predicted(some), *_measured(some)]
    return Group(*parts, *_expected(rows), *_errors(rows))


def by_entry(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """The rows of one device, size and seed by entry and arm, in the order they come."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        name = row["entry"] if not row["seed"] else f"{row['entry']} #{row['seed']}"
        found.setdefault(name, {})[row["arm"]] = row
    return found


def speedup(rows: Sequence[Row], arm: str, over: str = STOCK) -> tuple[float, int] | None:
    """The geometric mean of how many times as fast an arm is predicted, and of how many entries.

    Of entries where both arms have a prediction; None where there is none.
    """
    ratios = [
        math.log(some[over]["predicted"] / some[arm]["predicted"])
        for some in by_entry(rows).values()
        if _seconds(some, arm) and _seconds(some, over)
    ]
    return (math.exp(sum(ratios) / len(ratios)), len(ratios)) if ratios else None


def compared(
    rows: Sequence[Row], arm: str, other: str, key: str = "predicted"
) -> dict[str, list[str]]:
    """The entries where `arm` is predicted to be better than `other`, equal, or worse."""
    found: dict[str, list[str]] = {"better": [], "equal": [], "worse": []}
    for name, some in by_entry(rows).items():
        a, b = _seconds(some, arm, key), _seconds(some, other, key)
        if a and b:
            how = "equal" if abs(a - b) <= SAME * b else "better" if a < b else "worse"
            found[how].append(name)
    return found


def _seconds(some: Mapping[str, Row], arm: str, key: str = "predicted") -> float | None:
    return some[arm].get(key) if arm in some else None


def _headline(rows: Sequence[Row], profile: str, size: str) -> Iterator[Text]:
    """The geometric means, and how saturation stands against each other search."""
    yield Text(f"\n{len(by_entry(rows))} programs ({size}) on {profile}", "bold")
    means = [(arm, speedup(rows, arm)) for arm in _arms(rows) if arm != STOCK]
    shown = [f"{arm} {mean[0]:.2f}x" for arm, mean in means if mean]
    if shown:
        yield Text(f"predicted, to stock Inductor (geometric mean): {', '.join(shown)}")
    for other in (GREEDY, FIXPOINT, BACKTRACKING):
        made, model = (compared(rows, SATURATION, other, key) for key in ("predicted", "modelled"))
        if any(made.values()):
            counts = ", ".join(f"{how} on {len(names)}" for how, names in made.items())
            yield Text(f"saturation against {other}: {counts}{_names(made['worse'])}")
        if model["worse"]:  # the searches' own price: theirs is a program that saturation has too
            yield Text(f"  worse by the model that both searches go by{_names(model['worse'])}")


def _names(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _predicted(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """An entry a line: predicted microseconds and kernels of each arm, the best marked."""
    arms, lines = _arms(rows), dict[str, list[Text]]()
    for name, some in by_entry(rows).items():
        times = [t for arm in some if (t := _seconds(some, arm))]
        best = min(times, default=0.0)
        lines[name] = [_cell(some.get(arm), best) for arm in arms]
    title = "Predicted microseconds, kernels (* the best, ~ kernels are the model's)"
    yield from _tables(title, arms, lines)


def _tables(
    title: str, arms: Sequence[str], lines: Mapping[str, Sequence[Text]]
) -> Iterator[RenderableType]:
    """A line for each program, a column for each arm, in as few tables as have room for them."""
    tables = -(-len(arms) // COLUMNS)
    wide = -(-len(arms) // tables)
    for start in range(0, len(arms), wide):
        grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        grid.add_column("program", overflow="fold", min_width=7)
        for arm in arms[start : start + wide]:
            grid.add_column(SHORT.get(arm, arm), justify="right", no_wrap=True)
        for name, cells in lines.items():
            grid.add_row(name, *cells[start : start + wide])
        yield Text(f"\n{title}", "bold cyan")
        yield grid


def _arms(rows: Sequence[Row]) -> list[str]:
    """The arms that there are rows of, in their order."""
    present = {row["arm"] for row in rows}
    return [arm for arm in ARMS if arm in present]


def _cell(row: Row | None, best: float) -> Text:
    if row is None:
        return Text("")
    if row["predicted"] is None:
        return Text("error", "bold red")
    marks = "*" if row["predicted"] <= best * (1 + SAME) else " "
    marks = "~" + marks if row["kernel_source"] == "model" and row["arm"] != "eager" else marks
    text = f"{_micro(row['predicted'])} {row['kernels']:,}{marks}"
    return Text(text, BEST if "*" in marks else "")


def _micro(seconds: float) -> str:
    micro = seconds * 1e6
    return f"{micro:.3g}" if micro < 999.5 else f"{micro:,.0f}"


def _measured(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """For each number of threads: the medians, and what is faster than stock Inductor for sure."""
    for threads in sorted({n for row in rows for n in row["measured"] or ()}):
        arms = _arms(rows)
        lines = {
            name: [_time(some, arm, threads) for arm in arms]
            for name, some in by_entry(rows).items()
            if any(threads in (row["measured"] or ()) for row in some.values())
        }
        title = f"Measured milliseconds on this CPU, threads: {threads} (+ faster, - slower than "
        yield from _tables(f"{title}stock Inductor, = no difference that is sure)", arms, lines)
        yield from map(Text, measured_pairs(rows, threads))


def measured_pairs(rows: Sequence[Row], threads: str) -> Iterator[str]:
    """How often the result of saturation is faster for sure, compiled as the given program is."""
    for arm, base in ((SATURATION, STOCK), (FROZEN, FREEZING)):
        found: dict[str, list[str]] = {}
        for name, some in by_entry(rows).items():
            pair = [_times(some, one, threads) for one in (arm, base)]
            if pair[0] is not None and pair[1] is not None:
                sure = verdict(pair[0]["times"], pair[1]["times"])
                found.setdefault(sure, []).append(name)
        if found:
            counts = ", ".join(f"{sure} on {len(names)}" for sure, names in sorted(found.items()))
            yield f"{arm} against {base}: {counts}{_names(found.get('slower', ()))}"


def _time(some: Mapping[str, Row], arm: str, threads: str) -> Text:
    found = _times(some, arm, threads)
    if found is None:
        return Text("")
    text = f"{found['median'] * 1e3:.3g}"
    stock = _times(some, STOCK, threads)
    if stock is None or arm == STOCK or len(stock["times"]) != len(found["times"]):
        return Text(f"{text} ")
    sure = verdict(found["times"], stock["times"])
    style = {"faster": BEST, "slower": "red"}.get(sure, "")
    times = ratio(found["times"], stock["times"]).median
    mark = {"faster": "+", "slower": "-"}.get(sure, "=")
    return Text(f"{text} {times:.2f}x{mark}", style)


def _times(some: Mapping[str, Row], arm: str, threads: str) -> Row | None:
    return (some[arm]["measured"] or {}).get(threads) if arm in some else None


def _expected(rows: Sequence[Row]) -> Iterator[Text]:
    """What a search should have found, and did not."""
    claims = [(row, claim) for row in rows if row["arm"] == SATURATION for claim in row["expected"]]
    if not claims:
        return
    found = sum(claim["found"] for _, claim in claims)
    yield Text(f"\nExpected of saturation: {found} of {len(claims)} found", "bold cyan")
    for row, claim in claims:
        if not claim["found"]:
            yield Text(f"not found on {row['profile']}: {row['entry']}: {claim['text']}")


def _errors(rows: Sequence[Row]) -> Iterator[Text]:
    """What went wrong."""
    wrong = [row for row in rows if row["error"]]
    if wrong:
        yield Text(f"\nErrors: {len(wrong)}", "bold red")
    for row in wrong:
        where = f"{row['entry']} ({row['size']}), {row['arm']} on {row['profile']}"
        yield Text(f"{where}: {row['error']}")
