"""Attention of which a part is read: at decoding, in the last layer, under guidance."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, program


@fires(
    "slice-affine-rows",
)
@program((2, 16, 32), qkv=(96, 32), out=(32, 32), b=(32,))
def last_layer_class_token(x: Tensor, *, qkv: Tensor, out: Tensor, b: Tensor) -> Tensor:
    """The last attention of a ViT, of which only the class token is read."""
    batch, length, width = x.shape
    q, k, v = F.linear(x, qkv).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
    x = F.scaled_dot_product_attention(q, k, v)
    x = x.transpose(1, 2).reshape(batch, length, width)
    return F.linear(x, out, b)[:, 0]


@fires(
    "slice-attention-rows slice-attention-masked slice-attention-mask-shared",
    "slice-attention-batch slice-attention-batch-masked slice-attention-batch-mask-shared",
)
@program((4, 3, 16, 8), (4, 3, 16, 8), (4, 3, 16, 8), (4, 1, 16, 16), (3, 16, 16), (1, 16))
def sliced_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor, padding: Tensor
) -> tuple[Tensor, ...]:
    """Attention of which the last token, or the conditional half of the batch, is read."""
    attend = F.scaled_dot_product_attention
    return (
        attend(q, k, v)[:, :, -1:],
        attend(q, k, v, mask)[:, :, -1:],
        attend(q, k, v, padding)[:, :, -1:],
        attend(q, k, v)[2:],
        attend(q, k, v, mask)[2:],
        attend(q, k, v, bias)[2:],
    )


@fires(
    "attention-twins",
)
@program((2, 3, 16, 8), (2, 3, 16, 8), (2, 3, 16, 8))
def guided_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of a diffusion model whose batch is doubled for guidance."""
    q, k, v = torch.cat([q, q]), torch.cat([k, k]), torch.cat([v, v])
    return F.scaled_dot_product_attention(q, k, v)


@fires(
    "attention-scaled-masked absorb-keys-slice absorb-values-slice slice-permute",
)
@program((2, 1, 24), (2, 40, 6), up=(64, 6), rope=(2, 4, 1, 40), out=(24, 32))
def mla_decode(x: Tensor, cache: Tensor, *, up: Tensor, rope: Tensor, out: Tensor) -> Tensor:
    """DeepSeek's latent attention as it decodes: keys and values from a compressed cache."""
    q = x.view(2, 1, 4, 6).transpose(1, 2)
    q = F.pad(q, (0, 2))
    kv = F.linear(cache, up).view(2, 40, 4, 16)
    k, v = kv[..., :8], kv[..., 8:]
    scores = q @ k.permute(0, 2, 3, 1) * 8**-0.5
    attn = torch.softmax(scores + rope, dim=-1)
    o = (attn @ v.permute(0, 2, 1, 3)).transpose(1, 2).reshape(2, 1, 32)
    return F.linear(o, out)


@fires(
    "matmul-merge absorb-keys absorb-values",
)
@program((2, 1, 4, 8), (2, 40, 6), wk=(32, 6), wv=(32, 6))
def latent_decode(q: Tensor, cache: Tensor, *, wk: Tensor, wv: Tensor) -> Tensor:
    """Latent attention with keys and values of weights of their own, decoding one token."""
    k = F.linear(cache, wk).view(2, 40, 4, 8)
    v = F.linear(cache, wv).view(2, 40, 4, 8)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * 8**-0.5
    attn = scores.softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", attn, v)


@fires(
    "permute-cat merge-binary matmul-batch-of-one",
)
@program((1, 1, 64), (1, 12, 64), wq=(64, 64), wk=(64, 64), wv=(64, 64))
def cached_decode(x: Tensor, cache: Tensor, *, wq: Tensor, wk: Tensor, wv: Tensor) -> Tensor:
    """One step of a decoder that keeps the inputs of its keys: a cat of the past and of now."""
    past = torch.cat([cache, x], dim=1)
    q = F.linear(x, wq).view(1, 1, 4, 16).transpose(1, 2)
    k = F.linear(past, wk).view(1, 13, 4, 16).transpose(1, 2)
    v = torch.cat([F.linear(cache, wv), F.linear(x, wv)], dim=1).view(1, 13, 4, 16).transpose(1, 2)
    attn = (q @ k.transpose(-1, -2) / 4.0).softmax(-1)
    return attn @ v
