"""Times between events, and how long a GPU spins while the host gets ahead of it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from clocks import ON_CPU, Clock

from fluxbench.timing import stopwatch as stopwatches
from fluxbench.timing.stopwatch import Stopwatch, last_level_cache_bytes

GPU = torch.device("cuda")


def test_on_a_cpu_the_times_between_events_are_given_once(clock: Clock) -> None:
    stopwatch = Stopwatch(ON_CPU)
    for step_s in (0.25, 0.5, 0.0):
        stopwatch.record()
        clock.now += step_s
    assert stopwatch.between_ms() == [250.0, 500.0]
    assert stopwatch.between_ms() == []
    stopwatch.record()
    stopwatch.discard()
    stopwatch.record()
    assert stopwatch.between_ms() == []


class FakeEvent:
    """An event of a device on which one is 3 ms after the other."""

    recorded = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        FakeEvent.recorded += 1
        self.at_ms = 3.0 * FakeEvent.recorded

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at_ms - self.at_ms


@pytest.mark.parametrize(
    ("clock_mhz", "launch_s", "calls", "cycles"),
    [
        (2000, 0.01, 5, 25_000_000),  # a quarter longer than the host needs
        (2000, 0.0001, 5, 1_000_000),  # 0.1 ms a call
        (None, 0.01, 5, 37_500_000),  # a card that does not report its clock has none above 3 GHz
    ],
)
def test_a_gpu_spins(
    monkeypatch: pytest.MonkeyPatch, clock_mhz: int | None, launch_s: float, calls: int, cycles: int
) -> None:
    done: list[object] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=1024))
    monkeypatch.setattr(torch.cuda, "_sleep", done.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append("wait"))
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch, "empty", lambda size, **options: done.append((size, options["dtype"])))
    stopwatch = Stopwatch(GPU, clock_mhz)
    stopwatch.spin(launch_s, calls)
    for _ in range(3):
        stopwatch.record()
    assert stopwatch.between_ms() == [3.0, 3.0]
    assert done == [(2048, torch.int8), cycles, "wait"]


def test_a_cpu_has_no_host_that_is_late() -> None:
    stopwatch = Stopwatch(ON_CPU)
    stopwatch.record()
    stopwatch.record()
    assert not stopwatch.host_was_late()


@pytest.mark.gpu
def test_on_a_gpu_the_host_was_late_where_the_device_did_nothing_before() -> None:
    stopwatch = Stopwatch(GPU)
    for launch_s, late in ((0.2, False), (0.0, True)):
        stopwatch.spin(launch_s, 1)
        stopwatch.record()
        if late:
            time.sleep(0.05)
        stopwatch.record()
        assert stopwatch.host_was_late() is late
        stopwatch.between_ms()


@pytest.mark.parametrize(
    ("answer", "size"), [("32768K\n", 1 << 25), ("0K\n", 64 << 20), ("", 64 << 20), (None, 64 << 20)]
)
def test_an_unknown_cache_is_of_64_mib(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str | None, size: int
) -> None:
    if answer is not None:
        (tmp_path / "size").write_text(answer)
    monkeypatch.setattr(stopwatches, "THIRD_LEVEL", tmp_path / "size")
    assert last_level_cache_bytes(ON_CPU) == size
    reported = size if answer == "32768K\n" else 0
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=reported))
    assert last_level_cache_bytes(GPU) == size


def test_a_machine_that_slept_knows_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = {time.CLOCK_BOOTTIME: 1000.0, time.CLOCK_MONOTONIC: 940.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: readings[clock])
    assert stopwatches.slept_s() == 60.0
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert stopwatches.slept_s() == 0.0
