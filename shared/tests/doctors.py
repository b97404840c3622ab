"""Made-up machines for `fluxbench doctor`: a fake uv, a fake interpreter, devices that are not there."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, GPU, REPOSITORY, clean, executable, fake_uv, interpreter

from fluxbench.core.settings import Settings
from fluxbench.device import detect, nvidia
from fluxbench.device.model import Device
from fluxbench.notebook.doctor.examination import Examination, VariantHere, examine

H200 = dataclasses.replace(GPU, name="NVIDIA H200")
Usage = namedtuple("Usage", "total used free")  # what shutil.disk_usage returns


@dataclasses.dataclass
class Machine:
    """A made-up machine, healthy until a test takes something away."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    settings: Settings

    @property
    def notebook(self) -> Path:
        return self.folder / "notebooks" / "flux.md"

    def is_a(self, device: Device, *others: str) -> None:
        self.monkeypatch.setattr(detect, "detect", lambda: device)
        self.monkeypatch.setattr(nvidia, "other_processes", lambda device: others)

    def has_free(self, gigabytes: float) -> None:
        self.monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(0, 0, int(gigabytes * 1e9)))

    def has_programs(self, *names: str) -> None:
        for name in names:
            executable(self.folder / "programs" / name, "")

    def lacks_program(self, name: str) -> None:
        (self.folder / "programs" / name).unlink()

    def sets(self, **changes: Any) -> None:
        self.settings = dataclasses.replace(self.settings, **changes)

    def uses(self, **packages: str) -> None:
        """Measure with an interpreter that has these packages and runs no code."""
        self.sets(python=str(interpreter(self.folder / "python", **packages)))

    def rewrite(self, old: str, new: str, name: str = "flux.md") -> None:
        """Write the notebook with a change, as another one where another name is given."""
        text = self.notebook.read_text(encoding="utf-8")
        assert old in text
        if name == "flux.md":
            self.notebook.unlink()
        self.notebook.with_name(name).write_text(text.replace(old, new), encoding="utf-8")

    def installs(self) -> None:
        """Have a measured environment in the cache."""
        environment = self.settings.cache / "envs" / "0123456789abcdef"
        environment.mkdir(parents=True)
        (environment / "ready").touch()

    def examine(self) -> Examination:
        return examine(self.settings)

    def reason(self, name: str) -> str | None:
        return variant(self.examine(), name).reason


def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a healthy machine with a CPU and the Flux notebook."""
    clean(monkeypatch)
    for name in ("CC", "CXX", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    fake_uv(tmp_path, monkeypatch)
    (tmp_path / "environment").symlink_to(REPOSITORY / "environment")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "flux.md").symlink_to(REPOSITORY / "notebooks" / "flux.md")
    found = Machine(tmp_path, monkeypatch, Settings(root=tmp_path, cache=tmp_path / "cache"))
    found.has_programs("g++", "gcc", "git")
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    found.is_a(CPU)
    found.has_free(100)
    return found


def variant(found: Examination, name: str) -> VariantHere:
    [here] = [here for here in found.variants if here.variant == name]
    return here
