"""The run: the stages in order, each within its share of the budget."""

from __future__ import annotations

import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager

from rich.console import Console

from .bench import Bench
from .document import failure, write
from .machine import ask_driver
from .networks import NETWORKS
from .partition import PARTITION
from .show import shown
from .stage import Json, Stage
from .tune import TUNE
from .variants import VARIANTS

STAGES = (PARTITION, TUNE, VARIANTS, NETWORKS)
"""The stages in order; 0.06 of the budget are for imports and for the last step to end."""
GRACE = 0.03
"""The share of the budget by which a step may outlast its stage before it is cut off."""


class OutOfTime(BaseException):
    """The step that runs has outlasted its stage; no `except Exception` in torch stops it."""


def plan(bench: Bench, stages: Sequence[Stage], budget: float) -> list[Json]:
    """What each stage has of the budget, and how much of it compiling is guessed to take."""
    lines: list[Json] = []
    for stage, seconds in zip(stages, _seconds(stages, budget), strict=True):
        count, each = (0, 0.0) if bench.dry else stage.compiles(bench)
        line: Json = {"stage": stage.name, "seconds": round(seconds)}
        lines.append({**line, "compiles": count, "guess": round(count * each)})
    return lines


def _seconds(stages: Sequence[Stage], budget: float) -> list[float]:
    """What each stage has of the budget; those that are left out leave theirs to the others."""
    scale = sum(stage.share for stage in STAGES) / sum(stage.share for stage in stages) * budget
    return [stage.share * scale for stage in stages]


def run(
    bench: Bench, stages: Sequence[Stage], budget: float, document: Json, console: Console
) -> bool:
    """Runs the stages within `budget` seconds, each into `document`; whether nothing failed.

    The document is in its file, whole, after every step.
    """
    start, due = time.monotonic(), 0.0
    for stage, seconds in zip(stages, _seconds(stages, budget), strict=True):
        due += seconds
        begin = time.monotonic()
        report: Json = {"rows": {}, "failures": [], "stopped": None, "steps": 0}
        document["stages"][stage.name] = report
        for _ in _progress(stage, bench, start + due, GRACE * budget, report):
            write(document, bench.out)
        report["seconds"] = round(time.monotonic() - begin, 1)
        report["clocks"] = None if bench.dry else ask_driver("clocks.sm,clocks.mem,temperature.gpu")
        write(document, bench.out)
        console.print(*shown(stage.name, report), sep="\n")
    return not any(document["stages"][stage.name]["failures"] for stage in stages)


def _progress(stage: Stage, bench: Bench, end: float, grace: float, report: Json) -> Iterator[None]:
    """Takes the steps of a stage until `end`, then concludes; yields when `report` has changed."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    steps = stage.steps(bench)
    try:
        with closing(steps):
            for step in steps:
                begin, known = time.monotonic(), taken[step.part]
                expected = statistics.mean(known) if known else step.expected
                where = f"{step.subject}: {step.part}"
                if begin + expected > end:
                    report["stopped"] = f"{where} would take {expected:.1f} s; too little is left"
                    break
                try:
                    with _limit(end + grace - begin):
                        row = step.run()
                    report["rows"].setdefault(step.subject, {})[step.part] = row
                except OutOfTime:
                    report["stopped"] = (
                        f"{where} was cut off after {time.monotonic() - begin:.1f} s"
                    )
                    break
                except Exception as error:  # noqa: BLE001 - it is recorded, and the rest goes on
                    report["failures"].append(failure(where, error))
                taken[step.part].append(time.monotonic() - begin)
                report["steps"] += 1
                yield
        report["tables"] = stage.conclude(bench, report["rows"])
    except Exception as error:  # noqa: BLE001 - the same
        report["failures"].append(failure(stage.name, error))
    yield


@contextmanager
def _limit(seconds: float) -> Generator[None]:
    """Raises OutOfTime inside after so many seconds."""

    def ring(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
