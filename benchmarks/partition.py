"""Predicted kernels against Inductor's, model by model, and the seconds that predicting takes."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import torch
from torch import nn
from torch.fx import Graph

from benchmarks import networks, truth
from eqsat.capture import capture
from eqsat.cost import load
from eqsat.cost.kernel import Kernel
from eqsat.cost.partition import partition

FORMS = ("captured", "decomposed")
LAYERS = {1_000: 21, 8_000: 170}  # of `Blocks`, for about so many nodes
RESULT = Path(__file__).parent / "results" / "partition.md"


@dataclass(frozen=True)
class Agreement:
    """How near predicted kernels are to the true ones."""

    true: int
    predicted: int
    bytes_true: int
    bytes_predicted: int
    f1: float
    """Of kernels matched on class, iteration size (of generated ones) and bytes written."""

    @property
    def count_error(self) -> float:
        """The error of the number of kernels, as a share of the true number."""
        return abs(self.predicted - self.true) / max(1, self.true)

    @property
    def bytes_error(self) -> float:
        """The error of the bytes read and written, as a share of the true ones."""
        return abs(self.bytes_predicted - self.bytes_true) / max(1, self.bytes_true)


def agreement(true: Sequence[Kernel], predicted: Sequence[Kernel]) -> Agreement:
    """How near `predicted` is to `true`."""
    a, b = Counter(map(_key, true)), Counter(map(_key, predicted))
    f1 = 2 * sum((a & b).values()) / max(1, a.total() + b.total())
    return Agreement(len(true), len(predicted), _bytes(true), _bytes(predicted), f1)


def _key(kernel: Kernel) -> tuple[object, ...]:
    if kernel.kind == "extern":
        return "library", kernel.written
    return "generated", kernel.numel * kernel.rnumel, kernel.written


def _bytes(kernels: Iterable[Kernel]) -> int:
    return sum(kernel.bytes for kernel in kernels)


def judged(model: str, form: str) -> Agreement:
    """The agreement on a model of the committed truth."""
    found = truth.read(model)
    graph: Graph = getattr(found, form)
    return agreement(found.kernels, partition(graph, load(truth.PROFILE)))


class Blocks(nn.Module):
    """Transformer blocks, small: 47 nodes each once they are captured."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 64, batch_first=True) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def seconds(layers: int, rounds: int = 5) -> tuple[int, float]:
    """The nodes of a deep graph, and the median seconds that its partition takes."""
    graph = capture(Blocks(layers).eval(), (torch.randn(2, 8, 32),)).program.graph
    took: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        partition(graph, load(truth.PROFILE))
        took.append(time.process_time() - start)
    return len(graph.nodes), median(took)


def report() -> str:
    """All figures as markdown."""
    head = ("model", "set", "kernels", "predicted", "MB", "predicted", "F1", "captured F1")
    lines = [" | ".join(head), " | ".join(["---"] * len(head))]
    means: list[str] = []
    for group, models in networks.SETS.items():
        found = {form: [judged(model, form) for model in models] for form in FORMS}
        for k, model in enumerate(models):
            d, c = found["decomposed"][k], found["captured"][k]
            sizes = (f"{d.bytes_true / 1e6:.2f}", f"{d.bytes_predicted / 1e6:.2f}")
            row = (model, group, str(d.true), str(d.predicted), *sizes)
            lines.append(" | ".join((*row, f"{d.f1:.3f}", f"{c.f1:.3f}")))
        for form, some in found.items():
            means.append(
                f"- {group} ({len(models)} models), {form}: kernel count "
                f"{mean(a.count_error for a in some):.1%}, bytes "
                f"{mean(a.bytes_error for a in some):.1%}, F1 {mean(a.f1 for a in some):.3f}"
            )
    table = "\n".join(f"| {line} |" for line in lines)
    took = [seconds(layers) for layers in LAYERS.values()]
    speed = "\n".join(
        f"- {nodes:,} nodes: {spent:.3f} s, {spent / nodes * 1e6:.0f} us a node"
        for nodes, spent in took
    )
    return (
        "# Predicted kernels against Inductor's\n\n"
        f"bfloat16, profile {truth.PROFILE}; the truth is torch {truth.read('bert').torch}'s, "
        "whose GPU is pretended. Mean errors:\n\n" + "\n".join(means) + f"\n\n{table}\n\n"
        f"## Seconds of CPU time to predict\n\n{speed}\n"
    )


def main() -> None:
    """Print the figures; with `--write` keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"to {RESULT.name}")
    options = parser.parse_args()
    text = report()
    print(text)
    if options.write:
        RESULT.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
