"""From ATen to the language: one entry an ATen operator that has a term; `eqsat.emit` goes back."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from eqsat.spelling.contraction import CONTRACTIONS
from eqsat.spelling.moving import MOVES
from eqsat.spelling.pointwise import FILLS, FUNCTIONS, pointwise
from eqsat.spelling.reduction import REDUCTIONS, batch_norm, extreme, layer_norm, spread
from eqsat.spelling.view import VIEWS, cut, select
from eqsat.term import Call, val

SPELLINGS = {**VIEWS, **FUNCTIONS, **FILLS, **CONTRACTIONS, **REDUCTIONS, **MOVES}
SPLITS = frozenset(  # their results are slices
    {
        "aten.split.Tensor",
        "aten.split.sizes",
        "aten.split_with_sizes.default",
        "aten.chunk.default",
        "aten.unbind.int",
        "aten.tensor_split.sections",
        "aten.tensor_split.indices",
    }
)
NORMS = {  # their first result is a norm
    "aten.native_layer_norm.default": layer_norm,
    "aten._native_batch_norm_legit_no_training.default": batch_norm,
}
SPREADS = frozenset({"aten.var_mean.correction", "aten.var_mean.dim", "aten.var_mean.default"})
EXTREMES = {"aten.max.dim": "max", "aten.min.dim": "min"}


def spell(node: Node) -> Any:
    """The term of an ATen call, an FX node where it returns its operand, or None without a term."""
    entry = SPELLINGS.get(str(node.target))
    if entry is not None:
        return entry(Call(node))
    tagged = isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags
    return pointwise(Call(node)) if tagged else None


def spell_item(node: Node) -> Any:
    """The term of `getitem(parent, index)` where the parent is a split or a norm, else None."""
    parent, index = node.args
    if not isinstance(parent, Node) or not isinstance(index, int):
        return None
    name = str(parent.target)
    if name in SPLITS:
        return _part(Call(parent), index)
    if name in SPREADS and index in (0, 1):
        return spread(Call(parent), ("welford_var", "welford_mean")[index])
    users_take_first = index == 0 and all(u.args[1] == 0 for u in parent.users if len(u.args) > 1)
    if name in NORMS and users_take_first:
        return NORMS[name](Call(parent))
    if name in EXTREMES and index == 0:
        return extreme(Call(parent), EXTREMES[name])
    return None


def _part(c: Call, index: int) -> Any:
    """The `index`-th result of a split."""
    parts, dim = c.out, c["dim"] % val(c.x).ndim
    if c.target is torch.ops.aten.unbind.int:
        return select(c.x, dim, index, parts[index].shape)
    sizes = [part.shape[dim] for part in parts]
    start = sum(sizes[:index])
    return cut(c.x, dim, start, start + sizes[index], 1)
