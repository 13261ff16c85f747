"""Linear layers and products, as fine-tuning, quantisation and graph networks combine them."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, positive, program


@fires(
    "affine-factor-matmul",
)
@program((2, 5, 16), w=(12, 16), b=(12,), down=(2, 16), up=(12, 2))
def lora(x: Tensor, *, w: Tensor, b: Tensor, down: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """LoRA that is not merged, beside a layer with a bias and one without."""
    delta = (x @ down.T) @ up.T
    return F.linear(x, w, b) + delta * 0.5, x @ w.T + delta


@fires(
    "affine-factor",
)
@program((2, 5, 16), w=(12, 16), b=(12,), v=(12, 16), c=(12,), bias=(12,))
def parallel_branches(
    x: Tensor, *, w: Tensor, b: Tensor, v: Tensor, c: Tensor, bias: Tensor
) -> tuple[Tensor, ...]:
    """Linear branches of one input that are added (RepMLP): with both biases, one, and a third."""
    return (
        F.linear(x, w, b) + F.linear(x, v, c),
        F.linear(x, w, b) + x @ v.T,
        F.linear(x, w, b) + bias,
    )


@fires(
    "matmul-add affine-add affine-add-matmul matmul-of-cat-rows",
)
@program((2, 5, 16), (2, 5, 6), wx=(12, 16), b=(12,), wh=(12, 6), c=(12,))
def gates(
    x: Tensor, h: Tensor, *, wx: Tensor, b: Tensor, wh: Tensor, c: Tensor
) -> tuple[Tensor, ...]:
    """Additive attention and gates: projections of two inputs, added (Bahdanau, GRU)."""
    both = torch.tanh(F.linear(x, wx, b) + F.linear(h, wh, c))
    one = torch.tanh(F.linear(x, wx, b) + F.linear(h, wh))
    return both, one, torch.tanh(x @ wx.T + h @ wh.T)


@fires(
    "matmul-factor-left matmul-distribute-left",
)
@program((4, 16), (16, 12), (16, 12))
def hypernetwork(x: Tensor, w: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """A layer whose weight is computed: a base and a difference, applied apart and together."""
    return x @ w + x @ delta, x @ (w - delta)


@fires(
    "matmul-factor-left-across matmul-factor-right-across",
)
@program((6, 12), (6, 12), (6, 10), w=(12, 10), delta=(12, 10))
def corrected(
    x: Tensor, y: Tensor, skip: Tensor, *, w: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor]:
    """A layer whose correction, or second input, is added after a residual (skip paths)."""
    return x @ w + skip + x @ delta, x @ w + skip + y @ w


@fires(
    "affine-split affine-join-rows",
)
@program((6, 16), w=(12, 16), table=(6, 12))
def learned_table(x: Tensor, *, w: Tensor, table: Tensor) -> Tensor:
    """Patches that are projected, then given learned positions, without a batch."""
    return x @ w.T + table


@fires(
    "matmul-scale-right matmul-scale-weight matmul-scale-rows",
)
@program((6, 16), positive(6), w=(12, 16), s=(12,), mean=(16,))
def quantised_rows(
    x: Tensor, scale: Tensor, *, w: Tensor, s: Tensor, mean: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A layer in low precision: its result scaled back row by row, and column by column."""
    rows = (x @ w.T) * scale[:, None]
    return rows, (x @ w.T) * s, (x - mean) @ w.T


@fires(
    "matmul-input-shift affine-shift add-constants",
)
@program((2, 5, 16), mean=(16,), w=(12, 16), b=(12,))
def centred(x: Tensor, *, mean: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Features that are centred before their first layer (a whitening by PCA)."""
    return F.linear(x + mean, w) + b


@fires(
    "matmul-from-parts",
)
@program((3, 4, 16), (3, 16, 5))
def broadcast_product(a: Tensor, b: Tensor) -> Tensor:
    """A product of matrices written as a sum of broadcast products."""
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(dim=-2)


@fires(
    "einsum-mul einsum-sum-left einsum-sum-right einsum-sum einsum-permute",
)
@program((2, 5, 8), (2, 7, 8))
def einsum_attention(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """Attention's parts by einsum, as AlphaFold writes them: products, gates, sums, orders."""
    return (
        torch.einsum("bqd,bkd->bqk", q, k),
        torch.einsum("bqd,d->bqd", q, k[0, 0]),
        torch.einsum("bqd,bke->bqd", q, k),
        torch.einsum("bqe,bkd->bkd", q, k),
        torch.einsum("bqd->bd", q),
        torch.einsum("bqd->bdq", q),
    )


@fires(
    "einsum-pair-3-0-1 einsum-pair-3-0-2 einsum-pair-3-1-2 einsum-pair-4-0-1",
    "einsum-pair-4-0-2 einsum-pair-4-0-3 einsum-pair-4-1-2 einsum-pair-4-1-3",
    "einsum-pair-4-2-3 split-broadcast-right",
)
@program((4, 5, 3), (4, 6, 3), (4, 7, 3), (4, 8, 3))
def tensor_network(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Products of three and four factors: CP decomposition, MUTAN's fusion."""
    three = torch.einsum("bxr,byr,bzr->bxyz", a, b, c)
    return three, torch.einsum("bxr,byr,bzr,bwr->bxw", a, b, c, d)


@fires(
    "scaled-affine scaled-affine-none",
)
@program((5, 8), (8, 6), (5, 6), (2, 5, 8), (2, 8, 6), (2, 5, 6))
def scaled_sums(
    x: Tensor, w: Tensor, b: Tensor, xs: Tensor, ws: Tensor, bs: Tensor
) -> tuple[Tensor, ...]:
    """Products that are scaled as something is added: Muon's and Megatron's addmm, baddbmm."""
    plain = torch.addmm(b, x, w, beta=0.5, alpha=2.0)
    return plain, torch.baddbmm(bs, xs, ws, beta=0.0, alpha=0.125)


@fires(
    "slice-compose",
)
@program((4, 5, 8), w=(6, 8), b=(6,))
def time_distributed(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A layer applied to all steps as rows, and brought back (Conv1D of GPT-2)."""
    rows = x.reshape(20, 8)
    return torch.addmm(b, rows, w.T).view(4, 5, 6), torch.mm(rows, w.T).view(4, 5, 6)


@fires(
    "affine-join",
)
@program((6, 6), (6, 16), w1=(8, 16), w2=(3, 8), b=(3,))
def graph_convolution(a: Tensor, x: Tensor, *, w1: Tensor, w2: Tensor, b: Tensor) -> Tensor:
    """A graph convolution of two layers with a dense adjacency: A (X W) is (A X) W."""
    h = torch.relu(a @ (x @ w1.T))
    return torch.log_softmax((a @ h) @ w2.T + b, dim=-1)


@fires(
    "matmul-factor-right matmul-distribute-right",
)
@program((6, 6), (6, 8), (6, 8), w=(8, 8))
def message_passing(a: Tensor, x: Tensor, y: Tensor, *, w: Tensor) -> tuple[Tensor, ...]:
    """Messages with one weight from two kinds of neighbours, subtracted, and both transposed."""
    return x @ w - y @ w, (x + y) @ w, x.t() @ a.t(), (a @ x).t()


@fires(
    "matmul-outer split-matmul split-affine",
)
@program((4, 1, 1), (1, 6), (4, 6, 8), w=(8, 8), b=(8,))
def outer_products(
    t: Tensor, freqs: Tensor, x: Tensor, *, w: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """Frequencies times positions as a product of matrices with one term (NeRF, rotary)."""
    return t @ freqs, F.linear(x, w, b).view(4, 3, 2, 8)
