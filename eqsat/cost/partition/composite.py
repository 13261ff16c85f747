"""What every ATen operator is made of: its expansion, or what stands for it without one."""

from __future__ import annotations

from typing import Any  # arguments of operators are arbitrary Python values

from eqsat.cost.partition import attending, gathering, networks, products, reshaping, summing
from eqsat.cost.partition.arguments import Call, Expansion
from eqsat.cost.partition.operation import Operation

__all__ = ["EXPANSIONS", "Call", "pointwise", "unknown"]

EXPANSIONS: dict[str, Expansion] = {
    **reshaping.TABLE,
    **gathering.TABLE,
    **summing.TABLE,
    **products.TABLE,
    **attending.TABLE,
    **networks.TABLE,
}
"""The expansion of each operator that has one, by short name."""


def pointwise(call: Call) -> Operation:
    """An element-by-element operator; numbers among its arguments are constants of the kernel."""
    numbers = [value for value in call.args if isinstance(value, (int, float))]
    return call.program.pointwise(
        call.name,
        *call.operands(),
        *numbers,
        dtype=call.dtype,
        shape=call.shape,
        strides=call.strides,
    )


def unknown(call: Call) -> Any:
    """An operator that nothing is known of: a kernel from all operands to all results."""
    p, operands = call.program, call.operands()
    if isinstance(call.result, tuple):
        return p.add("external", call.name, operands, call.shape, call.dtype, (), call.strides)
    results = [part for part in call.result or () if isinstance(part, tuple)]
    whole = p.add("external", call.name, operands, (), call.dtype, tuple(results))
    items = iter(range(len(results)))
    return [
        p.item(whole, next(items), *part) if isinstance(part, tuple) else None
        for part in call.result or ()
    ] or whole
