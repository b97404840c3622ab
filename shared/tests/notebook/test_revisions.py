"""Reading published results: of now, of a history folder, of a git revision; and each way to miss them."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from notebooks import Machine, listing
from sample_records import record
from sites import believe

from fluxbench.analysis.verification.problem import Kind, Problem
from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_gzip, write_text
from fluxbench.notebook import revisions
from fluxbench.records.files import ControlTimes

measured = functools.partial(revisions.measured, check=believe)
CONTROL = ControlTimes(kernel="fixed", samples_ms={"flux1-1024px-t512": ((1.0, 1.1), (1.2,))})
RECORDS = Path("reports/h200/flux/records")
HISTORY = Path("reports/h200/flux/history")


def fill(
    folder: Path, ms: float, *variants: str, notebook: str = "flux", control: str | None = "control", gz: bool = False
) -> None:
    """Write one record for each variant into the file of its own cell, with the control kernel's times."""
    folder.mkdir(parents=True, exist_ok=True)
    for variant in variants or ("torch_flash", "flex"):
        text = record(variant, sustained_ms=ms, notebook=notebook).to_json() + "\n"
        if gz:
            write_gzip(folder / f"{variant}.jsonl.gz", text)
        else:
            write_text(folder / f"{variant}.jsonl", text)
        if control:
            write_text(folder / f"{variant}.{control}.json", CONTROL.to_json())


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, check=True)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside of any repository, with a report of two cells."""
    for variable in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    fill(tmp_path / "here" / RECORDS, 1.0)
    write_text(tmp_path / "here" / RECORDS / "device.json", "{}")
    write_text(tmp_path / "here" / RECORDS / "flex.samples.json.gz", "samples")
    return tmp_path / "here"


@pytest.fixture
def repository(root: Path) -> Path:
    """The same in a git repository, whose second commit took 2 ms, and whose working tree takes 3 ms."""
    git(root, "init", "-q")
    for ms in (1.0, 2.0):
        fill(root / RECORDS, ms)
        fill(root / HISTORY / "2026", 5.0)
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"{ms} ms")
    git(root, "tag", "newest")
    fill(root / RECORDS, 3.0)
    return root


def times(spec: str, root: Path) -> dict[str, float]:
    """Return the sustained times of a report's variants in ms."""
    return {each.variant: each.sustained.median_ms for each in measured(spec, root).records if each.sustained}


def refusal(spec: str, root: Path) -> str:
    """Return the sentence with which a report is refused; nothing is changed by it."""
    before = listing(root)
    with pytest.raises(SetupError) as error:
        measured(spec, root)
    assert listing(root) == before
    assert "\n" not in str(error.value)
    return str(error.value)


# Where records are.


@pytest.mark.parametrize("spec", ["reports/h200", "reports/h200/", "reports/h200/flux", "reports/h200/flux/records"])
def test_a_report_is_read_by_its_target_its_notebook_or_its_records(spec: str, root: Path) -> None:
    fill(root / HISTORY / "2026-11-21T104512Z", 5.0)
    fill(root / "reports/h200/.flux.new/records", 6.0)  # of an unfinished publishing
    side = measured(spec, root)
    assert side.name == spec
    assert times(spec, root) == {"torch_flash": 1.0, "flex": 1.0}
    assert side.controls == {("flux", "torch_flash"): CONTROL, ("flux", "flex"): CONTROL}


@pytest.mark.parametrize(
    ("name", "options"),
    [("at@home", {}), ("compressed", {"gz": True}), ("schema1", {"control": "sentinel"}), ("bare", {"control": None})],
)
def test_any_folder_of_records_is_a_report(root: Path, name: str, options: dict[str, Any]) -> None:
    fill(root / name, 4.0, **options)
    assert times(name, root) == times(str(root / name), root) == {"torch_flash": 4.0, "flex": 4.0}
    assert len(measured(name, root).controls) == (2 if options.get("control", True) else 0)


def test_all_notebooks_of_a_target_are_read_and_one_by_its_own_folder(root: Path) -> None:
    fill(root / "reports/h200/wan/records", 9.0, "flex", notebook="wan")
    side = measured("reports/h200", root)
    assert [(each.notebook, each.variant) for each in side.records] == [
        ("flux", "flex"), ("flux", "torch_flash"), ("wan", "flex"),
    ]  # fmt: skip
    assert set(side.controls) == {("flux", "torch_flash"), ("flux", "flex"), ("wan", "flex")}
    assert times("reports/h200/wan", root) == {"flex": 9.0}


def test_times_without_samples_are_compared_and_it_is_said(root: Path) -> None:
    path = root / RECORDS / "flex.jsonl"
    problems = [Problem(kind=Kind.NO_SAMPLES, path=path, variant=None, workload=None, values={})]
    found = measured("reports/h200", root, check=lambda cells: problems)
    assert (found.name, len(found.records)) == ("reports/h200 (times not checked: samples are missing)", 2)
    fill(root / HISTORY / "2026-11-22T000000Z", 6.0, gz=True)
    kept = measured("reports/h200@2026-11-22T000000Z", root, check=lambda cells: problems)
    assert (kept.name, len(kept.records)) == ("reports/h200@2026-11-22T000000Z", 2)


# History.


@pytest.mark.parametrize("folder", ["reports/h200", "reports/h200/flux", "reports/h200/flux/records"])
def test_a_name_of_the_history_is_what_was_published_until_then(folder: str, root: Path) -> None:
    fill(root / HISTORY / "2026-11-20T000000Z", 7.0, "torch_flash", gz=True)
    fill(root / HISTORY / "2026-11-21T000000Z", 5.0, "flex", gz=True)
    assert times(f"{folder}@2026-11-21T000000Z", root) == {"flex": 5.0, "torch_flash": 1.0}  # not replaced since
    fill(root / HISTORY / "2026-11-22T000000Z", 6.0, "torch_flash")
    assert times(f"{folder}@2026-11-21T000000Z", root) == {"flex": 5.0, "torch_flash": 6.0}
    assert measured(f"{folder}@2026-11-21T000000Z", root).name == f"{folder}@2026-11-21T000000Z"


def test_a_cell_that_was_first_published_later_is_no_part_of_a_revision(root: Path) -> None:
    made = record().measured_at
    earlier, later = (f"{datetime.fromisoformat(made) + timedelta(days=days):%Y-%m-%dT%H%M%SZ}" for days in (-1, 1))
    for entry in (earlier, later):
        fill(root / HISTORY / entry, 5.0, "te")
    assert times(f"reports/h200@{later}", root) == {"te": 5.0, "flex": 1.0, "torch_flash": 1.0}
    with pytest.raises(SetupError, match="must hold records"):  # what is there now is newer than the entry
        times(f"reports/h200@{earlier}", root)


def test_a_history_of_records_without_a_zone_or_that_cannot_be_read_is_no_exception(root: Path) -> None:
    entry = f"{datetime.fromisoformat(record().measured_at) + timedelta(days=1):%Y-%m-%dT%H%M%SZ}"
    fill(root / HISTORY / entry, 5.0, "te")
    whole = (root / RECORDS / "flex.jsonl").read_text()
    write_text(root / RECORDS / "flex.jsonl", whole.replace("+00:00", ""))
    assert times(f"reports/h200@{entry}", root) == {"te": 5.0, "flex": 1.0, "torch_flash": 1.0}
    (root / RECORDS / "odd.jsonl").mkdir()
    assert refusal(f"reports/h200@{entry}", root).endswith("read: odd.jsonl: a folder where a regular file must be")


# Git.


@pytest.mark.parametrize(("revision", "ms"), [("HEAD", 2.0), ("HEAD~1", 1.0), ("newest", 2.0), ("@{0}", 2.0)])
@pytest.mark.parametrize("folder", ["reports/h200", "reports/h200/flux/records"])
def test_a_git_revision_is_read_without_a_checkout(folder: str, revision: str, ms: float, repository: Path) -> None:
    before = listing(repository)
    side = measured(f"{folder}@{revision}", repository)
    assert {each.sustained.median_ms for each in side.records if each.sustained} == {ms}
    assert set(side.controls) == {("flux", "torch_flash"), ("flux", "flex")}
    assert listing(repository) == before


def test_a_report_that_is_gone_since_is_read_of_a_revision_and_nothing_is_left(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = repository.parent / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    git(repository, "rm", "-rqf", "reports")
    assert times("reports/h200@HEAD", repository) == {"flex": 2.0, "torch_flash": 2.0}
    assert list(scratch.iterdir()) == []


# What is refused.

FOLDER = "a report must be the folder of a published page, such as reports/<target>/<notebook>"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("reports/h100", f"{FOLDER}, got 'reports/h100', which is not there"),
        (
            "reports/h200/flux/records/flex.jsonl",
            f"{FOLDER}, got 'reports/h200/flux/records/flex.jsonl', which is a file",
        ),
        ("reports/h200@v9", "must be in its history (2026) or known to git, got 'v9'"),
        ("reports/h200@", "the revision after @ must be a name that does not begin with -"),
        ("reports/h200@--output=x", "the revision after @ must be a name that does not begin with -"),
        ("reports/new@HEAD", "a report must be a folder, got 'reports/new', which is not there at 'HEAD'"),
    ],
)
def test_what_is_no_report_or_no_revision_is_refused(repository: Path, spec: str, sentence: str) -> None:
    fill(repository / "reports/new/flux/records", 1.0)
    assert sentence in refusal(spec, repository)


def test_a_revision_needs_a_repository_and_git(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = refusal("reports/h200@HEAD", root)
    assert "its history, which is empty, or known to git, got 'HEAD' outside of a git repository" in sentence
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git cannot be run" in refusal("reports/h200@HEAD", root)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a line": (
        lambda folder: write_text(folder / "flex.jsonl", (folder / "flex.jsonl").read_text() + "no JSON\n"),
        "flex.jsonl, line 2: ",
    ),
    "a newer control": (
        lambda folder: write_text(folder / "flex.control.json", CONTROL.to_json().replace(":2", ":3", 1)),
        "update fluxbench",
    ),
    "a folder": (lambda folder: (folder / "odd.jsonl").mkdir(), "a folder where a regular file must be"),
    "not compressed": (
        lambda folder: write_text(folder / "odd.jsonl.gz", "text"), "odd.jsonl.gz cannot be decompressed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "sentence"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_record_is_named(root: Path, damage: Callable[[Path], object], sentence: str) -> None:
    damage(root / RECORDS)
    refused = refusal("reports/h200", root)
    assert refused.startswith("the records of 'reports/h200' cannot be read: ")
    assert sentence in refused


def test_what_a_build_leaves_is_read_as_a_report_is(built: Machine) -> None:
    side = measured("site", built.folder)
    assert [(record.cell, record.variant) for record in side.records] == [
        ("first", "torch_math"),
        ("second", "torch_native"),
    ]
