"""`fluxbench rerun`: what runs again after a change, what the page shows of it, and what is said to have changed."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from typing import Any

import pytest
from notebooks import ALL, DRIVER, NEWER, Machine, listing
from sample_records import make_record

from fluxbench.core.formatting import utc
from fluxbench.notebook.listeners import Lines
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, Sentinel, Status


def timed(variant: str, median_ms: float, measured_at: str = "2026-11-21T12:00:00Z") -> Record:
    """Return a record of five processes whose medians are within a thousandth of each other, in both regimes."""
    record = make_record(variant, median_ms=median_ms, measured_at=measured_at)
    assert record.timing
    assert record.burst
    samples = tuple(median_ms * (1 + (process - 2) / 4000) for process in range(5) for _ in range(2))
    timing, burst = (dataclasses.replace(one, samples_ms=samples) for one in (record.timing, record.burst))
    return dataclasses.replace(record, timing=timing, burst=burst)


def sentinel(median_ms: float) -> Sentinel:
    samples = tuple((median_ms * (1 + (process - 2) / 4000),) * 2 for process in range(5))
    return Sentinel(kernel="made up", samples_ms={"flux1-1024px-t512": samples})


def test_after_a_new_driver_a_cell_and_its_descendants_run_again_and_the_page_says_what_is_stale(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver changes where NVML answers, and nothing is told of it."""
    difference = f"driver {DRIVER} -> {NEWER}"
    assert built.command("status") == 0
    built.driver(NEWER)
    capsys.readouterr()

    assert built.command("status") == 1
    text = capsys.readouterr().out
    assert re.search(rf"^first +stale .*\n +{difference}\n", text, re.MULTILINE)
    assert re.search(rf"^second +stale .*\n +{difference}\n", text, re.MULTILINE)
    assert built.command("status", "--json") == 1
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (data["driver"], data["fresh"]) == (NEWER, False)
    measuring = {each["cell"]: each["reasons"] for each in data["cells"] if each["variants"]}
    assert measuring == {"first": [difference], "second": [difference]}
    assert built.ran() == []

    built.measures("first", timed("torch_math", 2.0))
    built.measures("second", timed("torch_native", 2.0))
    assert built.command("rerun", "first") == 0
    assert built.ran() == ["first", "figure"]
    assert "measured torch_math: 2.0 ms" in built.shown("first")
    assert "shown torch_math: 2.0 ms" in built.shown("figure")
    assert "drawn torch_math: 2.0 ms" in built.shown("figure")
    assert "torch_math: 1.0 ms" not in built.page
    assert (built.output / "artifacts" / "figure" / "table.csv").read_text(encoding="utf-8") == "torch_math: 2.0 ms"
    assert records.read(built.output / "artifacts" / "first" / "first.jsonl")[0].fingerprint["driver"] == NEWER
    for cell_id in ("first", "figure"):
        assert "Not as this machine is now" not in built.shown(cell_id)
    when = utc(built.good("second").ran_at)
    stale = f"[Not as this machine is now: {difference}. This is its last good result, of {when}"
    assert built.shown("second").startswith(f"{stale}, with driver {DRIVER}.] measured torch_native: 1.0 ms")
    also = f"[Not as this machine is now: {difference}; it needs second, which is stale. This is its last good result"
    assert built.shown("other").startswith(also)

    assert built.command("status") == 1
    assert built.states() == {"first": "fresh", "second": "stale", "figure": "fresh", "other": "stale"}
    assert built.command("build") == 0
    assert built.ran() == ["second", "other"]
    assert "Not as this machine is now" not in built.page


def test_only_what_is_asked_for_and_its_descendants_run_though_all_is_fresh(built: Machine) -> None:
    assert built.build("figure").problems == ()
    assert built.ran() == ["figure"]
    assert built.build("other", "first", "figure", "first").problems == ()
    assert built.ran() == ["first", "figure", "other"]
    assert built.states() == dict.fromkeys(ALL, "fresh")


def test_descendants_run_however_far_down(machine: Machine) -> None:
    lines = ["id=a", "id=b needs=a", "id=c needs=b", "id=d"]
    text = "".join(f"```python {line}\nprint()\n```\n" for line in lines)
    machine.notebook.write_text(text, encoding="utf-8")
    machine.build()
    machine.ran()
    machine.build("b")
    assert machine.ran() == ["b", "c"]


def test_what_is_wrong_with_a_cell_that_was_not_asked_for_does_not_fail_the_rerun(built: Machine) -> None:
    built.measures("first", make_record("torch_math", status=Status.INCORRECT))
    assert built.command("rerun", "first") == 1
    assert built.command("rerun", "second") == 0


def test_a_result_of_a_stale_input_is_said_to_be_one(built: Machine) -> None:
    built.driver(NEWER)
    assert built.command("rerun", "figure") == 0
    assert built.ran() == ["figure"]
    assert built.shown("figure").startswith("[Not as this machine is now: it needs first, which is stale.")


def test_what_an_interruption_kept_from_running_says_that_its_input_is_newer(built: Machine) -> None:
    class Interrupting(Lines):
        def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        built.build("first", listener=Interrupting(io.StringIO()))
    assert built.states() == {"first": "fresh", "second": "fresh", "figure": "stale", "other": "fresh"}
    assert built.reasons("figure") == ("first was run again",)
    assert built.ran() == ["first"]
    built.build()
    assert built.ran() == ["figure"]


# What is refused.


def test_a_cell_that_is_not_there_brings_the_nearest_name_and_changes_nothing(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    before = listing(built.notebook.parent), listing(built.output)
    assert built.command("rerun", "first", "secnd") == 2
    assert capsys.readouterr() == ("", "fluxbench: made_up.md has no cell 'secnd'; did you mean 'second'?\n")
    assert built.command("rerun", "nothing-like-it") == 2
    assert "its cells are first, second, figure, other" in capsys.readouterr().err
    assert built.ran() == []
    assert (listing(built.notebook.parent), listing(built.output)) == before


def test_a_cell_that_is_commented_out_is_not_there(built: Machine) -> None:
    built.rewrite("```python id=other needs=second", "# ```python id=other needs=second")
    assert built.command("rerun", "other") == 2


def test_a_cell_whose_needs_were_never_run_says_to_build_first(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine.command("rerun", "figure") == 2
    sentence = (
        f"cell figure needs first, of which there is no result here; run `fluxbench build {machine.notebook}` first"
    )
    assert capsys.readouterr().err == f"fluxbench: {sentence}\n"
    assert machine.ran() == []
    assert not machine.output.exists()
    assert machine.command("rerun", "figure", "first") == 0
    assert machine.ran() == ["first", "figure"]


# What is said to have changed.


def test_what_changed_is_said_with_the_numbers_of_the_records(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.rewrite('bench.measure("torch_math")', 'bench.measure("torch_math", "flex")')
    machine.measures("first", timed("torch_math", 3.125), timed("flex", 1.5), sentinel=sentinel(1.0))
    machine.command("rerun", "first")
    later = "2026-11-22T12:00:00Z"
    found = timed("torch_math", 4.375, later), timed("flex", 1.5, later)
    machine.measures("first", *found, sentinel=sentinel(1.0))
    capsys.readouterr()
    assert machine.command("rerun", "first") == 0
    out = capsys.readouterr().out
    _, _, of_math = out.partition("\ntorch_math\n")
    assert re.match(r" +flux1-1024px-t512 +3\.125 +4\.375 .*\b1\.4000 .* slower\b", of_math)
    _, _, of_flex = out.partition("\nflex\n")
    assert re.match(r" +flux1-1024px-t512 +1\.500 +1\.500 .*\b1\.0000 .* same\b", of_flex)
    assert re.search(r"device .*did not move", out)
    assert re.search(r"moved.*: torch_math 1\.4000 ", out)
    assert out.endswith(f"\nThe page is {machine.output / 'made_up.html'}\n")


def test_the_json_of_what_changed_says_the_same_and_is_alone_on_stdout(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    built.measures("first", timed("torch_math", 2.0), sentinel=sentinel(1.0))
    built.build("first")
    built.driver(NEWER)
    built.measures("first", timed("torch_math", 1.0), sentinel=sentinel(0.5))
    assert built.command("rerun", "first", "--json") == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    (row,) = data["comparison"]["rows"]
    assert (row["cell"], row["variant"], row["workload"]) == ("first", "torch_math", "flux1-1024px-t512")
    assert (row["before_ms"], row["after_ms"]) == pytest.approx((2.0, 1.0), rel=1e-6)
    assert row["change"]["verdict"] == "faster"
    assert row["change"]["ratio"] == pytest.approx(0.5)
    assert data["comparison"]["differs"] == [f"driver {DRIVER} -> {NEWER}"]
    assert data["comparison"]["device"]["verdict"] == "faster"
    assert data["comparison"]["happened"] == "device"


def test_the_last_good_result_is_compared_with_and_no_failed_one(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    built.monkeypatch.setenv("BROKEN", "")
    built.rewrite('bench.measure("torch_math")', 'bench.measure("torch_math"); assert not os.environ["BROKEN"]')
    built.measures("first", timed("torch_math", 2.0))
    built.build("first")
    built.monkeypatch.setenv("BROKEN", "1")
    built.measures("first", timed("torch_math", 9.0))
    built.build("first")
    built.monkeypatch.setenv("BROKEN", "")
    built.measures("first", timed("torch_math", 3.0))
    built.command("rerun", "first", "--json")
    (row,) = json.loads(capsys.readouterr().out)["comparison"]["rows"]
    assert (row["before_ms"], row["after_ms"]) == pytest.approx((2.0, 3.0), rel=1e-6)


def test_where_there_is_no_earlier_result_the_published_one_is_compared_with(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.measures("first", timed("torch_math", 2.0))
    published = machine.folder / "reports" / "made-up" / "made_up" / "records"
    published.mkdir(parents=True)
    machine.build("first")
    (machine.good("first").folder / "first.jsonl").rename(published / "first.jsonl")
    machine.measures("first", timed("torch_math", 3.0))
    machine.command("rerun", "first", "--json")
    (row,) = json.loads(capsys.readouterr().out)["comparison"]["rows"]
    assert (row["before_ms"], row["after_ms"]) == pytest.approx((2.0, 3.0), rel=1e-6)


def test_where_there_is_nothing_earlier_at_all_it_says_so(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.command("rerun", "first") == 0
    out = capsys.readouterr().out
    assert "Nothing was compared" in out
    assert "only after: torch_math." in out


def test_a_rerun_of_cells_that_do_not_measure_compares_nothing(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert built.command("rerun", "figure") == 0
    assert capsys.readouterr().out == f"\nThe page is {built.output / 'made_up.html'}\n"
    assert built.command("rerun", "figure", "--json") == 0
    assert json.loads(capsys.readouterr().out)["comparison"] is None


def test_a_rerun_that_fails_keeps_and_shows_the_last_good_result_and_ends_with_1(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    good = built.good("first")
    built.rewrite('bench.measure("torch_math")', 'raise SystemExit("fluxbench: the GPU is on fire")')
    assert built.command("rerun", "first", "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["problems"] == [
        "cell first failed: the GPU is on fire",
        "cell figure was not run: it needs first, which failed",
    ]
    assert "fluxbench: cell first failed: the GPU is on fire\n" in err
    assert built.good("first") == good
    assert "What follows is its last good result" in built.shown("first")
    assert "measured torch_math: 1.0 ms" in built.shown("first")
    assert "[Not run: it needs first, which failed. What follows is" in built.shown("figure")
    assert built.ran() == ["first"]


def test_of_two_cells_the_one_that_fails_is_no_part_of_the_comparison(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    built.rewrite('bench.measure("torch_math")', 'raise SystemExit("no")')
    built.measures("second", timed("torch_native", 2.0))
    assert built.command("rerun", "first", "second", "--json") == 1
    assert [row["variant"] for row in json.loads(capsys.readouterr().out)["comparison"]["rows"]] == ["torch_native"]
