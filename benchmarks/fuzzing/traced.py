"""Programs side by side in one graph: traced together they cost a fraction of an export of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import CodeGen

from .source import NAMES, Source

aten = torch.ops.aten


def _batch_norm(x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, *rest: Any) -> Any:
    """Batch norm with fixed statistics, which writes none: as capturing a program makes it."""
    momentum, eps, _ = rest
    if training or mean is None:
        return NotImplemented
    return aten._native_batch_norm_legit_no_training.default(x, w, b, mean, var, momentum, eps)[0]


DECOMPOSED = {aten.batch_norm.default: _batch_norm}


@dataclass(frozen=True)
class Traced:
    """Programs that share nothing, as one ATen graph.

    `leaves` are what its placeholders stand for, in their order; `constants` those that never
    change, by placeholder.
    """

    sources: tuple[Source, ...]
    module: GraphModule
    leaves: tuple[Tensor, ...]
    constants: Mapping[str, Tensor]
    mode: FakeTensorMode

    @property
    def graph(self) -> Graph:
        """The graph of all programs."""
        return self.module.graph


def together(sources: Sequence[Source]) -> Traced | None:
    """Those of the programs that torch traces, in one graph; None where it traces none.

    They must not write.
    """
    values = [source.leaf_values() for source in sources]
    codes = [[compile(step.text, step.name, "exec") for step in s.steps] for s in sources]
    good: list[Source] = []

    def forward(leaves: list[Tensor]) -> list[Tensor]:
        rest = iter(leaves)
        returned: list[Tensor] = []
        for source, code in zip(sources, codes, strict=True):
            names: dict[str, Any] = {**NAMES, **{leaf.name: next(rest) for leaf in source.leaves}}
            try:
                for statement in code:
                    exec(statement, names)
            except Exception:  # noqa: BLE001 - what torch does not trace is not our subject
                continue
            good.append(source)
            returned += [names[name] for name in source.outputs]
        return returned

    leaves = [value for program in values for value in program.values()]
    with torch.no_grad():
        module = make_fx(forward, DECOMPOSED, "fake", pre_dispatch=True)(leaves)
    if not good:
        return None
    module.graph.eliminate_dead_code()  # what stopped on its way among it
    module.graph.set_codegen(CodeGen())  # placeholders are called one by one, not as a list
    module.recompile()
    places = module.graph.find_nodes(op="placeholder")
    kinds = [leaf.kind for source in sources for leaf in source.leaves]
    fixed = zip(places, leaves, kinds, strict=True)
    metas = [node.meta.get("val") for node in module.graph.nodes]
    mode = detect_fake_mode([value for value in metas if isinstance(value, Tensor)])
    return Traced(
        sources=tuple(good),
        module=module,
        leaves=tuple(leaves),
        constants={node.name: value for node, value, kind in fixed if kind != "input"},
        mode=mode if mode is not None else FakeTensorMode(),
    )
