"""The order of products is chosen by shape: low ranks, latent keys, graphs, free attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import eqsat
from eqsat.settings import ALWAYS

RANK = 4


def drawn(*shape: int) -> Tensor:
    """A small random tensor."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator) * 0.1


def optimized(module: nn.Module, *inputs: Tensor) -> list[tuple[str, tuple[int, ...]]]:
    """The products of the optimized module, which equals the given one: names and shapes."""
    module = module.eval()
    with torch.no_grad():
        result = eqsat.optimize(module, inputs, margin=ALWAYS)
        torch.testing.assert_close(result.module(*inputs), module(*inputs), rtol=1e-4, atol=1e-4)
    nodes = (n for n in result.program.graph.nodes if n.op == "call_function")
    named = ((str(n.target).split(".")[1], n) for n in nodes)
    kinds = ("matmul", "linear", "addmm", "einsum", "scaled_dot_product_attention")
    return [(name, tuple(n.meta["val"].shape)) for name, n in named if name in kinds]


class Latent(nn.Module):
    """Attention with keys and values projected from a small cache, and parts of keys shared."""

    def __init__(self, heads: int, width: int, latent: int, shared: int) -> None:
        super().__init__()
        self.heads, self.width, self.shared = heads, width, shared
        self.q = nn.Linear(64, heads * (width + shared), bias=False)
        self.kv = nn.Linear(latent, heads * 2 * width, bias=False)

    def forward(self, x: Tensor, cache: Tensor, rotary: Tensor) -> Tensor:
        batch, queries, _ = x.shape
        keys = cache.shape[1]
        q = self.q(x).view(batch, queries, self.heads, -1).transpose(1, 2)
        kv = self.kv(cache).view(batch, keys, self.heads, -1).transpose(1, 2)
        k, v = kv.split([self.width, self.width], -1)
        k = torch.cat([k, rotary[:, None].expand(-1, self.heads, -1, -1)], -1)
        weights = torch.softmax(q @ k.mT * (self.width + self.shared) ** -0.5, -1)
        return weights @ v


@pytest.mark.parametrize(("queries", "absorbs"), [(1, True), (256, False)])
def test_projections_of_a_cache_are_absorbed_by_few_queries(queries: int, absorbs: bool) -> None:
    heads, width, latent, shared, keys = 16, 64, 256, 32, 4096
    inputs = drawn(2, queries, 64), drawn(2, keys, latent), drawn(2, keys, shared)
    products = optimized(Latent(heads, width, latent, shared), *inputs)
    projected = (2, keys, heads * 2 * width)
    assert (projected in [shape for _, shape in products]) != absorbs


@pytest.mark.parametrize("bias", [False, True])
def test_adapters_of_low_rank_go_into_the_weight(bias: bool) -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(64, 48, bias=bias)
            self.down, self.up = (
                nn.Linear(64, RANK, bias=False),
                nn.Linear(RANK, 48, bias=False),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x)) * 2.0

    assert len(optimized(Adapted(), drawn(2, 9, 64))) == 1


@pytest.mark.parametrize(("tokens", "width"), [(512, 8), (8, 512)])
def test_attention_without_softmax_is_made_in_the_cheaper_order(tokens: int, width: int) -> None:
    class Free(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return (q @ k.mT) @ v

    inputs = (drawn(2, 4, tokens, width) for _ in range(3))
    first, _ = optimized(Free(), *inputs)
    assert first[1] == (2, 4, min(tokens, width), min(tokens, width))


@pytest.mark.parametrize(("fan_in", "fan_out"), [(8, 64), (64, 8)])
@pytest.mark.parametrize("nodes_first", [False, True])
def test_graph_convolutions_are_made_in_the_cheaper_order(
    fan_in: int, fan_out: int, nodes_first: bool
) -> None:
    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(drawn(fan_in, fan_out))

        def forward(self, a: Tensor, x: Tensor) -> Tensor:
            return (a @ x) @ self.weight if nodes_first else a @ (x @ self.weight)

    first, _ = optimized(Convolution(), drawn(200, 200), drawn(200, fan_in))
    assert first[1] == (200, min(fan_in, fan_out))
