"""Rules: what is refused, how they print, and that the test of the rules finds wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from samples import Sampler
from sides import STYLES, counterexample, direct, tensors
from torch import Tensor
from witness import count, encoded

from eqsat.operators import (
    AMAX,
    SUM,
    cat,
    convolution,
    full,
    layer_norm,
    permute,
    reduction,
    reshape,
    slice_,
    softmax,
    to,
)
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


@attribute
def compose(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(p[i] for i in q)


def found(rule: Rewrite) -> str | None:
    """The first counterexample among a few samples of a rule."""
    samples = Sampler(rule).take(20, 2000)
    assert len(samples) >= 10, f"{rule}: {len(samples)} samples"
    fillings = ((s, style, k) for k, s in enumerate(samples) for style in STYLES[rule.numerics])
    return next((bad for f in fillings if (bad := counterexample(rule, *f)) is not None), None)


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
    assert found(rule) is None


def test_a_rule_is_exact_unless_it_says_otherwise() -> None:
    assert Rewrite("r", lambda x: (torch.relu(torch.relu(x)), torch.relu(x))).numerics is EXACT
    assert EXACT < ROUNDING < RELAXED


def test_an_attribute_function_is_called_on_values_and_kept_on_symbols() -> None:
    assert compose((1, 2, 0), (0, 2, 1)) == (1, 0, 2)
    rule = Rewrite("r", lambda x, p, q: (permute(permute(x, p), q), permute(x, compose(p, q))))
    assert found(rule) is None
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


# Wrong rules must be caught by the test that the shipped ones pass, right ones must pass it.
CPU = torch.device("cpu")


def filled(x: Any, value: float) -> Any:
    """A tensor like `x` that holds one value."""
    return full(x.shape, value, x.dtype, CPU)


def real(x: Any) -> bool:
    """Whether a meta is that of a floating-point tensor."""
    return x.ndim > 0 and x.dtype.is_floating_point


UNSOUND = (
    Rewrite("zero-product-exact", lambda x: (x * 0, filled(x, 0)), when=real),
    Rewrite("zero-product", lambda x: (x * 0, filled(x, 0)), when=real, numerics=ROUNDING),
    Rewrite("self-difference", lambda x: (x - x, filled(x, 0)), when=real, numerics=ROUNDING),
    Rewrite("self-quotient", lambda x: (x / x, filled(x, 1)), when=real, numerics=ROUNDING),
    Rewrite("log-exp", lambda x: (torch.log(torch.exp(x)), x)),
    Rewrite("add-then-subtract", lambda x, a: ((x + a) - a, x)),
    Rewrite("add-associate-exact", lambda x, a, b: ((x + a) + b, x + (a + b))),
    Rewrite("add-zero", lambda x: (x + 0.0, x)),
    Rewrite("negate-zero", lambda x: (0.0 - x, -x)),
    Rewrite("sub-swapped", lambda x, y: (x - y, y - x), numerics=ROUNDING),
    Rewrite("div-swapped", lambda x, y: (x / y, y / x), numerics=RELAXED),
    Rewrite("transpose-dropped", lambda x: (x.mT, x), numerics=RELAXED),
    Rewrite("product-transpose", lambda a, b: ((a @ b).mT, a.mT @ b.mT), numerics=ROUNDING),
    Rewrite("product-commute", lambda a, b: (a @ b, b @ a), numerics=ROUNDING),
    Rewrite("product-distribute", lambda x, a, b: (x @ (a * b), (x @ a) * b), numerics=ROUNDING),
    Rewrite(
        "permute-order", lambda x, p, q: (permute(permute(x, p), q), permute(x, compose(q, p)))
    ),
    Rewrite("permute-as-reshape", lambda x: (x.mT, reshape(x, x.mT.shape))),
    Rewrite("softmax-dim", lambda x: (softmax(x, -1), softmax(x, -2)), numerics=ROUNDING),
    Rewrite("softmax-scale", lambda x: (softmax(x * 2.0, -1), softmax(x, -1)), numerics=RELAXED),
    Rewrite("relu-of-nan", lambda x: (torch.relu(x), torch.where(torch.gt(x, 0), x, 0.0))),
    Rewrite("relu-of-sum", lambda x, y: (torch.relu(x + y), torch.relu(x) + torch.relu(y))),
    Rewrite("maximum-zero", lambda x: (torch.maximum(x, -x), torch.abs(x)), when=real),
    Rewrite("sqrt-square", lambda x: (torch.sqrt(x * x), x), numerics=ROUNDING),
    Rewrite("cast-narrow", lambda x: (to(to(x, torch.bfloat16), torch.float32), x)),
    Rewrite(
        "sum-dim",
        lambda x: (reduction(SUM, x, (-1,), False), reduction(SUM, x, (-2,), False)),
        numerics=ROUNDING,
    ),
    Rewrite(
        "amax-of-product",
        lambda x: (reduction(AMAX, x * -1, (-1,), False), reduction(AMAX, x, (-1,), False) * -1),
        numerics=RELAXED,
    ),
    Rewrite("slice-shift", lambda x, d, s, e: (slice_(x, d, s, e, 1), slice_(x, d, 0, e - s, 1))),
    Rewrite("cat-swapped", lambda x, y: (cat([x, y], -1), cat([y, x], -1))),
    Rewrite("where-swapped", lambda c, x, y: (torch.where(c, x, y), torch.where(c, y, x))),
    Rewrite("any-function-is-odd", lambda f, x: (f(-x), -f(x)), numerics=RELAXED),
    Rewrite(
        "any-function-distributes",
        lambda f, x, y: (f(x, y) * 2, f(x * 2, y * 2)),
        numerics=ROUNDING,
    ),
    Rewrite("number-product", lambda x, a, b: (x * a + x * b, x * (a * b)), numerics=ROUNDING),
    Rewrite("second-output", lambda x, y: ((x + y, x - y), (y + x, y - x)), numerics=ROUNDING),
    Rewrite(
        "convolution-groups",
        lambda x, a, b, s, p, d, o, g: (
            (convolution(x, a, s, p, d, False, o, g), convolution(x, b, s, p, d, False, o, g)),
            (
                slice_(convolution(x, cat([a, b], -4), s, p, d, False, o, g), -3, 0, a.shape[0], 1),
                slice_(
                    convolution(x, cat([a, b], -4), s, p, d, False, o, g),
                    -3,
                    a.shape[0],
                    a.shape[0] + b.shape[0],
                    1,
                ),
            ),
        ),
        numerics=ROUNDING,
    ),
    Rewrite(
        "norm-scale",
        lambda x, n, e: (layer_norm(x * 3.0, n, e), layer_norm(x, n, e)),
        numerics=ROUNDING,
    ),
)
SOUND = (
    Rewrite("zero-product-finite", lambda x: (x * 0, filled(x, 0)), when=real, numerics=RELAXED),
    Rewrite("neg-neg", lambda x: (torch.neg(torch.neg(x)), x)),
    Rewrite("add-commute", lambda x, y: (x + y, y + x)),
    Rewrite("sub-as-add", lambda x, y: (x - y, x + (-y)), when=lambda y: y.dtype is not torch.bool),
    Rewrite(
        "product-associate",
        lambda a, b, c: ((a @ b) @ c, a @ (b @ c)),
        when=lambda b: b.ndim == 2,
        numerics=ROUNDING,
    ),
    Rewrite(
        "slice-of-relu",
        lambda x, d, s, e, k: (
            slice_(torch.relu(x), d, s, e, k),
            torch.relu(slice_(x, d, s, e, k)),
        ),
    ),
    Rewrite("cast-widen", lambda x: (to(to(x, torch.float64), torch.float32), x)),
    Rewrite(
        "add-numbers",
        lambda x, a, b: ((x + a) + b, x + (a + b)),
        when=lambda a, b: a.ndim + b.ndim == 0,
        numerics=ROUNDING,
    ),
    Rewrite(
        "norm-shift",
        lambda x, n, e: (layer_norm(x + 3.0, n, e), layer_norm(x, n, e)),
        numerics=ROUNDING,
    ),
    Rewrite("softmax-shift", lambda x, d: (softmax(x + 1.0, d), softmax(x, d)), numerics=ROUNDING),
)


@pytest.mark.parametrize("rule", UNSOUND, ids=lambda rule: rule.name)
def test_a_wrong_rule_is_caught(rule: Rewrite) -> None:
    assert found(rule) is not None


@pytest.mark.parametrize("rule", SOUND, ids=lambda rule: rule.name)
def test_a_right_rule_passes(rule: Rewrite) -> None:
    assert found(rule) is None
