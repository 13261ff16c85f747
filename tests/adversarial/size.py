"""A program of 3,500 operations: a chain of 2,000 beside a sum of 500 branches."""

import torch
from adversarial.program import ALL, Program
from torch import fx

LINKS, BRANCHES = 1_000, 500


def deep_and_wide() -> fx.GraphModule:
    """The program as a graph; exporting it is the same as a module's, and four times as fast."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    chain, total = x, x
    for link in range(LINKS):
        scaled = graph.call_function(torch.mul, (chain, 0.5 + link % 7 * 0.1))
        chain = graph.call_function(torch.add, (scaled, 0.25))
    for branch in range(BRANCHES):
        scaled = graph.call_function(torch.mul, (x, (branch + 1) * 1e-3))
        total = graph.call_function(torch.add, (total, graph.call_function(torch.tanh, (scaled,))))
    graph.output((chain, total))
    return fx.GraphModule({}, graph)


SIZE = (
    Program(
        name="deep-and-wide",
        module=deep_and_wide,
        inputs=(lambda: ((torch.randn(4, 8),), {}),),
        rounded=ALL,
        tolerance=1e-4,
    ),
)
