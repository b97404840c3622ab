"""A CPU's sustained rounds beside the reference, from events to records and back from the file of all samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import CPU, TINY
from sample_events import READY, REFERENCE, checked, collected, timed

from fluxbench.analysis.verification import cell as cells
from fluxbench.analysis.verification.rebuilt import Rebuilt
from fluxbench.bench import recording, samples
from fluxbench.bench.collected import Collected
from fluxbench.bench.recording import Context
from fluxbench.environments.cell import Cell
from fluxbench.records.schema import Record, Timing
from fluxbench.records.status import FlagKind
from fluxbench.stats.intervals import medians, quotients

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
# By process; in the second another program took the last round of the variant alone.
OWN_MS = ((20.0, 40.0, 21.0), (20.0, 20.0, 90.0), (60.0, 19.0, 20.0))
BESIDE_MS = ((10.0, 20.0, 10.0), (10.0, 10.0, 10.0), (30.0, 10.0, 10.0))


def rounds(
    name: str, process: int, own_ms: Sequence[float], beside_ms: Sequence[float], wall: float = 1.1
) -> dict[str, Any]:
    """Return the trial of a variant that had rounds of a call and one of the reference; they last `wall` times that."""
    began = 100.0 * process + (0.0 if name == REFERENCE else 10.0)
    event = timed(name, process, began=began, burst_ms=own_ms, beside_ms=beside_ms, block_ms=own_ms, warm_up=0,
                  windows_a_sample=1, calls=1, ahead_ms=0.0)  # fmt: skip
    sides = [own_ms] if name == REFERENCE else [own_ms, beside_ms]
    event["blocks"][0]["reference_ms"] = {TINY.name: list(beside_ms)}
    event["blocks"][0]["windows"] = [
        [began + i, began + i + wall * sum(of) / 1e3] for i, of in enumerate(zip(*sides, strict=True))
    ]
    return event


def seen(wall: float = 1.1) -> Collected:
    events: list[dict[str, Any]] = [checked(REFERENCE), checked("flex")]
    for process, (own_ms, beside_ms) in enumerate(zip(OWN_MS, BESIDE_MS, strict=True)):
        events += [
            READY,
            rounds(REFERENCE, process, beside_ms, beside_ms),
            rounds("flex", process, own_ms, beside_ms, wall),
        ]
    return collected(events)


def record(of: Collected, variant: str = "flex") -> Record:
    context = Context(cell=CELL, device=CPU, processes=3, fingerprint={}, measured_at="", powers={})
    [made] = recording.of_cell(of, [variant], [TINY], context)
    return made


def sustained(made: Record) -> Timing:
    assert made.sustained is not None
    return made.sustained


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    timing = sustained(record(seen()))
    assert (timing.statistic, timing.samples_ms, timing.reference_ms) == ("median", OWN_MS, BESIDE_MS)
    assert (timing.median_ms, timing.ratio, timing.discarded) == (20.0, 2.0, 0)
    [ratio] = medians([quotients(OWN_MS, BESIDE_MS)])
    assert timing.ratio_ci95 == (ratio.low, ratio.high)
    own = sustained(record(seen(), REFERENCE))
    assert (own.statistic, own.samples_ms, own.reference_ms, own.ratio) == ("median", BESIDE_MS, (), 1.0)


def test_a_record_follows_from_the_file_of_all_samples(tmp_path: Path) -> None:
    of = seen()
    (tmp_path / "sdpa.samples.json").write_text(samples.to_json(of))
    rebuilt = Rebuilt(cells.read(tmp_path / "sdpa.jsonl", [record(of)]))
    for name in ("flex", REFERENCE):
        expected = rebuilt.timings(name, 7)[TINY.name]["sustained"]
        assert expected.timing == sustained(record(of, name))
    written = json.loads(samples.to_json(of))["series"]
    cut = [{**one, "reference_ms": one.get("reference_ms", [])[:2]} for one in written if one["regime"] == "sustained"]
    with pytest.raises(msgspec.ValidationError, match="must say as much of each sample"):
        msgspec.convert(cut[0], cells.Sampled)


@pytest.mark.parametrize(("wall", "believed"), [(2.1, True), (2.5, False)])
def test_calls_of_both_sides_fill_the_rounds_of_a_variant_that_is_believed(wall: float, believed: bool) -> None:
    """But for 20 ms before each call, in which the threads of the one before may spin."""
    made = record(seen(wall))
    assert (made.sustained is not None) == believed
    assert [flag.kind for flag in made.flags if flag.kind is FlagKind.WORKS_ASIDE] == [FlagKind.WORKS_ASIDE] * (
        not believed
    )
