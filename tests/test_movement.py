"""Slices, picks, cats and means move to where they save work, in blocks as people deploy them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name it has everywhere
from torch import Tensor, nn
from torch.fx import Node
from united import Case, listed, united

import eqsat
import rewrites
from eqsat.settings import ALWAYS

PRODUCTS = ("aten.linear.default", "aten.addmm.default", "aten.matmul.default")
CONVOLUTION, UPSAMPLE = "aten.conv2d.default", "aten.upsample_bilinear2d.vec"


class Program(nn.Module):
    """A function of its inputs and of the layers it is given."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*self.layers, *inputs)


class Residual(nn.Module):
    """A block of a diffusion model: two convolutions, told the time between them."""

    def __init__(self, width: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(2))
        self.maps = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(time, width)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.maps[0](F.silu(self.norms[0](x))) + self.time(F.silu(t))[:, :, None, None]
        return x + self.maps[1](F.silu(self.norms[1](h)))


class Crossing(nn.Module):
    """Attention of the places of an image to a text."""

    def __init__(self, width: int, text: int) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.key, self.value = (nn.Linear(text, width, bias=False) for _ in range(2))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        rows = x.flatten(2).transpose(1, 2)
        heads = (self.query(rows), self.key(text), self.value(text))
        q, k, v = (h.unflatten(-1, (4, -1)).transpose(1, 2) for h in heads)
        found = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(found).transpose(1, 2).reshape(x.shape)


class Guided(nn.Module):
    """A step of guided diffusion: the image twice, with two texts."""

    def __init__(self, width: int = 128, text: int = 12, time: int = 16) -> None:
        super().__init__()
        self.first, self.last = (nn.Conv2d(*c, 3, padding=1) for c in ((4, width), (width, 4)))
        self.before, self.after = Residual(width, time), Residual(width, time)
        self.cross = Crossing(width, text)

    def forward(self, x: Tensor, t: Tensor, text: Tensor, none: Tensor) -> Tensor:
        twice, time = torch.cat([x, x]), t.expand(2 * x.shape[0], -1)
        h = self.before(self.first(twice), time)
        h = self.after(self.cross(h, torch.cat([none, text])), time)
        without, with_ = self.last(h).chunk(2)
        return without + 7.5 * (with_ - without)


class Windows(nn.Module):
    """What rolls an image, works on windows of it, and rolls it back, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.roll(x, (-2, -1), (1, 2))
            x = layer(F.pad(x, (0, 0, 0, 0, 0, 0)))
            x = torch.roll(x, (2, 1), (1, 2))
        return x


def ready(module: nn.Module) -> nn.Module:
    """The module, evaluating, with none of its parameters at a trivial initial value."""
    torch.manual_seed(0)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and tensor.ndim:
            low = 0.5 if name.endswith("running_var") else -0.2
            nn.init.uniform_(tensor.requires_grad_(False), low, low + 0.4)
    return module.eval()


def check(module: nn.Module, *inputs: Tensor) -> eqsat.Result:
    """The optimized module, which gives what the module gives."""
    with torch.no_grad():
        options: dict[str, Any] = {
            "margin": ALWAYS,
            "extractor": "portfolio",
        }  # whatever launches cost
        result = eqsat.optimize(ready(module), inputs, time_limit=5.0, **options)
        assert result.report.kept is None
        torch.testing.assert_close(result.module(*inputs), module(*inputs), rtol=1e-4, atol=1e-4)
    return result


def calls(result: eqsat.Result, *names: str) -> list[Node]:
    """The calls of these ATen operators."""
    return [n for n in result.program.graph.nodes if str(n.target) in names]


def shapes(result: eqsat.Result, *names: str) -> list[tuple[int, ...]]:
    """The shapes of the results of these operators."""
    return [tuple(n.meta["val"].shape) for n in calls(result, *names)]


def rows(result: eqsat.Result, width: int) -> list[int]:
    """The rows of the products that are `width` wide, fewest first."""
    return sorted(math.prod(s[:-1]) for s in shapes(result, *PRODUCTS) if s[-1] == width)


def hub(name: str, kind: str, **options: Any) -> nn.Module:
    """A small model of the transformers library."""
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, name)(getattr(transformers, kind)(**options))


def test_segformer_resizes_after_its_linear_maps() -> None:
    options = {"hidden_sizes": [8, 16, 24, 32], "decoder_hidden_size": 40, "num_labels": 5}
    model = hub("SegformerForSemanticSegmentation", "SegformerConfig", **options)
    sides = ((8, 32), (16, 16), (24, 8), (32, 4))
    inputs = [torch.randn(1, channels, side, side) for channels, side in sides]
    result = check(Program(lambda head, *x: head(list(x)), model.decode_head), *inputs)
    assert not calls(result, "aten.cat.default")
    assert sorted(s[-1] for s in shapes(result, CONVOLUTION)) == [32]  # the classifier alone
    assert rows(result, 40) == [16, 64, 256, 1024]
    assert all(s[1:] == (40, 32, 32) for s in shapes(result, UPSAMPLE))


def test_guidance_computes_what_both_halves_share_once() -> None:
    x, t = torch.randn(1, 4, 40, 40), torch.randn(1, 16)
    result = check(Guided(), x, t, torch.randn(1, 5, 12), torch.randn(1, 5, 12))
    batches = [shape[0] for shape in shapes(result, CONVOLUTION)]
    assert batches == [1, 1, 1, 2, 2, 2]
    assert [s[0] for s in shapes(result, "aten.scaled_dot_product_attention.default")] == [2]


def test_vit_runs_the_last_layer_on_the_class_token() -> None:
    options = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2}
    options |= {"num_attention_heads": 4, "intermediate_size": 48, "attn_implementation": "eager"}
    model = hub("ViTForImageClassification", "ViTConfig", **options)
    result = check(
        Program(lambda m, x: m(x, return_dict=False)[0], model), torch.randn(2, 3, 32, 32)
    )
    assert rows(result, 48) == [2, 2 * 17]


def test_gpt2_classifies_only_the_tokens_that_are_picked() -> None:
    options: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 20}
    options |= {"vocab_size": 80, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    options |= {"attn_implementation": "eager", "use_cache": False, "num_labels": 3}
    model = hub("GPT2ForSequenceClassification", "GPT2Config", **options)
    ids = torch.randint(1, 80, (2, 20))
    ids[1, 15:] = 0
    result = check(Program(lambda m, x: m(x, return_dict=False)[0], model), ids)
    assert rows(result, 128) == [2, 40]
    assert rows(result, 3) == [2]


def test_windows_that_roll_back_and_forth_do_not_roll() -> None:
    result = check(Windows(), torch.randn(2, 8, 8, 6))
    assert len(calls(result, "aten.roll.default")) == 2
    assert not calls(result, "aten.pad.default", "aten.constant_pad_nd.default")


def test_a_mean_of_places_moves_before_the_last_linear_maps() -> None:
    def block(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor:
        return down(F.gelu(up(x))).mean((1, 2))

    layers = nn.Linear(16, 64), nn.Linear(64, 16)
    result = check(Program(block, *layers), torch.randn(2, 12, 12, 16))
    assert rows(result, 64) == [2 * 144]
    assert rows(result, 16) == [2]


@pytest.mark.parametrize("pool", [F.avg_pool2d, F.adaptive_avg_pool2d])
def test_densenet_pools_before_it_mixes_channels(pool: Callable[..., Tensor]) -> None:
    layers = nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1, bias=False)
    transition = Program(lambda norm, mix, x: pool(mix(torch.relu(norm(x))), 2), *layers)
    result = check(transition, torch.randn(2, 8, 10, 10))
    assert all(shape[-1] < 10 for shape in shapes(result, CONVOLUTION))


def test_channels_that_nobody_reads_are_not_computed() -> None:
    layers = nn.Conv2d(4, 64, 3, padding=1), nn.GroupNorm(1, 8)
    result = check(
        Program(lambda c, n, x: n(torch.relu(c(x))[:, 8:16])[:1], *layers), torch.randn(3, 4, 8, 8)
    )
    assert shapes(result, CONVOLUTION) == [(1, 8, 8, 8)]


IMAGE, ROWS, TABLE = torch.randn(3, 6, 8, 8), torch.randn(3, 5, 6), torch.randn(9, 6)
KERNEL, MATRIX, BIAS = torch.randn(4, 6, 3, 3), torch.randn(6, 4), torch.randn(4)
PICKS, LAST = torch.tensor([2, 0]), torch.tensor([4, 1, 3])
EVERY = torch.arange(3)


def pair(function: Callable[..., Tensor], *inputs: Tensor) -> Case:
    """A slice of a function of the first input, and the function of a slice of it."""
    return Case(
        lambda x, *rest: function(x, *rest)[1:2], lambda x, *rest: function(x[1:2], *rest), inputs
    )


def picked(function: Callable[..., Tensor], *inputs: Tensor) -> Case:
    """A token picked of each row after a function of all, and the function of those picked."""
    return Case(
        lambda x, *rest: function(x, *rest)[EVERY, LAST],
        lambda x, *rest: function(x[EVERY, LAST], *rest),
        inputs,
    )


SAME = {
    "slice of average pool": pair(lambda x: F.avg_pool2d(x, 2), IMAGE),
    "slice of adaptive pool": pair(lambda x: F.adaptive_avg_pool2d(x, 2), IMAGE),
    "slice of maximum pool": pair(lambda x: F.max_pool2d(x, 2), IMAGE),
    "slice of nearest": pair(lambda x: F.interpolate(x, scale_factor=2.0), IMAGE),
    "slice of bilinear": pair(lambda x: F.interpolate(x, size=(5, 5), mode="bilinear"), IMAGE),
    "slice of convolution": pair(F.conv2d, IMAGE, KERNEL),
    "slice of group norm": pair(lambda x: F.group_norm(x, 2), IMAGE),
    "slice of log softmax": pair(lambda x: F.log_softmax(x, -1), ROWS),
    "slice of running sum": pair(lambda x: x.cumsum(1), ROWS),
    "slice of padding": pair(lambda x: F.pad(x, (1, 2)), ROWS),
    "slice within padding": Case(lambda x: F.pad(x, (1, 2))[..., 1:7] * 2, lambda x: x * 2, [ROWS]),
    "slice of picked rows": Case(
        lambda w, i: torch.sin(w[i][1:2]), lambda w, i: torch.sin(w[i[1:2]]), [TABLE, PICKS]
    ),
    "slice of columns of picked rows": Case(
        lambda w, i: torch.sin(w[i][:, 1:3]),
        lambda w, i: torch.sin(w[:, 1:3][i]),
        [TABLE, PICKS],
    ),
    "slice of counts": Case(
        lambda i: i + torch.arange(3, 9, 2)[1:], lambda i: i + torch.arange(5, 9, 2), [PICKS]
    ),
    "pick of pointwise": picked(torch.tanh, ROWS),
    "pick of sum": picked(lambda x, b: x + b, ROWS, torch.randn(6)),
    "pick of linear": picked(lambda x, w, b: F.linear(x, w.t(), b), ROWS, MATRIX, BIAS),
    "pick of norm": picked(lambda x: F.layer_norm(x, (6,)), ROWS),
    "pick of softmax": picked(lambda x: torch.softmax(x, -1), ROWS),
    "pick of embedding": Case(
        lambda i, w: torch.sin(F.embedding(i, w)[EVERY, EVERY]),
        lambda i, w: torch.sin(F.embedding(i[EVERY, EVERY], w)),
        [torch.randint(9, (3, 5)), TABLE],
    ),
    "pick of a pick": Case(
        lambda w, i, j: torch.sin(w[i][j]),
        lambda w, i, j: torch.sin(w[i[j]]),
        [TABLE, PICKS, torch.tensor([1])],
    ),
    "pick of permuted": Case(
        lambda x, i: torch.sin(x.transpose(0, 1)[i]),
        lambda x, i: torch.sin(x[:, i].transpose(0, 1)),
        [ROWS, PICKS],
    ),
    "product of a cat": Case(
        lambda x, y, w: torch.cat([x, y], -1) @ w,
        lambda x, y, w: x @ w[:2] + y @ w[2:],
        [ROWS[..., :2].contiguous(), ROWS[..., 2:].contiguous(), MATRIX],
    ),
    "convolution of a cat": Case(
        lambda x, y, w: F.conv2d(torch.cat([x, y], 1), w),
        lambda x, y, w: F.conv2d(x, w[:, :2]) + F.conv2d(y, w[:, 2:]),
        [IMAGE[:, :2].contiguous(), IMAGE[:, 2:].contiguous()],
        [KERNEL],
    ),
    "convolution of padding": Case(
        lambda x, w: F.conv2d(F.pad(x, (1, 1, 2, 2)), w),
        lambda x, w: F.conv2d(x, w, padding=(2, 1)),
        [IMAGE],
        [KERNEL],
    ),
    "scaled average pool": Case(
        lambda x: F.avg_pool2d(x * 2.0, 2), lambda x: F.avg_pool2d(x, 2) * 2.0, [IMAGE]
    ),
    "shifted bilinear": Case(
        lambda x: F.interpolate(x, size=(5, 5), mode="bilinear") + 1.0,
        lambda x: F.interpolate(x + 1.0, size=(5, 5), mode="bilinear"),
        [IMAGE],
    ),
    "function of nearest": Case(
        lambda x: torch.tanh(F.interpolate(x, scale_factor=2.0)),
        lambda x: F.interpolate(torch.tanh(x), scale_factor=2.0),
        [IMAGE],
    ),
    "maximum pool of relu": Case(
        lambda x: F.max_pool2d(torch.relu(x), 2), lambda x: torch.relu(F.max_pool2d(x, 2)), [IMAGE]
    ),
    "maximum of a sigmoid": Case(
        lambda x: torch.sigmoid(x).amax(-1), lambda x: torch.sigmoid(x.amax(-1)), [ROWS]
    ),
    "mean of a cat": Case(
        lambda x, y: torch.cat([x, y], 1).mean(-1),
        lambda x, y: torch.cat([x.mean(-1), y.mean(-1)], 1),
        [ROWS, ROWS + 1],
    ),
    "sum of a cat": Case(
        lambda x, y: torch.cat([x, y], 1).sum(1), lambda x, y: x.sum(1) + y.sum(1), [ROWS, ROWS + 1]
    ),
    "mean of a sum": Case(
        lambda x, w, b: (x + F.linear(x, w, b)).mean(1),
        lambda x, w, b: x.mean(1) + F.linear(x.mean(1), w, b),
        [ROWS, torch.randn(6, 6), torch.randn(6)],
    ),
    "sum of products": Case(
        lambda a, b: (a[:, :, None] * b[None]).sum(1), torch.mm, [ROWS[0], MATRIX]
    ),
    "sum of a product with a vector": Case(
        lambda x, y: (x * y).sum(-1), torch.matmul, [ROWS, torch.randn(6)]
    ),
    "rolled back": Case(
        lambda x: torch.sin(torch.roll(torch.roll(x, (1, -2), (0, 1)), (-1, 2), (0, 1))),
        torch.sin,
        [ROWS],
    ),
}


@pytest.mark.parametrize("case", SAME.values(), ids=SAME.keys())
def test_both_forms_are_one_value(case: Case) -> None:
    values = (*case.inputs, *case.constants)
    left, right = listed(case.left(*values)), listed(case.right(*values))
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)
    assert not united(case, [])
    assert united(case, rewrites.DEFAULT)


SPELLED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda x, i: x[i],
    "index behind": lambda x, i: x[:, :, i],
    "two indices": lambda x, i: x[:, i, i[:, None]],
    "index_select": lambda x, i: x.index_select(-1, i.abs()),
    "scatter": lambda x, i: x.scatter(1, i.abs()[None, :, None].expand(3, 2, 6), 2.0),
    "pad": lambda x, _: F.pad(x, (1, 0, 0, 2), value=3.0),
    "roll": lambda x, _: torch.roll(x, (-1, 7), (2, 1)),
    "repeat rows": lambda x, _: x.repeat(2, 1, 1),
    "repeat": lambda x, _: x.repeat(2, 1, 3, 2),
    "repeat_interleave": lambda x, _: x.repeat_interleave(3, 1),
    "cumsum": lambda x, _: x.cumsum(-2),
    "max_pool2d": lambda x, _: F.max_pool2d(x, (2, 3), 2, 1, ceil_mode=True),
    "avg_pool1d": lambda x, _: F.avg_pool1d(x, 3, 2, 1),
    "adaptive_avg_pool1d": lambda x, _: F.adaptive_avg_pool1d(x, 4),
}


@pytest.mark.parametrize("function", SPELLED.values(), ids=SPELLED.keys())
def test_what_moves_elements_is_in_the_language_and_comes_back_bit_for_bit(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    inputs = ROWS, torch.tensor([1, -1])
    result = eqsat.optimize(Program(function), inputs, rules=[], margin=ALWAYS)
    assert result.report.kept is None
    assert not result.report.coverage
    assert torch.equal(result.module(*inputs), function(*inputs))


def test_a_mask_as_an_index_depends_on_data_and_stays_as_given() -> None:
    program = Program(lambda x, m: torch.where(m, x, 0.0)[:, [0, 2]].sum(0))
    inputs = ROWS, ROWS > 0
    result = eqsat.optimize(program, inputs, margin=ALWAYS)
    torch.testing.assert_close(result.module(*inputs), program(*inputs))
