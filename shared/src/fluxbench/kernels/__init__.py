"""Attention kernels of our own, which the variants of the same names wrap."""
