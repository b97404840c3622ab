"""The records of a cell that goes on: of the first variants of its first process.

They have a flag, and the build that draws them never keeps them. On a CPU, or a host of few cores, they are drawn where
the page has no figure yet. Whoever draws then holds the device lock, and waits for it from the begin of the trial on
after which there will be records, so that nothing is timed beside it.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path

from fluxbench.bench import events, recording
from fluxbench.bench.collected import Collected
from fluxbench.bench.events import Event
from fluxbench.bench.recording import Context
from fluxbench.core import progress
from fluxbench.operations.workload import Workload
from fluxbench.records import files

FOLDER = ".fluxbench-early"  # in the cell's own
_VARIANTS = 2  # fewer are no comparison, where a cell has more


class Early:
    """Writes the early records of one cell into `FOLDER` when its second variant was timed, or its only one.

    A GPU's variants are all timed at once: then records are of all of them.
    """

    def __init__(
        self, collected: Collected, names: Collection[str], workloads: Sequence[Workload], context: Context
    ) -> None:
        """`names`: the variants that are to be measured."""
        self._collected, self._names, self._workloads = collected, names, workloads
        self._least = min(_VARIANTS, len(names))
        self._context = dataclasses.replace(context, processes=1, early=True)
        self._is_done = False

    def hear(self, event: Event) -> None:
        """Take note of an event of a worker, which `collected` has taken in."""
        if self._is_done or isinstance(event, events.Timed):  # another may be timed already
            return
        seen = {trial.timed.variant for trial in self._collected.trials if trial.timed.burst}
        timed = [name for name in self._names if name in seen]  # a reference may be another cell's variant
        if len(timed) < self._least:
            if isinstance(event, events.TrialBegan) and len({*timed, event.variant} & {*self._names}) >= self._least:
                progress.say(early="soon")
        else:
            self._is_done = True
            try:
                self._write(timed)
            except Exception:  # noqa: BLE001 - never worth what is being measured
                traceback.print_exc()
            else:
                progress.say(early="ready")

    def _write(self, names: Sequence[str]) -> None:
        so_far = dataclasses.replace(self._collected)  # with a log of its own, as that of all is made once
        known = {(trial.timed.variant, name) for trial in so_far.trials for name in trial.timed.workloads}
        known |= set(so_far.failed)  # the others are still to come
        records = recording.of_cell(so_far, names, self._workloads, self._context)
        early = [record for record in records if (record.variant, record.workload.name) in known]
        Path(FOLDER).mkdir()
        files.write(Path(FOLDER) / f"{self._context.cell.id}.jsonl", early)
