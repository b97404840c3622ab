"""The windows of a sustained block: in each all workloads have their turn.

On a GPU two are in its queue, so that it need not wait for the host between them. At its power limit a device is
faster after a pause: on an H200's Flux page (2026-11-28), whose windows followed pauses of 1 to 3% of the time, calls
were 0.5% shorter where these were longer by 1%.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fluxbench.timing.stopwatch import Lap, Stopwatch

_IN_FLIGHT = 2  # windows in a GPU's queue
GRAPH_LAUNCH_S = 2e-3  # at most, of some thousand kernels

Launch = Callable[[Sequence[Any]], Any]  # of the calls of a turn; returns what the last one does


class Given(Protocol):
    """What the calls of a block get, as `timing.rotation.Rotation` gives it."""

    def turn(self, calls: int) -> Sequence[Any]:
        """Return what the next calls get, in order."""

    def keep(self, outputs: Any) -> None:
        """Take what the last call of a turn returned, before another call may overwrite it."""


class Lead(NamedTuple):
    """What is before each window and not timed: a call of another workload, or replays; it takes so many ms."""

    call: Callable[[], Any]
    ms: float


@dataclass(frozen=True)
class _Launched:
    """A window: when launching it began and ended, and for how long each workload, in monotonic seconds."""

    began: float
    ended: float
    launch_s: Mapping[str, float]
    lap: Lap | None  # None: no other window is launched before this one is over


class Windows:
    """Windows that have been launched, and what those gave that are over; lists have one value a window.

    What the host knows of when the device was done (`spans`, `ahead_s`, `waited`) is there at the end.
    """

    def __init__(
        self,
        stopwatch: Stopwatch,
        calls: Mapping[str, Callable[[Any], Any]],
        launches: Mapping[str, Launch],
        given: Mapping[str, Given],
        in_turn: Mapping[str, int],
        repeats: Mapping[str, int] | None = None,
        *,
        idle: bool = False,
        replays: bool = False,
        leads: Sequence[str] = (),
        lead: Lead | None = None,
    ) -> None:
        """`in_turn`: how many calls a turn has, which `launches` makes as often as `repeats` says.

        `idle`, `replays`, `leads`, `lead`: as `timing.sustained.sustain` has them.
        """
        self._stopwatch, self._calls, self._launches, self._given = stopwatch, calls, launches, given
        self._in_turn, self._repeats = in_turn, repeats or dict.fromkeys(launches, 1)
        self._idle, self._replays, self._leads, self._other_lead = idle, replays, leads or [*calls], lead
        self.led = not (idle or replays)
        self._at_once = _IN_FLIGHT if self._has_lead else 1
        self._launched: list[_Launched] = []
        self._over: list[float] = []  # when the host found a window over: at once where it waited for it
        self.counts = {workload: count * self._repeats[workload] for workload, count in in_turn.items()}
        self.samples_ms: dict[str, list[float]] = {workload: [] for workload in calls}  # of a call, by workload
        self.means_ms: list[float] = []  # of all timed calls of a window
        self.lasted_ms: list[float] = []  # with the one that is not timed
        self.launch_s: dict[str, list[float]] = {workload: [] for workload in calls}
        self.spans: list[tuple[float, float]] = []  # monotonic seconds; in a queue one begins as another ends
        self.ahead_s: list[float] = []  # for how long the device was still busy when the host had launched a window
        self.waited: list[bool] = []  # the window before was over by then: the device may have waited for the host

    def take(self) -> None:
        """Take one more window, and have the next one in the queue before it is over."""
        while len(self._launched) < len(self._over) + self._at_once:
            self._launch()
        self._finish()

    def end(self) -> None:
        """Take what is in the queue, and wait for all that the device has to do, as part of the last window."""
        while len(self._over) < len(self._launched):
            if len(self._over) == len(self._launched) - 1:
                self._stopwatch.wait()
            self._finish()
        ends = self._ends()
        follows = [self._launched[0].began, *ends[:-1]]
        begins = [max(one.began, begin) for one, begin in zip(self._launched, follows, strict=True)]
        self.spans = list(zip(begins, [*ends[:-1], self._over[-1]], strict=True))
        self.ahead_s = [max(0.0, end - one.ended) for one, end in zip(self._launched, ends, strict=True)]
        self.waited = [begin <= one.ended for one, begin in zip(self._launched, follows, strict=True)]

    def _ends(self) -> list[float]:
        """Return when the device was done with each window, in monotonic seconds.

        By its own clock. That differs from the host's by the least that the host saw: it waited for the last one.
        """
        laps = [one.lap for one in self._launched if one.lap]
        if not laps:
            return self._over
        since_ms = [0.0, *(late.after_ms(early) for early, late in itertools.pairwise(laps))]
        device_s = [each / 1e3 for each in itertools.accumulate(since_ms)]
        begin = min(over - seconds for over, seconds in zip(self._over, device_s, strict=True))
        return [begin + seconds for seconds in device_s]

    def _launch(self) -> None:
        turns = turns_of(self._given, self._in_turn)
        began = time.monotonic()
        if self._replays:
            self._stopwatch.spin(GRAPH_LAUNCH_S, 1)
        if self._other_lead:
            self._other_lead.call()
        elif self._has_lead:
            first = self._lead(len(self._launched))
            self._calls[first](turns[first][0])
        launch_s = launch(self._stopwatch, self._launches, turns, self._given, self._repeats, idle=self._idle)
        ended = time.monotonic()
        self._launched.append(_Launched(began, ended, launch_s, self._stopwatch.lap() if self._at_once > 1 else None))

    def _finish(self) -> None:
        """Wait for the oldest window in the queue."""
        one = self._launched[len(self._over)]
        times_ms = one.lap.between_ms() if one.lap else self._stopwatch.between_ms()
        self._over.append(time.monotonic())
        totals_ms = of_workloads(self._launches, times_ms)
        for workload, total in totals_ms.items():
            self.samples_ms[workload].append(total / self.counts[workload])
            self.launch_s[workload].append(one.launch_s[workload])
        self.means_ms.append(sum(totals_ms.values()))
        self.lasted_ms.append(self.means_ms[-1] + self._lead_ms())

    @property
    def _has_lead(self) -> bool:
        return self.led and not self._stopwatch.on_cpu

    def _lead_ms(self) -> float:
        """Return how long what is not timed took, before the window that was over last."""
        if self._other_lead:
            return self._other_lead.ms
        return self.samples_ms[self._lead(len(self._over) - 1)][-1] if self._has_lead else 0.0

    def _lead(self, window: int) -> str:
        """Return the workload of the call before a window."""
        return self._leads[window % len(self._leads)]


def launch(
    stopwatch: Stopwatch,
    launches: Mapping[str, Launch],
    turns: Mapping[str, Sequence[Any]],
    given: Mapping[str, Given],
    repeats: Mapping[str, int] | None = None,
    *,
    idle: bool,
) -> dict[str, float]:
    """Launch the calls of a window between events, without the first of each turn; return the host's seconds for it."""
    seconds = {}
    for workload, make in launches.items():
        turn = turns[workload][1:]
        if idle:
            stopwatch.begin_idle()
        stopwatch.record()
        launching = time.monotonic()
        for _ in range((repeats or {}).get(workload, 1)):
            out = make(turn)
        seconds[workload] = time.monotonic() - launching
        stopwatch.record()
        given[workload].keep(out)
        del out
    return seconds


def of_workloads(launches: Iterable[str], between_ms: Sequence[float]) -> dict[str, float]:
    """Return the time of each workload's calls in a window, of those between its events, in the order of launching."""
    return dict(zip(launches, between_ms[::2], strict=True))


def turns_of(given: Mapping[str, Given], counts: Mapping[str, int]) -> dict[str, Sequence[Any]]:
    """Return what the calls of a window get, and before them one that is not timed."""
    return {workload: given[workload].turn(1 + count) for workload, count in counts.items()}
