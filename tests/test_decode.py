"""A selection becomes a graph again, with the given calls, layouts, aliases and sources."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import roundtrip
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

from eqsat.emit import emit
from eqsat.emitter import Emitter, trimmed
from eqsat.functions import Function
from eqsat.infer import Oracle
from eqsat.layout import restride
from eqsat.meta import Texts

aten = torch.ops.aten
X, Y = torch.arange(24.0).reshape(4, 6), torch.linspace(-1, 1, 24).reshape(4, 6)
IMAGE = torch.linspace(-1, 1, 120).reshape(2, 3, 4, 5)


def check(function: Callable[..., Any], *tensors: Tensor, calls: int | None = None) -> GraphModule:
    """With no rules the graph comes back: all that a caller sees, in at most as many calls."""
    call, flat = roundtrip.call_of(function, (tensors, {}))
    mode = roundtrip.fresh_mode()
    trip = roundtrip.travel(roundtrip.trace(call, flat, mode), mode)
    assert roundtrip.change(trip.given, trip.result(respelled=True), flat) == ""
    result = trip.result()
    assert roundtrip.change(trip.given, result, flat) == ""
    limit = len(roundtrip.calls(trip.given)) if calls is None else calls
    assert len(roundtrip.calls(result)) <= limit
    return result


def test_without_rules_the_same_calls_come_back() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(x @ y.t(), -1) @ torch.cumsum(y, 0)

    result = check(function, X, Y)
    assert roundtrip.calls(result) == [
        "aten.t.default",
        "aten.matmul.default",
        "aten.softmax.int",
        "aten.cumsum.default",
        "aten.matmul.default",
    ]


def test_equal_calls_are_made_once() -> None:
    check(lambda x, y: torch.relu(x + y) * torch.relu(x + y), X, Y, calls=3)


def test_call_that_nothing_reads_is_dropped() -> None:
    def function(x: Tensor) -> Tensor:
        torch.relu(x)
        return x + 1

    check(function, X, calls=1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last) + 1,
        lambda x: torch.relu(x).contiguous(memory_format=torch.channels_last),
        lambda x: (x + 1)[:, ::2],
        lambda x: (x + 1)[..., :0],
        lambda x: (x[:, :1] + 1).expand(2, 3, 4, 5),
        lambda x: (x + 1).permute(3, 1, 0, 2),
        lambda x: torch.as_strided(x + 1, (3, 2), (1, 7), 2),
        lambda x: (x + 1).unfold(3, 3, 1),
        lambda x: torch.diagonal(x + 1, 0, 2, 3),
        lambda x: torch.empty_like(x, memory_format=torch.channels_last).fill_(1),
    ],
)
def test_outputs_keep_their_strides(function: Callable[[Tensor], Tensor]) -> None:
    check(function, IMAGE)


@pytest.mark.parametrize("seed", range(25))
def test_any_value_can_be_given_any_strides(seed: int) -> None:
    rng = random.Random(seed)
    shape = [rng.choice((0, 1, 2, 3, 4, 4)) for _ in range(rng.randint(0, 5))]
    stride, step = [0] * len(shape), 1
    for dim in rng.sample(range(len(shape)), len(shape)):
        stride[dim] = rng.choice((step, step, step, 0))
        step = step * max(shape[dim], 1) + rng.choice((0, 0, 2))
    value = torch.arange(max(step, 1) * 5.0).as_strided(shape, stride).contiguous()
    mode = FakeTensorMode()
    emitter = Emitter(mode, Oracle(Texts()))
    given = emitter.graph.placeholder("x")
    given.meta["val"] = mode.from_tensor(value)
    with mode:
        like = torch.empty_strided(shape, stride)
    emitter.graph.output(restride(emitter, given, like))
    result = GraphModule(torch.nn.Module(), emitter.graph)(value)
    assert torch.equal(result, value)
    pairs = zip(shape, result.stride(), stride, strict=True)
    assert all(made == wanted for size, made, wanted in pairs if size > 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x, x),
        lambda x: (x.view(-1), x.t(), x[1:, ::2], x),
        lambda x: ((z := x + (x * 2)), z),
        lambda x: ((z := x + (x * 2)).view(-1), z.t(), z[1:]),
        lambda x: ((z := x + (x * 2)).view(2, 12), z.view(2, 12).t()),
        lambda x: (x + (x * 2), x + (x * 2)),
        lambda x: (x.clone(), x.clone(), x.contiguous(), x.float()),
        lambda x: x[:1].expand_as(x * 2),
        lambda x: x.view_as((x * 2).t().contiguous()),
        lambda x: torch.broadcast_tensors(x, (x * 2)[:1])[1],
        lambda x: (torch.split(x, 2, 1), torch.unbind((x * 2) + 1)),
        torch.diagonal,
        lambda x: (torch.dropout(x, 0.5, False), torch.dropout(x + (x * 2), 0.5, False)),
        lambda x: (torch.zeros(len(x)), torch.zeros(len(x))),
        lambda x: torch.unsafe_chunk(x, 2),
    ],
)
def test_outputs_share_storage_exactly_as_given(function: Callable[..., Any]) -> None:
    check(function, X)


def test_views_of_one_value_are_made_once() -> None:
    check(lambda x: (x + 1).split(2, 1), X, calls=5)


def test_second_layout_of_a_value_is_one_copy() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return torch.relu(x), torch.relu(x).contiguous(memory_format=torch.channels_last)

    check(function, IMAGE, calls=2)
    check(lambda x: x.t().contiguous(), X, calls=2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.rand_like(x), torch.bernoulli(x.sigmoid()), torch.rand_like(x)),
        lambda x: torch.dropout(x, 0.5, True) + torch.dropout(x, 0.5, True),
        lambda x: (torch.randn(3), x, torch.randperm(5), torch.randint(9, (2,))),
        lambda x: torch.nonzero(x > 3).sum(0) + torch.masked_select(x, x > 3).sum(),
        lambda x: torch.sort(x, 1),
        lambda x: torch.topk(x, 2)[1],
        lambda x: (x + 1, 3, None, 2.5),
        lambda x: torch.stack([x, x + 1, x]).sum(0),
        lambda x: (2 - x, 2 / x, 2**x, x % 3, 3 // x, x < 3, torch.where(x > 1, 2.0, x)),
        lambda x: torch.index_put(x, (torch.arange(2),), x[:2]),
        lambda x: torch.ops.aten.native_layer_norm(x, [6], None, None, 1e-5),
        lambda x: 1 / torch.constant_pad_nd(x, (1, 1), -0.0),
    ],
)
def test_graph_comes_back_equal(function: Callable[..., Any]) -> None:
    check(function, X)


def test_view_of_a_copy_that_is_left_out_is_a_reshape() -> None:
    # Fake tensors of torch 2.13 take a view of these strides for possible, real ones do not.
    check(lambda x: x[:, :, -1:].clone(memory_format=torch.contiguous_format).view(-1), IMAGE)


def test_every_node_has_a_value_and_the_source_it_stems_from() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.first(x)).t().contiguous() + 1

    program = torch.export.export(Block(), (X,), strict=False)
    mode = next(n.meta["val"].fake_mode for n in program.graph.nodes if n.op == "placeholder")
    trip = roundtrip.travel(program.graph_module, mode)
    stacks: dict[str, set[str]] = {}
    for node in trip.result().graph.nodes:
        if node.op == "call_function":
            assert isinstance(node.meta["val"], Tensor)
            paths = [path for path, _ in node.meta["nn_module_stack"].values()]
            stacks.setdefault(node.meta["stack_trace"], set()).update(paths)
    assert any("torch.relu(self.first(x))" in stack for stack in stacks)
    assert any("first" in path for paths in stacks.values() for path in paths)


def test_symbolic_sizes_stay_symbolic() -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            n, c = x.shape
            return x.reshape(n * c).view(c, n), x.sum(1, keepdim=True).expand(n, 2 * c), x[1:] * n

    dims = {0: torch.export.Dim("n", min=3, max=64), 1: torch.export.Dim("c", min=3, max=64)}
    program = torch.export.export(Flat(), (X,), dynamic_shapes=(dims,), strict=False)
    mode = next(n.meta["val"].fake_mode for n in program.graph.nodes if n.op == "placeholder")
    trip = roundtrip.travel(program.graph_module, mode)
    for respelled in (False, True):
        result = trip.result(respelled=respelled)
        for shape in ((4, 6), (7, 3), (3, 3)):
            inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            assert roundtrip.change(trip.given, result, [inputs]) == ""


def chain(length: int, branches: int) -> tuple[GraphModule, FakeTensorMode]:
    """A graph of `branches` chains of `length` calls each, added up."""
    mode = FakeTensorMode()
    graph = Graph()
    fake = mode.from_tensor(X)

    def call(target: Any, *args: Any) -> Node:
        node = graph.call_function(target, args)
        node.meta["val"] = fake
        return node

    x = graph.placeholder("x")
    x.meta["val"] = fake
    ends: list[Node] = []
    for branch in range(branches):
        ends.append(call(aten.add.Tensor, x, branch))
        for _ in range(length):
            ends[-1] = call(aten.sin.default, ends[-1])
    total = ends[0]
    for end in ends[1:]:
        total = call(aten.add.Tensor, total, end)
    graph.output((total,))
    return GraphModule(torch.nn.Module(), graph), mode


@pytest.mark.parametrize(("length", "branches"), [(2000, 1), (0, 500)])
def test_deep_and_wide_graphs_pass(length: int, branches: int) -> None:
    given, mode = chain(length, branches)
    result = roundtrip.travel(given, mode).result()
    assert sorted(roundtrip.calls(result)) == sorted(roundtrip.calls(given))
    assert roundtrip.change(given, result, [X]) == ""


def test_arguments_that_equal_their_default_are_left_out() -> None:
    args, kwargs = trimmed(aten.expand.default, ("x", [2]), {"implicit": False})
    assert (args, kwargs) == (("x", [2]), {})
    args, kwargs = trimmed(aten.sum.dim_IntList, ("x", [0], False), {"dtype": None})
    assert (args, kwargs) == (("x", [0]), {})
    args, kwargs = trimmed(aten.sum.dim_IntList, ("x", [0], True), {})
    assert args == ("x", [0], True)


@pytest.mark.parametrize("bias", [(3,), (1,), (4, 1), (1, 3), (5, 4, 3), ()])
@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 4, 6)])
def test_affine_is_written_for_every_shape_of_bias(
    bias: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    tensors = [torch.randn(size, dtype=torch.float64) for size in (shape, (6, 3), bias)]
    x, w, b = tensors
    try:
        expected = x @ w + b
    except RuntimeError:
        pytest.skip("the bias does not broadcast")
    mode = FakeTensorMode()
    emitter = Emitter(mode, Oracle(Texts()))
    nodes = [emitter.graph.placeholder(name) for name in "xwb"]
    for node, tensor in zip(nodes, tensors, strict=True):
        node.meta["val"] = mode.from_tensor(tensor)
    emitter.graph.output(emit(emitter, "affine", nodes, ()))
    result = GraphModule(torch.nn.Module(), emitter.graph)(*tensors)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", ["sub", "div", "pow", "lt", "remainder", "add", "bitwise_and"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_number_can_stand_first(name: str, dtype: torch.dtype) -> None:
    if name == "bitwise_and" and dtype == torch.float32:
        pytest.skip("bits of integers only")
    x = torch.arange(1, 5).to(dtype)
    mode = FakeTensorMode()
    emitter = Emitter(mode, Oracle(Texts()))
    node = emitter.graph.placeholder("x")
    node.meta["val"] = mode.from_tensor(x)
    function = Function(name)
    emitter.graph.output(emit(emitter, "binary", (3, node), (function,)))
    result = GraphModule(torch.nn.Module(), emitter.graph)(x)
    expected = (
        function(torch.tensor(3, dtype=dtype), x) if name in ("lt", "remainder") else function(3, x)
    )
    assert result.dtype == expected.dtype
    assert torch.equal(result, expected)
