"""Records of short calls that were timed in rows: the launched time, and what was not asked for."""

from __future__ import annotations

import json
from typing import Any

from recorded import flag, of_process, record, seen
from sample_events import profiled

from fluxbench.bench import samples
from fluxbench.bench.collected import Collected
from fluxbench.records.schema import BURST
from fluxbench.records.status import FlagKind


def test_the_launched_time_of_calls_in_rows_and_why_others_have_no_row_are_flagged() -> None:
    def in_rows(process: int, **fields: Any) -> list[dict[str, Any]]:
        events = of_process(process, block_ms=None)[:2]
        events[0]["blocks"] = []
        events[1]["burst"] |= fields
        return events

    rows = [t for p, ms in enumerate((0.9, 1.0, 1.1)) for t in in_rows(p, calls={"tiny": 7}, launched_ms={"tiny": ms})]
    of = seen(rows)
    made = record(of)
    assert flag(made, FlagKind.REPLAYED) == (BURST, 1.0, None)
    assert made.burst is not None
    assert made.burst.median_ms == 0.8
    series = json.loads(samples.to_json(of))["series"]
    assert [one["calls_per_sample"] for one in series if "launched_ms" in one] == [7, 7, 7]
    refused = record(seen([t for p in range(3) for t in in_rows(p, refused={"tiny": "it waits"} if p else {})]))
    assert flag(refused, FlagKind.NOT_REPLAYED) == (BURST, 2, "it waits")
    assert flag(refused, FlagKind.REPLAYED) == ()
    count = len(rows[1]["burst"]["samples_ms"]["tiny"])
    short = {name: {"tiny": [0.1] * count} for name in ("samples_ms", "reference_ms")}
    singly = [t for p in range(3) for t in in_rows(p, calls={"other": 7}, **short)]
    assert flag(record(seen(singly)), FlagKind.NOT_REPLAYED) == (BURST, 3, "the first ones seemed to be long")
    assert flag(record(seen([t for p in range(3) for t in in_rows(p, **short)])), FlagKind.NOT_REPLAYED) == ()


def test_what_the_profiler_was_not_asked_for_is_no_flag() -> None:
    def trials(**fields: Any) -> list[dict[str, Any]]:
        return [{**t, **fields} for p in range(3) for t in of_process(p, cupti=None)]

    assert flag(record(seen(trials())), FlagKind.NO_CUPTI) == (BURST, None, None)
    assert flag(record(seen(trials(unprofiled=["tiny"]))), FlagKind.NO_CUPTI) == ()
    assert flag(record(seen(trials(unprofiled=["tinier"]))), FlagKind.NO_CUPTI) == (BURST, None, None)


def test_processes_of_which_it_is_not_known_which_kernels_ran_are_flagged_unless_the_record_is_early() -> None:
    def of(told: int) -> Collected:
        """Return what is collected where the first processes told it, and the others died before or saw none."""
        events: list[dict[str, Any]] = []
        for process in range(3):
            events += [{**one, "profiles": ["tiny"], "unprofiled": ["tiny"]} for one in of_process(process, cupti=None)]
            if process < told:
                events.append(profiled("torch_math"))
            elif process == told:
                events.append(profiled("torch_math", kernels=()))
        return seen(events)

    assert [flag(record(of(told)), FlagKind.NOT_PROFILED) for told in (3, 2, 0)] == [
        (),
        (None, 1, None),
        (None, 3, None),
    ]
    assert of(1).untold(2) == {("torch_flash", "tiny"), ("torch_math", "tiny")}
    assert of(3).untold(2) == {("torch_flash", "tiny")}
    early = record(seen([one for p in range(3) for one in of_process(p, cupti=None)]), early=True)
    assert [one.kind for one in early.flags if one.kind is not FlagKind.NO_ENERGY] == [FlagKind.EARLY]
