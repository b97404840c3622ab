"""Tables that share no run: how many there are, over sessions, and which earlier trials may be added."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from certificates import FINGERPRINT, as_json, made_up

from fluxbench.analysis.certificate.by_processes import with_processes
from fluxbench.analysis.certificate.certificate import certify
from fluxbench.analysis.certificate.summary_json import to_json as summary_of
from fluxbench.analysis.certificate.tables import earlier, independent
from fluxbench.analysis.certificate.trials import Trials, read, to_json
from fluxbench.records.schema import Record


def moved(of: Trials, day: int, **fingerprint: str) -> Trials:
    """Return trials as if they had been measured on another day, with another fingerprint."""
    whole = {**FINGERPRINT, **fingerprint}

    def record(one: Record) -> Record:
        when = one.measured_at.replace("2026-01-31", f"2026-01-{day:02}")
        return msgspec.structs.replace(one, measured_at=when, fingerprint=whole)

    runs = tuple(msgspec.structs.replace(run, records=tuple(map(record, run.records))) for run in of.runs)
    return msgspec.structs.replace(of, runs=runs, fingerprint=whole)


def test_six_runs_are_three_tables_and_their_rate_is_hardly_known() -> None:
    found = independent([made_up(runs=6)])
    assert (found.within.of, found.within.called, found.between.of) == (3, 0, 0)
    assert found.within.upper_bound == pytest.approx(0.632, abs=1e-3)
    assert [(one.card, one.runs) for one in found.sessions] == [("a1", 6)]
    assert independent([]).within.upper_bound == 1.0


def test_sessions_add_up_and_pairs_between_them_are_counted_apart() -> None:
    good = made_up(runs=5)
    found = independent([moved(made_up(runs=5, of_process=0.0004), 29, card="b2"), good])
    assert (found.within.of, found.between.of) == (2 * 2, 5)
    assert [(one.card, one.measured_at[:10]) for one in found.sessions] == [("b2", "2026-01-29"), ("a1", "2026-01-31")]


def test_what_differs_between_two_sessions_is_in_all_tables_of_them_so_that_they_have_no_limit() -> None:
    good = made_up(runs=5)
    found = independent([moved(made_up(runs=5, by_trial=lambda trial: 0.02), 29), good])
    assert (found.within.called, found.between.called) == (0, found.between.of)
    summary = summary_of(certify(good, None, {}))["tables"]
    assert summary["between_sessions"] == {"of": 0, "with_difference": 0, "of_two_cards": 0}
    assert summary["within_sessions"]["upper_bound"] == independent([good]).within.upper_bound


def test_a_run_that_went_badly_counts() -> None:
    bad = made_up(runs=6, of_run=0.004)
    found = independent([bad])
    assert found.within.called > 0
    assert found.within.of == 3


def test_earlier_trials_of_the_same_versions_are_added(tmp_path: Path) -> None:
    present = made_up(runs=2)
    published = {
        "history/2026-01-28T120000Z": moved(present, 28, card="b2"),
        "history/2026-01-29T120000Z": moved(present, 29, driver="570"),
        "history/2026-01-30T120000Z": present,  # itself
        "history/2026-01-30T130000Z": with_processes(moved(present, 27), 2),
        "records": moved(present, 30),
    }
    for folder, one in published.items():
        path = tmp_path / folder / "trials.json.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(json.dumps(as_json(one)).encode()))
    (tmp_path / "history" / "2026-01-31T120000Z").mkdir()
    (tmp_path / "history" / "2026-01-31T120000Z" / "trials.json.gz").write_bytes(b"damaged")
    found = earlier(tmp_path, present)
    assert [one.runs[0].records[0].measured_at[:10] for one in found] == ["2026-01-28", "2026-01-30"]
    again = [read(msgspec.json.decode(msgspec.json.encode(to_json(one)))) for one in found]
    assert independent(again) == independent(found)
