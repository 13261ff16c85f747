"""Scaled dot product attention as torch does it on a GPU, decided without one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any  # torch annotates its operators so

import torch
from torch import Tensor
from torch.nn import functional

from eqsat.cost.attention import attention_kernel
from eqsat.cost.device import Device

_aten = torch.ops.aten


def attention_on(device: Device) -> Callable[..., Tensor]:
    """Returns `scaled_dot_product_attention` by the operators that torch makes of it on this GPU.

    With no GPU torch decides for plain matrix products, which makes three kernels of one. What it
    decides with one stands in its `sdp_utils.cpp`, what it does before in `attention.cpp`.
    """

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        shapes = (tuple(query.shape), tuple(key.shape), tuple(value.shape))
        masked = attn_mask is not None
        kind = attention_kernel(device, *shapes, query.dtype, masked=masked, is_causal=is_causal)
        if kind == "math":
            options: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
            return _aten.scaled_dot_product_attention.default(
                query, key, value, attn_mask, dropout_p, is_causal, **options
            )
        if kind == "flash":
            return _flash(query, key, value, dropout_p, is_causal, scale)
        bias = None if attn_mask is None else _numbers(query, attn_mask)
        if kind == "efficient":
            key, value = _repeated(query, key), _repeated(query, value)
            bias = None if bias is None else _aligned(query, key, bias)
        operator = getattr(_aten, f"_scaled_dot_product_{kind}_attention").default
        return operator(query, key, value, bias, False, dropout_p, is_causal, scale=scale)[0]

    return attention


def attentions_on(device: Device) -> dict[Any, Callable[..., Any]]:
    """Returns what stands on this GPU for each attention of a graph captured on a CPU."""
    attention = attention_on(device)

    def decomposed(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, None]:
        return attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale), None

    return {
        _aten.scaled_dot_product_attention.default: attention,
        _aten._scaled_dot_product_flash_attention_for_cpu.default: decomposed,
    }


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """Flash attention on heads padded to a multiple of 8."""
    width = query.shape[-1]
    scale = 1 / math.sqrt(width) if scale is None else scale
    if padding := -width % 8:
        query, key, value = (functional.pad(x, (0, padding)) for x in (query, key, value))
    result = _aten._scaled_dot_product_flash_attention.default(
        query, key, value, dropout_p, is_causal, scale=scale
    )[0]
    return result.narrow(-1, 0, width) if padding else result


def _repeated(query: Tensor, x: Tensor) -> Tensor:
    times = query.shape[1] // x.shape[1]
    return x if times == 1 else x.repeat_interleave(times, 1)


def _numbers(query: Tensor, mask: Tensor) -> Tensor:
    """The mask as numbers to add to the scores."""
    if mask.dtype != torch.bool:
        return mask
    options: dict[str, Any] = {"dtype": query.dtype, "device": query.device}
    kept = _aten.scalar_tensor.default(0.0, **options)
    return torch.where(mask, kept, _aten.scalar_tensor.default(-math.inf, **options))


def _aligned(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    """The numbers for each query and key, in rows that begin at multiples of 8."""
    if any(stride % 8 for stride in bias.stride()[:-1]) or bias.stride(-1) != 1:
        width = bias.shape[-1]
        bias = functional.pad(bias, (0, 8 - width % 8)).narrow(-1, 0, width)
    return bias.expand(*query.shape[:-1], key.shape[-2])
