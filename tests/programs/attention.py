"""Attention in the spellings of model code."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, program

CAUSAL = torch.tril(torch.ones(8, 8, dtype=torch.bool))
BIAS = torch.linspace(-1, 1, 64).reshape(8, 8)


@fires(
    "attention-unscaled permute-inverse",
)
@program((2, 3, 16, 8), (2, 3, 16, 8), (2, 3, 16, 8))
def t5_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """T5's attention without a bias: its scores are not scaled."""
    return torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v


@fires(
    "attention-scaled div-number slice-binary-left slice-softmax",
)
@program((2, 3, 16, 8), (2, 3, 16, 8), (2, 3, 16, 8))
def vit_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """ViT's attention as timm writes it, of which the class token's row is read."""
    attn = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    return (attn.softmax(dim=-1) @ v)[:, :, 0]


@fires(
    "attention-masked",
)
@program((2, 3, 8, 4), (2, 3, 8, 4), (2, 3, 8, 4), bias=BIAS)
def t5_biased_attention(q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor) -> Tensor:
    """T5's attention with its relative bias."""
    scores = q @ k.transpose(-1, -2)
    scores = scores + bias
    return F.softmax(scores.float(), dim=-1).type_as(scores) @ v


@fires(
    "attention-scaled-masked-any div-power-of-two",
)
@program((2, 3, 8, 4), (2, 3, 8, 4), (2, 3, 8, 4), (2, 1, 8, 8), numerics="relaxed")
def bert_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """BERT's attention with a mask of the caller, which may hold -inf."""
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(4)
    return torch.matmul(nn.Softmax(dim=-1)(scores + mask), v)


@fires(
    "softmax-lowest",
)
@program((2, 3, 8, 4), (2, 3, 8, 4), (2, 3, 8, 4), (2, 1, 8, 8), numerics="relaxed")
def unscaled_masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """OPT's attention: the query is scaled before, the lowest score is clamped, a mask is added."""
    attn = torch.matmul(q * 0.5, k.transpose(-1, -2)) + mask
    lowest = torch.tensor(torch.finfo(attn.dtype).min)
    attn = torch.max(attn, lowest)
    return torch.matmul(F.softmax(attn, dim=-1), v)


@fires(
    "attention-two-masks attention-scaled-two-masks softmax-masks",
)
@program((2, 3, 8, 4), (2, 3, 8, 4), (2, 3, 8, 4), bias=BIAS, alibi=(3, 1, 8))
def two_masks(
    q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor, alibi: Tensor
) -> tuple[Tensor, ...]:
    """Attention with two biases, scaled and not: ALiBi's beside a relative one."""
    scores = q @ k.transpose(-1, -2)
    plain = torch.softmax(scores + bias + alibi, -1) @ v
    scaled = torch.softmax(scores * 0.5 + bias + alibi, -1) @ v
    return plain, scaled


@fires(
    "softmax-scaled-mask softmax-scaled-masks",
)
@program((2, 3, 8, 4), (2, 3, 8, 4), (2, 3, 8, 4), bias=BIAS, alibi=(3, 1, 8))
def falcon_alibi(
    q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor, alibi: Tensor
) -> tuple[Tensor, ...]:
    """Falcon's attention with ALiBi, which it adds before the scale, and a mask after it."""
    scores = q @ k.transpose(-1, -2)
    logits = (scores + alibi) * 0.5
    return torch.softmax(logits + bias, -1) @ v, torch.softmax(logits, -1) @ v


def repeat_kv(x: Tensor, n: int) -> Tensor:
    """Heads of keys or values, each `n` times, as Llama repeats them."""
    batch, heads, length, width = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, n, length, width)
    return x.reshape(batch, heads * n, length, width)


@fires(
    "attention-grouped attention-grouped-masked",
)
@program((2, 4, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8), mask=torch.zeros(16, 16))
def llama_grouped(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Llama's attention whose heads of keys groups of queries share, with and without a mask."""
    k, v = repeat_kv(k, 2), repeat_kv(v, 2)
    masked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return masked, F.scaled_dot_product_attention(q, k, v)


@fires(
    "softmax-where-mask where-not",
)
@program((2, 3, 8, 4), (2, 3, 8, 4), (2, 3, 8, 4), numerics="relaxed", causal=CAUSAL)
def gpt2_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: Tensor) -> tuple[Tensor, Tensor]:
    """GPT-2's attention: a causal mask by torch.where, and by masked_fill as nanoGPT writes it."""
    scores = q @ k.transpose(-1, -2) / 2.0
    value = torch.full([], torch.finfo(scores.dtype).min)
    first = torch.softmax(torch.where(causal, scores, value), dim=-1) @ v
    hidden = scores.masked_fill(torch.logical_not(causal), float("-inf"))
    return first, F.softmax(hidden, dim=-1) @ v


@fires(
    "attention-masked-any softmax-where-mask-out",
)
@program((2, 3, 8, 4), (2, 3, 8, 4), (2, 3, 8, 4), numerics="relaxed", padding=~CAUSAL)
def filled_attention(q: Tensor, k: Tensor, v: Tensor, *, padding: Tensor) -> Tensor:
    """Attention whose padding is filled with -inf."""
    scores = (q @ k.transpose(-1, -2)).masked_fill(padding, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


@fires(
    "softmax-upcast softmax-upcast-scaled softmax-upcast-masked",
    "softmax-upcast-scaled-masked",
)
@program((2, 3, 32, 8), (2, 3, 32, 8), (2, 3, 32, 8), (2, 1, 32, 32), dtype=torch.bfloat16)
def upcast_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Attention in bfloat16 whose softmax is computed in single precision, as Llama's code does."""
    scores = torch.matmul(q, k.transpose(2, 3))
    plain = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    scaled = torch.softmax(scores.float() * 0.5, dim=-1).to(q.dtype)
    masked = torch.softmax(scores.float() + mask.float(), dim=-1).type_as(q)
    both = torch.softmax(scores.float() * 0.5 + mask.float(), dim=-1).type_as(q)
    return plain @ v, scaled @ v, masked @ v, both @ v


@fires(
    "softmax-from-parts softmax-late softmax-shift",
)
@program((2, 3, 16, 8), (2, 3, 16, 8), (2, 3, 16, 8))
def softmax_by_hand(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax in its parts; as flash attention orders it, the sum divides after the values."""
    scores = q @ k.transpose(-1, -2)
    shifted = scores - scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(shifted)
    first = (weights / weights.sum(dim=-1, keepdim=True)) @ v
    e = torch.exp(scores)
    return first, (e @ v) / e.sum(dim=-1, keepdim=True)


@fires(
    "attention-scale-query attention-scale-key attention-scale-query-masked",
    "attention-scale-key-masked",
)
@program((2, 3, 16, 8), (2, 3, 16, 8), (2, 3, 16, 8), (2, 1, 16, 16))
def scaled_operands(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Fused attention whose scale is applied to queries, to keys, or half to each (Whisper)."""
    s = 8**-0.25
    attend = F.scaled_dot_product_attention
    return (
        attend(q * s, k, v, scale=1.0),
        attend(q, k * s, v, scale=1.0),
        attend(q * s, k * s, v, mask, scale=1.0),
    )


@fires(
    "reshape-inverse split-binary-left merge-bmm",
)
@program((1, 4, 8, 4), (1, 4, 8, 4), (1, 4, 8, 4))
def bloom_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """BLOOM's and Megatron's attention: heads folded into the batch, softmax with heads apart."""
    q, k, v = (x.reshape(4, 8, 4) for x in (q, k, v))
    scores = torch.baddbmm(torch.zeros(4, 8, 8), q, k.transpose(1, 2), beta=0.0, alpha=0.5)
    probs = torch.softmax(scores.view(1, 4, 8, 8), dim=-1).view(4, 8, 8)
    return torch.bmm(probs, v).view(1, 4, 8, 4)


@fires(
    "matmul-transpose matmul-untranspose permute-compose permute-softmax permute-bmm",
)
@program((2, 8, 16), (2, 8, 16), (2, 8, 16))
def transposed_scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention whose scores have a row for each key, over which the softmax runs."""
    q, k, v = (x.view(2, 8, 4, 4).permute(0, 2, 1, 3) for x in (q, k, v))
    scores = k @ q.transpose(-1, -2)
    attn = torch.softmax(scores, dim=-2).transpose(-1, -2)
    return (attn @ v).permute(1, 0, 2, 3)


@fires(
    "matmul-associate matmul-associate-left permute-binary-left permute-scale",
)
@program((64, 8), (64, 8), (64, 8))
def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention without a softmax, whose products associate the other way."""
    return (F.elu(q) + 1) @ (F.elu(k) + 1).t() @ v


@fires(
    "split-softmax merge-softmax",
)
@program((6, 5, 4), (6, 5, 4), (6, 5, 4), (2, 1, 5, 5))
def bart_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """BART's attention, heads folded into the batch: unfolded for the mask and the result."""
    weights = torch.bmm(q * 0.5, k.transpose(1, 2))
    weights = (weights.view(2, 3, 5, 5) + mask).view(6, 5, 5)
    weights = F.softmax(weights, dim=-1)
    return torch.bmm(weights, v), weights.view(2, 3, 5, 5)
