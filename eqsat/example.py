"""Example inputs and dynamic dimensions, made from what a graph says of its placeholders."""

from collections.abc import Sequence
from typing import Any  # programs take arbitrary pytrees

import torch
from torch import SymInt, Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree as pytree

from eqsat.hint import own_hint


def example_of_graph(module: GraphModule) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns args and kwargs; raises ValueError where a placeholder carries no `meta["val"]`."""
    values = _placeholder_values(module)
    if any(value is None for value in values):
        raise ValueError(
            'pass example inputs: the placeholders of this GraphModule carry no meta["val"]'
        )
    return _nested(module, [_example(value) for value in values])


def example_of_program(program: ExportedProgram) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns args and kwargs for the user inputs of an exported program."""
    kinds = [spec.kind for spec in program.graph_signature.input_specs]
    pairs = zip(_placeholder_values(program.graph_module), kinds, strict=True)
    leaves = [_example(value) for value, kind in pairs if kind is InputKind.USER_INPUT]
    assert program.call_spec.in_spec is not None, "an exported program has one"
    return pytree.tree_unflatten(leaves, program.call_spec.in_spec)


def dynamic_shapes_of(module: GraphModule) -> dict[str, Any] | None:
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
    args, kwargs = _nested(module, leaves)
    codegen = module.graph._codegen
    if isinstance(codegen, _PyTreeCodeGen):
        names = codegen.pytree_info.orig_args
        names = names[1:] if names[:1] == ["self"] else names
    else:
        names = [node.target for node in module.graph.find_nodes(op="placeholder")]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _placeholder_values(module: GraphModule) -> list[Any]:
    return [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]


def _nested(module: GraphModule, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the leaves, one a placeholder, as the args and kwargs of a call."""
    codegen = module.graph._codegen
    if not isinstance(codegen, _PyTreeCodeGen):
        return tuple(leaves), {}
    return pytree.tree_unflatten(leaves, codegen.pytree_info.in_spec)


def _example(value: object) -> object:
    """Returns a value of that shape: normal floats, zero integers (valid as an index), False."""
    if isinstance(value, SymInt):
        return own_hint(value)
    if not isinstance(value, Tensor):
        return value
    shape, strides = own_hint([*value.shape]), own_hint([*value.stride()])
    size = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if value.is_floating_point() or value.is_complex():
        generator = torch.Generator().manual_seed(0)
        wide = torch.complex64 if value.is_complex() else torch.float32
        flat = torch.randn(size, generator=generator, dtype=wide).to(value.dtype).to(value.device)
    else:
        flat = torch.zeros(size, dtype=value.dtype, device=value.device)
    return flat.as_strided(shape, strides)
