"""What is published stays: a page that replaces another keeps its records, whatever happens meanwhile."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import GPU
from sample_records import make_record
from uvnote.parser import CodeCell, DocumentConfig

from fluxbench.core.errors import SetupError
from fluxbench.device.targets import Target
from fluxbench.notebook.build import Built
from fluxbench.notebook.document import Document
from fluxbench.notebook.freshness import Freshness, State
from fluxbench.notebook.publish import publish
from fluxbench.notebook.store import Result
from fluxbench.records import schema as records

FIRST, SECOND, THIRD = (f"2026-0{month}-21T10:45:12+00:00" for month in (1, 2, 3))
STAMP_1, STAMP_2, STAMP_3 = (f"2026-0{month}-21T104512Z" for month in (1, 2, 3))

Files = dict[str, str]


class Publisher:
    """A folder of reports, and pages of one cell to publish there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "reports" / "made-up"

    def publish(self, files: Files) -> Path:
        return publish(self.built(files), self.folder / "reports", "made-up")

    def built(self, files: Files) -> Built:
        """Return a page whose one cell left these files."""
        result, work = self.folder / "result", self.folder / "notebooks" / ".uvnote"
        shutil.rmtree(result, ignore_errors=True)
        result.mkdir()
        for name, text in files.items():
            (result / name).parent.mkdir(parents=True, exist_ok=True)
            (result / name).write_text(text, encoding="utf-8")
        (work / "cells").mkdir(parents=True, exist_ok=True)
        (work / "cells" / "sdpa.py").write_text("1", encoding="utf-8")
        page = self.folder / "site.html"
        page.write_text(f"<p>{len(files)}</p>", encoding="utf-8")
        code = CodeCell(id="sdpa", code="1", deps=[], outputs=[], needs=[], line_start=1, line_end=1)
        path = self.folder / "notebooks" / "flux.md"
        freshness = Freshness(
            state=State.FRESH,
            reasons=(),
            result=Result(
                cell="sdpa",
                number=1,
                folder=result,
                stdout="",
                stderr="",
                duration_s=1.0,
                artifacts={name: len(text) for name, text in files.items()},
                failure=None,
                ran_at=FIRST,
            ),
        )
        return Built(
            page=page,
            document=Document(path=path, text="", config=DocumentConfig(), cells=(code,)),
            device=GPU,
            target=Target(name="made-up", locks=(), leaves_out=(), expects=()),
            cells={"sdpa": freshness},
            before={},
            problems=(),
        )

    @property
    def published(self) -> Files:
        return texts(self.home / "flux" / "records")

    @property
    def history(self) -> Files:
        """The kept files by their path in the history."""
        return texts(self.home / "flux" / "history")


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path)


def texts(folder: Path) -> Files:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in files}


def measured(measured_at: str, median_ms: float = 1.0) -> str:
    return make_record("torch_cudnn", median_ms=median_ms, measured_at=measured_at).to_json() + "\n"


def page_of(measured_at: str, *, rates: str = "{}") -> Files:
    return {
        "sdpa.jsonl": measured(measured_at),
        "ceilings.json": rates,
        "device.json": '{"device": {}}',
        "latency.svg": f"<svg>{measured_at}</svg>",
        "latency.csv": measured_at,
    }


def test_a_first_page_has_no_history(publisher: Publisher) -> None:
    publisher.publish(page_of(FIRST))
    assert not (publisher.home / "flux" / "history").exists()


def test_records_that_are_replaced_are_kept_under_the_time_when_they_were_measured(publisher: Publisher) -> None:
    publisher.publish(page_of(FIRST, rates='{"matmul_tflops": 1}'))
    publisher.publish(page_of(SECOND, rates='{"matmul_tflops": 2}'))
    assert publisher.history == {
        f"{STAMP_1}/ceilings.json": '{"matmul_tflops": 1}',
        f"{STAMP_1}/sdpa.jsonl": measured(FIRST),
    }
    assert publisher.published["sdpa.jsonl"] == measured(SECOND)


def test_what_was_kept_before_stays(publisher: Publisher) -> None:
    for when in (FIRST, SECOND, THIRD):
        publisher.publish(page_of(when))
    assert publisher.history == {
        f"{STAMP_1}/sdpa.jsonl": measured(FIRST),
        f"{STAMP_2}/sdpa.jsonl": measured(SECOND),
    }


def test_publishing_the_same_records_again_adds_nothing(publisher: Publisher) -> None:
    publisher.publish(page_of(FIRST))
    publisher.publish({**page_of(FIRST), "latency.svg": "<svg>drawn anew</svg>"})
    assert publisher.history == {}
    publisher.publish(page_of(SECOND))
    publisher.publish(page_of(SECOND))
    assert list(publisher.history) == [f"{STAMP_1}/sdpa.jsonl"]


def test_records_that_are_published_a_second_time_are_kept_once(publisher: Publisher) -> None:
    written = set()
    for when in (FIRST, SECOND, FIRST, SECOND, FIRST):
        publisher.publish(page_of(when))
        kept = publisher.home / "flux" / "history" / STAMP_1 / "sdpa.jsonl"
        written |= {kept.stat().st_mtime_ns} if kept.exists() else set()
    assert len(written) == 1
    assert sorted(publisher.history) == [f"{STAMP_1}/sdpa.jsonl", f"{STAMP_2}/sdpa.jsonl"]


def test_a_record_that_the_new_page_has_no_more_is_kept(publisher: Publisher) -> None:
    publisher.publish({**page_of(FIRST), "triton.jsonl": measured(SECOND)})
    publisher.publish(page_of(FIRST))
    assert publisher.history == {f"{STAMP_2}/triton.jsonl": measured(SECOND)}


def test_a_record_file_in_a_folder_keeps_its_place(publisher: Publisher) -> None:
    publisher.publish({"deep/sdpa.jsonl": measured(FIRST)})
    publisher.publish({"deep/sdpa.jsonl": measured(SECOND)})
    assert publisher.history == {f"{STAMP_1}/deep/sdpa.jsonl": measured(FIRST)}


def test_a_file_without_a_time_is_kept_under_that_of_the_records_beside_it(publisher: Publisher) -> None:
    publisher.publish(page_of(SECOND, rates="{}"))
    publisher.publish(page_of(SECOND, rates='{"matmul_tflops": 2}'))
    assert publisher.history == {f"{STAMP_2}/ceilings.json": "{}"}


def test_a_page_without_any_time_is_kept_under_that_of_its_file(publisher: Publisher) -> None:
    publisher.publish({"device.json": "{}"})
    os.utime(publisher.home / "flux" / "records" / "device.json", (1_767_225_600, 1_767_225_600))
    publisher.publish({"device.json": '{"device": {}}'})
    assert publisher.history == {"2026-01-01T000000Z/device.json": "{}"}


def test_two_results_of_the_same_second_are_both_kept(publisher: Publisher) -> None:
    for rates in ("1", "2", "3", "4"):
        publisher.publish(page_of(FIRST, rates=rates))
    assert publisher.history == {
        f"{STAMP_1}/ceilings.json": "1",
        f"{STAMP_1}-2/ceilings.json": "2",
        f"{STAMP_1}-3/ceilings.json": "3",
    }


def test_a_clock_that_was_set_back_loses_nothing(publisher: Publisher) -> None:
    for when in (THIRD, FIRST, SECOND):
        publisher.publish(page_of(when))
    assert publisher.history == {
        f"{STAMP_1}/sdpa.jsonl": measured(FIRST),
        f"{STAMP_3}/sdpa.jsonl": measured(THIRD),
    }


def test_a_time_in_another_zone_is_kept_in_utc(publisher: Publisher) -> None:
    publisher.publish({"sdpa.jsonl": measured("2026-01-22T00:30:00+02:00")})
    publisher.publish(page_of(SECOND))
    assert list(publisher.history) == ["2026-01-21T223000Z/sdpa.jsonl"]


def test_entries_lie_in_the_order_in_which_they_were_made_whatever_they_hold(publisher: Publisher) -> None:
    publisher.publish({"sdpa.jsonl": measured(FIRST), "flex.jsonl": measured(SECOND)})
    publisher.publish({"sdpa.jsonl": measured(FIRST), "flex.jsonl": measured(THIRD)})
    publisher.publish({"sdpa.jsonl": measured("2027-01-21T10:45:12+00:00"), "flex.jsonl": measured(THIRD)})
    assert [name.partition("/")[2] for name in sorted(publisher.history)] == ["flex.jsonl", "sdpa.jsonl"]


@pytest.mark.parametrize(
    ("damaged", "stamp"),
    [
        (measured(FIRST) + measured(FIRST)[:60], STAMP_2),  # a line is cut off
        (json.dumps({"schema": 99, "measured_at": FIRST}), STAMP_2),
        (measured("yesterday") + measured(FIRST), STAMP_2),
        ("", STAMP_2),  # the time of the other file
        ("[1]\nnull\n", STAMP_2),
        ("\x00\x01", STAMP_2),
        ("[" * 100_000, STAMP_2),
    ],
)
def test_a_damaged_record_is_kept_as_it_is(publisher: Publisher, damaged: str, stamp: str) -> None:
    publisher.publish({"sdpa.jsonl": measured(FIRST), "flex.jsonl": measured(SECOND)})
    (publisher.home / "flux" / "records" / "sdpa.jsonl").write_text(damaged, encoding="utf-8")
    publisher.publish({"sdpa.jsonl": measured(THIRD), "flex.jsonl": measured(SECOND)})
    assert publisher.history == {f"{stamp}/sdpa.jsonl": damaged}


def test_a_record_that_is_no_text_is_kept_as_it_is(publisher: Publisher) -> None:
    publisher.publish(page_of(FIRST))
    (publisher.home / "flux" / "records" / "sdpa.jsonl").write_bytes(b"\xff\xfe\n" + measured(SECOND).encode())
    publisher.publish(page_of(THIRD))
    kept = publisher.home / "flux" / "history" / STAMP_2 / "sdpa.jsonl"
    assert kept.read_bytes().startswith(b"\xff\xfe\n")


class Killed(BaseException):
    """Stands for the end of the process."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int, methods: tuple[str, ...] = ("rename", "replace")) -> None:
    """End the process in place of the nth time that a path is given another name, counted from 0."""
    done = 0

    def wrapped(method: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def renamed(path: Path, target: Path) -> Path:
            nonlocal done
            if done == step:
                raise Killed
            done += 1
            return method(path, target)

        return renamed

    for name in methods:
        monkeypatch.setattr(Path, name, wrapped(getattr(Path, name)))


# Put the page's text in place, the old folder away, the new folder in its place, the page in its place.
@pytest.mark.parametrize("step", range(4))
def test_whenever_it_is_interrupted_nothing_is_lost(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    publisher.publish(page_of(FIRST))
    publisher.publish(page_of(SECOND))
    with monkeypatch.context() as patched:
        kill_at(patched, step)
        with pytest.raises(Killed):
            publisher.publish(page_of(THIRD))
    publisher.publish(page_of(THIRD))
    assert publisher.published["sdpa.jsonl"] == measured(THIRD)
    assert publisher.history == {
        f"{STAMP_1}/sdpa.jsonl": measured(FIRST),
        f"{STAMP_2}/sdpa.jsonl": measured(SECOND),
    }
    assert sorted(path.name for path in publisher.home.iterdir()) == ["flux", "flux.html"]


def test_an_interruption_before_the_swap_leaves_what_is_published(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish(page_of(FIRST))
    publisher.publish(page_of(SECOND))
    before = texts(publisher.home / "flux")
    with monkeypatch.context() as patched:
        kill_at(patched, 0)
        with pytest.raises(Killed):
            publisher.publish(page_of(THIRD))
    assert texts(publisher.home / "flux") == before


def test_a_full_disk_while_history_is_kept_leaves_what_is_published(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish(page_of(FIRST))
    before = texts(publisher.home)

    def full(source: object, target: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    built = publisher.built(page_of(SECOND))
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        patched.setattr("fluxbench.notebook.publish._link", full)
        with pytest.raises(SetupError, match="No space left on device; what was published is untouched"):
            publish(built, publisher.folder / "reports", "made-up")
    assert texts(publisher.home) == before


def test_a_file_system_without_second_names_gets_copies(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: object, target: object, **options: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    for when in (FIRST, SECOND, THIRD):
        publisher.publish(page_of(when))
    assert sorted(publisher.history) == [f"{STAMP_1}/sdpa.jsonl", f"{STAMP_2}/sdpa.jsonl"]


def test_a_page_with_problems_moves_nothing_into_history(publisher: Publisher) -> None:
    publisher.publish(page_of(FIRST))
    bad = dataclasses.replace(publisher.built(page_of(SECOND)), problems=("cell sdpa failed",))
    with pytest.raises(SetupError, match="only a page without problems"):
        publish(bad, publisher.folder / "reports", "made-up")
    assert publisher.history == {}


def test_what_was_published_before_there_was_a_history_is_kept(publisher: Publisher) -> None:
    folder = publisher.home / "flux" / "records"
    folder.mkdir(parents=True)
    records.write(folder / "sdpa.jsonl", [make_record(measured_at=FIRST)])
    publisher.publish(page_of(SECOND))
    assert list(publisher.history) == [f"{STAMP_1}/sdpa.jsonl"]
