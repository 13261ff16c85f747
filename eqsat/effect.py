"""Which calls must run as given: those that write, draw random numbers or depend on data."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from eqsat.meta import Symbolic
from eqsat.spelling import spell
from eqsat.term import val


def effect(node: Node) -> str | None:
    """Why a call must run as given, in its place; None for a pure operator. Asked of the schema."""
    target = node.target
    if isinstance(target, HigherOrderOperator):
        return "higher-order operator: kept as given"
    if not isinstance(target, OpOverload):
        return None if target is operator.getitem or _symbolic(node) else "Python function: kept"
    if any("val" not in operand.meta for operand in node.all_input_nodes):
        return "reads an attribute of which nothing is known"
    if target._schema.is_mutable:
        return "mutates its operands"
    tags = target.tags
    if torch.Tag.nondeterministic_seeded in tags and not _deterministic(node):
        return "draws random numbers"
    if torch.Tag.data_dependent_output in tags or _makes_symbol(node):
        return "its result's size or value depends on data"
    if torch.Tag.maybe_aliasing_or_mutating in tags and spell(node) is None:
        return "may mutate its operands"
    if not target._schema.returns or node.meta.get("val") is None:
        return "returns nothing: runs for its effect"
    return None


def _makes_symbol(node: Node) -> bool:
    """Whether the size of a result is only known once it is computed."""
    value: Any = node.meta.get("val")
    made = free_unbacked_symbols(value)
    return bool(made) and not made <= free_unbacked_symbols([val(n) for n in node.all_input_nodes])


def _deterministic(node: Node) -> bool:
    """Whether an operator that may draw numbers does not here (dropout turned off)."""
    return spell(node) is not None


def _symbolic(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (*Symbolic, bool, int, float))
