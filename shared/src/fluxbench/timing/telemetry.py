"""Clocks, power, temperature and throttle reasons of the GPU while something runs on it."""

from __future__ import annotations

import bisect
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from fluxbench.device.model import Device
from fluxbench.device.nvidia import ask, visible_gpu
from fluxbench.records.schema import Telemetry

# nvmlClocksEventReasons of nvml.h, CUDA 13; bit 0x1, an idle GPU, is no reason to distrust a measurement.
_GPU_IDLE = 0x1
_REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


def throttle_reasons(bitmask: int) -> tuple[str, ...]:
    """Return the words for NVML's `nvmlClocksEventReason*` bits, without "gpu_idle"; unknown bits as "bit_0x800"."""
    bits = [1 << position for position in range(bitmask.bit_length()) if bitmask >> position & 1]
    return tuple(_REASONS.get(bit, f"bit_{bit:#x}") for bit in bits if bit != _GPU_IDLE)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What NVML said at one moment; None where the device does not say."""

    time_s: float  # time.monotonic()
    sm_clock_mhz: float | None
    power_w: float | None  # averaged by the driver over 1 s on Ampere (not A100) and newer: nvmlDeviceGetPowerUsage
    temperature_c: float | None
    throttle_reasons: tuple[str, ...] = ()
    energy_mj: float | None = None  # since the driver was loaded; an H200 counts on every 100 ms


class Log:
    """Readings in order of time, and those between two times."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self.readings = readings
        self._times = [reading.time_s for reading in readings]
        clocks = [reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz]
        self.highest_mhz = max(clocks, default=None)  # of the SM clock

    def between(self, begin: float, end: float) -> Sequence[Reading]:
        """Return the readings of a stretch of time, monotonic seconds."""
        return self.readings[bisect.bisect_left(self._times, begin) : bisect.bisect_right(self._times, end)]


class Sampler:
    """Reads NVML in a background thread while the `with` block runs; silent on a CPU or where NVML is denied.

    It takes one reading on entry and one on exit, so that the shortest block has two, and one every `interval_s` while
    they are `wanted`. Each reading is five questions to the driver, which answers one at a time and gives and takes
    memory meanwhile: the cells of a host that read at all times would keep it from their own workers.
    """

    def __init__(
        self,
        device: Device,
        interval_s: float = 0.02,
        readings: list[Reading] | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.readings: list[Reading] = [] if readings is None else readings  # given ones are continued
        self._device = device
        self._interval_s = interval_s
        self._wanted = wanted
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None

    def __enter__(self) -> Sampler:
        """Start reading."""
        if self._device.kind != "cuda" or (gpu := self._open()) is None:
            return self
        self.readings.append(_reading(self._nvml, gpu))
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(gpu,), name="fluxbench-telemetry", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop reading; the readings stay."""
        if self._thread:
            self._stop.set()
            self._thread.join()
            self._thread = None
            ask(self._nvml, "nvmlShutdown")

    def _open(self) -> Any:
        """Return NVML's handle of the GPU, or None where NVML is missing or denied."""
        try:
            import pynvml as nvml
        except ImportError:
            return None
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return None
        self._nvml = nvml
        try:
            return visible_gpu(nvml)[0]
        except (LookupError, nvml.NVMLError):
            ask(nvml, "nvmlShutdown")
            return None

    def _run(self, gpu: Any) -> None:
        while not self._stop.wait(self._interval_s):
            if self._wanted():
                self.readings.append(_reading(self._nvml, gpu))
        self.readings.append(_reading(self._nvml, gpu))


def summarize(readings: Iterable[Reading]) -> Telemetry:
    """Return the medians over some readings; None and empty where there are none."""
    readings = list(readings)
    return Telemetry(
        sm_clock_mhz=_median(reading.sm_clock_mhz for reading in readings),
        power_w=_median(reading.power_w for reading in readings),
        temperature_c=_median(reading.temperature_c for reading in readings),
        throttle_reasons=tuple(sorted({reason for reading in readings for reason in reading.throttle_reasons})),
    )


def _reading(nvml: Any, gpu: Any) -> Reading:
    clock_mhz = ask(nvml, "nvmlDeviceGetClockInfo", gpu, nvml.NVML_CLOCK_SM)
    power_mw = ask(nvml, "nvmlDeviceGetPowerUsage", gpu)
    temperature_c = ask(nvml, "nvmlDeviceGetTemperature", gpu, nvml.NVML_TEMPERATURE_GPU)
    bitmask = ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", gpu)
    if bitmask is None:  # drivers before 535 know it by its older name
        bitmask = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
    energy_mj = ask(nvml, "nvmlDeviceGetTotalEnergyConsumption", gpu)
    return Reading(
        time_s=time.monotonic(),
        sm_clock_mhz=None if clock_mhz is None else float(clock_mhz),
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=None if temperature_c is None else float(temperature_c),
        throttle_reasons=throttle_reasons(bitmask or 0),
        energy_mj=None if energy_mj is None else float(energy_mj),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
