"""What the system refuses, for real: one sentence, exit code 2, no traceback; a lost reader ends nothing.

fluxbench runs as a process of its own, and so do cells; uv is a fake.
"""

from __future__ import annotations

import ctypes
import os
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import REPOSITORY, clean

WHAT_ROOT_MAY = (
    1,
    2,
)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of linux/capability.h: without them modes hold for root
CELL = "import os, pathlib\nexec(os.environ.get('FAULT', ''))\nprint('done')"
UV = f'''#!/bin/sh
case "$1" in
run) shift; exec "{sys.executable}" "$@" ;;
cache) echo "${{UV_CACHE_DIR:-$HOME/.cache/uv}}" ;;
esac
'''
BUILD, RERUN, STATUS = ("build", "x.md"), ("rerun", "x.md", "a"), ("status", "x.md")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a notebook of one cell that was never run."""
    clean(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("x.md").write_text(f"```python id=a\n{CELL}\n```\n", encoding="utf-8")
    for name in ("tmp", "home"):
        Path(name).mkdir()
    uv = Path("uv")
    uv.write_text(UV, encoding="utf-8")
    uv.chmod(0o755)
    monkeypatch.setenv("UV", str(uv.absolute()))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("FLUXBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "shared" / "src"))


def fluxbench(*arguments: str, first: Callable[[], object] = bool) -> tuple[int, str, str]:
    """Run a command, `first` in its process before it starts; return its exit code, stdout and stderr."""

    def prepare() -> None:
        for capability in WHAT_ROOT_MAY:
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP of linux/prctl.h
        first()

    done = subprocess.run(
        [sys.executable, "-m", "fluxbench.cli", *arguments],
        capture_output=True,
        encoding="utf-8",
        preexec_fn=prepare,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def limited(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most))


def made(path: str, mode: int, *, folder: bool = True) -> None:
    """Make a folder or a file of this mode."""
    (Path(path).mkdir(parents=True) if folder else Path(path).touch())
    Path(path).chmod(mode)


@pytest.mark.parametrize(
    ("arguments", "arrange", "first", "sentence"),
    [
        (("diff", 100_000 * "x", "x"), None, bool, "x…x{100} must have a shorter name, got File name too long; "),
        (BUILD, lambda: made(".uvnote", 0o555), bool, "/.uvnote/\\S+ must be readable and writable for you, got Perm"),
        (BUILD, lambda: made("site", 0o555), bool, "site/\\S+ must be readable and writable for you, got Permission"),
        (BUILD, lambda: made("site", 0o644, folder=False), bool, "site must be possible to create or remove, got "),
        (BUILD, lambda: made("cache", 0o644, folder=False), bool, "/cache must be possible to create or remove, got "),
        (BUILD, lambda: made("cache", 0o444), bool, "/cache/runs.lock must be readable and writable for you, got Per"),
        (BUILD, None, limited(resource.RLIMIT_FSIZE, 1), "must fit in the limit of file size, got File too large; "),
        (BUILD, None, limited(resource.RLIMIT_NOFILE, 8), "must fit in the limit of open files, got Too many "),
        (STATUS, None, lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1), "standard output must have free space "),
    ],
    ids=["name", "store", "page", "file for page", "file for cache", "lock", "size", "files", "stdout"],
)  # fmt: skip
def test_a_refusal_is_one_sentence(
    arguments: tuple[str, ...], arrange: Callable[[], None] | None, first: Callable[[], object], sentence: str
) -> None:
    if arrange:
        arrange()
    code, out, err = fluxbench(*arguments, first=first)
    *_, last = err.splitlines()
    assert (code, out, "Traceback" in err) == (2, "", False)
    assert re.match(f"fluxbench: .*{sentence}", last)
    assert len(last) < 500


def test_a_foreign_lock_is_refused_and_everything_is_kept() -> None:
    assert fluxbench(*BUILD)[0] == 0
    Path(".uvnote/fluxbench.lock").chmod(0)
    before = Path("site/x.html").read_bytes()
    code, _, err = fluxbench(*RERUN)
    assert (code, err.count("\n")) == (2, 1)
    assert "/.uvnote/fluxbench.lock must be readable and writable for you, got Permission denied; change its o" in err
    assert Path("site/x.html").read_bytes() == before


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


def test_what_nobody_foresaw_is_a_sentence_with_the_file_of_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("uvnote.py").write_text("raise ZeroDivisionError('made\\nup')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f".:{os.environ['PYTHONPATH']}")
    files = set()
    for _ in range(2):
        code, _, err = fluxbench(*STATUS)
        got = re.fullmatch(
            r"fluxbench: this command must not raise an exception, got ZeroDivisionError: made\\nup; "
            r"report it with its traceback in (/\S+/tmp/fluxbench-\S+\.traceback\.txt)\n",
            err,
        )
        assert got, err
        assert code == 70
        kept = Path(got[1]).read_text(encoding="utf-8")
        assert kept.splitlines()[0].endswith("cli.py status x.md")
        assert kept.endswith("uvnote.py\", line 1, in <module>\n    raise ZeroDivisionError('made\\nup')\n"
                             "ZeroDivisionError: made\nup\n")  # fmt: skip
        files.add(got[1])
    assert len(files) == 2


@pytest.mark.parametrize("package", ["uvnote", "msgspec", "jinja2"])
def test_a_package_that_is_there_in_part_is_a_sentence(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(package).mkdir()
    Path(package, "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", f".:{os.environ['PYTHONPATH']}")
    code, _, err = fluxbench(*BUILD)
    assert code == 2
    assert re.search(rf"fluxbench: {package} must be installed beside fluxbench, got .*; run `make setup`\n$", err)


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


@pytest.mark.parametrize(
    ("name", "is_folder", "place", "got"),
    [
        ("home", True, "uv's cache", "home/.cache/uv"),
        ("uv-cache", False, "uv's cache", "uv-cache"),
        ("cache/envs", True, "cache", "cache"),
        ("cache", False, "cache", "cache"),
        ("site", True, "pages", "site"),
    ],
)
def test_doctor_says_which_folder_cannot_be_written_to(
    name: str, is_folder: bool, place: str, got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "home":
        monkeypatch.delenv("UV_CACHE_DIR")
        monkeypatch.setenv("HOME", str(Path("home").absolute()))
        Path("home").chmod(0o555)
    else:
        made(name, 0o555, folder=is_folder)
    path = got if got == "site" else Path(got).absolute()
    code, out, _ = fluxbench("doctor")
    _, _, lacking = " ".join(out.split()).partition("What is lacking: ")
    assert code == 1
    assert f"- {place} must be in a writable folder, got {path}; change its owner or mode, or " in lacking


def test_a_clone_must_lie_in_a_folder_whose_name_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    clone = Path("new\nline").absolute()
    shutil.copytree(REPOSITORY / "shared" / "src", clone / "shared" / "src", ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("environment", "Makefile"):
        (clone / name).symlink_to(REPOSITORY / name)
    monkeypatch.setenv("PYTHONPATH", str(clone / "shared" / "src"))
    code, _, err = fluxbench(*STATUS)
    shown = str(clone).replace("\n", "\\n")
    assert (code, err) == (
        2,
        f"fluxbench: the path of this clone must be one line, got {shown}; move it to another folder\n",
    )
    made_help = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=clone, capture_output=True, encoding="utf-8"
    )
    assert (made_help.returncode, made_help.stdout) == (2, "")
    assert "The path of this clone must be one line, since scripts and .pth files name it; move it" in made_help.stderr


def test_the_site_is_served_until_interrupted_and_a_taken_port_is_refused() -> None:
    Path("index.html").write_text("the index", encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = fluxbench("serve", "--reports", ".", "--port", port)
        in_use = "got Address already in use; choose another port"
        assert (code, err) == (2, f"fluxbench: 127.0.0.1:{port} must be a free address, {in_use}\n")
    command = [sys.executable, "-m", "fluxbench.cli", "serve", "--reports", ".", "--port", port]
    may_interrupt: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", **may_interrupt) as process:
        assert process.stdout
        assert process.stdout.readline() == f"The site is http://127.0.0.1:{port}/ until this is interrupted\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as page:
            assert page.read() == b"the index"
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert "a port must be a whole number from 1 to 65535, got '99999'" in fluxbench("serve", "--port", "99999")[2]


@pytest.mark.parametrize(
    ("then", "code", "sentence"),
    [
        ("", 0, ""),
        ("(home / '.uvnote').touch()", 2, r"fluxbench: .*/\.uvnote/cache\S* must be in a folder, not in a file, got "),
        ("(home / 'site').rmdir(); (home / 'site').touch()", 2, "fluxbench: site/?.* must .*, got .*; "),
    ],
)  # fmt: skip
def test_a_work_folder_that_is_removed_meanwhile_is_made_anew_or_refused(
    then: str, code: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path.cwd()
    monkeypatch.setenv(
        "FAULT", f"import shutil; home = pathlib.Path({str(here)!r}); shutil.rmtree(home / '.uvnote'); {then}"
    )
    ended = fluxbench(*BUILD)
    assert (ended[0], "Traceback" in ended[2]) == (code, False)
    assert re.match(sentence, ended[2].splitlines()[-1])
