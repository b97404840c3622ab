"""What the sampler reads and sums up, with a fake in place of NVML's module only."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
from fake_nvml import NVMLError, fake_nvml, gpu
from fakes import until

from fluxbench.device.model import Device
from fluxbench.records.schema import Telemetry
from fluxbench.timing.telemetry import Log, Reading, Sampler, summarize, throttle_reasons

H200 = Device(kind="cuda", name="NVIDIA H200")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The only GPU: 1,755 MHz, 640 W and 55 degrees, and nothing throttles it."""
    card = gpu()
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(card))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return card


def sampled(device: Device = H200) -> list[Reading]:
    """Return the first and the last reading."""
    with Sampler(device, interval_s=60) as sampler:
        pass
    return sampler.readings


def reading(time_s: float, clock_mhz: float | None = None) -> Reading:
    return Reading(time_s=time_s, sm_clock_mhz=clock_mhz, power_w=None, temperature_c=None)


@pytest.mark.parametrize(
    ("bitmask", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x8000, ("bit_0x8000",)),
        (0x5, ("sw_power_cap",)),
        (0x24, ("sw_power_cap", "sw_thermal_slowdown")),
        (0x3DA, ("applications_clocks_setting", "hw_slowdown", "sync_boost", "hw_thermal_slowdown",
                 "hw_power_brake_slowdown", "display_clock_setting", "board_limit")),
        (0x400, ("reliability",)),
    ],
)  # fmt: skip
def test_each_bit_is_a_word_and_an_idle_gpu_is_none(bitmask: int, words: tuple[str, ...]) -> None:
    assert throttle_reasons(bitmask) == words


def test_a_summary_is_the_medians_and_all_reasons_in_order(card: SimpleNamespace) -> None:
    card.sm_now_mhz, card.reasons = iter((1980, 1700)).__next__, iter((0x20, 0x4)).__next__
    readings = sampled()
    assert [reading.sm_clock_mhz for reading in readings] == [1980.0, 1700.0]
    assert [reading.throttle_reasons for reading in readings] == [("sw_thermal_slowdown",), ("sw_power_cap",)]
    reasons = ("sw_power_cap", "sw_thermal_slowdown")
    assert summarize(readings) == Telemetry(
        sm_clock_mhz=1840.0, power_w=640.0, temperature_c=55.0, throttle_reasons=reasons
    )
    assert summarize([]) == Telemetry(sm_clock_mhz=None, power_w=None, temperature_c=None)


def test_a_sampler_reads_on_while_the_block_runs_and_continues_given_readings(card: SimpleNamespace) -> None:
    before = reading(0.0)
    with Sampler(H200, interval_s=0.001, readings=[before]) as sampler:
        assert until(lambda: len(sampler.readings) >= 4)
    times_s = [reading.time_s for reading in sampler.readings]
    assert sampler.readings[0] is before
    assert len(times_s) > 4
    assert times_s == sorted(times_s)


def test_a_sampler_asks_nothing_while_no_readings_are_wanted(card: SimpleNamespace) -> None:
    asked, wanted = 0, False

    def is_wanted() -> bool:
        nonlocal asked
        asked += 1
        return wanted

    with Sampler(H200, interval_s=0.001, wanted=is_wanted) as sampler:
        assert until(lambda: asked > 5)
        assert len(sampler.readings) == 1
        wanted = True
        assert until(lambda: len(sampler.readings) > 3)
        wanted = False
        before = asked
        assert until(lambda: asked > before + 5)
        found = len(sampler.readings)
        assert until(lambda: asked > before + 10)
        assert len(sampler.readings) == found
    assert len(sampler.readings) == found + 1


@pytest.mark.parametrize("field", ["power_w", "sm_clock_mhz", "temperature_c", "energy_mj"])
def test_what_nvml_denies_is_unknown_and_the_rest_stays(card: SimpleNamespace, field: str) -> None:
    setattr(card, {"power_w": "power_mw", "sm_clock_mhz": "sm_now_mhz"}.get(field, field), None)
    card.reasons, card.older_reasons = None, 0x8  # an older driver knows it by its older name
    known = {"sm_clock_mhz": 1755.0, "power_w": 640.0, "temperature_c": 55.0, "energy_mj": 5e6}
    measured = {**vars(sampled()[0])}
    del measured["time_s"]
    assert measured == {**known, "throttle_reasons": ("hw_slowdown",), field: None}


@pytest.mark.parametrize(
    ("begin", "end", "times"),
    [(0.0, 9.0, [1, 2, 3]), (2.0, 2.0, [2]), (1.5, 3.0, [2, 3]), (3.5, 9.0, []), (0.0, 0.5, [])],
)
def test_a_log_holds_the_readings_between_two_times(begin: float, end: float, times: list[int]) -> None:
    log = Log([reading(1.0, 1700.0), reading(2.0, 1980.0), reading(3.0)])
    assert [reading.time_s for reading in log.between(begin, end)] == times
    assert log.highest_mhz == 1980.0
    assert (list(Log([]).between(begin, end)), Log([]).highest_mhz) == ([], None)


def test_nvml_is_closed_and_may_be_missing(card: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError), Sampler(H200, interval_s=0.001):
        raise KeyError("the measured call failed")
    assert sys.modules["pynvml"].opened == 0
    assert "fluxbench-telemetry" not in [thread.name for thread in threading.enumerate()]
    assert sampled(Device(kind="cpu", name="AMD EPYC")) == []
    for module in (None, fake_nvml(card, init_error=NVMLError("no")), lost := fake_nvml(None)):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert sampled() == []
    assert lost.opened == 0
