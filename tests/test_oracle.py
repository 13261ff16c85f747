"""The oracle reports each thing that a caller can see, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import oracle
import pytest
import torch
from torch import Tensor, nn

LOG: list[object] = []


class Held(nn.Module):
    """A parameter, a buffer and two inputs, for functions to read and write."""

    total: Tensor

    def __init__(self, x: Tensor, c: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("total", torch.zeros(()))
        self.x, self.c = x, c


class Marked(Tensor):
    """A tensor of another class."""


Function = Callable[[Held], object]

CHANGES: dict[str, tuple[set[str], Function, Function]] = {
    "value": ({"value"}, lambda h: h.x + 1, lambda h: h.x + 1.0001),
    "sign of zero": ({"value"}, lambda h: h.x * 0, lambda h: h.x * -0.0),
    "nan": ({"value"}, lambda h: h.x / h.x, lambda h: torch.ones_like(h.x)),
    "number": ({"value"}, lambda h: (h.x + 1, 3), lambda h: (h.x + 1, 4)),
    "kind of number": ({"value"}, lambda _: 3, lambda _: 3.0),
    "dtype": ({"dtype"}, lambda h: h.x + 1, lambda h: (h.x + 1).double()),
    "shape": ({"shape", "stride"}, lambda h: h.x + 1, lambda h: (h.x + 1)[:1]),
    "stride": ({"stride"}, lambda h: h.x + 1, lambda h: (h.x + 1).t().contiguous().t()),
    "offset": ({"offset"}, lambda h: h.x + 1, lambda h: torch.cat([h.x, h.x + 1])[2:]),
    "conjugate": ({"conjugated"}, lambda h: (h.c + 1).conj(), lambda h: _mirror(h.c)),
    "tree": ({"tree"}, lambda h: (h.x + 1,), lambda h: [h.x + 1]),
    "class": ({"kind"}, lambda h: h.x + 1, lambda h: (h.x + 1).as_subclass(Marked)),
    "input itself": ({"identity"}, lambda h: h.x, lambda h: h.x.view_as(h.x)),
    "input's memory": ({"alias"}, lambda h: h.x[0], lambda h: h.x[0].clone()),
    "state's memory": ({"alias"}, lambda h: h.total, lambda h: h.total.clone()),
    "outputs' memory": ({"alias"}, lambda h: _both(h.x + 1), lambda h: (h.x + 1, h.x + 1)),
    "written input": ({"value"}, lambda h: h.x + 1, lambda h: h.x.add_(1).clone()),
    "written state": ({"value"}, lambda _: 0, lambda h: int(h.total.add_(1)) * 0),
    "generator": ({"generator"}, lambda _: 0, lambda _: torch.rand(1).numel() * 0),
    "effect": ({"effect"}, lambda _: LOG.append(1), lambda _: LOG.append(2)),
    "exception": ({"exception"}, lambda _: 0, lambda h: h.x.view(7)),
    "kind of exception": ({"exception"}, lambda h: h.x.view(7), lambda _: {}[0]),
    "frozen weight": (
        {"requires_grad"},
        lambda _: 0,
        lambda h: h.weight.requires_grad_(False).numel() * 0,
    ),
    "gradient": ({"gradient", "value"}, lambda h: h.weight * 2, lambda h: h.weight * 3),
    "stopped gradient": (
        {"gradient", "requires_grad"},
        lambda h: h.weight * 2,
        lambda h: h.weight.detach() * 2,
    ),
}


def _mirror(c: Tensor) -> Tensor:
    return (c + 1).conj().resolve_conj()


def _both(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, y.view_as(y)


def observe(function: Function) -> oracle.Observation:
    """What one call of `function` shows, each time on equal tensors."""
    x = torch.arange(6.0).reshape(2, 3)
    c = torch.complex(x, x + 1)
    held = Held(x, c)
    call = lambda x, c: function(held)  # noqa: ARG005, E731  (it reads them from `held`)
    return oracle.observe(call, (x, c), {}, module=held, log=LOG, gradients=True)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_reported_as_what_it_is(change: str) -> None:
    kinds, before, after = CHANGES[change]
    found = oracle.differences(observe(before), observe(after))
    assert {difference.kind for difference in found} == kinds


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_call_shows_no_difference(change: str) -> None:
    for function in CHANGES[change][1:]:
        assert oracle.differences(observe(function), observe(function)) == ()


def test_rounding_is_forgiven_only_where_allowed() -> None:
    exact, rounded = observe(lambda h: h.x + 1), observe(lambda h: (h.x + 1) * (1 + 1e-6))
    assert oracle.differences(exact, rounded)
    assert not oracle.differences(exact, rounded, oracle.Judgement(rounded=frozenset({0})))


def test_rounding_never_covers_infinity_or_nan() -> None:
    judgement = oracle.Judgement(rounded=frozenset({0}))
    for wrong in (float("nan"), float("inf")):
        a, b = observe(lambda h: h.x + 1), observe(lambda h, wrong=wrong: h.x + wrong)
        assert oracle.differences(a, b, judgement)


def test_weights_may_freeze_only_where_allowed() -> None:
    free = oracle.observe(lambda: 0, (), {}, module=nn.Linear(2, 2))
    state = {name: replace(snap, requires_grad=False) for name, snap in free.state.items()}
    frozen = replace(free, state=state)
    assert oracle.differences(free, frozen)
    assert not oracle.differences(free, frozen, oracle.Judgement(frozen=True))


def test_observing_leaves_the_generator_alone() -> None:
    before = torch.random.get_rng_state()
    observe(lambda _: torch.rand(3))
    assert torch.equal(before, torch.random.get_rng_state())
