"""Diffusion models: whose batch is doubled for guidance, with what follows from it."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, positive, program


@fires(
    "cat-unary-2 unary-cat-2 cat-binary-2 binary-cat-2 convolution-twins",
    "convolution-bias-twins",
)
@program((2, 4, 8, 8), (2, 4, 8, 8))
class GuidedBlock(nn.Module):
    """A block of a U-Net on a doubled batch: convolutions, norms and resampling, no condition."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(2, 4)
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.down = nn.AvgPool2d(2)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = torch.cat([x] * 2)
        h = self.conv_in(x)
        h = self.conv1(F.silu(self.norm1(h)))
        return self.down(h) + self.down(torch.cat([skip] * 2))


@fires(
    "group-norm-twins-0 group-norm-twins-1 group-norm-twins-2 batch-norm-twins",
)
@program((2, 4, 8, 8), w=(4,), b=(4,), m=(4,), v=positive(4))
def guided_norms(x: Tensor, *, w: Tensor, b: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Norms of images on a doubled batch, with and without parameters."""
    x = torch.cat([x, x])
    groups = F.group_norm(x, 2), F.group_norm(x, 2, w), F.group_norm(x, 2, w, b)
    return *groups, F.batch_norm(x, m, v, w, b)


@fires(
    "avg-pool-twins adaptive-avg-pool-twins max-pool-twins nearest-twins bilinear-twins",
)
@program((2, 4, 8, 8))
def guided_resampling(x: Tensor) -> tuple[Tensor, ...]:
    """Pools and resampling on a doubled batch."""
    x = torch.cat([x, x], dim=0)
    return (
        F.avg_pool2d(x, 2),
        F.max_pool2d(x, 2),
        F.adaptive_avg_pool2d(x, 4),
        F.interpolate(x, scale_factor=2.0, mode="nearest"),
        F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    )


@fires(
    "layer-norm-twins-0 layer-norm-twins-1 layer-norm-twins-2 rms-norm-twins-0",
    "rms-norm-twins-1 softmax-twins matmul-twins affine-twins permute-twins reshape-twins",
    "reduction-twins",
)
@program((2, 5, 8), w=(8,), b=(8,), proj=(8, 8), out=(6, 8), c=(6,))
def guided_tokens(
    x: Tensor, *, w: Tensor, b: Tensor, proj: Tensor, out: Tensor, c: Tensor
) -> tuple[Tensor, ...]:
    """Norms and projections of tokens on a doubled batch, with and without parameters."""
    x = torch.cat([x, x])
    layers = F.layer_norm(x, (8,)), F.layer_norm(x, (8,), w), F.layer_norm(x, (8,), w, b)
    squares = F.rms_norm(x, (8,), eps=1e-6), F.rms_norm(x, (8,), w, eps=1e-6)
    linear = F.linear(x, proj), F.linear(x, out, c)
    views = x.transpose(1, 2), x.reshape(4, 40), x.mean(1), x.softmax(-1)
    return *layers, *squares, *linear, *views


@fires(
    "embedding-twins",
)
@program(torch.tensor([3, 5]), table=(10, 8))
def guided_noise_level(labels: Tensor, *, table: Tensor) -> Tensor:
    """The noise level of an upscaler, doubled for guidance before it is looked up."""
    return F.embedding(torch.cat([labels, labels]), table)


@fires(
    "cat-exchange convolution-of-cat-2 convolution-bias-of-cat-2 cat-twins",
)
@program((2, 4, 8, 8), (2, 4, 8, 8), w=(4, 8, 3, 3), b=(4,))
def unet_up_block(x: Tensor, skip: Tensor, *, w: Tensor, b: Tensor) -> Tensor:
    """An up block of a U-Net on a doubled batch, whose skip is set beside it."""
    h = torch.cat([torch.cat([x, x]), torch.cat([skip, skip])], dim=1)
    return F.conv2d(h, w, b, padding=1)


@fires(
    "matmul-of-cat-2 affine-of-cat-2 reshape-expand",
)
@program(torch.tensor(7.0), (2, 4, 8, 8), t1=(16, 8), b1=(16,), t2=(4, 16), b2=(4,), w=(4, 4, 3, 3))
def timestep_block(
    t: Tensor, x: Tensor, *, t1: Tensor, b1: Tensor, t2: Tensor, b2: Tensor, w: Tensor
) -> Tensor:
    """A residual block whose time is expanded to the batch before its embedding."""
    freqs = torch.exp(-math.log(10000) * torch.arange(0, 4, dtype=torch.float32) / 4)
    args = t.reshape(1).expand(2)[:, None].float() * freqs[None]
    emb = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
    emb = F.linear(F.silu(F.linear(emb, t1, b1)), t2, b2)
    return F.conv2d(x, w, padding=1) + emb[:, :, None, None]


@fires(
    "slice-expand matmul-expand-rows affine-expand-rows",
)
@program((1, 8), (2, 6, 8), proj=(24, 8), bias=(24,), v=(8, 8))
def adaptive_norm(
    t: Tensor, x: Tensor, *, proj: Tensor, bias: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """DiT's adaptive norm: shift, scale and gate from one time, expanded to the batch."""
    c = F.silu(t).expand(2, 8)
    shift, scale, gate = F.linear(c, proj, bias).chunk(3, dim=1)
    h = F.layer_norm(x, (8,), eps=1e-6) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
    return x + gate.unsqueeze(1) * h, F.linear(c, v)


@fires(
    "cat-flatten-2-0-2 cat-expand",
)
@program((1, 1, 8), (1, 3, 8), (2, 4, 8))
def prompt_tokens(cls: Tensor, prompt: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """A class token and prompts, expanded to the batch and put before the patches."""
    front = torch.cat([cls.expand(2, -1, -1), prompt.expand(2, -1, -1)], dim=1)
    return front, torch.cat([front, x], dim=1)


@fires(
    "cat-slice-2-0-0 cat-slice-2-1-1 cat-tiles-2",
)
@program((2, 4, 8, 8), (2, 4, 8, 8))
def guidance(cond: Tensor, uncond: Tensor) -> Tensor:
    """Classifier-free guidance of a doubled prediction, taken apart again."""
    noise = torch.cat([uncond, cond])
    uncond, cond = noise.chunk(2)
    return uncond + 7.5 * (cond - uncond)
