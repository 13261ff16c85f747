"""A model of a whole graph says how long it takes, why, and which of two is better."""

import math

import pytest
import torch
from kernels import mm, pointwise, prediction
from torch import nn

import eqsat
from eqsat.cost.model import CostModel, Work

ADD, MUL, GEMM = pointwise("add"), pointwise("mul"), mm(128, 256, 64)
BASE = prediction((GEMM, ADD, ADD), (4e-6, 3e-6, 3e-6))


def graph(module: nn.Module, *args: torch.Tensor) -> torch.fx.Graph:
    """The ATen graph of a module."""
    return torch.export.export(module.eval(), args).graph


def test_totals_are_those_of_the_kernels() -> None:
    assert BASE.bytes == GEMM.bytes + 2 * ADD.bytes
    assert BASE.flops == 2 * 128 * 256 * 64
    assert BASE.seconds == pytest.approx(1e-5)


def test_kernels_of_equal_work_are_one_row_and_the_longest_is_first() -> None:
    assert [(row.count, row.work.operators) for row in BASE.rows] == [(2, ("add",)), (1, ("mm",))]
    assert BASE.rows[0].seconds == pytest.approx(6e-6)
    assert BASE.rows[0].bytes == 2 * ADD.bytes


def test_work_reads_as_operators_and_sizes() -> None:
    assert str(Work.of(GEMM)) == "mm, 128x256x64 float32"
    many = pointwise("add", "add", "mul", "exp", "neg", "abs", "sin", "cos")
    assert str(Work.of(many)) == "add x2 mul exp neg abs +2, 1024 float32"


def test_text_names_device_kernels_and_what_bounds_them() -> None:
    text = str(BASE)
    assert text.startswith("predicted 10 us on h200 (stream launches): 3 kernels, ")
    assert "memory" in text
    assert "128x256x64" in text


def test_long_table_says_how_many_rows_are_left_out() -> None:
    kernels = tuple(pointwise("add", numel=n) for n in range(1, 31))
    assert "... and 11 more rows" in str(prediction(kernels, [1e-6] * 30))


@pytest.mark.parametrize("share", [0.94, 0.95 - 1e-9])
def test_a_saving_above_the_margin_improves(share: float) -> None:
    assert prediction((GEMM,), (1e-5 * share,)).improves(BASE, 0.05)


def test_a_saving_within_the_margin_does_not_improve() -> None:
    assert not prediction((GEMM, MUL, ADD), (4e-6, 2.8e-6, 2.8e-6)).improves(BASE, 0.05)


def test_fewer_kernels_improve_at_equal_time_only() -> None:
    fewer = prediction((GEMM, ADD), (5e-6, 5e-6))
    assert fewer.improves(BASE, 0.05)
    assert not BASE.improves(fewer, 0.05)
    assert not prediction((GEMM,), (1.01e-5,)).improves(BASE, 0.05)


def test_fewer_kernels_are_no_reason_where_launching_them_takes_no_time() -> None:
    slow = prediction((GEMM, MUL, ADD), (1e-3, 1e-3, 1e-3))
    assert not prediction((GEMM, ADD), (1.4e-3, 1.5e-3)).improves(slow, 0.05)
    assert prediction((GEMM, ADD), (1.4e-3, 1.4e-3)).improves(slow, 0.05)


def test_where_launches_hide_the_device_its_time_decides() -> None:
    slow = prediction((GEMM, ADD), (4e-6, 4e-6), host=1e-5)
    fast = prediction((GEMM, MUL), (3e-6, 3e-6), host=1e-5)
    assert fast.seconds == slow.seconds
    assert fast.improves(slow, 0.05)
    assert not slow.improves(fast, 0.05)


def test_everything_improves_by_a_margin_of_minus_infinity() -> None:
    assert prediction((GEMM,), (1.0,)).improves(BASE, -math.inf)


def test_nothing_improves_on_itself() -> None:
    assert not BASE.improves(BASE, 0.0)


def test_explanation_lists_what_differs_the_largest_difference_first() -> None:
    model = CostModel.of("h200")
    x, w = torch.randn(256, 512), nn.Linear(512, 64)
    two = graph(nn.Sequential(w, nn.Softmax(-1), nn.Linear(64, 64)), x)
    one = graph(nn.Sequential(w, nn.Softmax(-1)), x)
    explanation = model.explain(two, one)
    assert [c.work.kind for c in explanation.changes] == ["extern"]
    assert (explanation.changes[0].before, explanation.changes[0].after) == (1, 0)
    assert "kernels 3 -> 2" in str(explanation)
    assert explanation.before.flops - explanation.after.flops == 2 * 256 * 64 * 64
    assert not model.explain(one, one).changes


def test_graph_launches_are_faster_than_a_stream_of_small_kernels() -> None:
    small = graph(nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1)), torch.randn(4, 8))
    stream, replay = CostModel.of("h200").estimate(small), CostModel.of("h200", "graph")
    assert replay.estimate(small).seconds < stream.seconds
    assert stream.times.host > stream.times.device


def test_optimizer_keeps_the_given_program_unless_it_saves_the_margin() -> None:
    class Chain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.neg().neg() + 1

    args = (torch.randn(64, 64),)
    kept = eqsat.optimize(Chain(), args)  # one pointwise kernel, with and without the negations
    assert "nothing faster by the margin of 0.05 of the time" in str(kept.report.kept)
    assert len(kept.report.operators_after) == 2
    always = eqsat.optimize(Chain(), args, margin=-math.inf)
    assert always.report.kept is None
    assert list(always.report.operators_after) == ["aten.add.Tensor"]


@pytest.mark.parametrize("margin", [1.0, math.nan, 2])
def test_a_margin_that_nothing_reaches_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="margin must be a share of the time below 1"):
        eqsat.optimize(nn.ReLU(), (torch.randn(2),), margin=margin)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="mode 'cudagraph': one of stream, graph"):
        eqsat.optimize(nn.ReLU(), (torch.randn(2),), mode="cudagraph")  # type: ignore[arg-type] the point
