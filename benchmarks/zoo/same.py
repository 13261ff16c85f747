"""Convolutions and pools as TASO means them: no bias, "same" padding as TensorFlow pads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name


class Conv(nn.Module):
    """A convolution without a bias, perhaps followed by a ReLU.

    Padded to keep the size, divided by the step: where the padding is odd, the end has one more.
    """

    def __init__(
        self,
        width: int,
        out: int,
        kernel: int | tuple[int, int],
        step: int = 1,
        *,
        relu: bool = True,
        groups: int = 1,
        padded: bool = True,
    ) -> None:
        super().__init__()
        self.relu, self.padded, self.step = relu, padded, step
        self.kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        weight = torch.randn(out, width // groups, *self.kernel)
        fan = width // groups * self.kernel[0] * self.kernel[1]
        self.weight, self.groups = nn.Parameter(weight * ((2 if relu else 1) / fan) ** 0.5), groups

    def forward(self, x: Tensor) -> Tensor:
        height, width = self.kernel
        top, bottom = _padding(x.shape[2], height, self.step) if self.padded else (0, 0)
        left, right = _padding(x.shape[3], width, self.step) if self.padded else (0, 0)
        if (top, left) != (bottom, right):
            x, top, left = F.pad(x, (left, right, top, bottom)), 0, 0
        x = F.conv2d(x, self.weight, None, self.step, (top, left), 1, self.groups)
        return torch.relu(x) if self.relu else x


def max_pool(x: Tensor, step: int) -> Tensor:
    """The largest of each 3 x 3, "same" padded."""
    return F.max_pool2d(x, 3, step, 1 if step == 1 else 0, ceil_mode=step > 1)


def mean_pool(x: Tensor, step: int) -> Tensor:
    """The mean of each 3 x 3, "same" padded, of which the padding is no part."""
    if step == 1:
        return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    return F.avg_pool2d(x, 3, step, 0, ceil_mode=True, count_include_pad=False)


def _padding(size: int, kernel: int, step: int) -> tuple[int, int]:
    """What is padded before and after a dimension of this size."""
    total = max(((size + step - 1) // step - 1) * step + kernel - size, 0)
    return total // 2, total - total // 2
