"""A comparison finds a row for every arm, goes on where it stopped, and says what it found."""

from __future__ import annotations

import io
import json
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch._inductor import freezing
from typer.testing import CliRunner
from typer.testing import Result as Ran

import eqsat
from eqsat.capture import capture, constants_of
from eqsat.cli import app
from eqsat.compare import arms, command, measure, program, results, runner
from eqsat.compare.interval import interval, ratio, verdict
from eqsat.compare.listing import compared, listing, speedup
from eqsat.compare.lowering import eager, lowered
from eqsat.compare.measure import interleaved
from eqsat.compare.program import Source, subjects
from eqsat.compare.runner import processes
from eqsat.compare.task import ARMS, SEARCHES, Failure, Options, Task, blank
from eqsat.cost.inductor import kernels
from eqsat.cost.inductor.frozen import frozen
from eqsat.cost.model import CostModel
from eqsat.settings import ALWAYS
from eqsat.table import plain

PROGRAMS = '''
import os, signal, time
from collections import namedtuple
from pathlib import Path

import torch
from torch import nn


class Ordering(nn.Module):
    def forward(self, x, v, b, c, w):
        return x @ v + b + c + x @ w


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.norm = nn.Linear(16, 16), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(torch.softmax(self.query(x) @ self.key(x).mT, -1) @ x)


class Twice(nn.Module):
    def forward(self, x):
        return torch.relu(x) + torch.relu(x)


def ordering():
    """A sum of products: its terms must be swapped before they can be one product."""
    n = 512
    return Ordering(), tuple(torch.randn(*s) for s in ((n, n), (n, n), (n,), (n,), (n, n)))


def attention():
    return Attention().eval(), (torch.randn(8, 16),), {}


def twice():
    return Twice(), (torch.randn(3, 4),)


def layer():
    return nn.Linear(6, 4).eval(), (torch.randn(3, 6),)


def broken():
    raise RuntimeError("no such luck")


def killed():
    """Kills its process the first time."""
    marker = Path(__file__).with_name("killed")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return twice()


def endless():
    time.sleep(1000)


Expected = namedtuple("Expected", "text found")
Entry = namedtuple("Entry", "name set build expected about")
claims = (
    Expected("a relu", lambda result: "relu.default]" in str(result.program.graph)),
    Expected("no relu", lambda result: "relu.default]" not in str(result.program.graph)),
)
ENTRIES = {
    "once": Entry("once", "C", lambda size: twice(), claims, "the same thing twice"),
    "order": Entry("order", "B", lambda size: ordering(), (), "an order"),
}
'''
GRAPH = Options(mode="graph")  # so that a matmul of 512 costs more than to launch it
Row = dict[str, Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python file of programs."""
    path = tmp_path_factory.mktemp("programs") / "programs.py"
    path.write_text(textwrap.dedent(PROGRAMS))
    return path


def task(file: Path, name: str, arm: str = "eager", entry: str | None = None) -> Task:
    """A task of the file."""
    source = Source(str(file), "ENTRIES" if entry else name, entry)
    return Task(source, name, "full", arm, "h200", "h200", 0)


@pytest.fixture(scope="module")
def ordered(file: Path) -> dict[str, Row]:
    """The rows of the program in which the order of rewrites decides, by arm."""
    return {arm: arms.row(task(file, "ordering", arm), GRAPH) for arm in ARMS}


# Rows.


def test_every_arm_has_a_whole_row(ordered: dict[str, Row]) -> None:
    for arm, row in ordered.items():
        assert row["error"] is None, (arm, row["error"])
        assert (row["entry"], row["arm"], row["profile"]) == ("ordering", arm, "h200")
        assert row["about"].startswith("A sum of products")
        assert len(row["kernel_list"]) == row["kernels"] > 0
        assert sum(kernel["bytes"] for kernel in row["kernel_list"]) == row["bytes"] > 0
        assert row["flops"] in (2 * 512**3, 4 * 512**3)
        assert row["kernel_source"] == ("model" if arm == "eager" else "inductor")
        assert json.loads(json.dumps(row, allow_nan=False)) == json.loads(json.dumps(row))
        assert row.keys() == blank(task(Path(__file__), "x"), GRAPH).keys()


def test_rows_of_searches_say_what_the_search_did(ordered: dict[str, Row]) -> None:
    for arm in SEARCHES.keys() - {"sharing"}:
        row = ordered[arm]
        assert row["max_error"] < 1e-5
        assert row["stop"] == "saturated"
        assert row["enodes"] > 0
        assert {"capture", "saturate", "extract"} <= row["optimizer"].keys()
        assert row["iterations"]
        assert any(rule["admitted"] for rule in row["rules"])
    assert ordered["saturation"]["gap"] == 0


def test_what_rules_save_adds_up(file: Path, ordered: dict[str, Row]) -> None:
    row = arms.row(task(file, "ordering", "saturation"), replace(GRAPH, explain=True))
    saved = {rule["name"]: rule["saved"] for rule in row["rules"] if rule["saved"] is not None}
    assert saved
    assert all(seconds >= 0 for seconds in saved.values())
    given = ordered["inductor"]["modelled"]
    assert given - sum(saved.values()) == pytest.approx(row["modelled"])
    assert all("saved" not in rule for rule in ordered["saturation"]["rules"])


@pytest.mark.parametrize(("profile", "searches"), [("h200", 1), ("cpu", 2)])
def test_arms_that_only_compile_otherwise_are_searched_once(
    file: Path, monkeypatch: pytest.MonkeyPatch, profile: str, searches: int
) -> None:
    asked: list[Any] = []

    def spy(*args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["device"].freezing)
        return optimize(*args, **kwargs)

    optimize = eqsat.optimize
    monkeypatch.setattr(eqsat, "optimize", spy)
    arms._searched.cache_clear()
    for arm in ("saturation", "saturation-freezing"):
        one = replace(task(file, "layer", arm), profile=profile, device=profile)
        assert arms.row(one, Options(margin=ALWAYS))["error"] is None
    assert asked == [False, True][:searches]


def test_sharing_alone_rewrites_nothing(ordered: dict[str, Row]) -> None:
    sharing, saturated = ordered["sharing"], ordered["saturation"]
    assert not sharing["rules"]
    assert sharing["flops"] == ordered["inductor"]["flops"] > saturated["flops"]


def test_unfused_a_graph_costs_a_kernel_an_operator(ordered: dict[str, Row]) -> None:
    assert ordered["eager"]["unfused"] == ordered["eager"]["predicted"]
    assert ordered["inductor"]["unfused"] == ordered["eager"]["unfused"]
    assert ordered["inductor"]["predicted"] < ordered["inductor"]["unfused"]
    assert ordered["saturation"]["unfused"] < ordered["inductor"]["unfused"]


def test_graphs_name_their_kernels(ordered: dict[str, Row]) -> None:
    for row in ordered.values():
        nodes = row["graph_after"]["nodes"]
        held = {node["kernel"] for node in nodes if node["kernel"] is not None}
        assert held == set(range(row["kernels"]))
        names = {node["name"] for node in nodes}
        assert all(operand in names for node in nodes for operand in node["inputs"])


def test_saturation_is_no_worse_than_any_search_and_beats_greedy(ordered: dict[str, Row]) -> None:
    best = ordered["saturation"]["predicted"]
    assert all(best <= row["predicted"] * (1 + 1e-9) for row in ordered.values())
    assert best < 0.9 * ordered["greedy"]["predicted"]
    assert ordered["inductor"]["predicted"] < ordered["inductor-plain"]["predicted"]


def test_the_e_graph_shows_what_was_chosen(ordered: dict[str, Row]) -> None:
    classes = ordered["saturation"]["egraph"]["classes"]
    known = {cls["id"] for cls in classes}
    chosen = [node for cls in classes for node in cls["nodes"] if node["chosen"]]
    assert all(child in known for cls in classes for n in cls["nodes"] for child in n["children"])
    assert all(sum(n["chosen"] for n in cls["nodes"]) <= 1 for cls in classes)
    assert sum(node["op"].startswith(("matmul", "affine")) for node in chosen) == 1
    assert ordered["greedy"]["egraph"] is None


def test_what_is_expected_of_an_entry_is_looked_for(file: Path) -> None:
    row = arms.row(task(file, "once", "saturation", "once"), Options())
    assert (row["set"], row["about"]) == ("C", "the same thing twice")
    found = [(claim["text"], claim["found"]) for claim in row["expected"]]
    assert found == [("a relu", True), ("no relu", False)]


def test_a_program_that_breaks_is_an_error_in_its_row(file: Path) -> None:
    row = arms.row(task(file, "broken", "greedy"), Options())
    assert row["error"] == "RuntimeError: no such luck"
    assert row["predicted"] is None


# Lowering.


class Frozen(nn.Module):
    """Three projections of one input, and a norm behind a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.filters, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)

    def forward(self, x: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        return self.query(x) + self.key(x) * self.value(x), self.norm(self.filters(image))


def test_frozen_weights_are_merged_and_folded_as_inductor_does() -> None:
    args = (torch.randn(4, 16), torch.randn(2, 3, 8, 8))
    given = capture(Frozen().eval(), args).program
    cost = CostModel.of("h200")
    module, inputs = frozen(given, cost.device, [*constants_of(given)])
    assert len(inputs) == 2
    text = str(module.graph)
    assert "sqrt" not in text  # of the norm, which is folded
    assert text.count("aten.addmm.default]") == 1
    made = kernels(module, cost.device, inputs)
    assert len(made) < len(kernels(given, cost.device))


def test_a_program_that_inductor_cannot_lower_has_the_kernels_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not today")

    given = capture(nn.Linear(4, 4).eval(), (torch.randn(2, 4),)).program
    monkeypatch.setattr("eqsat.compare.lowering.kernels", refuse)
    found = lowered(given, CostModel.of("h200"))
    assert (found.source, found.fault, len(found.kernels)) == ("model", "not today", 1)


def test_eager_mode_launches_a_kernel_an_operator_and_none_for_a_view() -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a, b = torch.relu(x).mT.split(2)
            return torch.sin(a * b).softmax(0)

    given = capture(Views(), (torch.randn(3, 4),)).program
    found = eager(given, CostModel.of("h200")).kernels
    assert [kernel.nodes for kernel in found] == [("relu",), ("mul",), ("sin",), ("softmax",)]
    assert all(kernel.read and kernel.written for kernel in found)


# Result file.


def rows_of(file: Path, *names: str, arms_of: Sequence[str] = ("eager",)) -> list[Row]:
    """Rows with nothing but their keys."""
    return [blank(task(file, name, arm), Options()) for name in names for arm in arms_of]


def test_a_partial_last_line_is_no_row_and_is_written_over(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = rows_of(file, "twice", "attention")
    path.write_text(json.dumps(first) + "\n" + json.dumps(second)[:40])
    assert [row["entry"] for row in results.read(path).values()] == ["twice"]
    with results.appending(path) as opened:
        results.append(opened, second)
    assert [row["entry"] for row in results.read(path).values()] == ["twice", "attention"]
    assert path.read_text().count("\n") == 2


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with results.appending(path), pytest.raises(ValueError, match="another run"):
        results.appending(path).__enter__()


def test_a_damaged_line_is_told_by_its_number(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    line = json.dumps(rows_of(file, "twice")[0])
    path.write_text(f"{line}\nnonsense\n{line}\n")
    with pytest.raises(ValueError, match=r"results.jsonl, line 2: .*--fresh"):
        results.read(path)


def test_a_later_row_of_the_same_task_replaces_the_first(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = rows_of(file, "twice", "twice")
    results.write(path, [first, second | {"kernels": 7}])
    assert [row["kernels"] for row in results.read(path).values()] == [7]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"torch": "1.0"}, "torch '1.0', not"),
        ({"eqsat": "0.0.0"}, "eqsat '0.0.0', not"),
        ({"options": {"mode": "graph"}}, "mode 'graph', not 'stream'"),
        ({"code": "abc"}, "other code"),
    ],
)
def test_a_file_that_was_made_otherwise_is_refused(
    change: Row, says: str, file: Path, tmp_path: Path
) -> None:
    row = rows_of(file, "twice")[0]
    known = {results.key_of(row): json.loads(json.dumps(row)) | change}
    if "options" in change:
        known[results.key_of(row)]["options"] = row["options"] | change["options"]
    tasks = [task(file, "twice")]
    made = results.headers(tasks, Options())
    with pytest.raises(ValueError, match=says):
        results.require_same(known, tasks, made, tmp_path)
    results.require_same({results.key_of(row): row}, tasks, made, tmp_path)


# Processes.


class Fakes:
    """Workers in this process: what a task of each name does to its worker is in `fates`."""

    def __init__(self, **fates: str) -> None:
        self.fates = fates
        self.started = 0
        self.killed = 0
        self.served: list[tuple[int, str]] = []

    def start(self, *_: object) -> Any:
        """A worker that is ready."""
        self.started += 1
        ours, theirs = Pipe()
        theirs.send(runner.READY)
        process = SimpleNamespace(pid=-1, exitcode=-9, join=lambda _: None, kill=self.kill)
        worker = runner._Worker(process, ours)
        send = ours.send
        worker.pipe = SimpleNamespace(  # pyright: ignore - a connection that serves itself
            send=partial(self.serve, theirs, self.started),
            recv=ours.recv, poll=ours.poll, close=ours.close, fileno=ours.fileno,
        )  # fmt: skip
        assert send
        return worker

    def kill(self) -> None:
        """Counts it."""
        self.killed += 1

    def serve(self, pipe: Any, number: int, one: Task) -> None:
        """Answers at once, dies, or hangs."""
        self.served.append((number, one.entry))
        fate = self.fates.get(one.entry, "row")
        if fate == "row":
            pipe.send({"entry": one.entry})
        elif fate == "dies":
            pipe.close()


def outcome(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, *names: str, **options: Any
) -> dict[str, Any]:
    """What came of tasks of these names under workers that are fakes."""
    monkeypatch.setattr(runner, "_start", fakes.start)
    tasks = [task(Path("x.py"), name) for name in names]
    found = processes(tasks, dict, **{"jobs": 1, "timeout": 0.05, **options})
    return {one.entry: row for one, row in found}


def test_a_task_that_kills_its_process_twice_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(bad="dies")
    found = outcome(fakes, monkeypatch, "first", "bad", "last")
    assert found["first"] == {"entry": "first"}
    assert found["last"] == {"entry": "last"}
    assert found["bad"] == Failure("its process died (killed by signal 9), 2 times")
    assert fakes.started == 3


def test_a_task_that_hangs_is_killed_and_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(bad="hangs")
    found = outcome(fakes, monkeypatch, "first", "bad", "last")
    assert found["last"] == {"entry": "last"}
    assert found["bad"] == Failure("it took longer than the time limit, 2 times")
    assert fakes.killed >= 2


def test_a_worker_makes_room_after_so_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes()
    outcome(fakes, monkeypatch, "a", "b", "c", recycle=2)
    assert fakes.started == 2


def test_workers_keep_to_their_program(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes()
    monkeypatch.setattr(runner, "_start", fakes.start)
    tasks = [task(Path("x.py"), name, arm) for name in "ab" for arm in ARMS]
    assert len(list(processes(tasks, dict, 2, 1.0))) == len(tasks)
    assert {name for number, name in fakes.served if number == 1} == {"a"}
    assert {name for number, name in fakes.served if number == 2} == {"b"}


def test_a_killed_process_is_replaced_and_all_end_with_the_iterator(file: Path) -> None:
    work = partial(command._row, options=Options())
    file.with_name("killed").unlink(missing_ok=True)
    tasks = [task(file, "killed"), task(file, "endless")]
    started: list[Any] = []
    start = runner._start

    def note(*given: Any) -> Any:
        started.append(start(*given))
        return started[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_start", note)
        found = processes(tasks, work, 1, 60.0)
        one, row = next(found)
        assert (one.entry, len(started)) == ("killed", 2)
        assert isinstance(row, dict)
        assert (row["error"], row["kernels"]) == (None, 3)
        found.close()
    assert all(not worker.process.is_alive() for worker in started)


# The command.


def here(
    tasks: Sequence[Task], work: Callable[[Task], Row], *_: object, **__: object
) -> Iterator[Any]:
    """Does the work in this process."""
    yield from ((one, work(one)) for one in tasks)


def run(*arguments: object) -> Ran:
    """What the command did."""
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run in this process."""
    monkeypatch.setattr(command, "processes", here)


def test_results_and_table_are_written(local: None, file: Path, tmp_path: Path) -> None:
    done = run(f"{file}:twice", "-o", tmp_path, "--arm", "eager", "--arm", "saturation")
    assert done.exit_code == 0, done.output
    rows = results.read(tmp_path / "results.jsonl")
    assert [key[2] for key in rows] == ["eager", "saturation"]
    assert "1 programs (full) on h200" in done.stdout
    assert "twice" in done.stdout


def test_a_run_goes_on_where_it_was_stopped(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stopped(tasks: Sequence[Task], work: Callable[[Task], Row], *_: object) -> Iterator[Any]:
        for one in tasks:
            if one.arm == "inductor":
                raise KeyboardInterrupt
            yield one, work(one)

    def noted(tasks: Sequence[Task], work: Callable[[Task], Row], *_: object) -> Iterator[Any]:
        asked.extend(one.arm for one in tasks)
        yield from here(tasks, work)

    chosen = [f"{file}:twice", "-o", tmp_path]
    chosen += [part for arm in ("eager", "inductor", "greedy") for part in ("--arm", arm)]
    monkeypatch.setattr(command, "processes", stopped)
    done = run(*chosen)
    assert done.exit_code == 130
    assert "1 of 3 rows" in done.stderr
    assert "interrupted" in done.stderr
    monkeypatch.setattr(command, "processes", noted)
    assert run(*chosen).exit_code == 0
    assert asked == ["inductor", "greedy"]
    assert len(results.read(tmp_path / "results.jsonl")) == 3
    other = run(*chosen, "--mode", "graph")
    assert (other.exit_code, "mode 'stream', not 'graph'" in other.stderr) == (1, True)
    assert run(*chosen, "--mode", "graph", "--fresh").exit_code == 0


def test_a_lost_task_is_an_error_that_the_exit_code_tells(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(tasks: Sequence[Task], *_: object) -> Iterator[Any]:
        yield from ((one, Failure("its process died")) for one in tasks)

    monkeypatch.setattr(command, "processes", lost)
    done = run(f"{file}:twice", "-o", tmp_path, "--arm", "eager")
    assert done.exit_code == 1
    assert "twice (full), eager on h200: its process died" in done.stdout


def test_a_row_of_code_that_changed_meanwhile_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(tasks: Sequence[Task], work: Callable[[Task], Row], *_: object) -> Iterator[Any]:
        yield from ((one, work(one) | {"code": "another"}) for one in tasks)

    monkeypatch.setattr(command, "processes", other)
    done = run(f"{file}:twice", "-o", tmp_path, "--arm", "eager")
    assert (done.exit_code, "other code" in done.stderr) == (1, True)
    assert not results.read(tmp_path / "results.jsonl")


def test_entries_are_chosen_by_set_and_name(local: None, file: Path, tmp_path: Path) -> None:
    table = f"{file}:ENTRIES"
    assert run(table, "-o", tmp_path / "c", "--set", "C", "--arm", "eager").exit_code == 0
    assert [key[:2] for key in results.read(tmp_path / "c" / "results.jsonl")] == [
        ("once", "small")
    ]
    named = ("--entry", "order", "--full", "--arm", "eager")
    assert run(table, "-o", tmp_path / "n", *named).exit_code == 0
    assert [key[:2] for key in results.read(tmp_path / "n" / "results.jsonl")] == [
        ("order", "full")
    ]


def test_times_are_added_to_the_rows_once(
    local: None, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[list[str]] = []

    def measured(tasks: Sequence[Task], _: Options) -> dict[str, Row]:
        groups.append([one.arm for one in tasks])
        times = {"1": {"median": 1.0, "low": 0.5, "high": 2.0, "times": [1.0] * 6}}
        found: dict[str, Row] = {one.arm: {"measured": times, "max_error": 0.5} for one in tasks}
        return found | {"greedy": {"measured": None, "error": "Inductor: no"}}

    monkeypatch.setattr("eqsat.compare.measure.measured", measured)
    chosen = [f"{file}:twice", "-o", tmp_path, "--arm", "eager", "--arm", "greedy"]
    assert run(*chosen).exit_code == 0
    for _ in range(2):
        assert run(*chosen, "--measure").exit_code == 1
        rows = [*results.read(tmp_path / "results.jsonl").values()]
        assert rows[0]["measured"]["1"]["median"] == rows[0]["max_error"] * 2 == 1.0
        assert (rows[0]["error"], rows[1]["error"]) == (None, "Inductor: no")
        assert rows[1]["kernels"] is not None
    assert groups == [["eager", "greedy"]]


def test_a_saved_program_is_compared(local: None, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.Linear(4, 4).eval(), (torch.randn(2, 4),)), path)
    done = run(path, "-o", tmp_path, "--arm", "inductor", "--arm", "saturation")
    assert done.exit_code == 0, done.output
    rows = results.read(tmp_path / "results.jsonl")
    assert [(row["entry"], row["kernels"]) for row in rows.values()] == [("model", 1)] * 2


def test_mistakes_are_told_in_one_line(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "checkout", lambda: tmp_path)
    for arguments, says in (
        ((), "name a program"),
        (("model.onnx",), "a program is a .pt2 file or file.py:name"),
        ((f"{file}:nothing",), "nothing called 'nothing'"),
        (("none.pt2",), "no such file"),
        ((f"{file}:twice", "--arm", "gredy"), "arm 'gredy': one of eager"),
        ((f"{file}:twice", "--profile", "h900"), "h900"),
        ((f"{file}:twice", "--entry", "other"), "no entry is called 'other'"),
        ((f"{file}:ENTRIES", "--set", "D"), "set 'D'"),
        ((f"{file}:ENTRIES", "--set", "A"), "no entry is in the sets A"),
        ((f"{file}:twice", f"{file}:twice"), "two programs are called 'twice'"),
        (("--zoo",), "there is no zoo"),
    ):
        done = run(*arguments, "-o", tmp_path / "out")
        assert done.exit_code == 1, arguments
        assert says in done.stderr, (says, done.stderr)
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_zoo_of_the_checkout_is_found(file: Path) -> None:
    found = subjects(f"{file}:ENTRIES")
    assert list(found) == ["once", "order"]
    assert program.subject(found["order"]).set == "B"


# What a person reads.


def fake(entry: str, arm: str, micro: float | None, **fields: Any) -> Row:
    """A row with a predicted time."""
    row = blank(task(Path(__file__), entry, arm), Options())
    seconds = None if micro is None else micro * 1e-6
    return row | {"predicted": seconds, "modelled": seconds, "kernels": 3} | fields


def test_the_headline_says_how_searches_stand() -> None:
    rows = [
        fake("a", "inductor", 40), fake("a", "greedy", 20), fake("a", "saturation", 10),
        fake("b", "inductor", 10), fake("b", "greedy", 10), fake("b", "saturation", 10),
        fake("c", "greedy", 10), fake("c", "saturation", 12),
    ]  # fmt: skip
    found = speedup(rows, "saturation")
    assert found is not None
    assert (math.isclose(found[0], 2.0), found[1]) == (True, 2)
    assert compared(rows, "saturation", "greedy") == {
        "better": ["a"],
        "equal": ["b"],
        "worse": ["c"],
    }
    text = plain(listing(rows))
    assert "greedy 1.41x, saturation 2.00x" in text
    assert "saturation against greedy: better on 1, equal on 1, worse on 1 (c)" in text
    assert "10 3*" in text


def test_a_narrow_terminal_has_room_for_every_arm_and_its_program() -> None:
    rows = [fake("linear-attention", arm, 12345.6) for arm in ARMS]
    console = Console(width=80, file=io.StringIO(), color_system=None)
    with console.capture() as shown:
        console.print(listing(rows))
    lines = [line for line in shown.get().splitlines() if "12,346" in line]
    assert len(lines) == 2
    assert all(line.startswith("linear-attention ") for line in lines)
    assert sum(line.count("12,346 3*") for line in lines) == len(ARMS)


def test_errors_and_what_was_not_found_are_listed() -> None:
    claims = [{"text": "a slice moved", "found": False}, {"text": "a merge", "found": True}]
    rows = [fake("a", "saturation", 10, expected=claims), fake("b", "eager", None, error="broke")]
    text = plain(listing(rows))
    assert "1 of 2 found" in text
    assert "not found on h200: a: a slice moved" in text
    assert "b (full), eager on h200: broke" in text


def test_faster_is_said_only_where_the_interval_of_ratios_says_so() -> None:
    base = [1.0 + 0.1 * (i % 5) for i in range(31)]
    assert verdict([0.96 * t for t in base], base) == "faster"  # in pairs, though they overlap
    assert verdict([1.04 * t for t in base], base) == "slower"
    for share in (0.98, 1.02):  # two compilations of one program differ as much
        assert verdict([share * t for t in base], base) == "no difference"
    noisy = [t * (1.05 if i % 2 else 0.95) for i, t in enumerate(base)]
    assert verdict(noisy, base) == "no difference"
    times = {"median": 1e-3, "low": 1e-3, "high": 1e-3}
    rows = [
        fake("a", "inductor", 10, measured={"1": times | {"times": base}}),
        fake("a", "saturation", 5, measured={"1": times | {"times": [t / 2 for t in base]}}),
    ]
    assert "2.00x+" in plain(listing(rows))


def test_the_interval_of_a_median_is_that_of_order_statistics() -> None:
    found = interval(range(1, 32))
    assert (found.median, found.low, found.high) == (16, 10, 22)  # a table of the sign test
    assert interval([1.0] * 5).low == -math.inf
    assert ratio([1.0] * 6, [2.0] * 6) == interval([2.0] * 6)


def test_calls_are_timed_in_turns() -> None:
    now = [0.0]
    order: list[str] = []

    def call(name: str, seconds: float) -> None:
        order.append(name)
        now[0] += seconds

    calls = {"slow": partial(call, "slow", 0.02), "fast": partial(call, "fast", 0.004)}
    times = interleaved(calls, rounds=4, clock=lambda: now[0])
    assert [round(t, 9) for t in times["slow"]] == [0.02] * 4
    assert [round(t, 9) for t in times["fast"]] == [0.004] * 4
    blocks = {"slow": ["slow"] * 2, "fast": ["fast"] * 3}  # one call to warm up; two fill a block
    turns = [order[i : i + 5] for i in range(8, len(order), 5)]
    orders = [blocks["slow"] + blocks["fast"], blocks["fast"] + blocks["slow"]]
    assert len(turns) == 4
    assert all(turn in orders for turn in turns)
    assert all(some in turns for some in orders)


def test_what_is_measured_is_compiled_as_its_arm_says(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    freeze = freezing.freeze

    def spy(*given: Any) -> Any:
        frozen, inputs = freeze(*given)
        asked.append(len(inputs))
        return frozen, inputs

    monkeypatch.setattr(freezing, "freeze", spy)
    monkeypatch.setattr(measure, "THREADS", (1,))
    chosen = ("eager", "inductor", "inductor-freezing", "saturation-freezing")
    found = measure.measured([task(file, "layer", arm) for arm in chosen], Options(margin=ALWAYS))
    for arm in chosen:
        assert len(found[arm]["measured"]["1"]["times"]) == measure.ROUNDS, found[arm]
        assert found[arm]["max_error"] < 1e-5
    assert asked == [1, 1]  # the weights are no inputs, so they are frozen


# Ray.


def test_ray_finds_the_same_rows_though_a_worker_is_killed(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file.with_name("killed").unlink(missing_ok=True)
    chosen = [f"{file}:killed", f"{file}:twice", "-o", tmp_path, "--arm", "eager"]
    done = run(*chosen, "--ray", "local", "--jobs", 2)
    assert done.exit_code == 0, done.output
    found = results.read(tmp_path / "results.jsonl").values()
    expected = [arms.row(task(file, name), Options()) for name in ("killed", "twice")]
    assert json.loads(json.dumps(expected)) == list(found)
    assert file.with_name("killed").exists()
