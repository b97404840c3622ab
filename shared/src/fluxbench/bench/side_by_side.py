"""The batches of a cell: one after the other, or all at once, where they would otherwise be the last of a build.

What lacked memory is measured again alone on the device after all of them, for which it may wait long.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fluxbench.bench.collected import Collected
from fluxbench.bench.pool import Pool
from fluxbench.bench.processes import Batch


def measure_all(
    batches: Sequence[tuple[Batch, Pool]], collected: Collected, deadline: float, *, together: bool
) -> None:
    """Measure all batches, each with the workers of its pool, until `deadline` (monotonic seconds).

    `together`: at the same time; the device lock lets one worker measure at a time, as of several cells.
    """

    def measure(batch: Batch, pool: Pool, into: Collected) -> None:
        batch.measure(into, pool, deadline)
        pool.close()

    def measure_alone(batch: Batch, pool: Pool, into: Collected) -> None:
        batch.measure_alone(into, pool, deadline)
        pool.close()

    if not together:
        for step in (measure, measure_alone):
            for batch, pool in batches:
                step(batch, pool, collected)
        return
    parts = [collected.apart() for _ in batches]
    for step in (measure, measure_alone):
        with ThreadPoolExecutor(max(1, len(batches))) as threads:
            running = [threads.submit(step, *each, part) for each, part in zip(batches, parts, strict=True)]
        for of_batch in running:
            of_batch.result()  # raises what it raised
    for part in parts:
        collected.join(part)
