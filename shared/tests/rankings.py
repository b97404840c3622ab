"""Records of made-up sustained times, and how they rank."""

from __future__ import annotations

import msgspec
from sample_records import changed, record

from fluxbench.analysis.groups import groups
from fluxbench.analysis.ranking import Ranked, ranked
from fluxbench.records.schema import Record


def places(*records: Record, precision_class: str = "exact") -> list[Ranked]:
    [group] = groups(records)
    return ranked(group, group.longest, precision_class)


def short(entries: list[Ranked]) -> list[tuple[str, int | None, bool]]:
    return [(entry.record.variant, entry.rank, entry.tied) for entry in entries]


def timed(variant: str, *means_ms: float, **fields: object) -> Record:
    """Return a record with one sustained sample for each process."""
    made = record(variant)
    timing = msgspec.structs.replace(made.timings["sustained"], samples_ms=[(ms,) for ms in means_ms], **fields)
    return changed(made, cell=variant, timings={**made.timings, "sustained": timing})
