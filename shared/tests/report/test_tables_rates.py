"""The device's own rates stand against its data sheet, or it is said why there are none."""

from __future__ import annotations

import dataclasses

from sample_records import H200, results
from tabled import rows_of, table_of

from fluxbench.report.blocks import Paragraph
from fluxbench.report.tables.rates import blocks

RATES = {"matmul_tflops": 672.36, "matmul_size": 8192, "copy_gb_s": 4301.07, "event_us": 2.912, "processes": 3}


def test_rates_are_a_share_of_the_data_sheets() -> None:
    table = table_of(blocks(results(rates=RATES)))
    assert table.caption == "Medians over 3 fresh processes, rates under load."
    assert rows_of(table) == [
        ("bfloat16 matrix product, n = 8192", "672.4", "TFLOP/s", "68% of the data sheet's 989.5"),
        ("copy within the device's memory", "4,301.1", "GB/s", "90% of the data sheet's 4,800"),
        ("between two events, nothing in it", "2.91", "µs", ""),
    ]


def test_an_unknown_peak_and_number_of_processes_are_said() -> None:
    unknown = results(rates=RATES | {"processes": None}, device=dataclasses.replace(H200, name="made up"))
    table = table_of(blocks(unknown))
    assert [row[3] for row in rows_of(table)] == ["peak unknown", "peak unknown", ""]
    assert table.caption.startswith("Medians over fresh processes")


def test_why_there_are_none_is_said() -> None:
    def said(**rates: object) -> list[object]:
        return list(blocks(results(rates=rates)))

    sentence = "The device's own rates could not be measured: {}."
    assert said(reason="no torch") == [Paragraph(sentence.format("no torch"), kind="note")]
    assert said() == [Paragraph(sentence.format("no cell measured them"), kind="note")]
