"""The attributes that fit an operator: random ones that its operands allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from eqsat.functions import Function
from eqsat.verify.palette import CASTS, COMMON, FUNCTIONS, Palette, Shape

LABELS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Place:
    """Where an attribute is to stand: its operator's operands and attributes so far.

    `known` are the shapes met in the sample, `rank` what the result should have, None for any.
    """

    p: Palette
    metas: Sequence[Any]
    given: dict[str, Any]
    known: Sequence[Shape]
    rank: int | None


def attribute(name: str, key: str, a: Place) -> Any:
    """A value for attribute `key` of operator `name`."""
    p = a.p
    earlier = p.used.get((name, key), [])
    if earlier and p.chance(0.3 if p.twins < 0.5 else 0.7):  # where siblings look alike
        return p.rng.choice(earlier)
    if key == "function":
        choice = p.rng.random()
        if name == "unary" and p.casts:
            return Function("to", (p.dtype,)) if choice < 0.4 else p.rng.choice(CASTS)
        if name == "unary" and choice < 0.2:
            return p.rng.choice(CASTS)
        return p.rng.choice((COMMON if choice < 0.6 else FUNCTIONS)[name])
    choose = ATTRIBUTES.get((name, key)) or ATTRIBUTES[("", key)]
    return choose(a)


def _reshaped(a: Place) -> Shape:
    shape, total = tuple(a.metas[0].shape), prod(a.metas[0].shape)
    options: list[Shape] = [s for s in a.known if prod(s) == total and s != shape]
    options += [
        (*s[: len(s) - k], *shape[len(shape) - k :])
        for k in (1, 2)
        for s in a.known
        if min(len(shape), len(s)) >= k and prod(s[: len(s) - k]) == prod(shape[: len(shape) - k])
    ]
    options += [(prod(shape[:d]), *shape[d:]) for d in (len(shape) - 1, len(shape) - 2) if d > 1]
    for d in range(len(shape) - 1):
        options.append((*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :]))
    for d, size in enumerate(shape):
        if size == 1:
            options.append(shape[:d] + shape[d + 1 :])
        for k in (1, 2, 3):
            if size % k == 0 and len(shape) < 5:
                options += [
                    (*shape[:d], k, size // k, *shape[d + 1 :]),
                    (*shape[:d], size // k, k, *shape[d + 1 :]),
                ]
    if a.p.chance(0.2):
        options += [shape, (total,), shape[::-1], (*shape, 1), (1, *shape)]
    fitting = [o for o in options if a.rank is None or len(o) == a.rank]
    return a.p.rng.choice(fitting or options or [(total,)])


def _expanded(a: Place) -> Shape:
    shape = tuple(a.metas[0].shape)
    targets = [s for s in a.known if len(s) >= len(shape) and s != shape]
    targets = [
        s for s in targets if all(m in (1, n) for m, n in zip(shape[::-1], s[::-1], strict=False))
    ]
    if targets and a.p.chance(0.5):
        return a.p.rng.choice(targets)
    grown = tuple(a.p.size() if s == 1 and a.p.chance(0.7) else s for s in shape)
    extra = max(0, a.rank - len(shape)) if a.rank is not None else a.p.rng.choice((0, 0, 1, 2))
    return (*a.p.shape(extra), *grown)


def _made(a: Place) -> Shape:
    if a.known and a.p.chance(0.5):
        return a.p.rng.choice(a.known)
    return a.p.shape(a.p.a_rank() if a.rank is None else a.rank)


def _permutation(a: Place) -> Shape:
    n = a.metas[0].ndim
    dims, choice = list(range(n)), a.p.rng.random()
    if n > 1 and choice < 0.35:
        dims[-1], dims[-2] = dims[-2], dims[-1]
        return tuple(dims)
    fixed = a.p.rng.randint(1, 2) if n > 2 and choice < 0.6 else 0
    return (*a.p.rng.sample(dims[: n - fixed], n - fixed), *dims[n - fixed :])


def _bound(a: Place, low: int) -> int:
    """A place in a dim: often one where another slice starts or ends."""
    dim = a.given.get("dim")
    size = a.metas[0].shape[dim] if dim is not None and -a.metas[0].ndim <= dim < 0 else 1
    ends = [v for key in ("start", "end") for v in a.p.used.get(("slice", key), [])]
    met = [v for v in ends if low <= v <= size]
    if met and a.p.chance(0.4):
        return a.p.rng.choice(met)
    if a.p.chance(0.5):
        return a.p.rng.randint(min(low, size), size)
    return a.p.rng.choice((low, size, a.p.rng.randint(min(low, size), size)))


def _list(a: Place, *values: int) -> Shape:
    n = a.metas[0].ndim - 2
    alike = a.p.chance(0.8)
    return (a.p.rng.choice(values),) * n if alike else tuple(a.p.rng.choices(values, k=n))


def _groups(a: Place) -> int:
    if a.given.get("transposed"):
        return 1
    return max(1, a.metas[0].shape[1] // max(1, a.metas[1].shape[1]))


def _suffix(a: Place) -> Shape:
    if len(a.metas) > 1:
        return tuple(a.metas[1].shape)
    count = 1 if a.p.chance(0.7) else a.p.rng.randint(1, max(1, a.metas[0].ndim))
    return tuple(a.metas[0].shape[-count:])


def _divisor(a: Place) -> int:
    return a.p.rng.choice([d for d in (1, 2, 3, 6) if a.metas[0].shape[1] % d == 0])


def _equation(a: Place) -> str:
    """An equation of the operands: dims of one size often share a label, and are then summed."""
    p, sizes, operands = a.p, dict[str, int](), list[str]()
    for meta in a.metas:
        labels = ""
        for size in meta.shape:
            alike = [n for n, s in sizes.items() if s == size and n not in labels]
            label = p.rng.choice(alike) if alike and p.chance(0.8) else LABELS[len(sizes)]
            sizes[label] = size
            labels += label
        operands.append(labels)
    text = "".join(operands)
    kept = [n for n in sizes if p.chance(0.5 if text.count(n) > 1 else 0.8)]
    return f"{','.join(operands)}->{''.join(p.rng.sample(kept, len(kept)))}"


def _padding(a: Place) -> Shape:
    n = a.metas[0].ndim
    dims = min(n, a.p.rng.choice((1, 1, 2)))
    before = (0, 0) * a.p.rng.randint(0, n - dims)
    return (*before, *(a.p.rng.choice((0, 1, 1, 2)) for _ in range(2 * dims)))


def _rolled(a: Place) -> Shape:
    shifts, n = a.given["shifts"], a.metas[0].ndim
    return tuple(sorted(a.p.rng.sample(range(-n, 0), len(shifts))))


ATTRIBUTES: dict[tuple[str, str], Callable[[Place], Any]] = {
    ("number", "value"): lambda a: a.p.number(),
    ("reshape", "size"): _reshaped,
    ("expand", "size"): _expanded,
    ("full", "size"): _made,
    ("reduction", "dims"): lambda a: a.p.dims(a.metas[0]),
    ("reduction", "keepdim"): lambda a: a.p.chance(0.5),
    ("permute", "dims"): _permutation,
    ("", "dim"): lambda a: a.p.dim(a.metas[0]),
    ("slice", "start"): lambda a: 0 if a.p.chance(0.25) else _bound(a, 0),
    ("slice", "end"): lambda a: _bound(a, a.given.get("start") or 0),
    ("slice", "step"): lambda a: 1 if a.p.chance(0.8) else 2,
    ("getitem", "index"): lambda _: 0,
    ("full", "value"): lambda a: a.p.number(),
    ("", "dtype"): lambda a: a.p.a_dtype(),
    ("", "device"): lambda _: torch.device("cpu"),
    ("arange", "start"): lambda a: a.p.rng.randint(0, 2),
    ("arange", "end"): lambda a: a.p.rng.randint(3, 7),
    ("arange", "step"): lambda a: a.p.rng.choice((1, 1, 2)),
    ("einsum", "equation"): _equation,
    ("scaled_affine", "beta"): lambda a: a.p.rng.choice((0, 0.0, 1, 1.0, 0.5)),
    ("scaled_affine", "alpha"): lambda a: a.p.rng.choice((1, 2.0, 0.5, 0.3)),
    ("convolution", "stride"): lambda a: _list(a, 1, 1, 2),
    ("convolution", "padding"): lambda a: _list(a, 0, 1),
    ("convolution", "dilation"): lambda a: _list(a, 1, 1, 1, 2),
    ("convolution", "transposed"): lambda a: a.p.chance(0.1),
    ("convolution", "output_padding"): lambda a: _list(a, 0),
    ("convolution", "groups"): _groups,
    ("attention", "causal"): lambda a: len(a.metas) == 3 and a.p.chance(0.3),
    ("attention", "scale"): lambda a: a.p.rng.choice((1.0, 0.5, 0.3)),
    ("attention", "gqa"): lambda _: False,
    ("", "shape"): _suffix,
    ("", "eps"): lambda a: a.p.rng.choice((1e-5, 1e-3)),
    ("group_norm", "groups"): _divisor,
    ("avg_pool2d", "kernel_size"): lambda a: _list(a, 1, 2, 3),
    ("avg_pool2d", "stride"): lambda a: _list(a, 1, 2),
    ("avg_pool2d", "padding"): lambda a: _list(a, 0, 0, 1),
    ("", "ceil_mode"): lambda a: a.p.chance(0.3),
    ("", "count_include_pad"): lambda a: a.p.chance(0.5),
    ("", "divisor_override"): lambda _: None,
    ("adaptive_avg_pool2d", "size"): lambda a: _list(a, 1, 2),
    ("upsample_nearest2d", "size"): lambda a: _list(a, 4, 6),
    ("upsample_bilinear2d", "size"): lambda a: _list(a, 4, 6),
    ("", "scales"): lambda _: None,
    ("", "align_corners"): lambda a: a.p.chance(0.5),
    ("max_pool2d", "kernel_size"): lambda a: _list(a, 2, 3),
    ("max_pool2d", "stride"): lambda a: _list(a, 1, 2),
    ("max_pool2d", "padding"): lambda a: _list(a, 0, 0, 1),
    ("max_pool2d", "dilation"): lambda a: _list(a, 1),
    ("scatter", "value"): lambda a: a.p.number(),
    ("pad", "padding"): _padding,
    ("pad", "value"): lambda a: a.p.number(),
    ("roll", "dims"): _rolled,
    ("roll", "shifts"): lambda a: tuple(a.p.rng.choices((0, 1, 2, 3), k=a.p.rng.choice((1, 1, 2)))),
}
