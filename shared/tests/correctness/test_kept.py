"""What later processes read of what an earlier one computed: right and whole, or computed again."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes import tokens

from fluxbench.correctness import kept
from fluxbench.correctness.kept import Kept, name_of_case
from fluxbench.operations.workload import Workload

SMALL = tokens("small", 40)
VALUES = torch.arange(6.0)


def saved(folder: Path, name: str = "a") -> Path:
    """Keep `VALUES` and return their file."""
    Kept(folder).save(name, (VALUES, {"x": 1.5}))
    return folder / f"{name}.pt"


def test_a_content_comes_back_and_its_digest_is_told_by_whoever_wrote_or_read_it(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    saved(tmp_path)
    for _ in range(2):
        content = Kept(tmp_path, note=lambda *one: told.append(one)).load("a")
        assert content is not None
        assert torch.equal(content[0], VALUES)
    assert told[0] == told[1]
    assert Kept(tmp_path).load("b") is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "a folder", "another's digest"])
def test_a_damaged_file_is_not_read(tmp_path: Path, damage: str) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        changed = {"cut": whole[:-1], "flipped": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], "empty": b""}
        path.write_bytes(changed.get(damage, whole[1:2] + whole[1:]))
    assert Kept(tmp_path).load("a") is None


def test_what_a_kernel_wrote_in_place_of_a_content_is_not_read_in_the_next_process(tmp_path: Path) -> None:
    known: dict[str, str] = {}
    Kept(tmp_path, note=known.__setitem__).save("a", VALUES)
    Kept(tmp_path).save("a", 2 * VALUES)  # whole, with a digest that fits
    assert Kept(tmp_path, known).load("a") is None
    Kept(tmp_path, known).save("a", VALUES)
    later = Kept(tmp_path, known, trusts=False)
    again = later.load("a")
    assert again is not None
    assert torch.equal(again, VALUES)
    Kept(tmp_path).save("b", VALUES)  # by a kernel, of what no process has read yet
    assert later.load("b") is None


def test_a_content_that_a_later_process_needs_is_vouched_for_before_a_kernel_can_write_it(tmp_path: Path) -> None:
    known: dict[str, str] = {}
    saved(tmp_path, "of an earlier cell")
    first = Kept(tmp_path, note=known.__setitem__)
    for name in ("of an earlier cell", "missing"):
        first.vouch(name)
    assert list(known) == ["of an earlier cell"]
    assert Kept(tmp_path, known, trusts=False).load("of an earlier cell") is not None


@pytest.mark.parametrize("fails", ["full", "while it is written", "no folder"])
def test_where_nothing_can_be_kept_the_measurement_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    folder = tmp_path / "kept"
    if fails == "no folder":
        folder.touch()
    elif fails == "full":
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4096))
    else:
        monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space left on device")))
    told: list[str] = []
    Kept(folder, note=lambda name, _: told.append(name)).save("a", VALUES)
    assert (Kept(folder).load("a"), told) == (None, [])
    assert not folder.is_dir() or list(folder.iterdir()) == []


def test_who_needs_what_another_process_computes_waits_for_it(tmp_path: Path) -> None:
    begun = threading.Event()

    def compute() -> None:
        with Kept(tmp_path).computing("a"):
            begun.set()
            time.sleep(0.2)
            saved(tmp_path)

    other = threading.Thread(target=compute)
    other.start()
    begun.wait()
    with Kept(tmp_path).computing("a"):
        assert Kept(tmp_path).load("a") is not None
    other.join()
    (tmp_path / "a file").touch()
    with Kept(tmp_path / "a file").computing("a"):  # where nothing can be kept nobody waits
        pass


def test_what_a_killed_process_left_half_written_is_removed_and_never_read(tmp_path: Path) -> None:
    gone, living = tmp_path / f"a.pt.{2**22 + 1}.part", tmp_path / f"a.pt.{os.getppid()}.part"
    for part in (gone, living):
        part.write_bytes(b"half")
    assert Kept(tmp_path).load("a") is None
    saved(tmp_path)
    assert (gone.exists(), living.exists()) == (False, True)


def test_the_files_that_were_used_least_recently_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = saved(tmp_path, "a").stat().st_size
    monkeypatch.setattr(kept, "MOST_BYTES", 2 * size + size // 2)
    for age, name in ((300, "a"), (200, "b")):
        saved(tmp_path, name)
        os.utime(tmp_path / f"{name}.pt", (time.time() - age,) * 2)
    assert Kept(tmp_path).load("a") is not None
    saved(tmp_path, "c")
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "c"]


def test_other_inputs_have_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(workload: Workload = SMALL, kind: str = "normal", seed: int = 0) -> str:
        return name_of_case(workload, kind, seed)

    def with_shape(**changes: Any) -> Workload:
        return dataclasses.replace(SMALL, shape={**SMALL.shape, **changes})

    assert named() == named(dataclasses.replace(SMALL, name="another", group="g", x=1))
    names = [named(), named(kind="flux"), named(seed=1), named(with_shape(causal=True)), named(with_shape(heads=3))]
    names.append(named(dataclasses.replace(SMALL, operation="attention_backward")))
    monkeypatch.setattr(torch, "__version__", "9.9")
    names.append(named())
    assert len(set(names)) == len(names)
