"""Programs that were once optimized wrongly, each as small as it was found to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import eqsat


class _Program(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def check(function: Callable[..., Any], *args: Tensor, numerics: str = "default") -> eqsat.Result:
    """The optimized program, which was not given up and gives what the function gives."""
    result = eqsat.optimize(_Program(function), args, numerics=numerics, extractor="tree")
    assert result.report.kept is None, result.report.kept
    return result


def test_a_silu_in_parts_is_emitted() -> None:
    x = torch.randn(4, 5, dtype=torch.float64)
    result = check(lambda x: x * torch.sigmoid(x), x)
    assert "aten.silu.default" in result.report.operators_after


def test_a_mask_that_is_a_vector_is_emitted_as_a_matrix() -> None:
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (4, 5, 5))
    m = torch.randn(5, dtype=q.dtype)
    result = check(
        lambda q, k, v, m: torch.softmax(q @ k.mT + m, -1) @ v, q, k, v, m, numerics="relaxed"
    )
    assert "aten.scaled_dot_product_attention.default" in result.report.operators_after
