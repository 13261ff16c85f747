"""Rewrites that are wrong and look profitable, each with a program on which it fires."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eqsat.expression import apply
from eqsat.functions import Function
from eqsat.operators import AMAX, full, permute, reduction, softmax
from eqsat.rewrite import EXACT, Rewrite

DIVIDE = Function("div_floor")


@dataclass(frozen=True)
class Planted:
    """A wrong rewrite, a function that it would change, and the shapes that the function takes."""

    rewrite: Rewrite
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32
    numerics: str = "default"

    def __repr__(self) -> str:
        return self.rewrite.name

    def inputs(self) -> tuple[Tensor, ...]:
        """Ordinary inputs, with nothing in them that would show the mistake by itself."""
        generator = torch.Generator().manual_seed(0)
        if self.dtype.is_floating_point:
            draws = [torch.rand(shape, generator=generator) + 0.5 for shape in self.shapes]
        else:
            draws = [torch.randint(1, 9, shape, generator=generator) for shape in self.shapes]
        return tuple(draw.to(self.dtype) for draw in draws)


def _rule(
    name: str, rule: Callable[..., object], when: Callable[..., bool] | None = None
) -> Rewrite:
    return Rewrite(f"planted-{name}", rule, when, EXACT)


def _top(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return reduction(AMAX, x, dims, True)


WRONG_VALUE = (
    Planted(
        _rule("multiply-zero", lambda x: (x * 0.0, full(x.shape, 0.0, x.dtype, "cpu"))),
        lambda x, y: torch.exp(x) * 0.0 + y,
        ((64, 32), (64, 32)),
    ),
    Planted(
        _rule("subtract-self", lambda x: (x - x, full(x.shape, 0.0, x.dtype, "cpu"))),
        lambda x, y: (torch.exp(x) - torch.exp(x)) * y,
        ((64, 32), (64, 32)),
    ),
    Planted(
        _rule("divide-self", lambda x: (x / x, full(x.shape, 1.0, x.dtype, "cpu"))),
        lambda x, y: torch.tanh(torch.exp(x) / torch.exp(x) + y),
        ((64, 32), (64, 32)),
    ),
    Planted(
        _rule("log-exp", lambda x: (torch.log(torch.exp(x)), x)),
        lambda x: torch.log(torch.exp(x)) * 2.0,
        ((64, 32),),
        numerics="strict",  # else rounding, short of overflow
    ),
    Planted(
        _rule("sqrt-square", lambda x: (torch.sqrt(x * x), x)),
        lambda x: torch.sqrt(x * x) + 1.0,
        ((64, 32),),
    ),
    Planted(
        _rule("add-subtract", lambda x, a: ((x + a) - a, x)),
        lambda x, a: ((x + a) - a) * 3.0,
        ((64, 32), (64, 32)),
    ),
    Planted(
        _rule("cast-cast", lambda x, f, g: (f(g(x)), x), lambda f, g: f.name == g.name == "to"),
        lambda x: x.to(torch.bfloat16).to(torch.float32) * 2.0,
        ((64, 32),),
    ),
    Planted(
        _rule("negate-subtract", lambda a, b: (-(a - b), a - b)),
        lambda a, b: torch.tanh(-(a - b)),
        ((64, 32), (64, 32)),
    ),
    Planted(
        _rule("relu-add", lambda a, b: (torch.relu(a) + torch.relu(b), torch.relu(a + b))),
        lambda a, b: torch.relu(a - 1.0) + torch.relu(b - 1.0),
        ((64, 32), (64, 32)),
    ),
    Planted(
        _rule("matmul-add", lambda a, b, c, d: (a @ b + c @ d, (a + c) @ (b + d))),
        lambda a, b, c, d: a @ b + c @ d,
        ((64, 32), (32, 16), (64, 32), (32, 16)),
    ),
    Planted(
        _rule("matmul-transpose", lambda a, b: (a.mT @ b + b.mT @ a, (a.mT @ b) * 2.0)),
        lambda a, b: a.t() @ b + b.t() @ a,
        ((64, 32), (64, 32)),
    ),
    Planted(
        _rule("softmax-shift", lambda x, d, e: (softmax(x - _top(x, d), e), softmax(x, e))),
        lambda x: torch.softmax(x - x.amax(0, keepdim=True), -1),
        ((64, 32),),
    ),
    Planted(
        _rule("multiply-divide", lambda x, k: (apply(DIVIDE, x * k, k), x)),
        lambda x: torch.div(x * 3, 3, rounding_mode="floor") + 1,
        ((64, 32),),
        dtype=torch.int32,
    ),
    Planted(
        _rule("exp-multiply", lambda a, b: (torch.exp(a) * torch.exp(b), torch.exp(a + b))),
        lambda a, b: torch.exp(a) * torch.exp(b),
        ((64, 32), (64, 32)),
        numerics="strict",  # else rounding, short of overflow
    ),
)

WRONG_META = (
    Planted(
        _rule("reduce-nothing", lambda x, d: (_top(x, d), x)),
        lambda x: torch.exp(x.amax(-1, keepdim=True)),
        ((64, 32),),
    ),
    Planted(
        _rule("cast-nothing", lambda x, f: (f(x), x), lambda f: f.name == "to"),
        lambda x: torch.exp(x.to(torch.float64)),
        ((64, 32),),
    ),
    Planted(
        _rule("add-first", lambda a, b: (a + b, a)),
        lambda a, b: torch.exp(a + b),
        ((1, 32), (64, 1)),
    ),
    Planted(
        _rule("permute-nothing", lambda x, p: (permute(x, p), x)),
        lambda x: torch.exp(x.permute(1, 0)),
        ((64, 32),),
    ),
)
