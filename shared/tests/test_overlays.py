"""An overlay over a real interpreter, made by a real uv from wheels that the tests build."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
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
from fluxbench.environments import prepare as environments

TARGET = dataclasses.replace(targets.of(GPU, REPOSITORY), locks=("torch.txt",))
PACKAGES = ("torch==2.13.0", "dsl==1.0")


def wheel(folder: Path, name: str, files: dict[str, str], version: str = "1.0") -> Path:
    """Write a wheel of these files."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for file, text in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={digest},{len(text.encode())}")
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in contents.items():
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))
    return path


@pytest.fixture(scope="module")
def uv() -> str:
    """The real uv."""
    try:
        return environments.uv()
    except SetupError:
        pytest.skip("needs a uv, on PATH or named by UV")


@pytest.fixture
def ambient(tmp_path: Path) -> str:
    """A venv that holds a torch, an older base of two packages, and a folder that its own `.pth` file adds."""
    venv.create(tmp_path / "ambient")
    site = next((tmp_path / "ambient").glob("lib/python*/site-packages"))
    for name, text in {"torch": "which = 'ambient'", "base": "which = 'ambient'"}.items():
        (site / f"{name}.py").write_text(text, encoding="utf-8")
        info = site / f"{name}-0.9.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n", encoding="utf-8")
    (tmp_path / "editable").mkdir()
    (tmp_path / "editable" / "edited.py").write_text("which = 'ambient'", encoding="utf-8")
    (site / "edited.pth").write_text(str(tmp_path / "editable"), encoding="utf-8")
    return str(tmp_path / "ambient" / "bin" / "python")


@pytest.fixture
def settings(tmp_path: Path, uv: str, ambient: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A repository whose lock names two wheels of one folder, `shared/`, one of which hides modules behind a `.pth`."""
    clean(monkeypatch)
    monkeypatch.setenv("UV", uv)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    wheels, locks = tmp_path / "wheels", tmp_path / "environment" / "locks"
    wheels.mkdir()
    locks.mkdir(parents=True)
    hidden = {
        "shared/hidden/dsl_module.py": "which = 'overlay'",
        "dsl.pth": "shared/hidden\n",
        "shared/one.py": "n = 1",
    }
    made = [wheel(wheels, "dsl", hidden), wheel(wheels, "dsl_libs", {"shared/two.py": "n = 2"})]
    made.append(wheel(wheels, "base", {"base.py": "which = 'overlay'"}))
    (locks / "torch.txt").write_text("torch==2.13.0 \\\n    --hash=sha256:00\n", encoding="utf-8")
    lines = [
        f"{path.name.split('-')[0].replace('_', '-')}==1.0 \\\n    --hash=sha256:"
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in made
    ]
    (locks / "library.txt").write_text("".join(lines), encoding="utf-8")
    return Settings(root=tmp_path, cache=tmp_path / "cache", python=ambient, wheels=wheels)


def said(python: str, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def snapshot(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_a_package_s_own_pth_file_and_a_folder_that_two_wheels_share_work(settings: Settings) -> None:
    python = environments.prepare(PACKAGES, TARGET, settings, "library").python
    assert (
        said(python, "import dsl_module, shared.one, shared.two; print(dsl_module.which, shared.two.n)") == "overlay 2"
    )


def test_what_the_interpreter_has_is_used_as_it_is_and_the_interpreter_stays_as_it_was(settings: Settings) -> None:
    before = snapshot(settings.root / "ambient")
    python = environments.prepare(PACKAGES, TARGET, settings, "library").python
    assert said(
        python, "import torch, base, edited; print(torch.which, base.which, edited.which)"
    ) == "ambient " * 2 + ("ambient")
    assert snapshot(settings.root / "ambient") == before
    assert environments.prepare(PACKAGES, TARGET, settings, "library").python == python


def test_the_overlay_s_versions_are_those_that_were_described(settings: Settings) -> None:
    python = environments.prepare(PACKAGES, TARGET, settings, "library").python
    names = ("torch", "base", "dsl", "dsl-libs")
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names}}}))"
    found = environments.describe(PACKAGES, TARGET, settings, "library")
    assert json.loads(said(python, code)) == {name: found[f"package.{name}"] for name in names}


def test_the_overlay_is_of_the_interpreter_s_own_python(settings: Settings) -> None:
    python = environments.prepare(PACKAGES, TARGET, settings, "library").python
    assert said(python, "import sys; print(sys.base_prefix)") == sys.base_prefix


def test_a_wheel_that_is_not_the_locked_one_is_refused(settings: Settings) -> None:
    assert settings.wheels
    wheel(settings.wheels, "dsl", {"dsl_module.py": "which = 'another'"})
    with pytest.raises(SetupError, match=r"(?i)hash.*; the lock does not know this file") as caught:
        environments.prepare(PACKAGES, TARGET, settings, "library")
    assert "dsl" in str(caught.value)


def test_a_source_archive_is_never_built(settings: Settings) -> None:
    assert settings.wheels
    next(settings.wheels.glob("dsl-*.whl")).unlink()
    (settings.wheels / "dsl-1.0.tar.gz").write_bytes(os.urandom(64))
    with pytest.raises(
        SetupError, match=r"dsl==1.0 must be installed for FLUXBENCH_PYTHON, or lie as a wheel in the fol"
    ):
        environments.prepare(PACKAGES, TARGET, settings, "library")
    # By uv itself the wheel that is missing is named as well.
    by_uv = dataclasses.replace(settings, python=None)
    target = dataclasses.replace(TARGET, locks=("library.txt",))
    with pytest.raises(SetupError, match=r"dsl==1.0 has no usable wheels .*; no registry has this wheel: build it"):
        environments.prepare(("dsl==1.0",), target, by_uv)
