"""How cheap the selections of every extractor are after how many seconds, and what they prove."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fuzzing.egraphs import optimum, problem, random_egraph
from rich.console import Console
from rich.table import Table

from extract import EXTRACTORS, EGraph, Status, judge

RESULTS = Path(__file__).parent / "results"
LIMITS = (1.0, 3.0, 10.0)
SAME = 1e-6
"""Share by which costs may differ and count as equal."""


@dataclass(frozen=True)
class Record:
    """What an extractor found in an e-graph within `limit` seconds."""

    egraph: str
    enodes: int
    extractor: str
    limit: float
    cost: float
    bound: float
    status: str
    method: str
    seconds: float
    cpu: float

    @property
    def key(self) -> tuple[str, str, float]:
        """What is not measured twice."""
        return self.egraph, self.extractor, self.limit

    @property
    def is_final(self) -> bool:
        """Whether more time would change nothing: it is proven, or the clock stopped nothing."""
        return self.status == Status.OPTIMAL or self.seconds < 0.05 * self.limit


def main() -> int:
    """Measures the e-graphs of a folder, or tries random ones, and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="e-graphs as .json or .json.gz")
    parser.add_argument("--random", type=int, metavar="N", help="try N random e-graphs instead")
    parser.add_argument("--seed", type=int, default=0, help="the first random e-graph")
    parser.add_argument("--extractors", nargs="*", default=list(EXTRACTORS))
    parser.add_argument("--limits", nargs="*", type=float, default=list(LIMITS), help="seconds")
    parser.add_argument("--only", default="", help="e-graphs with this in their name")
    parser.add_argument("--out", type=Path, default=RESULTS / "extraction.jsonl")
    options = parser.parse_args()
    if unknown := sorted({*options.extractors} - {*EXTRACTORS}):
        parser.error(f"unknown extractor {unknown[0]}; there are {', '.join(EXTRACTORS)}")
    if options.random:
        return fuzz(range(options.seed, options.seed + options.random), options.extractors)
    if options.folder is None:
        parser.error("name a folder with e-graphs, or --random N")
    known = best_known(options.folder)
    names = [name for name in egraphs_in(options.folder, known) if options.only in name]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = read(options.out)
    for record in measured(options.folder, names, options.extractors, options.limits, done):
        with options.out.open("a") as file:
            file.write(json.dumps(asdict(record)) + "\n")
    wanted = {*names}
    records = [r for r in read(options.out) if r.egraph in wanted and r.extractor in EXTRACTORS]
    report(records, known)
    plot(records, known, options.out.with_suffix(".png"))
    return 0


def fuzz(seeds: range, extractors: Sequence[str]) -> int:
    """Holds extractors to their claims on random e-graphs; returns how many failed."""
    started, failures = time.perf_counter(), 0
    for seed in seeds:
        egraph = random_egraph(seed)
        least = optimum(egraph)
        for name in extractors:
            if wrong := problem(egraph, EXTRACTORS[name], least):
                failures += 1
                print(f"seed {seed}: {name}: {wrong}", flush=True)
        if (seed - seeds.start + 1) % 1000 == 0:
            print(f"{seed - seeds.start + 1} tried", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - started
    tried = f"{len(seeds)} random e-graphs, {len(extractors)} extractors"
    print(f"{tried}, {failures} problems in {seconds:.0f} s")
    return min(failures, 1)


def best_known(folder: Path) -> dict[str, float]:
    """The best known cost of e-graphs, where the folder has a `best_known.json`."""
    path = folder / "best_known.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    return {name: float(entry["best"]) for name, entry in entries.items()}


def egraphs_in(folder: Path, known: Mapping[str, float]) -> list[str]:
    """The files of a folder, small ones first: those whose best cost is known, if there are any."""
    paths = [folder / name for name in known if (folder / name).exists()]
    if not paths:
        paths = [*folder.rglob("*.json"), *folder.rglob("*.json.gz")]
    paths.sort(key=lambda path: (path.stat().st_size, path))
    return [path.relative_to(folder).as_posix() for path in paths]


def read(path: Path) -> list[Record]:
    """The records of an earlier run."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Record(**json.loads(line)) for line in lines]


def measured(
    folder: Path,
    names: Iterable[str],
    extractors: Sequence[str],
    limits: Sequence[float],
    done: Iterable[Record],
) -> Iterator[Record]:
    """What is not among the records yet, and that more time could change."""
    keys, final = {record.key for record in done}, {r.key[:2] for r in done if r.is_final}
    for name in names:
        egraph = None
        for extractor in extractors:
            for limit in sorted(limits):
                if (name, extractor, limit) in keys or (name, extractor) in final:
                    continue
                try:
                    egraph = egraph or EGraph.from_json(folder / name)
                except ValueError as error:
                    print(f"{name}: left out: {error}", file=sys.stderr)
                    break
                record = measure(name, egraph, extractor, limit)
                if record.is_final:
                    final.add(record.key[:2])
                yield record


def measure(name: str, egraph: EGraph, extractor: str, limit: float) -> Record:
    """One run, judged."""
    spent = time.process_time()
    selection = EXTRACTORS[extractor].extract(egraph, time_limit=limit)
    spent = time.process_time() - spent
    judge(egraph, selection)
    line = f"{name} {extractor} {limit:g} s: {selection.cost:.10g} {selection.status}"
    print(f"{line} in {selection.seconds:.2f} s", file=sys.stderr, flush=True)
    return Record(
        name,
        egraph.num_nodes,
        extractor,
        limit,
        selection.cost,
        selection.lower_bound,
        str(selection.status),
        selection.method,
        round(selection.seconds, 4),
        round(spent, 4),
    )


def at(records: Iterable[Record], limit: float) -> dict[tuple[str, str], Record]:
    """The last record of every e-graph and extractor up to a limit."""
    found: dict[tuple[str, str], Record] = {}
    for record in sorted(records, key=lambda record: record.limit):
        if record.limit <= limit or (record.is_final and record.seconds <= limit):
            found.setdefault(record.key[:2], record)
            if record.limit <= limit:
                found[record.key[:2]] = record
    return found


def report(records: Sequence[Record], known: Mapping[str, float]) -> None:
    """A table of the longest runs, a row a folder and extractor, and what could be cheaper."""
    last = at(records, math.inf)
    rows: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in last.values():
        folder = record.egraph.rpartition("/")[0] or "."
        for group in (folder, "all"):
            rows[group, record.extractor].append(record)
    columns = ("set", "extractor", "e-graphs", "proven", "sum of costs")
    table = Table(*columns, "above known", "below known", "seconds", "CPU")
    groups = sorted({group for group, _ in rows if group != "all"})
    for group in [*groups, "all"]:
        for extractor in EXTRACTORS:
            found = rows[group, extractor]
            if found:
                table.add_row(group, extractor, *_cells(found, known))
        table.add_section()
    Console(width=120).print(table)
    for extractor in EXTRACTORS:
        above = [r.egraph for r in rows["all", extractor] if _beside(r, known) > 0]
        if above and EXTRACTORS[extractor].claim == "dag-optimal":
            print(f"{extractor} is above the best known cost of {', '.join(sorted(above))}")
    greedy = {name: min(_greedy(last, name), default=math.inf) for name, _ in last}
    over = {r.key[:2] for r in last.values() if r.cost > greedy[r.egraph] * (1 + SAME)}
    names = sorted(name for name, extractor in over if extractor not in ("tree", "greedy-dag"))
    print(f"above the cheaper of tree and greedy-dag: {', '.join(names) or 'none'}")


def _greedy(last: Mapping[tuple[str, str], Record], name: str) -> Iterator[float]:
    for extractor in ("tree", "greedy-dag"):
        if (name, extractor) in last:
            yield last[name, extractor].cost


def _cells(found: Sequence[Record], known: Mapping[str, float]) -> list[str]:
    sides = [_beside(record, known) for record in found]
    return [
        str(len(found)),
        str(sum(record.status == Status.OPTIMAL for record in found)),
        f"{math.fsum(record.cost for record in found):.8g}",
        str(sides.count(1)),
        str(sides.count(-1)),
        f"{sum(record.seconds for record in found):.1f}",
        f"{sum(record.cpu for record in found):.1f}",
    ]


def _beside(record: Record, known: Mapping[str, float]) -> int:
    """1 above the best known cost, -1 below it, 0 at it or where none is known."""
    best = known.get(record.egraph, record.cost)
    return int(record.cost > best * (1 + SAME)) - int(record.cost < best * (1 - SAME))


def plot(records: Sequence[Record], known: Mapping[str, float], path: Path) -> None:
    """Draws, against seconds, the mean excess over the best cost and the share that is proven."""
    try:
        from matplotlib import pyplot
    except ImportError:
        print("no plot: pip install matplotlib", file=sys.stderr)
        return
    best = dict(known)
    for record in records:
        best[record.egraph] = min(best.get(record.egraph, math.inf), record.cost)
    limits = sorted({record.limit for record in records})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for extractor in dict.fromkeys(record.extractor for record in records):
        excess: list[float] = []
        share: list[float] = []
        for limit in limits:
            found = [r for (_, name), r in at(records, limit).items() if name == extractor]
            over = [r.cost / best[r.egraph] - 1 for r in found if best[r.egraph] > 0]
            excess.append(100 * sum(over) / max(1, len(over)))
            share.append(100 * sum(r.status == Status.OPTIMAL for r in found) / max(1, len(found)))
        left.plot(limits, excess, marker="o", label=extractor)
        right.plot(limits, share, marker="o", label=extractor)
    for axes, title in ((left, "mean excess over the best cost (%)"), (right, "proven (%)")):
        axes.set(xscale="log", xlabel="time limit (s)", title=title)
        axes.grid(alpha=0.3)
    left.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
