"""The rules that torch's Inductor applies greedily: its own pattern entries, brought over when asked for."""

from __future__ import annotations

from eqsat.rewrite import RuleSet


def inductor() -> RuleSet:
    """Inductor's own rules, as registered in the torch that runs; `eqsat rules --inductor` says what is left out.

    Takes some seconds, once a process. They are not among the default rules, which say most of them in a wider form.
    """
    from eqsat.inductor_rules import imported  # it loads Inductor, which nothing else needs

    return imported().rules
