"""The command `fluxbench diff`: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from sample_records import make_record

from fluxbench import cli
from fluxbench.records import schema as records

H200 = {"device": "NVIDIA H200", "device_kind": "cuda", "driver": "580.65.06", "code.timing.py": "a"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fill(folder: str, median_ms: float, **marks: str) -> None:
    """Write a published folder with one record."""
    path = Path(folder, "flux", "records")
    path.mkdir(parents=True)
    record = make_record("flex", median_ms=median_ms, measured_at=f"2026-11-2{len(folder) % 10}T00:00:00+00:00")
    records.write(path / "flex.jsonl", [dataclasses.replace(record, fingerprint={**H200, **marks})])


def test_two_folders_are_compared_and_what_differs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    fill("before", 1.0)
    fill("afterwards", 2.0, driver="580.159.04")
    assert cli.main(["diff", "before", "afterwards"]) == 0
    out = capsys.readouterr().out
    assert "driver 580.65.06 -> 580.159.04" in out
    assert "2.0000 [2.0000, 2.0000]" in out
    assert "slower" in out
    assert cli.main(["diff", "before", "afterwards", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["change"]["verdict"] == "slower"


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        ({"device": "NVIDIA A100"}, "they were measured on different devices: NVIDIA H200 -> NVIDIA A100"),
        ({"code.timing.py": "b"}, "they were not measured in the same way: timing.py changed between them"),
    ],
)
def test_what_is_not_comparable_is_refused_with_the_reason(
    marks: dict[str, str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill("before", 1.0)
    fill("afterwards", 2.0, **marks)
    assert cli.main(["diff", "before", "afterwards"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"fluxbench: Nothing was compared: {reason} (1 row)\n"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [("nowhere", "a report must be a folder"), ("empty", "a report must hold records"), ("before@x", "'x'")],
)
def test_what_is_no_report_or_no_revision_ends_with_2_and_one_sentence(
    spec: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill("before", 1.0)
    Path("empty").mkdir()
    assert cli.main(["diff", "before", spec]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert reason in err


def test_records_of_a_newer_schema_end_with_2_and_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    fill("before", 1.0)
    path = Path("before/flux/records/flex.jsonl")
    path.write_text(path.read_text(encoding="utf-8").replace('"schema": 1', '"schema": 2'), encoding="utf-8")
    assert cli.main(["diff", "before", "before"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "schema of a record must be 1; update fluxbench" in err
