"""The graph that Inductor makes of a program whose weights it freezes, without a GPU."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any  # the inputs of a graph are arbitrary Python values

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule

from eqsat.cost.device import Device
from eqsat.cost.inductor import nogpu
from eqsat.cost.inductor.attention import attentions_on
from eqsat.cost.inductor.truth import _is_here, _placed, _values
from eqsat.observe import first_line


class _Frozen(Exception):  # noqa: N818 - it is no error
    """Ends a compilation once the weights are frozen."""


def frozen(
    program: ExportedProgram, device: Device, constants: Collection[str]
) -> tuple[GraphModule, list[Any]]:
    """Returns what `torch._inductor.config.freezing` makes of `program`, and its inputs.

    `constants` are the placeholders (by name) that never change. What is computed of them alone is
    an attribute of the graph, the weights of products that share an input are merged, and norms and
    factors are folded into convolutions, as Inductor does it. Attributes and inputs are fake
    tensors: `eqsat.cost.inductor.kernels` takes both. No weight is packed for a CPU's libraries.

    Raises ValueError for a program that Inductor cannot freeze for the device.
    """
    place = torch.device("cpu") if device.backend == "cpp" else torch.device("cuda", 0)
    pretended = place.type == "cuda" and not _is_here(device)
    here: AbstractContextManager[None] = nogpu.pretend(device) if pretended else nullcontext()
    given = program.graph_module
    with here:
        try:
            stand_ins = attentions_on(device) if pretended else {}
            module, fakes = _placed(given, _values(given, None), place, stand_ins)
            return _freeze(module, _held(module, fakes, constants))
        except Exception as error:
            raise ValueError(
                f"Inductor cannot freeze the program for {device.name!r}: {first_line(error)}"
            ) from error


def _held(module: GraphModule, fakes: Sequence[Any], constants: Collection[str]) -> list[Any]:
    """Turns constants from placeholders into attributes; what is left of the inputs."""
    inputs = list[Any]()
    for node, fake in zip(module.graph.find_nodes(op="placeholder"), fakes, strict=True):
        if node.name not in constants or not isinstance(fake, Tensor):
            inputs.append(fake)
            continue
        name = f"weight_{node.name}"
        module.register_buffer(name, fake)
        with module.graph.inserting_before(node):
            held = module.graph.get_attr(name)
        node.replace_all_uses_with(held)
        module.graph.erase_node(node)
    module.recompile()
    return inputs


def _freeze(module: GraphModule, inputs: list[Any]) -> tuple[GraphModule, list[Any]]:
    """Lets Inductor compile the module until its weights are frozen."""
    import torch._functorch.config as functorch
    import torch._inductor.config as config
    from torch._inductor.compile_fx import compile_fx

    found: list[tuple[GraphModule, list[Any]]] = []

    def stop(graph: GraphModule, values: Sequence[Any], **_: Any) -> Any:
        found.append((graph, list(values)))
        raise _Frozen

    patches: dict[str, Any] = {"freezing": True, "fx_graph_cache": False, "compile_threads": 1}
    patches["cpp.weight_prepack"] = False  # it computes on the weights, which are fake
    try:
        with (
            config.patch(patches),
            functorch.patch(enable_autograd_cache=False),
            _strides_of_fakes(),
            torch.no_grad(),
        ):
            compile_fx(module, inputs, inner_compile=stop)
    except Exception:
        if not found:  # torch wraps whatever is raised inside
            raise
    return found[0]


@contextmanager
def _strides_of_fakes() -> Generator[None]:
    """While it lasts, a fake tensor on a GPU that is not there can be given other strides.

    Inductor's own function copies it in place, which initializes CUDA.
    """
    from torch._inductor import inductor_prims

    prim: Any = inductor_prims.force_stride_order
    original = prim.prim_meta_impl

    def meta(x: Tensor, stride: Sequence[int]) -> Tensor:
        return torch.empty_strided(tuple(x.shape), tuple(stride), dtype=x.dtype, device=x.device)

    prim.prim_meta_impl = meta
    try:
        yield
    finally:
        prim.prim_meta_impl = original
