"""Reading published results: of now, of a history folder, of a git revision; and each way to miss them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from sample_records import make_record

from fluxbench.core.errors import SetupError
from fluxbench.notebook.revisions import measured
from fluxbench.records import schema as records
from fluxbench.records.schema import Sentinel

SENTINEL = Sentinel(kernel="fixed", samples_ms={"flux1-1024px-t512": ((1.0, 1.1), (1.2,))})


def fill(folder: Path, median_ms: float, *variants: str, notebook: str = "flux", sentinel: bool = True) -> None:
    """Write one record a variant, each in the file of its own cell, with its sentinel."""
    folder.mkdir(parents=True, exist_ok=True)
    for variant in variants or ("torch_flash", "flex"):
        text = make_record(variant, median_ms=median_ms).to_json().replace('"flux"', f'"{notebook}"')
        (folder / f"{variant}.jsonl").write_text(text + "\n", encoding="utf-8")
        if sentinel:
            (folder / f"{variant}.sentinel.json").write_text(SENTINEL.to_json(), encoding="utf-8")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside of any repository, with a report of two cells."""
    for variable in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    folder = tmp_path / "here"
    fill(folder / "reports" / "h200" / "flux" / "records", 1.0)
    (folder / "reports" / "h200" / "flux" / "records" / "device.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.fixture
def repository(root: Path) -> Path:
    """The same in a git repository, whose second commit took 2 ms, and whose working tree takes 3 ms."""
    git(root, "init", "-q")
    for median_ms in (1.0, 2.0):
        fill(root / "reports" / "h200" / "flux" / "records", median_ms)
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"{median_ms} ms")
    git(root, "tag", "newest")
    fill(root / "reports" / "h200" / "flux" / "records", 3.0)
    return root


def medians(spec: str, root: Path) -> set[float]:
    return {record.timing.median_ms for record in measured(spec, root).records if record.timing}


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every file below a folder with its size and time of change."""
    found = {path: path.stat() for path in folder.rglob("*")}
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def refusal(spec: str, root: Path) -> str:
    """Return the sentence with which a report is refused; nothing is changed by it."""
    before = everything(root)
    with pytest.raises(SetupError) as error:
        measured(spec, root)
    assert everything(root) == before
    said = str(error.value)
    assert "\n" not in said
    return said


# Where records are.


@pytest.mark.parametrize("spec", ["reports/h200", "reports/h200/", "reports/h200/flux", "reports/h200/flux/records"])
def test_a_report_is_read_by_its_target_its_notebook_or_its_records(spec: str, root: Path) -> None:
    found = measured(spec, root)
    assert found.name == spec
    assert {record.variant for record in found.records} == {"torch_flash", "flex"}
    assert found.sentinels == {("flux", "torch_flash"): SENTINEL, ("flux", "flex"): SENTINEL}


def test_a_folder_elsewhere_is_read_by_its_full_path(root: Path, tmp_path: Path) -> None:
    fill(tmp_path / "copied", 7.0)
    assert medians(str(tmp_path / "copied"), root) == {7.0}


def test_records_without_sentinels_are_read(root: Path) -> None:
    fill(root / "old", 1.0, sentinel=False)
    found = measured("old", root)
    assert (len(found.records), found.sentinels) == (2, {})


@pytest.mark.parametrize("spec", ["reports/h200", "reports/h200@HEAD", "reports/h200@2026-01-31T000000Z"])
def test_the_samples_beside_the_records_are_not_taken_for_records(spec: str, root: Path) -> None:
    report = root / "reports" / "h200" / "flux"
    fill(report / "history" / "2026-01-31T000000Z", 1.0)
    for folder in (report / "records", report / "history" / "2026-01-31T000000Z"):
        (folder / "flex.samples.json").write_text('{"variant": "flex"}\n', encoding="utf-8")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        git(root, *arguments)
    assert {record.variant for record in measured(spec, root).records} == {"torch_flash", "flex"}


def test_all_notebooks_of_a_target_are_read_and_one_by_its_own_folder(root: Path) -> None:
    fill(root / "reports" / "h200" / "wan" / "records", 9.0, notebook="wan")
    found = measured("reports/h200", root)
    assert {(record.notebook, record.cell) for record in found.records} == set(found.sentinels)
    assert len(found.sentinels) == 4
    assert medians("reports/h200/wan", root) == {9.0}


def test_history_and_unfinished_folders_are_no_part_of_the_present(root: Path) -> None:
    fill(root / "reports" / "h200" / "flux" / "history" / "2026-11-21T104512Z", 5.0)
    fill(root / "reports" / "h200" / ".flux.new" / "records", 6.0)
    assert medians("reports/h200", root) == medians("reports/h200/flux", root) == {1.0}


def test_a_folder_whose_name_holds_an_at_sign_is_read(root: Path) -> None:
    fill(root / "at@home", 4.0)
    assert medians("at@home", root) == {4.0}


# History.


@pytest.mark.parametrize("folder", ["reports/h200", "reports/h200/flux", "reports/h200/flux/records"])
def test_a_name_of_the_history_is_a_revision(folder: str, root: Path) -> None:
    fill(root / "reports" / "h200" / "flux" / "history" / "2026-11-21T104512Z", 5.0, "flex")
    found = measured(f"{folder}@2026-11-21T104512Z", root)
    assert found.name == f"{folder}@2026-11-21T104512Z"
    times = {record.variant: record.timing.median_ms for record in found.records if record.timing}
    assert times == {"flex": 5.0, "torch_flash": 1.0}  # the other cell was not replaced since


def test_a_revision_is_what_was_published_until_then(root: Path) -> None:
    history = root / "reports" / "h200" / "flux" / "history"
    fill(history / "2026-11-20T000000Z", 7.0, "torch_flash")
    fill(history / "2026-11-21T000000Z", 5.0, "flex")
    fill(history / "2026-11-22T000000Z", 6.0, "torch_flash")
    found = measured("reports/h200@2026-11-21T000000Z", root)
    times = {record.variant: record.timing.median_ms for record in found.records if record.timing}
    assert times == {"flex": 5.0, "torch_flash": 6.0}


def test_a_folder_of_the_history_is_a_report(root: Path) -> None:
    fill(root / "reports" / "h200" / "flux" / "history" / "2026-11-21T104512Z", 5.0)
    assert medians("reports/h200/flux/history/2026-11-21T104512Z", root) == {5.0}


def test_a_name_that_several_notebooks_share_is_that_of_all(root: Path) -> None:
    for notebook in ("flux", "wan"):
        kept = root / "reports" / "h200" / notebook / "history" / "2026"
        fill(kept, 5.0, notebook=notebook)
    assert len(measured("reports/h200@2026", root).records) == 4


# Git.


@pytest.mark.parametrize(("revision", "median_ms"), [("HEAD", 2.0), ("HEAD~1", 1.0), ("newest", 2.0), ("@{0}", 2.0)])
def test_a_git_revision_is_read_without_a_checkout(revision: str, median_ms: float, repository: Path) -> None:
    before = everything(repository)
    found = measured(f"reports/h200@{revision}", repository)
    assert {record.timing.median_ms for record in found.records if record.timing} == {median_ms}
    assert set(found.sentinels) == {("flux", "torch_flash"), ("flux", "flex")}
    assert everything(repository) == before
    assert medians("reports/h200", repository) == {3.0}


@pytest.mark.parametrize("folder", ["reports/h200/flux", "reports/h200/flux/records"])
def test_a_git_revision_is_read_of_each_folder(folder: str, repository: Path) -> None:
    assert medians(f"{folder}@HEAD~1", repository) == {1.0}


def test_the_root_of_a_repository_may_hold_the_records(root: Path) -> None:
    fill(root, 8.0)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "records")
    assert medians(".@HEAD", root) == {8.0}


def test_a_report_that_is_gone_since_is_read_of_a_revision(repository: Path) -> None:
    git(repository, "rm", "-rqf", "reports")
    assert medians("reports/h200@HEAD", repository) == {2.0}


def test_history_in_git_is_no_part_of_that_revision(repository: Path) -> None:
    fill(repository / "reports" / "h200" / "flux" / "history" / "2026", 5.0)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "history")
    assert medians("reports/h200@HEAD", repository) == {3.0}


def test_nothing_is_left_among_temporary_files(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    measured("reports/h200@HEAD", repository)
    assert list(scratch.iterdir()) == []


# What is refused.


def test_a_folder_that_does_not_exist(root: Path) -> None:
    assert refusal("reports/h100", root) == "a report must be a folder, got 'reports/h100', where there is none"


def test_a_file_is_no_report(root: Path) -> None:
    (root / "flux.html").write_text("", encoding="utf-8")
    assert refusal("flux.html", root) == "a report must be a folder, got 'flux.html', where there is none"


def test_a_folder_without_records(root: Path) -> None:
    (root / "empty").mkdir()
    assert "a report must hold records" in refusal("empty", root)
    assert "got 'empty'" in refusal("empty", root)


def test_a_file_without_records(root: Path) -> None:
    (root / "empty").mkdir()
    (root / "empty" / "flex.jsonl").write_text("", encoding="utf-8")
    assert "a report must hold records" in refusal("empty", root)


def test_a_revision_that_neither_history_nor_git_knows(repository: Path) -> None:
    expected = "the revision of 'reports/h200' must be in its history, which is empty, or known to git, got 'v9'"
    assert refusal("reports/h200@v9", repository) == expected
    for name in ("2026-11-20T090000Z", "2026-11-21T104512Z"):
        fill(repository / "reports" / "h200" / "flux" / "history" / name, 5.0)
    assert "its history (2026-11-20T090000Z, 2026-11-21T104512Z) or known to git" in refusal(
        "reports/h200@v9", repository
    )


def test_a_revision_outside_of_a_git_repository(root: Path) -> None:
    said = refusal("reports/h200@HEAD", root)
    assert "got 'HEAD' outside of a git repository (git: fatal: not a git repository" in said


@pytest.mark.parametrize("revision", ["", "-1", "--output=x"])
def test_a_revision_that_git_might_take_for_an_option(revision: str, repository: Path) -> None:
    expected = "the revision after @ must be a name that does not begin with -"
    assert refusal(f"reports/h200@{revision}", repository).startswith(expected)


def test_a_folder_that_was_not_there_at_a_revision(repository: Path) -> None:
    fill(repository / "reports" / "new" / "flux" / "records", 1.0)
    expected = "a report must be a folder, got 'reports/new', which is not there at 'HEAD'"
    assert refusal("reports/new@HEAD", repository) == expected


def test_a_folder_without_records_at_a_revision(repository: Path) -> None:
    (repository / "other").mkdir()
    (repository / "other" / "file").write_text("", encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "other")
    assert "a report must hold records" in refusal("other@HEAD", repository)


def test_a_machine_without_git(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git cannot be run" in refusal("reports/h200@HEAD", root)


def test_a_damaged_record_is_named_with_its_file_and_line(root: Path) -> None:
    path = root / "reports" / "h200" / "flux" / "records" / "flex.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + "no JSON\n", encoding="utf-8")
    said = refusal("reports/h200", root)
    assert said.startswith("the records of 'reports/h200' cannot be read: flex.jsonl, line 2: ")


def test_a_damaged_record_of_a_revision_is_named_too(repository: Path) -> None:
    (repository / "reports" / "h200" / "flux" / "records" / "flex.jsonl").write_text("[]\n", encoding="utf-8")
    git(repository, "commit", "-qam", "damaged")
    assert "the records of 'reports/h200@HEAD' cannot be read: flex.jsonl, line 1: " in refusal(
        "reports/h200@HEAD", repository
    )


@pytest.mark.parametrize("file", ["flex.jsonl", "flex.sentinel.json"])
def test_a_newer_schema_says_to_update(file: str, root: Path) -> None:
    path = root / "reports" / "h200" / "flux" / "records" / file
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r'"schema": \d+', f'"schema": {records.SCHEMA + 1}', text), encoding="utf-8")
    assert "update fluxbench" in refusal("reports/h200", root)


def test_records_that_may_not_be_read(root: Path) -> None:
    (root / "reports" / "h200" / "flux" / "records" / "odd.jsonl").mkdir()
    assert refusal("reports/h200", root).startswith("the records of 'reports/h200' cannot be read: ")
