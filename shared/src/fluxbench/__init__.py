"""Measure, check and compare attention kernels on Flux-shaped workloads."""
