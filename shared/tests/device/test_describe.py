"""A device as rows: what is known of it, and no zero for what is not."""

from __future__ import annotations

import dataclasses

from fakes import GPU

from fluxbench.device.describe import describe
from fluxbench.device.model import Device


def test_a_gpu_has_all_its_rows() -> None:
    known = dataclasses.replace(
        GPU, memory_bytes=141050 * 2**20, power_limit_w=650.0, ecc=True, mig=False, count=2, card="ab12cd34"
    )
    rows = dict(describe(known))
    assert (rows["memory"], rows["count"], rows["compute capability"]) == ("137.7 GiB", "2", "9.0")
    assert rows["card"] == "ab12cd34 (by a hash of its identifier)"
    assert (rows["power limit"], rows["ECC"], rows["MIG"]) == ("650 W (default unknown)", "on", "off")
    assert (rows["SM clock, max"], rows["compute mode"], rows["OS"]) == ("unknown", "unknown", "unknown")


def test_a_cpu_has_no_rows_of_a_gpu() -> None:
    device = Device(kind="cpu", name="AMD EPYC", cores=2, instruction_sets=("avx2", "avx512f"), note="a GPU is present")
    assert list(describe(device)) == [
        ("device", "AMD EPYC"),
        ("kind", "cpu"),
        ("memory", "unknown"),
        ("cores", "2"),
        ("instruction sets", "avx2 avx512f"),
        ("OS", "unknown"),
        ("note", "a GPU is present"),
    ]
