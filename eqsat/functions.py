"""Pointwise and reduction functions: they make `unary`, `binary`, `reduction` whole families."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name it has everywhere

aten = torch.ops.aten


def _divide(mode: str) -> Callable[..., Any]:
    return lambda a, b: torch.div(a, b, rounding_mode=mode)


def _where(condition: Any, a: Any, b: Any) -> torch.Tensor:
    return torch.where(condition, a, b)


# How each function evaluates, on real tensors and on the meta device alike. Python numbers take
# part as numbers do in torch, so type promotion is torch's own.
POINTWISE: dict[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "neg": operator.neg,
    "relu": torch.relu,
    "gelu": lambda x, approximate="none": F.gelu(x, approximate=approximate),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "reciprocal": torch.reciprocal,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sign": torch.sign,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "logical_not": torch.logical_not,
    "bitwise_not": torch.bitwise_not,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "softplus": F.softplus,
    "clamp": torch.clamp,
    "to": lambda x, dtype: x.to(dtype),
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "div_floor": _divide("floor"),
    "div_trunc": _divide("trunc"),
    "pow": operator.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "where": _where,
}

ARITHMETIC = ("add", "sub", "mul", "div", "div_floor", "div_trunc", "pow", "remainder", "fmod")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
LOGICAL = ("logical_and", "logical_or")

# The ATen spelling of a function: for tensors, and where it differs for a number as second operand.
SPELLING: dict[str, Any] = {
    **{
        name: getattr(aten, name).default
        for name in POINTWISE
        if hasattr(aten, name) and "default" in getattr(aten, name).overloads()
    },
    "add": aten.add.Tensor,
    "sub": aten.sub.Tensor,
    "mul": aten.mul.Tensor,
    "div": aten.div.Tensor,
    "div_floor": aten.div.Tensor_mode,
    "div_trunc": aten.div.Tensor_mode,
    "pow": aten.pow.Tensor_Tensor,
    "to": aten.to.dtype,
    "where": aten.where.self,
    "clamp": aten.clamp.default,
    **{name: getattr(aten, name).Tensor for name in (*COMPARISONS, *BITWISE, "remainder", "fmod")},
}
NUMBER_SPELLING: dict[str, Any] = {
    "pow": aten.pow.Tensor_Scalar,
    **{name: getattr(aten, name).Scalar for name in (*COMPARISONS, *BITWISE, "remainder", "fmod")},
}
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "eq", "ne", *BITWISE, *LOGICAL})
# f(a, b) with a number first is spelled with the operands exchanged.
FLIPPED = {
    "lt": "gt",
    "gt": "lt",
    "le": "ge",
    "ge": "le",
    **{name: name for name in sorted(COMMUTATIVE)},
}


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dims, keepdim: function(x, dim=dims, keepdim=keepdim)


def _welford(x: Any, dims: Any, keepdim: bool, correction: Any) -> Any:
    return torch.var_mean(x, dims, correction=correction, keepdim=keepdim)


# Reductions over several dims: (x, dims, keepdim, *extra) -> tensor.
REDUCTION: dict[str, Callable[..., Any]] = {
    "sum": lambda x, dims, keepdim, dtype=None: torch.sum(x, dims, keepdim=keepdim, dtype=dtype),
    "mean": lambda x, dims, keepdim, dtype=None: torch.mean(x, dims, keepdim=keepdim, dtype=dtype),
    "amax": _reduce(torch.amax),
    "amin": _reduce(torch.amin),
    "logsumexp": _reduce(torch.logsumexp),
    "vector_norm": _reduce(torch.linalg.vector_norm),
    "max": lambda x, dims, keepdim: torch.max(x, dims[0], keepdim=keepdim).values,
    "min": lambda x, dims, keepdim: torch.min(x, dims[0], keepdim=keepdim).values,
    # With a correction; by the algorithm of Welford, whose mean is rounded differently.
    "var": lambda x, dims, keepdim, c: torch.var(x, dims, correction=c, keepdim=keepdim),
    "std": lambda x, dims, keepdim, c: torch.std(x, dims, correction=c, keepdim=keepdim),
    "welford_var": lambda x, dims, keepdim, c: _welford(x, dims, keepdim, c)[0],
    "welford_mean": lambda x, dims, keepdim, c: _welford(x, dims, keepdim, c)[1],
}


@dataclass(frozen=True)
class Function:
    """A pointwise or reduction function with its parameters, such as `gelu('tanh')`; callable.

    A function that has no name of its own here is an ATen overload tagged pointwise, named in full;
    its parameters are then the arguments in schema order, with `Hole` where the tensors go.
    """

    name: str
    parameters: tuple[Any, ...] = ()

    @property
    def label(self) -> str:
        """How the function prints, and its text in the e-graph."""
        if not self.parameters:
            return self.name
        shown = ",".join(repr(p) if isinstance(p, (str, Hole)) else str(p) for p in self.parameters)
        return f"{self.name}({shown})"

    @property
    def commutative(self) -> bool:
        """Whether f(a, b) is f(b, a); maximum and minimum may return the other of 0.0 and -0.0."""
        return self.name in COMMUTATIVE

    def __call__(self, *operands: Any) -> Any:
        """The function applied to tensors (shapes broadcast as in torch) or Python numbers."""
        if self.name in REDUCTION:
            return REDUCTION[self.name](*operands, *self.parameters)
        if self.name in POINTWISE:
            return POINTWISE[self.name](*operands, *self.parameters)
        return overload(self.name)(*fill(self.parameters, operands))


@dataclass(frozen=True)
class Hole:
    """The place of the `index`-th tensor among the arguments of an ATen overload."""

    index: int

    def __repr__(self) -> str:
        return f"_{self.index}"


def fill(template: tuple[Any, ...], operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of `template` with its holes (one level of lists deep) filled by `operands`."""

    def one(part: Any) -> Any:
        return operands[part.index] if isinstance(part, Hole) else part

    return tuple(
        [one(inner) for inner in part] if isinstance(part, (list, tuple)) else one(part)
        for part in template
    )


def overload(name: str) -> Any:
    """The `torch.ops` overload of a full name such as `aten.topk.default`."""
    namespace, packet, variant = name.rsplit(".", 2)
    return getattr(getattr(getattr(torch.ops, namespace), packet), variant)
