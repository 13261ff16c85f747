"""A smaller case on which the optimizer fails in the same way: fewer rules, outputs and calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor
from torch.fx import Node

from eqsat.dump.case import Case
from eqsat.dump.trial import Trial
from eqsat.rewrite import Rewrite

log = logging.getLogger(__name__)
Fails = Callable[[Trial], bool]


def shrink(trial: Trial, fails: Fails, spent: Callable[[], bool]) -> Trial:
    """The smallest trial found that still fails, before time is spent; the given one fails.

    Rules go first, for each trial is faster then; then outputs; then calls after what fails and
    before it, by halves; then single calls.
    """
    for smaller in (_rules, _outputs, _ends, _begins, _singles, _outputs, _rules):
        try:
            trial = smaller(trial, fails, spent)
        except Exception as error:  # noqa: BLE001 - where a case cannot run it stays as large
            log.warning("a case was not made smaller: %s", error)
    return trial


def _rules(trial: Trial, fails: Fails, spent: Callable[[], bool]) -> Trial:
    """Without the rules that the failure does not need, many at a time and then few."""
    size = len(trial.rules)
    while size and not spent():
        for low in range((len(trial.rules) - 1) // size * size, -1, -size):
            kept: Sequence[Rewrite] = trial.rules[:low] + trial.rules[low + size :]
            if not spent() and len(kept) < len(trial.rules) and fails(trial.by(kept)):
                trial = trial.by(kept)
        size //= 2
    return trial


def _outputs(trial: Trial, fails: Fails, spent: Callable[[], bool]) -> Trial:
    """With one output, if one is enough; else without those that can go."""
    for node in trial.case.returned:
        if len(trial.case.returned) == 1 or spent():
            return trial
        one = trial.on(trial.case.cut([node], (), {}))
        if fails(one):
            return one
    for node in trial.case.returned:
        now = {n.name: n for n in trial.case.returned}
        rest = [n for name, n in now.items() if name != node.name]
        if rest and not spent() and fails(fewer := trial.on(trial.case.cut(rest, (), {}))):
            trial = fewer
    return trial


def _ends(trial: Trial, fails: Fails, spent: Callable[[], bool]) -> Trial:
    """Without calls at the end: what is read of the others is returned."""

    def without(case: Case, count: int) -> Case | None:
        kept = set(case.calls[: len(case.calls) - count])
        ends = [n for n in case.calls if n in kept and _read_outside(n, kept)]
        tensors = [n for n in ends if isinstance(n.meta.get("val"), Tensor)]
        return case.cut(tensors, (), {}) if tensors else None

    return _galloping(trial, fails, spent, without)


def _read_outside(node: Node, kept: set[Node]) -> bool:
    return any(user not in kept for user in node.users)


def _begins(trial: Trial, fails: Fails, spent: Callable[[], bool]) -> Trial:
    """Without calls at the beginning: their values are inputs."""

    def without(case: Case, count: int) -> Case | None:
        first = [n for n in case.calls[:count] if isinstance(n.meta.get("val"), Tensor)]
        return case.cut(case.returned, first, case.run())

    return _galloping(trial, fails, spent, without)


def _galloping(
    trial: Trial,
    fails: Fails,
    spent: Callable[[], bool],
    without: Callable[[Case, int], Case | None],
) -> Trial:
    """Without as many calls as it fails without, by halves."""
    size = len(trial.case.calls) // 2
    while size and not spent():
        smaller = without(trial.case, size)
        if smaller is not None and _smaller(smaller, trial.case) and fails(trial.on(smaller)):
            trial = trial.on(smaller)
            size = min(size, len(trial.case.calls) - 1)
        else:
            size //= 2
    return trial


def _smaller(case: Case, than: Case) -> bool:
    return bool(case.calls) and len(case.calls) < len(than.calls)


def _singles(trial: Trial, fails: Fails, spent: Callable[[], bool]) -> Trial:
    """Without single calls, the last first: by what they read, or as an input."""
    names = [node.name for node in reversed(trial.case.calls)]
    for name in names:
        node = next((n for n in trial.case.calls if n.name == name), None)
        if node is None:
            continue
        for smaller in _without(trial.case, node):
            if spent():
                return trial
            if _smaller(smaller, trial.case) and fails(trial.on(smaller)):
                trial = trial.on(smaller)
                break
    return trial


def _without(case: Case, node: Node) -> Iterator[Case]:
    """Ways to leave out a call."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return
    for read in node.all_input_nodes:
        other = read.meta.get("val")
        if isinstance(other, Tensor) and (other.shape, other.dtype) == (value.shape, value.dtype):
            yield case.bypassed(node, read)
    if node not in case.returned:
        yield case.cut(case.returned, [node], case.run())
