"""Groups of equal programs, on which a cost model is asked which one is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812, as everybody writes it


class Index(NamedTuple):
    """An operand of `length` row numbers below `rows`."""

    length: int
    rows: int


class Positive(NamedTuple):
    """An operand of this length, all above 1."""

    length: int


Operand = tuple[int, ...] | Index | Positive
Program = Callable[..., Tensor]


@dataclass(frozen=True)
class Group:
    """Programs that compute the same from the same operands, by name; the first is the plain one.

    An operand is the shape of a float32 tensor. Weights are operands: nothing is folded away.
    """

    name: str
    operands: tuple[Operand, ...]
    programs: Mapping[str, Program]


def tensors(group: Group, place: str = "cpu") -> tuple[Tensor, ...]:
    """The operands of a group, always the same."""
    generator = torch.Generator().manual_seed(0)

    def tensor(operand: Operand) -> Tensor:
        if isinstance(operand, Index):
            return torch.randint(0, operand.rows, (operand.length,), generator=generator)
        if isinstance(operand, Positive):
            return torch.rand(operand.length, generator=generator) + 1
        return torch.randn(operand, generator=generator)

    return tuple(tensor(operand).to(place) for operand in group.operands)


def _group(name: str, *operands: Operand, **programs: Program) -> Group:
    return Group(name, operands, programs)


def _merged(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    y = x @ torch.cat([a, b, c], 1)
    n, m = a.shape[1], a.shape[1] + b.shape[1]
    return F.relu(y[:, :n]) + F.relu(y[:, n:m]) + F.relu(y[:, m:])


def _folded(x: Tensor, w: Tensor, m: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Tensor:
    s = g * torch.rsqrt(v + 1e-5)
    return F.conv2d(x, w * s.view(-1, 1, 1, 1), b - m * s, padding=1)


def _normalized(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    m = x.mean(-1, keepdim=True)
    return (x - m) * torch.rsqrt((x * x).mean(-1, keepdim=True) - m * m + 1e-5) * w + b


def _late_softmax(x: Tensor, v: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return (e @ v) / e.sum(-1, keepdim=True)


SQUARE = (512, 512)
GROUPS = (
    # products
    _group("chain vector", SQUARE, SQUARE, (512, 1),
        left=lambda a, b, c: (a @ b) @ c, right=lambda a, b, c: a @ (b @ c)),
    _group("chain low rank", (512, 16), (16, 512), SQUARE,
        left=lambda a, b, c: (a @ b) @ c, right=lambda a, b, c: a @ (b @ c)),
    _group("distribute", (256, 512), (512, 256), (512, 256),
        two=lambda x, u, v: x @ u + x @ v, one=lambda x, u, v: x @ (u + v)),
    _group("distribute, few rows", (16, 512), (512, 1024), (512, 1024),
        two=lambda x, u, v: x @ u + x @ v, one=lambda x, u, v: x @ (u + v)),
    _group("merge", (128, 256), (256, 256), (256, 256), (256, 256),
        three=lambda x, a, b, c: F.relu(x @ a) + F.relu(x @ b) + F.relu(x @ c), one=_merged),
    _group("transposed product", (384, 256), (256, 384),
        transposes=lambda x, y: y.t() @ x.t(), view=lambda x, y: (x @ y).t(),
        copy=lambda x, y: (x @ y).t().contiguous()),
    _group("scale", (64, 1024), (1024, 1024),
        product=lambda x, w: (x @ w) * 0.125, rows=lambda x, w: (x * 0.125) @ w,
        weight=lambda x, w: x @ (w * 0.125)),
    _group("bias", (256, 256), (256, 512), (512,),
        add=lambda x, w, b: x @ w + b, addmm=lambda x, w, b: torch.addmm(b, x, w)),
    _group("blocks of k", (128, 512), (512, 256),
        two=lambda x, w: x[:, :256] @ w[:256] + x[:, 256:] @ w[256:], one=lambda x, w: x @ w),
    _group("rows of a product", (512, 256), (256, 512),
        late=lambda x, w: (x @ w)[:64].clone(), early=lambda x, w: x[:64] @ w),
    _group("stacked rows", (64, 256), (64, 256), (256, 512),
        two=lambda x, y, w: torch.cat([x @ w, y @ w], 0),
        one=lambda x, y, w: torch.cat([x, y], 0) @ w),
    _group("shared matrix", (16, 64, 128), (128, 128),
        bmm=lambda x, w: torch.bmm(x, w.expand(16, 128, 128)),
        mm=lambda x, w: (x.reshape(1024, 128) @ w).view(16, 64, 128)),
    _group("diagonal", (512,), SQUARE,
        product=lambda d, x: torch.diag(d) @ x, scale=lambda d, x: d[:, None] * x),
    _group("outer product", (1024,), (1024,), (1024,),
        outer=lambda a, b, c: (a[:, None] * b[None, :]) @ c,
        dot=lambda a, b, c: a * (b * c).sum()),
    _group("trace", (512, 128),
        product=lambda x: (x @ x.t()).diagonal().sum(), squares=lambda x: (x * x).sum()),
    _group("row products", (2048, 256), (2048, 256),
        bmm=lambda a, b: torch.bmm(a[:, None], b[:, :, None]).view(-1),
        sum=lambda a, b: (a * b).sum(-1)),
    _group("mean of a product", SQUARE, SQUARE,
        late=lambda x, w: (x @ w).mean(0), early=lambda x, w: (x.mean(0, keepdim=True) @ w)[0]),
    # pointwise operators and reductions
    _group("factor", (1024, 512), (1024, 512), (1024, 512),
        two=lambda a, b, c: a * b + a * c, one=lambda a, b, c: a * (b + c)),
    _group("exp", (1024, 256), (1024, 256),
        two=lambda a, b: torch.exp(a) * torch.exp(b), one=lambda a, b: torch.exp(a + b)),
    _group("silu", (512, 1024),
        parts=lambda x: x * torch.sigmoid(x), one=F.silu),
    _group("cube", (512, 1024),
        power=lambda x: x**3, products=lambda x: x * x * x),
    _group("scaled sum", (2048, 512),
        early=lambda x: (x * 3.0).sum(1), late=lambda x: x.sum(1) * 3.0),
    _group("sum of sums", (1024, 1024), (1024, 1024),
        two=lambda x, y: x.sum(1) + y.sum(1), one=lambda x, y: (x + y).sum(1)),
    _group("shifted softmax", SQUARE, (512, 1),
        shift=lambda x, c: torch.softmax(x + c, -1), plain=lambda x, _: torch.softmax(x, -1)),
    _group("layer norm", (1024, 512), (512,), (512,),
        one=lambda x, w, b: F.layer_norm(x, (512,), w, b), parts=_normalized),
    _group("variance", (1024, 512),
        one=lambda x: x.var(-1, correction=0),
        parts=lambda x: (x * x).mean(-1) - x.mean(-1) ** 2),
    # movement
    _group("permutations", (64, 32, 256),
        two=lambda x: F.relu(x.permute(2, 0, 1).contiguous()).permute(1, 2, 0).contiguous(),
        none=F.relu),
    _group("rows of a table", (4096, 128), Index(256, 4096),
        late=lambda e, i: F.gelu(e)[i], early=lambda e, i: F.gelu(e[i])),
    _group("many rows of a table", (256, 128), Index(4096, 256),
        late=lambda e, i: F.gelu(e)[i], early=lambda e, i: F.gelu(e[i])),
    _group("rows through a layer", (2048, 128), (128, 256), Index(128, 2048),
        late=lambda e, w, i: (e @ w)[i], early=lambda e, w, i: e[i] @ w),
    _group("many rows through a layer", (128, 128), (128, 256), Index(2048, 128),
        late=lambda e, w, i: (e @ w)[i], early=lambda e, w, i: e[i] @ w),
    _group("activation of a cat", (512, 512), (512, 512),
        late=lambda x, y: F.relu(torch.cat([x, y], 1)),
        early=lambda x, y: torch.cat([F.relu(x), F.relu(y)], 1)),
    # convolutions
    _group("pointwise convolution", (1, 64, 28, 28), (128, 64, 1, 1),
        conv=F.conv2d,
        product=lambda x, w: (w.view(128, 64) @ x.view(64, 784)).view(1, 128, 28, 28)),
    _group("batch norm", (1, 32, 28, 28), (32, 32, 3, 3), (32,), Positive(32), (32,), (32,),
        apart=lambda x, w, m, v, g, b: F.batch_norm(F.conv2d(x, w, padding=1), m, v, g, b),
        folded=_folded),
    _group("pooled convolution", (2, 32, 28, 28), (64, 32, 1, 1),
        late=lambda x, w: F.avg_pool2d(F.conv2d(x, w), 2),
        early=lambda x, w: F.conv2d(F.avg_pool2d(x, 2), w)),
    _group("convolution of a cat", (1, 32, 28, 28), (1, 32, 28, 28), (64, 64, 3, 3),
        one=lambda x, y, w: F.conv2d(torch.cat([x, y], 1), w, padding=1),
        two=lambda x, y, w: F.conv2d(x, w[:, :32], padding=1) + F.conv2d(y, w[:, 32:], padding=1)),
    # attention
    _group("attention", (2, 4, 128, 64), (2, 4, 128, 64), (2, 4, 128, 64),
        parts=lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v,
        one=F.scaled_dot_product_attention),
    _group("linear attention", (8, 512, 32), (8, 512, 32), (8, 512, 32),
        left=lambda q, k, v: (q @ k.transpose(1, 2)) @ v,
        right=lambda q, k, v: q @ (k.transpose(1, 2) @ v)),
    _group("late softmax", (512, 512), (512, 64),
        early=lambda x, v: torch.softmax(x, -1) @ v, late=_late_softmax),
)  # fmt: skip
