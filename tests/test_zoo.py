"""Every entry of the zoo runs, and what is expected of it is not there before it is found."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import eqsat
from eqsat.capture import capture

pytest.importorskip("transformers")

from benchmarks.zoo import ENTRIES, PUBLISHED, SIZES, Entry
from benchmarks.zoo.expect import convolutions, named

COUNTS = {"A": 20, "B": 9, "C": 27}


def leaves(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def holds(entry: Entry, program: torch.export.ExportedProgram) -> list[str]:
    """What is expected of the entry and holds of the program."""
    result = cast("eqsat.Result", SimpleNamespace(program=program))
    return [claim.text for claim in entry.expected if claim.found(result)]


def test_every_entry_belongs_to_a_set_and_published_figures_to_entries() -> None:
    assert Counter(entry.set for entry in ENTRIES.values()) == COUNTS
    assert all(entry.name == name for name, entry in ENTRIES.items())
    assert {*PUBLISHED} == {n for n, e in ENTRIES.items() if e.set == "B"} - {"bert"}
    assert SIZES == ("full", "small")


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_runs_and_nothing_that_is_expected_is_there_yet(name: str) -> None:
    entry = ENTRIES[name]
    module, args, kwargs = entry.build("small")
    assert not module.training
    assert {x.dtype for x in leaves(args) if x.is_floating_point()} <= {torch.float32}
    with torch.no_grad():
        outputs = leaves(module(*args, **kwargs))
    assert outputs
    assert all(bool(x.isfinite().all()) for x in outputs)
    assert all(float(x.std()) > 1e-4 for x in outputs if x.numel() > 1)
    captured = capture(module, args, dict(kwargs))
    assert holds(entry, captured.original) == []
    assert holds(entry, captured.program) == []


def test_an_entry_is_always_the_same() -> None:
    first, second = (ENTRIES["mla-decode"].build("small") for _ in range(2))
    for x, y in zip(first.args, second.args, strict=True):
        assert torch.equal(x, y)
    weights = zip(first.module.parameters(), second.module.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in weights)


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ValueError, match="size 'medium': one of full, small"):
        ENTRIES["d1"].build("medium")


def test_a_result_of_another_entry_is_refused() -> None:
    module, args, _ = ENTRIES["d1"].build("small")
    with pytest.raises(ValueError, match="not one of its results"):
        holds(ENTRIES["linear-attention"], capture(module, args).program)


FOUND = (
    "mla-decode",
    "mla-prefill",
    "linear-attention",
    "gcn",
    "moe-dense",
    "tensat-bert",
    "d3c",
    "d8",
    "d10",
    "same-5",
    "same-7",
)


@pytest.mark.parametrize("name", FOUND)
def test_what_is_expected_is_found_and_equal(name: str) -> None:
    module, args, kwargs = ENTRIES[name].build("small")
    with torch.no_grad():
        result = eqsat.optimize(module, args, kwargs)
        assert result.report.kept is None
        for given, found in zip(
            leaves(module(*args, **kwargs)), leaves(result.module(*args, **kwargs)), strict=True
        ):
            torch.testing.assert_close(found, given, rtol=1e-4, atol=1e-4)
    assert holds(ENTRIES[name], result.program) == [c.text for c in ENTRIES[name].expected]


def test_full_sizes_are_those_of_the_published_configurations() -> None:
    """Counts of TENSAT's own graphs."""
    for name, counts in {
        "squeezenet": {"convolution": 26, "relu": 26, "max_pool2d": 3, "cat": 8},
        "inception-v3": {"convolution": 94, "relu": 94, "avg_pool2d": 9, "max_pool2d": 5},
        "nasrnn": {"matmul": 80, "add": 55, "mul": 20, "relu": 10, "sigmoid": 25, "tanh": 40},
    }.items():
        module, args, _ = ENTRIES[name].build("full")
        graph = capture(module.to("meta"), [x.to("meta") for x in args]).original.graph
        found = {kind: len(named(graph, kind)) for kind in counts}
        assert found | {"convolution": len(convolutions(graph))} == {"convolution": 0} | counts
