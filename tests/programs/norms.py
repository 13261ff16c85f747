"""Norms, written out as model code writes them, and what reads a part of their result."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, positive, program


@fires(
    "rms-norm-from-parts rms-norm-narrow",
)
@program((2, 5, 16), dtype=torch.bfloat16, weight=(16,))
def llama_rms_norm(x: Tensor, *, weight: Tensor) -> Tensor:
    """RMSNorm as Llama writes it, computed in single precision."""
    h = x.to(torch.float32)
    variance = h.pow(2).mean(-1, keepdim=True)
    h = h * torch.rsqrt(variance + 1e-6)
    return weight * h.to(x.dtype)


@fires(
    "rms-norm-narrow-weight",
)
@program((2, 5, 16), dtype=torch.bfloat16, weight=(16,))
def gemma_rms_norm(x: Tensor, *, weight: Tensor) -> Tensor:
    """RMSNorm as Gemma writes it: its weight is kept less one, and applied in single precision."""
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (h * (1.0 + weight.float())).type_as(x)


@fires(
    "matmul-input-scale rms-norm-weight-out rms-norm-weight-out-affine",
)
@program((2, 5, 16), weight=(16,), q=(16, 16), v=(8, 16), b=(8,))
def t5_rms_norm(
    x: Tensor, *, weight: Tensor, q: Tensor, v: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """T5's norm, read by one projection without a bias and one with."""
    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    h = weight * h
    return F.linear(h, q), F.linear(h, v, b)


@fires(
    "rms-norm-weight-first mean-sum sum-mean",
)
@program((2, 5, 16), weight=(16,))
def rms_norm_weight_first(x: Tensor, *, weight: Tensor) -> Tensor:
    """RMSNorm whose weight is applied before the scale."""
    return (x * weight) * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5)


@fires(
    "rms-norm-without-eps",
)
@program((2, 5, 16))
def unit_mean_square(x: Tensor) -> Tensor:
    """Queries scaled to a mean square of one, without an epsilon."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True))


@fires(
    "rms-norm-from-length rms-norm-weight reduction-permute-keep reduction-permute",
    "permute-identity",
)
@program((2, 5, 16), g=(16,))
def lucid_rms_norm(x: Tensor, *, g: Tensor) -> Tensor:
    """RMSNorm by the length of a vector, as x-transformers writes it."""
    norm = torch.norm(x, dim=-1, keepdim=True) * 16**-0.5
    return x / norm * g


@fires(
    "variance-from-parts",
)
@program((2, 6, 5, 4), w=(6,), b=(6,))
def convnext_layer_norm(x: Tensor, *, w: Tensor, b: Tensor) -> Tensor:
    """ConvNeXt's LayerNorm of the channels of an image."""
    u = x.mean(1, keepdim=True)
    s = (x - u).pow(2).mean(1, keepdim=True)
    x = (x - u) / torch.sqrt(s + 1e-6)
    return w[:, None, None] * x + b[:, None, None]


@fires(
    "std-variance split-unary",
)
@program((2, 5, 16), a=(16,), b=(16,))
def annotated_layer_norm(x: Tensor, *, a: Tensor, b: Tensor) -> Tensor:
    """LayerNorm of the annotated transformer, which adds its epsilon to the deviation."""
    mean = x.mean(-1, keepdim=True)
    std = x.std(-1, keepdim=True)
    return a * (x - mean) / (std + 1e-6) + b


@fires(
    "layer-norm-weight layer-norm-bias layer-norm-bias-alone",
)
@program((2, 5, 16), w=(16,), b=(16,))
def layer_norm_by_variance(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """LayerNorm by hand with torch.var, and one with a shift alone."""
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, keepdim=True, unbiased=False)
    y = (x - mean) * torch.rsqrt(var + 1e-5)
    return y * w + b, F.layer_norm(x, (16,)) + b


@fires(
    "layer-norm-without-eps",
)
@program((2, 5, 16))
def standardised(x: Tensor) -> Tensor:
    """Features brought to zero mean and unit variance, without an epsilon."""
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True))


@fires(
    "layer-norm-narrow layer-norm-narrow-weight layer-norm-narrow-bias",
)
@program((2, 5, 16), dtype=torch.float16, w=positive(16), b=positive(16))
def clip_half_layer_norm(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorms that keep parameters in single precision in a model in half, as CLIP has them."""
    h = x.to(torch.float32)
    full = F.layer_norm(h, (16,), w, b).to(x.dtype)
    return full, F.layer_norm(h, (16,), w).to(x.dtype), F.layer_norm(h, (16,)).to(x.dtype)


@fires(
    "group-norm-from-parts group-norm-weight group-norm-bias",
)
@program((2, 6, 5, 4), w=(1, 6, 1, 1), b=(1, 6, 1, 1))
def group_norm_by_hand(x: Tensor, *, w: Tensor, b: Tensor) -> Tensor:
    """GroupNorm as its paper writes it: groups as rows, normed, and brought back."""
    n, c, h, wd = x.shape
    x = x.reshape(n, 3, -1)
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, keepdim=True, unbiased=False)
    x = (x - mean) / torch.sqrt(var + 1e-5)
    return x.reshape(n, c, h, wd) * w + b


@fires(
    "welford layer-norm-from-parts",
)
@program((2, 6, 5, 4))
def positional_norm(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """PONO: the moments of the channels of each place, which a decoder is given later."""
    var, mean = torch.var_mean(x, dim=1, keepdim=True, unbiased=False)
    return (x - mean) * torch.rsqrt(var + 1e-5), mean, var


@fires(
    "variance-of-squares mul-numbers mul-number-out mul-distribute",
)
@program((4, 7, 8))
def pna_moments(x: Tensor) -> Tensor:
    """The aggregators of principal neighbourhood aggregation: the mean and the deviation."""
    mean = x.mean(1)
    var = torch.relu((x * x).mean(1) - mean * mean)
    return torch.cat([mean, torch.sqrt(var + 1e-5), x.amax(1), x.amin(1)], dim=-1)


@fires(
    "div-sqrt permute-binary",
)
@program((2, 5, 16), (2, 5, 16))
def clip_similarity(image: Tensor, text: Tensor) -> Tensor:
    """CLIP's scores: vectors of length one, their products scaled."""
    image = image / image.norm(dim=-1, keepdim=True)
    text = text / text.norm(dim=-1, keepdim=True)
    return 2.0 * image @ text.transpose(-1, -2)


@fires(
    "slice-layer-norm-0 slice-layer-norm-1 slice-rms-norm-0 slice-rms-norm-1",
)
@program((2, 5, 16), w=(16,), b=(16,))
def last_token_norms(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Final norms of decoders, of which generation reads the last token."""
    return (
        F.layer_norm(x, (16,))[:, -1],
        F.layer_norm(x, (16,), w)[:, -1],
        F.layer_norm(x, (16,), w, b)[:, -1],
        F.rms_norm(x, (16,), eps=1e-6)[:, -1],
        F.rms_norm(x, (16,), w, eps=1e-6)[:, -1],
    )


@fires(
    "slice-binary-right slice-batch-norm slice-group-norm-0 slice-group-norm-1",
    "slice-group-norm-2",
)
@program((4, 6, 5, 4), w=(6,), b=(6,), m=(6,), v=positive(6))
def first_of_batch(x: Tensor, *, w: Tensor, b: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """The half of a batch that guidance keeps, after the norms of images."""
    return (
        F.group_norm(x, 3)[:2],
        F.group_norm(x, 3, w)[:2],
        F.group_norm(x, 3, w, b)[:2],
        F.batch_norm(x, m, v, w, b)[:2],
    )
