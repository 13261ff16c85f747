"""What `eqsat compare` does: choose tasks, find their rows, keep them, show them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from eqsat.compare import arms, program, results
from eqsat.compare.listing import listing
from eqsat.compare.program import FULL, SETS, SMALL, Source
from eqsat.compare.ray import on_ray
from eqsat.compare.runner import processes
from eqsat.compare.task import ARMS, Failure, Key, Options, Task, blank
from eqsat.cost.device import load
from eqsat.page import write

FILE, PAGE = "results.jsonl", "page.html"
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """How tasks are run: in how many processes, with how many seconds each, or where else."""

    jobs: int = 1
    timeout: float = 1800.0
    ray: str | None = None
    measure: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class Choice:
    """What is compared."""

    programs: Sequence[str] = ()
    zoo: bool = False
    sizes: Sequence[str] = (SMALL,)
    sets: Sequence[str] = SETS
    entries: Sequence[str] = ()
    arms: Sequence[str] = ARMS
    profiles: Sequence[str] = ("h200",)
    seeds: Sequence[int] = (0,)
    options: Options = field(default_factory=Options)


def compare(choice: Choice, output: Path, run: Run) -> tuple[RenderableType, bool]:
    """What a person reads of the comparison, and whether every row was found.

    Rows go to `results.jsonl` in the folder `output` as they come; those that are there already
    are not found again. The page is written beside it. Ctrl-C keeps all rows that were found.

    Raises ValueError for a choice of nothing, and for a file that was made otherwise.
    """
    tasks = chosen(choice)
    path = output / FILE
    output.mkdir(parents=True, exist_ok=True)
    if run.fresh:
        path.unlink(missing_ok=True)
    rows = results.read(path)
    made = results.headers(tasks, choice.options)
    results.require_same(rows, tasks, made, path)
    try:
        _find(tasks, rows, made, choice.options, path, run)
        if run.measure:
            _measure(tasks, rows, choice.options, path, run)
    except KeyboardInterrupt:
        found = sum(task.key in rows for task in tasks)
        print(f"{found} of {len(tasks)} rows are in {path}: run it again to go on", file=sys.stderr)
        raise
    finally:
        ordered = _ordered(rows, tasks)
        results.write(path, ordered)
    asked = [rows[task.key] for task in tasks]
    write(ordered, output / PAGE)
    return listing(asked), not any(row["error"] for row in asked)


def chosen(choice: Choice) -> list[Task]:
    """The tasks of a choice, those of one program after another.

    Raises ValueError for a name that does not exist, or where nothing is left to compare.
    """
    for name in choice.arms:
        if name not in ARMS:
            raise ValueError(f"arm {name!r}: one of {', '.join(ARMS)}")
    devices = {profile: load(profile).name for profile in choice.profiles}
    sources = _sources(choice)
    return [
        Task(source, name, size, arm, profile, device, seed)
        for name, source in sources.items()
        for size in (choice.sizes if source.entry is not None else (FULL,))
        for seed in dict.fromkeys(choice.seeds)
        for profile, device in devices.items()
        for arm in ARMS
        if arm in choice.arms
    ]


def _sources(choice: Choice) -> dict[str, Source]:
    """The programs that are chosen, by name."""
    found: dict[str, Source] = {}
    given = [program.subjects(text) for text in choice.programs]
    for some in [*given, *([program.zoo()] if choice.zoo else [])]:
        for name, source in some.items():
            if name in found:
                raise ValueError(f"two programs are called {name!r}: {found[name]} and {source}")
            found[name] = source
    if not found:
        raise ValueError("name a program (.pt2 or file.py:name), or ask for --zoo")
    for name in choice.sets:
        if name not in SETS:
            raise ValueError(f"set {name!r}: one of {', '.join(SETS)}")
    for name in choice.entries:
        if name not in found:
            raise ValueError(f"no entry is called {name!r}; there are {', '.join(found)}")
    if choice.entries:
        found = {name: source for name, source in found.items() if name in choice.entries}
    if {*choice.sets} != {*SETS}:
        within = {n for n, s in found.items() if s.entry is None or _set(s) in choice.sets}
        found = {name: source for name, source in found.items() if name in within}
    if not found:
        raise ValueError(f"no entry is in the sets {', '.join(choice.sets)}")
    return found


def _set(source: Source) -> str | None:
    return program.subject(source).set


def _find(
    tasks: Sequence[Task],
    rows: dict[Key, Row],
    made: Mapping[Source, Row],
    options: Options,
    path: Path,
    run: Run,
) -> None:
    """Finds the rows that are missing, all of them with the code that this process has."""
    missing = [task for task in tasks if task.key not in rows]
    work = partial(_row, options=options)
    if run.ray is not None:
        stream = on_ray(missing, work, run.ray, run.jobs, run.timeout)
    else:
        stream = processes(missing, work, run.jobs, run.timeout)
    with (
        closing(stream) as rows_found,
        results.appending(path) as file,
        _progress("comparing", len(missing)) as advance,
    ):
        for task, found in rows_found:
            failed = isinstance(found, Failure)
            row = {**blank(task, options), "error": found.text} if failed else found
            if (other := results.difference(row, made[task.source])) is not None:
                raise ValueError(
                    f"the row of {task} was made with {other}: did it change just now?"
                )
            results.append(file, row)
            rows[task.key] = row
            advance(str(task))


def _row(task: Task, options: Options) -> Row:
    return arms.row(task, options)


def _measure(
    tasks: Sequence[Task], rows: dict[Key, Row], options: Options, path: Path, run: Run
) -> None:
    """Measures the programs of which an arm has no times, one program after another."""
    groups: dict[tuple[Any, ...], list[Task]] = {}
    for task in tasks:
        if rows[task.key]["predicted"] is not None:
            groups.setdefault((task.group, task.device), []).append(task)
    untimed = {
        some[0]: some
        for some in groups.values()
        if any(rows[t.key]["measured"] is None and not rows[t.key]["error"] for t in some)
    }
    work = partial(_times, groups=untimed, options=options)
    stream = processes([*untimed], work, 1, run.timeout, recycle=1)
    with (
        closing(stream) as times_found,
        results.appending(path) as file,
        _progress("measuring", len(untimed)) as advance,
    ):
        for first, times in times_found:
            for task in untimed[first]:
                rows[task.key] = _timed(rows[task.key], task, times)
                results.append(file, rows[task.key])
            advance(f"{first.entry} ({first.size}) on {first.device}")


def _times(first: Task, groups: dict[Task, list[Task]], options: Options) -> Row:
    measure = importlib.import_module("eqsat.compare.measure")
    return measure.measured(groups[first], options)


def _timed(row: Row, task: Task, times: Row | Failure) -> Row:
    """The row with its times, or with why it has none."""
    if isinstance(times, Failure):
        return row | {"error": f"measuring: {times.text}"}
    worst = max(row["max_error"] or 0.0, times[task.arm].get("max_error", 0.0))
    return row | times[task.arm] | {"max_error": worst}


def _ordered(rows: dict[Key, Row], tasks: Iterable[Task]) -> list[Row]:
    """The rows in the order of the tasks, and after them all others."""
    keys = [task.key for task in tasks if task.key in rows]
    return [rows[key] for key in dict.fromkeys([*keys, *sorted(rows)])]


class _progress:  # noqa: N801 - it is used as a function
    """Shows on stderr how many tasks are done; called with the name of each."""

    def __init__(self, what: str, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.bar = Progress(
            *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
        )
        self.what, self.total = what, total

    def __enter__(self) -> Callable[[str], None]:
        self.bar.start()
        task = self.bar.add_task(self.what, total=self.total)
        plain = not sys.stderr.isatty()

        def advance(name: str) -> None:
            self.bar.update(task, advance=1, description=f"{self.what}: {name}")
            if plain:
                print(f"{self.what}: {name}", file=sys.stderr, flush=True)

        return advance

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
