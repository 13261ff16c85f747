"""Equality saturation for PyTorch: an equal and cheaper program, and the reason why."""

from time import time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat.cost.model import CostModel
    from eqsat.culprit.bisect import bisect
    from eqsat.limits import Limits
    from eqsat.numerics import EXACT, RELAXED, ROUNDING
    from eqsat.pipeline import Result, optimize
    from eqsat.reason.explain import explain
    from eqsat.report import Report
    from eqsat.rewrite import Rewrite
    from eqsat.saturate import StopReason
else:  # each name is imported when it is asked for: most processes need few of them
    HOMES = {
        "CostModel": "cost.model",
        "EXACT": "numerics",
        "Limits": "limits",
        "RELAXED": "numerics",
        "ROUNDING": "numerics",
        "Report": "report",
        "Result": "pipeline",
        "Rewrite": "rewrite",
        "StopReason": "saturate",
        "bisect": "culprit.bisect",
        "explain": "reason.explain",
        "optimize": "pipeline",
    }

    def __getattr__(name: str) -> object:
        import importlib

        if name not in HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__version__ = "0.1.0"
IMPORTED = time_ns()
"""When this process took the code: sources that are newer are others (`eqsat.fingerprint`)."""
__all__ = [
    "EXACT",
    "RELAXED",
    "ROUNDING",
    "CostModel",
    "Limits",
    "Report",
    "Result",
    "Rewrite",
    "StopReason",
    "bisect",
    "explain",
    "optimize",
]
