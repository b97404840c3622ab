"""Whether a kernel reuses what it returned: a call on contents that the calls before it had, over one on new ones."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from fluxbench.correctness.contents import Contents
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.timing.lead import MOST_LAUNCH_S
from fluxbench.timing.stopwatch import Stopwatch

_MAX_REPEATED = 5  # rounds in which a call is repeated on the same contents
_REPEAT_S = 5.0  # after which no further one of these rounds is begun
_TELLS_NOTHING_FROM = 0.97  # of a call on repeated contents over one on new ones
REPEATS = (2, 6)  # fewest and most calls on the same contents
_MOST_CALLS = REPEATS[1] + 2  # of a round, with those on other contents


def repeated_over_new(
    stopwatch: Stopwatch,
    calls: Mapping[str, Bound],
    contents: Mapping[str, Contents],
    fresh: Callable[[str], Tensors],
    launch_s: Mapping[str, float],
    rng: random.Random,
) -> dict[str, float]:
    """Return, by workload, the time of a call on contents that the calls before it had over that of one on new ones.

    After a warm call, 2 to 6 calls get the same contents, the next one others; `fresh` gives contents that no kernel
    has seen, and the cache is cleared before each call. A clock that falls or recovers changes the time of calls in
    succession by several percent. So the last repeated call is compared with what is interpolated between the two on
    new contents, and only what a kernel kept can make it shorter. `launch_s` is the time that the host takes for a
    call.

    Where a quotient seems to tell something, the median of up to five counts: a host that is late with one call makes
    it longer.
    """
    quotients: dict[str, list[float]] = {name: [] for name in calls}
    host_s = {name: _MOST_CALLS * seconds for name, seconds in launch_s.items()}
    began = time.monotonic()
    for done in range(_MAX_REPEATED):
        if done and time.monotonic() - began > _REPEAT_S:
            break
        for name in [name for name in calls if _tells(quotients[name])]:
            repeats, inputs, both = rng.randint(*REPEATS), contents[name].inputs, [fresh(name), fresh(name)]
            stopwatch.wait()
            launching = time.perf_counter()
            stopwatch.spin(min(host_s[name], MOST_LAUNCH_S), 2 * _MOST_CALLS)
            calls[name](inputs)
            for new, count in zip(both, (repeats, 1), strict=True):
                for tensor, values in new.items():
                    inputs[tensor].copy_(values)
                _record_calls(stopwatch, calls[name], inputs, count)
            host_s[name] = max(host_s[name], time.perf_counter() - launching)
            first, *_, last, other = stopwatch.between_ms()[::2]
            quotients[name].append(last / (first + (other - first) * (repeats - 1) / repeats))
    return {name: statistics.median(values) for name, values in quotients.items()}


def _tells(quotients: Sequence[float]) -> bool:
    return not quotients or statistics.median(quotients) < _TELLS_NOTHING_FROM


def _record_calls(stopwatch: Stopwatch, bound: Bound, inputs: Tensors, count: int) -> None:
    """Put so many calls into the device's queue, each with an event before and after it."""
    prepared = bound.prepared(inputs)  # once: a backward pass may keep its result with the graph of the forward
    for _ in range(count):
        stopwatch.clear_cache()
        stopwatch.record()
        bound.call(prepared)
        stopwatch.record()
