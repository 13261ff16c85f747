"""Tensors over a prime field, where equal rational functions agree and others hardly ever do."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

PRIME = 2**31 - 1  # products of two residues fit into 63 bits
HALF = 16  # bits: products of two halves, and sums of 2^20 of them, are whole in float64
NEAR, SMALL = 2.0**-50, 2**30  # a float this near to a fraction of such small terms stands for it


class Undecided(ValueError):  # noqa: N818 - no error, an answer
    """What cannot be computed over the field: a division by zero, an operator without a meaning."""


@dataclass(frozen=True)
class Residues:
    """A tensor of residues, and the degrees of the rational function of the variables it is.

    `top` bounds the degree of its numerator, `bottom` that of its denominator.
    """

    data: Tensor
    top: int = 1
    bottom: int = 0

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Residues:
        """The residues that a view, or a selection, makes of these."""
        return Residues(function(self.data), self.top, self.bottom)

    def __add__(self, other: Residues) -> Residues:
        return Residues((self.data + other.data) % PRIME, *self._common(other))

    def __sub__(self, other: Residues) -> Residues:
        return Residues((self.data - other.data) % PRIME, *self._common(other))

    def __neg__(self) -> Residues:
        return Residues(-self.data % PRIME, self.top, self.bottom)

    def __mul__(self, other: Residues) -> Residues:
        degrees = self.top + other.top, self.bottom + other.bottom
        return Residues(self.data * other.data % PRIME, *degrees)

    def __truediv__(self, other: Residues) -> Residues:
        degrees = self.top + other.bottom, self.bottom + other.top
        return Residues(self.data * inverse(other.data) % PRIME, *degrees)

    def __pow__(self, exponent: int) -> Residues:
        result = Residues(torch.ones_like(self.data), 0, 0)
        for _ in range(abs(exponent)):
            result = result * self
        return number(1) / result if exponent < 0 else result

    def total(self, dims: tuple[int, ...], keepdim: bool) -> Residues:
        """The sum over some dims."""
        count = math.prod(self.data.shape[d] for d in dims)
        total = self.data.sum(dims, keepdim=keepdim) % PRIME if dims else self.data
        return Residues(total, *self.summed(count))

    def summed(self, count: int) -> tuple[int, int]:
        """The degrees of a sum of this many such values, of different denominators."""
        return self.top + max(count - 1, 0) * self.bottom, max(count, 1) * self.bottom

    def _common(self, other: Residues) -> tuple[int, int]:
        top = max(self.top + other.bottom, other.top + self.bottom)
        return top, self.bottom + other.bottom

    def differing(self, other: Residues) -> int:
        """The degree of the polynomial that is zero where these and others agree."""
        return max(self.top + other.bottom, other.top + self.bottom)


def inverse(data: Tensor) -> Tensor:
    """The inverse of every residue, by Fermat; raises Undecided for a zero."""
    if not data.all():
        raise Undecided("division by zero")
    result, power, exponent = torch.ones_like(data), data, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * power % PRIME
        power, exponent = power * power % PRIME, exponent >> 1
    return result


def product(
    function: Callable[[Tensor, Tensor], Tensor], a: Residues, b: Residues, count: int
) -> Residues:
    """A bilinear function, which sums `count` products, of residues: in halves, in float64."""
    (a1, a0), (b1, b0) = _halves(a.data), _halves(b.data)
    high = function(a1, b1).long() % PRIME
    middle = (function(a1, b0) + function(a0, b1)).long() % PRIME
    low = function(a0, b0).long() % PRIME
    data = ((((high << HALF) + middle) % PRIME << HALF) + low) % PRIME
    one = Residues(data, a.top + b.top, a.bottom + b.bottom)
    return Residues(data, *one.summed(count))


def _halves(data: Tensor) -> tuple[Tensor, Tensor]:
    return (data >> HALF).double(), (data & (1 << HALF) - 1).double()


def free(label: str, *operands: Tensor) -> Tensor:
    """A function of which nothing is known but its name: its values are scrambled operands."""
    mixed = torch.tensor(zlib.crc32(label.encode()))
    for operand in operands:
        mixed = _scrambled(mixed * 31 + operand)
    return _scrambled(mixed) % PRIME


def _scrambled(x: Tensor) -> Tensor:
    """The finalizer of splitmix64 (Steele, Lea and Flood, 2014); int64 wraps around."""
    x = (x ^ (x >> 30)) * -4658895280553007687
    x = (x ^ (x >> 27)) * -7723592293110705685
    return x ^ (x >> 31)


def number(value: Any) -> Residues:
    """A constant: the residue of the fraction that it stands for."""
    return Residues(torch.tensor(residue(value)), 0, 0)


def residue(value: Any) -> int:
    """The residue of a number; raises Undecided where it stands for no fraction of small terms."""
    found = fraction(value)
    if found is None or found.denominator % PRIME == 0:
        raise Undecided(f"{value!r} is no fraction of small terms")
    return found.numerator * pow(found.denominator, -1, PRIME) % PRIME


@functools.lru_cache(1 << 12)
def fraction(value: Any) -> Fraction | None:
    """The fraction of small terms that is a number up to rounding in float64; None without one."""
    if isinstance(value, int):
        return Fraction(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    exact = Fraction(value)
    for bound in (1 << 5, 1 << 10, 1 << 15, 1 << 24):
        near = exact.limit_denominator(bound)
        small = abs(near.numerator) * near.denominator < SMALL
        if small and abs(near - exact) <= NEAR * abs(exact):
            return near
    return None
