"""Threads, forks, Ctrl-C and full disks: nothing hangs, is lost, or is half written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import eqsat
from eqsat import Rewrite, cache, pipeline, search, turn
from eqsat.cache import folder
from eqsat.cli import app
from eqsat.settings import ALWAYS

X = torch.linspace(-1, 1, 40).reshape(5, 8)
RULES = (Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x))),)
OPTIONS: dict[str, Any] = {"rules": RULES, "margin": ALWAYS, "extractor": "greedy-dag"}
PATIENCE = 60.0


class Net(nn.Module):
    """A weight, and more relus than are needed."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(8, 8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.relu(x @ self.weight))


def check(seed: int = 0, **options: Any) -> eqsat.Report:
    """The report of a run whose result is equal and has one relu less."""
    model = Net(seed).eval()
    result = eqsat.optimize(model, (X,), **{**OPTIONS, **options})
    torch.testing.assert_close(result.module(X), model(X))
    assert result.report.kept is None
    assert result.report.operators_after["aten.relu.default"] == 1
    return result.report


def forked(work: Callable[[], object]) -> int:
    """The exit code of a fork that does something; one that hangs is killed: -9."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def place(searching_anew: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the cache, empty."""
    monkeypatch.setattr(cache, "folder", folder)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return tmp_path / "inductor" / "eqsat"


def in_threads(works: list[Callable[[], object]]) -> None:
    """Does all at once; raises what any of them raised."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it hangs"
    for error in errors:
        raise error


@pytest.mark.parametrize("isolate", [False, True])
def test_threads_do_not_disturb_each_other(isolate: bool) -> None:
    in_threads([lambda seed=seed: check(seed, isolate=isolate) for seed in range(4)])


def test_threads_may_share_a_program() -> None:
    model = Net().eval()
    program = torch.export.export(model, (X,))
    results: list[eqsat.Result] = []
    in_threads([lambda: results.append(eqsat.optimize(program, **OPTIONS))] * 4)
    assert [r.report.kept for r in results] == [None] * 4
    assert len({str(r.program.graph) for r in results}) == 1


def test_threads_may_share_the_cache(place: Path) -> None:
    in_threads([check] * 3)
    assert check().cached
    assert len(list(place.iterdir())) == 1


def test_a_fork_after_import_optimizes() -> None:
    assert forked(check) == 0


def test_a_fork_after_a_run_optimizes_again_and_again() -> None:
    check()
    assert forked(lambda: [check(seed) for seed in range(3)]) == 0
    assert forked(lambda: check(isolate=True)) == 0
    check()


def test_a_fork_does_not_wait_for_a_thread_of_its_parent() -> None:
    inside, leave = threading.Event(), threading.Event()

    @turn.in_turn
    def hold() -> None:
        inside.set()
        leave.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(PATIENCE)
    try:
        assert forked(check) == 0
    finally:
        leave.set()
        thread.join()


def test_forks_at_once_share_the_cache(place: Path) -> None:
    in_threads([lambda: _require(forked(check) == 0) for _ in range(3)])
    assert check().cached
    assert {path.suffix for path in place.iterdir()} == {".entry"}


def _require(fact: bool) -> None:
    assert fact


STEPS = ("capture", "searched", "rebuild", "_verify", "drop_in")
INSIDE = ("known", "encode", "saturate", "candidates", "compute", "write")


@pytest.mark.parametrize("step", [*STEPS, *INSIDE])
def test_interrupt_in_any_step_leaves_all_as_it_was(
    step: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    handler, state = signal.getsignal(signal.SIGINT), torch.random.get_rng_state()
    with monkeypatch.context() as patch:
        module = pipeline if step in STEPS else search
        patch.setattr(module, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            eqsat.optimize(Net().eval(), (X,), **OPTIONS)
    del state
    assert signal.getsignal(signal.SIGINT) is handler
    assert torch.is_grad_enabled()
    assert not list(place.glob("*")) or step not in INSIDE
    check()
    assert check().cached


def test_interrupt_while_an_entry_is_written_leaves_none(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(self: Path, text: str, **_: Any) -> None:
        self.write_bytes(text.encode()[: len(text) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", cut)
        patch.setattr("eqsat.engine.Engine._load", _load)
        with pytest.raises(KeyboardInterrupt):
            eqsat.optimize(Net().eval(), (X,), **OPTIONS)
    assert list(place.iterdir()) == []
    assert not check().cached


def _load(self: Any, relation: str, lines: list[str]) -> None:
    """Loads a table as the engine does, but not by `Path.write_text`."""
    if lines:
        path = Path(self._folder.name, f"{relation}.tsv")
        path.write_bytes(("\n".join(lines) + "\n").encode())
        self.command(f'(input {relation} "{path.name}")')


def test_a_real_interrupt_at_any_time_leaves_all_as_it_was(place: Path) -> None:
    for delay in (0.02, 0.1, 0.2, 0.4):
        timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        try:
            eqsat.optimize(Net(7).eval(), (X,), **OPTIONS)
            timer.join()
            time.sleep(0.05)
        except KeyboardInterrupt:
            pass
        finally:
            timer.join()
    check()
    assert {path.suffix for path in place.iterdir()} <= {".entry"}


def _no_room() -> None:
    """No file may grow beyond 64 bytes from here on."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))


def test_a_full_disk_gives_the_given_program_back(place: Path) -> None:
    def work() -> None:
        model = Net().eval()
        program = torch.export.export(model, (X,))
        _no_room()
        result = eqsat.optimize(program, **OPTIONS)
        assert "OSError" in (result.report.kept or "")
        assert torch.equal(result.module(X), model(X))

    assert forked(work) == 0
    assert not place.exists() or list(place.iterdir()) == []


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Net().eval(), (X,)), tmp_path / "given.pt2")
    out = tmp_path / "out"
    out.mkdir()
    (out / "fast.pt2").write_bytes(b"old")
    command = ["optimize", str(tmp_path / "given.pt2"), "-o", str(out / "fast.pt2")]

    def work() -> None:
        _no_room()
        run = CliRunner().invoke(app, command)
        assert run.exit_code == 1
        assert run.stderr.strip().splitlines()[-1].startswith("eqsat: ")
        assert "File too large" in run.stderr

    assert forked(work) == 0
    assert [(path.name, path.read_bytes()) for path in out.iterdir()] == [("fast.pt2", b"old")]


def test_a_cache_that_cannot_be_made_changes_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.parent.parent.joinpath("file").write_bytes(b"")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(place.parent.parent / "file" / "x"))
    assert not check().cached
    assert not check().cached


COMPILING = """
import threading, torch, eqsat

class Branches(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))

compiling, exporting = threading.Event(), threading.Event()

def backend(module, inputs):
    compiling.set()
    exporting.wait(30)
    exporting.clear()
    exporting.wait(1)  # until the other thread waits for this one
    return eqsat.optimize(module, tuple(inputs), cache=False).module

def compile():
    with torch.no_grad():
        torch.compile(lambda x: torch.relu(x) + 1, backend=backend)(torch.ones(4))

thread = threading.Thread(target=compile, daemon=True)
thread.start()
compiling.wait(60)
exporting.set()
print(eqsat.optimize(Branches(), (torch.ones(4),), cache=False).report.numerics)
thread.join(60)
print(thread.is_alive())
"""


def test_a_thread_that_compiles_and_one_that_exports_wait_for_each_other_in_one_order() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILING], capture_output=True, text=True, check=True, timeout=200
    )
    assert done.stdout.split() == ["default", "False"]
