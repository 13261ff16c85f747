"""What `eqsat rules --verify` shows: progress, a table of verdicts, and every counterexample."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.progress import Progress
from rich.text import Text

from eqsat.replacing import replacing
from eqsat.table import table
from eqsat.verify.verdict import Verdict
from eqsat.verify.workers import to_verify, verdicts

COLUMNS = ("rule", "numerics", "samples", "mod p", "chance", "decided by", "seconds", "verdict")


def verify(
    files: Sequence[Path],
    names: Sequence[str],
    samples: int,
    seed: int,
    seconds: float,
    workers: int | None,
    report_file: Path | None,
) -> tuple[RenderableType, bool]:
    """What verifying the rules showed, for a person, and whether all of them are sound.

    Progress goes to stderr, and the verdicts as JSON to `report_file`.
    """
    count = len(to_verify(files, names))
    found: list[Verdict] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying", total=count)
        for verdict in verdicts(files, names, samples, seed, seconds, workers):
            found.append(verdict)
            progress.update(task, advance=1, description=f"verified {verdict.name}")
    if report_file is not None:
        with replacing(report_file) as part:
            part.write_text(json.dumps([to_dict(v) for v in found], indent=2) + "\n")
    return listing(found), all(verdict.sound for verdict in found)


def to_dict(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain data."""
    data = dataclasses.asdict(verdict)
    data |= {"outcome": verdict.outcome, "method": verdict.method}
    return data | {"kinds": dict(verdict.kinds)}


def row(verdict: Verdict) -> tuple[str, ...]:
    """The cells of a verdict, by `COLUMNS`."""
    decided = verdict.proven + verdict.free
    return (
        verdict.name,
        verdict.numerics.lower(),
        str(verdict.samples),
        str(decided),
        f"{verdict.chance:.0e}" if decided else "-",
        verdict.method,
        f"{verdict.seconds:.1f}",
        verdict.outcome,
    )


def listing(found: Sequence[Verdict]) -> RenderableType:
    """A table of verdicts; then every counterexample, and where relaxed rules change values."""
    parts: list[RenderableType] = table("Rules, verified", COLUMNS, map(row, found))
    parts.append(Text(f"\n{summary(found)}", "bold"))
    for verdict in found:
        parts += _about(verdict)
    relaxed = [v for v in found if v.differs is not None]
    if relaxed:
        parts.append(Text("\nWhere relaxed rules change values that are not finite", "bold cyan"))
        parts += [Text(f"{v.name}: {v.differs}") for v in relaxed]
    return Group(*parts)


def _about(verdict: Verdict) -> Iterable[Text]:
    """What a person needs to know of a rule that is not sound."""
    if verdict.sound:
        return
    yield Text(f"\n{verdict.name} ({verdict.numerics}): {verdict.outcome}", "bold red")
    yield Text(verdict.law)
    if verdict.counterexample is not None:
        yield Text(verdict.counterexample.text())
    elif verdict.outcome == "never matched":
        yield Text(
            f"no sample in {verdict.attempts} attempts: its left side or condition is met by none"
        )
    else:
        yield Text("its sides agree, but it united nothing in the e-graph of its left side")


def summary(found: Sequence[Verdict]) -> str:
    """One line: how many rules, samples, and verdicts of each kind."""
    outcomes = Counter(verdict.outcome for verdict in found)
    samples, least = sum(v.samples for v in found), min((v.samples for v in found), default=0)
    decided = sum(v.proven + v.free for v in found)
    shown = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return (
        f"{len(found)} rules: {shown}; {samples:,} samples, at least {least:,} a rule, "
        f"{decided:,} of them also decided modulo 2^31 - 1"
    )
