"""Bisection: the rule, and the application of it, that makes a check fail."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from typer.testing import CliRunner

import eqsat
import rewrites
from eqsat import Rewrite
from eqsat.capture import capture
from eqsat.check import check
from eqsat.choose import Found
from eqsat.cli import app
from eqsat.culprit.blame import blame
from eqsat.culprit.culprit import Culprit, culprit
from eqsat.culprit.stage import AHEAD, GIVEN, LAID, Stages
from eqsat.reason.explanation import reasoned
from eqsat.rebuild import drop_in

X = torch.randn(8, 64)
NAMES = ("matmul-scale-weight", "matmul-associate", "affine-factor-matmul", "matmul-transpose")
FEW = [rule for rule in rewrites.DEFAULT if rule.name in NAMES]
WRONG = Rewrite("relu-is-nothing", lambda x: (torch.relu(x), x))
RIGHT = Rewrite("neg-neg", lambda x: (torch.neg(torch.neg(x)), x))


class Adapted(nn.Module):
    """Two layers with adapters, and functions between them."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(64, 64)
        self.down = nn.Linear(64, 4, bias=False)
        self.up = nn.Linear(4, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.base(x) + self.up(self.down(x)) * 0.5)
        return torch.neg(torch.neg(self.base(y) + self.up(self.down(y)) * 0.5))


MODEL = Adapted().eval()


def differs(model: nn.Module, args: tuple[Any, ...]) -> Any:
    """A check that a program gives what the model does; and how often it was asked."""
    wanted, asked = model(*args).detach(), list[bool]()

    def bad(program: ExportedProgram) -> bool:
        with torch.no_grad():
            found = drop_in(program)(*args)
        asked.append(not torch.allclose(found, wanted, atol=1e-4))
        return asked[-1]

    return bad, asked


def staged(rules: list[Rewrite]) -> Stages:
    seen: list[Found] = []
    settings: dict[str, Any] = {"rules": rules, "observe": seen.append, "check": False}
    result = eqsat.optimize(MODEL, (X,), **settings)
    reason, goal = reasoned(seen[0], result.report.matched)
    return Stages(capture(MODEL, (X,)), seen[0], reason, goal)


def test_the_wrong_rule_is_found_where_it_applied() -> None:
    bad, asked = differs(MODEL, (X,))
    found = eqsat.bisect(MODEL, bad, (X,), rules=[*FEW, RIGHT, WRONG])
    assert found.rule == "relu-is-nothing"
    assert found.step is not None
    assert found.step.nodes == ("relu",)
    assert "torch.relu(self.base(x)" in str(found)
    assert not found.step.equal
    assert bad(found.bad)
    assert not bad(found.good)
    assert found.runs == len(asked) - 2


def test_it_takes_about_the_logarithm_of_the_steps_in_runs() -> None:
    stages = staged([*FEW, RIGHT, WRONG])
    bad, asked = differs(MODEL, (X,))
    assert culprit(stages, bad).rule == "relu-is-nothing"
    assert len(stages.reason.proof.steps) > 5
    assert len(asked) <= 2 + math.ceil(math.log2(stages.count - 1))


def test_every_stage_is_the_same_function_where_the_rules_are_right() -> None:
    stages = staged([*FEW, RIGHT])
    wanted = MODEL(X).detach()
    texts: set[str] = set()
    for number in range(stages.count):
        program = stages.program(number)
        assert torch.allclose(drop_in(program)(X), wanted, atol=1e-5), stages.name(number)
        texts.add(str(program.graph))
    assert len(texts) > 5
    assert stages.name(0) == GIVEN
    assert stages.name(1) == AHEAD
    result = eqsat.optimize(MODEL, (X,), rules=[*FEW, RIGHT])
    assert result.program is not None
    calls = [n.target for n in stages.program(stages.count - 1).graph.nodes]
    assert calls == [n.target for n in result.program.graph.nodes]


def test_a_check_of_the_graph_finds_the_rule_that_made_an_operator_vanish() -> None:
    def bad(program: ExportedProgram) -> bool:
        return all("neg" not in str(node.target) for node in program.graph.nodes)

    found = eqsat.bisect(MODEL, bad, (X,), rules=[*FEW, RIGHT])
    assert found.rule == "neg-neg"


def test_what_is_no_rule_is_named_too() -> None:
    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.scale = nn.Parameter(torch.randn(8))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.conv(x)) * torch.exp(self.scale).reshape(8, 1, 1)

    def bad(program: ExportedProgram) -> bool:
        return all("exp" not in str(node.target) for node in program.graph.nodes)

    model, x = Tables().eval(), torch.randn(2, 3, 16, 16)
    found = eqsat.bisect(model, bad, (x,), rules=[RIGHT])
    assert (found.rule, str(found)) == (None, AHEAD)

    def laid(program: ExportedProgram) -> bool:
        return any(
            t.ndim == 4 and t.is_contiguous(memory_format=torch.channels_last)
            for t in program.state_dict.values()
        )

    assert str(eqsat.bisect(model, laid, (x,), rules=[RIGHT])) == LAID


def test_nothing_to_find_is_an_error() -> None:
    with pytest.raises(ValueError, match="the result passes the check: nothing to find"):
        eqsat.bisect(MODEL, lambda _: False, (X,), rules=FEW)
    with pytest.raises(ValueError, match="the given program fails the check too"):
        eqsat.bisect(MODEL, lambda _: True, (X,), rules=FEW)
    with pytest.raises(ValueError, match="the given program comes back"):
        eqsat.bisect(nn.ReLU().eval(), lambda _: True, (X,), rules=FEW)


def test_the_message_of_a_failed_check_names_the_rule() -> None:
    report = eqsat.optimize(MODEL, (X,), rules=[*FEW, WRONG]).report
    assert report.kept is not None
    assert report.kept.startswith("the check failed: FAILED example")
    assert "; rule relu-is-nothing at relu (test_bisect.py" in report.kept


def test_blame_ends_in_time_and_loses_nothing() -> None:
    captured = capture(MODEL, (X,))
    failed = check(MODEL, nn.Identity(), (X,), probes=("example",))
    stages = staged([*FEW, WRONG])
    result = eqsat.optimize(MODEL, (X,), rules=[*FEW, WRONG], check=False)
    assert result.report.saturation is not None
    again = (stages.found, result.report.saturation)
    told, made = blame(captured, lambda: again, failed, "default", seconds=0.0)
    assert (told, made) == ("; which rule made it was not found in 0 s", None)

    def broken() -> Any:
        raise RuntimeError("no search")

    assert blame(captured, broken, failed, "default") == ("", None)


def test_the_command_runs_a_command(tmp_path: Path) -> None:
    model = tmp_path / "model.pt2"
    small = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval()
    torch.export.save(torch.export.export(small, (X,)), model)
    (tmp_path / "mine.py").write_text(
        "import torch, eqsat\n"
        "WRONG = eqsat.Rewrite('relu-is-nothing', lambda x: (torch.relu(x), x))\n"
    )
    (tmp_path / "check.py").write_text(
        "import sys, zipfile\n"
        "parts = zipfile.ZipFile(sys.argv[1])\n"
        "text = b''.join(parts.read(n) for n in parts.namelist() if n.endswith('.json'))\n"
        "sys.exit(b'aten.relu' not in text)\n"
    )
    options = ["--rules", str(tmp_path / "mine.py"), "--keep", str(tmp_path / "kept")]
    bad = f"{sys.executable} {tmp_path / 'check.py'}"
    done = CliRunner().invoke(app, ["bisect", str(model), "--bad", bad, *options])
    assert done.exit_code == 0, done.output
    assert "rule relu-is-nothing at relu" in done.output
    good = torch.export.load(tmp_path / "kept" / "good.pt2")
    assert any("relu" in str(node.target) for node in good.graph.nodes)
    failed = CliRunner().invoke(app, ["bisect", str(model), "--bad", "no-such-program-at-all"])
    assert failed.exit_code == 1


def test_a_culprit_reads_as_a_sentence() -> None:
    program = torch.export.export(MODEL, (X,))
    assert str(Culprit(AHEAD, None, None, (), 3, program, program)) == AHEAD
