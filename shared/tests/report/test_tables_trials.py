"""The certificate's tables of trials: agreement, detection, order and clocks."""

from __future__ import annotations

import math
import re
from statistics import median

import msgspec
import pytest
from certificates import BASES, UNSLOWED, WORKLOADS, answers, made_up, shown, with_fields
from tabled import bullets, rows_of, table_of, words

from fluxbench.analysis.certificate import judging, position
from fluxbench.analysis.certificate.by_processes import with_processes
from fluxbench.records.schema import Flag
from fluxbench.records.status import FlagKind
from fluxbench.stats.significance import Verdict

OF_TRIALS = ("agreement", "detection", "processes", "order", "clocks")
SMALL = made_up(runs=4)


def test_agreement_counts_the_verdicts_of_each_kernel_and_workload() -> None:
    comparisons = judging.a_a(SMALL)
    table = table_of(shown("agreement", SMALL))
    rows = rows_of(table)
    assert [row[:2] for row in rows] == [*((base, workload) for base in BASES for workload in WORKLOADS), ("all", "")]
    every = [row for one in comparisons for row in one.rows]
    own = [row for row in every if row.workload == "flux1-1024px-t256" and row.variant.startswith("triton_flash")]
    for cell_row, chosen in ((rows[4], own), (rows[-1], every)):
        tally = judging.tally(chosen)
        assert cell_row[2:] == (
            f"{tally.count}",
            f"{tally.significant}",
            f"{tally.verdicts[Verdict.UNDECIDED]}",
            f"{100 * tally.covered / tally.count:.1f}%",
            f"±{100 * (tally.half_width or 0):.2f}%",
        )
    significant = sum(bool(one.device and one.device.significant) for one in comparisons)
    assert table.notes[0] == "Burst times, normalized to control: 6 pairs of 4 runs (12 fresh processes)."
    assert table.notes[1].startswith("In each pair are 4 variants ")
    assert f"The control kernel's own change was significant in {significant} of the pairs." in table.notes


def test_false_positives_are_those_of_either_direction() -> None:
    noisy = made_up(runs=4, of_run=0.01)
    tally = judging.tally(row for one in judging.a_a(noisy) for row in one.rows)
    assert min(tally.verdicts[Verdict.FASTER], tally.verdicts[Verdict.SLOWER]) > 0
    found = shown("agreement", noisy)
    assert rows_of(table_of(found))[-1][3] == f"{tally.significant}"
    items = [text for text, _ in bullets(found, "The false positives, by pair of runs:")]
    counts = [
        int(count) for text in items for count in re.findall(r"(\d) of 3 workloads, \d\.\d{4} .*times as long", text)
    ]
    assert (len(counts), sum(counts)) == (len(items), tally.significant)
    assert not any("CUDA graphs" in text for text in items)
    pairs = {pair for text in items for pair in re.findall(r"runs \d and \d", text)}
    line = answers(shown("certificate", noisy))["A/A: false positives"]["of"]
    assert line == f"{tally.count} comparisons in 6 pairs of runs, {len(pairs)} of them with a false positive"


def test_a_false_positive_says_that_one_run_timed_cuda_graphs() -> None:
    noisy = made_up(runs=3, sustained=True, of_run=0.02)
    graphs = Flag(kind=FlagKind.REPLAYED, regime="sustained", value=0.4)
    first = noisy.runs[0]
    records = tuple(msgspec.structs.replace(one, flags=(graphs,)) for one in first.records)
    mixed = msgspec.structs.replace(noisy, runs=(msgspec.structs.replace(first, records=records), *noisy.runs[1:]))
    text = words(shown("agreement", mixed))
    assert "; run 1 timed CUDA graphs, the other run launched calls" in text
    assert "run 2 timed CUDA graphs" not in text


def test_detection_shows_each_slowdown_and_its_truth() -> None:
    table = table_of(shown("detection", SMALL))
    rows = rows_of(table)
    assert [row[:2] for row in rows] == [
        (f"{percent}%", base) for percent in ("0.5", "1", "2", "5") for base in (*BASES, "all")
    ]
    found = judging.detected(SMALL, 0.5)
    assert found.rate is not None
    of_first = found.by_base["torch_flash"].count
    error = found.truth_error["torch_flash"]
    assert rows[0][2:5] == (f"{found.truth['torch_flash']:.4f}", f"{100 * error:.2f}%", f"{of_first}")
    of_processes = math.sqrt(math.pi / 2) * math.sqrt(2) * 0.0005 / math.sqrt(12)  # as `made_up` draws them
    assert error == pytest.approx(of_processes, rel=0.5)
    faster = found.total.verdicts[Verdict.FASTER]
    assert rows[2][2:7] == ("", "", f"{found.total.count}", f"{100 * found.rate:.1f}%", f"{faster}")
    assert f"A table has {len(UNSLOWED) * len(WORKLOADS)} rows" in " ".join(table.notes)
    twins = median(judging.injected(SMALL, "torch_flash", 0.0, twin=True))
    assert f"The same of the twin, which is not slowed: torch_flash {twins:.4f}, triton_flash " in " ".join(table.notes)


def test_fewer_processes_a_side_find_less() -> None:
    whole = made_up(runs=4, sustained=True, of_process=0.003, processes=8)
    rows = rows_of(table_of(shown("processes", whole)))
    assert [row[:2] for row in rows] == [(regime, f"{n}") for regime in ("burst", "sustained") for n in (3, 5, 8)]
    for (regime, count, false, found, held, half), trials in zip(
        rows, [with_processes(whole, n) for n in (3, 5, 8)] * 2, strict=True
    ):
        same = judging.tally((row for one in judging.a_a(trials) for row in one.rows), regime=regime)
        slowdown = judging.detected(trials, 1.0, regime)
        assert slowdown.rate is not None
        assert {len(record.timings[regime].samples_ms) for record in trials.records} == {int(count)}
        whole_ = slowdown.total
        assert (false, half) == (f"{same.significant} of {same.count}", f"±{100 * (whole_.half_width or 0):.2f}%")
        assert held == f"{100 * (whole_.coverage or 0):.1f}%"
        assert found == f"{100 * slowdown.rate:.1f}% of {slowdown.total.count}"
    rates, halves = ([float(row[i].strip("±").partition("%")[0]) for row in rows[:3]] for i in (3, 5))
    assert rates == sorted(rates)
    assert rates[0] < rates[2]
    assert halves == sorted(halves, reverse=True)


def test_with_three_processes_there_is_one_row_a_regime() -> None:
    assert [row[:2] for row in rows_of(table_of(shown("processes", SMALL)))] == [("burst", "3")]


def test_order_shows_both_effects_of_position() -> None:
    table = table_of(shown("order", SMALL))
    for row, effect in zip(rows_of(table), position.effects(SMALL), strict=True):
        thirds = (f"{100 * third:+.3f}%" for third in effect.thirds if third is not None)
        assert row == (effect.kind, effect.base, f"{effect.count:,}", *thirds, f"{100 * effect.noise:.3f}%")


def test_clocks_show_how_far_the_cross_check_differs() -> None:
    table = table_of(shown("clocks", SMALL))
    assert rows_of(table) == [(base, f"{4 * 9 * 2 * 3 // 3}", "0.20%", "0.20%") for base in BASES]
    [said] = shown("clocks", with_fields(SMALL, cupti=None))
    assert said.text() == "No record has a CUPTI cross-check: the profiler recorded no kernels."


@pytest.mark.parametrize("name", OF_TRIALS)
def test_without_trials_a_table_says_so(name: str) -> None:
    assert words(shown(name, None)) == "There are no trials: the cell that measures them gave nothing."
