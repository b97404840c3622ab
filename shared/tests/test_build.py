"""Building and publishing a notebook: real uvnote, a fake uv that runs cells in this interpreter, a made-up device."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import GPU, NEWER_DRIVER, REPOSITORY, clean, executable, fake_uv, uv_calls, without_uv
from sample_records import make_record

from fluxbench import bench, cell, cli, hardware, records
from fluxbench.hardware import Device
from fluxbench.notebook.build import Built, build
from fluxbench.notebook.document import Document, load
from fluxbench.notebook.freshness import drop_stale
from fluxbench.notebook.publish import publish
from fluxbench.records import Record, Status
from fluxbench.settings import Settings, SetupError

HEADER = """# /// script
# requires-python = ">=3.11"
#
# [tool.fluxbench]
# notebook = "made_up"
# packages = ["torch==2.13.0"]
# ///
"""
# Two measuring cells, and a showing one after each. A measuring cell writes the records that the test prepared.
NOTEBOOK = """# Made up

```python id=first outputs=first.jsonl
{HEADER}import os, shutil
shutil.copy(os.environ["RECORDS"] + "/first.jsonl", "first.jsonl")
```

```python id=second outputs=second.jsonl
{HEADER}import os, shutil
shutil.copy(os.environ["RECORDS"] + "/second.jsonl", "second.jsonl")
```

```python id=figure needs=first outputs=figure.svg,table.csv
from pathlib import Path
Path("figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
Path("table.csv").write_text("a,b")
print("the figure")
```

```python id=other needs=second
print("the other")
```
""".replace("{HEADER}", HEADER)
ALL = ["figure", "first", "other", "second"]


@dataclass
class Machine:
    """A folder that stands for a machine: its settings, its notebook and what its cells are to measure."""

    folder: Path
    settings: Settings
    notebook: Path

    @property
    def output(self) -> Path:
        return self.folder / "site"

    def build(self) -> Built:
        (self.folder / "uv.log").write_text("", encoding="utf-8")
        return build(self.notebook, self.settings, self.output)

    def ran(self) -> list[str]:
        """The cells that the last build ran, sorted."""
        calls = [call["arguments"] for call in uv_calls(self.folder / "uv.log")]
        return sorted(Path(call[1]).stem for call in calls if call[0] == "run")

    def dropped(self) -> list[str]:
        """The cells whose results no longer hold, sorted: what the next build would run."""
        return sorted(drop_stale(load(self.notebook), hardware.detect(), self.settings))

    def measures(self, cell_id: str, *found: Record, device: Device = GPU) -> None:
        """Prepare what a cell is to write, as measured here and now on a device."""
        [code] = [code for code in load(self.notebook).cells if code.id == cell_id]
        marks = bench.fingerprint_of(cell.parse(code.code, code.id), device, self.settings)
        found = tuple(dataclasses.replace(record, fingerprint=marks) for record in found)
        records.write(self.folder / "records" / f"{cell_id}.jsonl", found)

    def rewrite(self, old: str, new: str) -> None:
        text = self.notebook.read_text(encoding="utf-8")
        assert old in text
        self.notebook.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return made_up_machine(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A page without problems, built once: not to be damaged."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = made_up_machine(tmp_path_factory.mktemp("machine"), monkeypatch).build()
    assert found.problems == ()
    return found


def made_up_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    clean(monkeypatch)
    fake_uv(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("RECORDS", str(tmp_path / "records"))
    monkeypatch.setattr(hardware, "detect", lambda: GPU)
    (tmp_path / "records").mkdir()
    (tmp_path / "environment").symlink_to(REPOSITORY / "environment")
    settings = Settings(root=tmp_path, cache=tmp_path / "cache")
    monkeypatch.setattr(Settings, "load", lambda: settings)
    notebook = tmp_path / "notebooks" / "made_up.md"
    notebook.parent.mkdir()
    notebook.write_text(NOTEBOOK, encoding="utf-8")
    found = Machine(folder=tmp_path, settings=settings, notebook=notebook)
    found.measures("first", make_record("torch_math"))
    found.measures("second", make_record("torch_native"))
    return found


def test_a_first_build_runs_every_cell_and_draws_the_page(machine: Machine) -> None:
    built = machine.build()
    assert machine.ran() == ALL
    assert built.problems == ()
    assert "the other" in built.page.read_text(encoding="utf-8")


def test_a_build_returns_the_records_of_its_page(machine: Machine) -> None:
    assert {record.variant for record in machine.build().records} == {"torch_math", "torch_native"}


def test_an_environment_that_a_cell_needs_is_made_once_and_before_uvnote_starts_its_clock(machine: Machine) -> None:
    machine.build()
    commands = [call["arguments"][0] for call in uv_calls(machine.folder / "uv.log")]
    assert [command for command in commands if command != "cache"] == ["venv", "pip", *["run"] * 4]


def test_a_second_build_with_nothing_changed_runs_nothing(machine: Machine) -> None:
    machine.build()
    assert machine.build().problems == ()
    assert machine.ran() == []


def test_a_result_of_another_driver_is_dropped_with_what_needs_it_and_the_rest_stays(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.measures("first", make_record("torch_math"), device=NEWER_DRIVER)
    machine.build()
    machine.measures("first", make_record("torch_math"))
    machine.build()
    assert machine.ran() == ["figure", "first"]
    assert "cell first is run again: driver 580.159.04 -> 580.65.06" in capsys.readouterr().out


def test_after_a_new_driver_everything_is_measured_and_drawn_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.build()
    monkeypatch.setattr(hardware, "detect", lambda: NEWER_DRIVER)
    assert machine.dropped() == ALL


def test_other_workloads_are_measured_again(machine: Machine) -> None:
    machine.build()
    machine.settings = dataclasses.replace(machine.settings, workloads=("flux1-512px",))
    assert {"first", "second"} <= set(machine.dropped())


AGAIN = [Status.UNAVAILABLE, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.CRASHED, Status.ERROR]


def test_a_variant_that_failed_in_a_way_that_may_pass_is_tried_again_and_no_other(machine: Machine) -> None:
    machine.build()
    again = []
    for status in Status:
        machine.measures("first", make_record("flex", status=status))
        document = load(machine.notebook)
        kept, _ = document.results()["first"]
        copy = shutil.copytree(kept, machine.folder / "kept" / status)
        shutil.copy(machine.folder / "records" / "first.jsonl", kept)
        if dropped := drop_stale(document, hardware.detect(), machine.settings):
            assert dropped["first"] == ["a variant failed in a way that may pass"]
            again.append(status)
            shutil.copytree(copy, kept)
    assert again == AGAIN


@pytest.mark.parametrize("text", ["", "half a rec"])
def test_a_cell_without_whole_records_is_run_again(machine: Machine, text: str) -> None:
    (machine.folder / "records" / "first.jsonl").write_text(text, encoding="utf-8")
    machine.build()
    assert machine.dropped() == ["figure", "first"]


def test_a_cell_that_failed_is_a_problem_that_names_it_and_is_run_again(machine: Machine) -> None:
    machine.rewrite('print("the other")', 'raise SystemExit("fluxbench: the GPU is on fire")')
    machine.rewrite("id=other needs=second", "id=other needs=second,figure")  # the last one: a failure ends the rest
    assert machine.build().problems == ("cell other failed: the GPU is on fire",)
    machine.build()
    assert machine.ran() == ["other"]


def test_a_cell_that_uv_could_not_start_says_what_to_do_and_names_no_registry(machine: Machine) -> None:
    machine.rewrite(
        'print("the other")',
        'raise SystemExit("error: Failed to fetch: https://a.registry/x/\\n  cause: dns error")',
    )
    machine.rewrite("id=other needs=second", "id=other needs=second,figure")
    (problem,) = machine.build().problems
    assert problem.endswith("; check the network, or name a folder of wheels in FLUXBENCH_WHEELS")
    assert "a.registry" not in problem


def test_a_cell_that_was_not_run_is_a_problem_too(machine: Machine) -> None:
    machine.rewrite('print("the figure")', 'raise SystemExit("no")')
    machine.rewrite("id=figure needs=first", "id=figure needs=first,second")
    machine.rewrite("id=other needs=second", "id=other needs=figure")
    assert machine.build().problems == (
        "cell figure failed: no",
        "not run, because a cell before failed: other",
    )


def test_a_cell_that_is_commented_out_is_no_problem(machine: Machine) -> None:
    machine.rewrite("```python id=other needs=second", "# ```python id=other needs=second")
    assert machine.build().problems == ()


def test_a_variant_that_the_target_expects_and_that_did_not_pass_is_a_problem(machine: Machine) -> None:
    machine.measures("first", make_record("torch_math", status=Status.INCORRECT, reason="it is wrong"))
    assert machine.build().problems == ("torch_math at flux1-1024px-t512: INCORRECT: it is wrong",)


def test_a_variant_that_the_target_does_not_expect_may_fail(machine: Machine) -> None:
    machine.measures("second", make_record("torch_native"), make_record("flex", status=Status.UNSUPPORTED))
    assert machine.build().problems == ()


def test_an_expected_variant_without_a_record_is_a_problem(machine: Machine) -> None:
    machine.rewrite("import os, shutil\n", 'import os, shutil  # bench.measure("torch_math")\n')
    machine.measures("first", make_record("torch_cudnn"))
    machine.measures("second", make_record("torch_native"))
    assert machine.build().problems == ("torch_math: no record",)


def test_the_command_ends_with_0_and_names_the_page(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build", str(machine.notebook), "--output", str(machine.output)]) == 0
    assert f"The page is {machine.output / 'made_up.html'}" in capsys.readouterr().out


def test_the_command_ends_with_1_where_a_cell_failed_and_says_which(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.rewrite('print("the other")', 'raise SystemExit("no")')
    assert cli.main(["build", str(machine.notebook), "--output", str(machine.output)]) == 1
    assert "fluxbench: cell other failed: no" in capsys.readouterr().err


def test_the_command_ends_with_2_where_the_build_could_not_begin(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["build", str(machine.folder / "missing.md")]) == 2
    assert "a notebook must be a readable Markdown file" in capsys.readouterr().err


def test_the_command_publishes_nothing_where_there_is_a_problem(machine: Machine) -> None:
    machine.rewrite('print("the other")', 'raise SystemExit("no")')
    assert cli.main(["publish", str(machine.notebook), "--output", str(machine.output)]) == 1
    assert not (machine.folder / "reports").exists()


def test_the_command_publishes_under_the_name_of_the_device(machine: Machine) -> None:
    assert cli.main(["publish", str(machine.notebook), "--output", str(machine.output)]) == 0
    assert (machine.folder / "reports" / "made-up" / "made_up.html").is_file()


def test_a_second_build_is_refused_while_one_runs(machine: Machine) -> None:
    work = machine.notebook.parent / ".uvnote"
    work.mkdir()
    with (work / "fluxbench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(SetupError, match=r"another build runs in .*; wait until it ends"):
            machine.build()


def test_a_build_without_uv_says_how_to_get_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    without_uv(monkeypatch, machine.folder / "nothing")
    executable(machine.folder / "nothing" / "uvnote", "")
    with pytest.raises(SetupError, match=r"uv must be on PATH .*; run `make setup`"):
        machine.build()


def test_a_build_without_uvnote_says_how_to_get_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    without_uv(monkeypatch, machine.folder / "nothing")
    with pytest.raises(SetupError, match=r"uvnote must be installed .*; run `make setup`"):
        machine.build()


def test_a_malformed_header_ends_the_build_with_one_sentence(machine: Machine) -> None:
    machine.rewrite('# packages = ["torch==2.13.0"]', "# packages = [")
    with pytest.raises(SetupError, match="must be TOML"):
        machine.build()


# Documents.


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# Prose alone\n", "must have at least one ```python cell"),
        ("```python id=../up\n1\n```\n", r"id must be letters, digits, - and _, got '../up'"),
        ("```python id=.hidden\n1\n```\n", "id must be letters, digits, - and _"),
        ("```python id=a\n1\n```\n```python id=a\n2\n```\n", "Duplicate cell ids"),
        ("```python id=a needs=b\n1\n```\n", "depends on unknown cell 'b'"),
    ],
)
def test_what_is_no_notebook_is_refused_with_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "made_up.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SetupError, match=sentence):
        load(path)


def test_a_file_that_is_not_text_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "made_up.md"
    path.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(SetupError, match="must be a readable Markdown file"):
        load(path)


def test_the_descendants_of_a_cell_are_found_however_far_down(tmp_path: Path) -> None:
    path = tmp_path / "made_up.md"
    needs = {"a": "", "b": " needs=a", "c": " needs=b", "d": ""}
    path.write_text("".join(f"```python id={name}{after}\n1\n```\n" for name, after in needs.items()), encoding="utf-8")
    assert load(path).descendants({"a"}) == {"a", "b", "c"}


# Publishing.


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_published_page_has_its_records_artifacts_and_cells_beside_it(built: Built, tmp_path: Path) -> None:
    publish(built, tmp_path / "reports", "made-up")
    assert set(tree(tmp_path / "reports")) == {
        "made-up/made_up.html",
        "made-up/made_up/records/first.jsonl",
        "made-up/made_up/records/second.jsonl",
        "made-up/made_up/artifacts/figure/figure.svg",
        "made-up/made_up/artifacts/figure/table.csv",
        *(f"made-up/made_up/cells/{name}.py" for name in ALL),
    }


def test_every_link_of_a_published_page_leads_somewhere(built: Built, tmp_path: Path) -> None:
    page = publish(built, tmp_path / "reports", "made-up")
    links = re.findall(r'(?:href|src)="([^"#:]+)"', page.read_text(encoding="utf-8"))
    assert {"made_up/records/first.jsonl", "made_up/artifacts/figure/table.csv"} <= set(links)
    assert [link for link in links if not (page.parent / link).is_file()] == []


def test_published_records_are_those_of_the_page(built: Built, tmp_path: Path) -> None:
    page = publish(built, tmp_path / "reports", "made-up")
    found = [record for path in sorted(page.with_suffix("").glob("records/*.jsonl")) for record in records.read(path)]
    assert found == list(built.records)


def test_a_page_with_problems_is_not_published_and_what_was_stays(built: Built, tmp_path: Path) -> None:
    publish(built, tmp_path / "reports", "made-up")
    before = tree(tmp_path / "reports")
    with pytest.raises(SetupError, match="only a page without problems can be published, got: cell x failed"):
        publish(dataclasses.replace(built, problems=("cell x failed",)), tmp_path / "reports", "made-up")
    assert tree(tmp_path / "reports") == before


def test_publishing_again_replaces_what_was_published(built: Built, tmp_path: Path) -> None:
    page = publish(built, tmp_path / "reports", "made-up")
    before = tree(tmp_path / "reports")
    (page.with_suffix("") / "records" / "of_an_older_page.jsonl").touch()
    publish(built, tmp_path / "reports", "made-up")
    assert tree(tmp_path / "reports") == before


def test_what_an_interrupted_publishing_left_is_cleared_away(built: Built, tmp_path: Path) -> None:
    for name in (".made_up.new", ".made_up.old"):
        (tmp_path / "reports" / "made-up" / name).mkdir(parents=True)
        (tmp_path / "reports" / "made-up" / name / "half.txt").write_text("half", encoding="utf-8")
    publish(built, tmp_path / "reports", "made-up")
    assert not [name for name in tree(tmp_path / "reports") if "half" in name]


def without_a_result(built: Built) -> None:
    shutil.rmtree(built.document.work / "cells")


def without_a_page(built: Built) -> None:
    built.page.unlink()


@pytest.mark.parametrize("damage", [without_a_result, without_a_page])
def test_a_page_that_cannot_be_copied_leaves_what_was_published(
    machine: Machine, tmp_path: Path, damage: Callable[[Built], None]
) -> None:
    built = machine.build()
    publish(built, tmp_path / "reports", "made-up")
    before = tree(tmp_path / "reports")
    damage(built)
    with pytest.raises(SetupError, match="what was published is untouched"):
        publish(built, tmp_path / "reports", "made-up")
    assert tree(tmp_path / "reports") == before


def test_a_disk_that_is_full_at_the_page_leaves_what_was_published(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(built, tmp_path / "reports", "made-up")
    before = tree(tmp_path / "reports")
    another = tmp_path / "another.html"
    another.write_text("another page", encoding="utf-8")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SetupError, match="No space left on device; what was published is untouched"):
        publish(dataclasses.replace(built, page=another), tmp_path / "reports", "made-up")
    assert tree(tmp_path / "reports") == before


def test_after_a_full_disk_the_next_publishing_succeeds(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SetupError):
            publish(built, tmp_path / "reports", "made-up")
    assert publish(built, tmp_path / "reports", "made-up").is_file()


def test_a_document_knows_which_of_its_cells_measure(built: Built) -> None:
    document: Document = built.document
    assert [code.id for code in document.cells if document.is_measuring(code)] == ["first", "second"]


def test_a_disk_that_is_full_ends_the_command_with_2_and_one_sentence(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(["build", str(machine.notebook), "--output", str(machine.output)]) == 2
    assert capsys.readouterr().err == "fluxbench: the disk is full; free some space and run it again\n"
