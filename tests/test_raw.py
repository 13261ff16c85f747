"""Rules in egglog's own language: united as any rule is, refused where they are built."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import eqsat
from eqsat.raw import EgglogRule
from eqsat.rewrite import EXACT, RELAXED
from eqsat.settings import ALWAYS

NEGATED = '(= e (unary (unary x "neg") "neg"))'


class Negated(nn.Module):
    """The negative of a negative, and a sum of two shapes."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.exp(x.neg().neg()) + torch.cat([y, y.exp()])


def counts(rule: EgglogRule) -> tuple[int, int]:
    """The unions that the rule was admitted and refused, in a program that it leaves the same."""
    inputs = (torch.randn(4, 3), torch.randn(2, 3))
    result = eqsat.optimize(Negated(), inputs, rules=[rule], numerics="relaxed", margin=ALWAYS)
    torch.testing.assert_close(result.module(*inputs), Negated()(*inputs))
    assert result.report.saturation is not None
    (count,) = result.report.saturation.rules
    return count.admitted, count.refused


def test_a_query_that_holds_unites_its_two_sides() -> None:
    admitted, refused = counts(EgglogRule("neg-neg", query=NEGATED, left="e", right="x"))
    assert admitted > 0
    assert refused == 0


def test_sides_of_different_shapes_are_not_united() -> None:
    rule = EgglogRule("first-part", query="(= e (cat_2 x y d))", left="e", right="x")
    assert counts(rule) == (0, 1)


def test_the_right_side_may_be_made_of_functions_and_numbers_that_the_program_lacks() -> None:
    right = '(binary (unary (unary x "abs") "sign") (number "1.0") "mul")'
    rule = EgglogRule("neg-sign", query=NEGATED, left="e", right=right)
    inputs = (torch.ones(4, 3), torch.ones(2, 3))  # where it happens to hold
    result = eqsat.optimize(Negated(), inputs, rules=[rule], numerics="relaxed")
    assert result.report.saturation is not None
    assert result.report.saturation.rules[0].admitted > 0


def test_it_is_relaxed_unless_its_author_says_otherwise() -> None:
    assert EgglogRule("r", query=NEGATED, left="e", right="x").numerics is RELAXED
    exact = EgglogRule("r", query=NEGATED, left="e", right="x", numerics=EXACT)
    assert exact.within(EXACT) is exact


WRONG = {
    "an unknown constructor": (
        '(= e (unry x "neg"))',
        "x",
        "nothing is named 'unry', near it: unary",
    ),
    "a wrong number of operands": ("(= e (unary x))", "x", "Arity mismatch"),
    "a variable that is not bound": (NEGATED, "y", "Unbound symbol y"),
    "a parenthesis too few": (NEGATED[:-1], "x", "parentheses or quotes do not match"),
    "a parenthesis that ends the rule": ("(= e e)) (panic", "x", "parentheses or quotes"),
    "a quote too many": (NEGATED + '"', "x", "parentheses or quotes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_text_is_refused_by_name(what: str) -> None:
    query, right, message = WRONG[what]
    with pytest.raises(ValueError, match=rf"(?s)rule 'r': .*{message}"):
        EgglogRule("r", query=query, left="e", right=right)
