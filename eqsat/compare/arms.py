"""What each arm makes of a program: the row of the result file."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any  # JSON

import torch
from torch import Tensor
from torch._inductor import config
from torch.export import ExportedProgram
from torch.fx import Graph, Node

import eqsat
import rewrites
from eqsat.capture import capture
from eqsat.check import check
from eqsat.choose import Found
from eqsat.compare.lowering import Lowered, eager, lowered, modelled
from eqsat.compare.program import Program, Source, Subject, subject
from eqsat.compare.task import (
    BOTH,
    EAGER,
    FROZEN,
    PATCHES,
    SATURATION,
    SEARCHES,
    SHARING,
    STOCK,
    Options,
    Task,
    blank,
)
from eqsat.cost.model import CostModel
from eqsat.hint import hint
from eqsat.observe import first_line
from eqsat.page.classes import LIMIT, egraph
from eqsat.report import Report
from eqsat.rewrite import Rewrite
from eqsat.saturate import Saturation
from eqsat.settings import ALWAYS

Row = dict[str, Any]


def row(task: Task, options: Options) -> Row:
    """The row of a task; what goes wrong is its `error`."""
    found = blank(task, options)
    try:
        of = subject(task.source)
        found |= {"set": of.set, "about": of.about}
        program = built(task.source, task.size, task.seed)
        cost = priced(task, options)
        if task.arm in SEARCHES:
            found |= _ours(task, of, program, cost, options)
        else:
            found |= _theirs(task, cost)
    except Exception as error:  # noqa: BLE001 - one program may break while the others are compared
        found["error"] = (
            " ".join(str(error).split()) if isinstance(error, ValueError) else first_line(error)
        )
    return found


def priced(task: Task, options: Options) -> CostModel:
    """What prices the programs of an arm: its device, under the settings that it compiles with."""
    with config.patch(PATCHES.get(task.arm, {})):
        return CostModel.of(task.profile, options.launch())


@lru_cache(maxsize=1)
def built(source: Source, size: str, seed: int) -> Program:
    """The program, built once for the arms that follow one another."""
    torch.manual_seed(seed)
    return subject(source).build(size)


@lru_cache(maxsize=1)
def captured(source: Source, size: str, seed: int) -> ExportedProgram:
    """The program as a functional graph, captured once, too."""
    program = built(source, size, seed)
    found = capture(program.given, program.args, program.kwargs)
    if found.blocked is not None:
        raise ValueError(found.blocked)
    return found.program


def searched(task: Task, options: Options) -> tuple[eqsat.Result, list[Found]]:
    """The result of an arm that is ours, and what saturation chose it from.

    Searched once for arms that follow one another and only compile it otherwise.
    """
    cost = priced(task, options)
    return _searched(replace(task, arm=SATURATION) if task.arm == FROZEN else task, options, cost)


@lru_cache(maxsize=1)
def _searched(task: Task, options: Options, cost: CostModel) -> tuple[eqsat.Result, list[Found]]:
    seen = list[Found]()
    told: dict[str, Any] = (
        {"observe": seen.append, "explain": options.explain} if task.arm == SATURATION else {}
    )
    return _optimized(task, options, cost, **told), seen


def _optimized(task: Task, options: Options, cost: CostModel, **others: Any) -> eqsat.Result:
    """The result of one of our searches; rules, cost, limits and check are those of every other.

    But for what `others` say, which are arguments of `eqsat.optimize`.
    """
    program = built(task.source, task.size, task.seed)
    settings: dict[str, Any] = {
        "rules": rules(task.arm),
        "device": cost.device,
        "mode": cost.mode,
        "numerics": options.numerics,
        "extractor": options.extractor,
        "limits": options.limits,
        "time_limit": options.time_limit,
        "margin": options.margin,
        "check": options.check,
        "search": SEARCHES[task.arm],
        "cache": False,
    }
    return eqsat.optimize(program.given, program.args, program.kwargs, **settings | others)


def rules(arm: str) -> tuple[Rewrite, ...]:
    """The rules of an arm: none to share only, or the default ones, in the last Inductor's too."""
    if arm == SHARING:
        return ()
    return tuple(rewrites.DEFAULT + rewrites.inductor() if arm == BOTH else rewrites.DEFAULT)


def _theirs(task: Task, cost: CostModel) -> Row:
    """The row of an arm that runs the program as it is given."""
    given = captured(task.source, task.size, task.seed)
    found = eager(given, cost) if task.arm == EAGER else lowered(given, cost, PATCHES[task.arm])
    ours = found.graph is given.graph  # whose nodes the kernels name
    return _costs(found) | {
        "modelled": modelled(given, cost).times.seconds if task.arm == STOCK else None,
        "unfused": eager(given, cost).times.seconds if task.arm in (EAGER, STOCK) else None,
        "graph_before": nodes(given.graph, found if ours else None),
        "graph_after": nodes(found.graph, found),
    }


def _ours(task: Task, of: Subject, program: Program, cost: CostModel, options: Options) -> Row:
    """The row of one of our searches."""
    result, seen = searched(task, options)
    report = result.report
    given = captured(task.source, task.size, task.seed)
    after = given if report.kept is not None else result.program
    found = lowered(after, cost, PATCHES.get(task.arm))
    shown: Row = _costs(found) | _search(report) | {
        "modelled": modelled(after, cost).times.seconds,
        "unfused": eager(after, cost).times.seconds,
        "expected": [{"text": e.text, "found": bool(e.found(result))} for e in of.expected],
        "graph_before": nodes(given.graph, None),
        "graph_after": nodes(found.graph, found),
    }  # fmt: skip
    if options.check:
        probes = ("example",)
        compared = check(program.module, result.module, program.args, program.kwargs, probes=probes)
        shown["max_error"] = _number(compared.max_error)
        if not compared.passed:
            shown["error"] = f"differs from eager: {compared.probes[0].difference}"
    if task.arm == FROZEN:  # the row of `saturation` has the rest
        return shown
    if seen and report.saturation is not None and report.saturation.enodes <= LIMIT:
        shown["egraph"] = egraph(seen[0])
    if report.rules:
        saved = _saved(task, options, cost, report)
        shown["rules"] = [one | {"saved": saved.get(one["name"])} for one in shown["rules"]]
    return shown


def _saved(task: Task, options: Options, cost: CostModel, report: Report) -> dict[str, float]:
    """Seconds that each rule saves, added after those that the result needs before it."""
    assert report.rules is not None
    assert report.before is not None
    saved, best = dict[str, float](), report.before.seconds
    allowed = {rule.name: rule for rule in rules(task.arm)}
    for count, name in enumerate(report.rules, 1):
        some = [allowed[known] for known in report.rules[:count]]
        result = _optimized(task, options, cost, rules=some, check=False, margin=ALWAYS)
        after = result.report.after
        seconds = best if after is None else min(best, after.seconds)
        saved[name], best = best - seconds, seconds
    return saved


def _costs(found: Lowered) -> Row:
    """The kernels and what they cost."""
    each = zip(found.kernels, found.times.kernels, strict=True)
    return {
        "predicted": _number(found.times.seconds),
        "kernels": len(found.kernels),
        "bytes": sum(kernel.bytes for kernel in found.kernels),
        "flops": sum(kernel.flops for kernel in found.kernels),
        "kernel_source": found.source,
        "kernel_list": [
            {
                "kind": kernel.kind,
                "operators": list(kernel.operators),
                "seconds": _number(seconds),
                "bytes": kernel.bytes,
                "nodes": list(kernel.nodes),
            }
            for kernel, seconds in each
        ],
        "error": found.fault,
    }


def _search(report: Report) -> Row:
    """What the search did."""
    found: Row = {"optimizer": dict(report.seconds), "kept": report.kept}
    if (saturation := report.saturation) is None:
        return found
    chosen = [e for e in report.extractions if e.chosen and e.lower_bound > 0]
    fired = [rule for rule in saturation.rules if rule.matches]
    return found | {
        "enodes": saturation.enodes,
        "stop": str(saturation.stop),
        "gap": _number(chosen[0].gap) if chosen else None,
        "rules": [{"name": r.name, "matches": r.matches, "admitted": r.admitted} for r in fired],
        "iterations": _iterations(saturation),
    }


def _iterations(saturation: Saturation) -> list[Row]:
    return [{"enodes": size.enodes, "seconds": size.seconds} for size in saturation.iterations]


def nodes(graph: Graph, found: Lowered | None) -> Row:
    """A graph as names and shapes, each node with the number of the kernel that its work is in."""
    kernel = dict[str, int]()
    for number, one in enumerate(found.kernels if found is not None else ()):
        for name in one.nodes:
            kernel.setdefault(name, number)
    return {"nodes": [_node(node, kernel.get(node.name)) for node in graph.nodes]}


def _node(node: Node, kernel: int | None) -> Row:
    value = node.meta.get("val")
    tensor = value if isinstance(value, Tensor) else None
    return {
        "name": node.name,
        "target": _target(node),
        "shape": None if tensor is None else [int(n) for n in hint([*tensor.shape])],
        "dtype": None if tensor is None else str(tensor.dtype).removeprefix("torch."),
        "inputs": [operand.name for operand in node.all_input_nodes],
        "kernel": kernel,
    }


def _target(node: Node) -> str:
    """`aten.mm.default` of a call; of another node what it is."""
    if node.op != "call_function":
        return node.op
    return (
        str(node.target)
        if hasattr(node.target, "_schema")
        else getattr(node.target, "__name__", str(node.target))
    )


def _number(value: float) -> float | None:
    """The number, None where JSON has none for it."""
    return value if math.isfinite(value) else None
