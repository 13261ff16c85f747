"""The rules by theme, and how they are listed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

import rewrites
from eqsat.rewrite import Rewrite


def by_name() -> dict[str, tuple[Rewrite, ...]]:
    """The rules by theme, the themes in alphabetical order."""
    names = sorted(module.name for module in pkgutil.iter_modules(rewrites.__path__))
    modules = {name: importlib.import_module(f"rewrites.{name}") for name in names}
    found = {name: getattr(module, name.upper(), None) for name, module in modules.items()}
    return {name: rules for name, rules in found.items() if isinstance(rules, tuple)}


def of(name: str) -> tuple[Rewrite, ...]:
    """The rules of one theme; raises ValueError, with the names there are, for another."""
    known = by_name()
    if name not in known:
        raise ValueError(f"no theme is named {name!r}; there are {', '.join(known)}")
    return known[name]


def print_rules(title: str, rules: Sequence[Rewrite]) -> None:
    """Prints rules under a title, a rule a line, however long."""
    console = Console(soft_wrap=True)
    console.print(Text(f"{title} ({len(rules)})", "bold cyan"))
    width = max((len(rule.name) for rule in rules), default=0)
    for rule in rules:
        law = str(rule).removeprefix(f"{rule.name}: ")
        numerics = rule.numerics.name.lower()
        console.print(Text(f"  {rule.name:{width}}", "bold"), Text(f" {numerics:8}  {law}"), sep="")


def print_inductor() -> None:
    """Prints Inductor's own rules, and the entries that are no rule here with the reason."""
    from eqsat.inductor_rules import imported  # it loads Inductor, which nothing else needs

    found = imported()
    print_rules("inductor", found.rules)
    console = Console(soft_wrap=True)
    console.print(Text(f"the same as another ({len(found.same)})", "bold cyan"))
    for name, other in found.same.items():
        console.print(Text(f"  {name}: {other}"))
    console.print(Text(f"left out ({len(found.left_out)})", "bold cyan"))
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for entry in found.left_out:
        reasons.setdefault((entry.kind, entry.module, entry.why), []).append(entry.name)
    for (kind, module, why), names in reasons.items():
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        console.print(Text(f"  {len(names)} {kind} of {module}: {why}\n    {shown}"))
