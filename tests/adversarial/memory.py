"""Programs about memory: aliased outputs, writes through views, layouts that a caller can see."""

import torch
from adversarial.program import Inputs, Program
from torch import Tensor, nn


class AliasedOutputs(nn.Module):
    """Views of the input, one tensor returned twice, and no-ops that must still be fresh memory."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = x * 2.0 + 1.0
        return {
            "flat": x.reshape(12),
            "tail": x[1:, :2],
            "y": y,
            "again": y,
            "turned": y.mT,
            "detached": y.detach(),
            "itself": x,
            "fresh": x * 1.0,
            "negated": x.neg().neg(),
            "row": x.expand(2, 4, 3)[1],
        }


class WrittenViews(nn.Module):
    """Writes through views of an input, read before and after each write."""

    def forward(self, x: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
        old = (x * 10.0).sum(dim=1)
        x[:, 1].add_(2.0)
        x.view(2, -1)[1].mul_(-3.0)
        middle = x.clone()
        x.diagonal().zero_()
        kept.copy_(x[:2])
        x.clamp_(max=4.0)
        return old, middle, x.t()[2:], x


class VisibleLayouts(nn.Module):
    """Transposed, channels-last, stepped and expanded values, and the clones that end them."""

    def forward(self, image: Tensor, turned: Tensor, row: Tensor) -> tuple[Tensor, ...]:
        bright = torch.relu(image) + 1.0
        rows = bright.permute(0, 2, 3, 1).reshape(2, -1, 3)
        packed = turned.t().contiguous().t()
        written = row.expand(3, 4).clone()
        written[0] += 1.0
        zeros = torch.zeros(1, 4).expand(3, 4)
        summed = zeros.index_add(0, torch.tensor([2, 2]), row.expand(2, 4))
        return (
            bright,
            rows,
            image.contiguous(),
            packed,
            turned[:, 1:].clone(),
            written,
            row.expand(3, 4),
            summed,
            turned[::2, ::3],
            image.to(memory_format=torch.contiguous_format),
            torch.relu(turned).t(),
        )


def _layouts() -> Inputs:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    return (image, torch.randn(7, 5).t(), torch.randn(1, 4)), {}


MEMORY = (
    Program(
        name="aliased-outputs",
        module=AliasedOutputs,
        inputs=(lambda: ((torch.randn(4, 3),), {}),),
    ),
    Program(
        name="written-views",
        module=WrittenViews,
        inputs=(lambda: ((torch.randn(4, 4) * 3.0, torch.zeros(2, 4)), {}),),
    ),
    Program(name="visible-layouts", module=VisibleLayouts, inputs=(_layouts,)),
)
