"""The batches of a cell: one after the other, or all at once, where compiling them takes minutes of the host."""

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

    if not together:
        for batch, pool in batches:
            measure(batch, pool, collected)
        return
    parts = [collected.apart() for _ in batches]
    with ThreadPoolExecutor(max(1, len(batches))) as threads:
        running = [threads.submit(measure, *each, part) for each, part in zip(batches, parts, strict=True)]
    for of_batch, part in zip(running, parts, strict=True):
        of_batch.result()  # raises what it raised
        collected.join(part)
