"""A report tells a person, and a program, what happened."""

import dataclasses
import io
import json
import math

import pytest
from kernels import mm, pointwise, prediction
from rich.console import Console

from eqsat.check import Check, Probe
from eqsat.report import Extraction, Report
from eqsat.saturate import IterationSize, RuleCount, Saturation, StopReason
from eqsat.table import duration, size

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
EXTRACTION = Extraction("halves", "lns", "feasible", 29e-6, 28e-6, 1.5, 29e-6, 2, True)
REPORT = Report(
    kept=None,
    numerics="default",
    device="h200",
    extractor="auto",
    saturation=SATURATION,
    before=prediction((mm(64, 64, 64), pointwise("add"), pointwise("exp")), (11e-6, 1e-5, 2e-5)),
    after=prediction((mm(64, 64, 64), pointwise("add", "exp")), (11e-6, 18e-6), host=1e-5),
    extractions=(EXTRACTION,),
    folded_bytes=2_500_000,
    fold_budget=100_000_000,
    check=PASSED,
    operators_before={"aten.add.Tensor": 7, "aten.mul.Tensor": 2, "aten.relu.default": 3},
    operators_after={"aten.add.Tensor": 4, "aten.mm.default": 1, "aten.relu.default": 3},
    coverage={"aten.nonzero.default": "its output shape depends on data"},
    cached=False,
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
    check(REPORT, "3 -> 2 kernels", "checked equal on 2 probes, max error 2.4e-07")


def test_kernels_that_differ_are_listed() -> None:
    check(
        REPORT,
        "0 1 - 18 us pointwise add exp, 1024 float32",
        "1 0 20 us - pointwise exp,",
        absent=("64x64x64",),
    )


def test_what_the_time_waits_for_is_said() -> None:
    check(REPORT, "time on h200 (stream launches) waits for the device: host 10 us, device 29 us")
    bound = prediction((pointwise("add"),), (1e-6,), host=5e-6)
    check(but(after=bound), "waits for launches: host 5 us, device 1 us")


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


def test_memory_coverage_and_steps_are_shown() -> None:
    check(REPORT, "2.5 MB of 100 MB allowed", "capture 410 ms, saturate 512 ms")
    check(REPORT, "aten.nonzero.default its output shape")


def test_candidates_are_listed_with_what_is_proven_of_them() -> None:
    check(REPORT, "halves (chosen) 29 us 2 29 us lns within 3.4% of the cheapest 1.5 s")
    optimal = dataclasses.replace(EXTRACTION, cost=2.0, lower_bound=2.0, chosen=False)
    unproven = dataclasses.replace(optimal, lower_bound=-math.inf)
    check(but(extractions=(optimal,)), "lns cheapest 1.5 s", absent=("(chosen)",))
    check(but(extractions=(unproven,)), "lns nothing 1.5 s")


def test_report_of_a_refused_program_is_short() -> None:
    nothing = {"saturation": None, "before": None, "after": None, "extractions": (), "check": None}
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
    unproven = dataclasses.replace(EXTRACTION, lower_bound=-math.inf)
    report = but(extractions=(unproven,))
    data = report.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert set(data) == {field.name for field in dataclasses.fields(Report)}
    assert data["saturation"]["rules"][0]["admitted"] == 9
    assert data["saturation"]["stop"] == str(StopReason.ENODES)
    assert data["extractions"][0]["lower_bound"] is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 us"), (4.1e-7, "0.41 us"), (2.9e-5, "29 us"), (0.00125, "1.25 ms"), (61.25, "61.2 s")],
)
def test_durations_carry_the_unit_that_suits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(512, "512 B"), (1_500_000, "1.5 MB"), (3e9, "3 GB")])
def test_sizes_carry_the_unit_that_suits(count: int, text: str) -> None:
    assert size(count) == text
