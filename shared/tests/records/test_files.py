"""Files of records and of control times: whole, damaged, compressed, and on a full disk."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from sample_records import record

from fluxbench.records import files
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import RecordError
from fluxbench.records.status import Status

RECORDS = [record(), record("flex", status=Status.CRASHED, reason="ünlucky")]
CONTROL = ControlTimes(kernel="a product", samples_ms={"flex": ((0.4, 0.41), (0.42,), ())})


def test_a_file_of_records_comes_back_as_it_was_compressed_or_not(tmp_path: Path) -> None:
    files.write(tmp_path / "sdpa.jsonl", RECORDS)
    (tmp_path / "flex.jsonl.gz").write_bytes(gzip.compress((tmp_path / "sdpa.jsonl").read_bytes()))
    (tmp_path / "sdpa.samples.json").write_text("{}")
    assert [(path.name, files.cell_of(path)) for path in files.paths(tmp_path)] == [
        ("flex.jsonl.gz", "flex"),
        ("sdpa.jsonl", "sdpa"),
    ]
    assert [files.read(path) for path in files.paths(tmp_path)] == [RECORDS, RECORDS]
    assert files.paths(tmp_path / "none") == []


def test_a_damaged_file_is_refused_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "sdpa.jsonl"
    files.write(path, RECORDS)
    path.write_text(path.read_text(encoding="utf-8")[:-200], encoding="utf-8")
    with pytest.raises(RecordError, match=r"^sdpa.jsonl, line 2: a record must be one JSON object a line"):
        files.read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match=r"^sdpa.jsonl, line 1"):
        files.read(path)
    for content in (b"no gzip", gzip.compress(b"x" * 999)[:-20]):
        (tmp_path / "flex.jsonl.gz").write_bytes(content)
        with pytest.raises(RecordError, match=r"^flex.jsonl.gz cannot be decompressed"):
            files.read(tmp_path / "flex.jsonl.gz")


@pytest.mark.parametrize(("name", "schema"), [("sdpa.control.json", 2), ("sdpa.sentinel.json", 1)])
def test_control_times_are_read_of_both_schemas(tmp_path: Path, name: str, schema: int) -> None:
    (tmp_path / name).write_text(json.dumps({**json.loads(CONTROL.to_json()), "schema": schema}))
    found = files.read_control(tmp_path, "sdpa")
    assert found
    assert (found.kernel, found.samples_ms) == (CONTROL.kernel, CONTROL.samples_ms)
    assert files.read_control(tmp_path, "flex") is None


@pytest.mark.parametrize(
    "change",
    [
        *({"schema": 3}, {"schema": "2"}, {"kernel": None}, {"made_up": 1}, {"samples_ms": {"flex": [[0.4, 0.0]]}}),
        *({"samples_ms": {"flex": [[-0.4]]}}, {"samples_ms": {"flex": [[True]]}}, {"samples_ms": {"flex": [0.4]}}),
    ],
    ids=str,
)
def test_damaged_control_times_are_refused_by_name(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "sdpa.control.json"
    path.write_text(json.dumps({**json.loads(CONTROL.to_json()), **change}))
    with pytest.raises(RecordError, match=r"^sdpa.control.json"):
        files.read_control(tmp_path, "sdpa")
    for content in ("", "{", "[" * 100_000, "\ud800", '{"kernel": "a", "samples_ms": {"a": [[NaN]]}}'):
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
        with pytest.raises(RecordError, match=r"^sdpa.control.json"):
            files.read_control(tmp_path, "sdpa")
