"""Set A, parts of models: latent attention, guidance, graphs, experts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.fx import Graph
from torch.nn import functional as F  # noqa: N812 - its usual name

from benchmarks.models import Program, ready
from benchmarks.zoo.entry import Sizes, entry
from benchmarks.zoo.expect import attentions, convolutions, products, rows, shape


class LatentAttention(nn.Module):
    """DeepSeek's latent attention over a cache of compressed keys and values.

    The cache holds a latent vector for each token, which is expanded to keys and values of every
    head, and one rotated key that all heads share (arXiv:2405.04434, sections 2.1.2 and 2.1.3).
    """

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.heads, self.plain, self.rotated = s["heads"], s["plain"], s["rotated"]
        self.query = nn.Linear(s["hidden"], s["heads"] * (s["plain"] + s["rotated"]), bias=False)
        self.expand = nn.Linear(s["latent"], 2 * s["heads"] * s["plain"], bias=False)
        self.out = nn.Linear(s["heads"] * s["plain"], s["hidden"], bias=False)

    def forward(self, x: Tensor, cache: Tensor, rotated: Tensor, hidden: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q = self.query(x).view(batch, tokens, self.heads, -1).transpose(1, 2)
        kv = self.expand(cache).view(batch, cache.shape[1], self.heads, -1).transpose(1, 2)
        k, v = kv.split([self.plain, self.plain], dim=-1)
        shared = rotated[:, None].expand(-1, self.heads, -1, -1)
        scores = q @ torch.cat([k, shared], dim=-1).transpose(-1, -2)
        mask = torch.where(hidden, -10000.0, 0.0).to(x.dtype)
        scores = scores * (self.plain + self.rotated) ** -0.5 + mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, -1)
        return self.out(mixed)


def _latent(s: Sizes) -> Program:
    batch, tokens, past = s["batch"], s["tokens"], s["past"]
    x = torch.randn(batch, tokens, s["hidden"])
    cache, rotated = torch.randn(batch, past, s["latent"]), torch.randn(batch, past, s["rotated"])
    hidden = torch.ones(tokens, past).triu(past - tokens + 1).bool()
    return ready(LatentAttention(s), (x, cache, rotated, hidden))


class GuidedBlock(nn.Module):
    """The first blocks of a diffusion U-Net on a batch doubled for guidance.

    The image and the time are the same in both halves; the text, which only the last attention
    reads, is not.
    """

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        width = s["width"]
        self.heads = s["heads"]
        self.stem = nn.Conv2d(4, width, 3, padding=1)
        self.time = nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.GroupNorm(s["groups"], width), nn.GroupNorm(s["groups"], width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm3, self.norm4 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(s["text"], 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, image: Tensor, time: Tensor, text: Tensor) -> Tensor:
        image, time = torch.cat([image, image]), torch.cat([time, time])
        x = self.stem(image)
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        x = x + self.conv2(F.silu(self.norm2(h)))
        size = x.shape[2:]
        x = x.flatten(2).transpose(1, 2)
        x = x + self.mix(self._attend(*self.qkv(self.norm3(x)).chunk(3, -1)))
        x = x + self.out(self._attend(self.q(self.norm4(x)), *self.kv(text).chunk(2, -1)))
        return x.transpose(1, 2).unflatten(2, size)


def _guided(s: Sizes) -> Program:
    image = torch.randn(s["batch"], 4, s["image"], s["image"])
    time = torch.randn(s["batch"], 4 * s["width"])
    text = torch.randn(2 * s["batch"], 77, s["text"])
    return ready(GuidedBlock(s), (image, time, text))


class GraphConvolutions(nn.Module):
    """Two graph convolutions with a dense adjacency, both associated `way`."""

    def __init__(self, way: str, *widths: int) -> None:
        super().__init__()
        self.way = way
        first, hidden, last = widths
        self.first = nn.Linear(first, hidden, bias=False)
        self.second = nn.Linear(hidden, last, bias=False)

    def _convolve(self, a: Tensor, x: Tensor, layer: nn.Module) -> Tensor:
        return a @ layer(x) if self.way == "A (X W)" else layer(a @ x)

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        return self._convolve(a, torch.relu(self._convolve(a, x, self.first)), self.second)


def _graph(way: str) -> Callable[[Sizes], Program]:
    def make(s: Sizes) -> Program:
        nodes, widths = s["nodes"], (s["first"], s["hidden"], s["last"])
        a = torch.rand(nodes, nodes) / nodes
        return ready(GraphConvolutions(way, *widths), (a, torch.randn(nodes, s["first"])))

    return make


class LinearAttention(nn.Module):
    """Attention without a softmax: products of positive features."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        return (q @ k.transpose(-1, -2)) @ v


def _linear_attention(s: Sizes) -> Program:
    shape = (s["batch"], s["heads"], s["tokens"], s["depth"])
    q, k, v = (torch.randn(shape) for _ in range(3))
    return ready(LinearAttention(), (q, k, v / s["tokens"]))


class DenseExperts(nn.Module):
    """A mixture of gated experts, all of which are evaluated for every token."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        hidden, inner = s["hidden"], s["inner"]
        self.router = nn.Linear(hidden, s["experts"], bias=False)
        experts = range(s["experts"])
        self.gates = nn.ModuleList(nn.Linear(hidden, inner, bias=False) for _ in experts)
        self.ups = nn.ModuleList(nn.Linear(hidden, inner, bias=False) for _ in experts)
        self.downs = nn.ModuleList(nn.Linear(inner, hidden, bias=False) for _ in experts)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        result = torch.zeros_like(x)
        for i, (gate, up, down) in enumerate(zip(self.gates, self.ups, self.downs, strict=True)):
            result = result + weights[:, i : i + 1] * down(F.silu(gate(x)) * up(x))
        return result


def _experts(s: Sizes) -> Program:
    return ready(DenseExperts(s), (torch.randn(s["tokens"], s["hidden"]),))


def _not_expanded(graph: Graph, s: Sizes) -> bool:
    """No product has keys or values of all heads for all of the cache."""
    most = max(p.rows * p.width for p in products(graph))
    return most < s["batch"] * s["past"] * s["heads"] * s["plain"]


def _expanded_attention(graph: Graph, s: Sizes) -> bool:
    """Keys and values are made once for all, and read by attention as one operator."""
    made = rows(graph, 2 * s["heads"] * s["plain"], s["latent"])
    return made == [s["batch"] * s["past"]] and len(attentions(graph)) == 1


def _once(graph: Graph, s: Sizes) -> bool:
    found = convolutions(graph)
    return len(found) == 3 and all(shape(n)[0] == s["batch"] for n in found)


def _own_attention_once(graph: Graph, s: Sizes) -> bool:
    return s["batch"] in [shape(n.args[0])[0] for n in attentions(graph)]


def _cheaper_way(graph: Graph, s: Sizes) -> bool:
    """The adjacency is multiplied by as few columns as possible, in both layers."""
    read = sorted(p.width for p in products(graph) if p.inner == s["nodes"])
    return read == sorted((min(s["first"], s["hidden"]), min(s["hidden"], s["last"])))


def _no_scores(graph: Graph, s: Sizes) -> bool:
    return not any(p.width == s["tokens"] for p in products(graph))


def _experts_merged(graph: Graph, s: Sizes) -> bool:
    wide = [p for p in products(graph) if p.inner == s["hidden"]]
    return len(wide) <= 2 and sum(p.width for p in wide) >= 2 * s["experts"] * s["inner"]


_DEEPSEEK = {"hidden": 2048, "heads": 16, "plain": 128, "rotated": 64, "latent": 512}
_LATENT = {"hidden": 512, "heads": 8, "plain": 64, "rotated": 32, "latent": 128}


def _hidden(s: Sizes) -> tuple[int, ...]:
    return s["batch"], s["tokens"], s["hidden"]


def _nodes(s: Sizes) -> tuple[int, ...]:
    return s["nodes"], s["nodes"]


ENTRIES = (
    entry(
        "mla-decode",
        "A",
        "latent attention of DeepSeek-V2-Lite, one token over a long cache",
        _latent,
        full=_DEEPSEEK | {"batch": 8, "tokens": 1, "past": 4096},
        small=_LATENT | {"batch": 4, "tokens": 1, "past": 2048},
        shape=_hidden,
        expected={"keys and values are absorbed, the cache is not expanded": _not_expanded},
        dtype=torch.bfloat16,
    ),
    entry(
        "mla-prefill",
        "A",
        "the same layer for all tokens of a prompt at once",
        _latent,
        full=_DEEPSEEK | {"batch": 1, "tokens": 2048, "past": 2048},
        small=_LATENT | {"batch": 1, "tokens": 256, "past": 256},
        shape=_hidden,
        expected={
            "keys and values are expanded, for attention as one operator": _expanded_attention
        },
        dtype=torch.bfloat16,
    ),
    entry(
        "unet-cfg",
        "A",
        "the first blocks of a diffusion U-Net on cat([x, x]), for guidance",
        _guided,
        full={"width": 320, "heads": 8, "groups": 32, "text": 768, "batch": 1, "image": 64},
        small={"width": 64, "heads": 2, "groups": 8, "text": 48, "batch": 1, "image": 16},
        shape=lambda s: (s["batch"], 4, s["image"], s["image"]),
        expected={
            "what both halves share is convolved once": _once,
            "the attention of the image to itself is computed once": _own_attention_once,
        },
        dtype=torch.float16,
    ),
    entry(
        "gcn",
        "A",
        "two graph convolutions, written A (X W), first to more features, then to fewer",
        _graph("A (X W)"),
        full={"nodes": 8192, "first": 64, "hidden": 1024, "last": 16},
        small={"nodes": 768, "first": 16, "hidden": 256, "last": 8},
        shape=_nodes,
        expected={"each layer associates the cheaper way": _cheaper_way},
        dtype=torch.bfloat16,
    ),
    entry(
        "gcn-reversed",
        "A",
        "two graph convolutions, written (A X) W, of the same sizes",
        _graph("(A X) W"),
        full={"nodes": 8192, "first": 64, "hidden": 1024, "last": 16},
        small={"nodes": 768, "first": 16, "hidden": 256, "last": 8},
        shape=_nodes,
        expected={"each layer associates the cheaper way": _cheaper_way},
        dtype=torch.bfloat16,
    ),
    entry(
        "linear-attention",
        "A",
        "attention without a softmax, (q k') v",
        _linear_attention,
        full={"batch": 1, "heads": 16, "tokens": 4096, "depth": 64},
        small={"batch": 1, "heads": 2, "tokens": 512, "depth": 32},
        shape=lambda s: (s["batch"], s["heads"], s["tokens"], s["depth"]),
        expected={"it is q (k' v)": _no_scores},
        dtype=torch.bfloat16,
    ),
    entry(
        "moe-dense",
        "A",
        "a mixture of gated experts, all evaluated for every token",
        _experts,
        full={"experts": 8, "hidden": 1024, "inner": 512, "tokens": 512},
        small={"experts": 4, "hidden": 256, "inner": 160, "tokens": 128},
        shape=lambda s: (s["tokens"], s["hidden"]),
        expected={
            "gates and ups of all experts, which read the same, are one product": _experts_merged,
        },
        dtype=torch.bfloat16,
    ),
)
