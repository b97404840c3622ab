"""Who may hold memory of the device, between real processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fluxbench.core.device_memory import DeviceMemory

_HOLDER = """
import sys
from pathlib import Path
from fluxbench.core.device_memory import DeviceMemory
memory = DeviceMemory(Path(sys.argv[1]), lambda: print("waits", flush=True))
memory.take(alone=sys.argv[2] == "alone")
memory.take(alone=True)  # it may already
print("holds", flush=True)
sys.stdin.readline()
"""


class Holder:
    """A process that takes memory, which it may hold until it is let go."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(folder), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def let_go(self) -> None:
        self.process.communicate("\n")


Start = Callable[[str], Holder]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Holder] = []

    def start(kind: str) -> Holder:
        started.append(Holder(tmp_path, kind))
        return started[-1]

    yield start
    for holder in started:
        holder.process.kill()
        holder.process.wait()


def test_one_that_has_it_alone_waits_until_all_others_have_ended_and_keeps_none_of_them(start: Start) -> None:
    first, second = start("shared"), start("shared")
    assert (first.says(), second.says()) == ("holds", "holds")
    alone = start("alone")
    assert alone.says() == "waits"
    later = start("shared")
    assert later.says() == "holds"
    first.let_go()
    later.let_go()
    second.process.kill()  # the system releases it
    assert alone.says() == "holds"
    last = start("shared")
    assert last.says() == "waits"
    alone.process.kill()
    assert last.says() == "holds"


def test_it_says_again_and_again_that_it_waits_and_for_how_long_it_did(start: Start, tmp_path: Path) -> None:
    first = start("shared")
    assert first.says() == "holds"
    waited = threading.Event()
    said: list[None] = []

    def waits() -> None:
        said.append(None)
        if len(said) == 3:
            threading.Thread(target=first.let_go).start()
            waited.set()

    memory = DeviceMemory(tmp_path, waits, say_every_s=0.05)
    memory.take(alone=True)
    assert waited.is_set()
    assert memory.waited_s > 0.1


def test_without_a_folder_there_is_nobody_to_wait_for() -> None:
    memory = DeviceMemory(None)
    memory.take(alone=True)
    assert not memory.waited_s
