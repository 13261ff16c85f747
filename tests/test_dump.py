"""Failures written down: a small script that repeats each, and what is cut away on the way."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import eqsat
import rewrites
from eqsat import Result, Rewrite
from eqsat.cli import app
from eqsat.dump.trial import Failure
from eqsat.dump.value import drawn, made, spelled
from eqsat.raw import EgglogRule
from eqsat.saturate import saturate
from eqsat.settings import ALWAYS

X = torch.randn(8, 64)
NAMES = ("matmul-scale-weight", "matmul-associate", "affine-factor-matmul", "matmul-transpose")
FEW = [rule for rule in rewrites.DEFAULT if rule.name in NAMES]
WRONG = Rewrite("relu-is-nothing", lambda x: (torch.relu(x), x))
ROOT = Path(__file__).parents[1]


class Deep(nn.Module):
    """A rectifier in the middle of other things."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(self.layers[0](x))
        y = torch.sigmoid(torch.relu(self.layers[1](y)))
        return torch.exp(self.layers[2](y)), torch.sin(x)


def dumped(folder: Path, model: nn.Module, args: tuple[Any, ...], **settings: Any) -> str:
    """The script that a failure is written to."""
    result = eqsat.optimize(model.eval(), args, dump=folder, **settings)
    assert result.report.kept is not None
    assert result.report.dumped == str(folder / "repro.py"), result.report.dumped
    assert result.report.dumped in str(result.report).replace("\n", "")
    return (folder / "repro.py").read_text()


def ran(folder: Path) -> str:
    """What the script prints."""
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink):
        runpy.run_path(str(folder / "repro.py"))
    return sink.getvalue()


def ran_by_itself(folder: Path) -> str:
    """What the script prints in a process that knows nothing of this one, and of another folder."""
    done = subprocess.run(
        [sys.executable, str(folder / "repro.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_failed_check_becomes_a_script_of_one_call_and_one_rule(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    text = dumped(folder, Deep(), (X,), rules=[*FEW, WRONG], margin=ALWAYS)
    assert text.count("torch.ops.aten.") == 1
    assert "relu = torch.ops.aten.relu.default(" in text
    assert "1 of 8 calls are left, 1 of 5 rules" in text
    assert "# relu-is-nothing: relu(x) => x" in text
    assert "drawn([8, 64], 'float32'" in text
    shown = ran_by_itself(folder)
    assert "CHECK FAILED" in shown
    assert "relu-is-nothing at relu" in " ".join(shown.split())
    assert not list(folder.glob(".*"))


def test_a_second_failure_does_not_overwrite_the_first(tmp_path: Path) -> None:
    model = nn.ReLU().eval()
    for name in ("repro.py", "repro_2.py"):
        result = eqsat.optimize(model, (X,), rules=[WRONG], dump=tmp_path)
        assert result.report.dumped == str(tmp_path / name)


def test_an_error_inside_becomes_a_script_with_what_causes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(encoding: Any, *rest: Any, **options: Any) -> Any:
        if any("sigmoid" in row.attributes for row in encoding.rows):
            raise RuntimeError("no sigmoid here")
        return saturate(encoding, *rest, **options)

    monkeypatch.setattr("eqsat.search.saturate", broken)
    text = dumped(tmp_path, Deep(), (X,), rules=FEW)
    assert "the optimizer failed: RuntimeError: no sigmoid here" in text
    assert text.count("torch.ops.aten.") == 1
    assert "sigmoid = torch.ops.aten.sigmoid.default(" in text
    assert "0 of 4 rules" in text
    ran(tmp_path)


def test_an_error_in_a_process_of_its_own_is_repeated_in_such_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[Any] = []  # what searches in this process

    def broken(encoding: Any, *rest: Any, **options: Any) -> Any:
        here.append(encoding)
        if any("sigmoid" in row.attributes for row in encoding.rows):
            raise RuntimeError("no sigmoid here")
        return saturate(encoding, *rest, **options)

    monkeypatch.setattr("eqsat.search.saturate", broken)
    model = nn.Sequential(nn.Tanh(), nn.Sigmoid())
    text = dumped(tmp_path, model, (X,), rules=[WRONG], isolate=True, memory_limit=1 << 33)
    assert here == []
    assert "the search failed: RuntimeError: no sigmoid here" in text
    assert "1 of 2 calls are left, 0 of 1 rules" in text
    assert f"memory_limit={1 << 33},\n    max_memory_growth=None,\n    isolate=True," in text
    assert "the search failed" in ran(tmp_path)


def test_a_search_that_is_killed_is_no_failure_to_write_down(tmp_path: Path) -> None:
    dies = Rewrite("dies", lambda x: (torch.relu(x), x), when=lambda x: os._exit(x.ndim))
    options: dict[str, Any] = {"rules": [dies], "cache": False, "isolate": True}
    report = eqsat.optimize(nn.ReLU().eval(), (X,), dump=tmp_path, **options).report
    assert (report.kept or "").startswith("the search was lost")
    assert report.dumped is None
    assert Failure.of(report.kept) is None


def test_a_program_that_cannot_be_made_functional_is_told_too(tmp_path: Path) -> None:
    class Viewing(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x.add_(1.0)
            return torch.sin(x), x[0]

    text = dumped(tmp_path, Viewing(), (torch.zeros(4, 4),), rules=FEW)
    assert "shared memory with" in text
    assert "shared memory with" in ran(tmp_path).replace("\n", " ")


def test_values_that_matter_are_kept_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.linspace(0, 7.25, 64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(torch.tanh(x) * self.scale)

    def broken(encoding: Any, *rest: Any, **options: Any) -> Any:
        if any(interval.high == 7.25 for interval in encoding.intervals.values()):
            raise RuntimeError("too high")
        return saturate(encoding, *rest, **options)

    monkeypatch.setattr("eqsat.search.saturate", broken)
    text = dumped(tmp_path, Weighted(), (X,), rules=FEW)
    assert "VALUES['b_scale']" in text
    assert (tmp_path / "repro.pt").exists()
    assert "RuntimeError: too high" in ran(tmp_path)


def test_a_program_that_is_no_calls_is_saved_whole(tmp_path: Path) -> None:
    class Choosing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
            return torch.relu(y)

    text = dumped(tmp_path, Choosing(), (X,), rules=[WRONG])
    assert "torch.export.load(HERE / 'repro.pt2')" in text
    assert (tmp_path / "repro.pt2").exists()
    assert "CHECK FAILED" in ran(tmp_path)


def test_rules_of_egglog_are_written_as_they_are(tmp_path: Path) -> None:
    rule = EgglogRule("relu-gone", query='(= e (unary x "relu"))', left="e", right="x")
    text = dumped(tmp_path, nn.ReLU(), (X,), rules=[rule], numerics="relaxed")
    assert "EgglogRule('relu-gone'" in text
    assert "CHECK FAILED" in ran(tmp_path)


def test_nothing_is_written_where_nothing_failed(tmp_path: Path) -> None:
    for model in (Deep().eval(), nn.ReLU().eval()):
        result: Result = eqsat.optimize(model, (X,), rules=FEW, dump=tmp_path)
        assert result.report.dumped is None
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_costs_no_program(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = eqsat.optimize(nn.ReLU().eval(), (X,), rules=[WRONG], dump=tmp_path / "file")
    assert result.report.kept is not None
    assert result.report.dumped is not None
    assert result.report.dumped.startswith("no script could be written")
    assert torch.equal(result.module(X), torch.relu(X))


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 40) * 5 + 2,
        torch.randint(-7, 9, (50,)),
        torch.rand(50) > 0.5,
        torch.randn(50).to(torch.bfloat16),
        torch.randn(40, dtype=torch.complex64),
        torch.tensor([1.0, float("inf"), float("nan")]),
        torch.tensor(3),
    ],
    ids=lambda value: f"{value.dtype}",
)
def test_a_value_is_made_again_alike(value: Tensor) -> None:
    again = made(spelled(value, 3))
    assert (again.shape, again.dtype) == (value.shape, value.dtype)
    assert torch.equal(again, made(spelled(value, 3))) or not bool((again == again).all())
    if value.dtype == torch.int64:
        assert value.min() <= again.min() <= again.max() <= value.max()
    if value.dtype == torch.float32 and value.numel() > 16:
        assert abs(float(again.mean() - value.mean())) < 3
    assert spelled(7, 0) == "7"


def test_seeds_draw_differently() -> None:
    assert not torch.equal(drawn([32], "float32", 0), drawn([32], "float32", 1))


def test_the_command_writes_a_script(tmp_path: Path) -> None:
    model, mine = tmp_path / "model.pt2", tmp_path / "mine.py"
    torch.export.save(torch.export.export(nn.ReLU(), (X,)), model)
    mine.write_text(
        "import torch, eqsat\n"
        "WRONG = eqsat.Rewrite('relu-is-nothing', lambda x: (torch.relu(x), x))\n"
    )
    out, folder = tmp_path / "out.pt2", tmp_path / "dumped"
    options = ["-o", str(out), "--rules", str(mine), "--dump", str(folder)]
    done = CliRunner().invoke(app, ["optimize", str(model), *options])
    assert done.exit_code == 0, done.output
    assert "relu-is-nothing" in (folder / "repro.py").read_text()
