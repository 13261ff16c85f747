"""ResNeXt-50, ResNet-50, SqueezeNet 1.1 and VGG-19 as TASO wrote them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from benchmarks.zoo.same import Conv, max_pool


class ResNet(nn.Module):
    """Stages of bottlenecks, each of twice the width at half the size.

    With `groups` the inner widths of the first stage are twice `width`, as in ResNeXt.
    """

    def __init__(
        self,
        width: int,
        depths: tuple[int, ...],
        *,
        expansion: int,
        groups: int = 1,
        stem: bool = True,
    ) -> None:
        super().__init__()
        self.stem = Conv(3, width, 7, 2) if stem else None
        inner = width if groups == 1 else 2 * width
        blocks: list[nn.Module] = []
        for i, depth in enumerate(depths):
            for j in range(depth):
                step = 2 if i and not j else 1
                blocks.append(Bottleneck(width, inner << i, expansion, step, groups))
                width = expansion * inner << i
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x if self.stem is None else max_pool(self.stem(x), 2))


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut, which has a ReLU where it is convolved."""

    def __init__(self, width: int, inner: int, expansion: int, step: int, groups: int) -> None:
        super().__init__()
        out = expansion * inner
        self.parts = nn.Sequential(
            Conv(width, inner, 1),
            Conv(inner, inner, 3, step, groups=groups),
            Conv(inner, out, 1, relu=False),
        )
        same = step == 1 and width == out
        self.shortcut = nn.Identity() if same else Conv(width, out, 1, step)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.parts(x))


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1, of which each width is divided by `shrink`, up to its first `fires`."""

    WIDTHS = (16, 16, 32, 32, 48, 48, 64, 64)

    def __init__(self, shrink: int, fires: int) -> None:
        super().__init__()
        width = 64 // shrink
        self.stem = Conv(3, width, 3, 2, padded=False)
        blocks: list[nn.Module] = []
        for squeezed in self.WIDTHS[:fires]:
            blocks.append(Fire(width, squeezed // shrink))
            width = 8 * squeezed // shrink
        self.fires, self.head = nn.ModuleList(blocks), Conv(width, 1000 // shrink, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2)
        for i, fire in enumerate(self.fires):
            x = fire(x)
            if i in (1, 3):
                x = F.max_pool2d(x, 3, 2)
        x = self.head(x)
        return F.avg_pool2d(x, x.shape[-1])


class Fire(nn.Module):
    """A 1 x 1 convolution, which a 1 x 1 and a 3 x 3 convolution read."""

    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = Conv(width, squeezed, 1)
        self.small, self.large = Conv(squeezed, 4 * squeezed, 1), Conv(squeezed, 4 * squeezed, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x)
        return torch.cat([self.small(x), self.large(x)], 1)


class Vgg(nn.Module):
    """VGG-19, of which each width is divided by `shrink`."""

    STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))

    def __init__(self, shrink: int, image: int, classifier: int) -> None:
        super().__init__()
        width, parts = 3, list[nn.Module]()
        for out, count in self.STAGES:
            for _ in range(count):
                parts.append(Conv(width, out // shrink, 3))
                width = out // shrink
            parts.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*parts)
        inner = width * (image // 32) ** 2
        self.first = nn.Linear(inner, classifier, bias=False)
        self.second = nn.Linear(classifier, classifier, bias=False)
        self.third = nn.Linear(classifier, 1000, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x).flatten(1)
        x = F.dropout(torch.relu(self.first(x)), training=self.training)
        x = F.dropout(torch.relu(self.second(x)), training=self.training)
        return self.third(x)
