"""Inductor's own entries as rules: which there are, that they are sound, and that they fire."""

from __future__ import annotations

import functools
import random
import zlib
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typer.testing import CliRunner

import eqsat
import rewrites
from eqsat.cli import app
from eqsat.features import stored_inputs
from eqsat.inductor_registry import Entry, closure, entries
from eqsat.inductor_rules import UNSOUND, imported
from eqsat.meta import Meta, Scalar
from eqsat.operators import cast
from eqsat.pair import Pair, plain
from eqsat.rewrite import ROUNDING, Rewrite
from eqsat.settings import ALWAYS
from eqsat.verify import Counterexample
from eqsat.verify.filling import STYLES
from eqsat.verify.samples import Sample, Sampler
from eqsat.verify.sides import counterexample
from eqsat.verify.witness import count

SIZES = (2, 3, 5, 7, 17, 19, 23, 29)
LARGE = (67, 71, 79, 83)  # for sizes from 64 on: some checks ask for that much
HALF = torch.float16
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SAMPLES, ATTEMPTS, FILLINGS, PARTS = 3, 12, 3, 3
MOST = 1 << 20  # elements of a tensor


def pair(rule: Rewrite) -> Pair:
    """The two functions behind a rule."""
    method: Any = rule.rule
    return method.__self__


def example(rule: Rewrite) -> dict[str, Any]:
    """The values of the variables that a rule was traced with, as the e-graph has them."""

    def bound(name: str, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return cast(value)
        return plain(value) if rule.kinds[name] == "attribute" else value

    signature = pair(rule).signature
    pairs = zip(signature.names, signature.values, strict=True)
    return {name: bound(name, value) for name, value in pairs}


def varied(rule: Rewrite, rng: random.Random) -> dict[str, Any]:
    """The example with other sizes, one for each, other dtypes and numbers."""
    values = example(rule)
    fixed = any(isinstance(v, tuple) for v in values.values())  # sizes and orders that must fit
    sizes = {n for v in values.values() if isinstance(v, Meta) for n in v.shape if n > 1}
    small, large = list(SIZES), list(LARGE)
    rng.shuffle(small)
    rng.shuffle(large)
    new = {n: n if fixed else (large if n >= 64 else small).pop() for n in sorted(sizes)}
    dtypes = {dtype: rng.choice((dtype, *FLOATS)) for dtype in FLOATS}

    def one(value: Any) -> Any:
        if isinstance(value, Meta):
            shape = tuple(new.get(n, n) for n in value.shape)
            return Meta(shape, dtypes.get(value.dtype, value.dtype), value.device)
        if isinstance(value, Scalar) and isinstance(value.value, float):
            return Scalar(rng.uniform(0.1, 3.0))
        return value

    return {name: one(value) for name, value in values.items()}


@functools.cache
def samples(name: str) -> tuple[Sample, ...]:
    """Values at which a rule applies: its example, if it applies there, and others."""
    rule = next(rule for rule in imported().rules if rule.name == name)
    rng, sampler = random.Random(zlib.crc32(name.encode())), Sampler(rule)
    found: list[Sample] = []
    for attempt in range(ATTEMPTS):
        values = varied(rule, rng) if attempt else example(rule)
        if max(v.numel() for v in values.values() if isinstance(v, Meta)) > MOST:
            continue
        pairs = zip(rule.left, rule.right, strict=True)
        if len(found) == SAMPLES or not pair(rule).holds(*values.values()):
            continue
        admitted = tuple(i for i, (a, b) in enumerate(pairs) if sampler._admitted(a, b, values))
        assert admitted == tuple(range(len(rule.left))), f"{rule}: sides differ in meta"
        found.append(Sample(values, {}, admitted))
    return tuple(found)


each_part = pytest.mark.parametrize("part", range(PARTS))  # rules are only known when it runs


def found_in(sample: Sample, rule: Rewrite) -> Counterexample | None:
    """The first counterexample among some fillings of a sample."""
    halves = any(isinstance(v, Meta) and v.dtype == HALF for v in sample.values.values())
    styles = [s for s in STYLES[rule.numerics] if s != "wide" or not halves]  # they overflow it
    fillings = ((style, seed) for style in styles for seed in range(FILLINGS))
    return next((bad for f in fillings if (bad := counterexample(rule, sample, *f))), None)


@each_part
def test_both_sides_are_equal(part: int) -> None:
    wrong: list[str] = []
    for rule in imported().rules[part::PARTS]:
        taken = samples(rule.name)
        assert taken, f"{rule}: it applies to none of {ATTEMPTS} examples"
        found = (found_in(sample, rule) for sample in taken)
        wrong += [f"{rule} ({rule.numerics.name}): {bad}" for bad in found if bad is not None]
    assert not wrong, "\n".join(wrong)


@each_part
def test_each_fires_in_the_egraph_of_its_left_side(part: int) -> None:
    never = [
        str(rule)
        for rule in imported().rules[part::PARTS]
        if not any(count(rule, sample).admitted for sample in samples(rule.name))
    ]
    assert not never, "\n".join(never)


def test_every_replacement_is_a_rule_or_left_out_with_a_reason() -> None:
    found = imported()
    names = {entry.name for entry in found.entries if entry.kind == "replacement"}
    rules = {rule.name for rule in found.rules}
    left_out = {entry.name for entry in found.left_out if entry.kind == "replacement"}
    assert names <= rules | set(found.same) | left_out
    assert not (rules & left_out or set(found.same) & left_out)
    assert set(found.same.values()) <= rules
    assert all(entry.why for entry in found.left_out)


def test_rules_come_of_attention_merges_folding_and_views() -> None:
    rules = " ".join(rule.name for rule in imported().rules)
    for name in ("sfdp-pattern-1", "sfdp-pattern-14", "fold-mul-conv", "pointless-view-pair"):
        assert f"inductor-{name}" in rules
    (fuse,) = [e for e in imported().entries if e.name == "inductor-matmul-fuse-pattern"]
    merged = closure(fuse.entry.extra_check)["replace_fn"].__code__.co_names
    assert ("inductor-matmul-fuse" in rules) == ("chunk" not in merged)  # equal parts in torch 2.11
    assert Counter(rule.numerics for rule in imported().rules)[ROUNDING] >= 20


def test_they_are_not_among_the_default_rules_but_can_be_added() -> None:
    both = rewrites.DEFAULT + rewrites.inductor()
    assert len(both) == len(rewrites.DEFAULT) + len(imported().rules)


def unsound(name: str) -> tuple[Entry, list[Any]]:
    """An entry of Inductor that is left out, with inputs of ones and random values."""
    entry = next(
        e
        for e in entries()
        if e.kind == "replacement"
        and e.name.endswith("-inference")
        and closure(e.entry.extra_check)["search_fn"].__name__ == name
    )
    generator = torch.Generator().manual_seed(0)
    shapes = [(tuple(e.shape), e.dtype) for e in stored_inputs()[id(entry.entry.pattern)]]
    inputs = [
        torch.zeros(s, dtype=d) if d == torch.bool else torch.rand(s, generator=generator)
        for s, d in shapes
    ]
    return entry, inputs


@pytest.mark.parametrize("name", UNSOUND)
def test_what_is_left_out_as_unsound_has_a_counterexample(name: str) -> None:
    entry, (q, k, v, *masks) = unsound(name)
    registered = closure(entry.entry.extra_check)
    scale = {n: 1.0 for n in registered["argnames_static"] if "scale" in n}
    if name in ("_sfdp_pattern_15", "_sfdp_pattern_20"):
        masks = [torch.full_like(masks[0], 2.0)]
    else:  # the first mask is of bool, and hides every row
        masks = [masks[0], *(torch.zeros_like(mask) for mask in masks[1:])]
    arguments = dict(zip(registered["argnames_static"], (q, k, v, *masks), strict=False))
    given, put = (registered[f](**(arguments | scale)) for f in ("search_fn", "replace_fn"))
    given, put = (r[0] if isinstance(r, tuple) else r for r in (given, put))
    assert bool(torch.isfinite(given).all())
    assert not torch.allclose(given, put, equal_nan=True)


class Attention(nn.Module):
    """Attention as it is written by hand."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)).div(4.0)
        return functional.dropout(scores.softmax(dim=-1), 0.0).matmul(v)


def test_inductors_rules_alone_find_attention() -> None:
    inputs = tuple(torch.randn(2, 3, 20, 16) for _ in range(3))
    rules = [rule for rule in imported().rules if "sfdp-pattern-1-" in rule.name]
    result = eqsat.optimize(Attention(), inputs, rules=rules, margin=ALWAYS)
    assert result.report.operators_after == {"aten.scaled_dot_product_attention.default": 1}
    torch.testing.assert_close(result.module(*inputs), Attention()(*inputs))


def test_a_check_of_inductors_keeps_a_rule_from_firing() -> None:
    """Its rule for attention asks for one dtype: the search function alone takes a float mask."""
    (rule,) = [r for r in imported().rules if r.name == "inductor-sfdp-pattern-5-inference"]
    values = example(rule)
    assert pair(rule).holds(*values.values())
    values["attn_mask"] = Meta(values["attn_mask"].shape, torch.int64, "cpu")
    assert not pair(rule).holds(*values.values())


def test_the_command_lists_them_and_what_is_left_out() -> None:
    done = CliRunner().invoke(app, ["rules", "--inductor"])
    assert done.exit_code == 0, done.output
    for rule in imported().rules:
        assert str(rule).partition(": ")[2] in done.stdout
    for entry in imported().left_out:
        assert entry.why in done.stdout
