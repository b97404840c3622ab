"""The page of a build that goes on: what is on it after each measuring cell, and what becomes of it at the end."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import REPOSITORY
from notebooks import MEASURING, Machine, visible
from sample_records import record

from fluxbench.core import files
from fluxbench.notebook import pausing
from fluxbench.notebook.document import load
from fluxbench.notebook.listeners import Lines
from fluxbench.notebook.page import draw
from fluxbench.notebook.store import Store
from fluxbench.records import files as files_of_records
from fluxbench.records.schema import Flag
from fluxbench.records.status import FlagKind

HEADER = '# /// script\n# dependencies = ["fluxbench"]\n# ///\n'
# Each measuring cell keeps the page that it finds; a gathering cell lists what it was given, and another shows that.
FIND = """import pathlib, shutil, time
page = pathlib.Path(os.environ["PAGE"])
while not (pattern := os.environ.get("AWAITED")) or pattern not in page.read_text():
    if not pattern or "{cell}" == "first":
        break
    time.sleep(0.05)
if page.exists():
    shutil.copy(page, os.path.join(os.environ["LABORATORY"], "before-{cell}.html"))
print("order", os.environ["FLUXBENCH_ORDER"])
"""
GATHER = """import json, os, pathlib, sys
folders = [pathlib.Path(os.environ[name]) for name in os.environ.get("UVNOTE_INPUTS", "").split(",") if name]
lines = [json.loads(line) for folder in folders for path in folder.glob("*.jsonl") for line in path.open()]
text = " ".join(f"{line['variant']}={line['timings']['sustained']['median_ms']}" for line in lines)
if os.environ.get("REFUSED") == text:
    sys.exit("fluxbench: too little")
pathlib.Path("gathered.txt").write_text(text)
"""
SHOW = """import os, pathlib
print("shown", pathlib.Path(os.environ["UVNOTE_INPUT_GATHERED"], "gathered.txt").read_text())
"""


@pytest.fixture
def growing(machine: Machine) -> Machine:
    """A machine with two measuring cells and two that show, which use fluxbench; its host has two cores."""
    patch = machine.monkeypatch
    patch.setattr(os, "cpu_count", lambda: 2)
    patch.setenv("PYTHONPATH", str(REPOSITORY / "shared" / "src"))
    patch.setenv("PAGE", str(machine.output / "made_up.html"))
    uv = machine.folder / "bin" / "uv"
    uv.write_text(f'#!/bin/sh\necho "$*" >> "$UV_LOG"\nshift\n"{sys.executable}" "$@"\n', encoding="utf-8")
    patch.setenv("UV_CACHE_DIR", str(machine.folder))
    measuring = {
        cell: MEASURING.format(variant=variant).replace("bench.measure()", FIND.format(cell=cell) + "bench.measure()")
        for cell, variant in (("first", "torch_math"), ("second", "torch_native"))
    }
    machine.notebook.write_text(
        f"# Made up\n```python id=shown needs=gathered\n{HEADER}{SHOW}```\n"
        f"```python id=first outputs=first.jsonl\n{measuring['first']}```\n"
        f"```python id=second outputs=second.jsonl\n{measuring['second']}```\n"
        f"```python id=gathered needs=first,second outputs=gathered.txt\n{HEADER}{GATHER}```\n",
        encoding="utf-8",
    )
    return machine


def before(machine: Machine, cell: str) -> str:
    """Return the page that a cell found when it began to measure."""
    return (machine.folder / "laboratory" / f"before-{cell}.html").read_text(encoding="utf-8")


def shown(page: str, cell: str) -> str:
    return visible(re.split(f'id="cell-{cell}">', page)[1])


def status(page: str) -> str:
    """Return what a page says of its build, without the time."""
    found = re.search('role="status">([^<]*)', page)
    return re.sub(r"\d{4}-\S+ \S+ UTC", "NOW", found[1]) if found else ""


UNFINISHED = "This page of NOW is not finished, and reloads itself until it is."
RELOAD = '<meta http-equiv="refresh" content="10">'


@pytest.mark.parametrize("cores", [1, 16])
def test_the_page_is_there_from_the_start_and_shows_each_measurement(growing: Machine, cores: int) -> None:
    growing.monkeypatch.setattr(os, "cpu_count", lambda: cores)
    growing.monkeypatch.setenv("AWAITED", "1 of 2 measured" if cores == 1 else "shown torch_math=1.0")
    stream = io.StringIO()
    assert growing.build(listener=Lines(stream)).problems == ()
    assert stream.getvalue().splitlines()[0] == f"The page grows at {growing.output / 'made_up.html'}"
    first, second = before(growing, "first"), before(growing, "second")
    assert status(first) == f"0 of 2 measured. {UNFINISHED}"
    assert shown(first, "shown") == "This cell has not run yet."
    assert re.fullmatch(rf"1 of 2 measured, about 10 s left. {UNFINISHED}", status(second))
    assert [RELOAD in page for page in (first, second)] == [True, True]
    assert shown(second, "shown") == "shown torch_math=1.0"
    assert shown(second, "second") == "This cell has not run yet."
    assert growing.shown("shown") == "shown torch_math=1.0 torch_native=1.0"
    assert (status(growing.page), RELOAD in growing.page) == ("", False)
    assert [f"order {place}" in growing.shown(cell) for place, cell in enumerate(("first", "second"))] == [True, True]


def test_cells_that_compile_much_begin_early_two_at_once_and_others_beside_them(growing: Machine) -> None:
    growing.monkeypatch.setattr(os, "cpu_count", lambda: 16)
    measures = (
        'print("at", time.monotonic()); time.sleep(0.5); print("until", time.monotonic())\nprint("order", os.environ'
    )
    compiled = 'torch_flash_compile_d", "torch_math_compile_d'
    cells = {"first": "torch_math", "light": "torch_native"} | {f"heavy{place}": compiled for place in range(3)}
    text = "# Made up\n"
    for name, variant in cells.items():
        body = MEASURING.format(variant=variant).split("sys.path")[0]
        text += f"```python id={name} outputs={name}.txt\n{body}import time\n{measures}['FLUXBENCH_ORDER'])\n"
        text += f"open('{name}.txt', 'w').close()\n```\n"
    growing.notebook.write_text(text, encoding="utf-8")
    growing.build()
    seen = {name: dict(re.findall(r"(at|until|order) ([\d.]+)", growing.shown(name))) for name in cells}
    orders = {name: int(its["order"]) for name, its in seen.items()}
    assert orders == {"first": 0, "heavy0": 1, "heavy1": 2, "heavy2": 3, "light": 4}
    begin = {name: float(its["at"]) for name, its in seen.items()}
    first_end = min(float(seen[name]["until"]) for name in ("heavy0", "heavy1"))
    assert begin["heavy2"] >= first_end
    assert begin["light"] < first_end


def test_what_is_shown_meanwhile_is_no_result(growing: Machine) -> None:
    growing.build()
    assert [growing.good(cell).number for cell in ("gathered", "shown")] == [1, 1]
    assert growing.states() == dict.fromkeys(("shown", "first", "second", "gathered"), "fresh")
    assert not (growing.notebook.parent / ".uvnote" / "interim").exists()


def test_what_is_drawn_meanwhile_gives_way_to_what_measures(growing: Machine) -> None:
    growing.rewrite('print("shown"', f'print("nice", os.nice(0) - {os.nice(0)}, "shown"')
    growing.build()
    assert shown(before(growing, "second"), "shown").startswith("nice 10 shown")
    assert growing.shown("shown").startswith("nice 0 shown")


def test_a_cell_that_is_still_to_run_counts_with_its_last_good_result(growing: Machine) -> None:
    growing.build()
    growing.measures("first", record("torch_math", sustained_ms=2.0))
    growing.measures("second", record("torch_native", sustained_ms=2.0))
    growing.build("first", "second")
    page = before(growing, "second")
    assert shown(page, "shown") == "shown torch_math=2.0 torch_native=1.0"
    assert shown(page, "second").startswith("This cell has not run yet. Below is its last good result, of ")
    assert growing.shown("shown") == "shown torch_math=2.0 torch_native=2.0"


def test_a_page_so_far_that_cannot_be_drawn_is_a_line_and_the_build_goes_on(growing: Machine) -> None:
    growing.monkeypatch.setenv("REFUSED", "torch_math=1.0")
    stream = io.StringIO()
    assert growing.build(listener=Lines(stream)).problems == ()
    assert "the unfinished page could not be drawn: cell gathered failed: too little\n" in stream.getvalue()
    assert shown(before(growing, "second"), "shown") == "This cell has not run yet."
    assert growing.shown("shown") == "shown torch_math=1.0 torch_native=1.0"


def test_an_error_that_nobody_expects_in_a_page_so_far_does_not_end_the_build(growing: Machine) -> None:
    whole = draw.draw

    def fails(*given: Any, banner: object = None) -> None:
        if banner:
            raise KeyError("text")
        whole(*given)

    growing.monkeypatch.setattr(draw, "draw", fails)
    stream = io.StringIO()
    assert growing.build(listener=Lines(stream)).problems == ()
    assert "the unfinished page could not be drawn: KeyError('text')\n" in stream.getvalue()


def test_figures_whose_inputs_have_the_same_content_are_not_drawn_again(growing: Machine) -> None:
    growing.build()
    number = growing.good("shown").number
    assert growing.build("first").problems == ()
    assert (growing.good("first").number, growing.good("shown").number) == (2, number)
    assert growing.states() == dict.fromkeys(("shown", "first", "second", "gathered"), "fresh")
    assert "This cell" not in growing.page


def test_an_interrupted_build_leaves_a_page_that_says_so_and_stays(growing: Machine) -> None:
    class Interrupting(Lines):
        def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
            if cell_id == "second":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        growing.build(listener=Interrupting(io.StringIO()))
    assert (status(growing.page), RELOAD in growing.page) == ("The build ended with 1 of 2 measured.", False)
    assert growing.shown("shown") == "shown torch_math=1.0"
    assert growing.build().problems == ()
    assert status(growing.page) == ""


def test_a_reader_of_a_page_that_is_written_finds_all_of_it_at_any_moment(growing: Machine) -> None:
    growing.build()
    ends = threading.Event()
    faults: list[str] = []

    def read() -> None:
        while not ends.is_set():
            page = growing.page
            faults.extend(["half a page"] * (not page.endswith("</html>")))
            for name in re.findall('href="(made_up/[^"]*)"', page):
                faults.extend([name] * (not (growing.output / name).is_file()))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        growing.build()
    ends.set()
    reader.join()
    assert faults == []


def test_a_folder_is_replaced_where_the_file_system_cannot_exchange_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    for name in ("new", "final"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    files.replace_folder(tmp_path / "new", tmp_path / "final", tmp_path / "old")
    assert [path.name for path in (tmp_path / "final").iterdir()] == ["new"]
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["final"]


EARLY = """import time
from fluxbench.core.device_lock import DeviceLock, folder
from fluxbench.core.progress import say
lock = DeviceLock(folder(pathlib.Path(os.environ["FLUXBENCH_CACHE"])), 0)
found = page.read_text()
with lock.held(short=False):
    say(early="soon")
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
OF_EARLY = "Of first it shows one process of the first variants, not checked on all inputs yet."


@pytest.fixture
def early(growing: Machine) -> Machine:
    """The same machine; its first cell has early records of 3 ms before it measures."""
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
    assert status(page) == f"0 of 2 measured. {OF_EARLY} {UNFINISHED}"
    assert "undisturbed True" in early.shown("first")
    assert shown(before(early, "second"), "shown") == "shown torch_math=1.0"
    assert OF_EARLY not in before(early, "second")
    assert early.shown("shown") == "shown torch_math=1.0 torch_native=1.0"
    assert [early.good(cell).number for cell in ("first", "gathered", "shown")] == [1, 1, 1]
    assert not (early.notebook.parent / ".uvnote" / "interim").exists()


def test_where_the_page_has_times_or_the_records_do_not_come_nothing_is_drawn_early(early: Machine) -> None:
    early.monkeypatch.setattr(pausing, "EARLY_S", 0.1)
    early.monkeypatch.setenv("EARLY", "not ready")
    assert early.build().problems == ()
    assert shown(before(early, "rest"), "shown") == "This cell has not run yet."
    early.monkeypatch.delenv("EARLY")
    assert early.build("first").problems == ()
    assert shown(before(early, "rest"), "shown").endswith("shown torch_math=1.0 torch_native=1.0")


def test_early_records_are_no_result_and_are_never_published(early: Machine) -> None:
    early.monkeypatch.setenv("EARLY", "is left")
    assert early.command("publish") == 1
    assert "torch_math=3.0" not in early.page
    assert not (early.folder / "reports").exists()
    problem = "its output 'first.jsonl' must be of a measurement that ended, got early records"
    assert early.build().problems[0] == f"cell first failed: {problem}"
    assert Store(load(early.notebook)).last_good("first") is None


def test_a_build_that_is_interrupted_early_publishes_nothing(early: Machine) -> None:
    class Interrupting(Lines):
        def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        early.build(listener=Interrupting(io.StringIO()))
    assert status(early.page) == "The build ended with 0 of 2 measured."
    assert early.states()["gathered"] != "fresh"
    assert early.command("publish") == 0
    published = early.folder / "reports" / "made-up"
    assert "torch_math=3.0" not in (published / "made_up.html").read_text(encoding="utf-8")
    kept = (published / "made_up").rglob("*.jsonl")
    assert all(FlagKind.EARLY.value not in path.read_text(encoding="utf-8") for path in kept)
