"""Language models: tokens, masks, positions, and the tokens that are read in the end."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, ids, program


@fires(
    "slice-binary slice-embedding slice-layer-norm-2 slice-arange",
)
@program(ids(2, 6, high=20), table=(20, 8), pos=(16, 8), w=(8,), b=(8,))
def gpt2_embedding(tokens: Tensor, *, table: Tensor, pos: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """GPT-2's embeddings of tokens and positions, then the norm of the last token."""
    places = torch.arange(tokens.shape[1], device=tokens.device)
    x = F.embedding(tokens, table) + F.embedding(places, pos)
    return F.layer_norm(x, (8,), w, b)[:, -1]


@fires(
    "matmul-affine-merge embedding-scale embedding-matmul embedding-affine slice-full",
)
@program(ids(2, 6, high=20), table=(20, 8), w=(6, 8), v=(6, 8), b=(6,))
def gemma_embedding(
    tokens: Tensor, *, table: Tensor, w: Tensor, v: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """Embeddings that are scaled (Gemma), or projected (ALBERT, OPT)."""
    x = F.embedding(tokens, table)
    return x * 8**0.5, F.linear(x, w), F.linear(x, v, b)


@fires(
    "index-matmul-2 index-affine-2",
)
@program(ids(2, 6, high=20), (2, 6, 8), w=(16, 8), b=(16,))
def last_tokens(tokens: Tensor, x: Tensor, *w_: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """GPT2ForSequenceClassification: the last token that is no padding, picked after the head."""
    last = (tokens != 0).int().argmax(-1)
    rows = torch.arange(2)
    logits = F.linear(x, w, b)
    hidden = F.linear(x, w)
    return logits[rows, last], hidden[rows, last]


@fires(
    "index-unary-2 index-binary-2 index-binary-left-2 index-binary-right-2 index-softmax-2",
    "index-reshape-2 index-layer-norm-0-2 index-layer-norm-1-2 index-layer-norm-2-2",
    "index-rms-norm-0-2 index-rms-norm-1-2 index-slice-2",
)
@program((2, 6, 8), (2, 6, 8), torch.tensor([0, 1]), torch.tensor([5, 2]), w=(8,), b=(8,))
def picked_norms(
    x: Tensor, y: Tensor, i: Tensor, j: Tensor, *, w: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """Norms, activations and probabilities of which one token of each sequence is picked."""
    return (
        F.layer_norm(x, (8,))[i, j],
        F.layer_norm(x, (8,), w)[i, j],
        F.layer_norm(x, (8,), w, b)[i, j],
        F.rms_norm(x, (8,), eps=1e-6)[i, j],
        F.rms_norm(x, (8,), w, eps=1e-6)[i, j],
        F.gelu(x)[i, j],
        (x + y)[i, j],
        (x * w)[i, j],
        (b - x)[i, j],
        x.softmax(-1)[i, j],
        x.view(2, 6, 2, 4)[i, j][:, 1:],
    )


@fires(
    "index-unary-1 index-binary-1 index-binary-left-1 index-binary-right-1 index-matmul-1",
    "index-affine-1 index-softmax-1 index-reshape-1 index-layer-norm-0-1",
    "index-layer-norm-1-1 index-layer-norm-2-1 index-rms-norm-0-1 index-rms-norm-1-1",
    "index-slice-1",
)
@program((2, 6, 8), (2, 6, 8), torch.tensor([5, 2, 0]), w=(8,), b=(8,), v=(4, 8), c=(4,))
def picked_rows(
    x: Tensor, y: Tensor, i: Tensor, *, w: Tensor, b: Tensor, v: Tensor, c: Tensor
) -> tuple[Tensor, ...]:
    """The same of places that all sequences share, as masked language models pick them."""
    return (
        F.layer_norm(x, (8,))[:, i],
        F.layer_norm(x, (8,), w)[:, i],
        F.layer_norm(x, (8,), w, b)[:, i],
        F.rms_norm(x, (8,), eps=1e-6)[:, i],
        F.rms_norm(x, (8,), w, eps=1e-6)[:, i],
        F.gelu(x)[:, i],
        (x + y)[:, i],
        (x * w)[:, i],
        (b - x)[:, i],
        x.softmax(-1)[:, i],
        x.view(2, 6, 2, 4)[:, i],
        x[:, i][..., :4],
        F.linear(x, v)[:, i],
        F.linear(x, v, c)[:, i],
    )


@fires(
    "index-embedding-1 index-embedding-2 index-compose slice-index-pick slice-index-before",
)
@program(ids(3, 6, high=20), torch.tensor([5, 2, 0]), torch.tensor([0, 1, 2]), table=(20, 8))
def picked_embeddings(tokens: Tensor, j: Tensor, i: Tensor, *, table: Tensor) -> tuple[Tensor, ...]:
    """Embeddings of which tokens are picked: by place, by sequence and place, and again."""
    x = F.embedding(tokens, table)
    chosen = torch.index_select(x, 1, j)
    return x[:, j], x[i, j], torch.index_select(chosen, 1, i), chosen[:, :2], chosen[:1]


@fires(
    "index-permute",
)
@program((2, 6, 8), torch.tensor([5, 2, 0]))
def picked_heads(x: Tensor, heads: Tensor) -> Tensor:
    """Heads that pruning keeps, picked after they are brought to the front."""
    return x.view(2, 6, 4, 2).permute(0, 2, 1, 3).index_select(1, torch.tensor([0, 3]))[:, :, heads]


@fires(
    "binary-commute split-bmm",
)
@program((2, 6, 8), table=(12, 3))
def relative_bias(x: Tensor, *, table: Tensor) -> Tensor:
    """Swin's relative position bias: rows of a table, reshaped, permuted, and read as an index."""
    index = (torch.arange(6)[:, None] - torch.arange(6)[None, :] + 6).clamp(0, 11)
    bias = table[index.view(-1)].view(6, 6, 3).permute(2, 0, 1)
    return (x @ x.transpose(-1, -2)).unsqueeze(1) + bias.unsqueeze(0)


@fires(
    "reshape-compose",
)
@program(ids(2, 6, high=2), (2, 3, 6, 4), (2, 3, 6, 4))
def extended_mask(seen: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """BERT's mask of padding: ones and zeros become zeros and the least number."""
    mask = seen[:, None, None, :].to(torch.float32)
    mask = (1.0 - mask) * torch.finfo(torch.float32).min
    return torch.softmax(q @ k.transpose(-1, -2) / 2.0 + mask, dim=-1)


@fires(
    "permute-full reshape-full expand-full number-full",
)
@program((2, 6, 8))
def default_mask(x: Tensor) -> tuple[Tensor, Tensor]:
    """A mask that is made of ones where the caller gives none, inverted, and masked again."""
    mask = torch.ones(2, 6)
    extended = mask[:, None, None, :].expand(2, 1, 6, 6)
    inverted = 1.0 - extended
    inverted = inverted.masked_fill(inverted.to(torch.bool), torch.finfo(torch.float32).min)
    scores = (x @ x.transpose(-1, -2)).unsqueeze(1)
    return scores + inverted, torch.zeros(6, 2, 4).permute(1, 0, 2).reshape(2, 24) + x.reshape(
        2, 48
    )[:, :24]


@fires(
    "slice-cumsum cumsum-full",
)
@program((2, 6, 8))
def positions_of_padding(x: Tensor) -> tuple[Tensor, Tensor]:
    """RoBERTa's and OPT's positions: running counts of a mask of ones."""
    mask = torch.ones(2, 6, dtype=torch.int64)
    places = (torch.cumsum(mask, dim=1) * mask).long() - 1
    return x + places[:, :, None], torch.cumsum(x, dim=1)[..., :4]


@fires(
    "cat-slice-2-apart slice-reshape slice-unary",
)
@program((1, 4, 2, 8), cos=(16, 8), sin=(16, 8))
def cached_rotary(x: Tensor, *, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions from a cache, of which the places so far are read."""
    cos, sin = cos[:4][None, :, None, :], sin[:4][None, :, None, :]
    half = torch.cat((-x[..., 4:], x[..., :4]), dim=-1)
    return (x * cos + half * sin)[:, -1:]


@fires(
    "cat-matmul-columns mul-reciprocal cat-same-2",
)
@program((1, 2, 4, 8), ids(1, 4, high=16))
def llama_rotary(x: Tensor, places: Tensor) -> Tensor:
    """Llama's rotary embedding: frequencies times places, doubled, and applied to halves."""
    inv = 1.0 / (10000.0 ** (torch.arange(0, 8, 2).float() / 8))
    inv = inv[None, :, None].float().expand(1, -1, 1)
    freqs = (inv.float() @ places[:, None, :].float()).transpose(1, 2)
    emb = torch.cat((freqs, freqs), dim=-1)
    cos, sin = emb.cos() * 1.0, emb.sin() * 1.0
    half = torch.cat((-x[..., 4:], x[..., :4]), dim=-1)
    return x * cos.unsqueeze(1) + half * sin.unsqueeze(1)


@fires(
    "mul-one sigmoid-exp silu-exp silu-sigmoid",
)
@program((2, 6, 8), up=(24, 8), down=(8, 12))
def swiglu(x: Tensor, *, up: Tensor, down: Tensor) -> tuple[Tensor, ...]:
    """SwiGLU with gates in their parts: x * sigmoid(x), x / (1 + exp(-x)), and sigmoid by hand."""
    gate, value = F.linear(x, up).chunk(2, dim=-1)
    return (
        F.linear(gate * torch.sigmoid(gate) * value, down),
        gate / (1 + torch.exp(-gate)),
        1 / (1 + torch.exp(-value)),
    )


@fires(
    "affine-scale pow-cube gelu-erf gelu-tanh gelu-tanh-factored",
)
@program((2, 6, 8), w=(16, 8), b=(16,))
def gelu_by_hand(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """GELU as BERT, GPT-2 and Bloom write it: by erf, by tanh, and by tanh of a factored cubic."""
    h = F.linear(x, w, b)
    erf = h * 0.5 * (1.0 + torch.erf(h / 2**0.5))
    tanh = 0.5 * h * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * torch.pow(h, 3.0))))
    bloom = h * 0.5 * (1.0 + torch.tanh(0.79788456 * h * (1 + 0.044715 * h * h)))
    return erf, tanh, bloom


@fires(
    "cast-late-unary cast-late-max cast-late-where cast-late-extreme cast-unseen",
    "cast-compared cast-identity cast-compose",
)
@program((2, 6, 8), dtype=torch.bfloat16, w=(8, 8))
def logits_in_single(x: Tensor, *, w: Tensor) -> tuple[Tensor, ...]:
    """Scores in bfloat16 that are widened before they are clipped, compared and reduced."""
    scores = F.linear(x, w)
    wide = scores.float()
    return (
        torch.relu(wide),
        torch.maximum(wide, x.float()),
        torch.where(x > 0, wide, x.float()),
        wide.amax(-1),
        torch.isnan(wide),
        wide > x.float(),
        wide.to(torch.float64).to(torch.float32),
        wide.to(torch.bfloat16),
    )


@fires(
    "cast-late-lookup",
)
@program(ids(2, 6, high=20), table=torch.linspace(-1, 1, 160).reshape(20, 8).half())
def half_table(tokens: Tensor, *, table: Tensor) -> Tensor:
    """A table kept in half precision, whose rows are widened."""
    return F.embedding(tokens, table.float()) + 0.0


@fires(
    "unary-expand binary-expand-left binary-expand-right",
)
@program((2, 6, 8), (8,), ids(2, 6, high=2))
def masked_mean(x: Tensor, first: Tensor, seen: Tensor) -> Tensor:
    """Sentence embeddings: the mean over tokens that are no padding (Sentence-BERT)."""
    mask = seen.unsqueeze(-1).expand(x.size()).float()
    total = torch.sum(x * mask, 1)
    return total / torch.clamp(mask.sum(1), min=1e-9) + first


@fires(
    "slice-matmul-left",
)
@program(ids(2, 5, high=20), (2, 5, 8))
class TiedHead(nn.Module):
    """A head tied to the embedding, of which the last position's logits are read."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: Tensor, x: Tensor) -> Tensor:
        x = self.norm(x + self.embed(tokens))
        return (x @ self.embed.weight.T)[:, -1, :]
