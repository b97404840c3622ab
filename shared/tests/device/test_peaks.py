"""The peak rates of known cards, which device is one of them, and a file of peaks that is not right."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxbench.core.errors import SetupError
from fluxbench.device.model import Device
from fluxbench.device.peaks import Limits, Peak, by_name, cards, peak, read

# Name, memory in GiB as NVML reports it; bf16 and fp8 TFLOP/s, GB/s and bytes of the cache; SMs, operations per SM and
# clock in 16 bits and in narrow formats, bits of the bus, and the highest clocks in MHz of SMs and memory.
PUBLISHED = [
    ("A100-SXM4-40GB", 40.0, 312.0, None, 1555.0, 41943040, 108, 2048, 8192, 5120, 1410, 1215),
    ("A100-PCIE-40GB", 39.4, 312.0, None, 1555.0, 41943040, 108, 2048, 8192, 5120, 1410, 1215),
    ("A100-SXM4-80GB", 80.0, 312.0, None, 2039.0, 41943040, 108, 2048, 8192, 5120, 1410, 1593),
    ("A100 80GB PCIe", 80.0, 312.0, None, 1935.0, 41943040, 108, 2048, 8192, 5120, 1410, 1512),
    ("A10G", 22.49, 70.0, None, 600.0, 6291456, 80, 1024, 4096, 384, 1710, 6251),
    ("L4", 22.49, 121.0, 242.5, 300.0, 50331648, 58, 1024, 4096, 192, 2040, 6251),
    ("L40S", 44.99, 362.05, 733.0, 864.0, 100663296, 142, 1024, 4096, 384, 2520, 9001),
    ("H100 80GB HBM3", 79.65, 989.4, 1978.9, 3350.0, 52428800, 132, 4096, 8192, 5120, 1980, 2619),
    ("H100 PCIe", 79.65, 756.0, 1513.0, 2039.0, 52428800, 114, 4096, 8192, 5120, 1755, 1593),
    ("H200", 140.4, 989.5, 1979.0, 4800.0, 62914560, 132, 4096, 8192, 6144, 1980, 3201),
    ("H200 NVL", 140.4, 835.5, 1670.5, 4800.0, 62914560, 132, 4096, 8192, 6144, 1785, 3201),
    ("B200", 179.06, 2250.0, 4500.0, 7672.0, 132644864, 148, 8192, 32768, 7680, 1965, 3996),
    ("H100 NVL", 93.58, 835.5, 1670.5, 3938.0, 62914560, 132, 4096, 8192, 6016, 1785, 2619),
    ("GeForce RTX 3090", 23.99, 71.2, None, 936.0, 6291456, 82, 1024, 4096, 384, 2100, 9751),
    ("GeForce RTX 4090", 23.99, 165.2, 330.3, 1008.0, 75497472, 128, 1024, 4096, 384, 3165, 10501),
    ("GeForce RTX 5090", 31.84, 209.5, 419.0, 1792.0, 100663296, 170, 1024, 4096, 512, 3090, 14001),
]
H200 = """
["H200"]
target = "h200"
memory_gib = 141
also = ["sxm"]
bf16_tflops = 989.5
fp8_tflops = "none"
memory_gb_s = 4800
l2_mib = 60
sm_count = 132
ops_16bit_per_sm_clock = 4096
ops_narrow_per_sm_clock = 8192
memory_bus_bits = 6144
sm_clock_mhz = 1980
memory_clock_mhz = 3201
source = "a datasheet"
"""


def cuda(name: str, memory_gib: float | None, mig: bool = False) -> Device:
    memory_bytes = None if memory_gib is None else int(memory_gib * 2**30)
    return Device(kind="cuda", name=name, memory_bytes=memory_bytes, mig=mig)


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row[0])
@pytest.mark.parametrize("vendor", ["NVIDIA ", ""])
def test_a_known_card_has_its_rates_to_the_bit(
    row: tuple[str, float, float, float | None, float, int, int, int, int, int, int, int], vendor: str
) -> None:
    name, memory_gib, bf16_tflops, fp8_tflops, memory_gb_s, l2_bytes, *widths_and_clocks = row
    rates = peak(cuda(vendor + name, memory_gib))
    assert rates == Peak(
        bf16_tflops=bf16_tflops,
        fp8_tflops=fp8_tflops,
        memory_gb_s=memory_gb_s,
        l2_bytes=l2_bytes,
        source=cards()[name].peak.source,
        limits=Limits(**dict(zip(Limits.__annotations__, widths_and_clocks, strict=True))),
    )


@pytest.mark.parametrize("name", cards())
def test_no_data_sheet_exceeds_the_limits_of_its_card_and_its_clock_is_one_that_the_card_has(name: str) -> None:
    rates = cards()[name].peak
    limits = rates.limits
    rounding = 1.001  # "312 TFLOPS" are 311.9
    assert (rates.fp8_tflops or 0) <= rounding * limits.tflops(narrow=True)
    assert rates.memory_gb_s <= rounding * limits.gb_s()
    half_rate = 2 if "GeForce" in name or name == "A10G" else 1  # of float32 accumulation
    boost_mhz = half_rate * rates.bf16_tflops * 1e6 / (limits.sms * limits.ops_16bit)
    assert 0.75 < boost_mhz / limits.sm_clock_mhz < rounding


def test_an_h200_computes_and_moves_more_than_its_data_sheet_says() -> None:
    limits = cards()["H200"].peak.limits
    assert limits.tflops() == pytest.approx(1070.5, abs=0.1)
    assert limits.tflops(narrow=True) == pytest.approx(2141.0, abs=0.1)
    assert limits.tflops(sm_clock_mhz=1830) == pytest.approx(989.4, abs=0.1)
    assert limits.gb_s() == pytest.approx(4916.7, abs=0.1)
    assert limits.gb_s(3125) == 4800.0


@pytest.mark.parametrize(
    ("name", "memory_gib"),
    [
        ("NVIDIA H300", 200.0),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16.0),
        ("NVIDIA GeForce RTX 4090 D", 24.0),
        ("NVIDIA GeForce RTX 4090", 27.0),
        ("NVIDIA GeForce RTX 4090", 21.0),
        ("NVIDIA A100-SXM4-40GB", 20.0),
    ],
)
def test_a_gpu_that_is_not_the_full_known_card_has_no_peak(name: str, memory_gib: float) -> None:
    assert peak(cuda(name, memory_gib)) is None


def test_a_card_of_unknown_memory_has_a_peak_and_a_slice_or_another_vendor_s_has_none() -> None:
    assert peak(cuda("NVIDIA H200", None)) is cards()["H200"].peak
    assert peak(cuda("NVIDIA H200", 140.4, mig=True)) is None
    assert peak(Device(kind="rocm", name="H200")) is None


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("A100-80GB", "A100-SXM4-80GB"),  # the faster of two that fit
        ("A100", "A100-SXM4-80GB"),
        ("H100", "H100 80GB HBM3"),
        ("A100 PCIe 80GB", "A100 80GB PCIe"),
        ("NVIDIA H100 SXM5", "H100 80GB HBM3"),
        ("h200 nvl", "H200 NVL"),
        ("B200 HGX 192GB", "B200"),
        ("RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA Tesla L4 Tensor Core GPU", "L4"),
    ],
)
def test_a_table_may_name_a_card_in_other_words(name: str, card: str) -> None:
    assert by_name(name) is cards()[card].peak


@pytest.mark.parametrize(
    "name",
    ["", "GPU", "A100-64GB", "H100 NVS", "RTX 4090 Laptop GPU", "L40", "GH200", "H200 MIG 1g.18gb", "MI325X", "SXM"],
)
def test_a_card_that_is_not_known_has_no_peak_by_name(name: str) -> None:
    assert by_name(name) is None


def test_a_card_is_read_from_its_table(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(H200, encoding="utf-8")
    card = read(tmp_path / "more.toml")["H200"]
    assert (card.target, card.memory_gib, card.model) == ("h200", 141, "h200")
    assert card.words == {"h200", "141gb", "sxm"}
    assert (card.peak.fp8_tflops, card.peak.memory_gb_s, card.peak.l2_bytes) == (None, 4800.0, 62914560)


@pytest.mark.parametrize(
    ("line", "other", "sentence"),
    [
        ("l2_mib = 60\n", "", "table 'H200' of more.toml must have l2_mib, got target, "),
        ("l2_mib", "tdp_w = 700\nl2_mib", "table 'H200' of more.toml must have no tdp_w, got "),
        ('["H200"]', "", "table 'target' of more.toml must be a card, got 'h200'; begin it with a line such as"),
        ("= 132", "= 132.5", "sm_count of table 'H200' of more.toml must be a positive integer, got 132.5; correct it"),
        ("= 132", "= 0", "sm_count of .* must be a positive integer, got 0"),
        ("= 989.5", '= "none"', "bf16_tflops of .* must be a positive number, got 'none'"),
        ("= 989.5", "= nan", "bf16_tflops of .* must be a positive number, got nan"),
        ('"none"', "0", 'fp8_tflops of .* must be a positive number or "none", got 0'),
        ('["sxm"]', '"sxm"', "also of .* must be a list of words, got 'sxm'"),
        ('"a datasheet"', '""', "source of .* must be a text, got ''"),
        ("= 141", "141", "more.toml must be TOML: .*; correct it"),
    ],
)
def test_a_table_that_is_not_right_is_refused(tmp_path: Path, line: str, other: str, sentence: str) -> None:
    assert line in H200
    (tmp_path / "more.toml").write_text(H200.replace(line, other, 1), encoding="utf-8")
    with pytest.raises(SetupError, match=sentence):
        read(tmp_path / "more.toml")
