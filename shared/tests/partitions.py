"""The partitions of a warp-specialized kernel, in threads of which one runs at a time, and its barriers.

The last partitions run as far ahead of the first as barriers let them, or each as long as it can. Where all wait, each
raises `Stuck`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

here = threading.local()  # of a partition's thread: its program, its products and its copies in flight


class Stuck(RuntimeError):
    """A wait that nothing ends."""


class Schedule:
    """Which partition of a program runs: of those that may go on, the last, or the same one as long as it can."""

    def __init__(self, partitions: int, *, greedy: bool) -> None:
        self.queue = list(range(partitions))[::-1]
        self.greedy = greedy
        self.may_go_on: dict[int, Callable[[], bool]] = dict.fromkeys(self.queue, lambda: True)
        self.current: int | None = 0
        self.changed = threading.Condition()

    def start(self, me: int) -> None:
        """Wait for the first turn."""
        with self.changed:
            self.changed.wait_for(lambda: self.current in (me, None))

    def pause(self, until: Callable[[], bool] = lambda: True) -> None:
        """Let the others run, and go on when a condition holds."""
        me = here.partition
        if self.greedy and until():
            return
        with self.changed:
            self.may_go_on[me] = until
            self._pass_on()
            self.changed.wait_for(lambda: self.current in (me, None))
        if self.current is None:
            raise Stuck

    def end(self, *, failed: bool) -> None:
        """Leave; where this one failed, the others do not go on either."""
        with self.changed:
            self.queue.remove(here.partition)
            self._pass_on()
            self.current = None if failed else self.current

    def _pass_on(self) -> None:
        self.current = next((each for each in self.queue if self.may_go_on[each]()), None)
        self.changed.notify_all()


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes are there."""

    def __init__(self, count: int) -> None:
        self.count = self.pending = count
        self.missing_bytes = 0
        self.phase = 0

    def arrive(self, count: int = 0, expected_bytes: int = 0) -> None:
        """Count arrivals and bytes, which are to come (or are there, if negative)."""
        self.missing_bytes += expected_bytes
        self.pending -= count
        assert self.pending >= 0
        if self.pending == 0 and self.missing_bytes == 0:
            self.pending, self.phase = self.count, self.phase + 1
        here.schedule.pause()

    def wait(self, parity: int) -> None:
        """Wait for the end of a phase of this parity, which the one before the first has ended."""
        if (self.phase - 1) % 2 != parity:
            here.schedule.pause(lambda: (self.phase - 1) % 2 == parity)


class NamedBarriers:
    """The barriers of `bar.sync` and `bar.arrive`, by number."""

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        self.rounds: dict[str, int] = {}

    def run(self, instruction: str, number: str, threads: int, arriving: int) -> None:
        """Arrive with some of the threads, and wait for the others where the instruction does."""
        now = self.rounds.setdefault(number, 0)
        self.arrived[number] = self.arrived.get(number, 0) + arriving
        if self.arrived[number] == threads:
            self.arrived[number], self.rounds[number] = 0, now + 1
        here.schedule.pause(lambda: instruction == "arrive" or self.rounds[number] > now)


def specialize(partitions: list[tuple[Callable[..., None], tuple[Any, ...]]], warps: Any, registers: Any) -> None:
    """Run the partitions of this program to their ends. Raises what the first that failed raised."""
    schedule, named, failures = Schedule(len(partitions), greedy=here.greedy), NamedBarriers(), list[BaseException]()
    program, programs = here.program, here.programs

    @torch.no_grad()  # type: ignore[untyped-decorator]  # which is of a thread
    def run(index: int) -> None:
        begin(program, programs)
        here.partition, here.schedule, here.named = index, schedule, named
        schedule.start(index)
        before = len(failures)
        try:
            partition, arguments = partitions[index]
            if schedule.current is not None:
                partition(*arguments)
                assert not here.products
                assert not here.copies
        except (Stuck, AssertionError, IndexError, RuntimeError) as error:
            failures.append(error)
        schedule.end(failed=len(failures) > before)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(partitions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def begin(program: int, programs: int, *, greedy: bool = False) -> None:
    """Let this thread be of a program, with nothing in flight."""
    here.program, here.programs, here.greedy = program, programs, greedy
    here.products, here.copies, here.stored = [], [], []
