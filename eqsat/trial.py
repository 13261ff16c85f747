"""Two functions run beside each other on random tensors: are they the same function?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from eqsat.meta import Meta
from eqsat.traced import argument

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 0.2}
FILLINGS = ("positive", "normal", "normal")


def trial(first: Callable[..., Any], second: Callable[..., Any], values: Sequence[Any]) -> None:
    """Runs both on tensors like `values`, on the CPU. Raises ValueError where results differ.

    They differ beyond rounding, where both are finite. What cannot run there says nothing.
    """
    for seed, style in enumerate(FILLINGS):
        generator = torch.Generator().manual_seed(seed)
        arguments = [_filled(value, style, generator) for value in values]
        try:
            with torch.no_grad():
                results = [pytree.tree_leaves(f(*arguments)) for f in (first, second)]
        except (RuntimeError, IndexError, TypeError, NotImplementedError):
            continue
        lowest = [TOLERANCE.get(v.dtype, 0.0) for v in arguments if isinstance(v, Tensor)]
        for index, (a, b) in enumerate(zip(*results, strict=True)):
            if (difference := _difference(a, b, max(lowest, default=0.0))) is not None:
                raise ValueError(f"result {index}: {difference}")


def _filled(value: Any, style: str, generator: torch.Generator) -> Any:
    """A tensor of this meta with random values; anything else as a traced function gets it."""
    if not isinstance(value, Meta):
        return argument(value)
    shape = tuple(int(size) for size in value.shape)
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        return torch.randint(0, 2, shape, generator=generator).to(value.dtype)
    draw = torch.rand if style == "positive" else torch.randn
    return draw(shape, generator=generator, dtype=torch.float64).to(value.dtype)


def _difference(a: Tensor, b: Tensor, tolerance: float) -> str | None:
    """How two results differ, or None."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} is replaced by {b.dtype}{list(b.shape)}"
    kind = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(kind), b.to(kind)
    finite = x.isfinite() & y.isfinite()
    largest = float(x[finite].abs().max()) if bool(finite.any()) else 0.0
    wrong = finite & ((x - y).abs() > tolerance * max(1.0, largest))
    if not bool(wrong.any()):
        return None
    place = tuple(int(i) for i in wrong.nonzero()[0])
    return f"{a[place].item()} is replaced by {b[place].item()} at {list(place)} on random inputs"
