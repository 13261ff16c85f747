"""The search ends where its limits say, keeps what it found, and counts what each rule did."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
import roundtrip
import torch
from torch import Tensor

import rewrites
from eqsat.encode import encode
from eqsat.engine import Engine, EngineError, _engines
from eqsat.operators import reshape
from eqsat.problem import problem
from eqsat.reach import reachable
from eqsat.rewrite import Rewrite, attribute, constant, finite, ordered
from eqsat.saturate import IterationSize, Limits, Saturation, StopReason, saturate
from eqsat.snapshot import Snapshot
from extract import EXTRACTORS

X = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(6, 6)
ASSOCIATE = Rewrite("add-associate", lambda a, b, c: ((a + b) + c, a + (b + c)))
COMMUTE = Rewrite("add-commute", lambda a, b: (a + b, b + a))
EXPLODING = (ASSOCIATE, COMMUTE)
DEFAULT = Limits()


def total(x: Tensor) -> Tensor:
    """A sum of many different terms, which associativity and commutativity blow up."""
    terms = [torch.sin(x * n) for n in range(10)]
    return sum(terms[1:], terms[0])


def search(
    function: Any,
    rules: Sequence[Rewrite],
    limits: Limits = DEFAULT,
    progress: Any = None,
    constants: Sequence[str] = (),
    inputs: tuple[Any, ...] = (X,),
) -> tuple[Saturation, Snapshot]:
    """The record of a search, after checking that the cheapest program found is an equal one."""
    mode = roundtrip.fresh_mode()
    call, flat = roundtrip.call_of(function, (inputs, {}))
    given = roundtrip.trace(call, flat, mode)
    encoding = encode(given.graph, dict.fromkeys(constants, X))
    snapshot, saturation = saturate(encoding, rules, limits, progress)
    choices = problem(snapshot, encoding, roundtrip.COST, fold=False)
    trip = roundtrip.Trip(given, encoding, snapshot, choices, mode)
    selection = EXTRACTORS["greedy-dag"].extract(choices.egraph, time_limit=1.0)
    for choice in (choices.given, selection.choice):
        result = roundtrip.decoded(trip, choice)
        torch.testing.assert_close(result(*inputs), given(*inputs))
    return saturation, snapshot


def test_search_saturates_when_no_rule_adds_anything() -> None:
    saturation, _ = search(lambda x: torch.sin(x) + torch.cos(x), (COMMUTE,))
    assert saturation.stop is StopReason.SATURATED
    assert saturation.iterations[-1].enodes == saturation.iterations[-2].enodes


def test_value_that_is_its_own_operand_is_not_rewritten_for_ever() -> None:
    one = Rewrite("mul-one", lambda x: (x * 1.0, x))
    absorb = Rewrite(
        "matmul-scale", lambda x, w, s: ((x @ w) * s, x @ (w * s)), facts=(constant("w", "s"),)
    )
    saturation, _ = search(
        lambda x, w: (x @ w) * 1.0, (one, absorb), constants=("arg1_1",), inputs=(X, X)
    )
    assert saturation.stop is StopReason.SATURATED
    assert [rule.admitted for rule in saturation.rules] == [2, 1]  # of the weight, too


def test_without_rules_there_is_nothing_to_search() -> None:
    saturation, _ = search(total, ())
    assert saturation.stop is StopReason.SATURATED
    assert (saturation.iterations, saturation.rules) == ((), ())


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(iterations=2), StopReason.ITERATIONS),
        (Limits(enodes=500), StopReason.ENODES),
        (Limits(seconds=1e-6), StopReason.SECONDS),
    ],
    ids=["iterations", "enodes", "seconds"],
)
def test_limit_stops_the_search_and_the_result_is_valid(limits: Limits, reason: StopReason) -> None:
    saturation, _ = search(total, EXPLODING, limits)
    assert saturation.stop is reason
    assert len(saturation.iterations) <= limits.iterations


def test_progress_sees_every_iteration() -> None:
    seen: list[IterationSize] = []
    saturation, _ = search(total, EXPLODING, Limits(iterations=3), seen.append)
    assert tuple(seen) == saturation.iterations
    assert len(seen) == 3
    assert [s.seconds for s in seen] == sorted(s.seconds for s in seen)


def test_interrupt_stops_the_search_and_keeps_what_was_found() -> None:
    before = signal.getsignal(signal.SIGINT)
    timers: list[threading.Timer] = []

    def interrupt(size: IterationSize) -> None:
        if not timers:
            timers.append(threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)))
            timers[0].start()
            timers[0].join()

    saturation, _ = search(total, EXPLODING, Limits(iterations=50, enodes=10**7), interrupt)
    assert saturation.stop is StopReason.INTERRUPTED
    assert len(saturation.iterations) < 5
    assert signal.getsignal(signal.SIGINT) is before


def test_search_runs_outside_the_main_thread() -> None:
    found: list[Saturation] = []
    thread = threading.Thread(
        target=lambda: found.append(search(torch.sin, (COMMUTE,))[0]), daemon=True
    )
    thread.start()
    thread.join(timeout=60)
    assert found[0].stop is StopReason.SATURATED


def test_counts_say_what_each_rule_did() -> None:
    other = Rewrite("relu-idempotent", lambda x: (torch.relu(torch.relu(x)), torch.relu(x)))
    saturation, _ = search(lambda x: torch.sin(x) + x, (COMMUTE, other))
    commute, idle = saturation.rules
    assert (commute.name, commute.refused, commute.reason) == ("add-commute", 0, "")
    assert commute.matches > 0
    assert commute.admitted > 0
    assert commute.seconds >= 0
    assert (idle.name, idle.matches, idle.admitted) == ("relu-idempotent", 0, 0)


def test_union_of_different_metas_is_refused_with_the_reason() -> None:
    wrong = Rewrite("sin-flatten", lambda x: (torch.sin(x), reshape(torch.sin(x), (36,))))
    saturation, snapshot = search(torch.sin, (wrong,), Limits(iterations=3))
    (count,) = saturation.rules
    assert (count.admitted, count.refused) == (0, 1)
    assert count.reason == "float64[6,6]@cpu is not float64[36]@cpu"
    assert len(set(snapshot.metas.values())) == 2


def test_right_side_that_torch_refuses_is_never_admitted() -> None:
    wrong = Rewrite("sin-reshape", lambda x: (torch.sin(x), reshape(torch.sin(x), (7,))))
    saturation, _ = search(torch.sin, (wrong,), Limits(iterations=3))
    assert (saturation.rules[0].admitted, saturation.rules[0].refused) == (0, 1)
    assert "invalid" in saturation.rules[0].reason


def test_attribute_function_and_condition_that_fail_do_not_stop_the_search() -> None:
    @attribute
    def broken(x: Any) -> Any:
        raise RuntimeError("of the rule's own")

    def undecided(x: Any) -> bool:
        raise RuntimeError("of the rule's own")

    rules = (
        Rewrite("broken-size", lambda x: (torch.sin(x), reshape(x, broken(x.shape)))),
        Rewrite("broken-when", lambda x: (torch.sin(x), torch.cos(x)), when=undecided),
        COMMUTE,
    )
    saturation, _ = search(lambda x: torch.sin(x) + x, rules)
    assert [count.admitted > 0 for count in saturation.rules] == [False, False, True]


def test_facts_limit_where_a_rule_fires() -> None:
    def rule(fact: Any) -> Rewrite:
        return Rewrite("mul-commute", lambda a, b: (a * b, b * a), facts=(fact("a"),))

    for fact in (constant, finite):
        assert search(lambda x: torch.sin(x) * x, (rule(fact),))[0].rules[0].matches == 0
    for fact in (constant, finite):
        counts = search(lambda x, y: x * y, (rule(fact),), constants=["arg0_1"], inputs=(X, X + 1))[
            0
        ].rules
        assert counts[0].matches > 0


def test_insides_of_constants_are_left_alone() -> None:
    counts = search(
        lambda x, y: (x + x.neg()) * y, (COMMUTE,), constants=["arg0_1"], inputs=(X, X + 1)
    )[0].rules
    assert counts[0].matches == 0  # the sum of constants is computed ahead, whatever its form


def test_what_does_nothing_does_not_pile_up_in_constants() -> None:
    def scaled(x: Tensor) -> Tensor:
        frequencies = torch.arange(1, 7, dtype=x.dtype).reciprocal() * 1.0
        product = frequencies[:, None] @ x[:1]
        return x * product.t()

    saturation, _ = search(scaled, rewrites.DEFAULT)
    assert saturation.stop is StopReason.SATURATED


def test_ordered_siblings_match_once() -> None:
    def pair(*facts: Any) -> Rewrite:
        return Rewrite(
            "pair",
            lambda x, y: ((torch.sin(x), torch.sin(y)), (torch.sin(x), torch.sin(y))),
            facts=facts,
        )

    function = lambda x: torch.sin(x) + torch.sin(x + 1) + torch.sin(x + 2)  # noqa: E731 - a formula
    free = search(function, (pair(),), Limits(iterations=1))[0].rules[0].matches
    once = search(function, (pair(ordered("x", "y")),), Limits(iterations=1))[0].rules[0].matches
    assert (free, once) == (9, 3)


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two rules are named 'add-commute'"):
        search(torch.sin, (COMMUTE, COMMUTE))


@pytest.mark.parametrize("name", ["iterations", "enodes", "seconds", "matches"])
def test_limit_that_is_not_positive_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be positive, not 0"):
        Limits(**{name: 0})


def test_engine_that_breaks_raises_an_engine_error() -> None:
    engine = Engine(lambda *_: "invalid")
    with closing(engine), pytest.raises(EngineError, match="no-such-command"):
        engine.command("(no-such-command)")


def test_search_frees_its_engine_without_waiting_for_the_collector() -> None:
    gc.disable()
    try:
        before = len(_engines)
        search(lambda x: torch.sin(x) + x, (COMMUTE,))
        assert len(_engines) == before
    finally:
        gc.enable()


def test_equal_searches_give_equal_snapshots() -> None:
    first, second = (search(total, EXPLODING, Limits(iterations=3))[1] for _ in range(2))
    assert first == second


def test_rule_that_can_never_match_costs_nothing_and_is_listed() -> None:
    rules = (
        Rewrite("neg-to-mul", lambda x: (-x, x * -1.0)),
        Rewrite("mul-commute", lambda x, y: (x * y, y * x)),
        Rewrite("mul-commute-exp", lambda x, y: (torch.exp(x) * y, y * torch.exp(x))),
    )
    call, flat = roundtrip.call_of(lambda x: -x + 1, ((X,), {}))
    encoding = encode(roundtrip.trace(call, flat, roundtrip.fresh_mode()).graph, {})
    kept = reachable(rules, encoding.rows, encoding.texts.text)
    assert [rule.name for rule in kept] == ["neg-to-mul", "mul-commute"]
    found = search(lambda x: -x + 1, rules)[0]
    assert [rule.admitted > 0 for rule in found.rules] == [True, True, False]


def test_slice_climbs_a_deep_program_within_the_limit_of_iterations() -> None:
    def deep(x: Tensor) -> Tensor:
        for _ in range(60):
            x = torch.sin(x)
        return x[:1]

    assert search(deep, rewrites.DEFAULT)[0].stop is StopReason.SATURATED
