"""Programs that do more than compute: draw random numbers, write buffers, tell the outside."""

import torch
from adversarial.program import Inputs, Program
from torch import Tensor, nn
from torch.nn import functional

LOG: list[object] = []


@torch.library.custom_op("adversarial::tick", mutates_args={"counter"})
def tick(counter: Tensor, x: Tensor) -> None:
    """Counts a call, and tells the log."""
    LOG.append(tuple(x.shape))
    counter.add_(1)


@torch.library.custom_op("adversarial::reversed_double", mutates_args=())
def reversed_double(x: Tensor) -> Tensor:
    """An operation that no optimizer knows, and that takes contiguous memory only."""
    if not x.is_contiguous():
        raise ValueError("reversed_double takes contiguous memory")
    return x.flip(0) * 2


def _ticked(counter: Tensor, x: Tensor) -> None:
    del counter, x


torch.library.register_fake("adversarial::tick", _ticked)
torch.library.register_fake("adversarial::reversed_double", torch.empty_like)


class EqualDraws(nn.Module):
    """Draws that look equal and are not, an unused one, and attention with a row of nothing."""

    def forward(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> object:
        first, second = torch.rand_like(x), torch.rand_like(x)
        torch.rand(3)  # unused, yet the numbers after it depend on it
        noise = functional.dropout(x, 0.5, True) - functional.dropout(x, 0.5, True)
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.25)
        scores = q @ k.transpose(-2, -1) / 2.0 + torch.where(mask, 0.0, -1e9)
        swapped = q.transpose(0, 1) @ k.permute(1, 0, 3, 2) / 2.0
        return (
            first,
            second,
            noise,
            attended,
            torch.softmax(scores, -1) @ v,
            torch.softmax(swapped, -1) @ v.transpose(0, 1),
        )


class CountedBranches(nn.Module):
    """Two equal calls that count, a branch on data, and an operation of the caller's own."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, go: Tensor) -> tuple[Tensor, Tensor]:
        torch.ops.adversarial.tick(self.count, x)
        torch.ops.adversarial.tick(self.count, x)
        y = torch.cond(go, lambda t: (t * 2 + 0.0) * 1.0, lambda t: t - t * 0.5 + t * 0.0, (x,))
        return torch.ops.adversarial.reversed_double(y.t().contiguous()), self.count + 0


def _attention() -> Inputs:
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[2] = False
    q, k, v = (torch.randn(2, 2, 5, 4) for _ in range(3))
    return (torch.randn(4, 6), q, k, v, mask), {}


EFFECTS = (
    Program(
        name="equal-draws",
        module=EqualDraws,
        inputs=(_attention,),
        products=frozenset({3, 4, 5}),
        train=True,
    ),
    Program(
        name="counted-branches",
        module=CountedBranches,
        inputs=(
            lambda: ((torch.randn(3, 4), torch.tensor(True)), {}),
            lambda: ((torch.ones(3, 4), torch.tensor(False)), {}),
        ),
        rounded=frozenset({0}),
        log=LOG,
    ),
)
