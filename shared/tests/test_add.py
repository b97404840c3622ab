"""Records from other machines: what is taken in, and a sentence for each reason why not."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_records import make_record

from fluxbench.cli import main
from fluxbench.core.errors import SetupError
from fluxbench.records import schema as records
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.schema import Record, Status
from fluxbench.site.intake import Intake, add

REPORTS = Path(__file__).resolve().parents[2] / "reports"
SAID: Fingerprint = {
    "device": "NVIDIA H200",
    "device_kind": "cuda",
    "compute_capability": "9.0",
    "driver": "580.10",
    "mig": False,
    "python": "3.12.3",
    "code.timing.py": "0123456789ab",
}


def sent(variant: str = "torch_flash", **changed: Any) -> Record:
    """Return a record as another machine would send it."""
    said = changed.pop("said", {})
    record = dataclasses.replace(make_record(variant), fingerprint={**SAID, **said})
    return dataclasses.replace(record, **changed)


def folder(tmp_path: Path, *found: Record, where: str = "sent") -> Path:
    """Return a folder with a file of records."""
    home = tmp_path / where
    home.mkdir(parents=True)
    records.write(home / "sdpa.jsonl", found)
    return home


def taken(tmp_path: Path, *found: Record) -> Intake:
    """Return what comes of adding these records."""
    return add(folder(tmp_path, *found), reports(tmp_path))


def reports(tmp_path: Path) -> Path:
    """Return a folder of targets, empty."""
    home = tmp_path / "reports"
    home.mkdir(exist_ok=True)
    return home


def test_records_become_a_target_named_by_their_device(tmp_path: Path) -> None:
    came = taken(tmp_path, sent(), sent("flex"))
    assert came.problems == ()
    assert came.folder == tmp_path / "reports" / "h200"
    assert [r.variant for r in records.read(came.folder / "flux" / "records" / "sdpa.jsonl")] == ["torch_flash", "flex"]


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_what_is_published_can_be_sent(tmp_path: Path, target: str) -> None:
    came = add(REPORTS / target, reports(tmp_path), "theirs")
    assert came.problems == ()
    there, here = REPORTS / target / "flux" / "records", tmp_path / "reports" / "theirs" / "flux" / "records"
    assert {file.name for file in here.iterdir()} == {file.name for file in there.iterdir()}


def test_what_a_build_leaves_is_taken_without_its_page(tmp_path: Path) -> None:
    site = folder(tmp_path, sent(), where="site/artifacts/sdpa").parents[1]
    (site / "flux.html").write_text("<script>alert(1)</script>")
    (site / "artifacts" / "sdpa" / "latency.svg").write_text("<svg onload='alert(1)'/>")
    (site / "artifacts" / "sdpa" / "sdpa.samples.json").write_text("{}")
    (site / "artifacts" / "hardware").mkdir()
    (site / "artifacts" / "hardware" / "device.json").write_text('{"device": {}}')
    home = reports(tmp_path)
    assert add(site, home).problems == ()
    files = {str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()}
    assert files == {f"h200/flux/records/{name}" for name in ("device.json", "sdpa.jsonl", "sdpa.samples.json")}


def too_fast(record: Record) -> Record:
    assert record.timing
    timing = dataclasses.replace(
        record.timing, median_ms=0.1, ci95_ms=(0.09, 0.11), samples_ms=(0.1,) * 10, ratio=1.0, ratio_ci95=(1.0, 1.0)
    )
    return dataclasses.replace(record, timing=timing)


def not_its_samples(record: Record) -> Record:
    assert record.timing
    return dataclasses.replace(record, timing=dataclasses.replace(record.timing, samples_ms=(2.0,) * 10))


def over_budget(record: Record) -> Record:
    assert record.correctness
    return dataclasses.replace(record, correctness=dataclasses.replace(record.correctness, rel_l2=0.5))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (too_fast, "sustained: faster than the device can be: 0.1 ms measured, but"),
        (not_its_samples, "sustained: median_ms must lie within the samples, got 1 of"),
        (over_budget, "PASSED must be within its budget of 0.0061, got 0.5"),
        (lambda r: dataclasses.replace(r, fingerprint={}), "must say device, device_kind, python, code.<file>"),
        (lambda r: dataclasses.replace(r, fingerprint={**SAID, "driver": None}), "its fingerprint must say driver"),
        (
            lambda r: dataclasses.replace(r, versions={"torch": "2", "driver": "1"}),
            "its driver is 1 in versions and 580.10",
        ),
        (lambda r: dataclasses.replace(r, versions={}), "its versions must say torch"),
        (lambda r: dataclasses.replace(r, measured_at="yesterday"), "measured_at must be a time by ISO 8601"),
        (lambda r: dataclasses.replace(r, measured_at="2999-01-01T00:00:00Z"), "measured_at must not lie ahead"),
        (
            lambda r: dataclasses.replace(r, workload=dataclasses.replace(r.workload, seq_len=64)),
            "its workload must have the shape that fluxbench knows by this name",
        ),
    ],
)
def test_a_record_that_cannot_be_believed_is_refused(
    tmp_path: Path, change: Callable[[Record], Record], says: str
) -> None:
    came = taken(tmp_path, sent("flex"), change(sent()))
    assert came.folder is None
    assert [says in problem for problem in came.problems] == [True]
    assert came.problems[0].startswith("torch_flash, torch_flash at flux1-1024px-t512: ")
    assert list((tmp_path / "reports").iterdir()) == []


@pytest.mark.parametrize("ms", [5e-324, 1e-7, 1e308])
def test_a_time_that_no_call_takes_is_refused_on_any_device(tmp_path: Path, ms: float) -> None:
    record = sent(said={"device": "an unknown card"})
    assert record.timing
    timing = dataclasses.replace(record.timing, median_ms=ms, ci95_ms=(ms, ms), samples_ms=(ms,) * 10)
    came = taken(tmp_path, dataclasses.replace(record, timing=timing))
    assert [problem.partition(": ")[2] for problem in came.problems] == [
        f"sustained: times must lie within 1e-06 to 1e+09 ms, got {ms:g}"
    ]


def test_no_file_takes_the_place_of_another(tmp_path: Path) -> None:
    folder(tmp_path, sent(), where="site/artifacts/a")
    folder(tmp_path, sent("flex"), where="site/artifacts/b")
    came = add(tmp_path / "site", reports(tmp_path))
    assert came.folder is None
    assert came.problems == (
        "artifacts/a/sdpa.jsonl and artifacts/b/sdpa.jsonl: both would become flux/records/sdpa.jsonl; they must have "
        "different names, or be one file",
    )


@pytest.mark.parametrize(("other", "problems"), [('{"device": {}}', 0), ('{"device": {"name": "another"}}', 1)])
def test_what_lies_beside_records_must_agree(tmp_path: Path, other: str, problems: int) -> None:
    home = folder(tmp_path, sent(), where="site/artifacts/sdpa")
    (home / "device.json").write_text('{"device": {}}')
    (home.parent / "hardware").mkdir()
    (home.parent / "hardware" / "device.json").write_text(other)
    came = add(tmp_path / "site", reports(tmp_path))
    assert len([each for each in came.problems if "flux/records/device.json" in each]) == problems
    assert (came.folder is None) == bool(problems)


def test_a_target_is_of_one_device(tmp_path: Path) -> None:
    came = taken(tmp_path, sent(), sent("flex", said={"device": "NVIDIA L4"}))
    assert any("must be of one device: NVIDIA H200 -> NVIDIA L4" in problem for problem in came.problems)


def test_one_record_of_each_thing(tmp_path: Path) -> None:
    came = taken(tmp_path, sent(), sent())
    assert came.problems == ("torch_flash at flux1-1024px-t512: there must be one record of it in flux, got 2",)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("schema", 2, "schema of a record must be 1"),
        ("status", "FINE", "'FINE' is not a valid Status"),
        ("status", "TIMEOUT", "reason must be null exactly when PASSED"),
        ("variant", ["x"], "variant must be a text"),
        ("energy_mj", "1", "energy_mj must be a finite number or null"),
        ("energy_mj", float("nan"), "energy_mj must be a finite number or null"),
        ("versions", {"torch": 2}, "versions must be an object, each value a text"),
        ("notebook", "../flux", "the names of notebook and file must be safe as paths"),
    ],
)
def test_a_line_that_breaks_the_schema_is_named(tmp_path: Path, field: str, value: object, says: str) -> None:
    home = folder(tmp_path, sent())
    line = {**json.loads((home / "sdpa.jsonl").read_text()), field: value}
    (home / "sdpa.jsonl").write_text(json.dumps(line) + "\n")
    came = add(home, reports(tmp_path))
    assert [problem.startswith("sdpa.jsonl") and says in problem for problem in came.problems] == [True]
    assert came.folder is None


def test_what_lies_beside_records_must_be_json(tmp_path: Path) -> None:
    home = folder(tmp_path, sent())
    (home / "device.json").write_text("<html>")
    assert add(home, reports(tmp_path)).problems == ("device.json: it must hold one JSON object",)


def test_a_target_is_never_overwritten(tmp_path: Path) -> None:
    home = reports(tmp_path)
    (home / "h200").mkdir()
    with pytest.raises(SetupError, match="is there already and is never overwritten; choose another name by --target"):
        add(folder(tmp_path, sent()), home)
    assert list((home / "h200").iterdir()) == []


@pytest.mark.parametrize("name", ["../up", ".hidden", "a/b", ""])
def test_a_name_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    home = folder(tmp_path, sent())
    if name:
        with pytest.raises(SetupError, match="a target's name must be"):
            add(home, reports(tmp_path), name)
    else:
        assert add(home, reports(tmp_path), name).target == "h200"


def test_a_folder_without_records_says_where_they_must_be(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"must hold records, \*\.jsonl"):
        add(tmp_path, reports(tmp_path))
    with pytest.raises(SetupError, match="must be given as a folder"):
        add(tmp_path / "nowhere", reports(tmp_path))


def test_nothing_is_left_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        taken(tmp_path, sent())
    assert list((tmp_path / "reports").iterdir()) == []


def test_failures_are_taken_in_too(tmp_path: Path) -> None:
    failed = dataclasses.replace(make_record(status=Status.UNSUPPORTED), fingerprint=SAID)
    assert taken(tmp_path, failed).problems == ()


def test_the_command_says_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = reports(tmp_path)
    arguments = ["add", str(folder(tmp_path, sent())), "--reports", str(home)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"fluxbench: taken in as {home / 'h200'}: NVIDIA H200, records: 1; ")
    assert main(arguments) == 2
    assert "is there already" in capsys.readouterr().err
    bad = folder(tmp_path, sent(measured_at="never"), where="bad")
    assert main(["add", str(bad), "--reports", str(home), "--target", "new"]) == 1
    assert "measured_at must be a time" in capsys.readouterr().err
    assert not (home / "new").exists()
