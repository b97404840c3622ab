"""Running one command under its supervisor: real processes, which raise, die, hang, print and leave children behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import REPOSITORY, is_alive, until

from fluxbench.notebook import runner
from fluxbench.notebook.runner import KEPT_BYTES, Kept, Ran

# Leaves three processes behind: a child, a child in a session of its own, and a daemon that nobody's list holds, which
# gave up its parents, its session and its streams.
CHILDREN = """
import os, subprocess, sys, time
pids = open(os.environ["PIDS"], "a")
for apart in (False, True):
    print(subprocess.Popen(["sleep", "600"], start_new_session=apart).pid, file=pids, flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), file=pids, flush=True)
        os.chdir("/")
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        os.execlp("sleep", "sleep", "600")
    os._exit(0)
os.wait()
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where commands are run, and whom they leave behind."""

    folder: Path
    noted: Path

    def run(self, code: str, limit_s: float = 60.0) -> Ran:
        (self.folder / "script.py").write_text(code, encoding="utf-8")
        variables = {**os.environ, "PIDS": str(self.noted)}
        return runner.run([sys.executable, "script.py"], self.folder, variables, limit_s)

    def pids(self) -> list[int]:
        return [int(line) for line in self.noted.read_text(encoding="utf-8").splitlines() if line]

    def left(self) -> list[int]:
        """Return who of the noted three is alive."""
        assert until(lambda: len(self.pids()) == 3)
        return [pid for pid in self.pids() if is_alive(pid)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(folder=tmp_path / "folder", noted=tmp_path / "pids.txt")
    found.folder.mkdir()
    found.noted.touch()
    yield found
    for pid in found.pids():
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


# How it ended.


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("", None),
        ("raise SystemExit(7)", "it ended with exit code 7"),
        ("raise ValueError('no')", "it ended with exit code 1"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it was ended by SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "it was ended by SIGTERM"),
        (
            "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()",
            "it was ended by SIGABRT",
        ),
        ("raise SystemExit(128 + 11)  # as uv says it of its child", "it was ended by SIGSEGV"),
        ("raise SystemExit(255)", "it ended with exit code 255"),
    ],
)
def test_how_a_command_ended_is_said(place: Place, code: str, failure: str | None) -> None:
    assert place.run(code).failure == failure


def test_both_streams_and_the_duration_are_returned(place: Place) -> None:
    ran = place.run("import sys; print('to stdout'); print('to stderr', file=sys.stderr)")
    assert (ran.stdout, ran.stderr) == ("to stdout\n", "to stderr\n")
    assert ran.duration_s > 0


def test_a_command_runs_in_its_folder_with_the_variables_it_is_given_and_no_others(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['ITS_OWN'], 'HOME' in os.environ)"
    ran = runner.run([sys.executable, "-c", code], tmp_path, {"ITS_OWN": "1"}, 60.0)
    assert ran.stdout == f"{tmp_path} 1 False\n"


def test_a_command_that_reads_finds_nothing_to_read(place: Place) -> None:
    assert place.run("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_a_command_that_is_late_is_killed_and_what_it_said_is_kept(place: Place) -> None:
    ran = place.run("import time; print('begun', flush=True); time.sleep(600)", limit_s=1.0)
    assert ran.failure == "it did not end within 1 s and was killed"
    assert ran.stdout == "begun\n"


def test_a_command_that_closes_its_streams_is_watched_all_the_same(place: Place) -> None:
    ran = place.run("import os, time; os.close(1); os.close(2); time.sleep(600)", limit_s=1.0)
    assert ran.failure == "it did not end within 1 s and was killed"


def test_a_command_that_takes_no_signal_is_killed_at_its_limit(place: Place) -> None:
    ran = place.run(
        "import signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\n"
        "while True: time.sleep(600)",
        limit_s=1.0,
    )
    assert ran.failure == "it did not end within 1 s and was killed"


def test_who_waits_is_told_the_time_while_a_command_is_silent(tmp_path: Path) -> None:
    ticks: list[int] = []
    code = "import sys, pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)"

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            (tmp_path / "go").touch()

    assert runner.run([sys.executable, "-c", code], tmp_path, os.environ, 60.0, tick).failure is None
    assert len(ticks) >= 3


# Nothing survives.


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(3)",
        "os.kill(os.getpid(), 9)",
        "subprocess.run([sys.executable, '-c', 'import os, time; os.kill(os.getppid(), 9); time.sleep(600)'])",
    ],
    ids=["it ends", "it exits", "it is killed", "its child kills it"],
)
def test_no_process_that_a_command_started_survives_it(place: Place, end: str) -> None:
    place.run(CHILDREN + end)
    assert place.left() == []


def test_no_process_that_a_command_started_survives_its_limit(place: Place) -> None:
    place.run(CHILDREN + "time.sleep(600)", limit_s=3.0)
    assert place.left() == []


def test_a_process_that_hands_over_to_the_next_before_it_ends_is_ended_too(place: Place) -> None:
    ran = place.run(
        """
import os, time
if os.fork() == 0:
    os.setsid()
    while os.fork() == 0:
        open("beat", "a").write(".")
        time.sleep(0.02)
    os._exit(0)
while not os.path.exists("beat"):
    time.sleep(0.001)
"""
    )
    assert ran.failure is None
    beats = (place.folder / "beat").stat().st_size
    assert not until(lambda: (place.folder / "beat").stat().st_size > beats, limit_s=0.3)


def test_nothing_survives_where_who_waits_is_interrupted(place: Place) -> None:
    def tick() -> None:
        if len(place.pids()) == 3:
            raise KeyboardInterrupt

    command = [sys.executable, "-c", CHILDREN + "time.sleep(600)"]
    with pytest.raises(KeyboardInterrupt):
        runner.run(command, place.folder, {**os.environ, "PIDS": str(place.noted)}, 60.0, tick)
    assert place.left() == []


def test_nothing_survives_the_kill_of_who_waits_and_the_folder_is_removed(place: Place) -> None:
    code = (
        "import os, pathlib, sys; from fluxbench.notebook import runner; "
        "runner.run([sys.executable, '-c', sys.argv[2]], pathlib.Path(sys.argv[1]), os.environ, 600.0)"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-c", code, str(place.folder), CHILDREN + "time.sleep(600)"],
        env={**os.environ, "PIDS": str(place.noted), "PYTHONPATH": str(REPOSITORY / "shared" / "src")},
    )
    try:
        assert until(lambda: len(place.pids()) == 3)
    finally:
        waiting.kill()
        waiting.wait()
    assert until(lambda: place.left() == [])
    assert until(lambda: not place.folder.exists())


def test_the_folder_of_a_command_that_ended_stays(place: Place) -> None:
    place.run("open('artifact.txt', 'w').write('here')")
    assert (place.folder / "artifact.txt").read_text(encoding="utf-8") == "here"


def test_no_descriptor_is_left_open(place: Place) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    place.run("")
    assert count() == before


# What is kept of a stream.


def kept(*pieces: bytes) -> str:
    found = Kept()
    for piece in pieces:
        found.add(piece)
    return found.text()


def test_a_short_stream_is_kept_whole() -> None:
    assert kept(b"one ", b"", b"two") == "one two"


def test_a_stream_of_twice_what_is_kept_is_kept_whole() -> None:
    piece = b"x" * KEPT_BYTES
    assert kept(piece, piece) == "x" * 2 * KEPT_BYTES


def test_of_a_long_stream_the_beginning_and_the_end_are_kept_and_what_is_between_is_counted() -> None:
    text = kept(b"BEGINS", *[b"x" * 65536] * 160, b"ENDS")
    assert text.startswith("BEGINSx")
    assert text.endswith("xENDS")
    assert "\n[... 10.0 MB of output are left out here ...]\n" in text
    assert len(text) < 3 * KEPT_BYTES


def test_a_character_that_arrives_in_two_parts_is_one_character() -> None:
    assert kept("é".encode()[:1], "é".encode()[1:]) == "é"


def test_what_is_not_utf_8_becomes_the_replacement_character() -> None:
    assert kept(b"caf\xe9 \xff") == "caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}"
