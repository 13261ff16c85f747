"""Recurrent networks and sound: cells that are unrolled, and what comes before them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, program


@fires(
    "binary-full",
)
@program((2, 3, 6), wx=(32, 6), wh=(32, 8), b=(32,), c=(32,))
def lstm(x: Tensor, *, wx: Tensor, wh: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """An LSTM of three steps, unrolled from a state of zeros."""
    h, cell = x.new_zeros(2, 8), x.new_zeros(2, 8)
    for step in x.unbind(1):
        gates = F.linear(step, wx, b) + F.linear(h, wh, c)
        i, f, g, o = gates.chunk(4, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(cell)
    return h, cell


@fires(
    "slice-matmul-right slice-affine-columns",
)
@program((2, 6), (2, 8), wx=(24, 6), wh=(24, 8), b=(24,), c=(24,))
def gru_cell(x: Tensor, h: Tensor, *, wx: Tensor, wh: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """A GRU cell as PyTorch's documentation writes it."""
    xr, xz, xn = F.linear(x, wx, b).chunk(3, 1)
    hr, hz, hn = F.linear(h, wh, c).chunk(3, 1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)
    return (1 - z) * n + z * h


@fires(
    "cat-flatten-2-0-3 cat-flatten-3-0-2 cat-slice-3-0-0 cat-slice-3-0-2",
    "cat-slice-4-0-0 cat-slice-4-0-1 cat-slice-4-1-2 cat-slice-4-2-3",
)
@program((2, 6), (2, 8))
class GatesApart(nn.Module):
    """A recurrent cell whose gates have layers of their own, as tutorials write it."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.ModuleList(nn.Linear(6, 8) for _ in range(4))
        self.states = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        i, f, g, o = (a(x) + b(h) for a, b in zip(self.inputs, self.states, strict=True))
        cell = torch.sigmoid(f) + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell)


@fires(
    "permute-unary",
)
@program((2, 1, 60))
class Wav2VecFrontEnd(nn.Module):
    """The first layers of wav2vec 2.0: convolutions of a waveform, a group norm, and GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 4, 10, stride=5, bias=False)
        self.norm = nn.GroupNorm(4, 4)
        self.second = nn.Conv1d(4, 4, 3, stride=2, bias=False)
        self.project = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-7)
        x = F.gelu(self.second(F.gelu(self.norm(self.first(x)))))
        return self.project(x.transpose(1, 2))


@fires(
    "pow-square",
)
@program((2, 8, 10), mel=(5, 8))
def log_mel(power: Tensor, *, mel: Tensor) -> Tensor:
    """Whisper's features: a mel filter bank, a logarithm, and a range of eight decades."""
    spec = torch.clamp(mel.abs() @ power**2, min=1e-10)
    spec = torch.log(spec) / 2.302585
    spec = torch.maximum(spec, spec.amax((1, 2), keepdim=True) - 8.0)
    return (spec + 4.0) / 4.0


@fires(
    "convolution-shift",
)
@program((2, 10, 6))
class Conformer(nn.Module):
    """The convolution module of a Conformer: pointwise, gated, depthwise, normed, pointwise."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up = nn.Conv1d(6, 12, 1)
        self.depthwise = nn.Conv1d(6, 6, 3, padding=1, groups=6)
        self.batch_norm = nn.BatchNorm1d(6)
        self.down = nn.Conv1d(6, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.norm(x).transpose(1, 2))
        y = F.glu(y, dim=1)
        y = F.silu(self.batch_norm(self.depthwise(y)))
        return x + 0.5 * self.down(y).transpose(1, 2)


@fires(
    "binary-cat-3",
)
@program((2, 6, 8), (2, 6, 8), decay=(8,), first=(8,))
def rwkv(k: Tensor, v: Tensor, *, decay: Tensor, first: Tensor) -> Tensor:
    """RWKV's time mixing, unrolled: running sums of exponentials, with a bonus for the present."""
    top, bottom = torch.zeros(2, 8), torch.zeros(2, 8)
    out: list[Tensor] = []
    for t in range(3):
        weight = torch.exp(first + k[:, t])
        out.append((top + weight * v[:, t]) / (bottom + weight))
        top = torch.exp(-torch.exp(decay)) * top + torch.exp(k[:, t]) * v[:, t]
        bottom = torch.exp(-torch.exp(decay)) * bottom + torch.exp(k[:, t])
    return torch.stack(out, dim=1)


@fires(
    "merge-binary-left",
)
@program((2, 6, 8), book=(12, 8))
def vector_quantiser(x: Tensor, *, book: Tensor) -> Tensor:
    """VQ-VAE's nearest codes: squared distances to a book, then a look-up."""
    flat = x.reshape(-1, 8)
    distance = (flat**2).sum(1, keepdim=True) + (book**2).sum(1) - 2 * flat @ book.t()
    return F.embedding(distance.argmin(1), book).view(x.shape)
