"""A pair of functions becomes a rule: what it matches, what it refuses, Inductor's signature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import eqsat
import rewrites
from eqsat.meta import Meta
from eqsat.replacement import PatternMatcherPass, fwd_only, register_replacement, replacement
from eqsat.rewrite import EXACT, RELAXED, ROUNDING, Rewrite, ordered
from eqsat.settings import ALWAYS

F32 = torch.float32
OUTSIDE = torch.ones(4)
X, W, B = torch.empty(3, 4), torch.empty(4, 5), torch.empty(5)


def affine(x: Any, w: Any, b: Any) -> Any:
    return torch.relu(x @ w + b)


def fused(x: Any, w: Any, b: Any) -> Any:
    return torch.relu(torch.addmm(b, x, w))


class Program(nn.Module):
    """A program that is one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def check(
    function: Callable[..., Any], inputs: list[Tensor], rules: Any, expect: dict[str, int]
) -> None:
    """The program, optimized by these rules alone, has these operators and the same values."""
    result = eqsat.optimize(
        Program(function), tuple(inputs), rules=rules, numerics="relaxed", margin=ALWAYS
    )
    found = {name.split(".")[1]: n for name, n in result.report.operators_after.items()}
    assert found == expect, result.report.kept
    torch.testing.assert_close(result.module(*inputs), function(*inputs))


def admitted(
    function: Callable[..., Any], inputs: list[Tensor], rule: Rewrite, **options: Any
) -> int:
    """How often the rule united two values of the program, which computes the same after it."""
    result = eqsat.optimize(
        Program(function),
        tuple(inputs),
        rules=[rule],
        numerics="relaxed",
        margin=ALWAYS,
        **options,
    )
    torch.testing.assert_close(result.module(*inputs), function(*inputs))
    assert result.report.saturation is not None
    return result.report.saturation.rules[0].admitted


def random(*shapes: tuple[int, ...], dtype: torch.dtype = F32) -> list[Tensor]:
    """Random inputs, always the same."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def test_a_pair_of_functions_is_a_rule_at_any_shape_and_dtype() -> None:
    rule = replacement("fuse", affine, fused, [X, W, B], numerics=ROUNDING)
    assert str(rule) == "fuse: relu(add(matmul(x, w), b)) => relu(affine(x, w, b))"
    for dtype in (torch.float32, torch.float64):
        inputs = random((7, 6), (6, 2), (2,), dtype=dtype)
        check(affine, inputs, [rule], {"addmm": 1, "relu": 1})


def test_sizes_are_those_of_the_match_not_of_the_example() -> None:
    def search(x: Any) -> Any:
        return x.reshape(x.shape[0] * x.shape[1], x.shape[2]).sum(0)

    def replace(x: Any) -> Any:
        return x.sum((0, 1))

    rule = replacement("flat-sum", search, replace, [torch.empty(2, 3, 4)])
    assert admitted(search, random((5, 7, 6)), rule) == 1


def test_where_the_function_comes_to_other_operators_it_does_not_match() -> None:
    def search(x: Any) -> Any:
        return torch.exp(x * x.shape[-1])

    rule = replacement("by-size", search, lambda x: torch.exp(x / (1 / x.shape[-1])), [X])
    assert rule.when is not None
    assert rule.when(Meta((2, 9), F32, "cpu"))
    assert admitted(lambda x: torch.exp(x * 6), random((2, 6)), rule) == 1
    assert admitted(lambda x: torch.exp(x * 7), random((2, 6)), rule) == 0


def test_a_number_is_a_variable_where_it_stands_as_operand_or_as_attribute() -> None:
    def search(x: Any, factor: Any, slope: Any) -> Any:
        return functional.softmax(x * factor, dim=slope)

    def replace(x: Any, factor: Any, slope: Any) -> Any:
        return functional.softmax(x / (1 / factor), dim=slope)

    rule = replacement("r", search, replace, [X], scalars={"factor": 0.113377, "slope": -1})
    assert rule.kinds == {"x": "tensor", "factor": "tensor", "slope": "attribute"}
    for factor, dim in ((3.0, 0), (0.5, 1)):
        program = functools.partial(
            lambda x, f, d: functional.softmax(x * f, dim=d), f=factor, d=dim
        )
        assert admitted(program, random((4, 5)), rule) == 1


def test_an_example_of_one_element_stands_for_a_number_if_it_must() -> None:
    def search(x: Any, scale: Any) -> Any:
        return torch.relu(x / scale)

    def replace(x: Any, scale: Any) -> Any:
        return torch.relu(x * float(1.0 / scale))

    rule = replacement("r", search, replace, [X, torch.tensor(2.0)])
    assert admitted(lambda x: torch.relu(x / 4.0), random((2, 3)), rule) == 1


def test_results_that_are_the_same_on_both_sides_are_no_part_of_the_rule() -> None:
    def search(x: Any, w: Any) -> Any:
        w = w.mT
        return torch.relu(x.neg().neg() @ w), w

    def replace(x: Any, w: Any) -> Any:
        w = w.mT
        return torch.relu(x @ w), w

    rule = replacement("r", search, replace, [X, torch.empty(5, 4)])
    assert len(rule.left) == 1
    assert (
        admitted(lambda x, w: torch.relu(x.neg().neg() @ w.mT), random((2, 3), (6, 3)), rule) == 1
    )


def test_several_results_are_matched_together_in_the_order_of_the_program() -> None:
    def search(x: Any, a: Any, b: Any) -> Any:
        return x @ a, x @ b

    def replace(x: Any, a: Any, b: Any) -> Any:
        return (x @ torch.cat([a, b], 1)).split([a.shape[1], b.shape[1]], 1)

    examples = [X, torch.empty(4, 5), torch.empty(4, 2)]
    rule = replacement("merge", search, replace, examples, distinct=("a", "b"))
    assert rule.facts == (ordered(),)
    inputs = random((3, 6), (6, 5), (6, 4))
    assert admitted(search, inputs, rule) == 2


def test_one_value_does_not_stand_for_two_that_must_differ() -> None:
    def search(x: Any, y: Any) -> Any:
        return torch.exp(x) * torch.exp(y)

    def replace(x: Any, y: Any) -> Any:
        return torch.exp(x + y)

    apart = replacement("apart", search, replace, [X, X], distinct=("x", "y"))
    twice, inputs = (lambda x: torch.exp(x) * torch.exp(x)), random((3, 4))
    assert admitted(twice, inputs, apart) == 0
    assert admitted(twice, inputs, replacement("any", search, replace, [X, X])) == 1
    check(search, random((2, 5), (2, 5)), [apart], {"add": 1, "exp": 1})


def test_a_sequence_of_tensors_is_taken_apart() -> None:
    def search(parts: Any) -> Any:
        return torch.relu(torch.cat(parts, 0))

    def replace(parts: Any) -> Any:
        return torch.cat([torch.relu(p) for p in parts], 0)

    rule = replacement("r", search, replace, [[X, X]])
    assert str(rule) == (
        "r: relu(cat(parts_0, parts_1, -2)) => cat(relu(parts_0), relu(parts_1), -2)"
    )


def test_a_program_with_dynamic_sizes_is_matched() -> None:
    rule = replacement("fuse", affine, fused, [X, W, B], numerics=ROUNDING)
    inputs = random((6, 4), (4, 5), (5,))
    batch = torch.export.Dim("batch", min=2, max=64)
    result = eqsat.optimize(
        Program(affine),
        tuple(inputs),
        dynamic_shapes=(({0: batch}, None, None),),
        rules=[rule],
        margin=ALWAYS,
    )
    assert "aten.addmm.default" in result.report.operators_after
    more = random((9, 4), (4, 5), (5,))
    torch.testing.assert_close(result.module(*more), affine(*more))


# What is refused where it is built.
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "values": (
        lambda: replacement("r", affine, lambda x, w, b: fused(x, w, 2 * b), [X, W, B]),
        "result 0: .* is replaced by .* on random inputs",
    ),
    "shapes": (
        lambda: replacement("r", affine, lambda x, w, b: fused(x, w, b).mT, [X, W, B]),
        r"result 0: float32\[3,5\]@cpu is replaced by float32\[5,3\]@cpu",
    ),
    "dtypes": (
        lambda: replacement("r", lambda x: x.relu(), lambda x: x.double().relu(), [X]),
        "float32.* is replaced by float64",
    ),
    "numbers of results": (
        lambda: replacement("r", affine, lambda x, w, b: (fused(x, w, b), b), [X, W, B]),
        "1 results are replaced by 2",
    ),
    "no change": (lambda: replacement("r", affine, affine, [X, W, B]), "nothing to replace"),
    "an operator without a term": (
        lambda: replacement("r", lambda x: x.sort(0).values, lambda x: x, [X]),
        "the search function: it calls aten.sort.default, which the language has no term for",
    ),
    "random numbers": (
        lambda: replacement("r", lambda x: x + torch.rand(3, 4), lambda x: x, [X]),
        "the search function: it calls aten.rand.default: draws random numbers",
    ),
    "writes": (
        lambda: replacement("r", lambda x: x.add_(1), lambda x: x + 1, [X]),
        "mutates its operands",
    ),
    "a tensor from outside": (
        lambda: replacement("r", lambda x: x + OUTSIDE, lambda x: x, [X]),
        "the search function: it cannot be traced: .*FakeTensor",
    ),
    "too few examples": (
        lambda: replacement("r", affine, fused, [X, W]),
        "2 examples for the parameters x, w, b",
    ),
    "an example that is no tensor": (
        lambda: replacement("r", affine, fused, [X, W, 2.0]),
        "the example of 'b' is 2.0",
    ),
    "a scalar that is no parameter": (
        lambda: replacement("r", affine, fused, [X, W, B], scalars={"eps": 1.0}),
        "'eps' is no param",
    ),
    "examples that do not fit": (
        lambda: replacement("r", affine, fused, [X, B, W]),
        "search function: it cannot be traced",
    ),
    "a bare variable": (
        lambda: replacement("r", lambda x: x, lambda x: x.neg().neg(), [X]),
        "bare variable",
    ),
    "a parameter that the search ignores": (
        lambda: replacement("r", lambda x, y: x.neg().neg(), lambda x, y: x, [X, X]),  # noqa: ARG005
        "unused variable y",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_pair_is_refused_by_name(what: str) -> None:
    build, message = WRONG[what]
    with pytest.raises(ValueError, match=rf"rule 'r': .*{message}"):
        build()


# Inductor's signature.
def test_a_pattern_of_inductors_is_ported_by_its_import() -> None:
    from torch._inductor import pattern_matcher as inductors

    def port(module: Any, into: Any) -> None:
        module.register_replacement(affine, fused, [X, W, B], module.fwd_only, into)

    theirs, ours = inductors.PatternMatcherPass(), PatternMatcherPass()
    port(inductors, theirs)
    port(__import__("eqsat.replacement", fromlist=["register_replacement"]), ours)
    assert len(theirs.patterns) == 1
    assert [rule.name for rule in ours] == ["affine"]
    check(affine, random((7, 6), (6, 2), (2,)), ours, {"addmm": 1, "relu": 1})


def test_arguments_are_those_of_inductors_function() -> None:
    import inspect

    from torch._inductor import pattern_matcher as inductors

    theirs = list(inspect.signature(inductors.register_replacement).parameters)
    ours = list(inspect.signature(register_replacement).parameters)
    assert ours[: len(theirs)] == theirs


def test_a_check_gets_inductors_match_of_the_values_at_hand() -> None:
    seen: list[Any] = []

    def few_columns(match: Any) -> bool:
        assert [node.op for node in match.kwargs.values()] == ["placeholder"] * 3
        assert match.output_node().meta["val"].shape == match.kwargs["x"].meta["val"].shape[:1] + (
            match.kwargs["w"].meta["val"].shape[1],
        )
        seen.append(match)
        return match.kwargs["w"].meta["val"].shape[1] < 4

    patterns = PatternMatcherPass()
    register_replacement(affine, fused, [X, W, B], fwd_only, patterns, extra_check=few_columns)
    check(affine, random((7, 6), (6, 2), (2,)), patterns, {"addmm": 1, "relu": 1})
    check(affine, random((7, 6), (6, 4), (4,)), patterns, {"matmul": 1, "add": 1, "relu": 1})
    assert len(seen) == 2


def test_a_scalar_reaches_the_check_and_the_replacement() -> None:
    def search(x: Any, slope: Any) -> Any:
        return torch.where(x > 0, x, x * slope)

    def replace(x: Any, slope: Any) -> Any:
        return functional.leaky_relu(x, slope)

    patterns = PatternMatcherPass()
    register_replacement(
        search,
        replace,
        [X],
        fwd_only,
        patterns,
        extra_check=lambda match: match.kwargs["slope"] < 0.3,
        scalar_workaround={"slope": 0.113377},
    )
    check(lambda x: search(x, 0.25), random((4, 5)), patterns, {"leaky_relu": 1})
    check(lambda x: search(x, 0.5), random((4, 5)), patterns, {"gt": 1, "mul": 1, "where": 1})


def test_patterns_of_one_function_have_names_of_their_own_and_duplicates_are_skipped() -> None:
    patterns = PatternMatcherPass()
    first = register_replacement(affine, fused, [X, W, B], fwd_only, patterns)
    second = register_replacement(affine, fused, [X, W, B], fwd_only, patterns)
    third = register_replacement(
        affine, fused, [X, W, B], fwd_only, [patterns], skip_duplicates=True
    )
    assert first is not None
    assert second is not None
    assert (first.name, second.name, third) == ("affine", "affine-2", None)
    assert rewrites.DEFAULT + patterns


def test_a_training_pattern_and_a_pass_of_torchs_are_refused() -> None:
    from torch._inductor import pattern_matcher as inductors

    with pytest.raises(ValueError, match="rule 'affine': a training pattern"):
        register_replacement(affine, fused, [X, W, B], inductors.joint_fwd_bwd, [])
    with pytest.raises(TypeError, match=r"import PatternMatcherPass from eqsat\.replacement"):
        register_replacement(affine, fused, [X, W, B], fwd_only, inductors.PatternMatcherPass())


def test_numerics_are_relaxed_unless_the_author_says_otherwise() -> None:
    assert replacement("r", affine, fused, [X, W, B]).numerics is RELAXED
    assert replacement("r", affine, fused, [X, W, B], numerics=EXACT).numerics is EXACT
