"""How far a cell has come, from the file in which it says so: whole, half written, or not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fluxbench.core import progress
from fluxbench.core.progress import Progress


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that somebody listens to."""
    path = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(path))
    return path


def test_the_share_is_that_of_the_steps_that_have_begun(said: Path) -> None:
    progress.say(steps=4)
    assert progress.read(said) == Progress(share=0.0, step="")
    progress.say(variant="flex", workload="flux1-1024px-t512")
    assert progress.read(said) == Progress(share=0.25, step="flex at flux1-1024px-t512")
    progress.say(variant="torch_math", workload="flux1-1024px-t128")
    assert progress.read(said) == Progress(share=0.5, step="torch_math at flux1-1024px-t128")


def test_the_largest_number_of_steps_counts(said: Path) -> None:
    for steps in (4, 2):
        progress.say(steps=steps)
    progress.say(variant="flex", workload="tiny")
    assert progress.read(said).share == 0.25


def test_where_all_variants_are_timed_together_it_says_so_and_no_step_begins(said: Path) -> None:
    progress.say(steps=2)
    progress.say(variant="flex", workload="tiny")
    progress.say(variant=None, workload="tiny")
    assert progress.read(said) == Progress(share=0.5, step="all variants at tiny")


def test_steps_that_begin_again_after_a_crash_never_come_to_more_than_all(said: Path) -> None:
    progress.say(steps=2)
    for _ in range(3):
        progress.say(variant="flex", workload="tiny")
    assert progress.read(said).share == 1.0


def test_how_far_is_unknown_until_the_number_of_steps_is_said(said: Path) -> None:
    progress.say(variant="flex", workload="tiny")
    assert progress.read(said) == Progress(share=None, step="flex at tiny")


def test_every_half_of_the_last_line_is_left_out(said: Path) -> None:
    progress.say(steps=4)
    progress.say(variant="flex", workload="tiny")
    whole = said.read_text(encoding="utf-8")
    last = json.dumps({"variant": "torch_math", "workload": "tinier"})
    for length in range(len(last)):
        said.write_text(whole + last[:length], encoding="utf-8")
        assert progress.read(said) == Progress(share=0.25, step="flex at tiny")
    said.write_text(whole + last, encoding="utf-8")
    assert progress.read(said) == Progress(share=0.5, step="torch_math at tinier")


def test_a_name_cut_within_a_letter_is_left_out(said: Path) -> None:
    said.write_bytes(b'{"steps": 2}\n{"variant": "\xc3')
    assert progress.read(said) == Progress(share=0.0, step="")


def test_a_file_that_is_not_there_yet_says_nothing(tmp_path: Path) -> None:
    assert progress.read(tmp_path / "missing" / "progress.jsonl") == Progress(share=None, step="")


def test_where_nobody_listens_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUXBENCH_PROGRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    progress.say(steps=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [".", "missing/progress.jsonl", "/dev/full"])
def test_a_file_that_cannot_be_written_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(tmp_path / place))
    progress.say(steps=2)
