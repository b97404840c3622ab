"""notebooks/certificate.md: its cells hand out what is published, and one of them gathers what all others show."""

from __future__ import annotations

import re
from typing import Any

import pytest
from certificates import as_json, made_up
from fakes import REPOSITORY
from sample_records import results
from uvnote.parser import CodeCell

from fluxbench.environments import cell
from fluxbench.notebook.document import load
from fluxbench.report import tables
from fluxbench.report.results import OUTPUTS

NOTEBOOK = load(REPOSITORY / "notebooks" / "certificate.md")
SHOWING = {code.id: name[1] for code in NOTEBOOK.cells if (name := re.search(r'show\.table\("(\w+)"\)', code.code))}


@pytest.mark.parametrize("cell_id", SHOWING)
def test_a_showing_cell_hands_out_the_files_of_its_table(cell_id: str) -> None:
    code, table = NOTEBOOK.find(cell_id), tables.find(SHOWING[cell_id])
    given: dict[str, Any] = {"trials": as_json(made_up(runs=1)), "rates": {"event_us": 1.0}}
    written = table.files(results(**given)) if table.files else {}
    assert list(code.outputs) == [*written, *([f"{SHOWING[cell_id]}.csv"] if table.rows else [])]
    assert code.needs == ["results"]


def test_every_table_of_the_certificate_is_shown_once() -> None:
    assert sorted(SHOWING.values()) == ["agreement", "certificate", "clocks", "detection", "order", "reruns"]


def test_the_results_cell_needs_all_that_measures_and_reads_the_flux_notebook() -> None:
    [gathering] = (code for code in NOTEBOOK.cells if "show.results(" in code.code)
    measuring: list[CodeCell] = [code for code in NOTEBOOK.cells if NOTEBOOK.is_measuring(code)]
    assert {code.id for code in measuring} < set(gathering.needs)
    assert tuple(gathering.outputs) == OUTPUTS
    assert cell.reads(gathering.code) == ("flux",)
    assert {tuple(code.outputs) for code in measuring} == {("rates.json",), ("trials.json",)}
