"""The kernels that Inductor really makes of a program, on a machine with a GPU or without one."""

from eqsat.cost.inductor.truth import kernels

__all__ = ["kernels"]
