"""A trial as a Python script that runs by itself."""

from __future__ import annotations

import base64
import contextlib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any  # settings are those of `optimize`

import cloudpickle

import rewrites
from eqsat.dump.case import Case
from eqsat.dump.trial import Trial
from eqsat.raw import EgglogRule
from eqsat.rewrite import Rewrite

OURS = ("eqsat", "rewrites", "extract", "torch", "numpy")
HEAD = '''"""{reason}

{about}
"""

{imports}
'''
IMPORTS = {  # by the word that needs it
    "base64.": "import base64",
    "pickle.": "import pickle",
    "HERE": "from pathlib import Path\n",
    "torch.": "import torch",
    "device(": "from torch import device",
    "inf": "from torch import inf",
    "nan": "from torch import nan",
    "eqsat.": "\nimport eqsat",
    "rewrites.": "import rewrites",
    "Limits(": "from eqsat import Limits",
    " Rewrite(": "from eqsat import Rewrite",
    "drawn(": "from eqsat.dump.value import drawn",
    "EgglogRule(": "from eqsat.raw import EgglogRule",
}
HERE = "HERE = Path(__file__).parent"
TAIL = """
result = eqsat.optimize(
    {program},
    rules=RULES,
{settings}
    margin=-inf,
    cache=False,
)
print(result.report)
"""


def script(
    trial: Trial, values: Mapping[str, str], reason: str, about: str, saved: str | None = None
) -> str:
    """The script of a trial, whose values are these expressions, some of them of a file."""
    loaded = "" if saved is None else f"VALUES = torch.load(HERE / {saved!r}, weights_only=True)\n"
    program = "Program().eval(),\n    INPUTS"
    return _whole(
        reason,
        about,
        f"{loaded}{_program(trial.case, values)}",
        program,
        trial.rules,
        trial.settings,
    )


def script_of_file(
    path: str, rules: Sequence[Rewrite], settings: Mapping[str, Any], reason: str, about: str
) -> str:
    """A script that loads the whole program from a file beside it."""
    return _whole(reason, about, "", f"torch.export.load(HERE / {path!r})", rules, settings)


def _whole(
    reason: str,
    about: str,
    program: str,
    called: str,
    rules: Sequence[Rewrite],
    settings: Mapping[str, Any],
) -> str:
    """The script: what it is for, what it imports, the program, the rules, and the call."""
    tail = TAIL.format(program=called, settings=_settings(settings))
    body = "\n".join(part for part in (program, _rules(rules), tail) if part)
    if "HERE" in body:
        body = f"{HERE}\n{body}"
    imports = "\n".join(line for word, line in IMPORTS.items() if word in body)
    return HEAD.format(reason=_quoted(reason), about=about, imports=imports) + body


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")


def _program(case: Case, values: Mapping[str, str]) -> str:
    """The class of the program, with its weights, and its inputs."""
    module, _ = case.module()
    code = re.sub(r";  \w+ = .*", "", module.graph.python_code("self").src.strip())
    names = [node.name for node in case.graph.find_nodes(op="placeholder")]
    weights = [
        f"        self.register_buffer({n!r}, {values[n]})" for n in names if n in case.weights
    ]
    body = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
    inputs = "".join(f"    {values[n]},\n" for n in names if n not in case.weights)
    lines = ["", "class Program(torch.nn.Module):", "    def __init__(self):"]
    lines += ["        super().__init__()", *weights, "", body, "", ""]
    return "\n".join([*lines, f"INPUTS = (\n{inputs})"])


def _rules(rules: Sequence[Rewrite]) -> str:
    """The rules: ours by name, those of others as they are."""
    ours = {rule.name: rule for rule in rewrites.OWN}
    lines: list[str] = []
    for rule in rules:
        if rule.name in ours and ours[rule.name].rule is rule.rule:
            lines.append(f"    DEFAULT[{rule.name!r}],")
        elif isinstance(rule, EgglogRule):
            query, left, right = rule.texts
            told = f"query={query!r}, left={left!r}, right={right!r}"
            lines.append(
                f"    EgglogRule({rule.name!r}, {told}, numerics=eqsat.{rule.numerics.name}),"
            )
        else:
            lines += [
                f"    # {rule}",
                f"    Rewrite(*pickle.loads(base64.b64decode({_pickled(rule)}))),",
            ]
    head = "DEFAULT = {rule.name: rule for rule in rewrites.DEFAULT}\nRULES = ["
    return "\n".join([head, *lines, "]"])


def _pickled(rule: Rewrite) -> str:
    """What a rule is made of, in letters; its functions with their code."""
    parts = (rule.name, rule.rule, rule.when, rule.numerics, rule.exact, rule.facts, rule.variables)
    functions = (rule.rule, rule.when, rule.exact)
    names = {getattr(function, "__module__", None) for function in functions}
    with contextlib.ExitStack() as stack:
        for name in sorted(name for name in names if name is not None):
            if name.split(".")[0] not in OURS and name in sys.modules and name != "__main__":
                cloudpickle.register_pickle_by_value(sys.modules[name])
                stack.callback(cloudpickle.unregister_pickle_by_value, sys.modules[name])
        return repr(base64.b64encode(cloudpickle.dumps(parts)).decode())


def _settings(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"    {name}={_plain(value)}," for name, value in settings.items())


def _plain(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return repr(value)
