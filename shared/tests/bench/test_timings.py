"""Intervals of burst times, of calls that the host launches and of others that the device bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fakes import GPU, TINIER, TINY
from sample_events import READY, REFERENCE, checked, collected, timed

from fluxbench.analysis.verification.cell import read
from fluxbench.analysis.verification.problem import Kind
from fluxbench.analysis.verification.verify import verify
from fluxbench.bench import recording, samples
from fluxbench.bench.recording import Context
from fluxbench.core.files import write_gzip
from fluxbench.environments.cell import Cell
from fluxbench.records import files
from fluxbench.records.schema import BURST, Record

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
OF_LAUNCHES, OF_DEVICE = TINIER, TINY
LEVELS = (1.0, 1.6, 2.5)  # of a call that is launched, by process


def recorded(folder: Path, *, launch_ms: float) -> list[Record]:
    """Return records of a variant at two workloads, whose calls take about 1 to 2.5 ms and 40 ms."""
    events = [checked(REFERENCE, workload=one.name) for one in (OF_LAUNCHES, OF_DEVICE)]
    for process, level in enumerate(LEVELS):
        event = timed(REFERENCE, process, workloads=(OF_LAUNCHES.name, OF_DEVICE.name), block_ms=None)
        own = {OF_LAUNCHES.name: [level, 1.01 * level, 0.99 * level, level]}
        own[OF_DEVICE.name] = [40.0 + 0.01 * process, 40.02, 39.98, 40.0]
        event["burst"] |= {"samples_ms": own, "reference_ms": own}
        event["burst"]["launch_ms"] = {OF_LAUNCHES.name: launch_ms, OF_DEVICE.name: 5.0}
        events += [READY, event]
    of = collected(events)
    write_gzip(folder / "sdpa.samples.json.gz", samples.to_json(of))
    when = "2026-11-29T12:00:00Z"
    context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at=when, powers={})
    made = list(recording.of_cell(of, [REFERENCE], [OF_LAUNCHES, OF_DEVICE], context))
    files.write(folder / "sdpa.jsonl", made)
    return made


def halves(records: list[Record]) -> dict[str, float]:
    """Return half the interval of each burst time, over the time, by workload."""
    found = {}
    for one in records:
        timing = one.timings[BURST]
        found[one.workload.name] = (timing.ci95_ms[1] / timing.ci95_ms[0]) ** 0.5 - 1
    return found


@pytest.mark.parametrize(("launch_ms", "is_apart"), [(1.55, True), (0.2, False)])
def test_how_far_a_host_scatters_does_not_widen_the_interval_of_what_the_device_bounds(
    tmp_path: Path, launch_ms: float, *, is_apart: bool
) -> None:
    made = recorded(tmp_path, launch_ms=launch_ms)
    found = halves(made)
    assert found[OF_LAUNCHES.name] > 0.3
    assert (found[OF_DEVICE.name] < 0.01) is is_apart
    problems = [one for one in verify([read(tmp_path / "sdpa.jsonl")]) if one.kind in (Kind.VALUE, Kind.WIDTH)]
    assert problems == []
    [lie] = [one for one in made if one.workload.name == OF_DEVICE.name]
    low, high = lie.timings[BURST].ci95_ms
    edited = msgspec.structs.replace(lie.timings[BURST], ci95_ms=(low, high * 1.001))
    lying = msgspec.structs.replace(lie, timings={**lie.timings, BURST: edited})
    files.write(tmp_path / "sdpa.jsonl", [lying if one is lie else one for one in made])
    problems = [one for one in verify([read(tmp_path / "sdpa.jsonl")]) if one.kind is Kind.VALUE]
    assert [one.values.get("name") for one in problems] == ["ci95_ms"]
