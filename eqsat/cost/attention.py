"""The kernel that torch picks for an attention on a device, decided without one."""

from __future__ import annotations

from typing import Literal

import torch

from eqsat.cost.device import Device

Shape = tuple[int, ...]
AttentionKernel = Literal["cudnn", "flash", "efficient", "math"]
"""By the names of torch's operators; "math" is matrix products and a softmax."""
WITH_CUDNN = (9.0, 10.0, 10.3)
"""The capabilities on which cuDNN's attention comes first, from cuDNN 9.15.1 on."""
CUDNN_HEAD, FLASH_HEAD = 128, 256
"""The widest head of cuDNN's attention that all its versions take, and of flash attention."""


def attention_kernel(
    device: Device,
    query: Shape,
    key: Shape,
    value: Shape,
    dtype: torch.dtype,
    *,
    masked: bool,
    is_causal: bool,
) -> AttentionKernel:
    """The first of the kernels that torch tries in turn and that takes such operands.

    The operands are given by their shapes (batch, heads, rows, width); strides are not looked at.
    After torch's `sdp_utils.cpp`, and for a CPU `sdp_utils_cpp.cpp`. A GPU without a compute
    capability is taken for one of at least 8.0.
    """
    if device.backend == "cpp":
        return "flash" if _fits(query, key, value) else "math"
    half = dtype in (torch.float16, torch.bfloat16)
    ampere = device.capability >= 8 or device.capability == 0
    if len(query) != 4 or not (half or dtype == torch.float32):
        return "math"
    width, wide = query[-1], value[-1]
    if (
        device.capability in WITH_CUDNN
        and half
        and width % 8 == wide % 8 == 0
        and max(width, wide) <= CUDNN_HEAD
        and key[-2] > 1
    ):
        return "cudnn"
    square = not is_causal or query[-2] == key[-2]
    if ampere and half and not masked and square and width == wide <= FLASH_HEAD:
        return "flash"
    step = 8 if half else 4 if ampere else 1
    if width % step or wide % step or (dtype == torch.bfloat16 and not ampere):
        return "math"
    return "efficient"


def _fits(query: Shape, key: Shape, value: Shape) -> bool:
    """Whether a CPU has a kernel for operands of these shapes."""
    return (
        len(query) == len(key) == len(value) == 4
        and query[0] == key[0] == value[0]
        and key[1] == value[1]
        and query[1] % max(1, key[1]) == 0
        and query[-1] == value[-1]
        and 0 not in (*query, *key, *value)
    )
