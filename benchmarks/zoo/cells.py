"""NasRNN and BERT as TASO and TENSAT wrote them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class NasRNN(nn.Module):
    """A recurrent cell that was searched for, `steps` times, each gate with weights of its own.

    The first state is a weight, as in TENSAT.
    """

    def __init__(self, hidden: int, steps: int) -> None:
        super().__init__()
        weights = torch.randn(steps, 8, 2, hidden, hidden) * hidden**-0.5
        self.gates = nn.ParameterList(w.clone() for step in weights for gate in step for w in gate)
        self.state = nn.Parameter(torch.randn(1, hidden))

    def forward(self, *inputs: Tensor) -> Tensor:
        state = self.state
        for i, x in enumerate(inputs):
            pairs = [self.gates[16 * i + k : 16 * i + k + 2] for k in range(0, 16, 2)]
            state = _step([x @ w + state @ u for w, u in pairs])
        return state


def _step(gates: list[Tensor]) -> Tensor:
    """The next state, of the eight sums that the gates read."""
    t0, t1, t2, t3, t4, t5, t6, t7 = gates
    m0 = torch.relu(t0) + torch.sigmoid(t3)
    m1 = torch.sigmoid(t1) + torch.tanh(t2)
    m2 = torch.sigmoid(t4) * torch.tanh(t5)
    m3 = torch.sigmoid(t6) * torch.relu(t7)
    m4 = torch.sigmoid(m1) + torch.tanh(m2)
    m5 = torch.tanh(m0) * torch.tanh(m3)
    return torch.tanh(torch.tanh(m4) * torch.tanh(m5))


class TensatBert(nn.Module):
    """What TENSAT calls BERT: its attention has no softmax, and no later layer reads it.

    Keys are not transposed, which their shape allows: there are as many tokens as columns of a
    head. Everything that its graph ties together is returned.
    """

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        weights = torch.randn(layers, 4, hidden, hidden) * hidden**-0.5
        self.weights = nn.ParameterList(w.clone() for layer in weights for w in layer)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = torch.relu(x)
        tokens = x.shape[0]
        outputs: list[Tensor] = []
        for i in range(0, len(self.weights), 4):
            products = [x @ w for w in self.weights[i : i + 4]]
            heads = (p.reshape(tokens, -1, tokens).permute(1, 0, 2) for p in products[:3])
            q, k, v = heads
            outputs.append((q @ k @ v).permute(1, 0, 2).reshape(x.shape))
            x = products[3]
        return *outputs, x
