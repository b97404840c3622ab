"""Where a build's time went, from planted phases."""

from __future__ import annotations

import gzip
import json

import pytest
from notebooks import Capture, Machine

from fluxbench.core.errors import SetupError
from fluxbench.notebook import times
from fluxbench.notebook.document import load
from fluxbench.notebook.times import KINDS, Build, Span, split


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([], {"other": 10.0}),
        ([("measuring", 2.0, 5.0)], {"measuring": 3.0, "other": 7.0}),
        ([("measuring", -5.0, 5.0), ("compiling", 5.0, 99.0)], {"measuring": 5.0, "compiling": 5.0}),
        ([("measuring", 1.0, 3.0), ("measuring", 2.0, 4.0)], {"measuring": 3.0, "other": 7.0}),
        # Each moment counts once, as the first of these.
        ([(kind, float(place), 10.0) for place, kind in enumerate(reversed(KINDS))], dict.fromkeys(KINDS, 1.0)),
        ([("waiting", 0.0, 10.0), ("drawing", 4.0, 6.0)], {"waiting": 8.0, "drawing": 2.0}),
        ([("an unknown one", 0.0, 10.0)], {"other": 10.0}),
    ],
)
def test_a_moment_counts_once(phases: list[tuple[str, float, float]], expected: dict[str, float]) -> None:
    whole = split(phases, 0.0, 10.0)
    if len(expected) == len(KINDS):
        expected = {**expected, "measuring": 4.0}  # the last of seven begins after 6 s
    assert whole == {**dict.fromkeys(KINDS, 0.0), **expected}


def plant(machine: Machine, cell: str, **samples: object) -> None:
    """Let a cell's last result hold these samples."""
    path = machine.good(cell).folder / f"{cell}.samples.json.gz"
    path.write_bytes(gzip.compress(json.dumps(samples).encode()))


def test_the_last_build_is_summed_up_by_cell_and_as_a_whole(built: Machine) -> None:
    document = load(built.notebook)
    spans = (
        Span(cell="first", measures=True, begin_s=100.0, end_s=160.0),
        Span(cell="second", measures=True, begin_s=100.0, end_s=180.0),
        Span(cell="figure", measures=False, begin_s=170.0, end_s=190.0),
    )
    times.write(document, Build(begin_s=100.0, end_s=200.0, spans=spans))
    first = [("environment", 100, 105), ("importing", 105, 110), ("preparing", 110, 115), ("measuring", 120, 160)]
    plant(built, "first", phases=first, busy_s=30.0, more=1)
    plant(built, "second", phases=[["waiting", 110, 160], ["measuring", 160, 180]], busy_s=15.0)
    shares, page = times.read(document)
    assert [(share.name, share.wall_s, share.busy_s) for share in shares] == [
        ("first", 60.0, 30.0),
        ("second", 80.0, 15.0),
        ("figure", 20.0, None),
    ]
    nothing = dict.fromkeys(KINDS, 0.0)
    assert shares[0].by_kind_s == {**nothing, "importing": 10.0, "checking": 5.0, "measuring": 40.0, "other": 5.0}
    assert shares[1].by_kind_s == {**nothing, "waiting": 50.0, "measuring": 20.0, "other": 10.0}
    assert (page.wall_s, page.busy_s) == (100.0, 45.0)
    whole = {"importing": 10.0, "checking": 5.0, "waiting": 5.0, "measuring": 60.0, "drawing": 10.0, "other": 10.0}
    assert page.by_kind_s == {**nothing, **whole}
    head, *_, whole_page, _, columns, last = times.text(shares, page).splitlines()
    assert dict(zip(head.split(), whole_page.removeprefix("the ").split(), strict=True))["waiting"] == "5.0"
    assert columns.startswith("The page counts each moment once, in the leftmost column of its cells. ")
    assert last == "The device was being measured for 60% of the wall time, and busy for 45%."


def test_a_cell_that_measures_the_devices_rates_counts_too(built: Machine) -> None:
    document = load(built.notebook)
    spans = (Span(cell="first", measures=True, begin_s=100.0, end_s=160.0),)
    times.write(document, Build(begin_s=100.0, end_s=160.0, spans=spans))
    rates = built.good("first").folder / "rates.json"
    rates.write_text('{"copy_gb_s": 1.5, "phases": [["measuring", 110, 130]]}', encoding="utf-8")
    [share], page = times.read(document)
    assert (share.by_kind_s["measuring"], page.by_kind_s["measuring"], page.busy_s) == (20.0, 20.0, None)


def test_phases_of_another_run_and_damaged_ones_do_not_count(built: Machine) -> None:
    document = load(built.notebook)
    spans = tuple(Span(cell=cell, measures=True, begin_s=100.0, end_s=160.0) for cell in ("first", "second"))
    times.write(document, Build(begin_s=100.0, end_s=160.0, spans=spans))
    plant(built, "first", phases=[["measuring", 20, 50]], busy_s=30.0)
    (built.good("second").folder / "second.samples.json.gz").write_bytes(b"no gzip")
    _, page = times.read(document)
    assert (page.by_kind_s["other"], page.busy_s) == (60.0, None)


def test_a_build_that_runs_cells_keeps_when_they_ran_and_one_that_runs_none_keeps_the_last(built: Machine) -> None:
    document = load(built.notebook)
    built.build("first")
    shares, page = times.read(document)
    assert [share.name for share in shares] == ["first"]  # the figure has the same content
    assert 0 < shares[0].wall_s <= page.wall_s
    built.build()
    assert times.read(document) == (shares, page)


def test_without_a_build_there_are_no_times(machine: Machine, capsys: Capture) -> None:
    with pytest.raises(
        SetupError, match=r"made_up.times.json must hold a build's times, .*; run `fluxbench build` first"
    ):
        times.read(load(machine.notebook))
