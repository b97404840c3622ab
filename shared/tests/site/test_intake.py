"""Records from other machines: what is taken in, and a sentence for each reason why not."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_records import changed, errors, timing
from sites import H200, record

from fluxbench.cli import main
from fluxbench.core.errors import SetupError
from fluxbench.records import files
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.records.status import Status
from fluxbench.site.intake import Intake, add

REPORTS = Path(__file__).resolve().parents[3] / "reports"
CONTROL = '{"schema": 2, "kernel": "control", "samples_ms": {"torch_flash": [[0.1]]}}'


def folder(tmp_path: Path, *records: Record, where: str = "sent") -> Path:
    """Return a folder with a file of records."""
    home = tmp_path / where
    home.mkdir(parents=True)
    files.write(home / "sdpa.jsonl", records)
    return home


def reports(tmp_path: Path) -> Path:
    """Return a folder of targets, empty."""
    home = tmp_path / "reports"
    home.mkdir(exist_ok=True)
    return home


def taken(tmp_path: Path, *records: Record) -> Intake:
    """Return what comes of adding these records."""
    return add(folder(tmp_path, *records), reports(tmp_path))


def test_records_become_a_target_named_by_their_device(tmp_path: Path) -> None:
    intake = taken(tmp_path, record(), record("flex", status=Status.UNSUPPORTED))
    assert intake == Intake(
        target="h200", folder=tmp_path / "reports" / "h200", records=2, device="NVIDIA H200", problems=()
    )
    there = files.read(tmp_path / "reports" / "h200" / "flux" / "records" / "sdpa.jsonl")
    assert [one.variant for one in there] == ["torch_flash", "flex"]


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_what_is_published_can_be_sent(tmp_path: Path, target: str) -> None:
    assert add(REPORTS / target, reports(tmp_path), "theirs").problems == ()
    there, here = REPORTS / target / "flux" / "records", tmp_path / "reports" / "theirs" / "flux" / "records"
    assert {file.name for file in here.iterdir()} == {file.name for file in there.iterdir()}


@pytest.mark.parametrize(
    ("beside", "rates"),
    [
        (("sdpa.samples.json.gz", "sdpa.control.json"), "rates.json"),
        (("sdpa.samples.json", "sdpa.sentinel.json"), "ceilings.json"),
    ],
)
def test_what_a_build_leaves_is_taken_without_its_page(tmp_path: Path, beside: tuple[str, str], rates: str) -> None:
    cell = folder(tmp_path, record(), where="site/artifacts/sdpa")
    site = cell.parents[1]
    (site / "flux.html").write_text("<script>alert(1)</script>")
    (cell / "latency.svg").write_text("<svg onload='alert(1)'/>")
    (cell / "another.control.json").write_text("not of these records")
    samples, control = beside
    (cell / samples).write_bytes(gzip.compress(b"{}") if samples.endswith(".gz") else b"{}")
    (cell / control).write_text(CONTROL)
    (cell / "sdpa.capabilities.json").write_text("{}")
    for name, file in (("hardware", "device.json"), ("rates", rates)):
        (site / "artifacts" / name).mkdir()
        (site / "artifacts" / name / file).write_text("{}")
    home = reports(tmp_path)
    assert add(site, home).problems == ()
    names = {str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()}
    expected = ("device.json", rates, "sdpa.jsonl", "sdpa.capabilities.json", samples, control)
    assert names == {f"h200/flux/records/{name}" for name in expected}


def timed(of: Record, regime: str = SUSTAINED, ms: float = 1.0, **fields: Any) -> Record:
    """Return a record with another time in one regime."""
    return changed(of, timings={**of.timings, regime: timing(ms, of.variant, **fields)})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: timed(r, SUSTAINED, 0.1), "sustained: faster than the device can be: 0.1 ms measured, but"),
        (lambda r: timed(r, BURST, 0.1), "burst: faster than the device can be: 0.1 ms measured, but"),
        (lambda r: timed(r, samples_ms=((2.0,), (2.1, 2.2))), "must lie within the samples, got 1 of 1.998 to"),
        (lambda r: timed(r, BURST, samples_ms=((0.5,),)), "burst: median_ms must lie within the samples, got 1 of"),
        (lambda r: changed(r, errors={"out": errors(0.5)}), "PASSED must be within its budget of 0.0061, got 0.5"),
        (lambda r: changed(r, errors={"dq": errors(), "dk": errors(nan_count=1)}), "got 0.003 in output dk"),
        (lambda r: changed(r, fingerprint={}), "must have device, device_kind, python, hashes of the measuring code"),
        (lambda r: changed(r, fingerprint={**H200, "driver": None}), "its fingerprint must have driver"),
        (lambda r: changed(r, versions={"torch": "2", "driver": "1"}), "must be one, got 1 in versions and 580.10 in"),
        (lambda r: changed(r, versions={}), "its versions must have torch"),
        (lambda r: changed(r, measured_at="yesterday"), "measured_at must be a time by ISO 8601, got 'yesterday'"),
        (lambda r: changed(r, measured_at="2999-01-01T00:00:00Z"), "measured_at must not be in the future"),
        (
            lambda r: changed(r, workload=dataclasses.replace(r.workload, x=64)),
            "its workload must have the shape that fluxbench knows by this name",
        ),
        (lambda r: changed(r, form="folded"), "its form must be one of eager, "),
        (lambda r: changed(r, kernel="flash_attn_4"), "must be named flash_attn_4, for its kernel and form"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_believed_is_refused(
    tmp_path: Path, change: Callable[[Record], Record], says: str
) -> None:
    intake = taken(tmp_path, record("flex"), change(record()))
    assert intake.folder is None
    assert [says in problem for problem in intake.problems] == [True]
    assert intake.problems[0].startswith("torch_flash, torch_flash at flux1-1024px-t512: ")
    assert list((tmp_path / "reports").iterdir()) == []


def test_a_time_that_no_call_takes_is_refused_on_any_device(tmp_path: Path) -> None:
    intake = taken(tmp_path, timed(record(fingerprint={**H200, "device": "an unknown card"}), ms=1e-7, ci=0.0))
    assert [problem.partition(": ")[2] for problem in intake.problems] == [
        "sustained: times must lie within 1e-06 to 1e+09 ms, got 1e-07"
    ]


def test_a_target_is_of_one_device_and_has_one_record_of_each_thing(tmp_path: Path) -> None:
    other = record("flex", fingerprint={**H200, "device": "unknown"})
    assert taken(tmp_path, record(), record(), other).problems == (
        "flex, flex at flux1-1024px-t512: all records of a target must be of one device: NVIDIA H200 -> unknown",
        "torch_flash at flux1-1024px-t512: there must be one record of it in flux, got 2",
    )


def test_no_file_takes_the_place_of_another(tmp_path: Path) -> None:
    folder(tmp_path, record(), where="site/artifacts/a")
    folder(tmp_path, record("flex"), where="site/artifacts/b")
    intake = add(tmp_path / "site", reports(tmp_path))
    assert intake.folder is None
    assert intake.problems == (
        "artifacts/a/sdpa.jsonl and artifacts/b/sdpa.jsonl: both would become flux/records/sdpa.jsonl; they must have "
        "different names, or be one file",
    )


@pytest.mark.parametrize(("other", "problems"), [('{"device": {}}', 0), ('{"device": {"name": "another"}}', 1)])
def test_what_lies_beside_records_must_agree(tmp_path: Path, other: str, problems: int) -> None:
    home = folder(tmp_path, record(), where="site/artifacts/sdpa")
    (home / "device.json").write_text('{"device": {}}')
    (home.parent / "hardware").mkdir()
    (home.parent / "hardware" / "device.json").write_text(other)
    intake = add(tmp_path / "site", reports(tmp_path))
    assert len([problem for problem in intake.problems if "flux/records/device.json" in problem]) == problems
    assert (intake.folder is None) == bool(problems)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("device.json", b"<html>", "device.json: it must hold one JSON object"),
        ("sdpa.samples.json", b"[]", "sdpa.samples.json: it must hold one JSON object"),
        ("sdpa.samples.json.gz", b"not gzip", "sdpa.samples.json.gz: it cannot be decompressed"),
        ("sdpa.samples.json.gz", gzip.compress(bytes(257 << 20), 1), "gz: it must hold at most 256 MiB, got more"),
        ("sdpa.control.json", b'{"schema": 2}', "sdpa.control.json must hold the times of the control kernel"),
        ("sdpa.sentinel.json", b'{"schema": 9, "kernel": "k", "samples_ms": {}}', "its schema must be 1 or 2, got 9"),
    ],
)
def test_what_lies_beside_records_must_be_whole(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    home = folder(tmp_path, record())
    (home / name).write_bytes(content)
    intake = add(home, reports(tmp_path))
    assert [says in problem for problem in intake.problems] == [True]
    assert intake.folder is None


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("schema", 3, "schema of a record must be 2, got 3"),
        ("notebook", "../flux", "the names of notebook and file must be safe as paths"),
    ],
)
def test_a_line_that_breaks_the_schema_is_named(tmp_path: Path, field: str, value: object, says: str) -> None:
    home = folder(tmp_path, record())
    line = {**json.loads((home / "sdpa.jsonl").read_text()), field: value}
    (home / "sdpa.jsonl").write_text(json.dumps(line) + "\n")
    intake = add(home, reports(tmp_path))
    assert [problem.startswith("sdpa.jsonl") and says in problem for problem in intake.problems] == [True]
    assert intake.folder is None


def test_a_file_is_of_one_notebook_and_not_empty(tmp_path: Path) -> None:
    home = folder(tmp_path, record(), record("flex", notebook="other"))
    (home / "empty.jsonl").write_text("")
    assert add(home, reports(tmp_path)).problems == (
        "empty.jsonl: it holds no record",
        "sdpa.jsonl: its records must be of one notebook",
    )


@pytest.mark.parametrize(
    ("sent", "name", "says"),
    [
        *(("sent", name, "a target's name must be") for name in ("../up", ".hidden", "a/b", "a" * 65)),
        ("reports", None, r"must hold records, \*\.jsonl"),
        ("nowhere", None, "must be given as a folder"),
    ],
)
def test_what_cannot_be_begun_is_refused(tmp_path: Path, sent: str, name: str | None, says: str) -> None:
    folder(tmp_path, record())
    home = reports(tmp_path)
    with pytest.raises(SetupError, match=says):
        add(tmp_path / sent, home, name)
    assert list(home.iterdir()) == []


def test_nothing_is_left_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        taken(tmp_path, record())
    assert list((tmp_path / "reports").iterdir()) == []


def test_the_command_says_what_came_of_it_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = reports(tmp_path)
    arguments = ["add", str(folder(tmp_path, record())), "--reports", str(home)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"fluxbench: taken in as {home / 'h200'}: NVIDIA H200, records: 1; ")
    assert main(arguments) == 2
    assert "is there already and is never overwritten; choose another name by --target" in capsys.readouterr().err
    bad = folder(tmp_path, record(measured_at="never"), where="bad")
    assert main(["add", str(bad), "--reports", str(home), "--target", "new"]) == 1
    assert "measured_at must be a time" in capsys.readouterr().err
    assert not (home / "new").exists()
