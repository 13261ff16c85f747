"""What a program costs: device profiles, and the prices of kernels and operator calls on them."""

from eqsat.cost.device import Device, Mode, known, load

__all__ = ["Device", "Mode", "known", "load"]
