"""Which memory a tensor lives in, and copies of tensors that share memory as the originals do."""

from collections.abc import Sequence

import torch
from torch import Tensor

PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)  # the types that are no wrapper and no fake


def storage_of(leaf: object) -> int | None:
    """Returns the identity of the memory that a plain strided tensor lives in, else None."""
    if type(leaf) not in PLAIN or not isinstance(leaf, Tensor):
        return None
    if leaf.layout is not torch.strided or leaf.is_quantized or leaf.is_mkldnn:
        return None
    return leaf.untyped_storage()._cdata


def fresh_copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns copies with the strides, offsets, overlaps and mutual aliasing of the originals.

    Storages are copied whole, once each. Tensor subclasses, fake tensors and tensors without
    strides (sparse, quantized) do not have one plain storage: the first two are returned as they
    are, the last are cloned.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    copies: list[Tensor] = []
    for tensor in tensors:
        if type(tensor) not in PLAIN:
            copies.append(tensor)
            continue
        key = storage_of(tensor)
        if key is None:
            copies.append(tensor.detach().clone())
            continue
        if key not in storages:
            storages[key] = tensor.untyped_storage().clone()
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            storages[key], tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        copy = torch._neg_view(copy) if tensor.is_neg() else copy
        copies.append(copy.conj() if tensor.is_conj() else copy)
    return copies
