"""How far fresh runs of a whole notebook differ, as `reruns.json` has it. Its keys are fixed, since it is published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from fluxbench.records.schema import BURST, RecordError

FAST_MS = 2.0


class Spread(Struct, frozen=True, kw_only=True):
    """How far the ratios to the reference differ between the runs, over some variants and workloads."""

    max: float  # the largest ratio over the smallest, minus one
    median: float
    variant: str  # with the largest difference
    workload: str
    ratios: tuple[float, ...]  # of these, the newest run first
    count: int


class Pairs(Struct, frozen=True, kw_only=True):
    """The runs compared with each other as `fluxbench diff` does."""

    pairs: int
    rows: int
    called: int  # significant
    undecided: int
    called_sustained: int
    device_moved: int  # pairs in which the control kernel's change was significant


class CuptiDifference(Struct, frozen=True, kw_only=True):
    """The CUPTI cross-check of one record."""

    variant: str
    workload: str
    difference: float


class Reruns(Struct, frozen=True, kw_only=True):
    """What `reruns.json` holds; shares, None with a `reason` where there are none."""

    notebook: str
    runs: int  # that every cell has, except those with only one run
    cells: dict[str, tuple[str, ...]]  # when each run was measured, UTC, the newest first
    compared: Pairs
    fast_ms: float = FAST_MS
    once: tuple[str, ...] = ()  # cells with only one run, where others have several
    at_once: bool = False  # runs overlapped in time
    clocks: tuple[CuptiDifference, ...] = ()
    burst_faster: Spread | None = None  # variants under `fast_ms`
    burst_slower: Spread | None = None
    sustained_faster: Spread | None = None
    sustained_slower: Spread | None = None
    late: int = 0  # pairs of variant and workload that are launch-bound in some run
    reason: str | None = None  # `why_none`, as it was worded when the file was written

    def spread(self, regime: str, *, fast: bool) -> Spread | None:
        """Return the spread of the faster or the slower variants in a regime."""
        if regime == BURST:
            return self.burst_faster if fast else self.burst_slower
        return self.sustained_faster if fast else self.sustained_slower

    @property
    def why_none(self) -> str | None:
        """Why there is no spread of the faster variants in burst; None where there is one."""
        if self.burst_faster:
            return None
        few = [cell for cell, times in self.cells.items() if len(times) < 2]
        if self.cells and not few:
            return f"no variant takes less than {self.fast_ms:g} ms on this device"
        kept = f"only one of {', '.join(few)}" if few else "none"
        return (
            f"it takes two runs of the notebook {self.notebook} under the same conditions, and {kept} was at hand when "
            "this page was measured; a published page is one run"
        )


def read(content: Mapping[str, Any]) -> Reruns:
    """Return what the JSON object of `reruns.json` holds. Raises `RecordError` where it is damaged."""
    try:
        return msgspec.convert(content, Reruns)
    except msgspec.ValidationError as error:
        raise RecordError(f"reruns.json must hold what fresh runs differ by: {error}; run its cell again") from error
