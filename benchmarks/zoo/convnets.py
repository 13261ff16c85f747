"""Convolutional networks that transformers lacks: DenseNet-121 and MobileNetV3-Large."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name


class DenseNet(nn.Module):
    """DenseNet (arXiv:1608.06993): blocks of layers that each read all before them."""

    def __init__(self, growth: int, layers: tuple[int, ...], classes: int = 1000) -> None:
        super().__init__()
        width = 2 * growth
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        parts: list[nn.Module] = []
        for i, count in enumerate(layers):
            parts.append(DenseBlock(width, growth, count))
            width += count * growth
            if i < len(layers) - 1:
                parts.append(Transition(width))
                width //= 2
        self.parts = nn.Sequential(*parts)
        self.norm, self.head = nn.BatchNorm2d(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.parts(F.max_pool2d(self.stem(x), 3, 2, 1))
        x = F.adaptive_avg_pool2d(torch.relu(self.norm(x)), 1)
        return self.head(x.flatten(1))


class DenseBlock(nn.Module):
    """Layers of a 1 x 1 and a 3 x 3 convolution, each on the features of all before it."""

    def __init__(self, width: int, growth: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(width + i * growth),
                nn.ReLU(),
                nn.Conv2d(width + i * growth, 4 * growth, 1, bias=False),
                nn.BatchNorm2d(4 * growth),
                nn.ReLU(),
                nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class Transition(nn.Module):
    """Half the features, and half of the height and width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.BatchNorm2d(width), nn.Conv2d(width, width // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.mix(torch.relu(self.norm(x))), 2, 2)


LARGE = (
    (3, 16, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hardswish", 2),
    (3, 200, 80, False, "hardswish", 1),
    (3, 184, 80, False, "hardswish", 1),
    (3, 184, 80, False, "hardswish", 1),
    (3, 480, 112, True, "hardswish", 1),
    (3, 672, 112, True, "hardswish", 1),
    (5, 672, 160, True, "hardswish", 2),
    (5, 960, 160, True, "hardswish", 1),
    (5, 960, 160, True, "hardswish", 1),
)
"""Kernel, expansion, width, squeeze, activation and step of each block (arXiv:1905.02244)."""


class MobileNetV3(nn.Module):
    """MobileNetV3-Large, of which each width is divided by `shrink`."""

    def __init__(self, shrink: int = 1, blocks: int = 15, classes: int = 1000) -> None:
        super().__init__()
        width = 16 // shrink
        parts: list[nn.Module] = [_normed(3, width, 3, 2), nn.Hardswish()]
        for kernel, expansion, out, squeeze, act, step in LARGE[:blocks]:
            sizes = (width, expansion // shrink, out // shrink)
            parts.append(InvertedResidual(sizes, kernel, squeeze, act, step))
            width = out // shrink
        parts += [_normed(width, 6 * width, 1, 1), nn.Hardswish()]
        self.features = nn.Sequential(*parts)
        self.head = nn.Sequential(
            nn.Linear(6 * width, 1280 // shrink),
            nn.Hardswish(),
            nn.Linear(1280 // shrink, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class InvertedResidual(nn.Module):
    """Expand, convolve each channel, perhaps weigh the channels, and contract."""

    def __init__(
        self, sizes: tuple[int, int, int], kernel: int, squeeze: bool, act: str, step: int
    ) -> None:
        super().__init__()
        width, expansion, out = sizes
        activation = nn.ReLU if act == "relu" else nn.Hardswish
        parts: list[nn.Module] = []
        if expansion != width:
            parts += [_normed(width, expansion, 1, 1), activation()]
        parts += [_normed(expansion, expansion, kernel, step, expansion), activation()]
        if squeeze:
            parts.append(SqueezeExcite(expansion))
        self.parts = nn.Sequential(*parts, _normed(expansion, out, 1, 1))
        self.skips = step == 1 and width == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.parts(x) if self.skips else self.parts(x)


class SqueezeExcite(nn.Module):
    """Weighs channels by what a small perceptron makes of their means."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = max(8, (width // 4 + 4) // 8 * 8)
        self.down, self.up = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.up(torch.relu(self.down(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(weights)


def _normed(width: int, out: int, kernel: int, step: int, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(width, out, kernel, step, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out, eps=0.001))
