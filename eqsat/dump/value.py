"""Tensors that a script makes again: a few elements as they are, others drawn from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any  # elements are Python numbers of any kind

import torch
from torch import Tensor

FEW = 16
"""Elements up to which a tensor is written out."""


def drawn(
    shape: Sequence[int],
    dtype: str,
    seed: int,
    mean: float = 0.0,
    deviation: float = 1.0,
    low: int = 0,
    high: int = 2,
    device: str = "cpu",
) -> Tensor:
    """A tensor of normal numbers, or of integers from `low` to below `high`, or of truth values."""
    kind: torch.dtype = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(seed)
    if kind.is_floating_point or kind.is_complex:
        wide = torch.complex64 if kind.is_complex else torch.float32
        values = torch.randn(tuple(shape), generator=generator, dtype=wide) * deviation + mean
    else:
        values = torch.randint(low, high, tuple(shape), generator=generator)
    return values.to(kind).to(device)


def spelled(value: Any, seed: int) -> str:
    """The expression that makes a value, or one like it: same shape and dtype, similar numbers."""
    if not isinstance(value, Tensor):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    place = "" if value.device.type == "cpu" else f", device={str(value.device)!r}"
    if value.numel() <= FEW:
        return f"torch.tensor({value.tolist()!r}, dtype=torch.{dtype}{place})"
    head = f"drawn({list(value.shape)}, {dtype!r}, {seed}"
    if not (value.is_floating_point() or value.is_complex()):
        numbers = value.to(torch.int64)
        return f"{head}, low={int(numbers.min())}, high={int(numbers.max()) + 1}{place})"
    real = (value.abs() if value.is_complex() else value).double()
    finite = real[real.isfinite()]
    mean, deviation = (float(finite.mean()), float(finite.std())) if finite.numel() > 1 else (0, 1)
    deviation = deviation if math.isfinite(deviation) else 1.0
    return f"{head}, mean={mean:.4g}, deviation={deviation:.4g}{place})"


def made(text: str) -> Any:
    """The value of such an expression."""
    return eval(text, {"torch": torch, "drawn": drawn, "inf": math.inf, "nan": math.nan})
