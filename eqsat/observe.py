"""What a caller can see of one run of a program, which leaves the program's state as it was."""

import operator
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any  # programs take and return arbitrary pytrees

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node
from torch.types import py_sym_types
from torch.utils import _pytree as pytree

from eqsat.storage import storage_of
from eqsat.writes import nodes

Program = Callable[..., Any]
Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # args and kwargs


@dataclass(frozen=True)
class Run:
    """All that a caller can see of one call; where it raised, that is all."""

    error: Exception | None
    spec: str = ""
    inputs: tuple[Any, ...] = ()  # the leaves handed in, as they are after the call
    outputs: tuple[Any, ...] = ()  # the leaves handed back
    values: tuple[Any, ...] = ()  # the same, as they were before state was put back
    identity: tuple[str, ...] = ()  # for each output, the first input or output that is this object
    owners: tuple[frozenset[str], ...] = ()  # for each output, who else lives in its storage
    state: frozenset[str] = frozenset()
    written: Mapping[str, Tensor] = field(
        default_factory=dict[str, Tensor]
    )  # state → its new value
    generators: tuple[Tensor, ...] = ()


def observe(program: Program, inputs: Inputs, seed: int) -> Run:
    """Returns what one call on these very inputs, under `no_grad`, shows.

    State that the call may write is put back. The random state is not: see `untouched_generators`.
    """
    state = _state(program)
    saved = _saved(program, state)
    before = {name: tensor.clone() for name, tensor in saved.items()}
    handed = tuple(pytree.tree_leaves(inputs))
    torch.manual_seed(seed)
    try:
        with torch.no_grad():
            output = program(*inputs[0], **inputs[1])
    except Exception as error:  # noqa: BLE001 - whatever a program raises is part of what it does
        return Run(error)
    else:
        return _seen(handed, output, state, saved, before)
    finally:
        _restore(saved, before)


def _seen(
    handed: tuple[Any, ...],
    output: object,
    state: Mapping[str, Tensor],
    saved: Mapping[str, Tensor],
    before: Mapping[str, Tensor],
) -> Run:
    devices = [t.device for t in [*handed, *state.values()] if isinstance(t, Tensor) and t.is_cuda]
    generators = [torch.get_rng_state()]
    generators += [torch.cuda.get_rng_state(d) for d in dict.fromkeys(devices)]
    outputs, spec = pytree.tree_flatten(output)
    homes = {storage_of(tensor) for tensor in saved.values()}
    return Run(
        None,
        str(spec),
        handed,
        tuple(outputs),
        tuple(_kept(leaf, homes) for leaf in outputs),
        _identity(handed, outputs),
        _owners(handed, state, outputs),
        frozenset(state),
        {name: t.clone() for name, t in saved.items() if not same_bits(t, before[name])},
        tuple(generators),
    )


def _kept(leaf: object, homes: set[int | None]) -> object:
    """Returns the leaf, copied where restoring the state would overwrite it."""
    if isinstance(leaf, Tensor) and storage_of(leaf) in homes:
        return leaf.detach().clone()
    return leaf


def _state(program: Program) -> dict[str, Tensor]:
    """Returns every plain tensor that a module holds, by name."""
    if not isinstance(program, torch.nn.Module):
        return {}
    held: dict[str, Tensor] = {}
    for prefix, module in program.named_modules(remove_duplicate=False):
        for table in (module._parameters, module._buffers, vars(module)):
            for name, value in table.items():
                if isinstance(value, Tensor) and storage_of(value) is not None:
                    held[f"{prefix}.{name}" if prefix else name] = value
    return held


def _saved(program: Program, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the state a call may write: what a writing operator may reach.

    Batch norm writes its buffers although its schema does not say so.
    """
    written = _written_attributes(program)
    hidden = written is None or any(map(_hides_writes, nodes(program)))
    return {
        name: tensor.detach()
        for name, tensor in state.items()
        if written is None
        or name in written
        or (hidden and not isinstance(tensor, torch.nn.Parameter))
    }


def _hides_writes(node: Node) -> bool:
    """Returns whether a call may write buffers that its schema says it only reads."""
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    named = any(norm in target._schema.name for norm in ("batch_norm", "instance_norm"))
    return named or torch.Tag.maybe_aliasing_or_mutating in target.tags


def _written_attributes(program: Program) -> set[str] | None:
    """Returns the attributes that operators of a graph write, None if that cannot be seen."""
    if not isinstance(program, torch.fx.GraphModule):
        return None
    written: set[str] = set()
    for node in nodes(program):
        if _opaque(node):
            return None
        if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
            continue
        first = node.args[0] if node.args else None
        known = node.target is torch.ops.aten.copy_.default and node.graph is program.graph
        if not known or not isinstance(first, Node):
            return None
        if first.op == "get_attr":
            written.add(str(first.target))
        elif first.op != "placeholder":
            return None
    return written


def _opaque(node: Node) -> bool:
    """Returns whether a call has no schema that tells what it writes."""
    if node.op != "call_function":
        return node.op == "call_method"
    told = isinstance(node.target, (OpOverload, HigherOrderOperator))
    symbolic = isinstance(node.meta.get("val"), py_sym_types)
    return not (told or symbolic or node.target is operator.getitem)


def _restore(saved: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in saved.items():
            if not same_bits(tensor, before[name]):
                tensor.copy_(before[name])


def _identity(inputs: Sequence[object], outputs: Sequence[object]) -> tuple[str, ...]:
    first: dict[int, str] = {}
    for i, leaf in enumerate(inputs):
        if isinstance(leaf, Tensor):
            first.setdefault(id(leaf), f"input {i}")
    return tuple(
        first.setdefault(id(leaf), f"output {i}") if isinstance(leaf, Tensor) else ""
        for i, leaf in enumerate(outputs)
    )


def _owners(
    inputs: Sequence[object], state: Mapping[str, Tensor], outputs: Sequence[object]
) -> tuple[frozenset[str], ...]:
    named = [(f"input {i}", leaf) for i, leaf in enumerate(inputs)]
    named += list(state.items())
    named += [(f"output {i}", leaf) for i, leaf in enumerate(outputs)]
    living: dict[int | None, set[str]] = {}
    for name, leaf in named:
        if isinstance(leaf, Tensor) and leaf.numel():
            living.setdefault(storage_of(leaf), set()).add(name)
    living.pop(None, None)
    return tuple(
        frozenset(living.get(storage_of(leaf), set[str]()) - {f"output {i}"})
        for i, leaf in enumerate(outputs)
    )


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Returns whether values are equal, NaN in the same places, Inf and zero of the same sign."""
    if a.is_floating_point() and a.element_size() == 1:
        return same_bits(a.float(), b.float())
    if a.is_complex():
        return same_bits(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
    if torch.equal(a, b):
        return not a.is_floating_point() or torch.equal(torch.signbit(a), torch.signbit(b))
    if not a.is_floating_point() or a.shape != b.shape:
        return False
    nan = a.isnan()
    if not torch.equal(nan, b.isnan()):
        return False
    a, b = a[~nan], b[~nan]
    return torch.equal(a, b) and torch.equal(torch.signbit(a), torch.signbit(b))


@contextmanager
def untouched_generators() -> Generator[None]:
    """Puts the random state of torch and of Python back."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    python = random.getstate()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else ()):
        try:
            yield
        finally:
            random.setstate(python)


def first_line(error: BaseException) -> str:
    """Returns the class and the first line of an error, in at most about 200 characters."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"
