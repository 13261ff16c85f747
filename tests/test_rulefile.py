"""Rules of the user's come from a Python file, which the command runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result

import rewrites
from eqsat.cli import app
from eqsat.rewrite import Rewrite
from eqsat.rulefile import rules_of_file

MINE = """
import torch
from eqsat import RELAXED, Rewrite
from rewrites.linear import LINEAR

def law(x):
    return torch.log1p(torch.exp(x)), torch.nn.functional.softplus(x)

softplus = Rewrite("mine-softplus", law, numerics=RELAXED)
MORE = [Rewrite("mine-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)))]
"""


class Gate(nn.Module):
    """A program that the rules of the file make shorter."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log1p(torch.exp(x)) * 2.0


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of two rules."""
    path = tmp_path / "my_rules.py"
    path.write_text(MINE)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved program."""
    path = tmp_path_factory.mktemp("models") / "model.pt2"
    torch.export.save(torch.export.export(Gate(), (torch.randn(4, 5),)), path)
    return path


def run(*arguments: object) -> Result:
    """What the command did."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def own(path: Path) -> list[str]:
    """The names of the rules of a file that are not among the default ones."""
    return [rule.name for rule in rules_of_file(path) if rule not in rewrites.DEFAULT]


def test_the_rules_are_those_in_variables_lists_and_tuples(mine: Path) -> None:
    assert own(mine) == ["mine-softplus", "mine-relu"]


def test_a_variable_named_rules_says_which(mine: Path) -> None:
    mine.write_text(MINE + "RULES = MORE\n")
    assert [rule.name for rule in rules_of_file(mine)] == ["mine-relu"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no Rewrite"),
        ("import torch\n1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        (
            "from eqsat import Rewrite\nRewrite('r', lambda x, y: (-x, x + y))",
            "rule 'r': the left side does not bind y",
        ),
        (MINE + "AGAIN = (Rewrite('mine-relu', law),)", "two rules are named 'mine-relu'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(mine: Path, text: str, message: str) -> None:
    mine.write_text(text)
    with pytest.raises(ValueError, match=f"(?s)my_rules.py: .*{message}"):
        rules_of_file(mine)


def test_the_command_says_that_the_file_is_code_and_adds_its_rules(
    mine: Path, model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.pt2"
    options = ("--numerics", "relaxed", "--margin", "-inf")
    done = run("optimize", model, "-o", output, "--rules", mine, *options)
    assert done.exit_code == 0, done.stderr
    assert f"running {mine}, which is code" in done.stderr
    assert "aten.softplus" in str(torch.export.load(output).graph)
    done = run(
        *("optimize", model, "-o", output, "--rules", mine, *options),
        *("--without", "mine-softplus"),
    )
    assert done.exit_code == 0, done.stderr
    assert "aten.softplus" not in str(torch.export.load(output).graph)


def test_the_command_refuses_a_file_that_is_not_there(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, "-o", tmp_path / "out.pt2", "--rules", tmp_path / "no.py")
    assert done.exit_code == 1
    assert "no.py: no such file" in done.stderr


def test_rules_that_the_default_ones_hold_already_are_not_added_twice(mine: Path) -> None:
    found = rules_of_file(mine)
    assert any(rule in rewrites.DEFAULT for rule in found)
    assert isinstance(found[0], Rewrite)
