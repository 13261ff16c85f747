"""How the operators that pick, pad, shift and fill elements evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def index(x: Tensor, *rest: Any) -> Tensor:
    """`x` indexed by one or two tensors of integers, in as many dims from `dim` on."""
    *picks, dim = rest
    if not -x.ndim <= dim <= -len(picks):
        raise ValueError(f"{len(picks)} dims from {dim} on are not dims of {x.ndim}")
    if any(pick.dtype not in (torch.int64, torch.int32) for pick in picks):
        raise ValueError(f"an index has a dtype of {[pick.dtype for pick in picks]}: no mask")
    return aten.index.Tensor(x, [*(None,) * (x.ndim + dim), *picks])


def scatter(x: Tensor, picks: Tensor, dim: int, value: Any) -> Tensor:
    """`x` with `value` at the places along `dim` that `picks` names."""
    if not -x.ndim <= dim < 0 or x.ndim != picks.ndim:
        raise ValueError(f"{dim} is no dim of both of {x.ndim} and {picks.ndim}")
    return aten.scatter.value(x, dim, picks, value)


def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    """`x` with its elements shifted along `dims`, those at the end coming back at the start."""
    if len(set(dims)) < len(dims) or not all(-x.ndim <= d < 0 for d in dims):
        raise ValueError(f"{tuple(dims)} are not different dims of {x.ndim}")
    return torch.roll(x, tuple(shifts), tuple(dims))


def pad(x: Tensor, padding: Sequence[int], value: Any) -> Tensor:
    """`x` with `value` around it: `padding` gives before and after, the last dim first."""
    if any(n < 0 for n in padding):
        raise ValueError(f"padding {tuple(padding)} cuts: a slice does")
    return aten.constant_pad_nd.default(x, list(padding), value)


def cumsum(x: Tensor, dim: int) -> Tensor:
    """The sums of the elements along `dim` up to each one."""
    if not -x.ndim <= dim < 0:
        raise ValueError(f"{dim} is no dim of {x.ndim}")
    return torch.cumsum(x, dim)
