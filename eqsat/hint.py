"""The numbers that symbolic ones stand for."""

from __future__ import annotations

from typing import Any

from torch import SymBool, SymFloat, SymInt

UNBACKED_SIZE = 8192
"""What a size that is known only when a program runs is taken for; the same as Inductor takes."""


def hint(value: Any) -> Any:
    """The number that a symbolic one stands for, in a sequence too; whatever else it is, as it is.

    Asking it decides nothing: no program becomes one for this size. A float or bool that is known
    only when a program runs is None.
    """
    if isinstance(value, (tuple, list)):
        return type(value)([hint(part) for part in value])
    if not isinstance(value, (SymInt, SymFloat, SymBool)):
        return value
    if value.node.has_hint():
        return value.node.hint
    return UNBACKED_SIZE if isinstance(value, SymInt) else None
