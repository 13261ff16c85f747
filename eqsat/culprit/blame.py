"""Who is to blame for a failed check: the search is made again, and its steps are bisected."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from torch.export import ExportedProgram

from eqsat.capture import Captured
from eqsat.check import Check, check
from eqsat.choose import Found
from eqsat.culprit.culprit import Culprit, NoTimeError, culprit
from eqsat.culprit.stage import Stages
from eqsat.reason.explanation import reasoned
from eqsat.rebuild import drop_in
from eqsat.saturate import Saturation

log = logging.getLogger(__name__)
SECONDS = 30.0
"""After which no further step is tried."""


def blame(
    captured: Captured,
    search: Callable[[], tuple[Found, Saturation]],
    failed: Check,
    numerics: str,
    seconds: float = SECONDS,
) -> tuple[str, Culprit | None]:
    """What to say of a failed check beside what differed, and the step that made it, if found.

    `search` makes the search again. Whatever goes wrong here is logged: the check failed all the
    same.
    """
    deadline = time.perf_counter() + seconds

    def spent() -> bool:
        return time.perf_counter() > deadline

    probes = [probe.name for probe in failed.probes if not probe.passed][:1]
    given = drop_in(captured.original)

    def bad(program: ExportedProgram) -> bool:
        result, args, kwargs = drop_in(program), captured.args, captured.kwargs
        return not check(given, result, args, kwargs, numerics=numerics, probes=probes).passed

    try:
        found, saturation = search()
        matched = [rule.name for rule in saturation.rules if rule.matches]
        reason, goal = reasoned(found, matched, spent=lambda: True)  # any steps will do
        made = culprit(Stages(captured, found, reason, goal), bad, spent, known=True)
    except NoTimeError:
        return f"; which rule made it was not found in {seconds:g} s", None
    except Exception as error:  # noqa: BLE001 - a result that failed is kept back either way
        log.warning("which rule made the check fail was not found: %s", error)
        return "", None
    return f"; {made} made it", made
