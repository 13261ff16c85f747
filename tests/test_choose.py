"""The e-graph is read in several ways, and the best whole graph is chosen."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from kernels import pointwise, prediction
from torch import Tensor, nn
from torch.fx import Graph

import eqsat
from eqsat import Rewrite, choose, readings
from eqsat.capture import capture, constants_of
from eqsat.choose import Candidate
from eqsat.cost.model import Prediction
from eqsat.encode import encode
from eqsat.fold import Folding
from eqsat.rewritten import placed, rewritten
from eqsat.saturate import saturate
from eqsat.settings import ALWAYS, Settings
from extract import Selection, Status

X = torch.randn(2, 16, 64)


class Shared(nn.Module):
    """Two products of one input, whose sum is one."""

    def forward(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return torch.relu(x @ u + x @ v)


def check(extractor: str) -> eqsat.Report:
    """The report of an encoder layer, optimized and equal."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    with torch.no_grad():
        result = eqsat.optimize(layer, (X,), extractor=extractor, margin=ALWAYS)
        torch.testing.assert_close(result.module(X), layer(X), rtol=1e-4, atol=1e-5)
    assert result.report.kept is None
    return result.report


def names(report: eqsat.Report) -> list[str]:
    return [extraction.name for extraction in report.extractions]


@pytest.mark.parametrize("extractor", ["auto", "fused"])
def test_whole_kernels_are_a_candidate_and_chosen_where_they_are_fewer(extractor: str) -> None:
    report = check(extractor)
    by_enodes = report.extractions[0]
    (by_kernels,) = (e for e in report.extractions if e.name == "whole kernels")
    assert by_kernels.kernels < by_enodes.kernels
    assert by_kernels.predicted < by_enodes.predicted
    assert [e.chosen for e in report.extractions] == [e is by_kernels for e in report.extractions]
    assert by_kernels.lower_bound <= by_kernels.cost


def test_whole_kernels_of_a_large_egraph_are_read_only_if_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readings, "WHOLE", 1)
    assert "whole kernels" not in names(check("auto"))
    assert "whole kernels" in names(check("fused"))


def test_other_extractors_read_single_enodes() -> None:
    assert "whole kernels" not in names(check("tree"))


def test_readings_that_choose_the_same_are_one_candidate() -> None:
    args = (torch.randn(32, 64), torch.randn(64, 64), torch.randn(64, 64))
    report = eqsat.optimize(Shared(), args, margin=ALWAYS).report
    assert names(report) == ["fusible operators at 50%", "as given"]
    assert report.extractions[0].chosen
    assert report.operators_after["aten.matmul.default"] == 1


class LowRank(nn.Module):
    """Two thin layers, which are one launch less as a wide one, and many more FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(512, 16, bias=False), nn.Linear(16, 512)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.up(self.down(x)))


def test_the_same_e_graph_is_read_at_other_prices() -> None:
    seen = list[choose.Found]()
    model, inputs = LowRank().eval(), (torch.randn(4, 512),)
    result = eqsat.optimize(model, inputs, device="h200", mode="graph", observe=seen.append)
    again = seen[0].under(eqsat.CostModel.of("h200", "graph"))
    assert again.winner is not None
    assert again.winner.prediction == result.report.after
    assert again.ground.snapshot is seen[0].ground.snapshot
    elsewhere = seen[0].under(eqsat.CostModel.of("cpu"))
    assert elsewhere.winner is None  # a core would rather launch twice
    kept = eqsat.optimize(model, inputs, device="cpu")
    assert kept.report.kept is not None
    assert kept.report.before is not None
    assert elsewhere.candidates[0].prediction.seconds == kept.report.before.seconds


class Resampled(nn.Module):
    """Maps enlarged and then put together in one kernel, where two smaller ones are no gain."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x, y = (nn.functional.interpolate(z, scale_factor=2, mode="bilinear") for z in (x, y))
        return x + y, x * 0.5, x * 3.0


class Experts(nn.Module):
    """Experts of inputs of their own, whose results are stacked: two, three and four of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 6) for _ in range(4))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        pairs = [*zip(self.layers, inputs, strict=True)]
        plain = [nn.functional.linear(x, layer.weight) for layer, x in pairs]
        biased = [layer(x) for layer, x in pairs]
        return tuple(torch.stack(part[:n]) for part in (plain, biased) for n in (2, 3, 4))


IMAGES = (torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8))
ROWS = tuple(torch.randn(5, 8) for _ in range(4))


@pytest.mark.parametrize(("module", "args"), [(Resampled(), IMAGES), (Experts(), ROWS)])
def test_no_greedy_search_of_a_small_program_finds_a_cheaper_one(
    module: nn.Module, args: tuple[Tensor, ...]
) -> None:
    def found(search: str) -> float:
        with torch.no_grad():
            after = eqsat.optimize(module.eval(), args, search=search, margin=ALWAYS).report.after
        assert after is not None
        return after.seconds

    least = found("saturation")
    assert least <= min(found("greedy"), found("fixpoint")) + 1e-12


def test_what_is_chosen_in_one_egraph_is_found_in_another() -> None:
    captured = capture(Experts().eval(), ROWS, None, None)
    encoding = encode(captured.program.graph, constants_of(captured.program))
    settings = Settings.of(margin=0.0)
    snapshot, choice, _ = rewritten(encoding, settings, "fixpoint")
    larger, _ = saturate(encoding, settings.rules, settings.limits)
    found = placed(snapshot, choice, larger, encoding.roots)
    assert found is not None
    roots = {larger.handles[handle] for handle in encoding.roots}
    assert all(found[cls] >= 0 for cls in roots)
    assert all(larger.classes[k] == cls for cls, k in enumerate(found) if k >= 0)
    given, _ = saturate(encoding, (), settings.limits)
    assert placed(snapshot, choice, given, encoding.roots) is None


class Twice(nn.Module):
    """A relu of a relu, beside the relu that it is equal to."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(x)
        return torch.relu(y), y


def test_what_is_chosen_is_not_found_where_it_is_no_result() -> None:
    captured = capture(Twice(), (torch.ones(4),), None, None)
    encoding = encode(captured.program.graph, {})
    rule = Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)))
    settings = Settings.of(rules=(rule,), margin=0.0)
    snapshot, choice, _ = rewritten(encoding, settings, "fixpoint")
    united, _ = saturate(encoding, settings.rules, settings.limits)
    assert placed(snapshot, choice, united, encoding.roots) is not None
    cut_short, _ = saturate(encoding, (), settings.limits)
    assert placed(snapshot, choice, cut_short, encoding.roots) is None


def test_what_is_chosen_is_what_the_report_predicts() -> None:
    report = check("auto")
    (chosen,) = [e for e in report.extractions if e.chosen]
    assert report.after is not None
    assert chosen.predicted == report.after.seconds == min(e.predicted for e in report.extractions)
    assert chosen.kernels == len(report.after.kernels)


def test_convolutions_are_optimized_under_a_dynamic_batch() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.convolution(x)).relu()

    block, x = Block().eval(), torch.randn(4, 4, 9, 9)
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad():
        result = eqsat.optimize(block, (x,), dynamic_shapes={"x": {0: batch}}, margin=ALWAYS)
        assert result.report.kept is None
        assert "aten.batch_norm.default" not in result.report.operators_after
        for size in (2, 17, 32):
            x = torch.randn(size, 4, 9, 9)
            torch.testing.assert_close(result.module(x), block(x), rtol=1e-4, atol=1e-5)
            assert result.module(x).stride() == block(x).stride()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.einsum("ij->ji", x * 1.0),
        lambda x: torch.atleast_3d(x * 1.0),
        lambda x: nn.functional.alpha_dropout(x * 1.0, training=False),
    ],
    ids=["einsum", "atleast_3d", "alpha_dropout"],
)
def test_an_operator_that_may_return_its_operand_never_returns_an_input(
    function: Callable[[Tensor], Tensor],
) -> None:
    class Called(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    x = torch.randn(3, 5)
    result = eqsat.optimize(Called(), (x,), margin=ALWAYS, check=False)
    given = x.clone()
    result.module(x).zero_()
    assert torch.equal(x, given)


def test_the_best_that_improves_is_chosen_though_a_faster_one_does_not() -> None:
    given = prediction([pointwise("add")] * 4, [5e-6] * 4)
    faster = candidate(prediction([pointwise("add")] * 4, [4.85e-6] * 4))
    fewer = candidate(prediction([pointwise("add")] * 3, [6.6e-6] * 3))
    assert choose.best([faster, fewer], given, 0.05) is fewer
    assert choose.best([faster], given, 0.05) is None


def candidate(found: Prediction) -> Candidate:
    """A candidate of which only the prediction matters."""
    selection = Selection(np.zeros(0, np.int32), 0.0, 0.0, Status.OPTIMAL, "none", 0.0)
    return Candidate("one", selection, Graph(), False, Graph(), Folding(), found)
