"""Kernels that are wrong on purpose, one a file, and one that is right. Each is a variant's `load()`.

`test_wrong_kernels.py` takes each down the road of a variant, and each must be refused.
"""
