"""Programs that were once optimized wrongly, each as small as it was found to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import eqsat
from eqsat.emit import emit
from eqsat.emitter import Emitter
from eqsat.infer import Oracle
from eqsat.meta import Texts
from eqsat.operators import OPERATORS, attention
from eqsat.settings import ALWAYS


class _Program(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def check(function: Callable[..., Any], *args: Tensor, numerics: str = "default") -> eqsat.Result:
    """The optimized program, which was not given up and gives what the function gives."""
    result = eqsat.optimize(
        _Program(function), args, numerics=numerics, extractor="tree", margin=ALWAYS
    )
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


def test_a_power_of_a_tensor_is_not_that_of_a_number() -> None:
    x = torch.tensor([-0.0, 0.0, -torch.inf, 2.0, 3.7], dtype=torch.float64)
    for exponent in (0.5, -0.5, 2.0, 3.0):
        check(lambda x, e=exponent: x ** torch.full((5,), e, dtype=x.dtype), x, numerics="strict")


def test_a_root_of_half_precision_keeps_its_infinities() -> None:
    x = torch.tensor([-0.0, 0.0, -torch.inf, 2.0, 3.7], dtype=torch.float16)
    check(lambda x: (x**0.5, x**-0.5), x)


def test_complex_products_keep_their_bits_where_strict() -> None:
    x, y = torch.randn(9, dtype=torch.complex64), torch.randn(9, dtype=torch.complex64)
    check(lambda x, y: ((x * y)[1:4], (-x) * y), x, y, numerics="strict")


def test_numbers_are_not_moved_from_narrow_to_wide_products() -> None:
    x, y = torch.randn(40), torch.randn(40, dtype=torch.float64)
    check(lambda x, y: (x * 0.3) * y, x, y)
    check(lambda x, y: x * 0.3 + y * 0.3, x, y)
    check(lambda x, y: (x * y[:1]).sum(-1, True), x, y)


def test_attention_on_short_rows_keeps_nan() -> None:
    x = torch.randn(3, 4, dtype=torch.float64)
    attend = torch.nn.functional.scaled_dot_product_attention
    check(lambda x: attend(x, x * 0.5, x, is_causal=True), x)


def test_padding_stays_outside_a_convolution_whose_weight_may_be_nan() -> None:
    x, w = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 2, 2)
    w[0, 0, 0, 0] = torch.nan
    pad, conv = torch.nn.functional.pad, torch.nn.functional.conv2d
    check(lambda x, w: conv(pad(x, (1, 1, 1, 1)), w), x, w)


def test_dims_that_became_static_do_not_stop_the_optimizer() -> None:
    class Products(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3, 6, dtype=torch.float64))

        def forward(self, w: Tensor, x: Tensor) -> Tensor:
            return (x @ w) @ w.mT + x @ self.weight @ w.mT

    w = torch.randn(6, 3, dtype=torch.float64).mT
    x = torch.randn(3, dtype=torch.float64)
    auto = {0: torch.export.Dim.AUTO}
    program = torch.export.export(Products(), (w, x), dynamic_shapes=(auto, auto), strict=False)
    result = eqsat.optimize(program, (w, x), margin=ALWAYS)
    assert result.report.kept is None, result.report.kept


def test_operators_made_of_others_leave_dims_dynamic() -> None:
    def padded(x: Tensor) -> Tensor:
        wide = torch.nn.functional.pad(x, (1, 1))
        return torch.relu(torch.nn.functional.interpolate(wide, scale_factor=2.0))

    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    batch = ({0: torch.export.Dim("batch")},)
    result = eqsat.optimize(_Program(padded), (x,), dynamic_shapes=(batch,), margin=ALWAYS)
    assert result.report.kept is None, result.report.kept
    for size in (2, 5):
        y = torch.randn(size, 3, 4, 4, dtype=torch.float64)
        torch.testing.assert_close(result.module(y), padded(y))


def test_heads_that_are_none_are_refused_and_do_not_end_the_process() -> None:
    q, k, v = (torch.empty(2, heads, 2, 2, device="meta") for heads in (0, 0, 1))
    with pytest.raises(ValueError, match="no heads to share"):
        attention(q, k, v, False, 1.0, True)


def test_a_dynamic_size_that_a_program_settles_is_that_number() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.relu((x * 2.0).chunk(2, 1)[0] + torch.zeros(2, 3))

    x = torch.randn(2, 6)
    program = torch.export.export(_Program(function), (x,), dynamic_shapes=(({0: Dim.AUTO},),))
    result = eqsat.optimize(program, margin=ALWAYS)
    assert result.report.kept is None, result.report.kept
    torch.testing.assert_close(result.module(x), function(x))


def test_a_fill_beyond_half_precision_is_the_infinity_that_one_element_is() -> None:
    fill = ((4, 3), -1e30, torch.float16, torch.device("cpu"))
    assert OPERATORS["full"].evaluate(*fill).isneginf().all()
    emitted = emit(Emitter(FakeTensorMode(), Oracle(Texts())), "full", (), fill)
    assert emitted.args == ([4, 3], -torch.inf)


def test_a_fill_is_computed_ahead_only_where_kernels_cannot_differ() -> None:
    for name, numerics, computed in (
        ("gelu", "strict", False),
        ("gelu", "default", True),
        ("relu", "strict", True),
    ):
        function = getattr(torch.nn.functional, name)
        result = check(
            lambda x, f=function: x + f(torch.full((3, 3), -0.0)),
            torch.randn(3, 3),
            numerics=numerics,
        )
        assert result.report.saturation is not None
        fired = {r.name for r in result.report.saturation.rules if r.admitted}
        assert ("unary-full" in fired) is computed


def test_an_image_without_elements_keeps_its_padding() -> None:
    wide = torch.nn.functional.pad
    w = torch.randn(3, 1, 3, 2, dtype=torch.bfloat16)
    result = check(
        lambda x: torch.conv2d(wide(x, (0, 0, 2, 2)), w, groups=3),
        torch.empty(2, 3, 0, 2, dtype=torch.bfloat16),
    )
    assert result.module(torch.empty(2, 3, 0, 2, dtype=torch.bfloat16)).shape == (2, 3, 2, 1)


def test_a_symbolic_number_that_is_known_is_kept_as_a_number() -> None:
    known = torch.SymInt(SymNode(sympy.Integer(12), ShapeEnv(), int, 12))
    texts = Texts()
    for value, plain in ((known, 12), ((1, known), (1, 12)), ([known], [12])):
        text = texts.text(value)
        assert text == Texts().text(plain)
        kept = texts.value(text)
        assert kept == plain
        parts = kept if isinstance(kept, (list, tuple)) else [kept]
        assert all(type(part) is int for part in parts)
