"""Between which two numbers the elements of a value lie: then none is NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from eqsat.functions import BITWISE, COMPARISONS, LOGICAL, Function
from eqsat.kind import Kind
from eqsat.meta import AnyMeta, Meta, Scalar
from eqsat.operators import OPERATORS

# Operators outside the table whose results are elements of the first operand, or zeros.
SELECTING = frozenset(
    f"aten.{name}"
    for name in ("tril.default", "triu.default", "flip.default", "gather.default", "index.Tensor")
)


@dataclass(frozen=True)
class Interval:
    """The closed interval of two finite numbers."""

    low: float
    high: float

    @property
    def label(self) -> str:
        """The text in the e-graph."""
        return f"[{self.low!r}..{self.high!r}]"

    def joined(self, other: Interval) -> Interval:
        """The least interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


def of_tensor(x: torch.Tensor) -> Interval | None:
    """The bounds of a tensor's elements; None where it has none, or one that is not finite."""
    if x.numel() == 0 or x.is_complex() or x.is_quantized or x.layout != torch.strided:
        return None
    low, high = (float(v) for v in x.detach().aminmax())
    return Interval(low, high) if math.isfinite(low) and math.isfinite(high) else None


def of_dtype(dtype: torch.dtype) -> Interval | None:
    """The bounds of every value of an integer dtype."""
    if dtype.is_floating_point or dtype.is_complex:
        return None
    if dtype == torch.bool:
        return Interval(0.0, 1.0)
    info = torch.iinfo(dtype)
    return Interval(float(info.min), float(info.max))


def held(low: float, high: float, dtype: torch.dtype) -> Interval | None:
    """The bounds of numbers from `low` to `high` once they are rounded to `dtype`.

    Rounding is monotone, and what exceeds the largest number by a quarter of its last place is
    still rounded to it. None where one may become infinite or wrap around.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    if not dtype.is_floating_point:
        whole = of_dtype(dtype)
        inside = whole is not None and whole.low <= low and high <= whole.high
        exact = max(-low, high) <= 2.0**53
        return Interval(math.floor(low), math.ceil(high)) if inside and exact else whole
    info = torch.finfo(dtype)
    largest = info.max * (1 + info.eps / 8) if dtype != torch.float64 else info.max
    if max(-low, high) > largest:
        return None
    low, high = (min(max(v, -info.max), info.max) for v in (low, high))
    return Interval(*(float(torch.tensor(v, dtype=dtype)) for v in (low, high)))


def interval_of(
    operator: str,
    operands: Sequence[Interval | None],
    attributes: Sequence[Any],
    result: AnyMeta | None,
) -> Interval | None:
    """The bounds of an operator's result, from those of its operands; None where none are known.

    A value of an integer dtype, of which nothing better is known, has those of its dtype.
    """
    if isinstance(result, Scalar):
        number = result.value
        known = isinstance(number, (bool, int, float)) and math.isfinite(number)
        return Interval(float(number), float(number)) if known else None
    if not isinstance(result, Meta):
        return None
    found = None
    inputs = [operands[i] for i in read(operator, len(operands))]
    present = [b for b in inputs if b is not None]
    if len(present) == len(inputs):
        found = _derived(operator, present, attributes, result.dtype)
    return found or of_dtype(result.dtype)


def read(operator: str, operands: int) -> tuple[int, ...]:
    """Which operands must have bounds for the result to have some."""
    if operator == "ternary":
        return (1, 2)
    if operator in ("embedding", "index") or operator in SELECTING:
        return (0,)
    return tuple(range(operands))


def bounded(operator: str) -> bool:
    """Whether the results of an operator may have bounds."""
    known = OPERATORS.get(operator)
    moves = known is not None and known.kind in (Kind.VIEW, Kind.CAT)
    return moves or operator in ("number", "full", *DERIVED) or operator in SELECTING


def _derived(
    operator: str, inputs: Sequence[Interval], attributes: Sequence[Any], dtype: torch.dtype
) -> Interval | None:
    if operator == "full":
        number = attributes[1]
        known = isinstance(number, (bool, int, float)) and math.isfinite(number)
        return held(float(number), float(number), dtype) if known else None
    if not inputs or not bounded(operator):
        return None
    if operator in DERIVED:
        return DERIVED[operator](inputs, attributes, dtype)
    whole = inputs[0]
    for other in inputs[1:]:
        whole = whole.joined(other)
    return whole.joined(Interval(0.0, 0.0)) if operator in SELECTING else whole


def _unary(x: Sequence[Interval], attributes: Sequence[Any], dtype: torch.dtype) -> Interval | None:
    function, a = attributes[0], x[0]
    if not isinstance(function, Function):
        return None
    if function.name in BETWEEN:
        return BETWEEN[function.name]
    if function.name == "clamp":
        low, high = [*function.parameters, None, None][:2]
        ends = [a.low, a.high]
        ends = ends if low is None else [max(v, low) for v in ends]
        ends = ends if high is None else [min(v, high) for v in ends]
        return held(ends[0], ends[1], dtype)
    ends = {
        "neg": (-a.high, -a.low),
        "abs": (0.0, max(-a.low, a.high)),
        "relu": (max(a.low, 0.0), max(a.high, 0.0)),
        "to": (a.low, a.high),
    }
    return held(*ends[function.name], dtype) if function.name in ends else None


def _binary(
    x: Sequence[Interval], attributes: Sequence[Any], dtype: torch.dtype
) -> Interval | None:
    function, (a, b) = attributes[0], x
    if function.name in (*COMPARISONS, *LOGICAL, *BITWISE):
        return of_dtype(dtype)
    if dtype.is_floating_point and None in (held(v.low, v.high, dtype) for v in x):
        return None  # an operand that overflows as it is cast
    corners = [u * v for u in (a.low, a.high) for v in (b.low, b.high)]
    ends = {
        "add": (a.low + b.low, a.high + b.high),
        "sub": (a.low - b.high, a.high - b.low),
        "mul": (min(corners), max(corners)),
        "maximum": (max(a.low, b.low), max(a.high, b.high)),
        "minimum": (min(a.low, b.low), min(a.high, b.high)),
    }
    return held(*ends[function.name], dtype) if function.name in ends else None


def _ternary(
    x: Sequence[Interval], attributes: Sequence[Any], dtype: torch.dtype
) -> Interval | None:
    if attributes[0].name != "where":
        return None
    either = x[0].joined(x[1])
    return held(either.low, either.high, dtype)


def _reduction(x: Sequence[Interval], attributes: Sequence[Any], *_: Any) -> Interval | None:
    return x[0] if attributes[0].name in ("amax", "amin") else None


BETWEEN: Mapping[str, Interval] = MappingProxyType(
    {"sigmoid": Interval(0.0, 1.0), "tanh": Interval(-1.0, 1.0)}
    | {name: Interval(-1.0, 1.0) for name in ("sin", "cos", "erf", "sign")}
    | {name: Interval(0.0, 1.0) for name in ("isnan", "isinf", "logical_not")}
)
DERIVED: Mapping[str, Callable[..., Interval | None]] = MappingProxyType(
    {
        "unary": _unary,
        "binary": _binary,
        "ternary": _ternary,
        "reduction": _reduction,
        "softmax": lambda *_: Interval(0.0, 1.0),
        "embedding": lambda x, *_: x[0],
        "index": lambda x, *_: x[0],
    }
)
