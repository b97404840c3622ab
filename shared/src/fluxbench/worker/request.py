"""What a worker is asked to do. Without torch: the process that asks does not have it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypedDict

from fluxbench import operations
from fluxbench.operations.workload import Cost, Workload
from fluxbench.timing.parts import parts_of
from fluxbench.worker import needs


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is spent on a workload. The defaults are for a few of them; a grid of many has less for each."""

    grid: bool = False  # many short calls: fewer rounds, and rows of calls as CUDA graphs, see `timing.plan`
    replayed: bool = (
        False  # calls of many kernels: a burst sample is a row of them as a CUDA graph, however long they are
    )
    long: bool = False  # calls of up to a second on a GPU: two processes, one burst round, and cases kept as on a CPU
    plans: bool = False  # so many shapes that plans of a library are made before a process's turn, see `worker.plans`
    # What calls at the workloads that a process holds at once read and write; of `one_reference` `needs.held_bytes`.
    held_bytes: int | None = None  # None: it holds all
    # A process computes one reference of a workload: timed contents follow from the case that is checked. Not on a CPU,
    # where cases are kept.
    one_reference: bool = False
    # Operations are measured at the same time, each in processes of its own, see `bench.side_by_side`.
    side_by_side: bool = False
    most: int | None = None  # processes on a GPU, however wide intervals are; None: as many as these need
    probes: bool = True  # capabilities are tried too, where sustained times are measured
    # Workloads checked on all kinds of inputs and profiled, others on one kind; empty: all. See `Study.effort_on`.
    fully: tuple[str, ...] = ()


USUAL = Effort()


class Told(TypedDict):
    """The numbers of a `correctness.case.Yardstick`, by output."""

    worst: dict[str, list[float]]
    bins: dict[str, list[list[float]]]


Yardsticks = dict[str, dict[str, Told]]  # by workload and precision class
LAUNCHING_FROM = 0.85  # of a call's time that the host takes to launch it: the device may wait for it
ALONE = 1  # `Effort.held_bytes` with which a process holds one workload at a time


def inputs_of(workload: Workload) -> tuple[str, str]:
    """Return what is the same for workloads that share inputs and references."""
    return operations.whole_of(workload.operation), f"{sorted(workload.shape.items())}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one process is to do. `skip` holds (variant, workload) pairs that an earlier process failed at."""

    device: str  # "cuda" or "cpu"
    workloads: tuple[Workload, ...]  # of operations that share processes
    variants: tuple[str, ...]
    references: tuple[str, ...]
    process: int = 0  # the first one also looks at memory and CUPTI's times
    thorough_in: int = 0  # the process that also checks on all kinds of inputs and a ragged shape
    sustained: bool = True  # False: burst samples alone
    burst_alone: tuple[str, ...] = ()  # workloads of which only burst samples are taken
    whole_up_to: int | None = None  # scores of a call, beyond which rows of the outputs are judged, see `Study`
    probe: tuple[str, ...] = ()  # variants of which is tried what they declare to be capable of, when all is measured
    effort: Effort = USUAL
    skip: tuple[tuple[str, str], ...] = ()
    clocks: tuple[
        tuple[str, str], ...
    ] = ()  # of these the references that were INCORRECT: they may be timed beside others
    done: tuple[tuple[str, str], ...] = ()  # (variant, workload) pairs that this process has timed before it died
    untold: tuple[tuple[str, str], ...] = ()  # those of which it has not told which kernels ran
    # Whether sustained calls are CUDA graphs, by variant and workload, as in the first process.
    replays: dict[str, dict[str, bool]] = dataclasses.field(default_factory=dict)
    rates: bool = False  # measure the device's own matrix and copy rates instead
    clock_mhz: int | None = None  # the highest of a GPU, by its driver
    lock: str | None = None  # the folder of the device lock; None: nobody else uses the device
    alone: bool = False  # no other worker holds memory of the device meanwhile
    order: int = 0  # of the cell among those that share the device
    compiled: str | None = None  # the folder where the times of first compilations are kept
    cases: str | None = None  # the folder where cases are kept, of all cells
    contents: str | None = None  # that where contents of timed calls are kept, of this cell or of all cells of a build
    kept: dict[str, str] = dataclasses.field(default_factory=dict)  # digests of cases and contents, by name
    trusts: bool = True  # what is kept without such a digest: no kernel has run in this cell
    yardsticks: Yardsticks = dataclasses.field(default_factory=dict)  # of the first process
    # Calls in a row by variant and workload, as in the first process; 0: a call is a sample by itself.
    rows: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)

    @property
    def is_thorough(self) -> bool:
        """Whether this process checks all that is ever checked."""
        return self.process == self.thorough_in

    def judges(self, variant: str) -> bool:
        """Whether this process judges what a variant's calls return before they are timed; timed calls always are.

        Processes up to the thorough one do, and of a GPU only for variants that they measure: a reference beside them
        is judged where it is measured itself.
        """
        return self.process <= self.thorough_in and (self.device == "cpu" or variant in self.variants)

    def profiles(self, variant: str, workload: str) -> bool:
        """Whether a process looks which kernels of a GPU run, once all is timed (`worker.profiling`)."""
        return self.device == "cuda" and variant in self.variants and self.is_full(workload)

    def replays_at(self, variant: str, workloads: Collection[str]) -> bool | None:
        """Whether a variant's sustained calls at workloads are CUDA graphs; None: it is not decided, or not for all."""
        known = self.replays.get(variant, {})
        decided = {known.get(workload) for workload in workloads if self.sustains(workload)}
        return decided.pop() if len(decided) == 1 else None

    @property
    def measures_memory(self) -> bool:
        """Whether this process measures the memory of calls: it gives back what torch keeps for later, before each.

        Of a grid of many short calls that takes too long; one that holds a workload at a time has few long ones.
        """
        return self.is_thorough and (not self.effort.grid or self.effort.held_bytes == ALONE)

    def sustains(self, workload: str) -> bool:
        """Whether sustained times of a workload are taken."""
        return self.sustained and workload not in self.burst_alone

    def in_blocks(self, workloads: Iterable[str]) -> dict[int, list[str]]:
        """Return those of some workloads that have sustained times, by the block that holds them, the shortest first.

        On a GPU a block holds calls of about one length (`timing.parts`): at a power limit all have the clock that they
        leave together. Of calls of up to a second each has periods of the limit to itself, in one block of all.
        """
        some = [name for name in workloads if self.sustains(name)]
        if self.device == "cpu" or self.effort.long:
            return {0: some} if some else {}
        part_of = parts_of(one for one in self.workloads if self.sustains(one.name))
        found: dict[int, list[str]] = {}
        for name in some:
            found.setdefault(part_of[name], []).append(name)
        return dict(sorted(found.items()))

    @property
    def in_succession(self) -> bool:
        """Whether a GPU's sustained blocks of this process follow one another: few calls, of little memory."""
        effort = self.effort
        return self.sustained and not (effort.grid or effort.long or effort.replayed or effort.held_bytes)

    def is_full(self, workload: str) -> bool:
        """Whether the thorough process checks a workload on all kinds of inputs, and the first one profiles it."""
        return not self.effort.fully or workload in self.effort.fully

    def after(self, reference: str) -> list[str]:
        """Return the variants but the reference in their order, in which none has the same place in every process."""
        names = [name for name in self.variants if name != reference]
        rotated = self.process % max(1, len(names))
        names = names[rotated:] + names[:rotated]
        return names[::-1] if self.process % 2 else names

    @property
    def held_together(self) -> list[tuple[Workload, ...]]:
        """The workloads, in their order, as a process holds them: as many at once as `effort.held_bytes` allows.

        Those that share inputs, which stand side by side, are held once and so together.
        """
        alike = (list(some) for _, some in itertools.groupby(self.workloads, inputs_of))
        size = needs.held_bytes if self.effort.one_reference else lambda one: one.cost.min_bytes
        return needs.divided(alike, self.effort.held_bytes or math.inf, size)

    def to_json(self) -> str:
        """Return the request as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Return the request that `to_json` wrote."""
        data = json.loads(text)
        data["workloads"] = tuple(
            Workload(**{**workload, "cost": Cost(**workload["cost"])}) for workload in data["workloads"]
        )
        for name in ("variants", "references", "burst_alone", "probe"):
            data[name] = tuple(data[name])
        for name in ("skip", "clocks", "done", "untold"):
            data[name] = tuple((variant, workload) for variant, workload in data[name])
        data["effort"] = Effort(**{**data["effort"], "fully": tuple(data["effort"]["fully"])})
        return cls(**data)
