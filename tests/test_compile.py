"""Inside `torch.compile`: results, gradients, writes and random numbers as of the given program."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._guards import detect_fake_mode
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx
from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
from torch._inductor.utils import fresh_cache
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule

import rewrites
from benchmarks.models import Program, bert_classifier, gpt2, llama, resnet50
from eqsat.inductor import HOOK, WHOLE, Pass, backend
from eqsat.meta import Meta
from eqsat.rewrite import Rewrite
from eqsat.saturate import Limits
from eqsat.settings import ALWAYS

FAST: dict[str, Any] = {
    "limits": Limits(iterations=8, enodes=8_000, seconds=120.0),
    "extractor": "greedy-dag",
    "time_limit": 120.0,  # on a busy machine, too, the limits above end a search
}
HOOKS = (
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)
SMALL: dict[str, Any] = {"layers": 1, "hidden": 64, "heads": 4, "vocabulary": 64}
MODELS: dict[str, Callable[[], Program]] = {
    "bert": lambda: bert_classifier(**SMALL),
    "gpt2": lambda: gpt2(**SMALL),
    "llama": lambda: llama(**SMALL),
    "resnet": lambda: resnet50(batch=4, image=32, widths=(8, 16), depths=(1, 1)),
}


def uncompiled(module: GraphModule, inputs: list[Any], **options: Any) -> Any:
    """What Inductor would compile, after its last passes, run as it is."""
    view_to_reshape(module)
    mode = detect_fake_mode([n.meta.get("val") for n in module.graph.nodes])
    with V.set_fake_mode(mode), config.patch(pattern_matcher=False):
        post_grad_passes(module, bool(options.get("is_inference")))
    module.recompile()

    def call(arguments: list[Any]) -> Any:
        return module(*arguments)

    call._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess] - how torch is told
    return call


def through(hook: str, function: Callable[..., Any], *, caches: bool = False) -> Callable[..., Any]:
    """A backend with `function` at one of Inductor's hooks, and no kernels at the end."""

    def backend(module: GraphModule, inputs: list[Any], **options: Any) -> Any:
        patches = {hook: function, "force_disable_caches": not caches}
        return compile_fx(module, inputs, inner_compile=uncompiled, config_patches=patches)

    return backend


def nothing(graph: object) -> None:
    """Leaves a graph as it is."""


class Writes(nn.Module):
    """A norm, products that share a weight, a buffer that is read and written, a view returned."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)
        self.register_buffer("count", torch.ones(8))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.norm(x)
        y = self.second(torch.relu(self.first(x))) + self.count
        self.count.add_(y.detach().mean(0))
        w = self.first.weight.T
        return y, y.T, (x + x * 2) @ w + (x * 3) @ w


class Residual(nn.Module):
    """Convolutions with batch norm around a shortcut, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(n, 8, k, padding=k // 2) for n, k in ((3, 3), (8, 3), (8, 1))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.last, self.drop = nn.Linear(8, 5), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = (nn.Sequential(*pair) for pair in zip(self.convolutions, self.norms, strict=True))
        x = torch.relu(a(x))
        x = torch.relu(b(x) + c(x))
        return self.last(self.drop(x.mean((2, 3))))


def program(name: str) -> Program:
    """A small network, its parameters trainable."""
    torch.manual_seed(0)
    if name == "residual":
        made = Program(Residual(), (torch.randn(4, 3, 12, 12),), {})
    elif name == "writes":
        made = Program(Writes(), (torch.randn(64, 16),), {})
    else:
        made = MODELS[name]()
    for parameter in made.module.parameters():
        parameter.requires_grad_(True)
    return made


def first(outputs: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The only or first of the outputs."""
    return outputs if isinstance(outputs, Tensor) else outputs[0]


@pytest.mark.parametrize(
    ("hook", "dynamic", "gradients"),
    [
        *((HOOK, dynamic, gradients) for dynamic in (False, True) for gradients in (False, True)),
        *((hook, True, True) for hook in HOOKS[1:]),
    ],
)
def test_every_hook_keeps_values_strides_writes_and_gradients(
    hook: str, dynamic: bool, gradients: bool
) -> None:
    torch._dynamo.reset()
    given = program("writes")
    module, (x,) = given.module, given.args
    module, x = module.double(), x.double()
    ours, optimizer = copy.deepcopy(module), Pass(margin=ALWAYS, **FAST)
    compiled = torch.compile(ours, backend=through(hook, optimizer), dynamic=dynamic)
    with torch.set_grad_enabled(gradients):
        expected, result = module(x), compiled(x)
    for a, b in zip(expected, result, strict=True):
        torch.testing.assert_close(b, a)
        assert b.stride() == a.stride()
    assert result[1].untyped_storage().data_ptr() == result[0].untyped_storage().data_ptr()
    torch.testing.assert_close(ours.count, module.count)
    if gradients:
        for outputs in (expected, result):
            sum(o.square().sum() for o in outputs).backward()
        for a, b in zip(module.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(b.grad, a.grad)
    assert all(region.kept is None for region in optimizer.regions), optimizer.regions
    assert len(optimizer.regions) == (2 if gradients and hook.startswith("post") else 1)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "residual", "resnet"])
def test_training_takes_the_steps_of_the_given_program(name: str) -> None:
    torch._dynamo.reset()
    given = program(name)
    module = given.module.train()
    ours, optimizer = copy.deepcopy(module), Pass(margin=ALWAYS, **FAST)
    theirs = torch.compile(module, backend=through(HOOK, nothing))
    compiled = torch.compile(ours, backend=through(HOOK, optimizer))
    steps = [torch.optim.SGD(m.parameters(), 0.05) for m in (module, ours)]
    for seed in range(3):
        results = []
        for call, step in zip((theirs, compiled), steps, strict=True):
            torch.manual_seed(seed)  # for dropout
            result = first(call(*given.args, **given.kwargs))
            step.zero_grad()
            result.square().mean().backward()
            step.step()
            results.append(result)
        torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-5)
    for (name, a), (_, b) in zip(
        module.state_dict().items(), ours.state_dict().items(), strict=True
    ):
        torch.testing.assert_close(b, a, atol=1e-5, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
        assert not name.endswith("num_batches_tracked") or b == 3
    assert [region.kept for region in optimizer.regions] == [None]


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_one_compilation_serves_all_sizes(name: str) -> None:
    torch._dynamo.reset()
    given = program(name)
    optimizer = Pass(margin=ALWAYS, **FAST)
    compiled = torch.compile(given.module, backend=through(HOOK, optimizer), dynamic=True)
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for rows, tokens in ((2, 32), (3, 17), (5, 24)):
            args = [torch.randint(0, 64, (rows, tokens)), *given.args[1:]]
            if len(args) > 1:
                args[1] = torch.ones(rows, tokens, dtype=given.args[1].dtype)
            kwargs = {k: torch.ones(rows, tokens, dtype=v.dtype) for k, v in given.kwargs.items()}
            expected = first(given.module(*args, **kwargs))
            torch.testing.assert_close(
                first(compiled(*args, **kwargs)), expected, atol=1e-5, rtol=1e-5
            )
    assert [region.kept for region in optimizer.regions] == [None]


def test_rules_fire_on_symbolic_sizes_as_on_numbers() -> None:
    fired: list[set[str]] = []
    for dynamic in (False, True):
        torch._dynamo.reset()
        given = program("bert")
        optimizer = Pass(margin=ALWAYS, **FAST)
        compiled = torch.compile(given.module, backend=through(HOOK, optimizer))
        for value in (*given.args, *given.kwargs.values()) if dynamic else ():
            torch._dynamo.mark_dynamic(value, [0, 1])  # `dynamic=True` makes numbers inputs, too
        with torch.no_grad():
            compiled(*given.args, **given.kwargs)
        fired.append(set(optimizer.regions[0].rules))
    assert len(fired[0]) > 20
    assert fired[0] - fired[1] <= {"slice-where-c"}


class Shared(nn.Module):
    """Two products that share a weight, and a part that Dynamo cannot trace between two calls."""

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.weight, self.breaks = nn.Parameter(torch.randn(16, 16)), breaks

    def forward(self, x: Tensor) -> Tensor:
        x = x @ self.weight + (x * 2) @ self.weight
        if self.breaks:
            torch._dynamo.graph_break()
        return torch.relu(x) @ self.weight + x @ self.weight


def test_the_backend_is_found_by_name_and_its_kernels_again_in_the_cache(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert "eqsat" in torch._dynamo.list_backends()
    module, x, seen = Shared(), torch.randn(8, 16), list[int]()
    with fresh_cache(), torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            counters.clear()
            compiled = torch.compile(module, backend="eqsat", options={"device": "a100"})
            with caplog.at_level(logging.INFO, "eqsat.inductor"):
                torch.testing.assert_close(compiled(x), module(x))
            seen.append(counters["inductor"]["fxgraph_cache_hit"])
    assert seen == [0, 1]
    ours = [r.getMessage() for r in caplog.records if r.name == "eqsat.inductor"]
    assert [text.split(" ")[0] for text in ours] == ["predicted"]


@pytest.mark.parametrize("margin", [ALWAYS, 0.99])
@pytest.mark.parametrize("name", ["bert", "residual"])
def test_what_the_backend_leaves_whole_is_decomposed_whether_it_is_changed_or_not(
    name: str, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    given = program(name)
    module = given.module.train()
    ours, seen = copy.deepcopy(module), set[object]()

    def watched(graph: GraphModule, inputs: list[Any], **options: Any) -> Any:
        seen.update(node.target for node in graph.graph.nodes)
        return uncompiled(graph, inputs, **options)

    def compiling(module: GraphModule, inputs: list[Any], **options: Any) -> Any:
        if options.get("config_patches"):
            options["inner_compile"] = watched
        return compile_fx(module, inputs, **options)

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compiling)
    options = {"margin": margin, "inductor": {"force_disable_caches": True}, **FAST}
    results = []
    for model, call in (
        (module, torch.compile(module, backend=through(HOOK, nothing))),
        (ours, torch.compile(ours, backend=backend, options=options)),
    ):
        torch.manual_seed(0)  # for dropout
        results.append(first(call(*given.args, **given.kwargs)))
        results[-1].square().mean().backward()
        assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-5)
    for a, b in zip(module.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, atol=1e-5, rtol=1e-5)
    assert len(seen) > 10
    assert not seen & WHOLE


def test_an_unknown_option_names_those_there_are() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Shared(), backend=backend, options={"numeric": "strict"})
    with pytest.raises(
        Exception, match=r"unknown option 'numeric'; there are rules, device, .*inductor"
    ):
        compiled(torch.randn(8, 16))


def test_freezing_as_an_option_is_refused_since_it_would_do_nothing() -> None:
    torch._dynamo.reset()
    options = {"inductor": {"freezing": True}}
    compiled = torch.compile(Shared(), backend=backend, options=options)
    with torch.no_grad(), pytest.raises(Exception, match=r"set torch\._inductor\.config\.freezing"):
        compiled(torch.randn(8, 16))


def test_each_part_between_graph_breaks_is_optimized() -> None:
    torch._dynamo.reset()
    module, x, optimizer = Shared(breaks=True), torch.randn(8, 16), Pass(margin=ALWAYS, **FAST)
    compiled = torch.compile(module, backend=through(HOOK, optimizer))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    assert [region.kept for region in optimizer.regions] == [None, None]


def test_a_failing_rule_leaves_the_graph_as_it_was() -> None:
    def fails(x: Meta) -> bool:
        raise RuntimeError("a rule of a person")

    torch._dynamo.reset()
    rule = Rewrite("fails", lambda x: (torch.relu(x), x), when=fails)
    module, x, optimizer = Shared(), torch.randn(8, 16), Pass(rules=[rule], **FAST)
    compiled = torch.compile(module, backend=through(HOOK, optimizer))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))


def test_a_graph_that_writes_before_its_end_is_left_alone() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    calls = [
        graph.call_function(torch.ops.aten.neg.default, (x,)),
        graph.call_function(torch.ops.aten.copy_.default, (x, x)),
    ]
    calls.append(graph.call_function(torch.ops.aten.neg.default, (calls[0],)))
    graph.output((calls[2],))
    with FakeTensorMode():
        for node in (x, *calls):
            node.meta["val"] = torch.empty(4)
    before, optimizer = str(graph), Pass(margin=ALWAYS)
    optimizer(graph)
    assert str(graph) == before
    assert optimizer.regions[0].kept == "aten.copy_.default writes before the end"


def test_the_fingerprint_changes_with_all_that_decides_the_result() -> None:
    def small(x: Meta) -> bool:
        return x.ndim < 3

    mine = Rewrite("relu-twice", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)), when=small)
    passes = [
        Pass(),
        Pass(device="a100"),
        Pass(mode="graph"),
        Pass(numerics="strict"),
        Pass(limits=Limits(iterations=3)),
        Pass(margin=0.2),
        Pass(rules=(*rewrites.DEFAULT, mine)),
        Pass(rules=rewrites.DEFAULT.without("matmul-factor-right")),
        Pass(extractor="tree"),
    ]
    found = [optimizer.uuid() for optimizer in passes]
    assert None not in found
    assert len(set(found)) == len(found)
    assert Pass().uuid() == found[0]
    assert Pass(rules=[eval("Rewrite('x', lambda x: (torch.relu(-x), -x))")]).uuid() is None


def test_a_second_compilation_is_taken_from_the_cache() -> None:
    module, x = Shared(), torch.randn(8, 16)
    seen: list[int] = []
    with fresh_cache(), torch.no_grad():
        for margin in (0.0, 0.0, 0.01):
            torch._dynamo.reset()
            optimizer = Pass(margin=margin, **FAST)
            compiled = torch.compile(module, options={HOOK: optimizer})
            torch.testing.assert_close(compiled(x), module(x))
            seen.append(len(optimizer.regions))
    assert seen == [1, 0, 1]
