"""A page's variants over drivers and libraries: what a revision is, what is compared, and what the page shows of it."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

import pytest
from fakes import CPU, GPU, clean
from sample_records import make_record

from fluxbench import show
from fluxbench.analysis import history
from fluxbench.analysis.history import History, Timeline, revisions
from fluxbench.core.settings import Settings
from fluxbench.device.detection import Device
from fluxbench.operations.workloads import SETS
from fluxbench.records import fingerprint
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, Status
from fluxbench.report.figures import figures as plots

LONGEST, SHORTER = "flux1-1024px-t512", "flux1-1024px-t448"
OLD = {"driver": "580.10", "torch": "2.9.0", "triton": "3.5.0", "cudnn": "91000"}
NEW_DRIVER = {**OLD, "driver": "590.20"}
NEW_TORCH = {**NEW_DRIVER, "torch": "2.10.0"}


def record(
    variant: str = "torch_flash",
    median_ms: float = 1.0,
    *,
    day: int = 1,
    versions: dict[str, str] = OLD,
    device: Device = GPU,
    timing_py: str = "a",
    workload: str = LONGEST,
    status: Status = Status.PASSED,
) -> Record:
    made = make_record(
        variant,
        workload,
        median_ms,
        status=status,
        measured_at=f"2026-05-{day:02d}T12:00:00+00:00",
        versions=versions,
    )
    return dataclasses.replace(made, fingerprint={**fingerprint.of_device(device), "code.timing.py": timing_py})


def kept(folder: Path, *found: Record) -> Path:
    """Write records as one file of a folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    records.write(folder / "sdpa.jsonl", found)
    return folder


def medians(found: History, variant: str = "torch_flash") -> list[float]:
    """Return a variant's times by revision."""
    its = [r for each in found.revisions for r in each.records if r.variant == variant and r.workload.name == LONGEST]
    return [each.timing.median_ms for each in its if each.timing]


def timeline(*found: Record, device: Device = GPU) -> Timeline:
    """Return the one timeline of records, all of them present."""
    [only] = revisions(found, device).timelines(found)
    return only


class TestRevisions:
    def test_records_from_before_there_were_burst_times_are_shown_beside_new_ones(self, tmp_path: Path) -> None:
        old = dataclasses.replace(record(median_ms=2.0), burst=None)
        folder = kept(tmp_path / "flux" / "history" / "a", old)
        (folder / "sdpa.samples.json").write_text("{}\n", encoding="utf-8")
        found = revisions([record(day=2, versions=NEW_DRIVER)], GPU, [tmp_path / "flux"])
        assert (medians(found), found.notes) == ([2.0, 1.0], ())
        shown = history.text(found, found.timelines([record(day=2, versions=NEW_DRIVER)]))
        assert "2.000" in shown or "2.00 " in shown

    def test_a_revision_is_a_driver_and_its_libraries_in_order_of_time(self, tmp_path: Path) -> None:
        kept(tmp_path / "flux" / "history" / "a", record(median_ms=2.0, day=2, versions=NEW_DRIVER))
        kept(tmp_path / "flux" / "history" / "b", record(median_ms=1.0, day=1))
        kept(tmp_path / "flux" / "records", record(median_ms=3.0, day=3, versions=NEW_TORCH))
        found = revisions([record(median_ms=3.0, day=3, versions=NEW_TORCH)], GPU, [tmp_path / "flux"])
        assert medians(found) == [1.0, 2.0, 3.0]
        assert [each.versions for each in found.revisions] == [OLD, NEW_DRIVER, NEW_TORCH]
        assert found.notes == ()

    @pytest.mark.parametrize("library", ["driver", "torch", "triton", "cudnn"])
    def test_each_of_them_tells_revisions_apart(self, library: str) -> None:
        other = record("flex", day=2, versions={**OLD, library: "other"})
        assert len(revisions([record(), other], GPU).revisions) == 2

    def test_what_does_not_take_part_in_a_time_does_not(self) -> None:
        other = record("flex", day=2, versions={**OLD, "python": "3.14.0"})
        assert len(revisions([record(), other], GPU).revisions) == 1

    def test_of_one_revision_the_newest_record_counts(self, tmp_path: Path) -> None:
        local = [kept(tmp_path / f"{day}", record(median_ms=day, day=day)) for day in (2, 3, 1)]
        found = revisions([record(median_ms=9.0, day=9, versions=NEW_DRIVER)], GPU, [], local)
        assert medians(found) == [3.0, 9.0]

    def test_a_present_record_stands_even_where_the_clock_was_set_back(self, tmp_path: Path) -> None:
        local = [kept(tmp_path / "a", record(median_ms=2.0, day=20))]
        assert medians(revisions([record(median_ms=1.0, day=10)], GPU, [], local)) == [1.0]

    def test_a_clock_that_was_set_back_loses_no_revision(self, tmp_path: Path) -> None:
        published = kept(tmp_path / "flux" / "records", record(median_ms=2.0, day=20)).parent
        found = revisions([record(median_ms=1.0, day=10, versions=NEW_DRIVER)], GPU, [published])
        assert medians(found) == [1.0, 2.0]

    def test_a_record_that_does_not_say_when_is_kept(self) -> None:
        undated = dataclasses.replace(record(versions=NEW_DRIVER), measured_at="yesterday")
        line = timeline(record("flex"), undated)
        assert line.head["date"] == ["no date", "2026-05-01"]

    def test_the_same_record_from_everywhere_is_one(self, tmp_path: Path) -> None:
        published = tmp_path / "flux"
        for folder in (published / "records", published / "history" / "a", tmp_path / "local"):
            kept(folder, record(), record(device=CPU))
        found = revisions([record()], GPU, [published], [tmp_path / "local"])
        assert [len(each.records) for each in found.revisions] == [1]

    def test_each_length_has_its_own_newest(self, tmp_path: Path) -> None:
        local = [kept(tmp_path / "a", record(day=1), record(workload=SHORTER, day=1))]
        found = revisions([record(day=2)], GPU, [], local)
        assert {(r.workload.name, r.measured_at[8:10]) for r in found.revisions[0].records} == {
            (LONGEST, "02"),
            (SHORTER, "01"),
        }

    def test_another_model_of_device_is_left_out_and_said(self, tmp_path: Path) -> None:
        other = dataclasses.replace(GPU, name="NVIDIA Other", driver="570.1")
        local = [kept(tmp_path / "a", record(device=other), record("flex", device=other))]
        found = revisions([record(day=2), record("flex", day=2)], GPU, [], local)
        assert medians(found) == [1.0]
        [note] = found.notes
        assert note == "Left out: 2 records measured on another device (NVIDIA Other -> NVIDIA Made Up)."

    def test_another_driver_or_host_of_the_same_model_is_not_another_device(self, tmp_path: Path) -> None:
        host = dataclasses.replace(GPU, driver="570.1", cpu="another CPU", cores=64, power_limit_w=500.0)
        local = [kept(tmp_path / "a", record(device=host))]
        found = revisions([record(day=2, versions=NEW_DRIVER)], GPU, [], local)
        assert (len(medians(found)), found.notes) == (2, ())

    def test_what_the_page_does_not_name_is_not_shown(self, tmp_path: Path) -> None:
        local = [kept(tmp_path / "a", record("of_long_ago"))]
        assert {r.variant for each in revisions([record()], GPU, [], local).revisions for r in each.records} == {
            "torch_flash"
        }

    def test_what_was_never_run_belongs_to_no_revision(self) -> None:
        refused = dataclasses.replace(record("flex", status=Status.UNSUPPORTED), versions={})
        line = timeline(record(), refused)
        assert (len(line.revisions), line.places["flex"]) == (1, (None,))

    @pytest.mark.parametrize(
        "change", [{"versions": None}, {"fingerprint": []}, {"variant": ["a"]}, {"measured_at": 1}]
    )
    def test_a_damaged_file_is_left_out_and_said(self, tmp_path: Path, change: dict[str, object]) -> None:
        whole = kept(tmp_path / "whole", record())
        odd = kept(tmp_path / "odd", record())
        data = json.loads(record(day=3).to_json()) | change
        (odd / "sdpa.jsonl").write_text(json.dumps(data) + "\n", encoding="utf-8")
        cut = kept(tmp_path / "cut")
        (cut / "sdpa.jsonl").write_text(record().to_json()[:90], encoding="utf-8")
        deep = kept(tmp_path / "deep")
        (deep / "sdpa.jsonl").write_text("[" * 100_000, encoding="utf-8")
        found = revisions([record(day=2, versions=NEW_DRIVER)], GPU, [], [cut, deep, odd, whole])
        assert len(medians(found)) == 2
        assert [note.split(" (")[0] for note in found.notes] == [
            "Left out: cut/sdpa.jsonl cannot be read",
            "Left out: deep/sdpa.jsonl cannot be read",
            "Left out: odd/sdpa.jsonl cannot be read",
        ]

    def test_folders_that_are_not_there_are_nothing(self, tmp_path: Path) -> None:
        found = revisions([record()], GPU, [tmp_path / "none"], [tmp_path / "none"])
        assert (medians(found), found.notes) == ([1.0], ())

    def test_the_local_folders_are_those_that_a_build_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(history.VARIABLE, "/a:/b c")
        assert history.local_folders() == [Path("/a"), Path("/b c")]
        monkeypatch.setenv(history.VARIABLE, "")
        assert history.local_folders() == []


class TestTimelines:
    def test_the_longest_workload_of_each_group_is_shown(self) -> None:
        found = [record(), record(workload=SHORTER), record(workload="flux2-512px-t512")]
        lines = revisions(found, GPU).timelines(found)
        assert [line.group.longest.name for line in lines] == [LONGEST, "flux2-512px-t512"]

    def test_a_revision_that_did_not_measure_it_is_no_column(self) -> None:
        line = timeline(record(workload=SHORTER), record(day=2, versions=NEW_DRIVER))
        assert [each.versions for each in line.revisions] == [NEW_DRIVER]

    def test_a_variant_that_is_wrong_at_any_length_has_no_time(self) -> None:
        wrong = record(workload=SHORTER, status=Status.INCORRECT)
        assert timeline(record("flex"), record(), wrong).points.keys() == {"flex"}

    def test_a_variant_whose_time_at_any_length_cannot_be_believed_has_no_time(self) -> None:
        failed = record(workload=SHORTER, status=Status.ERROR)
        found_out = dataclasses.replace(failed, reason="skips work on inputs that it has seen: 0.1 ms a call")
        assert timeline(record("flex"), record(), found_out).points.keys() == {"flex"}

    def test_comparable_times_have_no_break(self) -> None:
        assert timeline(record(), record(day=2, versions=NEW_DRIVER)).breaks == []

    def test_times_that_were_taken_in_another_way_are_broken_with_the_reason(self) -> None:
        line = timeline(
            *(record(name) for name in ("torch_flash", "flex")),
            *(record(name, day=2, versions=NEW_DRIVER, timing_py="b") for name in ("torch_flash", "flex")),
            *(record(name, day=3, versions=NEW_TORCH, timing_py="b") for name in ("torch_flash", "flex")),
        )
        assert [(each.before, each.after, each.variants) for each in line.breaks] == [(0, 1, ("torch_flash", "flex"))]
        assert line.broken() == [
            "Times must not be compared between revisions 1 and 2, since they were not measured in the same way: "
            "timing.py changed between them."
        ]

    def test_a_break_is_of_the_variants_that_it_is_of(self) -> None:
        line = timeline(
            *(record(name) for name in ("torch_flash", "flex")),
            record(day=2, versions=NEW_DRIVER),
            record("flex", day=2, versions=NEW_DRIVER, timing_py="b"),
        )
        assert "between revisions 1 and 2 (flex), since" in line.broken()[0]

    def test_a_variant_that_was_left_out_once_is_compared_across(self) -> None:
        line = timeline(
            record("flex"),
            record(day=2, versions=NEW_DRIVER),
            record("flex", day=3, versions=NEW_TORCH, timing_py="b"),
        )
        assert [(each.before, each.after) for each in line.breaks] == [(0, 2)]

    def test_another_load_is_not_compared(self) -> None:
        rested = record(day=2, versions=NEW_DRIVER)
        assert rested.timing is not None
        rested = dataclasses.replace(rested, timing=dataclasses.replace(rested.timing, regime="burst"))
        assert timeline(record(), rested).breaks[0].reason == "the load was sustained and then burst"

    def test_libraries_are_named_where_they_differ(self) -> None:
        line = timeline(record(), record("flex", day=2, versions={**OLD, "cudnn": "92000"}))
        assert line.head == {
            "revision": ["1", "2"],
            "date": ["2026-05-01", "2026-05-02"],
            "driver": ["580.10", "580.10"],
            "torch": ["2.9.0", "2.9.0"],
            "cudnn": ["91000", "92000"],
        }

    def test_a_cpu_has_no_driver(self) -> None:
        line = timeline(record(versions={"torch": "2.9.0+cpu"}, device=CPU), device=CPU)
        assert line.called(0) == "torch 2.9.0+cpu, 2026-05-01"

    def test_a_time_of_launching_has_a_sign_that_is_explained_once(self) -> None:
        plain = record("flex")
        late = dataclasses.replace(record(), marks=("sustained: the host was hardly ahead of the device in all 3",))
        found = revisions([plain, late], GPU)
        shown = history.text(found, found.timelines([plain, late]))
        assert [line.endswith(" h") for line in shown.split("─\n")[1].splitlines()[:2]] == [False, True]
        assert shown.count("h: in one process or more the host was hardly ahead") == 1
        assert "hardly ahead" not in history.text(revisions([plain], GPU), [timeline(plain)])


THREE = [
    *(record(name, ms) for name, ms in (("torch_flash", 0.8), ("torch_flash_copy", 0.9), ("flex", 0.72))),
    *(record(name, 0.6, day=2, versions=NEW_DRIVER) for name in ("torch_flash", "torch_flash_copy")),
    *(record(name, 0.4, day=3, versions=NEW_TORCH, timing_py="b") for name in ("torch_flash", "torch_flash_copy")),
    record("flex", day=3, versions=NEW_TORCH, timing_py="b", status=Status.CRASHED),
]


def drawn(folder: Path, found: Iterable[Record]) -> str:
    shown = list(found)
    plots.history(revisions(shown, GPU).timelines(shown), folder / "history.svg")
    return (folder / "history.svg").read_text(encoding="utf-8")


def words(svg: str) -> list[str]:
    """Return every text of an SVG."""
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")]


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "history.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def series(variant: str) -> str:
    """Return the number of a variant's colour among the page's series."""
    from fluxbench.report.figures.style import COLOURS, look

    return str(COLOURS.index(look(variant).colour) + 1)


def lines(svg: str, number: str) -> int:
    """Return how many lines of this series' colour connect two points of different places."""
    paths = re.findall(rf'<path d="M ([\d.]+) [\d.]+ L ([\d.]+) [\d.]+ " [^>]*stroke:var\(--k{number}\)', svg)
    return sum(float(to) - float(start) > 50 for start, to in paths)


class TestFigure:
    def test_names_revisions_and_kernels_as_text(self, tmp_path: Path) -> None:
        found = words(drawn(tmp_path, THREE))
        assert {"580.10", "590.20", "2.9.0", "2.10.0", "2026-05-01", "2026-05-03", "torch_flash 0.400"} <= set(found)
        assert "flex 0.720 (revision 1)" in found

    def test_connects_what_may_be_compared_and_nothing_else(self, tmp_path: Path) -> None:
        colour = series("torch_flash")
        assert lines(drawn(tmp_path, THREE), colour) == 1
        same = [dataclasses.replace(r, fingerprint={**r.fingerprint, "code.timing.py": "a"}) for r in THREE]
        assert lines(drawn(tmp_path, same), colour) == 2

    def test_says_why_a_line_is_broken(self, tmp_path: Path) -> None:
        text = " ".join(words(drawn(tmp_path, THREE)))
        assert "Lines are broken where times must not be compared." in text
        assert "between revisions 2 and 3, since they were not measured in the same way" in text

    def test_is_divided_where_nothing_leads_over(self, tmp_path: Path) -> None:
        assert drawn(tmp_path, THREE).count("stroke-dasharray") == 1
        others = [
            record("torch_cudnn", day=day, versions=its) for day, its in ((1, OLD), (2, NEW_DRIVER), (3, NEW_TORCH))
        ]
        assert drawn(tmp_path, [*THREE, *others]).count("stroke-dasharray") == 0

    def test_has_a_line_per_kernel_and_a_table_of_all(self, tmp_path: Path) -> None:
        text = " ".join(words(drawn(tmp_path, THREE)))
        assert "torch_flash_copy" not in text
        assert "the table and history.csv have them all" in text
        assert {row["variant"] for row in rows(tmp_path)} == {"torch_flash", "torch_flash_copy", "flex"}

    def test_a_kernel_without_a_plain_form_is_drawn_in_its_simplest(self, tmp_path: Path) -> None:
        found = [record(name, day=d, versions=v) for name in ("flex_compile_ma", "flex_copy") for d, v in
                 ((1, OLD), (2, NEW_DRIVER))]  # fmt: skip
        assert "flex_copy 1.00" in words(drawn(tmp_path, found))

    def test_its_table_holds_times_intervals_and_what_must_not_be_compared(self, tmp_path: Path) -> None:
        drawn(tmp_path, THREE)
        flash = [row for row in rows(tmp_path) if row["variant"] == "torch_flash"]
        assert [(r["revision"], r["driver"], r["torch"], r["median_ms"]) for r in flash] == [
            ("1", "580.10", "2.9.0", "0.8"),
            ("2", "590.20", "2.9.0", "0.6"),
            ("3", "590.20", "2.10.0", "0.4"),
        ]
        assert [bool(row["not_comparable_with_before"]) for row in flash] == [False, False, True]
        assert all(float(r["ci95_low_ms"]) < float(r["median_ms"]) < float(r["ci95_high_ms"]) for r in flash)

    def test_of_many_revisions_has_their_numbers_and_a_key(self, tmp_path: Path) -> None:
        many = [record(day=n, versions={**OLD, "driver": f"5{n:02d}.159.04"}) for n in range(1, 21)]
        found = words(drawn(tmp_path, many))
        assert "20: driver 520.159.04, torch 2.9.0, 2026-05-20" in found
        assert "520.159.04" not in found

    def test_markup_and_signs_of_a_version_stay_text(self, tmp_path: Path) -> None:
        odd = {**NEW_DRIVER, "torch": "<script>1</script>&\n$x$\x1b\x00"}
        svg = drawn(tmp_path, [record(), record(day=2, versions=odd)])
        assert "<script" not in svg
        assert "<script>1</script>& $x$" in words(svg)

    def test_takes_text_and_axes_in_the_pages_colour(self, tmp_path: Path) -> None:
        svg = drawn(tmp_path, THREE)
        assert set(re.findall(r"(?:stroke|fill):var\(--k(\d)\)", svg)) == set(map(series, ("torch_flash", "flex")))
        assert re.findall(r"(?:stroke|fill): ?#\w+", svg) == []

    def test_is_named_and_described(self, tmp_path: Path) -> None:
        root = ET.fromstring(drawn(tmp_path, THREE))
        assert root[0].text == "Time of each kernel over drivers and libraries"
        assert "torch_flash 0.800 ms (revision 1), 0.600 ms (revision 2)" in (root[1].text or "")

    def test_gives_the_same_bytes_for_the_same_records(self, tmp_path: Path) -> None:
        assert drawn(tmp_path, THREE) == drawn(tmp_path, THREE)

    def test_says_of_a_model_with_one_revision_that_there_is_nothing_to_draw(self, tmp_path: Path) -> None:
        text = " ".join(words(drawn(tmp_path, [*THREE, record(workload="flux2-512px-t512")])))
        assert "There are no two revisions with a time to draw." in text

    def test_can_show_a_time_that_never_changed(self, tmp_path: Path) -> None:
        drawn(tmp_path, [record(), record(day=2, versions=NEW_DRIVER)])


@dataclasses.dataclass
class Page:
    """A folder in which a showing cell runs, with the inputs that a build gives it."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def written(self) -> set[str]:
        return {path.name for path in (self.folder / "here").iterdir()}

    def shows(self, *found: Record, device: Device = GPU) -> None:
        facts = {"device": dataclasses.asdict(device), "peak": None}
        (self.folder / "hardware" / "device.json").write_text(json.dumps(facts), encoding="utf-8")
        kept(self.folder / "sdpa", *found)

    def publishes(self, stamp: str, *found: Record) -> None:
        kept(self.folder / "reports" / "made-up" / "flux" / "history" / stamp, *found)

    def ran_before(self, *runs: Record) -> None:
        folders = [kept(self.folder / f"flux.sdpa.{number:05d}", run) for number, run in enumerate(runs)]
        self.monkeypatch.setenv(history.VARIABLE, ":".join(map(str, folders)))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    clean(monkeypatch)
    for name in ("hardware", "sdpa", "here"):
        (tmp_path / name).mkdir()
    settings = Settings(root=tmp_path, cache=tmp_path / "cache")
    monkeypatch.setattr(Settings, "load", lambda: settings)
    monkeypatch.setenv("UVNOTE_INPUTS", "UVNOTE_INPUT_HARDWARE,UVNOTE_INPUT_SDPA")
    monkeypatch.setenv("UVNOTE_INPUT_HARDWARE", str(tmp_path / "hardware"))
    monkeypatch.setenv("UVNOTE_INPUT_SDPA", str(tmp_path / "sdpa"))
    monkeypatch.chdir(tmp_path / "here")
    return Page(tmp_path, monkeypatch)


class TestShow:
    def test_a_first_measurement_is_said_and_not_drawn(self, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
        page.shows(record(median_ms=0.4))
        show.history()
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith("One measurement so far: driver 580.10, torch 2.9.0, 2026-05-01.")
        assert "`fluxbench rerun` and `make publish` add to it." in said
        assert "torch_flash 0.400 ±0.002" in said
        assert page.written == set()

    def test_three_revisions_are_in_the_table_and_drawn(self, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
        page.publishes("2026-05-01T120000Z", *THREE[:3])
        page.ran_before(*THREE[3:5])
        page.shows(*THREE[5:])
        show.history()
        out = capsys.readouterr().out
        table = [line.split() for line in out.splitlines()]
        assert ["driver", "580.10", "590.20", "590.20"] in table
        assert ["torch", "2.9.0", "2.9.0", "2.10.0"] in table
        assert ["torch_flash", "0.800", "±0.004", "0.600", "±0.003", "0.400", "±0.002"] in table
        assert ["flex", "0.720", "±0.004", "-", "CRASHED"] in table
        assert "must not be compared between revisions 2 and 3" in out
        assert page.written == {"history.svg", "history.csv"}
        assert len(rows(page.folder / "here")) == 7

    def test_prose_and_a_table_of_some_columns_fit_the_page(
        self, page: Page, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page.shows(*THREE)
        show.history()
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 110

    def test_what_never_passed_is_named_below(self, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
        page.shows(record(), record("flex", status=Status.CRASHED))
        show.history()
        assert "Without a time in any: flex." in capsys.readouterr().out

    def test_a_page_where_nothing_passed_is_drawn(self, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
        page.shows(*(record(status=Status.UNSUPPORTED, workload=each.name) for each in SETS["flux1-1024px"]))
        show.history()
        assert "flux1-1024px at 512 text tokens: nothing passed so far." in capsys.readouterr().out

    def test_a_failure_over_two_drivers_is_said_and_drawn_as_that(self, page: Page) -> None:
        page.publishes("a", record(status=Status.CRASHED))
        page.shows(record(status=Status.CRASHED, day=2, versions=NEW_DRIVER))
        show.history()
        svg = (page.folder / "here" / "history.svg").read_text(encoding="utf-8")
        assert "There are no two revisions with a time to draw." in words(svg)

    def test_a_cpu_is_labelled_by_torch_and_date(self, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
        before, now = {"torch": "2.9.0+cpu"}, {"torch": "2.10.0+cpu"}
        kept(page.folder / "reports" / "cpu" / "flux" / "records", record(device=CPU, versions=before))
        page.shows(record(device=CPU, versions=now, day=2), device=CPU)
        show.history()
        table = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["torch", "2.9.0+cpu", "2.10.0+cpu"] in table
        assert not any(line[:1] == ["driver"] for line in table)
        assert page.written == {"history.svg", "history.csv"}

    def test_damaged_history_is_said_and_the_rest_is_shown(
        self, page: Page, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page.publishes("2026-05-01T120000Z", record())
        damaged = page.folder / "reports" / "made-up" / "flux" / "history" / "2026-05-01T120000Z" / "flex.jsonl"
        damaged.write_text("{", encoding="utf-8")
        page.shows(record(day=2, versions=NEW_DRIVER))
        show.history()
        assert "Left out: 2026-05-01T120000Z/flex.jsonl cannot be read (" in capsys.readouterr().out
        assert "history.svg" in page.written


def test_history_loads_no_heavy_library() -> None:
    code = "import fluxbench.analysis.history, sys; print(*({'torch', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
