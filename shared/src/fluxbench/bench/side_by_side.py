"""The batches of a cell: one after the other, or all at once, where they would otherwise be the last of a build.

What lacked memory is measured again alone on the device after all of them, for which it may wait long.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fluxbench.bench.collected import Collected
from fluxbench.bench.pool import FIRST_COUNTS, Pool
from fluxbench.bench.processes import Batch
from fluxbench.bench.unfinished import Unfinished
from fluxbench.core import progress
from fluxbench.core.formatting import count


def measure_all(
    batches: Sequence[tuple[Batch, Pool]],
    collected: Collected,
    deadline: float,
    *,
    together: bool,
    unfinished: Unfinished | None = None,
) -> None:
    """Measure all batches, each with the workers of its pool, until `deadline` (monotonic seconds).

    `together`: at the same time; the device lock lets one worker measure at a time, as of several cells. What a build
    that was stopped had measured of the cell is `unfinished`.
    """

    def measure(batch: Batch, pool: Pool, into: Collected) -> None:
        batch.measure(into, pool, deadline)
        pool.close()

    def measure_alone(batch: Batch, pool: Pool, into: Collected) -> None:
        batch.measure_alone(into, pool, deadline)
        pool.close()

    if not together:
        _resume(unfinished, collected)
        for step in (measure, measure_alone):
            for batch, pool in batches:
                step(batch, pool, collected)
        return
    parts = [collected.apart() for _ in batches]
    for number, part in enumerate(parts):
        _resume(unfinished and unfinished.part(number), part)
    for step in (measure, measure_alone):
        with ThreadPoolExecutor(max(1, len(batches))) as threads:
            running = [threads.submit(step, *each, part) for each, part in zip(batches, parts, strict=True)]
        for of_batch in running:
            of_batch.result()  # raises what it raised
    for part in parts:
        collected.join(part)


def _resume(unfinished: Unfinished | None, collected: Collected) -> None:
    """Go on with what was measured of a cell, if anything was."""
    if unfinished is None or not unfinished.resume(collected):
        return
    own = [trial.timed for trial in collected.trials if trial.timed.burst]
    print(f"A build that was stopped had measured {count(len(own), 'trial')}; this one goes on from there.")
    progress.say(partly=True)
    progress.say(before=sum(len(timed.workloads) * (1 if timed.process else FIRST_COUNTS) for timed in own))
