"""The probes: on which inputs, made from the example, a program is tried."""

import math

import torch
from torch import Generator, Tensor
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from eqsat.observe import Inputs, Program
from eqsat.storage import fresh_copies, storage_of
from eqsat.writes import is_custom, nodes

PROBES = ("example", "random", "nan", "inf", "zero", "magnitude", "integer")
# What integers become, tried in this order until the given program accepts it.
_INTEGER = ("extreme", "extreme but zero", "resampled")


def vacuous(name: str, given: Program, example: Inputs) -> str:
    """Returns why a probe would show nothing, or nothing where it would show something."""
    if name == "example":
        return ""
    tensors = [x for x in pytree.tree_leaves(example) if isinstance(x, Tensor) and x.numel()]
    floats = any(_is_float(x) for x in tensors)
    ints = [x for x in tensors if _is_int(x)]
    varied = any(bool((x != x.flatten()[0]).any()) for x in ints)
    if name == "random":
        drawn = floats or varied or any(x.dtype is torch.bool for x in tensors)
        return (
            "" if drawn else "no floating-point or bool input, and no integer input with two values"
        )
    if name != "integer":
        return "" if floats else "no floating-point input"
    if not ints:
        return "no integer input"
    unsafe = "" if varied else _unsafe_extremes(given, example)
    return unsafe and f"no integer input with two values, and {unsafe}"


def attempts(name: str, given: Program, example: Inputs) -> tuple[str, ...]:
    """Returns the values to try for a probe, in order, until the given program accepts them."""
    if name != "integer":
        return (name,)
    return _INTEGER[2:] if _unsafe_extremes(given, example) else _INTEGER


def _unsafe_extremes(given: Program, example: Inputs) -> str:
    """Returns why extreme integers could end the process, or nothing.

    The smallest integer divided by -1, truncating, is a hardware trap; a size may be any integer;
    devices abort on an index out of range; who wrote a custom operator may not have checked it.
    """
    leaves = pytree.tree_leaves(example)
    if any(isinstance(leaf, Tensor) and leaf.device.type != "cpu" for leaf in leaves):
        return "an index out of range would abort the device"
    seen = list(nodes(given))
    if not seen:
        return "the operators of the given program cannot be seen"
    for node in seen:
        if isinstance(node.target, OpOverload) and is_custom(node.target):
            return f"{node.target} may not check its indices"
        if "trunc" in (node.kwargs.get("rounding_mode"), *node.args[2:]):
            return "truncating division may trap"
        value = node.meta.get("val")
        if value is not None and free_unbacked_symbols(value):
            return "sizes depend on integer values"
    return ""


def probing(example: Inputs, values: str, seed: int) -> Inputs:
    """Returns fresh inputs like the example, holding the values of that name."""
    leaves, spec = pytree.tree_flatten(example)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    copies = fresh_copies([leaves[i] for i in places])
    generator = Generator().manual_seed(seed + (*PROBES, *_INTEGER).index(values))
    resample = not any(_is_float(copy) for copy in copies)
    filled: set[int | None] = {None}
    for copy in copies:
        if storage_of(copy) not in filled and copy.numel():
            filled.add(storage_of(copy))
            _fill(copy, values, generator, resample)
    for place, copy in zip(places, copies, strict=True):
        leaves[place] = copy
    return pytree.tree_unflatten(leaves, spec)


def nudged(example: Inputs, values: str, seed: int) -> Inputs:
    """Returns the inputs of `probing`, each float moved by one rounding, up or down."""
    inputs = probing(example, values, seed)
    generator = Generator().manual_seed(seed)
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, Tensor) and _is_float(leaf):
            real = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
            sign = torch.randint(0, 2, real.shape, generator=generator).to(real.device) * 2 - 1
            moved = real.double() * (1 + sign * torch.finfo(real.dtype).eps / 2)
            if torch._debug_has_internal_overlap(real) == 0:
                real.copy_(moved)
    return inputs


def _is_float(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and storage_of(tensor) is not None


def _is_int(tensor: Tensor) -> bool:
    inexact = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool
    return not inexact and storage_of(tensor) is not None


def _fill(tensor: Tensor, values: str, generator: Generator, resample: bool) -> None:
    """Writes the values into the tensor's whole storage, of one dtype."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        tensor.untyped_storage(), 0, (size,), (1,)
    )
    if tensor.dtype is torch.bool:
        if values == "random":
            flat.copy_(torch.randint(0, 2, (size,), generator=generator))
    elif not _is_float(tensor):
        if values == "resampled" or (values == "random" and resample):
            known = tensor.flatten()
            places = torch.randint(0, len(known), (size,), generator=generator)
            flat.copy_(known[places.to(known.device)])
        elif values.startswith("extreme"):
            _fill_extremes(flat, values, generator)
    elif values in ("nan", "inf"):
        _sprinkle(tensor, values, generator)
    else:
        real = torch.view_as_real(flat).view(-1) if flat.is_complex() else flat
        _fill_floats(real, values, generator)


def _fill_extremes(flat: Tensor, values: str, generator: Generator) -> None:
    info = torch.iinfo(flat.dtype)
    choice = torch.tensor([info.min, info.max, 1, max(info.min, -1), 0], dtype=flat.dtype)
    count = len(choice) - (values == "extreme but zero")
    flat.copy_(choice[torch.randint(0, count, flat.shape, generator=generator)])


def _fill_floats(flat: Tensor, values: str, generator: Generator) -> None:
    if values == "random":
        known = torch.nan_to_num(flat.double(), 0.0, 0.0, 0.0).cpu()
        spread = float(known.std()) if len(known) > 1 else 0.0
        draws = torch.randn(flat.shape, generator=generator, dtype=torch.float64)
        flat.copy_(draws * (spread or 1.0) + (float(known.mean()) if spread else 0.0))
    elif values == "zero":
        draws = torch.randint(0, 4, flat.shape, generator=generator).to(flat.device)
        zero = torch.where(draws == 0, 0.0, -0.0).to(flat.dtype)
        flat.copy_(torch.where(draws < 2, zero, flat))
    elif values == "magnitude":
        quarter = int(math.log2(torch.finfo(flat.dtype).max)) // 4
        powers = torch.rand(flat.shape, generator=generator, dtype=torch.float64) * 2 - 1
        flat.copy_((flat.double().cpu() * torch.exp2((powers * quarter).round())).to(flat.dtype))


def _sprinkle(tensor: Tensor, values: str, generator: Generator) -> None:
    """Writes few special values: one lone NaN already fills a row that is summed."""
    many = 1 if values == "nan" else 2
    count = min(tensor.numel(), many + tensor.numel() // 4096, 16)
    for k, place in enumerate(torch.randperm(tensor.numel(), generator=generator)[:count].tolist()):
        value = float("nan") if values == "nan" else (-1) ** k * float("inf")
        index = torch.unravel_index(torch.tensor(place), tensor.shape)
        tensor[tuple(int(i) for i in index)].fill_(value)
