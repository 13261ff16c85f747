"""The tensors of a sample: plain and special values in storage of several layouts."""

from __future__ import annotations

import functools
import random
import zlib
from typing import Any

import torch
from torch import Tensor

from eqsat.meta import Meta, Scalar
from eqsat.rewrite import Numerics, Rewrite
from eqsat.verify.draw import FINITE
from eqsat.verify.samples import Sample

# How the tensors of a sample are filled: ordinary values, zeros among them; of many magnitudes;
# with NaN; with -inf, as in masks; with NaN, infinities, both zeros, subnormals and extremes.
STYLES = {
    Numerics.EXACT: ("plain", "special", "wide"),
    Numerics.ROUNDING: ("plain", "nan", "wide", "masked"),
    Numerics.RELAXED: ("plain", "wide"),
}
WIDE = {torch.float16: 0.7}  # decades of magnitude: products of three must fit
POOL = 1 << 14  # values drawn at once; a tensor is cut from them anywhere


def tensors(rule: Rewrite, sample: Sample, style: str, seed: int) -> dict[str, Any]:
    """The variables' values: tensors filled in a style, numbers and attributes as they are."""
    rng = random.Random(seed)
    finite = {v for fact in rule.facts if fact.name == "finite" for v in fact.variables}

    def value(name: str, given: Any) -> Any:
        if isinstance(given, Scalar):
            return given.value
        if not isinstance(given, Meta):
            return given
        tame = name in finite or sample.roles.get(name) == FINITE
        tame &= style in ("special", "nan", "masked")
        filled = fill(given, "plain" if tame else style, sample.roles.get(name), rng)
        return laid_out(filled, rng)

    return {name: value(name, given) for name, given in sample.values.items()}


def fill(meta: Meta, style: str, role: int | None, rng: random.Random) -> Tensor:
    """A tensor of this meta: indices below `role`, positive values (role 0), or of a style."""
    shape, count = tuple(int(n) for n in meta.shape), int(meta.numel())
    start = rng.randrange(POOL)
    pool = _pool(style if role in (None, FINITE) else "plain", meta.dtype)
    if role is not None and role > 0:
        return (pool[_places(start, count)].abs() % role).long().reshape(shape)
    values = pool[_places(start, count)].reshape(shape)
    return values.abs() + 0.1 if role == 0 and meta.dtype.is_floating_point else values


def _places(start: int, count: int) -> Any:
    if start + count <= 2 * POOL:
        return slice(start, start + count)
    return torch.arange(start, start + count) % POOL


@functools.cache
def _pool(style: str, dtype: torch.dtype) -> Tensor:
    """Values of a style, twice over, so that a cut may start anywhere in the first half."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{style} {dtype}".encode()))
    values = _values(style, dtype, generator)
    return torch.cat((values, values))


def _values(style: str, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    if dtype.is_complex:
        part = torch.float32 if dtype == torch.complex64 else torch.float64
        return torch.complex(_values(style, part, generator), _values(style, part, generator))
    if dtype == torch.bool:
        return torch.rand(POOL, generator=generator) < 0.5
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        reach = min(2**20, limits.max) if style == "wide" else 6
        low = max(-reach, limits.min)
        values = torch.randint(low, reach, (POOL,), generator=generator).to(dtype)
        rare = torch.tensor((limits.min, limits.max, limits.min + 1, 0, 1), dtype=dtype)
        return _strewn(values, rare, 0.3, generator) if style == "special" else values
    values = torch.randn(POOL, generator=generator, dtype=torch.float64)
    if style == "wide":
        values *= 10 ** (WIDE.get(dtype, 3) * torch.rand(POOL, generator=generator))
    rare, share = _rare(style, dtype)
    return _strewn(values, torch.tensor(rare, dtype=torch.float64), share, generator).to(dtype)


def _rare(style: str, dtype: torch.dtype) -> tuple[tuple[float, ...], float]:
    """The values of a style that stand among random ones, and how often."""
    if style == "nan":
        return (float("nan"),), 0.08
    if style == "masked":
        return (float("-inf"),), 0.1
    if style != "special":
        return (1.0, -1.0) if style == "wide" else (0.0, 0.0, 1.0, -1.0), 0.1
    limits = torch.finfo(dtype)
    small = limits.smallest_normal
    infinite = (float("nan"), float("inf"), float("-inf"))
    return (*infinite, -0.0, 0.0, limits.max, -limits.max, small, -small / 4, small / 2, -1.0), 0.3


def _strewn(values: Tensor, rare: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """The values, a share of them replaced by rare ones."""
    chosen = rare[torch.randint(len(rare), values.shape, generator=generator)]
    return torch.where(torch.rand(values.shape, generator=generator) < share, chosen, values)


def laid_out(values: Tensor, rng: random.Random) -> Tensor:
    """The same values in storage that is contiguous, permuted, or has gaps and an offset."""
    choice, ndim = rng.random(), values.ndim
    if choice < 0.5 or not ndim:
        return values.clone()
    if choice < 0.75:
        order = rng.sample(range(ndim), ndim)
        back = sorted(range(ndim), key=order.__getitem__)
        return values.permute(order).contiguous().permute(back)
    dim = rng.randrange(ndim)
    size = values.shape[dim]
    shape = (*values.shape[:dim], 2 * size + 1, *values.shape[dim + 1 :])
    place = torch.zeros(shape, dtype=values.dtype).narrow(dim, 1, 2 * size)
    inner = place.unflatten(dim, (size, 2)).select(dim + 1, 0) if size else place
    return inner.copy_(values)
