"""Rules: what is refused, how they print, and when they fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from eqsat.operators import permute, softmax
from eqsat.rewrite import (
    EXACT,
    RELAXED,
    ROUNDING,
    Rewrite,
    RuleSet,
    attribute,
    constant,
    finite,
    ordered,
)
from eqsat.saturate import Limits, saturate
from eqsat.verify import judge
from eqsat.verify.filling import tensors
from eqsat.verify.samples import Sampler
from eqsat.verify.sides import direct
from eqsat.verify.witness import count, encoded


@attribute
def compose(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(p[i] for i in q)


# Malformed rules.
MALFORMED: dict[str, tuple[Callable[[], Any], str]] = {
    "a variable that the left side does not bind": (
        lambda: Rewrite("r", lambda x, y: (torch.relu(x), x + y)),
        "does not bind y",
    ),
    "a variable in a computed attribute that the left side does not bind": (
        lambda: Rewrite("r", lambda x, p, q: (permute(x, p), permute(x, compose(p, q)))),
        "does not bind q",
    ),
    "a variable that is nowhere used": (
        lambda: Rewrite("r", lambda x, y: (torch.relu(-x), torch.relu(x))),  # noqa: ARG005
        "unused variable y",
    ),
    "a left side that is a bare variable": (
        lambda: Rewrite("r", lambda x: (x, torch.relu(x))),
        "bare variable",
    ),
    "an unknown function": (
        lambda: Rewrite("r", lambda x: (torch.fft.fft(x), x)),  # pyright: ignore[reportArgumentType]
        "no operator",
    ),
    "a variable that is a tensor and an attribute": (
        lambda: Rewrite("r", lambda x, p: (p + x, permute(x, p))),
        "used as",
    ),
    "a tensor in place of an attribute": (
        lambda: Rewrite("r", lambda x, y: (permute(x, y + x), x)),
        "attribute is expected|used as",
    ),
    "one side only": (lambda: Rewrite("r", torch.relu, variables=("x",)), "must return"),
    "sides of different lengths": (
        lambda: Rewrite("r", lambda x: ((torch.relu(x), -x), (torch.relu(x),))),
        "2 left sides and 1 right",
    ),
    "a condition on no variable of the rule": (
        lambda: Rewrite("r", lambda x: (torch.relu(x), -x), when=lambda y: y.ndim == 2),
        "`when` names 'y'",
    ),
    "a fact about no variable of the rule": (
        lambda: Rewrite("r", lambda x: (torch.relu(x), -x), facts=(finite("y"),)),
        "unknown variable 'y'",
    ),
    "too few operands": (
        lambda: Rewrite("r", lambda x: (permute(x), x)),
        "permute takes",
    ),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_rule_is_refused_by_name(what: str) -> None:
    build, message = MALFORMED[what]
    with pytest.raises(ValueError, match=rf"rule 'r': .*({message})"):
        build()


def test_two_rules_of_one_name_are_refused_by_the_search() -> None:
    rule = Rewrite("twice", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)))
    encoding = encoded(rule, Sampler(rule).take(1, 50)[0])
    with pytest.raises(ValueError, match=r"'twice'.*unique"):
        saturate(encoding, [rule, rule], Limits())


# Sets of rules.
def named(*names: str) -> RuleSet:
    """Rules of these names."""
    return RuleSet(Rewrite(n, lambda x: (torch.relu(torch.relu(x)), torch.relu(x))) for n in names)


def names(rules: tuple[Rewrite, ...]) -> list[str]:
    """The names of rules, in order."""
    return [rule.name for rule in rules]


def test_rule_sets_add_up_from_either_side_and_stay_tuples() -> None:
    first, second = named("a", "b"), named("c")
    for both in (first + second, first + list(second), tuple(first) + second):
        assert isinstance(both, RuleSet)
        assert isinstance(both, tuple)
        assert names(both) == ["a", "b", "c"]


def test_a_name_leaves_out_one_rule_or_all_that_begin_with_it() -> None:
    rules = named("matmul-merge-2", "matmul-merge-3", "matmul", "matmuls")
    assert names(rules.without("matmul-merge")) == ["matmul", "matmuls"]
    assert names(rules.without("matmul")) == ["matmul-merge-2", "matmul-merge-3", "matmuls"]
    assert names(rules.without("matmul-merge-3", "matmuls")) == ["matmul-merge-2", "matmul"]
    assert names(rules.without()) == names(rules)


def test_a_rule_set_refuses_unknown_names_two_of_a_name_and_what_is_no_rule() -> None:
    with pytest.raises(ValueError, match="no rule is named 'matmal'; near it: matmul, "):
        named("matmul", "cat").without("matmal")
    with pytest.raises(ValueError, match="two rules are named 'a'"):
        _ = named("a") + named("b", "a")
    with pytest.raises(TypeError, match="'relu' is no rule"):
        _ = named("a") + ["relu"]


# What a rule is.
def test_a_rule_prints_as_it_is_written() -> None:
    printed: dict[Rewrite, str] = {
        Rewrite("a", lambda a, b, c: ((a @ b) @ c, a @ (b @ c))): (
            "a: matmul(matmul(a, b), c) => matmul(a, matmul(b, c))"
        ),
        Rewrite("b", lambda f, x, p: (f(permute(x, p)), permute(f(x), p))): (
            "b: f(permute(x, p)) => permute(f(x), p)"
        ),
        Rewrite("c", lambda x: (x * 2.0, x + x)): "c: mul(x, 2.0) => add(x, x)",
        Rewrite("d", lambda x, p, q: (permute(permute(x, p), q), permute(x, compose(p, q)))): (
            "d: permute(permute(x, p), q) => permute(x, compose(p, q))"
        ),
        Rewrite("e", lambda x: ((torch.relu(x), -x), (x * 1, x * 2))): (
            "e: (relu(x), neg(x)) => (mul(x, 1), mul(x, 2))"
        ),
    }
    assert {str(rule): text for rule, text in printed.items()} == {t: t for t in printed.values()}


def test_the_kinds_of_variables_show_where_they_stand() -> None:
    rule = Rewrite("r", lambda f, x, d: (f(softmax(x, d)), softmax(x, d)))
    assert rule.kinds == {"f": "attribute", "x": "tensor", "d": "attribute"}


def test_variables_may_be_named_apart_from_the_function() -> None:
    rule = Rewrite("r", lambda *v: (v[0] + v[1], v[1] + v[0]), variables=("a", "b"))
    assert str(rule) == "r: add(a, b) => add(b, a)"
    assert judge(rule, 20).sound


def test_a_rule_is_exact_unless_it_says_otherwise() -> None:
    assert Rewrite("r", lambda x: (torch.relu(torch.relu(x)), torch.relu(x))).numerics is EXACT
    assert EXACT < ROUNDING < RELAXED


def test_an_attribute_function_is_called_on_values_and_kept_on_symbols() -> None:
    assert compose((1, 2, 0), (0, 2, 1)) == (1, 0, 2)
    rule = Rewrite("r", lambda x, p, q: (permute(permute(x, p), q), permute(x, compose(p, q))))
    assert judge(rule, 20).sound
    assert count(rule, Sampler(rule).take(1, 50)[0]).admitted == 1


def test_a_rule_runs_on_tensors_as_it_stands() -> None:
    rule = Rewrite("r", lambda a, b: ((a @ b).mT, b.mT @ a.mT), numerics=ROUNDING)
    for seed, sample in enumerate(Sampler(rule).take(10, 500)):
        left, right = direct(rule, tensors(rule, sample, "plain", seed))
        assert isinstance(left, Tensor)
        torch.testing.assert_close(left, right)


def test_a_condition_keeps_a_rule_from_firing() -> None:
    def rule(when: Callable[..., bool]) -> Rewrite:
        return Rewrite("r", lambda x, y: (x + y, y + x), when=when)

    sample = Sampler(rule(lambda x: x.ndim == 2)).take(1, 200)[0]
    assert count(rule(lambda x: x.ndim == 2), sample).admitted == 1
    assert count(rule(lambda x: x.ndim == 3), sample).matches == 0


@pytest.mark.parametrize("fact", [constant("x"), finite("x"), ordered("y", "x")])
def test_a_fact_that_is_not_known_keeps_a_rule_from_firing(fact: Any) -> None:
    def sides(x: Any, y: Any) -> Any:
        return (torch.relu(x) + torch.tanh(y), torch.tanh(y) + torch.relu(x))

    bare, told = Rewrite("r", sides), Rewrite("r", sides, facts=(fact,))
    sample = next(
        s
        for s in Sampler(Rewrite("r", sides, when=lambda x, y: x.ndim * y.ndim > 0)).take(20, 500)
        if s.values["x"].dtype.is_floating_point
    )
    assert count(told, sample).admitted == 1
    _, record = saturate(encoded(bare, sample), [told], Limits(iterations=2))
    assert record.rules[0].admitted == 0
