"""Explanations: the rules that a result needs, its steps, and why a rule did not fire."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import eqsat
import rewrites
from eqsat import EXACT, ROUNDING, Rewrite
from eqsat.choose import Found
from eqsat.cli import app
from eqsat.meta import Meta, Scalar
from eqsat.reason.condition import refusal
from eqsat.reason.explanation import Explanation, reasoned
from eqsat.reason.why import why
from eqsat.saturate import saturate
from eqsat.settings import ALWAYS

X = torch.randn(8, 64)
NAMES = ("matmul-scale-weight", "matmul-associate", "affine-factor-matmul", "matmul-transpose")
FEW = [rule for rule in rewrites.DEFAULT if rule.name in NAMES]
ATTENTION = [rule for rule in rewrites.DEFAULT if rule.name.startswith("attention-")]
WRONG = Rewrite("relu-is-nothing", lambda x: (torch.relu(x), x))


class Adapted(nn.Module):
    """A linear layer with an adapter that nobody merged."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(64, 64)
        self.down = nn.Linear(64, 4, bias=False)
        self.up = nn.Linear(4, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x)) * 0.5


class Masked(nn.Module):
    """Attention as it is written out."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        return torch.softmax((q @ k.mT) * 0.25 + m, -1) @ v


def bert() -> tuple[nn.Module, tuple[Tensor, ...]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=100,
        max_position_embeddings=64,
    )
    model: nn.Module = transformers.BertModel(config, add_pooling_layer=False).eval()
    tokens = torch.randint(5, 90, (2, 12))
    return model, (tokens, torch.ones(2, 12, dtype=torch.long))


def explained(model: nn.Module, args: tuple[Any, ...], **settings: Any) -> Explanation:
    """The explanation, each step equal on its own."""
    found = eqsat.explain(model.eval(), args, **settings)
    assert not found.wrong
    assert all(step.trials for step in found.steps)
    return found


def check_minimal(model: nn.Module, args: tuple[Any, ...], **settings: Any) -> None:
    """The listed rules alone lead to the result; without any of them the search does not."""
    seen: list[Found] = []
    result = eqsat.optimize(model.eval(), args, observe=seen.append, **settings)
    reason, goal = reasoned(seen[0], result.report.matched)
    encoding, limits = seen[0].ground.encoding, seen[0].ground.settings.limits
    assert reason.minimal
    assert reason.rules
    assert goal.held(saturate(encoding, reason.rules, limits)[0])
    for rule in reason.rules:
        fewer = [r for r in reason.rules if r is not rule]
        assert not goal.held(saturate(encoding, fewer, limits)[0]), rule.name


def test_the_listed_rules_are_needed_and_enough() -> None:
    check_minimal(Adapted(), (X,), rules=FEW)


def test_the_listed_rules_of_bert_are_needed_and_enough_and_its_steps_equal() -> None:
    model, args = bert()
    found = explained(model, args)
    assert "affine-merge" in found.rules
    assert {"computed ahead", "shared"} <= {change.kind for change in found.changes}
    check_minimal(model, args, rules=[r for r in rewrites.DEFAULT if r.name in found.rules])


def test_without_a_listed_rule_the_result_is_worse() -> None:
    model = Adapted().eval()
    report = eqsat.optimize(model, (X,), rules=FEW, explain=True).report
    assert report.rules
    assert report.after is not None
    needed = [r for r in FEW if r.name in report.rules]
    for left_out in (None, *needed):
        rules = [r for r in needed if r is not left_out]
        after = eqsat.optimize(model, (X,), rules=rules, margin=ALWAYS).report.after
        assert after is not None
        assert (after.seconds > report.after.seconds) == (left_out is not None), left_out


def test_steps_replay_to_the_result_and_none_can_be_left_out() -> None:
    seen: list[Found] = []
    result = eqsat.optimize(Adapted().eval(), (X,), rules=FEW, observe=seen.append)
    reason, goal = reasoned(seen[0], result.report.matched)
    count = len(reason.proof.steps)
    assert reason.proof.after(count).reached(goal) is not None
    assert all(reason.proof.after(n).reached(goal) is None for n in range(count))


def test_a_step_names_nodes_and_the_line_of_the_program() -> None:
    found = explained(Adapted(), (X,), rules=FEW)
    assert any("self.base(x) + self.up" in line for step in found.steps for line in step.source)
    assert {"linear", "linear_1"} <= {node for step in found.steps for node in step.nodes}
    assert tuple(dict.fromkeys(step.rule for step in found.steps)) == found.rules


def test_a_wrong_rule_is_the_step_that_differs() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval()
    found = eqsat.explain(model, (X,), rules=(*FEW, WRONG), check=False)
    assert [step.rule for step in found.wrong] == ["relu-is-nothing"]
    assert "relu-is-nothing is wrong at relu" in str(found)


def test_a_dynamic_dimension_stays_in_the_explanation() -> None:
    sizes = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    assert explained(Adapted(), (X,), rules=FEW, dynamic_shapes=sizes).rules


def test_the_given_program_has_nothing_to_explain() -> None:
    with pytest.raises(ValueError, match="the given program comes back, no rule was used"):
        eqsat.explain(nn.ReLU().eval(), (X,), rules=FEW)


def test_a_greedy_search_is_not_explained() -> None:
    with pytest.raises(ValueError, match="search 'greedy': only a saturation can be explained"):
        eqsat.optimize(Adapted().eval(), (X,), search="greedy", explain=True)


def test_a_result_that_cannot_be_explained_is_a_result_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["eqsat.reason.explanation"], "needed", lambda *_, **__: None)
    result = eqsat.optimize(Adapted().eval(), (X,), rules=FEW, explain=True)
    assert result.report.kept is None
    assert result.report.rules is None
    assert "No explanation: ValueError: a second search" in str(result.report)


def test_no_explanation_unless_asked_for() -> None:
    report = eqsat.optimize(Adapted().eval(), (X,), rules=FEW).report
    assert report.rules is None
    assert report.matched


def test_the_report_holds_the_explanation() -> None:
    report = eqsat.optimize(Adapted().eval(), (X,), rules=FEW, explain=True).report
    assert report.rules
    assert "all of them needed" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["explanation"]["rules"] == [*report.rules]
    assert report.seconds["explain"] > 0


def test_an_explanation_keeps_to_the_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[int | None] = []

    def seen(*args: Any, memory: int | None = None, **options: Any) -> Any:
        allowed.append(memory)
        return saturate(*args, memory=memory, **options)

    monkeypatch.setattr("eqsat.reason.needed.saturate", seen)
    explained(Adapted(), (X,), rules=FEW, memory_limit=1 << 33)
    assert set(allowed) == {1 << 33}


# Why a rule did not fire.

Q = torch.randn(2, 4, 12, 16)


def only(model: nn.Module, args: tuple[Any, ...], **options: Any) -> Any:
    """The first attempt."""
    return why(model.eval(), args, **options)[0]


def test_a_condition_that_refuses_is_shown_with_the_metas_it_saw() -> None:
    mask = torch.zeros(2, 1, 12, 12, dtype=torch.float16)
    found = only(
        Masked(), (Q, Q, Q, mask), rule="attention-scaled-masked", at="matmul_1", rules=ATTENTION
    )
    assert (found.matched, found.operators) == (5, 5)
    assert "`m.dtype == q.dtype` is false" in found.refused
    assert "q = float32[2,4,12,16]@cpu" in found.refused
    assert "m = float16[2,1,12,12]@cpu" in found.refused


def test_a_fact_that_is_not_known_is_named() -> None:
    found = only(
        Masked(),
        (Q, Q, Q, torch.zeros(2, 1, 12, 12)),
        rule="attention-scaled-masked",
        rules=ATTENTION,
    )
    assert found.refused == "m float32[2,1,12,12] may hold NaN or infinity, as far as is known"


def test_a_part_that_is_missing_is_named_with_what_stands_there() -> None:
    class Late(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return torch.softmax(torch.relu(q @ k.mT), -1) @ v

    found = only(Late(), (Q, Q, Q), rule="attention-unscaled", at="matmul_1", rules=ATTENTION)
    assert (found.matched, found.operators) == (2, 3)
    assert "`matmul(q, kt)` is wanted at relu float32[2,4,12,12], which is relu" in found.refused
    assert "return torch.softmax" in found.source


def test_a_rule_that_fired_says_so() -> None:
    found = why(Adapted().eval(), (X,), rule="matmul-associate", rules=FEW)
    assert found
    assert all(attempt.fired for attempt in found)


def test_nothing_near_at_all_says_what_is_absent() -> None:
    found = only(nn.ReLU(), (X,), rule="attention-unscaled", rules=ATTENTION)
    assert found.refused == "nothing in the program is matmul of 2 operands"


def test_a_right_side_of_another_shape_is_shown() -> None:
    narrow = Rewrite("sum-is-wide", lambda x: (torch.relu(torch.neg(x)), x @ x.mT))
    found = only(Negated(), (X,), rule="sum-is-wide", rules=(narrow,))
    assert found.refused == "the right side would be float32[8,8]@cpu, not float32[8,64]@cpu"


class Negated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.neg(x))


def test_a_rule_that_numerics_leave_out_says_so() -> None:
    relaxed = next(r for r in rewrites.DEFAULT if r.numerics > ROUNDING and r.exact is None)
    found = only(Negated(), (X,), rule=relaxed.name)
    assert "RELAXED" in found.refused


def test_names_that_do_not_exist_are_met_with_near_ones() -> None:
    with pytest.raises(ValueError, match=r"no rule is named 'relu-relo'; near it: relu-relu"):
        why(
            Negated(),
            (X,),
            rule="relu-relo",
            rules=(Rewrite("relu-relu", WRONG.rule, None, EXACT),),
        )
    with pytest.raises(ValueError, match=r"no node is named 'relu_1'; near it: relu"):
        why(Negated(), (X,), rule="affine-merge", at="relu_1")


def test_a_family_of_rules_is_asked_at_once() -> None:
    mask = torch.zeros(2, 1, 12, 12)
    found = why(Masked().eval(), (Q, Q, Q, mask), rule="attention", rules=ATTENTION)
    assert found[0].rule == "attention-scaled-masked"


def test_the_refusing_part_of_a_condition_is_the_innermost() -> None:
    rule = next(r for r in rewrites.DEFAULT if r.name == "attention-scaled-masked")
    assert rule.when is not None
    q, kt = Meta((2, 4, 12, 16), torch.float32, "cpu"), Meta((2, 4, 16, 12), torch.float32, "cpu")
    mask = Meta((2, 5, 12), torch.float32, "cpu")
    assert refusal(rule.when, [q, kt, q, Meta((12, 12), torch.float32, "cpu"), Scalar(1.0)]) == ""
    told = refusal(rule.when, [q, kt, q, mask, Scalar(1.0)])
    assert told.startswith("`masked(q, kt, v, m)` is false, for `all(fits")
    assert told.endswith("is false (n = 5, size = 12)")
    assert "`positive(s)` is false" in refusal(rule.when, [q, kt, q, mask, Scalar(-1.0)])


def test_a_condition_without_a_source_is_named() -> None:
    made: dict[str, Any] = {}
    exec("holds = lambda x: x.ndim == 3", made)
    assert "is false" in refusal(made["holds"], [Meta((2,), torch.float32, "cpu")])


# The command.


def saved(model: nn.Module, args: tuple[Any, ...], folder: Path) -> str:
    path = folder / "model.pt2"
    torch.export.save(torch.export.export(model.eval(), args), path)
    return str(path)


def test_the_command_shows_steps_and_refusals(tmp_path: Path) -> None:
    model = saved(Adapted(), (X,), tmp_path)
    shown = CliRunner().invoke(app, ["explain", model, "--json", str(tmp_path / "out.json")])
    assert shown.exit_code == 0, shown.output
    assert "steps by" in shown.output
    assert json.loads((tmp_path / "out.json").read_text())["steps"]
    shown = CliRunner().invoke(app, ["explain", model, "--rule", "attention-unscaled"])
    assert shown.exit_code == 0, shown.output
    assert "refused: `softmax(matmul(q, kt), -1)` is wanted at linear" in shown.output
    assert CliRunner().invoke(app, ["explain", model, "--at", "linear"]).exit_code == 1


def test_the_command_fails_where_a_step_differs(tmp_path: Path) -> None:
    model = saved(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), (X,), tmp_path)
    (tmp_path / "mine.py").write_text(
        "import torch, eqsat\n"
        "WRONG = eqsat.Rewrite('relu-is-nothing', lambda x: (torch.relu(x), x))\n"
    )
    options = ["--rules", str(tmp_path / "mine.py"), "--no-check"]
    shown = CliRunner().invoke(app, ["explain", model, *options])
    assert shown.exit_code == 1
    assert "relu-is-nothing is wrong at relu" in shown.output
