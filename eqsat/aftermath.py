"""What follows a search: why its result is what it is, and what made it fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from eqsat.capture import Captured, constants_of
from eqsat.check import Check
from eqsat.choose import Found
from eqsat.clock import Clock
from eqsat.hint import hinted
from eqsat.report import Report
from eqsat.saturate import Saturation
from eqsat.search import search
from eqsat.settings import SATURATION, Settings


def script(
    captured: Captured,
    settings: Settings,
    isolate: bool,
    reason: str,
    folder: Path,
    optimize: Callable[..., Any],
) -> str:
    """The script in a folder that repeats a failure for this reason, or why there is none."""
    from eqsat.dump.dump import dump  # brings what few processes need

    try:
        return str(dump(folder, captured, settings, reason, optimize, isolate=isolate))
    except Exception as error:  # noqa: BLE001 - the given program is not lost for it
        return f"no script could be written: {type(error).__name__}: {error}"


def _again(
    captured: Captured, settings: Settings, hints: Mapping[str, int] | None
) -> tuple[Found, Saturation]:
    """The search, made again to look into it."""
    seen: list[Found] = []
    graph, constants = captured.program.graph, constants_of(captured.program)
    with hinted(graph, hints):
        made = search(graph, constants, settings, Clock(), observe=seen.append)
    return seen[0], made.saturation


def blamed(
    captured: Captured, settings: Settings, failed: Check, hints: Mapping[str, int] | None
) -> str:
    """Which rule made a check fail, as far as that is found."""
    from eqsat.culprit.blame import blame  # brings what few processes need

    if settings.search != SATURATION:
        return ""
    again = partial(_again, captured, settings, hints)
    return blame(captured, again, failed, settings.numerics)[0]


def explained(captured: Captured, found: Found, report: Report, clock: Clock) -> Report:
    """The report with an explanation, or with why there is none: the result stands all the same."""
    from eqsat.reason import explanation  # brings what few processes need

    reason, unexplained = None, ""
    with clock("explain"):
        try:
            reason = explanation.explained(captured, found, report.matched)
        except Exception as error:  # noqa: BLE001 - what was found is not lost
            unexplained = f"{type(error).__name__}: {error}"
    return replace(report, explanation=reason, unexplained=unexplained, seconds=dict(clock.seconds))
