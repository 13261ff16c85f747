"""Vision: what pools, resamples, pads and shifts images."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.convolution import normed
from programs.program import fires, program


@fires(
    "convolution-input-scale convolution-bias-input-scale convolution-input-shift",
    "convolution-bias-input-shift pool-convolution pool-convolution-bias",
)
@program((2, 6, 8, 8))
class DenseNetTransition(nn.Module):
    """DenseNet's transition: a norm before a 1x1 convolution, whose average pool comes last."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = normed(nn.BatchNorm2d(6))
        self.conv = nn.Conv2d(6, 3, 1, bias=False)
        self.biased = nn.Conv2d(6, 3, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.norm(x)
        return F.avg_pool2d(self.conv(torch.relu(y)), 2, 2), F.avg_pool2d(self.biased(y), 2, 2)


@fires(
    "adaptive-convolution adaptive-convolution-bias mean-convolution mean-convolution-bias",
)
@program((2, 4, 8, 8), w=(10, 4, 1, 1), b=(10,))
def pooled_classes(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """A classifier as Network in Network has it: a convolution to classes, then a global pool."""
    plain, biased = F.conv2d(x, w), F.conv2d(x, w, b)
    pooled = F.adaptive_avg_pool2d(plain, 1), F.adaptive_avg_pool2d(biased, 1)
    return *pooled, plain.mean((2, 3), keepdim=True), biased.mean([2, 3], keepdim=True)


@fires(
    "convolution-nearest convolution-nearest-bias convolution-bilinear",
    "convolution-bilinear-bias",
)
@program((2, 4, 6, 6), w=(10, 4, 1, 1), b=(10,))
def fcn_head(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """A segmentation head that resamples before its 1x1 convolution to classes."""
    near = F.interpolate(x, scale_factor=2, mode="nearest")
    smooth = F.interpolate(x, size=(12, 12), mode="bilinear", align_corners=False)
    return F.conv2d(near, w), F.conv2d(near, w, b), F.conv2d(smooth, w), F.conv2d(smooth, w, b)


@fires(
    "bilinear-number bilinear-scale bilinear-shift bilinear-sum",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), s=(4, 1, 1))
def resampled_sums(x: Tensor, y: Tensor, *, s: Tensor) -> tuple[Tensor, ...]:
    """Laterals of a feature pyramid: resampled images that are scaled, shifted and added."""
    up = lambda z: F.interpolate(z, scale_factor=2.0, mode="bilinear", align_corners=False)  # noqa: E731
    return up(x) + up(y), up(x) * 0.5, up(x) * s, up(x) + s


@fires(
    "nearest-unary nearest-binary nearest-binary-planes",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), s=(4, 1, 1))
def nearest_sums(x: Tensor, y: Tensor, *, s: Tensor) -> tuple[Tensor, ...]:
    """A top-down path of nearest neighbours: activated, scaled by channel, and added."""
    up = lambda z: F.interpolate(z, scale_factor=2.0, mode="nearest")  # noqa: E731
    return torch.relu(up(x)), up(x) + up(y), up(x) * s


@fires(
    "avg-pool-number avg-pool-scale avg-pool-shift avg-pool-sum",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), s=(4, 1, 1))
def pooled_sums(x: Tensor, y: Tensor, *, s: Tensor) -> tuple[Tensor, ...]:
    """PoolFormer's mixing, and ResNet-D's shortcut, of what is scaled, shifted and added."""
    pool = lambda z: F.avg_pool2d(z, 2)  # noqa: E731
    return (
        pool(x + y),
        pool(x * 0.5),
        pool(x * s),
        pool(x - s),
        pool(torch.relu(x)) - x[..., ::2, ::2],
    )


@fires(
    "adaptive-avg-pool-number adaptive-avg-pool-scale adaptive-avg-pool-shift",
    "adaptive-avg-pool-sum",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), s=(4, 1, 1))
def adaptive_sums(x: Tensor, y: Tensor, *, s: Tensor) -> tuple[Tensor, ...]:
    """A pyramid pool (PSPNet) of what is scaled, shifted and added, at one scale."""
    pool = lambda z: F.adaptive_avg_pool2d(z, 2)  # noqa: E731
    return pool(x + y), pool(x * 0.5), pool(x * s), pool(x + s)


@fires(
    "adaptive-mean avg-pool-mean max-pool-monotone",
)
@program((2, 4, 8, 8))
def stem_pool(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An activation before a max pool, and a global pool written as a pool of the whole image."""
    return (
        F.max_pool2d(F.relu(x), 3, 2, 1),
        F.avg_pool2d(x, 8),
        F.adaptive_avg_pool2d(x, 1).flatten(1),
    )


@fires(
    "slice-convolution slice-convolution-bias slice-avg-pool slice-adaptive-avg-pool",
    "slice-max-pool slice-nearest slice-bilinear",
)
@program((4, 4, 8, 8), w=(3, 4, 3, 3), b=(3,))
def half_of_images(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """A batch of two halves (views of BYOL, guidance), of which one is read after each operator."""
    up = F.interpolate(x, scale_factor=2.0, mode="nearest")
    smooth = F.interpolate(x, scale_factor=2.0, mode="bilinear")
    pooled = F.avg_pool2d(x, 2), F.max_pool2d(x, 2), F.adaptive_avg_pool2d(x, 2), up, smooth
    return F.conv2d(x, w)[:2], F.conv2d(x, w, b)[:2], *(y[:2] for y in pooled)


@fires(
    "convolution-rows convolution-bias-rows",
)
@program((2, 49, 6), w=(5, 6, 1, 1), b=(5,))
def segformer_map(x: Tensor, *, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens brought back to an image, of which a 1x1 convolution makes classes."""
    image = x.transpose(1, 2).reshape(2, 6, 7, 7)
    return F.conv2d(image, w), F.conv2d(image, w, b)


@fires(
    "convolution-bias-input",
)
@program((2, 6, 8, 8), fc1=(3, 6, 1, 1), fc2=(6, 3, 1, 1), b1=(3,), b2=(6,))
def squeeze_and_excitation(
    x: Tensor, *, fc1: Tensor, fc2: Tensor, b1: Tensor, b2: Tensor
) -> Tensor:
    """A squeeze-and-excitation gate."""
    scale = F.adaptive_avg_pool2d(x, 1)
    scale = F.conv2d(F.relu(F.conv2d(scale, fc1, b1)), fc2, b2)
    return x * torch.sigmoid(scale)


@fires(
    "permute-binary-right merge-matmul merge-affine roll-compose roll-nothing",
)
@program((2, 8, 8, 6), qkv=(18, 6), b=(18,))
def swin_window(x: Tensor, *, qkv: Tensor, b: Tensor) -> Tensor:
    """Swin's shifted windows: rolled, split into windows, projected, and brought back."""
    x = torch.roll(x, shifts=(-2, -2), dims=(1, 2))
    x = F.pad(x, (0, 0, 0, 0, 0, 0))
    x = x.view(2, 2, 4, 2, 4, 6).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 6)
    x = F.linear(x, qkv, b)[..., :6]
    x = x.view(2, 2, 2, 4, 4, 6).permute(0, 1, 3, 2, 4, 5).reshape(2, 8, 8, 6)
    x = torch.roll(x, shifts=(2, 2), dims=(1, 2))
    return torch.roll(x, shifts=(1, 1), dims=(1, 2)).roll((-1, -1), (1, 2))


@fires(
    "slice-whole slice-commute pad-nothing pad-compose slice-pad slice-pad-inside",
)
@program((2, 3, 8, 8))
def padded_crops(x: Tensor) -> tuple[Tensor, ...]:
    """Images padded to the size of a batch, of which a crop or some channels are read."""
    padded = F.pad(F.pad(x, (1, 1)), (0, 0, 2, 2))
    wide = F.pad(x, (2, 2))
    return padded, F.pad(x, (2, 2, 2, 2))[:, :2], F.pad(x, (2, 2, 2, 2))[..., 3:7], wide[..., 2:-2]
