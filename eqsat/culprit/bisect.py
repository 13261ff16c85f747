"""`eqsat.bisect`: which step of a result makes a person's own check fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any  # programs take arbitrary inputs, and settings are those of `optimize`

import torch
from torch.export import ExportedProgram

from eqsat.capture import capture
from eqsat.choose import Found
from eqsat.culprit.culprit import Bad, Culprit, culprit
from eqsat.culprit.stage import Stages
from eqsat.pipeline import optimize
from eqsat.reason.explanation import reasoned


def bisect(
    program: torch.nn.Module | ExportedProgram,
    bad: Bad,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Culprit:
    """The step of `optimize` with these settings that makes `bad` true of the program.

    `bad` is asked of the result, of the given program, and of about log2 n programs between, where
    there are n steps. The product's own check is left out unless `check=True`. Raises ValueError
    where the given program is bad, the result is not, or there is no result.
    """
    seen: list[Found] = []
    settings = {"check": False, **settings, "observe": seen.append}
    result = optimize(program, args, kwargs, **settings)
    if result.report.kept is not None or not seen:
        raise ValueError(f"the given program comes back: {result.report.kept}")
    shapes = settings.get("dynamic_shapes")
    captured = capture(program, args, None if kwargs is None else dict(kwargs), shapes)
    reason, goal = reasoned(seen[0], result.report.matched)
    return culprit(Stages(captured, seen[0], reason, goal), bad)
