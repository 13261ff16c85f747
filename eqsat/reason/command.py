"""What `eqsat explain` shows: the steps to the result, or why a rule did not fire."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any  # settings are those of `optimize`

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from torch.export import ExportedProgram

from eqsat.reason.explain import explain
from eqsat.reason.why import Attempt, why
from eqsat.replacing import replacing


def steps(
    program: ExportedProgram, report_file: Path | None, settings: dict[str, Any]
) -> tuple[RenderableType, bool]:
    """The steps from a program to its result, and whether each was equal on its own."""
    found = explain(program, **settings)
    _keep(report_file, dataclasses.asdict(found))
    return found, not found.wrong


def refusals(
    program: ExportedProgram,
    rule: str,
    at: str | None,
    report_file: Path | None,
    settings: dict[str, Any],
) -> RenderableType:
    """How far a rule got, and what refused it."""
    found = why(program, rule=rule, at=at, **settings)
    _keep(report_file, [dataclasses.asdict(attempt) for attempt in found])
    return listing(found)


def listing(found: Sequence[Attempt]) -> RenderableType:
    """A paragraph for each attempt."""
    parts: list[RenderableType] = []
    if found and not found[0].fired and len(found) > 1:
        parts.append(Text("It fired nowhere. Where it got furthest:", "bold"))
    for attempt in found:
        told = "fired" if attempt.fired else f"refused: {attempt.refused}"
        count = f"{attempt.matched} of {attempt.operators} operators match"
        parts.append(Text(f"\n{attempt.rule} at {attempt.node}: {count}", "bold cyan"))
        lines = [attempt.source] if attempt.source else []
        lines += [told, *(f"  {value}" for value in attempt.values)]
        parts += [Padding(Text(line), (0, 0, 0, 3)) for line in lines]
    return Group(*parts)


def _keep(path: Path | None, data: Any) -> None:
    if path is not None:
        with replacing(path) as part:
            part.write_text(json.dumps(data, indent=2, default=str) + "\n")
