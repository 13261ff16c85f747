"""Result rows, with style, scripts and a library that lays out graphs, in one HTML file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from eqsat.compare.interval import PLACES
from eqsat.page.changed import changed
from eqsat.replacing import replacing

FILES = resources.files("eqsat.page")
VENDOR = ("cytoscape.min.js", "cytoscape-dagre.min.js")
"""Libraries in `vendor/`, whose README says where they are from."""
LICENCES = ("cytoscape", "cytoscape-dagre", "dagre")
SCRIPTS = ("dom", "data", "headline", "entries", "charts", "kernels", "graphs", "classes", "main")
"""Scripts in `script/`, each with what the later ones call."""
HEAVY = ("kernel_list", "graph_before", "graph_after", "egraph")
"""The keys of a row that are read only when its program is shown."""

Row = Mapping[str, Any]


def write(rows: Sequence[Row], path: str | Path, title: str = "eqsat: the comparison") -> None:
    """Write one HTML file that shows result rows, as `eqsat compare` makes them, without a network.

    Raises ValueError where there is no row.
    """
    if not rows:
        raise ValueError("no rows: a page shows at least one result")
    with replacing(Path(path)) as part:
        part.write_text(page(rows, title), encoding="utf-8")


def page(rows: Sequence[Row], title: str) -> str:
    """The text of the page."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}  # steps stay in their order
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["entry"], row["size"]), []).append(row)
    licences = (f"/*!\n{_read('vendor', f'{name}.LICENSE').strip()}\n*/" for name in LICENCES)
    libraries = (_read("vendor", name) for name in VENDOR)
    script = "\n".join([*licences, *libraries, _program(), ""])
    return environment.from_string(_read("page.html")).render(
        title=title,
        style=Markup(_read("page.css")),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        summary=_plain([_summary(row) for row in rows]),
        details=[_packed(_details(group)) for group in groups.values()],
        groups=[list(key) for key in groups],
    )


def _program() -> str:
    """Our scripts, as one function whose names nothing else sees."""
    parts = "\n".join(_read("script", f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\nconst PLACES = {PLACES};\n{parts}\n}})();'


def _read(*place: str) -> str:
    return FILES.joinpath(*place).read_text(encoding="utf-8")


def _summary(row: Row) -> dict[str, Any]:
    """A row without what is large."""
    return {key: value for key, value in row.items() if key not in HEAVY}


def _details(group: Sequence[Row]) -> dict[str, Any]:
    """What is large in the rows of one program, equal parts once; what differs in the graphs."""
    parts: dict[str, int] = {}
    runs: list[dict[str, Any]] = []
    for row in group:
        before, after = row["graph_before"], row["graph_after"]
        only: list[list[str]] = [[], []]
        if before is not None and after is not None:
            only = list(changed(before["nodes"], after["nodes"]))
        held = {key: row[key] for key in HEAVY} | {"only_before": only[0], "only_after": only[1]}
        texts = {key: json.dumps(_plain(value)) for key, value in held.items()}
        run = {key: parts.setdefault(text, len(parts)) for key, text in texts.items()}
        runs.append({key: row[key] for key in ("arm", "profile", "seed")} | run)
    return {"parts": [json.loads(text) for text in parts], "runs": runs}


def _packed(value: Any) -> str:
    """A value as JSON, compressed, in letters."""
    text = json.dumps(value, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _plain(value: Any) -> Any:
    """The value as JSON takes it: infinities and NaN are nothing."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
