"""NasNet-A as TASO wrote it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.zoo.same import Conv, max_pool, mean_pool


class NasNet(nn.Module):
    """Stages of normal cells and a reduction, each of twice the width at half the size.

    A cell reads the two before it; the first of a stage reads what the stage was given twice.
    """

    def __init__(self, width: int, stages: int, cells: int) -> None:
        super().__init__()
        self.stem = Conv(3, width, 7, 2)
        given, out = width, 2 * width
        parts: list[nn.Module] = []
        for _ in range(stages):
            before = now = given
            stage: list[nn.Module] = []
            for _ in range(cells):
                stage.append(NormalCell(before, now, out))
                before, now = now, 5 * out
            out *= 2
            stage.append(ReductionCell(before, now, out))
            given = 5 * out
            parts.append(nn.ModuleList(stage))
        self.stages = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        x = max_pool(self.stem(x), 2)
        for stage in self.stages:
            *cells, reduction = stage.children()
            before = now = x
            for cell in cells:
                before, now = now, cell(before, now)
            x = reduction(before, now)
        return x


class Separable(nn.Module):
    """A convolution of each channel and one of 1 x 1, without an activation."""

    def __init__(self, width: int, kernel: int, step: int = 1) -> None:
        super().__init__()
        self.deep = Conv(width, width, kernel, step, relu=False, groups=width)
        self.point = Conv(width, width, 1, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.point(self.deep(x))


class NormalCell(nn.Module):
    """Five sums of convolutions and pools of this state and the one before."""

    def __init__(self, before: int, now: int, out: int) -> None:
        super().__init__()
        self.now, self.before = Conv(now, out, 1), Conv(before, out, 1)
        self.of_now = nn.ModuleList(Separable(out, 3) for _ in range(2))
        self.of_before = nn.ModuleList(Separable(out, 3) for _ in range(3))

    def forward(self, before: Tensor, now: Tensor) -> Tensor:
        now, before = self.now(now), self.before(before)
        a, b = (part(now) for part in self.of_now)
        c, d, e = (part(before) for part in self.of_before)
        pooled = mean_pool(now, 1)
        sums = [a + now, c + b, pooled + before]
        sums += [mean_pool(before, 1) + mean_pool(before, 1), d + e]
        return torch.cat(sums, 1)


class ReductionCell(nn.Module):
    """Five sums of convolutions and pools of a step of two."""

    def __init__(self, before: int, now: int, out: int) -> None:
        super().__init__()
        self.now, self.before = Conv(now, out, 1), Conv(before, out, 1)
        self.of_before = nn.ModuleList(Separable(out, k, 2) for k in (7, 7, 5))
        self.of_now, self.last = Separable(out, 5, 2), Separable(out, 3)

    def forward(self, before: Tensor, now: Tensor) -> Tensor:
        now, before = self.now(now), self.before(before)
        a, b, c = (part(before) for part in self.of_before)
        first = a + self.of_now(now)
        second = max_pool(now, 2) + b
        third = mean_pool(now, 2) + c
        fourth = max_pool(now, 2) + self.last(first)
        return torch.cat([first, second, third, fourth, mean_pool(first, 1) + second], 1)
