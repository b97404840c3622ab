"""Made-up events of workers, and readings of a made-up device, for the tests of what becomes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fakes import TINY

from fluxbench.bench import events
from fluxbench.bench.collected import Collected, Trial
from fluxbench.bench.events import Event
from fluxbench.timing.telemetry import Reading

REFERENCE = "torch_flash"
ROUND_S, WINDOW_S = 0.1, 0.1
FLASH = [{"name": "flash", "share": 1.0, "part": "attention"}]
BLOCK_AFTER_S = 1.0  # from the begin of a trial to that of its block
READY = {"event": "ready", "versions": {"torch": "2.13.0"}}
ERRORS = {
    "rel_l2": 1e-3, "max_abs": 1e-2, "mean_abs": 1e-3, "mse": 1e-6, "cosine": 1.0, "nan_count": 0,
    "budget_rel_l2": 5e-3, "rel_l2_by_inputs": {"normal": 1e-3},
}  # fmt: skip


def checked(variant: str, workload: str = TINY.name, **fields: Any) -> dict[str, Any]:
    """Return the event that a variant was right."""
    return {
        "event": "checked", "variant": variant, "workload": workload, "thorough": True, "errors": {"out": ERRORS},
        "kernels": [], "clocks": None, "memory": None, "compile_s": None, "graph_breaks": None,
        "detail": None, **fields,
    }  # fmt: skip


def failed(variant: str, workload: str = TINY.name, **fields: Any) -> dict[str, Any]:
    """Return the event that a variant was wrong."""
    status = {"status": "INCORRECT", "reason": "it is wrong"}
    return {"event": "failed", "variant": variant, "workload": workload, **status, **fields}


def profiled(
    variant: str,
    workload: str = TINY.name,
    kernels: Sequence[Mapping[str, Any]] = FLASH,
    times: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the event of which kernels ran in a call, all of them unless there are `names`."""
    ran = [kernel["name"] for kernel in kernels] if names is None else [*names]
    of = {"event": "profiled", "variant": variant, "workload": workload}
    return {**of, "kernels": [*kernels], "names": ran, "times": times}


def timed(
    variant: str,
    process: int = 0,
    *,
    began: float = 0.0,
    reference: str = REFERENCE,
    burst_ms: Sequence[float] | None = (1.0,) * 4,
    beside_ms: float | Sequence[float] = 1.0,
    block_ms: Sequence[float] | None = (1.5,) * 6,
    warm_up: int = 2,
    windows_a_sample: int = 2,
    settled: bool = True,
    ahead_ms: float = 50.0,
    calls: int | None = None,
    control_ms: Sequence[float] = (),
    workloads: Mapping[str, float] | Sequence[str] = (TINY.name,),
    cupti: Mapping[str, tuple[float, float]] | None = None,
    slept_s: float = 0.0,
    stalled: Mapping[str, Sequence[int]] | None = None,
    late: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Return an event "timed": rounds from `began` on, one every `ROUND_S`, and `BLOCK_AFTER_S` later the windows.

    `workloads` may hold how many times as long each of them takes.
    """
    factors = workloads if isinstance(workloads, Mapping) else dict.fromkeys(workloads, 1.0)
    event: dict[str, Any] = {
        "event": "timed", "variant": variant, "reference": reference, "process": process,
        "workloads": list(factors), "began": began, "took_s": BLOCK_AFTER_S, "slept_s": slept_s,
    }  # fmt: skip
    if burst_ms is not None:
        beside = [beside_ms] * len(burst_ms) if isinstance(beside_ms, int | float) else beside_ms
        event["burst"] = {
            "samples_ms": {name: [factor * sample for sample in burst_ms] for name, factor in factors.items()},
            "reference_ms": {name: [factor * sample for sample in beside] for name, factor in factors.items()},
            "control_ms": list(control_ms),
            "launch_ms": dict.fromkeys(factors, 0.05),
            "places": {name: list(range(len(burst_ms))) for name in factors},
            "late": late or {},
            "times": [[began + ROUND_S * i, began + ROUND_S * (i + 0.5)] for i in range(len(burst_ms))],
        }
    if cupti is not None:
        event["profiled"] = {
            name: profiled(variant, name, FLASH, [*pair, {"attention": pair[0]}, FLASH]) for name, pair in cupti.items()
        }
    if block_ms is not None:
        start = began + BLOCK_AFTER_S
        block = {
            "samples_ms": {name: [factor * sample for sample in block_ms] for name, factor in factors.items()},
            "calls": dict.fromkeys(factors, calls or math.ceil(1e3 * WINDOW_S / min(block_ms))),  # a window is full
            "windows": [[start + WINDOW_S * i, start + WINDOW_S * (i + 1)] for i in range(len(block_ms))],
            "warm_up": warm_up,
            "windows_a_sample": windows_a_sample,
            "settled": settled,
            "ahead_ms": ahead_ms,
            "stalled": stalled or {},
        }
        event["blocks"] = [block]
        event["took_s"] = start + WINDOW_S * len(block_ms) - began
    return event


def in_blocks(event: dict[str, Any], turn_s: float | None = None) -> dict[str, Any]:
    """Return an event with a block of each workload, one after the other; or with turns of so many seconds in one."""
    [block] = event["blocks"]
    if turn_s:
        calls = {name: round(1e3 * turn_s) for name in block["calls"]}
        lasts_s = 1.1 * turn_s * len(calls)
        windows = [[place * lasts_s, (place + 1) * lasts_s] for place in range(len(block["windows"]))]
        return event | {"blocks": [block | {"calls": calls, "windows": windows}]}
    lasts_s = block["windows"][-1][1] - block["windows"][0][0]
    blocks = [
        block
        | {key: {name: block[key][name]} for key in ("samples_ms", "calls")}
        | {"windows": [[begin + place * lasts_s, end + place * lasts_s] for begin, end in block["windows"]]}
        for place, name in enumerate(block["samples_ms"])
    ]
    return event | {"blocks": blocks}


def parsed(event: Mapping[str, Any]) -> Event:
    """Return an event as it is read from a line of a worker."""
    return events.parse(json.dumps(event))


def trial(*arguments: Any, worker: int = 0, **fields: Any) -> Trial:
    """Return a trial as it is collected from `timed`."""
    event = parsed(timed(*arguments, **fields))
    assert isinstance(event, events.Timed)
    return Trial(event, worker)


def collected(seen: Iterable[Mapping[str, Any]], readings: Iterable[Reading] = ()) -> Collected:
    """Return what is collected of these events and readings."""
    found = Collected()
    for event in seen:
        found.add(parsed(event))
    found.readings = list(readings)
    return found


def readings(
    begin: float,
    end: float,
    *,
    step_s: float = 0.02,
    clock_mhz: Callable[[float], float] | None = lambda time_s: 1980.0,
    power_w: float | None = 300.0,
    reasons: Callable[[float], tuple[str, ...]] = lambda time_s: (),
    energy_mj: Callable[[float], float] | None = None,
) -> list[Reading]:
    """Return what a device reports, from time to time."""
    times = [begin + step_s * index for index in range(round((end - begin) / step_s) + 1)]
    return [
        Reading(
            time_s=time_s,
            sm_clock_mhz=clock_mhz and clock_mhz(time_s),
            power_w=power_w,
            temperature_c=50.0,
            throttle_reasons=reasons(time_s),
            energy_mj=energy_mj and energy_mj(time_s),
        )
        for time_s in times
    ]
