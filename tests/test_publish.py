"""The published tables say what the rows say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import publish
from benchmarks.publish import document
from eqsat.compare.program import Source
from eqsat.compare.task import Options, Task, blank

Row = dict[str, Any]


def row(entry: str, group: str, arm: str, micro: float, **fields: Any) -> Row:
    """A row of a result file."""
    task = Task(Source(__file__, "f"), entry, "small", arm, "h200", "h200", 0)
    seconds = micro * 1e-6
    made = {"set": group, "predicted": seconds, "unfused": 2 * seconds, "kernels": 3}
    return blank(task, Options()) | made | fields


def rows() -> list[Row]:
    search = {"optimizer": {"saturate": 1.5, "check": 0.5}, "stop": "saturated", "gap": 0.0}
    claims = [{"text": "a gate is one", "found": False}, {"text": "another", "found": True}]
    return [
        row("nasrnn", "B", "inductor", 120.0),
        row("nasrnn", "B", "greedy", 110.0),
        row("nasrnn", "B", "saturation", 60.0, expected=claims, **search),
        row("d1", "C", "inductor", 50.0),
        row("d1", "C", "greedy", 30.0, error="it | fails"),
        row("d1", "C", "saturation", 40.0, **search),
    ]


def test_published_figures_stand_beside_ours() -> None:
    text = document(rows(), "zoo", "eqsat compare")
    assert "| nasrnn | +45.4 % | +68.9 % | +100.0 % | +100.0 % | 177.3 | 0.5 | 2.0 |" in text
    assert "Yang et al." in text


def test_the_fastest_is_marked_and_the_worse_is_named() -> None:
    text = document(rows(), "zoo", "eqsat compare")
    assert "| nasrnn | 120 (3) | 110 (3) | **60 (3)** | 2.0 s | saturated | 0.0% |" in text
    assert "| `greedy` | 1 | 0 | 1 d1 |" in text
    assert "| `saturation` | 1.58x | 2 |" in text


def test_what_was_not_found_and_what_failed_is_told() -> None:
    text = document(rows(), "zoo", "eqsat compare")
    assert "1 of 2 found." in text
    assert "| nasrnn | a gate is one | **no** |" in text
    assert "| d1 | greedy | it \\| fails |" in text


def test_no_rows_or_those_of_two_devices_are_no_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "results.jsonl"
    empty.write_text("")
    monkeypatch.setattr("sys.argv", ["publish", str(empty), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        publish.main()
    assert "has no rows" in capsys.readouterr().err
    empty.write_text("\n".join(json.dumps(r | {"profile": p}) for p in "ab" for r in rows()))
    with pytest.raises(SystemExit):
        publish.main()
    assert "has rows for a, b: one device" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_was_measured_stands_beside_and_is_summed_up() -> None:
    def times(milli: float) -> Row:
        seconds = [milli * 1e-3 + i * 1e-7 for i in range(9)]
        return {"measured": {"1": {"median": seconds[4], "times": seconds}}}

    some = [
        row("mla", "A", "inductor", 120.0, **times(3)),
        row("mla", "A", "inductor-freezing", 120.0, **times(1)),
        row("mla", "A", "saturation", 60.0, **times(2)),
        row("mla", "A", "saturation-freezing", 60.0, **times(1.5)),
    ]
    text = document(some, "set-a", "eqsat compare")
    assert "what was measured stands below" in text
    assert "(1.50x, faster)" in text
    assert "- saturation against inductor: faster on 1." in text
    assert "- saturation-freezing against inductor-freezing: slower on 1 (mla)." in text
    assert "saturation against | better" not in text
