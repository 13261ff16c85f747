"""What a program costs: device profiles and the prices of operator calls on them."""

from eqsat.cost.additive import Call, Estimate, price, total
from eqsat.cost.device import Device, Mode, known, load

__all__ = ["Call", "Device", "Estimate", "Mode", "known", "load", "price", "total"]
