"""Inductor is asked for its kernels with no GPU, is right about them, and is left as it was."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule, symbolic_trace
from torch.nn import functional

from benchmarks import graphs, networks, truth
from eqsat.capture import capture
from eqsat.cost import load
from eqsat.cost.device import Device
from eqsat.cost.inductor import kernels, nogpu
from eqsat.cost.kernel import Kernel, Product
from eqsat.cost.partition import partition

H200, A100, T4 = load("h200"), load("a100"), load("t4")
NO_GPU = not torch.cuda.is_available()
PINNED = torch.__version__.split("+")[0] == truth.TORCH


class Calls(nn.Module):
    """A function of its inputs and of parameters of the given shapes."""

    def __init__(self, function: Callable[..., object], shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.ones(shape) for shape in shapes)

    def forward(self, *inputs: Tensor) -> object:
        return self.function(*inputs, *self.weights)


def made(
    function: Callable[..., object],
    inputs: Sequence[Tensor],
    *weights: tuple[int, ...],
    device: Device = H200,
    dtype: torch.dtype = torch.float32,
) -> tuple[Kernel, ...]:
    """The kernels of a function of inputs and weights."""
    module = Calls(function, weights).eval().requires_grad_(False).to(dtype)
    cast = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    return kernels(capture(module, cast).program, device, pretend=True)


def check(made: Sequence[Kernel], *expected: tuple[str, int, int, int, int]) -> None:
    """The kernels have these kinds, bytes read and written, and sizes, in this order."""
    found = [(k.kind, k.read, k.written, k.numel, k.rnumel) for k in made]
    assert found == list(expected)


def mlp(x: Tensor, w: Tensor, b: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    h = functional.gelu(functional.linear(x, w, b))
    return functional.layer_norm(h, (128,), scale, shift)


MLP = ((128, 64), (128,), (128,), (128,))


def test_linear_gelu_and_norm_are_a_product_and_one_reduction() -> None:
    made_ = made(mlp, [torch.ones(32, 64)], *MLP)
    h = 32 * 128
    check(
        made_,
        ("extern", 4 * (32 * 64 + 128 * 64), 4 * h, h, 1),
        ("reduction", 4 * (h + 3 * 128), 4 * h, 32, 128),  # the bias is added there
    )
    assert made_[0].operators == ("mm",)
    assert made_[0].product == Product(1, 32, 128, 64)
    assert made_[0].flops == 2 * 32 * 128 * 64
    assert {"erf", "rsqrt"} <= {*made_[1].operators}
    assert made_[1].nodes == ("linear", "gelu", "layer_norm")


def test_scores_softmax_and_weighted_sum_are_three_kernels() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.bmm(q, k.mT).relu().softmax(-1) @ v

    x, scores = 4 * 32 * 16, 4 * 32 * 32
    check(
        made(attend, [torch.ones(4, 32, 16) for _ in range(3)]),
        ("extern", 4 * 2 * x, 4 * scores, scores, 1),
        ("reduction", 4 * scores, 4 * scores, 4 * 32, 32),
        ("extern", 4 * (scores + x), 4 * x, x, 1),
    )


def test_convolution_copies_its_operands_and_batch_norm_with_relu_is_one_kernel() -> None:
    def block(x: Tensor, w: Tensor, *norm: Tensor) -> Tensor:
        return functional.batch_norm(functional.conv2d(x, w), *norm).relu()

    x, w, out = 2 * 3 * 10 * 10, 4 * 3 * 3 * 3, 2 * 4 * 8 * 8
    made_ = made(block, [torch.ones(2, 3, 10, 10)], (4, 3, 3, 3), (4,), (4,), (4,), (4,))
    check(
        made_,
        ("pointwise", 4 * x, 4 * x, x, 1),  # to channels last
        ("pointwise", 4 * w, 4 * w, w, 1),
        ("extern", 4 * (x + w), 4 * out, out, 1),
        ("pointwise", 4 * (out + 4 * 4), 4 * out, out, 1),
    )
    assert made_[2].product == Product(1, 2 * 8 * 8, 4, 27)


def test_sum_of_embeddings_is_one_reduction_that_reads_what_it_looks_up() -> None:
    ids, table = torch.zeros(4, 16, dtype=torch.int64), (1000, 32)
    made_ = made(lambda i, t: functional.embedding(i, t).sum(1), [ids], table)
    check(made_, ("reduction", 8 * 4 * 16 + 4 * 4 * 16 * 32, 4 * 4 * 32, 4 * 32, 16))
    assert made_[0].operators == ("embedding", "sum")


@pytest.mark.parametrize(
    ("device", "dtype", "operator"),
    [
        (H200, torch.bfloat16, "_scaled_dot_product_cudnn_attention"),
        (A100, torch.bfloat16, "_scaled_dot_product_flash_attention"),
        (T4, torch.float16, "_scaled_dot_product_efficient_attention"),
        (H200, torch.float32, "_scaled_dot_product_efficient_attention"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_attention_is_the_kernel_of_the_card(
    device: Device, dtype: torch.dtype, operator: str
) -> None:
    def whole(q: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    x = torch.ones(2, 4, 32, 16)
    (kernel,) = made(whole, [x], device=device, dtype=dtype)
    assert kernel.operators == (operator,)
    assert kernel.product == Product(2 * 4, 32, 32, 16 + 16)
    assert kernel.written == x.numel() * dtype.itemsize


def test_attention_written_out_is_found_and_is_one_kernel_too() -> None:
    def parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / 4.0).softmax(-1) @ v

    inputs = [torch.ones(2, 4, 32, 16) for _ in range(3)]
    (kernel,) = made(parts, inputs, dtype=torch.float16)
    assert kernel.operators == ("_scaled_dot_product_cudnn_attention",)


def test_masks_in_unaligned_rows_are_copied_for_the_efficient_kernel_only() -> None:
    def masked(q: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, q, q, mask)

    inputs = [torch.ones(2, 4, 49, 16), torch.ones(49, 49)]
    assert [k.kind for k in made(masked, inputs, dtype=torch.float16)] == ["extern"]
    copied = made(masked, inputs, device=A100, dtype=torch.float16)
    assert [k.kind for k in copied] == ["pointwise", "extern"]


def test_indexing_constants_random_numbers_and_sorting_are_lowered_without_a_driver() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        order = torch.randperm(8, device=x.device)
        constant = torch.full_like(x, 2.0) * torch.zeros_like(x)
        return x.roll(2, 0) + constant, order, x.sort().values, functional.dropout(x, 0.1, True)

    assert len(made(program, [torch.ones(8, 16)])) >= 3


A, B, C = torch.ones(64, 64), torch.ones(64, 64), torch.ones(64)
BESIDE: dict[str, Callable[..., object]] = {
    "products": lambda a, b, _: torch.cat([a @ b, b @ a], 1),
    "products in rows": lambda a, b, c: torch.cat([torch.addmm(c, a, b), torch.addmm(c, b, a)]),
    "a product and an input": lambda a, b, _: torch.cat([a @ b, b], 1),
    "a product that is read again": lambda a, b, _: torch.cat([(p := a @ b).relu(), p], 1),
    "batches": lambda a, b, _: torch.cat([torch.bmm(a[None], b[None]), b[None]], 1),
    "sums": lambda a, b, _: torch.cat([a.sum(1, keepdim=True), b.sum(1, keepdim=True)], 1).relu(),
    "what is read by products": lambda a, b, _: torch.cat([a @ b, b @ a], 1) @ torch.cat([a, b]),
    "a view as a result": lambda a, b, _: torch.cat([a.relu(), b], 1).view(-1),
    "a view in a sum": lambda a, b, _: torch.cat([a.relu(), b], 1).view(-1) + 1,
    "paddings": lambda a, b, _: (
        functional.pad(a[:, :61], (0, 3)) @ b,
        functional.pad(a[:, :61], (0, 3)) @ a,
    ),
    "a product laid out for its reader": lambda a, b, _: (a @ b).t().contiguous() @ b,
}


@pytest.mark.parametrize("name", BESIDE)
def test_values_beside_each_other_are_predicted_as_they_are_written(name: str) -> None:
    program = capture(Calls(BESIDE[name], ()), (A, B, C)).program
    real, predicted = kernels(program, H200, pretend=True), partition(program.graph, H200)
    check(predicted, *((k.kind, k.read, k.written, k.numel, k.rnumel) for k in real))


def test_decomposed_program_has_the_kernels_of_the_captured_one() -> None:
    from torch._inductor.decomposition import select_decomp_table

    def block(x: Tensor, *weights: Tensor) -> Tensor:
        q = mlp(x, *weights).view(2, 4, 16, 32)
        return functional.scaled_dot_product_attention(q, q, q)

    module = Calls(block, MLP).eval().requires_grad_(False).bfloat16()
    program = capture(module, (torch.ones(32, 64).bfloat16(),)).program
    decomposed = program.run_decompositions(dict(select_decomp_table()))
    names = {"nodes": ()}
    given, parts = (
        [dataclasses.replace(k, **names) for k in kernels(p, H200, pretend=True)]
        for p in (program, decomposed)
    )
    assert len(given) == 3
    assert given == parts


def test_program_is_left_as_it_was() -> None:
    module = Calls(mlp, MLP).eval().requires_grad_(False)
    program = capture(module, (torch.ones(32, 64),)).program
    before = str(program)
    kernels(program, H200, pretend=True)
    assert str(program) == before


def test_graph_module_needs_inputs_or_metas_and_its_attributes_are_read() -> None:
    module = symbolic_trace(nn.Linear(64, 32))
    made_ = kernels(module, H200, [torch.ones(8, 64)], pretend=True)
    check(made_, ("extern", 4 * (8 * 64 + 32 * 64 + 32), 4 * 8 * 32, 8 * 32, 1))
    with pytest.raises(ValueError, match="pass inputs: 'input_1'"):
        kernels(module, H200, pretend=True)
    with pytest.raises(ValueError, match="has 1 placeholders, not 2"):
        kernels(module, H200, [1, 2], pretend=True)


def test_symbolic_sizes_are_their_hints() -> None:
    module = Calls(mlp, MLP).eval().requires_grad_(False)
    shapes = {"inputs": ({0: torch.export.Dim("batch")},)}
    dynamic = capture(module, (torch.ones(32, 64),), dynamic_shapes=shapes).program
    assert kernels(dynamic, H200, pretend=True) == made(mlp, [torch.ones(32, 64)], *MLP)


def test_cpu_kernels_come_from_the_cpp_backend() -> None:
    made_ = made(mlp, [torch.ones(32, 64)], *MLP, device=load("cpu"))
    assert [k.kind for k in made_] == ["extern", "reduction"]
    assert made_[1].rnumel == 128


def test_what_cannot_be_pretended_is_refused() -> None:
    module = symbolic_trace(nn.ReLU())
    inputs = [torch.ones(4)]
    with pytest.raises(ValueError, match="'mi300x' has the CUDA compute capability"):
        kernels(module, load("mi300x"), inputs, pretend=True)
    with pytest.raises(ValueError, match=r"'t4': .*BF16 is not supported"):
        kernels(module, T4, [torch.ones(4).bfloat16()], pretend=True)


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_real_kernels_need_a_gpu() -> None:
    with pytest.raises(ValueError, match="sees no GPU, so there are no real kernels for 'h200'"):
        kernels(symbolic_trace(nn.ReLU()), H200, [torch.ones(4)], pretend=False)


@pytest.mark.skipif(not NO_GPU, reason="with a GPU nothing is pretended")
def test_results_with_gaps_are_written_where_they_lie() -> None:
    def gapped(x: Tensor) -> Tensor:
        memory = torch.empty(5000)
        strides = [4096, 1]
        laid = torch.as_strided_scatter(memory, torch.relu(x), [2, 512], strides, 0)
        return torch.as_strided(laid, [2, 512], strides, 0)

    (kernel,) = made(gapped, [torch.ones(2, 512)])
    assert kernel.written == 2 * 512 * 4  # and not the gaps


def test_every_patch_finds_what_it_replaces() -> None:
    assert nogpu.missing() == ()
    assert all(patch.answers for patch in nogpu.PATCHES)


def test_patch_that_torch_broke_is_named_with_what_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.cuda, "get_rng_state")
    monkeypatch.setattr(torch.cuda, "set_rng_state", torch.set_rng_state)
    gone, changed = nogpu.missing()
    assert gone.startswith("torch.cuda:get_rng_state: it is gone; it answers: ")
    assert changed.startswith("torch.cuda:set_rng_state: it takes ('new_state',), not ('new_state'")


@pytest.mark.skipif(not NO_GPU, reason="with a GPU nothing fails")
def test_failure_says_which_patch_torch_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = tuple(patch for patch in nogpu.PATCHES if not patch.target.endswith(":get_rng_state"))
    monkeypatch.setattr(nogpu, "PATCHES", lost)
    monkeypatch.setattr(nogpu, "missing", lambda: ("torch.cuda:get_rng_state: it is gone",))
    with pytest.raises(ValueError, match=r"'h200': .*\(this torch is .*get_rng_state: it is gone"):
        kernels(symbolic_trace(nn.ReLU()), H200, [torch.ones(4)], pretend=True)


def held() -> dict[tuple[str, str], int]:
    """The identity of every function, class and property that a module of torch holds."""
    found: dict[tuple[str, str], int] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch"):
            for name, value in list(vars(module).items()):
                if callable(value):
                    found[module_name, name] = id(value)
    for patch in nogpu.PATCHES:
        owner, name = nogpu.place(patch)
        found[patch.target, ""] = id(vars(owner).get(name))
    return found


def test_everything_is_undone_also_after_an_error() -> None:
    made(mlp, [torch.ones(32, 64)], *MLP)  # imports what there is to import
    before, during, available = held(), held(), torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="inside"), nogpu.pretend(H200):
        assert torch.cuda.is_available()
        during = held()
        raise RuntimeError("inside")
    assert torch.cuda.is_available() == available
    assert held() == before
    targets = {(patch.target, "") for patch in nogpu.PATCHES}
    assert all(during[target] != before[target] for target in targets)


def test_modules_imported_meanwhile_keep_no_stand_in() -> None:
    name = "torch_imported_meanwhile"
    module = sys.modules[name] = ModuleType(name)
    try:
        with nogpu.pretend(H200):
            vars(module)["is_available"] = torch.cuda.is_available
        assert vars(module)["is_available"] is torch.cuda.is_available
    finally:
        del sys.modules[name]


def test_each_card_has_its_own_properties_one_after_the_other() -> None:
    hints = importlib.import_module("torch._inductor.runtime.hints")
    seen = list[tuple[object, ...]]()
    for device in (H200, T4):
        with nogpu.pretend(device):
            card = torch.cuda.get_device_properties(0)
            cached = hints.DeviceProperties.create(torch.device("cuda", 0))
            seen.append(
                (
                    card.name,
                    torch.cuda.get_device_capability(),
                    card.shared_memory_per_multiprocessor // 1024,
                    cached.multi_processor_count,
                    cached.max_threads_per_multi_processor,
                )
            )
    assert seen == [
        ("NVIDIA H200", (9, 0), 228, 132, 2048),
        ("Tesla T4", (7, 5), 64, 40, 1024),
    ]
    assert hints.DeviceProperties.create.cache_info().currsize == 0


def test_cpu_programs_compile_and_run_after_it() -> None:
    made(mlp, [torch.ones(32, 64)], *MLP)

    def program(x: Tensor) -> Tensor:
        return (x @ x.mT).softmax(-1).sin()

    x = torch.arange(64.0).view(8, 8) / 64
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(program)(x), program(x))


@pytest.mark.skipif(not PINNED, reason=f"the truth is that of torch {truth.TORCH}")
@pytest.mark.parametrize("model", ["dlrm", "mixer", "unet"])
def test_committed_truth_is_what_inductor_makes_today(model: str) -> None:
    path = truth.FOLDER / f"{model}.json.gz"
    assert json.loads(json.dumps(truth.compute(model))) == truth.load_json(path)


def test_committed_truth_is_complete_and_adds_up() -> None:
    assert {path.name for path in truth.FOLDER.iterdir()} == {
        f"{model}.json.gz" for model in networks.MODELS
    }
    assert [len(models) for models in networks.SETS.values()] == [16, 10, 6]
    for model in networks.MODELS:
        known = truth.read(model)
        assert (known.model, known.torch, known.profile) == (model, truth.TORCH, truth.PROFILE)
        assert model in networks.SETS[known.set]
        names = {node.name for node in known.captured.nodes}
        assert all(names >= {*kernel.nodes} for kernel in known.kernels), model
        assert sum(k.kind == "extern" for k in known.kernels) > 0


def test_graph_written_and_read_is_the_same_graph() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty_strided((2, 3), (1, 2), dtype=torch.bfloat16)
    aten = torch.ops.aten
    split = graph.call_function(aten.split.Tensor, (x, 1))
    split.meta["val"] = (torch.ones(1, 3), torch.ones(1, 3))
    part = graph.call_function(graphs.getitem, (split, 1))
    options = {"dtype": torch.int64, "layout": torch.strided, "device": torch.device("cpu")}
    ones = graph.call_function(aten.ones.default, ([2, 3],), options)
    copied = graph.call_function(
        aten.clone.default, (part,), {"memory_format": torch.channels_last}
    )
    clamped = graph.call_function(aten.clamp.default, (copied, -math.inf, 1.0))
    strange = graph.call_function(
        aten.index.Tensor, (clamped, [None, ones], (1j, "a", slice(1, x)))
    )
    graph.output(((strange, True),))
    data = json.loads(json.dumps(graphs.to_json(graph)))
    read = graphs.from_json(data)
    assert str(read) == str(graph)
    assert graphs.to_json(read) == data
    assert [type(n.args) for n in read.nodes] == [type(n.args) for n in graph.nodes]
    values = [node.meta.get("val") for node in read.nodes]
    assert values[0].stride() == (1, 2) and values[0].dtype == torch.bfloat16
    assert values[0].device.type == "meta" and len(values[1]) == 2


def test_graph_that_cannot_be_written_is_refused() -> None:
    module: GraphModule = symbolic_trace(nn.ReLU())
    with pytest.raises(ValueError, match="cannot be written: decompose it first"):
        graphs.to_json(module.graph)


def _up(x: Tensor, size: int = 32) -> Tensor:
    return functional.interpolate(x, size=(size, size), mode="bilinear")


@pytest.mark.parametrize("device", [H200, load("cpu")], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, *_: _up(x * x.flip(0)),
        lambda x, y, _: _up(x) + _up(x.mT) + _up(y.relu()) + _up(y.mT),
        lambda x, y, w: functional.conv2d(torch.cat([_up(x), _up(y)], 1), w),
        lambda x, *_: _up(torch.relu(_up(x)), 64),
        lambda x, *_: _up(x).softmax(1),
    ],
)
def test_the_model_predicts_the_kernels_of_up_sampling(
    function: Callable[..., object], device: Device
) -> None:
    channels_last = (torch.randn(2, n, n, 16).permute(0, 3, 1, 2) for n in (8, 16))
    given = (*channels_last, torch.randn(4, 32, 1, 1))
    program = capture(Calls(function, ()), given).program
    found = partition(program.graph, device)
    assert len(found) == len(kernels(program, device, pretend=device is H200 or None))
