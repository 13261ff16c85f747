"""When two values of one class count as equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.complex128: 1e-9,
    torch.complex64: 2e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 6e-2,
}
NUDGE = 0.05  # share of a tolerance by which operands are moved to see what noise does
AMPLIFIED = 1e3  # times a nudge: what an e-node makes of it is noise


@dataclass(frozen=True)
class Agreement:
    """How strictly values are compared.

    `signs`: zeros keep their signs (rules that are exact); `finite`: only what is finite in both.
    """

    signs: bool = False
    finite: bool = False


def apart(
    a: Any, b: Any, agreement: Agreement, scale: float, tolerance: float, moved: Any = None
) -> str:
    """How two values of one class differ, beyond a share `tolerance` of themselves or of `scale`.

    Where `moved` is given, what moves as much from `b` to it is noise.
    """
    if isinstance(a, (tuple, list)):
        found = (apart(x, y, agreement, scale, tolerance) for x, y in zip(a, b, strict=True))
        return next((difference for difference in found if difference), "")
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        same = type(a) is type(b) and (a == b or (a != a and b != b))
        return "" if same else f"{a!r} and {b!r}"
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    wrong = _wrong(a, b, agreement, scale, tolerance, moved)
    if not bool(wrong.any()):
        return ""
    at = int(wrong.flatten().nonzero()[0])
    count = int(wrong.sum())
    return f"{a.flatten()[at].item()!r} and {b.flatten()[at].item()!r} ({count} of {a.numel()})"


def _wrong(
    a: Tensor, b: Tensor, agreement: Agreement, scale: float, tolerance: float, moved: Any
) -> Tensor:
    """The places where two tensors of one dtype and shape differ."""
    same = (a == b) | ((a != a) & (b != b))
    if agreement.signs and a.is_floating_point():
        same &= (a != 0) | (a.signbit() == b.signbit())
    if bool(same.all()):
        return ~same
    known = isinstance(moved, Tensor) and moved.shape == b.shape
    if a.dtype not in TOLERANCE:
        return ~same & (b == moved) if known else ~same
    odd = ~(a.isfinite() & b.isfinite())
    x, y = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (a, b))
    within = tolerance * (x.abs() + max(1.0, scale, size(a)))
    if known:
        z = moved.to(y.dtype)
        within = within + AMPLIFIED * (y - z).abs().nan_to_num(0.0)
    close = ((x - y).abs() <= within) | (odd if agreement.finite else False)
    if agreement.signs and a.is_floating_point():
        close &= (a != 0) | (b != 0) | (a.signbit() == b.signbit())
    return ~(same | close)


def size(value: Any) -> float:
    """The largest finite magnitude in a value."""
    if not isinstance(value, Tensor) or not value.numel():
        return abs(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else 1.0
    magnitude = value.abs() if value.is_complex() else value.double().abs()
    return float(magnitude.double().nan_to_num(0.0, 0.0, 0.0).max())


def nudged(value: Any, by: float) -> Any:
    """The value, its elements moved by up to `by` of themselves and of 1, each by its own share."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    shares = torch.linspace(0.5, 1.0, max(value.numel(), 1), dtype=value.dtype)
    shares = by * shares[: value.numel()].reshape(value.shape)
    return value * (1 + shares) + shares


def precision(value: Any) -> float:
    """The tolerance that the dtype of a value asks for."""
    return TOLERANCE.get(value.dtype, 0.0) if isinstance(value, Tensor) else 0.0
