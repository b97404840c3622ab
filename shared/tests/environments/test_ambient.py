"""A venv over a real interpreter, made by a real uv from wheels that the tests build."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from fakes import GPU, REPOSITORY, clean

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import targets
from fluxbench.environments import uv
from fluxbench.environments.ambient import inspect
from fluxbench.environments.prepare import describe, prepare

TARGET = dataclasses.replace(targets.of(GPU, REPOSITORY), locks=("torch.txt",))
PACKAGES = ("torch==2.13.0", "dsl==1.0")
ASK = """
import importlib.metadata as m, json, sys
import base, dsl_module, edited, shared.one, shared.two, torch
modules = {"torch": torch.which, "base": base.which, "edited": edited.which, "dsl": dsl_module.which}
versions = {name: m.version(name) for name in ("torch", "base", "dsl", "dsl-libs")}
print(json.dumps([modules, shared.one.n + shared.two.n, versions, sys.base_prefix]))
"""


def wheel(folder: Path, name: str, files: dict[str, str]) -> str:
    """Write a wheel of these files, and return its line of a lock."""
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for file, text in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={digest},{len(text.encode())}")
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**contents, f"{info}/RECORD": "\n".join([*lines, f"{info}/RECORD,,", ""])}.items():
            archive.writestr(file, text)
    return f"{name.replace('_', '-')}==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def ambient(tmp_path: Path) -> Path:
    """A venv that holds a torch, an older base of two packages, and a folder that its own `.pth` file adds."""
    venv.create(tmp_path / "ambient")
    site = next((tmp_path / "ambient").glob("lib/python*/site-packages"))
    for name in ("torch", "base"):
        (site / f"{name}.py").write_text("which = 'ambient'", encoding="utf-8")
        (site / f"{name}-0.9.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n"
        (site / f"{name}-0.9.dist-info" / "METADATA").write_text(metadata, encoding="utf-8")
    (tmp_path / "editable").mkdir()
    (tmp_path / "editable" / "edited.py").write_text("which = 'ambient'", encoding="utf-8")
    (site / "edited.pth").write_text(str(tmp_path / "editable"), encoding="utf-8")
    return tmp_path / "ambient"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Wheels of which two share a folder and one hides a module behind a `.pth`, and the lock that names them."""
    folder, locks = tmp_path / "wheels", tmp_path / "environment" / "locks"
    folder.mkdir()
    locks.mkdir(parents=True)
    hidden = {"shared/hidden/dsl_module.py": "which = 'overlay'", "dsl.pth": "shared/hidden\n"}
    lines = [
        wheel(folder, "dsl", {**hidden, "shared/one.py": "n = 1"}),
        wheel(folder, "dsl_libs", {"shared/two.py": "n = 2"}),
        wheel(folder, "base", {"base.py": "which = 'overlay'"}),
    ]
    (locks / "torch.txt").write_text("torch==2.13.0 \\\n    --hash=sha256:00\n", encoding="utf-8")
    (locks / "library.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def settings(tmp_path: Path, ambient: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    try:
        real_uv = uv.find()
    except SetupError:
        pytest.skip("needs a uv, on PATH or named by UV")
    clean(monkeypatch)
    monkeypatch.setenv("UV", real_uv)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return Settings(root=tmp_path, cache=tmp_path / "cache", python=str(ambient / "bin" / "python"), wheels=wheels)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_an_overlay_adds_what_is_missing_and_leaves_the_interpreter(settings: Settings, ambient: Path) -> None:
    before = files_of(ambient)
    python = prepare(PACKAGES, TARGET, settings, "library").python
    done = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True, timeout=60)
    modules, of_shared_folder, versions, base_prefix = json.loads(done.stdout)
    assert modules == {"torch": "ambient", "base": "ambient", "edited": "ambient", "dsl": "overlay"}
    assert of_shared_folder == 3
    facts = describe(PACKAGES, TARGET, settings, "library")
    assert versions == {name: facts[f"package.{name}"] for name in versions}
    assert base_prefix == sys.base_prefix
    assert files_of(ambient) == before
    assert prepare(PACKAGES, TARGET, settings, "library").python == python


def test_a_wheel_that_is_not_the_locked_one_is_refused(settings: Settings, wheels: Path) -> None:
    wheel(wheels, "dsl", {"dsl_module.py": "which = 'another'"})
    with pytest.raises(SetupError, match=r"(?i)dsl.*hash.*; this file is not in the lock"):
        prepare(PACKAGES, TARGET, settings, "library")


def test_of_two_copies_of_a_package_the_one_that_is_imported_counts(ambient: Path) -> None:
    first = ambient.parent / "first"
    for version, folder in (("2.0", first), ("", ambient.parent / "editable")):
        info = folder / f"torch-{version or '0.1'}.dist-info"
        info.mkdir(parents=True)
        if version:  # else it was left half removed
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n", encoding="utf-8"
            )
    [site] = ambient.rglob("site-packages")
    (site / "aaa.pth").write_text(f"import sys; sys.path.insert(0, {str(first)!r})\n", encoding="utf-8")
    assert inspect(str(ambient / "bin" / "python")).version_of("torch") == "2.0"
