"""Inception-v3 as TENSAT reads it: no norms, no biases, a ReLU after each convolution."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from benchmarks.zoo.same import Conv


def _mean(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


def _largest(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, 1, 1)


class Branches(nn.Module):
    """Branches of one input, side by side; the last of them reads a pool of it, if there is one."""

    def __init__(self, *branches: nn.Module, pool: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.branches, self.pool = nn.ModuleList(branches), pool

    def forward(self, x: Tensor) -> Tensor:
        inputs = [x] * len(self.branches)
        if self.pool is not None:
            inputs[-1] = self.pool(x)
        pairs = zip(self.branches, inputs, strict=True)
        return torch.cat([branch(given) for branch, given in pairs], 1)


class Inception(nn.Module):
    """The stem and the first `blocks` (up to 11), each width divided by `shrink`."""

    def __init__(self, shrink: int, blocks: int) -> None:
        super().__init__()
        self.shrink = shrink
        c = self._convolution
        self.stem = nn.Sequential(
            c(3, 32, 3, 2, padded=False),
            c(32, 32, 3, padded=False),
            c(32, 64, 3),
            nn.MaxPool2d(3, 2),
            c(64, 80, 1),
            c(80, 192, 3, padded=False),
            nn.MaxPool2d(3, 2),
        )
        makers: list[Callable[[], nn.Module]] = [
            lambda: self._small(192, 32),
            lambda: self._small(256, 64),
            lambda: self._small(288, 64),
            self._first_reduction,
            lambda: self._factored(128),
            lambda: self._factored(160),
            lambda: self._factored(160),
            lambda: self._factored(192),
            self._second_reduction,
            lambda: self._wide(1280),
            lambda: self._wide(2048),
        ]
        self.blocks = nn.Sequential(*[make() for make in makers[:blocks]])

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return F.avg_pool2d(x, x.shape[-1])

    def _convolution(
        self,
        width: int,
        out: int,
        kernel: int | tuple[int, int],
        step: int = 1,
        padded: bool = True,
    ) -> Conv:
        width = width if width == 3 else width // self.shrink
        return Conv(width, out // self.shrink, kernel, step, padded=padded)

    def _small(self, width: int, pooled: int) -> nn.Module:
        c = self._convolution
        return Branches(
            c(width, 64, 1),
            nn.Sequential(c(width, 48, 1), c(48, 64, 5)),
            nn.Sequential(c(width, 64, 1), c(64, 96, 3), c(96, 96, 3)),
            c(width, pooled, 1),
            pool=_mean,
        )

    def _first_reduction(self) -> nn.Module:
        c = self._convolution
        return Branches(
            c(288, 384, 3, 2, padded=False),
            nn.Sequential(c(288, 64, 1), c(64, 96, 3), c(96, 96, 3, 2, padded=False)),
            nn.AvgPool2d(3, 2),
            pool=None,
        )

    def _factored(self, inner: int) -> nn.Module:
        c, row, column = self._convolution, (1, 7), (7, 1)
        return Branches(
            c(768, 192, 1),
            nn.Sequential(c(768, inner, 1), c(inner, inner, row), c(inner, 192, column)),
            nn.Sequential(
                c(768, inner, 1),
                c(inner, inner, column),
                c(inner, inner, row),
                c(inner, inner, column),
                c(inner, 192, row),
            ),
            c(768, 192, 1),
            pool=_mean,
        )

    def _second_reduction(self) -> nn.Module:
        c = self._convolution
        return Branches(
            nn.Sequential(c(768, 192, 1), c(192, 320, 3, 2, padded=False)),
            nn.Sequential(
                c(768, 192, 1),
                c(192, 192, (1, 7)),
                c(192, 192, (7, 1)),
                c(192, 192, 3, 2, padded=False),
            ),
            nn.MaxPool2d(3, 2),
            pool=None,
        )

    def _wide(self, width: int) -> nn.Module:
        c = self._convolution
        return Branches(
            c(width, 320, 1),
            nn.Sequential(c(width, 384, 1), self._both()),
            nn.Sequential(c(width, 448, 1), c(448, 384, 3), self._both()),
            c(width, 192, 1),
            pool=_largest,
        )

    def _both(self) -> nn.Module:
        c = self._convolution
        return Branches(c(384, 384, (1, 3)), c(384, 384, (3, 1)), pool=None)
