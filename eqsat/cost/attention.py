"""The kernel that torch picks for an attention on a GPU, decided without one."""

from __future__ import annotations

from typing import Literal

import torch

from eqsat.cost.device import Device

AttentionKernel = Literal["cudnn", "flash", "efficient", "math"]
"""By the names of torch's operators; "math" is matrix products and a softmax."""
WITH_CUDNN = (9.0, 10.0, 10.3)
"""The capabilities on which cuDNN's attention comes first, from cuDNN 9.15.1 on."""
CUDNN_HEAD, FLASH_HEAD = 128, 256
"""The widest head of cuDNN's attention that all its versions take, and of flash attention."""


def attention_kernel(
    device: Device,
    query: tuple[int, ...],
    keys: int,
    dtype: torch.dtype,
    *,
    masked: bool,
    is_causal: bool,
) -> AttentionKernel:
    """The first of the kernels that torch tries in turn and that takes such operands.

    `query` is its shape (batch, heads, queries, width), `keys` how many keys there are. After
    torch's `sdp_utils.cpp`. A GPU without a compute capability is taken for one of at least 8.0.
    """
    half = dtype in (torch.float16, torch.bfloat16)
    ampere = device.capability >= 8 or device.capability == 0
    if len(query) != 4 or not (half or dtype == torch.float32):
        return "math"
    width = query[-1]
    if (
        device.capability in WITH_CUDNN
        and half
        and width % 8 == 0
        and width <= CUDNN_HEAD
        and keys > 1
    ):
        return "cudnn"
    square = not is_causal or query[-2] == keys
    if ampere and half and not masked and square and width <= FLASH_HEAD:
        return "flash"
    step = 8 if half else 4 if ampere else 1
    if width % step or (dtype == torch.bfloat16 and not ampere):
        return "math"
    return "efficient"
