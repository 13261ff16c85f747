"""The e-graph is read in several ways, and the best whole graph is chosen."""

import pytest
import torch
from torch import Tensor, nn

import eqsat
from eqsat import choose
from eqsat.settings import ALWAYS

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
    assert names(report)[-1] == "whole kernels"
    by_enodes, by_kernels = report.extractions[0], report.extractions[-1]
    assert by_kernels.kernels < by_enodes.kernels
    assert by_kernels.predicted < by_enodes.predicted
    assert [e.chosen for e in report.extractions] == [e is by_kernels for e in report.extractions]
    assert by_kernels.lower_bound <= by_kernels.cost


def test_whole_kernels_of_a_large_egraph_are_read_only_if_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "WHOLE", 1)
    assert "whole kernels" not in names(check("auto"))
    assert "whole kernels" in names(check("fused"))


def test_other_extractors_read_single_enodes() -> None:
    assert "whole kernels" not in names(check("tree"))


def test_readings_that_choose_the_same_are_one_candidate() -> None:
    args = (torch.randn(32, 64), torch.randn(64, 64), torch.randn(64, 64))
    report = eqsat.optimize(Shared(), args, margin=ALWAYS).report
    assert names(report) == ["fusible operators at 50%"]
    assert report.extractions[0].chosen
    assert report.operators_after["aten.matmul.default"] == 1


def test_what_is_chosen_is_what_the_report_predicts() -> None:
    report = check("auto")
    (chosen,) = [e for e in report.extractions if e.chosen]
    assert report.after is not None
    assert chosen.predicted == report.after.seconds == min(e.predicted for e in report.extractions)
    assert chosen.kernels == len(report.after.kernels)
