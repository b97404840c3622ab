"""What the system refuses, for real: one sentence, exit code 2, no traceback; lost streams: `core/test_output.py`."""

from __future__ import annotations

import os
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
from commands import BUILD, RERUN, STATUS, fluxbench
from fakes import REPOSITORY, port_keeper

pytestmark = pytest.mark.usefixtures("one_cell")


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
    with port_keeper() as held, socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(held.getsockname())
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = fluxbench("serve", "--reports", ".", "--port", port)
        in_use = "got Address already in use; choose another port"
        assert (code, err) == (2, f"fluxbench: 127.0.0.1:{port} must be a free address, {in_use}\n")
        taken.close()
        command = [sys.executable, "-m", "fluxbench.cli", "serve", "--reports", ".", "--port", port]
        may_interrupt: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", **may_interrupt) as process:
            assert process.stdout
            assert process.stdout.readline() == f"The site is http://127.0.0.1:{port}/ until this is interrupted\n"
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as page:
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
