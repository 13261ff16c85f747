"""Claims about how well costs rank equal programs, on hand-made and on measured times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from eqsat import contest
from eqsat.cli import app
from eqsat.cost import load
from eqsat.cost.tune.rank import Ranked, Score, misses, score
from eqsat.cost.tune.variants import GROUPS, Group, tensors
from eqsat.table import plain
from eqsat.tuning import draw, ranking

TIMES = Path(__file__).parents[1] / "benchmarks" / "results" / "variants-cpu.jsonl"


def programs(*groups: dict[str, tuple[float, float]]) -> list[Ranked]:
    """Groups of programs by name, each with its measured and predicted time."""
    return [
        Ranked(f"group {i}", name, measured, {"model": predicted, "bytes": predicted})
        for i, group in enumerate(groups)
        for name, (measured, predicted) in group.items()
    ]


def check(score: Score, **expected: float) -> None:
    """The score has these values."""
    for name, value in expected.items():
        assert getattr(score, name) == pytest.approx(value), name


def test_the_right_order_scores_full_marks() -> None:
    found = programs({"a": (1, 10), "b": (2, 20), "c": (3, 30)}, {"a": (5, 1), "b": (4, 0.5)})
    check(score(found, "model"), pairs=4, accuracy=1, tau=1, top=1, regret=0, worst=0)
    assert misses(found, "model") == []


def test_the_wrong_order_scores_none_and_costs_the_difference() -> None:
    found = programs({"a": (1, 20), "b": (2, 10)}, {"a": (1, 1), "b": (2, 2)})
    check(score(found, "model"), pairs=2, accuracy=0.5, tau=0, top=0.5, regret=0.5, worst=1)
    assert misses(found, "model") == [("group 0", 1.0)]


def test_a_predicted_tie_is_half_right_and_chooses_each() -> None:
    found = programs({"a": (1, 7), "b": (2, 7)})
    check(score(found, "model"), accuracy=0.5, tau=0, top=0.5, regret=0.5, worst=0.5)


def test_measured_ties_are_no_pairs_and_no_misses() -> None:
    found = programs({"a": (1, 2), "b": (1.04, 1)})
    check(score(found, "model"), pairs=0, accuracy=0, top=1, regret=0.04)


def test_large_differences_are_counted_apart() -> None:
    found = programs({"a": (1, 2), "b": (1.2, 1)}, {"a": (1, 1), "b": (1.3, 2)})
    check(score(found, "model"), pairs=2, accuracy=0.5, large_pairs=1, large_accuracy=1)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_the_programs_of_a_group_are_equal(group: Group) -> None:
    operands = [t.double() if t.is_floating_point() else t for t in tensors(group)]
    first, *others = (program(*operands) for program in group.programs.values())
    assert others
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-9, atol=1e-9)


def test_groups_and_programs_have_names_of_their_own() -> None:
    assert len({group.name for group in GROUPS}) == len(GROUPS) >= 26
    assert sum(len(group.programs) for group in GROUPS) >= 54


def test_programs_that_are_not_equal_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda program, **_: program)
    wrong = Group("wrong", ((3,),), {"a": lambda x: x, "b": lambda x: x + 1})
    with pytest.raises(RuntimeError, match="wrong: b is not equal"):
        contest.measure("cpu", "cpu", tmp_path / "times.jsonl", groups=[wrong])


def test_a_group_is_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda program, **_: program)
    monkeypatch.setattr(contest, "interleaved", lambda calls, _: [float(len(calls))] * 2)
    path, names, times = tmp_path / "times.jsonl", list[str](), ()
    for _ in range(2):
        times = contest.measure("cpu", "cpu", path, lambda *s: names.append(s[2]), GROUPS[:2])
    assert names == [group.name for group in GROUPS[:2]]
    assert [(one.group, one.program) for one in times] == [
        (group.name, program) for group in GROUPS[:2] for program in group.programs
    ]


@pytest.mark.parametrize("line", ['{"group": "a"}', "[]", "no", '{"group": "a", "x": 1}'])
def test_a_line_that_is_no_time_is_named(tmp_path: Path, line: str) -> None:
    good = json.dumps({"group": "a", "program": "b", "seconds": 1.0})
    path = tmp_path / "times.jsonl"
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(ValueError, match=r"times\.jsonl, line 2: "):
        contest.read(path)


@pytest.fixture(scope="module")
def ranked() -> tuple[Ranked, ...]:
    """The committed times, and what the shipped profile of that CPU predicts."""
    return contest.ranked(contest.read(TIMES), load("cpu"))


def test_the_model_ranks_measured_programs(ranked: tuple[Ranked, ...]) -> None:
    one = score(ranked, "model")
    assert one.pairs >= 25
    assert one.large_pairs >= 14
    assert one.accuracy >= 0.85
    assert one.large_accuracy >= 0.9
    assert one.top >= 0.9
    assert one.regret <= 0.05


@pytest.mark.parametrize("simple", ["additive", "bytes", "flops", "kernels", "operators"])
def test_the_model_ranks_better_than_any_one_figure(
    ranked: tuple[Ranked, ...], simple: str
) -> None:
    one, other = score(ranked, "model"), score(ranked, simple)
    assert one.accuracy > other.accuracy
    assert one.large_accuracy > other.large_accuracy
    assert one.tau > other.tau
    assert one.regret < other.regret


def test_the_command_ranks_the_times_of_this_device_alone(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in TIMES.read_text().splitlines()]
    here = [line | {"torch": torch.__version__} for line in lines]
    elsewhere = [line | {"device": "other", "seconds": 1.0} for line in lines]
    path, plot = tmp_path / "times.jsonl", tmp_path / "plot.svg"
    path.write_text("".join(json.dumps(line) + "\n" for line in (*here, *elsewhere)))
    arguments = ["tune", "--rank", "--measurements", str(path), "--plot", str(plot)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert f"{len(lines)} programs in {len(GROUPS)} groups" in result.stdout
    pairs = score(contest.ranked(contest.read(TIMES), load("cpu")), "model").pairs
    assert f"{pairs} pairs differ" in " ".join(result.stdout.split())
    assert plot.exists()


def test_the_table_has_every_predictor_and_the_plot_is_drawn(tmp_path: Path) -> None:
    found = [
        Ranked(one.group, one.program, one.seconds, dict.fromkeys(contest.PREDICTORS, 1.0 + i))
        for i, one in enumerate(programs({"a": (2, 1), "b": (1, 2)}, {"a": (1, 1), "b": (2, 2)}))
    ]
    text = plain(ranking(found, "mine"))
    assert all(name in text for name in contest.PREDICTORS.values())
    assert "profile mine" in text
    assert "group 0" in text.split("does not find")[1]
    draw(found, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
