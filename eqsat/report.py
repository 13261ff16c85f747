"""What a person reads: what changed and why, what it is predicted to save, and how sure we are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from eqsat.check import Check
from eqsat.cost.model import Explanation, Prediction
from eqsat.peak import NOTHING, Memory
from eqsat.saturate import RuleCount, Saturation
from eqsat.table import duration, plain, size, table

if TYPE_CHECKING:
    from eqsat.reason.explanation import Explanation as Reason  # brings what few processes need


@dataclass(frozen=True)
class Extraction:
    """One reading of the e-graph: the extractor's method, what it proved, and the price of it.

    `cost` and `lower_bound` are seconds by the extractor's own prices, which differ from reading to
    reading: of single e-nodes, or of whole kernels. `predicted` and `kernels` are those of the
    decoded graph, by which one reading is chosen.
    """

    name: str
    method: str
    status: str
    cost: float
    lower_bound: float
    seconds: float
    predicted: float
    kernels: int
    chosen: bool
    memory: Memory = NOTHING

    @property
    def gap(self) -> float:
        """The share of the cost that a better selection might still save; 0 if proven cheapest."""
        return 1 - self.lower_bound / self.cost if self.cost > self.lower_bound else 0.0


@dataclass(frozen=True)
class Report:
    """What one `optimize` did; `str(report)` is for a person, `report.to_dict()` for a program.

    `kept` says why the given program came back as it was (None when it did not). `before` and
    `after` are predictions for `device`, `extractions` what was considered. `folded_bytes`
    is the memory of constants computed ahead. Operators are counted by their ATen name; `coverage`
    says of each operator that no rule can see why that is so. Where it was `cached`, search and
    candidates are those of an earlier run. `seconds` are those of each step, in order. The memory
    is that of weights, and of intermediates at their peak where calls run one by one.
    `explanation` is there where it was asked for, or `unexplained` says why it is not.
    `dumped` is the script that repeats a failure, where one was asked for.
    """

    kept: str | None
    numerics: str
    device: str
    extractor: str
    saturation: Saturation | None
    before: Prediction | None
    after: Prediction | None
    extractions: tuple[Extraction, ...]
    folded_bytes: int
    fold_budget: int | None
    check: Check | None
    operators_before: dict[str, int]
    operators_after: dict[str, int]
    coverage: dict[str, str]
    cached: bool
    seconds: dict[str, float]
    memory_before: Memory | None = None
    memory_after: Memory | None = None
    explanation: Reason | None = None
    unexplained: str = ""
    dumped: str | None = None

    @property
    def rules(self) -> tuple[str, ...] | None:
        """The rules that the result needs, in the order of their first step.

        Without any of them the search does not come to it. None where no explanation was asked for:
        `saturation.rules` says what each rule did, needed or not.
        """
        return None if self.explanation is None else self.explanation.rules

    @property
    def matched(self) -> tuple[str, ...]:
        """The rules that matched, whether the result needs them or not."""
        rules = () if self.saturation is None else self.saturation.rules
        return tuple(rule.name for rule in rules if rule.matches)

    def __str__(self) -> str:
        """The report as plain text, 100 columns wide."""
        return plain(self.__rich__())

    def __rich__(self) -> RenderableType:
        """The report as rich shows it, in colour where the terminal has any."""
        parts = [*_headline(self), *_facts(self), *_extractions(self.extractions)]
        if self.before is not None and self.after is not None:
            parts += Explanation(self.before, self.after).table()
        if self.saturation is not None:
            parts += [*_rules(self.saturation.rules), *_operators(self), *_sizes(self.saturation)]
        if self.explanation is not None:
            parts += [Text(), self.explanation]
        if self.unexplained:
            parts.append(Text(f"\nNo explanation: {self.unexplained}", "bold yellow"))
        return Group(*parts, *_coverage(self.coverage), *_steps(self.seconds))

    def to_dict(self) -> dict[str, Any]:
        """The report in dicts, lists, strings and numbers, as `json.dumps` takes them."""
        return _plain(self)


def _headline(report: Report) -> list[RenderableType]:
    """The first sentence; before it, loudly, that a check failed."""
    lines: list[RenderableType] = []
    if report.check is not None and not report.check.passed:
        lines.append(
            Text("!! CHECK FAILED: the result differed and was thrown away !!", "bold red")
        )
    if report.kept is not None:
        lines.append(Text(f"The given program came back unchanged: {report.kept}", "bold yellow"))
        if report.dumped is not None:
            lines.append(Text(f"A script that repeats it: {report.dumped}"))
    else:
        lines.append(Text(f"{_saving(report)}; {_verdict(report.check)}", "bold"))
    return lines


def _saving(report: Report) -> str:
    """The predicted time and the kernels, before and after."""
    before, after = report.before, report.after
    if before is None or after is None:
        return f"no prediction for {report.device}"
    kernels = f"{len(before.kernels)} -> {len(after.kernels)} kernels"
    times = f"predicted {duration(before.seconds)} -> {duration(after.seconds)}"
    ratio = f" ({before.seconds / after.seconds:.2f}x)" if after.seconds > 0 else ""
    return f"{times}{ratio} on {report.device}, {kernels}"


def _verdict(check: Check | None) -> str:
    """Whether the result was compared with the given program, and how far apart they were."""
    if check is None:
        return "not checked"
    ran = sum(not probe.skipped for probe in check.probes)
    if not ran:
        return "not checked: every probe was skipped"
    return f"checked equal on {ran} probes, max error {check.max_error:.1e}"


def _facts(report: Report) -> list[RenderableType]:
    """One line each: the settings, what the time waits for, memory."""
    lines = [f"numerics {report.numerics}, extractor {report.extractor}"]
    if report.cached:
        lines.append("from the cache: the search below is that of an earlier run")
    if (time := report.after or report.before) is not None:
        waits = "launches" if time.times.host > time.times.device else "the device"
        lines.append(
            f"time on {time.device} ({time.mode} launches) waits for {waits}: "
            f"host {duration(time.times.host)}, device {duration(time.times.device)}"
        )
    if (before := report.memory_before) is not None:
        after = report.memory_after or before
        lines.append(
            f"memory predicted: intermediates {size(before.intermediates)} -> "
            f"{size(after.intermediates)} at their peak, weights {size(before.constants)} -> "
            f"{size(after.constants)}"
        )
    if report.folded_bytes:
        budget = "" if report.fold_budget is None else f" of {size(report.fold_budget)} allowed"
        lines.append(f"constants computed ahead: {size(report.folded_bytes)}{budget}")
    return [Text(line) for line in lines]


def _extractions(extractions: Iterable[Extraction]) -> list[RenderableType]:
    """The candidates that were considered, each with what is proven of it."""
    rows: list[tuple[str, ...]] = []
    for found in extractions:
        proven = f"within {found.gap:.1%} of the cheapest" if found.gap else "cheapest"
        if found.lower_bound <= 0 < found.cost:
            proven = "nothing"
        which = f"{found.name} (chosen)" if found.chosen else found.name
        costs = (duration(found.predicted), str(found.kernels), duration(found.cost))
        rows.append((which, *costs, found.method, proven, duration(found.seconds)))
    columns = ("candidate", "predicted", "kernels", "objective", "method", "proven", "took")
    return table("Candidates", columns, rows)


def _rules(rules: Iterable[RuleCount]) -> list[RenderableType]:
    """The rules that matched: how often, how many unions were admitted or refused, and why."""
    rules = tuple(rules)
    fired = [rule for rule in rules if rule.matches]
    rows = [
        (r.name, str(r.matches), str(r.admitted), str(r.refused), duration(r.seconds), r.reason)
        for r in fired
    ]
    title = f"Rules that matched: {len(fired)} of {len(rules)}"
    return table(title, ("rule", "matches", "admitted", "refused", "time", "why refused"), rows)


def _operators(report: Report) -> list[RenderableType]:
    """How often each ATen operator stands in the program before and after, where that changed."""
    before, after = report.operators_before, report.operators_after
    rows = [
        (name, str(before.get(name, 0)), str(after.get(name, 0)))
        for name in sorted({*before, *after})
        if before.get(name, 0) != after.get(name, 0)
    ]
    if not rows:
        return [Text("\nOperators: none changed")]
    total = (("all", str(sum(before.values())), str(sum(after.values()))),)
    return table("Operators that changed", ("operator", "before", "after"), [*rows, *total])


def _sizes(saturation: Saturation) -> list[RenderableType]:
    """The size of the e-graph after each iteration, and why it grew no further."""
    rows = [
        (str(number), f"{size.enodes:,}", duration(size.seconds))
        for number, size in enumerate(saturation.iterations, 1)
    ]
    end = f"{saturation.enodes:,} e-nodes in {saturation.classes:,} e-classes"
    title = f"E-graph: {end} (stopped: {saturation.stop})"
    sizes = table(title, ("iteration", "rows", "time so far"), rows)
    return sizes or [Text(f"\n{title}", "bold cyan")]


def _coverage(coverage: dict[str, str]) -> list[RenderableType]:
    """The operators that no rule can see, each with the reason."""
    return table("Operators kept as they are", ("operator", "why"), sorted(coverage.items()))


def _steps(seconds: dict[str, float]) -> list[RenderableType]:
    """The time of each step of the pipeline, in order."""
    steps = ", ".join(f"{step} {duration(spent)}" for step, spent in seconds.items())
    total = duration(sum(seconds.values()))
    return [Text(f"\nOptimized in {total}" + (f": {steps}" if steps else ""))]


def _plain(value: Any) -> Any:  # Any: whatever a dataclass of ours holds
    """The value as JSON takes it: no dataclasses, tuples, enums, infinities or NaN."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return str(value)
