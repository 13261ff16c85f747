"""What the rules find in networks as people deploy them, at small sizes."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Node

import eqsat
from eqsat.settings import ALWAYS, MARGIN

transformers = pytest.importorskip("transformers")

BATCH, TOKENS, HIDDEN, INNER, VOCABULARY, LAYERS = 2, 20, 32, 48, 80, 2
PRODUCTS = ("aten.linear.default", "aten.addmm.default", "aten.matmul.default")


class Logits(nn.Module):
    """A transformers model that returns its logits, all or those of the last position."""

    def __init__(self, model: nn.Module, last: bool = False) -> None:
        super().__init__()
        self.model, self.last = model, last

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = {} if attention_mask is None else {"attention_mask": attention_mask}
        logits = self.model(ids, **mask, return_dict=False)[0]
        return logits[:, -1] if self.last else logits


class LowRank(nn.Module):
    """A linear layer with an adapter that was not merged into it."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.base = nn.Linear(HIDDEN, INNER, bias=bias)
        self.down = nn.Linear(HIDDEN, 4, bias=False)
        self.up = nn.Linear(4, INNER, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x)) * 0.25


class Residual(nn.Module):
    """Two convolutions with batch norm around a shortcut that has them too."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, padding=1, groups=groups, bias=False)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=groups)
        self.short = nn.Conv2d(4, 8, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.norms[2](self.short(x)))


class Transition(nn.Module):
    """What lies between two blocks of DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(self.mix(torch.relu(self.norm(x))), 2, 2)


def ready(module: nn.Module) -> nn.Module:
    """The module, evaluating, with none of its parameters at a trivial initial value."""
    torch.manual_seed(0)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and tensor.ndim:
            low = 0.5 if name.endswith("running_var") else -0.2
            nn.init.uniform_(tensor.requires_grad_(False), low, low + 0.4)
    return module.eval()


def check(
    module: nn.Module, *args: Tensor, margin: float = MARGIN, extractor: str = "auto"
) -> eqsat.Result:
    """The optimized module, which gives what the module gives.

    On small shapes the launches are all that counts: a rule that saves none needs another margin.
    """
    limits = eqsat.Limits(seconds=120)
    with torch.no_grad():
        result = eqsat.optimize(
            module, args, limits=limits, time_limit=30.0, margin=margin, extractor=extractor
        )
        assert result.report.kept is None
        torch.testing.assert_close(result.module(*args), module(*args), rtol=1e-5, atol=1e-5)
    return result


def calls(result: eqsat.Result, *names: str) -> list[Node]:
    """The calls of these ATen operators."""
    return [n for n in result.program.graph.nodes if str(n.target) in names]


def rows(node: Node) -> int:
    """The number of rows of a product."""
    shape = node.meta["val"].shape
    return math.prod(shape[:-1])


def products(result: eqsat.Result, width: int) -> list[int]:
    """The rows of the products that are `width` wide, fewest first."""
    found = calls(result, *PRODUCTS)
    return sorted(rows(n) for n in found if n.meta["val"].shape[-1] == width)


def config(kind: Callable[..., Any], **options: Any) -> Any:
    """A small configuration with attention in its parts."""
    return kind(vocab_size=VOCABULARY, attn_implementation="eager", use_cache=False, **options)


def ids() -> Tensor:
    """A batch of tokens."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, VOCABULARY, (BATCH, TOKENS), generator=generator)


@cache
def bert() -> eqsat.Result:
    """A BERT classifier over a padded batch."""
    options = config(
        transformers.BertConfig,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=INNER,
        num_labels=3,
    )
    mask = (torch.arange(TOKENS) < torch.tensor([[TOKENS], [TOKENS - 7]])).long()
    return check(ready(Logits(transformers.BertForSequenceClassification(options))), ids(), mask)


@cache
def gpt2() -> eqsat.Result:
    """A GPT-2 that scores the next token."""
    options = config(
        transformers.GPT2Config,
        n_embd=HIDDEN,
        n_layer=LAYERS,
        n_head=4,
        n_positions=TOKENS,
        bos_token_id=0,
        eos_token_id=0,
    )
    return check(ready(Logits(transformers.GPT2LMHeadModel(options), last=True)), ids())


@cache
def llama() -> eqsat.Result:
    """A Llama with grouped keys and values."""
    options = config(
        transformers.LlamaConfig,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return check(ready(Logits(transformers.LlamaForCausalLM(options))), ids())


@pytest.mark.parametrize("model", [bert, gpt2, llama], ids=lambda model: model.__name__)
def test_every_attention_becomes_one_call(model: Callable[[], eqsat.Result]) -> None:
    assert len(calls(model(), "aten.scaled_dot_product_attention.default")) == LAYERS
    assert not calls(model(), "aten.softmax.int")


def test_bert_runs_the_last_layer_on_one_token() -> None:
    assert products(bert(), INNER) == [BATCH] + [BATCH * TOKENS] * (LAYERS - 1)


def test_gpt2_scores_only_the_last_position() -> None:
    assert products(gpt2(), VOCABULARY) == [BATCH]
    assert products(gpt2(), 4 * HIDDEN) == [BATCH] + [BATCH * TOKENS] * (LAYERS - 1)


def test_bert_computes_query_key_and_value_at_once() -> None:
    assert BATCH * TOKENS in products(bert(), 3 * HIDDEN)


def test_llama_computes_query_key_value_and_gate_up_at_once() -> None:
    assert products(llama(), 2 * HIDDEN) == [BATCH * TOKENS] * LAYERS  # HIDDEN + 2 * HIDDEN // 2
    assert products(llama(), 2 * INNER) == [BATCH * TOKENS] * LAYERS


def test_llama_norms_in_one_call() -> None:
    assert len(calls(llama(), "aten.rms_norm.default")) == 2 * LAYERS + 1
    assert not calls(llama(), "aten.rsqrt.default")


@pytest.mark.parametrize("bias", [False, True])
def test_low_rank_adapter_is_folded_into_the_weight(bias: bool) -> None:
    result = check(ready(LowRank(bias)), torch.randn(BATCH, TOKENS, HIDDEN))
    assert len(calls(result, *PRODUCTS)) == 1
    assert not calls(result, "aten.add.Tensor", "aten.mul.Tensor")
    assert result.report.folded_bytes >= HIDDEN * INNER * 4


@pytest.mark.parametrize("groups", [1, 4])
def test_batch_norm_is_folded_into_convolutions(groups: int) -> None:
    result = check(ready(Residual(groups)), torch.randn(BATCH, 4, 9, 9), margin=ALWAYS)
    convolutions = calls(result, "aten.conv2d.default")
    assert len(convolutions) == 3
    assert all(len(n.args) > 2 and n.args[2] is not None for n in convolutions)
    assert not calls(result, "aten.batch_norm.default", "aten.mul.Tensor")


def test_weights_of_convolutions_are_laid_out_once_and_the_output_lies_as_before() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(16, 32, 3), nn.Conv2d(32, 16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.relu(self.first(x)))

    module, x = ready(Two()), torch.randn(BATCH, 16, 12, 12)
    result = check(module, x)
    before, after = result.report.before, result.report.after
    assert before is not None and after is not None
    assert len(before.kernels) - len(after.kernels) == 2  # a copy of each weight
    targets = {s.arg.name: s.target for s in result.program.graph_signature.input_specs}
    for convolution in calls(result, "aten.conv2d.default"):
        weight = result.program.state_dict[str(targets[convolution.all_input_nodes[1].name])]
        assert weight.is_contiguous(memory_format=torch.channels_last)
    assert result.module(x).stride() == module(x).stride()
    kept = eqsat.optimize(module, (x,), numerics="strict", margin=ALWAYS)
    assert not kept.report.folded_bytes  # another layout may choose a kernel that rounds otherwise


def test_densenet_pools_before_it_mixes_channels() -> None:
    options: dict[str, Any] = {"margin": ALWAYS, "extractor": "portfolio"}  # whatever launches cost
    result = check(ready(Transition()), torch.randn(BATCH, 8, 10, 10), **options)
    (convolution,) = calls(result, "aten.conv2d.default")
    assert convolution.all_input_nodes[0].target == torch.ops.aten.avg_pool2d.default


def test_layer_with_one_bias_missing_is_merged_too() -> None:
    class Projections(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(HIDDEN, n, bias=n != 24) for n in (16, 24, 40))

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return tuple(torch.relu(part(x)) for part in self.parts)

    module, x = ready(Projections()), torch.randn(BATCH, HIDDEN)
    result = eqsat.optimize(module, (x,), margin=ALWAYS)
    assert products(result, 80) == [BATCH]
    assert len(calls(result, *PRODUCTS)) == 1
    for a, b in zip(result.module(x), module(x), strict=True):
        torch.testing.assert_close(a, b)
