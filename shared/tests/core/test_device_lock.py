"""The device lock between real processes: order, priority, and what a killed one leaves."""

import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fluxbench.core.device_lock import DeviceLock, a_child_is_alone

_HOLDER = """
import sys, time
from pathlib import Path
from fluxbench.core.device_lock import DeviceLock
folder, order, kind, name, overdue_s = sys.argv[1:]
tells = lambda holds: print(name, "holds" if holds else "waits", flush=True)
lock = DeviceLock(Path(folder), int(order), tells, overdue_s=float(overdue_s))
with lock.held(short=kind != "long", alone=kind == "alone", patient=kind == "patient"):
    sys.stdin.readline()
    print(name, "done", flush=True)
"""
_ASKS = """
import sys
from pathlib import Path
from fluxbench.core.device_lock import a_child_is_alone
print(a_child_is_alone(Path(sys.argv[1])))
"""


class Holder:
    """A process that holds the lock until it is let go."""

    def __init__(self, folder: Path, order: int, kind: str, name: str, overdue_s: float) -> None:
        command = [sys.executable, "-c", _HOLDER, str(folder), str(order), kind, name, str(overdue_s)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().split()[1]

    def let_go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.says() == "done"
        self.process.wait()


Start = Callable[..., Holder]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Holder] = []

    def start(order: int, kind: str, name: str = "one", overdue_s: float = math.inf) -> Holder:
        started.append(Holder(tmp_path, order, kind, name, overdue_s))
        return started[-1]

    yield start
    for holder in started:
        holder.process.kill()
        holder.process.wait()


def test_a_second_worker_waits_until_the_first_releases(start: Start) -> None:
    first = start(0, "long")
    assert first.says() == "holds"
    second = start(1, "long")
    assert second.says() == "waits"
    first.let_go()
    assert second.says() == "holds"


@pytest.mark.parametrize(("first", "second"), [("long", "short"), ("short", "long"), ("short", "alone")])
def test_a_step_that_must_be_alone_shares_with_nobody(start: Start, first: str, second: str) -> None:
    holder = start(0, first)
    assert holder.says() == "holds"
    other = start(0, second)
    assert other.says() == "waits"
    holder.let_go()
    assert other.says() == "holds"


def test_whoever_started_a_worker_knows_whether_it_has_the_device_alone(tmp_path: Path, start: Start) -> None:
    assert not a_child_is_alone(tmp_path)
    for kind, alone in (("short", False), ("long", True), ("alone", True), ("patient", False)):
        holder = start(0, kind)
        assert holder.says() == "holds"
        assert a_child_is_alone(tmp_path) is alone
        asked = [sys.executable, "-c", _ASKS, str(tmp_path)]
        other = subprocess.run(asked, check=True, capture_output=True, text=True)
        assert other.stdout.strip() == "False"  # it is a worker of another cell's
        holder.let_go()
        assert not a_child_is_alone(tmp_path)


def test_short_steps_share_the_device_and_a_long_one_waits_for_all(start: Start) -> None:
    one, other = start(2, "short"), start(1, "short")
    assert one.says() == other.says() == "holds"
    measures = start(0, "long")
    assert measures.says() == "waits"
    third = start(3, "short")
    assert third.says() == "holds"
    for each in (one, other, third):
        each.let_go()
    assert measures.says() == "holds"


@pytest.mark.parametrize(
    ("later", "sooner"),
    [
        ((0, "long"), (1, "short")),
        ((2, "long"), (1, "long")),
        ((0, "short"), (1, "alone")),
        ((2, "alone"), (1, "alone")),
        ((0, "patient"), (1, "long")),
        ((0, "patient"), (1, "alone")),
    ],
)
def test_a_short_step_and_then_an_earlier_cell_go_first(
    start: Start, later: tuple[int, str], sooner: tuple[int, str]
) -> None:
    holder = start(9, "long")
    assert holder.says() == "holds"
    last, first = start(*later), start(*sooner)
    assert last.says() == first.says() == "waits"
    holder.let_go()
    assert first.says() == "holds"
    first.let_go()
    assert last.says() == "holds"


def test_long_steps_that_are_overdue_go_before_short_ones(start: Start) -> None:
    checks = start(0, "short", overdue_s=0.2)
    assert checks.says() == "holds"
    measures = start(5, "long", overdue_s=0.2)
    assert measures.says() == "waits"
    time.sleep(0.3)
    later = start(6, "long", overdue_s=0.2)  # overdue with the one that waits, of which it is known
    other, patient = start(0, "short", overdue_s=0.2), start(0, "patient", overdue_s=0.2)
    assert later.says() == other.says() == patient.says() == "waits"
    checks.let_go()
    assert measures.says() == "holds"
    measures.let_go()
    assert later.says() == "holds"
    later.let_go()
    assert other.says() == patient.says() == "holds"


def test_a_short_step_is_told_of_a_long_one_once_that_is_overdue(tmp_path: Path, start: Start) -> None:
    lock = DeviceLock(tmp_path, 0, overdue_s=0.5)
    with lock.held(short=True):
        measures = start(5, "long", overdue_s=0.5)
        assert measures.says() == "waits"
        assert not lock.is_wanted
        time.sleep(0.6)
        assert lock.is_wanted
    assert measures.says() == "holds"
    assert not lock.is_wanted


def test_a_long_step_that_is_not_overdue_yet_lets_short_ones_go_first(start: Start) -> None:
    measures = start(0, "long", overdue_s=60)
    assert measures.says() == "holds"
    later, checks = start(0, "long", overdue_s=60), start(1, "short", overdue_s=60)
    assert later.says() == checks.says() == "waits"
    measures.let_go()
    assert checks.says() == "holds"
    checks.let_go()
    assert later.says() == "holds"


def test_patient_steps_share_the_device_and_a_long_one_that_comes_later_waits_for_them(start: Start) -> None:
    measures = start(9, "long")
    assert measures.says() == "holds"
    patient, other, next_one = start(0, "patient"), start(1, "patient"), start(2, "long")
    assert {each.says() for each in (patient, other, next_one)} == {"waits"}
    measures.let_go()
    assert next_one.says() == "holds"
    next_one.let_go()
    assert patient.says() == other.says() == "holds"
    last = start(0, "long")
    assert last.says() == "waits"
    patient.let_go()
    other.let_go()
    assert last.says() == "holds"


def test_a_dead_long_step_keeps_no_patient_one_out(start: Start) -> None:
    holder = start(0, "short")
    assert holder.says() == "holds"
    waiter = start(0, "long")
    assert waiter.says() == "waits"
    waiter.process.send_signal(signal.SIGKILL)
    waiter.process.wait()
    assert start(5, "patient").says() == "holds"


def test_a_killed_holder_and_a_killed_waiter_keep_nobody_out(start: Start) -> None:
    holder, waiter = start(0, "long"), start(0, "short")
    assert {holder.says(), waiter.says()} == {"holds", "waits"}
    for each in (holder, waiter):
        each.process.send_signal(signal.SIGKILL)
        each.process.wait()
    assert start(5, "long").says() == "holds"


def test_what_is_shared_can_be_held_alone_once_the_others_are_done(tmp_path: Path, start: Start) -> None:
    waited = threading.Event()
    lock = DeviceLock(tmp_path, 0, lambda holds: None if holds else waited.set())
    other = start(0, "short")
    assert other.says() == "holds"

    def when_it_waits() -> None:
        waited.wait(10)
        other.let_go()

    with lock.held(short=True):
        assert not lock.is_alone
        waited.clear()
        let_go = threading.Thread(target=when_it_waits)
        let_go.start()
        lock.acquire(short=True, alone=True)
        let_go.join()
        assert lock.is_alone
        later = start(0, "short")
        assert later.says() == "waits"
    assert later.says() == "holds"


def test_what_is_held_is_held_once_and_without_a_folder_it_is_always_free(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path, 0)
    with lock.held(short=False):
        with lock.held(short=True):
            assert lock.is_alone
        assert lock.is_alone
    assert not lock.is_held
    assert DeviceLock(None, 0).is_held


def test_a_worker_that_waits_long_says_so_again(tmp_path: Path) -> None:
    said: list[bool] = []
    held = Holder(tmp_path, 0, "long", "one", math.inf)
    assert held.says() == "holds"

    def changed(holds: bool) -> None:
        said.append(holds)
        if len(said) == 3:
            held.let_go()

    began = time.monotonic()
    DeviceLock(tmp_path, 1, changed, say_every_s=0.05).acquire(short=False)
    assert said[-1] is True
    assert said[:3] == [False] * 3
    assert time.monotonic() - began > 0.09


def test_who_keeps_the_device_holds_it_until_its_process_ends(tmp_path: Path) -> None:
    code = _HOLDER.replace("    sys.stdin.readline()", "    lock.keep()").replace(
        'print(name, "done", flush=True)', 'pass\nprint(name, "done", lock.is_held, flush=True)\nsys.stdin.readline()'
    )
    command = [sys.executable, "-c", code, str(tmp_path), "0", "alone", "keeper", "inf"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout
        assert [keeper.stdout.readline().split()[1:] for _ in range(2)] == [["holds"], ["done", "True"]]
        said: list[bool] = []

        def changed(holds: bool) -> None:
            said.append(holds)
            if len(said) == 3:  # it has waited for a while
                keeper.kill()

        DeviceLock(tmp_path, 1, changed, say_every_s=0.05).acquire(short=True)
        assert keeper.wait() == -signal.SIGKILL
    assert said[:3] == [False] * 3
    assert said[-1] is True
