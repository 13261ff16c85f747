"""A report tells a person, and a program, what happened."""

import dataclasses
import io
import json
import math

import pytest
from rich.console import Console

from eqsat.check import Check, Probe
from eqsat.cost.additive import Estimate
from eqsat.report import Extraction, Report, duration, size
from eqsat.saturate import IterationSize, RuleCount, Saturation, StopReason

PASSED = Check(True, 2.4e-7, (Probe("example", True, max_error=2.4e-7), Probe("random", True)))
FAILED = Check(False, 0.5, (Probe("example", True), Probe("nan", False, "output 0 differs")))
SATURATION = Saturation(
    StopReason.ENODES,
    (IterationSize(1200, 0.012), IterationSize(51_234, 0.5)),
    (
        RuleCount("matmul-associate", 12, 9, 3, "shapes differ", 0.02),
        RuleCount("relu-idempotent", 0, 0, 0, "", 0.001),
    ),
    enodes=40_123,
    classes=20_456,
)
REPORT = Report(
    kept=None,
    numerics="default",
    device="h200",
    extractor="auto",
    saturation=SATURATION,
    before=Estimate(41e-6, 97, 3000, 9000),
    after=Estimate(29e-6, 61, 2000, 9000),
    extraction=Extraction("lns", "feasible", 29e-6, 28e-6, 1.5),
    folded_bytes=2_500_000,
    fold_budget=100_000_000,
    check=PASSED,
    operators_before={"aten.add.Tensor": 7, "aten.mul.Tensor": 2, "aten.relu.default": 3},
    operators_after={"aten.add.Tensor": 4, "aten.mm.default": 1, "aten.relu.default": 3},
    coverage={"aten.nonzero.default": "its output shape depends on data"},
    seconds={"capture": 0.41, "saturate": 0.512},
)


def check(report: Report, *expected: str, absent: tuple[str, ...] = ()) -> None:
    """The report says each of `expected` and none of `absent`; columns may be any width apart."""
    text = " ".join(str(report).split())
    for words in expected:
        assert words in text, text
    for words in absent:
        assert words not in text, text


def but(**changes: object) -> Report:
    """The report with these fields changed."""
    return dataclasses.replace(REPORT, **changes)  # type: ignore[arg-type] any field


def test_headline_says_what_is_predicted_and_what_was_checked() -> None:
    assert str(REPORT).splitlines()[0].startswith("predicted 41 us -> 29 us (1.41x) on h200, ")
    check(REPORT, "97 -> 61 kernels", "checked equal on 2 probes, max error 2.4e-07")


def test_headline_says_when_nothing_faster_was_found() -> None:
    check(but(after=REPORT.before), "nothing faster found: predicted 41 us on h200", absent=("x)",))


def test_headline_says_when_nothing_was_checked() -> None:
    check(but(check=None), "not checked", absent=("checked equal",))
    skipped = Check(True, 0.0, (Probe("nan", True, skipped="no float input"),))
    check(but(check=skipped), "not checked: every probe was skipped")


def test_probes_that_were_skipped_are_not_counted() -> None:
    probes = (Probe("example", True), Probe("nan", True, skipped="no float input"))
    check(but(check=Check(True, 0.0, probes)), "checked equal on 1 probes")


def test_failed_check_is_the_first_thing_said() -> None:
    report = but(check=FAILED, kept=f"the check failed: {FAILED}")
    assert str(report).startswith("!! CHECK FAILED")
    check(report, "came back unchanged: the check failed: FAILED nan: output 0", absent=("1.41x",))


def test_rules_that_matched_are_listed_with_their_refusals() -> None:
    check(REPORT, "1 of 2", "matmul-associate 12 9 3 20 ms shapes differ", absent=("relu-idem",))


def test_only_operators_whose_number_changed_are_listed() -> None:
    check(REPORT, "aten.add.Tensor 7 4", "aten.mm.default 0 1", "all 12 8", absent=("aten.relu",))
    check(but(operators_after=REPORT.operators_before), "Operators: none changed")


def test_sizes_and_stop_reason_are_shown() -> None:
    check(REPORT, f"40,123 e-nodes in 20,456 e-classes (stopped: {StopReason.ENODES})")
    check(REPORT, "1 1,200 12 ms", "2 51,234 500 ms")


def test_memory_gap_coverage_and_steps_are_shown() -> None:
    check(REPORT, "2.5 MB of 100 MB allowed", "lns, feasible, proven within 3.4%")
    check(REPORT, "aten.nonzero.default its output shape", "capture 410 ms, saturate 512 ms")
    check(but(extraction=Extraction("exact", "optimal", 2.0, 2.0, 0.1)), "proven cheapest")
    check(but(extraction=Extraction("tree", "feasible", 2.0, -math.inf, 0.1)), "nothing proven")


def test_report_of_a_refused_program_is_short() -> None:
    nothing = {"saturation": None, "before": None, "after": None, "extraction": None, "check": None}
    report = but(kept="an output aliases an input", operators_after={}, coverage={}, **nothing)
    check(report, "came back unchanged: an output aliases an input", absent=("Rules", "predicted"))


def test_text_is_plain_and_at_most_100_columns_wide() -> None:
    long = RuleCount("a-rule", 1, 0, 1, "a reason that goes on and on " * 8, 0.1)
    text = str(but(saturation=dataclasses.replace(SATURATION, rules=(long,))))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_terminal_gets_colour() -> None:
    sink = io.StringIO()
    Console(file=sink, force_terminal=True, color_system="standard").print(REPORT)
    assert "\x1b[" in sink.getvalue()


def test_markup_in_a_name_is_printed_as_it_is() -> None:
    check(but(coverage={"my.op[red]": "it has [bold]brackets[/bold]"}), "my.op[red] it has [bold]")


def test_dict_survives_json_and_keeps_every_field() -> None:
    report = but(extraction=Extraction("tree", "feasible", 2.0, -math.inf, 0.1))
    data = report.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert set(data) == {field.name for field in dataclasses.fields(Report)}
    assert data["saturation"]["rules"][0]["admitted"] == 9
    assert data["saturation"]["stop"] == str(StopReason.ENODES)
    assert data["extraction"]["lower_bound"] is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 us"), (4.1e-7, "0.41 us"), (2.9e-5, "29 us"), (0.00125, "1.25 ms"), (61.25, "61.2 s")],
)
def test_durations_carry_the_unit_that_suits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(512, "512 B"), (1_500_000, "1.5 MB"), (3e9, "3 GB")])
def test_sizes_carry_the_unit_that_suits(count: int, text: str) -> None:
    assert size(count) == text
