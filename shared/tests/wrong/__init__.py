"""Kernels that are wrong on purpose, by name, and one that is right.

`correctness/test_wrong_kernels.py` takes each down the road of a variant, and each must be refused.
"""
