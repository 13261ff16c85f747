"""The elements of a result lie within its interval, which follows from those of the operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from eqsat.functions import Function
from eqsat.interval import Interval, held, interval_of, of_dtype, of_tensor
from eqsat.meta import Scalar, meta_of
from eqsat.operators import OPERATORS, cast

LEAST = torch.finfo(torch.float32).min
MASK = torch.tensor([True, False, True])
VALUES = torch.tensor([-1.5, 0.0, 2.25, 3.0])


def check(operator: str, operands: Sequence[Any], *attributes: Any) -> Interval | None:
    """The interval of a result, which holds its elements."""
    result = OPERATORS[operator](*operands, *attributes)
    known = [
        of_tensor(o) if isinstance(o, Tensor) else interval_of("number", [], [o], Scalar(o))
        for o in operands
    ]
    found = interval_of(operator, known, attributes, meta_of(result))
    if found is not None:
        assert bool(torch.isfinite(result).all())
        assert found.low <= result.min() and result.max() <= found.high
    return found


@pytest.mark.parametrize("name", ["neg", "abs", "relu", "sigmoid", "tanh", "sin", "erf", "sign"])
def test_a_function_of_what_is_bounded_is(name: str) -> None:
    assert check("unary", [VALUES], Function(name)) is not None


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (5.0, 9.0), (None, 0.5), (1.0,)])
def test_a_clamp_of_what_is_bounded_is(bounds: tuple[float | None, ...]) -> None:
    assert check("unary", [VALUES], Function("clamp", bounds)) is not None


@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum", "minimum", "lt"])
@pytest.mark.parametrize("other", [-VALUES.flip(0), VALUES * VALUES])
def test_a_function_of_two_that_are_bounded_is(name: str, other: Tensor) -> None:
    assert check("binary", [VALUES, other], Function(name)) is not None


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "reciprocal"])
def test_a_function_that_may_overflow_has_no_interval(name: str) -> None:
    assert interval_of("unary", [Interval(-1, 1)], [Function(name)], meta_of(VALUES)) is None


def test_a_mask_by_arithmetic_is_finite() -> None:
    hidden = check("binary", [1.0, check_cast(MASK)], Function("sub"))
    assert hidden == Interval(0.0, 1.0)
    masked = interval_of(
        "binary", [hidden, Interval(LEAST, LEAST)], [Function("mul")], meta_of(VALUES)
    )
    assert masked == Interval(LEAST, 0.0)


def check_cast(mask: Tensor) -> Tensor:
    """A mask as numbers."""
    assert check("unary", [mask], cast(torch.float32)) == Interval(0.0, 1.0)
    return mask.float()


def test_a_sum_that_may_overflow_has_no_interval() -> None:
    twice = [Interval(LEAST, 0.0)] * 2
    assert interval_of("binary", twice, [Function("add")], meta_of(VALUES)) is None
    beside = [Interval(LEAST, 0.0), Interval(-0.5, 0.5)]  # too little to leave the last place
    assert interval_of("binary", beside, [Function("add")], meta_of(VALUES)) == Interval(LEAST, 0.5)


def test_a_cast_that_may_overflow_has_no_interval() -> None:
    wide = [Interval(LEAST, 0.0)]
    narrow = meta_of(VALUES.bfloat16())
    assert interval_of("unary", wide, [cast(torch.bfloat16)], narrow) is None


def test_what_is_unbounded_stays_so() -> None:
    assert interval_of("unary", [None], [Function("clamp", (-1.0, 1.0))], meta_of(VALUES)) is None
    assert of_tensor(torch.tensor([1.0, math.nan])) is None
    assert of_tensor(torch.tensor([1.0, -math.inf])) is None
    assert interval_of("number", [], [math.inf], Scalar(math.inf)) is None


def test_integers_wrap_around_within_their_dtype() -> None:
    values = torch.tensor([-128, 127], dtype=torch.int8)
    assert check("binary", [values, values], Function("add")) == of_dtype(torch.int8)
    assert check("unary", [values], Function("neg")) == of_dtype(torch.int8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_is_held_is_rounded_to_the_dtype(dtype: torch.dtype) -> None:
    assert held(0.1, 0.1, dtype) == Interval(*[float(torch.tensor(0.1, dtype=dtype))] * 2)
    assert held(0.0, torch.finfo(dtype).max * 1.01, dtype) is None


@pytest.mark.parametrize(
    ("operator", "operands", "attributes"),
    [
        ("expand", [VALUES], ((3, 4),)),
        ("cat", [VALUES, -VALUES], (-1,)),
        ("embedding", [VALUES[:, None], torch.tensor([0, 3])], ()),
        ("softmax", [VALUES], (-1,)),
        ("reduction", [VALUES], (Function("amax"), (-1,), False)),
        ("ternary", [VALUES > 1, VALUES, -1e9], (Function("where"),)),
    ],
)
def test_what_selects_is_bounded(
    operator: str, operands: list[Any], attributes: tuple[Any, ...]
) -> None:
    assert check(operator, operands, *attributes) is not None
