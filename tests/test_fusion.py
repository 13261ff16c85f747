"""What Inductor would compute in one kernel, of real programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name it has everywhere
from torch import Tensor, nn

import rewrites
from eqsat.capture import capture, constants_of
from eqsat.cost.model import CostModel
from eqsat.encode import encode
from eqsat.fusion import extract_fused, fusible
from eqsat.problem import problem
from eqsat.rewrite import Rewrite
from eqsat.saturate import Limits, saturate
from extract import reached
from extract.fused import fuse
from extract.fused_judge import fused_judge
from extract.fusible import Fusion

COST = CostModel.of("h200")
X = torch.randn(4, 16, 32)


class Module(nn.Module):
    """A function of its weights and inputs as a module."""

    def __init__(self, function: Callable[..., Tensor], *weights: Tensor) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(nn.Parameter(w, requires_grad=False) for w in weights)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, *self.weights)


def grown(module: nn.Module, *inputs: Tensor, rules: tuple[Rewrite, ...] = ()) -> tuple[Any, ...]:
    """The snapshot, encoding, cost model and extraction problem of a program."""
    captured = capture(module.eval(), inputs, None, None)
    encoding = encode(captured.program.graph, constants_of(captured.program))
    snapshot, _ = saturate(encoding, rules, Limits(), None)
    return snapshot, encoding, COST, problem(snapshot, encoding, COST, fold=True)


def check(module: nn.Module, *inputs: Tensor, launches: int, moved: int) -> None:
    """The program as given takes so many generated kernels, which move so many bytes."""
    parts = grown(module, *inputs)
    given = fusible(*parts, fold=True)
    result = fuse(given.problem, given.inside(parts[-1].given))
    fused_judge(given.problem, result)
    fusion = given.problem.fusion
    made = [k for k in result.kernels if fusion[k.enodes[-1]] != Fusion.OPAQUE]
    assert len(made) == launches
    seconds = sum(given.problem.read[c] for k in made for c in k.reads)
    seconds += sum(given.problem.write[c] for k in made for c in k.writes)
    assert seconds * COST.device.sustained_bandwidth() == pytest.approx(moved)


def size(*tensors: Tensor) -> int:
    """The bytes of tensors."""
    return sum(t.nbytes for t in tensors)


def test_a_norm_and_what_is_around_it_are_one_kernel() -> None:
    module = Module(lambda x, y: F.gelu(F.layer_norm(x + y, (32,))))
    check(module, X, X.clone(), launches=1, moved=3 * size(X))


def test_a_library_call_parts_kernels() -> None:
    w = torch.randn(32, 32)
    check(Module(lambda x, w: torch.relu(torch.relu(x) @ w), w), X, launches=2, moved=4 * size(X))


def test_two_reductions_of_different_rows_are_two_kernels() -> None:
    module = Module(lambda x: x.softmax(-1).softmax(1))
    check(module, X, launches=2, moved=4 * size(X))


def test_a_short_reduction_is_pointwise() -> None:
    x = torch.randn(64, 4)
    check(Module(lambda x: x.softmax(-1).sum(-1).relu()), x, launches=1, moved=64 * 5 * 4)


def test_heads_are_copied_for_a_batched_product_and_not_for_rows() -> None:
    def heads(x: Tensor) -> Tensor:
        return x.view(4, 16, 4, 8).transpose(1, 2)

    check(Module(lambda x, y: heads(x) @ heads(y).mT), X, X.clone(), launches=2, moved=4 * size(X))
    w = torch.randn(32, 8)
    check(Module(lambda x, w: x.view(64, 32) @ w, w), X, launches=0, moved=0)


def test_constants_cost_nothing() -> None:
    w = torch.randn(32)
    check(Module(lambda x, w: x * w.exp().softmax(0), w), X, launches=1, moved=2 * size(X) + 128)


def test_of_a_table_only_the_rows_are_read() -> None:
    table, ids = torch.randn(1000, 32), torch.arange(6)
    module = Module(lambda ids, table: F.embedding(ids, table).relu(), table)
    check(module, ids, launches=1, moved=6 * 8 + 2 * 6 * 32 * 4)


def masked(kept: Tensor, q: Tensor) -> Tensor:
    """Attention under a computed mask, then that of the first query alone."""
    mask = torch.where(kept, 0.0, -1e4)
    x = F.scaled_dot_product_attention(q, q, q, mask)
    return F.scaled_dot_product_attention(x[:, :, :1], x, x, mask[:, :, :1])


def test_what_is_cut_out_of_a_mask_is_computed_once_more() -> None:
    q, kept = torch.randn(2, 4, 16, 16), torch.ones(2, 1, 16, 16, dtype=torch.bool)
    parts = grown(Module(masked), kept, q)
    snapshot, _, _, choices = parts
    given = fusible(*parts, fold=True)
    result = fuse(given.problem, given.inside(choices.given))
    fusion = given.problem.fusion
    assert sum(fusion[k.enodes[-1]] != Fusion.OPAQUE for k in result.kernels) == 2
    prices = {
        snapshot.metas[snapshot.classes[k]]: choices.egraph.node_cost[enode]
        for enode, k in enumerate(choices.enodes)
        if snapshot.symbols[k].operator == "slice"
    }
    assert [price > 0 for _, price in sorted(prices.items())] == [True, False]  # mask, query


def test_the_extraction_is_a_selection_and_no_worse_than_what_was_given() -> None:
    w = torch.randn(32, 32)
    module = Module(lambda x, w: F.layer_norm(x + (x @ w) @ w, (32,)), w)
    parts = grown(module, X, rules=rewrites.DEFAULT)
    choices = parts[-1]
    found = extract_fused(*parts, fold=True, seeds=[choices.given])
    whole = fusible(*parts, fold=True)
    before = fuse(whole.problem, whole.inside(choices.given)).selection.cost
    assert found.cost < before  # w @ w is a constant
    assert found.lower_bound <= found.cost
    assert reached(choices.egraph, found.choice)
