"""Every operator of torch's own test table through encode and decode: python benchmarks/aten_sweep.py [NAME ...]."""
