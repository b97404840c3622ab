"""The file in which what a stopped build had measured is kept: its fields, its parts, its age and its end."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from fake_workers import HEADER, in_cell, interpreter, log_of, when
from fakes import REPOSITORY
from sample_events import READY, checked, collected, failed, parsed, readings, timed

from fluxbench import bench
from fluxbench.bench import samples, series, unfinished
from fluxbench.bench.collected import Collected
from fluxbench.bench.side_by_side import measure_all
from fluxbench.bench.unfinished import Unfinished
from fluxbench.core import progress
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.environments import prepare
from fluxbench.records import files
from fluxbench.records.status import Status

OWN = ("resumed_at", "keep", "heard", "phases", "_phase", "others_versions")  # of one build


def test_all_that_was_collected_is_kept(tmp_path: Path) -> None:
    """Of each field something."""
    events: list[Any] = [
        READY, READY, {"event": "control_kernel", "description": "made up"},
        {"event": "kept", "name": "a case", "sha256": "0" * 64},
        {"event": "yardstick", "workload": "tiny", "precision": "exact", "worst": {"out": [1e-3, 2e-3, 3e-3]}},
        {"event": "rows", "calls": {"flex": {"tiny": 12}}}, checked("flex"),
        {"event": "lacked", "variant": "flex", "workload": "tiny", "reason": "of memory"}, failed("torch_math"),
        timed("flex", control_ms=(0.5,) * 4, late={"tiny": [1]}),
        {"event": "probed", "variant": "flex", "found": {}},
    ]  # fmt: skip
    first = collected(events, readings(0.0, 0.5, reasons=lambda _: ("sw_power_cap",)))
    first.tried, first.others = {"flex"}, ["another program"]
    unfinished = Unfinished(tmp_path / "one")
    assert unfinished.resume(Collected()) == 0
    first.keep = Collected().keep
    unfinished.resume(first)
    first.keep()
    second = Collected(others=["a third one"])
    assert Unfinished(tmp_path / "one").resume(second) == 1
    for name in (field.name for field in dataclasses.fields(Collected)):
        if name not in (*OWN, "others", "trials"):
            assert getattr(second, name) == getattr(first, name), name
            assert getattr(first, name) or name in ("rates", "cut"), name
    assert [(trial.timed, trial.worker) for trial in second.trials] == [(first.trials[0].timed, 2)]
    assert second.others == ["another program", "a third one"]
    # What the device was doing at a trial is known, and how long this build measured.
    assert (
        series.burst(second.trials[0], "tiny", second.log).to_json()
        == series.burst(first.trials[0], "tiny", first.log).to_json()
    )
    assert json.loads(samples.to_json(second))["measuring_s"] == 0.0


def test_what_is_too_old_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "cache/unfinished"
    for name, hours in (("flux-sdpa", 25), ("flux-flex", 1)):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.json.gz").touch()
        os.utime(folder / name / "1.json.gz", (time.time() - hours * 3600,) * 2)
    unfinished.clear_old(Settings(root=REPOSITORY, cache=tmp_path / "cache"))
    assert [path.parent.name for path in folder.glob("*/*")] == ["flux-flex"]


def test_batches_that_are_measured_at_the_same_time_go_on_each_by_itself(tmp_path: Path) -> None:
    def measure(batches: list[Any], kept: Unfinished) -> Collected:
        into = Collected()
        measure_all([(batch, Idle()) for batch in batches], into, math.inf, together=True, unfinished=kept)  # type: ignore[misc]
        return into

    kept = Unfinished(tmp_path / "one")
    first = measure([Noting(name) for name in ("a", "b")], kept)
    assert [trial.timed.variant for trial in first.trials] == ["a", "b"]
    again = [Noting(name) for name in ("a", "b")]
    second = measure(again, kept)
    assert [batch.before for batch in again] == [["a"], ["b"]]
    assert [trial.timed.variant for trial in second.trials] == ["a", "a", "b", "b"]


class Idle:
    """A pool without workers."""

    def close(self) -> None:
        """Close nothing."""


class Noting:
    """A batch of one variant, which notes what had been measured when it began."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.before: list[str] = []

    def measure(self, into: Collected, pool: Idle, deadline: float) -> None:
        self.before = [trial.timed.variant for trial in into.trials]
        into.add(parsed(timed(self.name)))
        into.keep()

    def measure_alone(self, into: Collected, pool: Idle, deadline: float) -> None:
        """Measure nothing."""


def test_a_whole_cell_goes_on_and_keeps_nothing_once_all_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header = HEADER.format("flux", 'study = "flux"\n# variants = ["torch_flash", "torch_math"]')
    folder = in_cell(monkeypatch, tmp_path, header)
    up, log = tmp_path / "time-is-up", tmp_path / "log"
    scenario = when("(step, process) == ('prepare', 1)", f"time.sleep(60 if os.path.exists({str(up)!r}) else 0)")
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python", scenario, log)))
    monkeypatch.setenv("FLUXBENCH_WORKLOADS", "flux1-512px-t128")
    heard = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(heard))
    up.touch()
    monkeypatch.setattr(
        Collected, "is_late", lambda self, deadline: up.exists() and log.exists() and len(log_of(log)) == 2
    )
    bench.measure()
    assert {record.status for record in files.read(folder / "sdpa.jsonl")} == {Status.TIMEOUT}
    assert len(list((tmp_path / "cache/unfinished/flux-sdpa").iterdir())) == 1
    assert progress.read(heard).partly  # it took less time than the cell takes
    up.unlink()
    log.unlink()
    with monkeypatch.context() as patched:

        def refuse(*_: object) -> None:
            raise SetupError("no network")

        patched.setattr(prepare, "prepare", refuse)
        bench.measure()  # which costs nothing of what was kept
    assert {record.status for record in files.read(folder / "sdpa.jsonl")} == {Status.UNAVAILABLE}
    capsys.readouterr()
    heard.unlink()
    bench.measure()
    found_progress = progress.read(heard)
    assert (found_progress.partly, found_progress.before) == (True, 2 * 2 / (2 * 4))  # the first of three counts double
    assert "A build that was stopped had measured 2 trials;" in capsys.readouterr().out
    assert [line["request"]["process"] for line in log_of(log)] == [1, 2]
    found = files.read(folder / "sdpa.jsonl")
    assert {record.status for record in found} == {Status.PASSED}
    assert {len(record.timings["burst"].samples_ms) for record in found} == {3}
    assert not (tmp_path / "cache/unfinished/flux-sdpa").exists()
    log.unlink()
    heard.unlink()
    bench.measure()
    assert not progress.read(heard).partly


def test_a_cell_that_begins_when_the_time_is_up_shows_what_a_stopped_build_had_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = HEADER.format("flux", 'study = "flux"\n# variants = ["torch_flash", "torch_math"]')
    folder = in_cell(monkeypatch, tmp_path, header)
    reached, log = tmp_path / "reached", tmp_path / "log"
    stops = f"(open({str(reached)!r}, 'w').close(), time.sleep(60))"
    scenario = when("(step, variant, process) == ('time', 'torch_math', 2)", stops)
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python", scenario, log)))
    monkeypatch.setenv("FLUXBENCH_WORKLOADS", "flux1-512px-t128")
    monkeypatch.setattr(Collected, "is_late", lambda self, deadline: reached.exists())
    for requests in ([0, 1, 2], []):
        bench.measure()
        assert [line["request"]["process"] for line in log_of(log)] == requests
        found = {record.variant: record.status for record in files.read(folder / "sdpa.jsonl")}
        assert found == {"torch_flash": Status.PASSED, "torch_math": Status.TIMEOUT}
        log.write_text("", encoding="utf-8")
