"""The kernels that Inductor will make of a graph, predicted in pure Python."""

from eqsat.cost.partition.predict import partition

__all__ = ["partition"]
