"""Records from other machines: what is taken in, and a sentence for each reason why not."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from published import REPORTS
from sample_records import changed
from sent import PUBLISHED, folder, reports, taken

from fluxbench.cli import main
from fluxbench.core.errors import SetupError
from fluxbench.records import files
from fluxbench.records.schema import Record
from fluxbench.site.intake import Intake, add


def test_records_become_a_target_named_by_their_device(tmp_path: Path) -> None:
    intake = taken(tmp_path)
    there = files.read(tmp_path / "reports" / "h200" / "flux" / "records" / "triton.jsonl")
    assert there == files.read(PUBLISHED / "triton.jsonl")
    assert intake == Intake(
        target="h200", folder=tmp_path / "reports" / "h200", records=len(there), device="NVIDIA H200", problems=()
    )


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_what_is_published_can_be_sent(tmp_path: Path, target: str) -> None:
    """All pages but the large grids of short calls, which `test_pages` draws after the same checks."""
    sent = shutil.copytree(REPORTS / target, tmp_path / target, ignore=shutil.ignore_patterns("sdpa*", "scaling*"))
    assert add(sent, reports(tmp_path), "theirs").problems == ()
    for page in ("flux", "decode"):
        there, here = sent / page / "records", tmp_path / "reports" / "theirs" / page / "records"
        assert {file.name for file in here.iterdir()} == {file.name for file in there.iterdir()} != set()


@pytest.mark.parametrize("rates", ["rates.json", "ceilings.json"])
def test_what_a_build_leaves_is_taken_without_its_page(tmp_path: Path, rates: str) -> None:
    cell = folder(tmp_path, where="site/artifacts/triton")
    site = cell.parents[1]
    (site / "flux.html").write_text("<script>alert(1)</script>")
    (cell / "latency.svg").write_text("<svg onload='alert(1)'/>")
    (cell / "another.control.json").write_text("not of these records")
    for name, file, source in (("hardware", "device.json", "device.json"), ("rates", rates, "rates.json")):
        (site / "artifacts" / name).mkdir()
        shutil.copyfile(PUBLISHED / source, site / "artifacts" / name / file)
    home = reports(tmp_path)
    assert add(site, home).problems == ()
    names = {str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()}
    expected = ("device.json", rates, *(path.name for path in PUBLISHED.glob("triton.*")))
    assert names == {f"h200/flux/records/{name}" for name in expected}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: changed(r, fingerprint={}), "its fingerprint must have device, device_kind, python, hashes of"),
        (lambda r: changed(r, fingerprint={**r.fingerprint, "driver": None}), "its fingerprint must have driver"),
        (lambda r: changed(r, versions={**r.versions, "driver": "1"}), "its driver must be one, got 1 in versions and"),
        (lambda r: changed(r, versions={}), "its versions must have torch"),
        (lambda r: changed(r, measured_at="yesterday"), "measured_at must be a time by ISO 8601, got 'yesterday'"),
        (lambda r: changed(r, measured_at="2999-01-01T00:00:00Z"), "measured_at must not be in the future"),
        (lambda r: changed(r, measured_at="2026-01-31T12:00:00+02:00"), "measured_at must be in UTC, got 2026-01-31"),
        (
            lambda r: changed(r, workload=dataclasses.replace(r.workload, x=64)),
            "its workload must have the shape that fluxbench knows by this name",
        ),
        (lambda r: changed(r, form="folded"), "its form must be one of eager, "),
        (lambda r: changed(r, kernel="flash_attn_4"), "its variant must be flash_attn_4, got triton_flash"),
        (lambda r: changed(r, cell="sdpa"), "its cell must be triton, got sdpa"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_placed_is_refused(
    tmp_path: Path, change: Callable[[Record], Record], says: str
) -> None:
    intake = taken(tmp_path, change)
    assert intake.folder is None
    assert f"triton, triton_flash at flux1-1024px-t128: {says}" in "\n".join(intake.problems)
    assert list((tmp_path / "reports").iterdir()) == []


def test_a_folder_of_records_must_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "site" / "flux").mkdir(parents=True)
    (tmp_path / "site" / "flux" / "records").symlink_to(PUBLISHED)
    intake = add(tmp_path / "site", reports(tmp_path))
    assert "flux/records/triton.jsonl: it must be reached without a link" in intake.problems
    assert intake.folder is None


def test_stale_cells_are_refused(tmp_path: Path) -> None:
    home = folder(tmp_path, where="site/flux/records")
    for path in PUBLISHED.glob("te.*"):
        shutil.copyfile(path, home / path.name)
    newer = [
        changed(
            r, measured_at="2027-01-31T12:00:00+00:00", versions={**r.versions, "driver": "999.1"},
            fingerprint={**r.fingerprint, "driver": "999.1", "code.timing": "aaa"},
        )
        for r in files.read(home / "te.jsonl")
    ]  # fmt: skip
    files.write(home / "te.jsonl", newer)
    stale = [problem for problem in add(tmp_path / "site", reports(tmp_path)).problems if "stale" in problem]
    assert stale == [
        "triton: it is stale, as cell te shows: driver 580.159.04 -> 999.1, timing changed; build the page again first"
    ]


def test_what_another_layout_left_beside_a_built_page_is_not_taken(tmp_path: Path) -> None:
    folder(tmp_path, where="site/flux/records")
    folder(tmp_path, where="site/artifacts/old")
    home = reports(tmp_path)
    assert add(tmp_path / "site", home).problems == ()
    assert {path.name for path in (home / "h200" / "flux").iterdir()} == {"records"}


def test_a_thousand_cell_folders_are_read_once(tmp_path: Path) -> None:
    line = (PUBLISHED / "triton.jsonl").read_text().splitlines()[0]
    for number in range(1000):
        cell = tmp_path / "site" / "artifacts" / f"c{number}"
        cell.mkdir(parents=True)
        (cell / f"c{number}.jsonl").write_text(line + "\n")
    began = time.process_time()
    assert add(tmp_path / "site", reports(tmp_path)).records == 1000
    assert time.process_time() - began < 6


def test_a_target_is_of_one_device(tmp_path: Path) -> None:
    problems = taken(
        tmp_path, lambda r: r, lambda r: changed(r, fingerprint={**r.fingerprint, "device": "unknown"})
    ).problems
    assert (
        "triton, triton_flash at flux1-1024px-t256: all records must be of one device, got NVIDIA H200 and unknown"
        in (problems)
    )


def test_no_file_takes_the_place_of_another(tmp_path: Path) -> None:
    folder(tmp_path, where="site/artifacts/a")
    folder(tmp_path, lambda r: changed(r, compile_s=1.0), where="site/artifacts/b")
    intake = add(tmp_path / "site", reports(tmp_path))
    assert intake.folder is None
    assert (
        "artifacts/a/triton.jsonl and artifacts/b/triton.jsonl: both would become flux/records/triton.jsonl; they must "
        "have different names, or be one file"
    ) in intake.problems


def test_a_file_is_of_one_notebook_and_not_empty(tmp_path: Path) -> None:
    home = folder(tmp_path, lambda r: changed(r, notebook="other"))
    (home / "empty.jsonl").write_text("")
    assert add(home, reports(tmp_path)).problems == (
        "empty.jsonl: it holds no record",
        "triton.jsonl: its records must be of one notebook",
    )


@pytest.mark.parametrize(
    ("sent", "name", "says"),
    [
        *(
            ("sent", name, "a target's name must be")
            for name in ("../up", ".hidden", "a/b", "a" * 65, "index.html", "a.html")
        ),
        ("reports", None, r"must hold records \(\*\.jsonl\)"),
        ("nowhere", None, "must be given as a folder"),
    ],
)
def test_what_cannot_be_begun_is_refused(tmp_path: Path, sent: str, name: str | None, says: str) -> None:
    folder(tmp_path)
    home = reports(tmp_path)
    with pytest.raises(SetupError, match=says):
        add(tmp_path / sent, home, name)
    assert list(home.iterdir()) == []


def test_nothing_is_left_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    sent = folder(tmp_path)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        add(sent, reports(tmp_path))
    assert list((tmp_path / "reports").iterdir()) == []


def test_the_command_says_what_came_of_it_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = reports(tmp_path)
    arguments = ["add", str(folder(tmp_path)), "--reports", str(home)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"fluxbench: taken in as {home / 'h200'}: NVIDIA H200, records: 6; ")
    assert main(arguments) == 2
    assert "is there already and is never overwritten; choose another name by --target" in capsys.readouterr().err
    bad = folder(tmp_path, lambda r: changed(r, measured_at="never"), where="bad")
    assert main(["add", str(bad), "--reports", str(home), "--target", "new"]) == 2
    assert "measured_at must be a time" in capsys.readouterr().err
    assert not (home / "new").exists()
