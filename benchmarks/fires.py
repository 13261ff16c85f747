"""Which rules fire in which small program of `tests/programs`; with --write, each gets a witness.

A rule keeps the program that claims it as long as it fires there; else it gets the one in which the
fewest rules fire, of whole ideas before odds and ends (`elementwise.py`). Each program gets a rule.
"""

from __future__ import annotations

import re
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch

import eqsat
import rewrites

PLACE = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(PLACE))

from programs import PROGRAMS, Program  # noqa: E402


def fired(program: Program) -> set[str]:
    """The rules that unite something in the e-graph of a program."""
    module, inputs = program.build()
    with torch.no_grad():
        report = eqsat.optimize(
            module, inputs, numerics=program.numerics, check=False, time_limit=0.5
        ).report
    found = report.saturation
    return set() if found is None else {rule.name for rule in found.rules if rule.admitted}


def witnesses(fires: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """The rules that each program is the witness of, in the order of the default set."""
    names = [rule.name for rule in rewrites.DEFAULT]
    given = {rule: name for name, p in PROGRAMS.items() for rule in p.rules}
    order = sorted(PROGRAMS, key=lambda name: (_odd(PROGRAMS[name]), len(fires[name])))
    owner: dict[str, str] = {}
    for rule in names:
        able = [given[rule]] if rule in given and rule in fires[given[rule]] else []
        able += [name for name in order if rule in fires[name]]
        if able:
            owner[rule] = able[0]
        else:
            print(f"{rule} fires in no program")
    for name in PROGRAMS:
        if name not in owner.values():
            claims = Counter(owner.values())
            owner[max(sorted(fires[name] & set(owner)), key=lambda rule: claims[owner[rule]])] = (
                name
            )
    return {name: [rule for rule in names if owner.get(rule) == name] for name in PROGRAMS}


def _odd(program: Program) -> bool:
    return program.source.__module__.endswith("elementwise")


def written(text: str, claims: Mapping[str, list[str]]) -> str:
    """The source of programs with their claims above them."""
    text = re.sub(r"^@fires\((?:\n.*?\n)?.*?\)\n(?=@program)", "", text, flags=re.M | re.S)

    def claimed(found: re.Match[str]) -> str:
        lines = textwrap.wrap(
            " ".join(claims[found[2]]), 86, break_on_hyphens=False, break_long_words=False
        )
        quoted = "".join(f'    "{line}",\n' for line in lines)
        return (f"@fires(\n{quoted})\n" if lines else "") + found[0]

    pattern = r"^(@program\((?:(?!^@).)*?\)\n(?:def|class) (\w+))"
    return re.sub(pattern, claimed, text, flags=re.M | re.S)


def main() -> None:
    warnings.filterwarnings("ignore")
    fires = {name: fired(program) for name, program in PROGRAMS.items()}
    claims = witnesses(fires)
    for name, rules in claims.items():
        print(f"{name}: {len(fires[name])} fire, {len(rules)} claimed")
    if "--write" in sys.argv[1:]:
        for path in sorted((PLACE / "programs").glob("*.py")):
            if "@program(" in (text := path.read_text()):
                path.write_text(written(text, claims))


if __name__ == "__main__":
    main()
