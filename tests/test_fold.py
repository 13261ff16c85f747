"""What depends on frozen weights alone is computed once, within the budget, and never by alias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

import eqsat
from eqsat.rewrite import ROUNDING, Rewrite
from eqsat.settings import ALWAYS

aten = torch.ops.aten
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
ASSOCIATE = Rewrite(
    "matmul-associate", lambda a, b, c: ((a @ b) @ c, a @ (b @ c)), numerics=ROUNDING
)


class Weights(nn.Module):
    """Two square weights, a buffer and a function of them and the input."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.first = nn.Parameter(torch.randn(8, 8, generator=generator), requires_grad=False)
        self.second = nn.Parameter(torch.randn(8, 8, generator=generator), requires_grad=False)
        self.register_buffer("scale", torch.linspace(1, 2, 8))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def check(
    function: Callable[..., Any], *, folded: int, calls: int, budget: int | None = None
) -> eqsat.Result:
    """The result folds this many constants into this many remaining calls, and stays equal."""
    module = Weights(function).eval()
    result = eqsat.optimize(module, (X,), rules=(ASSOCIATE,), fold_budget=budget, margin=ALWAYS)
    assert result.report.kept is None
    assert len(constants(result.program)) == folded
    assert sum(result.report.operators_after.values()) == calls
    torch.testing.assert_close(result.module(X), module(X))
    return result


def constants(program: ExportedProgram) -> list[str]:
    """The names of the folded constants."""
    held = {**program.state_dict, **program.constants}
    return [name for name in held if "folded" in name]


def test_product_of_weights_is_computed_once() -> None:
    result = check(lambda m, x: (x @ m.first) @ m.second, folded=1, calls=1)
    assert result.report.folded_bytes == 8 * 8 * 4


def test_no_budget_folds_nothing() -> None:
    check(lambda m, x: (x @ m.first) @ m.second, folded=0, calls=2, budget=0)


def test_budget_is_kept() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        return x @ torch.exp(m.first)

    check(function, folded=0, calls=2, budget=8 * 8 * 4 - 1)
    result = check(function, folded=1, calls=1, budget=8 * 8 * 4)
    assert result.report.folded_bytes == result.report.fold_budget


def test_views_of_weights_are_not_copied() -> None:
    result = check(lambda m, x: x @ m.first.t() + m.first[0], folded=0, calls=4)
    assert result.report.folded_bytes == 0


def test_constant_read_twice_is_folded_once() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        return x @ torch.exp(m.first) + x * torch.exp(m.first)[0]

    result = check(function, folded=1, calls=4)
    assert result.report.folded_bytes == 8 * 8 * 4


def test_returned_constants_are_made_anew_at_every_call() -> None:
    def function(m: Any, x: Tensor) -> tuple[Tensor, ...]:
        twice = m.first + m.second
        return twice, torch.diagonal(torch.exp(m.first)), x @ twice, torch.zeros(2)

    module = Weights(function).eval()
    result = eqsat.optimize(module, (X,), rules=(ASSOCIATE,), margin=ALWAYS)
    assert result.report.kept is None
    expected = module(X)
    for _ in range(2):
        for made, wanted in zip(result.module(X), expected, strict=True):
            torch.testing.assert_close(made, wanted)
            made.zero_()


def test_memory_that_a_result_is_laid_out_in_is_no_constant() -> None:
    class Last(nn.Module):
        """Returns the last of 512 rows with the strides of them all."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(256, 4096)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)[:, -1]

    module, x = Last().eval(), torch.randn(4, 512, 256)
    result = eqsat.optimize(module, (x,), device="h200")
    assert result.report.kept is None
    assert not constants(result.program)
    assert result.module(x).stride() == module(x).stride() == (512 * 4096, 1)
    (linear,) = result.program.graph.find_nodes(op="call_function", target=aten.linear.default)
    assert linear.meta["val"].numel() == 4 * 4096


def test_buffer_that_is_written_is_not_folded() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x * torch.exp(self.count)

    result = eqsat.optimize(Counter().eval(), (X,), rules=(ASSOCIATE,), margin=ALWAYS)
    module = Counter().eval()
    for _ in range(3):
        torch.testing.assert_close(result.module(X), module(X))
    assert constants(result.program) == []


def test_random_constants_are_drawn_at_every_call() -> None:
    module = Weights(lambda m, x: x + torch.dropout(m.first[:5], 0.5, True)).eval()
    result = eqsat.optimize(module, (X,), rules=(ASSOCIATE,), margin=ALWAYS)
    torch.manual_seed(0)
    first, second = result.module(X), result.module(X)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    torch.testing.assert_close(first, module(X))


def test_given_weights_stay_as_they_were() -> None:
    module = Weights(lambda m, x: (x @ m.first) @ m.second).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    eqsat.optimize(module, (X,), rules=(ASSOCIATE,), margin=ALWAYS)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_memory_that_nothing_is_written_to_is_kept_as_zeros() -> None:
    def function(m: Weights, x: Tensor) -> Tensor:
        made = torch.as_strided_scatter(torch.empty(8, 8), m.scale, (8,), (9,))
        return x + made.diagonal()

    torch.use_deterministic_algorithms(True)  # what is not written to is NaN then
    try:
        program = check(function, folded=1, calls=1).program
    finally:
        torch.use_deterministic_algorithms(False)
    (name,) = constants(program)
    held = {**program.state_dict, **program.constants}[name]
    whole = torch.as_strided(held, (8, 8), (8, 1), 0)  # all that is saved with it
    assert torch.equal(whole, torch.diag(torch.linspace(1, 2, 8)))


def test_weights_without_strides_count_as_no_memory() -> None:
    class Sparse(nn.Module):
        """Multiplies by a sparse buffer twice."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.eye(8).to_sparse())

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(torch.relu(torch.sparse.mm(self.weight, x.mT).mT))

    module = Sparse().eval()
    relu = Rewrite("relu-relu", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)))
    result = eqsat.optimize(module, (X,), rules=[relu], margin=ALWAYS)
    assert result.report.kept is None
    assert torch.equal(result.module(X), module(X))
