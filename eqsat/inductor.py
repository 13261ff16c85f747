"""Inside `torch.compile`: a pass for Inductor's hooks, and a backend of its own."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.decomposition import select_decomp_table
from torch._logging._internal import register_log
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule

from eqsat.cost.device import Device, Mode
from eqsat.fingerprint import fingerprint
from eqsat.limits import Limits
from eqsat.settings import LIMITS, MARGIN, SATURATION, Settings

if TYPE_CHECKING:
    from eqsat.region import Region
    from eqsat.rewrite import Rewrite
    from extract import Extract

aten = torch.ops.aten
log = logging.getLogger(__name__)
register_log("eqsat", "eqsat")  # torch also takes the name of any package from TORCH_LOGS
HOOK = "joint_custom_pre_pass"
"""Where the backend optimizes: forward and backward in one graph, before Inductor's own rules."""
FROZEN_HOOK = "post_grad_custom_pre_pass"
"""Where it does so again if Inductor freezes weights: there they are constants."""
TIME_LIMIT = 2.0
"""Seconds of extraction: less than offline, for a person waits for the first call."""
WHOLE = frozenset(
    {
        aten.native_layer_norm.default,
        aten.native_group_norm.default,
        aten._native_batch_norm_legit_no_training.default,
        aten._softmax.default,
        aten._log_softmax.default,
        aten.gelu.default,
        aten.silu.default,
        aten.hardswish.default,
        aten.mish.default,
        aten.leaky_relu.default,
        aten.softplus.default,
        aten.native_layer_norm_backward.default,
        aten.native_group_norm_backward.default,
        aten.native_batch_norm_backward.default,
        aten._softmax_backward_data.default,
        aten._log_softmax_backward_data.default,
        aten.gelu_backward.default,
        aten.silu_backward.default,
    }
)
"""What the backend has AOTAutograd leave whole until it is optimized: rules know it so, and graphs
stay small. It is decomposed afterwards, as Inductor would have had it."""
INDUCTOR = "inductor"
"""The option of the backend that holds Inductor's own options."""


class Pass(CustomGraphPass):
    """A pass for `torch.compile(model, options={"joint_custom_pre_pass": Pass()})`.

    Any of Inductor's hooks that take ATen graphs will do: `joint_custom_pre_pass` (with gradients:
    forward and backward in one graph), `joint_custom_post_pass`, `post_grad_custom_pre_pass`,
    `post_grad_custom_post_pass`. The options are those of `eqsat.optimize`, with less time for
    extraction. No tensor is constant here, so rules that compute weights ahead do not fire; only
    the hooks after Inductor's freezing (`freezing=True`, post-grad) know the weights, and compute
    at most `fold_budget` bytes ahead. The result is not run beside the given graph: what is
    promised is what the rules promise. Where anything goes wrong the graph stays as it was, and the
    log says why (`TORCH_LOGS="+eqsat"`).

    Raises ValueError and TypeError for settings that do not exist.
    """

    def __init__(
        self,
        *,
        rules: Sequence[Rewrite] | None = None,
        device: str | Device = "h200",
        mode: Mode = "stream",
        numerics: str = "default",
        extractor: str | Extract = "auto",
        limits: Limits = LIMITS,
        time_limit: float = TIME_LIMIT,
        fold_budget: int | None = None,
        margin: float = MARGIN,
        search: str = SATURATION,
        max_memory_growth: float | None = None,
        memory_limit: int | None = None,
        isolate: bool = False,
        cache: bool = True,
    ) -> None:
        self.settings = Settings.of(
            rules=rules,
            device=device,
            mode=mode,
            numerics=numerics,
            extractor=extractor,
            limits=limits,
            time_limit=time_limit,
            fold_budget=fold_budget,
            margin=margin,
            search=search,
            memory_limit=memory_limit,
            max_memory_growth=max_memory_growth,
        )
        self.isolate = isolate
        self.cache = cache
        self.lowers = False
        self.regions: list[Region] = []
        self._uuid = fingerprint(self.settings)

    def __call__(self, graph: Graph) -> None:
        """Optimize a graph in place."""
        from eqsat.lowered import lower  # not before there is a graph that is in no cache
        from eqsat.region import improve
        from eqsat.search import fake_mode

        table = select_decomp_table()
        region = improve(
            graph,
            self.settings,
            table,
            frozen=config.freezing,
            cached=self.cache,
            isolate=self.isolate,
        )
        if self.lowers:
            lower(graph, fake_mode(graph), table)
        self.regions.append(region)
        log.info("%s", region)

    def __deepcopy__(self, memo: dict[int, Any]) -> Pass:
        """Itself: Inductor copies its options for each graph, and `regions` tells of all."""
        return self

    def uuid(self) -> str | None:
        """What Inductor's caches take this pass for: its code, rules, profile and limits.

        None, so that nothing is cached, where the code of a rule or extractor has no file, and for
        frozen graphs: Inductor's keys do not tell the values of their weights.
        """
        return None if config.freezing else self._uuid


def backend(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:  # as torch takes it from a backend
    """The backend of `torch.compile(model, backend="eqsat", options={...})`: then Inductor's.

    `options` are those of `Pass`, and "inductor" with Inductor's own. `mode` is Inductor's; where
    it replays kernels in CUDA graphs, they are priced so. Raises ValueError for an option that does
    not exist, or would do nothing.
    """
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    options = dict(options or {})
    patches = {**list_mode_options(mode or "default"), **options.pop(INDUCTOR, {})}
    known = [*inspect.signature(Pass).parameters]
    if unknown := sorted(options.keys() - {*known}):
        raise ValueError(
            f"unknown option {unknown[0]!r}; there are {', '.join([*known, INDUCTOR])}"
        )
    if patches.get("triton.cudagraphs"):
        options.setdefault("mode", "graph")
    if patches.get("freezing") and not config.freezing:
        raise ValueError(
            "the option freezing would do nothing, as Dynamo reads the setting before: "
            "set torch._inductor.config.freezing = True instead"
        )
    hooks = (HOOK, FROZEN_HOOK) if patches.get("freezing", config.freezing) else (HOOK,)
    for hook in hooks:
        if patches.get(hook, getattr(config, hook)) is not None:
            raise ValueError(f"{hook} is where the backend works: use a Pass beside yours instead")
    optimizer = Pass(**options)
    patches |= dict.fromkeys(hooks, optimizer)
    joint = patches.get("use_joint_graph_passes", config.use_joint_graph_passes)
    optimizer.lowers = joint and not _bodies(module)
    table = Decompositions.but_for_whole() if optimizer.lowers else None
    return compile_fx(module, inputs, config_patches=patches, decompositions=table)


class Decompositions(dict[OpOverload, Callable[..., Any]]):
    """A table of decompositions that Inductor's cache can tell: by how it is made."""

    @staticmethod
    def but_for_whole() -> Decompositions:
        """Inductor's own decompositions but for those of `WHOLE`."""
        table = select_decomp_table()
        return Decompositions({k: v for k, v in table.items() if k not in WHOLE})

    def __reduce__(self) -> tuple[Callable[[], Decompositions], tuple[()]]:
        return Decompositions.but_for_whole, ()


def _bodies(module: GraphModule) -> bool:
    """Whether there are bodies of control flow: not all of them come to our hook."""
    return any(isinstance(child, GraphModule) for child in module.children())
