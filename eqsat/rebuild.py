"""A graph as a program again, and a program as a module that is called as the given one was."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any  # outputs and weights are arbitrary Python values

import torch
from torch import SymInt, Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from eqsat.storage import fresh_copies, storage_of
from eqsat.writes import owners_written

_MUTATIONS = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
)


def rebuild(
    program: ExportedProgram, graph: Graph, folded: Mapping[str, Tensor]
) -> ExportedProgram:
    """Returns `program` with another graph over the same inputs and outputs.

    The placeholders of `graph` are some of the program's parameters, buffers and constants, by
    name, and names of `folded`; then all user inputs, in order. Its outputs correspond one to one
    to those of `program`. Every node carries `meta["val"]`. The graph is taken over.

    Weights no longer read are dropped, tied ones stay tied, none requires grad. Folded tensors
    become persistent buffers. Raises ValueError for a placeholder that is neither.
    """
    signature = program.graph_signature
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    _name_inputs(signature, graph)
    _restore_written(program, graph, specs)
    inputs, buffers = _inputs(program, graph, specs, folded)
    returned: Any = graph.output_node().args[0]  # fx says Argument; export returns a flat tuple
    outputs = [
        OutputSpec(spec.kind, _argument(value, spec.arg), spec.target)
        for spec, value in zip(signature.output_specs, returned, strict=True)
    ]
    kept = {spec.target for spec in inputs}
    lost = {spec.target for spec in signature.input_specs} - kept
    entries = [replace(entry, signature=None) for entry in program.module_call_graph]
    root = program.module_call_graph[0].signature
    assert root is not None, "the first entry is the program itself"
    entries[0] = replace(entries[0], signature=replace(root, inputs=[], outputs=[]))
    return ExportedProgram(
        root=program.graph_module,
        graph=graph,
        graph_signature=ExportGraphSignature(inputs, outputs),
        state_dict={**_without_grad(program.state_dict, kept), **buffers},
        range_constraints=dict(program.range_constraints),
        module_call_graph=entries,
        example_inputs=program.example_inputs,
        constants={k: v for k, v in program.constants.items() if k not in lost},
        verifiers=program.verifiers,
    )


def _name_inputs(signature: ExportGraphSignature, graph: Graph) -> None:
    """Gives the last placeholders the names of the user inputs: copying renames `input`."""
    names = [s.arg.name for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    placeholders = graph.find_nodes(op="placeholder")
    last = placeholders[len(placeholders) - len(names) :]
    if [node.target for node in last] != names and [node.name for node in last] != names:
        raise ValueError(f"the last placeholders must be the user inputs {names}, not {last}")
    for node, name in zip(last, names, strict=True):
        node.name = name


def _restore_written(program: ExportedProgram, graph: Graph, specs: dict[str, InputSpec]) -> None:
    """Adds the placeholders of state that is written, though no longer read."""
    present = {node.name for node in graph.find_nodes(op="placeholder")}
    written = _mutated(program.graph_signature)
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name not in present and specs[node.name].target in written:
            with graph.inserting_before(next(iter(graph.nodes))):
                placeholder = graph.placeholder(str(node.target))
            placeholder.name, placeholder.meta = node.name, dict(node.meta)


def _inputs(
    program: ExportedProgram,
    graph: Graph,
    specs: Mapping[str, InputSpec],
    folded: Mapping[str, Tensor],
) -> tuple[list[InputSpec], dict[str, Tensor]]:
    """Returns what each placeholder stands for, and the new buffers of the folded ones."""
    placeholders = graph.find_nodes(op="placeholder")
    if unknown := [n.name for n in placeholders if n.name not in specs and n.name not in folded]:
        raise ValueError(f"placeholders {unknown} are neither inputs of the program nor folded")
    taken = {*dir(program.graph_module)}
    taken |= {name.split(".")[0] for name in (*program.state_dict, *program.constants)}
    inputs: list[InputSpec] = []
    buffers: dict[str, Tensor] = {}
    for node in placeholders:
        if node.name in specs:
            inputs.append(replace(specs[node.name]))
            continue
        target = _free_name(node.name, taken)
        taken.add(target)
        buffers[target] = folded[node.name].detach()
        inputs.append(InputSpec(InputKind.BUFFER, TensorArgument(node.name), target, True))
        _give_value(node, buffers[target], placeholders)
    return inputs, buffers


def _free_name(name: str, taken: set[str]) -> str:
    free, k = name, 0
    while free in taken:
        k += 1
        free = f"{name}_{k}"
    return free


def _give_value(node: Node, tensor: Tensor, placeholders: Sequence[Node]) -> None:
    """Makes the node's value fake, in the program's fake mode."""
    if isinstance(node.meta.get("val"), FakeTensor):
        return
    values = [other.meta.get("val") for other in placeholders]
    modes = [value.fake_mode for value in values if isinstance(value, FakeTensor)]
    mode = modes[0] if modes else FakeTensorMode()
    node.meta["val"] = mode.from_tensor(tensor, static_shapes=True)


def _argument(value: object, old: Any) -> Any:
    """Returns how a signature names this output."""
    if not isinstance(value, Node):
        return ConstantArgument("", value)  # pyright: ignore[reportArgumentType] - a Python constant
    kinds = (
        (SymInt, SymIntArgument),
        (torch.SymFloat, SymFloatArgument),
        (torch.SymBool, SymBoolArgument),
    )
    for kind, argument in kinds:
        if isinstance(value.meta["val"], kind):
            return argument(value.name)
    if isinstance(old, (CustomObjArgument, ConstantArgument)):
        return replace(old, name=value.name)
    return type(old)(value.name)


def _without_grad(state: dict[str, Any], kept: set[str | None]) -> dict[str, Any]:
    """Returns the kept entries, one object for each given object, none requiring grad."""
    seen: dict[int, Any] = {}
    for tensor in state.values():
        if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad:
            seen[id(tensor)] = torch.nn.Parameter(tensor.detach(), requires_grad=False)
        elif isinstance(tensor, Tensor) and tensor.requires_grad:
            seen[id(tensor)] = tensor.detach()
    return {name: seen.get(id(tensor), tensor) for name, tensor in state.items() if name in kept}


def drop_in(program: ExportedProgram) -> GraphModule:
    """Returns a module called as the given program was.

    It shares its weights with `program`; state that a call writes is its own. A program captured
    in eval mode stays in it: `.eval()` returns the module, `.train()` raises.
    """
    module = program.module()
    signature = program.graph_signature
    targets = [
        spec.target
        for spec in signature.input_specs
        if spec.target is not None and spec.kind is not InputKind.CUSTOM_OBJ
    ]
    held = {target: _held(module, target) for target in targets}
    tensors = {t: v for t, v in held.items() if isinstance(v, Tensor)}
    written = _written(program)
    homes = {storage_of(v) for t, v in tensors.items() if t in written} - {None}
    own = [t for t, v in tensors.items() if storage_of(v) in homes]
    copies: dict[int, Tensor] = {}  # several names of one tensor stay names of one tensor
    for target, copy in zip(own, fresh_copies([tensors[t] for t in own]), strict=True):
        old = tensors[target]
        weight = isinstance(old, torch.nn.Parameter)
        new = torch.nn.Parameter(copy, requires_grad=old.requires_grad) if weight else copy
        _hold(module, target, copies.setdefault(id(old), new))
    if not program.graph_module.training:
        _stay_in_eval(module)
    return module


def _held(module: torch.nn.Module, target: str) -> object:
    parent, _, name = target.rpartition(".")
    return getattr(module.get_submodule(parent), name)


def _hold(module: torch.nn.Module, target: str, tensor: Tensor) -> None:
    parent, _, name = target.rpartition(".")
    setattr(module.get_submodule(parent), name, tensor)


def _written(program: ExportedProgram) -> set[str | None]:
    """Returns the targets of the state that a call writes, in the signature or in the graph."""
    names = owners_written(program.graph_module)
    specs = program.graph_signature.input_specs
    return _mutated(program.graph_signature) | {s.target for s in specs if s.arg.name in names}


def _mutated(signature: ExportGraphSignature) -> set[str | None]:
    """Returns the targets of the state that the signature says is written."""
    return {spec.target for spec in signature.output_specs if spec.kind in _MUTATIONS}


def _stay_in_eval(module: GraphModule) -> None:
    """Lets the module be put in the mode it is in; `.module()` of torch refuses that, too."""

    def train(mode: bool = True) -> GraphModule:
        if mode:
            raise NotImplementedError(
                "the program was captured in eval mode: capture it anew to train"
            )
        return module

    def evaluate() -> GraphModule:
        return module

    module.train, module.eval = train, evaluate  # pyright: ignore - methods of one instance
