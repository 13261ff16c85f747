"""Attention is recognised however it is written, where that is sound."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import eqsat
from eqsat.settings import ALWAYS

SCALE = 8**-0.5


def hidden(shown: Tensor) -> Tensor:
    """A mask that is added to scores."""
    return torch.where(shown, 0.0, -1e9)


def by_hand(scores: Tensor) -> Tensor:
    """A softmax in its parts."""
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def divided_late(scores: Tensor, v: Tensor) -> Tensor:
    """Attention that divides what it has summed."""
    powers = torch.exp(scores)
    return (powers @ v) / powers.sum(-1, keepdim=True)


def batched(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over batch and heads in one dim."""
    q3, k3, v3 = (t.flatten(0, 1) for t in (q, k, v))
    return torch.bmm(softmax(torch.bmm(q3, k3.mT) * SCALE), v3).view(q.shape)


def softmax(scores: Tensor) -> Tensor:
    """The weights of a row of scores."""
    return torch.softmax(scores, -1)


SPELLINGS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "unscaled": lambda q, k, v, _: softmax(q @ k.mT) @ v,
    "divided": lambda q, k, v, _: softmax(q @ k.mT / 8**0.5) @ v,
    "scaled from the left": lambda q, k, v, _: softmax(SCALE * (q @ k.mT)) @ v,
    "scaled query": lambda q, k, v, _: softmax((q * SCALE) @ k.mT) @ v,
    "divided query": lambda q, k, v, _: softmax((q / 8**0.5) @ k.mT) @ v,
    "scaled key": lambda q, k, v, _: softmax(q @ (k * SCALE).mT) @ v,
    "both scaled": lambda q, k, v, _: softmax((q * SCALE**0.5) @ (k * SCALE**0.5).mT) @ v,
    "transposed key": lambda q, k, v, _: softmax(q @ k.permute(0, 1, 3, 2).contiguous()) @ v,
    "masked": lambda q, k, v, m: softmax(q @ k.mT + hidden(m)) @ v,
    "scaled, masked": lambda q, k, v, m: softmax(q @ k.mT * SCALE + hidden(m)) @ v,
    "mask first": lambda q, k, v, m: softmax(hidden(m) + (q @ k.mT) / 8**0.5) @ v,
    "masked, then scaled": lambda q, k, v, m: softmax((q @ k.mT + hidden(m)) * SCALE) @ v,
    "two masks": lambda q, k, v, m: softmax(q @ k.mT * SCALE + hidden(m) + hidden(m[:1])) @ v,
    "by hand": lambda q, k, v, _: by_hand(q @ k.mT * SCALE) @ v,
    "divided late": lambda q, k, v, _: divided_late(q @ k.mT * SCALE, v),
    "batched": lambda q, k, v, _: batched(q, k, v),
}
HIDING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "where": lambda x, m: torch.where(m, x, -1e38),
    "infinite": lambda x, m: torch.where(m, x, -math.inf),
    "masked_fill": lambda x, m: x.masked_fill(~m, torch.finfo(x.dtype).min),
    "added": lambda x, m: x + torch.zeros_like(x).masked_fill(~m, -math.inf),
}


class Attention(nn.Module):
    """A function of queries, keys, values and what is shown."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: Tensor, k: Tensor, v: Tensor, shown: Tensor) -> Tensor:
        return self.function(q, k, v, shown)


def attention_calls(function: Callable[..., Tensor], numerics: str) -> int:
    """How many calls of attention are left of a function, which has nothing else of it."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 20, 8, generator=generator) for _ in range(3))
    shown = torch.rand(2, 1, 20, 20, generator=generator) > 0.3
    result = eqsat.optimize(Attention(function), (q, k, v, shown), numerics=numerics, margin=ALWAYS)
    torch.testing.assert_close(result.module(q, k, v, shown), function(q, k, v, shown))
    return result.report.operators_after.get("aten.scaled_dot_product_attention.default", 0)


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_every_spelling_of_attention_is_recognised(spelling: Callable[..., Tensor]) -> None:
    assert attention_calls(spelling, "default") == 1


@pytest.mark.parametrize("hide", HIDING.values(), ids=HIDING.keys())
def test_masks_that_hide_rows_whole_or_nan_need_relaxed_numerics(
    hide: Callable[[Tensor, Tensor], Tensor],
) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, shown: Tensor) -> Tensor:
        return softmax(hide(q @ k.mT * SCALE, shown)) @ v

    assert attention_calls(function, "relaxed") == 1
    assert attention_calls(function, "default") == 0


@pytest.mark.parametrize("dims", [2, 3])
def test_attention_is_called_with_a_batch_and_a_head_dim(dims: int) -> None:
    class Plain(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, shown: Tensor) -> Tensor:
            return softmax(q @ k.mT * SCALE + hidden(shown)) @ v

    q, k, v, shown = (torch.randn(5, 20, 20)[(0,) * (3 - dims)] for _ in range(4))
    result = eqsat.optimize(Plain(), (q, k, v, shown > -1), margin=ALWAYS)
    (call,) = (n for n in result.program.graph.nodes if "attention" in str(n.target))
    assert call.meta["val"].ndim == 4
    torch.testing.assert_close(result.module(q, k, v, shown > -1), Plain()(q, k, v, shown > -1))
