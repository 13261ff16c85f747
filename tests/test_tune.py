"""Claims about measurements, the fit of a profile to them, and `eqsat tune`."""

from __future__ import annotations

import importlib
import json
import math
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result

from eqsat.capture import capture
from eqsat.cli import app
from eqsat.cost import load
from eqsat.cost.device import MODES, Device
from eqsat.cost.figure import FIGURES
from eqsat.cost.kernel import Kernel, Product
from eqsat.cost.partition import partition
from eqsat.cost.profile import Profile, find, known
from eqsat.cost.tune import calibrate, fit, measure
from eqsat.cost.tune.measure import Measurement
from eqsat.cost.tune.microbench import Benchmark, grid
from eqsat.cost.tune.timer import interleaved, one_thread, seconds

CPU = find("cpu")
GRID = grid(load("cpu"), "cpu")
NOISE = 0.05
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def measured(profile: Profile, noise: float = NOISE, **kwargs: Any) -> list[Measurement]:
    """What the grid would take on a device of exactly this profile, with some noise."""
    device, rng = Device.of(profile), random.Random(0)
    place = "cuda" if profile.backend == "triton" else "cpu"
    found: list[Measurement] = []
    for one in grid(device, place):
        line = Measurement(one.group, 1.0, one.kernels, one.name, one.mode, one.base, **kwargs)
        spent = line.predicted(device) * math.exp(rng.gauss(0, noise))
        found.append(replace(line, seconds=spent))
    return found


def run(*arguments: object) -> Result:
    """What the command did."""
    return CliRunner().invoke(app, ["tune", *map(str, arguments)])


def check_refused(result: Result, *expected: str) -> None:
    """The command failed with one line that holds each of `expected`."""
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    for words in expected:
        assert words in result.stderr


# measurements


def test_measurements_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "times.jsonl"
    lines = measured(CPU, device="cpu", torch="2.13.0")
    for line in lines:
        measure.append(path, line)
    assert list(measure.read(path)) == lines
    assert measure.read(tmp_path / "none.jsonl") == ()


LINE: dict[str, object] = {
    "class": "gemm",
    "seconds": 1e-3,
    "kernels": [
        {"kind": "extern", "operators": ["mm"], "read": 200, "written": 100, "dtype": "float32"}
    ],
}


def test_a_line_of_ones_own_needs_little(tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl"
    path.write_text("\n" + json.dumps(LINE) + "\n")
    kernel = Kernel("extern", ("mm",), (), 200, 100, 0, 0, 1, torch.float32)
    assert measure.read(path) == (Measurement("gemm", 1e-3, (kernel,)),)


def test_the_flops_of_a_product_follow_from_it(tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl"
    path.write_text(json.dumps(LINE).replace('"read"', '"product": [1, 2, 3, 4], "read"'))
    (one,) = measure.read(path)
    assert one.kernels[0].product == Product(1, 2, 3, 4)
    assert one.kernels[0].flops == 48


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("{", "", "Extra data|Expecting"),
        ('"class"', '"clas"', "has no `clas`"),
        ('"seconds": 0.001, ', "", "needs `seconds`"),
        ("0.001", "-1", "`seconds` must be positive"),
        ("0.001", "NaN", "`seconds` must be positive"),
        ("0.001", '"fast"', "`seconds` must be positive"),
        ('"kernels": [', '"mode": "slow", "kernels": [', "`mode` must be one of stream, graph"),
        ('"kernels": [', '"base": 1, "kernels": [', "`base` must be true or false"),
        ('"kernels": [', '"kernels": [3, ', "a kernel is an object"),
        ('"extern"', '"magic"', "`kind` must be one of"),
        ('"float32"', '"float33"', "`dtype` must be the name of a torch dtype"),
        ('"read": 200', '"read": -1', "`read` must be a number"),
        ('"read": 200, ', "", "needs `read`"),
        ('"read"', '"product": [1, 2], "read"', "`product` must be"),
        ('["mm"]', '"mm"', "`operators` must be a list of str"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(
    tmp_path: Path, old: str, new: str, wrong: str
) -> None:
    good = json.dumps(LINE)
    assert old in good
    path = tmp_path / "times.jsonl"
    path.write_text(f"{good}\n{good.replace(old, new, 1)}\n")
    with pytest.raises(ValueError, match=rf"times\.jsonl, line 2: .*({wrong})"):
        measure.read(path)


def test_a_compiled_call_pays_its_base_cost() -> None:
    device = Device.of(CPU)
    one = Measurement("x", 1.0, (Kernel("extern", ("mm",), (), 1, 1, 0, 1, 1, torch.float32),))
    assert replace(one, base=True).predicted(device) == one.predicted(device) + device.base


# the grid


class Wrapped(nn.Module):
    def __init__(self, program: Callable[..., Tensor]) -> None:
        super().__init__()
        self.program = program

    def forward(self, *operands: Tensor) -> Tensor:
        return self.program(*operands)


SMALL = [one for one in GRID if one is next(o for o in GRID if o.group == one.group)]


@pytest.mark.parametrize("one", SMALL, ids=lambda one: one.group)
def test_a_benchmark_carries_the_kernels_that_are_predicted_of_it(one: Benchmark) -> None:
    graph = capture(Wrapped(one.program), one.operands("cpu")).program.graph
    predicted = partition(graph, load("cpu"))
    if one.group == "conv":  # beside it, copies into the layout that the grid has from the start
        predicted = tuple(kernel for kernel in predicted if kernel.kind == "extern")
    assert len(predicted) == len(one.kernels)
    for ours, theirs in zip(one.kernels, predicted, strict=True):
        known = replace(theirs, nodes=(), strided=ours.strided, operators=ours.operators)
        assert ours == known
        if one.group != "sdpa":  # whose name says which library it is
            assert ours.operators == theirs.operators


def test_every_class_is_in_the_grid_and_every_name_is_once() -> None:
    assert {one.group for one in GRID} == {
        "launch", "pointwise", "arithmetic", "exp", "reduction", "columns", "variance", "softmax",
        "strided copy", "gemm", "bmm", "conv", "sdpa",
    }  # fmt: skip
    assert len({(one.group, one.name) for one in GRID}) == len(GRID) < 120


def test_a_gpu_is_measured_in_two_dtypes_and_both_modes() -> None:
    found = grid(load("h200"), "cuda")
    assert len({(one.group, one.name) for one in found}) == len(found) < 180
    assert {one.dtype for one in found} == {torch.float32, torch.bfloat16}
    assert {one.mode for one in found if one.group == "launch"} == {"stream", "graph"}
    assert {one.mode for one in found if one.group != "launch"} == {"graph"}
    assert {one.dtype for one in grid(load("t4"), "cuda")} == {torch.float32, torch.float16}


def test_longer_work_takes_longer_on_the_clock() -> None:
    x = torch.randn(200_000)
    short, long = lambda: x[:10] + 1, lambda: [torch.exp(x) for _ in range(10)]
    with one_thread():
        assert 0 < seconds(short, "cpu") < seconds(long, "cpu")
        times = interleaved([short, long], "cpu", rounds=2)
    assert 0 < times[0] < times[1]


class Pretended:
    """Stands in for the parts of `torch.cuda` that the clock uses; calls move its own time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.held, self.capturing = 0.0, 0.0, False
        for name, value in {
            "Event": lambda **_: SimpleNamespace(
                record=lambda: None, at=self, elapsed_time=lambda _: 1e3 * self.span()
            ),
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: self.spend(self.held)),
            "Stream": lambda: SimpleNamespace(wait_stream=lambda _: None),
            "current_stream": lambda: SimpleNamespace(wait_stream=lambda _: None),
            "stream": nullcontext,
            "graph": self.capture,
            "synchronize": lambda: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    def spend(self, seconds: float) -> None:
        if self.capturing:
            self.held += seconds
        else:
            self.now += seconds

    def span(self) -> float:
        spent, self.now = self.now, 0.0
        return spent

    @contextmanager
    def capture(self, _: object) -> Generator[None]:
        self.capturing = True
        yield
        self.capturing = False
        self.now = 0.0


@pytest.mark.parametrize("each", [1e-5, 1e-3, 1e-1])
def test_a_gpu_is_timed_per_call_in_either_mode(
    monkeypatch: pytest.MonkeyPatch, each: float
) -> None:
    device, calls = Pretended(monkeypatch), list[None]()

    def call() -> None:
        calls.append(None)
        device.spend(each)

    for mode in MODES:
        device.held = 0.0
        calls.clear()
        assert seconds(call, "cuda", mode) == pytest.approx(each)
        assert len(calls) * each < 3


# the fit


@pytest.mark.parametrize("name", ["cpu", "h200"])
def test_a_fit_finds_the_figures_of_the_device_that_was_measured(name: str) -> None:
    prior = find(name)
    free = [one.key for one in fit.FREE[prior.backend]]
    hidden = {key: prior.figures[key] * 0.8 for key in free if key in prior.figures}
    lines = measured(replace(prior, figures={**prior.figures, **hidden}))
    profile = fit.fit(lines, prior, "2026-11-30")
    seen = {"cpp": "compute.exp", "triton": "launch.graph"}[prior.backend]
    for key in (seen, "launch.base", "memory.l2_gbs"):
        assert profile.figures[key] == pytest.approx(hidden[key], rel=0.1), key
    report = profile.fit
    assert report is not None
    assert report.error < report.heldout < 1.1
    assert report.measurements == len(lines)
    assert sum(one.n for one in report.classes.values()) == len(lines)
    assert not {*free} & {*profile.unconfirmed}
    assert all(profile.sources[key].startswith("measured: ") for key in free)
    for key, figure in FIGURES.items():
        if figure.share:
            assert profile.figures[key] <= 1


def test_the_profile_of_this_cpu_is_what_its_committed_timings_say() -> None:
    lines = measure.read(RESULTS / "grid-cpu.jsonl")
    assert CPU.fit is not None
    assert CPU.fit.measurements == len(lines)
    assert CPU.fit.heldout < 1.25
    again = fit.fit(lines, CPU, "2026-11-30")
    assert again.figures == pytest.approx(CPU.figures, rel=0.2)
    assert again.fit is not None
    assert again.fit.heldout < 1.25


def test_a_fit_is_the_same_every_time() -> None:
    lines = measured(CPU)
    assert fit.fit(lines, CPU, "2026-11-30") == fit.fit(lines, CPU, "2026-11-30")


def test_an_outlier_does_not_rule_the_fit() -> None:
    lines = measured(CPU)
    which = next(i for i, one in enumerate(lines) if one.group == "exp")
    lines[which] = replace(lines[which], seconds=100 * lines[which].seconds)
    profile = fit.fit(lines, CPU, "2026-11-30")
    assert profile.figures["compute.exp"] == pytest.approx(CPU.figures["compute.exp"], rel=0.1)


def test_a_fit_that_is_far_off_is_refused_by_its_worst_class(tmp_path: Path) -> None:
    rng, path, out = random.Random(0), tmp_path / "times.jsonl", tmp_path / "mine.toml"
    for line in measured(CPU):
        far = 30.0 if line.group == "conv" else 3.0
        measure.append(path, replace(line, seconds=line.seconds * far ** rng.choice((-1, 1))))
    result = run("--refit", "--measurements", path, "--out", out)
    check_refused(result, "held-out error is x", "above x1.5", "worst class is conv")
    assert not out.exists()


def test_too_few_measurements_are_refused() -> None:
    with pytest.raises(ValueError, match="5 measurements do not fit"):
        fit.fit(measured(CPU)[:5], CPU, "2026-11-30")


def test_measurements_of_two_devices_are_refused() -> None:
    lines = [*measured(CPU, device="one"), *measured(CPU, device="two")]
    with pytest.raises(ValueError, match="2 devices: one, two"):
        calibrate.fitted(lines, CPU)


# the command


def test_a_refit_writes_a_profile_that_loads(tmp_path: Path) -> None:
    path, out = tmp_path / "times.jsonl", tmp_path / "mine.toml"
    for line in measured(CPU, device="cpu", torch="2.13.0"):
        measure.append(path, line)
    result = run("--refit", "--measurements", path, "--out", out)
    assert result.exit_code == 0, result.output
    assert "held out" in result.stdout
    assert str(out) in result.stdout
    written = find(out)
    assert written.fit is not None
    assert written.fit.torch == "2.13.0"
    assert load(str(out)).exp_rate == pytest.approx(load("cpu").exp_rate, rel=0.1)
    assert "Fitted on" in run("--show", out).stdout
    assert {p.name for p in tmp_path.iterdir()} == {"times.jsonl", "mine.toml"}


def test_an_interrupted_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, taken = tmp_path / "times.jsonl", list[object]()

    def clock(*_: object) -> float:
        if len(taken) == 3:
            taken.append(None)
            raise KeyboardInterrupt
        taken.append(None)
        return 1e-3

    monkeypatch.setattr(calibrate, "grid", lambda *_: GRID[-8:])
    monkeypatch.setattr(calibrate, "seconds", clock)
    with pytest.raises(KeyboardInterrupt):
        calibrate.measure("cpu", CPU, path)
    assert len(measure.read(path)) == 3
    assert [one.name for one in calibrate.measure("cpu", CPU, path)] == [o.name for o in GRID[-8:]]
    assert len(taken) == 1 + 8
    calibrate.measure("cpu", CPU, path)
    assert len(taken) == 1 + 8


def test_the_command_measures_into_the_file_and_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate, "seconds", stop)
    path = tmp_path / "times.jsonl"
    result = run("--measurements", path, "--out", tmp_path / "mine.toml")
    assert result.exit_code == 130
    assert f"kept in {path}" in result.stderr.replace("\n", "")


def test_a_profile_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mine.toml"
    calibrate.write(CPU, out)
    assert find(out) == CPU
    before = out.read_text()

    def broken(_: Profile) -> str:
        raise OSError("no space left")

    monkeypatch.setattr(calibrate, "render", broken)
    with pytest.raises(OSError, match="no space"):
        calibrate.write(CPU, out)
    assert out.read_text() == before
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("name", known())
def test_every_figure_is_shown_with_its_source_and_a_mark(name: str) -> None:
    text, profile = run("--show", name).stdout, find(name)
    for key in profile.figures:
        (line,) = (line for line in text.splitlines() if line.startswith(f"{key} "))
        assert ("  ?  " in line) == (key in profile.unconfirmed), line
        assert profile.sources[key].split()[0] in line
    assert f"{len(profile.unconfirmed)} of {len(profile.figures)} figures" in text


def test_a_cuda_name_is_shown() -> None:
    assert run("--show", "NVIDIA H100 80GB HBM3").stdout.startswith("h100: ")


def test_what_cannot_be_tuned_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_refused(run("--show", "v100"), "no device profile is called 'v100'")
    check_refused(run("--device", "tpu"), "cpu or cuda")
    check_refused(run("--profile", "h200"), "h200 is not one of a cpu device")
    check_refused(run("--refit", "--measurements", tmp_path / "x.jsonl"), "no such file")
    check_refused(run("--out", tmp_path / "no" / "x.toml"), "there is no folder")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check_refused(run("--device", "cuda"), "torch sees no CUDA device")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA V100")
    check_refused(run("--device", "cuda"), "'NVIDIA V100'", "--profile")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name}", name="scipy")

    monkeypatch.setattr(importlib, "import_module", missing)
    check_refused(run("--refit"), "needs the package scipy", "pip install 'eqsat[tune]'")
