"""Claims about `benchmarks/gpu.py` and its stages, tried without a card."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

import eqsat
from benchmarks import gpu, networks
from benchmarks.card import run as card_run
from benchmarks.card.bench import card, stand_in
from benchmarks.card.programs import times
from benchmarks.card.stage import Json, Stage, Step
from eqsat import contest
from eqsat.cost.device import MODES
from eqsat.cost.profile import find
from eqsat.cost.tune import measure, timer
from tests.test_tune import Pretended

STAGES = [stage.name for stage in card_run.STAGES]


def check(code: int, out: Path) -> Json:
    """What a run wrote, of which nothing but results and the profile stays; its exit code."""
    document = json.loads((out / "gpu.json").read_text())
    failed = any(stage["failures"] for stage in document["stages"].values())
    assert code == (1 if failed else 0)
    assert {path.name for path in out.iterdir()} <= {"gpu.json", "grid.jsonl", "h200.toml"}
    return document


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Json, str]:
    """The folder, the document and the printed text of a dry run."""
    out, printed = tmp_path_factory.mktemp("gpu"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = gpu.main(["--out", str(out), "--dry-run"])
    return out, check(code, out), printed.getvalue()


Dry = tuple[Path, Json, str]


def test_a_dry_run_goes_through_every_stage_and_shows_each(dry: Dry) -> None:
    _, document, printed = dry
    assert list(document["stages"]) == STAGES
    for name, stage in document["stages"].items():
        assert stage["failures"] == []
        assert stage["stopped"] is None
        assert stage["steps"] == sum(map(len, stage["rows"].values())) > 0
        assert f"\n{name}: {stage['steps']} steps in" in printed
        for title, rows in stage["tables"].items():
            assert title in printed
            assert rows
    assert document["dry"]
    assert document["machine"]["torch"] == torch.__version__
    assert [line["stage"] for line in document["plan"]] == STAGES


def test_three_partitions_are_compared(dry: Dry) -> None:
    stage = dry[1]["stages"]["partition"]
    assert {"real", "patched", "predicted"} < stage["rows"]["dlrm"].keys()
    ((_, (line, mean)),) = stage["tables"].items()
    assert line["real"] == line["patched"] == 10  # each was made in a process of its own
    assert line["F1 patched"] == 1
    assert line["MB predicted"] > 0
    assert mean["patched"] == "0.0%"


def test_the_profile_is_fitted_to_the_clock(dry: Dry) -> None:
    out, document, _ = dry
    prior, tuned = find("h200"), find(out / "h200.toml")
    for key in ("launch.stream", "launch.graph", "launch.base"):  # the clock is slower by a fifth
        assert tuned.figures[key] == pytest.approx(1.2 * prior.figures[key], rel=0.02)
    assert tuned.match == ("dry run",)
    ratios = [
        row["seconds"] / row["predicted"]
        for parts in document["stages"]["tune"]["rows"].values()
        for row in parts.values()
    ]
    assert ratios == pytest.approx([1.2] * len(ratios))


def test_equal_programs_are_timed_and_ranked_in_both_modes(dry: Dry) -> None:
    stage = dry[1]["stages"]["variants"]
    for row in stage["rows"].values():
        for mode in MODES:
            assert row[mode].keys() == row["kernels"].keys()
            for spread in row[mode].values():
                assert 0 < spread["low"] <= spread["median"] <= spread["high"]
                assert len(spread["samples"]) == 3
    for rows in stage["tables"].values():
        assert [row["predictor"] for row in rows[:2]] == ["shipped", "tuned"]
    assert len(stage["tables"]) == len(MODES)


def test_the_measured_saving_stands_beside_the_predicted_one(dry: Dry) -> None:
    speed, counts = dry[1]["stages"]["networks"]["tables"].values()
    assert [line["launches"] for line in speed] == list(MODES)
    for line in speed:
        assert {"given us", "result us", "measured", "shipped", "tuned"} < line.keys()
    assert float(speed[1]["shipped"].rstrip("x")) > 1.2
    assert counts[0]["kept"] == "no"
    assert counts[0]["error"] < 1e-5


def test_every_failure_is_recorded_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("it is broken")

    monkeypatch.setattr(multiprocessing, "get_context", broken)  # a stage that cannot begin
    monkeypatch.setattr(measure, "append", broken)
    monkeypatch.setattr(contest, "CLOSE", -1.0)
    monkeypatch.setattr(eqsat, "optimize", broken)
    stages = check(gpu.main(["--out", str(tmp_path), "--dry-run"]), tmp_path)["stages"]
    assert list(stages) == STAGES
    expected = {
        "partition": ("partition", "OSError", "it is broken"),
        "tune": ("launch: 1 pairs, stream: library", "OSError", "it is broken"),
        "variants": ("chain vector: compile", "RuntimeError", "chain vector: not equal"),
        "networks": ("distribute float32: optimize", "OSError", "it is broken"),
    }
    printed = capsys.readouterr().out
    for name, (where, kind, message) in expected.items():
        first = stages[name]["failures"][0]
        assert (first["where"], first["type"]) == (where, kind)
        assert first["message"].startswith(message)
        assert any(frame.startswith(f"{name}.py:") for frame in first["traceback"])
        assert "/" not in first["traceback"][-1].split(":")[0]
        assert f"failed: {where}" in printed
    assert len(stages["tune"]["failures"]) == stages["tune"]["steps"] + 1  # and there is no fit
    assert len(stages["variants"]["failures"]) == 2  # the other group was tried


def test_the_result_may_be_kept_but_a_failing_optimizer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(*_: object, **__: object) -> object:
        return SimpleNamespace(report=SimpleNamespace(before=None, kept="the check failed"))

    monkeypatch.setattr(eqsat, "optimize", given)
    options = ["--out", str(tmp_path), "--dry-run", "--stages", "networks"]
    (stage,) = check(gpu.main(options), tmp_path)["stages"].values()
    assert [one["message"] for one in stage["failures"]] == [
        "it was not optimized: the check failed"
    ]


# the budget


def steps(*runs: Callable[[], Json], expected: float = 0.0) -> Stage:
    """A stage of these steps."""

    def all_steps(_: object) -> Generator[Step]:
        for i, run in enumerate(runs):
            yield Step(f"step {i}", "only", run, expected)

    return Stage("steps", 0.47, lambda _: (0, 0.0), all_steps, lambda *_: {})


def run(out: Path, *stages: Stage, budget: float = 60.0) -> list[Json]:
    """The reports of the stages."""
    document: Json = {"stages": {}}
    stages = tuple(replace(stage, name=str(i)) for i, stage in enumerate(stages))
    card_run.run(stand_in(out), stages, budget, document, Console(file=io.StringIO()))
    assert json.loads((out / "gpu.json").read_text()) == document
    return list(document["stages"].values())


def test_a_step_that_does_not_fit_stops_its_stage_but_not_the_next(tmp_path: Path) -> None:
    first, second = run(tmp_path, steps(dict, dict, expected=100.0), steps(dict))
    assert first["steps"] == 0
    assert first["stopped"] == "step 0: only would take 100.0 s; too little is left"
    assert (second["steps"], second["stopped"]) == (1, None)


def test_a_step_that_hangs_is_cut_off(tmp_path: Path) -> None:
    def hang() -> Json:
        time.sleep(600)
        return {}

    first, second = run(tmp_path, steps(dict, hang), steps(dict), budget=4.0)
    assert first["stopped"].startswith("step 1: only was cut off")
    assert list(first["rows"]) == ["step 0"]
    assert second["failures"] == []


def test_an_interruption_loses_nothing(tmp_path: Path) -> None:
    def interrupt() -> Json:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, steps(lambda: {"done": 1}, interrupt))
    (stage,) = json.loads((tmp_path / "gpu.json").read_text())["stages"].values()
    assert stage["rows"] == {"step 0": {"only": {"done": 1}}}


def test_the_shares_leave_room_for_imports_and_the_last_step() -> None:
    assert sum(stage.share for stage in card_run.STAGES) + 2 * card_run.GRACE <= 1
    bench = stand_in(Path())
    for stages in (card_run.STAGES, card_run.STAGES[1:2]):
        lines = card_run.plan(bench, stages, 540.0)
        assert sum(line["seconds"] for line in lines) == pytest.approx(0.94 * 540, abs=2)


# one folder, one machine


def test_a_second_run_keeps_what_the_first_one_found(dry: Dry, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(dry[0], out)
    options = ["--out", str(out), "--dry-run", "--stages", "tune"]
    document = check(gpu.main(options), out)
    assert list(document["stages"]) == STAGES
    assert document["stages"]["networks"] == dry[1]["stages"]["networks"]
    assert document["stages"]["tune"]["steps"] == 0  # all is measured
    assert document["stages"]["tune"]["tables"] == dry[1]["stages"]["tune"]["tables"]


def test_results_of_another_machine_are_not_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpu.json").write_text(json.dumps({"machine": {"torch": "1.0"}}))
    assert gpu.main(["--out", str(tmp_path), "--dry-run"]) == 2
    assert "results of another machine" in capsys.readouterr().err


def test_no_card_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    out = tmp_path / "none"
    assert gpu.main(["--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "torch sees no NVIDIA GPU" in printed.err
    assert not out.exists()


# the card


def test_what_is_tried_on_a_card_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    bench = card(tmp_path, None)
    assert bench.profile.name == "h200"
    assert set(bench.models) <= set(networks.MODELS)
    assert len(bench.models) == 10
    assert len(bench.networks) == 3
    assert {one.mode for one in bench.grid} == set(MODES)
    lines = card_run.plan(bench, card_run.STAGES, 540.0)
    assert all(line["guess"] > 0 for line in lines[1:])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA V100")
    with pytest.raises(ValueError, match=r"NVIDIA V100.*--profile"):
        card(tmp_path, None)


@pytest.mark.parametrize("mode", MODES)
def test_calls_on_a_card_are_timed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    device, order = Pretended(monkeypatch), list[str]()

    def call(name: str, seconds: float) -> None:
        order.append(name)
        device.spend(seconds)

    monkeypatch.setattr(timer, "_captured", captured(device))
    bench = replace(stand_in(tmp_path), place="cuda", dry=False)
    calls = {"one": lambda: call("one", 2e-3), "two": lambda: call("two", 3e-3)}
    found = times(bench, calls, mode)
    assert found["one"]["median"] == pytest.approx(2e-3, rel=1e-3)
    assert found["two"]["median"] == pytest.approx(3e-3, rel=1e-3)
    if mode == "stream":
        blocks = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
        assert blocks[2:] == ["one", "two"] * bench.rounds


def captured(device: Pretended) -> Callable[..., object]:
    """Stands in for the capture of a CUDA graph: replaying it takes what was captured."""

    def capture(call: Callable[[], object], copies: int) -> object:
        device.held = 0.0
        with device.capture(None):
            for _ in range(copies):
                call()
        seconds = device.held
        return SimpleNamespace(replay=lambda: device.spend(seconds))

    return capture
