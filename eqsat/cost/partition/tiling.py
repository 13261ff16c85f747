"""The tiles that Triton kernels cut their loops into, which keeps some apart (codegen/simd.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from eqsat.cost.partition.loops import Part, Walk

Tiling = tuple[int, ...]


@lru_cache(1 << 14)
def is_compatible(groups: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether loops of `sizes` can be written over `groups` (`_split_iteration_ranges`)."""
    remaining = list(groups)
    current = 0
    for size in sizes:
        while current < len(remaining) and remaining[current] == 1:
            current += 1
        if current < len(remaining) - 1 and size > remaining[current]:
            if size % remaining[current]:
                return False
            left = size // remaining[current]
            remaining[current] = 1
            if remaining[current + 1] % left:
                return False
            remaining[current + 1] //= left
        else:
            if current >= len(remaining) or remaining[current] % size:
                return False
            remaining[current] //= size
    return True


def select_tiling(parts: Sequence[Part]) -> Tiling:
    """The tiles of a pointwise kernel: one number, or two (`get_tiling_and_scores`)."""
    numel = parts[0].numel
    scores: dict[Tiling, int] = {}
    seen: set[int | None] = set()
    for part in parts:
        if len(part.sizes) <= 1:
            continue
        for name, tiling, score in _candidates(part):
            if name not in seen:
                seen.add(name)
                scores[tiling] = scores.get(tiling, 0) + score
    ranked = sorted(scores, key=lambda tiling: -scores[tiling])
    for tiling in ranked:
        if all(is_compatible(tiling, part.sizes) for part in parts):
            return tiling
    return (numel,)


def _candidates(part: Part) -> list[tuple[int | None, Tiling, int]]:
    """Cuts after the loop that an access is contiguous along (`candidate_tilings`)."""
    found: list[tuple[int | None, Tiling, int]] = [(None, (part.numel,), 0)]
    for access in (*part.reads, part.write):
        cut = _cut(part.sizes, access.loops)
        if cut is None:
            continue
        tiling, reached = cut
        score = reached * (2 if access is part.write else 1)
        score *= 2 if _is_good(tiling[0]) else 1
        score *= 2 if _is_good(tiling[1]) else 1
        if score >= part.numel:
            found.append((access.buffer.number, tiling, score))
    return found


@lru_cache(1 << 14)
def _cut(sizes: tuple[int, ...], walk: Walk) -> tuple[Tiling, int] | None:
    strides = [digits[-1][1] if digits else 0 for _, digits in walk]
    strides += [0] * (len(sizes) - len(strides))
    if 1 not in strides:
        return None
    split = strides.index(1) + 1
    if split == len(sizes) or not any(strides[split:]):
        return None
    reached = math.prod([n for n, stride in zip(sizes, strides, strict=True) if stride])
    return (math.prod(sizes[:split]), math.prod(sizes[split:])), reached


def _is_good(size: int) -> bool:
    return size >= 32 and size % 32 == 0
