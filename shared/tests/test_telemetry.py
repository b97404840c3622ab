"""What the sampler reads and sums up, with a fake in place of NVML's module only."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from fluxbench.device.detection import Device
from fluxbench.records.schema import Telemetry
from fluxbench.timing.telemetry import Log, Reading, Sampler, summarize, throttle_reasons

H200 = Device(kind="cuda", name="NVIDIA H200")
SILENT = Telemetry(sm_clock_mhz=None, power_w=None, temperature_c=None, throttle_reasons=())


class NVMLError(Exception):
    pass


def refuse(*_: Any) -> Any:
    raise NVMLError("Not Supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An H200 at 1,980 MHz, 650 W and 55 degrees, that nothing throttles; counts how often NVML is open."""
    fake: Any = ModuleType("pynvml")
    fake.opened = 0

    def count(step: int) -> None:
        fake.opened += step

    fake.NVMLError = NVMLError
    fake.NVML_CLOCK_SM, fake.NVML_TEMPERATURE_GPU = 1, 0
    fake.nvmlInit = lambda: count(1)
    fake.nvmlShutdown = lambda: count(-1)
    fake.nvmlDeviceGetCount = lambda: 1
    fake.nvmlDeviceGetHandleByIndex = lambda index: "gpu"
    fake.nvmlDeviceGetMigMode = refuse
    fake.nvmlDeviceGetClockInfo = lambda gpu, kind: 1980
    fake.nvmlDeviceGetPowerUsage = lambda gpu: 650_000
    fake.nvmlDeviceGetTemperature = lambda gpu, sensor: 55
    fake.nvmlDeviceGetCurrentClocksEventReasons = lambda gpu: 0
    fake.nvmlDeviceGetCurrentClocksThrottleReasons = refuse
    fake.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: 5_000_000
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.mark.parametrize(
    ("bitmask", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x2, ("applications_clocks_setting",)),
        (0x4, ("sw_power_cap",)),
        (0x8, ("hw_slowdown",)),
        (0x10, ("sync_boost",)),
        (0x20, ("sw_thermal_slowdown",)),
        (0x40, ("hw_thermal_slowdown",)),
        (0x80, ("hw_power_brake_slowdown",)),
        (0x100, ("display_clock_setting",)),
        (0x5, ("sw_power_cap",)),
        (0x24, ("sw_power_cap", "sw_thermal_slowdown")),
        (0x8000, ("bit_0x8000",)),
    ],
)
def test_each_bit_is_a_word_and_an_idle_gpu_is_none(bitmask: int, words: tuple[str, ...]) -> None:
    assert throttle_reasons(bitmask) == words


def test_the_words_are_those_of_nvml_itself() -> None:
    pynvml = pytest.importorskip("pynvml")
    bits = {name: value for name, value in vars(pynvml).items() if name.startswith("nvmlClocksEventReason")}
    for name, bit in bits.items():
        word = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name[21:]).lstrip("_")
        if word not in ("gpu_idle", "none", "all", "user_defined_clocks"):
            assert throttle_reasons(bit) == (word,)


def test_a_sampler_takes_the_medians_of_what_it_read(nvml: Any) -> None:
    clocks = iter([1980, 1700, 1710])
    nvml.nvmlDeviceGetClockInfo = lambda gpu, kind: next(clocks, 1705)
    with Sampler(H200, interval_s=60) as sampler:
        pass
    assert [reading.sm_clock_mhz for reading in sampler.readings] == [1980.0, 1700.0]
    assert summarize(sampler.readings) == Telemetry(
        sm_clock_mhz=1840.0, power_w=650.0, temperature_c=55.0, throttle_reasons=()
    )


def test_a_sampler_reads_on_while_the_block_runs(nvml: Any) -> None:
    third, count = threading.Event(), iter(range(1_000_000))

    def clock_mhz(gpu: str, kind: int) -> int:
        if next(count) == 2:
            third.set()
        return 1980

    nvml.nvmlDeviceGetClockInfo = clock_mhz
    with Sampler(H200, interval_s=0.001) as sampler:
        assert third.wait(timeout=2)
    times_s = [reading.time_s for reading in sampler.readings]
    assert len(times_s) >= 3
    assert times_s == sorted(times_s)


def test_reasons_of_all_readings_are_united_and_sorted(nvml: Any) -> None:
    bitmasks = iter([0x20, 0x4])
    nvml.nvmlDeviceGetCurrentClocksEventReasons = lambda gpu: next(bitmasks)
    with Sampler(H200, interval_s=60) as sampler:
        pass
    assert summarize(sampler.readings).throttle_reasons == ("sw_power_cap", "sw_thermal_slowdown")


def test_an_older_driver_is_asked_by_the_older_name(nvml: Any) -> None:
    nvml.nvmlDeviceGetCurrentClocksEventReasons = refuse
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: 0x8
    with Sampler(H200, interval_s=60) as sampler:
        pass
    assert summarize(sampler.readings).throttle_reasons == ("hw_slowdown",)


def test_what_nvml_denies_is_unknown_and_the_rest_stays(nvml: Any) -> None:
    nvml.nvmlDeviceGetPowerUsage = refuse
    with Sampler(H200, interval_s=60) as sampler:
        pass
    assert summarize(sampler.readings) == Telemetry(
        sm_clock_mhz=1980.0, power_w=None, temperature_c=55.0, throttle_reasons=()
    )


def test_a_reading_holds_what_the_energy_counter_says(nvml: Any) -> None:
    counter = iter([5_000_000, 5_060_000])
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: next(counter)
    with Sampler(H200, interval_s=60) as sampler:
        pass
    assert [reading.energy_mj for reading in sampler.readings] == [5e6, 5.06e6]


def test_a_card_without_an_energy_counter_says_the_rest(nvml: Any) -> None:
    nvml.nvmlDeviceGetTotalEnergyConsumption = refuse
    with Sampler(H200, interval_s=60) as sampler:
        pass
    assert [reading.energy_mj for reading in sampler.readings] == [None, None]
    assert summarize(sampler.readings).power_w == 650.0


@pytest.mark.parametrize(
    ("begin", "end", "times"),
    [(0.0, 9.0, [1, 2, 3]), (2.0, 2.0, [2]), (1.5, 3.0, [2, 3]), (3.5, 9.0, []), (0.0, 0.5, [])],
)
def test_a_log_holds_the_readings_between_two_times(begin: float, end: float, times: list[int]) -> None:
    silent = [Reading(time_s=float(i), sm_clock_mhz=None, power_w=None, temperature_c=None) for i in (1, 2, 3)]
    assert [reading.time_s for reading in Log(silent).between(begin, end)] == times


def test_a_log_of_nothing_holds_nothing() -> None:
    assert list(Log([]).between(0.0, 9.0)) == []


def test_nvml_is_closed_and_the_thread_ended_after_an_exception(nvml: Any) -> None:
    with pytest.raises(KeyError), Sampler(H200, interval_s=0.001):
        raise KeyError("the measured call failed")
    assert nvml.opened == 0
    assert "fluxbench-telemetry" not in [thread.name for thread in threading.enumerate()]


def test_a_cpu_has_no_telemetry() -> None:
    with Sampler(Device(kind="cpu", name="AMD EPYC")) as sampler:
        pass
    assert (sampler.readings, summarize(sampler.readings)) == ([], SILENT)


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_a_denied_nvml_has_no_telemetry(nvml: Any, call: str) -> None:
    setattr(nvml, call, refuse)
    with Sampler(H200) as sampler:
        pass
    assert (sampler.readings, summarize(sampler.readings), nvml.opened) == ([], SILENT, 0)


def test_a_missing_nvml_package_has_no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with Sampler(H200) as sampler:
        pass
    assert summarize(sampler.readings) == SILENT


def test_a_reading_without_reasons_has_none() -> None:
    assert Reading(time_s=0.0, sm_clock_mhz=None, power_w=None, temperature_c=None).throttle_reasons == ()
