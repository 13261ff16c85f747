"""One family of networks by its number of layers: how the optimizer's time grows.

`eqsat compare benchmarks/layers.py:ENTRIES --arm saturation --arm fixpoint -o out` finds the rows,
and `benchmarks/plots.py out/results.jsonl` draws them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.models import Program, bert_classifier, gpt2
from benchmarks.zoo.entry import Entry

LAYERS = (1, 2, 4, 8, 16, 32, 64, 96)
FAMILIES: dict[str, Callable[..., Program]] = {"bert": bert_classifier, "gpt2": gpt2}


def _build(make: Callable[..., Program], layers: int, _: str) -> Program:
    return make(layers=layers, hidden=64, heads=4, tokens=16, vocabulary=512)


ENTRIES = {
    entry.name: entry
    for family, make in FAMILIES.items()
    for count in LAYERS
    for entry in (
        Entry(
            f"{family}-{count}-layers",
            "A",
            partial(_build, make, count),
            (),
            f"{family} with a hidden size of 64",
        ),
    )
}
"""Programs of one size, by the names that the figure of times against layers asks for."""
