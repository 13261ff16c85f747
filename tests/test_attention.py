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


def with_numbers(scores: Tensor, shown: Tensor, least: float) -> Tensor:
    """Scores with what is hidden as numbers times the least one."""
    return scores + (1.0 - shown.float()) * least


def places(scores: Tensor) -> Tensor:
    """Which keys a query may see, by their places."""
    n = scores.shape[-1]
    return torch.arange(n)[:, None] >= torch.arange(n)[None, :]


def largest_first(scores: Tensor) -> Tensor:
    """A softmax in its parts, with the largest score by `max`."""
    powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return powers / powers.sum(-1, keepdim=True)


def added_in_product(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention whose mask is added by the product of the scores."""
    q3, k3, v3 = (t.flatten(0, 1) for t in (q, k, v))
    scores = torch.baddbmm(mask.expand(2, 3, 20, 20).flatten(0, 1), q3, k3.mT, alpha=SCALE)
    return torch.bmm(softmax(scores), v3).view(q.shape)


def heads_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with the dim of heads before that of the batch."""
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    return (softmax(q @ k.mT * SCALE) @ v).transpose(0, 1)


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over heads that stand behind the length, by einsum."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * SCALE
    return torch.einsum("bhqk,bkhd->bqhd", softmax(scores), v).transpose(1, 2)


def in_double(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention whose softmax has twice the digits."""
    return torch.softmax((q @ k.mT).double() * SCALE, -1).float() @ v


LEAST = torch.finfo(torch.float32).min
SPELLINGS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "unscaled": lambda q, k, v, _: softmax(q @ k.mT) @ v,
    "divided": lambda q, k, v, _: softmax(q @ k.mT / 8**0.5) @ v,
    "scaled from the left": lambda q, k, v, _: softmax(SCALE * (q @ k.mT)) @ v,
    "scaled by a tensor": lambda q, k, v, _: softmax(q @ k.mT / torch.sqrt(torch.tensor(8.0))) @ v,
    "scaled query": lambda q, k, v, _: softmax((q * SCALE) @ k.mT) @ v,
    "divided query": lambda q, k, v, _: softmax((q / 8**0.5) @ k.mT) @ v,
    "scaled key": lambda q, k, v, _: softmax(q @ (k * SCALE).mT) @ v,
    "both scaled": lambda q, k, v, _: softmax((q * SCALE**0.5) @ (k * SCALE**0.5).mT) @ v,
    "transposed key": lambda q, k, v, _: softmax(q @ k.permute(0, 1, 3, 2).contiguous()) @ v,
    "transposed scores": lambda q, k, v, _: torch.softmax(k @ q.mT * SCALE, -2).mT @ v,
    "transposed result": lambda q, k, v, _: (v.mT @ softmax(q @ k.mT * SCALE).mT).mT,
    "permuted scores": lambda q, k, v, _: softmax((q @ k.mT).mT.permute(0, 1, 3, 2) * SCALE) @ v,
    "masked": lambda q, k, v, m: softmax(q @ k.mT + hidden(m)) @ v,
    "scaled, masked": lambda q, k, v, m: softmax(q @ k.mT * SCALE + hidden(m)) @ v,
    "mask first": lambda q, k, v, m: softmax(hidden(m) + (q @ k.mT) / 8**0.5) @ v,
    "scaled query, masked": lambda q, k, v, m: softmax((q * SCALE) @ k.mT + hidden(m)) @ v,
    "masked, then scaled": lambda q, k, v, m: softmax((q @ k.mT + hidden(m)) * SCALE) @ v,
    "masked, divided, masked": lambda q, k, v, m: (
        softmax((q @ k.mT + hidden(m[:1])) / 8**0.5 + hidden(m)) @ v
    ),
    "two masks": lambda q, k, v, m: softmax(q @ k.mT * SCALE + hidden(m) + hidden(m[:1])) @ v,
    "mask by arithmetic": lambda q, k, v, m: softmax(with_numbers(q @ k.mT, m, -1e4)) @ v,
    "mask by the least": lambda q, k, v, m: softmax(with_numbers(q @ k.mT * SCALE, m, LEAST)) @ v,
    "causal by places": lambda q, k, v, _: softmax(q @ k.mT + hidden(places(q @ k.mT))) @ v,
    "causal by a triangle": lambda q, k, v, _: (
        softmax(q @ k.mT * SCALE + torch.triu(torch.full((20, 20), LEAST), 1)) @ v
    ),
    "by hand": lambda q, k, v, _: by_hand(q @ k.mT * SCALE) @ v,
    "by hand, with max": lambda q, k, v, _: largest_first(q @ k.mT * SCALE) @ v,
    "divided late": lambda q, k, v, _: divided_late(q @ k.mT * SCALE, v),
    "dropout that is off": lambda q, k, v, _: torch.dropout(softmax(q @ k.mT), 0.1, False) @ v,
    "softmax in double": lambda q, k, v, _: in_double(q, k, v),
    "batched": lambda q, k, v, _: batched(q, k, v),
    "mask in a product": lambda q, k, v, m: added_in_product(q, k, v, hidden(m)),
    "heads first": lambda q, k, v, _: heads_first(q, k, v),
    "einsum": lambda q, k, v, _: by_einsum(q, k, v),
    "one head of keys": lambda q, k, v, _: softmax(q @ k[:, :1].mT * SCALE) @ v[:, :1],
    "with more behind it": lambda q, k, v, _: (softmax(q @ k.mT * SCALE) @ v + 0.5) * 2,
}
HIDING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "where": lambda x, m: torch.where(m, x, -1e38),
    "infinite": lambda x, m: torch.where(m, x, -math.inf),
    "masked_fill": lambda x, m: x.masked_fill(~m, torch.finfo(x.dtype).min),
    "added": lambda x, m: x + torch.zeros_like(x).masked_fill(~m, -math.inf),
    "a triangle": lambda x, _: x + torch.triu(torch.full((20, 20), -math.inf), 1),
    "a lower triangle": lambda x, _: x.masked_fill(torch.tril(torch.ones(20, 20)) == 0, -math.inf),
    "places": lambda x, _: torch.where(places(x), x, -math.inf),
    "no less than the least": lambda x, m: torch.max(
        with_numbers(x, m, -1e38), torch.tensor(LEAST)
    ),
}


class Attention(nn.Module):
    """A function of queries, keys, values and what is shown."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: Tensor, k: Tensor, v: Tensor, shown: Tensor) -> Tensor:
        return self.function(q, k, v, shown)


def operands() -> tuple[Tensor, ...]:
    """Queries, keys, values, and what is shown: of every row, something."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 20, 8, generator=generator) for _ in range(3))
    return q, k, v, torch.rand(2, 1, 20, 20, generator=generator) > 0.3


def attention_calls(function: Callable[..., Tensor], numerics: str) -> int:
    """How many calls of attention are left of a function, which has nothing else of it."""
    q, k, v, shown = operands()
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


def grouped(repeat: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Attention of six heads of queries and three of keys, which `repeat` repeats."""

    def function(q: Tensor, k: Tensor, v: Tensor, shown: Tensor) -> Tensor:
        scores = torch.cat([q, q.flip(-1)], 1) @ repeat(k).mT * SCALE
        return softmax(scores + hidden(shown)) @ repeat(v)

    return function


@pytest.mark.parametrize(
    "repeat",
    [
        lambda x: x[:, :, None].expand(-1, -1, 2, -1, -1).reshape(2, 6, 20, 8),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: torch.stack([x, x], 2).flatten(1, 2),
    ],
    ids=["expand", "repeat_interleave", "stack"],
)
def test_heads_that_groups_of_queries_share_are_not_repeated(
    repeat: Callable[[Tensor], Tensor],
) -> None:
    q, k, v, shown = operands()
    function = grouped(repeat)
    result = eqsat.optimize(Attention(function), (q, k, v, shown), margin=ALWAYS)
    torch.testing.assert_close(result.module(q, k, v, shown), function(q, k, v, shown))
    (call,) = (n for n in result.program.graph.nodes if "attention" in str(n.target))
    assert call.kwargs["enable_gqa"]
    assert [operand.meta["val"].shape[1] for operand in call.args[:3]] == [6, 3, 3]


def test_scores_that_are_bent_stay_as_they_are() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor:
        return softmax(torch.tanh(q @ k.mT / 50) * 50) @ v

    assert attention_calls(function, "relaxed") == 0


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
