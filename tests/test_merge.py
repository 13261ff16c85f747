"""Siblings merge whole, few or many, biased beside unbiased, without blowing up the e-graph."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import eqsat
import rewrites
from eqsat.capture import capture, constants_of
from eqsat.encode import encode
from eqsat.rewrite import RuleSet
from eqsat.saturate import Limits, saturate
from eqsat.settings import ALWAYS
from eqsat.snapshot import Snapshot

PRODUCTS = ("aten.linear.default", "aten.mm.default", "aten.addmm.default", "aten.matmul.default")


class Siblings(nn.Module):
    """Layers that read one input, each followed by a function that keeps them apart."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.relu(layer(x)) for layer in self.layers)


class Gates(nn.Module):
    """A recurrent step of eight gates, each of the input and of the state."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.of_input = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(8))
        self.of_state = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(8))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        pairs = zip(self.of_input, self.of_state, strict=True)
        a, b, c, d, e, f, g, i = (torch.sigmoid(u(x) + v(h)) for u, v in pairs)
        return torch.tanh(a * b) + torch.tanh(c * d) + torch.tanh(e * f) * torch.tanh(g * i)


class Experts(nn.Module):
    """A mixture of experts that evaluates all of them."""

    def __init__(self, count: int, size: int, hidden: int) -> None:
        super().__init__()
        self.router = nn.Linear(size, count, bias=False)
        self.gate = nn.ModuleList(nn.Linear(size, hidden, bias=False) for _ in range(count))
        self.up = nn.ModuleList(nn.Linear(size, hidden, bias=False) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(hidden, size, bias=False) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.softmax(self.router(x), -1)
        experts = zip(self.gate, self.up, self.down, strict=True)
        parts = [d(torch.nn.functional.silu(g(x)) * u(x)) for g, u, d in experts]
        return sum((p * shares[:, i : i + 1] for i, p in enumerate(parts)), torch.zeros(()))


class Adapted(nn.Module):
    """A linear layer with an adapter of low rank beside it."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(size, width, bias=False)
        self.down = nn.Linear(size, 3, bias=False)
        self.up = nn.Linear(3, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x)) * 0.5


def linears(*widths: int, biased: str) -> Siblings:
    """Linear layers of these widths, those marked "b" with a bias."""
    marks = zip(widths, biased, strict=True)
    return Siblings(*(nn.Linear(24, n, bias=mark == "b") for n, mark in marks)).eval()


def grown(module: nn.Module, *inputs: Tensor, rules: RuleSet, rounds: int = 2) -> Snapshot:
    """The e-graph after so many rounds of merges, four iterations each."""
    captured = capture(module, inputs, None, None)
    encoding = encode(captured.program.graph, constants_of(captured.program))
    return saturate(encoding, rules, Limits(iterations=4 * rounds))[0]


def products_of(result: eqsat.Result) -> list[int]:
    """The number of columns of every product of the result."""
    nodes = result.program.graph.nodes
    return [n.meta["val"].shape[-1] for n in nodes if str(n.target) in PRODUCTS]


def check(module: nn.Module, *inputs: Tensor) -> eqsat.Result:
    """The result, which gives what the module gives."""
    result = eqsat.optimize(module.eval(), inputs, margin=ALWAYS)
    assert result.report.kept is None
    torch.testing.assert_close(result.module(*inputs), module(*inputs))
    return result


@pytest.mark.parametrize("biased", ["mmm", "bbb", "mbm", "bmb", "bbmm", "mmbb", "mbmbmbmb"])
def test_siblings_with_and_without_bias_become_one_product(biased: str) -> None:
    widths = [8 * (i + 1) for i in range(len(biased))]
    assert products_of(check(linears(*widths, biased=biased), torch.randn(5, 24))) == [sum(widths)]


@pytest.mark.parametrize("count", [2, 5, 8, 13, 16])
def test_a_family_of_up_to_sixteen_is_merged_whole(count: int) -> None:
    widths = [8 * (i % 3 + 1) for i in range(count)]
    result = check(linears(*widths, biased="b" * count), torch.randn(5, 24))
    assert products_of(result) == [sum(widths)]


def test_a_larger_family_is_merged_in_parts() -> None:
    result = check(linears(*[8] * 37, biased="m" * 37), torch.randn(5, 24))
    assert len(products_of(result)) <= 3


def test_k_siblings_make_at_most_k_squared_enodes() -> None:
    rules = rewrites.DEFAULT
    for count in (4, 8, 16):
        module, x = linears(*[8] * count, biased="m" * count), torch.randn(5, 24)
        merged = grown(module, x, rules=rules)
        without = grown(module, x, rules=rules.without("matmul-merge"))
        assert 4 * count <= len(merged.symbols) - len(without.symbols) <= 2 * count**2


@pytest.mark.parametrize("marks", ["apa", "pap", "aab", "baap"])
def test_what_becomes_a_product_by_rules_is_merged(marks: str) -> None:
    kinds = {"a": Adapted, "p": partial(nn.Linear, bias=False), "b": nn.Linear}
    widths = [8 * (i + 1) for i in range(len(marks))]
    layers = Siblings(*(kinds[m](24, n) for m, n in zip(marks, widths, strict=True)))
    assert products_of(check(layers, torch.randn(5, 24))) == [sum(widths)]


def test_adapters_make_as_many_products_each_however_many_there_are() -> None:
    x, products = torch.randn(5, 24), list[int]()
    for count in (4, 8):
        layers = Siblings(*(Adapted(24, 8) for _ in range(count))).eval()
        symbols = grown(layers, x, rules=rewrites.DEFAULT).symbols
        products.append(sum(s.operator == "matmul" for s in symbols))
    assert products[1] <= 2.2 * products[0]


def test_a_product_that_others_are_computed_from_is_merged_with_its_own_siblings() -> None:
    class Latent(nn.Module):
        """Queries and keys of a latent each, of which the first are small."""

        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(nn.Linear(96, 4, bias=False) for _ in range(2))
            self.up = nn.ModuleList(nn.Linear(4, 96, bias=False) for _ in range(2))

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            low = [down(x) for down in self.down]
            high = [up(y).relu() for up, y in zip(self.up, low, strict=True)]
            return *low, *high

    module, x = Latent().eval(), torch.randn(2, 96)
    found = grown(module, x, rules=rewrites.DEFAULT)
    metas = {
        found.metas[c]
        for s, c in zip(found.symbols, found.classes, strict=True)
        if s.operator == "matmul"
    }
    assert any(meta.startswith("float32[2,8]") for meta in metas)
    assert any(meta.startswith("float32[2,192]") for meta in metas)


def test_gates_of_a_recurrent_step_are_two_products_or_one() -> None:
    result = check(Gates(32), torch.randn(4, 32), torch.randn(4, 32))
    assert products_of(result) in ([256], [256, 256])


def test_gates_of_a_short_step_are_one_product() -> None:
    assert products_of(check(Gates(32), torch.randn(1, 32), torch.randn(1, 32))) == [256]


def test_experts_share_the_products_of_their_input() -> None:
    module = Experts(count=8, size=32, hidden=24)
    columns = products_of(check(module, torch.randn(6, 32)))
    assert sum(n >= 8 * 24 for n in columns) in (1, 2)
    assert len(columns) <= 8 + 2 + 1


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_of_one_image_are_merged_whole(bias: bool) -> None:
    layers = [nn.Conv2d(6, n, 3, padding=1, bias=bias) for n in (4, 8, 12, 16, 4)]
    result = check(Siblings(*layers), torch.randn(2, 6, 9, 9))
    convolutions = [n for n in result.program.graph.nodes if "conv2d" in str(n.target)]
    assert [n.meta["val"].shape[1] for n in convolutions] == [44]


def test_convolutions_that_differ_in_more_than_channels_are_not_siblings() -> None:
    layers = [
        nn.Conv2d(6, 4, 3, padding=1),
        nn.Conv2d(6, 4, 3, padding=1, stride=2),
        nn.Conv2d(6, 6, 3, padding=1, groups=3),
        nn.Conv2d(6, 6, 3, padding=1, groups=3),
    ]
    result = check(Siblings(*layers), torch.randn(2, 6, 9, 9))
    assert sum("conv2d" in str(n.target) for n in result.program.graph.nodes) == 4
