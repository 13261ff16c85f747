"""Losses and metrics, written in their parts."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name it has everywhere

from programs.program import fires, ids, program


@fires(
    "log-softmax-from-sum",
)
@program((6, 10), ids(6))
def cross_entropy_by_hand(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy as the logarithm of the sum of exponentials, less the target's score."""
    logp = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    return -logp.gather(1, target.unsqueeze(1)).mean()


@fires(
    "max-values log-softmax-from-parts log-softmax-shift",
)
@program((6, 10))
def log_softmax_by_hand(logits: Tensor) -> Tensor:
    """A log-softmax in its parts, shifted by the largest score."""
    logits = logits - logits.max(dim=-1, keepdim=True).values
    return logits - logits.exp().sum(-1, keepdim=True).log()


@fires(
    "exp-log-softmax",
)
@program((6, 10))
def entropy(logits: Tensor) -> Tensor:
    """The entropy of a policy, as PPO and SAC write it."""
    logp = F.log_softmax(logits, dim=-1)
    return -(logp.exp() * logp).sum(-1)


@fires(
    "neg-mul reshape-identity scatter-full",
)
@program((6, 10), ids(6, 1))
def label_smoothing(logits: Tensor, target: Tensor) -> Tensor:
    """Targets that are smoothed: one-hot by scatter, mixed with a uniform distribution."""
    logp = F.log_softmax(logits, dim=-1)
    one_hot = torch.zeros_like(logp).scatter(1, target, 1.0)
    smooth = one_hot * 0.9 + 0.1 / 10
    return (-smooth * logp).sum(-1).mean()


@fires(
    "sub-add add-sub slice-log-softmax",
)
@program((6, 10), (6, 10))
def sequence_log_probability(policy: Tensor, reference: Tensor) -> Tensor:
    """The log-probabilities of the last tokens under two models, as DPO compares them."""
    return policy.log_softmax(-1)[1:] - reference.log_softmax(-1)[1:]


@fires(
    "reduction-compose reduction-reshape reduction-partial",
)
@program((6, 4, 4), (6, 4, 4))
def dice(prediction: Tensor, target: Tensor) -> Tensor:
    """The Dice score of masks, whose sums are taken dim by dim."""
    p = torch.sigmoid(prediction)
    t = torch.relu(torch.sign(target))
    overlap = (p * t).sum(-1).sum(-1)
    union = p.sum(-1).sum(-1) + t.sum(-1).sum(-1)
    return 1.0 - (2.0 * overlap + 1.0) / (union + 1.0)


@fires(
    "abs-neg pow-root pow-rsqrt pow-reciprocal",
)
@program((6, 8), (6, 8))
def charbonnier(x: Tensor, y: Tensor) -> Tensor:
    """The Charbonnier loss and a signed root, in powers."""
    d = x - y
    return (d**2 + 1e-6) ** 0.5 + torch.abs(-d) + (d.abs() + 1.0) ** -0.5 + (d.abs() + 1.0) ** -1.0


@fires(
    "matmul-scale-left",
)
@program((6, 8), (6, 8))
def energy_distance(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances of all pairs, by |x|^2 + |y|^2 - 2 x y."""
    xx = (x * x).sum(-1, keepdim=True)
    yy = (y * y).sum(-1, keepdim=True)
    return xx + yy.t() - 2.0 * x @ y.t()


@fires(
    "norm-from-squares",
)
@program((6, 8), (6, 8))
def cosine_loss(x: Tensor, y: Tensor) -> Tensor:
    """One less the cosine of two vectors."""
    return 1 - (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
