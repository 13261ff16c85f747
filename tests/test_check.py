"""The check catches what changes a program, and lets rounding pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from eqsat.check import Check, check
from eqsat.storage import fresh_copies

G = torch.Generator().manual_seed(0)
X = torch.randn(4, 6, generator=G)
Y = torch.randn(4, 6, generator=G)
W = torch.randn(6, 6, generator=G)
IDS = torch.tensor([[0, 3, 1], [2, 2, 4]])

Function = Callable[..., Any]


def caught(
    given: Function, result: Function, *args: Any, by: str, numerics: str = "default"
) -> str:
    """The check fails, on a probe named `by`; returns what it says."""
    verdict = check(given, result, args, numerics=numerics)
    failed = {probe.name: probe.difference for probe in verdict.probes if not probe.passed}
    assert not verdict.passed
    assert by in failed, failed
    assert str(verdict).startswith("FAILED")
    return failed[by]


def sound(given: Function, result: Function, *args: Any, numerics: str = "default") -> Check:
    """The check passes."""
    verdict = check(given, result, args, numerics=numerics)
    assert verdict.passed, str(verdict)
    return verdict


def traced(function: Function, *args: Any) -> torch.fx.GraphModule:
    """The function as a graph, so that the check sees its operators."""
    return make_fx(function)(*args)


# --------------------------------------------------------------------------- wrong values


@pytest.mark.parametrize(
    ("given", "result", "by"),
    [
        (lambda x: x.bfloat16().float() + 1, lambda x: x + 1, "example"),
        (lambda x: x * 0, torch.zeros_like, "nan"),
        (lambda x: x - x, torch.zeros_like, "nan"),
        (lambda x: x / x, torch.ones_like, "zero"),
        (lambda x: 1 / (x + 0.0), lambda x: 1 / (x * 1.0), "zero"),
        (lambda x: x[:, 1:3] + 0, lambda x: x[:, 2:4] + 0, "example"),
        (lambda x: x.softmax(1), lambda x: x.softmax(0), "example"),
        (lambda x: x * 1.0002, lambda x: x * 1.0, "example"),
        (lambda x: x.clamp(-30, 30), lambda x: x * 1.0, "magnitude"),
        (lambda x: torch.where(x.isnan(), 0.0, x), lambda x: x * 1.0, "nan"),
        (lambda x: x.abs().sqrt(), lambda x: x.sqrt(), "example"),
    ],
)
def test_wrong_values_are_caught(given: Function, result: Function, by: str) -> None:
    caught(given, result, X, by=by)


def test_a_difference_names_the_output_and_its_size() -> None:
    said = caught(lambda x: (x, x + 1), lambda x: (x, x + 1.5), X, by="example")
    assert said.startswith("output 1: off by 0.5 at")


def test_a_half_precision_overflow_is_compared_where_it_stays_finite() -> None:
    half = X.half()
    sound(lambda x: (x * 100 + x * 100).float(), lambda x: (x * 200).float(), half)
    caught(
        lambda x: (x.float() * 3).half(), lambda x: (x.float() * 3.1).half(), half, by="magnitude"
    )


def test_integer_overflow_is_probed_at_the_extremes_of_the_dtype() -> None:
    small = torch.tensor([1, 2, 3], dtype=torch.int32)
    given = traced(lambda i: (i + 1).to(torch.int64), small)
    result = traced(lambda i: i.to(torch.int64) + 1, small)
    caught(given, result, small, by="integer")


def test_extremes_that_the_given_program_refuses_are_tried_without_zero() -> None:
    ints = torch.tensor([6, 7, 9])
    given = traced(lambda i: 100 // i, ints)
    wrong = traced(lambda i: 100 // i + (i > 10**6).long(), ints)
    assert caught(given, wrong, ints, by="integer")


def test_truncating_division_does_not_meet_the_integer_that_traps() -> None:
    ints = torch.tensor([6, -1, 9])
    given = traced(lambda i: torch.div(i, i.flip(0), rounding_mode="trunc"), ints)
    integer = sound(given, given, ints).probes[-1]
    assert not integer.skipped


def test_an_index_out_of_range_must_raise_in_both() -> None:
    table = torch.randn(5, 4, generator=G)
    given = traced(lambda i: torch.nn.functional.embedding(i, table), IDS)
    sound(given, given, IDS)
    clamped = traced(lambda i: torch.nn.functional.embedding(i.clamp(0, 4), table), IDS)
    said = caught(given, clamped, IDS, by="integer")
    assert said == "the given program raises IndexError, the result nothing"


def test_extreme_integers_do_not_count_as_rounding() -> None:
    x, ids = X.double(), torch.arange(24).view(4, 6)
    given = traced(lambda x, i: x + i.clamp(-100, 100), x, ids)
    result = traced(lambda x, i: x + i.clamp(-101, 101), x, ids)
    caught(given, result, x, ids, by="integer")


def test_every_float_dtype_is_probed() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128):
        x = X.to(dtype)
        verdict = sound(lambda x: x * 2, lambda x: x + x, x)
        assert [probe.name for probe in verdict.probes if probe.skipped] == ["integer"]
        caught(lambda x: x * 2, lambda x: x * 2.2, x, by="magnitude")


def test_an_exception_of_the_result_alone_is_caught() -> None:
    def fails(x: Tensor) -> Tensor:
        raise RuntimeError(f"no kernel for {tuple(x.shape)}")

    assert "no kernel" in caught(lambda x: x + 1, fails, X, by="example")


def test_a_program_that_fails_on_its_own_example_is_not_passed() -> None:
    def fails(x: Tensor) -> Tensor:
        raise RuntimeError(f"no kernel for {tuple(x.shape)}")

    assert "nothing can be compared" in caught(fails, fails, X, by="example")


def test_bools_are_drawn_at_random() -> None:
    ones = torch.ones(16, dtype=torch.bool)
    caught(lambda p: ~p, torch.zeros_like, ones, by="random")
    caught(lambda p: p + p, lambda p: p ^ p, ones, by="example")


def test_integers_without_a_float_are_resampled() -> None:
    ids = torch.arange(12)
    caught(lambda i: i.flip(0), lambda i: 11 - i, ids, by="random")


# --------------------------------------------------------------------------- sound rewrites


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (lambda x, w: (x @ w) @ w, lambda x, w: x @ (w @ w)),
        (lambda x, w: x @ w + x @ w.T, lambda x, w: x @ (w + w.T)),
        (lambda x, w: (x @ w).T, lambda x, w: (w.T @ x.T).contiguous().T.contiguous().T),
        (lambda x, w: ((x @ w) @ w).sin(), lambda x, w: (x @ (w @ w)).sin()),
        (lambda x, w: ((x @ w) * 0.125).softmax(-1), lambda x, w: (x @ (w * 0.125)).softmax(-1)),
        (lambda x, w: (x @ w).exp().log(), lambda x, w: x @ w),
    ],
)
def test_rounding_passes(given: Function, result: Function) -> None:
    verdict = sound(
        lambda x, w: given(x, w).contiguous(), lambda x, w: result(x, w).contiguous(), X, W
    )
    assert all(not probe.skipped for probe in verdict.probes if probe.name != "integer")


def test_strict_asks_for_equal_bits() -> None:
    given = lambda x, w: (x @ w) @ w  # noqa: E731 - it reads as the formula
    result = lambda x, w: x @ (w @ w)  # noqa: E731 - it reads as the formula
    caught(given, result, X, W, by="example", numerics="strict")
    sound(given, given, X, W, numerics="strict")
    caught(lambda x: x + 0.0, lambda x: x * 1.0, X, by="zero", numerics="strict")


def test_default_ignores_the_sign_of_a_zero_output() -> None:
    sound(lambda x: x + 0.0, lambda x: x * 1.0, X)


def test_relaxed_lets_what_needs_finite_values_pass() -> None:
    caught(lambda x: x * 0, lambda x: x * 0 + 1e-3, X, by="random", numerics="relaxed")
    verdict = sound(lambda x: x - x, torch.zeros_like, X, numerics="relaxed")
    assert {p.name for p in verdict.probes if p.skipped} == {"nan", "inf", "integer"}


def test_a_dropped_cast_is_not_excused_as_noise() -> None:
    big = torch.randn(200, 500, generator=G)
    caught(lambda x: x.bfloat16().float(), lambda x: x * 1.0, big, by="random")


# --------------------------------------------------------------------------- memory


def test_a_missing_mutation_is_caught() -> None:
    said = caught(lambda x: x.add_(1) + 0, lambda x: x + 1, X, by="example")
    assert said.startswith("after the call, input 0")


def test_a_new_alias_is_caught() -> None:
    said = caught(lambda x: x * 1.0, lambda x: x.view(x.shape), X, by="example")
    assert said == "output 0: shared memory with nothing, shares with input 0"


def test_a_lost_alias_is_caught() -> None:
    caught(lambda x: x.t(), lambda x: x.t().clone(), X, by="example")
    caught(
        lambda x: (x + 1).split(2),
        lambda x: tuple(p.clone() for p in (x + 1).split(2)),
        X,
        by="example",
    )


def test_object_identity_is_compared() -> None:
    assert "was the object input 0" in caught(lambda x: x, lambda x: x.detach(), X, by="example")

    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        return y, y

    caught(twice, lambda x: (x + 1, x + 1), X, by="example")


def test_strides_of_dims_longer_than_one_are_compared() -> None:
    assert "strides" in caught(
        lambda x: x.t() + 0, lambda x: x.t().contiguous() + 0, X, by="example"
    )
    row = torch.randn(1, 6, generator=G)
    sound(lambda x: x + 0, lambda x: (x + 0).as_strided((1, 6), (9, 1)), row)


def test_the_offset_of_a_view_of_an_input_is_compared() -> None:
    zeros = torch.zeros(6, 4)
    verdict = check(lambda x: x[1:3], lambda x: x[2:4], (zeros,), probes=["example"])
    assert "offset" in str(verdict)


def test_conj_bit_dtype_shape_and_type_are_compared() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64, generator=G)
    assert "conj" in caught(lambda x: x.conj(), lambda x: x.conj().resolve_conj(), z, by="example")
    assert "dtype" in caught(lambda x: x + 1, lambda x: x.double() + 1, X, by="example")
    assert "shape" in caught(lambda x: x + 1, lambda x: x[:1] + 1, X, by="example")
    assert "structure" in caught(lambda x: {"a": x + 1}, lambda x: [x + 1], X, by="example")
    assert "became" in caught(lambda x: (x + 1, 2), lambda x: (x + 1, 2.0), X, by="example")


def test_complex_values_are_compared_with_tolerance() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64, generator=G)
    sound(lambda x: (x + x) * 3, lambda x: x * 6, z)
    caught(lambda x: x * 2j, lambda x: x * -2j, z, by="random")
    ones = torch.ones_like(z)
    sound(lambda x: x + ones, lambda x: ones + x, z)  # one of them spreads NaN to both parts
    caught(lambda x: x * 0, torch.zeros_like, z, by="nan")


class Counter(nn.Module):
    """A module that counts its calls in a buffer."""

    calls: Tensor

    def __init__(self, step: int = 1) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.step
        return x * self.weight * self.calls


def test_state_is_compared_and_put_back() -> None:
    given, result = Counter(), Counter()
    sound(given, result, X)
    assert int(given.calls) == int(result.calls) == 0
    caught(given, Counter(step=2), X, by="example")
    result.calls.fill_(3)
    caught(given, result, X, by="example")


def test_a_lost_write_to_state_is_caught() -> None:
    class Frozen(Counter):
        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight * (self.calls + 1)

    assert "written by the given program only" in caught(Counter(), Frozen(), X, by="example")
    assert "written by the result only" in caught(Frozen(), Counter(), X, by="example")


def test_programs_may_share_their_state() -> None:
    given, result = Counter(), Counter()
    result.calls, result.weight = given.calls, given.weight
    sound(given, result, X)


def test_a_weight_that_a_traced_module_writes_is_put_back() -> None:
    class Growing(Counter):
        def forward(self, x: Tensor) -> Tensor:
            self.weight.add_(1)
            return x * self.weight

    given = torch.fx.symbolic_trace(Growing())
    sound(given, given, X)
    assert torch.equal(given.weight, torch.ones(6))


def test_training_batch_norm_moves_its_statistics_once() -> None:
    x = torch.randn(8, 3, generator=G)
    given = nn.BatchNorm1d(3).train()
    before = {k: v.clone() for k, v in given.state_dict().items()}
    frozen = nn.BatchNorm1d(3, momentum=0.0).train()
    caught(given, frozen, x, by="example")
    sound(given, nn.BatchNorm1d(3).train(), x)
    assert all(torch.equal(v, before[k]) for k, v in given.state_dict().items())


def test_an_output_that_aliases_a_weight_keeps_doing_so() -> None:
    class Weight(nn.Module):
        def __init__(self, copy: bool) -> None:
            super().__init__()
            self.weight, self.copy = nn.Parameter(torch.ones(2, 3)), copy

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, self.weight.clone().t() if self.copy else self.weight.t()

    sound(Weight(False), Weight(False), X)
    caught(Weight(False), Weight(True), X, by="example")
    caught(Weight(True), Weight(False), X, by="example")


# --------------------------------------------------------------------------- random draws


def test_the_random_stream_is_compared() -> None:
    def extra(x: Tensor) -> Tensor:
        y = x + torch.rand_like(x)
        torch.rand(1)
        return y

    sound(lambda x: x + torch.rand_like(x), lambda x: x + torch.rand_like(x), X)
    assert "generator" in caught(lambda x: x + torch.rand_like(x), extra, X, by="example")
    caught(lambda x: torch.rand_like(x) - torch.rand_like(x), lambda x: x * 0, X, by="example")


def test_random_state_and_inputs_are_left_alone() -> None:
    state, x = torch.get_rng_state(), X.clone()
    check(lambda x: x.mul_(torch.rand(())), lambda x: x.mul_(torch.rand(())), (x,))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, X)


# --------------------------------------------------------------------------- inputs


def test_copies_keep_strides_overlap_offset_and_aliasing() -> None:
    base = torch.arange(24.0)
    tensors = [
        base.view(4, 6)[1:, ::2],
        base[:3].expand(5, 3),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(3, dtype=torch.complex64).conj(),
        nn.Parameter(torch.ones(3)),
    ]
    copies = fresh_copies(tensors)
    for old, new in zip(tensors, copies, strict=True):
        assert torch.equal(old, new)
        assert old.stride() == new.stride()
        assert old.storage_offset() == new.storage_offset()
        assert old.is_conj() == new.is_conj()
        assert old.data_ptr() != new.data_ptr()
    copies[0].fill_(7.0)
    assert copies[1][0, 0] == 0.0
    assert copies[0].untyped_storage().data_ptr() == copies[1].untyped_storage().data_ptr()


def test_aliased_inputs_stay_aliased() -> None:
    x = torch.ones(3)

    def given(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    def reads_first(a: Tensor, b: Tensor) -> Tensor:
        y = b * 2
        a.add_(1)
        return y

    caught(given, reads_first, x, x.view(3), by="example")
    sound(given, reads_first, x, x.clone())


def test_expanded_inputs_are_probed() -> None:
    wide = torch.randn(1, 6, generator=G).expand(4, 6)
    caught(lambda x: x * 0, torch.zeros_like, wide, by="nan")
    sound(lambda x: (x + 1).contiguous(), lambda x: (1 + x).contiguous(), wide)


def test_scalars_and_empty_tensors_are_probed() -> None:
    scalar, empty = torch.tensor(2.0), torch.zeros(0, 3)
    caught(
        lambda s, e: (s * 0, e + 1),
        lambda s, e: (torch.zeros_like(s), e + 1),
        scalar,
        empty,
        by="nan",
    )
    sound(lambda s, e: (s + 1, e.t() + s), lambda s, e: (1 + s, s + e.t()), scalar, empty)
    caught(lambda s: s * 2j, lambda s: s * 3j, scalar, by="random")


def test_nested_inputs_kwargs_and_other_objects_pass_through() -> None:
    seen: list[object] = []
    flag = object()

    def given(tree: dict[str, Any], *, scale: float, flag: object) -> Tensor:
        seen.append(flag)
        return tree["a"][0] * scale

    kwargs = {"scale": 2.0, "flag": flag}
    assert check(given, given, ({"a": [X]},), kwargs).passed
    assert set(map(id, seen)) == {id(flag)}


def test_a_vacuous_probe_is_skipped_with_a_reason() -> None:
    given = traced(lambda i: i + 1, IDS)
    skipped = {p.name: p.skipped for p in sound(given, given, IDS).probes if p.skipped}
    assert skipped == dict.fromkeys(("nan", "inf", "zero", "magnitude"), "no floating-point input")
    verdict = sound(lambda x: x + 1, lambda x: x + 1, X)
    assert verdict.probes[-1].skipped == "no integer input"
    assert str(verdict).startswith("passed 6 probes")
    assert "skipped: integer" in str(verdict)


def test_every_probe_reaches_the_program() -> None:
    seen: list[Tensor] = []

    def given(x: Tensor) -> Tensor:
        seen.append(x.clone())
        return x + 1

    check(given, lambda x: x + 1, (X,))
    assert len(seen) == 6
    assert torch.equal(seen[0], X)
    assert not torch.equal(seen[1], X)
    assert int(seen[2].isnan().sum()) == 1
    assert sorted(seen[3][seen[3].isinf()].tolist()) == [-torch.inf, torch.inf]
    assert torch.signbit(seen[4][seen[4] == 0]).unique().numel() == 2
    assert seen[5].abs().max() > 1e6


def test_a_check_needs_inputs_and_known_names() -> None:
    with pytest.raises(ValueError, match="example inputs"):
        check(abs, abs, None)
    with pytest.raises(ValueError, match="numerics"):
        check(abs, abs, (X,), numerics="exact")
    with pytest.raises(ValueError, match="unknown probes"):
        check(abs, abs, (X,), probes=["examples"])
