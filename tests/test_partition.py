"""Claims about the predicted partition: close to Inductor's, and a function of structure alone."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from torch.export import Dim, export
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.nn.attention import SDPBackend

from benchmarks import networks, truth
from benchmarks.partition import FORMS, agreement, judged
from eqsat.cost.device import load
from eqsat.cost.kernel import Kernel
from eqsat.cost.partition import partition
from eqsat.cost.partition.access import reshape, whole
from eqsat.cost.partition.vocabulary import GATHER_ON_CPU

H200, CPU = load("h200"), load("cpu")
IMAGE = torch.randn(2, 16, 5, 5)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)
BOUNDS = {  # mean error of kernel counts and of bytes, and mean F1, with a small slack
    "base": (0.010, 0.010, 0.990),
    "held-out": (0.010, 0.010, 0.990),
    "odd": (0.025, 0.010, 0.965),
}


@cache
def read(model: str) -> truth.Truth:
    return truth.read(model)


def traced(function: Callable[..., Any], *inputs: Any) -> Graph:
    """The graph of a function, with fake tensors for values."""
    return make_fx(function, tracing_mode="fake")(*inputs).graph


def kernels(function: Callable[..., Any], *inputs: Any, device: Any = H200) -> list[Kernel]:
    return list(partition(traced(function, *inputs), device))


def kinds(found: Iterable[Kernel]) -> list[str]:
    return [kernel.kind for kernel in found]


def kernel(kind: Any, numel: int, rnumel: int = 1, written: int = 4) -> Kernel:
    return Kernel(kind, (), (), 0, written, 0, numel, rnumel, torch.float32)


def test_kernels_agree_by_class_size_and_bytes() -> None:
    a, b = kernel("pointwise", 8), kernel("extern", 8)
    assert agreement([a, b], [b, a]).f1 == 1
    assert agreement([a], [b]).f1 == 0
    assert agreement([a, a], [a]).f1 == pytest.approx(2 / 3)
    assert agreement([a], [kernel("reduction", 2, 4)]).f1 == 1  # the same loop, otherwise named
    assert agreement([a], [kernel("pointwise", 8, written=8)]).f1 == 0
    assert agreement([b], [kernel("extern", 16)]).f1 == 1
    assert agreement([a, a], [a]).count_error == agreement([a, a], [a]).bytes_error == 0.5


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("group", BOUNDS)
def test_kernels_are_those_that_inductor_makes(group: str, form: str) -> None:
    found = [judged(model, form) for model in networks.SETS[group]]
    count, size, match = BOUNDS[group]
    assert mean(one.count_error for one in found) <= count
    assert mean(one.bytes_error for one in found) <= size
    assert mean(one.f1 for one in found) >= match


@pytest.mark.parametrize("model", networks.MODELS)
def test_products_are_those_that_inductor_calls(model: str) -> None:
    true = read(model).kernels
    for form in FORMS:
        predicted = partition(getattr(read(model), form), H200)
        assert sorted(k.product for k in predicted if k.product) == sorted(
            k.product for k in true if k.product
        )
        assert sum(k.flops for k in predicted) == sum(k.flops for k in true)


@pytest.mark.parametrize("model", ["bert", "llama", "swin", "unet", "resnet_bottleneck"])
def test_names_and_order_do_not_matter(model: str) -> None:
    def outline(kernel: Kernel) -> tuple[object, ...]:
        return kernel.kind, kernel.operators, kernel.bytes, kernel.numel, kernel.rnumel, kernel.work

    for form in FORMS:
        graph = getattr(read(model), form)
        expected = Counter(map(outline, partition(graph, H200)))
        for seed in range(3):
            assert Counter(map(outline, partition(reshuffled(graph, seed), H200))) == expected


def reshuffled(graph: Graph, seed: int) -> Graph:
    """The same graph with other names and in another order of its nodes."""
    choose = random.Random(seed)
    waiting = {node: len(node.all_input_nodes) for node in graph.nodes}
    ready = [node for node in graph.nodes if not waiting[node]]
    copies: dict[Node, Node] = {}
    result = Graph()
    while ready:
        node = ready.pop(choose.randrange(len(ready)))
        if node.op == "output" and ready:
            ready.append(node)
            continue
        args, kwargs = (
            torch.fx.map_arg(part, copies.__getitem__) for part in (node.args, node.kwargs)
        )
        name = f"n{choose.randrange(10**9)}"
        copies[node] = result.create_node(node.op, node.target, args, kwargs, name)
        copies[node].meta.update(node.meta)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return result


def test_inductor_is_not_imported() -> None:
    code = "import sys, eqsat.cost.partition; print('torch._inductor' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_pointwise_operators_are_one_kernel() -> None:
    x = torch.randn(8, 64)
    (kernel,) = kernels(lambda x: (x * 2 + 1).relu().exp(), x)
    assert (kernel.kind, kernel.read, kernel.written) == ("pointwise", 2048, 2048)
    assert kernel.work == 4 * 512
    assert kernel.transcendental == 512


def test_softmax_is_one_kernel() -> None:
    (kernel,) = kernels(lambda x: x.softmax(-1), torch.randn(64, 256))
    assert (kernel.kind, kernel.numel, kernel.rnumel) == ("reduction", 64, 256)


def test_views_are_free() -> None:
    found = kernels(lambda x: x.view(4, 16).t()[2:5].unsqueeze(0), torch.randn(64))
    assert found == []


def test_a_result_with_gaps_is_written_once_where_it_lies() -> None:
    def gapped(x: torch.Tensor) -> torch.Tensor:
        memory, strides = torch.empty(5000), (4096, 1)
        laid = torch.as_strided_scatter(memory, x, x.shape, strides, 0)
        return torch.as_strided(laid, x.shape, strides, 0)

    x, w = torch.ones(2, 512), torch.ones(512, 512)
    (fused,) = kernels(lambda x: gapped(x.relu()), x)
    assert (fused.kind, fused.written) == ("pointwise", x.nbytes)
    product, copied = kernels(lambda x, w: gapped(x @ w), x, w)
    assert (product.kind, copied.kind, copied.written) == ("extern", "pointwise", x.nbytes)


def test_products_stand_alone() -> None:
    x, w = torch.randn(32, 16), torch.randn(16, 8)
    found = kernels(lambda x, w: (x.exp() @ w).relu(), x, w)
    assert kinds(found) == ["pointwise", "extern", "pointwise"]
    assert found[1].product == (1, 32, 8, 16)


def test_a_sum_of_everything_is_split() -> None:
    found = kernels(lambda x: x.sum(), torch.randn(1 << 20))
    assert kinds(found) == ["reduction", "reduction"]
    assert found[0].numel == found[1].rnumel
    assert len(kernels(lambda x: x.sum(), torch.randn(1 << 20), device=CPU)) == 1


@pytest.mark.parametrize(
    ("shapes", "count"),
    [
        (((1, 8, 16, 32), (1, 8, 24, 32), (1, 8, 24, 32)), 1),
        (((1, 8, 16, 32), (1, 8, 24, 32), (1, 8, 24, 16)), 5),
        (((8, 16, 32), (8, 24, 32), (8, 24, 32)), 5),
        (((2, 8, 16, 32), (1, 8, 24, 32), (1, 8, 24, 32)), 6),
    ],
)
def test_attention_on_a_cpu_is_a_kernel_where_torch_has_one(
    shapes: tuple[tuple[int, ...], ...], count: int
) -> None:
    operands = [torch.randn(shape) for shape in shapes]
    chosen = torch._fused_sdp_choice(*operands)
    assert (chosen == SDPBackend.FLASH_ATTENTION.value) == (count == 1)
    assert len(kernels(functional.scaled_dot_product_attention, *operands, device=CPU)) == count


def test_a_transposed_operand_of_attention_is_copied() -> None:
    q = torch.randn(2, 4, 64, 32, dtype=torch.bfloat16)
    dense = kernels(functional.scaled_dot_product_attention, q, q, q)
    other = kernels(
        lambda q: functional.scaled_dot_product_attention(q.mT.reshape(2, 4, 64, 32), q, q), q
    )
    assert (len(dense), len(other)) == (1, 2)


def test_strided_bytes_are_those_of_a_transposition() -> None:
    (copied,) = kernels(lambda x: x.t().contiguous(), torch.randn(64, 48))
    (plain,) = kernels(lambda x: x * 2, torch.randn(64, 48))
    assert copied.strided == copied.read == 64 * 48 * 4
    assert plain.strided == 0


COLUMNS = torch.arange(9) % 5


@pytest.mark.parametrize(
    ("function", "inputs", "gathers"),
    [
        (lambda x: functional.interpolate(x, scale_factor=2.0), (IMAGE,), 1),
        (lambda x: functional.interpolate(x, scale_factor=2.0), (LAST,), 0),
        (lambda x: functional.interpolate(x, size=(9, 7), mode="bilinear"), (IMAGE,), 4),
        (lambda x: functional.interpolate(x, size=(9, 7), mode="bilinear"), (LAST,), 0),
        (lambda x, i: x[:, :, :, i], (IMAGE, COLUMNS), 1),
        (lambda x, i: x[:, :, i], (IMAGE, COLUMNS), 0),
        (lambda x, i: functional.embedding(i, x), (torch.randn(5, 16), COLUMNS), 0),
        (lambda x, i: x[i][:, None] * x, (torch.randn(9), COLUMNS), 0),  # one read for each row
    ],
)
def test_a_cpu_reads_alone_what_the_innermost_loop_chooses(
    function: Callable[..., Any], inputs: tuple[Any, ...], gathers: int
) -> None:
    (found,) = kernels(function, *inputs, device=CPU)
    assert found.transcendental == found.numel * gathers * GATHER_ON_CPU
    (found,) = kernels(function, *inputs)
    assert found.transcendental == 0


def test_frozen_convolutions_of_a_cpu_lay_out_no_sums_before_them() -> None:
    def head(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b = (functional.interpolate(x, size=(32, 32), mode="bilinear") for x in (a, b))
        return functional.conv2d(torch.relu(a + b) + a.exp(), w)

    given = (
        *(torch.randn(1, n, n, 16).permute(0, 3, 1, 2) for n in (8, 16)),
        torch.randn(4, 16, 1, 1),
    )
    usual, frozen = (kernels(head, *given, device=d) for d in (CPU, replace(CPU, freezing=True)))
    assert sum(k.transcendental for k in usual) < sum(k.transcendental for k in frozen)
    weights = [k for k in usual if k.operators == ("clone",) and k.numel == 4 * 16]
    assert not [k for k in frozen if k in weights]


def test_bytes_grow_with_the_shape() -> None:
    def total(n: int) -> int:
        found = kernels(lambda x: functional.layer_norm(x, (64,)).relu(), torch.randn(n, 64))
        return sum(kernel.bytes for kernel in found)

    assert total(16) < total(32) < total(64)


def test_an_unknown_operator_is_a_kernel_of_its_own() -> None:
    x = torch.randn(16, 16)
    found = kernels(lambda x: torch.linalg.inv(x.exp()).relu(), x)
    assert kinds(found) == ["pointwise", "extern", "pointwise"]
    assert found[1].read == 16 * 16 * 4
    assert found[1].written >= 16 * 16 * 4


def test_symbolic_sizes_count_as_their_hints() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() + x.sum(-1, keepdim=True)

    x = torch.randn(12, 40)
    dynamic = export(Net(), (x,), dynamic_shapes={"x": {0: Dim("n", min=2, max=64)}})
    fixed = export(Net(), (x,))
    assert partition(dynamic.graph, H200) == partition(fixed.graph, H200)


def test_no_kernel_for_no_elements() -> None:
    assert kernels(lambda x: x.exp() + 1, torch.randn(0, 4)) == []


ODD: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "writes an input": (lambda x: x.add_(1), (torch.randn(4),)),
    "copies back": (lambda x, y: x.copy_(y * 2), (torch.randn(4), torch.randn(4))),
    "complex": (lambda x: torch.view_as_real(x * x.conj()), (torch.randn(4, dtype=torch.cfloat),)),
    "several results": (torch.linalg.qr, (torch.randn(4, 4),)),
    "sort": (lambda x: x.sort(-1), (torch.randn(4, 9),)),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), (torch.randn(4), torch.tensor([1, 2]))),
    "no dimensions": (lambda x: x.sum() + x.max(), (torch.randn(()),)),
    "pooling": (lambda x: functional.max_pool2d(x, 3, 2, 1), (torch.randn(1, 3, 9, 9),)),
    "large window": (lambda x: functional.avg_pool2d(x, 7), (torch.randn(1, 3, 21, 21),)),
    "concatenation": (lambda x: torch.cat([x, x * 2, x[:1]]), (torch.randn(3, 5),)),
    "gather": (lambda x, i: x[i] + x[:, 0], (torch.randn(6, 6), torch.tensor([1, 2, 3, 4, 5, 0]))),
    "roll and flip": (lambda x: x.roll(1, 0).flip(1), (torch.randn(3, 5),)),
    "cumulative": (lambda x: x.cumsum(-1) * 2, (torch.randn(3, 50),)),
    "padding": (lambda x: functional.pad(x, (1, 2, 3, 4)), (torch.randn(3, 5),)),
    "reduction of nothing": (lambda x: x.sum(0), (torch.randn(0, 3),)),
    "uneven reshape": (lambda x: x.t().reshape(8, 3).exp(), (torch.randn(6, 4),)),
}


@pytest.mark.parametrize("device", [H200, CPU], ids=["triton", "cpp"])
@pytest.mark.parametrize("name", ODD)
def test_odd_graphs_have_a_partition(name: str, device: Any) -> None:
    function, inputs = ODD[name]
    for kernel in partition(traced(function, *inputs), device):
        assert kernel.read >= 0
        assert kernel.written >= 0


def test_branches_are_operands_of_one_kernel() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + 1

    program = export(Net(), (torch.randn(4, 4),))
    assert "extern" in kinds(partition(program.graph, H200))


@pytest.mark.parametrize("model", ["bert", "resnet_basic", "t5_enc"])
def test_a_cpu_is_given_a_partition_too(model: str) -> None:
    on_cpu = partition(read(model).captured, CPU)
    on_gpu = partition(read(model).captured, H200)
    assert 0.7 < len(on_cpu) / len(on_gpu) < 1.5


def test_the_truth_is_of_every_model() -> None:
    assert all((Path(truth.FOLDER) / f"{model}.json.gz").exists() for model in networks.MODELS)


def test_a_reshape_of_nothing_divides_by_nothing() -> None:
    assert reshape(whole((0, 6)), (3, 0)).shape == (3, 0)
    assert reshape(whole((2, 0)), (0,)).shape == (0,)
