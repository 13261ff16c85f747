"""Norms are recognised however they are written, and softmaxes in logarithms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

import eqsat
from eqsat.settings import ALWAYS

WIDTH, EPS = 16, 1e-5
Norm = Callable[[Tensor, Tensor, Tensor], Tensor]


def mean(x: Tensor) -> Tensor:
    """The mean of the last dim, which is kept."""
    return x.mean(-1, keepdim=True)


def variance(x: Tensor) -> Tensor:
    """The variance of the last dim, which is kept."""
    return x.var(-1, correction=0, keepdim=True)


def length(x: Tensor) -> Tensor:
    """One over the root of the mean of squares."""
    return torch.rsqrt(mean(x.pow(2)) + EPS)


def decomposed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A layer norm as compilers decompose it."""
    var, mu = torch.var_mean(x, [-1], correction=0, keepdim=True)
    return (x - mu) * torch.rsqrt(var + EPS) * w + b


def groups(x: Tensor) -> Tensor:
    """A group norm of images of eight channels, in its parts."""
    y = x.reshape(2, 2, -1)
    return ((y - mean(y)) * torch.rsqrt(variance(y) + EPS)).reshape(x.shape)


RMS: dict[str, Norm] = {
    "pow and rsqrt": lambda x, w, _: w * (x * length(x)),
    "product of squares": lambda x, w, _: x * torch.rsqrt(mean(x * x) + EPS) * w,
    "square": lambda x, w, _: x * torch.rsqrt(mean(x.square()) + EPS) * w,
    "root and division": lambda x, w, _: x / torch.sqrt(mean(x * x) + EPS) * w,
    "power of -1/2": lambda x, w, _: x * (mean(x.pow(2)) + EPS).pow(-0.5) * w,
    "one over the root": lambda x, w, _: x * (1 / torch.sqrt(mean(x.pow(2)) + EPS)) * w,
    "sum over the count": lambda x, w, _: x * torch.rsqrt(x.pow(2).sum(-1, True) / WIDTH + EPS) * w,
    "weight first": lambda x, w, _: (x * w) * length(x),
    "one more than the weight": lambda x, w, _: x * length(x) * (1.0 + w),
    "unweighted": lambda x, *_: x * length(x),
    "without eps": lambda x, w, _: x * torch.rsqrt(mean(x.pow(2))) * w,
    "by the length": lambda x, w, _: x / (x.norm(2, -1, keepdim=True) * WIDTH**-0.5) * w,
    "over another dim": lambda x, *_: x.mT * torch.rsqrt(x.mT.pow(2).mean(1, keepdim=True) + EPS),
}
LAYER: dict[str, Norm] = {
    "squares of the centred": lambda x, w, b: (
        w * ((x - mean(x)) / torch.sqrt(mean((x - mean(x)).pow(2)) + EPS)) + b
    ),
    "variance": lambda x, w, b: (x - mean(x)) / torch.sqrt(variance(x) + EPS) * w + b,
    "unbiased=False": lambda x, w, b: (
        (x - mean(x)) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + EPS) * w + b
    ),
    "deviation": lambda x, *_: (x - mean(x)) / x.std(-1, correction=0, keepdim=True),
    "variance and mean": decomposed,
    "mean of squares": lambda x, w, b: (
        (x - mean(x)) * torch.rsqrt(mean(x * x) - mean(x) ** 2 + EPS) * w + b
    ),
    "unweighted": lambda x, *_: (x - mean(x)) * torch.rsqrt(variance(x) + EPS),
    "without bias": lambda x, w, _: (x - mean(x)) * torch.rsqrt(variance(x) + EPS) * w,
    "bias alone": lambda x, _, b: (x - mean(x)) * torch.rsqrt(variance(x) + EPS) + b,
    "over channels": lambda x, *_: (
        (x.mT - x.mT.mean(1, keepdim=True))
        * torch.rsqrt(x.mT.var(1, correction=0, keepdim=True) + EPS)
    ),
}
NARROW: dict[str, tuple[str, Norm]] = {
    "weight after": ("rms_norm", lambda x, w, _: w * (x.float() * length(x.float())).to(x.dtype)),
    "weight before": (
        "rms_norm",
        lambda x, w, _: (w.float() * (x.float() * length(x.float()))).to(x.dtype),
    ),
    "one more": (
        "rms_norm",
        lambda x, w, _: (x.float() * length(x.float()) * (1.0 + w.float())).to(x.dtype),
    ),
    "layer": (
        "layer_norm",
        lambda x, w, b: decomposed(x.float(), w.float(), b.float()).to(x.dtype),
    ),
}  # fmt: skip
UNLIKE: dict[str, Norm] = {
    "unbiased variance": lambda x, w, _: (
        (x - mean(x)) * torch.rsqrt(x.var(-1, keepdim=True) + EPS) * w
    ),
    "eps outside": lambda x, w, _: x / (torch.sqrt(mean(x * x)) + EPS) * w,
    "eps below zero": lambda x, w, _: x * torch.rsqrt(mean(x * x) - EPS) * w,
    "another mean": lambda x, w, _: x * torch.rsqrt(mean(x * x.roll(1, -1)).abs() + EPS) * w,
}


class Normed(nn.Module):
    """A function of an input, a weight and a bias."""

    def __init__(self, function: Norm, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.function = function
        self.weight = nn.Parameter(torch.rand(WIDTH, generator=generator).to(dtype) + 0.5)
        self.bias = nn.Parameter(torch.randn(WIDTH, generator=generator).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.bias)


def calls(function: Norm, dtype: torch.dtype = torch.float64, **tolerance: float) -> dict[str, int]:
    """How often which operator is called when a function was optimized, views aside."""
    x = torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)
    module = Normed(function, dtype).eval()
    result = eqsat.optimize(module, (x,), margin=ALWAYS)
    torch.testing.assert_close(result.module(x), module(x), **tolerance)
    names = {n.split(".")[1]: count for n, count in result.report.operators_after.items()}
    return {
        n: c for n, c in names.items() if n not in ("permute", "mT", "reshape", "clone", "full")
    }


@pytest.mark.parametrize("norm", RMS.values(), ids=RMS.keys())
def test_every_spelling_of_an_rms_norm_is_recognised(norm: Norm) -> None:
    assert calls(norm) == {"rms_norm": 1}


@pytest.mark.parametrize("norm", LAYER.values(), ids=LAYER.keys())
def test_every_spelling_of_a_layer_norm_is_recognised(norm: Norm) -> None:
    assert calls(norm) == {"layer_norm": 1}


@pytest.mark.parametrize(("name", "norm"), NARROW.values(), ids=NARROW.keys())
def test_casts_around_a_norm_vanish(name: str, norm: Norm) -> None:
    assert calls(norm, torch.bfloat16, rtol=0.02, atol=0.02) == {name: 1}


@pytest.mark.parametrize("norm", UNLIKE.values(), ids=UNLIKE.keys())
def test_what_only_looks_like_a_norm_is_none(norm: Norm) -> None:
    assert not {"rms_norm", "layer_norm"} & calls(norm, equal_nan=True, rtol=1e-7, atol=1e-7).keys()


def test_a_group_norm_is_recognised() -> None:
    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8)[:, None, None])
            self.bias = nn.Parameter(torch.linspace(-1, 1, 8)[:, None, None])

        def forward(self, x: Tensor) -> Tensor:
            return groups(x) * self.weight + self.bias

    x = torch.randn(2, 8, 5, 6, generator=torch.Generator().manual_seed(0))
    module = Grouped().eval()
    result = eqsat.optimize(module, (x,), margin=ALWAYS)
    torch.testing.assert_close(result.module(x), module(x))
    assert result.report.operators_after["aten.group_norm.default"] == 1
    assert "aten.mul.Tensor" not in result.report.operators_after


def test_norms_that_differ_in_weights_alone_are_one_before_products() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)])
            self.linears = nn.ModuleList([nn.Linear(WIDTH, 7), nn.Linear(WIDTH, 5, bias=False)])
            for norm in self.norms:
                nn.init.uniform_(norm.weight, 0.5, 1.5)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            parts = zip(self.norms, self.linears, strict=True)
            return tuple(linear(norm(x)) for norm, linear in parts)

    x, module = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0)), Parallel().eval()
    result = eqsat.optimize(module, (x,), margin=ALWAYS)
    torch.testing.assert_close(result.module(x), module(x))
    assert result.report.operators_after["aten.rms_norm.default"] == 1


SOFTMAXES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "logsumexp": ("log_softmax", lambda x: x - x.logsumexp(-1, keepdim=True)),
    "log of sum": ("log_softmax", lambda x: x - x.exp().sum(-1, True).log()),
    "shifted": (
        "log_softmax",
        lambda x: (z := x - x.amax(-1, True)) - z.exp().sum(-1, True).log(),
    ),
    "exponential": ("softmax", lambda x: F.log_softmax(x, -1).exp()),
    "max": ("softmax", lambda x: (e := (x - x.max(-1, keepdim=True)[0]).exp()) / e.sum(-1, True)),
}


@pytest.mark.parametrize(("name", "function"), SOFTMAXES.values(), ids=SOFTMAXES.keys())
def test_softmaxes_are_recognised_in_their_parts(
    name: str, function: Callable[[Tensor], Tensor]
) -> None:
    assert calls(lambda x, *_: function(x)) == {name: 1}
