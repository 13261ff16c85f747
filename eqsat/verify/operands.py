"""The operands that fit an operator: random tensors and numbers that suit those that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from eqsat.meta import Meta, Scalar
from eqsat.verify.palette import LARGEST_RANK, Palette

Metas = Sequence[Any]  # Meta | Scalar | None where an operand is not known yet
Given = dict[str, Any]  # attributes that are known before the operands are


@dataclass(frozen=True)
class Slot:
    """The place of operand `i` of an operator whose result should have `rank`, None for any."""

    p: Palette
    i: int
    metas: Metas
    given: Given
    rank: int | None


def operand(p: Palette, name: str, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    """A value for operand `i` of operator `name`; `metas` are those of the operands known."""
    twins = p.used.get((name, i), [])
    beside = name == "binary" and any(isinstance(m, Meta) for m in metas)
    if twins and p.chance(0.3 if beside else p.twins):
        twin = p.rng.choice(twins)
        if isinstance(twin, Meta) and twin.ndim and p.chance(0.6):
            shape = list(twin.shape)
            if len(shape) > 1 and p.chance(0.8 - p.twins):  # a right factor of the twin
                return p.tensor((*shape[:-2], shape[-1], p.size()), twin.dtype)
            shape[p.dim(twin)] = p.size()
            return p.tensor(shape, twin.dtype)
        return twin
    fit = OPERANDS.get(name, _any)
    return fit(Slot(p, i, metas, given, rank))


def _any(s: Slot) -> Any:
    p, rank = s.p, s.rank
    return p.tensor(p.shape(p.a_rank() if rank is None else rank))


def _positive_rank(s: Slot) -> Any:
    p, rank = s.p, s.rank
    return p.tensor(p.shape(p.a_rank(1) if rank is None else rank))


def _pointwise(s: Slot) -> Any:
    p, i, metas, rank = s.p, s.i, s.metas, s.rank
    siblings = [m for m in metas if isinstance(m, Meta)]
    condition = len(metas) == 3 and i == 0
    if p.chance(p.numbers) and not condition and (siblings or metas.count(None) > 1):
        return Scalar(p.number())
    dtype = torch.bool if condition else None
    if dtype is None and siblings and not p.mixed and siblings[-1].dtype != torch.bool:
        dtype = siblings[-1].dtype
    if not siblings or (rank is not None and p.chance(0.5)):
        return p.tensor(p.shape(p.a_rank() if rank is None else rank), dtype)
    return p.tensor(p.partner(p.rng.choice(siblings).shape), dtype)


def _matmul(s: Slot) -> Any:
    p, i, metas, rank = s.p, s.i, s.metas, s.rank
    if i == 2:
        result = (*metas[0].shape[:-1], metas[1].shape[-1])
        return p.tensor(p.rng.choice((result[-1:], p.partner(result))), metas[0].dtype)
    other = metas[1 - i]
    if other is None or not other.ndim:
        return p.tensor(p.shape(p.rng.choice((p.a_rank(1), 2)) if rank is None else rank))
    inner = other.shape[-1] if i == 1 else other.shape[max(-2, -other.ndim)]
    kind = p.rng.choice((1, 2, 2, 2, max(2, other.ndim), 3, 4)) if i else (rank or p.a_rank(1))
    if kind == 1:
        return p.tensor((inner,), other.dtype)
    outer = p.size() if p.chance(0.8) else other.shape[-2 if i else -1] if other.ndim > 1 else 1
    matrix = (inner, outer) if i == 1 else (outer, inner)
    batch = p.partner(other.shape[:-2]) if kind > 2 and other.ndim > 2 else p.shape(kind - 2)
    return p.tensor((*batch[-2:], *matrix), other.dtype)


def _scaled_affine(s: Slot) -> Any:
    """Matrices, or batches of them, and what is added to their product."""
    p, (x, w, _) = s.p, s.metas
    if s.i == 2:
        shape = (*x.shape[:-1], w.shape[-1])
        return p.tensor(shape if p.chance(0.6) else shape[1:], x.dtype)
    known = x or w
    batch = known.shape[:-2] if known else p.shape(p.rng.choice((0, 1)))
    inner = x.shape[-1] if x else w.shape[-2] if w else p.size()
    matrix = (p.size(), inner) if s.i == 0 else (inner, p.size())
    return p.tensor((*batch, *matrix), known.dtype if known else None)


def _cat(s: Slot) -> Any:
    p, metas, given, rank = s.p, s.metas, s.given, s.rank
    known = [m for m in metas if m is not None]
    if not known:
        return p.tensor(p.shape(p.a_rank(1) if rank is None else rank))
    shape, dim = list(known[-1].shape), given.get("dim")
    differing = [
        d - len(shape)
        for a, b in pairwise(known)
        for d, (x, y) in enumerate(zip(a.shape, b.shape, strict=False))
        if x != y
    ]
    place = dim if dim is not None else differing[0] if differing else p.dim(known[-1])
    if shape and -len(shape) <= place:
        shape[place] = shape[place] if p.chance(0.4) else p.size()
    return p.tensor(shape, known[-1].dtype)


def _embedding(s: Slot) -> Any:
    p, i = s.p, s.i
    if i == 0:
        return p.tensor(p.shape(2))
    return p.tensor(p.shape(p.rng.choice((1, 2))), torch.int64)


def _convolution(s: Slot) -> Any:
    p, i, metas, given, rank = s.p, s.i, s.metas, s.given, s.rank
    x, w = metas[0], metas[1]
    spatial = (x or w).ndim - 2 if x or w else (rank - 2 if rank else p.spatial)
    groups = given.get("groups")
    if i == 2:
        return p.tensor((w.shape[1] if given.get("transposed") else w.shape[0],), w.dtype)
    if i == 0:
        divisors = [g for g in (1, 2, 3) if w is not None and w.shape[0] % g == 0]
        channels = w.shape[1] * (groups or p.rng.choice(divisors)) if w else p.rng.choice((2, 4, 6))
        size = tuple(p.rng.randint(4, 7) for _ in range(spatial))
        return p.tensor((p.rng.choice((1, 2)), channels, *size), w.dtype if w else None)
    channels = x.shape[1] if x else p.rng.choice((2, 4, 6))
    g = groups or p.rng.choice([1, 1, *(d for d in (2, 3, channels) if channels % max(d, 1) == 0)])
    kernel = tuple(p.rng.choice((1, 3)) for _ in range(spatial))
    kernel = kernel if p.chance(0.5) else tuple(p.rng.randint(1, 3) for _ in range(spatial))
    kernel = (1,) * spatial if p.chance(0.3) else kernel
    fan = (max(1, channels // g), g * p.rng.randint(1, 3))
    fan = fan if given.get("transposed") else fan[::-1]
    if given.get("transposed"):
        fan = (channels, p.rng.randint(1, 3))
    return p.tensor((*fan, *kernel), x.dtype if x else None)


def _attention(s: Slot) -> Any:
    p, i, metas, rank = s.p, s.i, s.metas, s.rank
    q, k, v = metas[:3]
    known = next((m for m in (q, k, v) if m is not None), None)
    if known is None:
        return p.tensor(p.shape(rank or p.rng.choice((3, 4, 4))))
    if i == 3:
        scores = (*q.shape[:-1], k.shape[-2])
        shape = p.rng.choice((scores[-2:], scores, (*([1] * (len(scores) - 2)), *scores[-2:])))
        return p.tensor(shape, p.rng.choice((torch.bool, q.dtype)))
    mask = metas[3] if len(metas) > 3 else None
    length = (k or v).shape[-2] if i in (1, 2) and (k or v) else p.size()
    if mask is not None and mask.ndim > 1:  # the mask is known first
        length = mask.shape[-1 if i else -2]
    width = (k or q).shape[-1] if i < 2 and (k or q) else p.rng.choice((known.shape[-1], p.size()))
    return p.tensor((*known.shape[:-2], length, width), known.dtype)


def _parameters(s: Slot) -> Any:
    p, i, metas, given, rank = s.p, s.i, s.metas, s.given, s.rank
    x, shape = metas[0], given.get("shape")
    if i > 0:
        if metas[1] is not None:
            return p.tensor(metas[1].shape, metas[1].dtype)
        count = 1 if p.chance(0.7) else p.rng.randint(1, max(1, x.ndim))
        return p.tensor(shape or x.shape[-count:], x.dtype)
    suffix = shape or next((m.shape for m in metas[1:] if m is not None), ())
    total = max(rank or p.a_rank(1), len(suffix))
    return p.tensor((*p.shape(total - len(suffix)), *suffix))


def _channels(s: Slot) -> Any:
    p, i, metas, rank = s.p, s.i, s.metas, s.rank
    x = metas[0]
    if i == 0:
        vector = next((m for m in metas[1:] if m is not None), None)
        shape = list(p.shape(rank or p.rng.choice((2, 3, 4))))
        shape[1] = vector.shape[0] if vector and vector.ndim else p.rng.choice((2, 4, 6))
        return p.tensor(shape)
    return p.tensor(x.shape[1:2], x.dtype)


def _with_ones(s: Slot) -> Any:
    p, rank = s.p, s.rank
    shape = p.shape(p.a_rank() if rank is None else p.rng.randint(0, rank))
    return p.tensor(tuple(1 if p.chance(0.5) else s for s in shape))


def _image(s: Slot) -> Any:
    p = s.p
    return p.tensor((*p.shape(2), p.rng.randint(3, 6), p.rng.randint(3, 6)))


def _factor(s: Slot) -> Any:
    p = s.p
    return p.tensor(p.shape(p.rng.choice((1, 2, 2, 3, 3, 4))))


def _picked(s: Slot) -> Any:
    p, i, metas = s.p, s.i, s.metas
    if i == 0:
        return p.tensor(p.shape(p.rng.choice((2, 3, 3, 4))))
    other = next((m for m in metas[1:] if m is not None), None)
    if other is not None and p.chance(0.9):
        return p.tensor(other.shape, torch.int64)
    return p.tensor(p.shape(p.rng.choice((0, 1, 1, 2))), torch.int64)


def _scattered(s: Slot) -> Any:
    p, i, metas = s.p, s.i, s.metas
    if i == 0 or metas[0] is None:
        return _positive_rank(s)
    shape = list(metas[0].shape)
    if shape:
        shape[p.dim(metas[0])] = 1
    return p.tensor(shape, torch.int64)


OPERANDS: dict[str, Callable[[Slot], Any]] = {
    "binary": _pointwise,
    "ternary": _pointwise,
    "matmul": _matmul,
    "affine": _matmul,
    "scaled_affine": _scaled_affine,
    "einsum": _factor,
    "cat": _cat,
    "embedding": _embedding,
    "convolution": _convolution,
    "attention": _attention,
    "layer_norm": _parameters,
    "rms_norm": _parameters,
    "group_norm": _channels,
    "batch_norm": _channels,
    "expand": _with_ones,
    "avg_pool2d": _image,
    "adaptive_avg_pool2d": _image,
    "upsample_nearest2d": _image,
    "upsample_bilinear2d": _image,
    "max_pool2d": _image,
    "index": _picked,
    "scatter": _scattered,
    **dict.fromkeys(
        ("reduction", "permute", "slice", "softmax", "log_softmax", "pad", "roll", "cumsum"),
        _positive_rank,
    ),
}


def rank_below(p: Palette, name: str, i: int, rank: int | None) -> int | None:
    """The rank that operand `i` should have so that the result has `rank`; None for any."""
    if name == "convolution":
        return (rank or p.spatial + 2) if i < 2 else 1
    if name.startswith(("avg_pool", "adaptive", "upsample", "max_pool")):
        return 4
    if name == "attention":
        return rank or (p.rank if p.rank in (3, 4) else 4)  # the same for all of them
    if name in ("batch_norm", "group_norm", "layer_norm", "rms_norm"):
        return rank if i == 0 else None
    if name in (
        "unary",
        "cat",
        "slice",
        "permute",
        "softmax",
        "log_softmax",
        "pad",
        "roll",
        "cumsum",
    ):
        return rank
    if name in ("binary", "ternary"):
        return rank if p.chance(0.8) else None
    if name == "matmul" and rank is not None:
        return rank if i == 0 or p.chance(0.5) else None
    if name == "matmul":
        return p.rank if p.joint and p.rank > 1 else None
    if name == "reshape" and rank is not None:
        return min(LARGEST_RANK, max(0, rank + p.rng.choice((-1, 0, 1, 1))))
    return None
