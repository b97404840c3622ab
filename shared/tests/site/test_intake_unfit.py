"""Files that are unfit, missing or contradict each other: one sentence for each, and nothing is taken."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sent import PUBLISHED, folder, reports

from fluxbench.site.draw import draw
from fluxbench.site.intake import add


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
    "a workload of 1 MB": (replaced('("name":")[a-z0-9-]+', LONG), "a workload must have at most 65,536 bytes, got 1,"),
    "a workload's long name": (replaced('("name":")[a-z0-9-]+', LONG[:300]), "at most 256 characters long"),
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
