"""Records from other machines: what is taken in, and a sentence for each reason why not."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sample_records import changed

from fluxbench.cli import main
from fluxbench.core.errors import SetupError
from fluxbench.records import files
from fluxbench.records.schema import Record
from fluxbench.site.draw import draw
from fluxbench.site.intake import Intake, add

REPORTS = Path(__file__).resolve().parents[3] / "reports"
PUBLISHED = REPORTS / "h200" / "flux" / "records"


def folder(tmp_path: Path, *changes: Callable[[Record], Record], where: str = "sent") -> Path:
    """Return a folder with a published cell, its first records changed."""
    home = tmp_path / where
    home.mkdir(parents=True)
    for path in PUBLISHED.glob("triton.*"):
        shutil.copyfile(path, home / path.name)
    records = files.read(home / "triton.jsonl")
    found = [change(record) for change, record in zip(changes, records, strict=False)]
    files.write(home / "triton.jsonl", [*found, *records[len(found) :]])
    return home


def reports(tmp_path: Path) -> Path:
    """Return a folder of targets, empty."""
    home = tmp_path / "reports"
    home.mkdir(exist_ok=True)
    return home


def taken(tmp_path: Path, *changes: Callable[[Record], Record]) -> Intake:
    """Return what comes of adding a published cell with these changes."""
    return add(folder(tmp_path, *changes), reports(tmp_path))


def test_records_become_a_target_named_by_their_device(tmp_path: Path) -> None:
    intake = taken(tmp_path)
    there = files.read(tmp_path / "reports" / "h200" / "flux" / "records" / "triton.jsonl")
    assert there == files.read(PUBLISHED / "triton.jsonl")
    assert intake == Intake(
        target="h200", folder=tmp_path / "reports" / "h200", records=len(there), device="NVIDIA H200", problems=()
    )


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_what_is_published_can_be_sent(tmp_path: Path, target: str) -> None:
    assert add(REPORTS / target, reports(tmp_path), "theirs").problems == ()
    there, here = REPORTS / target / "flux" / "records", tmp_path / "reports" / "theirs" / "flux" / "records"
    assert {file.name for file in here.iterdir()} == {file.name for file in there.iterdir()}


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


def text_of(change: Callable[[str], str]) -> Callable[[Path], object]:
    """Return the change of the first line of a file of records."""

    def changed_text(home: Path) -> None:
        first, rest = (home / "triton.jsonl").read_text().split("\n", 1)
        assert change(first) != first
        (home / "triton.jsonl").write_text(f"{change(first)}\n{rest}")

    return changed_text


def replaced(pattern: str, value: str) -> Callable[[Path], object]:
    return text_of(lambda line: re.sub(pattern, lambda found: found[1] + value, line, count=1))


def fifo(name: str) -> Callable[[Path], object]:
    def change(home: Path) -> None:
        (home / name).unlink(missing_ok=True)
        os.mkfifo(home / name)

    return change


def link(name: str) -> Callable[[Path], object]:
    """Return the change that puts a link to the same content in a file's place."""

    def change(home: Path) -> None:
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(PUBLISHED / name)

    return change


DIGITS, LONG = "9" * 5000, "a" * 1_000_000
UNFIT = {
    "5,000 digits": (replaced('("peak_memory_bytes":)[0-9]+', DIGITS), "a record does not fit schema 2: "),
    "a schema of 5,000 digits": (replaced('("schema":)2', DIGITS), "a record must be one JSON object a line"),
    "seq_len 10^400": (replaced('("seq_len_q":)[0-9]+', "1" + "0" * 400), "an integer must fit in 64 bits"),
    "x 10^400": (replaced('("x":)[0-9]+', "1" + "0" * 400), "an integer must fit in 64 bits"),
    "a power limit of 10^400 W": (replaced('("power_limit_w":)[0-9.]+', "1" + "0" * 400), "must fit in 64 bits"),
    "an operation that is code": (
        text_of(lambda line: re.sub('"operation":"attention"', '"operation":"os:abort"', line)), "must have the shape"
    ),
    "a negative error": (replaced('("max_abs":)[0-9.e-]+', "-1"), "`float` >= 0.0 - at `$.errors[...].max_abs`"),
    "negative memory": (replaced('("peak_memory_bytes":)[0-9]+', "-1"), "`int` >= 0 - at `$.peak_memory_bytes`"),
    "negative energy": (replaced('("energy_mj":)[0-9.]+', "-1"), "`float` > 0.0 - at `$.energy_mj`"),
    "a variant of 1 MB": (replaced('("variant":")[a-z_]+', LONG), "of length <= 256 - at `$.variant`"),
    "a workload of 1 MB": (replaced('("name":")[a-z0-9-]+', LONG), "at most 256 characters long"),
    "a detail of 1 MB": (text_of(lambda line: line[:-1] + f',"detail":"{LONG}"}}'), "of length <= 65536"),
    "a name of control times of 1 MB": (
        lambda home: (home / "triton.control.json").write_text(f'{{"kernel": "k", "samples_ms": {{"{LONG}": []}}}}'),
        "triton.control.json must hold the times of the control kernel: Expected `str` of length <= 256",
    ),
    "control times of other types": (
        lambda home: (home / "triton.control.json").write_text('{"schema": 2, "kernel": 1, "samples_ms": []}'),
        "triton.control.json must hold the times of the control kernel: Expected `str`, got `int`",
    ),
    "a deep rates.json": (lambda home: (home / "rates.json").write_text('{"a":' + "[" * 100_000), "64 levels deep"),
    "device.json of another type": (
        lambda home: (home / "device.json").write_text('{"device": {"kind": "c", "name": "x", "memory_bytes": "1"}}'),
        "device.json must hold the device: Expected `int | null`, got `str`",
    ),
    "rates of 400 digits": (
        lambda home: (home / "rates.json").write_text(f'{{"copy_gb_s": {DIGITS[:400]}}}'), "must fit in 64 bits"
    ),
    **{f"a FIFO: {name}": (fifo(name), "a FIFO where a regular file must be") for name in (
        "more.jsonl", "triton.jsonl", "triton.control.json", "triton.samples.json.gz", "triton.capabilities.json",
        "device.json", "rates.json",
    )},
    **{f"a link: {name}": (link(name), "a link where a regular file must be") for name in (
        "triton.jsonl", "triton.control.json", "triton.samples.json.gz", "triton.capabilities.json", "device.json",
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_what_is_unfit_is_one_sentence_here_and_on_the_site_and_nothing_is_taken(tmp_path: Path, name: str) -> None:
    change, says = UNFIT[name]
    home = folder(tmp_path, where="site/flux/records")
    change(home)
    intake = add(tmp_path / "site", reports(tmp_path))
    assert says in str(intake.problems)
    assert max(map(len, intake.problems)) < 1000
    assert (intake.folder, list((tmp_path / "reports").iterdir())) == (None, [])
    (tmp_path / "published").mkdir()
    (tmp_path / "site").rename(tmp_path / "published" / "theirs")
    assert says in str(draw(tmp_path / "published").problems)


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


@pytest.mark.parametrize(("end", "problems"), [("", 0), (" ", 1)])
def test_what_lies_beside_records_must_agree(tmp_path: Path, end: str, problems: int) -> None:
    home = folder(tmp_path, where="site/artifacts/triton")
    (home.parent / "te").mkdir()
    for path in PUBLISHED.glob("te.*"):
        shutil.copyfile(path, home.parent / "te" / path.name)
    device = (PUBLISHED / "device.json").read_text()
    (home / "device.json").write_text(device)
    (home.parent / "te" / "device.json").write_text(device + end)
    intake = add(tmp_path / "site", reports(tmp_path))
    assert len([problem for problem in intake.problems if "flux/records/device.json" in problem]) == problems
    assert (intake.folder is None) == bool(problems)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("device.json", b"<html>", "device.json must hold the device: "),
        ("triton.samples.json.gz", b"not gzip", "triton.samples.json.gz cannot be decompressed"),
        (
            "triton.samples.json.gz",
            gzip.compress(b'{"series": [{"process": 0}]}', mtime=0),
            "triton.samples.json.gz must hold series: ",
        ),
        ("triton.samples.json.gz", gzip.compress(bytes(257 << 20), 1), "gz must hold at most 256 MiB, got more"),
        ("triton.control.json", b'{"schema": 2}', "triton.control.json must hold the times of the control kernel"),
        ("triton.control.json", b'{"schema": 9, "kernel": "k", "samples_ms": {}}', "its schema must be 1 or 2, got 9"),
    ],
)
def test_what_lies_beside_records_must_be_whole(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    home = folder(tmp_path)
    (home / name).write_bytes(content)
    intake = add(home, reports(tmp_path))
    assert any(problem.startswith("triton: ") and says in problem for problem in intake.problems)
    assert intake.folder is None


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("schema", 3, "schema of a record must be 2, got 3"),
        ("notebook", "../flux", "the names of notebook and file must be safe as paths"),
    ],
)
def test_a_line_that_breaks_the_schema_is_named(tmp_path: Path, field: str, value: object, says: str) -> None:
    home = folder(tmp_path)
    lines = [{**json.loads(line), field: value} for line in (home / "triton.jsonl").read_text().splitlines()]
    (home / "triton.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    intake = add(home, reports(tmp_path))
    assert [problem.startswith("triton.jsonl") and says in problem for problem in intake.problems] == [True]
    assert intake.folder is None


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
