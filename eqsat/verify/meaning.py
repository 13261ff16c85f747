"""What the operators of the language mean over a prime field."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eqsat.functions import Function
from eqsat.operators import OPERATORS
from eqsat.verify.field import (
    PRIME,
    Residues,
    Undecided,
    fraction,
    free,
    number,
    product,
    residue,
)

MOVES = ("reshape", "permute", "expand", "slice", "roll")
PLANES = ("avg_pool2d", "adaptive_avg_pool2d", "upsample_nearest2d", "upsample_bilinear2d")
HIGHEST = 8  # exponent that is a product


class Meaning:
    """Runs operators over the field; `free` tells whether a function that is not rational ran.

    Tensors of booleans, and of indices, are what they are; all others are residues. Where a
    variable is `complex`, casts are not rational.
    """

    def __init__(self, is_complex: bool) -> None:
        self.free = False
        self.complex = is_complex

    def operate(self, name: str, children: list[Any], attributes: list[Any]) -> Any:
        """An operator on residues, plain tensors and numbers; raises Undecided."""
        if name == "number":
            return attributes[0]
        if name != "full" and not any(isinstance(child, Residues) for child in children):
            try:
                found = OPERATORS[name].evaluate(*children, *attributes)
            except (RuntimeError, IndexError) as error:
                raise Undecided(name) from error
            if not isinstance(found, Tensor) or not found.is_floating_point():
                return found
        if name in MOVES:
            moved = self._element(children[0])
            return moved.mapped(lambda x: OPERATORS[name].evaluate(x, *attributes))
        if name in PLANES:
            return self._plane(name, children[0], tuple(attributes))
        meaning = getattr(self, f"_{name}", None)
        if meaning is None:
            raise Undecided(name)
        return meaning(*children, *attributes)

    def _element(self, value: Any) -> Residues:
        """A value as residues: booleans are 0 and 1; a number of many digits is any number."""
        if isinstance(value, Residues):
            return value
        if isinstance(value, Tensor):
            return Residues(value.long() % PRIME, 0, 0)
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise Undecided(repr(value))
        if fraction(value) is not None:
            return number(value)
        return self._any(f"{value:.9g}")

    def _any(self, label: str, *operands: Residues) -> Residues:
        """A function of which only the name is known."""
        self.free = True
        return Residues(free(label, *(x.data for x in operands)))

    # Pointwise functions.

    def _unary(self, operand: Any, f: Function) -> Any:
        x = self._element(operand)
        simple: dict[str, Callable[[], Residues]] = {
            "neg": lambda: -x,
            "reciprocal": lambda: number(1) / x,
            "rsqrt": lambda: number(1) / self._any("sqrt", x),
            "sigmoid": lambda: self._sigmoid(x),
            "silu": lambda: x * self._sigmoid(x),
        }
        if f.name in simple:
            return simple[f.name]()
        if f.name == "to" and f.parameters[0].is_floating_point and not self.complex:
            return x
        found = self._any(f.label, x)
        truth = f.name in ("logical_not", "isnan", "isinf") or f.parameters == (torch.bool,)
        return (found.data & 1).bool() if truth else found

    def _sigmoid(self, x: Residues) -> Residues:
        return number(1) / (number(1) + self._any("exp", -x))

    def _binary(self, x: Any, y: Any, f: Function) -> Any:
        if f.name == "pow":
            if isinstance(x, Residues) and isinstance(y, (int, float)):
                return self._power(x, y)
            return self._any("pow", self._element(x), self._element(y))
        a, b = self._element(x), self._element(y)
        simple: dict[str, Callable[[], Residues]] = {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: a * b,
            "div": lambda: a / b,
        }
        if f.name in simple:
            return simple[f.name]()
        found = self._any(f.label, *((a + b, a * b) if f.commutative else (a, b)))
        truth = f.name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or")
        return (found.data & 1).bool() if truth else found

    def _power(self, x: Residues, exponent: float) -> Residues:
        if abs(exponent) <= HIGHEST and exponent == int(exponent):
            return x ** int(exponent)
        if exponent in (0.5, -0.5):
            root = self._any("sqrt", x)
            return root if exponent > 0 else number(1) / root
        return self._any(f"pow {exponent!r}", x)

    def _ternary(self, condition: Any, x: Any, y: Any, f: Function) -> Residues:
        if f.name != "where" or isinstance(condition, Residues):
            raise Undecided(f.label)
        a, b = self._element(x), self._element(y)
        data = torch.where(condition, a.data, b.data)
        return Residues(data, max(a.top, b.top), max(a.bottom, b.bottom))

    # Reductions.

    def _reduction(
        self, operand: Any, f: Function, dims: tuple[int, ...], keepdim: bool
    ) -> Residues:
        x = self._element(operand)
        if f.name == "sum":
            return x.total(dims, keepdim)
        if f.name == "mean":
            return self._mean(x, dims, keepdim)
        if f.name == "logsumexp":
            return self._any("log", self._any("exp", x).total(dims, keepdim))
        each = self._any(f.label, x).total(dims, keepdim)
        return self._any(f"{f.label} of all", each)

    def _mean(self, x: Residues, dims: tuple[int, ...], keepdim: bool = True) -> Residues:
        return x.total(dims, keepdim) / number(math.prod(x.data.shape[d] for d in dims))

    # Data movement.

    def _cat(self, *arguments: Any) -> Any:
        *parts, dim = arguments
        values = [self._element(part) for part in parts]
        degrees = max(v.top for v in values), max(v.bottom for v in values)
        return Residues(torch.cat([v.data for v in values], dim), *degrees)

    def _full(self, size: Any, value: Any, dtype: Any, device: Any) -> Any:
        filled = torch.full((), value, dtype=dtype, device=device)
        if dtype == torch.bool:
            return filled.expand(size)
        if not dtype.is_floating_point:
            raise Undecided("numbers that wrap around")
        return self._element(filled.item()).mapped(lambda x: x.expand(size))

    def _embedding(self, weight: Any, index: Any) -> Residues:
        if isinstance(index, Residues):
            raise Undecided("an index that is computed")
        return self._element(weight).mapped(lambda x: x[index])

    # Contractions.

    def _matmul(self, a: Any, b: Any) -> Residues:
        x, y = self._element(a), self._element(b)
        return product(torch.matmul, x, y, x.data.shape[-1])

    def _affine(self, x: Any, w: Any, b: Any) -> Residues:
        return self._matmul(x, w) + self._element(b)

    def _scaled_affine(self, x: Any, w: Any, b: Any, beta: Any, alpha: Any) -> Residues:
        product_ = self._matmul(x, w) * self._element(alpha)
        return product_ if beta == 0 else product_ + self._element(b) * self._element(beta)

    def _einsum(self, *arguments: Any) -> Residues:
        """Pair by pair: what neither the others nor the result need is summed at once."""
        *operands, equation = arguments
        inputs, _, output = equation.partition("->")
        labels = inputs.split(",")
        result, at = self._element(operands[0]), labels[0]
        if len(operands) == 1:
            sizes = zip(at, result.data.shape, strict=True)
            count = math.prod(size for n, size in sizes if n not in output)
            total = torch.einsum(equation, result.data) % PRIME
            return Residues(total, *result.summed(count))
        for k, operand in enumerate(operands[1:], 1):
            needed = output + "".join(labels[k + 1 :])
            both = dict.fromkeys(at + labels[k])
            kept = output if k + 1 == len(labels) else "".join(n for n in both if n in needed)
            other, step = self._element(operand), f"{at},{labels[k]}->{kept}"
            sizes = dict(zip(at, result.data.shape, strict=True))
            sizes |= dict(zip(labels[k], other.data.shape, strict=True))
            count = math.prod(size for n, size in sizes.items() if n not in kept)
            result = product(functools.partial(torch.einsum, step), result, other, count)
            at = kept
        return result

    def _convolution(self, x: Any, w: Any, *rest: Any) -> Residues:
        bias, geometry = (rest[0], rest[1:]) if len(rest) == 7 else (None, rest)
        a, b = self._element(x), self._element(w)
        fan = math.prod(b.data.shape[2:]) * b.data.shape[0 if geometry[3] else 1]
        out = product(lambda p, q: torch.convolution(p, q, None, *geometry), a, b, fan)
        if bias is None:
            return out
        shape = (-1, *(1,) * (b.data.ndim - 2))
        return out + self._element(bias).mapped(lambda p: p.reshape(shape))

    def _attention(self, q: Any, k: Any, v: Any, *rest: Any) -> Residues:
        mask, (causal, scale, gqa) = (rest[0], rest[1:]) if len(rest) == 4 else (None, rest)
        q, k, v = self._element(q), self._element(k), self._element(v)
        if gqa:
            k, v = (_repeated(x, q) for x in (k, v))
        if scale is None:
            scale = q.data.shape[-1] ** -0.5
        scores = self._matmul(q, k.mapped(lambda x: x.mT)) * self._element(scale)
        seen: Tensor | None = mask if isinstance(mask, Tensor) else None
        if isinstance(mask, Residues):
            scores = scores + mask
        if causal:
            seen = torch.ones(scores.data.shape[-2:], dtype=torch.bool).tril()
        weights = self._any("exp", scores)
        weights = weights if seen is None else weights * self._element(seen)
        return self._matmul(weights / weights.total((-1,), True), v)

    # Norms.

    def _softmax(self, x: Any, dim: int) -> Residues:
        weights = self._any("exp", self._element(x))
        return weights / weights.total((dim,), True)

    def _log_softmax(self, operand: Any, dim: int) -> Residues:
        x = self._element(operand)
        return x - self._any("log", self._any("exp", x).total((dim,), True))

    def _scale(self, x: Residues, dims: tuple[int, ...], eps: Any) -> Residues:
        """One over the root of the mean square; the default of `eps` is some number."""
        shift = self._any("eps") if eps is None else self._element(eps)
        return number(1) / self._any("sqrt", self._mean(x * x, dims) + shift)

    def _normed(self, x: Residues, dims: tuple[int, ...], eps: Any) -> Residues:
        centred = x - self._mean(x, dims)
        return centred * self._scale(centred, dims, eps)

    def _layer_norm(self, x: Any, *rest: Any) -> Residues:
        *parameters, shape, eps = rest
        out = self._normed(self._element(x), tuple(range(-len(shape), 0)), eps)
        return self._weighted(out, parameters, lambda p: p)

    def _rms_norm(self, x: Any, *rest: Any) -> Residues:
        *parameters, shape, eps = rest
        value = self._element(x)
        out = value * self._scale(value, tuple(range(-len(shape), 0)), eps)
        return self._weighted(out, parameters, lambda p: p)

    def _group_norm(self, x: Any, *rest: Any) -> Residues:
        *parameters, groups, eps = rest
        value = self._element(x)
        shape = value.data.shape
        grouped = value.mapped(lambda p: p.reshape(shape[0], groups, -1))
        out = self._normed(grouped, (-1,), eps).mapped(lambda p: p.reshape(shape))
        return self._weighted(out, parameters, _per_channel(value))

    def _batch_norm(self, x: Any, w: Any, b: Any, mean: Any, var: Any, eps: Any) -> Residues:
        value, beside = self._element(x), _per_channel(self._element(x))
        centre, spread = (self._element(v).mapped(beside) for v in (mean, var))
        root = self._any("sqrt", spread + self._element(eps))
        return self._weighted((value - centre) / root, [w, b], beside)

    def _weighted(
        self, x: Residues, parameters: list[Any], shaped: Callable[[Tensor], Tensor]
    ) -> Residues:
        values = [self._element(p).mapped(shaped) for p in parameters]
        out = x * values[0] if values else x
        return out + values[1] if len(values) > 1 else out

    # What picks, pads, sums up.

    def _index(self, x: Any, *rest: Any) -> Residues:
        if any(isinstance(pick, Residues) for pick in rest):
            raise Undecided("index")
        return self._element(x).mapped(lambda p: OPERATORS["index"].evaluate(p, *rest))

    def _pad(self, x: Any, padding: Any, value: Any) -> Residues:
        around = self._element(value)
        if around.data.ndim:
            raise Undecided("pad")
        return self._element(x).mapped(
            lambda p: OPERATORS["pad"].evaluate(p, padding, int(around.data))
        )

    def _cumsum(self, x: Any, dim: int) -> Residues:
        return self._element(x).mapped(lambda p: torch.cumsum(p, dim) % PRIME)

    # Pooling and resampling.

    def _plane(self, name: str, x: Residues, attributes: tuple[Any, ...]) -> Residues:
        """A linear map of the last two dims, applied as a matrix."""
        height, width = x.data.shape[-2:]
        key = tuple(tuple(a) if isinstance(a, list) else a for a in attributes)
        weights, size = _plane_weights(name, height, width, key)
        flat = x.mapped(lambda p: p.flatten(-2))
        out = product(torch.matmul, flat, Residues(weights, 0, 0), height * width)
        return out.mapped(lambda p: p.unflatten(-1, size))


def _repeated(x: Residues, q: Residues) -> Residues:
    """Keys or values, each head as often as there are heads of queries for it."""
    times = q.data.shape[-3] // x.data.shape[-3]
    return x.mapped(lambda p: p.repeat_interleave(times, -3))


def _per_channel(x: Residues) -> Callable[[Tensor], Tensor]:
    """How a vector of one number for each channel stands beside `x`."""
    shape = (-1, *(1,) * (x.data.ndim - 2))
    return lambda p: p.reshape(shape)


@functools.lru_cache(1 << 10)
def _plane_weights(
    name: str, height: int, width: int, attributes: tuple[Any, ...]
) -> tuple[Tensor, tuple[int, int]]:
    """The matrix of a linear map of planes over the field, and the size of its results."""
    unit = torch.eye(height * width, dtype=torch.float64).reshape(-1, 1, height, width)
    out = OPERATORS[name].evaluate(unit, *attributes)[:, 0]
    values, places = out.flatten(1).unique(return_inverse=True)
    table = torch.tensor([residue(value) for value in values.tolist()], dtype=torch.int64)
    return table[places], (out.shape[-2], out.shape[-1])
