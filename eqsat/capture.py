"""A PyTorch program as a functional ATen graph, and a graph as a program again."""

# pyright: reportPrivateUsage=false
# torch has operator schemas, pytree code and fake modes only behind a leading underscore.

import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any  # programs take and return arbitrary pytrees

import torch
from torch import SymInt, Tensor
from torch._higher_order_ops.effects import has_effects
from torch._ops import HigherOrderOperator, OpOverload
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
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from eqsat.check import check, fresh_copies, storage_of, untouched_generators

# Regions that run_decompositions dissolves, and a kernel call that writes.
_REGIONS = {
    "wrap_with_set_grad_enabled",
    "wrap_with_autocast",
    "triton_kernel_wrapper_mutation",
    "_set_grad_enabled",
    "_enter_autocast",
    "_exit_autocast",
}
_GRADIENTS = (
    OutputKind.LOSS_OUTPUT,
    OutputKind.GRADIENT_TO_PARAMETER,
    OutputKind.GRADIENT_TO_USER_INPUT,
)
_MUTATIONS = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
)


@dataclass(frozen=True)
class Captured:
    """A program ready to be encoded.

    `program` is functional: writes are outputs of its signature. `original` is the program as it
    was given, before any decomposition. `args` and `kwargs` are example inputs (None for an
    ExportedProgram that has none). Where `blocked` says why, making the program functional would
    change it, and `original` must be returned.
    """

    program: ExportedProgram
    original: ExportedProgram
    args: tuple[Any, ...] | None
    kwargs: dict[str, Any] | None
    blocked: str | None = None


def capture(
    program: object,
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,  # as torch.export takes it
) -> Captured:
    """Returns the program as a functional ATen graph, for inference.

    A module is exported (strict=False). A GraphModule whose placeholders carry `meta["val"]`
    needs no example inputs, and its symbolic dimensions stay dynamic. An ExportedProgram is taken
    as it is. Modules, inputs and random state are left as they were.

    Raises TypeError for anything else, ValueError for missing inputs, for a program whose outputs
    would carry gradients, and for what torch.export refuses.
    """
    if isinstance(args, Tensor):
        raise TypeError(
            f"args is a tuple of inputs, not a tensor of shape {tuple(args.shape)}: pass (x,)"
        )
    args = None if args is None else tuple(args)
    if isinstance(program, ExportedProgram):
        if dynamic_shapes is not None:
            raise ValueError(
                "an ExportedProgram has its dynamic shapes already: pass dynamic_shapes=None"
            )
        if any(spec.kind in _GRADIENTS for spec in program.graph_signature.output_specs):
            raise ValueError(
                "the program computes gradients: only inference programs can be optimized"
            )
        if args is None and kwargs is None and program.example_inputs is not None:
            args, kwargs = program.example_inputs
        return _functional(program, args, kwargs)
    if not isinstance(program, torch.nn.Module):
        raise TypeError(
            "a program is an nn.Module, a GraphModule or an ExportedProgram, "
            f"not {type(program).__name__}"
        )
    if isinstance(program, GraphModule):
        if args is None and kwargs is None:
            args, kwargs = _inputs_of(program)
        if dynamic_shapes is None:
            dynamic_shapes = _dynamic_shapes_of(program)
    if args is None and kwargs is None:
        raise ValueError(
            f"pass example inputs: {type(program).__name__} is captured by running it on them"
        )
    args, kwargs = args or (), dict(kwargs or {})
    _refuse_training(program, args, kwargs)
    exported = _export(program, args, kwargs, dynamic_shapes)
    exported.graph_module.training = program.training
    return _functional(exported, args, kwargs)


def _refuse_training(module: torch.nn.Module, args: object, kwargs: object) -> None:
    if not module.training or not torch.is_grad_enabled():
        return
    inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if any(tensor.requires_grad for tensor in [*module.parameters(), *inputs]):
        raise ValueError(
            f"{type(module).__name__} is in training mode and has parameters or inputs that "
            "require grad; the result would lose gradients: call .eval(), or run optimize under "
            "torch.no_grad() if gradients are not needed"
        )


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    with untouched_generators(), torch.no_grad():
        try:
            return torch.export.export(
                module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
        except Exception as error:  # torch.export raises whatever the module raised
            raise ValueError(
                f"torch.export cannot capture {type(module).__name__}: {_first_line(error)}"
            ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


# ------------------------------------------------------------------ inputs of a GraphModule


def _placeholder_values(module: GraphModule) -> list[Any]:
    return [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]


def _in_args_and_kwargs(
    module: GraphModule, leaves: list[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    codegen = module.graph._codegen
    if not isinstance(codegen, _PyTreeCodeGen):
        return tuple(leaves), {}
    return pytree.tree_unflatten(leaves, codegen.pytree_info.in_spec)


def _inputs_of(module: GraphModule) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns example inputs made from what the placeholders say of their values."""
    values = _placeholder_values(module)
    if any(value is None for value in values):
        raise ValueError(
            'pass example inputs: the placeholders of this GraphModule carry no meta["val"]'
        )
    return _in_args_and_kwargs(module, [_example(value) for value in values])


def _example(value: object) -> object:
    """Returns a value of that shape: normal floats, zero integers (valid as an index), False."""
    if isinstance(value, SymInt):
        return _hint(value)
    if not isinstance(value, Tensor):
        return value
    shape, strides = [_hint(n) for n in value.shape], [_hint(n) for n in value.stride()]
    size = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if value.is_floating_point() or value.is_complex():
        generator = torch.Generator().manual_seed(0)
        wide = torch.complex64 if value.is_complex() else torch.float32
        flat = torch.randn(size, generator=generator, dtype=wide).to(value.dtype).to(value.device)
    else:
        flat = torch.zeros(size, dtype=value.dtype, device=value.device)
    return flat.as_strided(shape, strides)


def _hint(size: int | SymInt) -> int:
    return int(size.node.hint) if isinstance(size, SymInt) else size


def _dynamic_shapes_of(module: GraphModule) -> dict[str, Any] | None:
    """Returns which dimensions are symbolic in the placeholders, as torch.export wants it."""
    auto = torch.export.Dim.AUTO
    leaves: list[Any] = []
    for value in _placeholder_values(module):
        if isinstance(value, Tensor):
            dims = {d: auto for d, n in enumerate(value.shape) if isinstance(n, SymInt)}
            leaves.append(dims or None)
        else:
            leaves.append(auto if isinstance(value, SymInt) else None)
    if not any(leaves):
        return None
    args, kwargs = _in_args_and_kwargs(module, leaves)
    names = [n.target for n in module.graph.nodes if n.op == "placeholder"]
    codegen = module.graph._codegen
    if isinstance(codegen, _PyTreeCodeGen):
        names = codegen.pytree_info.orig_args
        names = names[1:] if names[:1] == ["self"] else names
    return {**dict(zip(names, args, strict=False)), **kwargs}


# ------------------------------------------------------------------ functional form


def _functional(
    original: ExportedProgram, args: tuple[Any, ...] | None, kwargs: dict[str, Any] | None
) -> Captured:
    """Returns the program made functional, or blocked if that changes what it does."""
    kwargs = kwargs if args is None else dict(kwargs or {})
    if _is_functional(original):
        return Captured(original, original, args, kwargs)
    with untouched_generators(), torch.no_grad():
        try:
            program = original.run_decompositions({})
        except Exception as error:  # noqa: BLE001 - torch raises many kinds; the program is kept
            why = f"the program cannot be made functional: {_first_line(error)}"
            return Captured(original, original, args, kwargs, why)
    program.graph_module.training = original.graph_module.training
    blocked = _loss(original, program, args, kwargs)
    return Captured(original if blocked else program, original, args, kwargs, blocked)


def _nodes(program: ExportedProgram) -> Iterator[Node]:
    """Yields the nodes of the graph and of the subgraphs of its higher-order operators."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def _is_functional(program: ExportedProgram) -> bool:
    if any(
        getattr(node.target, "__name__", "") in _REGIONS or _writes(node)
        for node in _nodes(program)
    ):
        return False
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    return not any(is_traceable_wrapper_subclass(value) for value in values)


def _arguments(node: Node, target: OpOverload) -> dict[str, Any]:
    names = [argument.name for argument in target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _writes(node: Node) -> list[Node]:
    """Returns the nodes whose memory this node writes.

    Batch and instance norm write their running statistics in training mode, which their schema
    does not say.
    """
    if not isinstance(node.target, OpOverload):
        return []
    arguments = _arguments(node, node.target)
    written: list[Any] = []
    for argument in node.target._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += pytree.tree_leaves(arguments.get(argument.name))
    flags = ("training", "train", "use_input_stats")
    name = node.target._schema.name
    if any(arguments.get(flag) for flag in flags) and not name.endswith(("functional", "backward")):
        written += [arguments.get("running_mean"), arguments.get("running_var")]
    return [value for value in written if isinstance(value, Node)]


def _loss(
    original: ExportedProgram,
    program: ExportedProgram,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any] | None,
) -> str | None:
    """Returns what the functional form would lose, found by counting operators and by running."""
    before, after = _must_stay(original), _must_stay(program)
    for name, count in before.items():
        if after[name] != count:
            return (
                "making the program functional would change how often "
                f"{name} runs: from {count} to {after[name]} times"
            )
    try:
        if args is None:
            values = [n.meta["val"] for n in original.graph.nodes if n.op == "placeholder"]
            kinds = [spec.kind for spec in original.graph_signature.input_specs]
            pairs = zip(values, kinds, strict=True)
            leaves = [_example(value) for value, kind in pairs if kind is InputKind.USER_INPUT]
            assert original.call_spec.in_spec is not None, "an exported program has one"
            args, kwargs = pytree.tree_unflatten(leaves, original.call_spec.in_spec)
        verdict = check(drop_in(original), drop_in(program), args, kwargs, probes=("example",))
    except Exception as error:  # noqa: BLE001 - unverified means blocked, whatever went wrong
        return (
            f"the functional program could not be compared with the given one: {_first_line(error)}"
        )
    if verdict.passed:
        return None
    return f"making the program functional would change it: {verdict.probes[0].difference}"


def _must_stay(program: ExportedProgram) -> Counter[str]:
    """Returns how often each operator with an effect that no caller sees stands in the program.

    Functionalising makes one that writes an argument of a higher-order operator. Random operators
    change their name (dropout): the state of the generators after a run tells of those.
    """
    found: Counter[str] = Counter()
    for node in _nodes(program):
        nested = node.args if isinstance(node.target, HigherOrderOperator) else ()
        targets: list[object] = [node.target, *nested]
        found.update(str(t) for t in targets if isinstance(t, OpOverload) and _is_effect(t))
    return found


def _is_effect(target: OpOverload) -> bool:
    if has_effects(target):
        return True
    custom = target.namespace not in ("aten", "prims", "prim")
    return custom and (target._schema.is_mutable or not target._schema.returns)


# ------------------------------------------------------------------ back to a program


def rebuild(program: ExportedProgram, graph: Graph, folded: dict[str, Tensor]) -> ExportedProgram:
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
    placeholders = graph.find_nodes(op="placeholder")
    if unknown := [n.name for n in placeholders if n.name not in specs and n.name not in folded]:
        raise ValueError(f"placeholders {unknown} are neither inputs of the program nor folded")
    taken = {*dir(program.graph_module)}
    taken |= {name.split(".")[0] for name in (*program.state_dict, *program.constants)}
    inputs: list[InputSpec] = []
    values: dict[str, Tensor] = {}
    for node in placeholders:
        if node.name in specs:
            inputs.append(replace(specs[node.name]))
            continue
        target = _free_name(node.name, taken)
        taken.add(target)
        values[target] = folded[node.name].detach()
        inputs.append(InputSpec(InputKind.BUFFER, TensorArgument(node.name), target, True))
        _give_value(node, values[target], placeholders)
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
        state_dict={**_without_grad(program.state_dict, kept), **values},
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
    outputs = program.graph_signature.output_specs
    written = {spec.target for spec in outputs if spec.kind in _MUTATIONS}
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name not in present and specs[node.name].target in written:
            with graph.inserting_before(next(iter(graph.nodes))):
                placeholder = graph.placeholder(str(node.target))
            placeholder.name, placeholder.meta = node.name, dict(node.meta)


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


# ------------------------------------------------------------------ a module to call


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
    homes = {storage_of(tensors[t]) for t in written if t in tensors} - {None}
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


def _written(program: ExportedProgram) -> list[str]:
    """Returns the targets of the state that a call writes, in the signature or in the graph."""
    signature = program.graph_signature
    written = {s.target for s in signature.output_specs if s.kind in _MUTATIONS}
    base: dict[Node, Node] = {}  # a view → the node that owns its memory
    names: set[str] = set()
    for node in program.graph.nodes:
        target = node.target
        if isinstance(target, OpOverload):
            arguments = _arguments(node, target)
            viewed = [a.name for a in target._schema.arguments if a.alias_info is not None]
            source = arguments.get(viewed[0]) if viewed else None
            if isinstance(source, Node):
                base[node] = base.get(source, source)
            names |= {base.get(other, other).name for other in _writes(node)}
        elif isinstance(target, HigherOrderOperator):
            names |= _written_by_subgraph(program, node, base)
        elif target is operator.getitem and isinstance(several := node.args[0], Node):
            base[node] = base.get(several, several)
    specs = signature.input_specs
    targets = [s.target for s in specs if s.target in written or s.arg.name in names]
    return [target for target in targets if target is not None]


def _written_by_subgraph(program: ExportedProgram, node: Node, base: dict[Node, Node]) -> set[str]:
    """Returns the operands of a higher-order operator whose subgraphs write anything."""
    operands = [value for value in pytree.tree_leaves(node.args) if isinstance(value, Node)]
    for operand in operands:
        body = operand.op == "get_attr" and _held(program.graph_module, str(operand.target))
        if isinstance(body, GraphModule) and any(_writes(inner) for inner in body.graph.nodes):
            return {base.get(other, other).name for other in operands}
    return set()


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
