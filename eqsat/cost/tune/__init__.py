"""Microbenchmarks, the fit of a device's figures to them, and how well the model then ranks."""
