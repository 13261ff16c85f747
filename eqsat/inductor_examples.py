"""Operands with which Inductor's handlers are shown to the language, and what each may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from eqsat.meta import Meta
from eqsat.rewrite import EXACT, ROUNDING, Numerics

F32, F64, F16 = torch.float32, torch.float64, torch.float16


@dataclass(frozen=True)
class Example:
    """Values of a pattern's operands (a meta for a tensor), those that are constants, numerics."""

    values: Mapping[str, Any]
    numerics: Numerics = ROUNDING
    constants: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def tensor(*shape: int, dtype: torch.dtype = F32, device: str = "cpu") -> Meta:
    """The meta of a tensor."""
    return Meta(shape, dtype, device)


_GPU = "cuda:0"
_ADDMM = {"arg_0": tensor(5), "arg_1": tensor(1, 4), "arg_2": tensor(4, 5)}
_SCALED = {"inp": tensor(4, 8), "other": tensor(4, 1), "dim": (-1,), "keepdim": True}
_SCATTERED = {"shape": (8, 16), "background_val": 0.5, "dtype": F32, "dim": 1, "val": 1.5}
_SUMMED = {"shape": (4, 8), "fill_value": 2.0, "dtype": F32, "device": torch.device("cpu")}
_DECOMPOSE = {"post_grad_fusion_options": {"decompose_mm_pass": {}}}  # turns the pass on
EXAMPLES: Mapping[str, tuple[Example, ...]] = {
    "pointless_view_pair": (
        Example({"arg": tensor(2, 3, 4), "size1": (6, 4), "size2": (2, 3, 4)}, EXACT),
    ),
    "pointless_permute_pair": (
        Example({"arg": tensor(2, 3, 4), "perm1": (1, 2, 0), "perm2": (2, 0, 1)}, EXACT),
    ),
    "pointless_convert": (Example({"arg": tensor(4, 5), "dtype1": F64, "dtype2": F16}),),
    "bmm_to_mm": (
        Example({"arg_0": tensor(1, 3, 4, device=_GPU), "arg_1": tensor(1, 4, 5, device=_GPU)}),
    ),
    "addmm": (Example({"arg_0": tensor(3, 4), "arg_1": tensor(4, 5), "inp": tensor(5)}),),
    "reuse_partial": (Example({"input": tensor(64, 128), "reduced_dims": (-1,), "keepdim": True}),),
    "mul_softmax_pattern": (Example({**_SCALED, "dtype": F64}),),
    "div_softmax_pattern": (Example({**_SCALED, "dtype": F64}),),
    "scatter_upon_const_tensor": (
        Example({**_SCATTERED, "selector": tensor(8, 1, dtype=torch.int64)}),
    ),
    "pointless_cumsum_replacement": (Example({**_SUMMED, "dim": 1}),),
    "decompose_mm": (Example({"arg_0": tensor(1, 4), "arg_1": tensor(4, 5)}, options=_DECOMPOSE),),
    "decompose_bmm": (
        Example({"arg_0": tensor(1, 3, 4), "arg_1": tensor(1, 4, 5)}, options=_DECOMPOSE),
    ),
    "decompose_addmm": (Example(_ADDMM, options=_DECOMPOSE),),
    "reciprocal_sqrt_to_rsqrt": (Example({"x": tensor(4, 5)}),),
}
_LINEAR = {"enable_linear_binary_folding": True}  # says what pays, not what is right
_CONVOLUTION = {
    "arg_0": tensor(2, 3, 9, 11),
    "arg_1": tensor(4, 3, 3, 3),
    "arg_2": tensor(4),
    "arg_3": (2, 2),  # stride
    "arg_4": (1, 1),  # padding
    "arg_5": (3, 3),  # dilation
    "arg_6": False,  # transposed
    "arg_7": (0, 0),  # output padding
    "arg_8": 1,  # groups
    "other": tensor(1, 4, 1, 1),
}
_PRODUCT = {"arg_0": tensor(6, 4), "arg_1": tensor(4, 5), "arg_2": (2, 3, 5), "other": tensor(5)}
_AFFINE = {"arg_0": tensor(5), "arg_1": tensor(6, 4), "arg_2": tensor(4, 5), "other": tensor(5)}
# By the linear operator that a binary function is folded into, and whether it is reshaped between.
FOLDED: Mapping[tuple[str, bool], tuple[Example, ...]] = {
    ("convolution", False): (
        Example(_CONVOLUTION, constants=("arg_1", "arg_2", "other")),
        Example({**_CONVOLUTION, "arg_2": None}, constants=("arg_1", "other")),
    ),
    ("addmm", False): (Example(_AFFINE, constants=("arg_0", "arg_2", "other"), options=_LINEAR),),
    ("addmm", True): (
        Example(
            {**_AFFINE, "arg_3": (2, 3, 5)},
            constants=("arg_0", "arg_2", "other"),
            options=_LINEAR,
        ),
    ),
    ("mm", False): (Example(_PRODUCT, constants=("arg_1", "other"), options=_LINEAR),),
    ("mm", True): (Example(_PRODUCT, constants=("arg_1", "other"), options=_LINEAR),),
}
# Inputs of the replacements whose own are not kept by torch, by the name of the search function.
INPUTS: Mapping[str, tuple[Meta, ...]] = {
    "matmul_fuse_pattern": (tensor(7, 6), tensor(6, 5), tensor(6, 4), tensor(6, 3)),
    "matmul_fuse_pattern_two": (tensor(7, 6), tensor(6, 5), tensor(6, 4)),
    "addmm_fuse_pattern_second": (
        *(tensor(7, 6), tensor(6, 5), tensor(6, 4), tensor(6, 3)),
        *(tensor(5), tensor(4), tensor(3)),
    ),
    "int8_woq_fusion_pattern": (
        *(tensor(7, 6), tensor(6, 5), tensor(6, 4), tensor(6, 3)),
        *(tensor(5), tensor(4), tensor(3)),
    ),
    "prepare_softmax_pattern": (tensor(4, 8),),
    "randperm_index_pattern": (tensor(4, 8),),
    "randperm_index_full_pattern": (tensor(4, 8),),
    "randperm_index_add_pattern": (tensor(4, 8), tensor(2, 8)),
}
