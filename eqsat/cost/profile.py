"""The profile of a device: its figures with unit and source, as a TOML file holds them."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from eqsat.cost.figure import FIGURES, TABLES

SCHEMA = 1
BACKENDS = ("triton", "cpp")
TOP_LEVEL = ("schema", "name", "description", "backend", "match", "unconfirmed", "fit", "source")


HEADER = (
    "Dense peaks in TFLOP/s (TOP/s for int8), `efficiency` of them in a large matrix product;",
    "memory in GB/s and MiB, `dram_efficiency` of it in a long copy; launch in microseconds.",
    "A figure's source stands under [source]; those under `unconfirmed` are priors, or their",
    "sources disagree. `eqsat tune --show NAME` lists them all.",
)


@dataclass(frozen=True)
class ClassFit:
    """How well one class of measurements is fitted; an error of 1.2 is off by a fifth."""

    n: int
    error: float
    """Geometric mean of predicted to measured or its inverse, whichever is above 1."""
    heldout: float
    """The same for measurements that took no part in the fit."""


@dataclass(frozen=True)
class Fit:
    """When and on how many measurements a profile was fitted, and how well."""

    date: str
    torch: str
    measurements: int
    error: float
    heldout: float
    classes: Mapping[str, ClassFit] = field(hash=False)


@dataclass(frozen=True)
class Profile:
    """What a profile file says. Figures and sources go by "table.key" (`FIGURES`)."""

    name: str
    figures: Mapping[str, float] = field(hash=False)
    description: str = ""
    backend: str = "triton"
    match: tuple[str, ...] = ()
    """What `torch.cuda.get_device_name()` says of such a device."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    unconfirmed: tuple[str, ...] = ()
    """Keys of the figures that no datasheet or measurement confirms."""
    fit: Fit | None = None


def known() -> tuple[str, ...]:
    """The names of the profiles that come with the package, in alphabetical order."""
    folder = files("eqsat.cost") / "devices"
    names = (item.name for item in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def find(name: str | os.PathLike[str]) -> Profile:
    """The profile with this name, of this `torch.cuda.get_device_name()`, or in this TOML file.

    Raises ValueError for a name that no profile has, and for a malformed file.
    """
    if not isinstance(name, str) or name.endswith(".toml") or os.sep in name:
        return _read(Path(name))
    wanted = name.strip().lower()
    names = known()
    if wanted in names:
        return _shipped(wanted)
    for profile in map(_shipped, names):
        if wanted in (text.lower() for text in profile.match):
            return profile
    raise ValueError(
        f"no device profile is called {name!r}: known are {', '.join(names)}; for another device "
        "give the path of a .toml file made after one of these"
    )


def parse(text: str, file: str) -> Profile:
    """The profile that TOML `text` describes; `file` is its name in an error.

    Raises ValueError that names the file and the key at fault.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{file}: not TOML: {error}") from error
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{file}: `schema` must be {SCHEMA}, not {data.get('schema')!r}")
    for key in data:
        if key not in TOP_LEVEL + TABLES:
            listed = ", ".join(sorted(TOP_LEVEL + TABLES))
            raise ValueError(f"{file}: unknown key `{key}`; known are {listed}")
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{file}: `name` must be a text, not {name!r}")
    backend = data.get("backend", "triton")
    if backend not in BACKENDS:
        raise ValueError(f"{file}: `backend` must be one of {', '.join(BACKENDS)}, not {backend!r}")
    return Profile(
        name=name,
        figures=_figures(data, file),
        description=str(data.get("description", "")),
        backend=backend,
        match=_texts(data, "match", file),
        sources=_sources(data, file),
        unconfirmed=_keys(_texts(data, "unconfirmed", file), "unconfirmed", file),
        fit=_fit(data["fit"], file) if "fit" in data else None,
    )


def render(profile: Profile) -> str:
    """The text of the TOML file of a profile: `parse` gives the profile back."""
    lines = [
        *[f"# {line}" for line in HEADER],
        f"schema = {SCHEMA}",
        f"name = {_quoted(profile.name)}",
        *([f"description = {_quoted(profile.description)}"] if profile.description else []),
        f"backend = {_quoted(profile.backend)}",
        f"match = [{', '.join(map(_quoted, profile.match))}]",
        "unconfirmed = [",
        *[f"    {_quoted(key)}," for key in profile.unconfirmed],
        "]",
    ]
    for table in TABLES:
        keys = [key for key in FIGURES if key.startswith(f"{table}.") and key in profile.figures]
        if keys:
            lines += ["", f"[{table}]"]
            lines += [f"{key.partition('.')[2]} = {_number(profile, key)}" for key in keys]
    if profile.fit is not None:
        lines += _rendered_fit(profile.fit)
    if profile.sources:
        lines += ["", "[source]"]
        lines += [f"{k} = {_quoted(profile.sources[k])}" for k in FIGURES if k in profile.sources]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a TOML string


def _number(profile: Profile, key: str) -> str:
    value = profile.figures[key]
    return str(int(value)) if FIGURES[key].whole else repr(float(value))


def _rendered_fit(fit: Fit) -> list[str]:
    return [
        "",
        "[fit]",
        f"date = {_quoted(fit.date)}",
        f"torch = {_quoted(fit.torch)}",
        f"measurements = {fit.measurements}",
        f"error = {fit.error}",
        f"heldout = {fit.heldout}",
        "",
        "[fit.classes]",
        *[
            f"{_quoted(name)} = {{ n = {c.n}, error = {c.error}, heldout = {c.heldout} }}"
            for name, c in fit.classes.items()
        ],
    ]


def _shipped(name: str) -> Profile:
    text = (files("eqsat.cost") / "devices" / f"{name}.toml").read_text("utf-8")
    return parse(text, f"{name}.toml")


def _read(path: Path) -> Profile:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the device profile {str(path)!r}: {error}") from error
    return parse(text, str(path))


def _figures(data: Mapping[str, Any], file: str) -> dict[str, float]:
    """Every figure of the file by "table.key", each a positive finite number."""
    figures: dict[str, float] = {}
    for table in TABLES:
        keys = [figure for key, figure in FIGURES.items() if key.startswith(f"{table}.")]
        required = any(figure.required for figure in keys)
        values = _table(data.get(table, None if required else {}), table, file)
        for key, value in values.items():
            figures[f"{table}.{key}"] = _figure(f"{table}.{key}", value, file)
        for figure in keys:
            if figure.required and figure.key not in figures:
                raise ValueError(f"{file}: `{figure.key}` is missing")
    return figures


def _figure(key: str, value: object, file: str) -> float:
    if key not in FIGURES:
        table = key.partition(".")[0]
        listed = ", ".join(k.partition(".")[2] for k in FIGURES if k.startswith(f"{table}."))
        raise ValueError(f"{file}: unknown key `{key}`; known are {listed}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{file}: `{key}` must be a number, not {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{file}: `{key}` must be positive and finite, not {value}")
    if FIGURES[key].share and value > 1:
        raise ValueError(f"{file}: `{key}` must be at most 1, not {value}")
    if FIGURES[key].whole and not float(value).is_integer():
        raise ValueError(f"{file}: `{key}` must be a whole number, not {value}")
    return float(value)


def _table(value: object, key: str, file: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{file}: `{key}` must be a table, not {value!r}")
    return cast("dict[str, Any]", value)


def _texts(data: Mapping[str, Any], key: str, file: str) -> tuple[str, ...]:
    values = data.get(key, [])
    if not isinstance(values, list) or not all(
        isinstance(v, str) for v in cast("list[Any]", values)
    ):
        raise ValueError(f"{file}: `{key}` must be a list of texts, not {values!r}")
    return tuple(cast("list[str]", values))


def _keys(keys: tuple[str, ...], where: str, file: str) -> tuple[str, ...]:
    for key in keys:
        if key not in FIGURES:
            raise ValueError(f"{file}: `{where}` names {key!r}, which is no figure")
    return keys


def _sources(data: Mapping[str, Any], file: str) -> dict[str, str]:
    sources: dict[str, str] = {}
    for table, texts in _table(data.get("source", {}), "source", file).items():
        for key, text in _table(texts, f"source.{table}", file).items():
            sources[f"{table}.{key}"] = str(text)
    _keys(tuple(sources), "source", file)
    return sources


def _fit(data: object, file: str) -> Fit:
    fields = _table(data, "fit", file)
    try:
        classes = {
            str(name): ClassFit(int(c["n"]), float(c["error"]), float(c["heldout"]))
            for name, c in fields["classes"].items()
        }
        return Fit(
            str(fields["date"]),
            str(fields["torch"]),
            int(fields["measurements"]),
            float(fields["error"]),
            float(fields["heldout"]),
            classes,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file}: `fit` needs date, torch, measurements, error, heldout and classes, each with "
            f"n, error and heldout; {error!r} is wrong"
        ) from error
