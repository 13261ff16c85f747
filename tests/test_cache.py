"""What was found is taken again for the same graph and settings, and for nothing else."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_compile import FAST, HOOK, Writes, through
from torch import Tensor, nn
from torch._inductor.utils import fresh_cache
from torch.export import Dim
from torch.fx import Graph
from typer.testing import CliRunner

import eqsat
import rewrites
from benchmarks.models import bert_classifier, gpt2
from eqsat import cache, search
from eqsat.cache import folder, load, store
from eqsat.cli import app
from eqsat.expression import Expr
from eqsat.fingerprint import code, fingerprint
from eqsat.inductor import Pass
from eqsat.meta import Meta
from eqsat.rewrite import RELAXED, ROUNDING, Rewrite, finite
from eqsat.saturate import Limits, StopReason
from eqsat.search import fake_mode
from eqsat.settings import ALWAYS, Settings

RULES = (
    Rewrite("associate", lambda a, b, c: ((a @ b) @ c, a @ (b @ c)), numerics=ROUNDING),
    Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x))),
    Rewrite("mul-zero", lambda x, y: (x * 0.0 + y, y), facts=(finite("x"),), numerics=RELAXED),
    Rewrite("mul-one", lambda x: (x * 1.0, x)),
)
OPTIONS: dict[str, Any] = {
    "rules": RULES,
    "numerics": "relaxed",
    "extractor": "greedy-dag",
    "margin": ALWAYS,
    "check": False,
}
X = torch.linspace(-1, 1, 40).reshape(5, 8)


@pytest.fixture(autouse=True)
def place(searching_anew: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the cache, empty."""
    monkeypatch.setattr(cache, "folder", folder)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return tmp_path / "inductor" / "eqsat"


class Layers(nn.Module):
    """Two weights, one after the other, and a function of them and the input."""

    def __init__(self, function: Callable[..., Any] | None = None, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(8, 8, generator=generator), requires_grad=False)
        self.second = nn.Parameter(torch.randn(8, 8, generator=generator), requires_grad=False)
        self.register_buffer("scale", torch.linspace(0.5, 2, 8))
        self.function = function or (lambda m, x: torch.relu(torch.relu(x @ m.first @ m.second)))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def run(module: nn.Module, x: Tensor = X, **options: Any) -> eqsat.Result:
    """The result, which computes what the module computes."""
    result = eqsat.optimize(module.eval(), (x,), **{**OPTIONS, **options})
    assert "failed" not in (result.report.kept or ""), result.report.kept
    torch.testing.assert_close(result.module(x), module(x), equal_nan=True)
    return result


def cached(module: nn.Module, x: Tensor = X, **options: Any) -> bool:
    """Whether the result came from the cache."""
    return run(module, x, **options).report.cached


def test_a_second_run_searches_nothing_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(Layers(), check=True)
    monkeypatch.setattr(search, "saturate", None)
    second = run(Layers(), check=True)
    assert (first.report.cached, second.report.cached) == (False, True)
    assert str(second.program.graph) == str(first.program.graph)
    assert second.report.check is not None
    assert second.report.check.passed
    assert "from the cache" in str(second.report)
    for name in ("saturation", "before", "after", "extractions", "folded_bytes", "coverage"):
        assert getattr(second.report, name) == getattr(first.report, name)


def test_that_nothing_is_better_is_remembered() -> None:
    module = Layers(lambda _, x: torch.relu(x))
    first, second = (run(module, margin=0.05).report for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
    assert second.kept == first.kept
    assert "nothing faster" in (first.kept or "")


@pytest.mark.parametrize(("build", "dynamic"), [(bert_classifier, False), (gpt2, True)])
def test_a_model_comes_back_as_it_was_found(build: Callable[..., Any], dynamic: bool) -> None:
    module, args, _ = build(layers=1, hidden=32, heads=2, vocabulary=64)
    shapes = tuple({0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for _ in args) if dynamic else None
    args = tuple(a.repeat(2, 1) for a in args)
    program = torch.export.export(module, args, dynamic_shapes=shapes)
    options = {"margin": ALWAYS, "check": False, "limits": Limits(iterations=5)}
    first, second = (eqsat.optimize(program, extractor="greedy-dag", **options) for _ in range(2))
    assert (first.report.cached, second.report.cached) == (False, True)
    pairs = zip(first.program.graph.nodes, second.program.graph.nodes, strict=True)
    for a, b in pairs:
        assert a.format_node() == b.format_node()
        assert str(a.meta["val"]) == str(b.meta["val"]) if "val" in a.meta else True
        assert a.meta.get("stack_trace") == b.meta.get("stack_trace")
    with torch.no_grad():
        expected, result = module(*args), second.module(*args)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


def test_names_decide_nothing() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            given = Layers()
            self.linear, self.relu_1 = given.first, given.second
            self.register_buffer("unread", given.scale)

        def forward(self, value: Tensor) -> Tensor:
            return torch.relu(torch.relu(value @ self.linear @ self.relu_1))

    for shapes in (None, ({0: Dim.DYNAMIC},)):  # a symbol has the name of its argument
        assert not cached(Layers(), dynamic_shapes=shapes)
        assert cached(Other(), dynamic_shapes=shapes)


CHANGES: dict[str, dict[str, Any]] = {
    "device": {"device": "a100"},
    "mode": {"mode": "graph"},
    "numerics": {"numerics": "default"},
    "extractor": {"extractor": "tree"},
    "limits": {"limits": Limits(iterations=3)},
    "time limit": {"time_limit": 4.0},
    "fold budget": {"fold_budget": 1 << 20},
    "margin": {"margin": 0.01},
    "search": {"search": "fixpoint"},
    "rules": {"rules": RULES[:1]},
    "order of rules": {"rules": RULES[::-1]},
    "dtype": {"x": X.double()},
    "shape": {"x": X[:3]},
    "strides": {"x": X.T.contiguous().T},
    "dynamic": {"dynamic_shapes": ({0: Dim.DYNAMIC},)},
}


def test_all_that_decides_makes_a_search_of_its_own() -> None:
    module = Layers(lambda m, x: torch.relu(torch.relu(x)) * m.scale.to(x.dtype))
    assert not cached(module)
    for name, change in CHANGES.items():
        assert not cached(module, **change), name
    for name, change in CHANGES.items():
        assert cached(module, **change), name
    with fresh_cache():
        assert not cached(module)


def test_the_range_of_a_size_decides() -> None:
    def known(limit: int, most: int) -> bool:
        def short(x: Meta) -> bool:
            return bool(x.shape[0] < limit)

        rule = Rewrite("relu-short", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)), short)
        shapes = ({0: Dim("rows", min=2, max=most)},)
        report = run(
            Layers(lambda _, x: torch.relu(torch.relu(x))), rules=[rule], dynamic_shapes=shapes
        ).report
        assert report.operators_after["aten.relu.default"] == (1 if most < limit else 2)
        return report.cached

    assert [known(16, most) for most in (8, 64, 8, 64)] == [False, False, True, True]
    assert [known(12, most) for most in (8, 64)] == [False, False]  # what a rule has bound


class Weighted(nn.Module):
    """A buffer times zero, or one number times the input: what rules make of it, values decide."""

    def __init__(self, buffer: Tensor, number: float) -> None:
        super().__init__()
        self.register_buffer("buffer", buffer)
        self.register_buffer("number", torch.tensor(number))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.buffer * 0.0 + x) * self.number


def test_values_that_decide_are_told_apart() -> None:
    finite_, infinite = torch.ones(8), torch.tensor([1.0, torch.inf] * 4)
    assert not cached(Weighted(finite_, 1.0))
    assert not cached(Weighted(infinite, 1.0))  # NaN now: `run` compares
    assert not cached(Weighted(finite_, 2.0))
    assert not cached(Weighted(infinite, 2.0))
    assert cached(Weighted(infinite.clone(), 2.0))


def test_values_that_decide_nothing_are_folded_anew() -> None:
    module = Layers()
    assert run(module).report.folded_bytes == 8 * 8 * 4
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        module.first.copy_(module.first[order])  # the same bounds: all that a search sees
    again = run(module)
    assert again.report.cached
    folded = [v for k, v in again.program.state_dict.items() if k.startswith("folded")]
    torch.testing.assert_close(folded, [module.first @ module.second])


def test_which_inputs_are_constants_and_which_of_them_are_one_decides() -> None:
    def product(m: Layers, x: Tensor) -> Tensor:
        return x @ m.first @ m.second

    written = Layers(lambda m, x: (product(m, x), m.first.add_(0))[0])
    tied = Layers(product)
    tied.second = tied.first
    laid = Layers(product)
    laid.first = nn.Parameter(laid.first.T.contiguous().T, requires_grad=False)
    assert [cached(m) for m in (Layers(product), written, tied, laid)] == [False] * 4
    assert [cached(m) for m in (Layers(product), tied, laid)] == [True] * 3


def entries(place: Path) -> list[Path]:
    """The files in the cache."""
    return sorted(place.glob("*.entry")) if place.is_dir() else []


def digested(text: str) -> str:
    """A text as an entry that passes for a whole one."""
    return f"{cache._digest(text)}\n{text}"


def damages(text: str) -> list[str]:
    """Entries that are cut short, changed, of another form, or of another graph."""
    data = json.loads(text.partition("\n")[2])
    steps = data[5]

    def calling(target: str) -> list[Any]:
        called = [[*s[:2], target, *s[3:]] if s[0] == "call_function" else s for s in steps]
        return [*data[:5], called, *data[6:]]

    made = [calling("aten.mm.default"), calling("aten.add.Tensor"), calling("os.system.default")]
    made += [[*data[:5], steps[1:], *data[6:]], data[:-1], {}, []]
    return ["", text[:-9], text.replace("saturated", "finished"), digested("no JSON")] + [
        digested(json.dumps(d)) for d in made
    ]


def test_a_damaged_entry_is_computed_anew_and_said(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not cached(Layers())
    (path,) = entries(place)
    whole = path.read_text()
    for damaged in damages(whole):
        assert damaged != whole
        path.write_text(damaged)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "eqsat"):
            assert not cached(Layers())
        assert ["computed anew" in r.getMessage() for r in caplog.records] == [True], damaged[:80]
        assert cached(Layers())
    path.write_bytes(b"\xff\xfe")
    assert not cached(Layers())
    assert cached(Layers())


def test_a_folder_that_cannot_be_written_changes_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.parent.mkdir()
    place.write_text("a file where the folder would be")
    assert [cached(Layers()) for _ in range(2)] == [False, False]
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(place / "within"))
    assert [cached(Layers()) for _ in range(2)] == [False, False]


def test_a_full_disk_changes_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        assert not cached(Layers())
    assert list(place.iterdir()) == []
    assert not cached(Layers())


def test_it_can_be_turned_off(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [cached(Layers(), cache=False) for _ in range(2)] == [False, False]
    with torch._inductor.config.patch(force_disable_caches=True):
        assert [cached(Layers()) for _ in range(2)] == [False, False]
    assert not place.exists()
    assert [cached(Layers()) for _ in range(2)] == [False, True]


def test_what_a_person_ended_is_not_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saturate = search.saturate

    def ended(*arguments: Any) -> Any:
        snapshot, record = saturate(*arguments)
        object.__setattr__(record, "stop", StopReason.INTERRUPTED)
        return snapshot, record

    with monkeypatch.context() as patched:
        patched.setattr(search, "saturate", ended)
        assert not cached(Layers())
    assert entries(place) == []
    limits = Limits(seconds=1e-9)
    assert [cached(Layers(), limits=limits) for _ in range(2)] == [False, True]


def settings(*rules: Rewrite, extractor: Any = "auto") -> Settings:
    """Settings with these rules."""
    return Settings.of(rules=rules, numerics="relaxed", extractor=extractor)


def test_what_the_functions_of_a_rule_have_bound_decides() -> None:
    def rule(limit: float, helper: Callable[..., bool] | None = None) -> Rewrite:
        def when(x: Meta) -> bool:
            return x.ndim < limit and (helper is None or helper(x))

        return Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)), when)

    def sides(number: float) -> Callable[..., tuple[Expr, Expr]]:
        return lambda x: (x * number, x)

    def bound(least: int) -> Callable[[Meta], bool]:
        return lambda x: x.ndim > least

    rules = [
        rule(2),
        rule(3),
        rule(2.0),
        rule(2, bound(0)),
        rule(2, bound(1)),
        Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x))),
        Rewrite("one", sides(1.0)),
        Rewrite("one", sides(1.0), numerics=RELAXED),
        Rewrite("one", sides(1.0), facts=(finite("x"),)),
    ]
    found = [fingerprint(settings(r)) for r in rules]
    assert None not in found
    assert len(set(found)) == len(found)
    assert fingerprint(settings(rule(2, bound(1)))) == found[4]
    typed = Rewrite("typed", eval("lambda x: (torch.relu(-x), -x)"))
    assert fingerprint(settings(typed)) is None
    assert fingerprint(settings(rule(2, torch.randn(3).__eq__))) is None  # of no known value
    assert fingerprint(settings(extractor=lambda *_, **__: None)) != fingerprint(settings())


def test_what_is_not_told_is_not_kept(place: Path) -> None:
    typed = Rewrite("typed", eval("lambda x: (torch.relu(torch.relu(x)), torch.relu(x))"))
    assert [cached(Layers(), rules=[typed]) for _ in range(2)] == [False, False]

    def branches(m: Layers, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x @ m.first, lambda x: x @ m.second, (x,))

    assert [cached(Layers(branches)) for _ in range(2)] == [False, False]
    assert entries(place) == []


def test_the_command_takes_it_from_the_cache_or_not(tmp_path: Path) -> None:
    model, report = tmp_path / "model.pt2", tmp_path / "report.json"
    torch.export.save(torch.export.export(Layers(), (X,)), model)
    arguments = ["optimize", model, "-o", tmp_path / "out.pt2", "--json", report]
    found: list[bool] = []
    for options in ([], [], ["--no-cache"], ["--iterations", 2]):
        done = CliRunner().invoke(app, [str(a) for a in (*arguments, *options)])
        assert done.exit_code == 0, done.output
        found.append(json.loads(report.read_text())["cached"])
        assert ("from the cache" in done.stdout) == found[-1]
    assert found == [False, True, False, False]


def test_the_oldest_entries_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age, key in enumerate("dcba"):
        store(place, key, "x" * 1000)
        os.utime(place / f"{key}.entry", (age, age))
    assert load(place, "d") is not None  # is used, and so the youngest
    monkeypatch.setattr(cache, "LIMIT", 3500)
    store(place, "e", "x" * 1000)
    assert [path.stem for path in entries(place)] == ["a", "d", "e"]


def _contend(place: Path, letter: str, failed: Any) -> None:
    for _ in range(200):
        store(place, "key", letter * 50_000)
        text = load(place, "key")
        if text is None or len(text) != 50_000 or len(set(text)) != 1:
            failed.value = 1


def test_processes_that_write_one_entry_at_once_read_whole_ones(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = multiprocessing.get_context("fork")
    failed = context.Value("i", 0)
    children = [context.Process(target=_contend, args=(place, c, failed)) for c in "ab"]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert failed.value == 0
    assert [path.name for path in place.iterdir()] == ["key.entry"]


def test_a_pass_in_training_takes_what_another_found() -> None:
    x = torch.randn(64, 16)
    outcomes: list[list[Tensor]] = []
    found: list[list[bool]] = []
    for _ in range(2):
        torch._dynamo.reset()
        torch.manual_seed(0)
        module, optimizer = Writes(), Pass(margin=ALWAYS, **FAST)

        def without_guards(graph: Graph, optimizer: Pass = optimizer) -> None:
            env = fake_mode(graph).shape_env
            assert env is not None
            before = len(env.guards)
            optimizer(graph)
            assert len(env.guards) == before  # so that a hit leaves none out

        backend = through(HOOK, without_guards, caches=True)
        outputs = torch.compile(module, backend=backend, dynamic=True)(x)
        sum(o.square().sum() for o in outputs).backward()
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        outcomes.append([*outputs, module.count, *gradients])
        assert [region.kept for region in optimizer.regions] == [None]
        found.append([region.cached for region in optimizer.regions])
    assert found == [[False], [True]]
    for a, b in zip(*outcomes, strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()


def test_the_default_rules_are_told_by_the_code_of_the_packages() -> None:
    found = fingerprint(settings(*rewrites.DEFAULT))
    assert found is not None
    assert found == fingerprint(settings(*rewrites.DEFAULT))
    assert found != fingerprint(settings(*rewrites.DEFAULT[1:]))


def test_other_rules_made_the_default_are_searched_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "DEFAULT", rewrites.DEFAULT[:3])
    chosen = Settings.of(numerics="relaxed")
    assert [rule.name for rule in chosen.rules] == [rule.name for rule in rewrites.OWN[:3]]
    changed = fingerprint(chosen)
    monkeypatch.undo()
    own = Settings.of(numerics="relaxed")
    assert own.rules == settings(*rewrites.OWN).rules
    assert changed != fingerprint(own)


def _unlink(package: Path) -> None:
    (package / "__init__.py").unlink()


def _compile(package: Path) -> None:
    (package / "more.pyc").touch()


def _edit(package: Path) -> None:
    later = time.time_ns() + 10**9
    os.utime(package / "__init__.py", ns=(later, later))


@pytest.mark.parametrize("change", [_unlink, _compile, _edit])
def test_code_that_is_not_there_as_it_was_imported_gives_no_key(
    change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("eqsat", "extract", "rewrites")]
    for package in folders:
        package.mkdir()
        (package / "__init__.py").touch()
        os.utime(package / "__init__.py", ns=(0, 0))
    monkeypatch.setattr("eqsat.fingerprint._sources", lambda: code(folders))
    assert fingerprint(settings()) is not None
    change(folders[1])
    assert fingerprint(settings()) is None
    monkeypatch.setattr("eqsat.fingerprint._sources", lambda: code(folders[:1]))
    assert fingerprint(settings()) is None
