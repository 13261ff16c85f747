"""Verification: wrong rules are caught, right ones pass, and samples are of every kind."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner, Result
from wrong_rules import SOUND, UNMATCHED, UNSOUND, filled, real

from eqsat.cli import app
from eqsat.functions import Function
from eqsat.meta import Meta
from eqsat.operators import OPERATORS, reduction
from eqsat.rewrite import EXACT, RELAXED, ROUNDING, Rewrite, finite
from eqsat.verify import Verdict, judge, parts, verdicts
from eqsat.verify.field import PRIME, Residues, fraction, inverse, residue
from eqsat.verify.filling import fill, laid_out
from eqsat.verify.meaning import Meaning
from eqsat.verify.modular import Agreement, modular
from eqsat.verify.samples import Sampler
from eqsat.verify.verdict import kinds

SAMPLES = 60
FILE = """
import torch
from eqsat import Rewrite

right = Rewrite("neg-neg", lambda x: (torch.neg(torch.neg(x)), x))
wrong = Rewrite("relu-of-relu", lambda x: (torch.relu(torch.relu(x)), x))
"""


@pytest.mark.parametrize("rule", UNSOUND, ids=lambda rule: rule.name)
def test_a_wrong_rule_is_caught(rule: Rewrite) -> None:
    verdict = judge(rule, SAMPLES)
    assert verdict.outcome == "wrong"
    assert verdict.counterexample is not None
    assert not verdict.sound


@pytest.mark.parametrize("rule", SOUND, ids=lambda rule: rule.name)
def test_a_right_rule_passes(rule: Rewrite) -> None:
    verdict = judge(rule, SAMPLES)
    assert verdict.outcome == "sound", verdict.counterexample
    assert verdict.samples == SAMPLES


@pytest.mark.parametrize("rule", UNMATCHED, ids=lambda rule: rule.name)
def test_a_rule_without_a_sample_is_not_sound(rule: Rewrite) -> None:
    verdict = judge(rule, 10)
    assert (verdict.outcome, verdict.samples, verdict.sound) == ("never matched", 0, False)


def test_the_exact_part_of_a_rule_is_verified_by_itself() -> None:
    rule = Rewrite(
        "add", lambda x, y: (x + y, y + x), numerics=ROUNDING, exact=lambda x, y: x.ndim == y.ndim
    )
    assert [(part.name, part.numerics) for part in parts([rule])] == [
        ("add", ROUNDING),
        ("add-exact", EXACT),
    ]


def test_a_fact_about_values_is_respected() -> None:
    def rule(*facts: Any) -> Rewrite:
        sides = lambda x: (x * 0, filled(x, 0))  # noqa: E731 - read as a rule
        return Rewrite("zero", sides, when=real, numerics=ROUNDING, facts=facts)

    assert judge(rule(finite("x")), SAMPLES).sound
    assert judge(rule(), SAMPLES).outcome == "wrong"


def test_a_relaxed_rule_is_listed_with_values_that_it_changes() -> None:
    rule = Rewrite("zero", lambda x: (x * 0, filled(x, 0)), when=real, numerics=RELAXED)
    verdict = judge(rule, SAMPLES)
    assert verdict.sound
    assert verdict.differs is not None
    assert "nan became 0.0" in str(verdict.differs)


def test_one_seed_gives_one_verdict_and_another_seed_other_samples() -> None:
    def run(seed: int) -> Verdict:
        return replace(judge(UNSOUND[0], 40, seed), seconds=0.0)

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_a_counterexample_can_be_seen_again_from_its_text() -> None:
    rule = Rewrite("relu", lambda x: (torch.relu(x), torch.where(torch.gt(x, 0), x, 0.0)))
    found = judge(rule, SAMPLES).counterexample
    assert found is not None
    text = found.text()
    for name, value in (*found.values, ("left side", found.left), ("right side", found.right)):
        assert f"{name}" in text
        assert value.splitlines()[0] in text
    x = eval(dict(found.values)["x"], {"torch": torch})
    left, right = rule.rule(x)
    assert not torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0))
    assert "relu" not in found.reason
    assert found.elements == x.numel()


# What the samples are.


def test_samples_are_of_every_kind() -> None:
    met: Counter[str] = Counter()
    for seed, law in enumerate((lambda f, x: (f(x), f(x)), lambda f, x, y: (f(x, y), f(x, y)))):
        for sample in Sampler(Rewrite("any", law), seed).take(600, 6000):
            met.update(kinds(sample))
    wanted = {f"rank {n}" for n in range(6)} | {"size 0", "size 1", "distinct sizes"}
    wanted |= {"several dtypes", "several ranks", "float64", "float32", "bfloat16", "float16"}
    wanted |= {"int64", "int32", "int8", "uint8", "bool", "complex64", "complex128"}
    assert not wanted - {kind for kind, count in met.items() if count >= 5}


def test_convolutions_are_sampled_with_groups_and_transposed() -> None:
    geometry = "s p d t o g"
    rule = Rewrite(
        "same",
        lambda x, w, *a: (OPERATORS["convolution"](x, w, *a), OPERATORS["convolution"](x, w, *a)),
        variables=("x", "w", *geometry.split()),
    )
    samples = Sampler(rule).take(300, 3000)
    groups = Counter(sample.values["g"] for sample in samples)
    assert min(groups[1], groups[2]) >= 10
    assert {sample.values["t"] for sample in samples} == {True, False}
    assert any(len(set(sample.values["s"])) > 1 for sample in samples)


def test_special_values_are_filled_in() -> None:
    rng = random.Random(0)
    floats = torch.cat([fill(Meta((999,), torch.float32, "cpu"), "special", None, rng)] * 3)
    tiny = torch.finfo(torch.float32).smallest_normal
    assert floats.isnan().any()
    assert {float("inf"), float("-inf")} <= set(floats.tolist())
    assert ((floats == 0) & floats.signbit()).any()
    assert ((floats.abs() < tiny) & (floats != 0)).any()
    integers = fill(Meta((999,), torch.int32, "cpu"), "special", None, rng)
    assert {-(2**31), 2**31 - 1} <= set(integers.tolist())
    picks = fill(Meta((99,), torch.int64, "cpu"), "wide", 3, rng)
    assert set(picks.tolist()) == {0, 1, 2}


def test_storage_is_of_many_layouts_and_holds_the_same_values() -> None:
    rng, strides, offsets = random.Random(0), set[Any](), set[int]()
    values = torch.arange(24.0).reshape(2, 3, 4)
    for _ in range(60):
        placed = laid_out(values, rng)
        assert torch.equal(placed, values)
        strides.add(placed.stride())
        offsets.add(placed.storage_offset())
    assert len(strides) > 5
    assert len(offsets) > 1


# The prime field.


def test_residues_are_those_of_fractions() -> None:
    assert residue(0.75) * 4 % PRIME == 3
    assert residue(1 / 3) * 3 % PRIME == 1
    assert residue(-2) == PRIME - 2
    assert fraction(2**-0.5) is None
    assert fraction(float("inf")) is None
    data = torch.tensor([1, 2, 3, PRIME - 1])
    assert (data * inverse(data) % PRIME).tolist() == [1, 1, 1, 1]


def whole(*shape: int) -> Tensor:
    """Small whole numbers, in float64: what torch then computes is exact."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-4, 5, shape, generator=generator).double()


def geometry(stride: int, padding: int, transposed: bool, groups: int) -> tuple[Any, ...]:
    """The attributes of a convolution of two dims."""
    return ((stride,) * 2, (padding,) * 2, (1, 1), transposed, (0, 0), groups)


POOL = ((2, 3), (2, 1), (1, 1))
RATIONAL: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "matmul": ("matmul", (whole(2, 3, 4), whole(4, 5)), ()),
    "product with a vector": ("matmul", (whole(2, 3, 4), whole(4)), ()),
    "affine": ("affine", (whole(3, 4), whole(4, 5), whole(5)), ()),
    "einsum": ("einsum", (whole(2, 3), whole(3, 4), whole(4, 2)), ("ab,bc,ca->b",)),
    "einsum of one": ("einsum", (whole(2, 3, 4),), ("abc->ca",)),
    "convolution": (
        "convolution",
        (whole(2, 4, 5, 6), whole(6, 2, 3, 3)),
        geometry(2, 1, False, 2),
    ),
    "transposed": ("convolution", (whole(2, 4, 3, 3), whole(4, 2, 3, 2)), geometry(2, 1, True, 2)),
    "sum": ("reduction", (whole(2, 3, 4),), (Function("sum"), (-3, -1), False)),
    "mean": ("reduction", (whole(2, 3, 4),), (Function("mean"), (-2,), True)),
    "average pool": ("avg_pool2d", (whole(2, 3, 5, 6),), (*POOL, True, False, None)),
    "average with padding": ("avg_pool2d", (whole(2, 3, 5, 6),), (*POOL, False, True, None)),
    "adaptive pool": ("adaptive_avg_pool2d", (whole(2, 3, 5, 7),), ((2, 3),)),
    "nearest": ("upsample_nearest2d", (whole(1, 2, 3, 4),), ((5, 7), None)),
    "bilinear": ("upsample_bilinear2d", (whole(1, 2, 3, 4),), ((5, 7), True, None)),
    "cat": ("cat", (whole(2, 3), whole(2, 4)), (-1,)),
    "division": ("binary", (whole(3, 4), whole(4).abs() + 1), (Function("div"),)),
    "power": ("binary", (whole(3, 4), 3), (Function("pow"),)),
    "power of zero": ("binary", (whole(3, 4), 0), (Function("pow"),)),
    "expand": ("expand", (whole(3, 1),), ((2, 3, 4),)),
    "full": ("full", (), ((2, 3), -0.375, torch.float32, torch.device("cpu"))),
}


@pytest.mark.parametrize("name", RATIONAL)
def test_the_field_computes_what_torch_computes(name: str) -> None:
    operator, operands, attributes = RATIONAL[name]
    expected = OPERATORS[operator].evaluate(*operands, *attributes)
    values = [Residues(x.long() % PRIME) if isinstance(x, Tensor) else x for x in operands]
    meaning = Meaning(is_complex=False)
    found = meaning.operate(operator, values, list(attributes))
    wanted = [residue(value) for value in expected.flatten().tolist()]
    assert found.data.flatten().tolist() == wanted
    assert found.data.shape == expected.shape
    assert not meaning.free


def test_a_power_of_infinity_is_any_function() -> None:
    meaning = Meaning(is_complex=False)
    meaning.operate("binary", [Residues(torch.arange(3)), float("inf")], [Function("pow")])
    assert meaning.free


def test_the_degree_of_a_product_of_sums_is_bounded() -> None:
    rule = Rewrite("square", lambda a: ((a @ a) @ a, a @ (a @ a)), numerics=ROUNDING)
    sample = Sampler(rule).take(1, 4000)[0]
    agreed = modular(rule, sample, 0)
    assert isinstance(agreed, Agreement)
    assert agreed.chance == (3 / PRIME) ** 2
    assert not agreed.free


def test_a_function_of_which_only_the_name_is_known_decides_nothing_else() -> None:
    moved = Rewrite("moved", lambda x: (torch.exp(x).mT, torch.exp(x.mT)))
    sample = next(s for s in Sampler(moved).take(20, 500) if not s.values["x"].dtype.is_complex)
    agreed = modular(moved, sample, 0)
    assert isinstance(agreed, Agreement)
    assert agreed.free
    law = Rewrite(
        "law", lambda x: (torch.exp(x + x), torch.exp(x) * torch.exp(x)), numerics=ROUNDING
    )
    assert modular(law, sample, 0) is None


def test_what_no_tolerance_sees_the_field_shows() -> None:
    rule = next(rule for rule in UNSOUND if rule.name == "almost-equal")
    found = judge(rule, SAMPLES).counterexample
    assert found is not None
    assert found.style == "modular"


def test_a_sum_is_proven_and_a_maximum_is_compared() -> None:
    total = Rewrite(
        "sum",
        lambda x: (
            reduction(Function("sum"), x * 2, (-1,), True),
            reduction(Function("sum"), x, (-1,), True) * 2,
        ),
        when=real,
        numerics=ROUNDING,
    )
    verdict = judge(total, SAMPLES)
    assert (verdict.proven, verdict.free, verdict.method) == (SAMPLES, 0, "rounding, mod p")
    assert 0 < verdict.chance < 1e-9
    largest = Rewrite("max", lambda x: (torch.maximum(x, x), x), when=real)
    assert judge(largest, SAMPLES).method == "bits"


# The command.


def command(*arguments: object) -> Result:
    """What `eqsat rules --verify` did."""
    return CliRunner().invoke(app, ["rules", "--verify", *map(str, arguments)])


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A file of a right and a wrong rule."""
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_the_command_fails_on_a_wrong_rule_and_shows_why(rules: Path, tmp_path: Path) -> None:
    report = tmp_path / "verdicts.json"
    done = command("--rules", rules, "--samples", 30, "--workers", 1, "--json", report)
    assert done.exit_code == 1
    assert "2 rules: 1 sound, 1 wrong" in done.stdout
    assert "relu(relu(x)) => x" in done.stdout
    assert "left side" in done.stdout
    data = {verdict["name"]: verdict for verdict in json.loads(report.read_text())}
    assert data["neg-neg"]["outcome"] == "sound"
    assert data["neg-neg"]["samples"] == 30
    assert data["relu-of-relu"]["counterexample"]["values"]


def test_the_command_verifies_the_rules_that_are_named(rules: Path) -> None:
    assert command("neg-neg", "--rules", rules, "--samples", 20, "--workers", 1).exit_code == 0
    done = command("permute-compose", "--samples", 20, "--workers", 1)
    assert done.exit_code == 0
    assert "1 rules: 1 sound; 20 samples" in done.stdout
    unknown = command("permute-compsoe")
    assert unknown.exit_code == 1
    assert "near it: permute-compose" in unknown.stderr


def test_several_processes_come_to_the_same_verdicts(rules: Path, tmp_path: Path) -> None:
    report = tmp_path / "verdicts.json"
    arguments = ["rules", "--verify", "--rules", rules, "--samples", 20, "--workers", 2]
    done = subprocess.run(
        [sys.executable, "-m", "eqsat", *map(str, arguments), "--json", str(report)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, report.exists()) == (1, True), done.stderr
    found = [verdict["counterexample"] for verdict in json.loads(report.read_text())]
    alone = [v.counterexample for v in verdicts([rules], samples=20, workers=1)]
    assert [c and c["reason"] for c in found] == [c and c.reason for c in alone]
