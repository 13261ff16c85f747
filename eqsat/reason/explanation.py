"""Why a result is what it is: the rules it needs, every step of them, and what no rule did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any  # programs take arbitrary inputs

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from eqsat.capture import Captured
from eqsat.choose import Found
from eqsat.encode import Encoding
from eqsat.example import example_of_program
from eqsat.reason.goal import Goal, goal_of
from eqsat.reason.needed import Needed, needed
from eqsat.reason.step import Step, source, steps
from eqsat.reason.values import Trial, Values
from eqsat.rewrite import Rewrite
from eqsat.table import plain, table


@dataclass(frozen=True)
class Change:
    """What happened to the graph without a rule: its kind, and what to whom."""

    kind: str
    text: str


@dataclass(frozen=True)
class Explanation:
    """The way from the given graph to the chosen one.

    `rules` are those without any of which the search does not come to the chosen graph, in the
    order in which they are needed; `minimal` is false where there was no time to try each. `steps`
    are their matches in order, `changes` what no rule did.
    """

    rules: tuple[str, ...]
    steps: tuple[Step, ...]
    changes: tuple[Change, ...]
    minimal: bool

    @property
    def wrong(self) -> tuple[Step, ...]:
        """The steps whose two sides differed."""
        return tuple(step for step in self.steps if not step.equal)

    def __str__(self) -> str:
        """The explanation as plain text, 100 columns wide."""
        return plain(self.__rich__())

    def __rich__(self) -> RenderableType:
        """The explanation as rich shows it."""
        return Group(*_headline(self), *_rules(self), *_steps(self.steps), *_changes(self.changes))


def explained(
    captured: Captured,
    found: Found,
    matched: Sequence[str],
    spent: Callable[[], bool] = lambda: False,
) -> Explanation:
    """The explanation of the winner of a search, by runs with fewer and fewer rules.

    `matched` are the names of the rules that matched, `spent` says when there is no more time to
    look for fewer. Raises ValueError where the rules do not come to the same graph again, such as
    after a search that a time limit ended.
    """
    reason, _ = reasoned(found, matched, spent)
    encoding = found.ground.encoding
    args, kwargs = inputs_of(captured)
    values = Values(encoding, captured.program, args, kwargs)
    done = tuple(steps(reason.proof, reason.snapshot, encoding, values))
    return Explanation(
        tuple(dict.fromkeys([*reason.proof.rules, *(rule.name for rule in reason.rules)])),
        done,
        tuple(_changed(found)),
        reason.minimal,
    )


def reasoned(
    found: Found, matched: Sequence[str], spent: Callable[[], bool] = lambda: False
) -> tuple[Needed, Goal]:
    """The rules that the winner of a search needs, with the proof; and what the winner is."""
    ground = found.ground
    assert found.winner is not None
    goal = goal_of(ground, found.winner)
    rules = _named(ground.settings.rules, matched)
    reason = needed(
        ground.encoding,
        goal,
        rules,
        ground.settings.limits,
        ground.settings.memory_limit,
        spent,
    )
    if reason is None:
        raise ValueError(
            "a second search with the rules that matched did not come to the same graph: "
            "give limits of iterations and e-nodes that end it, and more seconds"
        )
    return reason, goal


def _named(rules: Sequence[Rewrite], names: Sequence[str]) -> list[Rewrite]:
    chosen = set(names)
    return [rule for rule in rules if rule.name in chosen]


def inputs_of(captured: Captured) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example inputs of a program, made up where it has none."""
    if captured.args is None:
        return example_of_program(captured.program)
    return captured.args, captured.kwargs or {}


def _changed(found: Found) -> Iterator[Change]:
    """What happened to the graph of the winner without a rule."""
    winner, encoding = found.winner, found.ground.encoding
    assert winner is not None
    yield from _shared(encoding)
    used = {node.name for node in winner.decoded.nodes}
    for name in winner.folding.names:
        size = next(n for n in winner.graph.nodes if n.name == name).meta["val"]
        text = f"{name}, {str(size.dtype).removeprefix('torch.')}{list(size.shape)}"
        yield Change("computed ahead", f"{text}, becomes a constant")
    if winner.name.endswith("channels-last"):
        yield Change("laid out", "constant weights of convolutions, channels-last")
    for node in encoding.graph.nodes:
        if node.op == "call_function" and not node.users and node.name not in used:
            yield Change("dropped", f"{node.name}: nothing reads it  {source(node)}".rstrip())


def _shared(encoding: Encoding) -> Iterator[Change]:
    """The given nodes that compute what an earlier one does."""
    for node, handle in encoding.handles.items():
        first = encoding.origins.get(handle)
        if first is not None and first is not node and node.op == "call_function":
            yield Change("shared", f"{node.name} is {first.name}  {source(node)}".rstrip())


def _headline(found: Explanation) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for step in found.wrong:
        told = next(trial for trial in step.trials if trial.difference)
        lines.append(
            Text(f"!! {step.rule} is wrong at {_at(step)}: on {told.on} {told.difference}", "red")
        )
    tried = "" if found.minimal else " (there was no time to try each without)"
    text = f"{len(found.steps)} steps by {len(found.rules)} rules, all of them needed{tried}"
    return [*lines, Text(text if found.rules else "No rule made the result", "bold")]


def _at(step: Step) -> str:
    return ", ".join(step.nodes) or "values of its own"


def _rules(found: Explanation) -> list[RenderableType]:
    counts = Counter(step.rule for step in found.steps)
    rows = [(name, str(counts[name])) for name in found.rules]
    return table("Rules, in the order in which they are needed", ("rule", "steps"), rows)


def _steps(found: Sequence[Step]) -> Iterator[RenderableType]:
    for number, step in enumerate(found, 1):
        yield Text(f"\n{number}. {step.rule} at {_at(step)}", "bold cyan")
        yield from (_line(line, 3, "dim") for line in step.source)
        yield from (_line(line, 5) for line in step.was)
        yield _line("becomes", 3)
        yield from (_line(line, 5) for line in step.becomes)
        if step.trials:
            yield _line("; ".join(map(_said, step.trials)), 3, "" if step.equal else "red")


def _line(text: str, indent: int, style: str = "") -> RenderableType:
    return Padding(Text(text, style), (0, 0, 0, indent))


def _said(trial: Trial) -> str:
    if trial.difference:
        return f"DIFFERS on {trial.on}: {trial.difference}"
    return f"equal on {trial.on} (error {trial.error:.1e})"


def _changes(changes: Sequence[Change]) -> list[RenderableType]:
    rows = [(change.kind, change.text) for change in changes]
    return table("What no rule did", ("kind", "what"), rows)
