"""What may stand under each operator: random operands that fit their siblings, random attributes that fit the operands."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import torch

from eqsat.functions import POINTWISE, REDUCTION, Function
from eqsat.meta import Meta, Scalar

Shape = tuple[int, ...]
Metas = Sequence[Any]  # Meta | Scalar | None where an operand is not known yet
Given = dict[str, Any]  # attributes that are known before the operands are

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.bool)
CASTS = tuple(Function("to", (dtype,)) for dtype in (*FLOATS, *INTEGERS))
PARAMETERS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "gelu": ((), ("tanh",)),
    "clamp": ((0.0,), (-0.5, 1.5), (None, 1.0)),
    "leaky_relu": ((), (0.2,)),
}
BINARY = frozenset(
    "add sub mul div div_floor div_trunc pow maximum minimum remainder fmod eq ne lt le gt ge "
    "bitwise_and bitwise_or bitwise_xor logical_and logical_or".split()
)
FUNCTIONS: dict[str, tuple[Function, ...]] = {
    "unary": (
        *(
            Function(name, parameters)
            for name in POINTWISE
            if name not in BINARY | {"where", "to"}
            for parameters in PARAMETERS.get(name, ((),))
        ),
        *CASTS,
    ),
    "binary": tuple(Function(name) for name in POINTWISE if name in BINARY),
    "ternary": (Function("where"),),
    "reduction": (
        *(Function(name) for name in REDUCTION),
        Function("sum", (torch.float64,)),
    ),
}
COMMON = {
    "unary": tuple(Function(name) for name in ("relu", "exp", "tanh", "neg", "sigmoid", "abs"))
    + (Function("gelu"), Function("to", (torch.float64,)), Function("to", (torch.float32,))),
    "binary": tuple(Function(name) for name in ("add", "sub", "mul", "div", "maximum", "minimum")),
    "ternary": (Function("where"),),
    "reduction": tuple(Function(name) for name in ("sum", "mean", "amax", "amin")),
}
NUMBERS: tuple[Any, ...] = (0, 1, -1, 2, 3, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.25, 1e-3, 100.0, -1e30)


@dataclass
class Palette:
    """The taste of one attempt: its random numbers, sizes, usual rank and dtype, and what it has used."""

    rng: random.Random
    dtypes: tuple[tuple[torch.dtype, ...], tuple[float, ...]]  # base dtypes with their weights
    infinite: bool  # whether numbers may be NaN or infinite
    used: dict[tuple[str, Any], list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = self.rng
        self.sizes = tuple(rng.sample(rng.choice(((2, 3, 5), (2, 3, 4), (2, 4, 6), (3, 5, 7))), 3))
        if rng.random() < 0.1:  # kernels have other code for rows that fill a vector
            self.sizes = (2, 3, 16)
        self.repeats = rng.random() < 0.4
        if rng.random() < 0.25:  # all sizes alike: cubes admit what a shape would refuse
            self.sizes, self.repeats = (rng.choice((2, 3)),), True
        self.empty = rng.random() < 0.03
        self.rank = rng.choice((1, 2, 2, 3, 3, 4))
        self.spatial = rng.choice((1, 2, 2, 2))
        self.dtype = rng.choices(*self.dtypes)[0]
        self.joint = rng.random() < 0.5  # factors of a product have the usual rank
        self.mixed = rng.random() < 0.2
        self.twins = rng.choice((0.35, 0.35, 0.9))  # how often siblings look alike
        self.place = -rng.randint(1, 3)  # the dim in which they differ
        self.numbers = rng.choice((0.0, 0.0, 0.25, 0.6))

    def resemble(self, good: Palette) -> None:
        """Take over the taste of an attempt that succeeded, not its sizes."""
        self.rank, self.spatial, self.dtype = good.rank, good.spatial, good.dtype
        self.mixed, self.numbers, self.joint = good.mixed, good.numbers, good.joint
        if max(good.sizes) > 7:
            self.sizes = good.sizes
        for key, values in good.used.items():
            if key[1] == "function":
                self.used[key] = list(values)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def size(self) -> int:
        return 0 if self.empty and self.chance(0.2) else self.rng.choice(self.sizes)

    def shape(self, rank: int) -> Shape:
        if self.repeats or self.empty or rank > 3:
            shape = [self.size() for _ in range(rank)]
        else:
            shape = self.rng.sample(self.sizes, rank)
        return tuple(1 if self.chance(0.1) else size for size in shape)

    def a_rank(self, least: int = 0) -> int:
        return self.rank if self.chance(0.7) and self.rank >= least else self.rng.randint(least, 4)

    def a_dtype(self) -> torch.dtype:
        if self.mixed and self.chance(0.4):
            return self.rng.choices(*self.dtypes)[0]
        return self.dtype

    def tensor(self, shape: Sequence[int], dtype: torch.dtype | None = None) -> Meta:
        return Meta(tuple(shape), dtype or self.a_dtype(), "cpu")

    def number(self) -> Any:
        if self.infinite and self.chance(0.08):
            return self.rng.choice((float("inf"), float("-inf"), float("nan")))
        if self.chance(0.5):
            return self.rng.choice(NUMBERS)
        return round(self.rng.uniform(-3, 3), 3)

    def partner(self, shape: Sequence[int]) -> Shape:
        """A shape that broadcasts with `shape`."""
        rng, choice = self.rng, self.rng.random()
        if choice < 0.45 or self.chance(self.twins - 0.3):
            return tuple(shape)
        if choice < 0.65:
            return tuple(shape[rng.randint(0, len(shape)) :])
        if choice < 0.8:
            return (*self.shape(rng.choice((1, 1, 2))), *shape)[-4:]
        wide = tuple(
            1 if self.chance(0.3) else self.size() if s == 1 and self.chance(0.5) else s
            for s in shape
        )
        return wide

    def dim(self, meta: Any) -> int:
        if meta.ndim >= -self.place and self.chance(0.5):
            return self.place
        return -self.rng.randint(1, max(1, meta.ndim))

    def dims(self, meta: Any) -> Shape:
        n = max(1, meta.ndim)
        count = 1 if self.chance(0.6) else self.rng.randint(1, n)
        if self.chance(0.4):
            return tuple(range(-count, 0))
        return tuple(sorted(self.rng.sample(range(-n, 0), count)))


def operand(p: Palette, name: str, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    """A value for operand `i` of operator `name`, given the metas of the operands that are known."""
    twins = p.used.get((name, i), [])
    if twins and p.chance(p.twins):
        twin = p.rng.choice(twins)
        if isinstance(twin, Meta) and twin.ndim and p.chance(0.6):
            shape = list(twin.shape)
            if len(shape) > 1 and p.chance(0.8 - p.twins):  # the right factor of a product with the twin
                return p.tensor((*shape[:-2], shape[-1], p.size()), twin.dtype)
            shape[p.dim(twin)] = p.size()
            return p.tensor(shape, twin.dtype)
        return twin
    fit = OPERANDS.get(name, _any)
    return fit(p, i, metas, given, rank)


def _any(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    return p.tensor(p.shape(p.a_rank() if rank is None else rank))


def _positive_rank(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    return p.tensor(p.shape(p.a_rank(1) if rank is None else rank))


def _pointwise(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
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


def _matmul(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
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


def _cat(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
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


def _embedding(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    if i == 0:
        return p.tensor(p.shape(2))
    return p.tensor(p.shape(p.rng.choice((1, 2))), torch.int64)


def _convolution(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
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


def _attention(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    q, k, v = metas[:3]
    known = next((m for m in (q, k, v) if m is not None), None)
    if known is None:
        return p.tensor(p.shape(rank or p.rng.choice((3, 4, 4))))
    if i == 3:
        scores = (*q.shape[:-1], k.shape[-2])
        shape = p.rng.choice((scores[-2:], scores, (*([1] * (len(scores) - 2)), *scores[-2:])))
        return p.tensor(shape, p.rng.choice((torch.bool, q.dtype)))
    length = (k or v).shape[-2] if i in (1, 2) and (k or v) else p.size()
    width = (k or q).shape[-1] if i < 2 and (k or q) else p.rng.choice((known.shape[-1], p.size()))
    return p.tensor((*known.shape[:-2], length, width), known.dtype)


def _parameters(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    x, shape = metas[0], given.get("shape")
    if i > 0:
        if metas[1] is not None:
            return p.tensor(metas[1].shape, metas[1].dtype)
        count = 1 if p.chance(0.7) else p.rng.randint(1, max(1, x.ndim))
        return p.tensor(shape or x.shape[-count:], x.dtype)
    suffix = shape or next((m.shape for m in metas[1:] if m is not None), ())
    total = max(rank or p.a_rank(1), len(suffix))
    return p.tensor((*p.shape(total - len(suffix)), *suffix))


def _channels(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    x = metas[0]
    if i == 0:
        vector = next((m for m in metas[1:] if m is not None), None)
        shape = list(p.shape(rank or p.rng.choice((2, 3, 4))))
        shape[1] = vector.shape[0] if vector and vector.ndim else p.rng.choice((2, 4, 6))
        return p.tensor(shape)
    return p.tensor(x.shape[1:2], x.dtype)


def _with_ones(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    shape = p.shape(p.a_rank() if rank is None else p.rng.randint(0, rank))
    return p.tensor(tuple(1 if p.chance(0.5) else s for s in shape))


def _image(p: Palette, i: int, metas: Metas, given: Given, rank: int | None) -> Any:
    return p.tensor((*p.shape(2), p.rng.randint(3, 6), p.rng.randint(3, 6)))


OPERANDS: dict[str, Callable[..., Any]] = {
    "binary": _pointwise,
    "ternary": _pointwise,
    "matmul": _matmul,
    "affine": _matmul,
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
    **dict.fromkeys(
        ("reduction", "permute", "slice", "softmax", "log_softmax"), _positive_rank
    ),
}


def rank_below(p: Palette, name: str, i: int, rank: int | None) -> int | None:
    """The rank that operand `i` should have so that the result has `rank`; None for any."""
    if name == "convolution":
        return (rank or p.spatial + 2) if i < 2 else 1
    if name.startswith(("avg_pool", "adaptive", "upsample")):
        return 4
    if name == "attention":
        return rank or p.rng.choice((3, 4, 4))
    if name in ("batch_norm", "group_norm", "layer_norm", "rms_norm"):
        return rank if i == 0 else None
    if name in ("unary", "cat", "slice", "permute", "softmax", "log_softmax"):
        return rank
    if name in ("binary", "ternary"):
        return rank if p.chance(0.8) else None
    if name == "matmul" and rank is not None:
        return rank if i == 0 or p.chance(0.5) else None
    if name == "matmul":
        return p.rank if p.joint and p.rank > 1 else None
    if name == "reshape" and rank is not None:
        return min(4, max(0, rank + p.rng.choice((-1, 0, 1, 1))))
    return None


def attribute(
    p: Palette, name: str, key: str, metas: Metas, given: Given, known: Sequence[Shape], rank: int | None
) -> Any:
    """A value for attribute `key` of operator `name`; `known` are the shapes met so far."""
    earlier = p.used.get((name, key), [])
    if earlier and p.chance(0.3):
        return p.rng.choice(earlier)
    if key == "function":
        choice = p.rng.random()
        if name == "unary" and choice < 0.2:
            return p.rng.choice(CASTS)
        return p.rng.choice((COMMON if choice < 0.6 else FUNCTIONS)[name])
    if key == "size" and name in ("reshape", "expand", "full"):
        return _SIZES[name](p, metas, known, rank)
    choose = ATTRIBUTES.get((name, key)) or ATTRIBUTES[("", key)]
    return choose(p, metas, given)


def _reshaped(p: Palette, metas: Metas, known: Sequence[Shape], rank: int | None) -> Shape:
    shape, total = tuple(metas[0].shape), prod(metas[0].shape)
    options: list[Shape] = [s for s in known if prod(s) == total and s != shape]
    options += [
        (*s[: len(s) - k], *shape[len(shape) - k :])
        for k in (1, 2)
        for s in known
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
    if p.chance(0.2):
        options += [shape, (total,), shape[::-1], (*shape, 1), (1, *shape)]
    fitting = [o for o in options if rank is None or len(o) == rank]
    return p.rng.choice(fitting or options or [(total,)])


def _expanded(p: Palette, metas: Metas, known: Sequence[Shape], rank: int | None) -> Shape:
    shape = tuple(metas[0].shape)
    targets = [s for s in known if len(s) >= len(shape) and s != shape]
    targets = [
        s
        for s in targets
        if all(a in (1, b) for a, b in zip(shape[::-1], s[::-1], strict=False))
    ]
    if targets and p.chance(0.5):
        return p.rng.choice(targets)
    grown = tuple(p.size() if s == 1 and p.chance(0.7) else s for s in shape)
    extra = max(0, rank - len(shape)) if rank is not None else p.rng.choice((0, 0, 1, 2))
    return (*p.shape(extra), *grown)


def _made(p: Palette, metas: Metas, known: Sequence[Shape], rank: int | None) -> Shape:
    if known and p.chance(0.5):
        return p.rng.choice(known)
    return p.shape(p.a_rank() if rank is None else rank)


def _permutation(p: Palette, metas: Metas, given: Given) -> Shape:
    n = metas[0].ndim
    dims, choice = list(range(n)), p.rng.random()
    if n > 1 and choice < 0.35:
        dims[-1], dims[-2] = dims[-2], dims[-1]
        return tuple(dims)
    fixed = p.rng.randint(1, 2) if n > 2 and choice < 0.6 else 0
    return (*p.rng.sample(dims[: n - fixed], n - fixed), *dims[n - fixed :])


def _bound(p: Palette, metas: Metas, given: Given, low: int) -> int:
    """A place in a dim: often one where another slice starts or ends."""
    dim = given.get("dim")
    size = metas[0].shape[dim] if dim is not None and -metas[0].ndim <= dim < 0 else 1
    met = [v for key in ("start", "end") for v in p.used.get(("slice", key), []) if low <= v <= size]
    if met and p.chance(0.4):
        return p.rng.choice(met)
    if p.chance(0.5):
        return p.rng.randint(min(low, size), size)
    return p.rng.choice((low, size, p.rng.randint(min(low, size), size)))


def _list(p: Palette, metas: Metas, *values: int) -> Shape:
    n = metas[0].ndim - 2
    return (p.rng.choice(values),) * n if p.chance(0.8) else tuple(p.rng.choices(values, k=n))


def _groups(p: Palette, metas: Metas, given: Given) -> int:
    if given.get("transposed"):
        return 1
    return max(1, metas[0].shape[1] // max(1, metas[1].shape[1]))


def _suffix(p: Palette, metas: Metas, given: Given) -> Shape:
    if len(metas) > 1:
        return tuple(metas[1].shape)
    return tuple(metas[0].shape[-(1 if p.chance(0.7) else p.rng.randint(1, max(1, metas[0].ndim))) :])


def _divisor(p: Palette, metas: Metas, given: Given) -> int:
    return p.rng.choice([d for d in (1, 2, 3, 6) if metas[0].shape[1] % d == 0])


ATTRIBUTES: dict[tuple[str, str], Callable[[Palette, Metas, Given], Any]] = {
    ("number", "value"): lambda p, m, g: p.number(),
    ("reduction", "dims"): lambda p, m, g: p.dims(m[0]),
    ("", "keepdim"): lambda p, m, g: p.chance(0.5),
    ("permute", "dims"): _permutation,
    ("", "dim"): lambda p, m, g: p.dim(m[0]),
    ("slice", "start"): lambda p, m, g: 0 if p.chance(0.25) else _bound(p, m, g, 0),
    ("slice", "end"): lambda p, m, g: _bound(p, m, g, g.get("start") or 0),
    ("slice", "step"): lambda p, m, g: 1 if p.chance(0.8) else 2,
    ("getitem", "index"): lambda p, m, g: 0,
    ("full", "value"): lambda p, m, g: p.number(),
    ("", "dtype"): lambda p, m, g: p.a_dtype(),
    ("", "device"): lambda p, m, g: torch.device("cpu"),
    ("arange", "start"): lambda p, m, g: p.rng.randint(0, 2),
    ("arange", "end"): lambda p, m, g: p.rng.randint(3, 7),
    ("arange", "step"): lambda p, m, g: p.rng.choice((1, 1, 2)),
    ("convolution", "stride"): lambda p, m, g: _list(p, m, 1, 1, 2),
    ("convolution", "padding"): lambda p, m, g: _list(p, m, 0, 1),
    ("convolution", "dilation"): lambda p, m, g: _list(p, m, 1, 1, 1, 2),
    ("convolution", "transposed"): lambda p, m, g: p.chance(0.1),
    ("convolution", "output_padding"): lambda p, m, g: _list(p, m, 0),
    ("convolution", "groups"): _groups,
    ("attention", "causal"): lambda p, m, g: len(m) == 3 and p.chance(0.3),
    ("attention", "scale"): lambda p, m, g: p.rng.choice((1.0, 0.5, 0.3)),
    ("attention", "gqa"): lambda p, m, g: False,
    ("", "shape"): _suffix,
    ("", "eps"): lambda p, m, g: p.rng.choice((1e-5, 1e-3)),
    ("group_norm", "groups"): _divisor,
    ("avg_pool2d", "kernel_size"): lambda p, m, g: _list(p, m, 1, 2, 3),
    ("avg_pool2d", "stride"): lambda p, m, g: _list(p, m, 1, 2),
    ("avg_pool2d", "padding"): lambda p, m, g: _list(p, m, 0, 0, 1),
    ("", "ceil_mode"): lambda p, m, g: p.chance(0.3),
    ("", "count_include_pad"): lambda p, m, g: p.chance(0.5),
    ("", "divisor_override"): lambda p, m, g: None,
    ("adaptive_avg_pool2d", "size"): lambda p, m, g: _list(p, m, 1, 2),
    ("upsample_nearest2d", "size"): lambda p, m, g: _list(p, m, 4, 6),
    ("upsample_bilinear2d", "size"): lambda p, m, g: _list(p, m, 4, 6),
    ("", "scales"): lambda p, m, g: None,
    ("", "align_corners"): lambda p, m, g: p.chance(0.5),
}
_SIZES = {"reshape": _reshaped, "expand": _expanded, "full": _made}
