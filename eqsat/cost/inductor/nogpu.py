"""A GPU that is not there: what Inductor asks of torch about one, answered from a device profile.

Lowering, scheduling and fusion for a GPU only ask questions of it and compute on fake tensors. Each
`Patch` answers one question, or keeps torch from touching a driver, and says what failed without.
What stays different from a machine with the card:

- matrix products are not padded to aligned sizes (`config.shape_padding`), since torch decides that
  by timing them;
- which attention kernel torch chooses is ours to say (`eqsat.cost.inductor.attention`);
- `max_autotune` would time its choices: it cannot run.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any  # what is patched is whatever torch keeps there

import torch

from eqsat.cost.device import Device
from eqsat.cost.inductor.attention import attention_on
from eqsat.cost.inductor.card import card_of
from eqsat.cost.inductor.standin import (
    StandIn,
    answer,
    as_cudnn,
    ask,
    by_operator,
    by_operators,
    on_cpu,
    static,
)


@dataclass(frozen=True)
class Patch:
    """Something of torch that is replaced while a GPU is pretended."""

    target: str
    """Where it stands: "module:name" or "module:Class.name"."""
    answers: str
    """What fails or goes wrong without the patch."""
    stand_in: StandIn
    parameters: tuple[str, ...] | None = None
    """The names of the parameters of the original; None where it is none of a Python function."""
    inherited: bool = False
    """Whether the class has none of its own: it is added, and taken away again."""


_CUDA = "torch.cuda:"
_FAKE = "torch._subclasses.fake_tensor:"
_FOLDER = "torch._inductor.fx_passes.joint_graph:UniformValueConstantFolder."
_INTERFACE = "torch._dynamo.device_interface:CudaInterface."
PATCHES: tuple[Patch, ...] = (
    Patch(
        _CUDA + "is_available",
        "whatever asks whether there is a GPU decides as without one",
        answer(True),
        (),
    ),
    Patch(
        _CUDA + "device_count", "the same for what counts GPUs, and 0 is remembered", answer(1), ()
    ),
    Patch(_CUDA + "current_device", '"Torch not compiled with CUDA enabled"', answer(0), ()),
    Patch(_CUDA + "_lazy_init", '"Found no NVIDIA driver on your system"', answer(None), ()),
    Patch(
        _CUDA + "_exchange_device",
        '"PyTorch was compiled without CUDA support" from a device guard',
        answer(0),
        ("device",),
    ),
    Patch(
        _CUDA + "_maybe_exchange_device",
        '"PyTorch was compiled without CUDA support" from a device guard',
        answer(0),
        ("device",),
    ),
    Patch(
        _CUDA + "get_device_properties",
        "\"name '_get_device_properties' is not defined\" where a reduction may be split",
        ask(lambda card: card),
        ("device",),
    ),
    Patch(
        _CUDA + "is_bf16_supported",
        "torch tries it out on the device",
        ask(lambda card: card.major >= 8),
        ("including_emulation",),
    ),
    Patch(
        _CUDA + "get_rng_state",
        "AOTAutograd keeps the random state: no element 0 in torch.cuda.default_generators",
        answer(torch.zeros(16, dtype=torch.uint8)),
        ("device",),
    ),
    Patch(
        _CUDA + "set_rng_state",
        "AOTAutograd restores the random state: a call is queued until CUDA is initialized",
        answer(None),
        ("new_state", "device"),
    ),
    Patch(
        _FAKE + "init_gpu_context",
        "a fake tensor allocates a byte on the device (torch 2.11)",
        answer(None),
        ("device",),
    ),
    Patch(
        _FAKE + "FakeTensorMode.avoid_device_init",
        "fake tensors initialize CUDA: torch has a switch for no GPU, but asks is_available()",
        lambda *_: property(lambda _: True),
    ),
    Patch(
        _FAKE + "FakeTensor.__getitem__",
        '"PyTorch is not linked with support for cuda devices" from `x[index]` in a decomposition',
        by_operators,
        inherited=True,
    ),
    Patch(
        _FAKE + "FakeTensor.copy_",
        '"PyTorch is not linked with support for cuda devices" where Inductor writes into a view',
        by_operator("copy_"),
        inherited=True,
    ),
    Patch(
        _FAKE + "FakeTensor.contiguous",
        "the same from the decomposition of an interpolation",
        by_operator("contiguous"),
        inherited=True,
    ),
    Patch(
        "torch._subclasses.functional_tensor:FunctionalTensor.contiguous",
        "the same while AOTAutograd traces",
        by_operator("contiguous"),
        inherited=True,
    ),
    Patch(
        "torch._C:_conv_determine_backend_memory_format",
        "a convolution of channels-last operands has a contiguous result, as without cuDNN",
        as_cudnn,
    ),
    Patch(
        _FOLDER + "_deduce_value",
        "constants are computed on the device, not on fake tensors",
        on_cpu,
        ("self", "node"),
    ),
    Patch(
        _FOLDER + "_add_peephole_patterns",
        "a constant 0 is made on the device, not as a fake tensor",
        on_cpu,
        ("self",),
    ),
    Patch(
        "torch._inductor.fx_passes.fuse_attention:_scaled_dot_product_attention",
        "attention that a pattern finds becomes plain matrix products, as without a GPU",
        lambda card, _: attention_on(card.device),
    ),
    Patch(
        _INTERFACE + "current_device",
        "Inductor asks here, where the function of torch.cuda was taken when it was imported",
        static(answer(0)),
        (),
    ),
    Patch(
        _INTERFACE + "get_device_properties",
        "the same, for the number of multiprocessors that a reduction is split for",
        static(ask(lambda card: card)),
        ("device",),
    ),
    Patch(
        _INTERFACE + "is_bf16_supported",
        "the same: without, bfloat16 is refused for every card or for none",
        static(ask(lambda card: card.major >= 8)),
        ("including_emulation",),
    ),
    Patch(
        _INTERFACE + "Worker.get_device_properties",
        "what it answers is remembered for all of the process",
        static(ask(lambda card: card)),
        ("device",),
    ),
    Patch(
        "torch.utils._triton:has_triton",
        "Inductor refuses to schedule for a GPU where triton is not installed",
        answer(True),
        (),
    ),
)


@contextmanager
def pretend(device: Device) -> Generator[None]:
    """While it lasts, torch and Inductor take the GPU of the profile to be there.

    Nothing can be computed on it: tensors on "cuda" must be fake. On exit everything is as before,
    and what torch had remembered of the GPU is forgotten. Not for several threads at once.
    """
    card = card_of(device)
    importlib.import_module("torch._inductor.compile_fx")  # what it imports asks for triton
    config = importlib.import_module("torch._inductor.config")
    interfaces = importlib.import_module("torch._dynamo.device_interface")
    tuple(interfaces.get_registered_device_interfaces())  # registers one for each device there is
    places = [place(patch) for patch in PATCHES]
    with ExitStack() as undo:
        undo.callback(_forget)
        undo.enter_context(config.patch(shape_padding=False))
        pairs = list[tuple[object, object]]()
        undo.callback(lambda: _swap([(new, old) for old, new in pairs]))
        for patch, (owner, name) in zip(PATCHES, places, strict=True):
            original = vars(owner).get(name, _ABSENT)
            stand_in = patch.stand_in(card, original)
            if original is _ABSENT:
                undo.callback(delattr, owner, name)
            else:
                undo.callback(setattr, owner, name, original)
                if inspect.isroutine(original):
                    pairs.append((original, stand_in))
            setattr(owner, name, stand_in)
        _swap(pairs)
        _forget()
        yield


def missing() -> tuple[str, ...]:
    """Returns what of the patched is not in this torch as it was, each with what it answers."""
    return tuple(f"{patch.target}: {fault}" for patch in PATCHES if (fault := _fault(patch)))


def _fault(patch: Patch) -> str | None:
    try:
        owner, name = place(patch)
    except (ImportError, AttributeError) as error:
        return f"{error}; it answers: {patch.answers}"
    if patch.inherited:
        return f"{name} is defined there" if name in vars(owner) else None
    if name not in vars(owner):
        return f"it is gone; it answers: {patch.answers}"
    original = getattr(owner, name)
    if patch.parameters is None or inspect.isbuiltin(original):  # which has no signature
        return None
    found = tuple(inspect.signature(original).parameters)
    if found == patch.parameters:
        return None
    return f"it takes {found}, not {patch.parameters}; it answers: {patch.answers}"


_ABSENT = object()


def place(patch: Patch) -> tuple[Any, str]:
    """Returns the module or class that a patch changes, and the name that it changes there."""
    module, path = patch.target.split(":")
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    return owner, name


def _swap(pairs: Iterable[tuple[object, object]]) -> None:
    """Replaces the first of each pair by the second wherever a module of torch holds it by name."""
    new = {id(old): (old, replacement) for old, replacement in pairs}
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch"):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in new:
                    setattr(module, name, new[id(value)][1])


def _forget() -> None:
    """Empties the caches of torch that hold answers about a GPU."""
    for name in REMEMBER:
        module = sys.modules.get(name)
        for value in list(vars(module).values()) if module else ():
            for held in [value, *(vars(value).values() if isinstance(value, type) else ())]:
                cached = getattr(held, "__func__", held)
                if isinstance(cached, functools._lru_cache_wrapper):
                    cached.cache_clear()


REMEMBER = (
    "torch._inductor.runtime.hints",
    "torch._inductor.utils",
    "torch._inductor.codecache",
    "torch._inductor.comm_analysis",
    "torch._inductor.compile_fx",
    "torch._dynamo.debug_utils",
    "torch.cuda",
    "torch.utils._triton",
)
"""The modules whose caches are emptied before and after; each of them asks about the GPU."""
