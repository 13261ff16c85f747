"""Programs that make an e-graph, or whatever walks one, grow without end."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, fx, nn


def chain(terms: int = 1_000) -> fx.GraphModule:
    """A sum of `terms` terms, which associativity and commutativity regroup in endless ways."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    y = graph.call_function(torch.tile, (y, (1, 2)))
    operands = [graph.call_function(torch.mul, (y, 1.0 + i * 0.01)) for i in range(17)]
    total = x
    for term in range(terms):
        total = graph.call_function(torch.add, (total, operands[term % 17]))
    graph.output(total)
    return fx.GraphModule({}, graph)


class Siblings(nn.Module):
    """One input through `count` matrices: every subset of them could be merged."""

    def __init__(self, count: int = 64) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(16, 8) * 0.1 for _ in range(count))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        total = y
        for weight in self.weights:
            total = total + torch.relu(x @ weight)
        return total


def tower(floors: int = 300) -> fx.GraphModule:
    """Permutes of permutes, with something pointwise on every third floor."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    orders = ((1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2))
    top = graph.call_function(torch.reshape, (x, (4, 2, 8)))
    for floor in range(floors):
        top = graph.call_function(torch.permute, (top, orders[floor % len(orders)]))
        if floor % 3 == 2:
            top = graph.call_function(torch.sin, (top,))
    flat = graph.call_function(torch.reshape, (top, (4, 16)))
    graph.output((flat, y))
    return fx.GraphModule({}, graph)


def cats(depth: int = 7) -> fx.GraphModule:
    """A tree of cats of slices of cats."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    level = [graph.call_function(torch.mul, (x, 1.0 + i)) for i in range(2**depth)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        joined = [graph.call_function(torch.cat, ([a, b], 1)) for a, b in pairs]
        level = [graph.call_function(torch.narrow, (j, 1, i % 3, 14)) for i, j in enumerate(joined)]
    graph.output((level[0], y))
    return fx.GraphModule({}, graph)


def shared(levels: int = 79) -> fx.GraphModule:
    """Every level reads the one below twice: as a tree it has 2^79, some 6e23 terms."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    below = x
    for level in range(levels):
        scaled = graph.call_function(torch.mul, (below, 0.5))
        below = graph.call_function(torch.add, (scaled, graph.call_function(torch.sin, (below,))))
        if level % 8 == 7:
            below = graph.call_function(torch.transpose, (below, 0, 1))
    graph.output((below, y))
    return fx.GraphModule({}, graph)


TRAPS: dict[str, Callable[[], nn.Module]] = {
    "chain": chain,
    "siblings": Siblings,
    "tower": tower,
    "cats": cats,
    "shared": shared,
}


def inputs() -> tuple[Tensor, Tensor]:
    """What every trap reads."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 16, generator=generator), torch.randn(4, 8, generator=generator)
