"""The page of a build that goes on: what is on it after each measuring cell, and what becomes of it at the end."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grown import HEADER, RELOAD, UNFINISHED, before, shown, status
from notebooks import MEASURING, Machine
from sample_records import record

from fluxbench.core import files
from fluxbench.notebook.listeners import Lines
from fluxbench.notebook.page import draw
from fluxbench.studies import flux


@pytest.mark.parametrize("cores", [1, 16])
def test_the_page_is_there_from_the_start_and_shows_each_measurement(growing: Machine, cores: int) -> None:
    growing.monkeypatch.setattr("fluxbench.core.cores.available", lambda: cores)
    growing.monkeypatch.setenv("AWAITED", "1 of 2 cells measured" if cores == 1 else "shown torch_math=1.0")
    stream = io.StringIO()
    assert growing.build(listener=Lines(stream)).problems == ()
    assert stream.getvalue().splitlines()[0] == f"The page grows at {growing.output / 'made_up.html'}"
    first, second = before(growing, "first"), before(growing, "second")
    assert status(first) == f"0 of 2 cells measured. {UNFINISHED}"
    assert shown(first, "shown") == "This cell has not run yet."
    assert re.fullmatch(rf"1 of 2 cells measured, about 10 s left. {UNFINISHED}", status(second))
    assert [RELOAD in page for page in (first, second)] == [True, True]
    assert shown(second, "shown") == "shown torch_math=1.0"
    assert shown(second, "second") == "This cell has not run yet."
    assert growing.shown("shown") == "shown torch_math=1.0 torch_native=1.0"
    assert (status(growing.page), RELOAD in growing.page) == ("", False)
    assert [f"order {place}" in growing.shown(cell) for place, cell in enumerate(("first", "second"))] == [True, True]


def test_what_shows_the_machine_runs_before_what_measures(growing: Machine) -> None:
    growing.monkeypatch.setattr("fluxbench.core.cores.available", lambda: 1)  # so nothing runs beside a measurement
    marker = 'os.path.join(os.environ["LABORATORY"], "facts")'
    text = growing.notebook.read_text(encoding="utf-8")
    facts = f"```python id=facts\n{HEADER}import os\nopen({marker}, 'w').close()\n```\n"
    waits = f'print("facts", os.path.exists({marker}))\nprint("order", os.environ'
    growing.notebook.write_text(text.replace('print("order", os.environ', waits) + facts, encoding="utf-8")
    assert growing.build().problems == ()
    assert "facts True" in growing.shown("first")


TAKES_TURN = """import time
print("at", time.monotonic(), "order", os.environ["FLUXBENCH_ORDER"])
open(os.path.join(os.environ["LABORATORY"], "NAME begun"), "w").close()
late = time.monotonic() + 60
while not os.path.exists(os.path.join(os.environ["LABORATORY"], "AWAITED begun")) and time.monotonic() < late:
    time.sleep(0.01)
time.sleep(0.5)
print("until", time.monotonic())
open("NAME.txt", "w").close()
"""


def in_turn(
    growing: Machine, cells: dict[str, str], awaited: Callable[[str], str] = lambda name: name
) -> dict[str, dict[str, str]]:
    """Return when each cell began and ended, and its place, on a host of 16 cores; `cells` names their variants.

    A cell ends half a second after it and the one that it has `awaited` have begun, or a minute after it alone has.
    """
    growing.monkeypatch.setattr("fluxbench.core.cores.available", lambda: 16)
    text = "# Made up\n"
    for name, variant in cells.items():
        body = MEASURING.format(variant=variant).split("sys.path")[0]
        takes_turn = TAKES_TURN.replace("NAME", name).replace("AWAITED", awaited(name))
        text += f"```python id={name} outputs={name}.txt\n{body}{takes_turn}```\n"
    growing.notebook.write_text(text, encoding="utf-8")
    growing.build()
    return {name: dict(re.findall(r"(at|until|order) ([\d.]+)", growing.shown(name))) for name in cells}


def test_cells_that_compile_much_begin_early_four_of_six_at_once_and_others_beside_them(growing: Machine) -> None:
    compiled = 'torch_flash_compile_d", "torch_math_compile_d'
    cells = {"first": "torch_math", "light": "torch_native"} | {f"heavy{place}": compiled for place in range(5)}
    seen = in_turn(growing, cells, awaited=lambda name: "light" if "heavy" in name else name)
    orders = {name: int(its["order"]) for name, its in seen.items()}
    assert orders == {"first": 0} | {f"heavy{place}": 1 + place for place in range(5)} | {"light": 6}
    begin = {name: float(its["at"]) for name, its in seen.items()}
    first_end = min(float(seen[name]["until"]) for name in ("heavy0", "heavy1", "heavy2", "heavy3"))
    assert begin["heavy3"] < first_end <= begin["heavy4"]
    assert begin["light"] < first_end


def test_of_the_rest_the_cells_of_the_most_variants_begin_first(growing: Machine) -> None:
    cells = {"first": "torch_math", "one": "torch_native", "two": 'torch_math", "torch_flash', "another": "torch_flash"}
    orders = {name: int(its["order"]) for name, its in in_turn(growing, cells).items()}
    assert orders == {"first": 0, "two": 1, "one": 2, "another": 3}


def test_cells_of_a_study_in_order_begin_as_the_notebook_has_them(growing: Machine) -> None:
    growing.monkeypatch.setattr(flux, "STUDY", dataclasses.replace(flux.STUDY, in_order=True))
    cells = {"first": "torch_math", "light": "torch_native", "heavy": 'torch_flash_compile_d", "torch_math_compile_d'}
    orders = {name: int(its["order"]) for name, its in in_turn(growing, cells).items()}
    assert orders == {"first": 0, "light": 1, "heavy": 2}


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


def test_a_cell_that_is_still_to_run_at_other_workloads_does_not_count(growing: Machine) -> None:
    growing.build()
    growing.monkeypatch.setenv("FLUXBENCH_WORKLOADS", "flux1-512px-t128")
    growing.settings = dataclasses.replace(growing.settings, workloads=("flux1-512px-t128",))
    growing.build()
    page = before(growing, "second")
    assert shown(page, "shown") == "shown torch_math=1.0"
    assert "It is stale: workloads" in shown(page, "second")
    assert growing.shown("shown") == "shown torch_math=1.0 torch_native=1.0"


@pytest.mark.parametrize(
    ("version", "unlike", "counts"),
    [(11, False, False), (12, True, False), (13, True, True)],
)
def test_a_cell_that_is_still_to_run_and_was_measured_in_another_way_does_not_count(
    growing: Machine, version: int, unlike: bool, counts: bool
) -> None:
    """Of a study whose lengths are unlike method 13 takes other times; of others it may take those of 12."""
    growing.monkeypatch.setattr(flux, "STUDY", dataclasses.replace(flux.STUDY, unlike_lengths=unlike))
    growing.measures("second", record("torch_native", sustained_ms=1.0, cell="second", method_version=version))
    growing.build()
    growing.measures("first", record("torch_math", sustained_ms=2.0))
    growing.measures("second", record("torch_native", sustained_ms=2.0))
    growing.build("first", "second")
    assert shown(before(growing, "second"), "shown") == "shown torch_math=2.0" + " torch_native=1.0" * counts


def test_a_cell_at_other_workloads_does_not_count_beside_one_that_was_run_again(growing: Machine) -> None:
    growing.build()
    growing.monkeypatch.setenv("FLUXBENCH_WORKLOADS", "flux1-512px-t128")
    growing.settings = dataclasses.replace(growing.settings, workloads=("flux1-512px-t128",))
    growing.build("first")
    assert growing.shown("shown").endswith(" shown torch_math=1.0")
    assert growing.shown("second").startswith("Stale on this machine: workloads ")
    assert growing.build().problems == ()
    assert growing.shown("shown") == "shown torch_math=1.0 torch_native=1.0"


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
    assert (status(growing.page), RELOAD in growing.page) == (
        "The build was stopped with 1 of 2 cells measured. Another one goes on from there.",
        False,
    )
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
