"""A failure of the optimizer, written down as a small script that repeats it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from typing import Any  # settings are those of `optimize`

import torch
from torch import Tensor

from eqsat.capture import Captured
from eqsat.cost.profile import find
from eqsat.dump.case import Case
from eqsat.dump.script import script, script_of_file
from eqsat.dump.shrink import shrink
from eqsat.dump.trial import Failure, Trial
from eqsat.dump.value import made, spelled
from eqsat.reason.explanation import inputs_of
from eqsat.replacing import replacing
from eqsat.settings import Settings

log = logging.getLogger(__name__)
SECONDS = 60.0
"""After which the case is not made smaller any more."""


def dump(
    folder: Path,
    captured: Captured,
    settings: Settings,
    reason: str,
    optimize: Callable[..., Any],
    seconds: float = SECONDS,
    *,
    isolate: bool = False,
) -> Path:
    """The script that repeats a failure of `optimize` on a program, in a folder made if need be.

    The program is told as code and made smaller as long as it fails in the same way, with inputs
    drawn from a seed where that will do, else kept in a file beside the script. A program that
    cannot be told so is saved whole. With `isolate` no search for it runs in this process.
    """
    failure = Failure.of(reason)
    if failure is None:
        raise ValueError(f"nothing failed: {reason}")
    deadline = time.perf_counter() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    path = _free(folder)
    case, known = _case(captured), _known(settings) | {"isolate": isolate}

    def fails(trial: Trial) -> bool:
        try:
            return trial.failure(optimize) == failure
        except Exception:  # noqa: BLE001 - a program that cannot run shows nothing
            return False

    if case is not None:
        trial = Trial(case, settings.rules, known)
        whole = next((t for t in (_drawn(trial), trial) if fails(t)), None)
        if whole is not None:
            small = shrink(whole, fails, lambda: time.perf_counter() > deadline)
            return _written(path, small, fails, reason, whole)
    with replacing(path.with_suffix(".pt2")) as part:
        torch.export.save(captured.original, part)
    about = f"The whole program is in {path.with_suffix('.pt2').name}."
    name = path.with_suffix(".pt2").name
    _write(path, script_of_file(name, settings.rules, known, _short(reason), about))
    return path


def _case(captured: Captured) -> Case | None:
    """The program as calls, functional where it can be; None where it cannot be told so."""
    program = captured.program if captured.blocked is None else captured.original
    try:
        return Case.of(program, *inputs_of(captured))
    except Exception as error:  # noqa: BLE001 - then it is saved whole
        log.warning("the program is not told as code: %s", error)
        return None


def _known(settings: Settings) -> dict[str, Any]:
    """The settings as `optimize` takes them, those that a script can name."""
    device = settings.cost.device.name
    try:
        find(device)
    except ValueError:
        device = "h200"  # a profile of the person's own
    named = not settings.extractor.startswith("function ")
    return {
        "device": device,
        "mode": settings.cost.mode,
        "numerics": settings.numerics,
        "extractor": settings.extractor if named else "auto",
        "limits": settings.limits,
        "time_limit": settings.time_limit,
        "fold_budget": settings.fold_budget,
        "search": settings.search,
        "memory_limit": settings.memory_limit,
        "max_memory_growth": settings.max_memory_growth,
    }


def _spelled(case: Case) -> dict[str, str]:
    values = enumerate(case.values.items())
    return {name: spelled(value, seed) for seed, (name, value) in values}


def _drawn(trial: Trial) -> Trial:
    """The trial on values that a script can make."""
    values = {name: made(text) for name, text in _spelled(trial.case).items()}
    return trial.on(trial.case.with_values(values))


def _written(
    path: Path, trial: Trial, fails: Callable[[Trial], bool], reason: str, whole: Trial
) -> Path:
    """The script of a trial, its values drawn if it then fails, else in a file beside it."""
    texts, saved = _spelled(trial.case), None
    if not fails(_drawn(trial)):
        saved = path.with_suffix(".pt").name
        tensors = {n: v.detach() for n, v in trial.case.values.items() if isinstance(v, Tensor)}
        texts |= {name: f"VALUES[{name!r}]" for name in tensors}
        with replacing(path.with_suffix(".pt")) as part:
            torch.save({n: v.clone() for n, v in tensors.items()}, part)
    count, names = len(trial.case.calls), {n.target for n in trial.case.calls}
    calls, rules = len(whole.case.calls), len(whole.rules)
    others = sorted({str(t) for t in names if not str(t).startswith(("aten.", "prims.", "<"))})
    about = f"{count} of {calls} calls are left, {len(trial.rules)} of {rules} rules."
    if others:
        about += f" It needs the library that defines {', '.join(others)}."
    _write(path, script(trial, texts, _short(reason), about, saved))
    return path


def _write(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _short(reason: str) -> str:
    """The reason as a line that is not too long."""
    return shorten(" ".join(reason.split()), 90, placeholder=" ...")


def _free(folder: Path) -> Path:
    """A script that is not there yet."""
    path, number = folder / "repro.py", 1
    while path.exists():
        number += 1
        path = folder / f"repro_{number}.py"
    return path
