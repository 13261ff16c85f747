"""`eqsat.explain`: optimize a program, and say which rules made the result, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any  # programs take arbitrary inputs, and settings are those of `optimize`

import torch
from torch.export import ExportedProgram

from eqsat.pipeline import optimize
from eqsat.reason.explanation import Explanation


def explain(
    program: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Explanation:
    """Which rules make the result that `optimize` comes to with these settings, and how.

    The search is made again with fewer and fewer rules: it takes some times as long. Raises
    ValueError where the given program comes back, which has nothing to explain.
    """
    report = optimize(program, args, kwargs, explain=True, **settings).report
    if report.explanation is None:
        given = f"the given program comes back, no rule was used: {report.kept}"
        raise ValueError(report.unexplained or given)
    return report.explanation
