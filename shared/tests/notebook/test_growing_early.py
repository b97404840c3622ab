"""Early records: they are drawn while their cell waits, are no result, and are never published."""

from __future__ import annotations

import io

import msgspec
import pytest
from grown import UNFINISHED, before, shown, status
from notebooks import Machine
from sample_records import record

from fluxbench.notebook import pausing
from fluxbench.notebook.document import load
from fluxbench.notebook.listeners import Lines
from fluxbench.notebook.store import Store
from fluxbench.notebook.width import Width
from fluxbench.records import files as files_of_records
from fluxbench.records.schema import Flag
from fluxbench.records.status import FlagKind

EARLY = """import time
from fluxbench.core.device_lock import DeviceLock, folder
from fluxbench.core.progress import say
locks = folder(pathlib.Path(os.environ["FLUXBENCH_CACHE"]))
lock = DeviceLock(locks, 0)
found = page.read_text()
with lock.held(short=False):
    say(early="soon")
    late = time.monotonic() + 60
    while "BUILD_WAITS" in os.environ and not list(locks.glob("waiting-*")) and time.monotonic() < late:
        time.sleep(0.01)
    time.sleep(1)
    print("undisturbed", page.read_text() == found)
if os.environ.get("EARLY") != "not ready":
    pathlib.Path(".fluxbench-early").mkdir()
    shutil.copy(os.path.join(os.environ["LABORATORY"], "early.jsonl"), ".fluxbench-early/first.jsonl")
    say(early="ready")
with lock.held(short=True):
    shutil.copy(page, os.path.join(os.environ["LABORATORY"], "before-rest.html"))
if os.environ.get("EARLY") == "is left":
    shutil.copy(os.path.join(os.environ["LABORATORY"], "early.jsonl"), "first.jsonl")
    sys.exit()
"""
# The page has the cell's source too.
BESIDE = """say(early="ready")
with lock.held(short=False):
    late = time.monotonic() + 60
    while "torch_math=" + "3.0" not in page.read_text() and time.monotonic() < late:
        time.sleep(0.01)
"""
OF_EARLY = "Of first it shows one process of the first variants, not checked on all inputs yet."


@pytest.fixture
def early(growing: Machine) -> Machine:
    """The same machine; its first cell has early records of 3 ms before it measures, for which the build waits."""
    growing.monkeypatch.setenv("BUILD_WAITS", "where the page has no times")
    growing.monkeypatch.setattr(pausing, "EARLY_S", 60.0)
    growing.rewrite('"before-first.html"))\n', f'"before-first.html"))\n{EARLY}')
    flag = Flag(kind=FlagKind.EARLY)
    one = msgspec.structs.replace(
        record("torch_math", sustained_ms=3.0), notebook="made_up", cell="first", flags=(flag,)
    )
    files_of_records.write(growing.folder / "laboratory" / "early.jsonl", [one])
    return growing


def test_early_records_are_drawn_while_their_cell_waits_and_its_own_take_their_place(early: Machine) -> None:
    assert early.build().problems == ()
    page = before(early, "rest")
    assert shown(page, "shown") == "shown torch_math=3.0"
    assert shown(page, "first") == "This cell has not run yet."
    assert status(page) == f"0 of 2 cells measured. {OF_EARLY} {UNFINISHED}"
    assert "undisturbed True" in early.shown("first")
    assert shown(before(early, "second"), "shown") == "shown torch_math=1.0"
    assert OF_EARLY not in before(early, "second")
    assert early.shown("shown") == "shown torch_math=1.0 torch_native=1.0"
    assert [early.good(cell).number for cell in ("first", "gathered", "shown")] == [1, 1, 1]
    assert not (early.notebook.parent / ".uvnote" / "interim").exists()


def test_with_cores_to_spare_they_are_drawn_beside_the_cell_that_goes_on(early: Machine) -> None:
    early.monkeypatch.delenv("BUILD_WAITS")  # nobody asks for the device
    early.monkeypatch.setattr(Width, "on", lambda device, at_once: Width(measuring=1, beside=1, alone=1))
    early.rewrite('say(early="ready")', BESIDE)
    assert early.build().problems == ()
    page = before(early, "rest")
    assert shown(page, "shown") == "shown torch_math=3.0"
    assert status(page) == f"0 of 2 cells measured. {OF_EARLY} {UNFINISHED}"
    assert early.shown("shown") == "shown torch_math=1.0 torch_native=1.0"


def test_with_cores_to_spare_they_are_drawn_on_a_page_that_has_times_too(early: Machine) -> None:
    early.monkeypatch.delenv("BUILD_WAITS")
    early.monkeypatch.setenv("EARLY", "not ready")
    early.monkeypatch.setattr(pausing, "EARLY_S", 0.1)
    assert early.build().problems == ()
    early.monkeypatch.delenv("EARLY")
    early.monkeypatch.setattr(Width, "on", lambda device, at_once: Width(measuring=1, beside=1, alone=1))
    early.rewrite('say(early="ready")', BESIDE)
    assert early.build("first").problems == ()
    assert "torch_math=3.0" in shown(before(early, "rest"), "shown")


def test_where_the_page_has_times_or_the_records_do_not_come_nothing_is_drawn_early(early: Machine) -> None:
    early.monkeypatch.setattr(pausing, "EARLY_S", 0.1)
    early.monkeypatch.setenv("EARLY", "not ready")
    assert early.build().problems == ()
    assert shown(before(early, "rest"), "shown") == "This cell has not run yet."
    early.monkeypatch.delenv("EARLY")
    early.monkeypatch.delenv("BUILD_WAITS")
    assert early.build("first").problems == ()
    assert shown(before(early, "rest"), "shown").endswith("shown torch_math=1.0 torch_native=1.0")


def test_early_records_are_no_result_and_are_never_published(early: Machine) -> None:
    early.monkeypatch.setenv("EARLY", "is left")
    assert early.command("publish") == 1
    assert "torch_math=3.0" not in early.page
    assert not (early.folder / "reports").exists()
    early.monkeypatch.delenv("BUILD_WAITS")
    problem = "its output 'first.jsonl' must be of a measurement that ended, got early records"
    assert early.build().problems[0] == f"cell first failed: {problem}"
    assert Store(load(early.notebook)).last_good("first") is None


def test_a_build_that_is_interrupted_early_publishes_nothing(early: Machine) -> None:
    class Interrupting(Lines):
        def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        early.build(listener=Interrupting(io.StringIO()))
    assert status(early.page) == (
        f"The build was stopped with 0 of 2 cells measured. {OF_EARLY} Another one goes on from there."
    )
    assert early.states()["gathered"] != "fresh"
    assert early.command("publish") == 0
    published = early.folder / "reports" / "made-up"
    assert "torch_math=3.0" not in (published / "made_up.html").read_text(encoding="utf-8")
    kept = (published / "made_up").rglob("*.jsonl")
    assert all(FlagKind.EARLY.value not in path.read_text(encoding="utf-8") for path in kept)
