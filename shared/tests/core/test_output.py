"""Streams: what is lost ends nothing, and what others wrote does not steer a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import BUILD, STATUS, fluxbench

pytestmark = pytest.mark.usefixtures("one_cell")


def closed() -> None:
    os.close(2)


def unread(descriptor: int = 2) -> None:
    """Let a stream be a pipe that nobody reads, as `2>&1 | head -1` leaves it."""
    reader, writer = os.pipe()
    os.dup2(writer, descriptor)
    os.close(reader)


def full() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


def hung_up() -> None:
    """Let stderr be a terminal that was closed, as under nohup."""
    keyboard, screen = pty.openpty()
    os.dup2(screen, 2)
    os.close(keyboard)


@pytest.mark.parametrize("lose", [closed, unread, full, hung_up])
def test_a_measurement_outlives_its_stderr(lose: Callable[[], None]) -> None:
    code, out, _ = fluxbench(*BUILD, first=lose)
    assert (code, out) == (0, f"\nThe page is {Path('site/x.html').absolute()}\n")
    assert "done" in Path("site/x.html").read_text(encoding="utf-8")
    assert Path(".uvnote/fluxbench.lock").read_bytes() == b""  # which was given a closed descriptor's number


@pytest.mark.parametrize("lose", [lambda: os.close(1), lambda: unread(1)])
def test_the_answer_stays_the_exit_code_where_nobody_reads_it(lose: Callable[[], object]) -> None:
    for arguments, code in ((STATUS, 1), (BUILD, 0), (STATUS, 0)):
        ended = fluxbench(*arguments, first=lose)
        assert (ended[0], "rror" in ended[2]) == (code, False)


def test_what_a_cell_a_name_or_a_table_writes_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", r"raise SystemExit('\x1b[2J\u202eall\x07 is\x9b well')")
    assert fluxbench(*BUILD)[2].splitlines()[-1] == (
        r"fluxbench: cell a failed: it ended with exit code 1: \u001b[2J\u202eall\u0007 is\u009b well"
    )
    assert fluxbench("status", "\x1b[2J\nfluxbench: all is well.md")[2].count("\n") == 1
    row = '"\x1b[2J\nt.csv: rows checked: 9",1,4096,24,128,1'
    Path("t.csv").write_text(f"gpu,batch,seq_len,heads,head_dim,ms\n{row}\n", encoding="utf-8")
    reason = r"the peak of \u001b[2J\nt.csv: rows checked: 9 is not known; give it with --peak"
    assert fluxbench("audit", "t.csv")[1].splitlines()[1:] == [f"     1  {reason}"]
    assert reason in fluxbench("audit", "t.csv", "--json")[1]


def test_a_bar_shows_what_cells_write_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", r"raise SystemExit('\x1b[2Jall is well')")
    keyboard, screen = pty.openpty()
    shown = b""
    with subprocess.Popen([sys.executable, "-m", "fluxbench.cli", *BUILD], stdout=screen, stderr=screen) as process:
        os.close(screen)
        while True:
            try:
                shown += os.read(keyboard, 1 << 16)
            except OSError:  # EIO: all of its writers are gone
                break
    assert process.returncode == 1
    assert (b"\x1b[2J" in shown, rb"\u001b[2Jall is well" in shown, b"\x1b[?25l" in shown) == (False, True, True)
