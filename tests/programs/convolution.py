"""Convolutional networks: what scales, shifts and norms channels, and branches side by side."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, positive, program


def normed(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """A batch norm whose statistics and parameters are those of a trained one."""
    count = norm.num_features
    norm.running_var = positive(count)
    norm.running_mean = torch.linspace(-0.5, 0.5, count)
    norm.weight = nn.Parameter(positive(count))
    norm.bias = nn.Parameter(torch.linspace(-0.2, 0.2, count))
    return norm


@fires(
    "batch-norm-split convolution-scale",
)
@program((2, 4, 8, 8))
class ResNetBottleneck(nn.Module):
    """A bottleneck of ResNet, whose norms follow convolutions without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 3, 1, bias=False)
        self.bn1 = normed(nn.BatchNorm2d(3))
        self.conv2 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn2 = normed(nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + x)


@fires(
    "convolution-split convolution-join",
)
@program((2, 6, 8, 8), w=(6, 6, 1, 1), b=(6,))
def preactivation(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Images brought to the range of a network before its first convolution."""
    mean, std = torch.full((6, 1, 1), 0.45), torch.full((6, 1, 1), 0.22)
    y = (x - mean) / std
    return F.conv2d(y, w), F.conv2d(y, w, b)


@fires(
    "convolution-bias-scale convolution-number convolution-bias-number",
)
@program((2, 6, 8, 8), w=(5, 6, 3, 3), b=(5,), gamma=(5, 1, 1))
def layer_scale(x: Tensor, *, w: Tensor, b: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    """A layer scale, and residual scales by numbers, after convolutions with and without bias."""
    plain, biased = F.conv2d(x, w, padding=1), F.conv2d(x, w, b, padding=1)
    return plain * gamma, biased * gamma, plain * 0.2, biased * 0.2


@fires(
    "convolution-input convolution-pad convolution-bias-pad",
)
@program((2, 3, 8, 8), w=(5, 3, 3, 3), b=(5,))
def pixels(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Images of bytes, divided by 255 and padded by hand, before first convolutions."""
    x = x / 255.0
    x = F.pad(x, (1, 1, 1, 1))
    return F.conv2d(x, w, stride=2), F.conv2d(x, w, b, stride=2)


@fires(
    "convolution-enlarge",
)
@program((2, 4, 8, 8), numerics="relaxed")
class RepVGGBlock(nn.Module):
    """RepVGG as it is trained: a 3x3, a 1x1 and an identity branch, each with its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.point = nn.Conv2d(4, 4, 1, bias=False)
        self.norms = nn.ModuleList(normed(nn.BatchNorm2d(4)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        dense, point, same = self.norms
        return torch.relu(dense(self.dense(x)) + point(self.point(x)) + same(x))


@fires(
    "convolution-merge convolution-factor-left",
)
@program((2, 4, 8, 8), numerics="relaxed", v=(4, 4, 1, 1), w=(4, 4, 3, 3), u=(4, 4, 3, 3))
def branches(x: Tensor, *, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """Branches of convolutions of one image, without norms, that are added (ACNet)."""
    return F.conv2d(x, w, padding=1) + F.conv2d(x, v) + F.conv2d(x, u, padding=1)


@fires(
    "convolution-enlarge-bias",
)
@program((2, 4, 8, 8), numerics="relaxed", v=(4, 4, 1, 1), w=(4, 4, 3, 3), b=(4,), c=(4,))
def reparameterized(x: Tensor, *, v: Tensor, w: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The branches of a RepVGG block, their norms folded, that are added."""
    return torch.relu(F.conv2d(x, w, b, padding=1) + F.conv2d(x, v, c))


@fires(
    "convolution-factor-right convolution-factor-bias",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), w=(4, 4, 3, 3), v=(4, 4, 3, 3), b=(4,), c=(4,))
def shared_heads(
    x: Tensor, y: Tensor, *, w: Tensor, v: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Heads over features that are added: one convolution of two images, two of two, two of one."""
    shared = F.conv2d(x, w) + F.conv2d(y, w)
    apart = F.conv2d(x, w, b) + F.conv2d(y, v, c)
    return shared, apart, F.conv2d(x, w, b) - F.conv2d(x, v, c)


@fires(
    "convolution-add convolution-add-bias split-binary",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), w=(3, 4, 3, 3), v=(3, 4, 3, 3), b=(3,), c=(3,))
def gated_fusion(
    x: Tensor, y: Tensor, *, w: Tensor, v: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """ConvGRU's gates: convolutions of the input and of the state, added."""
    z = torch.sigmoid(F.conv2d(x, w, padding=1) + F.conv2d(y, v, padding=1))
    r = torch.sigmoid(F.conv2d(x, w, b, padding=1) + F.conv2d(y, v, c, padding=1))
    return z, r


@fires(
    "cat-convolution-channels cat-convolution-channels-bias cat-slice-4-1-3 cat-reshape-4",
)
@program((2, 4, 8, 8), v=(3, 4, 3, 3), w=(5, 4, 3, 3), b=(3,), c=(5,))
def fire(x: Tensor, *, v: Tensor, w: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Convolutions of one image whose channels are set side by side (SqueezeNet, Inception)."""
    plain = torch.cat([F.conv2d(x, v), F.conv2d(x, w)], dim=1)
    return plain, torch.cat([F.conv2d(x, v, b), F.conv2d(x, w, c)], dim=1)


@fires(
    "convolution-bias-merge",
)
@program((2, 4, 8, 8), v=(3, 4, 1, 1), w=(5, 4, 1, 1), b=(3,), c=(5,))
def inception(x: Tensor, *, v: Tensor, w: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """The reductions of an Inception block: siblings that read one image, then differ."""
    y, z = F.conv2d(x, v), F.conv2d(x, w)
    p, q = F.conv2d(x, v, b), F.conv2d(x, w, c)
    return torch.relu(y), torch.sigmoid(z), torch.relu(p), torch.sigmoid(q)


@fires(
    "cat-convolution-images cat-convolution-images-bias cat-binary-with-2 binary-with-cat-2",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), w=(3, 4, 3, 3), b=(3,))
def pyramid_head(x: Tensor, y: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A detector's head, shared by images that are set behind each other (Siamese networks)."""
    return torch.cat([F.conv2d(x, w), F.conv2d(y, w)]), torch.cat(
        [F.conv2d(x, w, b), F.conv2d(y, w, b)]
    )


@fires(
    "cat-convolution-groups cat-convolution-groups-bias cat-reshape-2",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), v=(4, 1, 3, 3), w=(4, 1, 3, 3), b=(4,), c=(4,))
def mixed_depthwise(
    x: Tensor, y: Tensor, *, v: Tensor, w: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """Depthwise convolutions of parts of the channels, set side by side (MixNet)."""
    plain = [F.conv2d(x, v, padding=1, groups=4), F.conv2d(y, w, padding=1, groups=4)]
    biased = [F.conv2d(x, v, b, padding=1, groups=4), F.conv2d(y, w, c, padding=1, groups=4)]
    return torch.cat(plain, 1), torch.cat(biased, 1)


@fires(
    "convolution-compose convolution-compose-bias",
)
@program((2, 4, 8, 8), w=(3, 4, 3, 3), p=(3,), v=(5, 3, 1, 1))
def projected(x: Tensor, *, w: Tensor, p: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """A convolution and a projection of its channels after it, without an activation."""
    return F.conv2d(F.conv2d(x, w), v), F.conv2d(F.conv2d(x, w, p), v)


@fires(
    "convolution-compose-first",
)
@program((2, 4, 8, 8), w=(3, 4, 1, 1), v=(5, 3, 3, 3))
def separable(x: Tensor, *, w: Tensor, v: Tensor) -> Tensor:
    """A 1x1 projection before a larger convolution (low-rank compression)."""
    return F.conv2d(F.conv2d(x, w), v)


@fires(
    "slice-convolution-channels slice-convolution-bias-channels",
)
@program((2, 4, 8, 8), w=(6, 4, 3, 3), b=(6,))
def anchors(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A detector's head that computes scores and boxes, of which only the scores are read."""
    return F.conv2d(x, w)[:, :2], F.conv2d(x, w, b)[:, :2]


@fires(
    "cat-slice-4-0-2 cat-slice-4-1-1 cat-slice-4-2-2 cat-slice-4-3-3 cat-tiles-4",
    "cat-flatten-2-1-2 cat-flatten-2-1-3 cat-flatten-3-1-2 cat-flatten-3-2-2",
    "convolution-of-cat-3 convolution-bias-of-cat-3 convolution-of-cat-4",
    "convolution-bias-of-cat-4",
)
@program((2, 4, 8, 8), (2, 2, 8, 8), (2, 3, 8, 8), (2, 1, 8, 8), w=(5, 10, 1, 1), b=(5,))
def fused_levels(
    x: Tensor, y: Tensor, z: Tensor, u: Tensor, *, w: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """Convolutions of levels set side by side (SegFormer's and ASPP's fusion), of two to four."""
    two, three, four = torch.cat([x, y], 1), torch.cat([x, y, z], 1), torch.cat([x, y, z, u], 1)
    plain = F.conv2d(two, w[:, :6]), F.conv2d(three, w[:, :9]), F.conv2d(four, w)
    return *plain, F.conv2d(two, w[:, :6], b), F.conv2d(three, w[:, :9], b), F.conv2d(four, w, b)
