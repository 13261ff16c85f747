"""The card that a device profile is of, as torch describes cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.cost.device import Device

SHARED_MEMORY: Mapping[float, int] = {
    7.0: 96,
    7.5: 64,
    8.0: 164,
    8.6: 100,
    8.7: 164,
    8.9: 100,
    9.0: 228,
    10.0: 228,
    10.3: 228,
    12.0: 100,
}
"""KiB of a multiprocessor by compute capability.

Source: CUDA C programming guide, technical specifications per compute capability.
"""
SHARED_RESERVED = 1
"""KiB of them that CUDA keeps for itself in each block, from 8.0 on; same source."""


@dataclass(frozen=True)
class Card:
    """What `torch.cuda.get_device_properties` says of a card, as far as Inductor reads it."""

    device: Device
    """The profile it is made from."""
    name: str
    major: int
    minor: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    L2_cache_size: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block_optin: int
    shared_memory_per_block: int = 48 * 1024
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    warp_size: int = 32
    is_integrated: bool = False
    gcnArchName: str = ""  # noqa: N815 - torch's name, of an AMD architecture


def card_of(device: Device) -> Card:
    """Returns the properties of a card of this profile.

    Raises ValueError for a profile of something else than a CUDA GPU of a known capability.
    """
    shared = SHARED_MEMORY.get(device.capability)
    if device.backend != "triton" or shared is None:
        known = ", ".join(map(str, SHARED_MEMORY))
        raise ValueError(
            f"{device.name!r} has the CUDA compute capability {device.capability}: only a GPU "
            f"of one of {known} can be pretended (`capability` in the profile); for any other, run "
            "on a machine that has it"
        )
    major, minor = divmod(round(device.capability * 10), 10)
    return Card(
        device=device,
        name=device.match[0] if device.match else device.name,
        major=major,
        minor=minor,
        multi_processor_count=device.sms,
        max_threads_per_multi_processor=device.threads_per_sm,
        L2_cache_size=device.l2,
        shared_memory_per_multiprocessor=shared * 1024,
        shared_memory_per_block_optin=(shared - (SHARED_RESERVED if major >= 8 else 0)) * 1024,
    )
