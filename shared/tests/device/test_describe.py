"""A device as rows: what is known of it, and no zero for what is not."""

from __future__ import annotations

from fluxbench.device.describe import describe
from fluxbench.device.model import Device

H200 = Device(
    kind="cuda",
    name="NVIDIA H200",
    driver="580.159.04",
    cuda="13.1",
    compute_capability=(9, 0),
    memory_bytes=141050 * 2**20,
    sm_clock_max_mhz=1980,
    memory_clock_max_mhz=3201,
    power_limit_w=650.0,
    ecc=True,
    mig=False,
    count=2,
    cpu="AMD EPYC",
)


def test_a_gpu_has_all_its_rows() -> None:
    assert list(describe(H200)) == [
        ("device", "NVIDIA H200"),
        ("kind", "cuda"),
        ("memory", "137.7 GiB"),
        ("count", "2"),
        ("driver", "580.159.04"),
        ("CUDA of driver", "13.1"),
        ("compute capability", "9.0"),
        ("SM clock, max", "1980 MHz"),
        ("memory clock, max", "3201 MHz"),
        ("power limit", "650 W (default unknown)"),
        ("ECC", "on"),
        ("MIG", "off"),
        ("compute mode", "unknown"),
        ("CPU", "AMD EPYC"),
        ("OS", "unknown"),
    ]


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
    assert ("instruction sets", "unknown") in describe(Device(kind="cpu", name="AMD EPYC"))


def test_another_vendor_s_gpu_has_no_rows_of_cuda() -> None:
    names = [row.name for row in describe(Device(kind="rocm", name="AMD gfx942"))]
    assert names == ["device", "kind", "memory", "count", "driver", "CPU", "OS"]
