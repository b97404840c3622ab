"""What no device can do is refused with the arithmetic, and what any device might do is let through."""

from __future__ import annotations

import dataclasses

import pytest

from fluxbench import operations
from fluxbench.device.model import Device
from fluxbench.device.peaks import by_name
from fluxbench.operations import sets
from fluxbench.operations.roofline import faster_than_possible, shortest
from fluxbench.operations.workload import Workload

H200 = Device(kind="cuda", name="NVIDIA H200", sm_clock_max_mhz=1980, memory_clock_max_mhz=3201)
LONGEST = sets.by_name()["flux1-1024px-t512"]
CACHE_BYTES = 60 * 2**20


def changed(operation: str = "attention", base: Workload = LONGEST, **shape: int | bool | str) -> Workload:
    return operations.workload(operation, "changed", {**base.shape, **shape}, group="changed", x=1, x_unit="tokens")


SHORT = changed(seq_len_q=64, seq_len_k=64, batch=64)  # more bytes than operations


def shortest_ms(workload: Workload, gpu: str = "H200", precision: str = "16-bit") -> float:
    rates = by_name(gpu)
    assert rates is not None
    bound = shortest(workload, rates, precision)
    assert bound is not None
    return bound.ms


def test_a_time_that_is_too_short_is_refused_with_the_arithmetic() -> None:
    refused = str(faster_than_possible(0.1, LONGEST, H200, "exact"))
    assert refused.endswith("0.1 ms measured, but 2.61e+11 FLOP / 1,071 TFLOP/s = 0.244 ms")
    assert faster_than_possible(0.245, LONGEST, H200, "exact") is None


def test_a_time_that_the_data_sheet_forbids_and_the_highest_clock_allows_is_not_refused() -> None:
    by_data_sheet_ms = LONGEST.cost.flops / 989.5e12 * 1e3
    assert shortest_ms(LONGEST) < 0.95 * by_data_sheet_ms
    assert faster_than_possible(0.95 * by_data_sheet_ms, LONGEST, H200, "exact") is None


def test_the_device_s_own_clocks_count_where_they_are_known() -> None:
    slow = dataclasses.replace(H200, sm_clock_max_mhz=990, memory_clock_max_mhz=1600)
    assert "/ 535 TFLOP/s = 0.487 ms" in str(faster_than_possible(0.3, LONGEST, slow, "exact"))
    assert "/ 2,458 GB/s" in str(faster_than_possible(0.001, SHORT, slow, "exact"))
    unknown = dataclasses.replace(H200, sm_clock_max_mhz=None)
    assert faster_than_possible(0.3, LONGEST, unknown, "exact") is None


def test_a_narrow_format_has_a_rate_of_its_own() -> None:
    assert faster_than_possible(0.13, LONGEST, H200, "quantized") is None
    assert "2,141 TFLOP/s = 0.122 ms" in str(faster_than_possible(0.12, LONGEST, H200, "quantized"))
    assert shortest_ms(LONGEST, "A100-80GB", "narrow") == pytest.approx(shortest_ms(LONGEST, "A100-80GB") / 4)


def test_a_geforce_may_use_16_bit_accumulators_at_twice_the_rate() -> None:
    assert shortest_ms(LONGEST, "RTX 4090") < LONGEST.cost.flops / (2 * 165.2) / 1e9


def test_where_bytes_take_longer_than_operations_they_are_the_bound() -> None:
    ms = (SHORT.cost.min_bytes - CACHE_BYTES) / 4916.7 / 1e6
    assert shortest_ms(SHORT) == pytest.approx(ms, rel=1e-3)
    assert str(faster_than_possible(0.9 * ms, SHORT, H200, "exact")).endswith(
        "(1.01e+08 - 6.29e+07 in the cache) bytes / 4,917 GB/s = 0.00768 ms"
    )


def test_of_what_fits_into_the_cache_the_operations_alone_count_and_in_float32_the_bytes_alone() -> None:
    small = changed(base=SHORT, batch=1)
    assert shortest_ms(small) == pytest.approx(small.cost.flops / 1070.5 / 1e9, rel=1e-3)
    wide = changed(dtype="float32")
    assert shortest_ms(wide) == pytest.approx((wide.cost.min_bytes - CACHE_BYTES) / 4916.7 / 1e6, rel=1e-3)
    assert faster_than_possible(1e-9, changed(base=small, dtype="float32"), H200, "exact") is None


def test_a_backward_pass_that_recomputes_nothing_is_two_forward_passes_and_a_causal_call_half_of_one() -> None:
    forward_ms = shortest_ms(LONGEST)
    assert shortest_ms(changed("attention_backward")) == pytest.approx(2 * forward_ms)
    assert shortest_ms(changed("attention_training")) == pytest.approx(3 * forward_ms)
    for operation, passes in (("attention_backward", 2), ("attention_training", 3)):
        assert faster_than_possible(0.99 * passes * forward_ms, changed(operation), H200, "exact")
        assert faster_than_possible(1.01 * passes * forward_ms, changed(operation), H200, "exact") is None
    assert shortest_ms(changed(causal=True)) == pytest.approx(forward_ms / 2, rel=1e-3)


def test_each_of_several_ranks_takes_its_part() -> None:
    assert shortest_ms(dataclasses.replace(LONGEST, ranks=4)) == pytest.approx(shortest_ms(LONGEST) / 4)
    large = changed(base=SHORT, batch=1024)
    ms = (large.cost.min_bytes / 2 - CACHE_BYTES) / 4916.7 / 1e6
    assert shortest_ms(dataclasses.replace(large, ranks=2)) == pytest.approx(ms, rel=1e-3)


@pytest.mark.parametrize(
    "device",
    [
        Device(kind="cpu", name="AMD EPYC"),
        Device(kind="cuda", name="NVIDIA H300", sm_clock_max_mhz=1980),
        dataclasses.replace(H200, mig=True),
        Device(kind="rocm", name="AMD Instinct MI300X"),
    ],
)
def test_a_device_whose_rates_are_not_known_refuses_nothing(device: Device) -> None:
    assert faster_than_possible(1e-9, LONGEST, device, "exact") is None
