"""Equality saturation for PyTorch: an equal and cheaper program, and the reason why."""

from eqsat.cost.model import CostModel
from eqsat.optimize import Result, optimize
from eqsat.report import Report
from eqsat.rewrite import EXACT, RELAXED, ROUNDING, Rewrite
from eqsat.saturate import Limits, StopReason

__version__ = "0.1.0"
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
    "optimize",
]
