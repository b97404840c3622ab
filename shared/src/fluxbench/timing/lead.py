"""By how long the host is ahead of the device when the calls of a burst round, or of a part of it, begin."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence

from fluxbench.correctness.contents import Contents
from fluxbench.operations.protocol import Bound
from fluxbench.timing.parts import Key
from fluxbench.timing.stopwatch import Stopwatch

MOST_LAUNCH_S = 0.1  # in which a host fills the driver's queue of about 1,000 launches
_LONG_ROUND_S, _LONG_IN_GRID_S = 0.2, 0.01  # an untimed round that the device takes so long for is not made twice
_SPARE, _WAKING_S = 1.6, 1e-3  # of what a part took to launch at least, and for a host that has slept


class Lead:
    """Keeps a GPU busy until the host is ahead of it; a CPU, and calls that begin on an idle device, need no lead.

    Before the first round an untimed one tells how long the host takes to launch a round. Parts of later rounds have
    what each of their calls took to launch at least, and something to spare, since a host has slept in the rest before.
    A share of the round's time does not suffice, as some calls launch many more kernels than others: of 12,565 samples
    under 1 ms (`scaling`, an H200, 2026-11-28) 13.5% were then over 0.05 ms above the lower quartile of their series,
    by up to 27 ms. With all of the round's time at each part it was none of 8,508, but rounds took two to four times as
    long. Of 4,536 rows of short calls on an H200 (2026-11-29) the host was late with 116, and with 39 where it has a
    millisecond to wake up in.
    """

    def __init__(
        self,
        stopwatch: Stopwatch,
        calls: Mapping[Key, Bound],
        contents: Mapping[str, Contents],
        rows: Collection[Key],
        first: Key | None,
        cheap: Collection[str] = (),
        *,
        grid: bool = False,
    ) -> None:
        """`first` is the call that a round begins with, untimed; it may be one of `rows`, launched kernel by kernel. It
        is None where a replay is that.

        Rows need none of that, as they take less to launch than to run: where they begin, the host has to wake up. The
        untimed round is at `cheap` workloads if there are some, whose calls are launched alike.
        """
        self._stopwatch = stopwatch
        self._ahead = {key for key in calls if key not in rows or key == first}
        self._least_s = dict.fromkeys(calls, math.inf)  # the least that launching each call took
        self._round_s = 0.0
        tried = {
            key: bound
            for key, bound in calls.items()
            if key in self._ahead and (key in rows or not cheap or key[1] in cheap)
        }
        if tried and not (stopwatch.on_cpu or any(bound.idle for bound in calls.values())):
            tried_s = _launch_s(stopwatch, tried, contents, _LONG_IN_GRID_S if grid else _LONG_ROUND_S)
            self._round_s = min(MOST_LAUNCH_S, tried_s * len(self._ahead) / len(tried))

    def took(self, key: Key, seconds: float) -> None:
        """Take note of how long the host took for a call, with what it gets."""
        self._least_s[key] = min(self._least_s[key], seconds)

    def take(self, schedule: Sequence[Key], part: Sequence[Key], untimed: Key | None = None) -> None:
        """Keep the device busy while the host launches a part of a round, of which `schedule` are all calls.

        `untimed`: what is called before it.
        """
        of_round, of_part = (sum(key in self._ahead for key in keys) for keys in (schedule, part))
        lead_s = self._round_s * of_round / max(1, len(self._ahead))
        if len(part) < len(schedule):
            least_s = self._least_s
            untimed_s = least_s[untimed] if untimed and least_s[untimed] < math.inf else 0.0
            known_s = untimed_s + sum(least_s[key] for key in part if key in self._ahead)
            lead_s = min(lead_s + untimed_s, _SPARE * known_s + _WAKING_S)
        if of_part < len(part):
            lead_s = max(lead_s, _WAKING_S)
        self._stopwatch.spin(lead_s, 1 + of_part)


def _launch_s(
    stopwatch: Stopwatch, calls: Mapping[Key, Bound], contents: Mapping[str, Contents], long_s: float
) -> float:
    """Return how long the host takes to launch some calls, twice, unless the device takes `long_s` or more for them.

    Beyond what fills the driver's queue it waits for the device, and its time is the device's.
    """
    seconds = []
    for _ in range(2):  # the first one may have to wake the host up
        stopwatch.wait()
        stopwatch.spin(0.0, len(calls))
        began = time.perf_counter()
        for key, bound in calls.items():
            given = contents.get(key[1])
            prepared = bound.prepared(given.put(given.present) if given else {})
            stopwatch.clear_cache()
            stopwatch.record()
            bound.call(prepared)
            stopwatch.record()
        seconds.append(time.perf_counter() - began)
        stopwatch.between_ms()
        if time.perf_counter() - began > long_s:
            break
    return min(seconds)
