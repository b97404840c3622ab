"""Steps that several GPUs of one host share: how much faster they are than on one of them, and what their time is."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluxbench.analysis.groups import groups, timing_of
from fluxbench.analysis.launching import is_launching
from fluxbench.operations.shared_step import COMMUNICATION, WAITING, sharing_of
from fluxbench.operations.sharing import model_of
from fluxbench.operations.words import describe
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import Estimate, mean_ratios

OPERATION = "shared_step"
ALONE = "alone"
WAYS = {ALONE: "alone", "ulysses": "Ulysses", "ring": "ring", "both": "Ulysses with ring"}


@dataclass(frozen=True)
class Split:
    """What one profiled step of rank 0 is spent on, in ms, from its first kernel to the end of its last.

    Communication is what that of the rank takes which waits least, so one rank of all has no waiting. Idle is the time
    without any kernel. Computing and communicating count twice where they are beside each other.
    """

    step_ms: float
    computing_ms: float
    communicating_ms: float
    waiting_ms: float
    idle_ms: float


@dataclass(frozen=True, eq=False)
class SharedRecord:
    """A record of a step by one way on so many GPUs, and how much faster it is than on one GPU of the same host."""

    record: Record
    model: str  # and its size, in words
    way: str  # of `WAYS`
    speedup: Estimate | None  # None of a step on one GPU, and where that has no time

    @property
    def gpus(self) -> int:
        """How many GPUs the step is on."""
        return self.record.workload.ranks

    @property
    def split(self) -> Split | None:
        """What a step is spent on; None where the profiler saw nothing of it, as on a CPU."""
        cupti = self.record.cupti
        if cupti is None or not cupti.parts_ms:
            return None
        communicating, waiting = (cupti.parts_ms.get(part, 0.0) for part in (COMMUNICATION, WAITING))
        computing = sum(cupti.parts_ms.values()) - communicating - waiting
        idle = max(0.0, cupti.span_ms - cupti.kernels_ms)
        return Split(cupti.span_ms, computing, communicating, waiting, idle)


def shared_records(records: Iterable[Record]) -> list[SharedRecord]:
    """Return the steps among records that have a time, by model, variant, number of GPUs and way."""
    timed: dict[_Key, Record] = {}
    for group in (group for group in groups(records) if group.operation == OPERATION):
        for workload, variant in itertools.product(group.workloads, group.variants):
            if record := group.trusted(variant, workload):
                timed[_model(workload), _way(workload), int(workload.shape["gpus"]), variant] = record
    pairs = {
        key: (timed[key[0], ALONE, *key[2:]], record)
        for key, record in timed.items()
        if key[1] != ALONE and (key[0], ALONE, *key[2:]) in timed
    }
    speedups = _speedups(pairs)
    found = [SharedRecord(record, key[0], key[1], speedups.get(key)) for key, record in timed.items()]
    models = list(dict.fromkeys(each.model for each in found))
    variants = list(dict.fromkeys(each.record.variant for each in found))

    def place(each: SharedRecord) -> tuple[int, int, int, int]:
        ways = list(WAYS)
        return models.index(each.model), variants.index(each.record.variant), each.gpus, ways.index(each.way)

    return sorted(found, key=place)


_Key = tuple[str, str, int, str]  # model, way, GPUs of the host, variant


def _model(workload: Workload) -> str:
    return describe(dataclasses.replace(workload, shape=model_of(workload.shape)))


def _way(workload: Workload) -> str:
    """Return a key of `WAYS`."""
    sharing = sharing_of(workload.shape)
    if sharing.ranks == 1:
        return ALONE
    return "both" if min(sharing.ulysses, sharing.ring) > 1 else "ulysses" if sharing.ulysses > 1 else "ring"


def _speedups(pairs: Mapping[_Key, tuple[Record, Record]]) -> dict[_Key, Estimate]:
    """Return the time on one GPU over that on several, paired by process, with what all variants say of intervals.

    A variant that is measured on two numbers of GPUs has processes of its own for each, and so counts twice. What the
    host launches no faster than the device runs it says nothing of the intervals of other steps: it differs by more.
    """
    found: dict[_Key, Estimate] = {}
    for launching in (False, True):
        asked = [key for key, both in pairs.items() if any(map(is_launching, both)) is launching]
        together = [[key for key in asked if key[2:] == each] for each in dict.fromkeys(key[2:] for key in asked)]
        sides = [[[timing_of(pairs[key][side]).samples_ms for key in keys] for keys in together] for side in (0, 1)]
        for keys, several in zip(together, mean_ratios(*sides) if asked else [], strict=True):
            found |= zip(keys, several, strict=True)
    return found
