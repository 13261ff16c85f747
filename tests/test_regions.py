"""Regions of a program: bodies of control flow, custom operators, subclasses, frozen weights."""

from __future__ import annotations

import ast
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from adversarial.catalogue import SMALL
from adversarial.program import Program, compare, observations
from test_compile import Residual, nothing, program, through, uncompiled
from torch import Tensor, nn
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as mapped
from torch._inductor import compile_fx, config, list_mode_options
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.export import Dim
from torch.fx import Graph
from torch.nn.attention.flex_attention import flex_attention
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import eqsat
from eqsat.inductor import FROZEN_HOOK, HOOK, Pass
from eqsat.settings import ALWAYS

Call = Callable[[Tensor, Tensor], Any]
SMALLER: dict[str, Any] = {
    "limits": eqsat.Limits(iterations=3, enodes=1_000, seconds=120.0),
    "extractor": "greedy-dag",
    "time_limit": 120.0,  # on a busy machine, too, the limits above end a search
    "margin": ALWAYS,
}


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Nothing compiled before."""
    torch._dynamo.reset()


@torch.library.custom_op("regions::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    """An operator that no optimizer knows, and that takes contiguous memory only."""
    assert x.is_contiguous()
    return x * factor


@torch.library.custom_op("regions::moved", mutates_args={"x"})
def moved(x: Tensor, y: Tensor) -> Tensor:
    """An operator that writes its first operand, and says so."""
    x.add_(y)
    return y * 2


def _scaled_alike(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


def _moved_alike(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(y)


torch.library.register_fake("regions::scaled", _scaled_alike)
torch.library.register_fake("regions::moved", _moved_alike)


def shared(x: Tensor, w: Tensor) -> Tensor:
    """Two products by one matrix, which become one."""
    return x @ w + (x * 2) @ w


def branches(x: Tensor, w: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, shared, lambda x, w: torch.relu(shared(x, w)), (x, w))


def unchanged(x: Tensor, w: Tensor) -> Tensor:
    """A branch that a rule makes its own input, which it must not return."""
    return torch.cond(x.sum() > 0, lambda x, _: x * 1.0, lambda x, w: (x @ w) @ w, (x, w))


def loop(x: Tensor, w: Tensor) -> Tensor:
    def again(i: Tensor, x: Tensor) -> Tensor:
        return i < 3

    def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.tanh(shared(x, w))

    return while_loop(again, step, (torch.tensor(0), x))[1]


def scanned(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(state @ w + row @ w)
        return state, state * 2

    return scan(step, torch.zeros(16), x)


def rows(x: Tensor, w: Tensor) -> Tensor:
    return mapped(shared, x, w)


@torch.compiler.nested_compile_region
def region(x: Tensor, w: Tensor) -> Tensor:
    return x @ w + (x * 2) @ w


def nested(x: Tensor, w: Tensor) -> Tensor:
    """A region that is compiled once and called twice."""
    return region(torch.relu(region(x, w)), w)


def scored(x: Tensor, w: Tensor) -> Tensor:
    """An attention whose scores are a function, of which Inductor makes part of a kernel."""

    def score(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return s + (q - k) * 2 + (q - k) * 3 + w[0][h]

    heads = x.reshape(1, 2, -1, 8)
    return flex_attention(heads, heads, heads, score_mod=score)  # pyright: ignore[reportReturnType]


def custom(x: Tensor, w: Tensor) -> Tensor:
    y = shared(x, w)
    return (scaled(y, 2.0) + scaled(y.t().contiguous(), 2.0).t()) @ w


def writing(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    held = torch.zeros_like(x)
    y = moved(held, shared(x, w))
    x.add_(held)
    return shared(held, w), y


def selected(x: Tensor, w: Tensor) -> Tensor:
    """Rows whose number depends on data."""
    return shared(x[x[:, 0] > 0], w)


def check(function: Call, *, dynamic: bool = False, hook: str = HOOK) -> list[eqsat.Result | Any]:
    """Compiled with the pass, a function gives and writes what it does as given; the regions."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x, w = torch.randn(8, 16), torch.randn(16, 16) / 4
    given = x.clone()
    optimizer = Pass(**SMALLER)
    backend = through(hook, optimizer)
    compiled = torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)
    captured = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
    with torch.no_grad(), captured:
        expected, result = function(given, w), compiled(x, w)
    for a, b in zip(pytree.tree_leaves(expected), pytree.tree_leaves(result), strict=True):
        torch.testing.assert_close(b, a, atol=1e-4, rtol=1e-4, check_stride=True)
        assert b.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    torch.testing.assert_close(x, given)
    return optimizer.regions


@pytest.mark.parametrize(
    ("function", "bodies"),
    [(branches, 2), (unchanged, 2), (loop, 2), (scanned, 1), (rows, 1), (nested, 1), (scored, 2)],
)
def test_each_body_of_control_flow_is_a_region(function: Call, bodies: int) -> None:
    regions = check(function, dynamic=function in (branches, loop))
    assert len(regions) == bodies + 1
    numbers = {loop: 1, scored: 2}.get(function, 0)  # a condition; a score and a mask
    assert [r.kept for r in regions].count("it computes single numbers") == numbers
    assert sum(r.kept is None for r in regions) == len(regions) - numbers
    assert any(r.rules for r in regions[:-1]) == (function is not scored)


@pytest.mark.parametrize("function", [branches, loop])
def test_gradients_go_through_optimized_bodies(function: Call) -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16) / 4
    found: list[Tensor] = []
    for pass_ in (None, Pass(**SMALLER)):
        torch._dynamo.reset()
        weight = w.clone().requires_grad_()
        compiled = torch.compile(function, backend=through(HOOK, pass_)) if pass_ else function
        compiled(x, weight).square().mean().backward()
        assert weight.grad is not None
        found.append(weight.grad)
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("function", [custom, writing])
def test_custom_operators_stay_and_what_is_around_them_is_optimized(function: Call) -> None:
    calls: list[str] = []
    (region,) = check(function)
    assert region.kept is None
    assert region.rules

    def note(graph: Graph) -> None:
        calls.extend(str(node.target) + str(node.args) for node in graph.nodes)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=through(HOOK, note))
    with torch.no_grad():
        compiled(torch.randn(8, 16), torch.randn(16, 16))
    assert any("regions." in call for call in calls)


def test_sizes_that_depend_on_data_are_optimized() -> None:
    (region,) = check(selected)
    assert region.kept is None
    assert region.rules


def test_a_wrapper_subclass_is_optimized_inside_its_wrapper() -> None:
    x, w = (TwoTensor(torch.randn(n, 16), torch.randn(n, 16)) for n in (8, 16))
    optimizer = Pass(**SMALLER)
    with torch.no_grad():
        result = torch.compile(shared, backend=through(HOOK, optimizer))(x, w)
        expected = shared(x, w)
    assert type(result) is TwoTensor
    torch.testing.assert_close(result.a, expected.a)
    torch.testing.assert_close(result.b, expected.b)
    assert [region.kept for region in optimizer.regions] == [None]


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[DeviceMesh]:
    """The only process of a distributed program."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_distributed_tensors_are_optimized_inside_their_wrapper(mesh: DeviceMesh) -> None:
    x = distribute_tensor(torch.randn(8, 16), mesh, [Shard(0)])
    w = distribute_tensor(torch.randn(16, 16), mesh, [Replicate()])
    optimizer = Pass(**SMALLER)
    compiled = torch.compile(shared, backend=through(HOOK, optimizer))
    with torch.no_grad():
        expected, result = shared(x, w), compiled(x, w)
    assert isinstance(result, DTensor)
    assert result.placements == expected.placements
    torch.testing.assert_close(result.to_local(), expected.to_local())
    assert [region.kept for region in optimizer.regions] == [None]


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_model_in_autocast_keeps_its_dtypes(name: str) -> None:
    given, optimizer = program(name), Pass(**SMALLER)
    compiled = torch.compile(given.module, backend=through(HOOK, optimizer))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = given.module(*given.args, **given.kwargs)
        result = compiled(*given.args, **given.kwargs)
    assert result.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(result, expected, atol=0.05, rtol=0.05)
    assert [region.kept for region in optimizer.regions] == [None]


def parts(text: str) -> Iterator[str]:
    """What a difference is in, without what else its text tells: of tuples, each place by itself.

    Where the stock backend is wrong in two places, ours may be in one.
    """
    if (found := re.fullmatch(r"(.*): (\(.*\)) became (\(.*\))", text)) is None:
        yield text
        return
    kind, before, after = found.groups()
    pairs = zip(ast.literal_eval(before), ast.literal_eval(after), strict=True)
    yield from (f"{kind} {i}: {a} became {b}" for i, (a, b) in enumerate(pairs) if a != b)


@pytest.mark.parametrize("given", SMALL, ids=repr)
def test_adversarial_programs_do_what_they_do_in_the_stock_backend(given: Program) -> None:
    module = given.fresh()
    eager = observations(given, module, module)
    wrong: list[set[str]] = []
    for function in (nothing, Pass(**SMALLER)):
        torch._dynamo.reset()
        module = given.fresh()
        shapes = None if given.dynamic_shapes is None else True
        compiled = torch.compile(module, backend=through(HOOK, function), dynamic=shapes)
        texts = compare(given, eager, observations(given, module, compiled))
        wrong.append({part for text in texts for part in parts(text)})
    assert wrong[1] <= wrong[0], (wrong[1] - wrong[0], wrong[0])


class Frozen(nn.Module):
    """What can be computed ahead of constant weights: a norm, and a product of two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.first, self.second = nn.Linear(8, 256), nn.Linear(256, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.convolution(x))).mean((2, 3))
        return self.second(self.first(x))


@pytest.mark.parametrize("prepack", [False, True])
@pytest.mark.parametrize("hook", [HOOK, FROZEN_HOOK])
def test_frozen_weights_are_constants(hook: str, prepack: bool) -> None:
    module, x, optimizer = Frozen().eval(), torch.randn(4, 3, 9, 9), Pass(**SMALLER)
    names: list[str] = []

    def after(graph: Graph) -> None:
        optimizer(graph)
        assert optimizer.uuid() is None
        names.extend(str(node.target) for node in graph.find_nodes(op="get_attr"))

    frozen = config.patch({"freezing": True, "cpp.weight_prepack": prepack})
    with torch.no_grad(), frozen:
        compiled = torch.compile(module, backend=through(hook, after))
        for given in (x, x + 1):
            torch.testing.assert_close(compiled(given), module(given), atol=1e-5, rtol=1e-5)
    assert [region.kept for region in optimizer.regions] == [None]
    if not prepack:  # packed weights are no plain tensors
        assert any(name.startswith("eqsat") for name in names) == (hook == FROZEN_HOOK)
    assert optimizer.uuid() is not None


def test_no_weight_is_computed_ahead_where_it_is_trained() -> None:
    module = Residual().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    optimizer, seen = Pass(**SMALLER), list[str]()

    def after(graph: Graph) -> None:
        optimizer(graph)
        seen.extend(node.op for node in graph.nodes)

    with config.patch(freezing=True):
        compiled = torch.compile(module, backend=through(HOOK, after))
        compiled(torch.randn(4, 3, 12, 12)).square().mean().backward()
    assert "get_attr" not in seen
    assert [region.kept for region in optimizer.regions] == [None]
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert int(module.norms[0].num_batches_tracked) == 1
    assert not torch.equal(module.norms[0].running_mean, before["norms.0.running_mean"])


@pytest.fixture
def uncompiled_backend(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Inductor's patches at each compilation by the backend, which ends before any C++."""
    seen: list[dict[str, Any]] = []
    original = compile_fx.compile_fx

    def without_kernels(
        module: Any, inputs: Any, config_patches: Any = None, **options: Any
    ) -> Any:
        if config_patches is None:  # it calls itself within the patches
            return original(module, inputs, **options)
        seen.append(dict(config_patches))
        patches = {"force_disable_caches": True, HOOK: config_patches[HOOK]}
        return original(module, inputs, inner_compile=uncompiled, config_patches=patches)

    monkeypatch.setattr(compile_fx, "compile_fx", without_kernels)
    return seen


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_a_mode_sets_the_options_of_inductor(
    mode: str, uncompiled_backend: list[dict[str, Any]]
) -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    with torch.no_grad():
        result = torch.compile(shared, backend="eqsat", mode=mode)(x, w)
    torch.testing.assert_close(result, shared(x, w), atol=1e-4, rtol=1e-4)
    (patches,) = uncompiled_backend
    optimizer = patches.pop(HOOK)
    assert patches == list_mode_options(mode)
    replayed = "triton.cudagraphs" in patches
    assert optimizer.settings.cost.mode == ("graph" if replayed else "stream")


def test_options_are_those_of_the_pass_and_inductors_own(
    uncompiled_backend: list[dict[str, Any]],
) -> None:
    options = {"device": "a100", "margin": 0.2, "inductor": {"max_autotune": True}}
    torch.compile(shared, backend="eqsat", options=options)(torch.ones(8, 16), torch.ones(16, 16))
    (patches,) = uncompiled_backend
    optimizer = patches.pop(HOOK)
    assert patches == {"max_autotune": True}
    assert (optimizer.settings.cost.device.name, optimizer.settings.margin) == ("a100", 0.2)


def test_dynamic_compiles_once_and_static_once_a_size(
    uncompiled_backend: list[dict[str, Any]],
) -> None:
    w = torch.randn(16, 16)
    for dynamic, times in ((True, 1), (False, 3)):
        torch._dynamo.reset()
        uncompiled_backend.clear()
        compiled = torch.compile(shared, backend="eqsat", dynamic=dynamic, options=SMALLER)
        for n in (4, 6, 9):
            x = torch.randn(n, 16)
            torch.testing.assert_close(compiled(x, w), shared(x, w), atol=1e-4, rtol=1e-4)
        assert len(uncompiled_backend) == times


def test_fullgraph_refuses_a_graph_break(uncompiled_backend: list[dict[str, Any]]) -> None:
    def breaks(x: Tensor) -> Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        torch.compile(breaks, backend="eqsat", fullgraph=True)(torch.ones(3))
    assert uncompiled_backend == []
    assert torch.equal(torch.compile(breaks, backend="eqsat")(torch.ones(3)), torch.full((3,), 3.0))
    assert len(uncompiled_backend) == 2


def test_a_pass_that_is_there_already_is_not_dropped() -> None:
    with config.patch({HOOK: Pass()}), pytest.raises(Exception, match="use a Pass beside yours"):
        torch.compile(shared, backend="eqsat")(torch.ones(8, 16), torch.ones(16, 16))


SCRIPT = """
import torch
from torch._inductor import compile_fx
original = compile_fx.compile_fx
def stop(module, inputs, config_patches=None, **options):
    if config_patches is None:
        return original(module, inputs, **options)
    def run(graph, inputs, **_):
        def call(arguments):
            return graph(*arguments)
        call._boxed_call = True
        return call
    return original(module, inputs, inner_compile=run, config_patches=config_patches)
compile_fx.compile_fx = stop
x = torch.ones(8, 8)
with torch.no_grad():
    torch.compile(lambda x: x @ x + (x * 2) @ x, backend="eqsat")(x)
"""


@pytest.mark.parametrize(("value", "lines"), [("+eqsat", 1), ("", 0)])
def test_the_log_is_one_line_a_graph_where_it_is_asked_for(value: str, lines: int) -> None:
    logs = {"TORCH_LOGS": value} if value else {}
    environment = {k: v for k, v in os.environ.items() if k != "TORCH_LOGS"} | logs
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stderr.splitlines() if "predicted" in line or "kept" in line]
    assert len(found) == lines, done.stderr


def test_the_log_can_be_turned_on_later(caplog: pytest.LogCaptureFixture) -> None:
    assert torch._logging._internal.log_registry.is_log("eqsat")
    with caplog.at_level(logging.INFO, "eqsat.inductor"):
        check(shared)
    assert len(caplog.records) == 1


class Associated(nn.Module):
    """A product of three, whose better order depends on its sizes."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (x @ y) @ z


def associated(hints: dict[str, int] | None) -> eqsat.Result:
    """The product at given sizes of its dynamic dimensions."""
    many, few = (Dim(name, max=1 << 16) for name in ("rows", "columns"))
    args = (torch.randn(64, 256), torch.randn(256, 256), torch.randn(256, 64))
    shapes = {"x": {0: many}, "y": None, "z": {1: few}}
    return eqsat.optimize(Associated(), args, dynamic_shapes=shapes, hints=hints, margin=0.01)


@pytest.mark.parametrize("symbols", [False, True])
def test_costs_are_those_at_the_hints(symbols: bool) -> None:
    names = ["rows", "columns"]
    if symbols:
        inputs = associated(None).program.graph.find_nodes(op="placeholder")
        names = [str(inputs[0].meta["val"].shape[0]), str(inputs[2].meta["val"].shape[1])]
    wide = associated(dict(zip(names, (8, 8192), strict=True)))
    long = associated(dict(zip(names, (8192, 8), strict=True)))
    assert wide.report.kept is not None
    assert long.report.kept is None
    first = next(n for n in long.program.graph.nodes if n.op == "call_function")
    assert [n.name for n in first.all_input_nodes] == ["y", "z"]
    before, after = wide.report.before, long.report.before
    assert before is not None and after is not None
    products = [prediction.kernels[0].product for prediction in (before, after)]
    assert [product and product[1] for product in products] == [8, 8192]
    x, y, z = torch.randn(5, 256), torch.randn(256, 256), torch.randn(256, 7)
    torch.testing.assert_close(long.module(x, y, z), x @ y @ z, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        ({"batch": 4}, r"no dynamic dimension is named 'batch': there are rows, columns, s\d+"),
        ({"rows": 0}, "the hint for 'rows' must be a size, not 0"),
        ({"rows": 1 << 17}, "'rows' is from 1 to 65536 in the program, not 131072"),
    ],
)
def test_a_hint_that_fits_no_dimension_is_refused(hints: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        associated(hints)
