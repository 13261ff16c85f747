"""What `eqsat bisect` does: runs a command on programs between the given one and the result."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any  # settings are those of `optimize`

import torch
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from torch.export import ExportedProgram

from eqsat.culprit.bisect import bisect as bisected
from eqsat.culprit.culprit import Culprit, place
from eqsat.reason.step import Step
from eqsat.replacing import replacing

PLACE = "{}"


def bisect(
    program: ExportedProgram, command: str, keep: Path | None, settings: dict[str, Any]
) -> RenderableType:
    """The culprit, found by running a command; with `keep`, the two programs in that folder.

    The command is run by the shell with the path of a program where it has `{}`, or at its end; a
    program is bad where the exit status is not 0.
    """
    with tempfile.TemporaryDirectory(prefix="eqsat-bisect-") as folder:
        path = Path(folder, "program.pt2")

        def bad(stage: ExportedProgram) -> bool:
            torch.export.save(stage, path)
            return failed(command, path)

        found = bisected(program, bad, **settings)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for name, stage in (("good", found.good), ("bad", found.bad)):
            with replacing(keep / f"{name}.pt2") as part:
                torch.export.save(stage, part)
    return shown(found, keep)


def failed(command: str, path: Path) -> bool:
    """Whether a command fails on the program at a path. Raises OSError where it cannot run."""
    name = shlex.quote(str(path))
    line = command.replace(PLACE, name) if PLACE in command else f"{command} {name}"
    status = subprocess.run(line, shell=True, check=False).returncode
    if status in (126, 127):
        raise OSError(f"the shell cannot run {line!r}")
    print(f"eqsat: {'bad' if status else 'good'} (exit status {status})", file=sys.stderr)
    return status != 0


def shown(found: Culprit, keep: Path | None) -> RenderableType:
    """The culprit for a person."""
    parts: list[RenderableType] = [Text(f"{found} makes it fail ({found.runs} runs)", "bold")]
    if found.step is not None:
        parts += _lines(found.step)
    for step in found.beside:
        parts.append(Text(f"beside it, and seen in no program without it: {_told(step)}"))
    if keep is not None:
        parts.append(Text(f"{keep / 'good.pt2'} passes, {keep / 'bad.pt2'} does not"))
    return Group(*parts)


def _told(step: Step) -> str:
    return f"rule {step.rule} at {place(step)}"


def _lines(step: Step) -> list[RenderableType]:
    lines = [*step.was, "becomes", *step.becomes]
    for trial in step.trials:
        verdict = f"differ: {trial.difference}" if trial.difference else "are equal"
        lines.append(f"on {trial.on} the two sides {verdict}")
    return [Padding(Text(line), (0, 0, 0, 3)) for line in lines]
