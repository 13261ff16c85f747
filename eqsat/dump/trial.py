"""How the optimizer fails on a program, if it does, with which rules and settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any  # settings are those of `optimize`

import torch

from eqsat.check import check
from eqsat.dump.case import Case
from eqsat.rewrite import Rewrite
from eqsat.settings import ALWAYS

CHECK, ERROR, BLOCKED = "the check failed", "the optimizer failed", "kept as it was"
LOST = "the search failed"
"""How an error is told that a search in a process of its own raised."""
NONE = ("nothing faster", "what is faster", "the search was")
"""How reasons begin that are no failures: limits are there to be kept."""


@dataclass(frozen=True)
class Failure:
    """What went wrong: one of three kinds, and the name of the error if it was one."""

    kind: str
    error: str = ""

    @staticmethod
    def of(kept: str | None) -> Failure | None:
        """The failure that a report's `kept` tells of; None where it is none."""
        if kept is None or kept.startswith(NONE):
            return None
        kind, _, rest = kept.partition(": ")
        if kind in (ERROR, LOST):
            return Failure(ERROR, rest.partition(":")[0])
        return Failure(CHECK) if kind == CHECK else Failure(BLOCKED)


@dataclass(frozen=True)
class Trial:
    """A case, with the rules and settings under which the optimizer fails on it."""

    case: Case
    rules: tuple[Rewrite, ...]
    settings: dict[str, Any]

    def failure(self, optimize: Callable[..., Any]) -> Failure | None:
        """How `optimize` fails on the case; None where it does not.

        The check is made here, for that of `optimize` would go on to look for the rule.
        """
        module, args = self.case.module()
        settings = {**self.settings, "margin": ALWAYS, "check": False, "cache": False}
        try:
            with torch.no_grad():
                result = optimize(module, args, rules=self.rules, **settings)
        except ValueError:
            return None  # what cannot be captured at all is another failure
        if result.report.kept is not None:
            return Failure.of(result.report.kept)
        numerics = str(self.settings["numerics"])
        verdict = check(module, result.module, args, numerics=numerics)
        return None if verdict.passed else Failure(CHECK)

    def on(self, case: Case) -> Trial:
        """The same on another case."""
        return replace(self, case=case)

    def by(self, rules: Sequence[Rewrite]) -> Trial:
        """The same with other rules."""
        return replace(self, rules=tuple(rules))
