"""The page: one file that keeps every row, asks for nothing, and works in a real browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_rows
import torch

import eqsat
from eqsat.choose import Found
from eqsat.cost.additive import FUSED_SHARE
from eqsat.page import egraph, write
from eqsat.page.changed import changed
from eqsat.page.write import HEAVY
from extract import dag_cost

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"
NO_BROWSER = "no browser: pip install playwright; apt-get install chromium"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return sample_rows.rows(("t5_attention", "vit_attention"))


@pytest.fixture(scope="module")
def page(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    first = [{**row, "set": "A"} if row["entry"] == "vit_attention" else row for row in rows]
    write([*first, *hostile(rows), *large(rows)], path)
    return path


def hostile(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one program with markup for every text, and one that failed."""
    graph = {"nodes": [{**NODE, "name": EVIL, "target": EVIL}]}
    changed = {"entry": EVIL, "about": EVIL, "graph_before": graph, "stop": EVIL, "kept": EVIL}
    found = [{**row, **changed, "graph_after": graph} for row in rows[:4]]
    nothing = dict.fromkeys(rows[0])
    kept = {key: rows[0][key] for key in ("set", "size", "profile", "seed", "torch", "eqsat")}
    return [*found, {**nothing, **kept, **changed, "arm": "backtracking", "error": EVIL}]


def large(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a program of 2,000 nodes."""
    nodes = [
        {
            **NODE,
            "name": f"n{i}",
            "inputs": [f"n{i - k}" for k in (1, 3) if k <= i],
            "kernel": i // 5,
        }
        for i in range(2000)
    ]
    shorter = {"nodes": nodes[:1000]}
    classes = [
        {"id": i, "meta": "float32[2]@cpu", "nodes": [e_node(i, k) for k in range(2)]}
        for i in range(1000)
    ]
    graphs = {"graph_before": {"nodes": nodes}, "graph_after": shorter}
    rest = {"entry": "large", "egraph": {"classes": classes}}
    return [{**row, **graphs, **rest} for row in rows[:4]]


NODE = {
    "name": "x",
    "target": "relu",
    "shape": [2],
    "dtype": "float32",
    "inputs": [],
    "kernel": None,
}


def e_node(cls: int, k: int) -> dict[str, Any]:
    """An e-node that reads the classes before its own."""
    return {
        "op": f"op{k}",
        "children": [c for c in (cls - 1 - k,) if c >= 0],
        "cost": 1e-6,
        "chosen": k == 0,
    }


class Tags(HTMLParser):
    """The tags of a page, and the texts of its scripts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: dict[str, str] = {}
        self.name: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.name = (dict(attrs).get("id") or "") if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self.name = None

    def handle_data(self, data: str) -> None:
        if self.name is not None:
            self.scripts[self.name] = self.scripts.get(self.name, "") + data


def test_every_row_is_in_the_page(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    write(rows, tmp_path / "page.html")
    scripts = Tags((tmp_path / "page.html").read_text()).scripts
    assert json.loads(scripts["rows"]) == [
        {k: v for k, v in row.items() if k not in HEAVY} for row in rows
    ]
    assert list(json.loads(scripts["rows"])[3]["optimizer"]) == list(rows[3]["optimizer"])
    for number, (entry, size) in enumerate(json.loads(scripts["groups"])):
        held = json.loads(gzip.decompress(base64.b64decode(scripts[f"details-{number}"])))
        mine = [row for row in rows if (row["entry"], row["size"]) == (entry, size)]
        for row, run in zip(mine, held["runs"], strict=True):
            assert run["arm"] == row["arm"]
            assert {key: held["parts"][run[key]] for key in HEAVY} == {k: row[k] for k in HEAVY}


def test_the_page_asks_for_nothing(page: Path) -> None:
    text = page.read_text()
    tags = Tags(text)
    assert not {"iframe", "object", "embed", "img"} & set(tags.tags)
    assert "default-src 'none'" in text
    loads = re.findall(r"""(?:<script[^>]*\ssrc|<link[^>]*\shref)\s*=\s*["']?([^"'\s>]*)""", text)
    assert loads == ["data:,"]


def test_only_the_script_of_the_page_may_run(page: Path) -> None:
    text = page.read_text()
    digest = base64.b64encode(hashlib.sha256(Tags(text).scripts[""].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_the_libraries_and_their_licences_are_inside(page: Path) -> None:
    script = Tags(page.read_text()).scripts[""]
    assert "Chris Pettitt" in script
    assert script.count("Permission is hereby granted") >= 3


def test_a_page_without_rows_is_small(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    write([{**rows[0], **dict.fromkeys(HEAVY)}], tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1_000_000


def test_texts_of_a_program_do_not_become_markup(page: Path) -> None:
    found = Tags(page.read_text())
    assert found.tags.count("script") == 2 + len(json.loads(found.scripts["groups"])) + 1
    assert EVIL in {row["entry"] for row in json.loads(found.scripts["rows"])}


def test_a_title_does_not_become_markup(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    write(rows[:1], tmp_path / "page.html", title=EVIL)
    assert "img" not in Tags((tmp_path / "page.html").read_text()).tags


def test_what_is_no_number_is_nothing(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    write([{**rows[0], "max_error": float("nan")}], tmp_path / "page.html")
    shown = json.loads(Tags((tmp_path / "page.html").read_text()).scripts["rows"])
    assert shown[0]["max_error"] is None


def test_the_same_rows_make_the_same_page(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    write(rows, tmp_path / "a.html")
    write(rows, tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no rows"):
        write([], tmp_path / "page.html")


def graph(*calls: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Nodes of one shape, each a name, a target and the names of its inputs."""
    return [{**NODE, "name": n, "target": t, "inputs": i.split()} for n, t, i in calls]


def test_equal_graphs_differ_in_nothing() -> None:
    a = graph(("x", "placeholder", ""), ("r", "relu", "x"), ("s", "add", "r x"))
    b = graph(("x", "placeholder", ""), ("q", "relu", "x"), ("t", "add", "q x"))
    assert changed(a, b) == ([], [])


def test_what_is_replaced_in_the_middle_is_all_that_changed() -> None:
    a = graph(("x", "placeholder", ""), ("e", "exp", "x"), ("l", "log", "e"), ("s", "sin", "l"))
    b = graph(("x", "placeholder", ""), ("n", "neg", "x"), ("s", "sin", "n"))
    assert changed(a, b) == (["e", "l"], ["n"])


def test_a_node_between_changes_keeps_its_counterpart() -> None:
    x = ("x", "placeholder", "")
    a = graph(x, ("e", "exp", "x"), ("a", "add", "e x"), ("l", "log", "a"))
    b = graph(x, ("n", "neg", "x"), ("b", "add", "n x"), ("s", "sin", "b"))
    assert changed(a, b) == (["e", "l"], ["n", "s"])


def test_a_call_done_once_more_is_new() -> None:
    a = graph(("x", "placeholder", ""), ("r", "relu", "x"))
    b = graph(("x", "placeholder", ""), ("r", "relu", "x"), ("q", "relu", "x"))
    assert changed(a, b) == ([], ["q"])


def found(search: str = "saturation", cache: bool = False) -> Found:
    """What a search of a program that becomes one call of attention shows."""
    module, args = sample_rows.programs.PROGRAMS["t5_attention"].build()
    seen: list[Found] = []
    eqsat.optimize(module, args, search=search, check=False, cache=cache, observe=seen.append)
    (only,) = seen
    return only


@pytest.fixture(scope="module")
def attention() -> Found:
    return found()


def test_the_chosen_enodes_are_those_of_the_result(attention: Found) -> None:
    assert attention.winner is not None
    shown = egraph(attention)["classes"]
    chosen = [node for cls in shown for node in cls["nodes"] if node["chosen"]]
    choices = attention.ground.priced(True, FUSED_SHARE)
    choice = attention.winner.selection.choice
    assert len(chosen) == int(np.sum(choice >= 0))
    assert sum(n["cost"] for n in chosen) == pytest.approx(dag_cost(choices.egraph, choice))
    assert any(node["op"].startswith("attention") for node in chosen)
    assert any(node["op"].startswith("softmax") for cls in shown for node in cls["nodes"])


def test_every_operand_is_a_class_of_the_egraph(attention: Found) -> None:
    shown = egraph(attention)["classes"]
    ids = {cls["id"] for cls in shown}
    assert {child for cls in shown for node in cls["nodes"] for child in node["children"]} <= ids
    assert any(cls["root"] for cls in shown)
    assert any("matmul" in cls["names"] for cls in shown)


def test_a_bounded_egraph_has_what_was_chosen_first(attention: Found) -> None:
    whole = egraph(attention)["classes"]
    part = egraph(attention, limit=6)["classes"]
    assert sum(len(cls["nodes"]) for cls in part) == 6
    assert [cls["id"] for cls in part] == [cls["id"] for cls in whole][: len(part)]
    assert sum(len(c["nodes"]) + c["left_out"] for c in part) == sum(
        len(c["nodes"]) for c in whole[: len(part)]
    )
    assert all(cls["nodes"][0]["chosen"] for cls in part)


def test_the_egraph_of_a_program_that_stays_shows_the_program() -> None:
    seen: list[Found] = []
    x = torch.randn(4, 4)
    eqsat.optimize(torch.nn.ReLU().eval(), (x,), check=False, observe=seen.append)
    (nodes,) = [cls["nodes"] for cls in egraph(seen[0])["classes"] if cls["root"]]
    assert seen[0].winner is None
    assert [node["op"] for node in nodes if node["chosen"]] == ["relu"]


def test_an_observed_search_is_not_taken_from_the_cache() -> None:
    assert found(cache=True).winner is not None
    assert found(cache=True).winner is not None


def test_a_greedy_search_can_be_observed() -> None:
    shown = egraph(found("greedy"))["classes"]
    assert any(node["chosen"] for cls in shown for node in cls["nodes"])


def test_the_figures_are_drawn(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    results, out = tmp_path / "results.jsonl", tmp_path / "figures"
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = Path(__file__).parents[1] / "benchmarks" / "plots.py"
    subprocess.run([sys.executable, script, results, "-o", out], check=True)
    names = ("speedup", "optimizer", "size", "growth", "measured", "extractors")
    assert {path.name for path in out.iterdir()} == {
        f"{n}.{e}" for n in names for e in ("pdf", "svg")
    }
    assert "vit_attention" in (out / "speedup.svg").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium, where there is one."""
    api = pytest.importorskip("playwright.sync_api", reason=NO_BROWSER)
    named = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, named)), None)
    if path is None:
        pytest.skip(NO_BROWSER)
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser: Any, page: Path) -> Iterator[Any]:
    """The page, opened at a given width; any message of the console fails the test."""
    heard: list[str] = []
    size = {"width": 1280, "height": 900}
    tab = browser.new_page(viewport=size, color_scheme="light", reduced_motion="reduce")
    tab.on("console", lambda message: heard.append(message.text))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("dialog", lambda dialog: (heard.append("dialog"), dialog.dismiss()))
    tab.goto(page.as_uri())
    shown(tab, "t5_attention")
    yield tab
    tab.close()
    assert heard == []


def shown(tab: Any, entry: str) -> None:
    """Pick a program and wait until it is drawn."""
    row = tab.locator("#entries tbody tr").filter(has=tab.get_by_role("button", name=entry))
    row.first.click()
    tab.wait_for_function("e => document.querySelector('#program').dataset.ready === e", arg=entry)


def laid_out(tab: Any, which: str) -> int:
    """How many nodes a graph of the page shows."""
    return tab.evaluate(
        "w => document.querySelector(`[data-graph=${w}]`).graph.nodes(':childless').length", which
    )


def test_the_graphs_are_drawn(tab: Any, rows: list[dict[str, Any]]) -> None:
    row = next(r for r in rows if (r["entry"], r["arm"]) == ("t5_attention", "saturation"))
    assert laid_out(tab, "only-before") == len(row["graph_before"]["nodes"])
    assert laid_out(tab, "only-after") == len(row["graph_after"]["nodes"])
    new = "document.querySelector('[data-graph=only-after]').graph.nodes('.only-after').length"
    assert tab.evaluate(new) > 0
    inked = """() => [...document.querySelectorAll('[data-graph=only-after] canvas')].some(c =>
        c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v))"""
    tab.wait_for_function(inked)


def test_a_click_on_an_eclass_shows_its_enodes(tab: Any, rows: list[dict[str, Any]]) -> None:
    row = next(r for r in rows if (r["entry"], r["arm"]) == ("t5_attention", "saturation"))
    cls = next(c for c in row["egraph"]["classes"] if "softmax" in c["names"])
    pane = "document.querySelector('[data-graph=egraph]')"
    tab.evaluate(f"{pane}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    frames = "() => new Promise(done => setTimeout(() => requestAnimationFrame(done), 300))"
    tab.evaluate(frames)  # until the graph has heard that it was moved
    place = f"""id => {{ const box = {pane}.getBoundingClientRect();
        const at = {pane}.graph.getElementById(id).renderedPosition();
        return [box.x + at.x, box.y + at.y]; }}"""
    tab.mouse.click(*tab.evaluate(place, str(cls["id"])))
    tab.get_by_role("heading", name=f"E-class #{cls['id']}").wait_for()
    lines = tab.locator(".enodes tbody tr")
    assert lines.count() == len(cls["nodes"])
    assert lines.locator("code").all_inner_texts() == [node["op"] for node in cls["nodes"]]
    chosen = [node["op"] for node in cls["nodes"] if node["chosen"]]
    assert tab.locator(".enodes tr.chosen code").all_inner_texts() == chosen


def test_a_node_of_the_program_leads_to_its_class(tab: Any) -> None:
    graph = "document.querySelector('[data-graph=only-before]').graph"
    tab.evaluate(f"void {graph}.getElementById('matmul').emit('tap')")
    tab.get_by_text("in the program matmul").wait_for()


def test_dark_follows_the_system_and_the_switch(tab: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    node = "document.querySelector('[data-graph=egraph]').graph.nodes()[0].style('color')"
    light = tab.evaluate(f"[{ground}, {node}]")
    tab.emulate_media(color_scheme="dark")
    differs = f"light => {ground} !== light[0] && {node} !== light[1]"
    tab.wait_for_function(differs, arg=light)
    tab.get_by_role("button", name="Light or dark").click()
    tab.wait_for_function(f"light => {ground} === light[0] && {node} === light[1]", arg=light)


def test_the_table_filters_and_sorts(tab: Any, rows: list[dict[str, Any]]) -> None:
    names = tab.locator("#entries tbody .name")
    tab.get_by_role("button", name="Set A").click()
    assert names.all_inner_texts() == ["vit_attention"]
    tab.locator("[data-set='']").click()
    tab.get_by_role("searchbox", name="Find a program").fill("_attention")
    times = {row["entry"]: row["predicted"] for row in rows if row["arm"] == "greedy"}
    upward = sorted(times, key=lambda entry: times[entry])
    for order in (upward, upward[::-1]):
        tab.locator("[data-sort=greedy]").click()
        assert names.all_inner_texts() == order


def test_texts_of_a_program_are_shown_as_they_are(tab: Any) -> None:
    shown(tab, EVIL)
    assert tab.locator("#program h2").inner_text() == EVIL
    assert tab.locator("img").count() == 0


def test_a_large_graph_is_shown_in_part(tab: Any) -> None:
    shown(tab, "large")
    for which in ("only-before", "only-after", "egraph"):
        assert 10 < laid_out(tab, which) <= 60


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_sticks_out_at_the_side(tab: Any, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
