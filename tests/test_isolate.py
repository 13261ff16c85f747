"""Limits hold, whatever a program or a rule is like, and a search that dies takes nothing along."""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import eqsat
import rewrites
from benchmarks.fuzzing.traps import TRAPS, chain, inputs
from eqsat import Limits, Rewrite, apart, isolate, search
from eqsat.cli import app
from eqsat.engine import EngineError
from eqsat.inductor import Pass
from eqsat.meta import Meta
from eqsat.resident import resident
from eqsat.rewrite import ROUNDING
from eqsat.saturate import IterationSize, StopReason
from eqsat.settings import ALWAYS

MERGE = Rewrite("twice", lambda x: (x + x, x * 2))
AC = (
    Rewrite("commute", lambda a, b: (a + b, b + a)),
    Rewrite("associate", lambda a, b, c: ((a + b) + c, a + (b + c)), numerics=ROUNDING),
)
X = torch.linspace(-1, 1, 8)


class Sum(nn.Module):
    """Two relus too many, and a sum for rules to match."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.relu(torch.relu(x))) + x


NEGATE = Rewrite("neg-neg", lambda x: (torch.neg(torch.neg(x)), x))
RELU = Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)))


def check(**options: Any) -> eqsat.Report:
    """The report of an isolated search, whose result computes what the program computes."""
    result = eqsat.optimize(Sum().eval(), (X,), isolate=True, **options)
    assert torch.equal(result.module(X), Sum()(X))
    return result.report


def during(action: Callable[[], Any]) -> Rewrite:
    """A rule in whose condition something happens."""

    def when(a: Meta, b: Meta) -> bool:
        return a == b and bool(action())

    return Rewrite("during", lambda a, b: (a + b, b + a), when=when)


def test_isolated_search_finds_what_any_search_finds() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 4)).eval()
    options: dict[str, Any] = {"extractor": "greedy-dag", "margin": ALWAYS}
    plain, alone = (eqsat.optimize(model, (X,), isolate=way, **options) for way in (False, True))
    assert str(plain.program.graph) == str(alone.program.graph)
    assert plain.report.kept is None
    for name in ("before", "after", "operators_after", "coverage", "folded_bytes"):
        assert getattr(plain.report, name) == getattr(alone.report, name)
    assert {"saturate", "extract"} <= alone.report.seconds.keys()


def test_nothing_is_searched_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    explore = search.explore

    def seen(*args: Any, **options: Any) -> Any:
        pids.append(os.getpid())  # in the fork: this process never sees it
        return explore(*args, **options)

    monkeypatch.setattr(isolate, "explore", seen)
    assert check(rules=[RELU], margin=ALWAYS).kept is None
    assert pids == []


def test_progress_is_told_here() -> None:
    sizes: list[IterationSize] = []
    report = check(rules=[RELU], progress=sizes.append)
    assert report.saturation is not None
    assert tuple(sizes) == report.saturation.iterations


def _crash() -> None:
    faulthandler.disable()  # pytest's own prints a page
    os.kill(os.getpid(), signal.SIGSEGV)


ENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal 9"),
    "crashed": (_crash, "killed by signal 11"),
    "left": (lambda: os._exit(3), "exit code 3"),
    "hung": (lambda: time.sleep(60), "longer than its limits"),
    "stopped": (lambda: os.kill(os.getpid(), signal.SIGSTOP), "longer than its limits"),
}


@pytest.mark.parametrize("end", ENDS)
def test_search_that_dies_gives_the_given_program_back(end: str) -> None:
    action, said = ENDS[end]
    seconds = 0.3 if said.startswith("longer") else 5.0
    limits = Limits(seconds=seconds)
    report = check(rules=[during(action)], limits=limits, time_limit=seconds)
    assert said in (report.kept or "")


def test_search_inside_a_compiler_may_die() -> None:
    action, said = ENDS["killed"]
    dies, lives = (
        Pass(rules=rules, isolate=True, margin=ALWAYS, cache=False)
        for rules in ((during(action),), (RELU,))
    )
    for optimizer in (dies, lives):
        torch.compiler.reset()
        options = {"joint_custom_pre_pass": optimizer}
        compiled = torch.compile(Sum(), options=options)
        with torch._inductor.config.patch(force_disable_caches=True):
            assert torch.equal(compiled(X), Sum()(X))
    assert [said in str(region) for region in dies.regions] == [True]
    assert [region.kept for region in lives.regions] == [None]
    assert lives.regions[0].rules == (RELU.name,)


def test_engine_that_breaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise EngineError("PanicException: in Rust")

    monkeypatch.setattr(search, "saturate", broken)
    assert "EngineError: PanicException: in Rust" in (check(rules=[RELU]).kept or "")


def test_search_is_killed_when_it_takes_too_much_memory() -> None:
    held: list[bytearray] = []

    def creep() -> None:
        for _ in range(4_000):
            held.append(bytearray(b"x" * (1 << 20)))
            time.sleep(1e-4)

    report = check(rules=[during(creep)], memory_limit=100 << 20)
    assert "more than 104,857,600 bytes" in (report.kept or "")


def test_one_huge_piece_of_memory_is_refused_at_once() -> None:
    def huge() -> None:
        torch.ones(1 << 30).sum()  # 4 GB, all of it between two looks
        os._exit(7)

    report = check(rules=[during(huge)], memory_limit=100 << 20)
    assert "exit code 7" not in (report.kept or "")


def test_an_e_graph_in_this_process_stops_growing_at_the_limit_of_memory() -> None:
    program = torch.export.export(chain(100), inputs(), strict=False)
    limits = Limits(enodes=10_000_000, seconds=60.0)
    options: dict[str, Any] = {"limits": limits, "extractor": "tree", "check": False}
    result = eqsat.optimize(program, rules=AC, memory_limit=40 << 20, **options)
    assert result.report.saturation is not None
    assert result.report.saturation.stop is StopReason.MEMORY


def test_memory_of_this_process_is_seen() -> None:
    before = resident()
    block = bytearray(b"x" * (64 << 20))
    after = resident()
    assert before is not None
    assert after is not None
    assert after - before > len(block) // 2


@cache
def trap(name: str) -> torch.export.ExportedProgram:
    """The program, exported once."""
    return torch.export.export(TRAPS[name]().eval(), inputs(), strict=False)


SEARCHED = [*((name, rewrites.DEFAULT) for name in TRAPS), ("chain", AC), ("siblings", AC)]


@pytest.mark.parametrize(("name", "rules"), SEARCHED)
def test_no_search_outlives_its_limits(
    name: str, rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: list[float] = []

    def timed(*args: Any) -> Any:
        started = time.perf_counter()
        try:
            return apart.apart(*args)
        finally:
            spent.append(time.perf_counter() - started)

    monkeypatch.setattr(isolate, "apart", timed)
    options: dict[str, Any] = {"limits": Limits(seconds=0.7), "time_limit": 0.7, "check": False}
    program = trap(name)
    result = eqsat.optimize(program, rules=rules, isolate=True, memory_limit=1 << 30, **options)
    assert 0 < spent[0] < 1.5 * 1.4
    expected, got = program.module()(*inputs()), result.module(*inputs())
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_interrupt_is_passed_on_and_keeps_what_was_found() -> None:
    sizes: list[IterationSize] = []

    def interrupt(size: IterationSize) -> None:
        if not sizes:
            os.kill(os.getpid(), signal.SIGINT)
        sizes.append(size)

    slow = during(lambda: time.sleep(0.2) or True)
    report = check(rules=[RELU, slow], progress=interrupt, margin=ALWAYS)
    assert report.saturation is not None
    assert report.saturation.stop in (StopReason.INTERRUPTED, StopReason.SATURATED)


def test_second_interrupt_kills_the_search_and_is_raised() -> None:
    def twice() -> None:
        for _ in range(2):
            time.sleep(0.4)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=twice)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        check(rules=[during(lambda: time.sleep(30))])
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before
    assert check(rules=[RELU], margin=ALWAYS).kept is None


def test_interrupt_at_the_fork_reaches_the_search_and_not_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, fork = os.getpid(), os.fork

    def interrupted() -> int:
        if (pid := fork()) == 0:
            signal.raise_signal(signal.SIGINT)  # as a terminal sends it to both processes
        return pid

    monkeypatch.setattr(os, "fork", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            apart.apart(lambda _tell: time.sleep(9), 9, None, print)
    finally:
        if os.getpid() != here:
            os._exit(3)  # the caller's program runs twice
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_fork_that_is_refused_leaves_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refused)
    before = os.dup(0)
    os.close(before)
    with pytest.raises(BlockingIOError):
        apart.apart(lambda _tell: 1, 9, None, print)
    after = os.dup(0)
    os.close(after)
    assert after == before  # the lowest number that is free
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_search_may_take_forever() -> None:
    assert apart.apart(lambda _tell: 1, math.inf, None, print) == 1


def test_program_without_strides_is_isolated() -> None:
    class Sparse(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.neg(torch.neg(x)).to_sparse().to_dense() + 1

    options: dict[str, Any] = {"rules": [NEGATE], "cache": False, "margin": ALWAYS}
    result = eqsat.optimize(Sparse(), (torch.eye(3),), isolate=True, **options)
    assert result.report.kept is None
    assert torch.equal(result.module(torch.eye(3)), torch.eye(3) + 1)


def test_a_fork_leaves_no_file_and_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    fork = os.fork

    def seen() -> int:
        pids.append(fork())
        return pids[-1]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "fork", seen)
    check(rules=[during(lambda: os.kill(os.getpid(), signal.SIGKILL))])
    assert list(tmp_path.iterdir()) == []
    (pid,) = pids
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_what_cannot_be_cached_comes_back_all_the_same() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            twice = torch.relu(torch.relu(x))
            return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (twice,))

    result = eqsat.optimize(Branch().eval(), (X,), rules=[RELU], isolate=True, margin=ALWAYS)
    assert result.report.operators_after["aten.relu.default"] == 1
    assert torch.equal(result.module(X), Branch()(X))


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="memory_limit must be a positive"):
        check(memory_limit=0)
    with pytest.raises(ValueError, match="observe"):
        check(observe=lambda _: None)


def test_without_fork_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ValueError, match=r"os\.fork"):
        apart.apart(lambda _: None, 1.0, None, lambda _: None)


def test_the_command_isolates(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Sum().eval(), (X,)), tmp_path / "given.pt2")
    words = ["optimize", str(tmp_path / "given.pt2"), "-o", str(tmp_path / "out.pt2")]
    bad = CliRunner().invoke(app, [*words, "--memory-limit", "much"])
    assert bad.exit_code == 1
    assert "'much'" in bad.output
    run = CliRunner().invoke(app, [*words, "--memory-limit", "2G", "--isolate"])
    assert run.exit_code == 0, run.output
    assert (tmp_path / "out.pt2").is_file()
