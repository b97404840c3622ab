"""Who takes how much of the device's memory, between real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fluxbench.core.memory_ledger import MemoryLedger

_WORKER = """
import sys
from pathlib import Path
from fluxbench.core.memory_ledger import MemoryLedger
def give_back():
    print("gives back", flush=True)
    return 1
ledger = MemoryLedger(Path(sys.argv[1]), lambda: print("waits", flush=True))
for line in sys.stdin:
    what, count = line.split()
    if what == "holds":
        ledger.hold(int(count))
        print("holds", count, flush=True)
        continue
    ledger.take(int(count), 100, give_back)
    print("has", ledger.taken, flush=True)
"""


class Worker:
    """A process that takes as much memory as it is told, of 100 bytes."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", _WORKER, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def takes(self, wanted: int) -> str:
        return self._asked(f"takes {wanted}")

    def holds(self, held: int) -> str:
        return self._asked(f"holds {held}")

    def _asked(self, line: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.says()

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    started: list[Worker] = []

    def start() -> Worker:
        started.append(Worker(tmp_path))
        return started[-1]

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.wait()


def test_workers_take_no_more_together_than_there_is(start: Callable[[], Worker]) -> None:
    first, second = start(), start()
    assert first.takes(60) == "has 60"
    assert second.takes(40) == "has 40"
    assert second.takes(30) == "has 30"  # less is there at once
    assert second.takes(50) == "gives back"  # before it waits, so that no two wait for each other
    assert second.says() == "waits"
    assert first.takes(95) == "gives back"  # although it fits: whoever has waited longer goes first
    assert second.says() == "has 50"
    assert first.says() == "waits"
    second.process.kill()  # the system releases what it took
    assert first.says() == "has 95"


def test_one_that_wants_more_than_there_is_gets_all_of_it(start: Callable[[], Worker]) -> None:
    first, large = start(), start()
    assert first.takes(1) == "has 1"
    assert large.takes(500) == "gives back"
    assert large.says() == "waits"
    assert first.takes(0) == "has 0"
    assert large.says() == "has 100"


def test_one_that_wants_all_does_not_wait_for_what_those_behind_it_cannot_give_back(
    start: Callable[[], Worker],
) -> None:
    first, large = start(), start()
    assert first.takes(60) == "has 60"
    assert [large.takes(500), large.says()] == ["gives back", "waits"]
    assert first.takes(70) == "gives back"  # all but one
    assert large.says() == "has 100"
    assert first.says() == "waits"
    assert large.takes(0) == "has 0"
    assert first.says() == "has 70"


def test_one_that_dies_while_it_waits_keeps_nobody(start: Callable[[], Worker], tmp_path: Path) -> None:
    first, waiting = start(), start()
    assert first.takes(60) == "has 60"
    assert [waiting.takes(50), waiting.says()] == ["gives back", "waits"]
    waiting.process.kill()
    waiting.process.wait()
    assert start().takes(40) == "has 40"
    assert not list(tmp_path.glob("asks-*"))


def test_what_a_worker_holds_counts_and_is_part_of_what_it_then_takes(start: Callable[[], Worker]) -> None:
    first, second, idle = start(), start(), start()
    assert [first.holds(20), idle.holds(20)] == ["holds 20", "holds 20"]
    assert first.takes(40) == "has 40"
    assert second.takes(40) == "has 40"
    assert [second.takes(50), second.says()] == ["gives back", "waits"]
    assert first.takes(30) == "has 30"
    assert second.says() == "has 50"


def test_nobody_waits_for_what_others_hold_and_cannot_give_back(start: Callable[[], Worker]) -> None:
    """A process on standby waits for that before it, which may want nearly all of the device."""
    first, idle = start(), start()
    assert idle.holds(20) == "holds 20"
    assert [first.takes(90), first.says()] == ["gives back", "has 90"]
    other = start()
    assert [other.takes(10), other.says()] == ["gives back", "waits"]  # for the first one
    first.process.kill()
    assert other.says() == "has 10"


def test_without_a_folder_there_is_nobody_to_share_with() -> None:
    ledger = MemoryLedger(None)
    ledger.take(70, 100)
    ledger.take(90, 100)
    ledger.hold(20)
    assert (ledger.taken, ledger.waited_s) == (90, 0.0)
