"""An einsum is an operator whose equation says all, and the products of matrices that it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

import eqsat
from eqsat.settings import ALWAYS
from eqsat.spelling.contraction import labelled


class Sum(nn.Module):
    """An einsum."""

    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, *operands: Tensor) -> Tensor:
        return torch.einsum(self.equation, *operands)


class Both(nn.Module):
    """An einsum, and the product that it should turn out to be."""

    def __init__(self, equation: str, product: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.equation, self.product = equation, product

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return torch.einsum(self.equation, a, b), self.product(a, b)


def drawn(*shapes: Sequence[int]) -> list[Tensor]:
    """Random operands of these shapes."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes]


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], "ab,bc->ac"),
        ("ij,jk", [(2, 3), (3, 4)], "ab,bc->ac"),
        ("ba", [(2, 3)], "ab->ba"),
        ("...i,io->...o", [(5, 2, 3), (3, 4)], "abc,cd->abd"),
        ("...ij,...jk", [(7, 2, 3), (7, 3, 4)], "abc,acd->abd"),
        ("i...,...->i", [(2, 3), (3,)], "ab,b->a"),
        ("Z, a -> Za", [(2,), (3,)], "a,b->ab"),
        ("ii->i", [(3, 3)], None),  # a diagonal
        ("ij,jk->ik", [(2, 1), (3, 4)], None),  # broadcast
    ],
)
def test_equations_are_written_in_one_way(
    equation: str, shapes: list[tuple[int, ...]], expected: str | None
) -> None:
    assert labelled(equation, shapes) == expected
    if expected is not None:
        operands = drawn(*shapes)
        same = torch.einsum(expected, *operands)
        torch.testing.assert_close(same, torch.einsum(equation, *operands), rtol=0, atol=0)


PRODUCTS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor], list[tuple[int, ...]]]] = {
    "matrices": ("ij,jk->ik", lambda a, b: a @ b, [(2, 3), (3, 4)]),
    "transposed": ("ij,kj->ki", lambda a, b: (a @ b.mT).mT, [(2, 3), (4, 3)]),
    "a batch": ("bij,bjk->bik", lambda a, b: a @ b, [(5, 2, 3), (5, 3, 4)]),
    "scores": (
        "bqhd,bkhd->bhqk",
        lambda a, b: a.transpose(1, 2) @ b.permute(0, 2, 3, 1),
        [(2, 5, 3, 4), (2, 6, 3, 4)],
    ),
    "heads": (
        "bsd,dhk->bshk",
        lambda a, b: (a @ b.reshape(4, 18)).view(2, 5, 3, 6),
        [(2, 5, 4), (4, 3, 6)],
    ),
    "joined heads": (
        "bshk,hkd->bsd",
        lambda a, b: a.reshape(2, 5, 18) @ b.reshape(18, 4),
        [(2, 5, 3, 6), (3, 6, 4)],
    ),
    "outer": ("i,j->ij", lambda a, b: a[:, None] * b[None], [(2,), (3,)]),
    "pointwise": ("ij,ji->ij", lambda a, b: a * b.mT, [(2, 3), (3, 2)]),
    "a sum first": ("ijk,kl->il", lambda a, b: a.sum(1) @ b, [(2, 3, 4), (4, 5)]),
    "a vector": ("ij,j->i", lambda a, b: (a @ b[:, None]).squeeze(-1), [(2, 3), (3,)]),
}


@pytest.mark.parametrize(("equation", "product", "shapes"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_an_einsum_is_the_product_beside_it(
    equation: str, product: Callable[[Tensor, Tensor], Tensor], shapes: list[tuple[int, ...]]
) -> None:
    operands = drawn(*shapes)
    module = Both(equation, product)
    result = eqsat.optimize(module, tuple(operands), margin=ALWAYS)
    outputs = result.module(*operands)
    torch.testing.assert_close(outputs, module(*operands))
    calls = result.report.operators_after
    made = [n for n in calls if n.split(".")[1] in ("einsum", "matmul", "mul", "linear")]
    assert sum(calls[n] for n in made) == 1, calls


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_products_of_three_are_made_in_the_cheapest_order(order: tuple[int, ...]) -> None:
    shapes, labels = [(300, 300), (300, 300), (300, 1)], ["ij", "jk", "kl"]
    equation = f"{','.join(labels[i] for i in order)}->il"
    operands = drawn(*(shapes[i] for i in order))
    result = eqsat.optimize(Sum(equation), tuple(operands), margin=ALWAYS)
    torch.testing.assert_close(result.module(*operands), torch.einsum(equation, *operands))
    made = [n.meta["val"] for n in result.program.graph.nodes if n.op == "call_function"]
    assert all(value.numel() <= 300 * 300 for value in made)
    wide = [v for v in made if v.numel() == 300 * 300 and v._base is None]
    assert not wide, "the product of two large matrices is made"


def test_without_rules_an_einsum_keeps_every_bit() -> None:
    module, operands = (
        Sum("bqhd,bkhd->bhqk"),
        [x.float() for x in drawn((2, 5, 3, 4), (2, 6, 3, 4))],
    )
    result = eqsat.optimize(module, tuple(operands), numerics="strict", margin=ALWAYS)
    torch.testing.assert_close(result.module(*operands), module(*operands), rtol=0, atol=0)


@pytest.mark.parametrize(("beta", "alpha"), [(1.0, 0.5), (0.5, 1.0), (0.0, 2.0)])
def test_a_scaled_product_is_a_product(beta: float, alpha: float) -> None:
    class Scaled(nn.Module):
        def forward(self, b: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            return torch.addmm(b, x, w, beta=beta, alpha=alpha), x @ w

    operands = tuple(drawn((4,), (2, 3), (3, 4)))
    result = eqsat.optimize(Scaled(), operands, margin=ALWAYS)
    torch.testing.assert_close(result.module(*operands), Scaled()(*operands))
    calls = result.report.operators_after
    assert sum(n for name, n in calls.items() if name.split(".")[1] in ("addmm", "matmul")) == 1
