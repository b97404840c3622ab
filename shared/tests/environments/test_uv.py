"""How uv is found and what it inherits, and what its failures become: by what uv 0.13.8 prints."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import REPOSITORY, clean, executable, without_uv

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.environments import uv

FACTS = "made_up-1.0.dist-info"
NO_NETWORK = """\
error: Failed to fetch: http://user:secret@registry.example:8080/simple/torch/
  cause: error sending request for url (https://registry.example/simple/torch/)
  cause: dns error
"""
OFFLINE = """\
error: No solution found when resolving dependencies
  cause: Because torch was not found in the cache and you require torch==2.13.0, your requirements are unsatisfiable.

hint: Packages were unavailable because the network was disabled.
"""
UNSOLVED = """\
error: No solution found when resolving dependencies
  cause: Because {} and you require {}, we can conclude that your requirements are unsatisfiable.
"""


@pytest.mark.parametrize(
    ("printed", "advice"),
    [
        (NO_NETWORK, "check the network, or name a folder of wheels in FLUXBENCH_WHEELS"),
        (OFFLINE, "bring a wheel that fits, or allow the network"),
        (
            UNSOLVED.format("torch has no wheels with a matching tag", "it"),
            "bring a wheel that fits, or allow the network",
        ),
        (
            UNSOLVED.format("flash-attn==2.8.3 has no usable wheels", "it"),
            "no registry has this wheel: build it as environment/locks/*.in say, and name its folder in UV_FIND_LINKS",
        ),
        (
            UNSOLVED.format("you require networkx==3.0", "networkx==3.2"),
            "you require networkx==3.0 and you require networkx==3.2; they contradict each other: change one of these "
            "versions",
        ),
        (
            UNSOLVED.format("einops was not found in the provided package locations", "einops==0.8.2"),
            "einops==0.8.2; bring its wheel into the folder of FLUXBENCH_WHEELS: `make wheelhouse` gathers them",
        ),
        (
            UNSOLVED.format("there is no version of numpy==9", "numpy==9"),
            "correct its name or version, or bring a wheel of it",
        ),
        (
            "error: Failed to download `numpy`\n  cause: Hash mismatch for `numpy==2.4.6`\n\n    Expected:\n",
            "this file is not in the lock: name a folder without it in UV_FIND_LINKS, or run `make lock`",
        ),
        ("error: it\n  cause: No space left on device (os error 28)", "free some disk space and run it again"),
        ("error: it\n  × broke.\n\nhint: a hash\n", "it broke"),
        ("", ""),
    ],
)
def test_a_failure_becomes_one_sentence_with_advice_and_no_address(printed: str, advice: str) -> None:
    sentence = uv.explain(printed)
    assert sentence.endswith(advice)
    assert not [word for word in ("\n", "://", "registry.example", "secret", "hint", "error: ") if word in sentence]


def test_uv_is_the_one_that_runs_us_or_beside_us_or_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_uv(monkeypatch, tmp_path)
    with pytest.raises(SetupError, match=r"uv must be on PATH .*, got none; run `make setup`"):
        uv.find()
    on_path = executable(tmp_path / "bin" / "uv", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert uv.find() == str(on_path)
    beside = executable(tmp_path / "uv", "")
    assert uv.find() == str(beside)
    monkeypatch.setenv("UV", str(on_path))
    assert uv.find() == str(on_path)
    monkeypatch.setenv("UV", "/missing/uv")
    with pytest.raises(SetupError, match="got /missing/uv"):
        uv.find()


@pytest.mark.parametrize(
    ("variables", "wheels", "added"),
    [
        ({}, None, {}),
        ({"PIP_FIND_LINKS": "/one /two"}, None, {"UV_FIND_LINKS": "/one,/two"}),
        ({"PIP_FIND_LINKS": "/one", "UV_FIND_LINKS": "/two"}, None, {"UV_FIND_LINKS": "/two"}),
        ({"PIP_FIND_LINKS": "/one"}, Path("/w"), {"UV_FIND_LINKS": "/w", "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}),
    ],
)
def test_uv_uses_the_folders_of_pip(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wheels: Path | None, added: dict[str, str]
) -> None:
    clean(monkeypatch)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert uv.variables(Settings(root=REPOSITORY, cache=REPOSITORY, wheels=wheels)) == added


def test_inside_a_cell_uv_keeps_to_the_cache_that_the_cell_was_installed_from(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)
    settings = Settings(root=REPOSITORY, cache=REPOSITORY)
    monkeypatch.setattr(sys, "prefix", "/cache/uv/environments-v2/sdpa-0123")
    assert uv.variables(settings) == {"UV_CACHE_DIR": "/cache/uv"}
    monkeypatch.setenv("UV_CACHE_DIR", "/another")
    assert uv.variables(settings) == {}


def lose(name: str) -> Callable[[Path], None]:
    """Return what removes a file below a folder."""
    return lambda site: (site / name).unlink()


def cut(name: str) -> Callable[[Path], None]:
    """Return what leaves the first half of a file below a folder, within a row of a list."""
    return lambda site: os.truncate(site / name, (site / name).stat().st_size // 2)


def forget_installer(site: Path) -> None:
    """Leave the list of files as it is in the wheel."""
    record = site / FACTS / "RECORD"
    record.write_text("".join(line for line in record.open() if "INSTALLER" not in line))


FAULTS = {
    "nothing": None,
    "a file is missing": lose("made_up/call.py"),
    "a file is cut": cut("made_up/call.py"),
    "no metadata": lose(f"{FACTS}/METADATA"),
    "no list of files": lose(f"{FACTS}/RECORD"),
    "half a list of files": cut(f"{FACTS}/RECORD"),
    "the wheel's list of files": forget_installer,
    "no pyvenv.cfg": lose("../../../pyvenv.cfg"),
    "an empty pyvenv.cfg": lambda site: os.truncate(site / "../../../pyvenv.cfg", 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_script_s_environment_that_a_killed_uv_left_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """By uv itself."""
    wheel, script = tmp_path / "wheels" / "made_up-1.0-py3-none-any.whl", tmp_path / "script.py"
    files = {
        "made_up/__init__.py": "",
        "made_up/call.py": "print('it is there')\n",
        f"{FACTS}/METADATA": "Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n",
        f"{FACTS}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
        listed = "".join(f"{name},,{len(text)}\n" for name, text in files.items())
        file.writestr(f"{FACTS}/RECORD", f"{listed}{FACTS}/RECORD,,\n")
    script.write_text('# /// script\n# dependencies = ["made-up"]\n# ///\nimport made_up.call\n', encoding="utf-8")
    cache, python = tmp_path / "cache", getattr(sys, "_base_executable", sys.executable)
    settings = Settings(root=REPOSITORY, cache=tmp_path, wheels=wheel.parent)
    own = {"UV_CACHE_DIR": str(cache), "UV_PYTHON": python, "UV_LINK_MODE": "copy"}
    clean(monkeypatch)
    environ = {**os.environ, **uv.variables(settings), **own}

    def run() -> str:
        ran = subprocess.run([uv.find(), "run", "-q", str(script)], env=environ, capture_output=True, encoding="utf-8")
        return ran.stdout

    assert run() == "it is there\n"
    (site,) = (cache / "environments-v2").glob("*/lib/python*/site-packages")
    if do := FAULTS[fault]:
        do(site)
    monkeypatch.setattr(uv, "_mended", set())
    uv.mend(script, environ)
    assert site.is_dir() == (fault == "nothing")
    assert run() == "it is there\n"
