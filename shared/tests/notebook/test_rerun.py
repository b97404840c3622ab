"""`fluxbench rerun`: what runs again after a change, what the page shows of it, and what is compared."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from notebooks import ALL, DRIVER, NEWER, Capture, Machine, listing
from sample_records import changed, record

from fluxbench.core.formatting import utc
from fluxbench.notebook.listeners import Lines
from fluxbench.records import files
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import Record
from fluxbench.records.status import Status


def timed(variant: str, ms: float, measured_at: str = "2026-11-21T12:00:00Z") -> Record:
    """Return a record of five processes whose medians are within a thousandth of each other, in both regimes."""
    made = record(variant, sustained_ms=ms, burst_ms=ms, measured_at=measured_at)
    samples = tuple((ms * (1 + (process - 2) / 4000),) * 2 for process in range(5))
    timings = {regime: changed(timing, samples_ms=samples) for regime, timing in made.timings.items()}  # type: ignore[arg-type]
    return changed(made, timings=timings)


def control(ms: float, variant: str = "torch_math") -> ControlTimes:
    samples = tuple((ms * (1 + (process - 2) / 4000),) * 2 for process in range(5))
    return ControlTimes(kernel="made up", samples_ms={variant: samples})


def test_after_a_new_driver_a_cell_and_its_descendants_run_again(built: Machine, capsys: Capture) -> None:
    built.has(driver=NEWER)
    built.measures("first", timed("torch_math", 2.0))
    assert built.command("rerun", "first") == 0
    assert built.ran() == ["first", "figure"]
    assert "measured torch_math: 2.0 ms" in built.shown("first")
    assert "drawn torch_math: 2.0 ms" in built.shown("figure")
    assert "torch_math: 1.0 ms" not in built.page
    folder = built.output / "made_up"
    assert (folder / "artifacts/figure/table.csv").read_text(encoding="utf-8") == "torch_math: 2.0 ms"
    assert files.read(folder / "records/first.jsonl")[0].fingerprint["driver"] == NEWER
    difference = f"driver {DRIVER} -> {NEWER}"
    when = utc(built.good("second").run.ran_at)
    assert built.shown("second") == (
        f"Stale on this machine: {difference}. This is its last good result, of {when}, with driver {DRIVER}. "
        "measured torch_native: 1.0 ms"
    )
    also = f"Stale on this machine: {difference}; it needs second, which is stale. This is its last good result"
    assert built.shown("other").startswith(also)
    assert built.states() == {"first": "fresh", "second": "stale", "figure": "fresh", "other": "stale"}
    assert built.command("build") == 0
    assert built.ran() == ["second", "other"]
    assert "Stale on this machine" not in built.page


def test_only_what_is_asked_for_and_its_descendants_run_though_all_is_fresh(built: Machine) -> None:
    assert built.build("figure").problems == ()
    assert built.ran() == ["figure"]
    assert built.build("other", "first", "figure", "first").problems == ()
    assert built.ran() == ["first", "figure", "other"]
    assert built.states() == dict.fromkeys(ALL, "fresh")


def test_what_a_stopped_build_had_measured_is_measured_anew_where_a_cell_is_named(built: Machine) -> None:
    kept = [built.settings.unfinished("made_up", cell_id) / "1.json.gz" for cell_id in ("first", "second")]
    for path in kept:
        path.parent.mkdir(parents=True)
        path.touch()
    built.build()
    assert [path.exists() for path in kept] == [True, True]
    built.build("first")
    assert [path.exists() for path in kept] == [False, True]


def test_a_cell_that_an_interruption_kept_from_running_is_stale(built: Machine) -> None:
    class Interrupting(Lines):
        def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
            raise KeyboardInterrupt

    built.measures("first", record("torch_math", sustained_ms=2.0))
    with pytest.raises(KeyboardInterrupt):
        built.build("first", listener=Interrupting(io.StringIO()))
    assert built.states() == {"first": "fresh", "second": "fresh", "figure": "stale", "other": "fresh"}
    assert built.reasons("figure") == ("first was run again",)
    built.ran()
    built.build()
    assert built.ran() == ["figure"]


def test_an_unknown_cell_is_refused_and_nothing_is_changed(built: Machine, capsys: Capture) -> None:
    built.rewrite("```python id=other needs=second", "# ```python id=other needs=second")
    before = listing(built.notebook.parent), listing(built.output)
    assert built.command("rerun", "first", "secnd") == 2
    assert capsys.readouterr() == ("", "fluxbench: made_up.md has no cell 'secnd'; did you mean 'second'?\n")
    assert built.command("rerun", "other") == 2  # it is commented out
    assert built.ran() == []
    assert (listing(built.notebook.parent), listing(built.output)) == before


def test_a_cell_whose_needs_were_never_run_says_so(machine: Machine, capsys: Capture) -> None:
    assert machine.command("rerun", "figure") == 2
    sentence = "fluxbench: cell figure needs first, which has no result here; run `fluxbench build "
    assert capsys.readouterr().err == f"{sentence}{machine.notebook}` first\n"
    assert machine.ran() == []
    assert not machine.output.exists()
    assert machine.command("rerun", "figure", "first") == 0
    assert machine.ran() == ["first", "figure"]


def compared(machine: Machine, capsys: Capture, *cells: str, code: int = 0) -> dict[str, Any]:
    """Return what a re-run prints as JSON, which is alone on stdout."""
    capsys.readouterr()
    assert machine.command("rerun", *cells, "--json") == code
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def rows(printed: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return which variants were compared, and their times in ms before and after."""
    found = printed["comparison"]["rows"]
    return [(row["variant"], round(row["before_ms"], 3), round(row["after_ms"], 3)) for row in found]


def test_a_rerun_prints_what_changed(machine: Machine, capsys: Capture) -> None:
    machine.rewrite('variants = ["torch_math"]', 'variants = ["torch_math", "flex"]')
    machine.measures("first", timed("torch_math", 3.125), timed("flex", 1.5), control=control(1.0))
    machine.command("rerun", "first")
    later = "2026-11-22T12:00:00Z"
    machine.measures("first", timed("torch_math", 4.375, later), timed("flex", 1.5, later), control=control(1.0))
    capsys.readouterr()
    assert machine.command("rerun", "first") == 0
    out = capsys.readouterr().out
    _, _, of_math = out.partition("\ntorch_math\n")
    assert re.match(r" +flux1-1024px-t512 +3\.125 +4\.375 .*\b1\.4000 .* slower\b", of_math)
    assert re.search(r"\nflex\n +flux1-1024px-t512 +1\.500 +1\.500 ", out)
    assert out.endswith(f"\nThe page is {machine.output / 'made_up.html'}\n")


def test_the_json_holds_the_change_what_differs_and_the_control_kernel(built: Machine, capsys: Capture) -> None:
    built.measures("first", timed("torch_math", 2.0), control=control(1.0))
    built.build("first")
    built.has(driver=NEWER)
    built.measures("first", timed("torch_math", 1.0), control=control(0.5))
    printed = compared(built, capsys, "first")
    assert printed["page"] == str(built.output / "made_up.html")
    assert rows(printed) == [("torch_math", 2.0, 1.0)]
    assert printed["comparison"]["rows"][0]["change"]["verdict"] == "faster"
    assert printed["comparison"]["device"]["verdict"] == "faster"
    assert f"driver {DRIVER} -> {NEWER}" in json.dumps(printed["comparison"])


def test_the_last_good_result_is_before_and_a_failed_one_is_not_compared(built: Machine, capsys: Capture) -> None:
    built.rewrite('bench.measure()\n```\n\n```python id=second', 'bench.measure(); assert not os.environ.get("BROKEN")'
                  "\n```\n\n```python id=second")  # fmt: skip
    built.measures("first", timed("torch_math", 2.0))
    built.build("first")
    built.monkeypatch.setenv("BROKEN", "1")
    built.measures("first", timed("torch_math", 9.0))
    printed = compared(built, capsys, "first", code=1)
    assert printed["comparison"] is None
    assert printed["problems"][0] == "cell first failed: it ended with exit code 1: AssertionError"
    built.monkeypatch.setenv("BROKEN", "")
    built.measures("first", timed("torch_math", 3.0))
    assert rows(compared(built, capsys, "first")) == [("torch_math", 2.0, 3.0)]


def test_a_cell_that_a_build_had_no_time_for_is_compared_with_its_last_times(built: Machine, capsys: Capture) -> None:
    built.measures("first", timed("torch_math", 2.0))
    built.build("first")
    late: dict[str, Any] = {"status": Status.TIMEOUT, "reason": "too late", "timings": {}, "energy_mj": None}
    for _ in range(2):
        built.measures("first", changed(timed("torch_math", 2.0), **late))
        built.build("first")
    built.measures("first", timed("torch_math", 3.0))
    assert rows(compared(built, capsys, "first")) == [("torch_math", 2.0, 3.0)]


@pytest.mark.parametrize("damage", [False, True])
def test_without_an_earlier_result_the_published_is_before(machine: Machine, capsys: Capture, damage: bool) -> None:
    machine.measures("first", timed("torch_math", 2.0))
    machine.build("first")
    folder = machine.good("first").folder
    published = machine.folder / "reports" / "made-up" / "made_up" / "records"
    published.mkdir(parents=True)
    (folder / "first.jsonl").rename(published / "first.jsonl")
    if damage:
        (published / "first.jsonl").write_text("half a rec", encoding="utf-8")
    machine.measures("first", timed("torch_math", 3.0))
    printed = compared(machine, capsys, "first")
    if damage:
        assert [row["before_ms"] for row in printed["comparison"]["rows"]] == [None]
    else:
        assert rows(printed) == [("torch_math", 2.0, 3.0)]
        assert printed["comparison"]["before"].endswith(", as published")
