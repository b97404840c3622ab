"""Running one command under its supervisor: real processes, which raise, die, hang, print and leave children behind."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from children import CHILDREN
from fakes import is_alive

from fluxbench.notebook import runner
from fluxbench.notebook.runner import KEPT_BYTES, Ended, Kept


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where commands are run, and the processes that they leave behind."""

    folder: Path
    noted: Path

    def run(self, code: str, limit_s: float = 60.0) -> Ended:
        (self.folder / "script.py").write_text(code, encoding="utf-8")
        variables = {**os.environ, "PIDS": str(self.noted)}
        return runner.run([sys.executable, "script.py"], self.folder, variables, limit_s)

    def pids(self) -> list[int]:
        return [int(line) for line in self.noted.read_text(encoding="utf-8").splitlines() if line]

    def left(self) -> list[int]:
        """Return which of the noted three are alive."""
        return [pid for pid in self.pids() if is_alive(pid)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(folder=tmp_path / "folder", noted=tmp_path / "pids.txt")
    place.folder.mkdir()
    place.noted.touch()
    yield place
    for pid in place.pids():
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("", None),
        ("raise ValueError('no')", "it ended with exit code 1"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "it was ended by SIGTERM"),
        ("raise SystemExit(128 + 11)  # as uv says it of its child", "it was ended by SIGSEGV"),
        ("raise SystemExit(255)", "it ended with exit code 255"),
    ],
)
def test_how_a_command_ended_is_one_sentence(place: Place, code: str, failure: str | None) -> None:
    assert place.run(code).failure == failure


def test_a_command_has_its_folder_and_variables_and_nothing_to_read_and_leaves_its_files(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.getcwd(), os.environ['MINE'], 'HOME' in os.environ, repr(sys.stdin.read()));"
        "print('to stderr', file=sys.stderr); open('artifact.txt', 'w').write('here')"
    )
    gc.collect()  # files of other tests that are garbage are not to be closed meanwhile
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    ended = runner.run([sys.executable, "-c", code], tmp_path, {"MINE": "1"}, 60.0)
    assert (ended.stdout, ended.stderr) == (f"{tmp_path} 1 False ''\n", "to stderr\n")
    assert ended.duration_s > 0
    assert (tmp_path / "artifact.txt").read_text(encoding="utf-8") == "here"
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(600)",
        "os.close(1); os.close(2); time.sleep(600)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\nwhile True: time.sleep(600)",
    ],
    ids=["it sleeps", "it closes its streams", "it blocks every signal"],
)
def test_a_command_that_is_late_is_killed_and_its_output_is_kept(place: Place, code: str) -> None:
    began = time.monotonic()
    ended = place.run(f"import os, signal, time; print('begun', flush=True)\n{code}", limit_s=2.5)
    assert time.monotonic() - began >= 2.5
    assert ended.failure == "it did not end within 2.5 s and was killed"
    assert ended.stdout == "begun\n"


@pytest.mark.parametrize(
    ("end", "limit_s"),
    [
        ("", 600.0),
        ("os.kill(os.getpid(), 9)", 600.0),
        ("subprocess.run([sys.executable, '-c', 'import os, time; os.kill(os.getppid(), 9); time.sleep(600)'])", 600.0),
        ("time.sleep(600)", 4.0),
        ("os.kill(os.getppid(), 9)\ntime.sleep(600)", 600.0),
        ("os.kill(os.getppid(), 19)\ntime.sleep(600)", 4.0),
        ("os.kill(os.getppid(), 19)", 600.0),
    ],
    ids=["it ends", "killed", "its child kills it", "late", "it kills its supervisor", "it stops it", "stops it, ends"],
)
def test_no_process_that_a_command_started_survives_it(place: Place, end: str, limit_s: float) -> None:
    assert place.run(CHILDREN + end, limit_s).duration_s < 120.0
    assert len(place.pids()) == 3
    assert place.left() == []


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((b"one ", b"", b"two"), "one two"),
        ((b"x" * KEPT_BYTES, b"x" * KEPT_BYTES), "x" * 2 * KEPT_BYTES),
        (("é".encode()[:1], "é".encode()[1:]), "é"),
        ((b"caf\xe9 \xff",), "caf\ufffd \ufffd"),
        (
            (b"A" * KEPT_BYTES, b"x" * 10_000_000, b"B" * KEPT_BYTES),
            f"{'A' * KEPT_BYTES}\n[... 10.0 MB of output are omitted here ...]\n{'B' * KEPT_BYTES}",
        ),
    ],
    ids=["short", "twice what is kept", "half a character", "no UTF-8", "the beginning and the end of a long one"],
)
def test_a_stream_is_kept_as_far_as_there_is_room(pieces: tuple[bytes, ...], text: str) -> None:
    stream = Kept()
    for piece in pieces:
        stream.add(piece)
    assert stream.text() == text
