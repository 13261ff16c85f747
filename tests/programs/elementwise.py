"""Pointwise code that numerics, masks, activations and exporters leave behind."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, ids, program


@fires(
    "add-zero sub-zero div-one mul-zero",
)
@program((2, 5, 8), ids(2, 5))
def disabled_options(x: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    """What switched-off options leave: multipliers and temperatures of one, offsets of nothing.

    The places come after a past of nothing; the segments are those that no caller has given.
    """
    past, multiplier, zero_point, temperature = 0, 1.0, 0.0, 1.0
    logits = (x * multiplier - zero_point) / temperature
    return logits, places + past, places * 0


@fires(
    "pow-one",
)
@program((2, 4, 6, 6))
def generalised_mean_pool(x: Tensor) -> Tensor:
    """GeM pooling with a power of one, which makes it the mean."""
    p = 1.0
    return x.clamp(min=1e-6).pow(p).mean((-2, -1)).pow(1.0 / p)


@fires(
    "neg-neg sub-number",
)
@program((2, 5, 8))
def doubled_functions(x: Tensor) -> tuple[Tensor, ...]:
    """Activations that meet at the borders of modules: a ReLU after a ReLU, signs twice."""
    return torch.relu(torch.relu(x)), torch.neg(-x), -x * x, x - 0.5


@fires(
    "not-not",
)
@program((2, 5, 8), ids(2, 5, high=3))
def padding_masks(x: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Masks that are inverted on the way: of padding, of what is kept, and back (ESPnet)."""
    padding = tokens == 0
    keep = ~padding
    hidden = x.masked_fill(~keep.unsqueeze(-1), 0.0)
    return hidden, torch.where(~padding[..., None], x, -1.0)


@fires(
    "where-same",
)
@program((4,))
def rope_scaling(frequencies: Tensor) -> Tensor:
    """Llama 3's scaling of rotary frequencies, with a factor that leaves them as they are."""
    factor, longest = 1.0, 8192.0
    wavelengths = 2 * torch.pi / frequencies
    return torch.where(wavelengths > longest, frequencies / factor, frequencies)


@fires(
    "add-numbers mul-constants",
)
@program((2, 5, 8), a=(8,), b=(8,), c=(8,))
def colour_jitter(x: Tensor, *, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Normalisers one after the other: numbers added to numbers, weights times weights."""
    return ((x + 1.0) + 0.5) * 0.5, (x * a) * b, (x + a) + c, (x * 3.0) * a


@fires(
    "reciprocal-sqrt",
)
@program((2, 5, 8), (2, 5, 8))
def inverses(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Divisions in their parts: by reciprocals, by roots, by numbers."""
    y = torch.abs(y) + 1.0
    return (
        x * torch.reciprocal(y),
        torch.reciprocal(torch.sqrt(y)),
        x / torch.sqrt(y),
        x / 3.0,
        x / 4.0,
    )


@fires(
    "idempotent round-integers",
)
@program(ids(2, high=50), (2, 5, 8))
def output_lengths(lengths: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths after strided convolutions, floored layer by layer; codes that are rounded twice."""
    for kernel, stride in ((3, 2), (3, 2)):
        lengths = torch.floor((lengths - kernel) // stride + 1)
    return lengths, torch.round(torch.round(x * 4.0))


@fires(
    "cast-full unary-full full-number",
)
@program((2, 3, 6, 6))
def shape_fills(x: Tensor) -> tuple[Tensor, ...]:
    """Initial states and masks: what is computed of zeros and ones before anything is read."""
    ones = torch.ones(6, 6)
    state = torch.zeros(2, 3, 6, 6)
    return (
        x + torch.sigmoid(state),
        x * (ones * 2.0),
        x + (1.0 - ones),
        x + ones.to(torch.float64).to(torch.float32),
        x + torch.tanh(state).mean(),
    )


@fires(
    "slice-where-c slice-where-cx slice-where-cy slice-where-cxy",
)
@program((2, 5, 8), (2, 5, 8), ids(2, 5, high=2).bool(), ids(5, high=2).bool())
def sliced_masks(x: Tensor, y: Tensor, seen: Tensor, causal: Tensor) -> tuple[Tensor, ...]:
    """Masked tensors of which the first tokens are read."""
    keep = seen[..., None]
    return (
        torch.where(keep, x, y)[:, :2],
        torch.where(keep, x, 0.0)[:, :2],
        torch.where(keep, 0.0, y)[:, :2],
        torch.where(keep, 0.0, 1.0)[:, :2],
    )


@fires(
    "cat-unary-3 unary-cat-3",
)
@program((2, 4, 6), (2, 4, 6), (2, 4, 6))
def gated_parts(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    """Parts that are set side by side after, or before, what all of them undergo."""
    return (
        torch.cat([torch.relu(x), torch.relu(y), torch.relu(z)], dim=1),
        torch.sigmoid(torch.cat([x, y, z], dim=1)),
        torch.cat([x * 0.5, y * 0.5, z * 0.5], dim=1),
        torch.cat([x, y, z], 1) + torch.cat([y, z, x], 1),
        torch.cat([x + y, y + z, z + x], dim=1),
        torch.cat([x, y, z], 1) * 2.0,
        torch.cat([torch.cat([x, y], 1), torch.cat([y, x], 1)], 2),
    )


@fires(
    "cat-slice-3-apart cat-slice-4-apart cat-slice-4-0-3",
)
@program((2, 4, 6), (2, 4, 6), (2, 4, 6), (2, 4, 6))
def streaming_cache(sink: Tensor, past: Tensor, now: Tensor, ahead: Tensor) -> tuple[Tensor, ...]:
    """A cache of sinks, past and present, of which a window, or some channels, are read."""
    two, three = torch.cat([past, now], 1), torch.cat([sink, past, now], 1)
    four = torch.cat([sink, past, now, ahead], 1)
    return four[:, 5:10], four[:, 5:14], four[:, 1:15], two[..., :3], three[..., :3], four[..., :3]


@fires(
    "cat-same-3 cat-same-4",
)
@program((2, 1, 6))
def repeated_planes(x: Tensor) -> tuple[Tensor, ...]:
    """A grey image that is repeated to as many channels as a network reads."""
    return (
        torch.cat([x, x], 1),
        torch.cat([x, x, x], 1),
        x.repeat(1, 4, 1),
        torch.cat([x] * 4, dim=1),
    )


@fires(
    "expand-compose expand-identity slice-expanded binary-expand binary-expand-scale",
    "matmul-expand-left matmul-expand-right",
)
@program((2, 1, 8), (2, 5, 8), (8, 6))
def broadcast_by_hand(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Expands that broadcasting would do: before functions, products and slices."""
    wide = x.expand(2, 5, 8)
    other = y[:, :1].expand(2, 5, 8)
    return (
        torch.exp(wide),
        wide + other,
        wide * 2.0,
        wide + y,
        y - wide,
        y[:1, :1].expand(2, 1, 8).expand(2, 5, 8),
        wide[:, :2],
        wide[:, :1],
        wide @ w,
        y @ w.expand(2, 8, 6),
        w.t().unsqueeze(0).expand(2, 6, 8) @ y.transpose(1, 2),
    )


@fires(
    "split-broadcast-left",
)
@program((2, 8, 4, 4), (1, 8, 1, 1), (2, 8, 1, 1))
def channel_groups(x: Tensor, gate: Tensor, other: Tensor) -> tuple[Tensor, ...]:
    """Channels that are gated, then split into groups and shuffled."""
    y = (x * gate).view(2, 2, 4, 4, 4).transpose(1, 2).reshape(2, 8, 4, 4)
    return y, (other - x).view(2, 2, 4, 16)


@fires(
    "merge-unary",
)
@program((2, 3, 4, 8), (2, 3, 4, 8))
def frames_as_rows(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Frames of videos as rows of one batch, for what acts on each, and apart again."""
    rows = torch.relu(x.reshape(6, 4, 8)) + torch.sigmoid(y.reshape(6, 4, 8))
    return rows.view(2, 3, 4, 8), rows.mean(-1)


@fires(
    "slice-matmul",
)
@program((4, 3, 5, 8), (4, 3, 8, 5))
def batch_of_products(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Batched products of which a part of the batch is read, or whose batch dims are exchanged."""
    return (a @ b)[:2], (a @ b)[:, 0], (a @ b).permute(1, 0, 2, 3), F.relu(a)[:, :2]
