"""Short calls in a row, as one CUDA graph: what two events add to a time is shared by all calls of the row.

Two events in succession are up to 3 microseconds apart, a third of a short call. A row lasts about 0.3 ms or
more, so this is 1% of it. Its calls read slots in rotation, which together exceed twice the cache. A replay runs no
code of the host, so a kernel cannot tell a replay from another before it reads its inputs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch

if TYPE_CHECKING:
    from fluxbench.timing.rotation import Rotation

LAUNCHED = 5  # calls in a row that the host launches, at most


@dataclass(frozen=True)
class Row:
    """Calls of a variant at a workload that are one sample: `launch` makes those of a turn, and returns the last's."""

    calls: int
    given: Rotation
    launch: Callable[[Sequence[Any]], Mapping[str, object]]


def calls_in_a_row(call_s: float, plan: Plan) -> int:
    """Return how many calls of so many seconds a row has; 0 where a call is a sample by itself."""
    return max(2, math.ceil(plan.row_s / call_s)) if call_s < plan.row_below_s else 0


def launched(stopwatch: Stopwatch, call: Callable[[Any], Mapping[str, object]], row: Row) -> tuple[float, float]:
    """Return the ms of a call where the host launches a row's calls one by one, and those of the host alone.

    The first is by the device's events, from the first call's begin to the last one's end: what a program without CUDA
    graphs gets. Both are means over the calls; one call before them, on other inputs, is not timed. The last output is
    kept.
    """
    first, *turn = row.given.turn(row.calls)
    turn = turn[-LAUNCHED:]
    stopwatch.wait()
    stopwatch.clear_cache()
    call(first)
    stopwatch.record()
    began = time.perf_counter()
    for each in turn:
        out = call(each)
    on_host_ms = 1e3 * (time.perf_counter() - began)
    stopwatch.record()
    row.given.keep(out)
    del out
    return stopwatch.between_ms()[0] / len(turn), on_host_ms / len(turn)
