"""Programs about sizes: broadcasting, emptiness, rejoined parts, sizes known at run time."""

import torch
from adversarial.program import Inputs, Program
from torch import Tensor, nn


class GrowingBroadcast(nn.Module):
    """Neutral operands that make the result larger, and sums and products of nothing."""

    def forward(self, x: Tensor, column: Tensor, nothing: Tensor, thin: Tensor) -> object:
        grown = x + torch.zeros(2, 1)
        inner = torch.matmul(thin, thin.t()) + torch.matmul(torch.zeros(2, 0), torch.zeros(0, 2))
        return (
            grown,
            x * torch.ones(2, 1, 1),
            x.expand(4, 3) * column[:1],
            (x - column).sum(0, keepdim=True) + column * 0 + x,
            torch.cat([nothing, grown, nothing], dim=-2),
            inner,
            [thin.sum(), thin.prod(), thin.mean(), thin.sum(1), thin.amax(0)],
            torch.cat([thin, thin], 1),
            thin.reshape(0, 2),
            x.expand(0, 1, 3),
            grown[2:],
        )


class PartsInOrder(nn.Module):
    """Uneven parts in other orders, results used in part, and keywords in any order."""

    def forward(
        self, x: Tensor, *, scale: Tensor, shift: Tensor, minus: bool = True
    ) -> tuple[Tensor, ...]:
        a, b, c = torch.split(x, [2, 1, 4], dim=1)
        turned = torch.cat([c, a, b], dim=1)
        best, where = torch.topk(turned * scale, 3, dim=1)
        _, order = torch.sort(x, dim=1, descending=True)
        ties = torch.sort((x > 0).int(), dim=1, stable=True)
        _, first = x.max(dim=0)
        part = torch.cat([a, c], dim=1)
        return (
            torch.cat([a, b, c], dim=1),
            turned,
            torch.cat([a, b, c, c], dim=1),
            torch.chunk(x, 3, dim=1)[2],
            best,
            where,
            order,
            ties.values,
            ties.indices,
            first,
            part - shift if minus else part + shift,
            torch.unbind(x, 1)[3],
        )


class RunTimeSizes(nn.Module):
    """A batch of any size, rows counted in the data, and arithmetic on both."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, count: Tensor) -> tuple[object, ...]:
        batch = x.shape[0]
        y = self.linear(x.reshape(batch * 3, 2).reshape(batch, 6)) * batch / batch
        y = y + x * (batch - batch + 1)
        taken = count.item()
        torch._check(taken >= 0)
        torch._check(taken <= 6)
        places = torch.arange(batch) * 3_000_000_000
        return (
            y,
            torch.nonzero(y > 0),
            y[:, :taken] + 0,
            taken + 1,
            places,
            y[y > 0].sum(),
            y.sum(0) / batch,
            batch * 2,
        )


def _thin() -> Inputs:
    return (torch.randn(1, 3), torch.randn(2, 1), torch.tensor([]), torch.zeros(2, 0)), {}


def _parts() -> Inputs:
    scale = torch.tensor([[2.0], [-1.0], [0.5]])
    return (torch.randn(3, 7),), {"minus": False, "shift": torch.tensor(0.25), "scale": scale}


def _sized(batch: int, count: int) -> Inputs:
    return (torch.randn(batch, 6), torch.tensor(count)), {}


SHAPES = (
    Program(
        name="growing-broadcast",
        module=GrowingBroadcast,
        inputs=(_thin,),
        rounded=frozenset({3}),
        products=frozenset({5}),
    ),
    Program(name="parts-in-order", module=PartsInOrder, inputs=(_parts,)),
    Program(
        name="run-time-sizes",
        module=RunTimeSizes,
        inputs=(
            lambda: _sized(5, 4),
            lambda: _sized(2, 0),
            lambda: _sized(9, 6),
            lambda: _sized(5, -1),  # a negative count must still be refused
        ),
        dynamic_shapes={"x": {0: torch.export.Dim("batch", min=2, max=64)}, "count": None},
        rounded=frozenset({0, 2, 5, 6}),
        products=frozenset({0, 2, 5, 6}),
    ),
)
