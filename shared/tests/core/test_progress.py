"""How far a cell has come, from the file in which it reports: whole, half written, or missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fluxbench.core import progress
from fluxbench.core.progress import Progress


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(path))
    return path


def test_the_share_is_that_of_the_steps_that_have_begun(file: Path) -> None:
    progress.say(variant="flex", workload="tiny")
    assert progress.read(file) == Progress(share=None, step="flex at tiny")
    for steps in (4, 2):  # the largest counts
        progress.say(steps=steps)
    assert progress.read(file) == Progress(share=0.25, step="flex at tiny")
    progress.say(variant="torch_math", workload="tinier")
    assert progress.read(file) == Progress(share=0.5, step="torch_math at tinier")
    progress.say(variant=None, workload="tiny")
    assert progress.read(file) == Progress(share=0.5, step="all variants at tiny")
    progress.say(step="building the environment")
    assert progress.read(file) == Progress(share=0.5, step="building the environment")
    for _ in range(4):  # steps that begin again after a crash
        progress.say(variant="flex", workload="tiny")
    assert progress.read(file).share == 1.0


def test_a_step_may_count_more_and_more_steps_may_come_than_were_foreseen(file: Path) -> None:
    progress.say(left=2)
    assert progress.read(file).share == 0.0
    progress.say(steps=4)
    for _ in range(2):
        progress.say(variant="flex", workload="tiny", counts=2)
    assert progress.read(file).share == 1.0
    progress.say(left=1)
    assert progress.read(file).share == 0.8


def test_steps_of_a_build_that_was_stopped_are_part_of_the_share(file: Path) -> None:
    progress.say(steps=8)
    for _ in range(2):  # of two batches
        progress.say(before=2)
    progress.say(variant="flex", workload="tiny")
    found = progress.read(file)
    assert (found.share, found.before) == (5 / 8, 4 / 8)
    progress.say(before=100)
    assert progress.read(file).before == 1.0


def test_a_cell_may_say_that_it_measures_a_part(file: Path) -> None:
    assert not progress.read(file).partly
    progress.say(partly=True)
    progress.say(steps=3)
    assert progress.read(file).partly
    file.write_text('{"partly": 1}\n', encoding="utf-8")
    assert not progress.read(file).partly


def test_every_half_of_the_last_line_is_left_out(file: Path) -> None:
    progress.say(steps=4)
    progress.say(variant="flex", workload="tiny")
    whole = file.read_text(encoding="utf-8")
    last = json.dumps({"variant": "torch_math", "workload": "tinier"})
    for length in range(len(last)):
        file.write_text(whole + last[:length], encoding="utf-8")
        assert progress.read(file) == Progress(share=0.25, step="flex at tiny")
    file.write_bytes(b'{"steps": 2}\n7\n{"variant": "\xc3')  # cut within a letter
    assert progress.read(file) == Progress(share=0.0, step="")


def test_a_missing_file_says_nothing_and_may_not_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.read(tmp_path / "missing" / "progress.jsonl") == Progress(share=None, step="")
    monkeypatch.delenv("FLUXBENCH_PROGRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    progress.say(steps=2)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (".", "missing/progress.jsonl", "/dev/full"):
        monkeypatch.setenv("FLUXBENCH_PROGRESS", str(tmp_path / place))
        progress.say(steps=2)
