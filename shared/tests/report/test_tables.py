"""What holds of every table: it is drawn of any records, and says that there are none."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from sample_records import CPU, LAUNCH_BOUND, errors, record, results
from tabled import tables_of

from fluxbench.operations import sets
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.records.status import Status
from fluxbench.report import tables
from fluxbench.report.results import Results

LENGTHS = sets.sets()["flux1-1024px"]
BACKWARD = sets.sets()["flux1-1024px-backward"]
DECODE = sets.sets()["llama3-8b-decode"]
OF_TRIALS = (
    "agreement",
    "certificate",
    "clocks",
    "detection",
    "processes",
    "order",
    "reruns",
    "simulation",
)  # see test_tables_certificate.py
OF_RECORDS = [name for name in tables.names() if name not in ("rates", "history", *OF_TRIALS)]


def several_operations() -> Results:
    workloads = (*LENGTHS[::5], *BACKWARD[::5], *DECODE)
    found = [record(variant, workload) for variant in ("torch_flash", "flex") for workload in workloads]
    return results(*found, record("torch_cudnn", workload=BACKWARD[0], status=Status.INCORRECT))


CASES = {
    "several operations": several_operations(),
    "one": results(record()),
    "on a CPU": results(record(telemetry={}, energy_mj=None, launch_ms=None, cupti=None, kernels=()), device=CPU),
    "nothing passed": results(record(status=Status.CRASHED), record("flex", status=Status.UNSUPPORTED)),
    "burst alone": results(record(regimes=[BURST]), record("flex", regimes=[BURST])),
    "before bursts": results(record(regimes=[SUSTAINED]), record("flex", regimes=[SUSTAINED])),
    "not finite": results(record(errors={"out": errors(None)}, rel_l2=None)),
    "launch-bound": results(record(flags=[LAUNCH_BOUND])),
    "none": results(),
}


@pytest.mark.parametrize("name", tables.names())
@pytest.mark.parametrize("case", CASES)
def test_every_table_is_drawn_of_any_records(name: str, case: str) -> None:
    table = tables.find(name)
    blocks = table.blocks(CASES[case])
    assert blocks
    for block in blocks:
        ET.fromstring(f"<div>{block.html()}</div>")
        assert "None" not in block.text()
        assert not re.search(r"\bnan\b", block.text())
    for drawn in tables_of(blocks):
        assert all(len(row.cells) == len(drawn.columns) for row in drawn.rows if hasattr(row, "cells"))
    if table.rows:
        header, *rows = table.rows(CASES[case])
        assert len(set(header)) == len(header)
        assert all(len(row) == len(header) for row in rows)


@pytest.mark.parametrize("name", OF_RECORDS)
def test_no_records_are_said(name: str) -> None:
    [block] = tables.find(name).blocks(results())
    assert block.text().startswith("There are no records")
