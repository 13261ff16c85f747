"""A value at which the two sides of a rule differ, with all that is needed to see it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SHOWN = 64  # elements of a tensor that are printed
DIGITS = {torch.float32: 9, torch.complex64: 9, torch.float16: 5, torch.bfloat16: 5}


@dataclass(frozen=True)
class Counterexample:
    """What the sides of a rule gave on one filling of one sample, and where they differ.

    `sample` says of what shape and dtype the variables are, `style` and `seed` how they were
    filled, `values` what they then held; `elements` is the number of elements in all of them.
    """

    reason: str
    sample: str
    style: str
    seed: int
    values: tuple[tuple[str, str], ...]
    left: str
    right: str
    elements: int

    def __str__(self) -> str:
        return f"{self.reason} with {self.sample} ({self.style} values, seed {self.seed})"

    def text(self) -> str:
        """Several lines: the values of the variables and the two results."""
        rows = [*self.values, ("left side", self.left), ("right side", self.right)]
        width = max(len(name) for name, _ in rows)
        lines = (
            f"  {name:{width}} = {value.replace(chr(10), chr(10) + ' ' * (width + 5))}"
            for name, value in rows
        )
        return "\n".join((str(self), *lines))


def shown(value: Any) -> str:
    """A value as Python text; the first elements of a large tensor."""
    if not isinstance(value, Tensor):
        return getattr(value, "label", repr(value))
    dtype, shape = str(value.dtype), tuple(value.shape)
    if value.numel() > SHOWN:
        return f"{_listed(value.flatten()[:SHOWN])}... of dtype {dtype} and shape {shape}"
    tail = f".reshape({shape})" if 0 in shape else ""
    text = _listed(value).replace("inf", "torch.inf").replace("nan", "torch.nan")
    strides = "" if value.is_contiguous() else f"  # strides {value.stride()}"
    return f"torch.tensor({text}, dtype={dtype}){tail}{strides}"


def _listed(value: Tensor) -> str:
    """The elements as text, no more digits than the dtype holds."""
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        return repr(value.tolist())
    digits = DIGITS.get(value.dtype, 17)

    def text(part: Any) -> str:
        if isinstance(part, list):
            return f"[{', '.join(map(text, part))}]"
        if isinstance(part, complex):
            return f"complex({text(part.real)}, {text(part.imag)})"
        return repr(float(f"{part:.{digits}g}"))

    return text(value.tolist())


def count(values: Mapping[str, Any]) -> int:
    """The number of elements in all the tensors."""
    return sum(value.numel() for value in values.values() if isinstance(value, Tensor))
