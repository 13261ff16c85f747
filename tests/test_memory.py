"""What a program takes while it runs is predicted, kept within bounds, and folding keeps to its."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import eqsat
from eqsat import Rewrite, search
from eqsat.fold import compute
from eqsat.inductor import Pass
from eqsat.peak import Memory, peak
from eqsat.settings import ALWAYS

X = torch.linspace(-1, 1, 1_000).reshape(10, 100)  # 4,000 bytes


def check(function: Callable[..., Any], expected: int) -> None:
    """The peak of what the function makes, in bytes."""
    graph = make_fx(function, tracing_mode="fake")(X).graph
    assert peak(graph) == expected


def test_a_value_is_free_once_it_is_read() -> None:
    check(lambda x: x.sin().cos().exp().tanh(), 8_000)


def test_values_that_wait_are_counted() -> None:
    def wait(x: Tensor) -> Tensor:
        a, b, c = x.sin(), x.cos(), x.exp()
        return a + (b + c)

    check(wait, 16_000)  # the three, and a sum


def test_results_stay_to_the_end() -> None:
    check(lambda x: (x.sin(), x.cos(), x.exp().tanh()), 16_000)


def test_a_view_is_its_base() -> None:
    check(lambda x: x.t().reshape(-1)[5:].sin(), 4_000 + 3_980)
    check(lambda x: x.sin().t()[3:], 4_000)
    check(lambda x: torch.split(x.sin(), 5)[1].cos(), 6_000)


def test_a_result_of_two_tensors_is_both() -> None:
    check(lambda x: torch.topk(x, 10)[0], 10 * 10 * (4 + 8))


def test_a_view_in_a_loaded_program_is_its_base(tmp_path: Any) -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x).view(100, 10).transpose(0, 1).view(10, 10, 10)[0]

    program = torch.export.export(Views(), (X,)).run_decompositions({})
    torch.export.save(program, tmp_path / "views.pt2")
    assert peak(program.graph) == 4_000
    assert peak(torch.export.load(tmp_path / "views.pt2").graph) == 4_000


STEPS = (torch.sin, torch.relu, lambda a: a.t(), lambda a: a.reshape(-1)[1:].clone())


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=8))
def test_the_peak_is_what_an_interpreter_holds(steps: list[tuple[int, int]]) -> None:
    def program(x: Tensor) -> Tensor:
        values = [x]
        for read, step in steps:
            values.append(STEPS[step](values[read % len(values)]))
        return values[-1] * 2

    module = make_fx(program, tracing_mode="fake")(X)
    module.graph.eliminate_dead_code()
    most = 0

    class Run(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            nonlocal most
            result = super().run_node(n)
            live = [v for v in (*self.env.values(), result) if isinstance(v, Tensor)]
            storages = {v.untyped_storage()._cdata: v.untyped_storage().nbytes() for v in live}
            storages.pop(X.untyped_storage()._cdata, None)
            most = max(most, sum(storages.values()))
            return result

    Run(module).run(X)
    assert peak(module.graph) == most


class Sums(nn.Module):
    """A product with a large matrix that is made of two small ones."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(100, 2) / 10, requires_grad=False)
        self.b = nn.Parameter(torch.randn(2, 100) / 10, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.a @ self.b)


def test_report_tells_the_memory_before_and_after() -> None:
    report = eqsat.optimize(Sums(), (X,), margin=ALWAYS, rules=()).report
    assert report.memory_before == Memory(40_000 + 4_000, 1_600)
    folded = eqsat.optimize(Sums(), (X,), margin=ALWAYS, fold_budget=1 << 20, rules=()).report
    assert folded.memory_after == Memory(4_000, 40_000)
    assert "intermediates 44 kB -> 4 kB at their peak" in " ".join(str(folded).split())
    assert "weights 1.6 kB -> 40 kB" in str(folded)
    assert json.dumps(folded.to_dict())


class Two(nn.Module):
    """A product of weights that nothing needs whole, where folding takes their place."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(100), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.relu(x)) * (self.scale[:, None] @ self.scale[None])[:10]


def test_what_buys_speed_with_memory_is_refused() -> None:
    options: dict[str, Any] = {"rules": (), "fold_budget": 1 << 20}
    model = Two()
    free = eqsat.optimize(model, (X,), **options)
    assert free.report.folded_bytes == 40_000
    bound = eqsat.optimize(model, (X,), max_memory_growth=0.5, **options)
    assert bound.report.folded_bytes == 0
    assert "times the memory" in (bound.report.kept or "")
    assert "max_memory_growth allows 0.5" in (bound.report.kept or "")
    assert torch.equal(bound.module(X), model(X))


def test_the_next_best_that_fits_is_taken() -> None:
    model = Two()
    relu = Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)))
    options: dict[str, Any] = {"rules": (relu,), "margin": ALWAYS, "fold_budget": 1 << 20}
    given = eqsat.optimize(model, (X,), **options).report
    assert given.memory_before is not None
    assert given.memory_after is not None
    growth = given.memory_after.total / given.memory_before.total * 0.99
    result = eqsat.optimize(model, (X,), max_memory_growth=growth, **options)
    assert result.report.folded_bytes == 0
    if result.report.kept is None:
        assert result.report.operators_after["aten.relu.default"] == 1


def test_memory_is_bounded_inside_a_compiler() -> None:
    relu = Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)))
    for growth, kept in ((None, ""), (0.1, "max_memory_growth allows 0.1")):
        optimizer = Pass(rules=(relu,), margin=ALWAYS, cache=False, max_memory_growth=growth)
        torch.compiler.reset()
        model = Two()
        options = {"joint_custom_pre_pass": optimizer}
        compiled = torch.compile(model, options=options)
        with torch._inductor.config.patch(force_disable_caches=True):
            assert torch.equal(compiled(X), model(X))
        (region,) = optimizer.regions
        assert (region.kept is None) == (growth is None)
        assert kept in str(region)


def test_growth_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="max_memory_growth must be a positive factor, not 0"):
        eqsat.optimize(Sums(), (X,), max_memory_growth=0)


class Norm(nn.Module):
    """A small constant, on the way to which there is a large one."""

    def __init__(self) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.linspace(0, 1, 1_000), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.v.outer(self.v).exp().sum(0)[:100]


@pytest.mark.parametrize(("budget", "folds"), [(1 << 20, False), (16 << 20, True)])
def test_folding_holds_no_more_than_its_budget_on_the_way(
    budget: int, folds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [0]

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if type(result) is Tensor and result.device.type == "cpu":
                held.append(result.untyped_storage().nbytes())
            return result

    def watched(*args: Any) -> Any:
        with Largest():
            return compute(*args)

    monkeypatch.setattr(search, "compute", watched)
    model = Norm()
    result = eqsat.optimize(model, (X,), rules=(), fold_budget=budget, margin=ALWAYS)
    assert (result.report.folded_bytes > 0) == folds
    assert (max(held) >= 4_000_000) == folds
    torch.testing.assert_close(result.module(X), model(X))
