"""The command `eqsat` writes whole files or none, and says what is wrong in one line."""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from typer.testing import CliRunner, Result

import rewrites
from eqsat.cli import app
from rewrites.linear import LINEAR


class Twice(nn.Module):
    """Computes the same thing twice: once is enough, whatever the rules."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight) + torch.relu(x @ self.weight)


X = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved program."""
    path = tmp_path_factory.mktemp("models") / "model.pt2"
    torch.export.save(torch.export.export(Twice(), (X,)), path)
    return path


def run(*arguments: object) -> Result:
    """What the command did."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def relus(path: Path) -> int:
    """How often the saved program applies relu."""
    return str(torch.export.load(path).graph).count("aten.relu.default]")


def check(result: Result, *expected: str, code: int = 1) -> None:
    """The command failed with `code`, and one line on stderr that holds each of `expected`."""
    assert result.exit_code == code, result.output
    assert result.stderr.startswith("eqsat: ")
    assert result.stderr.count("\n") == 1, result.stderr
    for words in expected:
        assert words in result.stderr


def test_optimized_program_is_equal_and_the_report_is_printed(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.pt2"
    done = run("optimize", model, "-o", output)
    assert done.exit_code == 0, done.output
    assert "predicted" in done.stdout
    assert "checked equal" in done.stdout
    loaded = torch.export.load(output).module()
    torch.testing.assert_close(loaded(X), Twice()(X))
    assert (relus(model), relus(output)) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["out.pt2"]


def test_result_may_replace_its_own_input(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(model.read_bytes())
    assert run("optimize", path, "-o", path).exit_code == 0
    assert relus(path) == 1


def test_report_is_written_as_json(model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run("optimize", model, "-o", tmp_path / "out.pt2", "--json", report, "--no-check")
    assert done.exit_code == 0, done.output
    data = json.loads(report.read_text())
    assert data["check"] is None
    assert data["device"] == "h200"


def test_limits_and_left_out_rules_reach_the_optimizer(model: Path, tmp_path: Path) -> None:
    name = rewrites.DEFAULT[0].name
    report = tmp_path / "report.json"
    settings = ("--without", name, "--iterations", 1, "--numerics", "strict", "--device", "l4")
    done = run("optimize", model, "-o", tmp_path / "out.pt2", "--json", report, *settings)
    assert done.exit_code == 0, done.output
    data = json.loads(report.read_text())
    assert (data["numerics"], data["device"]) == ("strict", "l4")
    assert len(data["saturation"]["iterations"]) <= 1
    assert name not in {rule["name"] for rule in data["saturation"]["rules"]}


def test_costs_are_those_at_the_hint(tmp_path: Path) -> None:
    path, report = tmp_path / "model.pt2", tmp_path / "report.json"
    program = torch.export.export(Twice(), (X,), dynamic_shapes=({0: Dim("rows")},))
    torch.export.save(program, path)
    nodes = torch.export.load(path).graph.find_nodes(op="placeholder")
    symbol = next(str(n.meta["val"].shape[0]) for n in nodes if n.name == "x")
    found: list[float] = []
    for hints in ((), ("--hint", f"{symbol}=10000000")):
        done = run("optimize", path, "-o", tmp_path / "out.pt2", "--json", report, *hints)
        assert done.exit_code == 0, done.output
        found.append(json.loads(report.read_text())["before"]["times"]["device"])
    assert found[1] > 2 * found[0]
    check(run("optimize", path, "-o", path, "--hint", "rows"), "name=size", "'rows'")
    check(run("optimize", path, "-o", path, "--hint", "columns=3"), "'columns'", symbol)


def test_mistakes_are_told_in_one_line(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt2"
    text = tmp_path / "text.pt2"
    text.write_text("not a program")
    check(run("optimize", tmp_path / "none.pt2", "-o", out), "none.pt2", "no such file")
    check(run("optimize", text, "-o", out), "text.pt2", "not a .pt2 archive")
    check(run("optimize", model, "-o", tmp_path), "is a folder")
    check(run("optimize", model, "-o", tmp_path / "no" / "out.pt2"), "no folder")
    check(run("optimize", model, "-o", out, "--device", "h900"), "h900", "h200")
    check(run("optimize", model, "-o", out, "--numerics", "fast"), "fast", "strict")
    check(run("optimize", model, "-o", out, "--without", "matmul-asociate"), "matmul-associate")
    check(run("rules", "--theme", "linera"), "linera", "linear")
    assert not out.exists()


def test_damaged_archive_is_told_in_one_line(model: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pt2"
    data = bytearray(model.read_bytes())
    middle = data.index(b'"graph_module"')
    data[middle : middle + 200] = bytes(200)
    damaged.write_bytes(data)
    check(run("optimize", damaged, "-o", tmp_path / "out.pt2"), "damaged.pt2")
    assert logging.root.manager.disable == logging.NOTSET


def test_usage_error_exits_with_2() -> None:
    assert run("optimize").exit_code == 2
    assert run("optimise").exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [(KeyboardInterrupt(), 130, "interrupted"), (RuntimeError("no\nspace"), 1, "no space")],
)
def test_failed_save_leaves_the_old_file_whole(
    error: BaseException,
    code: int,
    says: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def save(_: object, file: io.RawIOBase) -> None:
        file.write(b"half")
        raise error

    output = tmp_path / "out.pt2"
    output.write_text("old")
    monkeypatch.setattr(torch.export, "save", save)
    check(run("optimize", model, "-o", output), says, code=code)
    assert output.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.pt2"]


def test_debug_shows_where(tmp_path: Path) -> None:
    done = run("optimize", tmp_path / "none.pt2", "-o", tmp_path / "out.pt2", "--debug")
    assert isinstance(done.exception, ValueError)


def test_rules_lists_every_default_rule() -> None:
    done = run("rules")
    assert done.exit_code == 0, done.output
    for rule in rewrites.DEFAULT:
        assert done.stdout.count(f"  {rule.name} ") == 1


def test_theme_restricts_the_list() -> None:
    lines = run("rules", "--theme", "linear").stdout.splitlines()
    assert len(lines) == 1 + len(LINEAR)


def test_version_is_shown() -> None:
    assert run("--version").stdout.startswith("eqsat ")


class Tied(nn.Module):
    """A table of words whose weight is that of the head, which is applied twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(1000, 1024), nn.Linear(1024, 1000, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.table(x)
        return torch.relu(self.head(x)) + torch.relu(self.head(x))


def test_a_package_with_each_weight_once_runs_in_a_process_without_eqsat(tmp_path: Path) -> None:
    module, x = Tied().requires_grad_(False), torch.tensor([[3, 1, 4]])
    model, package = tmp_path / "model.pt2", tmp_path / "package.pt2"
    torch.export.save(torch.export.export(module, (x,)), model)
    done = run("optimize", model, "-o", tmp_path / "out.pt2", "--aot", package)
    assert done.exit_code == 0, done.output
    assert package.stat().st_size < 1.5 * module.head.weight.nbytes
    torch.save((x, module(x)), tmp_path / "values.pt")
    code = (
        "import sys; sys.modules['eqsat'] = sys.modules['egglog'] = None\n"
        "import torch\n"
        f"x, expected = torch.load({str(tmp_path / 'values.pt')!r})\n"
        f"program = torch._inductor.aoti_load_package({str(package)!r})\n"
        "torch.testing.assert_close(program(x), expected, atol=1e-3, rtol=1e-4)\n"
        "print('equal')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "equal\n", ran.stderr


def test_a_package_of_another_suffix_is_refused_before_any_work(
    model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.pt2"
    check(run("optimize", model, "-o", output, "--aot", tmp_path / "package.so"), "is a .pt2 file")
    assert not output.exists()
