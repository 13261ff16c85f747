"""The kernels that Inductor really makes of a program, with or without the GPU they are for."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any  # the arguments and values of a graph are arbitrary Python values

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from eqsat.cost.device import Device
from eqsat.cost.inductor import nogpu
from eqsat.cost.inductor.attention import attentions_on
from eqsat.cost.inductor.schedule import kernels_of
from eqsat.cost.kernel import Kernel
from eqsat.hint import hint
from eqsat.observe import first_line


def kernels(
    program: ExportedProgram | GraphModule,
    device: Device,
    inputs: Sequence[Any] | None = None,
    *,
    pretend: bool | None = None,
) -> tuple[Kernel, ...]:
    """Returns the kernels that Inductor launches for `program` on `device`, in launch order.

    The program is decomposed, lowered, scheduled and fused as by `torch.compile`; no kernel is
    compiled and nothing is run, on the given tensors or others. `program` stays as it is. Where
    the placeholders of a GraphModule carry no `meta["val"]`, `inputs` has a value for each, real
    or fake. Symbolic sizes become their hints. The new values of mutated inputs count as outputs.

    With `pretend` Inductor is told that the GPU of the profile is there (see `nogpu`); without,
    torch must see a GPU, and the kernels are those for it. None pretends unless the GPU
    that torch sees is that of the profile. A CPU is never pretended.

    Raises ValueError for a profile that cannot be pretended, for `pretend=False` where torch sees
    no GPU, for missing inputs, and for a program that Inductor does not compile for the device.
    """
    place = torch.device("cpu") if device.backend == "cpp" else torch.device("cuda", 0)
    pretended = place.type == "cuda" and (not _is_here(device) if pretend is None else pretend)
    if place.type == "cuda" and not pretended and not torch.cuda.is_available():
        raise ValueError(
            f"torch sees no GPU, so there are no real kernels for {device.name!r}: leave "
            "pretend=None, or pass True"
        )
    given = program.graph_module if isinstance(program, ExportedProgram) else program
    values = _values(given, inputs)
    stand_ins = attentions_on(device) if pretended else {}
    here: AbstractContextManager[None] = nogpu.pretend(device) if pretended else nullcontext()
    with here:
        try:
            return _scheduled(*_placed(given, values, place, stand_ins))
        except Exception as error:  # noqa: BLE001 - torch raises many kinds
            failure = error
    changed = nogpu.missing() if pretended else ()
    why = f" (this torch is not the one that is patched: {changed[0]})" if changed else ""
    raise ValueError(
        f"Inductor cannot compile the program for {device.name!r}: {first_line(failure)}{why}"
    ) from failure


def _is_here(device: Device) -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_name() in device.match


def _placed(
    module: GraphModule,
    values: Iterator[Any],
    place: torch.device,
    stand_ins: Mapping[Any, Callable[..., Any]],
) -> tuple[GraphModule, list[Any]]:
    """A copy of the graph on `place` with a flat output, and a fake input for each placeholder.

    Tensors that are attributes become placeholders, as they do in `torch.compile`.
    """
    graph, copies, fakes = Graph(), dict[Node, Node](), list[Any]()
    mode = FakeTensorMode()
    for node in module.graph.nodes:
        held = _attribute(module, node) if node.op == "get_attr" else None
        if isinstance(held, Tensor):
            copies[node] = graph.placeholder(node.name)
            fakes.append(_fake(held, place, mode))
            continue
        copy = copies[node] = graph.node_copy(node, copies.__getitem__)
        copy.meta = {"given": node.name}  # with no meta torch keeps no origin
        if node.op == "placeholder":
            fakes.append(_fake(next(values), place, mode))
        elif node.op == "output":
            leaves = pytree.tree_leaves(node.args)
            copy.args = (tuple(copies[leaf] for leaf in leaves if isinstance(leaf, Node)),)
        else:
            copy.args, copy.kwargs = pytree.tree_map_only(
                torch.device, lambda _: place, (copy.args, copy.kwargs)
            )
            copy.target = stand_ins.get(node.target, node.target)
    return GraphModule(module, graph), fakes


def _values(module: GraphModule, inputs: Sequence[Any] | None) -> Iterator[Any]:
    """What the placeholders of the graph stand for, in order."""
    placeholders = module.graph.find_nodes(op="placeholder")
    if inputs is None:
        bare = [node.name for node in placeholders if "val" not in node.meta]
        if bare:
            raise ValueError(f'pass inputs: {bare[0]!r} and others carry no meta["val"]')
        return iter([node.meta["val"] for node in placeholders])
    if len(inputs) != len(placeholders):
        raise ValueError(f"the graph has {len(placeholders)} placeholders, not {len(inputs)}")
    return iter(inputs)


def _attribute(module: GraphModule, node: Node) -> object:
    return operator.attrgetter(str(node.target))(module)


def _fake(value: Any, place: torch.device, mode: FakeTensorMode) -> Any:
    if isinstance(value, Tensor):
        shape, strides = hint([*value.shape]), hint([*value.stride()])
        with mode:
            return torch.empty_strided(shape, strides, dtype=value.dtype, device=place)
    return hint(value)


class _Scheduled(Exception):  # noqa: N818 - it is no error
    """Ends a compilation once the schedule is known."""


def _scheduled(module: GraphModule, fakes: list[Any]) -> tuple[Kernel, ...]:
    """Lowers the graph and stops when its kernels are known."""
    import torch._functorch.config as functorch
    import torch._inductor.config as config
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.graph import GraphLowering

    found: list[tuple[Kernel, ...]] = []

    def compile_to_module(lowering: Any) -> None:
        lowering.init_wrapper_code()
        lowering._update_scheduler()
        found.append(tuple(kernels_of(lowering.scheduler.nodes)))
        raise _Scheduled

    original = GraphLowering.compile_to_module
    GraphLowering.compile_to_module = compile_to_module  # pyright: ignore - it never returns
    try:
        with (
            config.patch(fx_graph_cache=False, compile_threads=1),
            functorch.patch(enable_autograd_cache=False),
            torch.no_grad(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            compile_fx(module, fakes)
    except Exception:
        if not found:  # torch wraps whatever is raised inside
            raise
    finally:
        GraphLowering.compile_to_module = original
    return found[0] if found else ()
