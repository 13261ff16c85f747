"""The committed results: tables, the page and the rows, from what `eqsat compare` wrote."""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.zoo import PUBLISHED
from eqsat.compare.interval import verdict
from eqsat.compare.listing import by_entry, compared, measured_pairs, speedup
from eqsat.compare.task import ARMS, BACKTRACKING, FIXPOINT, GREEDY, SATURATION, STOCK
from eqsat.page import write
from eqsat.replacing import replacing

FOLDER = Path(__file__).parents[1] / "docs" / "results"
README = "README.md"
SETS = {
    "A": "Real models, as people deploy them",
    "B": "The benchmark set of TASO and TENSAT",
    "C": "Programs where the order of rewrites decides",
}
Row = dict[str, Any]
Table = Sequence[Sequence[str]]


def main() -> int:
    """Writes the rows (compressed), the page and the tables into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="results.jsonl of eqsat compare")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--name", default="zoo-small", help="of the page and the file of rows")
    parser.add_argument("--document", default=README, help="the file of the tables")
    parser.add_argument("--command", default="eqsat compare --zoo --small --jobs 2 -o out")
    options = parser.parse_args()
    text = options.results.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    if not rows:
        parser.error(f"{options.results} has no rows")
    if len(devices := sorted({row["profile"] for row in rows})) > 1:
        parser.error(f"{options.results} has rows for {', '.join(devices)}: one device a document")
    commands = f"{options.command}\n    python -m benchmarks.publish out/results.jsonl"
    if options.document != README:
        commands += f" --name {options.name} --document {options.document}"
    options.out.mkdir(parents=True, exist_ok=True)
    with replacing(options.out / f"{options.name}.jsonl.gz") as part:
        part.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    write(rows, options.out / f"{options.name}.html", "eqsat: the zoo")
    with replacing(options.out / options.document) as part:
        part.write_text(document(rows, options.name, commands), encoding="utf-8")
    return 0


def document(rows: Sequence[Row], name: str, commands: str) -> str:
    """What a person reads of the rows, as markdown; `commands` make it again."""
    parts = [*_opening(rows, name, commands)]
    for letter, title in SETS.items():
        some = [row for row in rows if row["set"] == letter]
        if some:
            parts += [f"## {letter}. {title}", _table(_predicted(some))]
            parts += [_against_published(some)] if letter == "B" else []
    parts += [*_measured(rows), *_expected(rows), *_errors(rows)]
    return "\n\n".join(parts) + "\n"


def _opening(rows: Sequence[Row], name: str, commands: str) -> Iterator[str]:
    first = rows[0]
    sizes = ", ".join(dict.fromkeys(row["size"] for row in rows))
    count = len(by_entry(rows))
    measured = any(row["measured"] for row in rows)
    where = "; what was measured stands below" if measured else "; no such device was there"
    yield f"# The zoo: {count} programs, {len(_arms(rows))} arms"
    yield (
        f"Sizes: {sizes}. Times are *predicted* for {first['profile']} by the cost model of "
        f"[docs/cost.md](../cost.md), of the kernels that Inductor makes for that device{where}. "
        f"torch {first['torch']}. Everything of each row is in [{name}.html]({name}.html), a page "
        f"that works offline, and in `{name}.jsonl.gz`."
    )
    yield f"To make it again:\n\n    {commands}"
    means = [(arm, speedup(rows, arm)) for arm in _arms(rows) if arm != STOCK]
    yield "How many times as fast as stock Inductor (geometric mean):"
    yield _table(
        [["arm", "predicted", "programs"]]
        + [[f"`{arm}`", f"{mean[0]:.2f}x", str(mean[1])] for arm, mean in means if mean]
    )
    lines = [["saturation against", "better", "equal", "worse"]]
    for other in (a for a in (GREEDY, FIXPOINT, BACKTRACKING) if a in _arms(rows)):
        found = compared(rows, SATURATION, other)
        cells = [str(len(found[how])) for how in ("better", "equal")]
        worse = f"{len(found['worse'])} {' '.join(found['worse'])}".strip()
        lines.append([f"`{other}`", *cells, worse])
    if len(lines) > 1:
        yield _table(lines)


def _predicted(rows: Sequence[Row]) -> Table:
    """An entry a line: microseconds and kernels of each arm, and what the search took."""
    arms = _arms(rows)
    lines = [["program", *arms, "optimizer", "stop", "gap"]]
    for name, some in by_entry(rows).items():
        times = [row["predicted"] for row in some.values() if row["predicted"]]
        best = min(times, default=math.nan)
        cells = [_cell(some.get(arm), best) for arm in arms]
        lines.append([name, *cells, *_search(some.get(SATURATION))])
    return lines


def _cell(row: Row | None, best: float) -> str:
    """Microseconds and kernels, in bold where nothing is predicted to be faster."""
    if row is None or row["predicted"] is None:
        return "-"
    text = f"{_micro(row['predicted'])} ({row['kernels']:,})"
    return f"**{text}**" if row["predicted"] <= best * 1.001 else text


def _search(row: Row | None) -> list[str]:
    if row is None or not row["optimizer"]:
        return ["-", "-", "-"]
    seconds = sum(row["optimizer"].values())
    gap = "-" if row["gap"] is None else f"{row['gap']:.1%}"
    return [f"{seconds:.1f} s", row["stop"] or "-", gap]


def _against_published(rows: Sequence[Row]) -> str:
    """The published figures beside ours, with their executor and with Inductor's kernels."""
    lines = [["program", "TASO", "TENSAT", "ours, a kernel an operator", "ours, Inductor's kernels",
              "TASO's seconds", "TENSAT's seconds", "our seconds"]]  # fmt: skip
    for name, some in by_entry(rows).items():
        published, stock, ours = PUBLISHED.get(name), some.get(STOCK), some.get(SATURATION)
        theirs = ["-"] * 4
        if published is not None:
            percents = (published.taso_percent, published.tensat_percent)
            seconds = (published.taso_seconds, published.tensat_seconds)
            theirs = [_or_dash(p, "{:+.1f} %") for p in percents]
            theirs += [_or_dash(s, "{:.1f}") for s in seconds]
        mine = ["-", "-", "-"]
        if stock is not None and ours is not None and ours["optimizer"]:
            mine = [_gain(stock, ours, key) for key in ("unfused", "predicted")]
            mine.append(f"{sum(ours['optimizer'].values()):.1f}")
        lines.append([name, *theirs[:2], *mine[:2], *theirs[2:], mine[2]])
    sources = dict.fromkeys(figures.source for figures in PUBLISHED.values())
    return (
        "By how much the optimized program is faster. Theirs were measured on a Tesla T4 against "
        "the unoptimized graph, one kernel an operator; ours are predicted, at the sizes of this "
        "page: first with the same executor, then with Inductor's fusion, against stock Inductor."
        "\n\n"
        f"{_table(lines)}\n\nPublished: {'; '.join(sources)}."
    )


def _gain(stock: Row, ours: Row, key: str) -> str:
    if not stock[key] or not ours[key]:
        return "-"
    return f"{stock[key] / ours[key] - 1:+.1%}".replace("%", " %")


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _measured(rows: Sequence[Row]) -> Iterator[str]:
    """What was measured on a CPU, against stock Inductor, with what is sure."""
    threads = sorted({n for row in rows for n in row["measured"] or ()})
    arms = [arm for arm in _arms(rows) if any(r["measured"] for r in rows if r["arm"] == arm)]
    for number in threads:
        lines = [["program", *arms]]
        for name, some in by_entry(rows).items():
            if any((row["measured"] or {}).get(number) for row in some.values()):
                lines.append([name, *(_time(some, arm, number) for arm in arms)])
        yield f"## Measured on a CPU, threads: {number}"
        yield (
            "Milliseconds (medians), and whether the intervals of the pairs say faster or slower "
            "than stock Inductor."
        )
        yield _table(lines)
        yield "\n".join(f"- {line}." for line in measured_pairs(rows, number))


def _time(some: Mapping[str, Row], arm: str, threads: str) -> str:
    found, stock = ((some[a]["measured"] or {}).get(threads) if a in some else None
                    for a in (arm, STOCK))  # fmt: skip
    if found is None:
        return "-"
    text = f"{found['median'] * 1e3:.3g}"
    if stock is None or arm == STOCK or len(stock["times"]) != len(found["times"]):
        return text
    ratios = [a / b for a, b in zip(stock["times"], found["times"], strict=True)]
    return f"{text} ({statistics.median(ratios):.2f}x, {verdict(found['times'], stock['times'])})"


def _expected(rows: Sequence[Row]) -> Iterator[str]:
    """What the zoo expects of saturation, and whether it was found."""
    lines = [["program", "expected", "found"]]
    for row in rows:
        if row["arm"] == SATURATION:
            found = [(claim["text"], claim["found"]) for claim in row["expected"]]
            lines += [[row["entry"], text, "yes" if there else "**no**"] for text, there in found]
    if len(lines) > 1:
        yield "## What saturation should find"
        yield f"{sum(line[2] == 'yes' for line in lines)} of {len(lines) - 1} found."
        yield _table(lines)


def _errors(rows: Sequence[Row]) -> Iterator[str]:
    lines = [[r["entry"], r["arm"], r["error"].replace("|", "\\|")] for r in rows if r["error"]]
    if lines:
        yield "## Errors"
        yield _table([["program", "arm", "error"], *lines])


def _arms(rows: Sequence[Row]) -> list[str]:
    there = {row["arm"] for row in rows}
    return [arm for arm in ARMS if arm in there]


def _micro(seconds: float) -> str:
    micro = seconds * 1e6
    return f"{micro:.3g}" if micro < 999.5 else f"{micro:,.0f}"


def _table(lines: Table) -> str:
    head, *rest = lines
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rest])


if __name__ == "__main__":
    sys.exit(main())
