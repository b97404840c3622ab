"""What published pages of before leave: their records in the history, whatever interrupts a publication."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import GPU, REPOSITORY
from notebooks import tree
from sample_records import record
from uvnote.parser import CodeCell, DocumentConfig

from fluxbench.device import targets
from fluxbench.notebook.build import Built
from fluxbench.notebook.document import Document
from fluxbench.notebook.freshness import Freshness, State
from fluxbench.notebook.publish import publish
from fluxbench.notebook.store import Result, Run

FIRST, SECOND, THIRD = (f"2026-0{month}-21T10:45:12+00:00" for month in (1, 2, 3))
STAMP_1, STAMP_2, STAMP_3 = (f"2026-0{month}-21T104512Z" for month in (1, 2, 3))
OTHER_ZONE, NEXT_YEAR = "2026-01-21T12:45:12+02:00", "2027-01-21T10:45:12+00:00"

Texts = dict[str, str]


class Publisher:
    """A folder of reports, and pages of one cell to publish there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "reports" / "made-up"

    def publish(self, texts: Texts) -> Path:
        return publish(self.built(texts), self.folder / "reports", "made-up")

    def built(self, texts: Texts) -> Built:
        """Return a page whose one cell left these files."""
        result, work = self.folder / "result", self.folder / "notebooks" / ".uvnote"
        shutil.rmtree(result, ignore_errors=True)
        for name, text in texts.items():
            (result / name).parent.mkdir(parents=True, exist_ok=True)
            (result / name).write_text(text, encoding="utf-8")
        (work / "cells").mkdir(parents=True, exist_ok=True)
        (work / "cells" / "sdpa.py").write_text("1", encoding="utf-8")
        run = Run(
            success=True, stdout="", stderr="", duration=1.0, artifacts=dict.fromkeys(texts, 1), failure=None,
            ran_at=FIRST, depends={}, inputs={},
        )  # fmt: skip
        freshness = Freshness(state=State.FRESH, reasons=(), result=Result("sdpa", 1, result, run))
        code = CodeCell(id="sdpa", code="1", deps=[], outputs=[], needs=[], line_start=1, line_end=1)
        path = self.folder / "notebooks" / "flux.md"
        return Built(
            page=self.folder / "site.html",
            document=Document(path=path, text="```python id=sdpa\n1\n```", config=DocumentConfig(), cells=(code,)),
            device=GPU,
            target=targets.of(GPU, REPOSITORY),
            cells={"sdpa": freshness},
            before={},
            problems=(),
        )

    @property
    def published(self) -> Texts:
        return texts_of(self.home / "flux" / "records")

    @property
    def history(self) -> Texts:
        """The kept files by their path in the history, decompressed."""
        return texts_of(self.home / "flux" / "history")


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path)


def texts_of(folder: Path) -> Texts:
    def content(name: str, stored: bytes) -> bytes:
        return gzip.decompress(stored) if name.endswith(".jsonl.gz") else stored

    return {name: content(name, stored).decode("utf-8", "replace") for name, stored in tree(folder).items()}


def measured(measured_at: str, sustained_ms: float = 1.0) -> str:
    return record("torch_cudnn", sustained_ms=sustained_ms, measured_at=measured_at).to_json() + "\n"


def page_of(measured_at: str, *, control: str = "{}") -> Texts:
    return {
        "sdpa.jsonl": measured(measured_at),
        "sdpa.control.json": control,
        "sdpa.samples.json.gz": f"samples of {measured_at}",
        "rates.json": f"rates of {measured_at}",
        "latency.csv": measured_at,
    }


# Pages that are published one after the other, as the files of their cells, and what the history then holds.
HISTORIES: dict[str, tuple[list[Texts], Texts]] = {
    "under the time when they were measured": (
        [page_of(FIRST, control="1"), page_of(SECOND, control="2"), page_of(THIRD, control="2")],
        {
            f"{STAMP_1}/sdpa.control.json": "1",
            f"{STAMP_1}/sdpa.jsonl.gz": measured(FIRST),
            f"{STAMP_2}/sdpa.jsonl.gz": measured(SECOND),
        },
    ),
    "and nothing else": (
        [page_of(FIRST), {**page_of(FIRST), "latency.csv": "anew", "sdpa.samples.json.gz": "1", "rates.json": "2"}],
        {},
    ),
    "in UTC": ([page_of(OTHER_ZONE), page_of(SECOND)], {f"{STAMP_1}/sdpa.jsonl.gz": measured(OTHER_ZONE)}),
    "once, though published again, and though the clock was set back": (
        [page_of(when) for when in (FIRST, SECOND, FIRST, SECOND, FIRST)],
        {f"{STAMP_1}/sdpa.jsonl.gz": measured(FIRST), f"{STAMP_2}/sdpa.jsonl.gz": measured(SECOND)},
    ),
    "though the new page has no such record": (
        [{**page_of(FIRST), "triton.jsonl": measured(SECOND)}, page_of(FIRST)],
        {f"{STAMP_2}/triton.jsonl.gz": measured(SECOND)},
    ),
    "though of the same second": (
        [page_of(FIRST, control=control) for control in "1234"],
        {f"{STAMP_1}{suffix}/sdpa.control.json": str(at) for at, suffix in enumerate(("", "-2", "-3"), start=1)},
    ),
    "in the order in which they were replaced": (  # by the newest record of the page, not of what is replaced
        [
            {"sdpa.jsonl": measured(FIRST), "flex.jsonl": measured(SECOND)},
            {"sdpa.jsonl": measured(FIRST), "flex.jsonl": measured(THIRD)},
            {"sdpa.jsonl": measured(NEXT_YEAR), "flex.jsonl": measured(THIRD)},
        ],
        {f"{STAMP_2}/flex.jsonl.gz": measured(SECOND), f"{STAMP_3}/sdpa.jsonl.gz": measured(FIRST)},
    ),
}


@pytest.mark.parametrize(("pages", "history"), HISTORIES.values(), ids=HISTORIES)
def test_replaced_ones_are_kept(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, pages: list[Texts], history: Texts
) -> None:
    def refused(source: object, target: object, **options: object) -> None:
        raise OSError(95, "Operation not supported")

    for page in pages:
        publisher.publish(page)
        monkeypatch.setattr(os, "link", refused)  # the later ones as on a file system without second names
    assert publisher.history == history
    assert publisher.published["sdpa.jsonl"] == pages[-1]["sdpa.jsonl"]


@pytest.mark.parametrize(
    "damaged",
    [
        measured(FIRST) + measured(FIRST)[:60],  # a line is cut off
        json.dumps({"schema": 99, "measured_at": FIRST}),
        measured("yesterday") + "[1]\nnull\n",
        "",  # the time of the other file
        "[" * 100_000,
    ],
    ids=["cut", "schema 99", "yesterday", "empty", "deep"],
)
def test_a_damaged_record_is_kept_as_it_is(publisher: Publisher, damaged: str) -> None:
    publisher.publish({"sdpa.jsonl": measured(FIRST), "flex.jsonl": measured(SECOND)})
    (publisher.home / "flux" / "records" / "sdpa.jsonl").write_text(damaged, encoding="utf-8")
    publisher.publish({"sdpa.jsonl": measured(THIRD), "flex.jsonl": measured(SECOND)})
    assert publisher.history == {f"{STAMP_2}/sdpa.jsonl.gz": damaged}


class Killed(BaseException):
    """Stands for the end of the process."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """End the process in place of the nth time that a path of the published page is given another name, from 0."""
    done = 0

    def wrapped(method: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def renamed(path: Path, target: Path) -> Path:
            nonlocal done
            if path.parent.name == "made-up":
                done += 1
                if done == step + 1:
                    raise Killed
            return method(path, target)

        return renamed

    for name in ("rename", "replace"):
        monkeypatch.setattr(Path, name, wrapped(getattr(Path, name)))


# Put the page's text in place, the old folder away, the new folder in its place, the page in its place. Where two
# folders can be exchanged, the new folder is in its place before the old one is away.
@pytest.mark.parametrize(("exchanges", "step"), [*((False, step) for step in range(4)), (True, 1), (True, 2)])
def test_an_interruption_loses_nothing(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, exchanges: bool, step: int
) -> None:
    if not exchanges:
        monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    publisher.publish(page_of(FIRST))
    publisher.publish(page_of(SECOND))
    before = tree(publisher.home / "flux")
    with monkeypatch.context() as patched:
        kill_at(patched, step)
        with pytest.raises(Killed):
            publisher.publish(page_of(THIRD))
    assert step or tree(publisher.home / "flux") == before
    publisher.publish(page_of(THIRD))
    assert publisher.published["sdpa.jsonl"] == measured(THIRD)
    kept = {STAMP_1: FIRST, STAMP_2: SECOND}
    assert publisher.history == {f"{stamp}/sdpa.jsonl.gz": measured(when) for stamp, when in kept.items()}
    assert sorted(path.name for path in publisher.home.iterdir()) == ["flux", "flux.html"]
