"""A module, GraphModule or ExportedProgram as a functional ATen graph, ready to be encoded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any  # programs take and return arbitrary pytrees

import torch
from torch import Tensor
from torch._higher_order_ops.effects import has_effects
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from eqsat.check import check
from eqsat.example import dynamic_shapes_of, example_of_graph, example_of_program
from eqsat.observe import first_line, untouched_generators
from eqsat.rebuild import drop_in
from eqsat.storage import PLAIN
from eqsat.writes import is_custom, nodes, writes

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


_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


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
            args, kwargs = example_of_graph(program)
        if dynamic_shapes is None:
            dynamic_shapes = dynamic_shapes_of(program)
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
                f"torch.export cannot capture {type(module).__name__}: {first_line(error)}"
            ) from error


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
            why = f"the program cannot be made functional: {first_line(error)}"
            return Captured(original, original, args, kwargs, why)
    program.graph_module.training = original.graph_module.training
    blocked = _loss(original, program, args, kwargs)
    return Captured(original if blocked else program, original, args, kwargs, blocked)


def _is_functional(program: ExportedProgram) -> bool:
    names = (getattr(node.target, "__name__", "") for node in nodes(program.graph_module))
    if any(name in _REGIONS for name in names) or any(map(writes, nodes(program.graph_module))):
        return False
    values = (node.meta.get("val") for node in program.graph.find_nodes(op="placeholder"))
    return not any(is_traceable_wrapper_subclass(value) for value in values)


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
            args, kwargs = example_of_program(original)
        verdict = check(drop_in(original), drop_in(program), args, kwargs, probes=("example",))
    except Exception as error:  # noqa: BLE001 - unverified means blocked, whatever went wrong
        return f"the functional program could not be compared with the given: {first_line(error)}"
    if verdict.passed:
        return None
    return f"making the program functional would change it: {verdict.probes[0].difference}"


def _must_stay(program: ExportedProgram) -> Counter[str]:
    """Returns how often each operator with an effect that no caller sees stands in the program.

    Functionalising makes one that writes an argument of a higher-order operator. Random operators
    change their name (dropout): the state of the generators after a run tells of those.
    """
    found: Counter[str] = Counter()
    for node in nodes(program.graph_module):
        nested = node.args if isinstance(node.target, HigherOrderOperator) else ()
        targets: list[object] = [node.target, *nested]
        found.update(str(t) for t in targets if isinstance(t, OpOverload) and _is_effect(t))
    return found


def _is_effect(target: OpOverload) -> bool:
    if has_effects(target):
        return True
    return is_custom(target) and (target._schema.is_mutable or not target._schema.returns)


def constants_of(program: ExportedProgram) -> dict[str, Tensor]:
    """The tensors that never change, by placeholder: weights and constants not written to."""
    signature = program.graph_signature
    held: dict[str, Any] = {**program.state_dict, **program.constants}
    written = {spec.target for spec in signature.output_specs}  # mutations name what they write
    sources = (
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        signature.inputs_to_lifted_tensor_constants,
    )
    return {
        name: held[target]
        for source in sources
        for name, target in source.items()
        if target not in written and type(held[target]) in PLAIN
    }


def mask_with_gradient(program: ExportedProgram) -> str | None:
    """Why bits would change, as weights of a result need no gradient; None if they would not.

    Torch takes another kernel for an attention whose mask needs one, also in `torch.no_grad()`.
    """
    constants = constants_of(program)
    for node in program.graph.find_nodes(op="call_function", target=_ATTENTION):
        mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if isinstance(mask, Node) and mask.name in constants and constants[mask.name].requires_grad:
            return (
                f"the mask of {node.name} needs a gradient, for which torch takes a kernel that "
                "rounds otherwise: call requires_grad_(False) on it first, or pass "
                'numerics="default"'
            )
    return None
