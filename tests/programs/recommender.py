"""Recommenders, poolings and experts: many small layers side by side."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, ids, program


@fires(
    "reduction-matmul-outer mean-affine",
)
@program((4, 6, 16), w=(3, 16), b=(3,))
def averaged_heads(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Classifiers whose logits are averaged over tokens, with and without a bias (MIL, TSN)."""
    return F.linear(x, w, b).mean(1), F.linear(x, w).mean(1), F.linear(x, w).sum(dim=1)


@fires(
    "slice-reduction",
)
@program((4, 6, 16))
def first_scores(x: Tensor) -> Tensor:
    """Energies of all tokens, of which only those of the first two are read."""
    return x.square().sum(-1)[:, :2]


@fires(
    "reduction-matmul-rows reduction-matmul-columns reduction-matmul",
)
@program((4, 6, 16), (4, 16, 5))
def pooled_products(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Scores of all pairs of which only sums are read (second-order pooling, late interaction)."""
    return (a @ b).sum(dim=-2), (a @ b).sum(-1), (a @ b).sum((-2, -1)), (a @ b).mean((-2, -1))


@fires(
    "reduction-scale reduction-factor reduction-distribute mean-shift reduction-monotone",
    "reduction-cat sum-cat",
)
@program((4, 6, 16), (4, 6, 16), (6, 1), s=(16,))
def weighted_pool(x: Tensor, y: Tensor, weights: Tensor, *, s: Tensor) -> tuple[Tensor, ...]:
    """Attentive pools: sums of what is scaled by a number, by channel, and of two streams."""
    return (
        (x * 0.25).sum(1),
        (x * s).mean(1, keepdim=True),
        (x + y).mean(1),
        (x - s).mean(1, keepdim=True),
        F.relu(x).amax(1),
        torch.cat([x, y], dim=1).sum(1),
        torch.cat([x, y], dim=-1).sum(1),
    )


@fires(
    "matmul-from-vector",
)
@program((4, 16), (4, 16), (16,))
def factorisation_machine(u: Tensor, v: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
    """A recommender's scores: products that are summed, of pairs and of all with one."""
    return (u * v).sum(-1), (u * item).sum(dim=-1)


@fires(
    "reduction-keepdim matmul-column",
)
@program((4, 6, 8), w=(1, 8), b=(1,))
def attention_pool(x: Tensor, *, w: Tensor, b: Tensor) -> Tensor:
    """Attentive pooling: a score a token, softmax over tokens, a weighted sum."""
    score = x @ w.T
    return (torch.softmax(score, dim=1) * x).sum(1)


@fires(
    "matmul-of-cat-3 affine-of-cat-3 matmul-of-cat-4 affine-of-cat-4",
)
@program(ids(4, 3), ids(4, 2), (4, 5), users=(10, 8), items=(10, 8), w=(6, 29), b=(6,))
def two_towers(
    user: Tensor, item: Tensor, dense: Tensor, *, users: Tensor, items: Tensor, w: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """A recommender: embeddings and dense features side by side before the first layer."""
    u, i = F.embedding(user, users).mean(1), F.embedding(item, items)
    first, second = i[:, 0], i[:, 1]
    three, four = torch.cat([u, first, dense], dim=1), torch.cat([u, first, second, dense], 1)
    plain = F.linear(three, w[:, :21]), F.linear(four, w)
    return *plain, F.linear(three, w[:, :21], b), F.linear(four, w, b)


@fires(
    "cat-matmul-rows cat-binary-with-3 binary-with-cat-3 cat-affine-rows-2",
    "cat-affine-rows-3 cat-affine-rows-4",
)
@program((5, 8), (5, 8), (5, 8), (5, 8), w=(8, 8), b=(8,))
def siamese_towers(
    x: Tensor, y: Tensor, z: Tensor, u: Tensor, *, w: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """Towers that share a layer, whose results are set behind each other: two, three and four."""
    f = lambda v: F.linear(v, w, b)  # noqa: E731
    return (
        torch.cat([f(x), f(y)]),
        torch.cat([f(x), f(y), f(z)]),
        torch.cat([f(x), f(y), f(z), f(u)]),
    )


@fires(
    "cat-binary-3 cat-reshape-3 stack-matmul-2 stack-affine-2 stack-matmul-3 stack-affine-3",
    "stack-matmul-4 stack-affine-4",
)
@program((5, 8), (5, 8), (5, 8), (5, 8), w=(4, 6, 8), b=(4, 6))
def experts(
    x: Tensor, y: Tensor, z: Tensor, u: Tensor, *, w: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """Experts of their own inputs, whose results are stacked: two, three and four of them."""
    inputs = (x, y, z, u)
    plain = [v @ w[i].T for i, v in enumerate(inputs)]
    biased = [F.linear(v, w[i], b[i]) for i, v in enumerate(inputs)]
    stacks = [torch.stack(part[:n]) for part in (plain, biased) for n in (2, 3, 4)]
    return tuple(stacks)


@fires(
    "affine-matmul-merge cat-slice-2-0-1",
)
@program((2, 5, 8), (2, 5, 8), w=(12, 8), b=(12,), v=(12, 8))
def grouped_fields(x: Tensor, y: Tensor, *, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Siblings with a bias and without, set side by side (fused QKV of a cross encoder)."""
    return torch.cat([F.linear(x, w, b), F.linear(x, v)], dim=-1)


@fires(
    "affine-merge cat-slice-3-0-1 cat-slice-3-1-1 cat-slice-3-1-2 cat-slice-3-2-2",
    "cat-tiles-3",
)
@program((2, 5, 8), w=(8, 8), b=(8,), v=(8, 8), c=(8,), u=(4, 8))
def qkv(x: Tensor, *, w: Tensor, b: Tensor, v: Tensor, c: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    """Whisper's projections: queries and values with a bias, keys without."""
    return torch.sin(F.linear(x, w, b)), torch.cos(F.linear(x, v, c)), torch.exp(F.linear(x, u))


@fires(
    "einsum-matmul",
)
@program((2, 5, 8))
class DenseExperts(nn.Module):
    """A mixture of experts, evaluated densely: all experts of all tokens, weighted by a router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 3, bias=False)
        self.up = nn.Parameter(torch.linspace(-1, 1, 3 * 8 * 12).reshape(3, 8, 12))
        self.down = nn.Parameter(torch.linspace(-1, 1, 3 * 12 * 8).reshape(3, 12, 8))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        h = torch.relu(torch.einsum("btd,edf->betf", x, self.up))
        y = torch.einsum("betf,efd->betd", h, self.down)
        return torch.einsum("betd,bte->btd", y, weights)
